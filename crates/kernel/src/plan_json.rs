//! A plan for programs.

use serde::Serialize;
use sqm_core::spec::{Class, LinkLayer};
use sqm_plan::plan::moving::{Bounds, Mover, MovingRates};
use sqm_plan::plan::{Firewall, Plan, PlannedClass, PlannedQdisc, Tree};
use sqm_plan::side::Side;

/// A plan for programs. Rates and sizes are in the units their names end in; `spec` is in `tc`'s words.
#[derive(Serialize)]
pub struct PlanJson {
    interface: String,
    script: String,
    egress: Option<TreeJson>,
    ingress: Option<TreeJson>,
    /// Firewall rules, as `nft` commands.
    firewall: Vec<String>,
    /// How the daemon moves the rates; null without `option autorate`.
    autorate: Option<AutorateJson>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct AutorateJson {
    /// Null if the direction's rate does not move.
    download: Option<BoundsJson>,
    upload: Option<BoundsJson>,
    /// As they are configured; empty means well-known resolvers.
    reflectors: Vec<String>,
}

#[derive(Serialize)]
struct BoundsJson {
    min_bits_per_sec: u64,
    max_bits_per_sec: u64,
}

#[derive(Serialize)]
struct TreeJson {
    device: String,
    /// `daemon` or `cake`; null if the rate stays as planned.
    rate_moved_by: Option<&'static str>,
    qdiscs: Vec<QdiscJson>,
    classes: Vec<ClassJson>,
    /// In `tc`'s words, in the order in which they are asked.
    filters: Vec<String>,
}

#[derive(Serialize)]
struct QdiscJson {
    handle: String,
    /// Absent for a root.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    kind: &'static str,
    spec: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    stab: Option<StabJson>,
}

#[derive(Serialize)]
struct StabJson {
    mtu_bytes: u32,
    entries: u32,
    mpu_bytes: u32,
    overhead_bytes: i32,
    linklayer: &'static str,
}

#[derive(Serialize)]
struct ClassJson {
    id: String,
    parent: String,
    kind: &'static str,
    spec: String,
    /// HTB's parameters; HFSC's curves are in `spec`.
    #[serde(flatten)]
    htb: Option<HtbJson>,
}

#[derive(Serialize)]
struct HtbJson {
    rate_bits_per_sec: u64,
    ceil_bits_per_sec: u64,
    prio: u32,
    quantum_bytes: Option<u32>,
    burst_bytes: u64,
    cburst_bytes: u64,
}

impl From<&Plan> for PlanJson {
    fn from(plan: &Plan) -> Self {
        let tree = |device: &str, side: Side, tree: &Option<Tree>| {
            tree.as_ref().map(
                |Tree {
                     qdiscs,
                     classes,
                     filters,
                 }| TreeJson {
                    device: device.to_owned(),
                    rate_moved_by: plan.mover(side).map(Mover::name),
                    qdiscs: qdiscs.iter().map(QdiscJson::from).collect(),
                    classes: classes.iter().map(ClassJson::from).collect(),
                    filters: filters.iter().map(ToString::to_string).collect(),
                },
            )
        };
        Self {
            interface: plan.interface.clone(),
            script: plan.script.clone(),
            egress: tree(&plan.interface, Side::Egress, &plan.egress),
            ingress: tree(&plan.ifb(), Side::Ingress, &plan.ingress),
            firewall: plan.firewall.as_ref().map(Firewall::nft).unwrap_or_default(),
            autorate: plan.autorate.as_ref().map(AutorateJson::from),
            notes: plan.notes.clone(),
        }
    }
}

impl From<&MovingRates> for AutorateJson {
    fn from(rates: &MovingRates) -> Self {
        let bounds = |bounds: Option<Bounds>| {
            bounds.map(|Bounds { min, max }| BoundsJson {
                min_bits_per_sec: min.bits_per_sec(),
                max_bits_per_sec: max.bits_per_sec(),
            })
        };
        Self {
            download: bounds(rates.download),
            upload: bounds(rates.upload),
            reflectors: rates.reflectors.iter().map(ToString::to_string).collect(),
        }
    }
}

impl From<&PlannedQdisc> for QdiscJson {
    fn from(
        PlannedQdisc {
            parent,
            handle,
            stab,
            qdisc,
        }: &PlannedQdisc,
    ) -> Self {
        Self {
            handle: handle.to_string(),
            parent: parent.map(|parent| parent.to_string()),
            kind: qdisc.kind(),
            spec: qdisc.to_string(),
            stab: stab.as_ref().map(|stab| StabJson {
                mtu_bytes: stab.mtu,
                entries: stab.tsize,
                mpu_bytes: stab.mpu,
                overhead_bytes: stab.overhead,
                linklayer: match stab.linklayer {
                    LinkLayer::Ethernet => "ethernet",
                    LinkLayer::Atm => "atm",
                },
            }),
        }
    }
}

impl From<&PlannedClass> for ClassJson {
    fn from(PlannedClass { parent, id, class }: &PlannedClass) -> Self {
        Self {
            id: id.to_string(),
            parent: parent.to_string(),
            kind: class.kind(),
            spec: class.to_string(),
            htb: match class {
                Class::Htb(class) => Some(HtbJson {
                    rate_bits_per_sec: class.rate.bits_per_sec(),
                    ceil_bits_per_sec: class.ceil.bits_per_sec(),
                    prio: class.prio,
                    quantum_bytes: class.quantum,
                    burst_bytes: class.burst.0,
                    cburst_bytes: class.cburst.0,
                }),
                Class::Hfsc(_) => None,
            },
        }
    }
}

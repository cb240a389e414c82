//! `sqm plan`: what the configuration would build, without building it.

use std::process::ExitCode;

use anyhow::Context;
use clap::ValueEnum;
use serde::Serialize;
use sqm_core::spec::{Class, LinkLayer};
use sqm_kernel::netlink::link::Link;
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::verify::Observed;
use sqm_kernel::{diff, observe, render};
use sqm_plan::plan::{Plan, PlannedClass, PlannedQdisc, Tree};

use super::config::Which;
use super::shape::failure;
use crate::failure::Failure;

/// Show what the configuration would build, without building it; needs no privileges.
///
/// The whole file is checked first. Errors go to standard error, all of them, each with its line; so do warnings
/// about options that have no effect.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm plan
  sqm plan --format tc eth0
  sqm plan --diff
  sqm plan --config ./sqm.conf --format json")]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
    /// A summary, the commands a person would type, or data for programs.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// What would change on this machine, step by step; nothing if it holds the plan already.
    #[arg(long)]
    diff: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Tc,
    Json,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let plans = self.which.plans(&links())?;
        if self.diff {
            return diff(&plans, self.format);
        }
        match self.format {
            Format::Text => print!(
                "{}",
                plans
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join("\n")
            ),
            Format::Tc => plans
                .iter()
                .flat_map(render::tc)
                .for_each(|line| println!("{line}")),
            Format::Json => {
                let plans: Vec<_> = plans.iter().map(PlanJson::from).collect();
                println!(
                    "{}",
                    serde_json::to_string_pretty(&plans).context("writing JSON")?
                );
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The steps from what this machine holds to the plans.
fn diff(plans: &[Plan], format: Format) -> Result<ExitCode, Failure> {
    let mut socket = Socket::open().context("cannot open a netlink socket")?;
    let mut all = Vec::new();
    for plan in plans {
        let observed = Observed::read(&mut socket, plan).map_err(failure)?;
        all.push(StepsJson {
            interface: &plan.interface,
            steps: diff::steps(plan, &observed)
                .iter()
                .map(ToString::to_string)
                .collect(),
        });
    }
    if matches!(format, Format::Json) {
        println!("{}", serde_json::to_string_pretty(&all).context("writing JSON")?);
        return Ok(ExitCode::SUCCESS);
    }
    for StepsJson { interface, steps } in &all {
        match steps.len() {
            0 => println!("{interface}: nothing would change"),
            n => println!(
                "{interface}: {n} {} would be made",
                if n == 1 { "change" } else { "changes" }
            ),
        }
        steps.iter().for_each(|step| println!("  {step}"));
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct StepsJson<'a> {
    interface: &'a str,
    steps: Vec<String>,
}

/// This machine's devices, for their MTU. None where the kernel does not tell: a plan can be made on any machine.
fn links() -> Vec<Link> {
    Socket::open()
        .ok()
        .and_then(|mut socket| observe::links(&mut socket).ok())
        .unwrap_or_default()
}

/// A plan for programs. Rates and sizes are in the units their names end in; `spec` is in `tc`'s words.
#[derive(Serialize)]
struct PlanJson {
    interface: String,
    script: String,
    egress: Option<TreeJson>,
    ingress: Option<TreeJson>,
    /// Firewall rules, as `nft` commands.
    firewall: Vec<String>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct TreeJson {
    device: String,
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
    /// Of HTB; HFSC's curves are in `spec`.
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
        let tree = |device: &str, tree: &Option<Tree>| {
            tree.as_ref().map(
                |Tree {
                     qdiscs,
                     classes,
                     filters,
                 }| TreeJson {
                    device: device.to_owned(),
                    qdiscs: qdiscs.iter().map(QdiscJson::from).collect(),
                    classes: classes.iter().map(ClassJson::from).collect(),
                    filters: filters.iter().map(ToString::to_string).collect(),
                },
            )
        };
        Self {
            interface: plan.interface.clone(),
            script: plan.script.clone(),
            egress: tree(&plan.interface, &plan.egress),
            ingress: tree(&plan.ifb(), &plan.ingress),
            firewall: plan.firewall.as_ref().map(render::nft).unwrap_or_default(),
            notes: plan.notes.clone(),
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

//! `sqm plan`: what the configuration would build, without building it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::ValueEnum;
use serde::Serialize;
use sqm_core::spec::{HtbClass, LinkLayer};
use sqm_kernel::render;
use sqm_plan::plan::{Plan, PlannedClass, PlannedQdisc, Tree};

use crate::failure::Failure;

/// Show what the configuration would build, without building it; needs no privileges.
///
/// The whole file is checked first. Errors go to standard error, all of them, each with its line; so do warnings
/// about options that have no effect.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm plan
  sqm plan --format tc eth0
  sqm plan --config ./sqm.conf --format json")]
pub(crate) struct Args {
    /// The configuration, in the format of OpenWrt's sqm.
    #[arg(long, value_name = "FILE", default_value = "/etc/config/sqm")]
    config: PathBuf,
    /// A summary, the commands a person would type, or data for programs.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Only this interface.
    interface: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Tc,
    Json,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let plans = self.plans()?;
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

    /// The plans that are asked for; warnings are printed on the way.
    fn plans(&self) -> Result<Vec<Plan>, Failure> {
        let file = self.config.display().to_string();
        let text = std::fs::read(&self.config)
            .with_context(|| format!("cannot read the configuration {file}"))
            .map_err(Failure::Usage)?;
        let loaded = sqm_plan::load(&text, &file, &mtu).map_err(|errors| {
            let count = errors.len();
            errors.iter().for_each(|error| eprintln!("error: {error}"));
            let errors = if count == 1 {
                "an error".to_owned()
            } else {
                format!("{count} errors")
            };
            Failure::Usage(anyhow!("{file} has {errors}; nothing was planned"))
        })?;
        loaded
            .warnings
            .iter()
            .for_each(|warning| eprintln!("warning: {warning}"));

        let Some(interface) = &self.interface else {
            if loaded.plans.is_empty() {
                eprintln!("sqm: {file} has no enabled section: nothing would be shaped");
            }
            return Ok(loaded.plans);
        };
        let planned: Vec<String> = loaded.plans.iter().map(|plan| plan.interface.clone()).collect();
        match loaded.plans.into_iter().find(|plan| plan.interface == *interface) {
            Some(plan) => Ok(vec![plan]),
            None if planned.is_empty() => Err(Failure::Usage(anyhow!(
                "{file} has no enabled section for '{interface}', nor any other"
            ))),
            None => Err(Failure::Usage(anyhow!(
                "{file} has no enabled section for '{interface}'; it has {}",
                planned.join(", ")
            ))),
        }
    }
}

/// A device's MTU in bytes; Ethernet's where the device does not exist yet.
fn mtu(device: &str) -> u32 {
    const ETHERNET: u32 = 1500;
    let file = format!("/sys/class/net/{device}/mtu");
    std::fs::read_to_string(file)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(ETHERNET)
}

/// A plan for programs. Rates and sizes are in the units their names end in; `spec` is in `tc`'s words.
#[derive(Serialize)]
struct PlanJson {
    interface: String,
    script: String,
    egress: Option<TreeJson>,
    ingress: Option<TreeJson>,
}

#[derive(Serialize)]
struct TreeJson {
    device: String,
    qdiscs: Vec<QdiscJson>,
    classes: Vec<ClassJson>,
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
    rate_bits_per_sec: u64,
    ceil_bits_per_sec: u64,
    prio: u32,
    quantum_bytes: u32,
    burst_bytes: u64,
    cburst_bytes: u64,
}

impl From<&Plan> for PlanJson {
    fn from(plan: &Plan) -> Self {
        let tree = |device: &str, tree: &Option<Tree>| {
            tree.as_ref().map(|Tree { qdiscs, classes }| TreeJson {
                device: device.to_owned(),
                qdiscs: qdiscs.iter().map(QdiscJson::from).collect(),
                classes: classes.iter().map(ClassJson::from).collect(),
            })
        };
        Self {
            interface: plan.interface.clone(),
            script: plan.script.clone(),
            egress: tree(&plan.interface, &plan.egress),
            ingress: tree(&plan.ifb(), &plan.ingress),
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
        let HtbClass {
            rate,
            ceil,
            prio,
            quantum,
            burst,
            cburst,
        } = class;
        Self {
            id: id.to_string(),
            parent: parent.to_string(),
            rate_bits_per_sec: rate.bits_per_sec(),
            ceil_bits_per_sec: ceil.bits_per_sec(),
            prio: *prio,
            quantum_bytes: *quantum,
            burst_bytes: burst.0,
            cburst_bytes: cburst.0,
        }
    }
}

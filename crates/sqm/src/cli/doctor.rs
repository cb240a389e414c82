//! `sqm doctor`: finds faults of the configuration and the machine, shows the evidence, and suggests a remedy.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::ValueHint;
use sqm_api::doctor::{Diagnosis, Finding, Fix};
use sqm_configuration::uci_override;
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::{observe, state};

use super::{duration, shape};
use crate::doctor::answer::Answer;
use crate::doctor::collect::collect;
use crate::doctor::facts::Facts;
use crate::doctor::findings::{checks, diagnose, notes, unknown};
use crate::json;
use sqm_configuration::{Draft, load, parse_and_plan};
use sqm_process::failure::Failure;

/// Find reasons why a line is not shaped as it should be; print each with its evidence and what to do.
///
/// Run it while the line is full, so that it can check whether the processor keeps up. Without root some facts are
/// missing.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm doctor
  sqm doctor --fix
  sqm doctor --duration 10s --json
  sqm doctor --facts >facts.json && sqm doctor --judge facts.json

Exit codes: 0 nothing found (or all of it fixed), 1 something found, 2 wrong configuration")]
pub(crate) struct Args {
    /// The configuration, in the format of OpenWrt's sqm.
    #[arg(long, value_name = "FILE", default_value = "/etc/config/sqm", value_parser = uci_override::parse, value_hint = ValueHint::FilePath)]
    config: PathBuf,
    /// Make those changes to the configuration and to the queues that are safe, and check again.
    #[arg(long, conflicts_with_all = ["facts", "judge"])]
    fix: bool,
    /// How long to watch queues and processors.
    #[arg(long, alias = "seconds", value_name = "TIME", default_value = "1s", value_parser = duration::parse_watch)]
    duration: u64,
    /// Print the observed facts as JSON, without findings.
    #[arg(long)]
    facts: bool,
    /// Print the findings for facts that --facts wrote, here or on another machine.
    #[arg(long, value_name = "FILE", conflicts_with = "facts")]
    judge: Option<PathBuf>,
    /// Print the findings as JSON.
    #[arg(long)]
    json: bool,
    /// Folder with the state that `sqm stop` restores.
    #[arg(long, value_name = "DIR", env = "SQM_STATE_DIR", default_value = state::DIRECTORY)]
    state_dir: PathBuf,
}

impl Args {
    pub(super) const fn changes_something(&self) -> bool {
        self.fix
    }

    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if self.fix {
            load::refuse_staged(&self.config)?;
        }
        let facts = match &self.judge {
            Some(file) => {
                let text = std::fs::read(file)
                    .with_context(|| format!("cannot read the facts {}", file.display()))
                    .map_err(Failure::Usage)?;
                serde_json::from_slice(&text)
                    .with_context(|| {
                        format!("{} does not hold facts of 'sqm doctor --facts'", file.display())
                    })
                    .map_err(Failure::Usage)?
            }
            None => self.look()?,
        };
        if self.facts {
            json::print(&json::object(&facts))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut findings = diagnose(&facts);
        let mut fixed = Vec::new();
        if self.fix && findings.iter().any(|finding| finding.fix.is_some()) {
            self.fix(&findings)?;
            let left = diagnose(&self.look()?);
            fixed = findings
                .into_iter()
                .filter(|finding| !left.iter().any(|left| left.id == finding.id))
                .collect();
            findings = left;
        }
        let diagnosis = Diagnosis {
            findings,
            fixed,
            notes: notes(&facts),
            unknown: unknown(&facts),
            checks: checks(&facts),
        };
        let is_healthy = diagnosis.findings.is_empty();
        if self.json {
            json::print(&json::object(&diagnosis))?;
        } else {
            let sections = facts.sections.into_iter();
            let interfaces = sections.map(|section| section.interface).collect();
            let answer = Answer {
                diagnosis,
                interfaces,
            };
            out!("{answer}");
        }
        Ok(if is_healthy {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    fn look(&self) -> Result<Facts, Failure> {
        let text = load::read_with_warnings(&self.config)?;
        let mut socket = Socket::open().context("cannot open a netlink socket")?;
        let links = observe::links(&mut socket)?;
        let (loaded, _) = load::parse_in_force(&text, &self.config, &mut socket, &links, &self.state_dir)?;
        let look = Duration::from_secs(self.duration);
        Ok(collect(
            &mut socket,
            &links,
            &loaded.plans,
            &text,
            &self.state_dir,
            look,
        )?)
    }

    fn fix(&self, findings: &[Finding]) -> Result<(), Failure> {
        let before = sqm_configuration::read(&self.config).context("cannot read the configuration")?;
        let text = fixed(&before, findings)?;
        if text != before {
            parse_and_plan(text.clone(), &self.config, &load::links())
                .context("the changed configuration would have an error and was not written")?;
            sqm_configuration::write(&self.config, Some(&before), &text)?;
        }
        shape::bring_into_force(self.config.clone(), self.state_dir.clone(), !self.json)
    }
}

/// The configuration's text with the options that the findings want changed.
fn fixed(text: &[u8], findings: &[Finding]) -> anyhow::Result<Vec<u8>> {
    let mut draft = Draft::of(text).map_err(|errors| anyhow!("{}", errors[0]))?;
    for finding in findings {
        if let Some(Fix::SetOptions { section, options }) = &finding.fix {
            for option in options {
                draft.set(*section, option)?;
            }
        }
    }
    Ok(draft.finish())
}

//! `sqm plan`: shows the queues that the configuration describes, without setting them up.

use std::process::ExitCode;

use anyhow::Context;
use clap::ValueEnum;
use serde::Serialize;
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::observe::Observed;
use sqm_kernel::{diff, render};
use sqm_plan::diagnostic::Diagnostic;
use sqm_plan::plan::Plan;

use super::config::Which;
use crate::json;
use sqm_configuration::load;
use sqm_kernel::plan_json::PlanJson;
use sqm_process::failure::Failure;

/// Show the queues that the configuration asks for, without changing anything; needs no privileges.
///
/// Plan checks the whole file first. It prints all errors on standard error, each with its line, and warnings about
/// options that have no effect. If there are more than twenty of one kind, it counts the rest.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm plan
  sqm plan --format tc eth0
  sqm plan --diff
  sqm plan --check --json
  sqm plan --config ./sqm.conf --json")]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
    /// A summary, the equivalent tc commands, or JSON for programs.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Print the result as JSON, like --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Print the changes that `sqm start` would make on this machine; none if the plan is in force already.
    #[arg(long)]
    diff: bool,
    /// Print the errors and warnings of the file in place of the plan; with --json each with its section and option.
    #[arg(long, conflicts_with_all = ["diff", "interfaces"])]
    check: bool,
}

/// The exit code of a configuration with errors, as of every command.
const INVALID: u8 = 2;

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Tc,
    Json,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if self.check {
            return self.check();
        }
        let plans = self.which.plans(&load::links())?;
        let format = if self.json { Format::Json } else { self.format };
        if self.diff {
            return diff(&plans, format);
        }
        match format {
            Format::Text => out!(
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
                .for_each(|line| outln!("{line}")),
            Format::Json => {
                let plans: Vec<_> = plans.iter().map(PlanJson::from).collect();
                json::print(&json::list(&plans))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Prints what is wrong with the file.
    fn check(self) -> Result<ExitCode, Failure> {
        let text = self.which.text()?;
        let (errors, warnings) =
            match sqm_configuration::parse_and_plan(text, &self.which.config, &load::links()) {
                Ok((_, loaded)) => (Vec::new(), loaded.warnings),
                Err(invalid) => (invalid.0, Vec::new()),
            };
        let is_valid = errors.is_empty();
        if self.json || matches!(self.format, Format::Json) {
            let [errors, warnings] =
                [errors, warnings].map(|findings| findings.into_iter().map(FindingJson::from).collect());
            json::print(&json::object(&CheckJson { errors, warnings }))?;
        } else {
            errors.iter().for_each(|error| outln!("error: {error}"));
            warnings.iter().for_each(|warning| outln!("warning: {warning}"));
        }
        Ok(if is_valid {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(INVALID)
        })
    }
}

#[derive(Serialize)]
struct CheckJson {
    errors: Vec<FindingJson>,
    warnings: Vec<FindingJson>,
}

#[derive(Serialize)]
struct FindingJson {
    line: usize,
    section: Option<usize>,
    option: Option<String>,
    message: String,
    suggestion: Option<String>,
}

impl From<Diagnostic> for FindingJson {
    fn from(diagnostic: Diagnostic) -> Self {
        let Diagnostic {
            file: _,
            line,
            section,
            option,
            message,
            suggestion,
        } = diagnostic;
        Self {
            line,
            section,
            option,
            message,
            suggestion,
        }
    }
}

/// Prints the changes that would bring the kernel to the plans.
fn diff(plans: &[Plan], format: Format) -> Result<ExitCode, Failure> {
    let mut socket = Socket::open().context("cannot open a netlink socket")?;
    let mut all = Vec::new();
    for plan in plans {
        let observed = Observed::read(&mut socket, plan)?;
        all.push(StepsJson {
            interface: &plan.interface,
            steps: diff::steps(plan, &observed)
                .iter()
                .map(ToString::to_string)
                .collect(),
        });
    }
    if matches!(format, Format::Json) {
        json::print(&json::list(&all))?;
        return Ok(ExitCode::SUCCESS);
    }
    for StepsJson { interface, steps } in &all {
        match steps.len() {
            0 => outln!("{interface}: nothing would change"),
            n => outln!(
                "{interface}: {n} {} would be made",
                if n == 1 { "change" } else { "changes" }
            ),
        }
        steps.iter().for_each(|step| outln!("  {step}"));
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct StepsJson<'a> {
    interface: &'a str,
    steps: Vec<String>,
}

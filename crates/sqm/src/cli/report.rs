//! `sqm bugreport`: collects the information that a maintainer needs into one text, with secrets removed.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::ValueHint;
use sqm_api::client;
use sqm_configuration::{own_script, uci_override};
use sqm_kernel::netlink::link::Link;
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::verify::Comparison;
use sqm_kernel::{observe, render, state};
use sqm_plan::plan::Plan;

use super::duration;
use crate::doctor::collect::collect;
use crate::doctor::findings::{checks, diagnose};
use crate::rate_controllers::RateControllers;
use crate::redact::redact;
use sqm_configuration::{load, parse_and_plan, rate_override};
use sqm_kernel::status::InterfaceStatus;
use sqm_process::failure::Failure;
use sqm_process::output_file;
use sqm_process::printable::printable;

/// Most texts of `tc` commands in a report, a choice: a machine has few, and each may take 32 kB.
const MOST_TEXTS: usize = 20;

/// Write everything that a request for help needs into one text file, without secrets.
///
/// Run it while the line is full, so that the counters change. The report leaves out hardware addresses, public
/// addresses, passwords, keys, and names of people and of wireless networks; read it before you send it all the same.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm bugreport
  sqm bugreport --duration 20s --out /tmp/report.txt
  sqm bugreport --out - | less")]
pub(crate) struct Args {
    /// The configuration, in the format of OpenWrt's sqm.
    #[arg(long, value_name = "FILE", default_value = "/etc/config/sqm", value_parser = uci_override::parse, value_hint = ValueHint::FilePath)]
    config: PathBuf,
    /// How long to watch: the report has the counters before and after.
    #[arg(long, alias = "seconds", value_name = "TIME", default_value = "5s", value_parser = duration::parse_watch)]
    duration: u64,
    /// The file to write; - is standard output.
    #[arg(long, value_name = "FILE", default_value = "sqm-report.txt")]
    out: PathBuf,
    /// Folder with the state that `sqm stop` restores.
    #[arg(long, value_name = "DIR", env = "SQM_STATE_DIR", default_value = state::DIRECTORY)]
    state_dir: PathBuf,
}

impl Args {
    pub(super) fn is_printed(&self) -> bool {
        self.out == Path::new("-")
    }

    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let report = redact(&self.report()?);
        if self.is_printed() {
            out!("{report}");
            return Ok(ExitCode::SUCCESS);
        }
        output_file::write(&self.out, printable(&report).as_bytes())?;
        outln!(
            "{}: read it, then attach it to your request for help",
            self.out.display()
        );
        Ok(ExitCode::SUCCESS)
    }

    /// Builds the report. A part that is unavailable holds the reason instead, because reports are mostly about
    /// broken configurations.
    fn report(&self) -> Result<String, Failure> {
        let mut socket = Socket::open().context("cannot open a netlink socket")?;
        let links = observe::links(&mut socket)?;
        let file = self.config.display().to_string();
        let text = load::read(&self.config);
        let mut report = Report::default();
        report.part("machine", &machine());
        report.part("devices", &devices(&links));
        report.part("processors and modules", &kernel());
        let text = match text {
            Ok((text, staged)) => {
                report.part(&file, &String::from_utf8_lossy(&text));
                report.part("changes of the file that are not committed", &staged.join("\n"));
                text
            }
            Err(error) => {
                report.part(&file, &error.to_string());
                return Ok(report.0);
            }
        };
        for (name, own) in own_script::all_named(&text, &self.config)
            .into_iter()
            .take(MOST_TEXTS)
        {
            match own {
                Ok(own) => report.part(&own.path, &String::from_utf8_lossy(&own.bytes)),
                Err(error) => report.part(&name, &error),
            }
        }
        let plans = match parse_and_plan(text.clone(), &self.config, &links) {
            Ok((parsed, loaded)) => {
                let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
                report.part("warnings", &warnings.join("\n"));
                let (loaded, held) =
                    rate_override::in_force(&mut socket, &links, &self.state_dir, &parsed, loaded);
                report.part("rates by autorate", &rate_override::describe(&held).join("\n"));
                loaded.plans
            }
            Err(invalid) => {
                report.part("errors of the configuration", &invalid.to_string());
                Vec::new()
            }
        };
        let commands: Vec<String> = plans.iter().flat_map(render::tc).collect();
        report.part("plan", &commands.join("\n"));
        report.part(
            "differences between plan and kernel",
            &differences(&mut socket, &plans, &RateControllers::of_daemon(&self.state_dir)),
        );
        report.part("queues", &self.queues(&mut socket, &links, &plans));
        let look = Duration::from_secs(self.duration);
        match collect(&mut socket, &links, &plans, &text, &self.state_dir, look) {
            Ok(facts) => {
                report.part(
                    &format!("queues after {} s", self.duration),
                    &self.queues(&mut socket, &links, &plans),
                );
                let findings = diagnose(&facts);
                let told = if findings.is_empty() {
                    format!("No problems found ({} checks)", checks(&facts))
                } else {
                    json(&findings)
                };
                report.part("doctor", &told);
                report.part("facts", &json(&facts));
            }
            Err(error) => report.part("doctor", &format!("cannot collect facts: {error}")),
        }
        let daemon = client::wait(client::in_folder(&self.state_dir).status());
        report.part(
            "daemon",
            &daemon.map_or_else(|error| error.to_string(), |status| json(&status)),
        );
        Ok(report.0)
    }

    fn queues(&self, socket: &mut Socket, links: &[Link], plans: &[Plan]) -> String {
        let mut text = String::new();
        for plan in plans {
            let said = match InterfaceStatus::read(socket, links, &plan.interface, &self.state_dir) {
                Ok(status) => json(&status),
                Err(error) => error.to_string(),
            };
            let _ = writeln!(text, "{said}");
        }
        text
    }
}

#[derive(Default)]
struct Report(String);

impl Report {
    fn part(&mut self, title: &str, text: &str) {
        let text = text.trim_end();
        let text = if text.is_empty() { "none" } else { text };
        // Writing to a String cannot fail, here and below.
        let _ = write!(self.0, "== {title}\n\n{text}\n\n");
    }
}

fn json(value: &impl serde::Serialize) -> String {
    crate::json::pretty(value).unwrap_or_default()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn machine() -> String {
    let uname = rustix::system::uname();
    let word = |word: &std::ffi::CStr| word.to_string_lossy().into_owned();
    let release = read("/etc/os-release");
    let name = release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .unwrap_or("unknown");
    format!(
        "sqm {}\n{} {} {}\nsystem {}\nup for {} s, load {}",
        env!("CARGO_PKG_VERSION"),
        word(uname.sysname()),
        word(uname.release()),
        word(uname.machine()),
        name.trim_matches('"'),
        read("/proc/uptime").split(' ').next().unwrap_or_default(),
        read("/proc/loadavg").trim_end(),
    )
}

fn devices(links: &[Link]) -> String {
    let mut text = String::new();
    for Link {
        index,
        name,
        mtu,
        up,
        carrier,
        kind,
        lower,
        queues,
        ..
    } in links
    {
        let kind = kind.as_deref().unwrap_or("hardware");
        let below = lower.map(|lower| format!(" above {lower}")).unwrap_or_default();
        let _ = writeln!(
            text,
            "{index} {name} {kind}{below} mtu {mtu} up {up} carrier {carrier} queues {} {}",
            queues.0, queues.1
        );
    }
    // The kernel's IPv4 table holds addresses as hexadecimal numbers, which redaction does not recognise. The report
    // names the devices only.
    let defaults = sqm_kernel::routes::Routes::read().default_devices();
    let _ = writeln!(text, "default routes: {}", defaults.join(" "));
    text
}

/// Kernel settings and modules that concern packets.
fn kernel() -> String {
    const PREFIXES: [&str; 7] = ["sch_", "cls_", "act_", "ifb ", "nf_flow", "nft_flow", "pppoe "];
    let mut text = String::new();
    for name in [
        "net.core.default_qdisc",
        "net.ipv4.tcp_ecn",
        "net.ipv4.tcp_congestion_control",
    ] {
        let value = read(&format!("/proc/sys/{}", name.replace('.', "/")));
        let _ = writeln!(text, "{name} = {}", value.trim_end());
    }
    for line in read("/proc/modules").lines() {
        if PREFIXES.iter().any(|prefix| line.starts_with(prefix)) {
            let _ = writeln!(text, "module {}", line.split(' ').next().unwrap_or_default());
        }
    }
    let stat = read("/proc/stat");
    stat.lines()
        .filter(|line| line.starts_with("cpu"))
        .for_each(|line| text.extend([line, "\n"]));
    text + "softnet_stat\n" + &read("/proc/net/softnet_stat")
}

fn differences(socket: &mut Socket, plans: &[Plan], controllers: &RateControllers) -> String {
    let mut text = String::new();
    for plan in plans {
        let said = match Comparison::read(socket, plan) {
            Ok(found) if found.is_as_planned() => "the kernel holds what is configured".to_owned(),
            Ok(found) => {
                let (differences, sentence) = controllers.set_apart(plan, &found);
                let all = sentence
                    .into_iter()
                    .chain(differences.iter().map(ToString::to_string));
                all.collect::<Vec<String>>().join("\n")
            }
            Err(error) => error.to_string(),
        };
        let _ = writeln!(text, "{}: {said}", plan.interface);
    }
    text
}

//! `sqm start | stop | reload | status | verify`: the configured queues in the kernel.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, anyhow};
use serde::Serialize;
use sqm_core::spec::cake::Tins;
use sqm_core::spec::hfsc::Curve;
use sqm_core::spec::{Class, Qdisc};
use sqm_kernel::apply::{self, Started, Stopped};
use sqm_kernel::netlink::link::Link;
use sqm_kernel::netlink::socket::{self, Socket};
use sqm_kernel::netlink::statistics::{CakeStatistics, FqCodelStatistics, Statistics, TinStatistics};
use sqm_kernel::observe::{self, Detail, Device};
use sqm_kernel::owner;
use sqm_kernel::state::{self, Store};
use sqm_kernel::verify::{Difference, Observed};
use sqm_kernel::{Error, capability, diff, verify};
use sqm_plan::plan::Plan;

use super::config::Which;
use super::confirm;
use crate::failure::Failure;

/// Shape the configured interfaces.
///
/// The whole file is checked before anything is touched. If one interface fails, all are put back as they were. An
/// interface that is shaped as configured already is left alone; a changed rate is changed under running traffic.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm start
  sqm start eth0
  sqm start --confirm 60
  sqm start --config ./sqm.conf --json

Exit codes: 0 done, 1 failed or not confirmed (everything is as before), 2 wrong configuration,
3 needs root, 4 the kernel lacks a part")]
pub(crate) struct Start {
    #[command(flatten)]
    which: Which,
    /// Put everything back unless you confirm within so many seconds (Enter, or `sqm confirm`): for a change over the
    /// very line that is changed.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86400))]
    confirm: Option<u32>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state: State,
}

/// Stop shaping and put back what was there before.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm stop
  sqm stop eth0
  sqm stop --config ./sqm.conf")]
pub(crate) struct Stop {
    /// Only the interfaces that this configuration shapes.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Only these interfaces; else all that are shaped.
    #[arg(value_name = "INTERFACE")]
    interfaces: Vec<String>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state: State,
}

/// Apply a changed configuration: like start, and interfaces no longer enabled are stopped.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm reload
  sqm reload eth0")]
pub(crate) struct Reload {
    #[command(flatten)]
    start: Start,
}

/// Show what the kernel's queues hold and have done; needs no privileges.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm status
  sqm status eth0 --json")]
pub(crate) struct Status {
    #[command(flatten)]
    which: Which,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state: State,
}

/// Compare every parameter of the configuration with what the kernel holds; needs no privileges.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm verify && echo as configured
  sqm verify eth0 --json

Exit codes: 0 no difference, 1 differences")]
pub(crate) struct Verify {
    #[command(flatten)]
    which: Which,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state: State,
}

#[derive(clap::Args)]
struct State {
    /// Where to keep what stop must put back.
    #[arg(long, value_name = "DIR", env = "SQM_STATE_DIR", default_value = state::DIRECTORY)]
    state_dir: PathBuf,
}

impl Start {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        self.apply("start", false)
    }

    fn apply(self, command: &str, stops_others: bool) -> Result<ExitCode, Failure> {
        let mut socket = Socket::open().context("cannot open a netlink socket")?;
        let links = observe::links(&mut socket).map_err(failure)?;
        let plans = self.which.plans(&links)?;
        for plan in &plans {
            observe::find(&links, &plan.interface).map_err(failure)?;
        }
        capability::require_privileges(&format!("sqm {command}")).map_err(failure)?;
        let mut store = Store::open(&self.state.state_dir).map_err(failure)?;
        let mut work = Vec::new();
        for plan in &plans {
            let clock = Clock::start();
            let observed = Observed::read(&mut socket, plan).map_err(failure)?;
            capability::require_kernel(&mut socket, &diff::steps(plan, &observed)).map_err(failure)?;
            work.push((plan, observed, clock.read()));
        }

        let mut started = start_all(&mut socket, &store, work)?;
        let changes: Vec<(Vec<String>, Cost)> = started
            .iter_mut()
            .map(|(started, cost)| (std::mem::take(&mut started.changes), *cost))
            .collect();
        if let Some(seconds) = self.confirm
            && changes.iter().any(|(changes, _)| !changes.is_empty())
        {
            // Others may look, and stop, while somebody thinks about it.
            drop(store);
            let confirmed = confirm::wait(&self.state.state_dir, seconds)?;
            store = Store::open(&self.state.state_dir).map_err(failure)?;
            if !confirmed {
                for (one, _) in started.into_iter().rev() {
                    one.undo(&mut socket, &store).map_err(failure)?;
                }
                return Err(Failure::Failed(anyhow!(
                    "not confirmed within {seconds} s: everything is as it was before"
                )));
            }
        }
        let mut outcomes: Vec<Outcome> = plans
            .iter()
            .zip(changes)
            .map(|(plan, (changes, cost))| Outcome {
                interface: plan.interface.clone(),
                state: if changes.is_empty() { "unchanged" } else { "shaped" },
                cost,
                changes,
            })
            .collect();
        if stops_others && self.which.interfaces.is_empty() {
            for interface in store.interfaces().map_err(failure)? {
                if plans.iter().all(|plan| plan.interface != interface) {
                    outcomes.push(stop_one(&mut socket, &store, &interface)?);
                }
            }
        }
        print_outcomes(&outcomes, self.json)
    }
}

impl Reload {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        self.start.apply("reload", true)
    }
}

impl Stop {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        capability::require_privileges("sqm stop").map_err(failure)?;
        let mut socket = Socket::open().context("cannot open a netlink socket")?;
        let store = Store::open(&self.state.state_dir).map_err(failure)?;
        let interfaces = if let Some(config) = self.config {
            let which = Which {
                config,
                interfaces: self.interfaces,
            };
            let plans = which.plans(&observe::links(&mut socket).map_err(failure)?)?;
            plans.into_iter().map(|plan| plan.interface).collect()
        } else if self.interfaces.is_empty() {
            store.interfaces().map_err(failure)?
        } else {
            self.interfaces
        };
        // One that cannot be stopped must not keep the others running.
        let (mut outcomes, mut failed) = (Vec::new(), None);
        for interface in &interfaces {
            match stop_one(&mut socket, &store, interface) {
                Ok(outcome) => outcomes.push(outcome),
                Err(e) => failed = failed.or(Some(e)),
            }
        }
        if outcomes.is_empty() && failed.is_none() && !self.json {
            eprintln!("sqm: nothing is shaped");
        }
        let code = print_outcomes(&outcomes, self.json)?;
        failed.map_or(Ok(code), Err)
    }
}

impl Status {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let mut socket = Socket::open().context("cannot open a netlink socket")?;
        let links = observe::links(&mut socket).map_err(failure)?;
        // Named interfaces need no configuration: what the kernel holds is all that is asked.
        let interfaces = if self.which.interfaces.is_empty() {
            self.which
                .plans(&links)?
                .into_iter()
                .map(|plan| plan.interface)
                .collect()
        } else {
            self.which.interfaces.clone()
        };
        let mut all = Vec::new();
        for interface in &interfaces {
            let egress = observe_named(&mut socket, &links, interface)?;
            let ingress = match &egress.redirect {
                Some(name) => Some(observe_named(&mut socket, &links, name)?),
                None => None,
            };
            all.push(InterfaceStatus {
                interface: interface.clone(),
                owner: owner::of(&egress, &self.state.state_dir),
                egress: Direction::of(&egress),
                ingress: ingress.as_ref().map(Direction::of),
            });
        }
        if self.json {
            println!("{}", serde_json::to_string_pretty(&all).context("writing JSON")?);
        } else {
            all.iter().for_each(InterfaceStatus::print);
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Verify {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let mut socket = Socket::open().context("cannot open a netlink socket")?;
        let links = observe::links(&mut socket).map_err(failure)?;
        let mut differences = Vec::new();
        for plan in self.which.plans(&links)? {
            let observed = Observed::read(&mut socket, &plan).map_err(failure)?;
            let found = verify::compare(&plan, &observed);
            let foreign = owner::of(&observed.device, &self.state.state_dir).filter(|owner| owner != "sqm");
            if let (false, Some(_), Some(owner)) = (found.is_empty(), &plan.egress, foreign) {
                differences.push(Difference {
                    at: format!("{} owner", plan.interface),
                    planned: "sqm".to_owned(),
                    found: owner,
                });
            }
            differences.extend(found);
        }
        if self.json {
            println!(
                "{}",
                serde_json::to_string_pretty(&differences).context("writing JSON")?
            );
        } else if differences.is_empty() {
            println!("the kernel holds what is configured");
        } else {
            differences.iter().for_each(|difference| println!("{difference}"));
        }
        Ok(if differences.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

/// Starts every plan, or none: a failure puts back those that were started before it.
fn start_all(
    socket: &mut Socket,
    store: &Store,
    work: Vec<(&Plan, Observed, Cost)>,
) -> Result<Vec<(Started, Cost)>, Failure> {
    let mut started: Vec<(Started, Cost)> = Vec::new();
    for (plan, observed, looking) in work {
        let clock = Clock::start();
        match apply::start_from(socket, store, plan, observed) {
            Ok(one) => started.push((one, looking.and(clock.read()))),
            Err(cause) => {
                for (one, _) in started.into_iter().rev() {
                    if let Err(restore) = one.undo(socket, store) {
                        eprintln!("sqm: could not be put back: {restore}");
                    }
                }
                return Err(failure(cause));
            }
        }
    }
    Ok(started)
}

fn stop_one(socket: &mut Socket, store: &Store, interface: &str) -> Result<Outcome, Failure> {
    let clock = Clock::start();
    let (state, changes) = match apply::stop(socket, store, interface).map_err(failure)? {
        Stopped::Restored(notes) => ("stopped", notes),
        Stopped::NotRunning => ("not shaped", Vec::new()),
    };
    Ok(Outcome {
        interface: interface.to_owned(),
        state,
        cost: clock.read(),
        changes,
    })
}

/// The exit code that belongs to an error of the kernel crate.
pub(super) fn failure(error: Error) -> Failure {
    match error {
        Error::Privileges { .. } => Failure::Privileges(error.into()),
        Error::Unsupported { .. } => Failure::Unsupported(error.into()),
        Error::NoInterface { .. } => Failure::Usage(error.into()),
        _ => Failure::Failed(error.into()),
    }
}

/// What became of one interface.
#[derive(Serialize)]
struct Outcome {
    interface: String,
    state: &'static str,
    #[serde(flatten)]
    cost: Cost,
    changes: Vec<String>,
}

/// What one interface took, from the first look at it to the last, when it was found to be as planned.
#[derive(Clone, Copy, Serialize)]
struct Cost {
    elapsed_us: u64,
    kernel_requests: u32,
}

impl Cost {
    fn and(self, other: Self) -> Self {
        Self {
            elapsed_us: self.elapsed_us + other.elapsed_us,
            kernel_requests: self.kernel_requests + other.kernel_requests,
        }
    }
}

struct Clock {
    since: Instant,
    requests: u32,
}

impl Clock {
    fn start() -> Self {
        Self {
            since: Instant::now(),
            requests: socket::requests(),
        }
    }

    fn read(&self) -> Cost {
        Cost {
            elapsed_us: u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX),
            kernel_requests: socket::requests() - self.requests,
        }
    }
}

fn print_outcomes(outcomes: &[Outcome], json: bool) -> Result<ExitCode, Failure> {
    if json {
        println!(
            "{}",
            serde_json::to_string_pretty(outcomes).context("writing JSON")?
        );
        return Ok(ExitCode::SUCCESS);
    }
    for Outcome {
        interface,
        state,
        cost,
        changes,
    } in outcomes
    {
        let (ms, requests) = (cost.elapsed_us as f64 / 1000.0, cost.kernel_requests);
        println!("{interface}: {state} ({ms:.1} ms, {requests} requests to the kernel)");
        changes.iter().for_each(|change| println!("  {change}"));
    }
    Ok(ExitCode::SUCCESS)
}

fn observe_named(socket: &mut Socket, links: &[Link], name: &str) -> Result<Device, Failure> {
    let link = observe::find(links, name).map_err(failure)?;
    observe::device(socket, links, link).map_err(failure)
}

#[derive(Serialize)]
struct InterfaceStatus {
    interface: String,
    /// Who set up the queues of what leaves: "sqm", or somebody else; absent for the kernel's default.
    owner: Option<String>,
    egress: Direction,
    /// Absent if arriving packets are not shaped.
    ingress: Option<Direction>,
}

/// The queues of one direction. Delays are the worst of all tins; absent where the kernel tells none.
#[derive(Serialize)]
struct Direction {
    device: String,
    kind: String,
    rate_bits_per_sec: Option<u64>,
    drops: u64,
    marks: u64,
    backlog_bytes: u32,
    backlog_packets: u32,
    delay_peak_us: Option<u32>,
    delay_avg_us: Option<u32>,
    delay_base_us: Option<u32>,
    qdiscs: Vec<QdiscStatus>,
    classes: Vec<ClassStatus>,
}

#[derive(Serialize)]
struct QdiscStatus {
    handle: String,
    parent: Option<String>,
    kind: String,
    /// In `tc`'s words; absent for a kind that plans do not use.
    spec: Option<String>,
    statistics: Statistics,
    #[serde(skip_serializing_if = "Option::is_none")]
    cake: Option<CakeStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fq_codel: Option<FqCodelStatistics>,
}

#[derive(Serialize)]
struct CakeStatus {
    tin_names: Vec<String>,
    #[serde(flatten)]
    statistics: CakeStatistics,
}

#[derive(Serialize)]
struct ClassStatus {
    id: String,
    parent: String,
    rate_bits_per_sec: u64,
    ceil_bits_per_sec: u64,
    statistics: Statistics,
}

impl Direction {
    fn of(device: &Device) -> Self {
        let root = device.qdiscs.iter().find(|q| q.parent.is_none());
        let statistics = root.map(|r| r.statistics.clone()).unwrap_or_default();
        let tins = || {
            device.qdiscs.iter().flat_map(|q| match &q.detail {
                Detail::Cake(cake) => cake.tins.as_slice(),
                _ => &[],
            })
        };
        let marks = device.qdiscs.iter().map(|q| match &q.detail {
            Detail::Cake(cake) => cake.tins.iter().map(|tin| u64::from(tin.marks)).sum(),
            Detail::FqCodel(codel) => u64::from(codel.marks),
            Detail::None => 0,
        });
        let top = device.classes.first().map(|class| rates(&class.class).1);
        Self {
            device: device.link.name.clone(),
            kind: root.map(|r| r.kind.clone()).unwrap_or_default(),
            rate_bits_per_sec: match root.and_then(|r| r.qdisc.as_ref()) {
                Some(Qdisc::Cake(cake) | Qdisc::CakeMq(cake)) => {
                    cake.bandwidth.map(|rate| rate.bits_per_sec())
                }
                Some(Qdisc::Tbf(tbf)) => Some(tbf.rate.bits_per_sec()),
                _ => top,
            },
            drops: statistics.drops.into(),
            marks: marks.sum(),
            backlog_bytes: statistics.backlog_bytes,
            backlog_packets: statistics.backlog_packets,
            delay_peak_us: tins().map(|tin| tin.delay_peak_us).max(),
            delay_avg_us: tins().map(|tin| tin.delay_avg_us).max(),
            delay_base_us: tins().map(|tin| tin.delay_base_us).max(),
            qdiscs: device.qdiscs.iter().map(QdiscStatus::of).collect(),
            classes: device
                .classes
                .iter()
                .map(|class| ClassStatus {
                    id: class.id.to_string(),
                    parent: class.parent.to_string(),
                    rate_bits_per_sec: rates(&class.class).0,
                    ceil_bits_per_sec: rates(&class.class).1,
                    statistics: class.statistics.clone(),
                })
                .collect(),
        }
    }
}

impl QdiscStatus {
    fn of(qdisc: &observe::ObservedQdisc) -> Self {
        let (cake, fq_codel) = match &qdisc.detail {
            Detail::Cake(statistics) => {
                let names = match &qdisc.qdisc {
                    Some(Qdisc::Cake(cake) | Qdisc::CakeMq(cake)) => {
                        tin_names(cake.tins, statistics.tins.len())
                    }
                    _ => Vec::new(),
                };
                (
                    Some(CakeStatus {
                        tin_names: names,
                        statistics: statistics.clone(),
                    }),
                    None,
                )
            }
            Detail::FqCodel(statistics) => (None, Some(statistics.clone())),
            Detail::None => (None, None),
        };
        Self {
            handle: qdisc.handle.to_string(),
            parent: qdisc.parent.map(|parent| parent.to_string()),
            kind: qdisc.kind.clone(),
            spec: qdisc.qdisc.as_ref().map(ToString::to_string),
            statistics: qdisc.statistics.clone(),
            cake,
            fq_codel,
        }
    }
}

/// What a class is guaranteed and what it never exceeds, bits per second.
fn rates(class: &Class) -> (u64, u64) {
    match class {
        Class::Htb(class) => (class.rate.bits_per_sec(), class.ceil.bits_per_sec()),
        Class::Hfsc(class) => {
            let slope = |curve: Option<Curve>| curve.map_or(0, |curve| curve.m2.bits_per_sec());
            let share = slope(class.rt).max(slope(class.ls));
            (slope(class.rt), class.ul.map_or(share, |_| slope(class.ul)))
        }
    }
}

/// The names `tc` gives to tins, lowest priority first.
fn tin_names(tins: Tins, count: usize) -> Vec<String> {
    let named: &[&str] = match tins {
        Tins::Besteffort => &["Best Effort"],
        Tins::Diffserv3 => &["Bulk", "Best Effort", "Voice"],
        Tins::Diffserv4 => &["Bulk", "Best Effort", "Video", "Voice"],
        Tins::Precedence | Tins::Diffserv8 => &[],
    };
    (0..count)
        .map(|n| {
            named
                .get(n)
                .map_or_else(|| format!("Tin {n}"), |name| (*name).to_owned())
        })
        .collect()
}

impl InterfaceStatus {
    fn print(&self) {
        match self.owner.as_deref() {
            None | Some("sqm") => println!("{}", self.interface),
            Some(other) => println!("{}: not set up by sqm ({other})", self.interface),
        }
        self.egress.print("egress");
        match &self.ingress {
            Some(ingress) => ingress.print("ingress"),
            None => println!("  ingress: not shaped"),
        }
    }
}

impl Direction {
    fn print(&self, name: &str) {
        println!("  {name} on {}", self.device);
        for QdiscStatus {
            handle,
            parent,
            kind,
            spec,
            statistics,
            cake,
            fq_codel,
        } in &self.qdiscs
        {
            let place = parent
                .as_ref()
                .map_or_else(|| "root".to_owned(), |p| format!("in {p}"));
            println!("    {handle} {place} {}", spec.as_ref().unwrap_or(kind));
            let Statistics {
                sent_bytes,
                sent_packets,
                drops,
                backlog_bytes,
                backlog_packets,
                ..
            } = statistics;
            print!(
                "      sent {sent_bytes} bytes in {sent_packets} packets, dropped {drops}, \
                 holds {backlog_bytes} bytes in {backlog_packets} packets"
            );
            match fq_codel {
                Some(codel) => println!(", marked {}", codel.marks),
                None => println!(),
            }
            if let Some(cake) = cake {
                print_tins(cake);
            }
        }
        for ClassStatus {
            id,
            rate_bits_per_sec,
            statistics,
            ..
        } in &self.classes
        {
            println!(
                "    class {id} {rate_bits_per_sec} bit/s: sent {} bytes",
                statistics.sent_bytes
            );
        }
    }
}

/// One row per tin; delays as CAKE follows them: its peaks, its average, its lows.
fn print_tins(cake: &CakeStatus) {
    println!(
        "      {:<12}{:>14}{:>12}{:>12}{:>12}{:>12}{:>9}{:>9}{:>9}",
        "tin", "thresh bit/s", "packets", "peak us", "avg us", "base us", "drops", "marks", "acks"
    );
    for (name, tin) in cake.tin_names.iter().zip(&cake.statistics.tins) {
        let TinStatistics {
            threshold_bits_per_sec,
            sent_packets,
            delay_peak_us,
            delay_avg_us,
            delay_base_us,
            drops,
            marks,
            ack_drops,
            ..
        } = tin;
        println!(
            "      {name:<12}{threshold_bits_per_sec:>14}{sent_packets:>12}{delay_peak_us:>12}{delay_avg_us:>12}\
             {delay_base_us:>12}{drops:>9}{marks:>9}{ack_drops:>9}"
        );
    }
}

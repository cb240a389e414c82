//! `sqm start | stop | reload | status | verify`: set up, remove and inspect the configured queues in the kernel.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, anyhow};
use serde::Serialize;
use sqm_api::client;
use sqm_api::status::{Health, special_treatment};
use sqm_kernel::netlink::link::Link;
use sqm_kernel::netlink::socket::{self, Socket};
use sqm_kernel::state::{self, Store};
use sqm_kernel::stop::{Stopped, stop};
use sqm_kernel::transaction::{Applied, Transaction};
use sqm_kernel::verify::Comparison;
use sqm_kernel::{Difference, capability, foreign, observe};
use sqm_plan::RateOverrides;
use sqm_plan::plan::Plan;

#[cfg(feature = "full")]
use super::completion;
use super::config::Which;
use super::confirm::Trial;
use super::duration;
use crate::json;
use crate::rate_controllers::RateControllers;
use sqm_configuration::applied;
use sqm_configuration::rate_override;
use sqm_kernel::status::InterfaceStatus;
use sqm_process::failure::Failure;

/// Shape the configured interfaces.
///
/// Start checks the whole file before it changes anything. If one interface fails, it rolls back all of them. An interface
/// that does not exist (yet) does not keep it from shaping the others. Start leaves an interface alone that is shaped as
/// configured already, and changes a rate without interrupting traffic.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm start
  sqm start eth0
  sqm start --confirm 60
  sqm start --config ./sqm.conf --json

Exit codes: 0 done, 1 failed or not confirmed (the previous state is restored), or an interface does not exist (the others
are shaped), 2 wrong configuration, 3 needs root, 4 the kernel lacks a feature")]
pub(crate) struct Start {
    #[command(flatten)]
    which: Which,
    /// Roll back unless you confirm within this time (Enter, or `sqm confirm`): for changes made over the line that they
    /// affect.
    #[arg(long, value_name = "TIME", value_parser = parse_confirm)]
    confirm: Option<u64>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state: State,
}

/// Parses the time for a confirmation, in seconds: a day at most.
fn parse_confirm(text: &str) -> Result<u64, String> {
    duration::parse_seconds(text, 1, 86_400)
}

/// Stop shaping and restore the previous queues.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm stop
  sqm stop eth0
  sqm stop --config ./sqm.conf

Exit codes: 0 done, 1 failed, 2 wrong arguments or configuration, 3 needs root")]
pub(crate) struct Stop {
    /// Only the interfaces that this configuration shapes.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Only these interfaces [default: all that are shaped].
    #[arg(value_name = "INTERFACE")]
    #[cfg_attr(feature = "full", arg(add = completion::interfaces()))]
    interfaces: Vec<String>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state: State,
}

/// Apply a changed configuration: like start, and stop interfaces that are no longer enabled.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm reload
  sqm reload eth0

Exit codes: 0 done, 1 failed (the previous state is restored), 2 wrong arguments or configuration,
3 needs root, 4 the kernel lacks a feature")]
pub(crate) struct Reload {
    #[command(flatten)]
    start: Start,
}

/// Show the kernel's queues and their counters; needs no privileges.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm status
  sqm status eth0 --json
  sqm status --daemon

Exit codes: 0 done, 1 failed, or the daemon's health is not ok, 2 wrong arguments or configuration")]
pub(crate) struct Status {
    #[command(flatten)]
    which: Which,
    /// Print the daemon's status of each interface: whether it is shaped, or why not, since when, and how often it was
    /// repaired.
    #[arg(long)]
    daemon: bool,
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

Exit codes: 0 no difference but rates that a rate controller moves, 1 differences, 2 wrong arguments or configuration")]
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
pub(super) struct State {
    /// Folder for the state that `sqm stop` restores.
    #[arg(long, value_name = "DIR", env = "SQM_STATE_DIR", default_value = state::DIRECTORY)]
    state_dir: PathBuf,
}

impl Start {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let outcomes = self.apply("start", false)?;
        print_outcomes(&outcomes, self.json)?;
        Ok(code_of(&outcomes))
    }

    fn apply(&self, command: &str, stops_others: bool) -> Result<Vec<Outcome>, Failure> {
        let mut socket = Socket::open().context("cannot open a netlink socket")?;
        let links = observe::links(&mut socket)?;
        let text = self.which.text()?;
        let (plans, absent) = present(self.which.plans_of(&text, &links)?, &links)?;
        capability::require_privileges(&format!("sqm {command}"))?;
        let mut store = Store::open(&self.state.state_dir)?;
        let mut prepared = Vec::new();
        for plan in &plans {
            let clock = Clock::start();
            let transaction = Transaction::prepare_now(&mut socket, &store, plan)?;
            capability::require_kernel(&mut socket, transaction.steps())?;
            prepared.push((transaction, clock.read()));
        }

        let applied = apply_all(&mut socket, &store, prepared)?;
        let is_changed = applied.iter().any(|(one, _)| !one.changes.is_empty());
        if let Some(seconds) = self.confirm.filter(|_| is_changed) {
            let rollbacks = applied.iter().map(|(one, _)| &one.rollback);
            let trial = match Trial::announce(&self.state.state_dir, rollbacks) {
                Ok(trial) => trial,
                Err(error) => {
                    roll_back_all(&mut socket, &store, &applied)?;
                    return Err(error);
                }
            };
            // Other commands may read the state, or stop the shaping, while the user decides.
            drop(store);
            if !self.json {
                for (one, _) in &applied {
                    one.changes.iter().for_each(|change| errln!("{change}"));
                }
            }
            let confirmed = trial.wait(seconds)?;
            store = Store::open(&self.state.state_dir)?;
            if !confirmed {
                roll_back_all(&mut socket, &store, &applied)?;
                trial.rolled_back()?;
                return Err(Failure::Failed(anyhow!(
                    "not confirmed within {seconds} s: the change was rolled back"
                )));
            }
            trial.confirmed();
        }
        if let Err(error) = applied::store(&store, &self.state.state_dir, &self.which.config, &text) {
            errln!(
                "warning: cannot record which configuration is in force, so a running daemon will not know it: \
                {error}"
            );
        }
        let mut outcomes: Vec<Outcome> = plans
            .iter()
            .zip(applied)
            .map(|(plan, (Applied { changes, .. }, cost))| Outcome {
                interface: plan.interface.clone(),
                state: if changes.is_empty() { "unchanged" } else { "shaped" },
                cost,
                changes,
            })
            .collect();
        outcomes.extend(absent.iter().map(Outcome::absent));
        if stops_others && self.which.interfaces.is_empty() {
            for interface in store.interfaces()? {
                let is_configured = |plan: &Plan| plan.interface == interface;
                if !plans.iter().chain(&absent).any(is_configured) {
                    outcomes.push(stop_one(&mut socket, &store, &interface)?);
                }
            }
        }
        Ok(outcomes)
    }
}

/// Divides plans into those whose device exists and those whose device does not.
///
/// # Errors
/// No device exists: there is nothing to shape.
fn present(plans: Vec<Plan>, links: &[Link]) -> Result<(Vec<Plan>, Vec<Plan>), Failure> {
    let exists = |plan: &Plan| observe::find(links, &plan.interface).is_ok();
    let (present, absent): (Vec<Plan>, Vec<Plan>) = plans.into_iter().partition(exists);
    if let (true, Some(first)) = (present.is_empty(), absent.first()) {
        observe::find(links, &first.interface)?;
    }
    Ok((present, absent))
}

/// Exit code 1 if an interface does not exist.
fn code_of(outcomes: &[Outcome]) -> ExitCode {
    let is_absent = |outcome: &Outcome| outcome.state == ABSENT;
    match outcomes.iter().any(is_absent) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

/// Does what `sqm reload` does with this file, for other commands. With `is_printed` the outcome is printed on standard
/// output.
pub(crate) fn bring_into_force(config: PathBuf, state_dir: PathBuf, is_printed: bool) -> Result<(), Failure> {
    let interfaces = Vec::new();
    let start = Start {
        which: Which { config, interfaces },
        confirm: None,
        json: false,
        state: State { state_dir },
    };
    let outcomes = start.apply("reload", true)?;
    if is_printed {
        print_outcomes(&outcomes, false)?;
    }
    Ok(())
}

impl Reload {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let outcomes = self.start.apply("reload", true)?;
        print_outcomes(&outcomes, self.start.json)?;
        Ok(code_of(&outcomes))
    }
}

impl Stop {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        capability::require_privileges("sqm stop")?;
        let mut socket = Socket::open().context("cannot open a netlink socket")?;
        let store = Store::open(&self.state.state_dir)?;
        let interfaces = if let Some(config) = self.config {
            let which = Which {
                config,
                interfaces: self.interfaces,
            };
            let plans = which.plans(&observe::links(&mut socket)?)?;
            plans.into_iter().map(|plan| plan.interface).collect()
        } else if self.interfaces.is_empty() {
            let mut interfaces = store.interfaces()?;
            interfaces.extend(store.paused_interfaces()?);
            interfaces.sort();
            interfaces.dedup();
            interfaces
        } else {
            self.interfaces
        };
        // An interface that cannot be stopped must not keep the others shaped.
        let (mut outcomes, mut failed) = (Vec::new(), None);
        for interface in &interfaces {
            match stop_one(&mut socket, &store, interface) {
                Ok(outcome) => outcomes.push(outcome),
                Err(e) => failed = failed.or(Some(e)),
            }
        }
        if outcomes.is_empty() && failed.is_none() && !self.json {
            errln!("sqm: nothing is shaped");
        }
        let code = print_outcomes(&outcomes, self.json)?;
        failed.map_or(Ok(code), Err)
    }
}

impl Status {
    /// Prints the daemon's status. Exit code 1 if the daemon's health is not ok.
    fn of_daemon(&self) -> Result<ExitCode, Failure> {
        let status = client::wait(client::in_folder(&self.state.state_dir).status())?;
        let code = match status.health {
            Health::Ok => ExitCode::SUCCESS,
            Health::Degraded => ExitCode::FAILURE,
        };
        if self.json {
            json::print(&status)?;
            return Ok(code);
        }
        for error in &status.configuration.errors {
            let what = match status.interfaces[..] {
                [] => "no interface is shaped",
                _ => "the previous configuration is in force",
            };
            outln!("{what}: {error}");
        }
        for warning in &status.configuration.warnings {
            outln!("warning: {warning}");
        }
        for interface in &status.interfaces {
            outln!(
                "{}: {} for {:.0} s (set up or changed: {}, repaired: {})",
                interface.interface,
                interface.state.name(),
                interface.for_seconds,
                interface.applied,
                interface.repaired,
            );
            if let Some(why) = &interface.why {
                outln!("  {why}");
            }
            let Some(autorate) = &interface.autorate else {
                continue;
            };
            for (name, direction) in [("download", &autorate.download), ("upload", &autorate.upload)] {
                outln!(
                    "  {name} {:.2} Mbit/s, of which {:.2} used: {}",
                    direction.rate_bits_per_sec as f64 / 1e6,
                    direction.load_bits_per_sec as f64 / 1e6,
                    direction.reason,
                );
            }
            let special = special_treatment(&autorate.specially_treated);
            for sentence in special.iter().chain(&autorate.advice) {
                outln!("  {sentence}");
            }
        }
        Ok(code)
    }

    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if self.daemon {
            return self.of_daemon();
        }
        let mut socket = Socket::open().context("cannot open a netlink socket")?;
        let links = observe::links(&mut socket)?;
        // Named interfaces need no configuration: status shows the kernel's queues.
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
        let mut absent = None;
        for interface in &interfaces {
            match InterfaceStatus::read(&mut socket, &links, interface, &self.state.state_dir) {
                Ok(status) => all.push(status),
                // The others are shown all the same.
                Err(error) => absent = absent.or(Some(error)),
            }
        }
        if self.json {
            json::print(&json::list(&all))?;
        } else {
            all.iter().for_each(super::status::print);
        }
        absent.map_or(Ok(ExitCode::SUCCESS), |error| Err(error.into()))
    }
}

/// The most attempts of one comparison. Autorate may change a rate between reading the rates and reading the queues,
/// but is unlikely to do so in every attempt. The value is a choice.
const LOOKS: usize = 5;

/// The result of comparing the configuration with the kernel.
pub(super) struct Found {
    pub(super) differences: Vec<Difference>,
    /// Sentences about interfaces whose rates a controller moves.
    controlled: Vec<String>,
    held: RateOverrides,
}

impl Verify {
    pub(super) const fn quiet(which: Which, state: State) -> Self {
        Self {
            which,
            json: true,
            state,
        }
    }

    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        // Read once for its warnings, which the comparison does not print.
        let is_nothing = self.is_nothing()?;
        let Found {
            differences,
            controlled,
            held,
        } = self.compare()?;
        if self.json {
            json::print(&json::list(&differences))?;
        } else {
            rate_override::describe(&held)
                .iter()
                .chain(&controlled)
                .for_each(|line| outln!("{line}"));
            differences.iter().for_each(|difference| outln!("{difference}"));
        }
        if !differences.is_empty() {
            return Ok(ExitCode::FAILURE);
        }
        if !self.json {
            outln!(
                "{}",
                match (is_nothing, controlled.is_empty()) {
                    (true, _) => "no interface is configured and enabled: there is nothing to compare",
                    (false, true) => "the kernel holds what is configured",
                    (false, false) => "apart from these rates the kernel holds what is configured",
                }
            );
        }
        Ok(ExitCode::SUCCESS)
    }

    /// No interface is configured and enabled. Prints the warnings of the file.
    pub(super) fn is_nothing(&self) -> Result<bool, Failure> {
        let mut socket = Socket::open().context("cannot open a netlink socket")?;
        let links = observe::links(&mut socket)?;
        Ok(self.which.plans(&links)?.is_empty())
    }

    /// Compares once, and again if a rate may have been changed meanwhile.
    pub(super) fn compare(&self) -> Result<Found, Failure> {
        let mut socket = Socket::open().context("cannot open a netlink socket")?;
        let links = observe::links(&mut socket)?;
        let controllers = RateControllers::of_daemon(&self.state.state_dir);
        let mut looks = 0;
        loop {
            looks += 1;
            let (plans, held) = self
                .which
                .plans_in_force(&mut socket, &links, &self.state.state_dir)?;
            let (plans, absent) = present(plans, &links)?;
            let (mut differences, controlled) = self.differences(&mut socket, &plans, &controllers)?;
            differences.extend(absent.iter().map(|plan| Difference {
                at: plan.interface.clone(),
                planned: "a network device".to_owned(),
                found: "no such device".to_owned(),
            }));
            if differences.is_empty() || held.is_empty() || looks == LOOKS {
                return Ok(Found {
                    differences,
                    controlled,
                    held,
                });
            }
        }
    }

    /// The differences, and a sentence about each interface whose rates a controller moves.
    fn differences(
        &self,
        socket: &mut Socket,
        plans: &[Plan],
        controllers: &RateControllers,
    ) -> Result<(Vec<Difference>, Vec<String>), Failure> {
        let (mut differences, mut controlled) = (Vec::new(), Vec::new());
        for plan in plans {
            let found = Comparison::read(socket, plan)?;
            let foreign = foreign::root_owner(&found.observed.device, &self.state.state_dir)
                .filter(|owner| owner != "sqm");
            if let (false, Some(_), Some(owner)) = (found.is_as_planned(), &plan.egress, foreign) {
                differences.push(Difference {
                    at: format!("{} owner", plan.interface),
                    planned: "sqm".to_owned(),
                    found: owner,
                });
            }
            let note = found.observed.device.other_filters_note();
            if let Some(note) = note.filter(|_| !self.json && plan.ingress.is_some()) {
                errln!("note: {note}");
            }
            let (others, sentence) = controllers.set_apart(plan, &found);
            differences.extend(others);
            controlled.extend(sentence);
        }
        Ok((differences, controlled))
    }
}

/// Applies all transactions or none. If one fails, those that were applied before it are rolled back.
fn apply_all(
    socket: &mut Socket,
    store: &Store,
    prepared: Vec<(Transaction<'_>, Cost)>,
) -> Result<Vec<(Applied, Cost)>, Failure> {
    let mut applied: Vec<(Applied, Cost)> = Vec::new();
    for (transaction, preparing) in prepared {
        let clock = Clock::start();
        match transaction.apply(socket, store) {
            Ok(one) => applied.push((one, preparing.and(clock.read()))),
            Err(cause) => {
                for (one, _) in applied.iter().rev() {
                    if let Err(error) = one.rollback.roll_back(socket, store) {
                        errln!("sqm: the rollback failed: {error}");
                    }
                }
                return Err(cause.into());
            }
        }
    }
    Ok(applied)
}

/// Rolls back all changes, in reverse order.
fn roll_back_all(socket: &mut Socket, store: &Store, applied: &[(Applied, Cost)]) -> Result<(), Failure> {
    for (one, _) in applied.iter().rev() {
        one.rollback.roll_back(socket, store)?;
    }
    Ok(())
}

fn stop_one(socket: &mut Socket, store: &Store, interface: &str) -> Result<Outcome, Failure> {
    let clock = Clock::start();
    // Without its note, the daemon does not shape the interface after a pause.
    let was_paused = store.remove_pause(interface)?;
    let (state, changes) = match stop(socket, store, interface)? {
        Stopped::Restored(notes) => ("stopped", notes),
        Stopped::NotRunning if was_paused => {
            let note = format!("{interface}: its shaping was paused, and the daemon does not restore it");
            ("stopped", vec![note])
        }
        Stopped::NotRunning => ("not shaped", Vec::new()),
    };
    Ok(Outcome {
        interface: interface.to_owned(),
        state,
        cost: clock.read(),
        changes,
    })
}

/// The state of an interface that does not exist.
const ABSENT: &str = "no such device";

impl Outcome {
    fn absent(plan: &Plan) -> Self {
        Self {
            interface: plan.interface.clone(),
            state: ABSENT,
            cost: Cost {
                elapsed_us: 0,
                kernel_requests: 0,
            },
            changes: vec!["'sqm daemon' shapes it when it appears".to_owned()],
        }
    }
}

/// The outcome for one interface.
#[derive(Serialize)]
struct Outcome {
    interface: String,
    state: &'static str,
    #[serde(flatten)]
    cost: Cost,
    changes: Vec<String>,
}

/// The cost of one interface, from the first read of its state to the verification.
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
        json::print(&json::list(outcomes))?;
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
        outln!("{interface}: {state} ({ms:.1} ms, {requests} requests to the kernel)");
        changes.iter().for_each(|change| outln!("  {change}"));
    }
    Ok(ExitCode::SUCCESS)
}

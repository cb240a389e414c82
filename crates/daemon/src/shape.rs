//! Checks an interface against its plan and repairs it, when the [`Reconciler`](super::reconciler::Reconciler) asks for it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use sqm_core::direction::PerDirection;
use sqm_kernel::execute::change_rates;
use sqm_kernel::netlink::link::Link;
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::other_rates::{OtherRate, OtherRates};
use sqm_kernel::state::{Record, Store, UnwrittenRecords};
use sqm_kernel::stop::{Stopped, stop};
use sqm_kernel::transaction::Transaction;
use sqm_kernel::verify::{self, Comparison};
use sqm_kernel::{Difference, observe, stack};
use sqm_plan::device::Device;
use sqm_plan::plan::Plan;
use sqm_plan::recipes;
use sqm_plan::settings::{Drift, Facing, Settings};
use sqm_plan::{Loaded, RateOverrides};

use super::autorate::LineConfig;
use super::rate_watch;
use super::reconciler::{ConfiguredInterface, Outcome, Request};
use sqm_configuration::applied;
use sqm_configuration::commit_confirm;
use sqm_configuration::rate_override::RateOverride;
use sqm_configuration::{
    Invalid, LeftOut, Parsed, Partial, parse_and_plan, plan_the_rest, plan_what_can_be_read, staged,
    uci_override,
};

/// The wait between two attempts to take the lock of the state folder; a choice.
const LOCK_POLL: Duration = Duration::from_millis(20);

/// The configuration file as it was read last.
#[derive(Clone, Debug, Default)]
pub(super) struct Configuration {
    /// Its text, parsed once. Each check plans it for the devices and rates of that moment.
    parsed: Parsed,
    /// The settings of its enabled sections.
    settings: Vec<Settings>,
    pub(super) warnings: Vec<String>,
    /// True if a line, or a section without a usable interface, was left out, as the warnings say.
    pub(super) is_incomplete: bool,
    /// The sections in error, by their interfaces: why they cannot be shaped. Their queues are left as they are.
    left_out: BTreeMap<String, String>,
    /// The lines with `option autorate`.
    pub(super) autorates: Vec<LineConfig>,
}

/// A configuration without errors that is not the daemon's yet.
pub(super) struct Candidate {
    configuration: Configuration,
    interfaces: Vec<ConfiguredInterface>,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    #[error("cannot read the configuration: {0}")]
    File(#[from] sqm_files::Error),
    /// The kernel does not report its devices.
    #[error(transparent)]
    Devices(#[from] sqm_kernel::Error),
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl LoadError {
    /// The error in words; a text for each error of the configuration.
    pub(super) fn messages(&self) -> Vec<String> {
        match self {
            Self::Invalid(invalid) => invalid.messages(),
            error => vec![error.to_string()],
        }
    }
}

/// Reads the configuration, and changes the kernel's queues to its plans. Only the main loop's thread has it.
pub(super) struct Shaper {
    socket: Socket,
    /// The configuration file that the command line names.
    named_file: PathBuf,
    /// The file that was read last: that one, or the one that takes its place on OpenWrt.
    file: PathBuf,
    state_dir: PathBuf,
    /// Records that could not be written to the state folder yet.
    unwritten: UnwrittenRecords,
    drift: Drift,
    pub(super) configuration: Configuration,
    /// The rates of autorate, which replace those of the file.
    rates: RateOverrides,
    /// The plan that the kernel held after the last check or change of each interface, but for rates of other programs that were
    /// left. New rates are written against it, without reading the kernel's queues.
    in_force: BTreeMap<String, InForce>,
    /// Interfaces that had a record at the last check. If another program has removed it since, the interface was stopped by
    /// hand.
    recorded: BTreeSet<String>,
    /// Interfaces that the daemon has paused, with a note of it in the state folder. If another process has removed the note since,
    /// the interface was stopped by hand.
    paused: BTreeSet<String>,
    /// Interfaces whose rates the daemon has changed since the last check.
    changed: BTreeSet<String>,
    /// A configuration that another program has applied since the daemon applied its own.
    applied: Option<Vec<u8>>,
    /// The rates of other programs that the last check has left, if it has compared the queues.
    other_rates: Option<rate_watch::OtherRates>,
    /// The interfaces of a configuration that was adopted since the last call of [`Shaper::take_adopted`].
    adopted: Option<Vec<ConfiguredInterface>>,
}

/// A check leaves the rates of other programs.
struct LeftRates {
    /// The plan that the daemon has brought into force, if that is known. Its rates are not of another program, even if autorate
    /// wants others by now.
    before: Option<Plan>,
}

impl LeftRates {
    fn find(&self, plan: &Plan, found: &Comparison) -> OtherRates {
        let others = OtherRates::find(plan, &found.observed);
        match &self.before {
            Some(before) => others.only_where(&OtherRates::find(before, &found.observed)),
            None => others,
        }
    }
}

/// The plan that the kernel holds for an interface.
struct InForce {
    plan: Plan,
    /// The device for which the plan was made.
    device: Device,
    /// All devices at that time.
    links: Vec<Link>,
}

impl Shaper {
    pub(super) fn new(file: PathBuf, state_dir: PathBuf, drift: Drift) -> std::io::Result<Self> {
        Ok(Self {
            socket: Socket::open()?,
            file: uci_override::of(&file),
            named_file: file,
            state_dir,
            unwritten: UnwrittenRecords::default(),
            drift,
            configuration: Configuration::default(),
            rates: RateOverrides::new(),
            in_force: BTreeMap::new(),
            recorded: BTreeSet::new(),
            paused: BTreeSet::new(),
            changed: BTreeSet::new(),
            applied: None,
            other_rates: None,
            adopted: None,
        })
    }

    /// The socket that changes queues. Events about its changes need no check.
    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Goes back to the configured rates with the next check.
    pub(super) fn forget_rates(&mut self, interface: &str) {
        self.rates.remove(interface);
        self.changed.insert(interface.to_owned());
    }

    /// Sets the rates of an interface, and writes them at once if it `is_shaped` and no check is due. Otherwise the next check
    /// writes them.
    pub(super) fn set_rates(
        &mut self,
        interface: &str,
        rates: RateOverride,
        is_shaped: bool,
    ) -> anyhow::Result<()> {
        self.rates.insert(interface.to_owned(), rates);
        self.changed.insert(interface.to_owned());
        if !is_shaped {
            return Ok(());
        }
        let Some(store) = self.unwritten.try_open(&self.state_dir)? else {
            // Another program holds the lock: the next check writes the rates.
            return Ok(());
        };
        if commit_confirm::is_pending(&self.state_dir) {
            // A change waits for its confirmation: the next check writes the rates.
            return Ok(());
        }
        if self.change_rates(interface) {
            self.changed.remove(interface);
            return Ok(());
        }
        let record = store.read(interface)?;
        let links = self.links()?;
        let is_ours = links.iter().any(|link| {
            link.name == interface && record.as_ref().is_some_and(|record| record.index == link.index)
        });
        if !is_ours {
            return Ok(());
        }
        let plan = self.plan(interface, &links)?;
        let transaction = Transaction::prepare_now(&mut self.socket, &store, &plan)?;
        let _ = transaction.apply(&mut self.socket, &store)?;
        self.changed.remove(interface);
        self.remember(plan)
    }

    /// Writes new rates against the plan in force with two requests to the kernel. A transaction, which reads all queues before
    /// and after, takes dozens of requests; the regular checks do that. Returns `false` if the rates could not be written this
    /// way; the caller then applies the whole plan, which reports the error if there is one.
    fn change_rates(&mut self, interface: &str) -> bool {
        // Removed first: after an error it is not known what the kernel holds.
        let Some(before) = self.in_force.remove(interface) else {
            return false;
        };
        let Some(plan) = self.plan_at_rates(interface, &before.device) else {
            return false;
        };
        let is_done = change_rates(&mut self.socket, &before.links, &before.plan, &plan);
        let is_done = is_done.is_ok_and(|is_done| is_done);
        if is_done {
            self.in_force
                .insert(interface.to_owned(), InForce { plan, ..before });
        }
        is_done
    }

    /// The plan of an interface with its present rates, from settings that were validated when the file was read.
    fn plan_at_rates(&self, interface: &str, device: &Device) -> Option<Plan> {
        let settings = self.settings(interface)?;
        let rates = self.rates.get(interface)?;
        recipes::plan(&settings.at_rates(*rates), device).ok()
    }

    /// Stores the plan that the kernel holds now.
    fn remember(&mut self, plan: Plan) -> anyhow::Result<()> {
        let links = self.links()?;
        let device = stack::device(&links, &plan.interface);
        let interface = plan.interface.clone();
        self.in_force.insert(interface, InForce { plan, device, links });
        Ok(())
    }

    /// Reads the configuration file. Sections in error are left out if any other section is enabled. As long as nothing is
    /// configured, at boot, lines that are not UCI are left out as well; later such a file leaves the configuration as it was.
    pub(super) fn read_candidate(&mut self) -> Result<Candidate, LoadError> {
        let text = sqm_configuration::read(self.find_file())?;
        let links = self.links()?;
        let mut staged = Vec::new();
        let mut count = |text| {
            let (text, report) = staged::counted(&self.file, text);
            staged = report;
            text
        };
        let Partial {
            parsed,
            loaded,
            left_out,
            left_out_lines,
        } = match self.configuration.settings.is_empty() {
            true => plan_what_can_be_read(text, &self.file, &links, count)?,
            false => plan_the_rest(count(text), &self.file, &links)?,
        };
        let mut interfaces: Vec<_> = loaded
            .settings
            .iter()
            .map(ConfiguredInterface::of_settings)
            .collect();
        let mut configuration = Configuration::of(parsed, loaded);
        let lines = left_out_lines.iter();
        let lines = lines.map(|error| format!("a line is not in force: {error}"));
        configuration.is_incomplete = !left_out_lines.is_empty();
        configuration.warnings.extend(staged.into_iter().chain(lines));
        for section in left_out {
            configuration.leave_out(&section, &mut interfaces);
        }
        Ok(Candidate {
            configuration,
            interfaces,
        })
    }

    /// True if there is no configuration file.
    pub(super) fn is_file_missing(&self) -> bool {
        matches!(
            sqm_configuration::read_if_there(&uci_override::of(&self.named_file)),
            Ok(None)
        )
    }

    /// Parses and plans a text, which may not be in the file yet.
    pub(super) fn candidate(&mut self, text: Vec<u8>) -> Result<Candidate, LoadError> {
        let links = self.links()?;
        let (parsed, loaded) = parse_and_plan(text, &self.file, &links)?;
        Ok(Candidate {
            interfaces: loaded
                .settings
                .iter()
                .map(ConfiguredInterface::of_settings)
                .collect(),
            configuration: Configuration::of(parsed, loaded),
        })
    }

    /// Makes a configuration the daemon's, and returns its interfaces.
    pub(super) fn install(&mut self, candidate: Candidate) -> Vec<ConfiguredInterface> {
        self.configuration = candidate.configuration;
        self.applied = None;
        candidate.interfaces
    }

    /// Makes an earlier configuration the daemon's again, whatever the file holds.
    pub(super) fn resume(
        &mut self,
        configuration: Configuration,
    ) -> Result<Vec<ConfiguredInterface>, LoadError> {
        let links = self.links()?;
        // The devices may have changed so that it cannot be planned any more.
        let _ = configuration.parsed.plan(&links, &self.rates)?;
        let left_out = configuration
            .left_out
            .keys()
            .map(|name| ConfiguredInterface::of_name(name));
        let sections = configuration.settings.iter();
        let interfaces = sections.map(ConfiguredInterface::of_settings).chain(left_out);
        let interfaces = interfaces.collect();
        self.configuration = configuration;
        Ok(interfaces)
    }

    /// All devices at this moment.
    pub(super) fn links(&mut self) -> Result<Vec<Link>, sqm_kernel::Error> {
        observe::links(&mut self.socket)
    }

    /// The plans of the configuration in force, for the devices as they are now.
    pub(super) fn current_plans(&mut self) -> Result<Vec<Plan>, LoadError> {
        let links = self.links()?;
        Ok(self.configuration.parsed.plan(&links, &self.rates)?.plans)
    }

    /// Checks an interface and repairs it. `shaped` is the index of the device that was shaped last. `leave_rates`: rates of other
    /// programs are kept; [`Shaper::take_other_rates`] has them.
    pub(super) fn check(
        &mut self,
        interface: &str,
        shaped: Option<u32>,
        request: Request,
        leave_rates: bool,
    ) -> Outcome {
        self.other_rates = None;
        match self.try_check(interface, shaped, request, leave_rates) {
            Ok(outcome) => outcome,
            // The device may have been removed during the check.
            Err(error) => match self.links() {
                Ok(links) if links.iter().all(|link| link.name != interface) => Outcome::Absent(None),
                _ => Outcome::Failed(error.to_string()),
            },
        }
    }

    fn try_check(
        &mut self,
        interface: &str,
        shaped: Option<u32>,
        request: Request,
        leave_rates: bool,
    ) -> anyhow::Result<Outcome> {
        let before = self.in_force.remove(interface).map(|before| before.plan);
        // While the store is locked, no other sqm program changes the queues.
        let Some(store) = self.unwritten.try_open(&self.state_dir)? else {
            return Ok(Outcome::Busy { request });
        };
        let waits_for_confirmation = matches!(request, Request::Check | Request::Pause | Request::StayPaused);
        if waits_for_confirmation && commit_confirm::is_pending(&self.state_dir) {
            return Ok(Outcome::Unconfirmed);
        }
        let applied = applied::take(&store, &self.state_dir, &self.file);
        self.applied = applied.or_else(|| self.applied.take());
        self.notice_stop_of_paused(&store, interface);
        match request {
            Request::Apply => {
                self.end_pause(&store, interface);
                self.recorded.remove(interface);
            }
            Request::Stop => {
                self.end_pause(&store, interface);
                stop(&mut self.socket, &store, interface)?;
                // Treated as if another program had removed the record.
                self.recorded.insert(interface.to_owned());
            }
            Request::Pause => {
                stop(&mut self.socket, &store, interface)?;
                // Otherwise the missing record would count as a stop by hand.
                self.recorded.remove(interface);
                // Where no note can be written, `sqm stop` cannot remove one either.
                if store.note_pause(interface).is_ok() {
                    self.paused.insert(interface.to_owned());
                }
                return Ok(Outcome::Paused);
            }
            Request::StayPaused if !store.has(interface) && !self.recorded.contains(interface) => {
                return self.stay_paused(interface);
            }
            Request::Resume => self.end_pause(&store, interface),
            Request::Check | Request::RollBack | Request::StayPaused => {}
        }
        let left = leave_rates.then_some(LeftRates { before });
        let outcome = self.check_with(&store, interface, shaped, request, left);
        if store.has(interface) {
            self.recorded.insert(interface.to_owned());
            if self.paused.contains(interface) {
                self.end_pause(&store, interface);
            }
        }
        outcome
    }

    /// If `sqm stop` has removed the note of a pause, treats the interface as stopped by hand.
    fn notice_stop_of_paused(&mut self, store: &Store, interface: &str) {
        if self.paused.contains(interface) && !store.has_pause(interface) {
            self.paused.remove(interface);
            self.recorded.insert(interface.to_owned());
        }
    }

    /// Removes the note of a pause, also one that an earlier daemon left.
    fn end_pause(&mut self, store: &Store, interface: &str) {
        self.paused.remove(interface);
        // A note that stays has no effect: the daemon looks only for the notes of its own pauses.
        let _ = store.remove_pause(interface);
    }

    /// The outcome for a paused interface that no other program has shaped.
    fn stay_paused(&mut self, interface: &str) -> anyhow::Result<Outcome> {
        let is_there = self.links()?.iter().any(|link| link.name == interface);
        Ok(if is_there {
            Outcome::Paused
        } else {
            Outcome::Absent(None)
        })
    }

    fn check_with(
        &mut self,
        store: &Store,
        interface: &str,
        shaped: Option<u32>,
        request: Request,
        left: Option<LeftRates>,
    ) -> anyhow::Result<Outcome> {
        // An interface that was stopped by hand stays stopped, even if its device is recreated.
        let is_stopped = self.recorded.contains(interface) && !store.has(interface);
        let links = self.links()?;
        let renamed = self.release_renamed(store, interface, &links)?;
        let Some(link) = links.iter().find(|link| link.name == interface) else {
            return Ok(Outcome::Absent(renamed));
        };
        let index = link.index;
        if is_stopped {
            self.adopt_removal(interface, &links);
            return Ok(Outcome::Stopped);
        }
        let plan = self.plan(interface, &links)?;
        let mut found = Comparison::read(&mut self.socket, &plan)?;
        let record = store.read(interface)?;
        let is_ours = record.as_ref().is_some_and(|record| record.index == index);
        let is_lost = record.as_ref().is_some_and(|record| record.is_lost);
        let left = left.filter(|_| is_ours && !is_lost);
        let others = left.map_or_else(OtherRates::default, |left| left.find(&plan, &found));
        self.other_rates = Some(self.per_direction(interface, &others));
        let kept = others.kept(&plan);
        if !others.is_empty() {
            found.differences = verify::compare(&kept, &found.observed);
        }
        if found.is_as_planned() && is_ours {
            self.changed.remove(interface);
            self.remember(plan)?;
            return Ok(Outcome::AsPlanned { index });
        }
        if request == Request::Check && shaped == Some(index) && !is_lost {
            if self.adopt_change(interface, &links) {
                return Ok(Outcome::AsPlanned { index });
            }
            if self.drift_of(interface) == Drift::Report {
                let differences = found.differences.iter().map(Difference::to_string).collect();
                return Ok(Outcome::Drifted { index, differences });
            }
        }
        let mut transaction = Transaction::prepare(&mut self.socket, store, &kept, found)?;
        if !others.is_empty() {
            transaction = transaction.keeping_other_rates();
        }
        let applied = transaction.apply(&mut self.socket, store)?;
        self.remember(plan)?;
        self.applied = None;
        let own = self.changed.remove(interface) || request != Request::Check;
        if applied.changes.is_empty() {
            return Ok(Outcome::AsPlanned { index });
        }
        Ok(Outcome::Changed {
            index,
            changes: applied.changes,
            own,
        })
    }

    /// How the daemon reacts to changes of this interface's queues by another program.
    fn drift_of(&self, interface: &str) -> Drift {
        let settings = self.settings(interface);
        settings.and_then(|settings| settings.drift).unwrap_or(self.drift)
    }

    fn settings(&self, interface: &str) -> Option<&Settings> {
        let mut sections = self.configuration.settings.iter();
        sections.find(|settings| settings.interface == interface)
    }

    /// Rates by the directions of the line.
    fn per_direction(&self, interface: &str, others: &OtherRates) -> rate_watch::OtherRates {
        let rates =
            |other: &Option<OtherRate>| other.as_ref().map_or_else(Vec::new, |other| other.rates.clone());
        let (egress, ingress) = (rates(&others.egress), rates(&others.ingress));
        match self.settings(interface).map(|settings| settings.facing) {
            Some(Facing::Lan) => PerDirection::from([egress, ingress]),
            _ => PerDirection::from([ingress, egress]),
        }
    }

    /// The rates of other programs that the last check has left, if it has compared the queues.
    pub(super) fn take_other_rates(&mut self) -> Option<rate_watch::OtherRates> {
        self.other_rates.take()
    }

    /// If the device that was shaped under this name has been renamed, restores its previous queues. Returns a message about it.
    fn release_renamed(
        &mut self,
        store: &Store,
        interface: &str,
        links: &[Link],
    ) -> anyhow::Result<Option<String>> {
        let Some(Record { index, .. }) = store.read(interface)? else {
            return Ok(None);
        };
        let renamed = links
            .iter()
            .find(|link| link.index == index && link.name != interface);
        let Some(renamed) = renamed else {
            return Ok(None);
        };
        stop(&mut self.socket, store, interface)?;
        self.recorded.remove(interface);
        Ok(Some(format!(
            "there is no network device {interface}: it was renamed to {}, and is no longer shaped",
            renamed.name
        )))
    }

    /// Adopts a changed configuration if the kernel holds its plan for this interface: another program (`sqm reload`) has applied
    /// it.
    fn adopt_change(&mut self, interface: &str, links: &[Link]) -> bool {
        self.adopt(links, |shaper, loaded| {
            let plan = loaded.plans.iter().find(|plan| plan.interface == interface);
            plan.is_some_and(|plan| {
                Comparison::read(&mut shaper.socket, plan).is_ok_and(|found| found.is_as_planned())
            })
        })
    }

    /// Adopts a changed configuration if it does not shape this interface: another program has stopped the interface for that
    /// reason.
    fn adopt_removal(&mut self, interface: &str, links: &[Link]) -> bool {
        self.adopt(links, |_, loaded| {
            loaded.plans.iter().all(|plan| plan.interface != interface)
        })
    }

    /// Makes another text the daemon's configuration, if it has no errors and `in_force` confirms that it is in force. Tries the
    /// text that another program has applied, then the file.
    fn adopt(&mut self, links: &[Link], in_force: impl Fn(&mut Self, &Loaded) -> bool) -> bool {
        let file = sqm_configuration::read(&self.file).ok();
        let file = file.map(|text| staged::counted(&self.file, text).0);
        let texts = [self.applied.clone(), file];
        texts
            .into_iter()
            .flatten()
            .any(|text| self.adopt_text(text, links, &in_force))
    }

    fn adopt_text(
        &mut self,
        text: Vec<u8>,
        links: &[Link],
        in_force: impl Fn(&mut Self, &Loaded) -> bool,
    ) -> bool {
        if self.configuration.parsed.holds(&text, &self.file) {
            return false;
        }
        let Ok((parsed, loaded)) = parse_and_plan(text, &self.file, links) else {
            return false;
        };
        let Ok(at_rates) = parsed.plan(links, &self.rates) else {
            return false;
        };
        if !in_force(self, &at_rates) {
            return false;
        }
        self.adopted = Some(
            loaded
                .settings
                .iter()
                .map(ConfiguredInterface::of_settings)
                .collect(),
        );
        self.configuration = Configuration::of(parsed, loaded);
        self.applied = None;
        true
    }

    /// The interfaces of the configuration that was adopted since the last call, if there was one.
    pub(super) fn take_adopted(&mut self) -> Option<Vec<ConfiguredInterface>> {
        self.adopted.take()
    }

    /// Stops shaping an interface and returns notes for the log; `None` if another sqm program is changing the queues.
    pub(super) fn release(&mut self, interface: &str) -> anyhow::Result<Option<Vec<String>>> {
        match self.unwritten.try_open(&self.state_dir)? {
            Some(store) => self.release_with(&store, interface).map(Some),
            None => Ok(None),
        }
    }

    /// Stops shaping these interfaces, and calls `report` with the result of each. Waits up to `timeout` for another sqm program that
    /// is changing the queues.
    pub(super) fn release_all(
        &mut self,
        interfaces: &[String],
        timeout: Duration,
        mut report: impl FnMut(&str, anyhow::Result<Vec<String>>),
    ) {
        let store = self.store_within(timeout);
        for interface in interfaces {
            let outcome = match &store {
                Ok(store) => self.release_with(store, interface),
                Err(error) => Err(anyhow!("{error}")),
            };
            report(interface, outcome);
        }
    }

    fn release_with(&mut self, store: &Store, interface: &str) -> anyhow::Result<Vec<String>> {
        self.recorded.remove(interface);
        self.end_pause(store, interface);
        match stop(&mut self.socket, store, interface)? {
            Stopped::Restored(notes) => Ok(notes),
            Stopped::NotRunning => Ok(Vec::new()),
        }
    }

    /// Locks the state folder, waiting up to `timeout` for another program.
    fn store_within(&self, timeout: Duration) -> anyhow::Result<Store> {
        let begun = Instant::now();
        loop {
            if let Some(store) = self.unwritten.try_open(&self.state_dir)? {
                return Ok(store);
            }
            if begun.elapsed() >= timeout {
                return Err(anyhow!(
                    "another sqm program is changing the queues; 'sqm stop' removes them after it has ended"
                ));
            }
            thread::sleep(LOCK_POLL);
        }
    }

    fn plan(&self, interface: &str, links: &[Link]) -> anyhow::Result<Plan> {
        if let Some(why) = self.configuration.left_out.get(interface) {
            return Err(anyhow!("{why}; its queues are left as they are"));
        }
        let planned = self.configuration.parsed.plan(links, &self.rates);
        let loaded = planned.map_err(|invalid| anyhow!(invalid.messages().join("; ")))?;
        loaded
            .plans
            .into_iter()
            .find(|plan| plan.interface == interface)
            .with_context(|| format!("{} no longer has a section for {interface}", self.file.display()))
    }

    /// Notes for the log about damaged files, since the last call.
    pub(super) fn take_notes(&self) -> Vec<String> {
        self.unwritten.take_notes()
    }

    /// Why the state folder cannot be written, if it cannot.
    pub(super) fn state_error(&self) -> Option<String> {
        let error = self.unwritten.last_error()?;
        Some(format!(
            "{error}; until it can be written, only this daemon knows what 'sqm stop' must restore"
        ))
    }

    /// The configuration file that the next read will take.
    pub(super) fn find_file(&mut self) -> &Path {
        self.file = uci_override::of(&self.named_file);
        &self.file
    }

    /// The configuration file that was read last.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }
}

impl Configuration {
    fn of(parsed: Parsed, loaded: Loaded) -> Self {
        Self {
            parsed,
            settings: loaded.settings,
            warnings: loaded.warnings.iter().map(ToString::to_string).collect(),
            is_incomplete: false,
            left_out: BTreeMap::new(),
            autorates: loaded.lines.iter().filter_map(LineConfig::new).collect(),
        }
    }

    /// Notes a section in error. Its interface stays configured, so that its queues are not removed.
    fn leave_out(&mut self, section: &LeftOut, interfaces: &mut Vec<ConfiguredInterface>) {
        let why = section.message();
        match &section.interface {
            Some(name) if interfaces.iter().all(|known| known.interface != *name) => {
                interfaces.push(ConfiguredInterface::of_name(name));
                self.left_out.insert(name.clone(), why);
            }
            _ => {
                self.is_incomplete = true;
                self.warnings.push(format!("a section is not in force: {why}"));
            }
        }
    }
}

impl ConfiguredInterface {
    fn of_name(interface: &str) -> Self {
        Self {
            interface: interface.to_owned(),
            ifb: Plan::ifb_of(interface),
            rates: [None; 2],
        }
    }

    fn of_settings(settings: &Settings) -> Self {
        Self {
            rates: [settings.egress.rate, settings.ingress.rate],
            ..Self::of_name(&settings.interface)
        }
    }
}

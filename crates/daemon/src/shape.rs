//! Looking at an interface and repairing it: the hands of the [`Keeper`](super::keep::Keeper).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use sqm_kernel::execute::change_rates;
use sqm_kernel::netlink::link::Link;
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::state::{Record, Store, UnwrittenRecords};
use sqm_kernel::stop::{Stopped, stop};
use sqm_kernel::transaction::Transaction;
use sqm_kernel::verify::Comparison;
use sqm_kernel::{Difference, Error, observe, stack};
use sqm_plan::Loaded;
use sqm_plan::device::Device;
use sqm_plan::plan::Plan;
use sqm_plan::recipes;
use sqm_plan::settings::Settings;

use super::autorate::Line;
use super::keep::{Named, Outcome, Request};
use sqm_configuration::applied;
use sqm_configuration::commit_confirm;
use sqm_configuration::rates::{self, Rates};

/// What the daemon does about queues that another program changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drift {
    /// It applies the plan again.
    Repair,
    /// It only reports the difference.
    Report,
}

/// The configuration file as it was read last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Configuration {
    text: Vec<u8>,
    /// What its enabled sections say.
    settings: Vec<Settings>,
    pub(super) warnings: Vec<String>,
    /// Whose rates are to follow their lines.
    pub(super) autorates: Vec<Line>,
}

pub(super) struct Shaper {
    socket: Socket,
    file: PathBuf,
    state_dir: PathBuf,
    /// Records that cannot be written.
    unwritten: UnwrittenRecords,
    drift: Drift,
    pub(super) configuration: Configuration,
    /// Rates that hold instead of those of the file, by interface.
    rates: rates::Held,
    /// What was found or brought into force last, by interface: rates change from there without a look at the kernel.
    in_force: BTreeMap<String, InForce>,
    /// Interfaces that had a record when they were looked at last. Whoever takes it away stops the interface by hand.
    recorded: BTreeSet<String>,
    /// Interfaces whose rates we have changed since they were looked at last.
    changed: BTreeSet<String>,
    /// The text that a command has brought into force since this program applied its own.
    applied: Option<Vec<u8>>,
    /// What a file shapes that somebody else has brought into force since the last call of [`Shaper::take_adopted`].
    adopted: Option<Vec<Named>>,
}

struct InForce {
    plan: Plan,
    /// What the plan depends on besides the settings.
    device: Device,
    /// All devices then.
    links: Vec<Link>,
}

impl Shaper {
    pub(super) fn new(file: PathBuf, state_dir: PathBuf, drift: Drift) -> std::io::Result<Self> {
        Ok(Self {
            socket: Socket::open()?,
            file,
            state_dir,
            unwritten: UnwrittenRecords::default(),
            drift,
            configuration: Configuration::default(),
            rates: rates::Held::new(),
            in_force: BTreeMap::new(),
            recorded: BTreeSet::new(),
            changed: BTreeSet::new(),
            applied: None,
            adopted: None,
        })
    }

    /// What changes queues: its news are none.
    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// The file's rates hold again.
    pub(super) fn forget_rates(&mut self, interface: &str) {
        self.rates.remove(interface);
        self.changed.insert(interface.to_owned());
    }

    /// Has these rates from now on, and brings them into force if the interface is shaped and there is no news of it.
    pub(super) fn set_rates(&mut self, interface: &str, rates: Rates, is_shaped: bool) -> Result<(), String> {
        self.rates.insert(interface.to_owned(), rates);
        self.changed.insert(interface.to_owned());
        if !is_shaped {
            return Ok(());
        }
        let Some(store) = self.unwritten.try_open(&self.state_dir).map_err(text)? else {
            // Whoever holds it is waited for by the next check.
            return Ok(());
        };
        if commit_confirm::is_pending(&self.state_dir) {
            // The next check sees to it.
            return Ok(());
        }
        if self.change_rates(interface) {
            self.changed.remove(interface);
            return Ok(());
        }
        let record = store.read(interface).map_err(text)?;
        let links = self.links().map_err(text)?;
        let is_ours = links.iter().any(|link| {
            link.name == interface && record.as_ref().is_some_and(|record| record.index == link.index)
        });
        if !is_ours {
            return Ok(());
        }
        let plan = self.plan(interface, &links)?;
        let transaction = Transaction::prepare_now(&mut self.socket, &store, &plan).map_err(text)?;
        let _ = transaction.apply(&mut self.socket, &store).map_err(text)?;
        self.changed.remove(interface);
        self.remember(plan)
    }

    /// Only the rates differ from what is in force, as far as is known: two requests to the kernel where a look at everything,
    /// before and after, takes dozens. The keeper's checks look. False if it could not be done so.
    fn change_rates(&mut self, interface: &str) -> bool {
        // Whatever goes wrong, what is in force is no longer known.
        let Some(before) = self.in_force.remove(interface) else {
            return false;
        };
        let Some(plan) = self.at_rates(interface, &before.device) else {
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

    /// The plan at the rates that hold, with no other look at what was found good when it was read.
    fn at_rates(&self, interface: &str, device: &Device) -> Option<Plan> {
        let mut sections = self.configuration.settings.iter();
        let settings = sections.find(|settings| settings.interface == interface)?;
        let rates = self.rates.get(interface)?;
        recipes::plan(&rates.put_into(settings), device).ok()
    }

    fn remember(&mut self, plan: Plan) -> Result<(), String> {
        let links = self.links().map_err(text)?;
        let device = stack::device(&links, &plan.interface);
        let interface = plan.interface.clone();
        self.in_force.insert(interface, InForce { plan, device, links });
        Ok(())
    }

    /// Reads the file anew. One with errors changes nothing: the errors are answered, and what was read before holds.
    pub(super) fn load(&mut self) -> Result<Vec<Named>, Vec<String>> {
        let text = self.read_file().map_err(|error| vec![error])?;
        self.load_text(text)
    }

    /// The same with a text that is to be the configuration whatever the file holds.
    pub(super) fn load_text(&mut self, text: Vec<u8>) -> Result<Vec<Named>, Vec<String>> {
        let links = self.links().map_err(|error| vec![error.to_string()])?;
        let loaded = self.read(&text, &links)?;
        let named = loaded.plans.iter().map(Named::of).collect();
        self.configuration = Configuration::of(text, loaded);
        self.applied = None;
        Ok(named)
    }

    /// What is wrong with a text that is not in the file yet.
    pub(super) fn judge(&mut self, text: &[u8]) -> Result<(), Vec<String>> {
        let links = self.links().map_err(|error| vec![error.to_string()])?;
        self.plans(text, &links).map(|_| ())
    }

    /// Goes back to a configuration that was in force, whatever the file says.
    pub(super) fn take_up(&mut self, configuration: Configuration) -> Result<Vec<Named>, Vec<String>> {
        let links = self.links().map_err(|error| vec![error.to_string()])?;
        let named = self
            .plans(&configuration.text, &links)?
            .plans
            .iter()
            .map(Named::of)
            .collect();
        self.configuration = configuration;
        Ok(named)
    }

    /// All devices at this moment.
    pub(super) fn links(&mut self) -> Result<Vec<Link>, Error> {
        observe::links(&mut self.socket)
    }

    /// The plans of the configuration in force, for the devices as they are now.
    pub(super) fn current_plans(&mut self) -> Result<Vec<Plan>, Vec<String>> {
        let links = self.links().map_err(|error| vec![error.to_string()])?;
        let text = self.configuration.text.clone();
        Ok(self.plans(&text, &links)?.plans)
    }

    /// Looks at an interface, and repairs it. `shaped` is the number of the device that was shaped last.
    pub(super) fn check(&mut self, interface: &str, shaped: Option<u32>, request: Request) -> Outcome {
        match self.try_check(interface, shaped, request) {
            Ok(outcome) => outcome,
            // It may have gone while it was being looked at.
            Err(error) => match self.links() {
                Ok(links) if links.iter().all(|link| link.name != interface) => Outcome::Absent(None),
                _ => Outcome::Failed(error),
            },
        }
    }

    fn try_check(
        &mut self,
        interface: &str,
        shaped: Option<u32>,
        request: Request,
    ) -> Result<Outcome, String> {
        self.in_force.remove(interface);
        // Nobody else changes anything from here on.
        let Some(store) = self.unwritten.try_open(&self.state_dir).map_err(text)? else {
            return Ok(Outcome::Busy { request });
        };
        if request == Request::Look && commit_confirm::is_pending(&self.state_dir) {
            return Ok(Outcome::Unconfirmed);
        }
        let applied = applied::take(&store, &self.state_dir, &self.file);
        self.applied = applied.or_else(|| self.applied.take());
        match request {
            Request::Shape => {
                self.recorded.remove(interface);
            }
            Request::Stop => {
                stop(&mut self.socket, &store, interface).map_err(text)?;
                // As if somebody had taken the record away.
                self.recorded.insert(interface.to_owned());
            }
            Request::Look | Request::RollBack => {}
        }
        let outcome = self.check_with(&store, interface, shaped, request);
        if store.has(interface) {
            self.recorded.insert(interface.to_owned());
        }
        outcome
    }

    fn check_with(
        &mut self,
        store: &Store,
        interface: &str,
        shaped: Option<u32>,
        request: Request,
    ) -> Result<Outcome, String> {
        // A device that is made again under this name changes nothing about that.
        let is_stopped = self.recorded.contains(interface) && !store.has(interface);
        let links = self.links().map_err(text)?;
        let renamed = self.release_renamed(store, interface, &links)?;
        let Some(link) = links.iter().find(|link| link.name == interface) else {
            return Ok(Outcome::Absent(renamed));
        };
        let index = link.index;
        if is_stopped {
            self.adopts_removal(interface, &links);
            return Ok(Outcome::Stopped);
        }
        let plan = self.plan(interface, &links)?;
        let found = Comparison::read(&mut self.socket, &plan).map_err(text)?;
        let record = store.read(interface).map_err(text)?;
        let is_ours = record.as_ref().is_some_and(|record| record.index == index);
        let is_lost = record.as_ref().is_some_and(|record| record.is_lost);
        if found.is_as_planned() && is_ours {
            self.changed.remove(interface);
            self.remember(plan)?;
            return Ok(Outcome::AsPlanned { index });
        }
        if request == Request::Look && shaped == Some(index) && !is_lost {
            if self.adopts_file(interface, &links) {
                return Ok(Outcome::AsPlanned { index });
            }
            if self.drift == Drift::Report {
                let differences = found.differences.iter().map(Difference::to_string).collect();
                return Ok(Outcome::Drifted { index, differences });
            }
        }
        let transaction = Transaction::prepare(&mut self.socket, store, &plan, found).map_err(text)?;
        let applied = transaction.apply(&mut self.socket, store).map_err(text)?;
        self.remember(plan)?;
        self.applied = None;
        let own = self.changed.remove(interface) || request != Request::Look;
        if applied.changes.is_empty() {
            return Ok(Outcome::AsPlanned { index });
        }
        Ok(Outcome::Changed {
            index,
            changes: applied.changes,
            own,
        })
    }

    /// Gives a device that was shaped under this name, and has another one now, back what it had before.
    fn release_renamed(
        &mut self,
        store: &Store,
        interface: &str,
        links: &[Link],
    ) -> Result<Option<String>, String> {
        let Some(Record { index, .. }) = store.read(interface).map_err(text)? else {
            return Ok(None);
        };
        let renamed = links
            .iter()
            .find(|link| link.index == index && link.name != interface);
        let Some(renamed) = renamed else {
            return Ok(None);
        };
        stop(&mut self.socket, store, interface).map_err(text)?;
        self.recorded.remove(interface);
        Ok(Some(format!(
            "there is no network device {interface}: it was renamed to {}, and is no longer shaped",
            renamed.name
        )))
    }

    /// Whether somebody has brought the changed file into force (`sqm reload`): it then is the configuration.
    fn adopts_file(&mut self, interface: &str, links: &[Link]) -> bool {
        self.adopt(links, |shaper, loaded| {
            let plan = loaded.plans.iter().find(|plan| plan.interface == interface);
            plan.is_some_and(|plan| {
                Comparison::read(&mut shaper.socket, plan).is_ok_and(|found| found.is_as_planned())
            })
        })
    }

    /// The same if the changed file shapes this interface no more: then it was stopped for that.
    fn adopts_removal(&mut self, interface: &str, links: &[Link]) -> bool {
        self.adopt(links, |_, loaded| {
            loaded.plans.iter().all(|plan| plan.interface != interface)
        })
    }

    /// Takes another text for the daemon's configuration, if it has no errors and `in_force` finds it in the kernel: first the text
    /// that a command has applied, then the file.
    fn adopt(&mut self, links: &[Link], in_force: impl Fn(&mut Self, &Loaded) -> bool) -> bool {
        let texts = [self.applied.clone(), self.read_file().ok()];
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
        if text == self.configuration.text {
            return false;
        }
        let Ok(at_rates) = self.plans(&text, links) else {
            return false;
        };
        if !in_force(self, &at_rates) {
            return false;
        }
        let Ok(loaded) = self.read(&text, links) else {
            return false;
        };
        self.adopted = Some(loaded.plans.iter().map(Named::of).collect());
        self.configuration = Configuration::of(text, loaded);
        self.applied = None;
        true
    }

    /// What the file shapes, if it was taken over since the last call.
    pub(super) fn take_adopted(&mut self) -> Option<Vec<Named>> {
        self.adopted.take()
    }

    /// Stops shaping an interface. Answers what there is to tell; none if another program is at work on the queues.
    pub(super) fn release(&mut self, interface: &str) -> Result<Option<Vec<String>>, String> {
        match self.unwritten.try_open(&self.state_dir).map_err(text)? {
            Some(store) => self.release_with(&store, interface).map(Some),
            None => Ok(None),
        }
    }

    /// Stops shaping these interfaces, and tells of each. Another program that is at work on the queues is waited for, but not
    /// long.
    pub(super) fn release_all(
        &mut self,
        interfaces: &[String],
        patience: Duration,
        mut told: impl FnMut(&str, Result<Vec<String>, String>),
    ) {
        let store = self.store_within(patience);
        for interface in interfaces {
            let outcome = match &store {
                Ok(store) => self.release_with(store, interface),
                Err(error) => Err(error.clone()),
            };
            told(interface, outcome);
        }
    }

    fn release_with(&mut self, store: &Store, interface: &str) -> Result<Vec<String>, String> {
        self.recorded.remove(interface);
        match stop(&mut self.socket, store, interface).map_err(text)? {
            Stopped::Restored(notes) => Ok(notes),
            Stopped::NotRunning => Ok(Vec::new()),
        }
    }

    fn store_within(&self, patience: Duration) -> Result<Store, String> {
        let begun = Instant::now();
        loop {
            if let Some(store) = self.unwritten.try_open(&self.state_dir).map_err(text)? {
                return Ok(store);
            }
            if begun.elapsed() >= patience {
                return Err(
                    "another program of sqm is changing the queues; 'sqm stop' takes them away when it has ended"
                        .to_owned(),
                );
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn plan(&self, interface: &str, links: &[Link]) -> Result<Plan, String> {
        let loaded = self
            .plans(&self.configuration.text, links)
            .map_err(|errors| errors.join("; "))?;
        loaded
            .plans
            .into_iter()
            .find(|plan| plan.interface == interface)
            .ok_or_else(|| format!("{} has no section for {interface} any more", self.file.display()))
    }

    fn read_file(&self) -> Result<Vec<u8>, String> {
        sqm_configuration::read(&self.file).map_err(|error| format!("cannot read the configuration: {error}"))
    }

    /// What a file says, with the rates that hold instead of its own.
    fn plans(&self, bytes: &[u8], links: &[Link]) -> Result<Loaded, Vec<String>> {
        self.read(&rates::written_into(bytes, &self.rates), links)
    }

    /// What a file says.
    fn read(&self, bytes: &[u8], links: &[Link]) -> Result<Loaded, Vec<String>> {
        let file = self.file.display().to_string();
        sqm_plan::load(bytes, &file, &|name| stack::device(links, name))
            .map_err(|errors| errors.iter().map(ToString::to_string).collect())
    }

    /// What there is to tell of damaged files.
    pub(super) fn take_notes(&self) -> Vec<String> {
        self.unwritten.take_notes()
    }

    /// Why something of the state cannot be written.
    pub(super) fn trouble(&self) -> Option<String> {
        let trouble = self.unwritten.last_error()?;
        Some(format!(
            "{trouble}; until it can, only this daemon knows what stop must put back"
        ))
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }
}

impl Configuration {
    fn of(text: Vec<u8>, loaded: Loaded) -> Self {
        Self {
            text,
            settings: loaded.settings,
            warnings: loaded.warnings.iter().map(ToString::to_string).collect(),
            autorates: loaded.lines.iter().filter_map(Line::of).collect(),
        }
    }
}

impl Named {
    fn of(plan: &Plan) -> Self {
        Self {
            interface: plan.interface.clone(),
            ifb: plan.ifb(),
        }
    }
}

fn text(error: Error) -> String {
    error.to_string()
}

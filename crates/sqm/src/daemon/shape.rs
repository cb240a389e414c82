//! Looking at an interface and repairing it: the hands of the [`Keeper`](super::keep::Keeper).

use std::path::{Path, PathBuf};

use sqm_kernel::apply::{self, Stopped};
use sqm_kernel::netlink::link::Link;
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::state::{Record, Store};
use sqm_kernel::verify::{Difference, Observed, compare};
use sqm_kernel::{Error, observe, stack};
use sqm_plan::plan::Plan;

use super::keep::{Named, Outcome};
use crate::cli::confirm;

/// What to do about a change that somebody else made to our queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Drift {
    /// Put the queues back.
    Repair,
    /// Only say so.
    Report,
}

/// The configuration file as it was read last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Configuration {
    text: Vec<u8>,
    pub(super) warnings: Vec<String>,
}

pub(super) struct Shaper {
    socket: Socket,
    file: PathBuf,
    state_dir: PathBuf,
    drift: Drift,
    pub(super) configuration: Configuration,
}

impl Shaper {
    pub(super) fn new(file: PathBuf, state_dir: PathBuf, drift: Drift) -> std::io::Result<Self> {
        Ok(Self {
            socket: Socket::open()?,
            file,
            state_dir,
            drift,
            configuration: Configuration::default(),
        })
    }

    /// Reads the file anew. One with errors changes nothing: the errors are answered, and what was read before holds.
    pub(super) fn load(&mut self) -> Result<Vec<Named>, Vec<String>> {
        let text = self.read_file().map_err(|error| vec![error])?;
        let links = self.links().map_err(|error| vec![error.to_string()])?;
        let loaded = self.plans(&text, &links)?;
        self.configuration = Configuration {
            text,
            warnings: loaded.1,
        };
        Ok(loaded.0.iter().map(Named::of).collect())
    }

    /// All devices at this moment.
    pub(super) fn links(&mut self) -> Result<Vec<Link>, Error> {
        observe::links(&mut self.socket)
    }

    /// The plans of the configuration in force, for the devices as they are now.
    pub(super) fn current_plans(&mut self) -> Result<Vec<Plan>, Vec<String>> {
        let links = self.links().map_err(|error| vec![error.to_string()])?;
        let text = self.configuration.text.clone();
        Ok(self.plans(&text, &links)?.0)
    }

    /// Looks at an interface, and repairs it. `shaped` is the number of the device that was shaped last.
    pub(super) fn check(&mut self, interface: &str, shaped: Option<u32>, asked: bool) -> Outcome {
        match self.try_check(interface, shaped, asked) {
            Ok(outcome) => outcome,
            // It may have gone while it was being looked at.
            Err(error) => match self.links() {
                Ok(links) if links.iter().all(|link| link.name != interface) => Outcome::Absent(None),
                _ => Outcome::Failed(error),
            },
        }
    }

    fn try_check(&mut self, interface: &str, shaped: Option<u32>, asked: bool) -> Result<Outcome, String> {
        // Nobody else changes anything from here on.
        let store = Store::open(&self.state_dir).map_err(text)?;
        if !asked && confirm::is_awaited(&self.state_dir) {
            return Ok(Outcome::Unconfirmed);
        }
        let links = self.links().map_err(text)?;
        let renamed = self.release_renamed(&store, interface, &links)?;
        let Some(link) = links.iter().find(|link| link.name == interface) else {
            return Ok(Outcome::Absent(renamed));
        };
        let index = link.index;
        let plan = self.plan(interface, &links)?;
        let observed = Observed::read(&mut self.socket, &plan).map_err(text)?;
        let differences = compare(&plan, &observed);
        let record = store.read(interface).map_err(text)?;
        let is_ours = record.as_ref().is_some_and(|record| record.index == index);
        if differences.is_empty() && is_ours {
            return Ok(Outcome::AsPlanned { index });
        }
        if !asked && shaped == Some(index) {
            if record.is_none() {
                return Ok(Outcome::Stopped);
            }
            if self.adopts_file(interface, &links) {
                return Ok(Outcome::AsPlanned { index });
            }
            if self.drift == Drift::Report {
                let differences = differences.iter().map(Difference::to_string).collect();
                return Ok(Outcome::Drifted { index, differences });
            }
        }
        let started = apply::start_from(&mut self.socket, &store, &plan, observed).map_err(text)?;
        if started.changes.is_empty() {
            return Ok(Outcome::AsPlanned { index });
        }
        Ok(Outcome::Changed {
            index,
            changes: started.changes,
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
        apply::stop(&mut self.socket, store, interface).map_err(text)?;
        Ok(Some(format!(
            "there is no network device {interface}: it was renamed to {}, and is no longer shaped",
            renamed.name
        )))
    }

    /// Whether somebody has brought the changed file into force (`sqm reload`): it then is the configuration.
    fn adopts_file(&mut self, interface: &str, links: &[Link]) -> bool {
        let Ok(text) = self.read_file() else {
            return false;
        };
        if text == self.configuration.text {
            return false;
        }
        let Ok((plans, warnings)) = self.plans(&text, links) else {
            return false;
        };
        let Some(plan) = plans.iter().find(|plan| plan.interface == interface) else {
            return false;
        };
        let holds =
            Observed::read(&mut self.socket, plan).is_ok_and(|observed| compare(plan, &observed).is_empty());
        if holds {
            self.configuration = Configuration { text, warnings };
        }
        holds
    }

    /// Stops shaping an interface. Answers what there is to tell.
    pub(super) fn release(&mut self, interface: &str) -> Result<Vec<String>, String> {
        let store = Store::open(&self.state_dir).map_err(text)?;
        match apply::stop(&mut self.socket, &store, interface).map_err(text)? {
            Stopped::Restored(notes) => Ok(notes),
            Stopped::NotRunning => Ok(Vec::new()),
        }
    }

    fn plan(&self, interface: &str, links: &[Link]) -> Result<Plan, String> {
        let (plans, _) = self
            .plans(&self.configuration.text, links)
            .map_err(|errors| errors.join("; "))?;
        plans
            .into_iter()
            .find(|plan| plan.interface == interface)
            .ok_or_else(|| format!("{} has no section for {interface} any more", self.file.display()))
    }

    fn read_file(&self) -> Result<Vec<u8>, String> {
        std::fs::read(&self.file)
            .map_err(|error| format!("cannot read the configuration {}: {error}", self.file.display()))
    }

    /// Plans and warnings.
    fn plans(&self, bytes: &[u8], links: &[Link]) -> Result<(Vec<Plan>, Vec<String>), Vec<String>> {
        let file = self.file.display().to_string();
        let loaded = sqm_plan::load(bytes, &file, &|name| stack::device(links, name));
        match loaded {
            Ok(loaded) => Ok((
                loaded.plans,
                loaded.warnings.iter().map(ToString::to_string).collect(),
            )),
            Err(errors) => Err(errors.iter().map(ToString::to_string).collect()),
        }
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
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

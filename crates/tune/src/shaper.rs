//! The configured shaper: changes its rates, leaves everything else as configured, and can roll back.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use sqm_core::units::Rate;
use sqm_kernel::netlink::link::Link;
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::state::Store;
use sqm_kernel::transaction::{RollbackState, Transaction};
use sqm_kernel::{observe, stack};
use sqm_measure::result::Direction;
use sqm_plan::line::ConfiguredLine;
use sqm_plan::plan::Plan;
use sqm_plan::uci::Document;

use super::framing::{Framing, rate};
use super::watchdog::Watchdog;
use sqm_configuration::load;
use sqm_process::failure::Failure;

/// The shaper's rate while a direction counts as unshaped: 10 Gbit/s, faster than any access line and within the shaper's arithmetic.
const UNLIMITED: Rate = Rate::from_kbits_per_sec(10_000_000);
/// A change of the kernel's queues takes less than this. Our choice.
const LONGEST_CHANGE: Duration = Duration::from_secs(3);

/// The mode of the previous configuration's copy, which may hold what only root may read.
const BACKUP_MODE: u32 = 0o600;

/// Download and upload rates that replace those of the configuration; `None` keeps the configured one.
pub(crate) type RateOverrides = (Option<Rate>, Option<Rate>);

/// The shaper of one interface. Dropping it rolls back, unless the new rates have been written.
pub(crate) struct Shaper {
    socket: Socket,
    store: Store,
    links: Vec<Link>,
    /// The text of the configuration when it was read.
    text: Vec<u8>,
    document: Document,
    /// The index of the interface's section in the document.
    section: usize,
    file: PathBuf,
    line: ConfiguredLine,
    framing: Framing,
    /// The rates in force; `None` is the configured one.
    rates: RateOverrides,
    state_dir: PathBuf,
    /// The rollback data, and the watchdog that uses it if this process is killed; `None` before the first change.
    before: Option<(RollbackState, Watchdog)>,
}

/// The shaper that the search thread uses, until the waiting thread takes it back.
#[derive(Clone)]
pub(crate) struct SharedShaper(Arc<Mutex<Option<Shaper>>>);

impl SharedShaper {
    pub(crate) fn new(shaper: Shaper) -> Self {
        Self(Arc::new(Mutex::new(Some(shaper))))
    }

    /// Uses the shaper.
    ///
    /// # Errors
    ///
    /// The shaper has been taken back, or `act` fails.
    pub(crate) fn with<T, E: From<anyhow::Error>>(
        &self,
        act: impl FnOnce(&mut Shaper) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut shaper = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = || E::from(anyhow!("the search has been ended"));
        act(shaper.as_mut().ok_or_else(ended)?)
    }

    /// Takes the shaper from a search that has ended or been abandoned. `None` if the search is changing the kernel's queues and the
    /// kernel does not answer.
    pub(crate) fn take_back(&self) -> Option<Shaper> {
        let begun = Instant::now();
        loop {
            match self.0.try_lock() {
                Ok(mut shaper) => return shaper.take(),
                Err(TryLockError::Poisoned(broken)) => return broken.into_inner().take(),
                Err(TryLockError::WouldBlock) if begun.elapsed() >= LONGEST_CHANGE => return None,
                Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(10)),
            }
        }
    }
}

impl Shaper {
    /// Opens the shaper of `interface`, or of the only one that is configured. Takes the lock of the state.
    pub(crate) fn open(file: &Path, interface: Option<&str>, state_dir: &Path) -> Result<Self, Failure> {
        let text = load::read(file)?;
        let mut socket = Socket::open().context("cannot open a netlink socket")?;
        let links = observe::links(&mut socket)?;
        let lines = load::parse(&text, file, &links)?.lines;
        let line = choose(&lines, interface, &file.display().to_string())?.clone();
        let document = Document::parse_bytes(&text).expect("it was read a moment ago");
        let mut sections = document.sections().into_iter();
        let section = sections
            .find(|section| section.line == line.at)
            .expect("its plan comes from there")
            .index;
        let framing = Framing {
            line: line.framing,
            header: stack::device(&links, &line.interface).header,
        };
        let store = Store::open(state_dir)?;
        Ok(Self {
            framing,
            socket,
            store,
            links,
            text,
            document,
            section,
            file: file.to_owned(),
            line,
            rates: (None, None),
            state_dir: state_dir.to_owned(),
            before: None,
        })
    }

    /// The name of the interface.
    pub(crate) fn interface(&self) -> &str {
        &self.line.interface
    }

    /// How packets are counted on this line.
    pub(crate) fn framing(&self) -> Framing {
        self.framing
    }

    /// Changes options of the section other than the rates: for the search, and in the configuration that [`write`](Self::write) writes.
    pub(crate) fn set_options(&mut self, options: &[(&str, String)]) -> Result<(), Failure> {
        let mut document = self.document.clone();
        for (option, value) in options {
            if !document.set(self.section, option, value) {
                return Err(Failure::Failed(anyhow!("option {option} cannot be set")));
            }
        }
        let loaded = load::parse(document.to_string().as_bytes(), &self.file, &self.links)?;
        let line = choose(&loaded.lines, Some(&self.line.interface), "the configuration")?.clone();
        self.framing.line = line.framing;
        (self.document, self.line) = (document, line);
        Ok(())
    }

    /// The configured rate of a direction; `None` if it is not shaped.
    pub(crate) fn configured(&self, direction: Direction) -> Option<Rate> {
        match direction {
            Direction::Down => self.line.download,
            Direction::Up => self.line.upload,
        }
    }

    /// Removes the limits of these directions; the others keep the configured rate.
    pub(crate) fn lift(&mut self, directions: &[Direction]) -> anyhow::Result<()> {
        for direction in directions {
            *self.rate(*direction) = Some(UNLIMITED);
        }
        self.apply()
    }

    /// Sets the rate of one direction in Mbit/s, or removes its limit.
    pub(crate) fn set(&mut self, direction: Direction, mbit: Option<f64>) -> anyhow::Result<()> {
        *self.rate(direction) = Some(mbit.map_or(UNLIMITED, rate));
        self.apply()
    }

    fn rate(&mut self, direction: Direction) -> &mut Option<Rate> {
        match direction {
            Direction::Down => &mut self.rates.0,
            Direction::Up => &mut self.rates.1,
        }
    }

    fn apply(&mut self) -> anyhow::Result<()> {
        let text = self.text_with(self.rates);
        let plan = self.plan(&text).map_err(|error| anyhow!("{error}"))?;
        if self.before.is_some() {
            // Only the first change's rollback data leads back to the shaping from before the search.
            let transaction = Transaction::prepare_now(&mut self.socket, &self.store, &plan)?;
            let _ = transaction.apply(&mut self.socket, &self.store)?;
            return Ok(());
        }
        let mut watchdog = Watchdog::start(&self.state_dir, &self.store)?;
        let transaction = Transaction::prepare_now(&mut self.socket, &self.store, &plan)?;
        watchdog
            .send(transaction.rollback_state())
            .context("cannot reach the watchdog process that restores the shaping if this one is killed")?;
        let applied = transaction.apply(&mut self.socket, &self.store)?;
        self.before = Some((applied.rollback, watchdog));
        Ok(())
    }

    fn plan(&self, text: &str) -> Result<Plan, Failure> {
        let plans = load::parse(text.as_bytes(), &self.file, &self.links)?.plans;
        let mut wanted = plans
            .into_iter()
            .filter(|plan| plan.interface == self.line.interface);
        wanted
            .next()
            .ok_or_else(|| Failure::Usage(anyhow!("{} lost its section", self.file.display())))
    }

    /// Applies the rates, writes them to the configuration, and keeps the old one beside it as `FILE.before-tune`.
    ///
    /// # Errors
    ///
    /// Nothing is written if another program has changed the configuration since it was read.
    pub(crate) fn write(&mut self, rates: RateOverrides) -> anyhow::Result<()> {
        if sqm_configuration::read(&self.file)? != self.text {
            return Err(sqm_files::Error::Changed {
                path: self.file.clone(),
            }
            .into());
        }
        self.rates = rates;
        // A searched direction without a rate was unlimited during the search. Its rate is now 0, which removes its shaper.
        self.apply()?;
        let mut backup = self.file.as_os_str().to_owned();
        backup.push(".before-tune");
        let backup = PathBuf::from(backup);
        sqm_files::replace(&backup, BACKUP_MODE, &self.text)?;
        sqm_configuration::write(&self.file, Some(&self.text), self.text_with(rates).as_bytes())?;
        if let Some((_, watchdog)) = self.before.take() {
            watchdog.dismiss();
        }
        Ok(())
    }

    /// The text of the configuration with these rates.
    fn text_with(&self, (download, upload): RateOverrides) -> String {
        let mut document = self.document.clone();
        for (option, rate) in [("download", download), ("upload", upload)] {
            let Some(rate) = rate else { continue };
            let kbit = (rate.bits_per_sec() / 1000).to_string();
            let is_set = document.set(self.section, option, &kbit);
            debug_assert!(is_set, "the section is there");
        }
        document.to_string()
    }

    /// Restores the previous shaping, unless nothing was changed or the new rates have been written.
    pub(crate) fn undo(&mut self) -> Result<(), Failure> {
        let Some((before, watchdog)) = self.before.take() else {
            return Ok(());
        };
        before.roll_back(&mut self.socket, &self.store)?;
        watchdog.dismiss();
        Ok(())
    }
}

/// Rolls back whatever happens.
impl Drop for Shaper {
    fn drop(&mut self) {
        if let Err(error) = self.undo() {
            error.report();
        }
    }
}

fn choose<'a>(
    lines: &'a [ConfiguredLine],
    interface: Option<&str>,
    file: &str,
) -> Result<&'a ConfiguredLine, Failure> {
    let names: Vec<&str> = lines.iter().map(|line| line.interface.as_str()).collect();
    let chosen = match (interface, lines) {
        (Some(name), _) => lines.iter().find(|line| line.interface == name),
        (None, [only]) => Some(only),
        _ => None,
    };
    chosen.ok_or_else(|| {
        Failure::Usage(anyhow!(match (names.is_empty(), interface) {
            (true, _) => format!("{file} has no enabled section; tune needs one for its interface"),
            (_, Some(name)) => format!(
                "{file} has no enabled section for {name}; it has enabled sections for: {}",
                names.join(", ")
            ),
            _ => format!("{file} has several interfaces; name one of {}", names.join(", ")),
        }))
    })
}

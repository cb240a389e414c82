//! The configured shaper: changes its rates, leaves everything else as configured, and can roll back.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use sqm_core::direction;
use sqm_core::direction::Direction;
use sqm_core::units::Rate;
use sqm_kernel::netlink::link::Link;
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::state::Store;
use sqm_kernel::transaction::{RollbackState, Transaction};
use sqm_kernel::{observe, stack};
use sqm_plan::line::ConfiguredLine;
use sqm_plan::link::LinkLayer;
use sqm_plan::plan::Plan;
use sqm_plan::plan::moving::Mover;
use sqm_plan::side::Side;
use sqm_plan::{Loaded, OptionValue, RateOverrides};

use super::framing::{Framing, rate};
use sqm_configuration::rate_override::RateOverride;
use sqm_configuration::watchdog::{Held, Watchdog};
use sqm_configuration::{Draft, EditError, Parsed, load, staged};
use sqm_process::failure::Failure;

/// The shaper's rate while a direction counts as unshaped: 10 Gbit/s, faster than any access line and within the shaper's arithmetic.
const UNLIMITED: Rate = Rate::from_kbits_per_sec(10_000_000);
/// A change of the kernel's queues takes less than this. Our choice.
const LONGEST_CHANGE: Duration = Duration::from_secs(3);

/// The mode of the previous configuration's copy, which may hold what only root may read.
const BACKUP_MODE: u32 = 0o600;

/// The shaper of one interface. Dropping it rolls back, unless the new rates have been written.
pub(crate) struct Shaper {
    socket: Socket,
    store: Store,
    links: Vec<Link>,
    /// The text of the configuration when it was read.
    text: Vec<u8>,
    /// The text with the options that the search has set.
    draft: Draft,
    /// The text of the draft, parsed. Each rate of the search is planned from it.
    parsed: Parsed,
    /// The index of the interface's section in the draft.
    section: usize,
    file: PathBuf,
    line: ConfiguredLine,
    framing: Framing,
    /// The rates in force; `None` is the configured one.
    rates: RateOverride,
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
        let text = load::read_with_warnings(file)?;
        let mut socket = Socket::open().context("cannot open a netlink socket")?;
        let links = observe::links(&mut socket)?;
        let (parsed, loaded) = load::parse_and_plan(text.clone(), file, &links)?;
        let line = choose(&loaded.lines, interface, &file.display().to_string())?.clone();
        refuse_estimates(&loaded, &line.interface)?;
        let draft = Draft::of(&text).map_err(|errors| anyhow!("{}: {}", file.display(), errors[0]))?;
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
            draft,
            parsed,
            section: line.section,
            file: file.to_owned(),
            line,
            rates: RateOverride::default(),
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
    pub(crate) fn set_options(&mut self, options: &[OptionValue]) -> Result<(), Failure> {
        let draft = self.draft_with(options)?;
        let (parsed, loaded) = self.parse(&draft)?;
        let line = choose(&loaded.lines, Some(&self.line.interface), "the configuration")?.clone();
        self.framing.line = line.framing;
        (self.draft, self.parsed, self.line) = (draft, parsed, line);
        Ok(())
    }

    /// The options by which the section counts this overhead. A section without a link layer ignores `option overhead` alone.
    pub(crate) fn options_for_overhead(&self, bytes: i32) -> Result<Vec<OptionValue>, Failure> {
        let alone = vec![OptionValue::Overhead(bytes)];
        let (_, loaded) = self.parse(&self.draft_with(&alone)?)?;
        let line = choose(&loaded.lines, Some(&self.line.interface), "the configuration")?;
        if i32::from(line.framing.overhead) == bytes {
            return Ok(alone);
        }
        Ok(vec![
            OptionValue::LinkLayer(LinkLayer::Ethernet),
            OptionValue::Overhead(bytes),
        ])
    }

    /// The draft with more options set.
    fn draft_with(&self, options: &[OptionValue]) -> anyhow::Result<Draft> {
        let mut draft = self.draft.clone();
        let mut options = options.iter();
        let set: Result<(), EditError> = options.try_for_each(|option| draft.set(self.section, option));
        set.context("the configuration cannot be changed")?;
        Ok(draft)
    }

    fn parse(&self, draft: &Draft) -> Result<(Parsed, Loaded), Failure> {
        load::parse_and_plan(draft.to_bytes(), &self.file, &self.links)
    }

    /// The configured rate of a direction; `None` if it is not shaped.
    pub(crate) fn configured(&self, direction: Direction) -> Option<Rate> {
        match direction {
            Direction::Download => self.line.download,
            Direction::Upload => self.line.upload,
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
            Direction::Download => &mut self.rates.download,
            Direction::Upload => &mut self.rates.upload,
        }
    }

    /// Brings the rates of the search into force.
    fn apply(&mut self) -> anyhow::Result<()> {
        let rates = RateOverrides::from([(self.line.interface.clone(), self.rates)]);
        let plan = self.plan(self.parsed.plan(&self.links, &rates)?)?;
        self.apply_plan(&plan)
    }

    fn apply_plan(&mut self, plan: &Plan) -> anyhow::Result<()> {
        if self.before.is_some() {
            // Only the first change's rollback data leads back to the shaping from before the search.
            let transaction = Transaction::prepare_now(&mut self.socket, &self.store, plan)?;
            let _ = transaction.apply(&mut self.socket, &self.store)?;
            return Ok(());
        }
        let lock = self
            .store
            .share_lock()
            .context("cannot share the lock of the state")?;
        let mut watchdog = Watchdog::start(&self.state_dir, Held::State, lock)?;
        let transaction = Transaction::prepare_now(&mut self.socket, &self.store, plan)?;
        watchdog
            .send(transaction.rollback_state())
            .context("cannot reach the watchdog process that restores the shaping if this one is killed")?;
        let applied = transaction.apply(&mut self.socket, &self.store)?;
        self.before = Some((applied.rollback, watchdog));
        Ok(())
    }

    /// The plan of the interface among all of the configuration.
    fn plan(&self, loaded: Loaded) -> anyhow::Result<Plan> {
        let mut plans = loaded.plans.into_iter();
        plans
            .find(|plan| plan.interface == self.line.interface)
            .with_context(|| format!("{} lost its section", self.file.display()))
    }

    /// Applies the rates, writes them to the configuration, and keeps the old one beside it as `FILE.before-tune`.
    ///
    /// # Errors
    ///
    /// Nothing is written if another program has changed the configuration since it was read.
    pub(crate) fn write(&mut self, rates: RateOverride) -> anyhow::Result<()> {
        if let Some(obstacle) = staged::obstacle(&self.file) {
            return Err(anyhow!("{}: {obstacle}", self.file.display()));
        }
        if sqm_configuration::read(&self.file)? != self.text {
            return Err(sqm_files::Error::Changed {
                path: self.file.clone(),
            }
            .into());
        }
        // A searched direction without a rate was unlimited during the search. Its rate is now 0, which removes its shaper.
        let options: Vec<OptionValue> = direction::Direction::BOTH
            .into_iter()
            .filter_map(|direction| Some(OptionValue::Rate(direction, rates[direction]?)))
            .collect();
        let draft = self.draft_with(&options)?;
        let (_, loaded) = self.parse(&draft).map_err(|error| anyhow!("{error}"))?;
        let plan = self.plan(loaded)?;
        self.apply_plan(&plan)?;
        let mut backup = self.file.as_os_str().to_owned();
        backup.push(".before-tune");
        let backup = PathBuf::from(backup);
        sqm_files::replace(&backup, BACKUP_MODE, &self.text)?;
        sqm_configuration::write(&self.file, Some(&self.text), &draft.finish())?;
        if let Some((_, watchdog)) = self.before.take() {
            watchdog.dismiss();
        }
        Ok(())
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

/// Refuses a line whose CAKE moves a rate by itself: a search cannot set that rate.
fn refuse_estimates(loaded: &Loaded, interface: &str) -> Result<(), Failure> {
    let plan = loaded.plans.iter().find(|plan| plan.interface == interface);
    let moves = |side: Side| plan.is_some_and(|plan| plan.mover(side) == Some(Mover::Cake));
    if Side::ALL.into_iter().any(moves) {
        return Err(Failure::Usage(anyhow!(
            "CAKE moves the rate of {interface} by itself (autorate-ingress), so that there is no rate to find: remove that \
             option first"
        )));
    }
    Ok(())
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

//! The main loop: waits for events of the kernel, signals and requests, and does what they make due.

mod change;

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use anyhow::{Context, anyhow};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use sqm_core::units::{Instant, Nanos};
use sqm_files::Lock;
use sqm_kernel::capability;
use sqm_kernel::netlink::monitor::{KernelEvent, KernelMonitor};

use crate::api;
use crate::autorate::Fleet;
use crate::clock::{monotonic, nanos};
use crate::keep::{self, Action, Event, Keeper, Outcome, State};
use crate::shape::{Drift, Shaper};
use crate::shared::{Command, Shared};
use crate::status::{self, Status};
use crate::trial::{self, Overdue, Trial};
use crate::{manager, search};
use sqm_kernel::plan_json::PlanJson;
use sqm_process::failure::Failure;

/// Name of the API's socket in the state folder.
pub const SOCKET: &str = "api.sock";

/// In the end another program that is changing the queues is waited for so long.
const LOCK: Duration = Duration::from_secs(5);
/// A service manager that waits for the end hears so often that it goes on, and gives ten times as long.
const EXTENSION: Nanos = Nanos::from_millis(1000);

/// The daemon's command line.
pub struct Options {
    /// The configuration.
    pub config: PathBuf,
    /// The folder of the state: records, locks and, unless named otherwise, the socket.
    pub state_dir: PathBuf,
    /// The API's socket; `None`: [`SOCKET`] in the state folder.
    pub socket: Option<PathBuf>,
    /// The loopback address at which metrics are served.
    pub metrics: Option<SocketAddr>,
    /// What the daemon does about queues that another program changed.
    pub drift: Drift,
    /// The number of a user besides root who may change something through the API.
    pub admin: Option<u32>,
}

/// Keeps the configuration in force until a signal ends it.
pub fn run(options: Options) -> Result<ExitCode, Failure> {
    capability::require_privileges("sqm daemon")?;
    if let Err(error) = std::fs::create_dir_all(&options.state_dir) {
        let folder = options.state_dir.display();
        errln!("cannot make the folder of the state {folder}: {error}; shaping goes on without");
    }
    api::let_change(options.admin);
    let _alone = alone(&options.state_dir)?;
    let signals = Signals::catch()?;
    // Before anything is looked at: what changes in between is told.
    let mut monitor = KernelMonitor::open().context("cannot listen to the kernel's events")?;
    let mut recovered = trial::recover(&options.config, monotonic());
    let config = options.config.clone();
    let mut shaper = Shaper::new(options.config, options.state_dir.clone(), options.drift)
        .context("cannot open a netlink socket")?;
    // Every check looks at what it has changed.
    monitor.ignore(shaper.socket());
    let kept = recovered
        .overdue
        .as_ref()
        .map(|overdue| overdue.trial.text.clone());
    let loaded = match kept {
        Some(text) => shaper.load_text(text),
        None => shaper.load(),
    };
    let named = loaded.map_err(|errors| {
        errors.iter().for_each(|error| errln!("error: {error}"));
        Failure::Usage(anyhow!("the configuration is wrong; nothing was done"))
    })?;
    if let Some(overdue) = &mut recovered.overdue {
        overdue.trial.in_force = shaper.configuration.clone();
    }
    let mut keeper = Keeper::default();
    let now = monotonic();
    keeper.on(Event::Configured(named), now);
    let (wake, woken) = UnixStream::pair().context("cannot make a pair of sockets")?;
    wake.set_nonblocking(true)?;
    woken.set_nonblocking(true)?;
    let first = Status::of(keeper.sections(), status::File::default(), now);
    let (shared, commands) = Shared::new(first, options.state_dir.clone(), config, wake);
    let mut daemon = Daemon {
        monitor,
        signals,
        woken,
        commands,
        keeper,
        shaper,
        shared: Arc::new(shared),
        trial: None,
        overdue: recovered.overdue,
        unserved: None,
        errors: Vec::new(),
        told: String::new(),
        fleet: Fleet::default(),
        rate_trouble: None,
        state_trouble: None,
    };
    for told in recovered.told {
        daemon.say("configuration", None, told);
    }
    daemon.tell_configuration();
    daemon.see_devices()?;
    daemon.work();
    let is_chosen = options.socket.is_some() || options.metrics.is_some();
    let socket = options.socket.unwrap_or_else(|| options.state_dir.join(SOCKET));
    match daemon.serve(&socket, options.metrics) {
        // Without the API the lines are shaped all the same.
        Err(error) if !is_chosen => {
            daemon.say("state", None, format!("{error:#}; shaping goes on without"));
            daemon.unserved = Some((socket.clone(), monotonic() + keep::LOOK));
        }
        served => served?,
    }
    daemon.follow_lines();
    manager::tell("READY=1");
    let end = daemon.keep();
    manager::tell("STOPPING=1");
    let _ = std::fs::remove_file(&socket);
    daemon.end(end?)
}

/// How the daemon is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Everything as it was before it came.
    Restore,
    /// The queues stay, for the next one.
    Leave,
}

/// The daemon's state; only the main loop holds it.
struct Daemon {
    monitor: KernelMonitor,
    signals: Signals,
    woken: UnixStream,
    commands: Receiver<Command>,
    keeper: Keeper,
    shaper: Shaper,
    shared: Arc<Shared>,
    /// A change that waits for its confirmation.
    trial: Option<Trial>,
    /// One that was put back in the kernel, and not in the file.
    overdue: Option<Overdue>,
    /// The socket of an API that could not be served, and when that is tried again.
    unserved: Option<(PathBuf, Instant)>,
    /// Why the file as it is now is not in force.
    errors: Vec<String>,
    /// What the service manager was told last.
    told: String,
    fleet: Fleet,
    /// Why rates could not be followed last.
    rate_trouble: Option<String>,
    /// Why something of the state could not be written last.
    state_trouble: Option<String>,
}

impl Daemon {
    fn keep(&mut self) -> Result<End, Failure> {
        let watchdog = manager::watchdog().map(|limit| limit / 2);
        let mut fed = monotonic();
        loop {
            let now = monotonic();
            let wait = self.keeper.due().map(|due| due.since(now));
            let feed = watchdog.map(|half| (fed + nanos(half)).since(now));
            let trial = self.trial.as_ref().map(|trial| trial.until.since(now));
            let overdue = self.overdue.as_ref().map(|overdue| overdue.due.since(now));
            let unserved = self.unserved.as_ref().map(|(_, due)| due.since(now));
            let thread = self.fleet.due().map(|due| due.since(now));
            let waits = [wait, feed, trial, overdue, unserved, thread];
            self.wait(waits.into_iter().flatten().min())?;
            if let Some(end) = self.signals.end() {
                return Ok(end);
            }
            if self.signals.reload.swap(false, Ordering::Relaxed) {
                // systemd wants both in one message.
                let micros = monotonic().0 / 1000;
                manager::tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
                // A wrong file is told and changes nothing.
                let _ = self.reload();
                self.work();
                manager::tell("READY=1");
            }
            self.hear()?;
            self.carry_out_commands();
            self.follow_lines();
            // The kernel tells of our own changes, too: not another round for that.
            self.hear()?;
            self.end_trial();
            self.serve_at_last();
            self.work();
            if watchdog.is_some_and(|half| monotonic().since(fed) >= nanos(half)) {
                fed = monotonic();
                manager::tell("WATCHDOG=1");
            }
        }
    }

    fn serve(&self, socket: &Path, metrics: Option<SocketAddr>) -> anyhow::Result<()> {
        let listeners = api::Listeners::bind(socket, metrics)?;
        listeners.serve(&self.shared).context("cannot start the API")
    }

    /// Serves the API as soon as its socket can be made.
    fn serve_at_last(&mut self) {
        let Some((socket, due)) = self.unserved.take() else {
            return;
        };
        let now = monotonic();
        if due > now || self.serve(&socket, None).is_err() {
            self.unserved = Some((socket, due.max(now + keep::LOOK)));
            return;
        }
        self.say(
            "state",
            None,
            format!("the API is served on {}", socket.display()),
        );
    }

    /// Waits for news, a signal or a command, at most so long.
    fn wait(&self, most: Option<Nanos>) -> Result<(), Failure> {
        let mut watched: Vec<PollFd<'_>> = self
            .monitor
            .descriptors()
            .chain([self.woken.as_fd(), self.signals.pipe.as_fd()])
            .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
            .collect();
        let most = most.map(|most| Timespec {
            tv_sec: (most.0 / 1_000_000_000) as i64,
            tv_nsec: (most.0 % 1_000_000_000) as i64,
        });
        match poll(&mut watched, most.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Failure::Failed(anyhow!(error).context("cannot wait for news"))),
        }
        empty(&self.woken);
        empty(&self.signals.pipe);
        Ok(())
    }

    /// Takes in the kernel's events.
    fn hear(&mut self) -> Result<(), Failure> {
        let events = self.monitor.read().context("cannot read the kernel's events")?;
        let now = monotonic();
        for event in events {
            let event = match event {
                KernelEvent::LinkChanged(link) => Event::Device {
                    index: link.index,
                    name: link.name,
                    mtu: link.mtu,
                    up: link.up,
                    carrier: link.carrier,
                },
                KernelEvent::LinkRemoved(index) => Event::Gone(index),
                KernelEvent::QdiscsChanged(index) => Event::Queues(index),
                KernelEvent::FirewallChanged => Event::Firewall,
                KernelEvent::EventsLost => {
                    self.see_devices()?;
                    Event::Lost
                }
            };
            self.keeper.on(event, now);
        }
        Ok(())
    }

    /// Looks at the devices themselves: at the start, and when news were lost.
    fn see_devices(&mut self) -> Result<(), Failure> {
        let links = self.shaper.links()?;
        let now = monotonic();
        for link in links {
            let event = Event::Device {
                index: link.index,
                name: link.name,
                mtu: link.mtu,
                up: link.up,
                carrier: link.carrier,
            };
            self.keeper.on(event, now);
        }
        Ok(())
    }

    /// Does all that is due, and tells how things are. Whoever wants the daemon to end does not wait for the rest.
    fn work(&mut self) {
        while self.signals.end().is_none() {
            let Some(action) = self.keeper.next(monotonic()) else {
                break;
            };
            match action {
                Action::Check {
                    interface,
                    shaped,
                    request,
                } => {
                    let outcome = self.shaper.check(&interface, shaped, request);
                    for note in self.shaper.take_notes() {
                        self.say("state", Some(&interface), note);
                    }
                    self.tell_change(&interface, &outcome);
                    self.keeper
                        .on(Event::Checked(interface.clone(), outcome), monotonic());
                    if let Some(named) = self.shaper.take_adopted() {
                        self.errors.clear();
                        self.tell_configuration();
                        self.keeper.on(Event::Adopted(named), monotonic());
                        let _ = self.see_devices();
                    }
                    self.tell_state(&interface);
                }
                Action::Release(interface) => {
                    let text = match self.shaper.release(&interface) {
                        Ok(None) => {
                            self.keeper.on(Event::NotReleased(interface), monotonic());
                            continue;
                        }
                        Ok(Some(notes)) if notes.is_empty() => {
                            "no longer configured: as it was before".to_owned()
                        }
                        Ok(Some(notes)) => format!("no longer configured: {}", notes.join("; ")),
                        Err(error) => format!("no longer configured, and could not be stopped: {error}"),
                    };
                    self.say("released", Some(&interface), text);
                }
            }
        }
        self.publish();
    }

    /// Has a controller for each interface that is to have one, and brings into force what they want.
    fn follow_lines(&mut self) {
        let lines = &self.shaper.configuration.autorates;
        let changes = self.fleet.configure(lines, &self.shared, monotonic());
        for (interface, text) in changes.news {
            self.say("autorate", Some(&interface), text);
        }
        for interface in changes.ended {
            self.shaper.forget_rates(&interface);
            self.keeper.on(Event::Rates(interface), monotonic());
        }
        let trouble = self.set_rates();
        if trouble != self.rate_trouble {
            if let Some(trouble) = &trouble {
                self.say(
                    "autorate",
                    None,
                    format!("the rates do not follow the line: {trouble}"),
                );
            }
            self.rate_trouble = trouble;
        }
    }

    /// Answers what went wrong.
    fn set_rates(&mut self) -> Option<String> {
        let mut trouble = None;
        for (interface, rates) in self.shared.autorate.take_wanted() {
            let sections = self.keeper.sections();
            let section = sections.iter().find(|section| section.interface == interface);
            // After news the check that they make due brings the rates, too.
            let is_shaped =
                section.is_some_and(|section| section.state == State::Shaped && !section.has_news());
            if let Err(error) = self.shaper.set_rates(&interface, rates, is_shaped) {
                trouble = Some(format!("{interface}: {error}"));
            }
        }
        trouble
    }

    fn publish(&mut self) {
        let trouble = self.shaper.trouble();
        if trouble != self.state_trouble {
            let text = match &trouble {
                Some(trouble) => format!("warning: {trouble}"),
                None => "the state can be written again".to_owned(),
            };
            self.say("state", None, text);
            self.state_trouble.clone_from(&trouble);
        }
        let overdue = self.overdue.as_ref().map(Overdue::told);
        let warnings = self.shaper.configuration.warnings.iter();
        let configuration = status::File {
            file: self.shaper.file().display().to_string(),
            errors: overdue.into_iter().chain(self.errors.iter().cloned()).collect(),
            warnings: trouble.iter().chain(warnings).cloned().collect(),
            is_hindered: trouble.is_some(),
        };
        let status = Status::of(self.keeper.sections(), configuration, monotonic());
        let line = status.line();
        if line != self.told {
            manager::tell(&format!("STATUS={line}"));
            self.told = line;
        }
        self.shared.publish(status);
    }

    fn tell_change(&self, interface: &str, outcome: &Outcome) {
        if let Outcome::Changed { changes, .. } = outcome {
            self.say("changed", Some(interface), changes.join("; "));
        }
    }

    /// Says in which state an interface is, if that is new.
    fn tell_state(&mut self, interface: &str) {
        let is_it = |name: &str| name == interface;
        let before = self
            .shared
            .status()
            .interfaces
            .into_iter()
            .find(|known| is_it(&known.interface));
        let section = self
            .keeper
            .sections()
            .iter()
            .find(|section| is_it(&section.interface));
        let Some(section) = section else { return };
        let (state, why) = (section.state.name(), section.why.clone());
        if before.is_some_and(|before| before.state == state && before.why == why) {
            return;
        }
        let text = why.map_or_else(|| state.to_owned(), |why| format!("{state}: {why}"));
        self.say("state", Some(interface), text);
        self.publish();
    }

    fn tell_configuration(&self) {
        for warning in &self.shaper.configuration.warnings {
            self.say("configuration", None, format!("warning: {warning}"));
        }
    }

    /// To whoever listens, and to the log.
    fn say(&self, kind: &'static str, interface: Option<&str>, text: String) {
        match interface {
            Some(interface) => errln!("{interface}: {text}"),
            None => errln!("{text}"),
        }
        self.shared.journal.tell(kind, interface, text);
    }

    /// One interface, though it was stopped by hand or given way over.
    fn ask(&mut self, interface: String) -> Result<(), Vec<String>> {
        let sections = self.keeper.sections();
        if sections.iter().all(|section| section.interface != interface) {
            let file = self.shaper.file().display();
            return Err(vec![format!("{file} has no enabled section for {interface}")]);
        }
        self.keeper.on(Event::Asked(interface), monotonic());
        Ok(())
    }

    fn carry_out_commands(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            // Whoever asked may have gone.
            match command {
                Command::Apply { interface, reply } => {
                    let outcome = match interface {
                        Some(interface) => self.ask(interface),
                        None => self.reload(),
                    };
                    self.work();
                    let _ = reply.send(outcome);
                }
                Command::Plan { reply } => {
                    let plans = self.shaper.current_plans();
                    let json = plans.map(|plans| {
                        let plans: Vec<_> = plans.iter().map(PlanJson::from).collect();
                        serde_json::to_string_pretty(&plans).unwrap_or_default()
                    });
                    let _ = reply.send(json);
                }
                Command::Read { reply } => {
                    let _ = reply.send(self.read_configuration());
                }
                Command::Configure {
                    text,
                    revision,
                    confirm,
                    reply,
                } => {
                    let _ = reply.send(self.configure(&text, &revision, confirm));
                }
                Command::Confirm { reply } => {
                    let _ = reply.send(self.confirm());
                }
                Command::Revert { reply } => {
                    let _ = reply.send(self.revert("put back as asked"));
                }
            }
        }
    }

    fn end(mut self, end: End) -> Result<ExitCode, Failure> {
        // A search puts back what it changed, before anything is released or left here: nobody comes after this.
        if !search::end(&self.shared) {
            errln!("the search for the best rates does not end");
        }
        for (interface, text) in self.fleet.end() {
            errln!("{interface}: {text}");
        }
        if end == End::Leave {
            errln!("the queues stay as they are");
            return Ok(ExitCode::SUCCESS);
        }
        let sections = self.keeper.sections().iter();
        let names = sections.map(|section| section.interface.as_str());
        let names: Vec<String> = names.chain(self.keeper.unreleased()).map(str::to_owned).collect();
        let mut code = ExitCode::SUCCESS;
        let mut told = monotonic();
        self.shaper.release_all(&names, LOCK, |interface, outcome| {
            match outcome {
                Ok(notes) => notes.iter().for_each(|note| errln!("{note}")),
                Err(error) => {
                    errln!("{interface}: could not be stopped: {error}");
                    code = ExitCode::FAILURE;
                }
            }
            if monotonic().since(told) >= EXTENSION {
                told = monotonic();
                // A manager that waits sees that the work goes on.
                manager::tell(&format!("EXTEND_TIMEOUT_USEC={}", EXTENSION.0 / 1000 * 10));
            }
        });
        Ok(code)
    }
}

/// The signals that mean something.
struct Signals {
    /// A byte for each.
    pipe: UnixStream,
    reload: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    leave: Arc<AtomicBool>,
}

impl Signals {
    fn catch() -> Result<Self, Failure> {
        let (pipe, end) = UnixStream::pair().context("cannot make a pair of sockets")?;
        pipe.set_nonblocking(true)?;
        let signals = Self {
            pipe,
            reload: Arc::default(),
            stop: Arc::default(),
            leave: Arc::default(),
        };
        for (signal, flag) in [
            (SIGHUP, &signals.reload),
            (SIGTERM, &signals.stop),
            (SIGINT, &signals.stop),
            (SIGQUIT, &signals.leave),
        ] {
            // The flag first: whoever is woken by the byte finds it.
            signal_hook::flag::register(signal, Arc::clone(flag))?;
            signal_hook::low_level::pipe::register(signal, end.try_clone()?)?;
        }
        Ok(signals)
    }

    fn end(&self) -> Option<End> {
        if self.leave.load(Ordering::Relaxed) {
            return Some(End::Leave);
        }
        self.stop.load(Ordering::Relaxed).then_some(End::Restore)
    }
}

/// Held as long as this daemon lives: a second one would undo its work. None where the folder takes no lock.
fn alone(state_dir: &Path) -> Result<Option<Lock>, Failure> {
    let path = state_dir.join("daemon.lock");
    let taken = Lock::try_take(&path).or_else(|error| match sqm_files::set_aside_irregular(&path) {
        Ok(Some(aside)) => {
            errln!("{} was no file, and is {} now", path.display(), aside.display());
            Lock::try_take(&path)
        }
        _ => Err(error),
    });
    match taken {
        Ok(Some(lock)) => Ok(Some(lock)),
        Ok(None) => Err(Failure::Failed(anyhow!(
            "another daemon is running: it holds {}",
            path.display()
        ))),
        Err(error) => {
            errln!("warning: {error}; a second daemon would not be noticed");
            Ok(None)
        }
    }
}

/// Takes all bytes out of a socket that only wakes.
fn empty(mut socket: &UnixStream) {
    let mut bytes = [0; 64];
    while std::io::Read::read(&mut socket, &mut bytes).is_ok_and(|n| n == bytes.len()) {}
}

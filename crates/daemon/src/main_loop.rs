//! The main loop: waits for kernel events, signals and commands of the API, and does what they make due.

mod awaited_file;
mod commands;
mod configuration;
mod events;
mod pauses;
mod publish;
mod rates;
mod shutdown;
mod signals;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use anyhow::{Context, anyhow};
use sqm_api::SOCKET;
use sqm_api::journal::LogKind;
use sqm_api::status::ConfigurationStatus;
use sqm_configuration::uci_override;
use sqm_core::units::Instant;
use sqm_files::Lock;
use sqm_kernel::capability;
use sqm_kernel::netlink::monitor::KernelMonitor;
use sqm_plan::settings::Drift;

use crate::api;
use crate::autorate::AutorateThreads;
use crate::clock::{monotonic, nanos};
use crate::reconciler::{self, Action, Event, Reconciler};
use crate::sd_notify;
use crate::shape::Shaper;
use crate::shared::{Command, Shared};
use crate::status::Published;
use crate::unconfirmed_change::{self, PendingFileRollback, UnconfirmedChange};
use crate::waker::{WakeUps, Waker};
use awaited_file::AwaitedFile;
use pauses::Pauses;
use signals::{Signals, Stop};
use sqm_process::failure::Failure;
use sqm_process::logging::Level;
use tracing::warn;

/// The daemon's command line.
pub struct Options {
    /// The configuration.
    pub config: PathBuf,
    /// The state folder: records, locks and, unless named otherwise, the socket.
    pub state_dir: PathBuf,
    /// The API's socket; `None`: [`SOCKET`] in the state folder.
    pub socket: Option<PathBuf>,
    /// The loopback address at which metrics are served.
    pub metrics: Option<SocketAddr>,
    /// How the daemon reacts to queues that another program changed.
    pub drift: Drift,
    /// The ID of a user besides root who may change something through the API.
    pub admin: Option<u32>,
    /// The fleet that the router belongs to.
    #[cfg(feature = "fleet")]
    pub fleet: Option<crate::FleetOptions>,
}

/// Keeps the configuration in force until a signal ends it.
pub fn run(options: Options) -> Result<ExitCode, Failure> {
    capability::require_privileges("sqm daemon")?;
    if let Err(error) = std::fs::create_dir_all(&options.state_dir) {
        let folder = options.state_dir.display();
        warn!("cannot create the state folder {folder}: {error}; shaping continues without it");
    }
    api::set_admin(options.admin);
    let _lock = lock_instance(&options.state_dir)?;
    let signals = Signals::catch()?;
    // Opened before the first look at the kernel, so that no change in between is missed.
    let mut monitor = KernelMonitor::open().context("cannot listen to the kernel's events")?;
    let mut recovered = unconfirmed_change::recover(&uci_override::of(&options.config), monotonic());
    let config = options.config.clone();
    let mut shaper = Shaper::new(options.config, options.state_dir.clone(), options.drift)
        .context("cannot open a netlink socket")?;
    // Events about the daemon's own changes are not needed: each check reads back what it has changed.
    monitor.ignore(shaper.socket());
    let previous = recovered
        .pending
        .as_ref()
        .map(|pending| pending.change.saved.text().to_owned());
    let is_missing = previous.is_none() && shaper.is_file_missing();
    let awaited = AwaitedFile::of(shaper.file(), monotonic());
    let candidate = match previous {
        Some(text) => shaper.candidate(text),
        // The API and the page can write the first configuration.
        None if is_missing => shaper.candidate(Vec::new()),
        None => shaper.read_candidate(),
    };
    // A service manager such as procd would start a daemon that ends over and over again.
    let (candidate, errors) = match candidate {
        Ok(candidate) => (candidate, Vec::new()),
        Err(error) => (
            shaper.candidate(Vec::new()).context("cannot read the devices")?,
            error.messages(),
        ),
    };
    let is_wrong = !errors.is_empty();
    let interfaces = shaper.install(candidate);
    if let Some(pending) = &mut recovered.pending {
        pending.change.in_force = shaper.configuration.clone();
    }
    let mut reconciler = Reconciler::default();
    let now = monotonic();
    reconciler.handle(Event::Configured(interfaces), now);
    let (waker, wake_ups) = Waker::pair().context("cannot make a pair of sockets")?;
    let first = Published::new(reconciler.sections(), ConfigurationStatus::default(), false);
    let (shared, commands) = Shared::new(first, options.state_dir.clone(), config, waker);
    let mut daemon = Daemon {
        monitor,
        signals,
        wake_ups,
        commands,
        reconciler,
        shaper,
        shared: Arc::new(shared),
        unconfirmed: None,
        pending_rollback: recovered.pending,
        pauses: Pauses::default(),
        unserved: None,
        errors,
        awaited_file: (is_missing || is_wrong).then_some(awaited),
        notified: String::new(),
        autorate: AutorateThreads::default(),
        rate_error: None,
        state_error: None,
    };
    for message in recovered.messages {
        daemon.log(Level::WARN, LogKind::Configuration, None, message);
    }
    daemon.log_warnings();
    for error in daemon.errors.clone() {
        daemon.log(Level::ERROR, LogKind::Configuration, None, error);
    }
    if is_wrong {
        let text = "no interface can be shaped by this configuration: the daemon leaves the queues as they are, and reads the file again when it changes";
        daemon.log(Level::ERROR, LogKind::Configuration, None, text.to_owned());
    }
    if is_missing {
        let text = format!(
            "there is no configuration {} yet: the daemon waits for it; 'sqm setup' or the page of 'sqm web' makes one",
            daemon.shaper.file().display()
        );
        daemon.log(Level::INFO, LogKind::Configuration, None, text);
    }
    daemon.read_devices()?;
    daemon.reconcile();
    let is_chosen = options.socket.is_some() || options.metrics.is_some();
    let socket = options.socket.unwrap_or_else(|| options.state_dir.join(SOCKET));
    match daemon.serve(&socket, options.metrics) {
        // The lines are shaped without the API, too, unless the user asked for it.
        Err(error) if !is_chosen => {
            daemon.log(
                Level::WARN,
                LogKind::State,
                None,
                format!("{error:#}; shaping continues without it"),
            );
            daemon.unserved = Some((socket.clone(), monotonic() + reconciler::CHECK_INTERVAL));
        }
        served => served?,
    }
    daemon.run_autorate();
    #[cfg(feature = "fleet")]
    if let Some(fleet) = options.fleet
        && let Err(error) = crate::fleet::start(fleet, Arc::clone(&daemon.shared))
    {
        let text = format!("{error:#}; the router shapes without its fleet");
        daemon.log(Level::ERROR, LogKind::Fleet, None, text);
    }
    sd_notify::notify("READY=1");
    let stop = daemon.run();
    sd_notify::notify("STOPPING=1");
    let _ = std::fs::remove_file(&socket);
    daemon.shut_down(stop?)
}

/// The daemon's state. Only the main loop's thread has it.
struct Daemon {
    monitor: KernelMonitor,
    signals: Signals,
    wake_ups: WakeUps,
    commands: Receiver<Command>,
    reconciler: Reconciler,
    shaper: Shaper,
    shared: Arc<Shared>,
    /// The change that waits for its confirmation.
    unconfirmed: Option<UnconfirmedChange>,
    /// A change that was rolled back in the kernel, but not in the file yet.
    pending_rollback: Option<PendingFileRollback>,
    /// The pauses that clients of the API hold.
    pauses: Pauses,
    /// The socket of an API that could not be served, and when that is tried again.
    unserved: Option<(PathBuf, Instant)>,
    /// Why the configuration file's present text is not in force.
    errors: Vec<String>,
    /// The configuration file, as long as there has been none that can be used.
    awaited_file: Option<AwaitedFile>,
    /// The status line that the service manager received last.
    notified: String,
    autorate: AutorateThreads,
    /// The last error of writing the rates that autorate wants.
    rate_error: Option<String>,
    /// The last error of writing the state folder.
    state_error: Option<String>,
}

impl Daemon {
    /// Runs until a signal ends it.
    fn run(&mut self) -> Result<Stop, Failure> {
        let watchdog = sd_notify::watchdog().map(|limit| limit / 2);
        let mut fed = monotonic();
        loop {
            let now = monotonic();
            // The file is not looked at while a rollback that restores it is pending.
            let awaited = self
                .awaited_file
                .as_ref()
                .filter(|_| self.pending_rollback.is_none());
            let dues = [
                self.reconciler.due(),
                watchdog.map(|half| fed + nanos(half)),
                self.unconfirmed.as_ref().map(|change| change.until),
                self.pending_rollback.as_ref().map(|pending| pending.due),
                self.unserved.as_ref().map(|(_, due)| *due),
                awaited.map(|file| file.due),
                self.autorate.due(),
            ];
            let waits = dues.into_iter().flatten().map(|due| due.since(now));
            self.wait(waits.min())?;
            if let Some(stop) = self.signals.stop() {
                return Ok(stop);
            }
            if self.signals.reload.swap(false, Ordering::Relaxed) {
                // systemd requires both lines in one message.
                let micros = monotonic().0 / 1000;
                sd_notify::notify(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
                // A file with errors changes nothing, and the errors are logged.
                let _ = self.reload();
                self.reconcile();
                sd_notify::notify("READY=1");
            }
            self.read_events()?;
            self.run_commands();
            self.run_autorate();
            // Read the events of the commands' own changes now: they need no further round.
            self.read_events()?;
            self.expire_unconfirmed();
            self.look_for_file();
            self.retry_serving();
            self.reconcile();
            if watchdog.is_some_and(|half| monotonic().since(fed) >= nanos(half)) {
                fed = monotonic();
                sd_notify::notify("WATCHDOG=1");
            }
        }
    }

    fn serve(&self, socket: &Path, metrics: Option<SocketAddr>) -> anyhow::Result<()> {
        let listeners = api::Listeners::bind(socket, metrics)?;
        listeners.serve(&self.shared).context("cannot start the API")
    }

    /// Tries again to serve the API if its socket could not be made at the start.
    fn retry_serving(&mut self) {
        let Some((socket, due)) = self.unserved.take() else {
            return;
        };
        let now = monotonic();
        if due > now || self.serve(&socket, None).is_err() {
            self.unserved = Some((socket, due.max(now + reconciler::CHECK_INTERVAL)));
            return;
        }
        self.log(
            Level::INFO,
            LogKind::State,
            None,
            format!("the API is served on {}", socket.display()),
        );
    }

    /// Carries out all actions of the reconciler that are due, and publishes the status. Stops early if a signal ends the
    /// daemon.
    fn reconcile(&mut self) {
        while self.signals.stop().is_none() {
            let Some(action) = self.reconciler.next(monotonic()) else {
                break;
            };
            match action {
                Action::Check {
                    interface,
                    shaped,
                    request,
                    leave_rates,
                } => {
                    let outcome = self.shaper.check(&interface, shaped, request, leave_rates);
                    if let Some(rates) = self.shaper.take_other_rates() {
                        let event = Event::OtherRatesFound(interface.clone(), rates);
                        self.reconciler.handle(event, monotonic());
                    }
                    for note in self.shaper.take_notes() {
                        self.log(Level::INFO, LogKind::State, Some(&interface), note);
                    }
                    self.log_change(&interface, &outcome);
                    self.reconciler
                        .handle(Event::Checked(interface.clone(), outcome), monotonic());
                    if let Some(interfaces) = self.shaper.take_adopted() {
                        self.errors.clear();
                        self.log_warnings();
                        self.reconciler.handle(Event::Adopted(interfaces), monotonic());
                        let _ = self.read_devices();
                    }
                    self.log_state(&interface);
                }
                Action::Release(interface) => self.release(interface),
            }
        }
        self.drop_ended_pauses();
        self.publish();
    }

    fn release(&mut self, interface: String) {
        let text = match self.shaper.release(&interface) {
            Ok(None) => {
                self.reconciler.handle(Event::NotReleased(interface), monotonic());
                return;
            }
            Ok(Some(notes)) if notes.is_empty() => {
                "no longer configured: the previous queues are restored".to_owned()
            }
            Ok(Some(notes)) => format!("no longer configured: {}", notes.join("; ")),
            Err(error) => format!("no longer configured, and could not be stopped: {error}"),
        };
        self.log(Level::INFO, LogKind::Released, Some(&interface), text);
    }
}

/// Locks the state folder for this daemon, because a second one would undo its changes. `None` if the folder cannot be locked.
fn lock_instance(state_dir: &Path) -> Result<Option<Lock>, Failure> {
    let path = state_dir.join("daemon.lock");
    let taken = Lock::try_take(&path).or_else(|error| match sqm_files::set_aside_irregular(&path) {
        Ok(Some(aside)) => {
            warn!(
                "{} was not a regular file and has been renamed to {}",
                path.display(),
                aside.display()
            );
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
            warn!("{error}; a second daemon would not be noticed");
            Ok(None)
        }
    }
}

//! Where the keeper and the API meet.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::oneshot;

use super::autorate::Board;
use super::journal::Journal;
use super::search::Search;
use super::status::{Interface, Status};
use crate::clock::monotonic;

/// What the API asks of the keeper.
pub(super) enum Command {
    /// Read the configuration anew and bring it into force; or shape one interface as was read before.
    Apply {
        interface: Option<String>,
        reply: oneshot::Sender<Result<(), Vec<String>>>,
    },
    /// The plans in force, as JSON.
    Plan {
        reply: oneshot::Sender<Result<String, Vec<String>>>,
    },
    /// The configuration file as it is.
    Read {
        reply: oneshot::Sender<anyhow::Result<File>>,
    },
    /// Write the configuration, which was `revision` when it was read, and bring it into force; put all back unless it is
    /// confirmed in time, if there is a time.
    Configure {
        text: String,
        revision: String,
        confirm: Duration,
        reply: oneshot::Sender<Result<Configured, Refused>>,
    },
    /// The change that waits may stay.
    Confirm {
        reply: oneshot::Sender<Result<Configured, Refused>>,
    },
    /// Put back what was before the change that waits.
    Revert {
        reply: oneshot::Sender<Result<Configured, Refused>>,
    },
}

/// The configuration file.
#[derive(Clone, Debug, Serialize)]
pub(super) struct File {
    pub(super) file: String,
    pub(super) text: String,
    pub(super) revision: String,
    pub(super) unconfirmed: Option<Unconfirmed>,
}

/// A change that waits.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Unconfirmed {
    pub(super) revision: String,
    pub(super) seconds_left: f64,
}

/// How things are after a change of the configuration.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Configured {
    pub(super) revision: String,
    pub(super) unconfirmed: Option<Unconfirmed>,
    pub(super) interfaces: Vec<Interface>,
}

/// Why the configuration was not changed; everything is as it was.
#[derive(Clone, Debug)]
pub(super) enum Refused {
    /// Somebody else wrote it; its revision now.
    Conflict(String),
    /// Another change waits for its confirmation.
    Unconfirmed,
    /// No change waits.
    NothingWaits,
    /// It has errors.
    Wrong(Vec<String>),
    /// It could not be brought about.
    Failed(Vec<String>),
}

impl Refused {
    pub(super) fn of(error: anyhow::Error) -> Self {
        Self::Failed(vec![format!("{error:#}")])
    }
}

/// What both hold.
pub(super) struct Shared {
    status: Mutex<Status>,
    /// Where the records are.
    pub(super) state_dir: PathBuf,
    pub(super) config: PathBuf,
    pub(super) journal: Journal,
    pub(super) autorate: Board,
    /// The search for rates, running or the last one.
    pub(super) search: Mutex<Search>,
    /// Told when it is no longer running.
    pub(super) search_ended: Condvar,
    commands: Mutex<Sender<Command>>,
    /// A byte here wakes the keeper.
    wake: UnixStream,
}

impl Shared {
    /// Also the commands that arrive, of which a byte on `wake` tells.
    pub(super) fn new(
        status: Status,
        state_dir: PathBuf,
        config: PathBuf,
        wake: UnixStream,
    ) -> (Self, Receiver<Command>) {
        let (sender, commands) = channel();
        let shared = Self {
            status: Mutex::new(status),
            state_dir,
            config,
            journal: Journal::default(),
            autorate: Board::default(),
            search: Mutex::default(),
            search_ended: Condvar::new(),
            commands: Mutex::new(sender),
            wake,
        };
        (shared, commands)
    }

    /// How things are; ages are of this moment.
    pub(super) fn status(&self) -> Status {
        let status = self.status.lock().expect("no holder of this lock panics").clone();
        status.at(monotonic())
    }

    pub(super) fn publish(&self, status: Status) {
        *self.status.lock().expect("no holder of this lock panics") = status;
    }

    pub(super) fn command(&self, command: Command) {
        let sender = self.commands.lock().expect("no holder of this lock panics");
        // A keeper that has ended answers nobody; one that is awake needs no waking.
        let _ = sender.send(command);
        self.wake();
    }

    /// Has the keeper look around.
    pub(super) fn wake(&self) {
        let _ = (&self.wake).write(&[0]);
    }
}

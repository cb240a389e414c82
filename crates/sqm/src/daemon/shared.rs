//! Where the keeper and the API meet.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use tokio::sync::oneshot;

use super::autorate::Board;
use super::journal::Journal;
use super::status::Status;

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
}

/// What both hold.
pub(super) struct Shared {
    status: Mutex<Status>,
    /// Where the records are.
    pub(super) state_dir: PathBuf,
    pub(super) journal: Journal,
    pub(super) autorate: Board,
    commands: Mutex<Sender<Command>>,
    /// A byte here wakes the keeper.
    wake: UnixStream,
}

impl Shared {
    /// Also the commands that arrive, of which a byte on `wake` tells.
    pub(super) fn new(status: Status, state_dir: PathBuf, wake: UnixStream) -> (Self, Receiver<Command>) {
        let (sender, commands) = channel();
        let shared = Self {
            status: Mutex::new(status),
            state_dir,
            journal: Journal::default(),
            autorate: Board::default(),
            commands: Mutex::new(sender),
            wake,
        };
        (shared, commands)
    }

    pub(super) fn status(&self) -> Status {
        self.status.lock().expect("no holder of this lock panics").clone()
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

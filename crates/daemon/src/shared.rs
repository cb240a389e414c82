//! The state that the main loop and the API share: the published status, and commands from the API to the main loop.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use sqm_api::configuration::{ConfigurationFile, Configured};
use sqm_api::status::Status;
use tokio::sync::{mpsc, oneshot};

use super::autorate::{self, RateMailbox};
use super::journal::Journal;
use super::status::Published;
use super::tune_job::TuneJob;
use super::waker::Waker;
use crate::clock::monotonic;

/// A command from the API to the main loop. The main loop sends the result to `reply`.
pub(super) enum Command {
    /// Reads the configuration again and applies it; or applies one interface of the configuration that was read last.
    Apply {
        interface: Option<String>,
        reply: oneshot::Sender<Result<(), Vec<String>>>,
    },
    /// Removes the shaping of an interface until the pause is dropped, and for at most this long.
    Pause {
        interface: String,
        longest: Duration,
        reply: oneshot::Sender<Result<Pause, Vec<String>>>,
    },
    /// The client of this pause has gone.
    EndPause(PauseId),
    /// Returns the plans in force, as JSON.
    Plan {
        reply: oneshot::Sender<Result<String, Vec<String>>>,
    },
    /// Returns the configuration file.
    Read {
        reply: oneshot::Sender<anyhow::Result<ConfigurationFile>>,
    },
    /// Writes the configuration, if its file still has `revision`, and applies it. The change is rolled back unless it is
    /// confirmed within `confirm`; zero needs no confirmation.
    Configure {
        text: String,
        revision: String,
        confirm: Duration,
        reply: oneshot::Sender<Result<Configured, Refused>>,
    },
    /// Makes the unconfirmed change permanent.
    Confirm {
        reply: oneshot::Sender<Result<Configured, Refused>>,
    },
    /// Rolls the unconfirmed change back.
    Revert {
        reply: oneshot::Sender<Result<Configured, Refused>>,
    },
}

/// The number of a pause since the daemon started.
pub(super) type PauseId = u64;

/// A pause as its client holds it.
pub(super) struct Pause {
    /// Events for the client. The stream ends when the pause is over.
    pub(super) events: mpsc::Receiver<Bytes>,
    /// The sender of these events, while the pause lasts.
    pub(super) sender: mpsc::WeakSender<Bytes>,
    pub(super) guard: PauseGuard,
}

/// Ends a pause when it is dropped, which happens when the connection of its client is closed.
pub(super) struct PauseGuard {
    pub(super) id: PauseId,
    pub(super) shared: Arc<Shared>,
}

impl Drop for PauseGuard {
    fn drop(&mut self) {
        self.shared.command(Command::EndPause(self.id));
    }
}

/// Why the configuration was not changed. File and queues are as before.
#[derive(Clone, Debug)]
pub(super) enum Refused {
    /// Another writer has changed the file. This is its revision now.
    Conflict(String),
    /// Another change waits for its confirmation.
    Unconfirmed,
    /// There is no unconfirmed change.
    NothingWaits,
    /// The new text has errors.
    Wrong(Vec<String>),
    /// The change failed.
    Failed(Vec<String>),
}

impl Refused {
    pub(super) fn failed(error: anyhow::Error) -> Self {
        Self::Failed(vec![format!("{error:#}")])
    }
}

/// The state that the main loop shares with the API's threads.
pub(super) struct Shared {
    status: Mutex<Published>,
    /// The state folder.
    pub(super) state_dir: PathBuf,
    /// The configuration file.
    pub(super) config: PathBuf,
    pub(super) journal: Arc<Journal>,
    pub(super) rates: Arc<RateMailbox>,
    pub(super) tune: Arc<TuneJob>,
    commands: Mutex<Sender<Command>>,
    waker: Waker,
}

impl Shared {
    /// Also returns the receiver of the API's commands. Each command wakes the main loop.
    pub(super) fn new(
        status: Published,
        state_dir: PathBuf,
        config: PathBuf,
        waker: Waker,
    ) -> (Self, Receiver<Command>) {
        let (sender, commands) = channel();
        let journal = Arc::<Journal>::default();
        let shared = Self {
            status: Mutex::new(status),
            tune: Arc::new(TuneJob::new(
                state_dir.clone(),
                config.clone(),
                Arc::clone(&journal),
            )),
            state_dir,
            config,
            journal,
            rates: Arc::default(),
            commands: Mutex::new(sender),
            waker,
        };
        (shared, commands)
    }

    /// The part of this state that the autorate threads need.
    pub(super) fn autorate_context(&self) -> autorate::Context {
        autorate::Context {
            state_dir: self.state_dir.clone(),
            journal: Arc::clone(&self.journal),
            rates: Arc::clone(&self.rates),
            waker: self.waker.clone(),
        }
    }

    /// The status that was published last, with times as of now.
    pub(super) fn status(&self) -> Status {
        let status = self.status.lock().expect("no holder of this lock panics");
        status.at(monotonic())
    }

    pub(super) fn publish(&self, status: Published) {
        *self.status.lock().expect("no holder of this lock panics") = status;
    }

    /// Sends a command to the main loop.
    pub(super) fn command(&self, command: Command) {
        let sender = self.commands.lock().expect("no holder of this lock panics");
        // If the main loop has ended, the caller waits until its own timeout.
        let _ = sender.send(command);
        self.waker.wake();
    }
}

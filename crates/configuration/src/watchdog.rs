//! The watchdog process: restores the previous shaping where a program itself cannot, because it was killed.
//!
//! Two commands change queues and may have to roll back later: `sqm tune`, and `sqm start --confirm`. Each starts this process and sends
//! it the rollback data over a pipe. The pipe closes when the command ends, for whatever reason. Unless the command has sent `done` by
//! then, the watchdog rolls back.
//!
//! The watchdog holds a lock together with the command. When the command is killed, the lock stays held without a gap until the previous
//! shaping has been restored: the daemon and other commands wait, or leave the interface alone.

use std::io::{self, BufRead, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, anyhow};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::state::Store;
use sqm_kernel::transaction::RollbackState;
use sqm_process::child::PROGRAM;
use sqm_process::failure::Failure;

use crate::commit_confirm;

/// The hidden command that runs [`watch`].
pub const COMMAND: &str = "watchdog";
/// The line that a command sends when nothing is to be rolled back.
const DONE: &str = "done";

/// The lock that the watchdog and the command that started it hold together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The lock of the state folder: nobody else changes queues.
    State,
    /// The lock of an unconfirmed change, which another process may confirm.
    UnconfirmedChange,
}

/// The watchdog process, as the command that started it holds it.
pub struct Watchdog {
    process: Child,
    pipe: ChildStdin,
}

impl Held {
    const BOTH: [Self; 2] = [Self::State, Self::UnconfirmedChange];

    const fn word(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::UnconfirmedChange => "unconfirmed-change",
        }
    }

    /// Reads the word of the command line.
    pub fn parse(word: &str) -> Result<Self, String> {
        let held = Self::BOTH.into_iter().find(|held| held.word() == word);
        held.ok_or_else(|| format!("'{word}' is no lock of a watchdog"))
    }
}

impl Watchdog {
    /// Starts the process and shares a lock with it: that of `held`, if there is one.
    pub fn start(state_dir: &Path, held: Held, lock: Option<OwnedFd>) -> anyhow::Result<Self> {
        let mut process = Command::new(PROGRAM)
            .args([COMMAND, "--held", held.word(), "--state-dir"])
            .arg(state_dir)
            .stdin(Stdio::piped())
            // The watchdog inherits the lock's file descriptor as its standard output and prints nothing there.
            .stdout(lock.map_or_else(Stdio::null, Stdio::from))
            // In a process group of its own it does not receive the signals of the command's terminal.
            .process_group(0)
            .spawn()
            .context("cannot start the watchdog process that restores the shaping if this one is killed")?;
        let pipe = process.stdin.take().expect("standard input is piped");
        Ok(Self { process, pipe })
    }

    /// Sends rollback data to the process. What is sent last is rolled back first.
    pub fn send(&mut self, rollback: &RollbackState) -> io::Result<()> {
        let line = serde_json::to_string(rollback)?;
        writeln!(self.pipe, "{line}")
    }

    /// Ends the process without a rollback.
    pub fn dismiss(mut self) {
        // The write fails if the watchdog has been killed. Then it cannot roll back either.
        let _ = writeln!(self.pipe, "{DONE}");
        drop(self.pipe);
        let _ = self.process.wait();
    }
}

/// Runs as the watchdog process: waits for the end of standard input, and rolls back unless `done` was sent.
///
/// # Errors
///
/// Always an error if it had to roll back, so that the exit code tells it.
pub fn watch(state_dir: &Path, held: Held) -> Result<ExitCode, Failure> {
    // These signals often end a command and all its children at once. The watchdog survives them to roll back.
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        let ignored = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal, ignored).context("cannot listen for signals")?;
    }
    let mut rollbacks: Vec<RollbackState> = Vec::new();
    for line in io::stdin().lock().lines() {
        let line = line.context("cannot read from the command that started this process")?;
        if line == DONE {
            return Ok(ExitCode::SUCCESS);
        }
        rollbacks
            .push(serde_json::from_slice(line.as_bytes()).context("what was sent is no rollback state")?);
    }
    if rollbacks.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let store = match held {
        Held::State => {
            let lock = io::stdout().as_fd().try_clone_to_owned();
            Store::with_lock(state_dir, lock.context("cannot take over the lock of the state")?)
        }
        Held::UnconfirmedChange => {
            let store = Store::open(state_dir)?;
            if !commit_confirm::begin_rollback(state_dir)? {
                // It was confirmed just before its command was killed.
                return Ok(ExitCode::SUCCESS);
            }
            store
        }
    };
    let mut socket = Socket::open().context("cannot open a netlink socket")?;
    for rollback in rollbacks.iter().rev() {
        rollback.roll_back(&mut socket, &store)?;
    }
    if held == Held::UnconfirmedChange {
        commit_confirm::end_rollback(state_dir)?;
    }
    Err(Failure::Failed(anyhow!(
        "the command ended before it was done; the previous shaping has been restored"
    )))
}

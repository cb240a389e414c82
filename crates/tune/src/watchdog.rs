//! The watchdog process: restores the previous shaping where `sqm tune` itself cannot, because it was killed or its terminal closed.
//!
//! Before the first change tune starts this process and sends it the rollback data over a pipe. The pipe closes when tune ends, for
//! whatever reason. Unless tune has sent `done` by then, the watchdog rolls back.
//!
//! The watchdog holds tune's lock of the state together with tune. When tune is killed, the lock stays held without a gap: the daemon and
//! `sqm stop` wait until the previous shaping has been restored.

use std::io::{self, BufRead, Write};
use std::os::fd::AsFd;
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

/// The line that tune sends when nothing is to be rolled back.
const DONE: &str = "done";

/// The watchdog process, as tune holds it.
pub(crate) struct Watchdog {
    process: Child,
    pipe: ChildStdin,
}

impl Watchdog {
    /// Starts the process and shares the lock of the state with it.
    pub(crate) fn start(state_dir: &Path, store: &Store) -> anyhow::Result<Self> {
        let lock = store.share_lock().context("cannot share the lock of the state")?;
        let mut process = Command::new(PROGRAM)
            .args(["tune-watchdog", "--state-dir"])
            .arg(state_dir)
            .stdin(Stdio::piped())
            // The watchdog inherits the lock's file descriptor as its standard output and prints nothing there.
            .stdout(lock.map_or_else(Stdio::null, Stdio::from))
            // In a process group of its own it does not receive the signals of tune's terminal.
            .process_group(0)
            .spawn()
            .context("cannot start the watchdog process that restores the shaping if this one is killed")?;
        let pipe = process.stdin.take().expect("standard input is piped");
        Ok(Self { process, pipe })
    }

    /// Sends the rollback data to the process.
    pub(crate) fn send(&mut self, rollback: &RollbackState) -> io::Result<()> {
        let line = serde_json::to_string(rollback)?;
        writeln!(self.pipe, "{line}")
    }

    /// Ends the process without a rollback.
    pub(crate) fn dismiss(mut self) {
        // The write fails if the watchdog has been killed. Then it cannot roll back either.
        let _ = writeln!(self.pipe, "{DONE}");
        drop(self.pipe);
        let _ = self.process.wait();
    }
}

/// Runs as the watchdog process: waits for the end of standard input, and rolls back unless tune has sent `done`.
///
/// # Errors
///
/// Always an error if it had to roll back, so that the exit code tells it.
pub fn watch(state_dir: &Path) -> Result<ExitCode, Failure> {
    // These signals often end tune and all its children at once. The watchdog survives them to roll back.
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        let ignored = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal, ignored).context("cannot listen for signals")?;
    }
    let mut rollback = None;
    for line in io::stdin().lock().lines() {
        let line = line.context("cannot read from sqm tune")?;
        if line == DONE {
            return Ok(ExitCode::SUCCESS);
        }
        rollback = Some(
            serde_json::from_str::<RollbackState>(&line).context("sqm tune has sent no rollback state")?,
        );
    }
    let Some(rollback) = rollback else {
        return Ok(ExitCode::SUCCESS);
    };
    let lock = io::stdout().as_fd().try_clone_to_owned();
    let store = Store::with_lock(state_dir, lock.context("cannot take over the lock of the state")?);
    let mut socket = Socket::open().context("cannot open a netlink socket")?;
    rollback.roll_back(&mut socket, &store)?;
    Err(Failure::Failed(anyhow!(
        "tune ended before it was done; the previous shaping has been restored"
    )))
}

//! Puts back the shaping from before where `sqm tune` itself cannot: killed, or its terminal gone.
//!
//! A process of its own hears the way back before anything is changed, and waits for the end of the pipe on which it heard it. That
//! end comes with tune's, however it ends. Only if tune has said that everything is done, nothing is left to do.
//!
//! The guard holds tune's lock of the state together with tune. When tune is killed the lock passes to the guard without a gap:
//! the daemon, or `sqm stop`, cannot come in between, and waits until the shaping from before is back.

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

/// The last word of a tune that ended well.
const DONE: &str = "done";

/// The guard, as tune sees it.
pub(crate) struct Guard {
    process: Child,
    pipe: ChildStdin,
}

impl Guard {
    /// Starts it, and shares the lock of the state with it.
    pub(crate) fn start(state_dir: &Path, store: &Store) -> anyhow::Result<Self> {
        let lock = store.share_lock().context("cannot share the lock of the state")?;
        let mut process = Command::new(PROGRAM)
            .args(["tune-watchdog", "--state-dir"])
            .arg(state_dir)
            .stdin(Stdio::piped())
            // It prints nothing there.
            .stdout(lock.map_or_else(Stdio::null, Stdio::from))
            // What ends tune by its terminal does not end its guard.
            .process_group(0)
            .spawn()
            .context("cannot start the process that puts the shaping back if this one is killed")?;
        let pipe = process.stdin.take().expect("standard input is piped");
        Ok(Self { process, pipe })
    }

    /// Sends it what a rollback needs.
    pub(crate) fn tell(&mut self, rollback: &RollbackState) -> io::Result<()> {
        let line = serde_json::to_string(rollback)?;
        writeln!(self.pipe, "{line}")
    }

    /// Everything is as it should be: it ends without doing anything.
    pub(crate) fn dismiss(mut self) {
        // One that has been killed has nothing to be told.
        let _ = writeln!(self.pipe, "{DONE}");
        drop(self.pipe);
        let _ = self.process.wait();
    }
}

/// What the guard's process does.
pub fn watch(state_dir: &Path) -> Result<ExitCode, Failure> {
    // Whoever ends all of us at once shall find the shaping as it was.
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        let ignored = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal, ignored).context("cannot listen for signals")?;
    }
    let mut rollback = None;
    for line in io::stdin().lock().lines() {
        let line = line.context("cannot hear sqm tune")?;
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
        "tune was ended in the midst of it; the shaping from before is back"
    )))
}

//! The signals that the daemon handles.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use sqm_process::failure::Failure;

/// How a signal ends the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Restore the previous queues (SIGTERM, SIGINT).
    Restore,
    /// Leave the queues in force for the next daemon (SIGQUIT).
    Leave,
}

/// A flag for each kind of signal.
pub(super) struct Signals {
    /// Readable after each signal.
    pub(super) pipe: UnixStream,
    /// SIGHUP: read the configuration again.
    pub(super) reload: Arc<AtomicBool>,
    restore: Arc<AtomicBool>,
    leave: Arc<AtomicBool>,
}

impl Signals {
    /// Registers the handlers.
    pub(super) fn catch() -> Result<Self, Failure> {
        let (pipe, end) = UnixStream::pair().context("cannot make a pair of sockets")?;
        pipe.set_nonblocking(true)?;
        let signals = Self {
            pipe,
            reload: Arc::default(),
            restore: Arc::default(),
            leave: Arc::default(),
        };
        for (signal, flag) in [
            (SIGHUP, &signals.reload),
            (SIGTERM, &signals.restore),
            (SIGINT, &signals.restore),
            (SIGQUIT, &signals.leave),
        ] {
            // Handlers run in this order: the flag must be set before the byte wakes the main loop.
            signal_hook::flag::register(signal, Arc::clone(flag))?;
            signal_hook::low_level::pipe::register(signal, end.try_clone()?)?;
        }
        Ok(signals)
    }

    /// How the daemon must end, if a signal asked for that.
    pub(super) fn stop(&self) -> Option<Stop> {
        if self.leave.load(Ordering::Relaxed) {
            return Some(Stop::Leave);
        }
        self.restore.load(Ordering::Relaxed).then_some(Stop::Restore)
    }
}

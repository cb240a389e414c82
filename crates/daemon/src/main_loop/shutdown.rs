//! The end of the daemon.

use std::process::ExitCode;
use std::time::Duration;

use sqm_core::units::Nanos;

use super::Daemon;
use super::signals::Stop;
use crate::clock::monotonic;
use crate::sd_notify;
use sqm_process::failure::Failure;
use tracing::{error, info, warn};

/// How long to wait for another program that is changing the queues; a choice.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// How often to ask the service manager for more time while interfaces are released. Each request is for ten times as long. A
/// choice.
const EXTENSION: Nanos = Nanos::from_millis(1000);

impl Daemon {
    /// Ends all threads and children. Restores the previous queues, unless they are to be left.
    pub(super) fn shut_down(mut self, stop: Stop) -> Result<ExitCode, Failure> {
        // The search rolls its changes back, which must happen before the queues are released or left to the next daemon.
        if !self.shared.tune.shut_down() {
            warn!("the search for rates (sqm tune) did not end in time");
        }
        for (interface, text) in self.autorate.stop_all() {
            info!("{interface}: {text}");
        }
        if stop == Stop::Leave {
            info!("the queues stay as they are");
            return Ok(ExitCode::SUCCESS);
        }
        let sections = self.reconciler.sections().iter();
        let names = sections.map(|section| section.interface.as_str());
        let names: Vec<String> = names
            .chain(self.reconciler.unreleased())
            .map(str::to_owned)
            .collect();
        let mut code = ExitCode::SUCCESS;
        let mut extended = monotonic();
        self.shaper
            .release_all(&names, LOCK_TIMEOUT, |interface, outcome| {
                match outcome {
                    Ok(notes) => notes.iter().for_each(|note| info!("{note}")),
                    Err(error) => {
                        error!("{interface}: could not be stopped: {error}");
                        code = ExitCode::FAILURE;
                    }
                }
                if monotonic().since(extended) >= EXTENSION {
                    extended = monotonic();
                    sd_notify::notify(&format!("EXTEND_TIMEOUT_USEC={}", EXTENSION.0 / 1000 * 10));
                }
            });
        Ok(code)
    }
}

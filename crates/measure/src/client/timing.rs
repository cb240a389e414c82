//! The timeouts of a test, and a meter of its rates.

use std::time::Duration;

/// If no probe has come back in the idle phase, the load waits this much longer for the first one. A choice: several times the
/// round trip over a geostationary satellite.
pub(super) const FIRST_PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// The client gives a server up after this long without data, probe answers and messages. A choice: longer than buffers of several
/// seconds.
pub(super) const SILENCE: Duration = Duration::from_secs(8);
/// A test takes at most this much longer than its phases, whatever the servers do: the time to connect, and the time until the results
/// are here.
pub(super) const SPARE: Duration = Duration::from_millis(9500);
/// The part of [`SPARE`] in which all connections must be established.
pub(super) const SETUP: Duration = Duration::from_secs(8);
/// The results must be here this long after the load. A choice: they may have to wait in a full modem buffer.
pub(super) const RESULTS_TIMEOUT: Duration = Duration::from_secs(9);
/// A test ends at most this long after the user has asked it to end. A choice: the user waits.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// The time between two reports of progress.
pub(super) const TICK: Duration = Duration::from_millis(250);

/// The rate since the previous call of [`note`](Self::note).
#[derive(Default)]
pub(super) struct RateMeter {
    at: Duration,
    bytes: u64,
    pub(super) mbit: f64,
}

impl RateMeter {
    /// `bytes` is the total at the time `at`.
    pub(super) fn note(&mut self, at: Duration, bytes: u64) {
        if at > self.at {
            let seconds = (at - self.at).as_secs_f64();
            self.mbit = bytes.saturating_sub(self.bytes) as f64 * 8.0 / 1e6 / seconds;
            (self.at, self.bytes) = (at, bytes);
        }
    }
}

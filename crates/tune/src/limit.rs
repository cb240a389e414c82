//! Runs the search on a thread of its own. Whatever the server does to the search, the waiting thread handles signals, watches the clock,
//! and abandons a search that does not end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};

use sqm_process::failure::Failure;

/// The longest time of a search. On any line it ends by itself before this: the last load ends 88 s after the start
/// (`joint_verification`).
const LONGEST: Duration = Duration::from_secs(96);
/// A search that is asked to stop is abandoned after this long. Our choice.
const GRACE: Duration = Duration::from_secs(1);
/// The interval at which the waiting thread checks `stop` and the clock.
const POLL: Duration = Duration::from_millis(50);

/// Runs the search until it ends; sets `stop` when it takes too long. A thread that does not end is abandoned, and ends with the process.
///
/// # Errors
///
/// The error of the search, or that it was interrupted, took too long or panicked. Its results do not count then.
pub(crate) fn run<T: Send + 'static>(
    stop: &AtomicBool,
    search: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    run_within(LONGEST, GRACE, stop, search)
}

fn run_within<T: Send + 'static>(
    longest: Duration,
    grace: Duration,
    stop: &AtomicBool,
    search: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let (sender, receiver) = channel();
    thread::Builder::new()
        .name("search".to_owned())
        // The receiver is gone if the search has been abandoned.
        .spawn(move || drop(sender.send(search())))
        .context("cannot start a thread")?;
    let begun = Instant::now();
    let mut asked: Option<Instant> = None;
    let mut is_late = false;
    let too_long = || {
        Failure::Failed(anyhow!(
            "the search took longer than {} s, which no correct server needs; the previous shaping has been restored",
            longest.as_secs()
        ))
    };
    loop {
        match receiver.recv_timeout(POLL) {
            Ok(Err(_)) if is_late => return Err(too_long()),
            Ok(found) => return found,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::Failed(anyhow!(
                    "the search failed because of a bug in this program; the previous shaping has been restored"
                )));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if asked.is_none() && begun.elapsed() >= longest {
            is_late = true;
            stop.store(true, Ordering::Release);
        }
        if stop.load(Ordering::Acquire) && asked.get_or_insert_with(Instant::now).elapsed() >= grace {
            return Err(match is_late {
                true => too_long(),
                false => Failure::Failed(anyhow!("interrupted; the previous shaping has been restored")),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(1000);

    fn reason<T>(outcome: Result<T, Failure>) -> String {
        outcome.err().expect("it has failed").to_string()
    }

    #[test]
    fn a_search_that_does_not_end_is_abandoned() {
        let endless = || -> Result<(), Failure> {
            loop {
                thread::park();
            }
        };
        let stop = AtomicBool::new(true);
        assert!(reason(run_within(LONG, SHORT, &stop, endless)).starts_with("interrupted"));
        let stop = AtomicBool::new(false);
        assert!(reason(run_within(SHORT, SHORT, &stop, endless)).contains("took longer"));
        assert!(stop.load(Ordering::Acquire), "it was asked to stop first");
    }

    #[test]
    fn the_end_of_a_search_that_stops_when_asked_is_awaited() {
        let stop = Arc::new(AtomicBool::new(false));
        let its_stop = Arc::clone(&stop);
        let obedient = move || -> Result<(), Failure> {
            while !its_stop.load(Ordering::Acquire) {
                thread::yield_now();
            }
            Err(Failure::Failed(anyhow!("interrupted")))
        };
        assert!(reason(run_within(SHORT, LONG, &stop, obedient)).contains("took longer"));
        let found = run_within(LONG, LONG, &AtomicBool::new(false), || Ok(7));
        assert!(matches!(found, Ok(7)));
    }

    #[test]
    fn a_search_that_panics_is_an_error() {
        let broken = || -> Result<(), Failure> { panic!("on purpose") };
        assert!(reason(run_within(LONG, LONG, &AtomicBool::new(false), broken)).contains("bug"));
    }
}

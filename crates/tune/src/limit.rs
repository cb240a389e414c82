//! The search on a thread of its own. Whatever the server does to the search, the thread that waits for it hears signals and
//! looks at the clock, and gives the search up if it does not end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};

use sqm_process::failure::Failure;

/// A search ends by itself before this, whatever the line is like.
const LONGEST: Duration = Duration::from_secs(96);
/// A search that is asked to end gets so long before it is given up.
const GRACE: Duration = Duration::from_secs(1);
/// How often signals are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Runs the search until it ends; sets `stop` when it takes too long. An error means that nothing of the search counts. A thread
/// that does not end is left behind, and ends with the process.
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
        // Nobody listens any more once it is given up.
        .spawn(move || drop(sender.send(search())))
        .context("cannot start a thread")?;
    let begun = Instant::now();
    let mut asked: Option<Instant> = None;
    let mut is_late = false;
    let too_long = || {
        Failure::Failed(anyhow!(
            "the search took longer than {} s, which an honest server never needs; the shaping from before is back",
            longest.as_secs()
        ))
    };
    loop {
        match receiver.recv_timeout(LOOK) {
            Ok(Err(_)) if is_late => return Err(too_long()),
            Ok(found) => return found,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::Failed(anyhow!(
                    "the search ended in a fault of this program; the shaping from before is back"
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
                false => Failure::Failed(anyhow!("interrupted; the shaping from before is back")),
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
    fn a_search_that_does_not_end_is_given_up() {
        let deaf = || -> Result<(), Failure> {
            loop {
                thread::park();
            }
        };
        let stop = AtomicBool::new(true);
        assert!(reason(run_within(LONG, SHORT, &stop, deaf)).starts_with("interrupted"));
        let stop = AtomicBool::new(false);
        assert!(reason(run_within(SHORT, SHORT, &stop, deaf)).contains("took longer"));
        assert!(stop.load(Ordering::Acquire), "it was asked to end first");
    }

    #[test]
    fn a_search_that_heeds_its_end_is_waited_for() {
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&stop);
        let polite = move || -> Result<(), Failure> {
            while !theirs.load(Ordering::Acquire) {
                thread::yield_now();
            }
            Err(Failure::Failed(anyhow!("interrupted")))
        };
        assert!(reason(run_within(SHORT, LONG, &stop, polite)).contains("took longer"));
        let found = run_within(LONG, LONG, &AtomicBool::new(false), || Ok(7));
        assert!(matches!(found, Ok(7)));
    }

    #[test]
    fn a_search_that_panics_is_an_error() {
        let broken = || -> Result<(), Failure> { panic!("on purpose") };
        assert!(reason(run_within(LONG, LONG, &AtomicBool::new(false), broken)).contains("fault"));
    }
}

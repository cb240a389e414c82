//! How long a client waits: until a deadline that nothing the other end does can move, or until the user ends the test.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use crate::{Error, socket};

/// The user's wish to end a test is looked at this often.
const SLICE: Duration = Duration::from_millis(200);

/// A deadline, and the user's switch.
#[derive(Clone, Copy)]
pub(crate) struct Deadline<'a> {
    stop: &'a AtomicBool,
    begun: Instant,
    end: Instant,
}

/// Why a wait ended without what was waited for.
#[derive(Debug)]
pub(crate) enum WaitError {
    /// The user ended the test.
    Stopped,
    /// The deadline passed, so long after the waiting began.
    TimedOut(Duration),
    /// The system or the other end failed.
    Failed(io::Error),
}

impl<'a> Deadline<'a> {
    /// From now on for so long.
    pub(crate) fn new(stop: &'a AtomicBool, length: Duration) -> Self {
        let begun = Instant::now();
        Self {
            stop,
            begun,
            end: begun + length,
        }
    }

    /// The same with an earlier end, if `length` from now is earlier.
    pub(crate) fn at_most(self, length: Duration) -> Self {
        Self {
            end: self.end.min(Instant::now() + length),
            ..self
        }
    }

    /// What is left of it.
    pub(crate) fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// An error as soon as there is no reason to wait any longer.
    pub(crate) fn check(&self) -> Result<(), WaitError> {
        if self.stop.load(Ordering::Acquire) {
            return Err(WaitError::Stopped);
        }
        if Instant::now() >= self.end {
            return Err(WaitError::TimedOut(self.end - self.begun));
        }
        Ok(())
    }

    /// A wait may last until this moment; then [`check`](Self::check) again.
    pub(crate) fn slice(&self) -> Instant {
        self.end.min(Instant::now() + SLICE)
    }

    /// Waits until a socket is as awaited.
    pub(crate) fn wait(&self, socket: impl AsFd, awaited: PollFlags) -> Result<(), WaitError> {
        loop {
            self.check()?;
            if socket::wait(&mut [PollFd::new(&socket, awaited)], self.slice())? {
                return Ok(());
            }
        }
    }

    /// What `attempt` answers; it is asked again and again with a moment until which it may wait, and answers none by then.
    pub(crate) fn until<T>(
        &self,
        mut attempt: impl FnMut(Instant) -> io::Result<Option<T>>,
    ) -> Result<T, WaitError> {
        loop {
            self.check()?;
            if let Some(found) = attempt(self.slice())? {
                return Ok(found);
            }
        }
    }

    /// Waits for a message of a thread or a task.
    pub(crate) fn receive<T>(&self, told: &Receiver<T>) -> Result<T, WaitError> {
        self.until(|moment| {
            let left = moment.saturating_duration_since(Instant::now());
            match told.recv_timeout(left.max(Duration::from_millis(1))) {
                Ok(found) => Ok(Some(found)),
                Err(RecvTimeoutError::Timeout) => Ok(None),
                Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("it ended without an answer")),
            }
        })
    }
}

impl WaitError {
    /// In the words of whoever waited; a wait that the user ended is told apart.
    pub(crate) fn or(self, told: impl FnOnce(io::Error) -> Error) -> Error {
        match self {
            Self::Stopped => Error::Interrupted { at_s: 0.0 },
            Self::TimedOut(waited) => {
                let text = format!("no answer within {:.0} s", waited.as_secs_f64());
                told(io::Error::new(io::ErrorKind::TimedOut, text))
            }
            Self::Failed(reason) => told(reason),
        }
    }
}

impl From<io::Error> for WaitError {
    fn from(reason: io::Error) -> Self {
        Self::Failed(reason)
    }
}

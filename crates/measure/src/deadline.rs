//! A client waits until a deadline that the other end cannot move, or until the user ends the test.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use crate::{Error, socket};

/// How often a wait checks whether the user has ended the test. A choice.
const SLICE: Duration = Duration::from_millis(200);

/// A deadline, and the flag with which the user ends the test.
#[derive(Clone, Copy)]
pub(crate) struct Deadline<'a> {
    stop: &'a AtomicBool,
    begun: Instant,
    end: Instant,
}

/// Why a wait failed.
#[derive(Debug)]
pub(crate) enum WaitError {
    /// The user ended the test.
    Stopped,
    /// The deadline passed. Holds the length of the wait.
    TimedOut(Duration),
    /// The system or the other end failed.
    Failed(io::Error),
}

impl<'a> Deadline<'a> {
    /// A deadline `length` from now.
    pub(crate) fn new(stop: &'a AtomicBool, length: Duration) -> Self {
        let begun = Instant::now();
        Self {
            stop,
            begun,
            end: begun + length,
        }
    }

    /// A deadline `length` from now, if that is earlier.
    pub(crate) fn at_most(self, length: Duration) -> Self {
        Self {
            end: self.end.min(Instant::now() + length),
            ..self
        }
    }

    /// Time until the deadline.
    pub(crate) fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Fails if the deadline has passed or the user has ended the test.
    pub(crate) fn check(&self) -> Result<(), WaitError> {
        if self.stop.load(Ordering::Acquire) {
            return Err(WaitError::Stopped);
        }
        if Instant::now() >= self.end {
            return Err(WaitError::TimedOut(self.end - self.begun));
        }
        Ok(())
    }

    /// A wait may last until this moment, and must then call [`check`](Self::check) again.
    pub(crate) fn slice(&self) -> Instant {
        self.end.min(Instant::now() + SLICE)
    }

    /// Waits until a socket is ready.
    pub(crate) fn wait(&self, socket: impl AsFd, awaited: PollFlags) -> Result<(), WaitError> {
        loop {
            self.check()?;
            if socket::wait(&mut [PollFd::new(&socket, awaited)], self.slice())? {
                return Ok(());
            }
        }
    }

    /// Calls `attempt` until it returns a value. Its argument is the moment until which it may wait; it then returns `None`.
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

    /// Waits for a message from a thread or a task.
    pub(crate) fn receive<T>(&self, receiver: &Receiver<T>) -> Result<T, WaitError> {
        self.until(|moment| {
            let left = moment.saturating_duration_since(Instant::now());
            match receiver.recv_timeout(left.max(Duration::from_millis(1))) {
                Ok(found) => Ok(Some(found)),
                Err(RecvTimeoutError::Timeout) => Ok(None),
                Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("it ended without an answer")),
            }
        })
    }
}

impl WaitError {
    /// The error for the user: `failed` turns a failure into one, and a wait that the user ended becomes [`Error::Interrupted`].
    pub(crate) fn or(self, failed: impl FnOnce(io::Error) -> Error) -> Error {
        match self {
            Self::Stopped => Error::Interrupted { at_s: 0.0 },
            Self::TimedOut(waited) => {
                let text = format!("no answer within {:.0} s", waited.as_secs_f64());
                failed(io::Error::new(io::ErrorKind::TimedOut, text))
            }
            Self::Failed(reason) => failed(reason),
        }
    }
}

impl From<io::Error> for WaitError {
    fn from(reason: io::Error) -> Self {
        Self::Failed(reason)
    }
}

//! Wakes the main loop from another thread.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Wakes the main loop. Clones wake the same loop.
#[derive(Clone, Debug)]
pub(crate) struct Waker(Arc<UnixStream>);

/// The main loop's end: its file descriptor is readable after a wake-up.
pub(crate) struct WakeUps(UnixStream);

impl Waker {
    /// A waker and the end that the main loop polls.
    pub(crate) fn pair() -> io::Result<(Self, WakeUps)> {
        let (waker, wake_ups) = UnixStream::pair()?;
        waker.set_nonblocking(true)?;
        wake_ups.set_nonblocking(true)?;
        Ok((Self(Arc::new(waker)), WakeUps(wake_ups)))
    }

    pub(crate) fn wake(&self) {
        // If the socket is full, the loop has many wake-ups to read already.
        let _ = (&*self.0).write(&[0]);
    }
}

impl WakeUps {
    /// Discards all wake-ups so far.
    pub(crate) fn clear(&self) {
        clear(&self.0);
    }
}

impl AsFd for WakeUps {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Discards all bytes of a non-blocking socket.
pub(crate) fn clear(mut socket: &UnixStream) {
    let mut bytes = [0; 64];
    while socket.read(&mut bytes).is_ok_and(|n| n == bytes.len()) {}
}

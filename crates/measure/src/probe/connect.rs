//! TCP handshakes as probes: the first thing that a browser waits for.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use socket2::{Domain, Socket, Type};

use super::socket::{Answer, ProbeSocket, Received};
use crate::socket;

/// Largest number of handshakes in progress. The oldest is given up for a new one. A choice.
const MAX_PENDING: usize = 64;

/// A series of connections, each of which is closed as soon as it is established.
pub(crate) struct Connect {
    server: SocketAddr,
    dscp: u8,
    pending: VecDeque<(u32, Socket)>,
}

impl Connect {
    pub(crate) fn new(server: SocketAddr, dscp: u8) -> Self {
        Self {
            server,
            dscp,
            pending: VecDeque::new(),
        }
    }
}

impl ProbeSocket for Connect {
    fn send(&mut self, sequence: u32) -> io::Result<()> {
        let socket = Socket::new(Domain::for_address(self.server), Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket::set_dscp(&socket, self.server, self.dscp)?;
        socket::reset_on_close(&socket)?;
        match socket.connect(&self.server.into()) {
            Err(e) if e.raw_os_error() != Some(libc::EINPROGRESS) => return Err(e),
            _ => {}
        }
        if self.pending.len() == MAX_PENDING {
            self.pending.pop_front();
        }
        self.pending.push_back((sequence, socket));
        Ok(())
    }

    fn receive(&mut self, deadline: Instant) -> Received {
        let mut polled: Vec<_> = self
            .pending
            .iter()
            .map(|(_, socket)| PollFd::new(socket, PollFlags::OUT))
            .collect();
        if !socket::wait(&mut polled, deadline).unwrap_or(false) {
            return Received::TimedOut;
        }
        let at = Instant::now();
        let Some(ready) = polled.iter().position(|fd| !fd.revents().is_empty()) else {
            return Received::Ignored;
        };
        let Some((sequence, socket)) = self.pending.remove(ready) else {
            return Received::Ignored;
        };
        // A refused connection does not count as an answer.
        match socket.take_error() {
            Ok(None) => Received::Answer(Answer {
                sequence,
                at,
                tos: None,
                echo: None,
            }),
            _ => Received::Ignored,
        }
    }
}

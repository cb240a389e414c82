//! A TCP connection that carries framed messages.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde::{Serialize, de::DeserializeOwned};

use crate::protocol::{self, MAX_REQUEST};
use crate::socket;

/// Longest time to send a small message. A choice: a full modem buffer holds several seconds.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Limits for the frames that are accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frames {
    pub(crate) bytes: usize,
    /// JSON values in a frame: decoded, they take more memory than their text.
    pub(crate) values: usize,
}

impl Frames {
    /// Limits for requests and their answers.
    pub(crate) const SMALL: Self = Self {
        bytes: MAX_REQUEST,
        values: 256,
    };
}

/// A TCP stream, and the bytes of the next message that have arrived.
pub(crate) struct Connection {
    stream: TcpStream,
    pending: Vec<u8>,
    limit: Frames,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        Ok(Self {
            stream,
            pending: Vec::new(),
            limit: Frames::SMALL,
        })
    }

    /// Sets the limits for the frames from now on.
    pub(crate) fn set_limit(&mut self, limit: Frames) {
        self.limit = limit;
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }

    pub(crate) fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.stream.write_all(&protocol::encode(message))
    }

    /// The next message. `None` if `deadline` passes first; a part of the message that has arrived is kept for the next call.
    ///
    /// The deadline holds for the whole message: neither a peer that sends a byte now and then nor one that sends without end can
    /// extend it. A call after the deadline still makes one read, so that it returns a message that has already arrived. A caller that
    /// loops over messages must therefore check the clock itself.
    pub(crate) fn receive<M: DeserializeOwned>(&mut self, deadline: Instant) -> io::Result<Option<M>> {
        let mut chunk = [0; 16 << 10];
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            let is_late = Instant::now() >= deadline;
            if !socket::wait_readable(&self.stream, deadline)? {
                return Ok(None);
            }
            match self.stream.read(&mut chunk)? {
                0 => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the connection was closed",
                    ));
                }
                n => self.pending.extend_from_slice(&chunk[..n]),
            }
            if is_late {
                return self.take();
            }
        }
    }

    /// The next complete message among the bytes that have arrived.
    fn take<M: DeserializeOwned>(&mut self) -> io::Result<Option<M>> {
        let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
        let body = match protocol::body(&self.pending, self.limit.bytes) {
            Ok(Some(body)) => body,
            Ok(None) => return Ok(None),
            Err(e) => return Err(invalid(e.to_string())),
        };
        if body.iter().filter(|byte| **byte == b',').count() > self.limit.values {
            return Err(invalid(
                "a message with more values than this test can need".to_owned(),
            ));
        }
        let (message, length) = protocol::decode(&self.pending, self.limit.bytes)
            .map_err(|e| invalid(e.to_string()))?
            .expect("it is whole");
        self.pending.drain(..length);
        Ok(Some(message))
    }

    /// Like [`receive`](Self::receive), but fails if no message arrives in time.
    pub(crate) fn expect<M: DeserializeOwned>(&mut self, within: Duration) -> io::Result<M> {
        self.receive(Instant::now() + within)?.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::TimedOut,
                format!("no answer within {} s", within.as_secs()),
            )
        })
    }
}

//! One framed TCP connection.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde::{Serialize, de::DeserializeOwned};

use crate::protocol::{self, MAX_REQUEST};
use crate::socket;

/// How long a small message may take to leave. A full modem buffer holds seconds, so this is many of them.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// The largest frame that is accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frames {
    pub(crate) bytes: usize,
    /// Values in it: text is denser than what it stands for.
    pub(crate) values: usize,
}

impl Frames {
    /// Of requests, and of answers to them.
    pub(crate) const SMALL: Self = Self {
        bytes: MAX_REQUEST,
        values: 256,
    };
}

/// A stream with the bytes that have arrived of the next message.
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

    /// Larger messages are expected from now on.
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

    /// The next message; none when `deadline` passes first. What has arrived of it by then is kept.
    ///
    /// The deadline is one for the whole message, so a peer that sends a byte now and then gains nothing, and one that sends
    /// more than can be taken is left at the deadline as well. What has arrived already is taken after the deadline, too, but
    /// only what one call to the system brings: whoever asks again and again for messages has to look at the clock.
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

    /// The next of the messages that have arrived.
    fn take<M: DeserializeOwned>(&mut self) -> io::Result<Option<M>> {
        let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
        let body = match protocol::body(&self.pending, self.limit.bytes) {
            Ok(Some(body)) => body,
            Ok(None) => return Ok(None),
            Err(e) => return Err(invalid(e.to_string())),
        };
        if body.iter().filter(|byte| **byte == b',').count() > self.limit.values {
            return Err(invalid(
                "a message of more values than this test can need".to_owned(),
            ));
        }
        let (message, length) = protocol::decode(&self.pending, self.limit.bytes)
            .map_err(|e| invalid(e.to_string()))?
            .expect("it is whole");
        self.pending.drain(..length);
        Ok(Some(message))
    }

    /// As [`receive`](Self::receive), but silence is an error.
    pub(crate) fn expect<M: DeserializeOwned>(&mut self, within: Duration) -> io::Result<M> {
        self.receive(Instant::now() + within)?.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::TimedOut,
                format!("no answer within {} s", within.as_secs()),
            )
        })
    }
}

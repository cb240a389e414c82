//! One framed TCP connection.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde::{Serialize, de::DeserializeOwned};

use crate::protocol;
use crate::socket;

/// How long a small message may take to leave. A full modem buffer holds seconds, so this is many of them.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// A stream with the bytes that have arrived of the next message.
pub(crate) struct Connection {
    stream: TcpStream,
    pending: Vec<u8>,
    /// The largest frame accepted, in bytes.
    limit: usize,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, limit: usize) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        Ok(Self {
            stream,
            pending: Vec::new(),
            limit,
        })
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
    /// The deadline is one for the whole message, so a peer that sends a byte now and then gains nothing.
    pub(crate) fn receive<M: DeserializeOwned>(&mut self, deadline: Instant) -> io::Result<Option<M>> {
        let mut chunk = [0; 16 << 10];
        loop {
            match protocol::decode(&self.pending, self.limit) {
                Ok(Some((message, length))) => {
                    self.pending.drain(..length);
                    return Ok(Some(message));
                }
                Ok(None) => {}
                Err(e) => return Err(io::Error::new(io::ErrorKind::InvalidData, e)),
            }
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
        }
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

//! The socket of a series of probes.

use std::io;
use std::time::Instant;

use crate::protocol;

/// Sends probes and receives their answers.
pub(crate) trait ProbeSocket: Send {
    /// Sends the probe with this number.
    fn send(&mut self, sequence: u32) -> io::Result<()>;

    /// Waits for a packet until `deadline`.
    fn receive(&mut self, deadline: Instant) -> Received;
}

/// How a wait for an answer ended.
pub(crate) enum Received {
    /// The deadline passed.
    TimedOut,
    /// A packet or an error that answers no probe of ours.
    Ignored,
    /// A probe was answered.
    Answer(Answer),
}

/// The answer to a probe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// The number of the probe.
    pub(crate) sequence: u32,
    /// When the answer arrived.
    pub(crate) at: Instant,
    /// The traffic class byte (DSCP and ECN) of the answer.
    pub(crate) tos: Option<u8>,
    /// The part that `sqm serve` adds to the probe. `None` for other kinds of probes.
    pub(crate) echo: Option<protocol::Echo>,
}

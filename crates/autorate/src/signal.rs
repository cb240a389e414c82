//! The input and output of a controller.

use core::fmt;

use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::{Bytes, Instant, Nanos, Rate};

/// An observation with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When the caller made the observation, on the clock of [`Controller::step`].
    pub at: Instant,
    /// The observation.
    pub signal: Signal,
}

/// The kinds of observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A reflector answered a probe. Only the round trip is known.
    Echo {
        /// Number of the reflector.
        reflector: u16,
        /// When the probe was sent.
        sent: Instant,
        /// The round trip.
        rtt: Nanos,
    },
    /// A reflector answered with its own clock's time, so that the delay of each direction is known by itself.
    OneWay {
        /// Number of the reflector.
        reflector: u16,
        /// When the probe was sent.
        sent: Instant,
        /// From the reflector to us, nanoseconds. It contains the unknown offset of the reflector's clock, so that only its
        /// changes have a meaning.
        download: i64,
        /// From us to the reflector, nanoseconds. It contains the same offset with the opposite sign.
        upload: i64,
    },
    /// A probe is still unanswered: the oldest of those that this reflector received after the last one it answered.
    Waiting {
        /// Number of the reflector.
        reflector: u16,
        /// When the probe was sent.
        sent: Instant,
    },
    /// The caller has given up a probe.
    Lost {
        /// Number of the reflector.
        reflector: u16,
    },
    /// A segment of one of the user's own TCP connections arrived that answers one that left. Both are observed on the device
    /// itself, beyond our own queues (unlike the round trip of `TCP_INFO`, which includes them), and the far host's time stamps
    /// (RFC 7323) separate the two directions.
    Flow {
        /// Number of the connection.
        flow: u64,
        /// When the answered segment passed the device.
        sent: Instant,
        /// From the far host to us, nanoseconds, with the unknown offset of its clock: only changes have a meaning.
        download: i64,
        /// From us to the far host, nanoseconds, with the same offset and the opposite sign. `None` if the far host did not send
        /// its segment as an immediate acknowledgement, so that its time of sending says nothing about the way there.
        upload: Option<i64>,
    },
    /// Bytes that the device counted in the period that ends now: for the download those that arrived from the line, for the
    /// upload those that left our shaper.
    Traffic {
        /// The direction that was counted.
        direction: Direction,
        /// Bytes on the line, with framing.
        bytes: Bytes,
        /// Length of the period.
        span: Nanos,
    },
    /// An hour of the day has begun, 0 to 23. Any time zone will do as long as it stays the same.
    Hour(u8),
}

/// The rates that the user allows. All of them are optional.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The lowest rate. Default: 1/64 of `base` or `max`, at least 128 kbit/s.
    pub min: Option<Rate>,
    /// The rate at the start, and the one to return to when delay signals are missing for long. Default: 10 Mbit/s, or `max` if
    /// that is less.
    pub base: Option<Rate>,
    /// The highest rate. Default: 10 Gbit/s.
    pub max: Option<Rate>,
}

impl Bounds {
    /// The lowest rate if none is given and a 64th of `base` or `max` is less. A choice: 1500 bytes take 94 ms.
    pub const DEFAULT_MIN: Rate = Rate::from_bits_per_sec(128_000);
    /// The highest rate if none is given and no other bound is higher.
    pub const DEFAULT_MAX: Rate = Rate::from_bits_per_sec(10_000_000_000);
}

/// The decision of a controller after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The rate of each direction.
    pub rates: PerDirection<Choice>,
    /// How often to probe from now on.
    pub probes: Probes,
}

/// A rate and the reason for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The rate that the shaper should have.
    pub rate: Rate,
    /// Why it is that rate.
    pub reason: Reason,
}

/// How often the caller should send probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probes {
    /// No probes: the line is idle.
    Off,
    /// One probe in each interval of this length, to the reflectors in turn.
    Every(Nanos),
}

/// Why a rate is what it is. [`trace::ReasonWord`](crate::trace::ReasonWord) gives the word for it in logs and in the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The first rate: base, or what was learned for this hour.
    Start,
    /// There is too little traffic to learn from. The rate stays.
    Unloaded,
    /// On a path with a high round trip a download has two thirds of the rate until its senders have left slow start.
    SlowStartGuard,
    /// Loaded and without a queue, and growth is on hold.
    Steady,
    /// Loaded and without a queue: the rate grows.
    Grow,
    /// A small queue: the rate is cut to just below what causes it.
    SmallQueue {
        /// The delay that the queue adds.
        delay: Nanos,
    },
    /// A long queue: the rate is cut to empty it.
    Bufferbloat {
        /// The delay that the queue adds.
        delay: Nanos,
    },
    /// The rate was cut; the queue is draining.
    Draining {
        /// The delay that the queue still adds.
        delay: Nanos,
    },
    /// The delay did not depend on the rate, so the path itself has become longer. The cut is retracted.
    PathChanged {
        /// By how much the path has become longer.
        by: Nanos,
    },
    /// No delay signals arrive: the rate stays.
    SignalsLost,
    /// No delay signals have arrived for long: the rate moves towards base.
    Decay,
    /// The usual rate of this hour.
    Learned,
    /// Controller 1 alone: the capacity of the other direction had dropped, and this direction's senders had fallen silent. The rate was
    /// limited to what they sent last.
    OtherDirectionDropped,
}

impl Reason {
    /// True if the rate was lowered because of a queue.
    pub const fn is_cut(self) -> bool {
        matches!(self, Self::Bufferbloat { .. } | Self::SmallQueue { .. })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let delay = |f: &mut fmt::Formatter<'_>, text, Nanos(n): &Nanos| {
            write!(f, "{text} {}.{} ms", n / 1_000_000, n / 100_000 % 10)
        };
        match self {
            Self::Start => f.write_str("first rate"),
            Self::Unloaded => f.write_str("not loaded"),
            Self::SlowStartGuard => f.write_str("high round trip: two thirds of the rate until a download has left slow start"),
            Self::Steady => f.write_str("loaded, no queue: rate stays"),
            Self::Grow => f.write_str("loaded, no queue: rate grows"),
            Self::SmallQueue { delay: by } => delay(f, "small queue: rate slightly reduced; queue delay", by),
            Self::Bufferbloat { delay: by } => delay(f, "long queue: rate cut; queue delay", by),
            Self::Draining { delay: by } => delay(f, "queue is draining; queue delay", by),
            Self::PathChanged { by } => delay(
                f,
                "delay did not follow the rate: the path has become longer by",
                by,
            ),
            Self::SignalsLost => f.write_str("no signals: rate stays"),
            Self::Decay => f.write_str("no signals for long: rate moves towards base"),
            Self::Learned => f.write_str("usual rate of this hour"),
            Self::OtherDirectionDropped => f.write_str(
                "capacity of the other direction dropped, senders are silent: rate limited to what passed last",
            ),
        }
    }
}

/// A rate controller: samples in, rates out.
pub trait Controller {
    /// Takes in what was observed since the last step and decides. `now` must not run backward. If it does, the step is made as if
    /// no time had passed.
    fn step(&mut self, now: Instant, samples: &[Sample]) -> Decision;
}

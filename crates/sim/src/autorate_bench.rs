//! A bench for rate controllers on modelled lines whose rate varies. Each controller gets the same line, load and noise, in virtual
//! time.
//!
//! ```text
//! upload:    senders ─► shaper ─► buffer ═ line ═► far hosts          ACKs and probes go the same ways,
//! download:  far hosts ─► buffer ═ line ═► shaper ─► receivers        through the other direction's queues
//! ```
//!
//! In the download the line's buffer is *before* the shaper, so that only the senders' reaction to the shaper's drops empties
//! it.

mod figures;
mod oracle;
mod recorded;
mod trace;
mod unshaped;
mod world;

#[cfg(test)]
mod tests;

use sqm_autorate::cake_autorate::CakeAutorate;
use sqm_autorate::{Autorate, CapacityByHour, Controller, Decision};
use sqm_core::direction::PerDirection;
use sqm_core::units::{Instant, Nanos};

use oracle::Oracle;
use unshaped::Unshaped;
use world::{Pilot, World};

pub use figures::{Figures, Recovery};
pub use recorded::{Conditions, LoadCycle, LogRates, Opportunities, Recorded, Refused};
pub use trace::{Load, Trace};

/// The beginning of virtual time.
pub const START: Instant = Instant(10_000_000_000);

/// The delay signals that the controllers receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signals {
    /// Round trips to reflectors, cake-autorate's default.
    Echo,
    /// One-way delays to reflectors.
    OneWay,
    /// Round trips to reflectors, and one-way delays of the user's own TCP connections, from their time stamps.
    Tcp,
    /// As [`Self::Tcp`], but the carrier lets probes bypass the line's queues.
    Bypass,
}

impl Signals {
    /// True if the user's own TCP connections are sampled.
    const fn has_flows(self) -> bool {
        matches!(self, Self::Tcp | Self::Bypass)
    }
}

/// The controllers that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// `sqm_autorate::Autorate`.
    Sqm,
    /// `sqm_autorate::cake_autorate::CakeAutorate`.
    CakeAutorate,
    /// Knows the line's rate and queue a round trip late: about the best that is possible.
    Oracle,
    /// No shaper: the line and its buffers alone.
    Unshaped,
}

impl Contender {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 4] = [Self::Sqm, Self::CakeAutorate, Self::Oracle, Self::Unshaped];

    /// The name in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sqm => "sqm",
            Self::CakeAutorate => "cake-autorate",
            Self::Oracle => "oracle",
            Self::Unshaped => "unshaped",
        }
    }
}

/// The state of a run, observed every 50 ms.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Time since [`START`].
    pub time: Nanos,
    /// The decision of the controller.
    pub decision: Decision,
    /// Rate of the line.
    pub capacity: PerDirection<sqm_core::units::Rate>,
    /// Queue delay of a packet that arrives now in the line's buffer.
    pub delay: PerDirection<Nanos>,
}

/// Runs a controller on a trace, and calls `observe` for each moment.
pub fn run(
    trace: &Trace,
    contender: Contender,
    signals: Signals,
    seed: u64,
    observe: &mut dyn FnMut(&Moment),
) -> Figures {
    let bounds = trace.bounds;
    let pilot = match contender {
        Contender::Sqm => Pilot::Controller(Box::new(Autorate::new(
            START,
            bounds,
            PerDirection::<CapacityByHour>::default(),
        ))),
        Contender::CakeAutorate => Pilot::Controller(Box::new(CakeAutorate::new(START, bounds))),
        Contender::Oracle => Pilot::Oracle(Oracle::new(bounds, trace.rtt)),
        Contender::Unshaped => Pilot::Controller(Box::new(Unshaped)),
    };
    World::new(trace, pilot, signals, seed).run(observe)
}

/// Runs the given controller, which must begin at [`START`].
pub fn run_controller(
    trace: &Trace,
    controller: Box<dyn Controller>,
    signals: Signals,
    seed: u64,
) -> Figures {
    World::new(trace, Pilot::Controller(controller), signals, seed).run(&mut |_| {})
}

//! Controllers against lines whose rate varies: the same line, load and noise for each, in virtual time.
//!
//! ```text
//! upload:    senders ─► shaper ─► buffer ═ line ═► far hosts          ACKs and probes go the same ways,
//! download:  far hosts ─► buffer ═ line ═► shaper ─► receivers        through the other direction's queues
//! ```
//!
//! A shaper cannot stop what has been sent to it: in the download the queue is *before* it, and only the senders'
//! reaction to its drops empties the buffer.

mod figures;
mod oracle;
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
pub use trace::{Load, Trace};

/// Simulated time begins here.
pub const START: Instant = Instant(10_000_000_000);

/// What the controllers are told of delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signals {
    /// Round trips to reflectors, cake-autorate's default.
    Echo,
    /// One-way delays to reflectors.
    OneWay,
    /// Round trips to reflectors, and delays each way of the user's own TCP flows, from their time stamps.
    Tcp,
}

/// Which controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// `sqm_autorate::Autorate`.
    Sqm,
    /// `sqm_autorate::cake_autorate::CakeAutorate`.
    CakeAutorate,
    /// Told the line's rate and queue, a round trip late: about the best that is possible.
    Oracle,
    /// Nobody: the line and its buffers alone.
    Unshaped,
}

impl Contender {
    /// All, as printed.
    pub const ALL: [Self; 4] = [Self::Sqm, Self::CakeAutorate, Self::Oracle, Self::Unshaped];

    /// As printed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sqm => "sqm",
            Self::CakeAutorate => "cake-autorate",
            Self::Oracle => "oracle",
            Self::Unshaped => "unshaped",
        }
    }
}

/// One moment of a run, every 50 ms.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Since the start.
    pub time: Nanos,
    /// What the controller has decided.
    pub decision: Decision,
    /// Of the line.
    pub capacity: PerDirection<sqm_core::units::Rate>,
    /// What a packet arriving now would wait in the line's buffer.
    pub delay: PerDirection<Nanos>,
}

/// Runs one controller on one trace, and tells `observe` of each moment.
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

/// Runs a controller of the caller's, which begins at [`START`].
pub fn run_controller(
    trace: &Trace,
    controller: Box<dyn Controller>,
    signals: Signals,
    seed: u64,
) -> Figures {
    World::new(trace, Pilot::Controller(controller), signals, seed).run(&mut |_| {})
}

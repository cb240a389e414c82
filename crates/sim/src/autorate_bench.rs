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
mod trace;
mod world;

#[cfg(test)]
mod tests;

use sqm_core::autorate::cake_autorate::CakeAutorate;
use sqm_core::autorate::{Autorate, Both, Controller, Decision, Learned};
use sqm_core::units::{Instant, Nanos};

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
    /// Round trips to reflectors and of the user's own TCP flows.
    Tcp,
}

/// Which controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// `sqm_core::autorate::Autorate`.
    Sqm,
    /// `sqm_core::autorate::cake_autorate::CakeAutorate`.
    CakeAutorate,
}

impl Contender {
    /// Both, as printed.
    pub const ALL: [Self; 2] = [Self::Sqm, Self::CakeAutorate];

    /// As printed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sqm => "sqm",
            Self::CakeAutorate => "cake-autorate",
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
    pub capacity: Both<sqm_core::units::Rate>,
    /// What a packet arriving now would wait in the line's buffer.
    pub delay: Both<Nanos>,
}

/// Runs one controller on one trace, and tells `observe` of each moment.
pub fn run(
    trace: &Trace,
    contender: Contender,
    signals: Signals,
    seed: u64,
    observe: &mut dyn FnMut(&Moment),
) -> Figures {
    let mut controller: Box<dyn Controller> = match contender {
        Contender::Sqm => Box::new(Autorate::new(START, trace.bounds, Both::<Learned>::default())),
        Contender::CakeAutorate => Box::new(CakeAutorate::new(START, trace.bounds)),
    };
    world::World::new(trace, controller.as_mut(), signals, seed).run(observe)
}

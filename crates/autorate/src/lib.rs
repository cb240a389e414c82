//! Keeps a shaper's rate just below the capacity of a line that varies: samples in, one rate per direction out.
//!
//! [`Controller::step`] is a pure function of its state and its arguments. The caller has the clock, sends the probes,
//! counts the bytes and sets the rates. [`Autorate`] is sqm's controller; [`cake_autorate`] reproduces that of
//! cake-autorate for comparison, and [`lean`] is a simpler controller. The last two run in the bench only.
//!
//! # How `Autorate` decides
//!
//! ```text
//! samples ─┬─► delay       queue delay by robust statistics over many sources ─┐
//!          │                                                                   ├─► attribution ─► observation ─► controller ─► rate
//!          └─► throughput  rates and load of each direction ───────────────────┘                     one for each direction
//! ```
//!
//! The control law is proportional in the queue delay, around an estimate of the capacity:
//!
//! ```text
//! rate = capacity * (1 - (queue delay - target) / 150 ms)
//! ```
//!
//! * **Delay.** Each reflector and each TCP connection is a source with its own baseline: its smallest delay in 30 s of use.
//!   The part of a sample above the baseline is queue delay. The lower median of the four newest samples counts. A probe that is
//!   overdue counts with its age, so that a drop of the capacity is seen before answers arrive, unless a later probe has
//!   overtaken it. A source that keeps contradicting the others is ignored. A connection counts for no more than reflectors
//!   confirm, because its far end may wait behind another line. Where several connections agree on a queue that reflectors do not
//!   show for long, the carrier lets probes bypass it, and connections lead.
//! * **Capacity.** A line with a queue is busy. A download's capacity is then what arrives; an upload's capacity is
//!   `sent * time / (time + growth of the delay)`.
//! * **Target.** 5 ms of queue delay; 6.5 ms for both directions together where they are not measured apart; 1.5 ms for an
//!   upload while a download is active, because acknowledgements wait in its queue; up to 20 ms on a line whose capacity dips
//!   again and again. A download is never cut below 0.7 of its capacity: its queue drains as its senders slow down, and a queue
//!   in our own shaper would delay that.
//! * **Growth.** Fast far below the last capacity, slow near it, faster and faster beyond it, and never far before the
//!   controller can learn of a queue.
//! * **Drops and interruptions.** When senders fall silent and probes are overdue, the capacity is taken to be what still
//!   passes. If the other direction's senders fall silent with it, that direction is limited to what passed last. If a
//!   download's queue drains before its senders can have reacted to the cut, the line was only interrupted, and the rate returns.
//! * **High round trips.** From 300 ms on, what is known of the line is old, so that its variations are not followed: the rate
//!   is based on the lowest recent capacity and grows slowly. A new download has half the rate until its senders have left slow
//!   start.
//! * **Attribution.** When only round-trip times are available, a direction is charged with the part of the increase that the
//!   other direction is not known to cause. While both are loaded, one of them explores at a time, and one is the suspect for a
//!   queue. A cut without effect is retracted, and the other direction becomes the suspect.
//! * **Changes of the path.** A delay that stays when the rate is cut, and loses no probes, is that of a longer path: the
//!   baselines move, and the rate returns.
//! * **No load, no signals.** Without load the rate stays and probing stops. Without delay signals the rate stays for a while
//!   and then moves to base.
//!
//! # Sources
//!
//! The capacity estimate is that of packet trains (Dovrolis et al., INFOCOM 2001). Aiming at a small queue follows PIE (RFC
//! 8033 section 4.2), its size CoDel (RFC 8289 section 4.3), growth around the last capacity CUBIC (RFC 9438 section 4.1), and
//! baselines are windowed minima as in BBR and LEDBAT (RFC 6817 section 3.4.2). A constant marked "a choice" has no other
//! source than the bench of `sqm-sim`, on which it was tried.
//!
//! # How it is tested
//!
//! Here by unit tests with explicit times and by property tests; in `sqm-sim` on modelled lines, with figures in
//! `docs/results/autorate-bench.md`.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod attribution;
mod autorate;
pub mod cake_autorate;
pub mod capacity_by_hour;
mod controller;
mod delay;
pub mod lean;
mod observation;
mod signal;
mod throughput;
pub mod trace;

#[cfg(test)]
mod tests;

pub use autorate::Autorate;
pub use capacity_by_hour::CapacityByHour;
pub use signal::{Bounds, Choice, Controller, Decision, Probes, Reason, Sample, Signal};

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// `value * numerator / denominator`, rounded down and saturating. A denominator of zero counts as one.
fn scale(value: u64, numerator: u64, denominator: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(numerator) / u128::from(denominator.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

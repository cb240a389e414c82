//! Keeps a shaper's rate just below the capacity of a line that varies: samples in, one rate per direction out.
//!
//! [`Controller::step`] is a pure function of its state and its arguments. The caller has the clock, sends the probes,
//! counts the bytes and sets the rates. [`Autorate`] is sqm's controller; [`cake_autorate`] reproduces that of
//! cake-autorate for comparison, and runs in the bench only.
//!
//! # How `Autorate` decides
//!
//! ```text
//! samples ─┬─► delay       queue delay by robust statistics over many sources ─┐
//!          │                                                                   ├─► attribution ─► rate controller ─► rate
//!          └─► throughput  rates and load of each direction ───────────────────┘                  one for each direction
//! ```
//!
//! Each direction has a cruise rate, which is its rate while there is no queue:
//!
//! ```text
//! queue above the target:  cruise follows the capacity down
//!                          rate = min(cruise, capacity * (1 - (queue delay - target) / 100 ms))
//! no queue, loaded:        cruise grows: slowly at the usual or the newest capacity, faster the further away
//!                          rate = cruise
//! ```
//!
//! `docs/design/autorate.md` explains the parts on one page: queue delay (`delay`), capacity and variability (`known_capacity`), a time
//! with a queue (`queue_event`), the law (`rate_controller`), whose queue it is (`attribution`), and the parameters ([`Params`]).
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

use sqm_core::units::{Nanos, Rate};

mod attribution;
mod autorate;
pub mod cake_autorate;
pub mod capacity_by_hour;
mod delay;
mod known_capacity;
mod limits;
mod observation;
mod params;
mod queue_event;
mod rate_controller;
mod signal;
mod throughput;
pub mod trace;

#[cfg(test)]
mod tests;

pub use autorate::Autorate;
pub use capacity_by_hour::CapacityByHour;
pub use params::Params;
pub use signal::{Bounds, Choice, Controller, Decision, Probes, Reason, Sample, Signal};

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

fn bits(rate: Rate) -> f64 {
    rate.bits_per_sec() as f64
}

fn millis(time: Nanos) -> f64 {
    time.0 as f64 / 1e6
}

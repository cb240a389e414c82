//! Latency under load: how long a small packet takes while large transfers fill the line.
//!
//! One program is both ends. [`server`] sinks, sources and echoes; [`client`] runs a test against it: an idle
//! baseline, then uploads and downloads at once, with probes through all of it. What comes out is a
//! [`result::TestResult`], which [`plot`] and [`report`] turn into pictures and pages.
//!
//! Three rules make the figures right. Bytes are counted where they arrive: a sender also counts what still sits in
//! its own buffers. Probes leave on a fixed timetable, whatever became of the ones before. And a reply that comes late
//! is a late reply: only what never comes back is lost.
//!
//! Nothing here spins or watches the clock in a loop. Every wait is a sleep in the kernel, so that a test also runs in
//! virtual time, where computing takes no time at all.
#![forbid(unsafe_code)]

pub mod autorate_trace;
mod calendar;
pub mod chart;
mod checks;
pub mod client;
pub mod clock;
pub mod compare;
mod connection;
pub mod cpu;
mod datagram;
mod deadline;
mod error;
mod file;
pub mod flent;
pub mod foreign;
pub mod grade;
mod http;
pub mod icmp;
pub mod irtt;
mod load;
pub mod overhead_fit;
pub mod packet_trains;
pub mod plot;
mod probe;
pub mod protocol;
pub mod reflect;
pub mod report;
pub mod result;
pub mod room;
pub mod rpm;
pub mod scenario;
pub mod secret;
pub mod server;
mod socket;
pub mod stats;
mod svg;
pub mod tcp_info;
pub mod tls;

pub use error::Error;

/// What a fuzz target reaches of the probes. Compiled in tests too, so that `make lint` reads it.
#[cfg(any(test, fuzzing))]
pub mod fuzz {
    pub use crate::probe::answered_with;
}

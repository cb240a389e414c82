//! Latency under load: the round trip of a small packet while large transfers fill the line.
//!
//! One program is both ends. The [`server`] receives, sends and echoes. The [`client`] runs a test against it: an idle
//! baseline, then uploads and downloads at once, with probes all the time. The outcome is a
//! [`result::TestResult`], of which [`plot`] makes pictures and [`report`] makes pages.
//!
//! Three rules keep the figures right:
//!
//! * The receiver counts the bytes. A sender would also count those that are still in its own buffers.
//! * Probes leave on a fixed timetable, whether or not earlier ones have come back.
//! * An answer that comes late counts with its delay. Only a probe without any answer is lost.
//!
//! No loop here polls the clock. Every wait is a sleep in the kernel, so that a test also runs in virtual time, in which computing
//! takes no time.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "full"),
    allow(dead_code, reason = "parts of calendar and room serve Flent's files alone")
)]

#[cfg(feature = "full")]
pub mod autorate_trace;
mod calendar;
#[cfg(feature = "full")]
pub mod chart;
mod checks;
pub mod client;
pub mod clock;
#[cfg(feature = "full")]
pub mod compare;
mod connection;
pub mod cpu;
mod datagram;
mod deadline;
mod error;
mod file;
#[cfg(feature = "full")]
pub mod flent;
pub mod foreign;
pub mod grade;
mod host;
#[cfg(feature = "full")]
mod http;
pub mod icmp;
pub mod irtt;
mod load;
pub mod overhead_fit;
pub mod packet_trains;
#[cfg(feature = "full")]
pub mod plot;
mod probe;
pub mod protocol;
pub mod reflect;
#[cfg(feature = "full")]
pub mod report;
pub mod result;
pub mod room;
#[cfg(feature = "full")]
pub mod rpm;
pub mod scenario;
pub mod secret;
pub mod server;
mod socket;
pub mod stats;
#[cfg(feature = "full")]
mod svg;
pub mod tcp_info;
#[cfg(feature = "full")]
pub mod tls;

pub use error::Error;

/// The part of the probes that a fuzz target calls. Tests compile it, too, so that `make lint` checks it.
#[cfg(any(test, fuzzing))]
pub mod fuzz {
    pub use crate::probe::answered_with;
}

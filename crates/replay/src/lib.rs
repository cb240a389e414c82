//! Recorded packets, sent through a queue of `sqm-core` in virtual time.
//!
//! A capture ([`pcap`]) goes through a queue or a tree of them ([`queue`]) as a device would drive it ([`capture::replay`]), and
//! comes out as a report ([`report`]) or a picture. A vector ([`vector`]) is a scenario that was recorded from Linux's own queue, with
//! what that queue did: ours must do the same, to the nanosecond.
#![forbid(unsafe_code)]

pub mod capture;
mod delays;
mod engine;
mod error;
mod output;
mod packet;
pub mod pcap;
pub mod picture;
pub mod queue;
pub mod report;
mod series;
pub mod source;
mod statistics;
mod tally;
pub mod vector;

pub use error::Error;
pub use output::Output;

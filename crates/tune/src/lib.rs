//! The search for the highest shaper rates at which the latency that load adds stays within a target.
//!
//! | Module | Its part |
//! | --- | --- |
//! | [`mod@run`] | the whole search, in order |
//! | [`search`], [`backoff`], [`capacity_estimate`], [`framing`] | decide; pure, without a clock or I/O |
//! | [`search_direction`] | searches one direction: changes the shaper's rate under a running [`load`] and measures the queue |
//! | [`joint_verification`] | loads both directions and reduces their rates until the target is met |
//! | [`overhead`] | measures how the line frames packets |
//! | [`server`] | the server that the line is loaded with |
//! | [`shaper`] | changes the configured shaper and rolls it back; `sqm_configuration::watchdog` does if this process is killed |
//! | [`limit`] | ends the search in time, whatever the server does |
//! | [`log`], [`report`] | the steps and the result |
//!
//! Rates are `f64` in Mbit/s inside this crate: a search takes shares and geometric means of rates, and rounding each of them to a whole
//! bit per second would change what it finds. [`shaper`] turns them into `Rate`.
#![forbid(unsafe_code)]
// The print macros of the standard library panic when standard output is closed or full; those of `sqm_process` do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
extern crate sqm_process;

mod backoff;
mod capacity_estimate;
mod framing;
mod joint_verification;
mod limit;
mod load;
mod log;
mod overhead;
mod report;
mod run;
mod search;
mod search_direction;
mod server;
mod shaper;

pub use report::Report;
pub use run::{Options, Results, run};
pub use server::Server;

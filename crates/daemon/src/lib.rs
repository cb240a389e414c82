//! `sqm daemon`: keeps every enabled section of the configuration in force.
//!
//! The main loop ([`run`]) is the only thread that changes the kernel. It waits for the kernel's events, for signals and for requests;
//! `keep` decides what is due, `shape` compares the queues with the plan and repairs them. `api` answers requests from the status that the main
//! loop publishes, and hands changes to the main loop as commands. Each line whose rates follow its capacity has a thread in `autorate`.
//!
//! The daemon may be killed at any moment: the queues are the kernel's, and the state folder holds what `stop` must restore.
#![forbid(unsafe_code)]
// Standard output may be closed or full: the macros of `sqm_process` can bear that.
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
extern crate sqm_process;

mod api;
mod autorate;
pub mod client;
mod clock;
mod journal;
mod keep;
mod main_loop;
mod manager;
mod metrics;
mod search;
mod shape;
mod shared;
mod status;
mod trial;

#[cfg(any(test, fuzzing))]
pub use autorate::fuzz_segments;
pub use main_loop::{Options, SOCKET, run};
pub use shape::Drift;

//! `sqm daemon`: keeps every enabled section of the configuration in force.
//!
//! The main loop ([`run`]) is the only thread that changes the kernel. It waits for kernel events, signals and requests. The
//! `reconciler` decides when an interface is checked; `shape` compares its queues with the plan and repairs them. `api` answers
//! requests from the status that the main loop publishes (`shared`), and sends changes to the main loop as commands. Each line
//! whose rates follow its capacity has a thread in `autorate`.
//!
//! The daemon may be killed at any moment: the queues are the kernel's, and the state folder holds what `sqm stop` must
//! restore.
#![forbid(unsafe_code)]
// Standard output may be closed or full, which the macros of `sqm_process` handle.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod api;
mod autorate;
mod clock;
#[cfg(feature = "fleet")]
mod fleet;
mod journal;
mod kept_folder;
mod main_loop;
mod metrics;
mod rate_watch;
mod reconciler;
mod sd_notify;
mod shape;
mod shared;
mod status;
#[cfg_attr(not(feature = "full"), path = "no_tune_job.rs")]
mod tune_job;
mod unconfirmed_change;
mod waker;

#[cfg(any(test, fuzzing))]
pub use autorate::fuzz_segments;
#[cfg(feature = "fleet")]
pub use fleet::FleetOptions;
pub use main_loop::{Options, run};
pub use sqm_plan::settings::Drift;

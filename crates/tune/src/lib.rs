//! Finding the rates of a line: the highest at which the latency that load adds stays within a target.
//!
//! [`search`] and [`lowering`] decide and know nothing of the machine. [`line`] changes the shaper's rates under a running
//! [`load`] in one direction and looks at the latency, and [`carried`] tells the line's rate from that; [`verify`] does so with all
//! directions full. [`overhead`] asks how the line frames packets; [`shaper`] is the configured shaper and the way back,
//! which [`guard`] takes if we cannot; [`server`] is who loads the line. [`limit`] ends all of it in time, whatever the server does.
#![forbid(unsafe_code)]
// Standard output may be closed or full: the macros of `sqm_process` can bear that.
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
extern crate sqm_process;

mod carried;
mod framing;
mod guard;
mod limit;
mod line;
mod load;
mod log;
mod lowering;
mod overhead;
mod report;
mod run;
mod search;
mod server;
mod shaper;
mod verify;

pub use guard::watch;
pub use report::Report;
pub use run::{Options, Results, run};
pub use server::Server;

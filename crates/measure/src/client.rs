//! The client of a test.

mod bounds;
mod connect;
mod cross_check;
mod endpoint;
mod host_metrics;
mod outcome;
mod running;
mod timing;
mod types;
#[cfg(feature = "full")]
pub mod web;

use std::time::SystemTime;

pub use crate::scenario::Family;
pub use host_metrics::{Gauge, Gauges, interface_of};
pub use types::{Hooks, Outcome, Progress, Stage, Target, Test};

use crate::Error;
use host_metrics::Recorder;
use running::Running;

/// Runs a test and waits for its result.
///
/// An error before the load begins is returned. After that, the outcome holds the error and what was measured until then.
pub fn run(test: &Test, hooks: Hooks<'_>) -> Result<Outcome, Error> {
    types::check(test)?;
    let Hooks {
        progress,
        stop,
        gauges,
    } = hooks;
    let mut running = Running::open(test, stop, progress)?;
    let recorder = Recorder::start(running.endpoints[0].local(), gauges);
    running.idle()?;
    let load = running.start()?;
    let began = SystemTime::now();
    running.load(&load);
    if running.failure.is_some() {
        load.stop();
    }
    let seen = load.finish();
    running.after();
    running.collect();
    running.check_probes();
    Ok(outcome::outcome(running, seen, began, recorder))
}

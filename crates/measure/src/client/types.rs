//! The input and output of a test.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sqm_core::direction::Direction;

use super::host_metrics::Gauges;
use crate::Error;
use crate::protocol::{MAX_FLOWS, MAX_IDLE_MS, MAX_LOAD_MS, MAX_PROBES};
use crate::result::{Settings, TAIL_MS, TestResult};
use crate::scenario::{Family, Scenario};

/// The server to test against.
#[derive(Clone, Debug)]
pub struct Target {
    /// Host name or address.
    pub host: String,
    /// Port, of TCP and of UDP.
    pub port: u16,
    /// IPv4 only or IPv6 only. `None` takes the first address of the name that answers.
    pub family: Option<Family>,
    /// The secret of the server, if it has one.
    pub secret: Option<String>,
}

/// A test to run.
#[derive(Clone, Debug)]
pub struct Test {
    /// The hosts of the scenario's endpoints, in order. If there are fewer hosts than endpoints, the last host serves the rest.
    pub targets: Vec<Target>,
    /// The flows and the probes.
    pub scenario: Scenario,
    /// Durations, congestion control and the like.
    pub settings: Settings,
    /// The user's title for the test.
    pub title: Option<String>,
}

/// The connections between a running test and its caller.
pub struct Hooks<'a> {
    /// Called four times a second with the state of the test.
    pub progress: &'a mut dyn FnMut(&Progress),
    /// The caller sets it to end the test early. The result then holds what was measured so far.
    pub stop: &'a AtomicBool,
    /// Called twice a second for other values to keep with the result.
    pub gauges: Option<Gauges>,
}

/// The phase that a test is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Before the load.
    Idle,
    /// Under load.
    Load,
    /// After the load.
    After,
    /// Waiting for the results of the servers and for late probes.
    Collect,
}

/// The state of a running test.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// The present phase.
    pub stage: Stage,
    /// Time since the beginning of the idle phase.
    pub elapsed: Duration,
    /// Time until the end of the last phase.
    pub left: Duration,
    /// Download rate since the previous report, in Mbit/s.
    pub download_mbit: f64,
    /// Upload rate since the previous report, in Mbit/s: the bytes that the kernel of the client counts as delivered.
    pub upload_mbit: f64,
    /// The newest round trip, of the first series that has one.
    pub rtt: Option<Duration>,
    /// The round trips of the probes that were answered since the previous report, in order of arrival. Only probes of the kind that
    /// the latency figures use: UDP with `sqm serve`; with web servers the first of DNS, ICMP and TCP that is answered.
    pub round_trips: Vec<Duration>,
}

/// The outcome of a test whose load began.
#[derive(Debug)]
pub struct Outcome {
    /// The measurement. `meta.partial` says whether the test ended early.
    pub result: TestResult,
    /// Why it ended early.
    pub failure: Option<Error>,
}

/// Refuses a test that cannot give a result.
pub(super) fn check(test: &Test) -> Result<(), Error> {
    let wrong = |text: String| Err(Error::Settings(text));
    if test.targets.is_empty() {
        return wrong("no server to test against".to_owned());
    }
    let counts = Direction::BOTH.map(|direction| test.scenario.count(direction));
    if counts.iter().any(|count| *count > MAX_FLOWS) {
        return wrong(format!("at most {MAX_FLOWS} flows in each direction"));
    }
    check_times(&test.settings)?;
    let flows = test.scenario.flows.iter().map(|flow| flow.dscp);
    let marks = flows.chain(test.scenario.probes.iter().map(|probe| probe.dscp));
    if let Some(dscp) = marks.max().filter(|dscp| *dscp > 63) {
        return wrong(format!("a DSCP is from 0 to 63, not {dscp}"));
    }
    if let Some(mss) = test.settings.mss.filter(|mss| !(88..=32_767).contains(mss)) {
        return wrong(format!("a segment size is from 88 to 32767 bytes, not {mss}"));
    }
    if test.scenario.probes.len() > usize::from(MAX_PROBES) {
        return wrong(format!("at most {MAX_PROBES} series of probes"));
    }
    Ok(())
}

/// Refuses durations that cannot give a result. Tests against web servers use it, too.
pub(super) fn check_times(settings: &Settings) -> Result<(), Error> {
    let wrong = |text: String| Err(Error::Settings(text));
    let Settings {
        idle_ms,
        load_ms,
        after_ms,
        settle_ms,
        probe_interval_ms,
        ..
    } = *settings;
    if idle_ms > MAX_IDLE_MS || after_ms > MAX_IDLE_MS {
        return wrong(format!("at most {} s of idle phase", MAX_IDLE_MS / 1000));
    }
    if load_ms > MAX_LOAD_MS {
        return wrong(format!("at most {} s of load", MAX_LOAD_MS / 1000));
    }
    if settings.phase_ms() <= (settle_ms + TAIL_MS) as f64 {
        let (what, phases) = match settings.is_in_turn() {
            true => ("each of the three phases of the load", 3.0),
            false => ("the load", 1.0),
        };
        return wrong(format!(
            "{what} must last more than the settling time of {} s and 1 s, which the figures leave out: use a --duration of more \
             than {:.0} s, or a shorter --settle",
            settle_ms as f64 / 1000.0,
            phases * (settle_ms + TAIL_MS) as f64 / 1000.0
        ));
    }
    if !(1..=10_000).contains(&probe_interval_ms) {
        return wrong("the probe interval must be from 1 ms to 10 s".to_owned());
    }
    Ok(())
}

//! Loads all directions together at the rates that were found, and reduces the rates under that load until the target is met.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Serialize;
use sqm_core::direction::Direction;
use sqm_measure::Error;
use sqm_measure::result::{Settings, TAIL_MS, TestResult};

use super::backoff::{self, CLOSE_CALL, JointBackoff, RateScale};
use super::framing::Framing;
use super::load::{Load, LoadObserver, LoadSetup, Measurement};
use super::search_direction::DirectionResult;
use super::server::Server;
use crate::log::{Log, SearchError};
use crate::search;

// Lengths of time and numbers of samples are our choices, so that the whole search ends within `limit::LONGEST` (docs/design/tune.md).

/// Idle time before the load, milliseconds. It is short because the base round trip is already known.
const IDLE_MS: u64 = 500;
/// The flows start at [`START_SCALE`] for this long.
const START: Duration = Duration::from_secs(4);
/// At the start the shaper leaves much of the line's rate free, so that the queue that slow start leaves in the modem drains. The small
/// headroom of the final rates would take long to drain it.
const START_SCALE: RateScale = RateScale { down: 0.8, up: 0.8 };
/// The flows adapt to new rates for this long before a measurement begins.
const SETTLE: Duration = Duration::from_secs(2);
/// The usual length of a measurement.
const MEASURE: Duration = Duration::from_secs(6);
/// A measurement with fewer than [`ENOUGH_SAMPLES`] goes on for up to this long.
const LONGER_MEASURE: Duration = Duration::from_secs(9);
/// A measurement that is a close call goes on for up to this long.
const LONGEST_MEASURE: Duration = Duration::from_secs(12);
/// Round trips that a measurement should have.
const ENOUGH_SAMPLES: usize = 80;
/// The modem's queue from the start of the flows may still drain during the first measurement. It is repeated if its excess is between 1
/// and this.
const FAR: f64 = 1.6;
/// Round trips that the final measurement should have.
const FINAL_SAMPLES: usize = 300;
/// The final measurement may be short if its excess is at most this.
const CLEAR: f64 = 0.8;
/// The least length of the final measurement above [`CLEAR`], because queues come and go over seconds.
const LONG_FINAL: Duration = Duration::from_secs(15);
/// The final measurement need not be longer than this.
const LONGEST_FINAL: Duration = Duration::from_secs(20);
/// The final measurement goes on while its excess is between this and 1: the summary of the test, which includes other round trips, could
/// otherwise exceed the limit.
const CERTAIN: f64 = 0.95;
/// The load ends this many seconds after the start of the whole search; the server's results take a moment more.
const END_S: f64 = 87.5;
/// A measurement that is running at [`END_S`] goes on until it has this length.
const SHORTEST_MEASURE: Duration = Duration::from_secs(3);

/// The rates of both directions, Mbit/s gross; `None` leaves a direction unshaped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    pub(crate) down: Option<f64>,
    pub(crate) up: Option<f64>,
}

impl Rates {
    /// The rates that were found for each direction alone, with more headroom for the download: acknowledgements wait while a full-size
    /// packet goes up, and then release a burst of downloaded packets, which must drain.
    pub(crate) fn together(
        down: Option<&DirectionResult>,
        up: Option<&DirectionResult>,
        packet_mbit: f64,
    ) -> Self {
        let burst_s = up.map_or(0.0, |up| packet_mbit / up.carried_mbit);
        let rate = |down: &DirectionResult| {
            let most = down.carried_mbit * search::share_beside_bursts(burst_s);
            Some(down.rate_mbit?.min(most))
        };
        Self {
            down: down.and_then(rate),
            up: up.and_then(|up| up.rate_mbit),
        }
    }

    pub(crate) fn of(self, direction: Direction) -> Option<f64> {
        match direction {
            Direction::Download => self.down,
            Direction::Upload => self.up,
        }
    }

    /// The rates that the line carries.
    pub(crate) fn carried(down: Option<&DirectionResult>, up: Option<&DirectionResult>) -> Self {
        let carried = |found: &DirectionResult| found.carried_mbit;
        Self {
            down: down.map(carried),
            up: up.map(carried),
        }
    }

    fn scaled(self, scale: RateScale) -> Self {
        Self {
            down: self.down.map(|mbit| mbit * scale.down),
            up: self.up.map(|mbit| mbit * scale.up),
        }
    }
}

/// The final measurement, with all directions loaded that the server can load.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Verified {
    pub(crate) idle_ms: f64,
    /// The added latency: 95th percentile, ms.
    pub(crate) added_p95_ms: f64,
    pub(crate) download_mbit: f64,
    pub(crate) upload_mbit: f64,
}

/// The outcome of the joint verification.
pub(crate) struct Outcome {
    /// The final rates.
    pub(crate) rates: Rates,
    /// The final measurement, at these rates.
    pub(crate) verified: Verified,
    /// The part of the load at these rates, as a test result.
    pub(crate) result: TestResult,
    /// A message if the target is missed.
    pub(crate) warning: Option<String>,
}

/// The parameters of the joint verification.
pub(crate) struct JointVerification<'a> {
    pub(crate) server: &'a Server,
    /// The device that leads to the line.
    pub(crate) interface: &'a str,
    pub(crate) framing: Framing,
    /// The settings of the load, with flows in the directions that the server can load.
    pub(crate) settings: &'a Settings,
    /// The line's rate in each direction that was searched.
    pub(crate) carried: Rates,
    /// The latency that full-size packets alone add while these directions are loaded, ms.
    pub(crate) floor_ms: f64,
    /// The base round trip, ms.
    pub(crate) idle_ms: f64,
    /// Time between two probes, ms.
    pub(crate) probe_interval_ms: u64,
    /// The target: added latency, 95th percentile, ms.
    pub(crate) allowed_ms: f64,
    pub(crate) stop: &'a AtomicBool,
}

/// A scale that has been measured.
#[derive(Clone, Copy)]
struct Candidate {
    scale: RateScale,
    /// The span of the measurement, since the load began.
    from: Duration,
    to: Duration,
}

impl JointVerification<'_> {
    /// Sets `rates` by `shape`, and reduces them until the target is met or time is up.
    pub(crate) fn run(
        &self,
        rates: Rates,
        shape: &mut dyn FnMut(Rates) -> anyhow::Result<()>,
        log: &mut Log,
    ) -> Result<Outcome, SearchError> {
        let (direction, loaded) = self.description();
        if self.floor_ms > self.allowed_ms {
            log.step(
                direction,
                format!(
                    "full-size packets alone add up to {:.1} ms at these rates: this is the target instead of {:.1} ms",
                    self.floor_ms, self.allowed_ms
                ),
            );
        }
        let setup = LoadSetup {
            server: self.server,
            settings: Settings {
                idle_ms: IDLE_MS,
                settle_ms: START.as_millis() as u64,
                probe_interval_ms: self.probe_interval_ms,
                ..self.settings.clone()
            },
            title: None,
            interface: self.interface,
            framing: self.framing,
            stop: self.stop,
        };
        let (candidate, load) = setup.run(|observer| self.search(observer, rates, shape, log))?;
        let result = part(load, &candidate).ok_or_else(|| {
            SearchError::Measuring(Error::Settings(
                "the test of both directions left no result".to_owned(),
            ))
        })?;
        let summary = &result.summary;
        let verified = Verified {
            idle_ms: self.idle_ms,
            added_p95_ms: summary.latency_p95_ms.unwrap_or(f64::INFINITY) - self.idle_ms,
            download_mbit: summary.download_mbit.unwrap_or(0.0),
            upload_mbit: summary.upload_mbit.unwrap_or(0.0),
        };
        let (added_ms, limit_ms) = (verified.added_p95_ms, self.limit_ms());
        let is_within = added_ms <= limit_ms;
        let then = if is_within { "" } else { ", above target" };
        log.step(direction, format!("{loaded}, load adds {added_ms:.1} ms{then}"));
        Ok(Outcome {
            rates: rates.scaled(candidate.scale),
            warning: (!is_within).then(|| {
                format!(
                    "{loaded}, load adds {added_ms:.1} ms, above the target of {limit_ms:.1} ms; \
                     run tune again, or set lower rates"
                )
            }),
            verified,
            result,
        })
    }

    fn limit_ms(&self) -> f64 {
        self.allowed_ms.max(self.floor_ms)
    }

    fn description(&self) -> (Option<Direction>, &'static str) {
        match (self.settings.down, self.settings.up) {
            (_, 0) => (Some(Direction::Download), "with downloads alone"),
            (0, _) => (Some(Direction::Upload), "with uploads alone"),
            _ => (None, "with both directions loaded"),
        }
    }

    fn search(
        &self,
        observer: &LoadObserver<'_>,
        rates: Rates,
        shape: &mut dyn FnMut(Rates) -> anyhow::Result<()>,
        log: &mut Log,
    ) -> Result<Candidate, SearchError> {
        let (direction, loaded) = self.description();
        let mut backoff = self.backoff(rates);
        let mut last_good = None::<Candidate>;
        shape(rates.scaled(START_SCALE)).map_err(SearchError::Shaping)?;
        observer.wait_for_load()?;
        observer.measure(START)?;
        shape(rates.scaled(backoff.scale())).map_err(SearchError::Shaping)?;
        observer.measure(SETTLE)?;
        let (mut from, mut measured) = self.measure_current(observer, log)?;
        if (1.0..FAR).contains(&self.excess(&measured)) && measured.falls(self.idle_ms) && self.tries(log) > 0
        {
            (from, measured) = self.measure_current(observer, log)?;
        }
        loop {
            self.resolve_close_call(observer, &mut measured, log)?;
            let before = backoff.scale();
            let mut goes_on = self.update(&mut backoff, &measured, rates, log);
            if !goes_on {
                observer.extend(&mut measured, |measured| self.is_final(measured, log))?;
                goes_on = self.update(&mut backoff, &measured, rates, log);
            }
            let added_ms = measured.p95_ms() - self.idle_ms;
            let candidate = Candidate {
                scale: before,
                from,
                to: observer.elapsed(),
            };
            if !goes_on {
                // The last attempt was above rates that had met the target, and there is no time to measure those again.
                let lower = last_good.filter(|_| backoff.is_above_last_good());
                if lower.is_some() {
                    log.step(
                        direction,
                        format!(
                            "{loaded}, load adds {added_ms:.1} ms, above target: back to the last good rates"
                        ),
                    );
                }
                return Ok(lower.unwrap_or(candidate));
            }
            if self.excess(&measured) <= 1.0 {
                last_good = Some(candidate);
            }
            let scale = backoff.scale();
            let then = next_attempt(before, scale);
            log.step(direction, format!("{loaded}, load adds {added_ms:.1} ms: {then}"));
            shape(rates.scaled(scale)).map_err(SearchError::Shaping)?;
            observer.measure(SETTLE)?;
            (from, measured) = self.measure_current(observer, log)?;
        }
    }

    fn backoff(&self, rates: Rates) -> JointBackoff {
        let backoff = JointBackoff::new(self.settings.down > 0, self.settings.up > 0);
        let (Some(rate), Some(down), Some(up)) = (rates.down, self.carried.down, self.carried.up) else {
            return backoff;
        };
        let packet_ms = |mbit| self.framing.packet_mbit() / mbit * 1000.0;
        let at_first = backoff::initial_headroom(packet_ms(down), packet_ms(up), self.limit_ms());
        backoff.starting_lower(1.0 - rate / down, at_first)
    }

    /// Measures at the current rates. Returns when the measurement began, since the load began, and its result.
    fn measure_current(
        &self,
        observer: &LoadObserver<'_>,
        log: &Log,
    ) -> Result<(Duration, Measurement), SearchError> {
        let from = observer.elapsed();
        let mut measured = observer.measure(Duration::ZERO)?;
        observer.extend(&mut measured, |measured| {
            let is_short = measured.samples() < ENOUGH_SAMPLES && measured.length() < LONGER_MEASURE;
            let is_late = measured.length() >= SHORTEST_MEASURE && log.elapsed_s() >= END_S;
            measured.length() >= MEASURE && !is_short || is_late
        })?;
        Ok((from, measured))
    }

    /// Extends a measurement while it is a close call.
    fn resolve_close_call(
        &self,
        observer: &LoadObserver<'_>,
        measured: &mut Measurement,
        log: &Log,
    ) -> Result<(), SearchError> {
        observer.extend(measured, |measured| {
            let is_decided = !(1.0..CLOSE_CALL).contains(&self.excess(measured));
            is_decided || measured.length() >= LONGEST_MEASURE || log.elapsed_s() >= END_S
        })
    }

    /// True if a measurement is enough to end with: it clearly meets the target, or misses it while there is time for another attempt, or
    /// time is up.
    fn is_final(&self, measured: &Measurement, log: &Log) -> bool {
        let excess = self.excess(measured);
        let is_long = excess <= CLEAR || measured.length() >= LONG_FINAL;
        let is_enough = measured.samples() >= FINAL_SAMPLES && is_long || measured.length() >= LONGEST_FINAL;
        let is_certain = excess <= CERTAIN || excess > 1.0 && self.tries(log) > 0;
        is_enough && is_certain || log.elapsed_s() >= END_S
    }

    /// The number of further attempts that there is time for.
    fn tries(&self, log: &Log) -> u32 {
        ((END_S - log.elapsed_s()).max(0.0) / (SETTLE + MEASURE).as_secs_f64()) as u32
    }

    /// Added latency / allowed latency.
    fn excess(&self, measured: &Measurement) -> f64 {
        (measured.p95_ms() - self.idle_ms) / self.limit_ms()
    }

    fn update(&self, backoff: &mut JointBackoff, measured: &Measurement, rates: Rates, log: &Log) -> bool {
        // A loaded direction without a rate, because none helped, cannot be reduced.
        let can_fall = (rates.down.is_some() || self.settings.down == 0)
            && (rates.up.is_some() || self.settings.up == 0);
        let tries = if can_fall { self.tries(log) } else { 0 };
        backoff.update(self.excess(measured), tries)
    }
}

/// The next attempt, in words.
fn next_attempt(before: RateScale, next: RateScale) -> &'static str {
    match (next.down < before.down, next.up < before.up) {
        (true, false) => "above target, reducing the download",
        (false, true) => "above target, reducing the upload",
        (true, true) => "above target, reducing both",
        (false, false) => "within target, trying halfway to the last bad rates",
    }
}

/// The load as a test result whose figures are those of the final rates.
fn part(load: Load, candidate: &Candidate) -> Option<TestResult> {
    // Figures leave out the last `TAIL_MS` of a load, in which flows end. This part has no such end, so it gets one.
    load.part(
        candidate.from,
        candidate.to + Duration::from_millis(TAIL_MS),
        "as tuned",
    )
}

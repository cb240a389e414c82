//! A load that runs while the caller changes the shaper's rates and measures, until the caller ends it.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use sqm_core::direction::Direction;
use sqm_measure::client::{Hooks, Outcome, Progress, Stage};
use sqm_measure::result::{Settings, TestResult};
use sqm_measure::{Error, stats};

use super::capacity_estimate::CapacityEstimate;
use super::framing::Framing;
use super::server::Server;
use crate::log::SearchError;

// The values below are our choices.

/// A load that the caller does not end ends by itself after this long.
const LONGEST: Duration = Duration::from_secs(60);
/// A load that reports nothing for this long has failed.
const SILENCE: Duration = Duration::from_secs(15);
/// The interval at which a waiting thread checks whether it is to stop.
const POLL: Duration = Duration::from_millis(100);
/// Reports of the load that may wait to be read; it sends a few a second.
const MOST_PROGRESS: usize = 1024;
/// A load that has been asked to end counts as ended after this long.
const LONGEST_END: Duration = Duration::from_secs(10);
/// The caller waits this long for the error of a load that has failed.
const LAST_ERROR: Duration = Duration::from_millis(500);
/// The caller waits this long for the server's results of a load that has ended.
const RESULTS: Duration = Duration::from_secs(15);
/// Round trips that a median needs. Servers that are probed less often than `sqm serve` are measured for longer.
const ENOUGH_SAMPLES: usize = 20;
/// Such a measurement takes at most this many times the usual length.
const LONGEST_MEASUREMENT: u32 = 2;
/// A queue falls if its second half is below this share of its first half: flows that adapted to a new rate caused it. At a rate above the
/// line's it would stay or grow.
const FALLS: f64 = 0.8;

/// The parameters of a load.
pub(crate) struct LoadSetup<'a> {
    pub(crate) server: &'a Server,
    /// The settings of the flows. Their length of the load is ignored.
    pub(crate) settings: Settings,
    pub(crate) title: Option<&'static str>,
    /// The device that leads to the line.
    pub(crate) interface: &'a str,
    pub(crate) framing: Framing,
    pub(crate) stop: &'a AtomicBool,
}

impl LoadSetup<'_> {
    /// Loads the line until `observe` returns.
    pub(crate) fn run<T>(
        self,
        observe: impl FnOnce(&LoadObserver<'_>) -> Result<T, SearchError>,
    ) -> Result<(T, Load), SearchError> {
        let end = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = mpsc::sync_channel(MOST_PROGRESS);
        let (tell, outcome) = mpsc::channel();
        let (its_stop, server, title) = (end.clone(), self.server.clone(), self.title);
        let settings = Settings {
            load_ms: LONGEST.as_millis() as u64,
            after_ms: 0,
            ..self.settings.clone()
        };
        // The thread is never joined: a load that does not end is abandoned.
        thread::spawn(move || {
            let hooks = Hooks {
                // Reports that are not read in time are dropped.
                progress: &mut |progress| drop(sender.try_send(progress.clone())),
                stop: &its_stop,
                gauges: None,
            };
            drop(tell.send(server.load(settings, title, hooks)));
        });
        let load = Load(outcome);
        let observer = LoadObserver::new(receiver, &self);
        let measurement = observe(&observer);
        end.store(true, Ordering::Release);
        match measurement {
            Ok(measurement) => {
                // The flows end here. The server's results may come later.
                observer.wait_for_end();
                Ok((measurement, load))
            }
            // The load's own error says more than "reports nothing".
            Err(SearchError::Measuring(error)) => {
                Err(SearchError::Measuring(match load.ends_within(LAST_ERROR) {
                    Some(Err(own)) => own,
                    Some(Ok(outcome)) => outcome.failure.unwrap_or(error),
                    None => error,
                }))
            }
            Err(error) => {
                drop(load.ends_within(LAST_ERROR));
                Err(error)
            }
        }
    }
}

/// A load whose flows have ended; the server's results may still be under way.
pub(crate) struct Load(Receiver<Result<Outcome, Error>>);

impl Load {
    fn ends_within(&self, patience: Duration) -> Option<Result<Outcome, Error>> {
        self.0.recv_timeout(patience).ok()
    }

    /// Returns the load up to `end` as a test result of its own, whose figures are those after `from`. Times are since the load began.
    /// Waits for the server's results; `None` if they do not come.
    pub(crate) fn part(self, from: Duration, end: Duration, title: &str) -> Option<TestResult> {
        let result = self.ends_within(RESULTS)?.ok()?.result;
        let mut meta = result.meta;
        meta.partial = None;
        meta.title = Some(title.to_owned());
        meta.settings.settle_ms = from.as_millis() as u64;
        meta.settings.load_ms = end.as_millis() as u64;
        let end_ms = meta.settings.load_ms as f64;
        let flows = result.flows.into_iter().map(|mut flow| {
            flow.samples.retain(|sample| sample.t_ms <= end_ms);
            flow.sender.retain(|sample| sample.t_ms <= end_ms);
            flow.receiver.retain(|sample| sample.t_ms <= end_ms);
            flow.totals = None;
            flow
        });
        let probes = result.probes.into_iter().map(|mut series| {
            series.samples.retain(|probe| probe.due_ms <= end_ms);
            series
        });
        let (flows, probes) = (flows.collect(), probes.collect());
        Some(TestResult::new(meta, Vec::new(), flows, probes))
    }
}

/// Measures a running load.
pub(crate) struct LoadObserver<'a> {
    receiver: Receiver<Progress>,
    interface: &'a str,
    framing: Framing,
    stop: &'a AtomicBool,
    /// The direction whose rate is measured.
    direction: Direction,
    /// The last reading of the interface's byte counter, with its time.
    counted: Cell<(Instant, u64)>,
    /// When the load began.
    begun: Cell<Instant>,
}

/// The round trips and rates of a span of the load.
pub(crate) struct Measurement {
    round_trips_ms: Vec<f64>,
    /// The gross rate that the line carried.
    pub(crate) capacity: CapacityEstimate,
    length: Duration,
}

impl Measurement {
    pub(crate) fn p95_ms(&self) -> f64 {
        self.percentile_ms(95.0)
    }

    pub(crate) fn median_ms(&self) -> f64 {
        self.percentile_ms(50.0)
    }

    /// The 5th percentile: the shortest round trips, without outliers.
    pub(crate) fn shortest_ms(&self) -> f64 {
        self.percentile_ms(5.0)
    }

    /// The number of round trips.
    pub(crate) fn samples(&self) -> usize {
        self.round_trips_ms.len()
    }

    /// The length of the span.
    pub(crate) fn length(&self) -> Duration {
        self.length
    }

    /// True if the queue became shorter during the span ([`FALLS`]). `idle_ms` is the base round trip.
    pub(crate) fn falls(&self, idle_ms: f64) -> bool {
        let (early, late) = self.round_trips_ms.split_at(self.round_trips_ms.len() / 2);
        let standing = |round_trips| stats::median(round_trips).map(|ms| ms - idle_ms);
        let both = standing(early).zip(standing(late));
        both.is_some_and(|(early, late)| late < early * FALLS)
    }

    fn percentile_ms(&self, percent: f64) -> f64 {
        // No answers at all: the queue is longer than the measurement.
        stats::percentile(&self.round_trips_ms, percent).unwrap_or(f64::INFINITY)
    }
}

impl<'a> LoadObserver<'a> {
    fn new(receiver: Receiver<Progress>, setup: &LoadSetup<'a>) -> Self {
        let now = Instant::now();
        Self {
            receiver,
            interface: setup.interface,
            framing: setup.framing,
            stop: setup.stop,
            direction: match setup.settings.down {
                0 => Direction::Upload,
                _ => Direction::Download,
            },
            counted: Cell::new((now, received(setup.interface))),
            begun: Cell::new(now),
        }
    }

    /// The rate that the line carries now, Mbit/s gross. Downloads are counted by the interface, which does not depend on the order of the
    /// packets. Uploads are counted by TCP: the interface knows what it sends, but not what arrives.
    fn gross_mbit(&self, progress: &Progress) -> f64 {
        let framing = self.framing;
        let (now, bytes) = (Instant::now(), received(self.interface));
        let (before, last) = self.counted.replace((now, bytes));
        match self.direction {
            Direction::Download => {
                let seconds = (now - before).as_secs_f64().max(0.001);
                bytes.saturating_sub(last) as f64 * 8.0 / 1e6 / seconds * framing.per_counted()
            }
            Direction::Upload => progress.upload_mbit * framing.per_good() + framing.probes_mbit(),
        }
    }

    fn next(&self) -> Result<Progress, SearchError> {
        let begun = Instant::now();
        let reason = loop {
            if self.stop.load(Ordering::Acquire) {
                return Err(SearchError::Interrupted);
            }
            match self.receiver.recv_timeout(POLL) {
                Ok(progress) => return Ok(progress),
                Err(RecvTimeoutError::Timeout) if begun.elapsed() < SILENCE => {}
                Err(RecvTimeoutError::Timeout) => break "the test no longer reports anything",
                Err(RecvTimeoutError::Disconnected) => break "the test ended before the search did",
            }
        };
        Err(SearchError::Measuring(Error::Settings(reason.to_owned())))
    }

    /// Waits until the load begins. Returns the round trips of the idle line, ms.
    pub(crate) fn wait_for_load(&self) -> Result<Vec<f64>, SearchError> {
        let mut round_trips = Vec::new();
        loop {
            let progress = self.next()?;
            if progress.stage == Stage::Load {
                self.begun.set(Instant::now());
                return Ok(round_trips);
            }
            round_trips.extend(progress.round_trips.iter().map(|rtt| rtt.as_secs_f64() * 1000.0));
        }
    }

    /// The time since the load began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.get().elapsed()
    }

    /// Waits until the flows have ended or the search is to stop, at most [`LONGEST_END`].
    fn wait_for_end(&self) {
        let begun = Instant::now();
        while begun.elapsed() < LONGEST_END {
            match self.next() {
                Ok(progress) if progress.stage != Stage::Collect => {}
                _ => return,
            }
        }
    }

    /// Measures for a given time.
    pub(crate) fn measure(&self, length: Duration) -> Result<Measurement, SearchError> {
        let mut measurement = self.start_measurement();
        self.extend(&mut measurement, |measurement| measurement.length >= length)?;
        Ok(measurement)
    }

    /// Measures for a given time, and for longer if that gives too few round trips ([`ENOUGH_SAMPLES`]).
    pub(crate) fn measure_enough(&self, length: Duration) -> Result<Measurement, SearchError> {
        let mut measurement = self.start_measurement();
        self.extend(&mut measurement, |measurement| {
            measurement.length >= length
                && (measurement.samples() >= ENOUGH_SAMPLES
                    || measurement.length >= length * LONGEST_MEASUREMENT)
        })?;
        Ok(measurement)
    }

    /// Extends a measurement until `is_over`.
    pub(crate) fn extend(
        &self,
        measurement: &mut Measurement,
        is_over: impl Fn(&Measurement) -> bool,
    ) -> Result<(), SearchError> {
        let before = measurement.length;
        let begin = Instant::now();
        while !is_over(measurement) {
            let progress = self.next()?;
            let round_trips = progress.round_trips.iter();
            measurement
                .round_trips_ms
                .extend(round_trips.map(|rtt| rtt.as_secs_f64() * 1000.0));
            measurement.length = before + begin.elapsed();
            measurement
                .capacity
                .record(measurement.length, self.gross_mbit(&progress));
        }
        Ok(())
    }

    fn start_measurement(&self) -> Measurement {
        Measurement {
            round_trips_ms: Vec::new(),
            capacity: CapacityEstimate::new(self.framing.packet_mbit()),
            length: Duration::ZERO,
        }
    }

    /// Waits until the newest round trips are at most `limit_ms`, for at most `longest`.
    pub(crate) fn wait_until_drained(&self, limit_ms: f64, longest: Duration) -> Result<(), SearchError> {
        let end = Instant::now() + longest;
        while Instant::now() < end {
            let progress = self.next()?;
            let newest = progress.round_trips.iter().map(|rtt| rtt.as_secs_f64() * 1000.0);
            let mut newest = newest.peekable();
            if newest.peek().is_some() && newest.all(|ms| ms <= limit_ms) {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// The bytes that an interface has received so far.
fn received(interface: &str) -> u64 {
    let path = format!("/sys/class/net/{interface}/statistics/rx_bytes");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().parse().unwrap_or_default()
}

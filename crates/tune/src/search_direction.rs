//! Searches one direction: one load runs throughout while the shaper's rate changes.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sqm_core::direction::Direction;
use sqm_measure::result::direction_word;
use sqm_measure::result::{Settings, TestResult};
use sqm_measure::stats;

use super::framing::{Framing, LoadedRates, PROBE_INTERVAL_MS};
use super::load::{Load, LoadObserver, LoadSetup};
use super::search::Search;
use super::server::Server;
use crate::log::{Log, SearchError};

// Lengths of time are our choices, so that the whole search takes about 90 s (docs/design/tune.md).

/// Idle time before the load, in which the base round trip is measured.
const IDLE: Duration = Duration::from_secs(2);
/// The unshaped download is loaded for this long. Many lines are faster for the first ten seconds or more, so the line's rate is that of
/// the last part.
const UNSHAPED_DOWN: Duration = Duration::from_secs(15);
/// The unshaped upload is loaded for this long.
const UNSHAPED_UP: Duration = Duration::from_secs(9);
/// The first part of the unshaped load, in which a line may be faster.
const FIRST_PART: Duration = Duration::from_secs(3);
/// The last part of the unshaped download.
const LAST_PART_DOWN: Duration = Duration::from_secs(3);
/// The last part of the unshaped upload: longer, because uploads are slower and have fewer packets.
const LAST_PART_UP: Duration = Duration::from_secs(5);
/// A line is reported as faster at first if its first seconds have this multiple of its later rate. Our choice.
const BOOST: f64 = 1.15;
/// The flows start in this time, so its rate does not count.
const BEGINNING: Duration = Duration::from_secs(1);
/// The flows adapt to a new rate for this long before the measurement begins.
const SETTLE: Duration = Duration::from_millis(1000);
/// The least length of a measurement.
const MEASURE: Duration = Duration::from_millis(2250);
/// A rate is measured up to this many times while its queue still falls.
const MOST_MEASUREMENTS: u32 = 3;
/// With a good rate known, no attempt in the download begins later than this, in seconds since the start of the whole search: the upload
/// and the joint verification need the rest.
const LAST_ATTEMPT_DOWN_S: f64 = 36.0;
/// The last start of an attempt in the upload.
const LAST_ATTEMPT_UP_S: f64 = 58.0;
/// Without a good rate, attempts may begin this much later. If there is none then either, the joint verification measures the next rate.
const EXTENSION_S: f64 = 8.0;
/// On slow lines a standing queue may be this multiple of the time that full-size packets take: each flow has a packet or two at the line.
/// The joint verification then judges how often a probe waits for them. Our choice.
const FLOOR_MARGIN: f64 = 2.0;
/// A line with a standing queue that carries at most this share of the shaper's rate has become slower. Our choice.
const SLOWER: f64 = 0.93;
/// The shaper's rate while the modem's queue drains, a share of the line's rate. Our choice.
const DRAIN_RATE: f64 = 0.6;
/// The modem's queue gets at most this long to drain.
const LONGEST_DRAIN: Duration = Duration::from_secs(5);

/// The result of the search in one direction.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct DirectionResult {
    #[serde(with = "direction_word")]
    pub(crate) direction: Direction,
    /// The base round trip: the median on the idle line, ms.
    pub(crate) idle_ms: f64,
    /// The added latency of the unshaped load: 95th percentile, ms.
    pub(crate) bloat_ms: f64,
    /// The typical rate of the unshaped line, Mbit/s gross.
    pub(crate) unshaped_mbit: f64,
    /// The line's rate at the end of the search, Mbit/s gross: lower if the line has become slower meanwhile.
    pub(crate) carried_mbit: f64,
    /// The rate of the first seconds as a multiple of the later one; `None` if they were not faster.
    pub(crate) boost: Option<f64>,
    /// The highest rate that met the target, Mbit/s gross; if none did, the next rate to try. `None` if no rate helps.
    pub(crate) rate_mbit: Option<f64>,
    /// Every attempt, in order.
    pub(crate) tries: Vec<Attempt>,
}

/// One rate that was tried, and its queue.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(crate) struct Attempt {
    pub(crate) rate_mbit: f64,
    /// The delay of the standing queue: the median of the added latency, ms. Flows adapt to a new rate in bursts, which would dominate the
    /// 95th percentile of so short a measurement; the joint verification judges that percentile.
    pub(crate) standing_ms: f64,
    /// True if the standing queue is within the target.
    pub(crate) is_flat: bool,
}

/// Returns the part of a load in which the line was unshaped, as a test result of its own.
pub(crate) fn without_shaper(load: Load, direction: Direction) -> Option<TestResult> {
    let title = format!("{} without a shaper", direction.name());
    load.part(BEGINNING, unshaped(direction), &title)
}

fn unshaped(direction: Direction) -> Duration {
    match direction {
        Direction::Download => UNSHAPED_DOWN,
        Direction::Upload => UNSHAPED_UP,
    }
}

/// The parameters of a search in one direction.
pub(crate) struct SearchParams<'a> {
    pub(crate) server: &'a Server,
    pub(crate) direction: Direction,
    /// The device that leads to the line.
    pub(crate) interface: &'a str,
    /// The target: added latency, ms. On slow lines the search allows more ([`FLOOR_MARGIN`]).
    pub(crate) allowed_ms: f64,
    pub(crate) framing: Framing,
    /// The settings of the load's flows.
    pub(crate) settings: Settings,
    pub(crate) stop: &'a AtomicBool,
}

impl SearchParams<'_> {
    /// Searches one direction. `shape` sets the shaper's rate in Mbit/s, or removes its limit; `log` receives each step.
    pub(crate) fn run(
        &self,
        shape: &mut dyn FnMut(Option<f64>) -> anyhow::Result<()>,
        log: &mut Log,
    ) -> Result<(DirectionResult, Load), SearchError> {
        shape(None).map_err(SearchError::Shaping)?;
        let (down, up) = match self.direction {
            Direction::Download => (self.settings.down, 0),
            Direction::Upload => (0, self.settings.up),
        };
        let setup = LoadSetup {
            server: self.server,
            settings: Settings {
                down,
                up,
                idle_ms: IDLE.as_millis() as u64,
                settle_ms: BEGINNING.as_millis() as u64,
                probe_interval_ms: PROBE_INTERVAL_MS,
                ..self.settings.clone()
            },
            title: None,
            interface: self.interface,
            framing: self.framing,
            stop: self.stop,
        };
        setup.run(|observer| self.search(observer, shape, log))
    }

    fn search(
        &self,
        observer: &LoadObserver<'_>,
        shape: &mut dyn FnMut(Option<f64>) -> anyhow::Result<()>,
        log: &mut Log,
    ) -> Result<DirectionResult, SearchError> {
        let idle = observer.wait_for_load()?;
        let idle_ms = stats::median(&idle).unwrap_or_default();
        log.step(Some(self.direction), format!("idle: {idle_ms:.1} ms"));
        let early = observer.measure(FIRST_PART)?;
        let last_part = match self.direction {
            Direction::Download => LAST_PART_DOWN,
            Direction::Upload => LAST_PART_UP,
        };
        observer.measure(unshaped(self.direction) - FIRST_PART - last_part)?;
        let late = observer.measure(last_part)?;
        let bloat_ms = late.p95_ms() - idle_ms;
        let boost = (early.capacity.typical_after(BEGINNING) > late.capacity.typical() * BOOST)
            .then(|| early.capacity.typical_after(BEGINNING) / late.capacity.typical());
        let mut found = DirectionResult {
            direction: self.direction,
            idle_ms,
            bloat_ms,
            unshaped_mbit: late.capacity.typical(),
            carried_mbit: late.capacity.typical(),
            boost,
            rate_mbit: None,
            tries: Vec::new(),
        };
        log.step(
            Some(self.direction),
            format!(
                "unshaped: {:.2} Mbit/s, load adds {bloat_ms:.1} ms",
                found.unshaped_mbit
            ),
        );
        if let Some(boost) = boost {
            log.step(
                Some(self.direction),
                format!("the first seconds were {boost:.1} times as fast: using the rate after them"),
            );
        }
        let carried = found.unshaped_mbit;
        let mut search = Search::new(carried, late.capacity.peak(), self.framing.packet_mbit());
        let floor_ms = self.framing.floor_ms(LoadedRates::only(self.direction, carried));
        let allowed_ms = self.allowed_ms.max(floor_ms * FLOOR_MARGIN);
        let mut is_drained = bloat_ms <= allowed_ms;
        let last_s = match self.direction {
            Direction::Download => LAST_ATTEMPT_DOWN_S,
            Direction::Upload => LAST_ATTEMPT_UP_S,
        };
        while let Some(rate) = search.rate() {
            let late_s = log.elapsed_s() - last_s;
            if late_s > EXTENSION_S || late_s > 0.0 && search.best().is_some() {
                log.step(
                    Some(self.direction),
                    "out of time: no further attempts".to_owned(),
                );
                break;
            }
            if !is_drained {
                shape(Some(search.carried() * DRAIN_RATE)).map_err(SearchError::Shaping)?;
                observer.wait_until_drained(idle_ms + allowed_ms, LONGEST_DRAIN)?;
            }
            shape(Some(rate)).map_err(SearchError::Shaping)?;
            observer.measure(SETTLE)?;
            let mut measured = observer.measure_enough(MEASURE)?;
            for _ in 1..MOST_MEASUREMENTS {
                if measured.median_ms() - idle_ms <= allowed_ms || !measured.falls(idle_ms) {
                    break;
                }
                measured = observer.measure_enough(MEASURE)?;
            }
            let standing_ms = measured.median_ms() - idle_ms;
            let is_flat = standing_ms <= allowed_ms;
            log.step(
                Some(self.direction),
                format!(
                    "{rate:.2} Mbit/s: standing queue {standing_ms:.1} ms{}",
                    if is_flat { "" } else { ", above target" }
                ),
            );
            found.tries.push(Attempt {
                rate_mbit: rate,
                standing_ms,
                is_flat,
            });
            let before = search.carried();
            // Acknowledgements of lost packets can fill the other direction for a moment. Then there is a queue as well and the line
            // carries less, but not throughout the measurement.
            let is_busy = measured.shortest_ms() - idle_ms > allowed_ms;
            let is_slower = is_busy && measured.capacity.peak() < rate * SLOWER;
            search.update(is_flat, is_slower.then(|| measured.capacity.typical()));
            if search.carried() < before {
                log.step(
                    Some(self.direction),
                    format!(
                        "the line has become slower: it now carries {:.2} Mbit/s",
                        search.carried()
                    ),
                );
            }
            is_drained = is_flat;
        }
        found.carried_mbit = search.carried();
        found.rate_mbit = search.best().or_else(|| search.rate());
        Ok(found)
    }
}

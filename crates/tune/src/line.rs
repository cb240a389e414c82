//! The line under a load in one direction that goes on while the shaper's rate changes.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sqm_measure::result::{Direction, Settings, TestResult};
use sqm_measure::stats;

use super::framing::{Framing, Loaded, PROBE_INTERVAL_MS};
use super::load::{Load, Loading, View};
use super::search::Search;
use super::server::Server;
use crate::log::{Log, Trouble};

/// Idle time before it, for the latency to compare with.
const IDLE: Duration = Duration::from_secs(2);
/// The unshaped line is loaded for so long, and its rate is that of the last part: many lines are faster at first, downwards
/// for ten seconds and more. Uploads are slower, and their packets fewer.
const UNSHAPED_DOWN: Duration = Duration::from_secs(15);
const UNSHAPED_UP: Duration = Duration::from_secs(9);
const FIRST_PART: Duration = Duration::from_secs(3);
const LAST_PART_DOWN: Duration = Duration::from_secs(3);
const LAST_PART_UP: Duration = Duration::from_secs(5);
/// A line this much faster in its first seconds gives them away for nothing.
const BOOST: f64 = 1.15;
/// In which flows only begin.
const BEGINNING: Duration = Duration::from_secs(1);
/// After a new rate the flows need a moment, and then are looked at for so long.
const SETTLE: Duration = Duration::from_millis(1000);
const LOOK: Duration = Duration::from_millis(2250);
/// A queue that falls is looked at again, so often in all.
const MOST_LOOKS: u32 = 3;
/// With a flat rate known, no try begins after so many seconds of the whole: there must be time for the uploads, and for the test
/// of both. Without one there is so much more, and then the next rate is that test's to judge.
const LAST_TRY_DOWN_S: f64 = 36.0;
const LAST_TRY_UP_S: f64 = 58.0;
const AT_LAST_S: f64 = 8.0;
/// A queue stands if it is longer than the target, or on slow lines than so many times what full packets take: there each flow
/// has a packet or two at the line, and how often a probe meets them is the last test's to judge.
const STANDS: f64 = 2.0;
/// A line that is busy and carries no more than this share of the rate that is tried has become slower.
const SLOWER: f64 = 0.93;
/// What the queue in the modem is drained at, as a share of the line's rate, and for how long at most.
const DRAIN: f64 = 0.6;
const DRAIN_AT_MOST: Duration = Duration::from_secs(5);

/// What was found out of one direction.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Found {
    pub(crate) direction: Direction,
    /// Median round trip of the idle line, ms.
    pub(crate) idle_ms: f64,
    /// What the load added to it without a shaper: 95th percentile, ms.
    pub(crate) bloat_ms: f64,
    /// What the unshaped line carried, Mbit/s gross.
    pub(crate) unshaped_mbit: f64,
    /// What it carried in the end: less if it has become slower during the search.
    pub(crate) carried_mbit: f64,
    /// How much faster the first seconds were; none if they were not.
    pub(crate) boost: Option<f64>,
    /// The highest rate that was tried and kept latency flat, Mbit/s gross; none if no shaper is needed or none helps.
    pub(crate) rate_mbit: Option<f64>,
    /// Every try with its reason, in order.
    pub(crate) tries: Vec<Try>,
}

/// One rate that was tried.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(crate) struct Try {
    pub(crate) rate_mbit: f64,
    /// Median of what the load adds, ms: what stands in the queue. The bursts of flows that take up a new rate pass, and the
    /// 95th percentile of so short a time would be theirs; it is the final test's to judge.
    pub(crate) standing_ms: f64,
    pub(crate) is_flat: bool,
}

/// The part of a load in which nothing was shaped, as a test of its own.
pub(crate) fn without_shaper(load: Load, direction: Direction) -> Option<TestResult> {
    let title = format!("{} without a shaper", direction.word());
    load.part(BEGINNING, unshaped(direction), &title)
}

fn unshaped(direction: Direction) -> Duration {
    match direction {
        Direction::Down => UNSHAPED_DOWN,
        Direction::Up => UNSHAPED_UP,
    }
}

/// How to search.
pub(crate) struct Plan<'a> {
    pub(crate) server: &'a Server,
    pub(crate) direction: Direction,
    /// The device that leads to the line.
    pub(crate) interface: &'a str,
    /// Added latency that is allowed, 95th percentile, ms; on slow lines what full packets take.
    pub(crate) allowed_ms: f64,
    pub(crate) framing: Framing,
    /// Settings of the flows.
    pub(crate) settings: Settings,
    pub(crate) stop: &'a AtomicBool,
}

impl Plan<'_> {
    /// Searches one direction. `shape` sets its rate in Mbit/s, or lifts the limit; `log` what happens and why.
    pub(crate) fn run(
        &self,
        shape: &mut dyn FnMut(Option<f64>) -> anyhow::Result<()>,
        log: &mut Log,
    ) -> Result<(Found, Load), Trouble> {
        shape(None).map_err(Trouble::Shaping)?;
        let (down, up) = match self.direction {
            Direction::Down => (self.settings.down, 0),
            Direction::Up => (0, self.settings.up),
        };
        let loading = Loading {
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
        loading.run(|view| self.search(view, shape, log))
    }

    fn search(
        &self,
        view: &View<'_>,
        shape: &mut dyn FnMut(Option<f64>) -> anyhow::Result<()>,
        log: &mut Log,
    ) -> Result<Found, Trouble> {
        let idle = view.until_load()?;
        let idle_ms = stats::median(&idle).unwrap_or_default();
        log.say(Some(self.direction), format!("idle: {idle_ms:.1} ms"));
        let early = view.look(FIRST_PART)?;
        let last_part = match self.direction {
            Direction::Down => LAST_PART_DOWN,
            Direction::Up => LAST_PART_UP,
        };
        view.look(unshaped(self.direction) - FIRST_PART - last_part)?;
        let late = view.look(last_part)?;
        let bloat_ms = late.p95_ms() - idle_ms;
        let boost = (early.carried.usual_after(BEGINNING) > late.carried.usual() * BOOST)
            .then(|| early.carried.usual_after(BEGINNING) / late.carried.usual());
        let mut found = Found {
            direction: self.direction,
            idle_ms,
            bloat_ms,
            unshaped_mbit: late.carried.usual(),
            carried_mbit: late.carried.usual(),
            boost,
            rate_mbit: None,
            tries: Vec::new(),
        };
        log.say(
            Some(self.direction),
            format!(
                "unshaped: {:.2} Mbit/s, load adds {bloat_ms:.1} ms",
                found.unshaped_mbit
            ),
        );
        if let Some(boost) = boost {
            log.say(
                Some(self.direction),
                format!(
                    "the first seconds were {boost:.1} times as fast: the rate is that of the time after them"
                ),
            );
        }
        let carried = found.unshaped_mbit;
        let mut search = Search::new(carried, late.carried.best(), self.framing.packet_mbit());
        let floor_ms = self.framing.floor_ms(Loaded::only(self.direction, carried));
        let allowed_ms = self.allowed_ms.max(floor_ms * STANDS);
        let mut is_drained = bloat_ms <= allowed_ms;
        let last_s = match self.direction {
            Direction::Down => LAST_TRY_DOWN_S,
            Direction::Up => LAST_TRY_UP_S,
        };
        while let Some(rate) = search.rate() {
            let late_s = log.elapsed_s() - last_s;
            if late_s > AT_LAST_S || late_s > 0.0 && search.best().is_some() {
                log.say(Some(self.direction), "no time for more".to_owned());
                break;
            }
            if !is_drained {
                shape(Some(search.carried() * DRAIN)).map_err(Trouble::Shaping)?;
                view.until_flat(idle_ms + allowed_ms, DRAIN_AT_MOST)?;
            }
            shape(Some(rate)).map_err(Trouble::Shaping)?;
            view.look(SETTLE)?;
            let mut seen = view.look_well(LOOK)?;
            for _ in 1..MOST_LOOKS {
                if seen.median_ms() - idle_ms <= allowed_ms || !seen.falls(idle_ms) {
                    break;
                }
                seen = view.look_well(LOOK)?;
            }
            let standing_ms = seen.median_ms() - idle_ms;
            let is_flat = standing_ms <= allowed_ms;
            log.say(
                Some(self.direction),
                format!(
                    "{rate:.2} Mbit/s: {standing_ms:.1} ms stand in the queue{}",
                    if is_flat { "" } else { ", too much" }
                ),
            );
            found.tries.push(Try {
                rate_mbit: rate,
                standing_ms,
                is_flat,
            });
            let before = search.carried();
            // Acknowledgements of lost packets can fill the other direction for a moment: then there is a queue, too, and less is
            // carried, but not throughout.
            let is_busy = seen.shortest_ms() - idle_ms > allowed_ms;
            let is_slower = is_busy && seen.carried.best() < rate * SLOWER;
            search.judge(is_flat, is_slower.then(|| seen.carried.usual()));
            if search.carried() < before {
                log.say(
                    Some(self.direction),
                    format!(
                        "the line has become slower: it carries {:.2} Mbit/s now",
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

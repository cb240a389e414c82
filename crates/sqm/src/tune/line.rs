//! The line under a load that goes on while the shaper's rates change.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use sqm_measure::client::{Hooks, Outcome, Progress, Stage};
use sqm_measure::result::{Direction, Settings, TestResult};
use sqm_measure::{Error, stats};

use super::carried::Carried;
use super::framing::{Framing, Loaded, PROBE_INTERVAL_MS};
use super::search::Search;
use super::server::Server;
use super::{Log, Trouble};

/// A load that is not ended by its owner ends by itself.
const LONGEST_LOAD: Duration = Duration::from_secs(60);
/// Idle time before it, for the latency to compare with.
const IDLE: Duration = Duration::from_secs(2);
/// The unshaped line is loaded for so long, and its rate is that of the last part: many lines are faster at first, downwards
/// for ten seconds and more.
const UNSHAPED_DOWN: Duration = Duration::from_secs(15);
const UNSHAPED_UP: Duration = Duration::from_secs(9);
const LAST_PART: Duration = Duration::from_secs(3);
/// A line this much faster in its first seconds gives them away for nothing.
const BOOST: f64 = 1.15;
/// In which flows only begin.
const BEGINNING: Duration = Duration::from_secs(1);
/// After a new rate the flows need a moment, and then are looked at for so long.
const SETTLE: Duration = Duration::from_millis(1000);
const LOOK: Duration = Duration::from_millis(2250);
/// Fewer round trips have no 95th percentile. Who is asked less often than `sqm serve` is looked at for longer, up to so often
/// the time.
const ENOUGH: usize = 20;
const LONGEST_LOOK: u32 = 2;
/// A queue that falls to this share within a look is left from flows that took up the rate: it stays or grows at a rate above
/// the line's. So it is looked at again, so often in all.
const FALLS: f64 = 0.8;
const MOST_LOOKS: u32 = 3;
/// With a flat rate known, no try begins after so many seconds of the whole: there must be time for the uploads, and for the test
/// of both.
const LAST_TRY_DOWN_S: f64 = 38.0;
const LAST_TRY_UP_S: f64 = 58.0;
/// What the queue in the modem is drained at, as a share of the line's rate, and for how long at most.
const DRAIN: f64 = 0.6;
const DRAIN_AT_MOST: Duration = Duration::from_secs(8);
/// A test that says nothing for so long is lost.
const SILENCE: Duration = Duration::from_secs(15);

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
    /// How much faster the first seconds were; none if they were not.
    pub(crate) boost: Option<f64>,
    /// A little less than the highest rate that keeps latency flat, Mbit/s gross; none if no shaper is needed or none helps.
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

/// A load that has ended, but for what the server has to tell of it.
pub(crate) struct Load(thread::JoinHandle<Result<Outcome, Error>>);

impl Load {
    /// The part of it in which nothing was shaped, as a test of its own.
    pub(crate) fn unshaped(self, direction: Direction) -> Option<TestResult> {
        let result = self.0.join().ok()?.ok()?.result;
        let mut meta = result.meta;
        meta.partial = None;
        meta.title = Some(format!("{} without a shaper", direction.word()));
        meta.settings.load_ms = unshaped(direction).as_millis() as u64;
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
        let settings = Settings {
            down,
            up,
            idle_ms: IDLE.as_millis() as u64,
            load_ms: LONGEST_LOAD.as_millis() as u64,
            after_ms: 0,
            settle_ms: 1000,
            probe_interval_ms: PROBE_INTERVAL_MS,
            ..self.settings.clone()
        };
        let end = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = mpsc::channel();
        let (theirs, server) = (end.clone(), self.server.clone());
        let load = thread::spawn(move || {
            let hooks = Hooks {
                progress: &mut |progress| drop(sender.send(progress.clone())),
                stop: &theirs,
                readings: None,
            };
            server.load(settings, None, hooks)
        });
        let view = View::new(receiver, self);
        let found = self.search(&view, shape, log);
        end.store(true, Ordering::Release);
        match found {
            Ok(found) => {
                // The flows have ended then. What the server has to tell of them may come later.
                view.until_over();
                Ok((found, Load(load)))
            }
            // The load's own words say more than that it fell silent.
            Err(Trouble::Measuring(error)) => Err(Trouble::Measuring(match load.join() {
                Ok(Err(own)) => own,
                Ok(Ok(outcome)) => outcome.trouble.unwrap_or(error),
                Err(_) => error,
            })),
            Err(trouble) => {
                drop(load.join());
                Err(trouble)
            }
        }
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
        let early = view.look(LAST_PART)?;
        view.look(unshaped(self.direction) - LAST_PART * 2)?;
        let late = view.look(LAST_PART)?;
        let bloat_ms = late.p95_ms() - idle_ms;
        let boost = (early.carried.usual_after(BEGINNING) > late.carried.usual() * BOOST)
            .then(|| early.carried.usual_after(BEGINNING) / late.carried.usual());
        let mut found = Found {
            direction: self.direction,
            idle_ms,
            bloat_ms,
            unshaped_mbit: late.carried.usual(),
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
        let mut search = Search::new(carried, late.carried.best());
        let floor_ms = self.framing.floor_ms(Loaded::only(self.direction, carried));
        let allowed_ms = self.allowed_ms.max(floor_ms);
        let mut is_drained = bloat_ms <= allowed_ms;
        let last_s = match self.direction {
            Direction::Down => LAST_TRY_DOWN_S,
            Direction::Up => LAST_TRY_UP_S,
        };
        while let Some(rate) = search.rate() {
            if search.best().is_some() && log.elapsed_s() > last_s {
                log.say(Some(self.direction), "no time for more".to_owned());
                break;
            }
            if !is_drained {
                shape(Some(carried * DRAIN)).map_err(Trouble::Shaping)?;
                view.until_flat(idle_ms + allowed_ms)?;
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
            search.judge(is_flat);
            is_drained = is_flat;
        }
        found.rate_mbit = search.advice(self.framing.packet_mbit());
        Ok(found)
    }
}

/// The load as it is seen from here.
struct View<'a> {
    receiver: Receiver<Progress>,
    plan: &'a Plan<'a>,
    /// When the interface's counter was last read, and what it said.
    counted: Cell<(Instant, u64)>,
}

/// What was seen for a while.
struct Seen {
    round_trips_ms: Vec<f64>,
    /// Gross.
    carried: Carried,
}

impl Seen {
    fn p95_ms(&self) -> f64 {
        self.percentile_ms(95.0)
    }

    fn median_ms(&self) -> f64 {
        self.percentile_ms(50.0)
    }

    /// Whether the queue became shorter.
    fn falls(&self, idle_ms: f64) -> bool {
        let (early, late) = self.round_trips_ms.split_at(self.round_trips_ms.len() / 2);
        let standing = |round_trips| stats::median(round_trips).map(|ms| ms - idle_ms);
        let both = standing(early).zip(standing(late));
        both.is_some_and(|(early, late)| late < early * FALLS)
    }

    fn percentile_ms(&self, percent: f64) -> f64 {
        // A queue so long that nothing came back is no short one.
        stats::percentile(&self.round_trips_ms, percent).unwrap_or(f64::INFINITY)
    }
}

impl<'a> View<'a> {
    fn new(receiver: Receiver<Progress>, plan: &'a Plan<'a>) -> Self {
        let counted = Cell::new((Instant::now(), received(plan.interface)));
        Self {
            receiver,
            plan,
            counted,
        }
    }

    /// What the line carries now, Mbit/s. Downwards the interface knows, whatever order the packets come in; upwards it
    /// knows only what it sends, and TCP knows what arrives.
    fn gross_mbit(&self, progress: &Progress) -> f64 {
        let framing = self.plan.framing;
        let (now, bytes) = (Instant::now(), received(self.plan.interface));
        let (before, last) = self.counted.replace((now, bytes));
        match self.plan.direction {
            Direction::Down => {
                let seconds = (now - before).as_secs_f64().max(0.001);
                bytes.saturating_sub(last) as f64 * 8.0 / 1e6 / seconds * framing.per_counted()
            }
            Direction::Up => progress.upload_mbit * framing.per_good() + framing.probes_mbit(),
        }
    }

    fn next(&self) -> Result<Progress, Trouble> {
        if self.plan.stop.load(Ordering::Acquire) {
            return Err(Trouble::Interrupted);
        }
        self.receiver.recv_timeout(SILENCE).map_err(|lost| {
            let what = match lost {
                RecvTimeoutError::Timeout => "the test says nothing any more",
                RecvTimeoutError::Disconnected => "the test ended before the search did",
            };
            Trouble::Measuring(Error::Settings(what.to_owned()))
        })
    }

    /// The idle line's round trips.
    fn until_load(&self) -> Result<Vec<f64>, Trouble> {
        let mut round_trips = Vec::new();
        loop {
            let progress = self.next()?;
            if progress.stage == Stage::Load {
                return Ok(round_trips);
            }
            round_trips.extend(progress.round_trips.iter().map(|rtt| rtt.as_secs_f64() * 1000.0));
        }
    }

    /// Until there is no load any more.
    fn until_over(&self) {
        while let Ok(progress) = self.receiver.recv_timeout(SILENCE) {
            if progress.stage == Stage::Collect {
                return;
            }
        }
    }

    /// Looks for so long.
    fn look(&self, length: Duration) -> Result<Seen, Trouble> {
        self.look_until(|elapsed, _| elapsed >= length)
    }

    /// The same, but for longer at a line of which too little is heard.
    fn look_well(&self, length: Duration) -> Result<Seen, Trouble> {
        self.look_until(|elapsed, heard| {
            elapsed >= length && (heard >= ENOUGH || elapsed >= length * LONGEST_LOOK)
        })
    }

    /// Looks until enough time has passed and so many round trips were heard of.
    fn look_until(&self, is_over: impl Fn(Duration, usize) -> bool) -> Result<Seen, Trouble> {
        let mut seen = Seen {
            round_trips_ms: Vec::new(),
            carried: Carried::new(self.plan.framing.packet_mbit()),
        };
        let begin = Instant::now();
        while !is_over(begin.elapsed(), seen.round_trips_ms.len()) {
            let progress = self.next()?;
            let round_trips = progress.round_trips.iter();
            seen.round_trips_ms
                .extend(round_trips.map(|rtt| rtt.as_secs_f64() * 1000.0));
            seen.carried.note(begin.elapsed(), self.gross_mbit(&progress));
        }
        Ok(seen)
    }

    /// Waits until the newest round trips are this short.
    fn until_flat(&self, limit_ms: f64) -> Result<(), Trouble> {
        let end = Instant::now() + DRAIN_AT_MOST;
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

/// Bytes that an interface has received so far.
fn received(interface: &str) -> u64 {
    let path = format!("/sys/class/net/{interface}/statistics/rx_bytes");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().parse().unwrap_or_default()
}

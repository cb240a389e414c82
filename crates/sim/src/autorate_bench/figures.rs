//! The figures of a run.

use sqm_autorate::Reason;
use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::{Bytes, Instant, Nanos, Rate};

use super::START;
use super::trace::Trace;

/// The figures of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Share of the time in which the queue delay of a round trip was above 30 ms, percent.
    pub above_30_ms_percent: f64,
    /// 95th percentile of the queue delay of a round trip.
    pub delay_p95: Nanos,
    /// 95th percentile of the queue delay of a round trip while at least one direction is loaded.
    pub loaded_delay_p95: Nanos,
    /// Delivered data, in bytes of whole frames.
    pub delivered: PerDirection<Bytes>,
    /// Share of the capacity that was used while the direction was loaded, percent.
    pub utilisation_percent: PerDirection<f64>,
    /// Cuts without a queue, per hour.
    pub false_cuts_per_hour: f64,
    /// Recovery after each sudden drop of the capacity of a loaded direction.
    pub falls: Vec<Recovery>,
    /// Recovery after each sudden rise of the capacity of a loaded direction.
    pub rises: Vec<Recovery>,
    /// Probes sent per second.
    pub probes_per_second: f64,
}

/// The least amount of data in the utility, megabytes: a direction that carries nothing does not count endlessly. A choice.
const LEAST_MBYTES: f64 = 0.001;
/// The weight of the share of time with a queue above 30 ms: all of it is worth a factor of e² in bytes. A choice.
const DELAY_WEIGHT: f64 = 2.0;

impl Figures {
    /// The value of a run in one number: `ln(download MB) + ln(upload MB) − 2 · share of time above 30 ms`. A tenth more bytes of
    /// one direction is worth a twentieth of the time.
    pub fn utility(&self) -> f64 {
        let worth = |bytes: Bytes| (bytes.0 as f64 / 1e6).max(LEAST_MBYTES).ln();
        worth(self.delivered.download) + worth(self.delivered.upload)
            - DELAY_WEIGHT * self.above_30_ms_percent / 100.0
    }
}

/// How fast a controller followed a step of the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Time of the step since the start.
    pub at: Nanos,
    /// The direction whose capacity changed.
    pub direction: Direction,
    /// Time until the rate had been at most the new capacity (after a drop) or at least four fifths of it (after a rise) for
    /// half a second; `None` if that did not happen before the next step.
    pub rate_followed_after: Option<Nanos>,
    /// Time until the queue delay had been below 30 ms for half a second.
    pub delay_gone_after: Option<Nanos>,
}

/// A step by at least this factor is sudden. A choice.
const SUDDEN_PERCENT: u64 = 150;
/// A capacity that changes by less than this is steady. A choice.
const HOLDS_FOR: Nanos = Nanos::from_millis(500);
const LIMIT: Nanos = Nanos::from_millis(30);
/// A cut is justified by a queue this long, or a rate above the capacity, within this time and a round trip before it. Choices.
const JUSTIFIED: Nanos = Nanos::from_millis(3);
const MEMORY: Nanos = Nanos::from_millis(1000);

/// Collects the [`Figures`] during a run.
#[derive(Debug)]
pub(super) struct Collector<'a> {
    trace: &'a Trace,
    /// Histogram of the queue delay of a round trip, in steps of 10 µs.
    delays: Histogram,
    loaded_delays: Histogram,
    above: u64,
    observations: u64,
    delivered: PerDirection<Bytes>,
    /// When each direction last had a queue, or a rate above its capacity.
    guilty_at: PerDirection<Instant>,
    rates: PerDirection<Option<Rate>>,
    false_cuts: u64,
    steps: Vec<Step>,
    probes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    at: Instant,
    until: Instant,
    direction: Direction,
    capacity: Rate,
    is_fall: bool,
    rate_good_since: Option<Instant>,
    rate_done: bool,
    delay_good_since: Option<Instant>,
    delay_done: bool,
}

impl<'a> Collector<'a> {
    pub(super) fn new(trace: &'a Trace) -> Self {
        Self {
            trace,
            delays: Histogram::default(),
            loaded_delays: Histogram::default(),
            above: 0,
            observations: 0,
            delivered: PerDirection {
                download: Bytes(0),
                upload: Bytes(0),
            },
            guilty_at: PerDirection {
                download: START,
                upload: START,
            },
            rates: PerDirection::default(),
            false_cuts: 0,
            steps: sudden_steps(trace),
            probes: 0,
        }
    }

    pub(super) const fn on_probe(&mut self) {
        self.probes += 1;
    }

    pub(super) fn on_delivery(&mut self, direction: Direction, size: Bytes) {
        self.delivered[direction].0 += size.0;
    }

    /// Records the queue delay of the line's buffers, alone and with that of the shapers.
    pub(super) fn on_look(&mut self, now: Instant, buffers: PerDirection<Nanos>, whole: PerDirection<Nanos>) {
        let added = Nanos(whole.download.0 + whole.upload.0);
        self.observations += 1;
        self.above += u64::from(added > LIMIT);
        self.delays.add(added);
        let load = self.trace.load_at(now);
        if load.download_loaded() || load.upload_loaded() {
            self.loaded_delays.add(added);
        }
        for direction in Direction::BOTH {
            let too_fast =
                self.rates[direction].is_some_and(|rate| rate > self.trace.lines[direction].at(now));
            if buffers[direction] > JUSTIFIED || too_fast {
                self.guilty_at[direction] = now;
            }
        }
        for step in self
            .steps
            .iter_mut()
            .filter(|step| step.at <= now && now < step.until)
        {
            let rate = self.rates[step.direction].unwrap_or(step.capacity).bits_per_sec();
            let capacity = step.capacity.bits_per_sec();
            let followed = if step.is_fall {
                rate <= capacity
            } else {
                rate >= capacity / 5 * 4
            };
            note(followed, now, &mut step.rate_good_since, &mut step.rate_done);
            note(
                added < LIMIT,
                now,
                &mut step.delay_good_since,
                &mut step.delay_done,
            );
        }
    }

    pub(super) fn on_decision(&mut self, now: Instant, direction: Direction, rate: Rate, reason: Reason) {
        let memory = Nanos(MEMORY.0 + self.trace.rtt.0);
        let is_lower = self.rates[direction].is_some_and(|last| rate < last);
        if is_lower && reason.is_cut() && now.since(self.guilty_at[direction]) > memory {
            self.false_cuts += 1;
        }
        self.rates[direction] = Some(rate);
    }

    pub(super) fn finish(self) -> Figures {
        let seconds = self.trace.length.0 as f64 / 1e9;
        let possible = self.trace.possible();
        let utilisation = |direction| match possible[direction].0 {
            0 => 0.0,
            possible => 100.0 * self.delivered[direction].0 as f64 / possible as f64,
        };
        let recoveries = |is_fall| {
            let steps = self.steps.iter().filter(move |step| step.is_fall == is_fall);
            steps.map(Step::recovery).collect()
        };
        Figures {
            above_30_ms_percent: 100.0 * self.above as f64 / self.observations.max(1) as f64,
            delay_p95: self.delays.percentile(95),
            loaded_delay_p95: self.loaded_delays.percentile(95),
            delivered: self.delivered,
            utilisation_percent: PerDirection {
                download: utilisation(Direction::Download),
                upload: utilisation(Direction::Upload),
            },
            false_cuts_per_hour: self.false_cuts as f64 * 3600.0 / seconds,
            falls: recoveries(true),
            rises: recoveries(false),
            probes_per_second: self.probes as f64 / seconds,
        }
    }
}

impl Step {
    fn recovery(&self) -> Recovery {
        let after = |since: Option<Instant>, done| since.filter(|_| done).map(|since| since.since(self.at));
        Recovery {
            at: self.at.since(START),
            direction: self.direction,
            rate_followed_after: after(self.rate_good_since, self.rate_done),
            delay_gone_after: after(self.delay_good_since, self.delay_done),
        }
    }
}

/// Detects that a condition has held for long enough.
fn note(holds: bool, now: Instant, since: &mut Option<Instant>, done: &mut bool) {
    if *done {
        return;
    }
    if holds {
        let began = *since.get_or_insert(now);
        *done = now.since(began) >= HOLDS_FOR;
    } else {
        *since = None;
    }
}

/// Steps of the capacity of a loaded direction after which capacity and load stay for at least five seconds.
fn sudden_steps(trace: &Trace) -> Vec<Step> {
    const STAYS: Nanos = Nanos::from_millis(5000);
    let mut steps = Vec::new();
    for direction in Direction::BOTH {
        let line = trace.lines[direction].steps();
        for (index, pair) in line.windows(2).enumerate() {
            let [(_, before), (at, after)] = [pair[0], pair[1]];
            let until = line.get(index + 2).map_or_else(|| trace.end(), |(next, _)| *next);
            let [before, after] = [before, after].map(Rate::bits_per_sec);
            let sudden = before.max(after) * 100 >= before.min(after) * SUDDEN_PERCENT;
            let loaded = trace.load_at(at).loads(direction);
            let until = until.min(trace.load_changes_after(at, direction));
            if sudden && loaded && at > START && until.since(at) >= STAYS {
                steps.push(Step {
                    at,
                    until,
                    direction,
                    capacity: pair[1].1,
                    is_fall: after < before,
                    rate_good_since: None,
                    rate_done: false,
                    delay_good_since: None,
                    delay_done: false,
                });
            }
        }
    }
    steps
}

/// A histogram of delays in steps of 10 µs, up to 20 s.
#[derive(Debug, Default)]
struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Histogram {
    const STEP: u64 = 10_000;
    const STEPS: usize = 2_000_000;

    fn add(&mut self, delay: Nanos) {
        let step = usize::try_from(delay.0 / Self::STEP).unwrap_or(usize::MAX);
        let step = step.min(Self::STEPS - 1);
        if self.counts.len() <= step {
            self.counts.resize(step + 1, 0);
        }
        self.counts[step] += 1;
        self.total += 1;
    }

    fn percentile(&self, percent: u64) -> Nanos {
        let wanted = self.total * percent / 100;
        let mut seen = 0;
        let step = self.counts.iter().position(|count| {
            seen += count;
            seen > wanted
        });
        Nanos(step.unwrap_or(0) as u64 * Self::STEP)
    }
}

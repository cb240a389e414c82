//! What passes in one direction, and since when.

mod rate_history;

use crate::{SECOND, scale};
pub(crate) use rate_history::RateHistory;
use rate_history::Span;
use sqm_core::units::{Bytes, Instant, Nanos, Rate};

/// A direction loaded less than this share of its rate for a while needs few probes.
pub(crate) const ACTIVE_PERMILLE: u64 = 20;
/// Shaped traffic at this share of the rate can have a queue at the line; 75 % as in cake-autorate.
pub(crate) const LOADED_PERMILLE: u64 = 750;
/// A download that the line holds back does not reach the share above; a queue with this much traffic is its own.
pub(crate) const BUSY_PERMILLE: u64 = 400;
/// A queue is gone so long after the last traffic to speak of.
pub(crate) const QUEUE_LASTS: Nanos = Nanos::from_millis(1000);
/// As much of what senders may send fills a direction, or nearly so, thousandths.
pub(crate) const NEARLY_FILLED: u64 = 900;
/// One of which as little arrives while it was loaded is held back by the line: no sender's own decrease is as deep.
pub(crate) const STARVED_LOAD_RATIO: u64 = 500;
/// A load begins where this much of the rate comes at once, thousandths, after no more than that.
const BEGINS_WITH: u64 = 200;
const BEGINS_AFTER: u64 = 50;
/// Senders that have just begun send too much before they have learned what the line carries.
const BEGINS: Nanos = Nanos::from_millis(600);
/// What the line carried is not known any more when nothing has shown it for so long.
const RESTED: Nanos = Nanos::from_millis(3000);
/// Senders follow a rising rate by this much in a second, thousandths.
const FOLLOWS: u64 = 400;
/// A span with less than this of the most, thousandths, had a gap in it, if the last one has this again.
const GAP: u64 = 500;
const BACK: u64 = 750;
/// A direction loaded with less than this share of its rate, thousandths, makes no queue.
const SOME: u64 = 100;

/// The traffic of one direction: a mean over the last 200 ms or so, and when it last mattered.
#[derive(Clone, Debug)]
pub(crate) struct Throughput {
    pub(crate) history: RateHistory,
    rate: u64,
    /// What senders may know of it.
    pub(crate) allowed: u64,
    updated_at: Instant,
    pub(crate) loaded_at: Instant,
    busy_at: Instant,
    /// When it last had enough for a queue, if the line is not far slower than was found.
    some_at: Instant,
    /// When it last had nearly all that it may.
    pub(crate) filled_at: Instant,
    /// When it last began at once, after a pause.
    began_at: Instant,
    pub(crate) active_at: Instant,
    was_loaded: bool,
}

impl Throughput {
    const SPANS: usize = 4;
    /// Between bursts of packets, "loaded" holds on for this long.
    const HOLD_RATIO: Nanos = Nanos::from_millis(400);
    /// Without a report for this long, nothing passes.
    const SILENT: Nanos = Nanos::from_millis(1000);

    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            history: RateHistory::new(),
            rate: 0,
            allowed: 0,
            updated_at: now,
            loaded_at: now,
            busy_at: Instant(0),
            some_at: now,
            filled_at: Instant(0),
            began_at: Instant(0),
            active_at: now,
            was_loaded: false,
        }
    }

    pub(crate) fn add(&mut self, now: Instant, bytes: Bytes, span: Nanos, rate: Rate) {
        if span.0 == 0 {
            return;
        }
        self.history.add(now, bytes, span);
        self.updated_at = now;
        self.rate = rate.bits_per_sec();
        // Senders hear of a higher rate later; of a lower one too, but what arrives until then is no overshoot of theirs.
        let follows = scale(self.allowed, 1000 + scale(FOLLOWS, span.0, SECOND), 1000);
        self.allowed = self.rate.min(follows.max(self.rate / 2));
        if self.latest().bits_per_sec() >= scale(self.allowed, NEARLY_FILLED, 1000) {
            self.filled_at = now;
        }
        if self.share() >= ACTIVE_PERMILLE {
            self.active_at = now;
        }
        if self.share().max(self.share_lately()) >= SOME {
            self.some_at = now;
        }
        if self.begins(now) {
            self.began_at = now;
        }
        if self.share().max(self.share_lately()) >= BUSY_PERMILLE {
            self.busy_at = now;
        }
        if self.share() >= LOADED_PERMILLE {
            self.loaded_at = now;
            self.was_loaded = true;
        }
    }

    pub(crate) fn on_time(&mut self, now: Instant) {
        if now.since(self.updated_at) >= Self::SILENT && self.spans().iter().any(|span| span.length().0 > 0) {
            for _ in 0..Self::SPANS {
                self.history.add(now, Bytes(0), Nanos(0));
            }
        }
    }

    pub(crate) fn is_loaded(&self, now: Instant) -> bool {
        self.was_loaded_within(now, Self::HOLD_RATIO)
    }

    pub(crate) fn was_loaded_within(&self, now: Instant, span: Nanos) -> bool {
        self.was_loaded && now.since(self.loaded_at) <= span
    }

    pub(crate) fn has_just_begun(&self, now: Instant) -> bool {
        now.since(self.began_at) < BEGINS
    }

    pub(crate) fn has_rested(&self, now: Instant) -> bool {
        now.since(self.busy_at) > RESTED
    }

    /// Whether there has been no queue for a while.
    pub(crate) fn has_no_queue(&self, now: Instant) -> bool {
        now.since(self.some_at) > QUEUE_LASTS
    }

    pub(crate) fn has_traffic(&self) -> bool {
        self.latest().bits_per_sec() >= scale(self.allowed, ACTIVE_PERMILLE, 1000)
    }

    pub(crate) fn achieved(&self) -> Rate {
        mean(&self.spans())
    }

    pub(crate) fn latest(&self) -> Rate {
        mean(&self.spans()[Self::SPANS / 2..])
    }

    /// The most that any of the spans carried.
    pub(crate) fn peak(&self) -> Rate {
        Rate::from_bits_per_sec(self.rates().into_iter().max().unwrap_or(0))
    }

    /// Whether there was a moment with hardly anything, behind which as much passes as before.
    pub(crate) fn had_gap(&self) -> bool {
        let rates = self.rates();
        let share_of_peak = |share| scale(self.peak().bits_per_sec(), share, 1000);
        rates[Self::SPANS - 1] >= share_of_peak(BACK) && rates.iter().any(|rate| *rate < share_of_peak(GAP))
    }

    fn rates(&self) -> [u64; Self::SPANS] {
        self.spans().map(|span| mean(&[span]).bits_per_sec())
    }

    /// What counts as now, newest last.
    fn spans(&self) -> [Span; Self::SPANS] {
        self.history.newest()
    }

    /// Of the rate, in thousandths.
    pub(crate) fn share(&self) -> u64 {
        scale(self.achieved().bits_per_sec(), 1000, self.rate)
    }

    pub(crate) fn share_lately(&self) -> u64 {
        scale(self.latest().bits_per_sec(), 1000, self.rate)
    }

    fn begins(&self, now: Instant) -> bool {
        let before = mean(&self.spans()[..Self::SPANS / 2]).bits_per_sec();
        now.since(self.busy_at) > QUEUE_LASTS
            && self.share_lately() >= BEGINS_WITH
            && scale(before, 1000, self.rate) < BEGINS_AFTER
    }
}

/// Nothing in no time is nothing.
fn mean(spans: &[Span]) -> Rate {
    let (bytes, nanos) = spans.iter().fold((0u128, 0u128), |(bytes, nanos), span| {
        (
            bytes + u128::from(span.bytes.0),
            nanos + u128::from(span.length().0),
        )
    });
    let bits_per_sec = bytes * 8 * u128::from(SECOND) / nanos.max(1);
    Rate::from_bits_per_sec(u64::try_from(bits_per_sec).unwrap_or(u64::MAX))
}

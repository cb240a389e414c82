//! What no controller can do better by much: one that is told the line's rate and its queue, a round trip late.
//!
//! The delay is that of any news of a line: a probe must have met the queue and come back.

use std::collections::VecDeque;

use sqm_autorate::{Bounds, Choice, Decision, Probes, Reason};
use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::{Instant, Nanos, Rate};

/// A line as it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Truth {
    pub(super) capacity: PerDirection<Rate>,
    /// What a packet arriving now would wait in the line's buffer.
    pub(super) delay: PerDirection<Nanos>,
}

/// Follows [`Truth`].
#[derive(Debug)]
pub(super) struct Oracle {
    bounds: PerDirection<Bounds>,
    late: Nanos,
    /// Oldest first; the first one is what is known.
    news: VecDeque<(Instant, Truth)>,
}

/// A queue up to this is no reason to send less: it is what keeps the line busy. The same above it is emptied in [`DRAIN`].
const QUEUE: u64 = 5_000_000;
const DRAIN: u64 = 100_000_000;
/// Of the line's rate, thousandths.
const SHARE: u64 = 980;
/// A download's queue goes as its senders reduce, once in a round trip: with less, our own queue would lengthen that.
const LEAST_LET_IN: u64 = 700;

impl Oracle {
    pub(super) const fn new(bounds: PerDirection<Bounds>, late: Nanos) -> Self {
        Self {
            bounds,
            late,
            news: VecDeque::new(),
        }
    }

    pub(super) fn step(&mut self, now: Instant, truth: Truth) -> Decision {
        self.news.push_back((now, truth));
        while self
            .news
            .get(1)
            .is_some_and(|(at, _)| now.since(*at) >= self.late)
        {
            self.news.pop_front();
        }
        let known = self.news[0].1;
        Decision {
            rates: PerDirection {
                download: self.choice(Direction::Download, &known),
                upload: self.choice(Direction::Upload, &known),
            },
            probes: Probes::Off,
        }
    }

    fn choice(&self, direction: Direction, known: &Truth) -> Choice {
        let surplus = known.delay[direction].0.saturating_sub(QUEUE).min(DRAIN);
        let least = match direction {
            Direction::Download => LEAST_LET_IN,
            Direction::Upload => 0,
        };
        let share = (SHARE * (DRAIN - surplus) / DRAIN).max(least);
        let wanted = Rate::from_bits_per_sec(known.capacity[direction].bits_per_sec() / 1000 * share);
        let Bounds { min, max, .. } = self.bounds[direction];
        let rate = wanted.max(min.unwrap_or(wanted)).min(max.unwrap_or(wanted));
        Choice {
            rate,
            reason: Reason::Steady,
        }
    }
}

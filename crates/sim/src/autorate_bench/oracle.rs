//! A controller that knows the rate and the queue of the line a round trip late. No real controller can be much better: a probe must
//! meet the queue and return before it shows anything.

use std::collections::VecDeque;

use sqm_autorate::{Bounds, Choice, Decision, Probes, Reason};
use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::{Instant, Nanos, Rate};

/// The true state of the line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Truth {
    pub(super) capacity: PerDirection<Rate>,
    /// Queue delay of a packet that arrives now in the line's buffer.
    pub(super) delay: PerDirection<Nanos>,
}

/// Follows the [`Truth`].
#[derive(Debug)]
pub(super) struct Oracle {
    bounds: PerDirection<Bounds>,
    late: Nanos,
    /// Oldest first. The oldest one is known by now.
    news: VecDeque<(Instant, Truth)>,
}

/// The queue delay to aim at, nanoseconds: it keeps the line busy. A longer queue is drained in [`DRAIN`] nanoseconds.
const QUEUE: u64 = 5_000_000;
const DRAIN: u64 = 100_000_000;
/// The rate by the capacity while there is no queue, thousandths. A choice.
const SHARE: u64 = 980;
/// A download is not cut below this share of its capacity, thousandths, as in `Autorate`: its queue drains as its senders slow down,
/// and a queue in our own shaper would delay that.
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

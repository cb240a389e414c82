//! A download begins on a long path: its senders double what they send once in a round trip, and hear of our shaper a round trip after
//! they went beyond it. What they send until then stands in front of the line, unless that carries twice what our shaper lets pass.
//!
//! So the shaper lets half pass until they have left slow start. That costs: they leave it sooner, and grow slowly from there
//! (docs/results/autorate-bench.md has figures of both).

use super::{Law, scale};
use crate::Direction;
use crate::view::View;
use sqm_core::units::{Instant, Nanos, Rate};

/// Of the rate, thousandths.
const LETS_IN: u64 = 500;
/// As much of the rate in a round trip, thousandths, is a load; less than half of it is none any more.
const SOME: u64 = 50;
/// Senders that send no more than this of what they did a round trip before, thousandths, do not double it any more,
const DOUBLES: u64 = 1250;
/// and when it is no more than this of what passes our shaper, thousandths, they know of that.
const KNOWS: u64 = 1150;
/// Slow start takes no more round trips than this: the window is then a thousand times that of the beginning.
const ROUNDS: u64 = 12;

/// A download that began on a long path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Onset {
    began_at: Instant,
    /// When its senders last sent ever more, or more than they may.
    grew_at: Instant,
    lets_in: u64,
    is_over: bool,
}

impl Law {
    /// Takes note of a download that begins, and of whether its senders have left slow start.
    pub(super) fn note_onset(&mut self, now: Instant, view: &View) {
        if self.direction == Direction::Egress || !view.is_long {
            self.onset = None;
            return;
        }
        let Some(last) = round(0, now, view) else { return };
        let some = scale(self.rate, SOME, 1000);
        match &mut self.onset {
            None if last >= some => {
                self.onset = Some(Onset {
                    began_at: now,
                    grew_at: now,
                    lets_in: scale(self.rate, LETS_IN, 1000).max(self.min),
                    is_over: false,
                });
            }
            None => {}
            Some(_) if last < some / 2 => self.onset = None,
            Some(onset) => onset.is_over |= onset.ends(now, last, view),
        }
    }

    /// How much is let in while a download begins.
    pub(super) fn lets_in(&self) -> Option<u64> {
        let begins = self.onset.filter(|onset| !onset.is_over);
        begins.map(|onset| onset.lets_in)
    }
}

impl Onset {
    fn ends(&mut self, now: Instant, last: u64, view: &View) -> bool {
        let before = round(1, now, view).unwrap_or(0);
        if last > scale(before, DOUBLES, 1000) || last > scale(self.lets_in, KNOWS, 1000) {
            self.grew_at = now;
        }
        now.since(self.grew_at) >= view.rtt || now.since(self.began_at) >= Nanos(ROUNDS * view.rtt.0)
    }
}

/// What passed in a round trip that ended so many before now, bits per second.
fn round(ago: u64, now: Instant, view: &View) -> Option<u64> {
    let before = |rounds: u64| Instant(now.0.saturating_sub(rounds * view.rtt.0));
    let rate = view.past.rate(before(ago + 1), before(ago));
    rate.map(Rate::bits_per_sec)
}

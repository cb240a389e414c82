//! A delay that stays while ever more of a download arrives: none of it is a queue.
//!
//! A busy line delivers what it carries, and what waits in front of it goes when it carries more. Where clearly more arrives than
//! before and as much delay is left, the line was not busy before, and the delay of then was the path's.

use super::{COLLAPSED_QUEUE, Law, MOVED};
use crate::view::View;
use crate::{Direction, scale};
use sqm_core::units::{Instant, Nanos};

/// So much more must arrive, thousandths.
const RISES: u64 = 1100;
/// And so long after the least: what arrives is a mean of 200 ms.
const AFTER: Nanos = Nanos::from_millis(300);
/// Less delay than this is too little to cut for anyway.
const LEAST: u64 = 2_000_000;

/// A delay that hardly changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flat {
    /// When least arrived: how long the delay was, and how much that was.
    queue: u64,
    since: Instant,
    arrives: u64,
}

impl Law {
    /// Whether the delay is not that of a queue, because ever more arrives and it does not change; of a download that is known
    /// apart from the upload.
    pub(super) fn is_unmoved(&mut self, now: Instant, queue: u64, view: &View) -> bool {
        let is_known = self.direction == Direction::Ingress && !view.takes_turns;
        if !is_known || queue >= COLLAPSED_QUEUE {
            return false;
        }
        let arrives = view.achieved.bits_per_sec();
        let flat = self.flat.filter(|flat| queue.abs_diff(flat.queue) <= MOVED);
        let Some(flat) = flat.filter(|flat| flat.arrives <= arrives) else {
            self.flat = Some(Flat {
                queue,
                since: now,
                arrives,
            });
            return false;
        };
        flat.queue >= LEAST
            && now.since(flat.since) >= AFTER
            && arrives.min(view.latest.bits_per_sec()) > scale(flat.arrives, RISES, 1000)
    }
}

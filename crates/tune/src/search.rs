//! Which rate to try next in one direction. Pure.
//!
//! The load of an unshaped line tells its rate already, though not exactly: a queue that is never empty hands out every bit
//! there is, but what TCP makes of it after many losses is less at times. The search therefore begins close below the usual
//! rate and goes up in growing steps while latency stays within the target, up to that share of the most that the line ever
//! carried, or down until it does; then it halves what is left between. A line that has become slower
//! since is searched again from what it carries now.

/// Share of the rate that the line carried that is left over in the first try, and of the most that it ever carried in any: the
/// beginning of flows needs some room, and a queue in the modem drains with that.
const LEFT_OVER: f64 = 0.015;
/// It drains a packet of full size within so many seconds, which is more on slow lines; but not more than this share.
const DRAINS_S: f64 = 0.5;
const MOST_LEFT_OVER: f64 = 0.025;
/// Nor more than this share for a burst of packets that come down.
const MOST_FOR_BURSTS: f64 = 0.035;
/// The first step up, as a share of the rate; each step in the same direction is twice as large.
const STEP: f64 = 0.02;
/// The first step down: the first rate may have been almost good.
const STEP_DOWN: f64 = 0.01;
/// The largest step.
const LARGEST: f64 = 0.25;
/// Good and bad rates closer than this, as a share, are close enough.
const CLOSE: f64 = 0.025;
/// A rate of at least this share of the most that is tried leaves nothing to find above it.
const ALMOST: f64 = 0.98;
/// No lower than this share of what the line carried: the queue is then not in this line.
const LOWEST: f64 = 0.3;
/// More tries are not made.
const MOST: u32 = 12;
/// Latency that load adds on an unshaped line, in milliseconds, below which there is no bloat to cure.
pub(crate) const NO_BLOAT_MS: f64 = 5.0;

/// The search in one direction. Rates are in Mbit/s, gross.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    carried: f64,
    most: f64,
    /// Megabits of a packet of full size.
    packet: f64,
    next: f64,
    step: f64,
    /// The highest rate that was flat, and the lowest that was not.
    flat: Option<f64>,
    bloated: Option<f64>,
    tries: u32,
}

/// The share of what a line carries that bursts of `burst_s` seconds of it leave to a download, so that they drain.
pub(crate) fn beside_bursts(burst_s: f64) -> f64 {
    share(burst_s, MOST_FOR_BURSTS)
}

/// The share beside which what takes the line `taken_s` seconds drains, with no more than `most` left over for that.
fn share(taken_s: f64, most: f64) -> f64 {
    1.0 - (taken_s / DRAINS_S).clamp(LEFT_OVER, most)
}

impl Search {
    /// `carried` is what the unshaped line usually carried, `most` what it carried in its best moments; `packet_mbit` what a packet
    /// of full size takes.
    pub(crate) fn new(carried: f64, most: f64, packet_mbit: f64) -> Self {
        let share = share(packet_mbit / carried, MOST_LEFT_OVER);
        Self {
            carried,
            most: most.max(carried) * share,
            packet: packet_mbit,
            next: carried * share,
            step: STEP,
            flat: None,
            bloated: None,
            tries: 0,
        }
    }

    /// What the line carries, as far as is known.
    pub(crate) fn carried(&self) -> f64 {
        self.carried
    }

    /// The rate to try now; none when the search is over.
    pub(crate) fn rate(&self) -> Option<f64> {
        let is_close = self
            .flat
            .zip(self.bloated)
            .is_some_and(|(flat, bloated)| bloated <= flat * (1.0 + CLOSE));
        let is_full = self.flat.is_some_and(|flat| flat >= self.most * ALMOST);
        let is_over = is_close || is_full || self.tries >= MOST || self.next < self.carried * LOWEST;
        (!is_over).then_some(self.next)
    }

    /// Takes what became of that try, and what the line carries now if it has become slower.
    pub(crate) fn judge(&mut self, is_flat: bool, slower: Option<f64>) {
        self.tries += 1;
        *(if is_flat {
            &mut self.flat
        } else {
            &mut self.bloated
        }) = Some(self.next);
        if let Some(carried) = slower.filter(|carried| !is_flat && *carried < self.carried) {
            *self = Self {
                tries: self.tries,
                bloated: self.bloated,
                ..Self::new(carried, carried, self.packet)
            };
            return;
        }
        self.next = match (self.flat, self.bloated) {
            (Some(flat), Some(bloated)) => (flat * bloated).sqrt(),
            (Some(flat), None) => (flat * (1.0 + self.step)).min(self.most),
            (None, Some(bloated)) if self.tries == 1 => bloated * (1.0 - STEP_DOWN),
            (None, Some(bloated)) => bloated * (1.0 - self.step),
            (None, None) => self.next,
        };
        self.step = (self.step * 2.0).min(LARGEST);
    }

    /// The highest rate that kept latency flat; none if none did.
    pub(crate) fn best(&self) -> Option<f64> {
        self.flat
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the search finds if everything up to `limit` is flat, and in how many tries.
    fn find(carried: f64, limit: f64) -> (Option<f64>, u32) {
        let mut search = Search::new(carried, carried * 2.0, 0.012);
        let mut tries = 0;
        while let Some(rate) = search.rate() {
            search.judge(rate <= limit, (rate * 0.9 > limit).then_some(limit));
            tries += 1;
        }
        (search.best(), tries)
    }

    #[test]
    fn the_best_rate_is_found_within_four_per_cent() {
        for percent in 45..=160 {
            let limit = 0.2 * f64::from(percent);
            let (best, tries) = find(20.0, limit);
            let best = best.unwrap_or_else(|| panic!("{percent} %"));
            assert!(best <= limit && best >= limit / 1.026, "{best} of {limit}");
            assert!(tries <= 12, "{percent} %: {tries} tries");
        }
        // The usual case takes a few tries.
        assert!(find(20.0, 20.0).1 <= 4);
        // What a line never carried is not tried.
        let mut search = Search::new(20.0, 20.0, 0.012);
        search.judge(true, None);
        assert!(search.rate().is_none() && search.best() > Some(19.6));
    }

    #[test]
    fn a_line_that_has_become_slower_is_searched_where_it_is_now() {
        // Faster at first for longer than was waited.
        let (best, tries) = find(40.0, 20.0);
        assert!(best > Some(19.4) && best <= Some(20.0), "{best:?}");
        assert!(tries <= 3, "{tries} tries");
    }

    #[test]
    fn the_slower_the_line_the_more_is_left_over() {
        let first = |mbit: f64, packet: f64| Search::new(mbit, mbit, packet).next / mbit;
        assert!((first(20.0, 0.012) - 0.985).abs() < 1e-9);
        // A packet in cells takes 11 and 28 ms.
        assert!((first(1.2, 0.0136) - 0.977).abs() < 1e-3 && (first(0.5, 0.0136) - 0.975).abs() < 1e-9);
    }

    #[test]
    fn downloads_leave_room_for_bursts() {
        assert!((beside_bursts(0.001) - 0.985).abs() < 1e-9);
        assert!((beside_bursts(0.0125) - 0.975).abs() < 1e-9 && (beside_bursts(0.03) - 0.965).abs() < 1e-9);
    }

    #[test]
    fn a_line_that_is_never_flat_has_no_rate() {
        let mut search = Search::new(20.0, 20.0, 0.012);
        while search.rate().is_some() {
            search.judge(false, None);
        }
        assert_eq!(search.best(), None);
    }
}

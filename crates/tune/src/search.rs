//! Chooses the next rate to try in one direction. Pure.
//!
//! The unshaped load has already shown the line's rate, but not exactly: TCP recovers from many losses in a full buffer and at times does
//! not fill the line. The search starts just below the typical rate of the unshaped line. While the queue delay meets the target it goes up
//! in growing steps, to just below the highest rate that the line carried; otherwise it goes down in growing steps. Between a good and a bad
//! rate it takes the geometric mean. If the line has become slower, the search starts again from the rate that the line carries now.

// Our choices, checked in the lab on the lines of docs/results/tune.md.

/// The least headroom: the share of the line's rate that the first attempt leaves free, and that the highest attempt leaves of the most
/// that the line carried. New flows need it, and a queue in the modem drains with it.
const HEADROOM: f64 = 0.015;
/// The headroom drains a full-size packet within this many seconds, so it is larger on slow lines.
const DRAINS_S: f64 = 0.5;
/// The largest headroom.
const LARGEST_HEADROOM: f64 = 0.025;
/// The largest headroom for bursts of downloaded packets.
const LARGEST_HEADROOM_FOR_BURSTS: f64 = 0.035;
/// The first step up, a share of the rate; each further step is twice as large.
const STEP: f64 = 0.02;
/// The first step down, a share of the rate. It is small because the first rate may have been almost good.
const STEP_DOWN: f64 = 0.01;
/// The largest step, a share of the rate.
const LARGEST_STEP: f64 = 0.25;
/// The search ends when the bad rate is at most this share above the good one.
const CLOSE: f64 = 0.025;
/// The search ends at a good rate of at least this share of the ceiling.
const ALMOST: f64 = 0.98;
/// The search ends below this share of the line's rate: a queue that is still there is not in front of this line.
const LOWEST: f64 = 0.3;
/// The largest number of attempts.
const MOST_TRIES: u32 = 12;
/// An unshaped line to which load adds no more than this many milliseconds needs no shaper. As grade A+ of speed tests.
pub(crate) const NO_BLOAT_MS: f64 = 5.0;

/// The search in one direction. Rates are gross, in Mbit/s.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    /// The rate that the line carries.
    carried: f64,
    /// The highest rate to try.
    ceiling: f64,
    /// The size of a full-size packet on the line, megabits.
    packet: f64,
    next: f64,
    step: f64,
    /// The last rate that met the target.
    flat: Option<f64>,
    /// The last rate that missed the target.
    bloated: Option<f64>,
    tries: u32,
}

/// The share of the line's rate that a download may take so that a burst, which takes the line `burst_s` seconds, drains.
pub(crate) fn share_beside_bursts(burst_s: f64) -> f64 {
    share(burst_s, LARGEST_HEADROOM_FOR_BURSTS)
}

/// The share of the line's rate that leaves enough headroom to drain, within [`DRAINS_S`], what takes the line `taken_s` seconds. The
/// headroom is at most `largest`.
fn share(taken_s: f64, largest: f64) -> f64 {
    1.0 - (taken_s / DRAINS_S).clamp(HEADROOM, largest)
}

impl Search {
    /// A search on a line whose typical rate is `carried` and whose peak rate is `peak`, Mbit/s. `packet_mbit` is the size of a full-size
    /// packet on the line, megabits.
    pub(crate) fn new(carried: f64, peak: f64, packet_mbit: f64) -> Self {
        let share = share(packet_mbit / carried, LARGEST_HEADROOM);
        Self {
            carried,
            ceiling: peak.max(carried) * share,
            packet: packet_mbit,
            next: carried * share,
            step: STEP,
            flat: None,
            bloated: None,
            tries: 0,
        }
    }

    /// The rate that the line carries, Mbit/s, by the last measurement.
    pub(crate) fn carried(&self) -> f64 {
        self.carried
    }

    /// The rate to try now; `None` when the search is over.
    pub(crate) fn rate(&self) -> Option<f64> {
        let is_close = self
            .flat
            .zip(self.bloated)
            .is_some_and(|(flat, bloated)| bloated <= flat * (1.0 + CLOSE));
        let is_full = self.flat.is_some_and(|flat| flat >= self.ceiling * ALMOST);
        let is_over = is_close || is_full || self.tries >= MOST_TRIES || self.next < self.carried * LOWEST;
        (!is_over).then_some(self.next)
    }

    /// Records the attempt at [`rate`](Self::rate): `is_flat` if it met the target; `slower` is the rate that the line carries now, if it
    /// has become slower.
    pub(crate) fn update(&mut self, is_flat: bool, slower: Option<f64>) {
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
            (Some(flat), None) => (flat * (1.0 + self.step)).min(self.ceiling),
            (None, Some(bloated)) if self.tries == 1 => bloated * (1.0 - STEP_DOWN),
            (None, Some(bloated)) => bloated * (1.0 - self.step),
            (None, None) => self.next,
        };
        self.step = (self.step * 2.0).min(LARGEST_STEP);
    }

    /// The highest rate that met the target; `None` if no rate did.
    pub(crate) fn best(&self) -> Option<f64> {
        self.flat
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rate that the search finds and its number of attempts, if every rate up to `limit` meets the target.
    fn find(carried: f64, limit: f64) -> (Option<f64>, u32) {
        let mut search = Search::new(carried, carried * 2.0, 0.012);
        let mut tries = 0;
        while let Some(rate) = search.rate() {
            search.update(rate <= limit, (rate * 0.9 > limit).then_some(limit));
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
        // The search does not try rates that the line never carried.
        let mut search = Search::new(20.0, 20.0, 0.012);
        search.update(true, None);
        assert!(search.rate().is_none() && search.best() > Some(19.6));
    }

    #[test]
    fn a_line_that_has_become_slower_is_searched_where_it_is_now() {
        // The unshaped measurement saw only the faster first seconds of the line.
        let (best, tries) = find(40.0, 20.0);
        assert!(best > Some(19.4) && best <= Some(20.0), "{best:?}");
        assert!(tries <= 3, "{tries} tries");
    }

    #[test]
    fn slow_lines_get_more_headroom() {
        let first = |mbit: f64, packet: f64| Search::new(mbit, mbit, packet).next / mbit;
        assert!((first(20.0, 0.012) - 0.985).abs() < 1e-9);
        // A full-size packet in ATM cells takes 11 ms and 27 ms.
        assert!((first(1.2, 0.0136) - 0.977).abs() < 1e-3 && (first(0.5, 0.0136) - 0.975).abs() < 1e-9);
    }

    #[test]
    fn downloads_leave_room_for_bursts() {
        assert!((share_beside_bursts(0.001) - 0.985).abs() < 1e-9);
        assert!(
            (share_beside_bursts(0.0125) - 0.975).abs() < 1e-9
                && (share_beside_bursts(0.03) - 0.965).abs() < 1e-9
        );
    }

    #[test]
    fn a_line_that_is_never_flat_has_no_rate() {
        let mut search = Search::new(20.0, 20.0, 0.012);
        while search.rate().is_some() {
            search.update(false, None);
        }
        assert_eq!(search.best(), None);
    }
}

//! Which rate to try next. Pure.
//!
//! The load of an unshaped line tells its rate already, though not exactly: a queue that is never empty hands out every bit
//! there is, but what TCP makes of it after many losses is less at times. The search therefore begins close below the usual
//! rate and goes up in growing steps while latency stays within the target, up to the most that the line ever carried, or
//! down until it does; then it halves what is left between.

/// The first try, as a share of the rate that the unshaped line carried.
const FIRST: f64 = 0.98;
/// The first step up, as a share of the rate; each step in the same direction is twice as large.
const STEP: f64 = 0.02;
/// The first step down: the first rate may have been almost good.
const STEP_DOWN: f64 = 0.01;
/// The largest step.
const LARGEST: f64 = 0.25;
/// Good and bad rates closer than this, as a share, are close enough.
const CLOSE: f64 = 0.025;
/// A rate of at least this share of the most that the line carried leaves nothing to find above it.
const ALMOST: f64 = 0.995;
/// No lower than this share of what the line carried: the queue is then not in this line.
const LOWEST: f64 = 0.3;
/// More tries are not made.
const MOST: u32 = 12;
/// Share of the highest rate that was flat: the beginning of new flows needs some room, and a queue in the modem that they
/// left drains with what is left over.
const MARGIN: f64 = 0.985;
/// The same below [`SLOW`] Mbit/s, where a packet takes long: with little to spare there is always one in the modem too.
const SLOW_MARGIN: f64 = 0.968;
const SLOW: f64 = 2.5;
/// What is left over drains a packet of full size within so many seconds, which is more on the slowest lines.
const DRAINS_S: f64 = 0.5;
/// Latency that load adds on an unshaped line, in milliseconds, below which there is no bloat to cure.
pub(crate) const NO_BLOAT_MS: f64 = 5.0;

/// The search in one direction. Rates are in Mbit/s, gross.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    carried: f64,
    most: f64,
    next: f64,
    step: f64,
    /// The highest rate that was flat, and the lowest that was not.
    flat: Option<f64>,
    bloated: Option<f64>,
    tries: u32,
}

impl Search {
    /// `carried` is what the unshaped line usually carried, `most` what it carried in its best moments.
    pub(crate) fn new(carried: f64, most: f64) -> Self {
        Self {
            carried,
            most: most.max(carried),
            next: carried * FIRST,
            step: STEP,
            flat: None,
            bloated: None,
            tries: 0,
        }
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

    /// Takes what became of that try.
    pub(crate) fn judge(&mut self, is_flat: bool) {
        self.tries += 1;
        *(if is_flat {
            &mut self.flat
        } else {
            &mut self.bloated
        }) = Some(self.next);
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

    /// The rate to set: a little less than the best. `packet_mbit` is what a packet of full size takes.
    pub(crate) fn advice(&self, packet_mbit: f64) -> Option<f64> {
        let best = self.best()?;
        let margin = if best < SLOW { SLOW_MARGIN } else { MARGIN };
        Some((best * margin).min(best - packet_mbit / DRAINS_S))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the search finds if everything up to `limit` is flat, and in how many tries.
    fn find(carried: f64, limit: f64) -> (Option<f64>, u32) {
        let mut search = Search::new(carried, carried * 2.0);
        let mut tries = 0;
        while let Some(rate) = search.rate() {
            search.judge(rate <= limit);
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
        let mut search = Search::new(20.0, 20.0);
        search.judge(true);
        search.judge(true);
        assert!(search.rate().is_none() && search.best() > Some(19.9));
    }

    #[test]
    fn the_slower_the_line_the_more_is_left_over() {
        let share = |mbit: f64| {
            let mut search = Search::new(mbit, mbit);
            search.judge(true);
            let best = search.best().expect("it was flat");
            search.advice(0.014).expect("a rate") / best
        };
        assert!((share(20.0) - 0.985).abs() < 1e-9 && (share(2.0) - 0.968).abs() < 1e-9);
        // A packet in cells on half a Mbit/s takes 28 ms.
        assert!((share(0.5) - 0.943).abs() < 1e-3);
    }

    #[test]
    fn a_line_that_is_never_flat_has_no_rate() {
        assert_eq!(find(20.0, 1.0).0, None);
    }
}

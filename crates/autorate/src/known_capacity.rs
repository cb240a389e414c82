//! The capacity that queues have shown lately, and by how much it varies.

/// Changes that are remembered. The variability is their median, so that some wrong ones do not count. A choice.
const CHANGES: usize = 9;
/// Capacities that are remembered. The reference is their median: two wrong ones, as at the beginning of a load, do not change it.
/// A choice.
const CAPACITIES: usize = 5;

/// The capacity of one direction, as far as queues have shown it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownCapacity {
    /// The newest capacities, bits per second, oldest first.
    capacities: [f64; CAPACITIES],
    /// Relative changes from one capacity to the next, oldest first.
    changes: [f64; CHANGES],
    /// Capacities that have been added.
    count: usize,
}

impl KnownCapacity {
    pub(crate) const fn new() -> Self {
        Self {
            capacities: [0.0; CAPACITIES],
            changes: [0.0; CHANGES],
            count: 0,
        }
    }

    /// Adds a capacity that a queue has shown, bits per second.
    pub(crate) fn add(&mut self, capacity: f64) {
        if self.count > 0 {
            let last = self.capacities[CAPACITIES - 1];
            let change = (capacity - last).max(last - capacity);
            self.changes.rotate_left(1);
            self.changes[CHANGES - 1] = change / capacity.max(last).max(1.0);
        }
        self.capacities.rotate_left(1);
        self.capacities[CAPACITIES - 1] = capacity;
        self.count += 1;
    }

    /// The capacity to expect, bits per second; `None` before the first queue.
    pub(crate) fn reference(&self) -> Option<f64> {
        median(&self.capacities, self.count)
    }

    /// How far a rate is from the nearer one of the reference and the newest capacity, as a share of it; one before the first queue.
    /// After a step the line is at the newest capacity; after a dip it soon is at the reference again.
    pub(crate) fn distance(&self, rate: f64) -> f64 {
        let Some(reference) = self.reference() else {
            return 1.0;
        };
        let from = |capacity: f64| {
            let distance = rate / capacity.max(1.0) - 1.0;
            distance.max(-distance)
        };
        // The newest capacity is not known better than it varies.
        let newest = from(self.capacities[CAPACITIES - 1]).max(self.variability());
        from(reference).min(newest)
    }

    /// By how much the capacity varies from one queue to the next, as a share of it. A line that keeps each capacity for many queues
    /// varies little, however far it then jumps.
    pub(crate) fn variability(&self) -> f64 {
        median(&self.changes, self.count.saturating_sub(1)).unwrap_or(0.0)
    }
}

/// The median of the newest `count` values, the upper one of two.
fn median<const N: usize>(values: &[f64; N], count: usize) -> Option<f64> {
    let count = count.min(N);
    let mut sorted = *values;
    let sorted = &mut sorted[N - count..];
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(count / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(capacities: &[f64]) -> KnownCapacity {
        let mut known = KnownCapacity::new();
        for capacity in capacities {
            known.add(*capacity);
        }
        known
    }

    #[test]
    fn nothing_is_known_before_the_first_queue() {
        assert!(known(&[]).reference().is_none());
        assert!((known(&[8e6]).reference(), known(&[8e6]).variability()) == (Some(8e6), 0.0));
    }

    #[test]
    fn two_wrong_capacities_change_neither_the_reference_nor_the_variability() {
        let known = known(&[20e6, 20.1e6, 19.9e6, 20e6, 20e6, 3e6, 19.9e6, 4e6]);
        assert!(
            (19.9e6..=20e6).contains(&known.reference().unwrap_or(0.0)),
            "{known:?}"
        );
        assert!(known.variability() < 0.01, "{known:?}");
    }

    #[test]
    fn a_capacity_that_jumps_up_and_down_varies() {
        let known = known(&[20e6, 10e6, 20e6, 10e6, 20e6, 10e6]);
        assert!(known.variability() > 0.4, "{known:?}");
    }

    #[test]
    fn a_line_that_jumps_seldom_varies_little() {
        let known = known(&[20e6, 20e6, 20e6, 5e6, 5e6, 5e6, 30e6, 30e6, 30e6]);
        assert!(known.variability() < 0.01, "{known:?}");
    }

    #[test]
    fn after_a_step_both_the_new_and_the_usual_capacity_are_near() {
        let known = known(&[20e6, 20e6, 20e6, 20e6, 20e6, 5e6]);
        let distances = [20e6, 5e6, 10e6].map(|rate| known.distance(rate));
        assert!(distances == [0.0, 0.0, 0.5], "{distances:?}");
    }

    #[test]
    fn on_a_line_that_varies_the_newest_capacity_is_not_near() {
        let known = known(&[20e6, 10e6, 20e6, 10e6, 20e6, 20e6, 10e6]);
        assert!(
            known.distance(10e6) > 0.4 && known.distance(20e6) < 0.01,
            "{known:?}"
        );
    }

    #[test]
    fn the_reference_follows_a_step_after_three_queues() {
        let known = known(&[20e6, 20e6, 20e6, 20e6, 20e6, 5e6, 5e6, 5e6]);
        assert!(known.reference() == Some(5e6), "{known:?}");
    }
}

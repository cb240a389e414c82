//! Counts over time, in a bounded number of steps that become longer as time passes.

use sqm_core::packet::Packet as _;
use sqm_core::units::Instant;

use super::packet::Captured;

/// The largest number of steps. Our choice: more are finer than a picture shows.
const MOST_STEPS: usize = 1024;

/// The first length of a step, nanoseconds.
const SHORTEST_NANOS: u64 = 1_000_000;

/// The counts of one step.
#[derive(Clone, Debug, Default)]
pub(super) struct Step {
    pub(super) arrived_bytes: u64,
    pub(super) sent_bytes: u64,
    pub(super) drops: u64,
    pub(super) marks: u64,
    /// The bytes of the packets that left.
    pub(super) worst_delay_nanos: u64,
    /// The sum of delays and the number of packets, by tin, or one pair for all.
    pub(super) delays: Vec<(u64, u64)>,
}

impl Step {
    fn add(&mut self, other: &Self) {
        self.arrived_bytes += other.arrived_bytes;
        self.sent_bytes += other.sent_bytes;
        self.drops += other.drops;
        self.marks += other.marks;
        self.worst_delay_nanos = self.worst_delay_nanos.max(other.worst_delay_nanos);
        for (sum, more) in self.delays.iter_mut().zip(&other.delays) {
            *sum = (sum.0.saturating_add(more.0), sum.1 + more.1);
        }
    }
}

/// All steps.
#[derive(Clone, Debug)]
pub(super) struct Series {
    start: Instant,
    pub(super) step_nanos: u64,
    pub(super) steps: Vec<Step>,
    lines: usize,
}

impl Series {
    pub(super) fn new(start: Instant, tins: usize) -> Self {
        Self {
            start,
            step_nanos: SHORTEST_NANOS,
            steps: Vec::new(),
            lines: tins.max(1),
        }
    }

    pub(super) fn arrived(&mut self, packet: &Captured) {
        self.step(packet.arrived).arrived_bytes += u64::from(packet.len());
    }

    pub(super) fn sent(&mut self, packet: &Captured, now: Instant, marked: bool) {
        let delay = now.since(packet.arrived).0;
        let tin = packet.tin;
        let step = self.step(now);
        step.sent_bytes += u64::from(packet.len());
        step.marks += u64::from(marked);
        step.worst_delay_nanos = step.worst_delay_nanos.max(delay);
        if let Some(line) = step.delays.get_mut(tin) {
            *line = (line.0.saturating_add(delay), line.1 + 1);
        }
    }

    pub(super) fn dropped(&mut self, now: Instant) {
        self.step(now).drops += 1;
    }

    /// The step of a time. Doubles the length of all steps until their number is within the limit.
    fn step(&mut self, now: Instant) -> &mut Step {
        let since = now.since(self.start).0;
        while since / self.step_nanos >= MOST_STEPS as u64 {
            self.lengthen();
        }
        let index = (since / self.step_nanos) as usize;
        if index >= self.steps.len() {
            let empty = Step {
                delays: vec![(0, 0); self.lines],
                ..Step::default()
            };
            self.steps.resize(index + 1, empty);
        }
        &mut self.steps[index]
    }

    fn lengthen(&mut self) {
        self.step_nanos = self.step_nanos.saturating_mul(2);
        let pairs = self.steps.chunks(2).map(|pair| {
            let mut sum = pair[0].clone();
            pair.iter().skip(1).for_each(|other| sum.add(other));
            sum
        });
        self.steps = pairs.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_grow_longer_and_keep_their_sums() {
        let mut series = Series::new(Instant(7), 2);
        for millisecond in 0..100_000 {
            let step = series.step(Instant(7 + millisecond * 1_000_000));
            step.sent_bytes += 1;
            step.worst_delay_nanos = step.worst_delay_nanos.max(millisecond);
            step.delays[1].1 += 1;
        }
        let steps = &series.steps;
        assert!(steps.len() > MOST_STEPS / 2 && steps.len() <= MOST_STEPS);
        assert_eq!(series.step_nanos, 128 * SHORTEST_NANOS);
        assert_eq!(steps.iter().map(|step| step.sent_bytes).sum::<u64>(), 100_000);
        assert_eq!(steps.iter().map(|step| step.delays[1].1).sum::<u64>(), 100_000);
        assert_eq!((steps[0].sent_bytes, steps[0].worst_delay_nanos), (128, 127));
        series.step(Instant(u64::MAX)).drops += 1;
        assert_eq!(
            series.steps.iter().map(|step| step.sent_bytes).sum::<u64>(),
            100_000
        );
    }
}

//! What a line carries, from reports of it. Pure.
//!
//! Reports count whole packets, of which a slow line has a handful from one to the next: 8.3 are never seen, but 8 or 9. Rates are
//! therefore of spans of several reports, as many as hold enough packets.

use std::time::Duration;

use sqm_measure::stats;

/// Packets in a span: one more or less does not matter.
const PACKETS: f64 = 60.0;

/// Reports of a rate, and when each came.
#[derive(Debug)]
pub(crate) struct Carried {
    /// Megabits that a packet of full size takes.
    packet_mbit: f64,
    reports: Vec<(Duration, f64)>,
}

impl Carried {
    pub(crate) fn new(packet_mbit: f64) -> Self {
        Self {
            packet_mbit,
            reports: Vec::new(),
        }
    }

    /// Takes the rate since the report before, Mbit/s.
    pub(crate) fn note(&mut self, at: Duration, mbit: f64) {
        self.reports.push((at, mbit));
    }

    /// The usual rate: pauses and bursts of recovering flows aside.
    pub(crate) fn usual(&self) -> f64 {
        self.usual_after(Duration::ZERO)
    }

    /// The usual rate without the beginning.
    pub(crate) fn usual_after(&self, beginning: Duration) -> f64 {
        let mut rates = self.rates(beginning);
        if self.span(beginning) == 1 {
            return stats::median(&rates).unwrap_or_default();
        }
        // The median of a few whole numbers is one of them: the mean of the middle half is not.
        rates.sort_by(f64::total_cmp);
        let quarter = rates.len() / 4;
        stats::mean(&rates[quarter..rates.len() - quarter]).unwrap_or_default()
    }

    /// The rate of its better moments. A packet more in a span does not make one.
    pub(crate) fn best(&self) -> f64 {
        let rates = self.rates(Duration::ZERO);
        let better = stats::percentile(&rates, 75.0).unwrap_or_default();
        let seconds = self.span(Duration::ZERO) as f64 * self.interval_s(Duration::ZERO);
        (better - self.packet_mbit / seconds).max(self.usual())
    }

    fn after(&self, beginning: Duration) -> &[(Duration, f64)] {
        let first = self.reports.partition_point(|(at, _)| *at < beginning);
        &self.reports[first..]
    }

    /// How many reports hold enough packets; but no more than half of them.
    fn span(&self, beginning: Duration) -> usize {
        let reports = self.after(beginning);
        if reports.is_empty() {
            return 1;
        }
        let packets = mean(reports) * self.interval_s(beginning) / self.packet_mbit;
        let most = (reports.len() / 2).max(1);
        ((PACKETS / packets).ceil() as usize).clamp(1, most)
    }

    /// From one report to the next.
    fn interval_s(&self, beginning: Duration) -> f64 {
        let reports = self.after(beginning);
        let (Some((first, _)), Some((last, _))) = (reports.first(), reports.last()) else {
            return 0.0;
        };
        (*last - *first).as_secs_f64() / (reports.len() - 1).max(1) as f64
    }

    /// Rates of spans that begin at each report.
    fn rates(&self, beginning: Duration) -> Vec<f64> {
        let spans = self.after(beginning).windows(self.span(beginning));
        spans.map(mean).collect()
    }
}

fn mean(reports: &[(Duration, f64)]) -> f64 {
    let sum: f64 = reports.iter().map(|(_, mbit)| mbit).sum();
    sum / reports.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three seconds of four reports each on a line of that rate, which are of whole packets.
    fn counted(mbit: f64, packet_mbit: f64) -> Carried {
        let mut carried = Carried::new(packet_mbit);
        let packets = |report: u32| (mbit * 0.25 * f64::from(report) / packet_mbit).floor();
        for report in 1..=12 {
            let rate = (packets(report) - packets(report - 1)) * packet_mbit / 0.25;
            carried.note(Duration::from_millis(250) * report, rate);
        }
        carried
    }

    #[test]
    fn whole_packets_do_not_hide_the_rate_of_a_slow_line() {
        // A packet in 33 cells of 53 bytes.
        let cells = 0.014;
        for percent in 90..=110 {
            let mbit = 0.5 * f64::from(percent) / 100.0;
            let carried = counted(mbit, cells);
            let share = carried.usual() / mbit;
            assert!((0.975..=1.015).contains(&share), "{mbit}: {share:.3}");
            let best = carried.best() / mbit;
            assert!((share - 1e-9..=1.016).contains(&best), "{mbit}: {best:.3}");
        }
    }

    #[test]
    fn a_fast_line_is_looked_at_report_by_report() {
        let mut carried = counted(50.0, 0.0122);
        assert!((carried.usual() / 50.0 - 1.0).abs() < 0.01 && carried.best() < 50.6);
        // Its pauses are not the usual.
        for pause in 13..=20 {
            carried.note(Duration::from_millis(250) * pause, 0.0);
        }
        assert!(carried.usual() > 49.5);
        assert_eq!(carried.usual_after(Duration::from_millis(3100)), 0.0);
        assert_eq!(Carried::new(0.01).usual(), 0.0);
    }
}

//! Estimates the capacity of a line from reports of the rate it carried. Pure.
//!
//! A report counts whole packets. A slow line carries only a few between two reports: a report has 8 or 9 of them, never 8.3. Rates are
//! therefore averaged over spans of several reports, long enough to hold [`PACKETS`].

use std::time::Duration;

use sqm_measure::stats;

/// Packets in a span. Our choice: one packet more or less then changes the rate by less than 2 %.
const PACKETS: f64 = 60.0;

/// The reports of a measurement, each with its time.
#[derive(Debug)]
pub(crate) struct CapacityEstimate {
    /// Megabits that a full-size packet takes on the line.
    packet_mbit: f64,
    reports: Vec<(Duration, f64)>,
}

impl CapacityEstimate {
    /// An estimate without reports. `packet_mbit` is the size of a full-size packet on the line, megabits.
    pub(crate) fn new(packet_mbit: f64) -> Self {
        Self {
            packet_mbit,
            reports: Vec::new(),
        }
    }

    /// Adds a report: the mean rate since the report before, Mbit/s, at the time `at` since the measurement began.
    pub(crate) fn record(&mut self, at: Duration, mbit: f64) {
        self.reports.push((at, mbit));
    }

    /// The typical rate, Mbit/s, without the pauses and bursts of flows that recover from losses.
    pub(crate) fn typical(&self) -> f64 {
        self.typical_after(Duration::ZERO)
    }

    /// Like [`typical`](Self::typical), without the reports before the time `beginning`.
    pub(crate) fn typical_after(&self, beginning: Duration) -> f64 {
        let mut rates = self.rates(beginning);
        if self.span(beginning) == 1 {
            return stats::median(&rates).unwrap_or_default();
        }
        // The median of a few whole numbers of packets is one of them; the mean of the middle half has a finer resolution.
        rates.sort_by(f64::total_cmp);
        let quarter = rates.len() / 4;
        stats::mean(&rates[quarter..rates.len() - quarter]).unwrap_or_default()
    }

    /// The rate that the best quarter of the spans exceeds, Mbit/s. One packet is subtracted, so that rounding to whole packets does not
    /// raise it.
    pub(crate) fn peak(&self) -> f64 {
        let rates = self.rates(Duration::ZERO);
        let better = stats::percentile(&rates, 75.0).unwrap_or_default();
        let seconds = self.span(Duration::ZERO) as f64 * self.interval_s(Duration::ZERO);
        (better - self.packet_mbit / seconds).max(self.typical())
    }

    fn after(&self, beginning: Duration) -> &[(Duration, f64)] {
        let first = self.reports.partition_point(|(at, _)| *at < beginning);
        &self.reports[first..]
    }

    /// The number of reports in a span: enough to hold [`PACKETS`], but at most half of all reports.
    fn span(&self, beginning: Duration) -> usize {
        let reports = self.after(beginning);
        if reports.is_empty() {
            return 1;
        }
        let packets = mean(reports) * self.interval_s(beginning) / self.packet_mbit;
        let most = (reports.len() / 2).max(1);
        ((PACKETS / packets).ceil() as usize).clamp(1, most)
    }

    /// The mean time between two reports, seconds.
    fn interval_s(&self, beginning: Duration) -> f64 {
        let reports = self.after(beginning);
        let (Some((first, _)), Some((last, _))) = (reports.first(), reports.last()) else {
            return 0.0;
        };
        (*last - *first).as_secs_f64() / (reports.len() - 1).max(1) as f64
    }

    /// The rates of all spans, one beginning at each report.
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

    /// Three seconds of a line of that rate, with four reports a second that count whole packets.
    fn counted(mbit: f64, packet_mbit: f64) -> CapacityEstimate {
        let mut estimate = CapacityEstimate::new(packet_mbit);
        let packets = |report: u32| (mbit * 0.25 * f64::from(report) / packet_mbit).floor();
        for report in 1..=12 {
            let rate = (packets(report) - packets(report - 1)) * packet_mbit / 0.25;
            estimate.record(Duration::from_millis(250) * report, rate);
        }
        estimate
    }

    #[test]
    fn whole_packets_do_not_hide_the_rate_of_a_slow_line() {
        // A packet in 33 cells of 53 bytes.
        let cells = 0.014;
        for percent in 90..=110 {
            let mbit = 0.5 * f64::from(percent) / 100.0;
            let estimate = counted(mbit, cells);
            let share = estimate.typical() / mbit;
            assert!((0.975..=1.015).contains(&share), "{mbit}: {share:.3}");
            let best = estimate.peak() / mbit;
            assert!((share - 1e-9..=1.016).contains(&best), "{mbit}: {best:.3}");
        }
    }

    #[test]
    fn a_fast_line_needs_no_spans() {
        let mut estimate = counted(50.0, 0.0122);
        assert!((estimate.typical() / 50.0 - 1.0).abs() < 0.01 && estimate.peak() < 50.6);
        // Pauses do not change the typical rate.
        for pause in 13..=20 {
            estimate.record(Duration::from_millis(250) * pause, 0.0);
        }
        assert!(estimate.typical() > 49.5);
        assert_eq!(estimate.typical_after(Duration::from_millis(3100)), 0.0);
        assert_eq!(CapacityEstimate::new(0.01).typical(), 0.0);
    }
}

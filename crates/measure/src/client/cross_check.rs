//! Compares the server's results of a flow with its progress messages, and with what the client sent and received. Pure.
//!
//! [`bounds`](super::bounds) has the limits that hold for every flow; the checks here depend on this flow.

use sqm_core::direction::Direction;

use super::bounds::sum;
use crate::protocol::Seen;

/// Bytes that may be sent between the last sample of a connection and its end, and are missing from our figures. A choice.
const SPARE_BYTES: u64 = 256 << 10;
/// A sample may miss one part in this many of the bytes: a busy computer reads its counters a little later than its clock.
const SPARE_FRACTION: u64 = 16;
/// How far the times of progress messages and samples may differ: they come from different threads of a computer that may be busy.
const SPARE_MS: f64 = 2000.0;
/// Bytes that a proxy on the path may acknowledge before it has passed them on, as some do on satellite links. A choice.
const ON_THE_WAY: u64 = 32 << 20;
/// The largest TCP window, bytes (RFC 7323, section 2.3).
const LARGEST_WINDOW: u64 = 1 << 30;
/// How much earlier than the load the samples of an upload may end, besides one part in a thousand: the clocks differ. A choice.
const EARLY_MS: f64 = 100.0;

/// All reports about one flow.
pub(super) struct FlowReports<'a> {
    pub(super) direction: Direction,
    /// The progress messages of an upload: milliseconds since the load began, and bytes received until then.
    pub(super) reported: &'a [(f64, u64)],
    /// The server's results. `None` if it sent none.
    pub(super) theirs: Option<&'a Seen>,
    /// The client's own results.
    pub(super) ours: &'a Seen,
}

/// A mistake in the reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// They contradict each other.
    Contradiction(&'static str),
    /// A part of the results is missing.
    Incomplete(&'static str),
}

impl FlowReports<'_> {
    /// Compares the reports. `load_ms` is `None` if the load ended early: then the two ends counted different parts of it.
    pub(super) fn check(&self, load_ms: Option<f64>) -> Result<(), Fault> {
        match self.direction {
            Direction::Download => self.check_download(),
            Direction::Upload => self.check_upload(load_ms),
        }
    }

    fn check_download(&self) -> Result<(), Fault> {
        let Some(totals) = self.theirs.and_then(|theirs| theirs.totals) else {
            return Ok(());
        };
        let arrived = sum(self.ours.samples.iter());
        let new = totals.bytes_sent.saturating_sub(totals.bytes_retransmitted);
        if new.saturating_add(new / SPARE_FRACTION + SPARE_BYTES) < arrived {
            return Err(Fault::Contradiction("it sent less than arrived here"));
        }
        // A sender may be ahead of its acknowledgements by a window. In the long run at least half of what it sent has arrived.
        if new > arrived.saturating_mul(2).saturating_add(LARGEST_WINDOW) {
            return Err(Fault::Contradiction("it sent more than can be in flight"));
        }
        Ok(())
    }

    fn check_upload(&self, load_ms: Option<f64>) -> Result<(), Fault> {
        let claimed = self.reported.last().map_or(0, |(_, bytes)| *bytes);
        let told = self.theirs.map_or(0, |theirs| sum(theirs.samples.iter()));
        let sent = self.ours.totals;
        let too_much = |sent: u64| told.max(claimed) > sent.saturating_add(sent / 64 + SPARE_BYTES);
        if sent.is_some_and(|totals| too_much(totals.bytes_sent)) {
            return Err(Fault::Contradiction("it received more than was sent"));
        }
        let (Some(theirs), Some(load_ms)) = (self.theirs, load_ms) else {
            return Ok(());
        };
        if self.reported.iter().any(|report| contradicts(theirs, *report)) {
            return Err(Fault::Contradiction(
                "its results contradict its progress messages",
            ));
        }
        // A sender is ahead of its acknowledgements by at most as much again, because its window grows with them.
        let new = sent.map_or(0, |t| t.bytes_sent.saturating_sub(t.bytes_retransmitted));
        if told.saturating_add(ON_THE_WAY).saturating_mul(2) < new {
            return Err(Fault::Contradiction("it received far less than was sent"));
        }
        let end = theirs.samples.last().map_or(0.0, |sample| sample.t_ms);
        match end < load_ms * 0.999 - EARLY_MS {
            true => Err(Fault::Incomplete("the end")),
            false => Ok(()),
        }
    }
}

/// True if the samples have too few or too many bytes for a progress message. Samples up to [`SPARE_MS`] before and after the
/// time of the message may count either way. A message after the last sample is not compared: a busy server may send one.
fn contradicts(theirs: &Seen, (at_ms, reported): (f64, u64)) -> bool {
    let samples = &theirs.samples;
    if samples.last().is_some_and(|last| last.t_ms < at_ms) {
        return false;
    }
    let before = samples.partition_point(|s| s.t_ms <= at_ms - SPARE_MS);
    let after = samples.partition_point(|s| s.t_ms < at_ms + SPARE_MS);
    let least = sum(samples[..before].iter());
    let most = sum(samples.iter().take(after + 1));
    most < reported - reported / SPARE_FRACTION
        || least > reported.saturating_add(reported / SPARE_FRACTION + SPARE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Sample, TcpTotals};

    const LOAD_MS: f64 = 10_000.0;
    const MB: u64 = 1_000_000;

    fn sampled(samples: impl IntoIterator<Item = (f64, u64)>) -> Seen {
        Seen {
            samples: samples.into_iter().map(Sample::from).collect(),
            ..Seen::default()
        }
    }

    /// A flow of 80 Mbit/s as its receiver sees it.
    fn steady() -> Seen {
        sampled((1..=100).map(|n| (f64::from(n) * 100.0, MB)))
    }

    fn sender(sent: u64, again: u64) -> Seen {
        Seen {
            totals: Some(TcpTotals {
                bytes_sent: sent,
                bytes_retransmitted: again,
                ..TcpTotals::default()
            }),
            ..Seen::default()
        }
    }

    fn upload_with(report: (f64, u64), theirs: &Seen) -> Result<(), Fault> {
        FlowReports {
            direction: Direction::Upload,
            reported: &[report],
            theirs: Some(theirs),
            ours: &sender(120 * MB, MB),
        }
        .check(Some(LOAD_MS))
    }

    fn upload(theirs: &Seen, load_ms: Option<f64>) -> Result<(), Fault> {
        let reported: Vec<_> = (1..10)
            .map(|n| (f64::from(n) * 1000.0, u64::from(n as u32) * 10 * MB))
            .collect();
        FlowReports {
            direction: Direction::Upload,
            reported: &reported,
            theirs: Some(theirs),
            ours: &sender(101 * MB, MB),
        }
        .check(load_ms)
    }

    #[test]
    fn the_results_of_an_upload_must_match_its_progress_messages() {
        let whole = Some(LOAD_MS);
        assert_eq!(upload(&steady(), whole), Ok(()));
        // A single sample for the whole load, or two, do not contradict.
        assert_eq!(upload(&sampled([(LOAD_MS, 100 * MB)]), whole), Ok(()));
        assert_eq!(
            upload(&sampled([(4600.0, 46 * MB), (10_200.0, 54 * MB)]), whole),
            Ok(())
        );
        // The server sends its last progress message late.
        assert_eq!(upload_with((10_001.0, 110 * MB), &steady()), Ok(()));
        // Each sample is half a second late.
        let late = (1..=100).map(|n| (f64::from(n) * 100.0 + 500.0, MB));
        assert_eq!(upload(&sampled(late), whole), Ok(()));
        let lies = [
            sampled([]),
            sampled((1..=100).map(|n| (f64::from(n) * 100.0, MB / 50))),
            sampled([(LOAD_MS - 1.0, 0), (LOAD_MS, 100 * MB)]),
            sampled([(100.0, 100 * MB), (LOAD_MS, 0)]),
            sampled([(LOAD_MS, 200 * MB)]),
        ];
        for lie in lies {
            assert!(
                matches!(upload(&lie, whole), Err(Fault::Contradiction(_))),
                "{lie:?}"
            );
        }
    }

    #[test]
    fn a_load_that_ended_early_may_have_fewer_bytes() {
        let early = sampled([(3000.0, 30 * MB)]);
        assert_eq!(upload(&early, None), Ok(()));
        assert!(upload(&early, Some(LOAD_MS)).is_err());
        assert!(upload(&sampled([(3000.0, 200 * MB)]), None).is_err());
    }

    #[test]
    fn an_upload_without_its_end_is_incomplete() {
        let ours = sender(30 * MB, 0);
        let theirs = sampled([(3000.0, 30 * MB)]);
        let reports = FlowReports {
            direction: Direction::Upload,
            reported: &[(1000.0, 10 * MB)],
            theirs: Some(&theirs),
            ours: &ours,
        };
        assert_eq!(reports.check(Some(3050.0)), Ok(()));
        assert!(matches!(reports.check(Some(LOAD_MS)), Err(Fault::Incomplete(_))));
    }

    #[test]
    fn without_progress_messages_the_bytes_sent_by_the_client_are_the_limit() {
        let check = |arrived: u64, sent: u64| {
            let (ours, theirs) = (sender(sent, 0), sampled([(LOAD_MS, arrived)]));
            let reports = FlowReports {
                direction: Direction::Upload,
                reported: &[],
                theirs: Some(&theirs),
                ours: &ours,
            };
            reports.check(Some(LOAD_MS))
        };
        // A stalled flow has the content of the buffers in flight.
        assert_eq!(check(0, 6 * MB), Ok(()));
        assert_eq!(check(100 * MB, 160 * MB), Ok(()));
        assert!(matches!(check(2 * MB, 100 * MB), Err(Fault::Contradiction(_))));
    }

    #[test]
    fn a_download_must_match_the_bytes_that_were_sent() {
        let check = |sent: u64, again: u64| {
            let (ours, theirs) = (steady(), sender(sent, again));
            let reports = FlowReports {
                direction: Direction::Download,
                reported: &[],
                theirs: Some(&theirs),
                ours: &ours,
            };
            reports.check(Some(LOAD_MS))
        };
        assert_eq!(check(100 * MB, 0), Ok(()));
        assert_eq!(check(160 * MB, 40 * MB), Ok(()));
        for (sent, again) in [(1, 0), (100 * MB, 90 * MB), (100 * MB, 1 << 53), (1 << 53, 0)] {
            assert!(
                matches!(check(sent, again), Err(Fault::Contradiction(_))),
                "{sent}, {again}"
            );
        }
    }
}

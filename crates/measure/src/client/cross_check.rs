//! Compares a server's final result of a flow with its own progress reports, and with what the client sent and received. Pure.
//!
//! [`bounds`](super::bounds) knows the limits of every flow; this module knows what this flow can have been.

use super::bounds::sum;
use crate::protocol::Seen;
use crate::result::Direction;

/// What is sent between the last look at a connection and its end is not in our figures.
const ROOM: u64 = 256 << 10;
/// This part of the bytes may be missing in one look: a busy computer counts them a little later than it looks at its clock.
const PART: u64 = 16;
/// Reports of progress and samples come from different threads of a computer that may be busy.
const SPARE_MS: f64 = 2000.0;
/// Bytes that machines on the way acknowledge before they have passed them on, as some do on satellite links.
const ON_THE_WAY: u64 = 32 << 20;
/// No connection has more under way (RFC 7323, section 2.3).
const LARGEST_WINDOW: u64 = 1 << 30;
/// The samples of an upload end with the load, give or take what clocks differ by.
const EARLY_MS: f64 = 100.0;

/// All that is told of one flow.
pub(super) struct FlowReports<'a> {
    pub(super) direction: Direction,
    /// Of an upload on the way: milliseconds since the load began, and bytes until then.
    pub(super) reported: &'a [(f64, u64)],
    /// The server's results; none if it told none.
    pub(super) theirs: Option<&'a Seen>,
    pub(super) ours: &'a Seen,
}

/// What is wrong with a story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It cannot be.
    Contradiction(&'static str),
    /// It is not all.
    Incomplete(&'static str),
}

impl FlowReports<'_> {
    /// `load_ms` is none if the load ended early: then each end saw another part of it.
    pub(super) fn check(&self, load_ms: Option<f64>) -> Result<(), Fault> {
        match self.direction {
            Direction::Down => self.check_download(),
            Direction::Up => self.check_upload(load_ms),
        }
    }

    fn check_download(&self) -> Result<(), Fault> {
        let Some(totals) = self.theirs.and_then(|theirs| theirs.totals) else {
            return Ok(());
        };
        let arrived = sum(self.ours.samples.iter());
        let new = totals.bytes_sent.saturating_sub(totals.bytes_retransmitted);
        if new.saturating_add(new / PART + ROOM) < arrived {
            return Err(Fault::Contradiction("less was sent there than arrived here"));
        }
        // In time at least half of what a sender has sent has arrived: it may not be far ahead of its acknowledgements.
        if new > arrived.saturating_mul(2).saturating_add(LARGEST_WINDOW) {
            return Err(Fault::Contradiction("more was sent there than can be under way"));
        }
        Ok(())
    }

    fn check_upload(&self, load_ms: Option<f64>) -> Result<(), Fault> {
        let claimed = self.reported.last().map_or(0, |(_, bytes)| *bytes);
        let told = self.theirs.map_or(0, |theirs| sum(theirs.samples.iter()));
        let sent = self.ours.totals;
        let too_much = |sent: u64| told.max(claimed) > sent.saturating_add(sent / 64 + ROOM);
        if sent.is_some_and(|totals| too_much(totals.bytes_sent)) {
            return Err(Fault::Contradiction("more arrived there than was sent"));
        }
        let (Some(theirs), Some(load_ms)) = (self.theirs, load_ms) else {
            return Ok(());
        };
        if self.reported.iter().any(|report| contradicts(theirs, *report)) {
            return Err(Fault::Contradiction(
                "other bytes arrived there than it told on the way",
            ));
        }
        // A sender is ahead of its acknowledgements by as much again at most: its window grows with them.
        let new = sent.map_or(0, |t| t.bytes_sent.saturating_sub(t.bytes_retransmitted));
        if told.saturating_add(ON_THE_WAY).saturating_mul(2) < new {
            return Err(Fault::Contradiction("far less arrived there than was sent"));
        }
        let end = theirs.samples.last().map_or(0.0, |sample| sample.t_ms);
        match end < load_ms * 0.999 - EARLY_MS {
            true => Err(Fault::Incomplete("the end")),
            false => Ok(()),
        }
    }
}

/// Tells that the samples have too few or too many bytes for a progress report. Samples up to [`SPARE_MS`] before and after the
/// report's moment may count either way. A busy server may report after its last sample: that report is not compared.
fn contradicts(theirs: &Seen, (at_ms, reported): (f64, u64)) -> bool {
    let samples = &theirs.samples;
    if samples.last().is_some_and(|last| last.t_ms < at_ms) {
        return false;
    }
    let before = samples.partition_point(|s| s.t_ms <= at_ms - SPARE_MS);
    let after = samples.partition_point(|s| s.t_ms < at_ms + SPARE_MS);
    let least = sum(samples[..before].iter());
    let most = sum(samples.iter().take(after + 1));
    most < reported - reported / PART || least > reported.saturating_add(reported / PART + ROOM)
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
            direction: Direction::Up,
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
            direction: Direction::Up,
            reported: &reported,
            theirs: Some(theirs),
            ours: &sender(101 * MB, MB),
        }
        .check(load_ms)
    }

    #[test]
    fn an_upload_is_what_was_told_on_the_way() {
        let whole = Some(LOAD_MS);
        assert_eq!(upload(&steady(), whole), Ok(()));
        // One sample for all of it, or few, are no contradiction.
        assert_eq!(upload(&sampled([(LOAD_MS, 100 * MB)]), whole), Ok(()));
        assert_eq!(
            upload(&sampled([(4600.0, 46 * MB), (10_200.0, 54 * MB)]), whole),
            Ok(())
        );
        // The server came round to its last report late.
        assert_eq!(upload_with((10_001.0, 110 * MB), &steady()), Ok(()));
        // Half a second late at each moment.
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
    fn a_load_that_ended_early_may_have_less() {
        let early = sampled([(3000.0, 30 * MB)]);
        assert_eq!(upload(&early, None), Ok(()));
        assert!(upload(&early, Some(LOAD_MS)).is_err());
        assert!(upload(&sampled([(3000.0, 200 * MB)]), None).is_err());
    }

    #[test]
    fn an_upload_without_its_end_is_a_part() {
        let ours = sender(30 * MB, 0);
        let theirs = sampled([(3000.0, 30 * MB)]);
        let story = FlowReports {
            direction: Direction::Up,
            reported: &[(1000.0, 10 * MB)],
            theirs: Some(&theirs),
            ours: &ours,
        };
        assert_eq!(story.check(Some(3050.0)), Ok(()));
        assert!(matches!(story.check(Some(LOAD_MS)), Err(Fault::Incomplete(_))));
    }

    #[test]
    fn without_reports_what_was_sent_here_counts() {
        let check = |arrived: u64, sent: u64| {
            let (ours, theirs) = (sender(sent, 0), sampled([(LOAD_MS, arrived)]));
            let story = FlowReports {
                direction: Direction::Up,
                reported: &[],
                theirs: Some(&theirs),
                ours: &ours,
            };
            story.check(Some(LOAD_MS))
        };
        // A flow that stalls has what buffers hold under way.
        assert_eq!(check(0, 6 * MB), Ok(()));
        assert_eq!(check(100 * MB, 160 * MB), Ok(()));
        assert!(matches!(check(2 * MB, 100 * MB), Err(Fault::Contradiction(_))));
    }

    #[test]
    fn a_download_was_sent() {
        let check = |sent: u64, again: u64| {
            let (ours, theirs) = (steady(), sender(sent, again));
            let story = FlowReports {
                direction: Direction::Down,
                reported: &[],
                theirs: Some(&theirs),
                ours: &ours,
            };
            story.check(Some(LOAD_MS))
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

//! What an honest server can have to say in a test. Pure.
//!
//! A server is believed only within these bounds, which come from what was asked of it: how much it says, and which figures can be.

use std::time::Duration;

use crate::connection::Frames;
use crate::load::sample_interval;
use crate::protocol::{MAX_REPLY, Seen};
use crate::result::{Settings, TcpSample, TcpTotals};

/// A server may be this late: it hears of the load's beginning later, and may have to wait for a processor.
const LATE: Duration = Duration::from_secs(10);
/// Messages that are neither results nor due by the clock.
const SPARE_WORDS: u64 = 16;
/// Samples more than the clock gives.
const SPARE_SAMPLES: usize = 8;
/// Bytes of JSON for each sample of a flow, with the kernel's view that comes with it, and for all else.
const SAMPLE_BYTES: usize = 256;
const OTHER_BYTES: usize = 4096;
/// Values of JSON, the same.
const SAMPLE_VALUES: usize = 8;
const OTHER_VALUES: usize = 256;
/// No rate in Mbit/s, time in milliseconds or window in segments is larger.
const LARGEST: f64 = 1e9;
/// No counter is larger: the largest whole number that a reader of JSON takes without loss.
const MOST: u64 = 1 << 53;
/// No segment is larger, in bytes: one packet of IP.
const LARGEST_SEGMENT: u32 = 65_535;

/// The bounds of one server's words in one test.
pub(super) struct Bounds {
    /// Messages from the start of the load to the end.
    pub(super) words: u64,
    /// Samples of one flow.
    samples: usize,
    /// On the server's clock, from the beginning of the load to its last sample.
    length: Duration,
}

impl Bounds {
    /// With so many flows in both directions together.
    pub(super) fn new(settings: &Settings, flows: u32) -> Self {
        let load = Duration::from_millis(settings.load_ms);
        let interval = sample_interval(load, flows as usize);
        Self {
            words: load.as_secs() + u64::from(flows) + SPARE_WORDS,
            samples: (load.as_micros() / interval.as_micros()) as usize + SPARE_SAMPLES,
            length: load + LATE,
        }
    }

    /// The largest message.
    pub(super) fn frames(&self) -> Frames {
        Frames {
            bytes: (OTHER_BYTES + self.samples * SAMPLE_BYTES).min(MAX_REPLY),
            values: OTHER_VALUES + self.samples * SAMPLE_VALUES,
        }
    }

    /// Whether the load can have lasted so long.
    pub(super) fn check_time(&self, elapsed: Duration) -> Result<(), &'static str> {
        match elapsed <= self.length {
            true => Ok(()),
            false => Err("the load has lasted longer there than it can have"),
        }
    }

    /// Whether a flow can have been like this.
    pub(super) fn check(&self, seen: &Seen) -> Result<(), &'static str> {
        if seen.samples.len().max(seen.tcp.len()) > self.samples {
            return Err("it has more samples than there was time for");
        }
        let longest = self.length.as_secs_f64() * 1000.0;
        let is_moment = |t_ms: f64| (0.0..=longest).contains(&t_ms);
        let times = seen.samples.iter().map(|s| s.t_ms);
        if !times.chain(seen.tcp.iter().map(|s| s.t_ms)).all(is_moment) {
            return Err("its samples are not of the time of the load");
        }
        if !seen.samples.is_sorted_by(|a, b| a.t_ms <= b.t_ms)
            || !seen.tcp.is_sorted_by(|a, b| a.t_ms <= b.t_ms)
        {
            return Err("its samples go back in time");
        }
        let bytes = seen
            .samples
            .iter()
            .fold(0, |sum: u64, s| sum.saturating_add(s.bytes));
        let is_sane = bytes <= MOST
            && seen.tcp.iter().all(is_sane_sample)
            && seen.totals.as_ref().is_none_or(are_sane_totals)
            && seen.mss.is_none_or(|mss| mss <= LARGEST_SEGMENT);
        match is_sane {
            true => Ok(()),
            false => Err("its kernel's figures cannot be those of a connection"),
        }
    }
}

fn is_sane_sample(sample: &TcpSample) -> bool {
    let figures = [
        sample.rtt_ms,
        sample.rttvar_ms,
        sample.min_rtt_ms,
        sample.cwnd,
        sample.delivery_mbit,
        sample.pacing_mbit,
    ];
    let counters = [sample.retransmits, sample.delivered_ce, sample.delivered];
    figures.into_iter().flatten().all(is_sane_figure) && counters.into_iter().flatten().all(|n| n <= MOST)
}

fn are_sane_totals(totals: &TcpTotals) -> bool {
    let counters = [
        totals.bytes_sent,
        totals.bytes_retransmitted,
        totals.retransmits,
        totals.delivered_ce,
    ];
    let times = [totals.busy_ms, totals.rwnd_limited_ms, totals.sndbuf_limited_ms];
    counters.into_iter().all(|n| n <= MOST) && times.into_iter().all(is_sane_figure)
}

fn is_sane_figure(figure: f64) -> bool {
    (0.0..=LARGEST).contains(&figure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Sample;

    fn bounds() -> Bounds {
        let settings = Settings {
            load_ms: 10_000,
            ..Settings::default()
        };
        Bounds::new(&settings, 8)
    }

    fn sampled(times: &[f64], bytes: u64) -> Seen {
        Seen {
            samples: times.iter().map(|&t_ms| Sample { t_ms, bytes }).collect(),
            ..Seen::default()
        }
    }

    #[test]
    fn an_honest_flow_is_believed() {
        let times: Vec<f64> = (1..=100).map(|n| f64::from(n) * 100.0).collect();
        let sender = TcpSample {
            t_ms: 10_200.0,
            rtt_ms: Some(600.0),
            cwnd: Some(40_000.0),
            pacing_mbit: Some(34_359.738),
            delivered: Some(u64::from(u32::MAX)),
            ..TcpSample::default()
        };
        let seen = Seen {
            tcp: vec![sender; 51],
            mss: Some(1448),
            ..sampled(&times, 10_000_000_000)
        };
        assert_eq!(bounds().check(&seen), Ok(()));
        let honest = bounds().frames();
        assert!(honest.bytes > 20_000 && honest.bytes < 40_000, "{}", honest.bytes);
    }

    #[test]
    fn figures_that_cannot_be_are_not() {
        let bad = [
            sampled(&[1.0; 120], 1),
            sampled(&[-1.0], 1),
            sampled(&[f64::NAN], 1),
            sampled(&[1e300], 1),
            sampled(&[2.0, 1.0], 1),
            sampled(&[1.0, 2.0], u64::MAX),
            Seen {
                mss: Some(70_000),
                ..Seen::default()
            },
            Seen {
                totals: Some(TcpTotals {
                    busy_ms: -1.0,
                    ..TcpTotals::default()
                }),
                ..Seen::default()
            },
            Seen {
                tcp: vec![TcpSample {
                    rtt_ms: Some(f64::INFINITY),
                    ..TcpSample::default()
                }],
                ..Seen::default()
            },
        ];
        for seen in bad {
            assert!(bounds().check(&seen).is_err(), "{seen:?}");
        }
        assert!(bounds().check_time(Duration::from_secs(21)).is_err());
        assert_eq!(bounds().check_time(Duration::from_secs(11)), Ok(()));
    }
}

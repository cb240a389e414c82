//! Bounds for the results that a server sends. Pure.
//!
//! The client does not trust the server. The bounds follow from the test that the client asked for: the number and size of messages,
//! and the figures that are possible.

use std::time::Duration;

use sqm_core::direction::Direction;

use crate::connection::Frames;
use crate::load::sample_interval;
use crate::protocol::{MAX_REPLY, Seen};
use crate::result::{Sample, Settings, TcpSample, TcpTotals};

/// How late a server may be: the message that starts the load takes time, and the server may have to wait for a processor. A choice.
const LATE: Duration = Duration::from_secs(10);
/// Messages beyond the results and one progress message a second. A choice.
const SPARE_MESSAGES: u64 = 16;
/// Samples beyond those that fit in the time. A choice.
const SPARE_SAMPLES: usize = 8;
/// Bytes of JSON for a sample of a flow with the kernel's view of it, and for the rest of a message.
const SAMPLE_BYTES: usize = 256;
const OTHER_BYTES: usize = 4096;
/// JSON values in a sample of a flow, and in the rest of a message.
const SAMPLE_VALUES: usize = 8;
const OTHER_VALUES: usize = 256;
/// The largest accepted rate in Mbit/s, time in milliseconds, or window in segments.
const LARGEST: f64 = 1e9;
/// The largest accepted counter: 2^53, the largest integer that every reader of JSON keeps exactly.
const MOST: u64 = 1 << 53;
/// The largest segment, bytes: that of the largest IP packet.
const LARGEST_SEGMENT: u32 = 65_535;
/// The smallest segment, bytes: 48, the default of `net.ipv4.tcp_min_snd_mss`, less up to 40 for TCP options.
const SMALLEST_SEGMENT: u32 = 8;
/// Segments without payload, such as those that open and close a connection. Counters of segments have them, counters of bytes do not.
const SPARE_SEGMENTS: u64 = 64;
/// How far two byte counters of the kernel may differ at one moment. A choice.
const SPARE_BYTES: u64 = 256 << 10;
/// Tolerance for times from the kernel, milliseconds. They have the resolution of its tick, 10 ms at most.
const SPARE_MS: f64 = 100.0;
/// How many times the minimum round trip may exceed the smoothed one, which follows changes with a delay. A choice.
const SPARE_RTT: f64 = 2.0;
/// How many times a delivery rate may exceed what the bytes allow: the kernel computes it as if all segments were full, and on the
/// loopback interface they seldom are. A choice.
const SPARE_RATE: f64 = 16.0;
/// The longest time from connecting to the idle phase.
const SETUP: Duration = Duration::from_secs(10);
/// How much shorter a load may be by the server's clock than by ours, besides one part in a thousand. A choice.
const EARLY: Duration = Duration::from_millis(100);
/// Samples without duration may have at most this fraction of all bytes. A busy computer can take two samples within one microsecond.
const IN_NO_TIME: u64 = 16;

/// The bounds for the messages of one server in one test.
pub(super) struct Bounds {
    /// Largest number of messages after the start of the load.
    pub(super) messages: u64,
    /// Largest number of samples of one flow.
    samples: usize,
    /// Longest time from the beginning of the load to its last sample, by the server's clock.
    length: Duration,
    /// Longest duration of a connection.
    connection: Duration,
    load: Duration,
}

impl Bounds {
    /// `flows` is the number of flows in both directions together.
    pub(super) fn new(settings: &Settings, flows: u32) -> Self {
        let load = Duration::from_millis(settings.load_ms);
        let interval = sample_interval(load, flows as usize);
        Self {
            messages: load.as_secs() + u64::from(flows) + SPARE_MESSAGES,
            samples: (load.as_micros() / interval.as_micros()) as usize + SPARE_SAMPLES,
            length: load + LATE,
            connection: SETUP + Duration::from_millis(settings.idle_ms) + load + LATE,
            load,
        }
    }

    /// The shortest duration of the load by any clock.
    pub(super) fn least_load(&self) -> Duration {
        (self.load - self.load / 1000).saturating_sub(EARLY)
    }

    /// The largest message that is accepted.
    pub(super) fn frames(&self) -> Frames {
        Frames {
            bytes: (OTHER_BYTES + self.samples * SAMPLE_BYTES).min(MAX_REPLY),
            values: OTHER_VALUES + self.samples * SAMPLE_VALUES,
        }
    }

    /// Refuses a progress message that is later than the load can have lasted.
    pub(super) fn check_time(&self, elapsed: Duration) -> Result<(), &'static str> {
        match elapsed <= self.length {
            true => Ok(()),
            false => Err("its load lasted longer than the test"),
        }
    }

    /// Refuses results of a flow that are impossible.
    pub(super) fn check(&self, direction: Direction, seen: &Seen) -> Result<(), &'static str> {
        if seen.samples.len().max(seen.tcp.len()) > self.samples {
            return Err("it has more samples than there was time for");
        }
        let longest = self.length.as_secs_f64() * 1000.0;
        let is_moment = |t_ms: f64| (0.0..=longest).contains(&t_ms);
        let times = seen.samples.iter().map(|s| s.t_ms);
        if !times.chain(seen.tcp.iter().map(|s| s.t_ms)).all(is_moment) {
            return Err("its samples lie outside of the load");
        }
        if !seen.samples.is_sorted_by(|a, b| a.t_ms <= b.t_ms)
            || !seen.tcp.is_sorted_by(|a, b| a.t_ms <= b.t_ms)
        {
            return Err("its samples go back in time");
        }
        let is_other_role = match direction {
            Direction::Download => !seen.samples.is_empty(),
            Direction::Upload => seen.totals.is_some(),
        };
        if is_other_role {
            return Err("it reports figures of the other direction");
        }
        let bytes = sum(seen.samples.iter());
        if bytes_in_no_time(&seen.samples) > bytes / IN_NO_TIME {
            return Err("its samples have bytes and no duration");
        }
        let is_sane = bytes <= MOST
            && seen.tcp.iter().all(is_sane_sample)
            && seen.totals.as_ref().is_none_or(are_sane_totals)
            && seen
                .mss
                .is_none_or(|mss| (SMALLEST_SEGMENT..=LARGEST_SEGMENT).contains(&mss));
        if !is_sane {
            return Err("the figures of its kernel are impossible");
        }
        self.check_times_of_kernel(seen)?;
        check_counters(seen)
    }

    /// Refuses a time in the kernel's figures that is longer than the connection lasted.
    fn check_times_of_kernel(&self, seen: &Seen) -> Result<(), &'static str> {
        let longest = self.connection.as_secs_f64() * 1000.0;
        let of_sample = |s: &TcpSample| [s.rtt_ms, s.rttvar_ms, s.min_rtt_ms];
        let mut times = seen.tcp.iter().flat_map(of_sample).flatten();
        let is_long = times.any(|time| time > longest)
            || seen.totals.is_some_and(|t| {
                t.busy_ms > longest || t.rwnd_limited_ms + t.sndbuf_limited_ms > t.busy_ms + SPARE_MS
            });
        if is_long {
            return Err("its kernel counts more time than has passed");
        }
        let is_odd = |s: &TcpSample| {
            let both = s.min_rtt_ms.zip(s.rtt_ms.filter(|rtt| *rtt > 0.0));
            both.is_some_and(|(least, rtt)| least > rtt * SPARE_RTT + SPARE_MS)
        };
        match seen.tcp.iter().any(is_odd) {
            true => Err("its kernel's minimum round trip exceeds the smoothed one"),
            false => Ok(()),
        }
    }
}

/// Refuses counters of the sending kernel that contradict each other. An old kernel has none.
fn check_counters(seen: &Seen) -> Result<(), &'static str> {
    let Some(totals) = seen.totals else {
        return Ok(());
    };
    let segments = |bytes: u64| bytes / u64::from(SMALLEST_SEGMENT) + SPARE_SEGMENTS;
    let (sent, again) = (totals.bytes_sent, totals.bytes_retransmitted);
    if again > sent + SPARE_BYTES || totals.retransmits > segments(again + SPARE_BYTES) {
        return Err("its kernel retransmitted more than it sent");
    }
    let most = segments(sent + SPARE_BYTES);
    let is_beyond = |n: Option<u64>, most: u64| n.is_some_and(|n| n > most);
    let mut samples = seen.tcp.iter();
    if totals.delivered_ce > most
        || samples.any(|s| {
            is_beyond(s.delivered, most)
                || is_beyond(s.delivered_ce, most)
                || is_beyond(s.retransmits, totals.retransmits + SPARE_SEGMENTS)
        })
    {
        return Err("its kernel counts more segments than it sent");
    }
    // The kernel measures a rate over at least a round trip, and over no more than all bytes that it sent.
    let is_rate_beyond = |s: &TcpSample| {
        let both = s.delivery_mbit.zip(s.min_rtt_ms);
        both.is_some_and(|(mbit, rtt_ms)| {
            mbit * rtt_ms * 125.0 > sent as f64 * SPARE_RATE + SPARE_BYTES as f64
        })
    };
    match seen.tcp.iter().any(is_rate_beyond) {
        true => Err("its kernel delivered more in a round trip than in the whole test"),
        false => Ok(()),
    }
}

/// The bytes of all samples together.
pub(super) fn sum<'a>(samples: impl Iterator<Item = &'a Sample>) -> u64 {
    samples.fold(0, |sum: u64, s| sum.saturating_add(s.bytes))
}

/// The bytes of samples without duration. Figures spread the bytes of a sample over its duration, so that such bytes would be
/// missing from all figures.
fn bytes_in_no_time(samples: &[Sample]) -> u64 {
    let begins = std::iter::once(0.0).chain(samples.iter().map(|s| s.t_ms));
    let pairs = begins.zip(samples);
    sum(pairs.filter(|(begin, s)| s.t_ms <= *begin).map(|(_, s)| s))
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
    // A window always has room for a segment.
    sample.cwnd.is_none_or(|cwnd| cwnd >= 1.0)
        && figures.into_iter().flatten().all(is_sane_figure)
        && counters.into_iter().flatten().all(|n| n <= MOST)
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

    /// A download of 10 s with the counters of a kernel and with this sample.
    fn sent(sample: TcpSample) -> Seen {
        let usual = TcpSample {
            t_ms: sample.t_ms,
            rtt_ms: Some(30.0),
            rttvar_ms: Some(2.0),
            min_rtt_ms: Some(20.0),
            cwnd: Some(200.0),
            retransmits: Some(90),
            delivery_mbit: Some(90.0),
            pacing_mbit: Some(120.0),
            delivered_ce: Some(0),
            delivered: Some(70_000),
        };
        Seen {
            tcp: vec![usual, sample],
            totals: Some(TOTALS),
            mss: Some(1448),
            ..Seen::default()
        }
    }

    const TOTALS: TcpTotals = TcpTotals {
        bytes_sent: 100_000_000,
        bytes_retransmitted: 144_800,
        retransmits: 100,
        delivered_ce: 0,
        busy_ms: 10_000.0,
        rwnd_limited_ms: 100.0,
        sndbuf_limited_ms: 9_900.0,
    };

    #[test]
    fn counters_of_a_kernel_that_contradict_each_other_are_refused() {
        let nothing = TcpSample::default();
        let samples = [
            TcpSample {
                cwnd: Some(0.0),
                ..nothing
            },
            TcpSample {
                rtt_ms: Some(1e6),
                ..nothing
            },
            TcpSample {
                rtt_ms: Some(0.05),
                min_rtt_ms: Some(200.0),
                ..nothing
            },
            TcpSample {
                min_rtt_ms: Some(20.0),
                delivery_mbit: Some(1e6),
                ..nothing
            },
            TcpSample {
                retransmits: Some(1000),
                ..nothing
            },
            TcpSample {
                delivered: Some(100_000_000),
                ..nothing
            },
            TcpSample {
                delivered_ce: Some(100_000_000),
                ..nothing
            },
        ];
        let totals = [
            TcpTotals {
                bytes_retransmitted: 200_000_000,
                ..TOTALS
            },
            TcpTotals {
                retransmits: 1_000_000,
                ..TOTALS
            },
            TcpTotals {
                delivered_ce: 100_000_000,
                ..TOTALS
            },
            TcpTotals {
                busy_ms: 40_000.0,
                ..TOTALS
            },
            TcpTotals {
                rwnd_limited_ms: 10_000.0,
                ..TOTALS
            },
        ];
        let honest = sent(nothing);
        let segments = [0, 1].map(|mss| Seen {
            mss: Some(mss),
            ..honest.clone()
        });
        let samples = samples.map(sent);
        let totals = totals.map(|totals| Seen {
            totals: Some(totals),
            ..honest.clone()
        });
        for seen in samples.iter().chain(&totals).chain(&segments) {
            assert!(bounds().check(Direction::Download, seen).is_err(), "{seen:?}");
        }
    }

    #[test]
    fn figures_of_the_other_direction_are_refused() {
        let upload = sampled(&[1.0, 2.0], 1);
        assert!(bounds().check(Direction::Download, &upload).is_err());
        assert!(
            bounds()
                .check(Direction::Upload, &sent(TcpSample::default()))
                .is_err()
        );
    }

    #[test]
    fn samples_with_bytes_and_no_duration_are_refused() {
        let check = |samples: &[(f64, u64)]| {
            let seen = Seen {
                samples: samples.iter().copied().map(Sample::from).collect(),
                ..Seen::default()
            };
            bounds().check(Direction::Upload, &seen)
        };
        assert!(check(&[(500.0, 0), (500.0, 1000), (2000.0, 0)]).is_err());
        assert!(check(&[(0.0, 1000), (2000.0, 0)]).is_err());
        // A busy computer may take two samples within one microsecond.
        assert_eq!(check(&[(500.0, 1000), (500.0, 10), (2000.0, 1000)]), Ok(()));
    }

    #[test]
    fn a_load_lasts_about_as_long_as_asked() {
        let least = bounds().least_load();
        assert!(
            least > Duration::from_millis(9800) && least < Duration::from_secs(10),
            "{least:?}"
        );
    }

    #[test]
    fn a_plausible_flow_is_accepted() {
        let times: Vec<f64> = (1..=100).map(|n| f64::from(n) * 100.0).collect();
        let sender = TcpSample {
            t_ms: 10_200.0,
            rtt_ms: Some(600.0),
            cwnd: Some(40_000.0),
            pacing_mbit: Some(34_359.738),
            delivered: Some(u64::from(u32::MAX)),
            ..TcpSample::default()
        };
        let upload = sampled(&times, 10_000_000_000);
        assert_eq!(bounds().check(Direction::Upload, &upload), Ok(()));
        let download = Seen {
            tcp: vec![sender; 51],
            mss: Some(1448),
            ..Seen::default()
        };
        assert_eq!(bounds().check(Direction::Download, &download), Ok(()));
        assert_eq!(
            bounds().check(Direction::Download, &sent(TcpSample::default())),
            Ok(())
        );
        assert_eq!(bounds().check(Direction::Download, &Seen::default()), Ok(()));
        let honest = bounds().frames();
        assert!(honest.bytes > 20_000 && honest.bytes < 40_000, "{}", honest.bytes);
    }

    #[test]
    fn impossible_figures_are_refused() {
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
            let is_bad = |direction| bounds().check(direction, &seen).is_err();
            assert!(
                is_bad(Direction::Upload) && is_bad(Direction::Download),
                "{seen:?}"
            );
        }
        assert!(bounds().check_time(Duration::from_secs(21)).is_err());
        assert_eq!(bounds().check_time(Duration::from_secs(11)), Ok(()));
    }
}

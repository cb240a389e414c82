//! What an honest server can have to say in a test. Pure.
//!
//! A server is believed only within these bounds, which come from what was asked of it: how much it says, and which figures can be.

use std::time::Duration;

use crate::connection::Frames;
use crate::load::sample_interval;
use crate::protocol::{MAX_REPLY, Seen};
use crate::result::{Direction, Sample, Settings, TcpSample, TcpTotals};

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
/// No connection has smaller ones: of the least that Linux lets anybody ask for, 48 bytes, options of TCP take up to 40.
const SMALLEST_SEGMENT: u32 = 8;
/// Segments in counters that bear nothing, or that the counter of bytes was not told of: those that open and close a connection.
const SPARE_SEGMENTS: u64 = 64;
/// Bytes that one counter of the kernel may have seen and the other not yet.
const SPARE_BYTES: u64 = 256 << 10;
/// Times in the kernel are of its ticks, of 10 ms at the longest.
const SPARE_MS: f64 = 100.0;
/// The least round trip of the last minutes and the smoothed one: the latter follows with a delay.
const SPARE_RTT: f64 = 2.0;
/// The kernel takes segments for full where it tells a rate; over the loopback interface they seldom are.
const SPARE_RATE: f64 = 16.0;
/// A connection stands this long before the idle phase at most.
const SETUP: Duration = Duration::from_secs(10);
/// Clocks may differ by so much in a load: a tenth of a second, and one in a thousand.
const EARLY: Duration = Duration::from_millis(100);
/// Samples of no length have no more than this part of all bytes: what a computer can read off its clock twice in one microsecond.
const IN_NO_TIME: u64 = 16;

/// The bounds of one server's words in one test.
pub(super) struct Bounds {
    /// Messages from the start of the load to the end.
    pub(super) words: u64,
    /// Samples of one flow.
    samples: usize,
    /// On the server's clock, from the beginning of the load to its last sample.
    length: Duration,
    /// From the first packet of a connection to the last.
    connection: Duration,
    load: Duration,
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
            connection: SETUP + Duration::from_millis(settings.idle_ms) + load + LATE,
            load,
        }
    }

    /// The load lasts this long at least, by any clock.
    pub(super) fn least_load(&self) -> Duration {
        (self.load - self.load / 1000).saturating_sub(EARLY)
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
    pub(super) fn check(&self, direction: Direction, seen: &Seen) -> Result<(), &'static str> {
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
        let is_other_role = match direction {
            Direction::Down => !seen.samples.is_empty(),
            Direction::Up => seen.totals.is_some(),
        };
        if is_other_role {
            return Err("it tells of one direction what is of the other");
        }
        let bytes = sum(seen.samples.iter());
        if bytes_in_no_time(&seen.samples) > bytes / IN_NO_TIME {
            return Err("bytes arrived there in no time");
        }
        let is_sane = bytes <= MOST
            && seen.tcp.iter().all(is_sane_sample)
            && seen.totals.as_ref().is_none_or(are_sane_totals)
            && seen
                .mss
                .is_none_or(|mss| (SMALLEST_SEGMENT..=LARGEST_SEGMENT).contains(&mss));
        if !is_sane {
            return Err("its kernel's figures cannot be those of a connection");
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
            return Err("its kernel counts more time than there was");
        }
        let is_odd = |s: &TcpSample| {
            let both = s.min_rtt_ms.zip(s.rtt_ms.filter(|rtt| *rtt > 0.0));
            both.is_some_and(|(least, rtt)| least > rtt * SPARE_RTT + SPARE_MS)
        };
        match seen.tcp.iter().any(is_odd) {
            true => Err("its kernel's least round trip is longer than the usual one"),
            false => Ok(()),
        }
    }
}

/// Refuses counters of the sending kernel that contradict each other. An old kernel tells none.
fn check_counters(seen: &Seen) -> Result<(), &'static str> {
    let Some(totals) = seen.totals else {
        return Ok(());
    };
    let segments = |bytes: u64| bytes / u64::from(SMALLEST_SEGMENT) + SPARE_SEGMENTS;
    let (sent, again) = (totals.bytes_sent, totals.bytes_retransmitted);
    if again > sent + SPARE_BYTES || totals.retransmits > segments(again + SPARE_BYTES) {
        return Err("its kernel sent more again than it sent");
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
    // The kernel takes a rate over a round trip at least, and of no more than all that it sent.
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

/// All bytes of some samples.
pub(super) fn sum<'a>(samples: impl Iterator<Item = &'a Sample>) -> u64 {
    samples.fold(0, |sum: u64, s| sum.saturating_add(s.bytes))
}

/// A figure takes bytes to have come evenly over the time since the sample before: those of no time would be in none.
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
    // A window has room for a segment, or nothing would ever be sent.
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

    /// A download of 10 s that a kernel has counted, with this among its samples.
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
    fn a_kernel_does_not_contradict_itself() {
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
            assert!(bounds().check(Direction::Down, seen).is_err(), "{seen:?}");
        }
    }

    #[test]
    fn a_direction_is_told_of_as_it_is() {
        let upload = sampled(&[1.0, 2.0], 1);
        assert!(bounds().check(Direction::Down, &upload).is_err());
        assert!(
            bounds()
                .check(Direction::Up, &sent(TcpSample::default()))
                .is_err()
        );
    }

    #[test]
    fn bytes_take_time() {
        let check = |samples: &[(f64, u64)]| {
            let seen = Seen {
                samples: samples.iter().copied().map(Sample::from).collect(),
                ..Seen::default()
            };
            bounds().check(Direction::Up, &seen)
        };
        assert!(check(&[(500.0, 0), (500.0, 1000), (2000.0, 0)]).is_err());
        assert!(check(&[(0.0, 1000), (2000.0, 0)]).is_err());
        // Two looks in one microsecond, which a busy computer may take.
        assert_eq!(check(&[(500.0, 1000), (500.0, 10), (2000.0, 1000)]), Ok(()));
    }

    #[test]
    fn a_load_lasts_as_long_as_asked() {
        let least = bounds().least_load();
        assert!(
            least > Duration::from_millis(9800) && least < Duration::from_secs(10),
            "{least:?}"
        );
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
        let upload = sampled(&times, 10_000_000_000);
        assert_eq!(bounds().check(Direction::Up, &upload), Ok(()));
        let download = Seen {
            tcp: vec![sender; 51],
            mss: Some(1448),
            ..Seen::default()
        };
        assert_eq!(bounds().check(Direction::Down, &download), Ok(()));
        assert_eq!(
            bounds().check(Direction::Down, &sent(TcpSample::default())),
            Ok(())
        );
        assert_eq!(bounds().check(Direction::Down, &Seen::default()), Ok(()));
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
            let is_bad = |direction| bounds().check(direction, &seen).is_err();
            assert!(is_bad(Direction::Up) && is_bad(Direction::Down), "{seen:?}");
        }
        assert!(bounds().check_time(Duration::from_secs(21)).is_err());
        assert_eq!(bounds().check_time(Duration::from_secs(11)), Ok(()));
    }
}

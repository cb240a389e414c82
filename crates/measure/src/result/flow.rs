//! The flows of the load, and what the two kernels know of their TCP connections.

use super::direction_word;
use serde::{Deserialize, Serialize};
use sqm_core::direction::Direction;

/// The transport protocol of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Sends as fast as congestion control allows.
    #[default]
    Tcp,
    /// Sends at a fixed rate.
    Udp,
}

/// One flow of the load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Flent's name for it: `TCP download BE`, `TCP upload::3`.
    pub name: String,
    /// Its direction.
    #[serde(with = "direction_word")]
    pub direction: Direction,
    /// TCP or UDP.
    #[serde(default)]
    pub transport: Transport,
    /// The sender's congestion control, as its kernel reported it.
    pub congestion: String,
    /// DSCP that the sender put on its packets, 0 to 63.
    pub dscp: u8,
    /// DSCP of the packets on arrival. `None` if the receiving kernel does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp_arrived: Option<u8>,
    /// True if both ends agreed on ECN. `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecn: Option<bool>,
    /// The sender's segment size in bytes of payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mss: Option<u32>,
    /// The other end, if it is not the test's server: its address, or `IPv4` or `IPv6` where one test uses both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Goodput in the steady part of the phases that load this direction, in Mbit/s.
    pub mbit: f64,
    /// The bytes that arrived, interval by interval.
    pub samples: Vec<Sample>,
    /// `TCP_INFO` of the sender over time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sender: Vec<TcpSample>,
    /// `TCP_INFO` of the receiver over time. It has fewer values than the sender's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receiver: Vec<TcpSample>,
    /// The counters of the sender's kernel at the end of the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totals: Option<TcpTotals>,
}

/// A kernel's view of a TCP connection at one moment (Linux `TCP_INFO`). Unknown values are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TcpSample {
    /// When the kernel was asked.
    pub t_ms: f64,
    /// Smoothed round trip (RFC 6298). It shows the trend; percentiles of it mean little.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<f64>,
    /// Mean deviation of the round trip (RFC 6298).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rttvar_ms: Option<f64>,
    /// The smallest round trip within the kernel's window (`net.ipv4.tcp_min_rtt_wlen`, five minutes by default).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rtt_ms: Option<f64>,
    /// Congestion window in segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwnd: Option<f64>,
    /// Segments retransmitted since the connection began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// The most recent delivery rate, in Mbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_mbit: Option<f64>,
    /// The rate at which the sender spaces its packets, in Mbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pacing_mbit: Option<f64>,
    /// Segments acknowledged with an ECN congestion mark (CE) since the connection began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_ce: Option<u64>,
    /// Segments that have arrived since the connection began, those behind a gap included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered: Option<u64>,
}

/// The counters of a sender's kernel over a whole connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TcpTotals {
    /// Payload bytes sent, retransmissions included.
    pub bytes_sent: u64,
    /// Payload bytes retransmitted.
    pub bytes_retransmitted: u64,
    /// Segments retransmitted.
    pub retransmits: u64,
    /// Segments acknowledged with an ECN congestion mark (CE).
    pub delivered_ce: u64,
    /// Time during which data was in flight, in milliseconds.
    pub busy_ms: f64,
    /// The part of `busy_ms` during which the receiver's window held the sender back.
    pub rwnd_limited_ms: f64,
    /// The part of `busy_ms` during which the sender's own buffer held it back.
    pub sndbuf_limited_ms: f64,
}

/// The bytes of one flow that arrived since the previous sample. In a file: `[t_ms, bytes]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "(f64, u64)", into = "(f64, u64)")]
pub struct Sample {
    /// End of the interval, by the receiver's monotonic clock.
    pub t_ms: f64,
    /// TCP payload bytes.
    pub bytes: u64,
}

impl From<(f64, u64)> for Sample {
    fn from((t_ms, bytes): (f64, u64)) -> Self {
        Self { t_ms, bytes }
    }
}

impl From<Sample> for (f64, u64) {
    fn from(sample: Sample) -> Self {
        (sample.t_ms, sample.bytes)
    }
}

impl Flow {
    /// A TCP flow without samples.
    pub fn new(name: &str, direction: Direction) -> Self {
        Self {
            name: name.to_owned(),
            direction,
            transport: Transport::Tcp,
            congestion: String::new(),
            dscp: 0,
            dscp_arrived: None,
            ecn: None,
            mss: None,
            peer: None,
            mbit: 0.0,
            samples: Vec::new(),
            sender: Vec::new(),
            receiver: Vec::new(),
            totals: None,
        }
    }

    /// Adds the samples of a later connection of this flow. Both connections must have been sampled at the same times: each carried
    /// nothing while the other was active.
    pub(crate) fn continue_with(&mut self, later: Self) {
        for (sample, more) in self.samples.iter_mut().zip(&later.samples) {
            sample.bytes = sample.bytes.saturating_add(more.bytes);
        }
        if let Some(rest) = later.samples.get(self.samples.len()..) {
            self.samples.extend(rest);
        }
        append(&mut self.sender, later.sender);
        append(&mut self.receiver, later.receiver);
        self.totals = match (self.totals, later.totals) {
            (Some(one), Some(other)) => Some(one.plus(other)),
            (one, other) => one.or(other),
        };
        self.ecn = self.ecn.or(later.ecn);
        self.mss = self.mss.or(later.mss);
    }

    /// Mean goodput between two moments in Mbit/s.
    pub fn mbit_between(&self, from_ms: f64, to_ms: f64) -> f64 {
        mbit_between(&self.samples, from_ms, to_ms)
    }

    /// Mean rate between two moments in Mbit/s, from the segments that the sender's kernel counts as delivered. `None` if the kernel
    /// does not report them.
    ///
    /// The receiver delivers nothing behind a gap until the gap is filled, so that goodput over a few seconds is wrong by up to the
    /// content of a queue. The count of delivered segments has no such delay: it is the better one for short measurements of full segments.
    pub fn delivered_mbit_between(&self, from_ms: f64, to_ms: f64) -> Option<f64> {
        let counted = |sample: &TcpSample| Some((sample.t_ms, sample.delivered?));
        let inside = self
            .sender
            .iter()
            .filter(|s| s.t_ms >= from_ms && s.t_ms <= to_ms);
        let mut inside = inside.filter_map(counted);
        let (first, last) = (inside.next()?, inside.next_back()?);
        let bytes = last.1.checked_sub(first.1)? as f64 * f64::from(self.mss?);
        (last.0 > first.0).then(|| bytes * 8.0 / 1000.0 / (last.0 - first.0))
    }
}

impl TcpTotals {
    fn plus(self, other: Self) -> Self {
        Self {
            bytes_sent: self.bytes_sent.saturating_add(other.bytes_sent),
            bytes_retransmitted: self.bytes_retransmitted.saturating_add(other.bytes_retransmitted),
            retransmits: self.retransmits.saturating_add(other.retransmits),
            delivered_ce: self.delivered_ce.saturating_add(other.delivered_ce),
            busy_ms: self.busy_ms + other.busy_ms,
            rwnd_limited_ms: self.rwnd_limited_ms + other.rwnd_limited_ms,
            sndbuf_limited_ms: self.sndbuf_limited_ms + other.sndbuf_limited_ms,
        }
    }
}

/// Appends the samples of a later connection. Its counters go on from those of the earlier one.
fn append(samples: &mut Vec<TcpSample>, later: Vec<TcpSample>) {
    let before = samples.last().copied().unwrap_or_default();
    let sum = |one: Option<u64>, other: Option<u64>| Some(other?.saturating_add(one.unwrap_or(0)));
    samples.extend(later.into_iter().map(|sample| TcpSample {
        retransmits: sum(before.retransmits, sample.retransmits),
        delivered_ce: sum(before.delivered_ce, sample.delivered_ce),
        delivered: sum(before.delivered, sample.delivered),
        ..sample
    }));
}

/// Mean rate in Mbit/s. The bytes of an interval count as if they had arrived evenly over it.
fn mbit_between(samples: &[Sample], from_ms: f64, to_ms: f64) -> f64 {
    // A binary search: a test of one hour has many samples, and a plot of it asks for many ranges.
    let first = samples.partition_point(|sample| sample.t_ms <= from_ms);
    let mut begin = first.checked_sub(1).map_or(0.0, |last| samples[last].t_ms);
    let mut bytes = 0.0;
    for sample in &samples[first..] {
        if begin >= to_ms {
            break;
        }
        let inside = sample.t_ms.min(to_ms) - f64::max(begin, from_ms);
        if inside > 0.0 {
            bytes += sample.bytes as f64 * inside / (sample.t_ms - begin);
        }
        begin = sample.t_ms;
    }
    if to_ms > from_ms {
        bytes * 8.0 / 1000.0 / (to_ms - from_ms)
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_across_the_window_counts_by_its_part_inside() {
        let samples = [
            Sample {
                t_ms: 1000.0,
                bytes: 125_000,
            },
            Sample {
                t_ms: 2000.0,
                bytes: 375_000,
            },
        ];
        assert_eq!(mbit_between(&samples, 0.0, 2000.0), 2.0);
        assert_eq!(mbit_between(&samples, 500.0, 1500.0), 2.0);
        assert_eq!(mbit_between(&samples, 1500.0, 2000.0), 3.0);
        assert_eq!(mbit_between(&samples, 1500.0, 1500.0), 0.0);
    }
}

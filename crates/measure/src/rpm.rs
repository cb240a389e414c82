//! Responsiveness under working conditions, as the IETF measures it: round trips per minute of HTTP requests while HTTP
//! transfers fill the line ([`DRAFT`]).
//!
//! [`server`] is what `sqm serve` offers on its port to any client of this protocol; [`client`] measures against any such
//! server. The figures are computed here. Pure.

pub mod client;
mod connection_limit;
pub(crate) mod server;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::result::{Direction, Finding, Severity};

/// The version of the specification that names, defaults and formulas are of.
pub const DRAFT: &str = "draft-ietf-ippm-responsiveness-09";

/// MAD: intervals in a moving average, and averages that must agree.
pub const MOVING_AVERAGE_DISTANCE: usize = 4;
/// ID: the interval. The draft says 5 s, with which four of them take 20 s before anything can be stable; clients in use,
/// and this one, take 1 s.
pub const INTERVAL: Duration = Duration::from_secs(1);
/// TMP: share of the probes that is kept, the fastest ones.
pub const TRIMMED_MEAN_SHARE: f64 = 0.95;
/// SDT: standard deviation of the moving averages, as a share of the newest, below which a figure is stable.
pub const STABLE_DEVIATION: f64 = 0.05;
/// INP: connections at first.
pub const INITIAL_CONNECTIONS: usize = 1;
/// INC: connections added in each interval.
pub const ADDED_CONNECTIONS: usize = 1;
/// MNP: connections at most.
pub const MAX_CONNECTIONS: usize = 16;
/// MPS: probes per second at most.
pub const MAX_PROBES_PER_S: f64 = 100.0;
/// Fewer would tell nothing.
const MIN_PROBES_PER_S: f64 = 2.0;
/// PTC: share of the capacity that probes may take.
pub const PROBE_SHARE: f64 = 0.05;
/// What a probe of a new connection costs, and one within a connection, in bytes (the draft's estimates).
pub const PROBE_BYTES: (f64, f64) = (5000.0, 1000.0);

/// What the probes of a line take at the least, in Mbit/s: a download below that is no load beside them.
pub const LEAST_LOAD_MBIT: f64 = MIN_PROBES_PER_S * (PROBE_BYTES.0 + PROBE_BYTES.1) * 8.0 / 1e6;

/// A probe with a connection of its own, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForeignProbe {
    /// The TCP handshake.
    pub tcp_ms: f64,
    /// The TLS handshake, divided by the round trips it takes.
    pub tls_ms: f64,
    /// A request of one byte.
    pub http_ms: f64,
}

/// How far a figure may be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Fewer intervals than a moving average has.
    Low,
    /// The figures never became stable.
    Medium,
    /// They did.
    High,
}

/// The responsiveness of one direction under load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Responsiveness {
    /// By the draft: the mean of the two that follow.
    pub rpm: f64,
    /// Of new connections. A queue that is fair to flows shows them none of the load's delay.
    pub foreign_rpm: f64,
    /// Of requests within the connections that make the load.
    pub self_rpm: f64,
    /// Goodput at the end, Mbit/s of HTTP bodies.
    pub mbit: f64,
    /// Connections at the end.
    pub connections: usize,
    /// Probes of new connections that went into the figure.
    pub foreign_probes: usize,
    /// Requests within load connections that went into the figure.
    pub self_probes: usize,
    /// Whether it is to be believed.
    pub confidence: Confidence,
}

impl Responsiveness {
    /// The draft's words for its bands.
    pub fn word(&self) -> &'static str {
        match self.rpm {
            rpm if rpm < 300.0 => "poor",
            rpm if rpm < 1000.0 => "fair",
            rpm if rpm < 6000.0 => "good",
            _ => "excellent",
        }
    }
}

/// Round trips of a line that nothing loads are no responsiveness under working conditions. `is_under_way`: whether a transfer goes on.
pub fn unloaded(direction: Direction, mbit: f64, is_under_way: bool) -> Option<Finding> {
    let is_loaded = match direction {
        Direction::Down => is_under_way && mbit >= LEAST_LOAD_MBIT,
        // What leaves does so in lumps, which on a slow line are far between.
        Direction::Up => is_under_way,
    };
    let word = direction.word();
    let why = match is_under_way {
        true => "",
        false => ": the server ends the transfers, or takes nothing",
    };
    (!is_loaded).then(|| Finding {
        severity: Severity::Invalid,
        code: "load_not_reached".to_owned(),
        text: format!(
            "the {word} loaded the line with {mbit:.1} Mbit/s{why}; its round trips say nothing about load"
        ),
    })
}

/// The mean without the slowest twentieth; none of an empty set.
pub fn trimmed_mean(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let kept = (sorted.len() as f64 * TRIMMED_MEAN_SHARE).ceil() as usize;
    let kept = sorted.get(..kept).filter(|kept| !kept.is_empty())?;
    Some(kept.iter().sum::<f64>() / kept.len() as f64)
}

/// Round trips per minute of new connections: `60000 / ((TM(tcp) + TM(tls) + TM(http)) / 3)`.
pub fn foreign_rpm(probes: &[ForeignProbe]) -> Option<f64> {
    let mean = |part: fn(&ForeignProbe) -> f64| trimmed_mean(&probes.iter().map(part).collect::<Vec<_>>());
    let sum = mean(|p| p.tcp_ms)? + mean(|p| p.tls_ms)? + mean(|p| p.http_ms)?;
    Some(180_000.0 / sum)
}

/// Round trips per minute within load connections: `60000 / TM(http)`.
pub fn self_rpm(requests_ms: &[f64]) -> Option<f64> {
    Some(60_000.0 / trimmed_mean(requests_ms)?)
}

/// Whether the newest moving averages of a figure agree: `values` are one for each interval so far.
pub fn is_stable(values: &[f64]) -> bool {
    let averages: Vec<f64> = values
        .windows(MOVING_AVERAGE_DISTANCE)
        .map(|window| window.iter().sum::<f64>() / window.len() as f64)
        .collect();
    let Some(newest) = averages.len().checked_sub(MOVING_AVERAGE_DISTANCE) else {
        return false;
    };
    let newest = &averages[newest..];
    let mean = newest.iter().sum::<f64>() / newest.len() as f64;
    let variance = newest.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / newest.len() as f64;
    let last = newest[newest.len() - 1];
    last > 0.0 && variance.sqrt() < STABLE_DEVIATION * last
}

/// Probes of both kinds per second that a line of this capacity has room for.
pub fn probes_per_s(mbit: f64) -> f64 {
    let both = (PROBE_BYTES.0 + PROBE_BYTES.1) * 8.0;
    (mbit * 1e6 * PROBE_SHARE / both).clamp(MIN_PROBES_PER_S, MAX_PROBES_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drafts_formulas() {
        // Twenty probes of which the slowest is left out.
        let mut slow = vec![20.0; 19];
        slow.push(1000.0);
        assert_eq!(trimmed_mean(&slow), Some(20.0));
        assert_eq!(self_rpm(&slow), Some(3000.0));
        assert_eq!(trimmed_mean(&[]), None);
        let probe = ForeignProbe {
            tcp_ms: 10.0,
            tls_ms: 20.0,
            http_ms: 30.0,
        };
        assert_eq!(foreign_rpm(&[probe; 3]), Some(3000.0));
    }

    #[test]
    fn stable_is_what_four_moving_averages_agree_on() {
        assert!(!is_stable(&[100.0; 6]));
        assert!(is_stable(&[100.0; 7]));
        let rising: Vec<f64> = (1..=7).map(|i| f64::from(i) * 20.0).collect();
        assert!(!is_stable(&rising));
        assert!(!is_stable(&[0.0; 9]));
    }

    #[test]
    fn probes_take_a_twentieth_of_the_line_at_most() {
        assert_eq!(probes_per_s(1.0), 2.0);
        assert!((probes_per_s(48.0) - 50.0).abs() < 1e-9);
        assert_eq!(probes_per_s(1000.0), 100.0);
    }
}

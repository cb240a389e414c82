//! Responsiveness under working conditions ([`DRAFT`]): round trips per minute of HTTP requests while HTTP transfers fill
//! the line.
//!
//! `server` is the part of `sqm serve` that any client of this protocol can use. [`client`] measures against any server of
//! this protocol. This file computes the figures and is pure.

pub mod client;
mod configuration;
mod connection;
mod connection_limit;
pub(crate) mod server;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sqm_core::direction::Direction;

use crate::grade::LoadGrade;
use crate::result::{AddedLatency, DirectionFigures, Finding, Severity, Summary};

/// The version of the specification from which the names, defaults and formulas here come.
pub const DRAFT: &str = "draft-ietf-ippm-responsiveness-09";

/// MAD: the number of intervals in a moving average, and of moving averages that must agree.
pub const MOVING_AVERAGE_DISTANCE: usize = 4;
/// ID: the interval. With the 5 s of the draft, no figure can be stable before 20 s. The clients in use take 1 s, and so does
/// this one.
pub const INTERVAL: Duration = Duration::from_secs(1);
/// TMP: the share of the probes, fastest first, that the trimmed mean keeps.
pub const TRIMMED_MEAN_SHARE: f64 = 0.95;
/// SDT: a figure is stable if the standard deviation of the moving averages is below this share of the newest.
pub const STABLE_DEVIATION: f64 = 0.05;
/// INP: the number of connections at the beginning.
pub const INITIAL_CONNECTIONS: usize = 1;
/// INC: the number of connections added in each interval.
pub const ADDED_CONNECTIONS: usize = 1;
/// MNP: the largest number of connections.
pub const MAX_CONNECTIONS: usize = 16;
/// MPS: the largest number of probes per second.
pub const MAX_PROBES_PER_S: f64 = 100.0;
/// The smallest number of probes per second, also on slow lines. A choice: four intervals of 1 s then have eight probes.
const MIN_PROBES_PER_S: f64 = 2.0;
/// PTC: the share of the capacity that probes may take.
pub const PROBE_SHARE: f64 = 0.05;
/// Bytes that a probe takes on a new connection, and within an existing one (estimates of the draft).
pub const PROBE_BYTES: (f64, f64) = (5000.0, 1000.0);

/// The rate of [`MIN_PROBES_PER_S`], in Mbit/s. A download below this rate does not load the line: the probes alone take as much.
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

/// How reliable a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Fewer intervals than a moving average has.
    Low,
    /// The figures never became stable.
    Medium,
    /// The figures became stable.
    High,
}

/// The responsiveness of one direction under load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Responsiveness {
    /// Round trips per minute: the mean of the next two figures, as the draft has it.
    pub rpm: f64,
    /// Round trips per minute of new connections. With fair queuing they do not see the delay of the load.
    pub foreign_rpm: f64,
    /// Round trips per minute of requests within the connections that load the line.
    pub self_rpm: f64,
    /// Goodput at the end, Mbit/s of HTTP bodies.
    pub mbit: f64,
    /// Number of connections at the end.
    pub connections: usize,
    /// Number of probes of new connections in the figure.
    pub foreign_probes: usize,
    /// Number of requests within load connections in the figure.
    pub self_probes: usize,
    /// How reliable the figure is.
    pub confidence: Confidence,
    /// The round trip that this load adds, by the TCP handshakes of the probes with new connections. `None` in reports of
    /// older versions.
    #[serde(default)]
    pub added: Option<AddedLatency>,
}

/// The fewest probes of which 5 % are one probe.
const FEWEST_PROBES: u64 = 20;

/// The grade of the loads of this test, by the rule of all tests.
///
/// # Errors
///
/// The reason, in words, why there is none.
pub fn grade(
    idle_ms: Option<f64>,
    download: Option<&Responsiveness>,
    upload: Option<&Responsiveness>,
) -> Result<LoadGrade, String> {
    let loads = || download.into_iter().chain(upload);
    let added: Vec<AddedLatency> = loads().filter_map(|load| load.added.clone()).collect();
    if added.is_empty() {
        return Err("no direction was loaded".to_owned());
    }
    if let Some(fewest) = added
        .iter()
        .map(|load| load.sent)
        .min()
        .filter(|sent| *sent < FEWEST_PROBES)
    {
        return Err(format!(
            "only {fewest} round trips were measured under a load, and a grade needs {FEWEST_PROBES}: this protocol allows few probes on a \
             slow line"
        ));
    }
    let figures = |load: &Responsiveness| DirectionFigures {
        mbit: load.mbit,
        ..DirectionFigures::default()
    };
    let summary = Summary {
        nearest_idle_ms: idle_ms,
        down: download.map(figures),
        up: upload.map(figures),
        added,
        ..Summary::default()
    };
    LoadGrade::of(&summary).ok_or_else(|| "no round trip was measured on the idle line".to_owned())
}

impl Responsiveness {
    /// The draft's word for a range of figures.
    pub fn word(&self) -> &'static str {
        match self.rpm {
            rpm if rpm < 300.0 => "poor",
            rpm if rpm < 1000.0 => "fair",
            rpm if rpm < 6000.0 => "good",
            _ => "excellent",
        }
    }
}

/// The finding for a direction that did not load the line: its round trips are not those of working conditions. `is_under_way` is
/// true if a transfer was still going on at the end.
pub fn unloaded(direction: Direction, mbit: f64, is_under_way: bool) -> Option<Finding> {
    let is_loaded = match direction {
        Direction::Download => is_under_way && mbit >= LEAST_LOAD_MBIT,
        // The rate is no criterion: an upload leaves in large pieces, which are far apart on a slow line.
        Direction::Upload => is_under_way,
    };
    let word = direction.name();
    let why = match is_under_way {
        true => "",
        false => ": the server ends the transfers or accepts no data",
    };
    (!is_loaded).then(|| Finding {
        severity: Severity::Invalid,
        code: "load_not_reached".to_owned(),
        text: format!(
            "the {word} loaded the line with {mbit:.1} Mbit/s{why}; its round trips say nothing about load"
        ),
    })
}

/// The mean without the slowest twentieth. `None` for an empty set.
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

/// True if the newest moving averages of a figure agree. `values` has one value for each interval so far.
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

/// Probes per second, of each kind, on a line of this capacity.
pub fn probes_per_s(mbit: f64) -> f64 {
    let both = (PROBE_BYTES.0 + PROBE_BYTES.1) * 8.0;
    (mbit * 1e6 * PROBE_SHARE / both).clamp(MIN_PROBES_PER_S, MAX_PROBES_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_of_the_draft() {
        // The slowest of twenty probes is left out.
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
    fn a_grade_is_of_the_worse_direction_and_needs_enough_round_trips() {
        let loaded = |direction, added_ms: f64, probes: usize| Responsiveness {
            rpm: 1000.0,
            foreign_rpm: 1000.0,
            self_rpm: 1000.0,
            mbit: 20.0,
            connections: 4,
            foreign_probes: probes,
            self_probes: probes,
            confidence: Confidence::High,
            added: Some(AddedLatency::of(vec![direction], &vec![added_ms; probes], 0)),
        };
        let (down, up) = (
            loaded(Direction::Download, 2.0, 100),
            loaded(Direction::Upload, 250.0, 100),
        );
        let letter = |down, up| grade(Some(20.0), down, up).map(|grade| (grade.letter, grade.loaded));
        assert_eq!(
            letter(Some(&down), None),
            Ok(("A+".to_owned(), vec![Direction::Download]))
        );
        assert_eq!(
            letter(Some(&down), Some(&up)),
            Ok(("D".to_owned(), vec![Direction::Upload]))
        );
        let few = loaded(Direction::Upload, 250.0, 19);
        assert!(
            letter(Some(&down), Some(&few))
                .unwrap_err()
                .contains("only 19 round trips")
        );
        assert!(
            letter(None, None)
                .unwrap_err()
                .contains("no direction was loaded")
        );
    }

    #[test]
    fn a_figure_is_stable_when_four_moving_averages_agree() {
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

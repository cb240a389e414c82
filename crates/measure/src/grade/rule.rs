//! The rule of the grade. docs/reference/numbers.md has its table and the sources.

use serde::{Deserialize, Serialize};

use crate::result::AddedLatency;
use crate::stats;

/// The bounds of a letter: of the round trip that a load adds, milliseconds, and of the share of probes that are lost under it.
struct Bounds {
    letter: &'static str,
    /// All figures must be below their bounds.
    median_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    lost: f64,
}

/// The best letter first; F is beyond the last.
///
/// Medians have the bounds of DSLReports' bufferbloat grade (FAQ 17930), lost probes those of its quality grade, which counts packets
/// lost or repeated. The 95th percentile may be one letter worse than the grade and the 99th two: a choice. The bound after
/// DSLReports' last is a second, the least time that a TCP sender waits before it repeats a packet (RFC 6298, 2.4). The 99th
/// percentile alone never gives an F, because in a short test a single probe decides it.
const RULE: [Bounds; 5] = [
    bounds("A+", [5.0, 30.0, 60.0], 0.01),
    bounds("A", [30.0, 60.0, 200.0], 0.025),
    bounds("B", [60.0, 200.0, 400.0], 0.03),
    bounds("C", [200.0, 400.0, 1000.0], 0.05),
    bounds("D", [400.0, 1000.0, f64::INFINITY], 0.12),
];

const fn bounds(letter: &'static str, [median_ms, p95_ms, p99_ms]: [f64; 3], lost: f64) -> Bounds {
    Bounds {
        letter,
        median_ms,
        p95_ms,
        p99_ms,
        lost,
    }
}

/// The figure that decided a grade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecidedBy {
    /// The median.
    Median,
    /// The 95th percentile.
    P95,
    /// The 99th percentile.
    P99,
    /// The share of lost probes.
    Loss,
}

/// The place of a load in the rule: 0 is the best letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rank {
    pub(super) place: usize,
    pub(super) decided_by: DecidedBy,
}

impl Rank {
    /// The rank of a load. `None` if no probe came back under it, or none before it.
    pub(super) fn of(load: &AddedLatency) -> Option<Self> {
        let lost = stats::share(load.lost, load.sent);
        let places = [
            (DecidedBy::Median, place(load.median_ms?, |b| b.median_ms)),
            (DecidedBy::P95, place(load.p95_ms?, |b| b.p95_ms)),
            (DecidedBy::P99, place(load.p99_ms?, |b| b.p99_ms)),
            // A bound of DSLReports on loss belongs to the letter, unlike its bounds on latency.
            (DecidedBy::Loss, RULE.iter().take_while(|b| lost > b.lost).count()),
        ];
        let worst = places.iter().map(|(_, place)| *place).max()?;
        let (decided_by, place) = *places.iter().find(|(_, place)| *place == worst)?;
        Some(Self { place, decided_by })
    }

    pub(super) fn letter(self) -> &'static str {
        RULE.get(self.place).map_or("F", |bounds| bounds.letter)
    }
}

/// The letter for a median and a 95th percentile alone, of round trips that nobody probed.
pub fn letter(median_ms: f64, p95_ms: f64) -> &'static str {
    let worst = place(median_ms, |b| b.median_ms).max(place(p95_ms, |b| b.p95_ms));
    RULE.get(worst).map_or("F", |bounds| bounds.letter)
}

fn place(ms: f64, bound: fn(&Bounds) -> f64) -> usize {
    RULE.iter().take_while(|bounds| ms >= bound(bounds)).count()
}

/// The rule in words, a line for each figure.
pub(super) fn words() -> String {
    let row = |name: &str, bound: fn(&Bounds) -> f64, unit: &str| {
        let each: Vec<String> = RULE
            .iter()
            .filter(|bounds| bound(bounds).is_finite())
            .map(|bounds| format!("{} {}", bounds.letter, bound(bounds)))
            .collect();
        format!("  {name:<16}{:>10} {:<8}{} {unit}\n", "", "", each.join(", "))
    };
    row("median below", |b| b.median_ms, "ms")
        + &row("95 % below", |b| b.p95_ms, "ms")
        + &row("99 % below", |b| b.p99_ms, "ms")
        + &row("lost at most", |b| b.lost * 100.0, "%")
}

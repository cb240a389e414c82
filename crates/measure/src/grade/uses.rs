//! The quality of outcome for each use of a line (draft-ietf-ippm-qoo). Pure.
//!
//! A use has requirements for latency percentiles, loss and throughput. Each is met in full at or below the optimal value and not at
//! all at the unacceptable one; between them it is met in part, linearly. The score is the worst of all parts. The draft leaves
//! the values to others; docs/reference/numbers.md has the sources of ours.

use serde::{Deserialize, Serialize};

use crate::result::{AddedLatency, Summary};
use crate::stats;

/// A use of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UseName {
    /// Voice and video calls.
    Calls,
    /// Online games.
    Games,
    /// Films and other streams that are buffered.
    Films,
    /// Remote desktops, terminals and web pages.
    Work,
}

impl UseName {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Games => "games",
            Self::Films => "films",
            Self::Work => "remote work",
        }
    }
}

/// How well a use works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quality {
    /// A score of 75 and more. The four words divide the scale evenly: a choice.
    Good,
    /// A score of 50 to 74.
    Fair,
    /// A score of 25 to 49.
    Poor,
    /// A score below 25.
    Bad,
}

impl Quality {
    fn of(qoo: u8) -> Self {
        match qoo {
            75.. => Self::Good,
            50.. => Self::Fair,
            25.. => Self::Poor,
            _ => Self::Bad,
        }
    }

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Fair => "fair",
            Self::Poor => "poor",
            Self::Bad => "bad",
        }
    }
}

/// The effect of the load on a use, as people notice it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Nothing.
    Smooth,
    /// The use may stutter.
    MayStutter,
    /// The use stutters.
    Stutters,
    /// The use stutters, and the idle round trip is so long that it would without load as well.
    StuttersIdle,
}

impl Outcome {
    fn of(quality: Quality, idle: Quality) -> Self {
        match (quality, idle) {
            (Quality::Good, _) => Self::Smooth,
            (Quality::Fair, _) => Self::MayStutter,
            (_, Quality::Good | Quality::Fair) => Self::Stutters,
            _ => Self::StuttersIdle,
        }
    }
}

/// The verdict for one use while the line is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    /// The use.
    pub name: UseName,
    /// Quality of outcome under the worst load of the test: 0 is unacceptable, 100 is optimal.
    pub qoo: u8,
    /// The word for the score.
    pub quality: Quality,
    /// The effect that people notice.
    pub outcome: Outcome,
}

/// The optimal and the unacceptable value of a requirement.
type Scale = (f64, f64);

/// Requirements of a use: round trips in milliseconds, and rates in Mbit/s.
struct Needs {
    name: UseName,
    p95_ms: Option<Scale>,
    p99_ms: Option<Scale>,
    down_mbit: f64,
    up_mbit: f64,
}

/// The shares of lost packets that are optimal and unacceptable, for every use: those of the draft's worked example.
const LOST: Scale = (0.01, 0.05);

/// docs/reference/numbers.md has the source of each value, or says that it is a choice.
const NEEDS: [Needs; 4] = [
    Needs {
        name: UseName::Calls,
        p95_ms: Some((100.0, 300.0)),
        p99_ms: Some((300.0, 800.0)),
        down_mbit: 0.5,
        up_mbit: 0.5,
    },
    Needs {
        name: UseName::Games,
        p95_ms: None,
        p99_ms: Some((50.0, 200.0)),
        down_mbit: 0.0,
        up_mbit: 0.0,
    },
    Needs {
        name: UseName::Films,
        p95_ms: Some((200.0, 1000.0)),
        p99_ms: None,
        down_mbit: 3.0,
        up_mbit: 0.0,
    },
    Needs {
        name: UseName::Work,
        p95_ms: Some((100.0, 400.0)),
        p99_ms: Some((400.0, 1000.0)),
        down_mbit: 0.0,
        up_mbit: 0.0,
    },
];

/// The verdict for each use. Empty if the figures do not allow one.
pub(super) fn uses(summary: &Summary) -> Vec<Use> {
    let found = NEEDS.iter().map(|needs| {
        let loads = summary.added.iter();
        let scores = loads.map(|load| needs.under(load, summary));
        let loaded = scores.reduce(|a, b| Some(a?.min(b?)))??;
        let loaded = loaded.min(needs.throughput(summary));
        let idle = summary.nearest_idle_ms?;
        let idle = part(needs.p95_ms, idle).min(part(needs.p99_ms, idle));
        let qoo = percent(loaded);
        let quality = Quality::of(qoo);
        Some(Use {
            name: needs.name,
            qoo,
            quality,
            outcome: Outcome::of(quality, Quality::of(percent(idle))),
        })
    });
    found.collect::<Option<_>>().unwrap_or_default()
}

impl Needs {
    /// Latency and loss under a load, 0 to 1.
    ///
    /// The round trips are those to the nearest server of the test.
    fn under(&self, load: &AddedLatency, summary: &Summary) -> Option<f64> {
        let idle = summary.nearest_idle_ms?;
        let p95 = part(self.p95_ms, idle + load.p95_ms?);
        let p99 = part(self.p99_ms, idle + load.p99_ms?);
        let lost = part(Some(LOST), stats::share(load.lost, load.sent));
        Some(p95.min(p99).min(lost))
    }

    /// 1 if the line carries enough in the directions that were tested, else 0.
    fn throughput(&self, summary: &Summary) -> f64 {
        let is_slow = |direction: &Option<crate::result::DirectionFigures>, mbit: f64| {
            direction.as_ref().is_some_and(|found| found.mbit < mbit)
        };
        if is_slow(&summary.down, self.down_mbit) || is_slow(&summary.up, self.up_mbit) {
            0.0
        } else {
            1.0
        }
    }
}

/// The part of a requirement that a value meets, 0 to 1.
fn part(scale: Option<Scale>, value: f64) -> f64 {
    let Some((optimal, unacceptable)) = scale else {
        return 1.0;
    };
    (1.0 - (value - optimal) / (unacceptable - optimal)).clamp(0.0, 1.0)
}

/// Whole per cent, rounded down: 100 is optimal in all respects.
fn percent(part: f64) -> u8 {
    (part * 100.0 + 1e-9) as u8
}

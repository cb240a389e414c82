//! How a test is run, and the phases that follow from it.

use super::direction_word;
use serde::{Deserialize, Serialize};
use sqm_core::direction::Direction;

/// The steady window ends this many milliseconds before the load does. The flows do not all end at the same moment, and the two clocks
/// differ a little; one second is a choice that covers both.
pub const TAIL_MS: u64 = 1000;

/// How a test is run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// TCP flows from server to client, 0 to 64.
    pub down: u32,
    /// TCP flows from client to server, 0 to 64.
    pub up: u32,
    /// Baseline before the load, in milliseconds, at most a minute.
    pub idle_ms: u64,
    /// Length of the load in milliseconds: of all loaded phases together.
    pub load_ms: u64,
    /// How the load is divided into phases. Files of earlier programs do not say it; their directions were loaded together.
    #[serde(default, skip_serializing_if = "LoadOrder::is_together")]
    pub load_order: LoadOrder,
    /// Idle time measured after the load, in milliseconds.
    #[serde(default)]
    pub after_ms: u64,
    /// The figures leave out this much of the beginning of each loaded phase, in milliseconds. They also leave out its last [`TAIL_MS`].
    pub settle_ms: u64,
    /// Time between two probes in milliseconds.
    pub probe_interval_ms: u64,
    /// Congestion control of all senders. `None` keeps the default of each system.
    pub congestion: Option<String>,
    /// DSCPs of the flows of each direction, 0 to 63. The first flow takes the first, and so on; after the last they start over.
    pub dscp: Vec<u8>,
    /// Largest TCP segment in bytes, options included. `None` keeps the default of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mss: Option<u32>,
    /// ECN on or off. `None` keeps the setting of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecn: Option<bool>,
}

/// How the load of a test is divided into phases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadOrder {
    /// One phase: all flows at once, as in Flent's tests.
    #[default]
    Together,
    /// Three phases of equal length: the downloads alone, the uploads alone, and both at once. With flows of one direction only, this
    /// is one phase.
    InTurn,
}

impl LoadOrder {
    fn is_together(&self) -> bool {
        *self == Self::Together
    }
}

impl Default for Settings {
    /// Four flows each way, as in RRUL, but for 25 s instead of 60 s.
    fn default() -> Self {
        Self {
            down: 4,
            up: 4,
            idle_ms: 3000,
            load_ms: 25_000,
            load_order: LoadOrder::Together,
            after_ms: 0,
            settle_ms: 4000,
            probe_interval_ms: 100,
            congestion: Some("cubic".to_owned()),
            dscp: vec![0],
            mss: None,
            ecn: None,
        }
    }
}

impl Settings {
    /// The phases of a test: idle, the loaded phases, idle. Phases without length are left out.
    pub fn phases(&self) -> Vec<Phase> {
        let phase = |loaded, from_ms, to_ms| Phase {
            loaded,
            from_ms,
            to_ms,
        };
        let (idle, load, after) = (self.idle_ms as f64, self.load_ms as f64, self.after_ms as f64);
        let mut phases = vec![phase(Vec::new(), -idle, 0.0)];
        let loads = self.loads();
        let length = self.phase_ms();
        for (index, loaded) in loads.into_iter().enumerate() {
            phases.push(phase(loaded, index as f64 * length, (index + 1) as f64 * length));
        }
        phases.push(phase(Vec::new(), load, load + after));
        phases.retain(|p| p.to_ms > p.from_ms);
        phases
    }

    /// The directions of each loaded phase, in order. One phase without a direction if the test has no flows.
    fn loads(&self) -> Vec<Vec<Direction>> {
        let flows = [(Direction::Download, self.down), (Direction::Upload, self.up)];
        let loaded: Vec<_> = flows
            .into_iter()
            .filter(|(_, n)| *n > 0)
            .map(|(d, _)| d)
            .collect();
        match (self.load_order, loaded.as_slice()) {
            (LoadOrder::InTurn, [first, second]) => vec![vec![*first], vec![*second], loaded],
            _ => vec![loaded],
        }
    }

    /// Length of each loaded phase in milliseconds.
    pub fn phase_ms(&self) -> f64 {
        self.load_ms as f64 / self.loads().len() as f64
    }

    /// True if each direction is also loaded alone.
    pub fn is_in_turn(&self) -> bool {
        self.loads().len() > 1
    }
}

/// A part of a test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// The directions that carry load. Empty on an idle line.
    #[serde(with = "direction_word::list")]
    pub loaded: Vec<Direction>,
    /// When it begins.
    pub from_ms: f64,
    /// When it ends.
    pub to_ms: f64,
}

impl Phase {
    /// True if the line carries only probes.
    pub fn is_idle(&self) -> bool {
        self.loaded.is_empty()
    }

    /// The phase in one word: `idle`, `download`, `upload` or `both`.
    pub fn name(&self) -> &'static str {
        phase_name(&self.loaded)
    }

    /// The steady part of a load, from which the figures are computed: without its first `settle_ms` and without [`TAIL_MS`].
    pub fn steady(&self, settle_ms: u64) -> (f64, f64) {
        let from = self.from_ms + settle_ms as f64;
        (from, (self.to_ms - TAIL_MS as f64).max(from))
    }
}

/// A phase with load in these directions, in one word.
pub(super) fn phase_name(loaded: &[Direction]) -> &'static str {
    match loaded {
        [] => "idle",
        [direction] => direction.name(),
        _ => "both",
    }
}

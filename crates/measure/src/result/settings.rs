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
    /// Length of the load in milliseconds.
    pub load_ms: u64,
    /// Idle time measured after the load, in milliseconds.
    #[serde(default)]
    pub after_ms: u64,
    /// The figures leave out this much of the beginning of the load, in milliseconds. They also leave out its last [`TAIL_MS`].
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

impl Default for Settings {
    /// Four flows each way, as in RRUL, but for 25 s instead of 60 s.
    fn default() -> Self {
        Self {
            down: 4,
            up: 4,
            idle_ms: 3000,
            load_ms: 25_000,
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
    /// The phases of a test with one load: idle, load, idle. Phases without length are left out.
    pub fn phases(&self) -> Vec<Phase> {
        let (idle, load, after) = (self.idle_ms as f64, self.load_ms as f64, self.after_ms as f64);
        let loaded = [(Direction::Download, self.down), (Direction::Upload, self.up)];
        let loaded = loaded
            .into_iter()
            .filter(|(_, flows)| *flows > 0)
            .map(|(d, _)| d)
            .collect();
        let phase = |loaded, from_ms, to_ms| Phase {
            loaded,
            from_ms,
            to_ms,
        };
        let phases = [
            phase(Vec::new(), -idle, 0.0),
            phase(loaded, 0.0, load),
            phase(Vec::new(), load, load + after),
        ];
        phases.into_iter().filter(|p| p.to_ms > p.from_ms).collect()
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

    /// The steady part of a load, from which the figures are computed: without its first `settle_ms` and without [`TAIL_MS`].
    pub fn steady(&self, settle_ms: u64) -> (f64, f64) {
        let from = self.from_ms + settle_ms as f64;
        (from, (self.to_ms - TAIL_MS as f64).max(from))
    }
}

//! Converts the rates of a Flent file to bytes.

use super::numbers::SANE;
use super::parts::Raw;
use crate::result::Sample;

/// Flent bridges gaps of up to five steps. A flow that is silent for longer counts as carrying nothing.
const BRIDGED_STEPS: f64 = 5.0;

/// Converts rates of intervals to bytes of consecutive intervals.
pub(super) struct Intervals {
    /// Step of the file's grid, seconds.
    step_s: f64,
    pub(super) samples: Vec<Sample>,
}

impl Intervals {
    pub(super) const fn new(step_s: f64) -> Self {
        Self {
            step_s,
            samples: Vec::new(),
        }
    }

    /// Adds a sample. `t_ms` is its time since the load began. Returns the number of samples added.
    pub(super) fn take(&mut self, t_ms: Option<f64>, raw: &Raw) -> usize {
        let before = self.samples.len();
        let (Some(t_ms), Some(mbit)) = (t_ms, raw.val.filter(|v| (0.0..SANE).contains(v))) else {
            return 0;
        };
        let dur_ms = raw.dur.unwrap_or(self.step_s).clamp(0.0, SANE) * 1000.0;
        let last = self.samples.last().map(|sample| sample.t_ms);
        let mut begin = last.unwrap_or_else(|| (t_ms - dur_ms).max(0.0));
        if t_ms <= begin || t_ms.abs() > SANE * 1000.0 {
            return 0;
        }
        let silent_until = t_ms - dur_ms;
        let bridged_ms = BRIDGED_STEPS * self.step_s * 1000.0;
        if silent_until - last.unwrap_or(0.0) > if last.is_some() { bridged_ms } else { 0.0 } {
            self.samples.push(Sample {
                t_ms: silent_until,
                bytes: 0,
            });
            begin = silent_until;
        }
        let bytes = (mbit * (t_ms - begin) * 125.0).round() as u64;
        self.samples.push(Sample { t_ms, bytes });
        self.samples.len() - before
    }
}

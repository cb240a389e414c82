//! Lines that were recorded on real networks.

mod conditions;
mod csv;
mod log;
mod mahimahi;

#[cfg(test)]
mod tests;

use std::fmt;

use sqm_autorate::Bounds;
use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::{Bytes, Nanos, Rate};

use super::START;
use super::trace::Trace;
use crate::capacity::Capacity;
use crate::reflector::Behaviour;

pub use conditions::{Conditions, LoadCycle};
pub use log::LogRates;
pub use mahimahi::Opportunities;

/// The capacity of a line over time, as it was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    lines: PerDirection<Capacity>,
    length: Nanos,
}

/// Why a recording was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The line of the file, counted from one; `None` for the whole file.
    pub line: Option<usize>,
    /// The reason.
    pub reason: String,
}

impl Refused {
    fn line(index: usize, reason: impl Into<String>) -> Self {
        Self {
            line: Some(index + 1),
            reason: reason.into(),
        }
    }

    fn whole(reason: impl Into<String>) -> Self {
        Self {
            line: None,
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            None => f.write_str(&self.reason),
            Some(line) => write!(f, "line {line}: {}", self.reason),
        }
    }
}

/// No recording is longer. A choice: a day.
const LONGEST: Nanos = Nanos::from_millis(86_400_000);
/// No recording is shorter. A choice: a controller decides twenty times in it.
const SHORTEST: Nanos = Nanos::from_millis(1000);
/// The mean rate of a direction is at least this, bits per second. A choice: a full packet takes more than a second below it.
const SLOWEST: u64 = 10_000;

impl Recorded {
    /// A line whose rates change at these times since the beginning, which must be in order.
    fn new(steps: PerDirection<Vec<(Nanos, Rate)>>, length: Nanos) -> Result<Self, Refused> {
        if length < SHORTEST {
            return Err(Refused::whole("the recording is shorter than a second"));
        }
        if length > LONGEST {
            return Err(Refused::whole("the recording is longer than a day"));
        }
        let since_start = |steps: Vec<(Nanos, Rate)>| {
            let steps = steps.into_iter().map(|(at, rate)| (START + at, rate));
            Capacity::new(steps.collect())
        };
        let mut recorded = Self {
            lines: PerDirection {
                download: since_start(steps.download),
                upload: since_start(steps.upload),
            },
            length,
        };
        for (direction, name) in [(Direction::Download, "download"), (Direction::Upload, "upload")] {
            if recorded.mean(direction) < SLOWEST {
                let reason = format!("the mean rate of the {name} is below 10 kbit/s");
                return Err(Refused::whole(reason));
            }
        }
        recorded.go_on_at_the_mean();
        Ok(recorded)
    }

    /// Lets the line carry its mean rate after the end, so that every queued packet leaves at some time.
    fn go_on_at_the_mean(&mut self) {
        for direction in Direction::BOTH {
            let mean = Rate::from_bits_per_sec(self.mean(direction));
            let mut steps = self.lines[direction].steps().to_vec();
            steps.push((START + self.length, mean));
            self.lines[direction] = Capacity::new(steps);
        }
    }

    /// The mean rate, bits per second.
    fn mean(&self, direction: Direction) -> u64 {
        let bytes = self.lines[direction].carries(START, START + self.length);
        narrow(u128::from(bytes.0) * 8_000_000_000 / u128::from(self.length.0))
    }

    /// A run on this line.
    pub fn trace(&self, name: &str, conditions: &Conditions) -> Trace {
        let mean = PerDirection::from_fn(|direction| self.mean(direction));
        let of = |mean: u64, thousandths: u32| {
            let rate = u128::from(mean) * u128::from(thousandths) / 1000;
            Some(Rate::from_bits_per_sec(narrow(rate)))
        };
        let bounds = |mean: u64| Bounds {
            min: of(mean, conditions.min),
            base: Some(Rate::from_bits_per_sec(mean)),
            max: of(mean, conditions.max),
        };
        let buffer = |mean: u64| {
            let bytes = u128::from(mean) * u128::from(conditions.buffer.0) / 8_000_000_000;
            Bytes(narrow(bytes))
        };
        Trace {
            name: name.to_owned(),
            about: "recorded".to_owned(),
            varies: true,
            length: self.length,
            lines: self.lines.clone(),
            buffers: PerDirection::from_fn(|direction| buffer(mean[direction])),
            rtt: conditions.rtt,
            shifts: Vec::new(),
            jitter: conditions.jitter,
            loads: conditions.load.until(START + self.length),
            bounds: PerDirection::from_fn(|direction| bounds(mean[direction])),
            reflectors: vec![Behaviour::Good; 6],
            clock: Vec::new(),
        }
    }
}

fn narrow(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

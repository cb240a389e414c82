//! Load, buffers, path and bounds, which a run adds to a recording.

use std::fmt;
use std::str::FromStr;

use sqm_core::units::{Instant, Nanos};

use super::super::START;
use super::super::trace::Load;

/// Load, buffers, path and bounds of a run on a recorded line.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// The load, again and again until the recording ends.
    pub load: LoadCycle,
    /// The time that the line needs to empty a full buffer at its mean rate.
    pub buffer: Nanos,
    /// The round trip to the far hosts without queues.
    pub rtt: Nanos,
    /// Scale of the jitter of probes and ACKs, about its median.
    pub jitter: Nanos,
    /// The lowest rate that the user allows, thousandths of the line's mean rate.
    pub min: u32,
    /// The highest rate, thousandths of the mean rate. The first rate is the mean.
    pub max: u32,
}

impl Default for Conditions {
    /// A choice: a household on a mobile line with deep buffers.
    fn default() -> Self {
        Self {
            load: LoadCycle::default(),
            buffer: Nanos::from_millis(1000),
            rtt: Nanos::from_millis(50),
            jitter: Nanos::from_micros(1000),
            min: 100,
            max: 4000,
        }
    }
}

/// Loads that follow each other: `4/0:20,0/0:5` is four downloads for 20 seconds, then nothing for 5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadCycle(Vec<Part>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    downloads: usize,
    uploads: usize,
    seconds: u64,
}

/// The most flows of a direction.
const MOST_FLOWS: usize = 4;
/// The longest part, seconds: a day, as long as the longest recording.
const LONGEST_PART: u64 = 86_400;

impl Default for LoadCycle {
    fn default() -> Self {
        let part = |downloads, uploads, seconds| Part {
            downloads,
            uploads,
            seconds,
        };
        Self(vec![
            part(4, 0, 20),
            part(0, 0, 5),
            part(4, 4, 20),
            part(0, 1, 15),
            part(1, 0, 20),
            part(0, 0, 5),
        ])
    }
}

impl LoadCycle {
    /// The load from each time on, until `end`.
    pub(super) fn until(&self, end: Instant) -> Vec<(Instant, Load)> {
        let mut loads = Vec::new();
        let mut at = START;
        for part in self.0.iter().cycle() {
            if at >= end {
                break;
            }
            let load = Load {
                downloads: part.downloads,
                uploads: part.uploads,
                flood: None,
                chatter: true,
            };
            loads.push((at, load));
            at = at + Nanos::from_millis(part.seconds * 1000);
        }
        loads
    }
}

impl FromStr for LoadCycle {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<_> = text.split(',').map(Part::parse).collect::<Result<_, _>>()?;
        if parts.iter().all(|part| part.downloads + part.uploads == 0) {
            return Err(format!("'{text}' has no flow"));
        }
        Ok(Self(parts))
    }
}

impl Part {
    fn parse(text: &str) -> Result<Self, String> {
        let numbers = || {
            let (flows, seconds) = text.trim().split_once(':')?;
            let (downloads, uploads) = flows.split_once('/')?;
            let flows = |text: &str| text.parse().ok().filter(|flows| *flows <= MOST_FLOWS);
            let seconds = seconds.parse().ok();
            Some(Self {
                downloads: flows(downloads)?,
                uploads: flows(uploads)?,
                seconds: seconds.filter(|seconds| (1..=LONGEST_PART).contains(seconds))?,
            })
        };
        numbers().ok_or_else(|| {
            format!(
                "'{text}' is not DOWNLOADS/UPLOADS:SECONDS, such as 4/1:20, with at most {MOST_FLOWS} flows in each \
                 direction and 1 to {LONGEST_PART} s"
            )
        })
    }
}

impl fmt::Display for LoadCycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}/{}:{}", part.downloads, part.uploads, part.seconds)?;
        }
        Ok(())
    }
}

//! The figures of the bench as JSON. Each field's name ends in its unit.

use serde::Serialize;
use sqm_core::direction::Direction;
use sqm_core::units::Nanos;
use sqm_sim::autorate_bench::{Contender, Figures, Recovery, Trace};

use super::SignalsArg;

/// The whole report.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) runs: Vec<Run>,
    pub(super) varying: Vec<Sum>,
}

/// sqm compared with cake-autorate over all varying lines together.
#[derive(Serialize)]
pub(super) struct Sum {
    pub(super) seed: u64,
    signals: &'static str,
    pub(super) less_time_above_30_ms_percent: f64,
    pub(super) more_bytes_percent: f64,
}

impl Sum {
    /// None if the capacity of no line varies.
    pub(super) fn new(seed: u64, signals: SignalsArg, runs: &[Run]) -> Option<Self> {
        let pairs = || {
            runs.chunks(Contender::ALL.len()).filter_map(|trace| match trace {
                [ours, theirs, ..] if ours.varies => Some([ours, theirs]),
                _ => None,
            })
        };
        pairs().next()?;
        let above = |index: usize| {
            let seconds = pairs().map(|pair| pair[index].above_30_ms_percent * pair[index].length_s);
            seconds.sum::<f64>()
        };
        let bytes = |index: usize| pairs().map(|pair| pair[index].delivered_bytes()).sum::<u64>() as f64;
        Some(Self {
            seed,
            signals: signals.name(),
            less_time_above_30_ms_percent: -percent_more(above(0), above(1)),
            more_bytes_percent: percent_more(bytes(0), bytes(1)),
        })
    }
}

/// One controller on one trace.
#[derive(Serialize)]
pub(super) struct Run {
    pub(super) seed: u64,
    pub(super) trace: String,
    pub(super) varies: bool,
    length_s: f64,
    signals: &'static str,
    pub(super) controller: &'static str,
    pub(super) above_30_ms_percent: f64,
    delay_p95_ms: f64,
    pub(super) loaded_delay_p95_ms: f64,
    delivered_down_bytes: u64,
    delivered_up_bytes: u64,
    pub(super) utilisation_down_percent: f64,
    pub(super) utilisation_up_percent: f64,
    pub(super) false_cuts_per_hour: f64,
    pub(super) probes_per_second: f64,
    pub(super) falls: Vec<Step>,
    pub(super) rises: Vec<Step>,
}

/// A sudden change of a line's capacity. A field is absent if it did not happen before the next change.
#[derive(Serialize)]
pub(super) struct Step {
    at_s: f64,
    direction: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_followed_after_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_gone_after_ms: Option<f64>,
}

impl Run {
    pub(super) fn new(
        trace: &Trace,
        contender: Contender,
        signals: SignalsArg,
        seed: u64,
        figures: &Figures,
    ) -> Self {
        let steps = |steps: &[Recovery]| steps.iter().map(Step::new).collect();
        Self {
            seed,
            trace: trace.name.clone(),
            varies: trace.varies,
            length_s: millis(trace.length) / 1000.0,
            signals: signals.name(),
            controller: contender.name(),
            above_30_ms_percent: figures.above_30_ms_percent,
            delay_p95_ms: millis(figures.delay_p95),
            loaded_delay_p95_ms: millis(figures.loaded_delay_p95),
            delivered_down_bytes: figures.delivered.download.0,
            delivered_up_bytes: figures.delivered.upload.0,
            utilisation_down_percent: figures.utilisation_percent.download,
            utilisation_up_percent: figures.utilisation_percent.upload,
            false_cuts_per_hour: figures.false_cuts_per_hour,
            probes_per_second: figures.probes_per_second,
            falls: steps(&figures.falls),
            rises: steps(&figures.rises),
        }
    }

    pub(super) fn delivered_bytes(&self) -> u64 {
        self.delivered_down_bytes + self.delivered_up_bytes
    }
}

impl Step {
    fn new(recovery: &Recovery) -> Self {
        Self {
            at_s: millis(recovery.at) / 1000.0,
            direction: match recovery.direction {
                Direction::Download => "down",
                Direction::Upload => "up",
            },
            rate_followed_after_ms: recovery.rate_followed_after.map(millis),
            delay_gone_after_ms: recovery.delay_gone_after.map(millis),
        }
    }
}

/// The slowest recovery in seconds; `never` if the rate did not follow some change, `-` if there was no change.
pub(super) fn slowest<'a>(steps: impl Iterator<Item = &'a Step>) -> String {
    let mut slowest = None;
    for step in steps {
        match step.rate_followed_after_ms {
            Some(after) => slowest = Some(after.max(slowest.unwrap_or(0.0))),
            None => return "never".to_owned(),
        }
    }
    slowest.map_or_else(|| "-".to_owned(), |slowest| format!("{:.2}", slowest / 1000.0))
}

pub(super) fn millis(span: Nanos) -> f64 {
    span.0 as f64 / 1e6
}

pub(super) fn percent_more(ours: f64, theirs: f64) -> f64 {
    if theirs == 0.0 {
        0.0
    } else {
        100.0 * (ours / theirs - 1.0)
    }
}

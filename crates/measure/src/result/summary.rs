//! The figures of a test, computed from its samples. Pure.

use serde::{Deserialize, Serialize};
use sqm_core::direction::Direction;

use super::added::{AddedLatency, Bases};
use super::flow::Flow;
use super::headline::headline;
use super::phase_figures::PhaseFigures;
use super::probe::{Probe, ProbeSeries};
use super::settings::Phase;
use crate::stats;

/// The figures to quote. Latency under load and goodput are those of the steady parts of the load. A figure without samples is null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Median round trip before the load.
    pub idle_ms: Option<f64>,
    /// 95th percentile before the load.
    pub idle_p95_ms: Option<f64>,
    /// Median round trip under load.
    pub latency_median_ms: Option<f64>,
    /// 95th percentile under load.
    pub latency_p95_ms: Option<f64>,
    /// 99th percentile under load.
    pub latency_p99_ms: Option<f64>,
    /// The longest round trip under load.
    pub latency_max_ms: Option<f64>,
    /// Median round trip before the load to the nearest server. It differs from `idle_ms` in tests with several servers.
    #[serde(default)]
    pub nearest_idle_ms: Option<f64>,
    /// The round trip that each load of the test adds, in order of time.
    #[serde(default)]
    pub added: Vec<AddedLatency>,
    /// Probes sent in the whole test, in the series of the headline figures.
    pub probes_sent: u64,
    /// Probes without an answer.
    pub probes_lost: u64,
    /// Sum of the download flows. `None` if the test has none.
    pub download_mbit: Option<f64>,
    /// Sum of the upload flows. `None` if the test has none.
    pub upload_mbit: Option<f64>,
    /// Jain's fairness index of the download flows.
    pub jain_down: Option<f64>,
    /// Jain's fairness index of the upload flows.
    pub jain_up: Option<f64>,
    /// The figures of the download.
    #[serde(default)]
    pub down: Option<DirectionFigures>,
    /// The figures of the upload.
    #[serde(default)]
    pub up: Option<DirectionFigures>,
    /// The latency of each series of probes.
    #[serde(default)]
    pub probes: Vec<ProbeFigures>,
    /// The figures of each phase.
    #[serde(default)]
    pub phases: Vec<PhaseFigures>,
}

/// The effect on latency of load in one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DirectionFigures {
    /// Sum of the flows of this direction.
    pub mbit: f64,
    /// Median under load minus the idle median.
    pub added_median_ms: Option<f64>,
    /// 95th percentile under load minus the idle median.
    pub added_p95_ms: Option<f64>,
    /// True if the figures come from one-way delays, because both directions were loaded at once. False if they come from
    /// round trips while only this direction was loaded.
    pub one_way: bool,
}

/// The latency of one series of probes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbeFigures {
    /// Name of the series.
    pub name: String,
    /// Before the load.
    pub idle: Latency,
    /// Under load.
    pub loaded: Latency,
}

/// A distribution of round trips in milliseconds. Lost probes are counted; the percentiles leave them out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Probes sent.
    pub sent: u64,
    /// Probes without an answer.
    pub lost: u64,
    /// The shortest round trip.
    pub min_ms: Option<f64>,
    /// Median.
    pub median_ms: Option<f64>,
    /// Arithmetic mean.
    pub mean_ms: Option<f64>,
    /// 95th percentile.
    pub p95_ms: Option<f64>,
    /// 99th percentile.
    pub p99_ms: Option<f64>,
    /// The longest round trip.
    pub max_ms: Option<f64>,
}

impl Summary {
    pub(super) fn new(flows: &[Flow], probes: &[ProbeSeries], phases: &[Phase], settle_ms: u64) -> Self {
        let idle_window = idle_windows(phases);
        let loaded_window: Vec<_> = steady(phases, settle_ms, |p| !p.is_idle()).collect();
        let main = headline(probes, phases, settle_ms);
        let (idle, loaded) = (
            Latency::of(&within(&main, &idle_window)),
            Latency::of(&within(&main, &loaded_window)),
        );
        let rates = |direction| rates(flows, direction, phases, settle_ms);
        let (down, up) = (rates(Direction::Download), rates(Direction::Upload));
        let direction = |direction, rates: &[f64]| {
            let mbit = total(rates)?;
            Some(DirectionFigures::new(direction, mbit, &main, phases, settle_ms))
        };
        let all = main.iter().flat_map(|series| &series.samples);
        let bases = Bases::new(&main, &idle_window, |probe| probe.rtt_ms);
        Self {
            idle_ms: idle.median_ms,
            idle_p95_ms: idle.p95_ms,
            latency_median_ms: loaded.median_ms,
            latency_p95_ms: loaded.p95_ms,
            latency_p99_ms: loaded.p99_ms,
            latency_max_ms: loaded.max_ms,
            nearest_idle_ms: bases.nearest().map(round),
            added: AddedLatency::of_each_load(&main, phases, settle_ms, &bases),
            probes_sent: all.clone().count() as u64,
            probes_lost: all.filter(|p| p.rtt_ms.is_none()).count() as u64,
            download_mbit: total(&down).map(round),
            upload_mbit: total(&up).map(round),
            jain_down: stats::jain(&down).map(round),
            jain_up: stats::jain(&up).map(round),
            down: direction(Direction::Download, &down),
            up: direction(Direction::Upload, &up),
            probes: probes
                .iter()
                .map(|series| ProbeFigures {
                    name: series.name.clone(),
                    idle: Latency::of(&within(&[series], &idle_window)),
                    loaded: Latency::of(&within(&[series], &loaded_window)),
                })
                .collect(),
            phases: phases
                .iter()
                .map(|phase| PhaseFigures::new(phase, flows, &main, settle_ms))
                .collect(),
        }
    }
}

impl DirectionFigures {
    fn new(direction: Direction, mbit: f64, main: &[&ProbeSeries], phases: &[Phase], settle_ms: u64) -> Self {
        let alone: Vec<_> = steady(phases, settle_ms, |p| p.loaded == [direction]).collect();
        let together: Vec<_> = steady(phases, settle_ms, |p| p.loaded.contains(&direction)).collect();
        let one_way = alone.is_empty();
        let delay = |probe: &Probe| match direction {
            _ if !one_way => probe.rtt_ms,
            Direction::Download => probe.down_ms,
            Direction::Upload => probe.up_ms,
        };
        let bases = Bases::new(main, &idle_windows(phases), delay);
        let loaded = if one_way { &together } else { &alone };
        let mut all = Vec::new();
        for series in main {
            let Some(base) = bases.of(series) else { continue };
            let delays = within(&[series], loaded).into_iter().filter_map(delay);
            all.extend(delays.map(|delay| delay - base));
        }
        let added = |p| stats::percentile(&all, p).map(round);
        Self {
            mbit: round(mbit),
            added_median_ms: added(50.0),
            added_p95_ms: added(95.0),
            one_way,
        }
    }
}

impl Latency {
    /// The distribution of these probes.
    pub fn of(probes: &[&Probe]) -> Self {
        let rtts: Vec<f64> = probes.iter().filter_map(|p| p.rtt_ms).collect();
        let at = |p| stats::percentile(&rtts, p).map(round);
        Self {
            sent: probes.len() as u64,
            lost: (probes.len() - rtts.len()) as u64,
            min_ms: at(0.0),
            median_ms: at(50.0),
            mean_ms: stats::mean(&rtts).map(round),
            p95_ms: at(95.0),
            p99_ms: at(99.0),
            max_ms: at(100.0),
        }
    }
}

/// Mean goodput of a flow in Mbit/s over its [`rate_windows`].
pub(super) fn goodput(flow: &Flow, phases: &[Phase], settle_ms: u64) -> f64 {
    let windows = rate_windows(flow.direction, phases, settle_ms);
    let (mut length, mut amount) = (0.0, 0.0);
    for (from, to) in windows {
        length += to - from;
        amount += flow.mbit_between(from, to) * (to - from);
    }
    round(if length > 0.0 { amount / length } else { 0.0 })
}

/// The windows that the rate of a direction comes from: the steady parts of the phases that load it alone. If there are none, of those
/// that load it with the other. Acknowledgements then have to wait in the queue of the other direction, which costs goodput.
pub(super) fn rate_windows(direction: Direction, phases: &[Phase], settle_ms: u64) -> Vec<(f64, f64)> {
    let alone: Vec<_> = steady(phases, settle_ms, |p| p.loaded == [direction]).collect();
    match alone.is_empty() {
        true => steady(phases, settle_ms, |p| p.loaded.contains(&direction)).collect(),
        false => alone,
    }
}

/// Rounds to three decimals: to a microsecond of milliseconds, to a kilobit of megabits.
pub(super) fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// The idle phases before the first load. After a load, queues may still be draining.
fn idle_windows(phases: &[Phase]) -> Vec<(f64, f64)> {
    let before = phases.iter().take_while(|p| p.is_idle());
    before.map(|p| (p.from_ms, p.to_ms)).collect()
}

fn steady(
    phases: &[Phase],
    settle_ms: u64,
    wanted: impl Fn(&Phase) -> bool,
) -> impl Iterator<Item = (f64, f64)> {
    phases
        .iter()
        .filter(move |p| wanted(p))
        .map(move |p| p.steady(settle_ms))
}

fn within<'a>(series: &[&'a ProbeSeries], windows: &[(f64, f64)]) -> Vec<&'a Probe> {
    let inside = |t: f64| windows.iter().any(|(from, to)| t >= *from && t < *to);
    series
        .iter()
        .flat_map(|series| &series.samples)
        .filter(|probe| inside(probe.t_ms))
        .collect()
}

/// The rate of each flow of a direction. Empty if the test ended before the direction was loaded for long enough.
fn rates(flows: &[Flow], direction: Direction, phases: &[Phase], settle_ms: u64) -> Vec<f64> {
    let mut windows = rate_windows(direction, phases, settle_ms).into_iter();
    if windows.all(|(from, to)| from >= to) {
        return Vec::new();
    }
    flows
        .iter()
        .filter(|flow| flow.direction == direction)
        .map(|flow| flow.mbit)
        .collect()
}

/// The sum of the rates. `None` if there are none.
pub(super) fn total(rates: &[f64]) -> Option<f64> {
    (!rates.is_empty()).then(|| rates.iter().sum())
}

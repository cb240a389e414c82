//! The samples of a result as points of a line.

use sqm_core::direction::Direction;

use crate::result::{Flow, Probe, ProbeSeries, TestResult};

/// Points of a line: horizontal position, and value. A point without a value breaks the line.
pub(super) type Points = Vec<(f64, Option<f64>)>;

/// A series of more points is thinned to the extremes of this many stretches. A choice: the pictures are 960 pixels wide.
pub(super) const STRETCHES: usize = 700;
/// Throughput is drawn in about this many steps. A choice: finer steps show noise.
const STEPS: f64 = 125.0;

/// The time range of tests in seconds since the load began: from the start of the idle phase to the end of the test.
pub(super) fn time_range(results: &[&TestResult]) -> (f64, f64) {
    let settings = results.iter().map(|r| &r.meta.settings);
    let idle = settings.clone().map(|s| s.idle_ms).max().unwrap_or(0);
    let end = settings
        .map(|s| s.load_ms.saturating_add(s.after_ms))
        .max()
        .unwrap_or(1);
    (-(idle as f64) / 1000.0, (end as f64 / 1000.0).max(0.1))
}

/// Seconds and Mbit/s of a flow, in about [`STEPS`] equal steps of the load.
pub(super) fn rates(flow: &Flow, result: &TestResult) -> Points {
    let load_ms = result.meta.settings.load_ms as f64;
    let step = ((load_ms / STEPS / 100.0).ceil() * 100.0).max(100.0);
    let count = (load_ms / step).ceil() as usize;
    (0..count)
        .map(|i| {
            let (from, to) = (i as f64 * step, ((i + 1) as f64 * step).min(load_ms));
            ((from + to) / 2000.0, Some(flow.mbit_between(from, to)))
        })
        .collect()
}

/// The sum of flows, step by step.
pub(super) fn sum(flows: &[Points]) -> Points {
    let mut total = flows.first().cloned().unwrap_or_default();
    for flow in flows.iter().skip(1) {
        for (sum, (_, rate)) in total.iter_mut().zip(flow) {
            sum.1 = sum.1.zip(*rate).map(|(a, b)| a + b);
        }
    }
    total
}

/// The sum of the flows of one direction, in equal steps of the load.
pub(super) fn total_rate(result: &TestResult, direction: Direction) -> Points {
    let flows: Vec<_> = result.flows(direction).map(|flow| rates(flow, result)).collect();
    sum(&flows)
}

/// Seconds and round trip in milliseconds of every probe of a series, thinned. A lost probe has no value.
pub(super) fn latencies(series: &ProbeSeries) -> Points {
    let samples = series.samples.iter();
    thin(samples.map(|probe| (probe.t_ms / 1000.0, probe.rtt_ms)).collect())
}

/// Seconds and round trip in milliseconds of the probes of the headline figures, in order of time, thinned.
pub(super) fn headline(result: &TestResult) -> Points {
    delays(&result.headline_probes(), |probe| probe.rtt_ms)
}

/// Seconds and a delay in milliseconds of the probes of several series, in order of time, thinned.
pub(super) fn delays(series: &[&ProbeSeries], delay: impl Fn(&Probe) -> Option<f64>) -> Points {
    let samples = series.iter().flat_map(|series| &series.samples);
    let mut points: Vec<_> = samples.map(|probe| (probe.t_ms / 1000.0, delay(probe))).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    thin(points)
}

/// Thins a long series: keeps the lowest value, the highest value and the first gap of each stretch.
pub(super) fn thin(points: Points) -> Points {
    if points.len() <= 4 * STRETCHES {
        return points;
    }
    let mut kept = Vec::new();
    for stretch in points.chunks(points.len().div_ceil(STRETCHES)) {
        let value = |index: usize| stretch[index].1;
        let known: Vec<usize> = (0..stretch.len()).filter(|i| value(*i).is_some()).collect();
        let by_value = |a: &usize, b: &usize| {
            value(*a)
                .partial_cmp(&value(*b))
                .unwrap_or(std::cmp::Ordering::Equal)
        };
        let extremes = [
            known.iter().copied().min_by(by_value),
            known.iter().copied().max_by(by_value),
        ];
        let gap = (0..stretch.len()).find(|i| value(*i).is_none());
        let mut indices: Vec<usize> = extremes.into_iter().chain([gap]).flatten().collect();
        indices.sort_unstable();
        indices.dedup();
        kept.extend(indices.into_iter().map(|index| stretch[index]));
    }
    kept
}

/// The largest value, or 0.
pub(super) fn highest(data: &[(f64, Option<f64>)]) -> f64 {
    data.iter().filter_map(|(_, y)| *y).fold(0.0, f64::max)
}

/// The round trips in milliseconds of the probes that were sent within the time windows. A lost probe has no value.
pub(super) fn within(series: &[&ProbeSeries], windows: &[(f64, f64)]) -> Vec<Option<f64>> {
    let inside = |t: f64| windows.iter().any(|(from, to)| t >= *from && t < *to);
    let samples = series.iter().flat_map(|series| &series.samples);
    samples
        .filter(|probe| inside(probe.t_ms))
        .map(|probe| probe.rtt_ms)
        .collect()
}

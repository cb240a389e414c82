//! Pictures of results, as SVG text. Pure: the same result gives the same picture, byte for byte.

pub mod autorate;
mod boxes;
mod cdf;
mod comparison;
mod flows;
mod rrul;
mod totals;

pub use boxes::box_combine;
pub use cdf::ping_cdf;
pub use comparison::latency_comparison;
pub use flows::{per_flow, tcp};
pub use rrul::rrul;
pub use totals::totals;

use crate::result::{Direction, Flow, ProbeSeries, TestResult};
use crate::svg::{
    Anchor, BLUE, Font, GREEN, GREY, GRID, INK, ORANGE, PURPLE, Panel, SHADE, SKY, Scale, Svg, VERMILION,
    decades, linear_ticks, short,
};

/// The width of all pictures.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 78.0;
/// Room beside the axes for the labels of the lines.
const RIGHT: f64 = 128.0;
/// Throughput is drawn in about this many steps: finer than the eye wants is noise.
const STEPS: f64 = 125.0;
/// The time axis of a test.
const SINCE_LOAD: &str = "Time since the load began (s)";
/// Series of more points are thinned to the extremes of this many stretches.
const STRETCHES: usize = 700;
/// What is faster, no clock told: on a logarithmic axis it has no place.
const LEAST_MS: f64 = 1e-6;
/// What tells lines apart, by colour and, in print without colours, by dashes.
const STYLES: [(&str, &str); 7] = [
    (BLUE, ""),
    (VERMILION, "8 3"),
    (GREEN, "3 3"),
    (PURPLE, "10 3 2 3"),
    (ORANGE, ""),
    (SKY, "8 3"),
    (INK, "3 3"),
];

/// A test with the name that it bears in a picture of several.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Short: a title, or the file's name.
    pub name: &'a str,
    /// What was measured.
    pub result: &'a TestResult,
}

/// The kinds of pictures, under Flent's names where it has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plot {
    /// Download, upload and latency over time, one test in each picture.
    AllScaled,
    /// The distribution of latency under load.
    PingCdf,
    /// Boxes of throughput and latency, one row for each test.
    BoxCombine,
    /// Sums of throughput, and latency, over time.
    Totals,
    /// Every flow over time, one test in each picture.
    PerFlow,
    /// What the senders' TCP knew: window and round trip, one test in each picture.
    Tcp,
}

impl Plot {
    /// All of them, in the order of a report.
    pub const ALL: [Self; 6] = [
        Self::BoxCombine,
        Self::PingCdf,
        Self::Totals,
        Self::AllScaled,
        Self::PerFlow,
        Self::Tcp,
    ];

    /// As one types it.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllScaled => "all_scaled",
            Self::PingCdf => "ping_cdf",
            Self::BoxCombine => "box_combine",
            Self::Totals => "totals",
            Self::PerFlow => "per_flow",
            Self::Tcp => "tcp",
        }
    }

    /// Whether one picture shows one test only.
    pub fn is_of_one(self) -> bool {
        matches!(self, Self::AllScaled | Self::PerFlow | Self::Tcp)
    }

    /// The picture of these tests; of kinds that show one only, of the first. None if they hold nothing to draw.
    pub fn draw(self, runs: &[Run<'_>]) -> Option<String> {
        let first = runs.first()?;
        let has_probes = runs
            .iter()
            .any(|run| run.result.probes.iter().any(|p| !p.samples.is_empty()));
        let has_flows = runs.iter().any(|run| !run.result.flows.is_empty());
        match self {
            Self::AllScaled => (has_flows || has_probes).then(|| rrul(first.result)),
            Self::PingCdf => has_probes.then(|| ping_cdf(runs)),
            Self::BoxCombine => (has_flows || has_probes).then(|| box_combine(runs)),
            Self::Totals => (has_flows || has_probes).then(|| totals(runs)),
            Self::PerFlow => (!first.result.flows.is_empty()).then(|| per_flow(first.result)),
            Self::Tcp => {
                let known = first.result.flows.iter().any(|flow| !flow.sender.is_empty());
                known.then(|| tcp(first.result))
            }
        }
    }
}

/// First and last second of the probes, in whole seconds.
fn time_range(results: &[&TestResult]) -> (f64, f64) {
    let settings = results.iter().map(|r| &r.meta.settings);
    let idle = settings.clone().map(|s| s.idle_ms).max().unwrap_or(0);
    let end = settings
        .map(|s| s.load_ms.saturating_add(s.after_ms))
        .max()
        .unwrap_or(1);
    (-(idle as f64) / 1000.0, (end as f64 / 1000.0).max(0.1))
}

/// (seconds, Mbit/s) of a flow, in [`STEPS`] even steps of the load.
fn rates(flow: &Flow, result: &TestResult) -> Vec<(f64, Option<f64>)> {
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

fn sum(flows: &[Vec<(f64, Option<f64>)>]) -> Vec<(f64, Option<f64>)> {
    let mut total = flows.first().cloned().unwrap_or_default();
    for flow in flows.iter().skip(1) {
        for (sum, (_, rate)) in total.iter_mut().zip(flow) {
            sum.1 = sum.1.zip(*rate).map(|(a, b)| a + b);
        }
    }
    total
}

fn highest(data: &[(f64, Option<f64>)]) -> f64 {
    data.iter().filter_map(|(_, y)| *y).fold(0.0, f64::max)
}

/// Ground, grid and name of a test's panel with a linear scale.
fn frame(svg: &mut Svg, panel: &Panel, result: &TestResult, ticks: &[f64], name: &str) {
    for (from, to) in result.steady() {
        let (from, to) = (panel.at_x(from / 1000.0), panel.at_x(to / 1000.0));
        svg.rect(from, panel.top, (to - from).max(0.0), panel.height, SHADE);
    }
    linear_grid(svg, panel, ticks);
    load_begin(svg, panel);
    upright_name(svg, panel, name);
}

/// Horizontal lines of a panel with a linear scale, with their values.
fn linear_grid(svg: &mut Svg, panel: &Panel, ticks: &[f64]) {
    for tick in ticks {
        let y = panel.at_y(*tick);
        svg.line((panel.left, y), (panel.right(), y), GRID, 1.0, "");
        svg.text(
            panel.left - 8.0,
            y + 4.5,
            Font::LABEL.at(Anchor::End),
            &short(*tick),
        );
    }
}

/// What a panel's vertical axis counts.
fn upright_name(svg: &mut Svg, panel: &Panel, name: &str) {
    let middle = panel.top + panel.height / 2.0;
    svg.upright_text(20.0, middle, Font::LABEL.at(Anchor::Middle).in_colour(INK), name);
}

/// A line where the load begins, unless that is the edge.
fn load_begin(svg: &mut Svg, panel: &Panel) {
    if panel.x.0 < 0.0 {
        let x = panel.at_x(0.0);
        svg.line((x, panel.top), (x, panel.bottom()), GREY, 1.0, "3 3");
    }
}

/// Names the two phases, above the uppermost panel.
fn name_phases(svg: &mut Svg, panel: &Panel) {
    if panel.x.0 < 0.0 {
        let (x, y) = (panel.at_x(0.0), panel.top - 7.0);
        let font = Font {
            size: 12.0,
            ..Font::LABEL
        };
        svg.text(x - 6.0, y, font.at(Anchor::End), "idle");
        svg.text(x + 6.0, y, font, "load");
    }
}

/// Below the lowest panel.
fn time_axis(svg: &mut Svg, panel: &Panel, name: &str) {
    let bottom = panel.bottom();
    svg.line((panel.left, bottom), (panel.right(), bottom), GREY, 1.0, "");
    let ticks = linear_ticks(panel.x.1, 6.0);
    for tick in ticks.iter().filter(|tick| **tick <= panel.x.1) {
        let x = panel.at_x(*tick);
        svg.line((x, bottom), (x, bottom + 5.0), GREY, 1.0, "");
        svg.text(x, bottom + 20.0, Font::LABEL.at(Anchor::Middle), &short(*tick));
    }
    let middle = panel.left + panel.width / 2.0;
    svg.text(
        middle,
        bottom + 40.0,
        Font::LABEL.at(Anchor::Middle).in_colour(INK),
        name,
    );
}

/// A time in the unit that reads best.
pub(crate) fn latency(ms: Option<f64>) -> String {
    match ms {
        None => "no reply".to_owned(),
        Some(ms) if ms >= 10_000.0 => format!("{} s", short(ms / 1000.0)),
        Some(ms) => format!("{} ms", short(ms)),
    }
}

fn flow_count(flows: usize) -> String {
    if flows == 1 {
        "1 flow".to_owned()
    } else {
        format!("{flows} flows")
    }
}

/// What one must know to repeat the test.
fn caption(result: &TestResult) -> String {
    let meta = &result.meta;
    let program = if meta.program.starts_with("Flent") {
        meta.program.clone()
    } else {
        format!("sqm {}", meta.program)
    };
    format!(
        "{} to {}, {}, {program}",
        meta.time,
        meta.host,
        setting_words(result)
    )
}

fn setting_words(result: &TestResult) -> String {
    let meta = &result.meta;
    let settings = &meta.settings;
    let mut congestion: Vec<&str> = result.flows.iter().map(|flow| flow.congestion.as_str()).collect();
    congestion.retain(|name| !name.is_empty());
    congestion.sort_unstable();
    congestion.dedup();
    let version = match meta.parameters.get("ip_version") {
        Some(version) => format!("IPv{version}"),
        None if meta.remote.starts_with('[') => "IPv6".to_owned(),
        None => "IPv4".to_owned(),
    };
    format!(
        "{} {version}, {} down and {} up, {}, {} s of load, a probe every {} ms",
        meta.test,
        flow_count(settings.down as usize),
        settings.up,
        if congestion.is_empty() {
            "no TCP".to_owned()
        } else {
            congestion.join(" and ")
        },
        short(settings.load_ms as f64 / 1000.0),
        settings.probe_interval_ms
    )
}

/// (seconds, ms or lost) of every probe of a series, thinned.
fn latencies(series: &ProbeSeries) -> Vec<(f64, Option<f64>)> {
    let samples = series.samples.iter();
    thin(samples.map(|probe| (probe.t_ms / 1000.0, probe.rtt_ms)).collect())
}

/// The same of all series that the headline figures are of, in order of time.
fn headline(result: &TestResult) -> Vec<(f64, Option<f64>)> {
    let series = result.headline_probes();
    let samples = series.iter().flat_map(|series| &series.samples);
    let mut points: Vec<_> = samples.map(|probe| (probe.t_ms / 1000.0, probe.rtt_ms)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    thin(points)
}

/// Long series without what no picture shows: of each stretch the lowest, the highest, and the gaps.
fn thin(points: Vec<(f64, Option<f64>)>) -> Vec<(f64, Option<f64>)> {
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

/// Sum of one direction's flows, in even steps of the load.
fn total_rate(result: &TestResult, direction: Direction) -> Vec<(f64, Option<f64>)> {
    let flows: Vec<_> = result.flows(direction).map(|flow| rates(flow, result)).collect();
    sum(&flows)
}

/// Values that an axis of latency spans: logarithmic where the runs differ by an order of magnitude.
fn latency_axis(values: &[f64]) -> ((f64, f64), Scale) {
    let positive = || values.iter().copied().filter(|v| *v > LEAST_MS);
    let (low, high) = (
        positive().fold(f64::INFINITY, f64::min),
        positive().fold(0.0, f64::max),
    );
    if high > low * 20.0 {
        ((low * 0.8, high * 1.25), Scale::Log)
    } else {
        let ticks = linear_ticks(high, 5.0);
        ((0.0, ticks[ticks.len() - 1]), Scale::Linear)
    }
}

/// Where the lines of an axis stand, with whether each is a strong one.
fn axis_ticks(range: (f64, f64), scale: Scale) -> Vec<(f64, bool)> {
    match scale {
        Scale::Linear => linear_ticks(range.1, 5.0)
            .into_iter()
            .map(|tick| (tick, true))
            .collect(),
        Scale::Log => {
            // Over many decades the steps between them would crowd.
            let crowded = range.1 / range.0 > 3000.0;
            let steps = [(1.0, true), (2.0, false), (5.0, false)];
            let decades = decades(range.0, range.1).into_iter();
            decades
                .flat_map(|decade| steps.map(|(factor, strong)| (decade * factor, strong)))
                .filter(|(tick, strong)| *tick >= range.0 && *tick <= range.1 && (*strong || !crowded))
                .collect()
        }
    }
}

/// Horizontal lines of a panel, with their values in milliseconds.
fn latency_grid(svg: &mut Svg, panel: &Panel) {
    for (tick, strong) in axis_ticks(panel.y, panel.scale) {
        let y = panel.at_y(tick);
        svg.line(
            (panel.left, y),
            (panel.right(), y),
            GRID,
            1.0,
            if strong { "" } else { "2 4" },
        );
        let font = Font::LABEL.at(Anchor::End);
        let font = if strong { font.in_colour(INK) } else { font };
        svg.text(panel.left - 8.0, y + 4.5, font, &latency(Some(tick)));
    }
}

/// One line for each run: its stroke, its name, and figures.
fn legend(svg: &mut Svg, top: f64, rows: &[(usize, String)]) {
    for (row, (style, text)) in rows.iter().enumerate() {
        let y = top + row as f64 * 20.0;
        let (colour, dashes) = STYLES[style % STYLES.len()];
        svg.line((LEFT, y - 4.5), (LEFT + 34.0, y - 4.5), colour, 3.0, dashes);
        svg.text(
            LEFT + 44.0,
            y,
            Font {
                size: 12.5,
                ..Font::LABEL
            }
            .in_colour(INK),
            &clipped(text, 118),
        );
    }
}

/// Long names must not run out of the picture.
fn clipped(text: &str, length: usize) -> String {
    if text.chars().count() <= length {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(length - 1).collect();
    short.push('\u{2026}');
    short
}

fn small_print(svg: &mut Svg, y: f64, text: &str) {
    svg.text(
        LEFT,
        y,
        Font {
            size: 11.5,
            ..Font::LABEL
        },
        &clipped(text, 150),
    );
}

/// How several tests were made: in words if they were made alike.
fn captions(runs: &[Run<'_>]) -> String {
    let [first, rest @ ..] = runs else {
        return String::new();
    };
    let settings = |run: &Run<'_>| setting_words(run.result);
    if rest.is_empty() {
        caption(first.result)
    } else if rest.iter().all(|run| settings(run) == settings(first)) {
        format!("{} tests: {}", runs.len(), settings(first))
    } else {
        let list: Vec<String> = runs
            .iter()
            .map(|run| format!("{}: {}", run.name, settings(run)))
            .collect();
        list.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::{example, with_probes_every};
    use crate::result::{TcpSample, TestResult};

    /// With all that any picture shows.
    fn full() -> TestResult {
        let mut result = example("Cable <24/4.4> & SQM", 300.0, 20.0, 4.0);
        for (index, flow) in (0_u32..).zip(&mut result.flows) {
            flow.sender = (1..40)
                .map(|i| TcpSample {
                    t_ms: f64::from(i) * 200.0,
                    rtt_ms: Some(20.0 + f64::from(i * (index + 1) % 17)),
                    cwnd: Some(f64::from(10 + i % (7 + index))),
                    ..TcpSample::default()
                })
                .collect();
        }
        result
    }

    #[test]
    fn pictures_of_one_and_of_several() {
        let (before, after) = (full(), example("after", 3.0, 19.0, 3.8));
        let runs = [
            Run {
                name: "before",
                result: &before,
            },
            Run {
                name: "after",
                result: &after,
            },
        ];
        for plot in Plot::ALL {
            let count = if plot.is_of_one() { 1 } else { 2 };
            insta::assert_snapshot!(plot.name(), plot.draw(&runs[..count]).unwrap());
        }
    }

    #[test]
    fn the_idle_line_after_the_load_is_in_the_picture() {
        let mut result = full();
        result.meta.settings.after_ms = 5000;
        assert_eq!(time_range(&[&result]), (-2.0, 13.0));
    }

    #[test]
    fn a_test_without_any_answer_has_no_picture_or_an_empty_one() {
        let meta = example("nothing", 0.0, 0.0, 0.0).meta;
        let empty = TestResult::new(meta, Vec::new(), Vec::new(), Vec::new());
        let runs = [Run {
            name: "nothing",
            result: &empty,
        }];
        for plot in Plot::ALL {
            assert_eq!(plot.draw(&runs), None);
        }
        let mut silent = full();
        for flow in &mut silent.flows {
            flow.samples.clear();
        }
        for probe in &mut silent.probes[0].samples {
            probe.rtt_ms = None;
        }
        let silent = TestResult::new(silent.meta, silent.phases, silent.flows, silent.probes);
        for plot in Plot::ALL {
            let picture = plot
                .draw(&[Run {
                    name: "silent",
                    result: &silent,
                }])
                .unwrap();
            assert!(!picture.contains("NaN") && !picture.contains("inf"), "{picture}");
        }
    }

    #[test]
    fn long_series_are_thinned_to_their_extremes() {
        let points: Vec<_> = (0..100_000)
            .map(|i| (f64::from(i), Some(if i == 77_777 { 999.0 } else { 1.0 })))
            .collect();
        let thinned = thin(points);
        assert!(thinned.len() < 3 * STRETCHES);
        assert!(thinned.contains(&(77_777.0, Some(999.0))));
        let points: Vec<_> = (0..100_000)
            .map(|i| (f64::from(i), (i != 5).then_some(1.0)))
            .collect();
        assert!(thin(points).contains(&(5.0, None)));
        let picture = rrul(&with_probes_every(1.0, 5.0));
        assert!(picture.len() < 100_000, "{}", picture.len());
    }
}

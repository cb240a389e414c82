//! Box plots of throughput and latency, a row for each test.

use sqm_core::direction::Direction;

use super::frame::{WIDTH, axis_ticks, clipped, latency_axis, line_style, small_print};
use super::run::{Run, captions};
use crate::result::TestResult;
use crate::stats::percentile;
use crate::svg::{Anchor, Font, GRID, INK, Panel, Scale, Svg, linear_ticks, short};

const ROW: f64 = 46.0;
const TOP: f64 = 108.0;
/// Room for the names of the tests.
const NAMES: f64 = 196.0;
const GAP: f64 = 34.0;

/// Box plots of download, upload and round trip side by side, a row for each test. The box is the middle half, the line in it the
/// median. The whiskers reach from the 5th to the 95th percentile, and the ring is the 99th. A value of throughput is that of a second.
pub fn box_combine(runs: &[Run<'_>]) -> String {
    let height = TOP + runs.len() as f64 * ROW + 88.0;
    let title = "Throughput and round trips under load";
    let mut svg = Svg::new(WIDTH, height, title);
    svg.text(24.0, 36.0, Font::TITLE, title);
    let explanation = "Box: the middle half; line: median; whiskers: 5th to 95th percentile; ring: 99th. Throughput per second.";
    svg.text(24.0, 60.0, Font::LABEL, explanation);
    let columns = [
        (
            "Download (Mbit/s)",
            runs.iter()
                .map(|run| seconds(run.result, Direction::Download))
                .collect(),
        ),
        (
            "Upload (Mbit/s)",
            runs.iter()
                .map(|run| seconds(run.result, Direction::Upload))
                .collect(),
        ),
        (
            "Round trip (ms)",
            runs.iter().map(|run| rtts(run.result)).collect(),
        ),
    ];
    let columns: Vec<(&str, Vec<Vec<f64>>)> = columns
        .into_iter()
        .filter(|(_, rows): &(_, Vec<Vec<f64>>)| rows.iter().any(|row| !row.is_empty()))
        .collect();
    let count = columns.len().max(1) as f64;
    let width = (WIDTH - NAMES - 24.0 - GAP * count) / count;
    for (row, run) in runs.iter().enumerate() {
        let y = TOP + (row as f64 + 0.5) * ROW;
        let font = Font {
            size: 12.5,
            ..Font::LABEL
        }
        .at(Anchor::End)
        .in_colour(INK);
        svg.text(NAMES - 2.0, y + 4.5, font, &clipped(run.name, 25));
    }
    for (index, (name, rows)) in columns.iter().enumerate() {
        let values: Vec<f64> = rows.iter().flatten().copied().collect();
        let (x, x_scale) = if name.starts_with("Round") {
            latency_axis(&values)
        } else {
            let ticks = linear_ticks(percentile(&values, 99.0).unwrap_or(0.0), 4.0);
            ((0.0, ticks[ticks.len() - 1]), Scale::Linear)
        };
        let panel = Panel {
            left: NAMES + 14.0 + index as f64 * (width + GAP),
            top: TOP,
            width,
            height: runs.len() as f64 * ROW,
            x,
            x_scale,
            y: (0.0, 1.0),
            scale: Scale::Linear,
        };
        column(&mut svg, &panel, name, rows);
    }
    let mut words = captions(runs);
    if !words.is_empty() {
        words.push_str("; without the beginning and the last second of the load");
    }
    small_print(&mut svg, height - 14.0, &words);
    svg.finish()
}

fn column(svg: &mut Svg, panel: &Panel, name: &str, rows: &[Vec<f64>]) {
    let ticks = axis_ticks(panel.x, panel.x_scale);
    for (tick, strong) in &ticks {
        let x = panel.at_x(*tick);
        svg.line(
            (x, panel.top),
            (x, panel.bottom()),
            GRID,
            1.0,
            if *strong { "" } else { "2 4" },
        );
    }
    labels(svg, panel, &ticks);
    let font = Font::LABEL.at(Anchor::Middle).in_colour(INK);
    svg.text(
        panel.left + panel.width / 2.0,
        panel.top - 12.0,
        font.bold(),
        name,
    );
    for (row, values) in rows.iter().enumerate() {
        let y = panel.top + (row as f64 + 0.5) * ROW;
        let (colour, _) = line_style(row);
        let at = |p| percentile(values, p).map(|v| panel.at_x(v.clamp(panel.x.0, panel.x.1)));
        let (Some(p5), Some(q1), Some(median), Some(q3), Some(p95), Some(p99)) =
            (at(5.0), at(25.0), at(50.0), at(75.0), at(95.0), at(99.0))
        else {
            continue;
        };
        svg.line((p5, y), (p95, y), colour, 1.6, "");
        for x in [p5, p95] {
            svg.line((x, y - 5.0), (x, y + 5.0), colour, 1.6, "");
        }
        svg.outlined(q1, y - 10.0, (q3 - q1).max(1.0), 20.0, colour);
        svg.line((median, y - 10.0), (median, y + 10.0), INK, 2.5, "");
        svg.ring(p99, y, 3.0, colour);
        let figure = percentile(values, 50.0).unwrap_or(0.0);
        let font = Font {
            size: 11.5,
            ..Font::LABEL
        };
        svg.text(
            median,
            y - 13.0,
            font.at(Anchor::Middle).in_colour(INK),
            &short(figure),
        );
    }
}

/// Writes the values below a column. The outermost labels stay within the column, so that they do not run into those of the next
/// one, and a label that would touch another one is left out.
fn labels(svg: &mut Svg, panel: &Panel, ticks: &[(f64, bool)]) {
    /// Width of a digit, and the smallest distance between two labels, pixels.
    const DIGIT: f64 = 7.0;
    const DISTANCE: f64 = 6.0;
    let font = Font {
        size: 12.0,
        ..Font::LABEL
    };
    let mut taken: Vec<(f64, f64)> = Vec::new();
    // Labels between decades give way to those of the decades.
    let (strong, weak): (Vec<_>, Vec<_>) = ticks.iter().copied().partition(|(_, strong)| *strong);
    for (tick, _) in strong.into_iter().chain(weak) {
        let (x, text) = (panel.at_x(tick), short(tick));
        let width = text.chars().count() as f64 * DIGIT;
        let (anchor, from) = if x - width / 2.0 < panel.left {
            (Anchor::Start, x)
        } else if x + width / 2.0 > panel.right() {
            (Anchor::End, x - width)
        } else {
            (Anchor::Middle, x - width / 2.0)
        };
        let is_free = |(start, end): &(f64, f64)| from + width + DISTANCE < *start || from > *end + DISTANCE;
        if taken.iter().all(is_free) {
            svg.text(x, panel.bottom() + 18.0, font.at(anchor), &text);
            taken.push((from, from + width));
        }
    }
}

/// Throughput of each whole second in the steady parts of the load.
fn seconds(result: &TestResult, direction: Direction) -> Vec<f64> {
    /// Seconds of the longest load that a server allows: one hour.
    const MOST: usize = 3600;
    let flows: Vec<_> = result.flows(direction).collect();
    if flows.is_empty() {
        return Vec::new();
    }
    let bins = result.steady().flat_map(|(from, to)| {
        let count = (((to - from) / 1000.0).floor().max(0.0) as usize).min(MOST);
        (0..count).map(move |i| from + i as f64 * 1000.0)
    });
    bins.take(MOST)
        .map(|from| {
            flows
                .iter()
                .map(|flow| flow.mbit_between(from, from + 1000.0))
                .sum()
        })
        .collect()
}

fn rtts(result: &TestResult) -> Vec<f64> {
    let windows: Vec<_> = result.steady().collect();
    let inside = |t: f64| windows.iter().any(|(from, to)| t >= *from && t < *to);
    let series = result.headline_probes();
    let samples = series.iter().flat_map(|series| &series.samples);
    samples
        .filter(|probe| inside(probe.t_ms))
        .filter_map(|probe| probe.rtt_ms)
        .collect()
}

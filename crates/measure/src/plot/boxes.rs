//! Box plots of throughput and latency, a row for each test.

use sqm_core::direction::Direction;

use super::frame::{WIDTH, axis_ticks, clipped, labels_below, latency_axis, line_style, small_print};
use super::run::{Run, captions};
use super::sheet::Sheet;
use crate::result::TestResult;
use crate::stats::percentile;
use crate::svg::{Anchor, Font, GRID, INK, Panel, Scale, Svg, linear_ticks, short};

const ROW: f64 = 46.0;
const TOP: f64 = 108.0;
/// Room for the names of the tests.
const NAMES: f64 = 196.0;
const GAP: f64 = 34.0;
/// Height of a row that has the name of its test above the box, pixels.
const NARROW_ROW: f64 = ROW + 20.0;

/// Box plots of download, upload and round trip side by side, a row for each test. The box is the middle half, the line in it the
/// median. The whiskers reach from the 5th to the 95th percentile, and the ring is the 99th. A value of throughput is that of a second.
pub(super) fn box_combine(runs: &[Run<'_>], sheet: Sheet) -> String {
    let columns = columns(runs);
    let rows = runs.len() as f64;
    let title = "Throughput and round trips under load";
    let explanation = "Box: the middle half; line: median; whiskers: 5th to 95th percentile; ring: 99th. Throughput per second.";
    match sheet {
        Sheet::Wide => {
            let height = TOP + rows * ROW + 88.0;
            let mut svg = Svg::new(WIDTH, height, title);
            svg.text(24.0, 36.0, Font::TITLE, title);
            svg.text(24.0, 60.0, Font::LABEL, explanation);
            side_by_side(&mut svg, runs, &columns);
            small_print(&mut svg, sheet, height - 14.0, &words(runs));
            svg.finish()
        }
        Sheet::Narrow => {
            let mut svg = Svg::new(sheet.width(), 76.0, title);
            let mut top = 50.0 + sheet.title(&mut svg, title);
            top += sheet.paragraph(&mut svg, (sheet.margin(), top), Font::LABEL, explanation);
            for (name, values) in &columns {
                let height = rows * NARROW_ROW;
                let panel = Panel {
                    left: sheet.margin() + 4.0,
                    top: top + 42.0,
                    width: sheet.width() - 2.0 * sheet.margin() - 8.0,
                    height,
                    ..area(name, values)
                };
                svg.grow(height + 72.0);
                column(&mut svg, &panel, name, values, NARROW_ROW);
                row_names(&mut svg, &panel, runs);
                top = panel.bottom() + 30.0;
            }
            small_print(&mut svg, sheet, top + 12.0, &words(runs));
            svg.finish()
        }
    }
}

/// The panels of a narrow picture have the names of the tests above their boxes.
fn row_names(svg: &mut Svg, panel: &Panel, runs: &[Run<'_>]) {
    let font = Font {
        size: 12.5,
        ..Font::LABEL
    };
    for (row, run) in runs.iter().enumerate() {
        let y = panel.top + row as f64 * NARROW_ROW + 16.0;
        svg.text(panel.left, y, font.in_colour(INK), &clipped(run.name, 38));
    }
}

/// The name of a column and the values of each test.
type Column = (&'static str, Vec<Vec<f64>>);

fn columns(runs: &[Run<'_>]) -> Vec<Column> {
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
    columns
        .into_iter()
        .filter(|(_, rows): &Column| rows.iter().any(|row| !row.is_empty()))
        .collect()
}

fn side_by_side(svg: &mut Svg, runs: &[Run<'_>], columns: &[Column]) {
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
        let panel = Panel {
            left: NAMES + 14.0 + index as f64 * (width + GAP),
            top: TOP,
            width,
            height: runs.len() as f64 * ROW,
            ..area(name, rows)
        };
        column(svg, &panel, name, rows, ROW);
    }
}

/// The axes of a column. It has no place yet.
fn area(name: &str, rows: &[Vec<f64>]) -> Panel {
    let values: Vec<f64> = rows.iter().flatten().copied().collect();
    let (x, x_scale) = if name.starts_with("Round") {
        latency_axis(&values)
    } else {
        let ticks = linear_ticks(percentile(&values, 99.0).unwrap_or(0.0), 4.0);
        ((0.0, ticks[ticks.len() - 1]), Scale::Linear)
    };
    Panel {
        left: 0.0,
        top: 0.0,
        width: 0.0,
        height: 0.0,
        x,
        x_scale,
        y: (0.0, 1.0),
        scale: Scale::Linear,
    }
}

fn words(runs: &[Run<'_>]) -> String {
    let mut words = captions(runs);
    if !words.is_empty() {
        words.push_str("; without the beginning and the last second of the load");
    }
    words
}

fn column(svg: &mut Svg, panel: &Panel, name: &str, rows: &[Vec<f64>], row_height: f64) {
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
    labels_below(svg, panel, &ticks);
    let font = Font::LABEL.at(Anchor::Middle).in_colour(INK);
    svg.text(
        panel.left + panel.width / 2.0,
        panel.top - 12.0,
        font.bold(),
        name,
    );
    for (row, values) in rows.iter().enumerate() {
        // A row that is higher than those of a wide picture has the name of its test above the box.
        let y = panel.top + (row as f64 + 1.0) * row_height - ROW / 2.0;
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

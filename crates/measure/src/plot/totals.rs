//! Total throughput and latency over time.

use sqm_core::direction::Direction;

use super::frame::{
    SINCE_LOAD, frame, goodput, latency, latency_axis, latency_grid, legend, line_style, load_begin,
    name_phases, small_print, time_axis,
};
use super::run::{Run, captions};
use super::series::{headline, highest, time_range, total_rate};
use super::sheet::Sheet;
use crate::result::TestResult;
use crate::svg::{Anchor, Font, INK, Panel, Scale, Svg, linear_ticks};

const HEIGHT: f64 = 190.0;
const GAP: f64 = 34.0;

/// Total download, total upload and round trip of each test over one time axis.
pub(super) fn totals(runs: &[Run<'_>], sheet: Sheet) -> String {
    let mut top = 92.0 + runs.len() as f64 * 20.0;
    let results: Vec<&TestResult> = runs.iter().map(|run| run.result).collect();
    let panels = Direction::BOTH
        .into_iter()
        .filter(|direction| results.iter().any(|r| r.flows(*direction).next().is_some()));
    let panels: Vec<Direction> = panels.collect();
    let count = panels.len() as f64 + 1.0;
    let height = top + count * HEIGHT + (count - 1.0) * GAP + 76.0;
    let title = "Total throughput and round trip";
    let mut svg = Svg::new(sheet.width(), height, title);
    let lower = sheet.title(&mut svg, title);
    let rows: Vec<_> = runs
        .iter()
        .enumerate()
        .map(|(style, run)| (style, words(run)))
        .collect();
    top += lower + legend(&mut svg, sheet, 64.0 + lower, &rows);
    let x = time_range(&results);
    let panel = |index: usize, y: (f64, f64), scale| Panel {
        left: sheet.left(),
        top: top + index as f64 * (HEIGHT + GAP),
        width: sheet.panel_width(40.0),
        height: HEIGHT,
        x,
        x_scale: Scale::Linear,
        y,
        scale,
    };
    for (index, direction) in panels.iter().enumerate() {
        let lines: Vec<_> = results
            .iter()
            .map(|result| total_rate(result, *direction))
            .collect();
        let ticks = linear_ticks(lines.iter().map(|line| highest(line)).fold(0.0, f64::max), 4.0);
        let panel = panel(index, (0.0, ticks[ticks.len() - 1]), Scale::Linear);
        let name = if *direction == Direction::Download {
            "Download (Mbit/s)"
        } else {
            "Upload (Mbit/s)"
        };
        frame(&mut svg, &panel, results[0], &ticks, name);
        if index == 0 {
            name_phases(&mut svg, &panel, results[0]);
        }
        for (style, line) in lines.iter().enumerate() {
            panel.styled(&mut svg, line, line_style(style), 2.0);
        }
    }
    let lines: Vec<_> = results.iter().map(|result| headline(result)).collect();
    let values: Vec<f64> = lines.iter().flatten().filter_map(|(_, rtt)| *rtt).collect();
    let (y, scale) = latency_axis(&values);
    let panel = panel(panels.len(), y, scale);
    latency_grid(&mut svg, &panel);
    load_begin(&mut svg, &panel);
    let font = Font::LABEL.at(Anchor::Middle).in_colour(INK);
    let name = sheet.pick("Round trip", "Round trip (ms)");
    svg.upright_text(14.0, panel.top + panel.height / 2.0, font, name);
    for (style, line) in lines.iter().enumerate() {
        panel.styled(&mut svg, line, line_style(style), 1.6);
    }
    time_axis(&mut svg, &panel, SINCE_LOAD);
    small_print(&mut svg, sheet, panel.bottom() + 62.0, &captions(runs));
    svg.finish()
}

fn words(run: &Run<'_>) -> String {
    let summary = &run.result.summary;
    format!(
        "{}: download {}, upload {}, round trip {} idle, {} loaded (median)",
        run.name,
        goodput(summary.download_mbit),
        goodput(summary.upload_mbit),
        latency(summary.idle_ms),
        latency(summary.latency_median_ms)
    )
}

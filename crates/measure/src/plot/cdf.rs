//! Cumulative distribution of latency under load.

use super::frame::{
    IDLE_STYLE, latency_axis, legend, line_style, percentiles_in_words, share_grid, small_print,
};
use super::run::{Run, captions};
use super::series::{STRETCHES, within};
use super::sheet::Sheet;
use crate::result::{ProbeSeries, TestResult};
use crate::svg::{Panel, Scale, Svg};

/// For each test, the share of the probes under load that came back within a time. Lost probes count, so that the curve then ends
/// below 100 %. For a single test, a curve for each series of probes and one for the idle line.
pub fn ping_cdf(runs: &[Run<'_>]) -> String {
    on(runs, Sheet::Wide)
}

/// The picture on a sheet.
pub(super) fn on(runs: &[Run<'_>], sheet: Sheet) -> String {
    let curves = curves(runs);
    let panel_height = sheet.pick(330.0, 220.0);
    let mut top = 84.0 + curves.len() as f64 * 20.0;
    let title = "Round trips under load";
    let mut svg = Svg::new(sheet.width(), top + panel_height + 76.0, title);
    sheet.title(&mut svg, title);
    let rows: Vec<_> = curves.iter().map(|curve| (curve.style, curve.words())).collect();
    top += legend(&mut svg, sheet, 64.0, &rows);
    let values: Vec<f64> = curves
        .iter()
        .flat_map(|curve| [curve.rtts.first(), curve.rtts.last()])
        .flatten()
        .copied()
        .collect();
    let (x, x_scale) = latency_axis(&values);
    let panel = Panel {
        left: sheet.left(),
        top,
        width: sheet.panel_width(40.0),
        height: panel_height,
        x,
        x_scale,
        y: (0.0, 100.0),
        scale: Scale::Linear,
    };
    share_grid(
        &mut svg,
        sheet,
        &panel,
        ("Round trip (ms)", "Share of probes sent"),
    );
    for curve in &curves {
        let (colour, dashes) = line_style(curve.style);
        let points: Vec<_> = curve
            .points()
            .iter()
            .map(|(rtt, share)| (panel.at_x(*rtt), panel.at_y(*share)))
            .collect();
        svg.dashed_path(&points, colour, 2.4, dashes);
    }
    small_print(&mut svg, sheet, panel.bottom() + 62.0, &captions(runs));
    svg.finish()
}

struct Curve {
    style: usize,
    name: String,
    /// Round trips in ascending order, milliseconds.
    rtts: Vec<f64>,
    sent: usize,
}

impl Curve {
    fn new(style: usize, name: String, probes: &[Option<f64>]) -> Self {
        let mut rtts: Vec<f64> = probes.iter().copied().flatten().collect();
        rtts.sort_by(f64::total_cmp);
        Self {
            style,
            name,
            rtts,
            sent: probes.len(),
        }
    }

    fn words(&self) -> String {
        let lost = self.sent - self.rtts.len();
        let words = percentiles_in_words(&self.name, self.sent, lost, |p| {
            crate::stats::percentile(&self.rtts, p)
        });
        match lost {
            0 => words,
            lost if lost == self.sent => words,
            lost => format!("{words}, {lost} lost"),
        }
    }

    /// Round trip in milliseconds, and per cent of the probes sent. A few hundred points at most.
    fn points(&self) -> Vec<(f64, f64)> {
        let share = |count: usize| count as f64 / self.sent as f64 * 100.0;
        let step = self.rtts.len().div_ceil(STRETCHES).max(1);
        let mut points: Vec<_> = self.rtts.first().map(|rtt| (*rtt, 0.0)).into_iter().collect();
        let last = self.rtts.len().saturating_sub(1);
        let indices = (0..self.rtts.len()).filter(|i| i % step == 0 || *i == last);
        points.extend(indices.map(|i| (self.rtts[i], share(i + 1))));
        points
    }
}

fn curves(runs: &[Run<'_>]) -> Vec<Curve> {
    let loaded = |result: &TestResult, series: &[&ProbeSeries]| -> Vec<Option<f64>> {
        let windows: Vec<_> = result.steady().collect();
        within(series, &windows)
    };
    let [only] = runs else {
        let curve = |(style, run): (usize, &Run<'_>)| {
            let series = run.result.headline_probes();
            Curve::new(style, run.name.to_owned(), &loaded(run.result, &series))
        };
        return runs.iter().enumerate().map(curve).collect();
    };
    let mut curves: Vec<Curve> = only
        .result
        .probes
        .iter()
        .enumerate()
        .map(|(style, series)| {
            let name = series.name.trim_start_matches("Ping (ms) ").to_owned();
            Curve::new(style, name, &loaded(only.result, &[series]))
        })
        .collect();
    let idle: Vec<_> = only
        .result
        .phases
        .iter()
        .take_while(|p| p.is_idle())
        .map(|p| (p.from_ms, p.to_ms))
        .collect();
    let idle = within(&only.result.headline_probes(), &idle);
    if !idle.is_empty() {
        // Always black and dotted.
        curves.push(Curve::new(IDLE_STYLE, "idle line".to_owned(), &idle));
    }
    curves
}

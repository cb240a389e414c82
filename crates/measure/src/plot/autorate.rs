//! Logs of autorate: rate, load and delay over time, and their distributions.

use sqm_core::direction::Direction;

use super::frame::{
    LEFT, RIGHT, WIDTH, clipped, latency, latency_axis, latency_grid, legend, line_style, linear_grid,
    percentiles_in_words, share_grid, small_print, time_axis, upright_name,
};
use super::run::Run;
use super::series::{Points, STRETCHES, highest, thin, within};
use super::sheet::Sheet;
use crate::autorate_trace::{DirectionFigures, Moment, ProbeOutcome, Recording};
use crate::stats::percentile;
use crate::svg::{
    Anchor, BLUE, Font, GREEN, GREY, INK, ORANGE, Panel, Scale, Svg, VERMILION, linear_ticks, short,
};

const HEIGHT: f64 = 168.0;
const GAP: f64 = 30.0;
const CDF_HEIGHT: f64 = 300.0;
const DIRECTIONS: [(Direction, &str, &str); 2] = [
    (Direction::Download, "Download", BLUE),
    (Direction::Upload, "Upload", GREEN),
];
/// The time is divided into about this many stretches, and the median and worst delay of each is drawn. A choice.
const DELAYS: f64 = 300.0;
/// Shortest stretch, seconds. A choice: with 20 probes a second it has a few.
const LEAST_STRETCH_S: f64 = 0.25;
/// If the next line comes later than this, seconds, nothing changed in between. A choice.
const HOLDS_S: f64 = 1.0;
/// Smallest delay on a logarithmic axis, milliseconds. A choice.
const LEAST_ADDED_MS: f64 = 0.1;

/// A log over time: rate and load of each direction, and the added delay of the probes. `None` if there is nothing to draw.
pub fn over_time(recording: &Recording) -> Option<String> {
    if recording.moments.is_empty() {
        return None;
    }
    let shown: Vec<_> = DIRECTIONS
        .into_iter()
        .filter(|(direction, ..)| recording.is_shaped[*direction])
        .collect();
    let top = 96.0;
    let count = shown.len() as f64 + 1.0;
    let height = top + count * HEIGHT + (count - 1.0) * GAP + 76.0;
    let title = format!("Autorate: {}", recording.name);
    let mut svg = Svg::new(WIDTH, height, &title);
    svg.text(LEFT, 36.0, Font::TITLE, &clipped(&title, 80));
    svg.text(LEFT, 60.0, Font::LABEL, &words(recording));
    let unit = Unit::of(recording.seconds());
    let panel = |index: usize, y: (f64, f64), scale| Panel {
        left: LEFT,
        top: top + index as f64 * (HEIGHT + GAP),
        width: WIDTH - LEFT - RIGHT,
        height: HEIGHT,
        x: (0.0, (recording.seconds() / unit.seconds).max(0.001)),
        x_scale: Scale::Linear,
        y,
        scale,
    };
    for (index, (direction, name, colour)) in shown.iter().enumerate() {
        let rates = series(recording, &unit, |moment| moment.rates[*direction]);
        let loads = series(recording, &unit, |moment| moment.loads[*direction]);
        let ticks = linear_ticks(highest(&rates).max(percentile_of(&loads, 99.0)), 4.0);
        let panel = panel(index, (0.0, ticks[ticks.len() - 1]), Scale::Linear);
        linear_grid(&mut svg, &panel, &ticks);
        upright_name(&mut svg, &panel, &format!("{name} (Mbit/s)"));
        panel.plot(&mut svg, &loads, GREY, 1.0, 0.6);
        panel.plot(&mut svg, &rates, colour, 2.0, 1.0);
        let cuts = format!("{} cuts", recording.cuts[*direction]);
        names(
            &mut svg,
            &panel,
            &[("rate", colour), ("load", GREY), (&cuts, INK)],
        );
    }
    let (typical, worst) = delays(&recording.probes, &unit, recording.seconds());
    let values: Vec<f64> = typical.iter().chain(&worst).filter_map(|(_, ms)| *ms).collect();
    let (y, scale) = latency_axis(&values);
    let panel = panel(shown.len(), y, scale);
    latency_grid(&mut svg, &panel);
    let font = Font::LABEL.at(Anchor::Middle).in_colour(INK);
    svg.upright_text(14.0, panel.top + panel.height / 2.0, font, "Added delay");
    panel.plot(&mut svg, &worst, ORANGE, 1.0, 0.8);
    panel.plot(&mut svg, &typical, VERMILION, 1.8, 1.0);
    for probe in recording.probes.iter().filter(|probe| probe.rtt_ms.is_none()) {
        let x = panel.at_x(probe.t_s / unit.seconds);
        svg.line((x, panel.top), (x, panel.top + 7.0), INK, 1.5, "");
    }
    let lost = recording.figures().delay.lost.map(|lost| format!("{lost} lost"));
    let mut shown = vec![("median", VERMILION), ("worst", ORANGE)];
    shown.extend(lost.as_deref().map(|lost| (lost, INK)));
    names(&mut svg, &panel, &shown);
    time_axis(&mut svg, &panel, unit.name);
    let note = "delay: round trips of probes above the smallest of the same reflector; median and maximum of each interval";
    let marks = if lost.is_some() {
        ", marks where a probe is lost"
    } else {
        ""
    };
    small_print(&mut svg, Sheet::Wide, height - 14.0, &format!("{note}{marks}"));
    Some(svg.finish())
}

/// Distributions of delay and rate of the logs, and of the delay of the tests. `None` if there is nothing to draw.
pub fn distribution(recordings: &[&Recording], runs: &[Run<'_>]) -> Option<String> {
    let mut delays: Vec<Curve> = recordings
        .iter()
        .map(|recording| delay_curve(recording))
        .collect();
    delays.extend(runs.iter().map(test_curve));
    let mut rates = Vec::new();
    for recording in recordings {
        let shaped = DIRECTIONS
            .iter()
            .filter(|(direction, ..)| recording.is_shaped[*direction]);
        rates.extend(shaped.map(|(direction, name, _)| rate_curve(recording, *direction, name)));
    }
    delays.retain(|curve| !curve.points.is_empty());
    rates.retain(|curve| !curve.points.is_empty());
    if recordings.is_empty() || delays.is_empty() && rates.is_empty() {
        return None;
    }
    let panels = [
        (
            "Added delay",
            delays,
            ("Added round trip (ms)", "Share of probes"),
        ),
        ("Rates", rates, ("Rate (Mbit/s)", "Share of the time")),
    ];
    let legend_height = |curves: &[Curve]| 30.0 + curves.len() as f64 * 20.0;
    let block = |curves: &[Curve]| legend_height(curves) + CDF_HEIGHT + 80.0;
    let shown = || panels.iter().filter(|(_, curves, _)| !curves.is_empty());
    let height = 50.0 + shown().map(|(_, curves, _)| block(curves)).sum::<f64>();
    let title = "Distribution of delay and rate";
    let mut svg = Svg::new(WIDTH, height, title);
    let mut top = 36.0;
    for (name, curves, axes) in shown() {
        svg.text(LEFT, top, Font::TITLE, name);
        let rows: Vec<_> = curves
            .iter()
            .enumerate()
            .map(|(style, curve)| (style, curve.words.clone()))
            .collect();
        legend(&mut svg, Sheet::Wide, top + 28.0, &rows);
        let values: Vec<f64> = curves
            .iter()
            .flat_map(|curve| [curve.points.first(), curve.points.last()])
            .flatten()
            .map(|(value, _)| *value)
            .collect();
        let (x, x_scale) = latency_axis(&values);
        let panel = Panel {
            left: LEFT,
            top: top + legend_height(curves) + 6.0,
            width: WIDTH - LEFT - 40.0,
            height: CDF_HEIGHT,
            x,
            x_scale,
            y: (0.0, 100.0),
            scale: Scale::Linear,
        };
        share_grid(&mut svg, Sheet::Wide, &panel, *axes);
        for (style, curve) in curves.iter().enumerate() {
            let (colour, dashes) = line_style(style);
            let points: Vec<_> = curve
                .points
                .iter()
                .map(|(value, share)| (panel.at_x(*value), panel.at_y(*share)))
                .collect();
            svg.dashed_path(&points, colour, 2.4, dashes);
        }
        top += block(curves);
    }
    Some(svg.finish())
}

/// The unit of a time axis.
struct Unit {
    seconds: f64,
    name: &'static str,
}

impl Unit {
    fn of(seconds: f64) -> Self {
        let (seconds, name) = match seconds {
            s if s < 600.0 => (1.0, "Time since the log begins (s)"),
            s if s < 14_400.0 => (60.0, "Time since the log begins (minutes)"),
            _ => (3600.0, "Time since the log begins (hours)"),
        };
        Self { seconds, name }
    }
}

/// The points of a line through all moments. On an idle line they are far apart, and the value holds until the next.
fn series(recording: &Recording, unit: &Unit, value: impl Fn(&Moment) -> f64) -> Vec<(f64, Option<f64>)> {
    let mut points = Vec::new();
    let mut last: Option<&Moment> = None;
    for moment in &recording.moments {
        let x = moment.t_s / unit.seconds;
        if moment.is_new {
            points.push((x, None));
        } else if let Some(last) = last.filter(|last| last.for_s > HOLDS_S) {
            points.push((x, Some(value(last))));
        }
        points.push((x, Some(value(moment))));
        last = Some(moment);
    }
    thin(points)
}

/// Median and worst delay of each stretch. The lines break where there were no probes.
fn delays(probes: &[ProbeOutcome], unit: &Unit, seconds: f64) -> (Points, Points) {
    let stretch = (seconds / DELAYS).max(LEAST_STRETCH_S);
    let (mut typical, mut worst) = (Points::new(), Points::new());
    let mut last = 0;
    let number = |probe: &ProbeOutcome| (probe.t_s / stretch).max(0.0) as u64;
    for probes in probes.chunk_by(|a, b| number(a) == number(b)) {
        let added: Vec<f64> = probes
            .iter()
            .filter_map(|probe| Some(probe.added_ms?.max(LEAST_ADDED_MS)))
            .collect();
        let index = number(&probes[0]);
        let x = (index as f64 + 0.5) * stretch / unit.seconds;
        if index > last + 4 {
            // There were no probes for some time.
            typical.push((x, None));
            worst.push((x, None));
        }
        last = index;
        if !added.is_empty() {
            typical.push((x, percentile(&added, 50.0)));
            worst.push((x, percentile(&added, 100.0)));
        }
    }
    (typical, worst)
}

fn percentile_of(points: &[(f64, Option<f64>)], p: f64) -> f64 {
    let values: Vec<f64> = points.iter().filter_map(|(_, value)| *value).collect();
    percentile(&values, p).unwrap_or(0.0)
}

/// Writes the names of the lines beside a panel.
fn names(svg: &mut Svg, panel: &Panel, lines: &[(&str, &'static str)]) {
    for (row, (name, colour)) in lines.iter().enumerate() {
        let y = panel.top + 14.0 + row as f64 * 18.0;
        svg.text(
            panel.right() + 10.0,
            y,
            Font::LABEL.bold().in_colour(colour),
            name,
        );
    }
}

fn words(recording: &Recording) -> String {
    let figures = recording.figures();
    let rate = |side: Option<DirectionFigures>, name: &str| {
        side.map(|side| {
            format!(
                "{name} {} Mbit/s ({} to {})",
                short(side.rate_mean_mbit),
                short(side.rate_min_mbit),
                short(side.rate_max_mbit)
            )
        })
    };
    let delay = figures
        .delay
        .added_p95_ms
        .map(|p95| format!("95 % of answers below {} added", latency(Some(p95))));
    let parts = [
        rate(figures.download, "download"),
        rate(figures.upload, "upload"),
        delay,
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

struct Curve {
    words: String,
    /// Value, and share in per cent.
    points: Vec<(f64, f64)>,
}

fn delay_curve(recording: &Recording) -> Curve {
    let added: Vec<f64> = recording
        .probes
        .iter()
        .filter_map(|probe| probe.added_ms)
        .collect();
    let sent = recording.probes.len();
    curve_of_probes(&recording.name, added, sent, !recording.hides_losses)
}

/// The delay of a test under load, above its shortest round trip.
fn test_curve(run: &Run<'_>) -> Curve {
    let windows: Vec<_> = run.result.steady().collect();
    let probes = within(&run.result.headline_probes(), &windows);
    let least = probes.iter().flatten().copied().fold(f64::INFINITY, f64::min);
    let added = probes.iter().flatten().map(|rtt| rtt - least).collect();
    curve_of_probes(run.name, added, probes.len(), true)
}

fn curve_of_probes(name: &str, mut added: Vec<f64>, sent: usize, shows_losses: bool) -> Curve {
    for ms in &mut added {
        *ms = ms.max(LEAST_ADDED_MS);
    }
    added.sort_by(f64::total_cmp);
    let lost = sent - added.len();
    let mut words = percentiles_in_words(name, sent, lost, |p| percentile(&added, p));
    if shows_losses && lost < sent {
        words += &format!(", {lost} lost");
    }
    let weights: Vec<_> = added.into_iter().map(|ms| (ms, 1.0)).collect();
    Curve {
        words,
        points: cumulated(&weights, sent as f64),
    }
}

fn rate_curve(recording: &Recording, direction: Direction, name: &str) -> Curve {
    let rates = recording.rates(direction);
    let at = |p| short(crate::stats::weighted_percentile(&rates, p).unwrap_or(0.0));
    let words = format!(
        "{}: {}: 5 % {}, median {}, 95 % {} Mbit/s",
        recording.name,
        name.to_lowercase(),
        at(5.0),
        at(50.0),
        at(95.0)
    );
    let all = rates.iter().map(|(_, seconds)| seconds).sum();
    Curve {
        words,
        points: cumulated(&rates, all),
    }
}

/// The cumulative distribution of sorted values with weights, as value and share of `all`. A few hundred points at most.
fn cumulated(sorted: &[(f64, f64)], all: f64) -> Vec<(f64, f64)> {
    let Some(first) = sorted.first().filter(|_| all > 0.0) else {
        return Vec::new();
    };
    let step = sorted.len().div_ceil(STRETCHES).max(1);
    let (mut points, mut so_far) = (vec![(first.0, 0.0)], 0.0);
    for (index, (value, weight)) in sorted.iter().enumerate() {
        so_far += weight;
        if index % step == 0 || index + 1 == sorted.len() {
            points.push((*value, so_far / all * 100.0));
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autorate_trace::example;
    use crate::result::tests::example as test;

    #[test]
    fn pictures_of_logs_and_of_tests_beside_them() {
        let recording = example("rates.csv");
        insta::assert_snapshot!("autorate", over_time(&recording).expect("a picture"));
        let result = test("after", 3.0, 19.0, 3.8);
        let runs = [Run {
            name: "after",
            result: &result,
        }];
        insta::assert_snapshot!(
            "autorate_cdf",
            distribution(&[&recording], &runs).expect("a picture")
        );
    }

    #[test]
    fn empty_and_very_short_logs_have_no_picture_or_a_valid_one() {
        let empty = Recording::default();
        assert_eq!(over_time(&empty), None);
        assert_eq!(distribution(&[&empty], &[]), None);
        assert_eq!(distribution(&[], &[]), None);
        let mut little = example("one line");
        little.moments.truncate(1);
        little.probes.clear();
        for picture in [over_time(&little), distribution(&[&little], &[])]
            .into_iter()
            .flatten()
        {
            assert!(!picture.contains("NaN") && !picture.contains("inf"), "{picture}");
        }
    }
}

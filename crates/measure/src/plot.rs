//! Pictures of results, as SVG text. Pure.

use crate::result::{Direction, Flow, TestResult};
use crate::svg::{
    Anchor, BLUE, Font, GREEN, GREY, GRID, INK, Panel, SHADE, Scale, Svg, VERMILION, decades, linear_ticks,
    short,
};

/// The width of all pictures.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 78.0;
/// Room beside the axes for the labels of the lines.
const RIGHT: f64 = 128.0;
/// Throughput is drawn in about this many steps: finer than the eye wants is noise.
const STEPS: f64 = 125.0;

/// One test: download, upload and latency over one time axis, as in RRUL plots. Each flow is a thin line, their sum a
/// thick one; the grey part is the steady window that the figures are drawn from.
pub fn rrul(result: &TestResult) -> String {
    const TOP: f64 = 96.0;
    const HEIGHT: f64 = 168.0;
    const GAP: f64 = 30.0;
    let bottom = TOP + 3.0 * HEIGHT + 2.0 * GAP;
    let height = bottom + 76.0;
    let summary = &result.summary;
    let title = result.meta.title.as_deref().unwrap_or("Latency under load");
    let mut svg = Svg::new(WIDTH, height, title);
    svg.text(LEFT, 36.0, Font::TITLE, title);
    let headline = format!(
        "idle {}, under load {} (99 % below {}), download {} Mbit/s, upload {} Mbit/s",
        latency(summary.idle_ms),
        latency(summary.latency_median_ms),
        latency(summary.latency_p99_ms),
        short(summary.download_mbit),
        short(summary.upload_mbit)
    );
    svg.text(LEFT, 60.0, Font::LABEL, &headline);

    let x = time_range(&[result]);
    let panel = |index: f64, y_max: f64| Panel {
        left: LEFT,
        top: TOP + index * (HEIGHT + GAP),
        width: WIDTH - LEFT - RIGHT,
        height: HEIGHT,
        x,
        y: (0.0, y_max),
        scale: Scale::Linear,
    };
    let directions = [
        (Direction::Down, "Download", BLUE, summary.download_mbit),
        (Direction::Up, "Upload", GREEN, summary.upload_mbit),
    ];
    for (index, (direction, name, colour, mbit)) in (0_u8..).zip(directions) {
        let flows: Vec<_> = result.flows(direction).map(|flow| rates(flow, result)).collect();
        let total = sum(&flows);
        let ticks = linear_ticks(highest(&total), 4.0);
        let panel = panel(f64::from(index), ticks[ticks.len() - 1]);
        frame(&mut svg, &panel, result, &ticks, &format!("{name} (Mbit/s)"));
        if index == 0 {
            name_phases(&mut svg, &panel);
        }
        for flow in &flows {
            panel.plot(&mut svg, flow, colour, 1.0, 0.55);
        }
        panel.plot(&mut svg, &total, colour, 2.5, 1.0);
        if !flows.is_empty() {
            let label = format!("sum {}", short(mbit));
            label_right(
                &mut svg,
                &panel,
                panel.at_y(mbit),
                colour,
                &label,
                &flow_count(flows.len()),
            );
        }
    }

    let rtts = latencies(result);
    let ticks = linear_ticks(highest(&rtts), 4.0);
    let panel = panel(2.0, ticks[ticks.len() - 1]);
    frame(&mut svg, &panel, result, &ticks, "Round trip (ms)");
    panel.plot(&mut svg, &rtts, VERMILION, 1.6, 1.0);
    // What never came back has no height: a mark at the upper edge says when.
    for (t, _) in rtts.iter().filter(|(_, rtt)| rtt.is_none()) {
        let x = panel.at_x(*t);
        svg.line((x, panel.top), (x, panel.top + 7.0), INK, 1.5, "");
    }
    if let Some(median) = summary.latency_median_ms {
        let lost = match summary.probes_lost {
            0 => "no probe lost".to_owned(),
            n => format!("{n} of {} lost", summary.probes_sent),
        };
        label_right(
            &mut svg,
            &panel,
            panel.at_y(median),
            VERMILION,
            &latency(Some(median)),
            &lost,
        );
    }
    time_axis(&mut svg, &panel);
    svg.text(
        LEFT,
        height - 14.0,
        Font {
            size: 11.5,
            ..Font::LABEL
        },
        &caption(result),
    );
    svg.finish()
}

/// The latency of two tests over one time axis, on a logarithmic scale so that both can be read.
pub fn latency_comparison(before: &TestResult, after: &TestResult, title: &str) -> String {
    const HEIGHT: f64 = 450.0;
    let mut svg = Svg::new(WIDTH, HEIGHT, title);
    svg.text(
        LEFT,
        38.0,
        Font {
            size: 22.0,
            ..Font::TITLE
        },
        title,
    );
    let settings = &after.meta.settings;
    let subtitle = format!(
        "Round trip of a small packet while {} and {} fill the line",
        plural(settings.down, "download"),
        plural(settings.up, "upload")
    );
    svg.text(
        LEFT,
        62.0,
        Font {
            size: 14.0,
            ..Font::LABEL
        },
        &subtitle,
    );

    let (old, new) = (latencies(before), latencies(after));
    let values: Vec<f64> = old
        .iter()
        .chain(&new)
        .filter_map(|(_, rtt)| *rtt)
        .filter(|rtt| *rtt > 0.0)
        .collect();
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = values.iter().copied().fold(0.0, f64::max);
    // Half-way between decades is enough air; whole ones would waste half of the picture.
    let (low, high) = if values.is_empty() {
        (1.0, 1000.0)
    } else {
        (lowest * 0.6, highest * 1.6)
    };
    let panel = Panel {
        left: LEFT,
        top: 98.0,
        width: WIDTH - LEFT - 170.0,
        height: HEIGHT - 98.0 - 58.0,
        x: time_range(&[before, after]),
        y: (low, high.max(low * 10.0)),
        scale: Scale::Log,
    };
    log_grid(&mut svg, &panel);
    load_begin(&mut svg, &panel);
    name_phases(&mut svg, &panel);
    time_axis(&mut svg, &panel);

    let mut labels = Vec::new();
    for (data, result, colour, name) in [(&old, before, VERMILION, "before"), (&new, after, BLUE, "after")] {
        panel.plot(&mut svg, data, colour, 2.2, 1.0);
        if let Some(median) = result.summary.latency_median_ms {
            let note = format!("median {name}");
            labels.push((panel.at_y(median), colour, latency(Some(median)), note));
        }
    }
    if let [first, second] = labels.as_mut_slice() {
        keep_apart(&mut first.0, &mut second.0, 46.0);
    }
    for (y, colour, figure, note) in labels {
        let x = panel.right() + 14.0;
        let font = Font {
            size: 22.0,
            ..Font::TITLE
        };
        svg.text(x, y + 3.0, font.in_colour(colour), &figure);
        svg.text(x, y + 20.0, Font::LABEL.in_colour(colour), &note);
    }
    svg.finish()
}

/// First and last second of the probes, in whole seconds.
fn time_range(results: &[&TestResult]) -> (f64, f64) {
    let settings = results.iter().map(|r| &r.meta.settings);
    let idle = settings.clone().map(|s| s.idle_ms).max().unwrap_or(0);
    let load = settings.map(|s| s.load_ms).max().unwrap_or(1);
    (-(idle as f64) / 1000.0, (load as f64 / 1000.0).max(0.1))
}

/// (seconds, ms or lost) of every probe.
fn latencies(result: &TestResult) -> Vec<(f64, Option<f64>)> {
    let series = result.probes.first();
    let samples = series.iter().flat_map(|series| &series.samples);
    samples.map(|probe| (probe.t_ms / 1000.0, probe.rtt_ms)).collect()
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

/// Ground, grid and name of a panel with a linear scale.
fn frame(svg: &mut Svg, panel: &Panel, result: &TestResult, ticks: &[f64], name: &str) {
    for (from, to) in result.steady() {
        let (from, to) = (panel.at_x(from / 1000.0), panel.at_x(to / 1000.0));
        svg.rect(from, panel.top, (to - from).max(0.0), panel.height, SHADE);
    }
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
    load_begin(svg, panel);
    let middle = panel.top + panel.height / 2.0;
    svg.upright_text(20.0, middle, Font::LABEL.at(Anchor::Middle).in_colour(INK), name);
}

fn log_grid(svg: &mut Svg, panel: &Panel) {
    // Over many decades the steps between them would crowd.
    let crowded = panel.y.1 / panel.y.0 > 3000.0;
    for decade in decades(panel.y.0, panel.y.1) {
        for (factor, strong) in [(1.0, true), (2.0, false), (5.0, false)] {
            let value = decade * factor;
            if value < panel.y.0 || value > panel.y.1 || (crowded && !strong) {
                continue;
            }
            let y = panel.at_y(value);
            let dashes = if strong { "" } else { "2 4" };
            svg.line((panel.left, y), (panel.right(), y), GRID, 1.0, dashes);
            let font = Font::LABEL.at(Anchor::End);
            svg.text(
                panel.left - 8.0,
                y + 4.5,
                if strong { font.in_colour(INK) } else { font },
                &latency(Some(value)),
            );
        }
    }
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

fn time_axis(svg: &mut Svg, panel: &Panel) {
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
        "Time since the load began (s)",
    );
}

fn label_right(svg: &mut Svg, panel: &Panel, y: f64, colour: &'static str, figure: &str, note: &str) {
    let y = y.clamp(panel.top + 12.0, panel.bottom() - 16.0);
    let x = panel.right() + 10.0;
    svg.text(
        x,
        y + 2.0,
        Font {
            size: 15.0,
            ..Font::LABEL
        }
        .bold()
        .in_colour(colour),
        figure,
    );
    svg.text(
        x,
        y + 18.0,
        Font {
            size: 12.0,
            ..Font::LABEL
        },
        note,
    );
}

/// Moves two heights apart, evenly, until they are `gap` away from each other.
fn keep_apart(first: &mut f64, second: &mut f64, gap: f64) {
    let (upper, lower) = if first <= second {
        (first, second)
    } else {
        (second, first)
    };
    let missing = gap - (*lower - *upper);
    if missing > 0.0 {
        *upper -= missing / 2.0;
        *lower += missing / 2.0;
    }
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

fn plural(count: u32, noun: &str) -> String {
    match count {
        0 => format!("no {noun}"),
        1 => format!("1 {noun}"),
        n => format!("{n} {noun}s"),
    }
}

/// What one must know to repeat the test.
fn caption(result: &TestResult) -> String {
    let meta = &result.meta;
    let settings = &meta.settings;
    let mut congestion: Vec<&str> = result.flows.iter().map(|flow| flow.congestion.as_str()).collect();
    congestion.sort_unstable();
    congestion.dedup();
    format!(
        "{} to {}, {}, {} down and {} up, {}, {} s of load, a probe every {} ms, sqm {}",
        meta.time,
        meta.host,
        if result.meta.remote.starts_with('[') {
            "IPv6"
        } else {
            "IPv4"
        },
        flow_count(settings.down as usize),
        settings.up,
        if congestion.is_empty() {
            "no TCP".to_owned()
        } else {
            congestion.join(" and ")
        },
        short(settings.load_ms as f64 / 1000.0),
        settings.probe_interval_ms,
        meta.program
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::example;

    #[test]
    fn three_panels_of_one_test() {
        insta::assert_snapshot!(rrul(&example("Cable <24/4.4> & SQM", 1000.0, 20.0, 4.0)));
    }

    #[test]
    fn before_and_after_on_one_scale() {
        let (before, after) = (
            example("before", 1200.0, 20.0, 4.0),
            example("after", 3.0, 19.0, 3.8),
        );
        insta::assert_snapshot!(latency_comparison(&before, &after, "Cable line, 24/4.4 Mbit/s"));
    }

    #[test]
    fn labels_of_equal_figures_do_not_touch() {
        let (mut a, mut b) = (100.0, 100.0);
        keep_apart(&mut a, &mut b, 40.0);
        assert_eq!((a, b), (80.0, 120.0));
    }

    #[test]
    fn a_test_without_any_answer_still_has_a_picture() {
        let mut result = example("nothing", 0.0, 0.0, 0.0);
        result.probes.clear();
        result.flows.clear();
        let empty = TestResult::new(result.meta, Vec::new(), Vec::new(), Vec::new());
        assert!(!rrul(&empty).contains("NaN"));
        assert!(!latency_comparison(&empty, &empty, "nothing").contains("NaN"));
    }
}

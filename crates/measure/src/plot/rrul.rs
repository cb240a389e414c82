//! A test over time.

use sqm_core::direction::Direction;

use super::frame::{
    RIGHT, SINCE_LOAD, clipped, frame, goodput, latency, name_phases, small_print, time_axis,
};
use super::run::{caption, flow_count};
use super::series::{Points, delays, highest, latencies, rates, sum, time_range};
use super::sheet::{LineLabel, Sheet};
use crate::result::{Probe, ProbeSeries, TestResult};
use crate::svg::{BLUE, Font, GREEN, INK, ORANGE, PURPLE, Panel, Scale, Svg, VERMILION, linear_ticks, short};

/// Colours of the series of probes.
const PROBES: [&str; 4] = [VERMILION, PURPLE, ORANGE, INK];
/// Largest number of names beside the panel of latency.
const NAMED: usize = 7;

/// Download, upload and latency of a test over one time axis, as in RRUL plots, and the delays of each way if they are known. Each
/// flow is a thin line, their sum a thick one. The grey parts are the steady windows from which the figures are computed.
pub fn rrul(result: &TestResult) -> String {
    on(result, Sheet::Wide)
}

/// The picture on a sheet.
pub(super) fn on(result: &TestResult, sheet: Sheet) -> String {
    const HEIGHT: f64 = 168.0;
    let gap = sheet.pick(30.0, 40.0);
    let ways = one_way(result);
    let summary = &result.summary;
    let directions = [
        (Direction::Download, "Download", BLUE, summary.download_mbit),
        (Direction::Upload, "Upload", GREEN, summary.upload_mbit),
    ];
    let directions = directions
        .into_iter()
        .filter_map(|(direction, name, colour, mbit)| Some((direction, name, colour, mbit?)));
    let directions: Vec<_> = directions.collect();
    // The panel of round trips is below those of the directions, and that of one-way delays below it.
    let panels = directions.len() as f64 + if ways.is_some() { 2.0 } else { 1.0 };
    let title = result.meta.title.as_deref().unwrap_or("Latency under load");
    let mut svg = Svg::new(
        sheet.width(),
        96.0 + panels * HEIGHT + (panels - 1.0) * gap + 76.0,
        title,
    );
    let mut top = 96.0 + sheet.title(&mut svg, title);
    let loaded = match (summary.latency_median_ms, summary.latency_p99_ms) {
        (Some(median), p99) => format!("{} (99 % below {})", latency(Some(median)), latency(p99)),
        (None, _) => "not measured".to_owned(),
    };
    let headline = format!(
        "idle {}, under load {loaded}, download {}, upload {}",
        latency(summary.idle_ms),
        goodput(summary.download_mbit),
        goodput(summary.upload_mbit)
    );
    let place = (sheet.margin(), top - sheet.pick(36.0, 46.0));
    top += sheet.paragraph(&mut svg, place, Font::LABEL, &headline);

    let x = time_range(&[result]);
    // The next panel, below the labels that a narrow picture has above it.
    let mut next_panel = |svg: &mut Svg, labels: usize, y_max: f64| {
        let room = sheet.room_for(labels);
        svg.grow(room);
        let panel = Panel {
            left: sheet.left(),
            top: top + room,
            width: sheet.panel_width(RIGHT),
            height: HEIGHT,
            x,
            x_scale: Scale::Linear,
            y: (0.0, y_max),
            scale: Scale::Linear,
        };
        top = panel.bottom() + gap;
        panel
    };
    for (index, (direction, name, colour, mbit)) in (0_u8..).zip(&directions) {
        let flows: Vec<_> = result.flows(*direction).map(|flow| rates(flow, result)).collect();
        let total = sum(&flows);
        let ticks = linear_ticks(highest(&total), 4.0);
        let panel = next_panel(&mut svg, 1, ticks[ticks.len() - 1]);
        frame(&mut svg, &panel, result, &ticks, &format!("{name} (Mbit/s)"));
        if index == 0 {
            name_phases(&mut svg, &panel, result);
        }
        for flow in &flows {
            panel.plot(&mut svg, flow, colour, 1.0, 0.55);
        }
        panel.plot(&mut svg, &total, colour, 2.5, 1.0);
        let label = format!("sum {}", short(*mbit));
        let note = flow_count(flows.len());
        label_line(
            &mut svg,
            sheet,
            &panel,
            (panel.at_y(*mbit), colour),
            (&label, &note),
            &[],
        );
    }

    let series = result.headline_probes();
    let rtts: Vec<_> = series.iter().map(|series| latencies(series)).collect();
    let ticks = linear_ticks(rtts.iter().map(|rtts| highest(rtts)).fold(0.0, f64::max), 4.0);
    let named: Vec<_> = names(&series);
    let round_trips = next_panel(&mut svg, 1 + named.len(), ticks[ticks.len() - 1]);
    let mut lowest = round_trips;
    frame(&mut svg, &round_trips, result, &ticks, "Round trip (ms)");
    if directions.is_empty() {
        name_phases(&mut svg, &round_trips, result);
    }
    for (rtts, colour) in rtts.iter().zip(PROBES.iter().cycle()) {
        round_trips.plot(&mut svg, rtts, colour, 1.6, 1.0);
    }
    lost_probes(&mut svg, &round_trips, &series);
    if !sheet.is_narrow() {
        names_right(&mut svg, &round_trips, &named);
    }
    if let Some(median) = summary.latency_median_ms {
        let lost = match summary.probes_lost {
            0 => "no probe lost".to_owned(),
            n => format!("{n} of {} lost", summary.probes_sent),
        };
        // Below the names of the series.
        let names = if series.len() > 1 {
            round_trips.top + 14.0 + series.len().min(NAMED) as f64 * 15.0 + 10.0
        } else {
            round_trips.top
        };
        label_line(
            &mut svg,
            sheet,
            &round_trips,
            (round_trips.at_y(median).max(names), VERMILION),
            (&latency(Some(median)), &lost),
            &named,
        );
    } else if sheet.is_narrow() {
        sheet.labels_above(&mut svg, &round_trips, &named);
    }
    if let Some(ways) = ways {
        let ticks = linear_ticks(
            ways.iter().map(|way| highest(&way.points)).fold(0.0, f64::max),
            4.0,
        );
        let named = ways
            .each_ref()
            .map(|way| LineLabel::coloured(way.colour, way.label.clone()));
        lowest = next_panel(&mut svg, named.len(), ticks[ticks.len() - 1]);
        frame(&mut svg, &lowest, result, &ticks, "One way (ms)");
        for way in &ways {
            lowest.plot(&mut svg, &way.points, way.colour, 1.6, 1.0);
        }
        if sheet.is_narrow() {
            sheet.labels_above(&mut svg, &lowest, &named);
        } else {
            names_right(&mut svg, &lowest, &named);
        }
    }
    time_axis(&mut svg, &lowest, SINCE_LOAD);
    small_print(&mut svg, sheet, lowest.bottom() + 62.0, &caption(result));
    svg.finish()
}

/// The names of the series of probes, if there are several.
fn names(series: &[&ProbeSeries]) -> Vec<LineLabel> {
    if series.len() < 2 {
        return Vec::new();
    }
    let rows = series.iter().enumerate().zip(PROBES.iter().cycle()).take(NAMED);
    rows.map(|((row, one), colour)| {
        let text = match series.len() {
            n if row + 1 == NAMED && n > NAMED => format!("and {} more", n - row),
            _ => clipped(one.name.trim_start_matches("Ping (ms) "), 16),
        };
        LineLabel::coloured(colour, text)
    })
    .collect()
}

/// Writes the names of lines beside a panel.
fn names_right(svg: &mut Svg, panel: &Panel, names: &[LineLabel]) {
    for (row, name) in names.iter().enumerate() {
        let font = Font {
            size: 12.0,
            ..Font::LABEL
        };
        let y = panel.top + 14.0 + row as f64 * 15.0;
        svg.text(panel.right() + 10.0, y, font.in_colour(name.colour), &name.text);
    }
}

/// A line of one-way delays.
struct Way {
    label: String,
    colour: &'static str,
    points: Points,
}

/// The delays of each way and their sum, with the number of probes that were lost on each. `None` if no delay of one way is known.
fn one_way(result: &TestResult) -> Option<[Way; 3]> {
    let series = result.headline_probes();
    let probes = || series.iter().flat_map(|series| &series.samples);
    probes().find(|probe| probe.up_ms.is_some())?;
    let lost = |direction| {
        let lost = probes().filter(|p| p.rtt_ms.is_none() && p.lost == Some(direction));
        lost.count()
    };
    let sum = |p: &Probe| Some(p.up_ms? + p.down_ms?);
    Some([
        Way {
            label: format!("down, {} lost", lost(Direction::Download)),
            colour: BLUE,
            points: delays(&series, |p| p.down_ms),
        },
        Way {
            label: format!("up, {} lost", lost(Direction::Upload)),
            colour: GREEN,
            points: delays(&series, |p| p.up_ms),
        },
        Way {
            label: "sum".to_owned(),
            colour: VERMILION,
            points: delays(&series, sum),
        },
    ])
}

/// Marks lost probes at the upper edge, in the colour of the direction in which they were lost: they have no value.
fn lost_probes(svg: &mut Svg, panel: &Panel, series: &[&ProbeSeries]) {
    let probes = series.iter().flat_map(|series| &series.samples);
    for probe in probes.filter(|probe| probe.rtt_ms.is_none()) {
        let x = panel.at_x(probe.t_ms / 1000.0);
        let colour = match probe.lost {
            Some(Direction::Download) => BLUE,
            Some(Direction::Upload) => GREEN,
            None => INK,
        };
        svg.line((x, panel.top), (x, panel.top + 7.0), colour, 1.5, "");
    }
}

/// Writes the figure of a panel and a note: beside the panel at a height, or above a panel of a narrow picture, followed by other
/// labels.
fn label_line(
    svg: &mut Svg,
    sheet: Sheet,
    panel: &Panel,
    (y, colour): (f64, &'static str),
    (figure, note): (&str, &str),
    others: &[LineLabel],
) {
    if sheet.is_narrow() {
        let mut labels = vec![LineLabel::coloured(colour, format!("{figure}, {note}"))];
        labels.extend(others.iter().cloned());
        return sheet.labels_above(svg, panel, &labels);
    }
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

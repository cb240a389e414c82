//! A test over time.

use sqm_core::direction::Direction;

use super::frame::{
    LEFT, RIGHT, SINCE_LOAD, WIDTH, clipped, frame, latency, name_phases, small_print, time_axis,
};
use super::run::{caption, flow_count};
use super::series::{highest, latencies, rates, sum, time_range};
use crate::result::TestResult;
use crate::svg::{BLUE, Font, GREEN, INK, ORANGE, PURPLE, Panel, Scale, Svg, VERMILION, linear_ticks, short};

/// Colours of the series of probes.
const PROBES: [&str; 4] = [VERMILION, PURPLE, ORANGE, INK];

/// Download, upload and latency of a test over one time axis, as in RRUL plots. Each flow is a thin line, their sum a
/// thick one. The grey part is the steady window from which the figures are computed.
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
        x_scale: Scale::Linear,
        y: (0.0, y_max),
        scale: Scale::Linear,
    };
    let directions = [
        (Direction::Download, "Download", BLUE, summary.download_mbit),
        (Direction::Upload, "Upload", GREEN, summary.upload_mbit),
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

    let series = result.headline_probes();
    let rtts: Vec<_> = series.iter().map(|series| latencies(series)).collect();
    let ticks = linear_ticks(rtts.iter().map(|rtts| highest(rtts)).fold(0.0, f64::max), 4.0);
    let panel = panel(2.0, ticks[ticks.len() - 1]);
    frame(&mut svg, &panel, result, &ticks, "Round trip (ms)");
    for (rtts, colour) in rtts.iter().zip(PROBES.iter().cycle()) {
        panel.plot(&mut svg, rtts, colour, 1.6, 1.0);
        // A lost probe has no value: a mark at the upper edge shows its time.
        for (t, _) in rtts.iter().filter(|(_, rtt)| rtt.is_none()) {
            let x = panel.at_x(*t);
            svg.line((x, panel.top), (x, panel.top + 7.0), INK, 1.5, "");
        }
    }
    if series.len() > 1 {
        for ((row, series), colour) in series.iter().enumerate().zip(PROBES.iter().cycle()) {
            let name = series.name.trim_start_matches("Ping (ms) ");
            let font = Font {
                size: 12.0,
                ..Font::LABEL
            };
            let y = panel.top + 14.0 + row as f64 * 15.0;
            svg.text(
                panel.right() + 10.0,
                y,
                font.in_colour(colour),
                &clipped(name, 16),
            );
        }
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
    time_axis(&mut svg, &panel, SINCE_LOAD);
    small_print(&mut svg, height - 14.0, &caption(result));
    svg.finish()
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

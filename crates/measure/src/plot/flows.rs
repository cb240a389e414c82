//! The flows of a test over time: their throughput, and the TCP state of their senders.

use sqm_core::direction::Direction;

use super::frame::{SINCE_LOAD, clipped, frame, line_style, name_phases, small_print, time_axis};
use super::run::caption;
use super::series::{Points, highest, rates, thin, time_range};
use super::sheet::{LineLabel, Sheet};
use crate::result::{Flow, TcpSample, TestResult};
use crate::svg::{Font, INK, Panel, Scale, Svg, linear_ticks, short};

const TOP: f64 = 74.0;
const GAP: f64 = 34.0;
const LABELS: f64 = 236.0;
/// Largest number of names beside a panel.
const NAMED: usize = 16;

/// Throughput of each flow, downloads above uploads.
pub(super) fn per_flow(result: &TestResult, sheet: Sheet) -> String {
    let panels: Vec<_> = [
        (Direction::Download, "Download (Mbit/s)"),
        (Direction::Upload, "Upload (Mbit/s)"),
    ]
    .into_iter()
    .filter_map(|(direction, axis)| {
        let flow = |flow: &Flow| {
            (
                format!("{}: {} Mbit/s", short_name(flow), short(flow.mbit)),
                rates(flow, result),
            )
        };
        let lines: Vec<_> = result.flows(direction).map(flow).collect();
        (!lines.is_empty()).then_some((axis, lines))
    })
    .collect();
    draw(result, sheet, "Throughput of each flow", &panels)
}

/// Congestion window and smoothed round trip of each connection, from its sender's kernel.
pub(super) fn tcp(result: &TestResult, sheet: Sheet) -> String {
    type Value = fn(&TcpSample) -> Option<f64>;
    let values: [(&str, Value); 2] = [
        ("Congestion window (segments)", |s| s.cwnd),
        ("TCP's round trip (ms)", |s| s.rtt_ms),
    ];
    let panels: Vec<_> = values
        .into_iter()
        .map(|(axis, value)| {
            let line = |flow: &Flow| {
                let points = flow.sender.iter().map(|s| (s.t_ms / 1000.0, value(s)));
                (short_name(flow), thin(broken_at_pauses(points)))
            };
            (
                axis,
                result
                    .flows
                    .iter()
                    .filter(|flow| !flow.sender.is_empty())
                    .map(line)
                    .collect(),
            )
        })
        .collect();
    draw(result, sheet, "The senders' TCP", &panels)
}

/// Breaks a line where the flow carried no data, as in a phase of the other direction: there are no samples for longer than a second,
/// where the sender's kernel is asked several times a second.
fn broken_at_pauses(points: impl Iterator<Item = (f64, Option<f64>)>) -> Points {
    const PAUSE_S: f64 = 1.0;
    let mut line = Points::new();
    for (t, value) in points {
        if let Some((last, _)) = line.last().filter(|(last, _)| t - last > PAUSE_S) {
            line.push((last + PAUSE_S, None));
        }
        line.push((t, value));
    }
    line
}

type Line = (String, Vec<(f64, Option<f64>)>);

fn draw(result: &TestResult, sheet: Sheet, subject: &str, panels: &[(&str, Vec<Line>)]) -> String {
    let heights: Vec<f64> = panels
        .iter()
        .map(|(_, lines)| match sheet {
            Sheet::Wide => (lines.len().min(NAMED) as f64 * 16.0 + 10.0).max(190.0),
            Sheet::Narrow => 190.0,
        })
        .collect();
    let height = TOP + heights.iter().sum::<f64>() + (panels.len().max(1) - 1) as f64 * GAP + 76.0;
    let title = match &result.meta.title {
        Some(title) => format!("{subject}: {title}"),
        None => subject.to_owned(),
    };
    let mut svg = Svg::new(sheet.width(), height, &title);
    let mut top = TOP + sheet.title(&mut svg, &sheet.pick(clipped(&title, 72), title.clone()));
    for (index, ((axis, lines), height)) in panels.iter().zip(&heights).enumerate() {
        let ticks = linear_ticks(
            lines.iter().map(|(_, line)| highest(line)).fold(0.0, f64::max),
            4.0,
        );
        let labels = names(lines);
        let room = sheet.room_for(labels.len());
        svg.grow(room);
        top += room;
        let panel = Panel {
            left: sheet.left(),
            top,
            width: sheet.panel_width(LABELS),
            height: *height,
            x: time_range(&[result]),
            x_scale: Scale::Linear,
            y: (0.0, ticks[ticks.len() - 1]),
            scale: Scale::Linear,
        };
        frame(&mut svg, &panel, result, &ticks, axis);
        if index == 0 {
            name_phases(&mut svg, &panel, result);
        }
        for (style, (_, line)) in lines.iter().enumerate() {
            panel.styled(&mut svg, line, line_style(style), 1.6);
        }
        match sheet {
            Sheet::Wide => names_right(&mut svg, &panel, &labels),
            Sheet::Narrow => sheet.labels_above(&mut svg, &panel, &labels),
        }
        if index + 1 == panels.len() {
            time_axis(&mut svg, &panel, SINCE_LOAD);
        }
        top += height + GAP;
    }
    small_print(&mut svg, sheet, top - GAP + 62.0, &caption(result));
    svg.finish()
}

fn names(lines: &[Line]) -> Vec<LineLabel> {
    let rows = lines.iter().enumerate().take(NAMED);
    rows.map(|(row, (name, _))| {
        let (colour, dashes) = line_style(row);
        let text = match lines.len() {
            n if row + 1 == NAMED && n > NAMED => format!("and {} more", n - row),
            _ => clipped(name, 31),
        };
        LineLabel {
            colour,
            dashes: Some(dashes),
            text,
        }
    })
    .collect()
}

fn names_right(svg: &mut Svg, panel: &Panel, names: &[LineLabel]) {
    let font = Font {
        size: 12.0,
        ..Font::LABEL
    }
    .in_colour(INK);
    for (row, name) in names.iter().enumerate() {
        let (x, y) = (panel.right() + 12.0, panel.top + 12.0 + row as f64 * 16.0);
        let dashes = name.dashes.unwrap_or_default();
        svg.line((x, y - 4.0), (x + 26.0, y - 4.0), name.colour, 2.5, dashes);
        svg.text(x + 32.0, y, font, &name.text);
    }
}

fn short_name(flow: &Flow) -> String {
    flow.name.trim_start_matches("TCP ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_flow_is_broken_where_the_flow_pauses() {
        let points = [(0.2, Some(1.0)), (0.4, Some(2.0)), (6.2, Some(3.0)), (6.4, None)];
        let line = broken_at_pauses(points.into_iter());
        assert_eq!(line.len(), 5);
        assert_eq!(line[2], (1.4, None));
    }
}

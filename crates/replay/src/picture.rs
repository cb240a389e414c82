//! A picture of delay and throughput over time.

use sqm_measure::chart::{Chart, Line, Panel};

use super::capture::{Replay, Request, tin_name};
use super::series::Step;

/// The picture as SVG text.
pub fn svg(request: &Request, replay: &Replay) -> String {
    let series = &replay.tally.series;
    let step_sec = series.step_nanos as f64 / 1e9;
    let points = |value: &dyn Fn(&Step) -> Option<f64>| -> Vec<(f64, Option<f64>)> {
        let steps = series.steps.iter().enumerate();
        steps
            .map(|(index, step)| ((index as f64 + 0.5) * step_sec, value(step)))
            .collect()
    };
    let mbit = |bytes: u64| Some(bytes as f64 * 8.0 / step_sec / 1e6);
    let mean = |tin: usize| {
        points(&|step: &Step| {
            let (sum, count) = *step.delays.get(tin)?;
            (count > 0).then(|| sum as f64 / count as f64 / 1e6)
        })
    };
    let worst = points(&|step| {
        let left = step.delays.iter().any(|(_, count)| *count > 0);
        left.then(|| step.worst_delay_nanos as f64 / 1e6)
    });
    let mut delays = vec![Line::thin("worst", worst)];
    match replay.layout {
        None => delays.push(Line::new("mean", mean(0))),
        Some(layout) => delays.extend(
            layout
                .display
                .iter()
                .map(|tin| Line::new(tin_name(layout, (*tin).into()), mean((*tin).into())))
                .filter(|line| !line.is_empty()),
        ),
    }
    let chart = Chart {
        title: request.capture.display().to_string(),
        subtitle: subtitle(&request.shape.words()),
        x: "Time since the first packet (s)".to_owned(),
        panels: vec![
            Panel {
                y: "Delay (ms)".to_owned(),
                lines: delays,
            },
            Panel {
                y: "Throughput (Mbit/s)".to_owned(),
                lines: vec![
                    Line::thin("offered", points(&|step| mbit(step.arrived_bytes))),
                    Line::new("sent", points(&|step| mbit(step.sent_bytes))),
                ],
            },
            Panel {
                y: "Packets per step".to_owned(),
                lines: vec![
                    Line::new("dropped", points(&|step| Some(step.drops as f64))),
                    Line::new("marked", points(&|step| Some(step.marks as f64))),
                ],
            },
        ],
    };
    chart.svg()
}

/// The root and the number of queues below it, which fit in one line.
fn subtitle(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [root] => root.clone(),
        [root, below @ ..] => format!("{root}, with {} below it", below.len()),
    }
}

//! The latency of two tests.

use super::frame::{
    LEAST_MS, LEFT, SINCE_LOAD, WIDTH, latency, latency_grid, load_begin, name_phases, time_axis,
};
use super::series::{headline, time_range};
use crate::result::TestResult;
use crate::svg::{BLUE, Font, Panel, Scale, Svg, VERMILION};

/// The latency of two tests over one time axis, on a logarithmic scale so that both are legible.
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

    let (old, new) = (headline(before), headline(after));
    let values: Vec<f64> = old
        .iter()
        .chain(&new)
        .filter_map(|(_, rtt)| *rtt)
        .filter(|rtt| *rtt > LEAST_MS)
        .collect();
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = values.iter().copied().fold(0.0, f64::max);
    // The axis ends between decades: with whole decades, half of the picture could be empty.
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
        x_scale: Scale::Linear,
        y: (low, high.max(low * 10.0)),
        scale: Scale::Log,
    };
    latency_grid(&mut svg, &panel);
    load_begin(&mut svg, &panel);
    name_phases(&mut svg, &panel, before);
    time_axis(&mut svg, &panel, SINCE_LOAD);

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

/// Moves two vertical positions apart until there is a distance of `gap`.
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

fn plural(count: u32, noun: &str) -> String {
    match count {
        0 => format!("no {noun}"),
        1 => format!("1 {noun}"),
        n => format!("{n} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::example;

    #[test]
    fn before_and_after_on_one_scale() {
        let (before, after) = (
            example("before", 1200.0, 20.0, 4.0),
            example("after", 3.0, 19.0, 3.8),
        );
        insta::assert_snapshot!(latency_comparison(&before, &after, "Cable line, 24/4.4 Mbit/s"));
    }

    #[test]
    fn labels_of_equal_figures_do_not_overlap() {
        let (mut a, mut b) = (100.0, 100.0);
        keep_apart(&mut a, &mut b, 40.0);
        assert_eq!((a, b), (80.0, 120.0));
    }
}

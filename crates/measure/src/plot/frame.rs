//! The frame that all pictures share: sizes, line styles, axes, grids, legends and captions.

use super::sheet::Sheet;
use crate::result::{Phase, TestResult};
use crate::svg::{
    Anchor, BLUE, Font, GREEN, GREY, GRID, INK, ORANGE, PURPLE, Panel, SHADE, SKY, Scale, Svg, VERMILION,
    decades, linear_ticks, short,
};

/// The width of all pictures, pixels.
pub(crate) const WIDTH: f64 = 960.0;
/// Room on the left for the labels of the vertical axis, pixels.
pub(crate) const LEFT: f64 = 78.0;
/// Room on the right for the labels of the lines, pixels.
pub(crate) const RIGHT: f64 = 128.0;
/// The baseline of an upright text in a narrow picture, pixels.
const UPRIGHT: f64 = 14.0;
/// The time axis of a test.
pub(super) const SINCE_LOAD: &str = "Time since the load began (s)";
/// Smaller values are left out of a logarithmic axis, milliseconds: no clock measures a picosecond.
pub(super) const LEAST_MS: f64 = 1e-6;
/// The colours of the lines in one panel.
const COLOURS: [&str; 7] = [BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, INK];
/// Their dashes, which tell the lines apart in print without colours.
const DASHES: [&str; 4] = ["", "8 3", "3 3", "10 3 2 3"];

/// The line of the idle line beside that of a single test: the last colour.
pub(super) const IDLE_STYLE: usize = COLOURS.len() - 1;

/// Colour and dashes of a line. No two of the first 28 lines are alike.
pub(super) fn line_style(line: usize) -> (&'static str, &'static str) {
    let colour = line % COLOURS.len();
    (
        COLOURS[colour],
        DASHES[(colour + line / COLOURS.len()) % DASHES.len()],
    )
}

/// Draws the background of a panel of a test with a linear scale: the steady windows in grey, the grid and the name of the axis.
pub(super) fn frame(svg: &mut Svg, panel: &Panel, result: &TestResult, ticks: &[f64], name: &str) {
    for (from, to) in result.steady() {
        let (from, to) = (panel.at_x(from / 1000.0), panel.at_x(to / 1000.0));
        svg.rect(from, panel.top, (to - from).max(0.0), panel.height, SHADE);
    }
    linear_grid(svg, panel, ticks);
    load_begin(svg, panel);
    for phase in result.phases.iter().filter(|p| !p.is_idle() && p.from_ms > 0.0) {
        let x = panel.at_x(phase.from_ms / 1000.0);
        svg.line((x, panel.top), (x, panel.bottom()), GREY, 1.0, "3 3");
    }
    upright_name(svg, panel, name);
}

/// Draws the horizontal grid lines of a panel with a linear scale, with their values.
pub(crate) fn linear_grid(svg: &mut Svg, panel: &Panel, ticks: &[f64]) {
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
}

/// Writes the name of the vertical axis, from bottom to top.
pub(crate) fn upright_name(svg: &mut Svg, panel: &Panel, name: &str) {
    let middle = panel.top + panel.height / 2.0;
    let x = if panel.left < LEFT { UPRIGHT } else { 20.0 };
    svg.upright_text(x, middle, Font::LABEL.at(Anchor::Middle).in_colour(INK), name);
}

/// Draws a vertical line where the load begins, unless that is the edge of the panel.
pub(super) fn load_begin(svg: &mut Svg, panel: &Panel) {
    if panel.x.0 < 0.0 {
        let x = panel.at_x(0.0);
        svg.line((x, panel.top), (x, panel.bottom()), GREY, 1.0, "3 3");
    }
}

/// Writes the names of the phases above the uppermost panel. A test with one load has `idle` and `load`.
pub(super) fn name_phases(svg: &mut Svg, panel: &Panel, result: &TestResult) {
    let y = panel.top - 7.0;
    let font = Font {
        size: 12.0,
        ..Font::LABEL
    };
    if panel.x.0 < 0.0 {
        svg.text(panel.at_x(0.0) - 6.0, y, font.at(Anchor::End), "idle");
    }
    let loaded: Vec<&Phase> = result.phases.iter().filter(|phase| !phase.is_idle()).collect();
    for phase in &loaded {
        let name = if loaded.len() == 1 { "load" } else { phase.name() };
        let x = panel.at_x(phase.from_ms / 1000.0);
        if panel.x.0 < 0.0 || phase.from_ms > 0.0 {
            svg.text(x + 6.0, y, font, name);
        }
    }
}

/// Draws the horizontal axis below the lowest panel, with its values and its name.
pub(crate) fn time_axis(svg: &mut Svg, panel: &Panel, name: &str) {
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
        name,
    );
}

/// The latencies of probes in words. `at` is a percentile of those that were answered.
pub(super) fn percentiles_in_words(
    name: &str,
    sent: usize,
    lost: usize,
    at: impl Fn(f64) -> Option<f64>,
) -> String {
    if sent == 0 {
        return format!("{name}: no probes under load");
    }
    if lost == sent {
        return format!("{name}: no reply to {sent} probes");
    }
    format!(
        "{name}: median {}, 95 % {}, 99 % {} of {sent} probes",
        latency(at(50.0)),
        latency(at(95.0)),
        latency(at(99.0))
    )
}

/// A latency in milliseconds or, from 10 s on, in seconds.
pub(crate) fn latency(ms: Option<f64>) -> String {
    match ms {
        None => "not measured".to_owned(),
        Some(ms) if ms >= 10_000.0 => format!("{} s", short(ms / 1000.0)),
        Some(ms) => format!("{} ms", short(ms)),
    }
}

/// A sum of flows, or a dash if the test has none in that direction.
pub(crate) fn goodput(mbit: Option<f64>) -> String {
    mbit.map_or_else(|| "–".to_owned(), |mbit| format!("{} Mbit/s", short(mbit)))
}

/// The range and the scale of a latency axis. The scale is logarithmic if the largest value exceeds twenty times the smallest (a choice).
pub(super) fn latency_axis(values: &[f64]) -> ((f64, f64), Scale) {
    let positive = || values.iter().copied().filter(|v| *v > LEAST_MS);
    let (low, high) = (
        positive().fold(f64::INFINITY, f64::min),
        positive().fold(0.0, f64::max),
    );
    if high > low * 20.0 {
        ((low * 0.8, high * 1.25), Scale::Log)
    } else {
        let ticks = linear_ticks(high, 5.0);
        ((0.0, ticks[ticks.len() - 1]), Scale::Linear)
    }
}

/// The values that get a grid line. The flag is true for a major line.
pub(super) fn axis_ticks(range: (f64, f64), scale: Scale) -> Vec<(f64, bool)> {
    match scale {
        Scale::Linear => linear_ticks(range.1, 5.0)
            .into_iter()
            .map(|tick| (tick, true))
            .collect(),
        Scale::Log => {
            // Over many decades, lines between the powers of ten would be too close to each other.
            let crowded = range.1 / range.0 > 3000.0;
            let steps = [(1.0, true), (2.0, false), (5.0, false)];
            let decades = decades(range.0, range.1).into_iter();
            decades
                .flat_map(|decade| steps.map(|(factor, strong)| (decade * factor, strong)))
                .filter(|(tick, strong)| *tick >= range.0 && *tick <= range.1 && (*strong || !crowded))
                .collect()
        }
    }
}

/// Draws the horizontal grid lines of a panel of latencies, with their values.
pub(super) fn latency_grid(svg: &mut Svg, panel: &Panel) {
    for (tick, strong) in axis_ticks(panel.y, panel.scale) {
        let y = panel.at_y(tick);
        svg.line(
            (panel.left, y),
            (panel.right(), y),
            GRID,
            1.0,
            if strong { "" } else { "2 4" },
        );
        let font = Font::LABEL.at(Anchor::End);
        let font = if strong { font.in_colour(INK) } else { font };
        let label = if panel.left < LEFT {
            short(tick)
        } else {
            latency(Some(tick))
        };
        svg.text(panel.left - 8.0, y + 4.5, font, &label);
    }
}

/// Draws a legend: a row for each line with its style and its text.
///
/// Returns by how much everything below moves down, pixels, because a narrow picture has the texts in several lines.
pub(super) fn legend(svg: &mut Svg, sheet: Sheet, top: f64, rows: &[(usize, String)]) -> f64 {
    let (left, sample) = (sheet.margin(), sheet.pick(34.0, 22.0));
    let font = Font {
        size: 12.5,
        ..Font::LABEL
    }
    .in_colour(INK);
    let mut more = 0.0;
    for (row, (style, text)) in rows.iter().enumerate() {
        let y = top + row as f64 * 20.0 + more;
        let (colour, dashes) = line_style(*style);
        svg.line((left, y - 4.5), (left + sample, y - 4.5), colour, 3.0, dashes);
        let text = sheet.pick(clipped(text, 118), text.clone());
        more += sheet.paragraph(svg, (left + sample + sheet.pick(10.0, 6.0), y), font, &text);
    }
    more
}

/// The text, shortened to `length` characters: a long name must not leave the picture.
pub(super) fn clipped(text: &str, length: usize) -> String {
    if text.chars().count() <= length {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(length - 1).collect();
    short.push('\u{2026}');
    short
}

/// Writes a line of small print at the foot of a picture.
pub(super) fn small_print(svg: &mut Svg, sheet: Sheet, y: f64, text: &str) {
    let font = Font {
        size: 11.5,
        ..Font::LABEL
    };
    let text = sheet.pick(clipped(text, 150), text.to_owned());
    sheet.paragraph(svg, (sheet.margin(), y), font, &text);
}

/// Writes the values of a horizontal axis below a panel. The outermost labels stay within the panel, and a label that would touch another one is left out.
pub(super) fn labels_below(svg: &mut Svg, panel: &Panel, ticks: &[(f64, bool)]) {
    /// Width of a digit, and the smallest distance between two labels, pixels.
    const DIGIT: f64 = 7.0;
    const DISTANCE: f64 = 6.0;
    let font = Font {
        size: 12.0,
        ..Font::LABEL
    };
    let mut taken: Vec<(f64, f64)> = Vec::new();
    // Labels between decades give way to those of the decades.
    let (strong, weak): (Vec<_>, Vec<_>) = ticks.iter().copied().partition(|(_, strong)| *strong);
    for (tick, _) in strong.into_iter().chain(weak) {
        let (x, text) = (panel.at_x(tick), short(tick));
        let width = text.chars().count() as f64 * DIGIT;
        let (anchor, from) = if x - width / 2.0 < panel.left {
            (Anchor::Start, x)
        } else if x + width / 2.0 > panel.right() {
            (Anchor::End, x - width)
        } else {
            (Anchor::Middle, x - width / 2.0)
        };
        let is_free = |(start, end): &(f64, f64)| from + width + DISTANCE < *start || from > *end + DISTANCE;
        if taken.iter().all(is_free) {
            svg.text(x, panel.bottom() + 18.0, font.at(anchor), &text);
            taken.push((from, from + width));
        }
    }
}

/// Draws the grid and the names of the axes of a cumulative distribution, whose vertical axis is a share.
pub(super) fn share_grid(svg: &mut Svg, sheet: Sheet, panel: &Panel, (across, up): (&str, &str)) {
    for share in [0.0, 25.0, 50.0, 75.0, 95.0, 100.0] {
        let y = panel.at_y(share);
        svg.line(
            (panel.left, y),
            (panel.right(), y),
            GRID,
            1.0,
            if share == 95.0 { "2 4" } else { "" },
        );
        svg.text(
            panel.left - 8.0,
            y + 4.5,
            Font::LABEL.at(Anchor::End),
            &format!("{share} %"),
        );
    }
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
        if sheet.is_narrow() {
            continue;
        }
        let font = Font::LABEL.at(Anchor::Middle);
        svg.text(
            x,
            panel.bottom() + 20.0,
            if *strong { font.in_colour(INK) } else { font },
            &short(*tick),
        );
    }
    if sheet.is_narrow() {
        labels_below(svg, panel, &ticks);
    }
    let middle = panel.left + panel.width / 2.0;
    let font = Font::LABEL.at(Anchor::Middle).in_colour(INK);
    svg.text(middle, panel.bottom() + 40.0, font, across);
    svg.upright_text(
        sheet.pick(20.0, UPRIGHT),
        panel.top + panel.height / 2.0,
        font,
        up,
    );
}

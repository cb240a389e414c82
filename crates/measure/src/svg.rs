//! Builds SVG pictures: the few elements that plots need, and the arithmetic of axes.
//!
//! Plotting libraries would bring font code in C along, and our pictures have only lines and labels.

use std::fmt::Write as _;

/// The palette of Okabe and Ito, whose colours people with any colour vision can tell apart.
pub(crate) const BLUE: &str = "#0072b2";
pub(crate) const VERMILION: &str = "#d55e00";
pub(crate) const GREEN: &str = "#009e73";
pub(crate) const PURPLE: &str = "#cc79a7";
pub(crate) const ORANGE: &str = "#e69f00";
pub(crate) const SKY: &str = "#56b4e9";
pub(crate) const INK: &str = "#1f2328";
pub(crate) const GREY: &str = "#667079";
pub(crate) const GRID: &str = "#e3e6e9";
pub(crate) const SHADE: &str = "#f4f6f8";
const GROUND: &str = "#ffffff";
/// The colours on a dark background, for viewers that prefer one. Print, and programs without style sheets, use the light colours.
const DARK: [(&str, &str); 11] = [
    (GROUND, "#15181b"),
    (SHADE, "#1e2226"),
    (GRID, "#343a40"),
    (GREY, "#9aa4ad"),
    (INK, "#e6e9ec"),
    (BLUE, "#4ba3e3"),
    (VERMILION, "#ff8a45"),
    (GREEN, "#2fc79b"),
    (PURPLE, "#e59cc5"),
    (ORANGE, "#f4b93a"),
    (SKY, "#8ad0fa"),
];

/// An SVG document. It has its own background, so that it is legible on a page of any colour.
pub(crate) struct Svg {
    width: f64,
    height: f64,
    description: String,
    /// The elements so far.
    text: String,
}

/// The alignment of a text at its point.
#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// Size in pixels, weight, colour and alignment of a text.
#[derive(Clone, Copy)]
pub(crate) struct Font {
    pub(crate) size: f64,
    pub(crate) bold: bool,
    pub(crate) colour: &'static str,
    pub(crate) anchor: Anchor,
}

impl Font {
    pub(crate) const LABEL: Self = Self {
        size: 13.0,
        bold: false,
        colour: GREY,
        anchor: Anchor::Start,
    };
    pub(crate) const TITLE: Self = Self {
        size: 20.0,
        bold: true,
        colour: INK,
        anchor: Anchor::Start,
    };

    pub(crate) const fn at(self, anchor: Anchor) -> Self {
        Self { anchor, ..self }
    }

    pub(crate) const fn in_colour(self, colour: &'static str) -> Self {
        Self { colour, ..self }
    }

    pub(crate) const fn bold(self) -> Self {
        Self { bold: true, ..self }
    }
}

impl Svg {
    /// An empty picture. Screen readers read the description.
    pub(crate) fn new(width: f64, height: f64, description: &str) -> Self {
        Self {
            width,
            height,
            description: description.to_owned(),
            text: String::new(),
        }
    }

    /// Makes the picture higher.
    pub(crate) fn grow(&mut self, by: f64) {
        self.height += by;
    }

    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{element}").expect("a string grows");
    }

    pub(crate) fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, fill: &str) {
        self.push(format_args!(
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{fill}\"/>",
            Px(x),
            Px(y),
            Px(width),
            Px(height)
        ));
    }

    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: f64, dashes: &str) {
        let (x1, y1, x2, y2) = (Px(from.0), Px(from.1), Px(to.0), Px(to.1));
        let dashes = if dashes.is_empty() {
            String::new()
        } else {
            format!(" stroke-dasharray=\"{dashes}\"")
        };
        self.push(format_args!(
            "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" stroke=\"{colour}\" stroke-width=\"{width}\"{dashes}/>"
        ));
    }

    /// A translucent rectangle with its outline.
    pub(crate) fn outlined(&mut self, x: f64, y: f64, width: f64, height: f64, colour: &str) {
        let (x, y, width, height) = (Px(x), Px(y), Px(width), Px(height));
        self.push(format_args!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{colour}\" fill-opacity=\"0.3\" \
             stroke=\"{colour}\" stroke-width=\"1.6\"/>"
        ));
    }

    /// A small circle.
    pub(crate) fn ring(&mut self, x: f64, y: f64, radius: f64, colour: &str) {
        let (x, y) = (Px(x), Px(y));
        self.push(format_args!(
            "<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"/>"
        ));
    }

    /// A line through points, dashed unless `dashes` is empty.
    pub(crate) fn dashed_path(&mut self, points: &[(f64, f64)], colour: &str, width: f64, dashes: &str) {
        if dashes.is_empty() || points.len() < 2 {
            return self.path(points, colour, width, 1.0);
        }
        let mut list = String::new();
        for (x, y) in points {
            write!(list, "{},{} ", Px(*x), Px(*y)).expect("a string grows");
        }
        self.push(format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" \
             stroke-dasharray=\"{dashes}\" stroke-linejoin=\"round\"/>",
            list.trim_end()
        ));
    }

    /// A line through points. A single point becomes a dot.
    pub(crate) fn path(&mut self, points: &[(f64, f64)], colour: &str, width: f64, opacity: f64) {
        if let [(x, y)] = *points {
            let (x, y) = (Px(x), Px(y));
            self.push(format_args!(
                "<circle cx=\"{x}\" cy=\"{y}\" r=\"{width}\" fill=\"{colour}\"/>"
            ));
        } else if !points.is_empty() {
            let mut list = String::new();
            for (x, y) in points {
                write!(list, "{},{} ", Px(*x), Px(*y)).expect("a string grows");
            }
            self.push(format_args!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" \
                 stroke-opacity=\"{opacity}\" stroke-linejoin=\"round\" stroke-linecap=\"round\"/>",
                list.trim_end()
            ));
        }
    }

    pub(crate) fn text(&mut self, x: f64, y: f64, font: Font, text: &str) {
        self.text_element(x, y, font, "", text);
    }

    /// A text that reads from bottom to top.
    pub(crate) fn upright_text(&mut self, x: f64, y: f64, font: Font, text: &str) {
        self.text_element(
            x,
            y,
            font,
            &format!(" transform=\"rotate(-90 {} {})\"", Px(x), Px(y)),
            text,
        );
    }

    fn text_element(&mut self, x: f64, y: f64, font: Font, transform: &str, text: &str) {
        let anchor = match font.anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let weight = if font.bold { " font-weight=\"600\"" } else { "" };
        let (x, y, size, colour) = (Px(x), Px(y), font.size, font.colour);
        self.push(format_args!(
            "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" fill=\"{colour}\" text-anchor=\"{anchor}\"{weight}{transform}>{}</text>",
            escape(text)
        ));
    }

    pub(crate) fn finish(self) -> String {
        let Self { width, height, .. } = self;
        let mut whole = Self::new(width, height, "");
        whole.push(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\" font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif\">"
        ));
        whole.push(format_args!("<title>{}</title>", escape(&self.description)));
        whole.push(format_args!("<style>{}</style>", dark_style()));
        whole.rect(0.0, 0.0, width, height, GROUND);
        whole.text + &self.text + "</svg>\n"
    }
}

/// A style sheet that replaces every light colour by its dark one.
fn dark_style() -> String {
    let mut style = String::from("@media (prefers-color-scheme:dark){");
    for (light, dark) in DARK {
        write!(
            style,
            "svg [fill=\"{light}\"]{{fill:{dark}}}svg [stroke=\"{light}\"]{{stroke:{dark}}}"
        )
        .expect("a string grows");
    }
    style + "}"
}

/// A coordinate, to a tenth of a pixel.
struct Px(f64);

impl std::fmt::Display for Px {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Adding zero turns a negative zero into a positive one.
        write!(f, "{}", (self.0 * 10.0).round() / 10.0 + 0.0)
    }
}

/// Escapes text for XML and HTML, in elements and in attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML does not allow control characters in any form.
            c if c.is_control() && !matches!(c, '\n' | '\t') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The scale of an axis.
#[derive(Clone, Copy)]
pub(crate) enum Scale {
    /// Linear.
    Linear,
    /// Logarithmic. Both ends must be above zero.
    Log,
}

impl Scale {
    /// The position of `value` in a range, from 0 at its first value to 1 at its last.
    fn part(self, value: f64, (first, last): (f64, f64)) -> f64 {
        match self {
            Self::Linear => (value - first) / (last - first),
            Self::Log => (value.max(first) / first).ln() / (last / first).ln(),
        }
    }
}

/// A part of the picture with a pair of axes.
#[derive(Clone, Copy)]
pub(crate) struct Panel {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
    /// First and last value of the horizontal axis.
    pub(crate) x: (f64, f64),
    pub(crate) x_scale: Scale,
    /// Lowest and highest value of the vertical axis.
    pub(crate) y: (f64, f64),
    pub(crate) scale: Scale,
}

impl Panel {
    pub(crate) fn right(&self) -> f64 {
        self.left + self.width
    }

    pub(crate) fn bottom(&self) -> f64 {
        self.top + self.height
    }

    pub(crate) fn at_x(&self, x: f64) -> f64 {
        self.left + self.x_scale.part(x, self.x) * self.width
    }

    /// The vertical position of a value. A value beyond the axis is drawn at its edge.
    pub(crate) fn at_y(&self, y: f64) -> f64 {
        self.bottom() - self.scale.part(y, self.y).clamp(0.0, 1.0) * self.height
    }

    /// Draws a line through data with a colour and dashes. A point without a value breaks the line.
    pub(crate) fn styled(&self, svg: &mut Svg, data: &[(f64, Option<f64>)], style: (&str, &str), width: f64) {
        for points in self.runs(data) {
            svg.dashed_path(&points, style.0, width, style.1);
        }
    }

    /// Draws a line through data. A point without a value breaks the line.
    pub(crate) fn plot(
        &self,
        svg: &mut Svg,
        data: &[(f64, Option<f64>)],
        colour: &str,
        width: f64,
        opacity: f64,
    ) {
        for points in self.runs(data) {
            svg.path(&points, colour, width, opacity);
        }
    }

    /// The pieces of data between gaps, as points in the picture.
    fn runs(&self, data: &[(f64, Option<f64>)]) -> impl Iterator<Item = Vec<(f64, f64)>> {
        data.split(|(_, y)| y.is_none()).map(|run| {
            run.iter()
                .filter_map(|&(x, y)| Some((self.at_x(x), self.at_y(y?))))
                .collect()
        })
    }
}

/// Round values from zero to at least `max`, in about `count` steps of 1, 2 or 5 times a power of ten.
pub(crate) fn linear_ticks(max: f64, count: f64) -> Vec<f64> {
    // For smaller values, the powers of ten are not exact enough.
    let raw = if max > 1e-9 && max.is_finite() {
        max / count
    } else {
        1.0 / count
    };
    let power = 10_f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|m| m * power)
        .find(|s| *s >= raw * 0.999)
        .unwrap_or(raw);
    let steps = (max / step - 1e-9).ceil().clamp(1.0, 100.0) as usize;
    (0..=steps).map(|i| i as f64 * step).collect()
}

/// The powers of ten from at most `min` to at least `max`. Both must be above zero.
pub(crate) fn decades(min: f64, max: f64) -> Vec<f64> {
    let first = min.log10().floor() as i32;
    let last = (max.log10().ceil() as i32).max(first + 1);
    (first..=last).map(|exponent| 10_f64.powi(exponent)).collect()
}

/// A number for a label, with about three digits.
pub(crate) fn short(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_the_maximum() {
        assert_eq!(linear_ticks(21.0, 4.0), [0.0, 10.0, 20.0, 30.0]);
        assert_eq!(linear_ticks(20.0, 4.0), [0.0, 5.0, 10.0, 15.0, 20.0]);
        assert_eq!(linear_ticks(0.0, 4.0), [0.0, 0.5]);
        assert_eq!(decades(15.0, 1300.0), [10.0, 100.0, 1000.0, 10_000.0]);
        assert_eq!(decades(10.0, 10.0), [10.0, 100.0]);
    }

    #[test]
    fn labels_have_about_three_digits() {
        for (value, text) in [
            (1269.4, "1269"),
            (17.04, "17"),
            (4.256, "4.26"),
            (0.1, "0.1"),
            (100.0, "100"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape("a<b & \"c\"\u{1}"), "a&lt;b &amp; &quot;c&quot;\u{fffd}");
    }
}

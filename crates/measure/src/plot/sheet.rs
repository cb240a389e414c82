//! The sheet that a picture is drawn on: wide for paper and large screens, narrow for a phone.

use super::frame::{LEFT, WIDTH};
use crate::svg::{Font, INK, Panel, Svg};

/// How wide a picture is. A narrow one has the labels of its lines above the panels and not beside them, and its texts in several
/// lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sheet {
    /// 960 pixels.
    #[default]
    Wide,
    /// 300 pixels: the space of a picture on the page in a window of 360, so that its smallest text is not made smaller.
    Narrow,
}

/// Width of a narrow picture, pixels.
const NARROW: f64 = 300.0;
/// Room left of a panel for the labels of the vertical axis in a narrow picture, pixels.
const NARROW_LEFT: f64 = 58.0;
/// The margin of a narrow picture, pixels.
const MARGIN: f64 = 10.0;
/// Height of a line of text, as a share of its size.
const LINE: f64 = 1.35;
/// Mean width of a letter, as a share of the size of the text. Measured on DejaVu Sans, which is wider than most fonts.
const LETTER: f64 = 0.56;
/// Mean width of a bold letter, likewise.
const BOLD_LETTER: f64 = 0.64;
/// Height of a label above a panel, pixels.
const LABEL_ROW: f64 = 17.0;

/// A label of a line in a narrow picture: its colour, dashes and text. Without dashes there is no sample of the line.
#[derive(Clone)]
pub(super) struct LineLabel {
    pub(super) colour: &'static str,
    pub(super) dashes: Option<&'static str>,
    pub(super) text: String,
}

impl LineLabel {
    /// A label in the colour of its line.
    pub(super) fn coloured(colour: &'static str, text: String) -> Self {
        Self {
            colour,
            dashes: None,
            text,
        }
    }
}

impl Sheet {
    pub(super) fn is_narrow(self) -> bool {
        self == Self::Narrow
    }

    /// The width of the picture, pixels.
    pub(super) fn width(self) -> f64 {
        self.pick(WIDTH, NARROW)
    }

    /// The left edge of panels, pixels.
    pub(super) fn left(self) -> f64 {
        self.pick(LEFT, NARROW_LEFT)
    }

    /// The width of a panel, pixels, with room for `labels` on its right in a wide picture.
    pub(super) fn panel_width(self, labels: f64) -> f64 {
        self.width() - self.left() - self.pick(labels, MARGIN + 4.0)
    }

    /// The left edge of texts, pixels.
    pub(super) fn margin(self) -> f64 {
        self.pick(LEFT, MARGIN)
    }

    pub(super) fn pick<T>(self, wide: T, narrow: T) -> T {
        match self {
            Self::Wide => wide,
            Self::Narrow => narrow,
        }
    }

    /// Writes a text, in as many lines as a narrow picture needs. Returns by how much everything below moves down, pixels.
    pub(super) fn paragraph(self, svg: &mut Svg, (x, y): (f64, f64), font: Font, text: &str) -> f64 {
        if !self.is_narrow() {
            svg.text(x, y, font, text);
            return 0.0;
        }
        let letter = if font.bold { BOLD_LETTER } else { LETTER };
        let letters = ((NARROW - MARGIN - x) / (font.size * letter)) as usize;
        let lines = wrapped(text, letters);
        let height = (font.size * LINE).round();
        for (row, line) in (0_u8..).zip(&lines) {
            svg.text(x, y + f64::from(row) * height, font, line);
        }
        let more = lines.len().saturating_sub(1) as f64 * height;
        svg.grow(more);
        more
    }

    /// Writes the title at the top. Returns by how much everything below moves down, pixels.
    pub(super) fn title(self, svg: &mut Svg, text: &str) -> f64 {
        let font = self.pick(
            Font::TITLE,
            Font {
                size: 16.0,
                ..Font::TITLE
            },
        );
        self.paragraph(svg, (self.margin(), self.pick(36.0, 26.0)), font, text)
    }

    /// Room above a panel for this many labels, pixels; none in a wide picture, which has them on the right.
    pub(super) fn room_for(self, labels: usize) -> f64 {
        self.pick(0.0, labels as f64 * LABEL_ROW)
    }

    /// Writes labels above a panel, below those of its phases' names.
    pub(super) fn labels_above(self, svg: &mut Svg, panel: &Panel, labels: &[LineLabel]) {
        let font = Font {
            size: 12.5,
            ..Font::LABEL
        };
        let top = panel.top - 12.0 - self.room_for(labels.len());
        for (row, label) in labels.iter().enumerate() {
            let y = top + row as f64 * LABEL_ROW;
            let (x, colour) = match label.dashes {
                Some(dashes) => {
                    svg.line(
                        (MARGIN, y - 4.0),
                        (MARGIN + 26.0, y - 4.0),
                        label.colour,
                        2.5,
                        dashes,
                    );
                    (MARGIN + 32.0, INK)
                }
                None => (panel.left, label.colour),
            };
            let letters = ((NARROW - MARGIN - x) / (font.size * LETTER)) as usize;
            svg.text(
                x,
                y,
                font.in_colour(colour),
                &super::frame::clipped(&label.text, letters),
            );
        }
    }
}

/// The text in lines of at most this many letters, broken between words, but not between a number and its unit. A longer word has a
/// line of its own and is shortened.
fn wrapped(text: &str, letters: usize) -> Vec<String> {
    let text = [" %", " ms", " Mbit/s"]
        .iter()
        .fold(text.to_owned(), |text, unit| {
            text.replace(unit, &unit.replace(' ', "\u{a0}"))
        });
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        let used = lines[last].chars().count();
        let word = super::frame::clipped(word, letters);
        if used > 0 && used + 1 + word.chars().count() > letters {
            lines.push(word);
        } else {
            if used > 0 {
                lines[last].push(' ');
            }
            lines[last].push_str(&word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_broken_between_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("99 % below 5 ms", 12), ["99\u{a0}% below", "5\u{a0}ms"]);
        assert_eq!(wrapped("", 7), [""]);
        assert_eq!(wrapped("a verylongword b", 7), ["a", "verylo\u{2026}", "b"]);
    }
}

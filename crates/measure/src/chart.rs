//! Lines over one horizontal axis, in panels one below the other: for data that is no test's. Pure.

use crate::svg::{
    Anchor, BLUE, Font, GREEN, GREY, GRID, INK, Panel as Area, Scale, Svg, VERMILION, linear_ticks, short,
};

/// A picture of lines.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Above all.
    pub title: String,
    /// Below the title.
    pub subtitle: String,
    /// What the horizontal axis counts, with its unit.
    pub x: String,
    /// From the top down.
    pub panels: Vec<Panel>,
}

/// Lines over one vertical axis.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What the axis counts, with its unit.
    pub y: String,
    /// Each in a colour of its own.
    pub lines: Vec<Line>,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    name: String,
    points: Vec<(f64, Option<f64>)>,
    is_thin: bool,
}

impl Line {
    /// A line through `points`, broken where there is no value.
    pub fn new(name: impl Into<String>, points: Vec<(f64, Option<f64>)>) -> Self {
        Self {
            name: name.into(),
            points,
            is_thin: false,
        }
    }

    /// A thin grey line, for what stands behind the others.
    pub fn thin(name: impl Into<String>, points: Vec<(f64, Option<f64>)>) -> Self {
        Self {
            is_thin: true,
            ..Self::new(name, points)
        }
    }

    /// Whether no point has a value.
    pub fn is_empty(&self) -> bool {
        self.points.iter().all(|(_, y)| y.is_none())
    }
}

const WIDTH: f64 = 960.0;
const LEFT: f64 = 78.0;
/// Room for the names of the lines.
const RIGHT: f64 = 128.0;
const TOP: f64 = 92.0;
const HEIGHT: f64 = 168.0;
const GAP: f64 = 30.0;

/// Colours of Okabe and Ito's palette, told apart with any colour vision.
const COLOURS: [&str; 8] = [
    BLUE, VERMILION, GREEN, "#cc79a7", "#e69f00", "#56b4e9", "#8c6d00", INK,
];

impl Chart {
    /// The picture as SVG text.
    pub fn svg(&self) -> String {
        let count = self.panels.len() as f64;
        let bottom = TOP + count * HEIGHT + (count - 1.0).max(0.0) * GAP;
        let mut svg = Svg::new(WIDTH, bottom + 60.0, &self.title);
        svg.text(LEFT, 36.0, Font::TITLE, &self.title);
        svg.text(LEFT, 60.0, Font::LABEL, &self.subtitle);
        let points = self.panels.iter().flat_map(|panel| &panel.lines);
        let last = points
            .flat_map(|line| &line.points)
            .map(|(x, _)| *x)
            .fold(0.0, f64::max);
        let x = (0.0, if last > 0.0 { last } else { 1.0 });
        for (index, panel) in self.panels.iter().enumerate() {
            panel.draw(&mut svg, x, TOP + index as f64 * (HEIGHT + GAP));
        }
        time_axis(&mut svg, x, bottom, &self.x);
        svg.finish()
    }
}

impl Panel {
    fn draw(&self, svg: &mut Svg, x: (f64, f64), top: f64) {
        let values = self.lines.iter().flat_map(|line| &line.points);
        let highest = values.filter_map(|(_, y)| *y).fold(0.0, f64::max);
        let ticks = linear_ticks(highest, 4.0);
        let area = Area {
            left: LEFT,
            top,
            width: WIDTH - LEFT - RIGHT,
            height: HEIGHT,
            x,
            y: (0.0, ticks.last().copied().unwrap_or(1.0)),
            x_scale: Scale::Linear,
            scale: Scale::Linear,
        };
        for tick in ticks {
            let y = area.at_y(tick);
            svg.line((area.left, y), (area.right(), y), GRID, 1.0, "");
            svg.text(
                area.left - 8.0,
                y + 4.5,
                Font::LABEL.at(Anchor::End),
                &short(tick),
            );
        }
        let middle = top + HEIGHT / 2.0;
        svg.upright_text(
            20.0,
            middle,
            Font::LABEL.at(Anchor::Middle).in_colour(INK),
            &self.y,
        );
        let mut colours = COLOURS.into_iter().cycle();
        for (index, line) in self.lines.iter().enumerate() {
            let (colour, width, opacity) = if line.is_thin {
                (GREY, 1.0, 0.6)
            } else {
                (colours.next().unwrap_or(INK), 1.8, 1.0)
            };
            area.plot(svg, &line.points, colour, width, opacity);
            let y = top + 12.0 + index as f64 * 18.0;
            svg.text(
                area.right() + 10.0,
                y,
                Font::LABEL.bold().in_colour(colour),
                &line.name,
            );
        }
    }
}

fn time_axis(svg: &mut Svg, x: (f64, f64), bottom: f64, name: &str) {
    let area = Area {
        left: LEFT,
        top: bottom,
        width: WIDTH - LEFT - RIGHT,
        height: 0.0,
        x,
        y: (0.0, 1.0),
        x_scale: Scale::Linear,
        scale: Scale::Linear,
    };
    svg.line((area.left, bottom), (area.right(), bottom), GREY, 1.0, "");
    for tick in linear_ticks(x.1, 6.0).into_iter().filter(|tick| *tick <= x.1) {
        let at = area.at_x(tick);
        svg.line((at, bottom), (at, bottom + 5.0), GREY, 1.0, "");
        svg.text(at, bottom + 20.0, Font::LABEL.at(Anchor::Middle), &short(tick));
    }
    let middle = area.left + area.width / 2.0;
    svg.text(
        middle,
        bottom + 42.0,
        Font::LABEL.at(Anchor::Middle).in_colour(INK),
        name,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_drawn_and_named() {
        let chart = Chart {
            title: "a & b".to_owned(),
            subtitle: String::new(),
            x: "Time (s)".to_owned(),
            panels: vec![
                Panel {
                    y: "Delay (ms)".to_owned(),
                    lines: vec![
                        Line::thin("worst", vec![(0.0, Some(4.0)), (1.0, Some(8.0))]),
                        Line::new("mean", vec![(0.0, Some(1.0)), (0.5, None), (1.0, Some(2.0))]),
                    ],
                },
                Panel {
                    y: "Nothing".to_owned(),
                    lines: vec![Line::new("none", Vec::new())],
                },
            ],
        };
        let svg = chart.svg();
        assert!(svg.contains("a &amp; b"));
        assert_eq!(svg.matches("<polyline").count(), 1);
        assert_eq!(
            svg.matches("<circle").count(),
            2,
            "points without neighbours are dots"
        );
        for name in ["worst", "mean", "none", "Delay (ms)", "Nothing", "Time (s)"] {
            assert!(svg.contains(&format!(">{name}</text>")), "{name}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }
}

//! Line charts in panels that share a horizontal axis, for data other than a test result. Pure.

use crate::plot::frame::{LEFT, RIGHT, WIDTH, linear_grid, time_axis, upright_name};
use crate::svg::{
    BLUE, Font, GREEN, GREY, INK, ORANGE, PURPLE, Panel as Area, SKY, Scale, Svg, VERMILION, linear_ticks,
};

/// A picture of lines.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The title at the top.
    pub title: String,
    /// Below the title.
    pub subtitle: String,
    /// Name of the horizontal axis, with its unit.
    pub x: String,
    /// The panels, from top to bottom.
    pub panels: Vec<Panel>,
}

/// Lines over one vertical axis.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Name of the vertical axis, with its unit.
    pub y: String,
    /// The lines, each in its own colour.
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

    /// A thin grey line, for the background.
    pub fn thin(name: impl Into<String>, points: Vec<(f64, Option<f64>)>) -> Self {
        Self {
            is_thin: true,
            ..Self::new(name, points)
        }
    }

    /// True if no point has a value.
    pub fn is_empty(&self) -> bool {
        self.points.iter().all(|(_, y)| y.is_none())
    }
}

/// Heights in pixels: of the title, of a panel, and between two panels.
const TOP: f64 = 92.0;
const HEIGHT: f64 = 168.0;
const GAP: f64 = 30.0;

/// The palette of Okabe and Ito, whose colours people with any colour vision can tell apart.
const COLOURS: [&str; 8] = [BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, "#8c6d00", INK];

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
            panel.draw(&mut svg, area(x, TOP + index as f64 * (HEIGHT + GAP), HEIGHT));
        }
        time_axis(&mut svg, &area(x, bottom, 0.0), &self.x);
        svg.finish()
    }
}

impl Panel {
    fn draw(&self, svg: &mut Svg, mut area: Area) {
        let values = self.lines.iter().flat_map(|line| &line.points);
        let highest = values.filter_map(|(_, y)| *y).fold(0.0, f64::max);
        let ticks = linear_ticks(highest, 4.0);
        area.y.1 = ticks.last().copied().unwrap_or(1.0);
        linear_grid(svg, &area, &ticks);
        upright_name(svg, &area, &self.y);
        let mut colours = COLOURS.into_iter().cycle();
        for (index, line) in self.lines.iter().enumerate() {
            let (colour, width, opacity) = if line.is_thin {
                (GREY, 1.0, 0.6)
            } else {
                (colours.next().unwrap_or(INK), 1.8, 1.0)
            };
            area.plot(svg, &line.points, colour, width, opacity);
            let y = area.top + 12.0 + index as f64 * 18.0;
            svg.text(
                area.right() + 10.0,
                y,
                Font::LABEL.bold().in_colour(colour),
                &line.name,
            );
        }
    }
}

/// The place of a panel, or of the time axis if it has no height. The vertical axis is linear and begins at 0.
fn area(x: (f64, f64), top: f64, height: f64) -> Area {
    Area {
        left: LEFT,
        top,
        width: WIDTH - LEFT - RIGHT,
        height,
        x,
        y: (0.0, 1.0),
        x_scale: Scale::Linear,
        scale: Scale::Linear,
    }
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

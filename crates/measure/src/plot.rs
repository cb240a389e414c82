//! Pictures of results, as SVG text. Pure: equal results give equal pictures, byte for byte.

pub mod autorate;
mod boxes;
mod cdf;
mod comparison;
mod flows;
pub(crate) mod frame;
mod rrul;
mod run;
mod series;
mod sheet;
mod totals;

pub use cdf::ping_cdf;
pub use comparison::latency_comparison;
pub(crate) use frame::{goodput, latency};
pub use rrul::rrul;
pub use run::Run;
pub use sheet::Sheet;

/// The kinds of pictures, with Flent's names where it has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plot {
    /// Download, upload and latency over time, one test in each picture.
    AllScaled,
    /// The distribution of latency under load.
    PingCdf,
    /// Boxes of throughput and latency, one row for each test.
    BoxCombine,
    /// Sums of throughput, and latency, over time.
    Totals,
    /// Every flow over time, one test in each picture.
    PerFlow,
    /// The senders' TCP state: congestion window and round trip, one test in each picture.
    Tcp,
}

impl Plot {
    /// All of them, in the order of a report.
    pub const ALL: [Self; 6] = [
        Self::BoxCombine,
        Self::PingCdf,
        Self::Totals,
        Self::AllScaled,
        Self::PerFlow,
        Self::Tcp,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllScaled => "all_scaled",
            Self::PingCdf => "ping_cdf",
            Self::BoxCombine => "box_combine",
            Self::Totals => "totals",
            Self::PerFlow => "per_flow",
            Self::Tcp => "tcp",
        }
    }

    /// True if a picture shows a single test.
    pub fn is_of_one(self) -> bool {
        matches!(self, Self::AllScaled | Self::PerFlow | Self::Tcp)
    }

    /// The picture of these tests, or of the first one if the kind shows a single test. `None` if there is nothing to draw.
    pub fn draw(self, runs: &[Run<'_>], sheet: Sheet) -> Option<String> {
        let first = runs.first()?;
        let has_probes = runs
            .iter()
            .any(|run| run.result.probes.iter().any(|p| !p.samples.is_empty()));
        let has_flows = runs.iter().any(|run| !run.result.flows.is_empty());
        match self {
            Self::AllScaled => (has_flows || has_probes).then(|| rrul::on(first.result, sheet)),
            Self::PingCdf => has_probes.then(|| cdf::on(runs, sheet)),
            Self::BoxCombine => (has_flows || has_probes).then(|| boxes::box_combine(runs, sheet)),
            Self::Totals => (has_flows || has_probes).then(|| totals::totals(runs, sheet)),
            Self::PerFlow => (!first.result.flows.is_empty()).then(|| flows::per_flow(first.result, sheet)),
            Self::Tcp => {
                let known = first.result.flows.iter().any(|flow| !flow.sender.is_empty());
                known.then(|| flows::tcp(first.result, sheet))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::series::{STRETCHES, thin, time_range};
    use super::*;
    use crate::result::tests::{example, in_turn, with_probes_every};
    use crate::result::{TcpSample, TestResult};

    /// An example with all samples that any picture shows.
    fn full() -> TestResult {
        let mut result = example("Cable <24/4.4> & SQM", 300.0, 20.0, 4.0);
        for (index, flow) in (0_u32..).zip(&mut result.flows) {
            flow.sender = (1..40)
                .map(|i| TcpSample {
                    t_ms: f64::from(i) * 200.0,
                    rtt_ms: Some(20.0 + f64::from(i * (index + 1) % 17)),
                    cwnd: Some(f64::from(10 + i % (7 + index))),
                    ..TcpSample::default()
                })
                .collect();
        }
        result
    }

    #[test]
    fn pictures_of_one_and_of_several() {
        let (before, after) = (full(), example("after", 3.0, 19.0, 3.8));
        let runs = [
            Run {
                name: "before",
                result: &before,
            },
            Run {
                name: "after",
                result: &after,
            },
        ];
        for plot in Plot::ALL {
            let count = if plot.is_of_one() { 1 } else { 2 };
            insta::assert_snapshot!(plot.name(), plot.draw(&runs[..count], Sheet::Wide).unwrap());
        }
    }

    #[test]
    fn nothing_leaves_a_narrow_picture_or_covers_another_text_there() {
        let (before, after) = (full(), example("after, with a longer title", 3.0, 19.0, 3.8));
        let runs = [
            Run {
                name: "before: a test with a rather long name that needs several lines",
                result: &before,
            },
            Run {
                name: "after",
                result: &after,
            },
        ];
        for plot in Plot::ALL {
            for count in 1..=if plot.is_of_one() { 1 } else { 2 } {
                let picture = plot.draw(&runs[..count], Sheet::Narrow).unwrap();
                assert!(picture.contains("viewBox=\"0 0 300 "), "{plot:?}");
                let height: f64 = picture
                    .split(" height=\"")
                    .nth(1)
                    .unwrap()
                    .split('"')
                    .next()
                    .unwrap()
                    .parse()
                    .unwrap();
                let all = texts(&picture);
                assert!(all.len() > 8, "{plot:?}: {all:?}");
                for (row, (left, right, y, text)) in all.iter().enumerate() {
                    assert!(
                        *left >= 0.0 && *right <= 308.0 && *y < height,
                        "{plot:?}: {left} to {right}, {y} of {height}: {text}"
                    );
                    let over = all[row + 1..]
                        .iter()
                        .find(|(l, r, other, _)| (other - y).abs() < 11.0 && l < right && r > left);
                    assert!(over.is_none(), "{plot:?}: '{text}' and {over:?}");
                }
            }
        }
    }

    /// The texts of a picture with their places: left and right edge, estimated from the size of the font, and baseline.
    fn texts(svg: &str) -> Vec<(f64, f64, f64, String)> {
        let attribute = |line: &str, name: &str| -> String {
            let from = line.split(&format!(" {name}=\"")).nth(1).unwrap();
            from.split('"').next().unwrap().to_owned()
        };
        let upright = |line: &&str| line.starts_with("<text ") && !line.contains("transform");
        svg.lines()
            .filter(upright)
            .map(|line| {
                let text = line.split('>').nth(1).unwrap().split('<').next().unwrap();
                let size: f64 = attribute(line, "font-size").parse().unwrap();
                let width = text.chars().count() as f64 * size * 0.56;
                let x: f64 = attribute(line, "x").parse().unwrap();
                let left = match attribute(line, "text-anchor").as_str() {
                    "start" => x,
                    "middle" => x - width / 2.0,
                    _ => x - width,
                };
                let y = attribute(line, "y").parse().unwrap();
                (left, left + width, y, text.to_owned())
            })
            .collect()
    }

    #[test]
    fn no_two_lines_of_a_picture_are_alike() {
        let styles: std::collections::BTreeSet<_> = (0..28).map(frame::line_style).collect();
        assert_eq!(styles.len(), 28);
    }

    #[test]
    fn the_median_does_not_cover_the_names_of_the_series() {
        let mut result = with_probes_every(20.0, 300.0);
        for name in ["BE2", "BE3", "EF", "CS5", "CS1", "CS6", "CS7", "VA"] {
            let mut series = result.probes[0].clone();
            series.name = format!("Ping (ms) UDP {name}");
            result.probes.push(series);
        }
        // The median is near the upper edge, where the names are.
        for probe in result.probes.iter_mut().flat_map(|series| &mut series.samples) {
            probe.rtt_ms = Some(if probe.t_ms < 0.0 { 20.0 } else { 399.0 });
        }
        let result = TestResult::new(result.meta, result.phases, result.flows, result.probes);
        let picture = rrul(&result);
        let beside: Vec<_> = texts(&picture)
            .into_iter()
            .filter(|(left, ..)| *left > frame::WIDTH - frame::RIGHT)
            .collect();
        assert!(beside.iter().any(|(.., text)| text == "399 ms"), "{beside:?}");
        assert!(beside.iter().any(|(.., text)| text == "and 3 more"), "{beside:?}");
        for (row, (_, _, y, text)) in beside.iter().enumerate() {
            let near = beside[row + 1..]
                .iter()
                .find(|(_, _, other, _)| (other - y).abs() < 11.0);
            assert!(near.is_none(), "{text} and {near:?}");
        }
    }

    #[test]
    fn labels_of_box_plots_do_not_touch() {
        for (bloat, down, up) in [(1200.0, 98.0, 31.0), (3.0, 9.4, 940.0), (90_000.0, 0.3, 0.1)] {
            let (before, after) = (example("a", bloat, down, up), example("b", 1.0, down, up));
            let runs = [("a", &before), ("b", &after)].map(|(name, result)| Run { name, result });
            let picture = boxes::box_combine(&runs, Sheet::Wide);
            let all = texts(&picture);
            // The values of all columns have one baseline.
            let zero = all.iter().find(|(.., text)| text == "0").unwrap().2;
            let mut row: Vec<_> = all.iter().filter(|(_, _, y, _)| *y == zero).collect();
            row.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(row.len() > 6, "{row:?}");
            for pair in row.windows(2) {
                assert!(pair[1].0 - pair[0].1 > 5.0, "{pair:?}");
            }
        }
    }

    #[test]
    fn the_idle_line_after_the_load_is_in_the_picture() {
        let mut result = full();
        result.meta.settings.after_ms = 5000;
        assert_eq!(time_range(&[&result]), (-2.0, 13.0));
    }

    #[test]
    fn a_test_in_turn_names_its_phases_and_draws_the_delays_of_each_way() {
        insta::assert_snapshot!("in_turn", rrul(&in_turn()));
        let picture = rrul(&in_turn());
        for text in [
            ">download<",
            ">upload<",
            ">both<",
            "One way (ms)",
            "down, 1 lost",
            "up, 1 lost",
            ">sum<",
        ] {
            assert!(picture.contains(text), "{text}");
        }
    }

    #[test]
    fn a_test_without_any_answer_has_no_picture_or_an_empty_one() {
        let meta = example("nothing", 0.0, 0.0, 0.0).meta;
        let empty = TestResult::new(meta, Vec::new(), Vec::new(), Vec::new());
        let runs = [Run {
            name: "nothing",
            result: &empty,
        }];
        for plot in Plot::ALL {
            assert_eq!(plot.draw(&runs, Sheet::Wide), None);
        }
        let mut silent = full();
        for flow in &mut silent.flows {
            flow.samples.clear();
        }
        for probe in &mut silent.probes[0].samples {
            probe.rtt_ms = None;
        }
        let silent = TestResult::new(silent.meta, silent.phases, silent.flows, silent.probes);
        for plot in Plot::ALL {
            let picture = plot
                .draw(
                    &[Run {
                        name: "silent",
                        result: &silent,
                    }],
                    Sheet::Wide,
                )
                .unwrap();
            assert!(!picture.contains("NaN") && !picture.contains("inf"), "{picture}");
        }
        // Text is broken into lines of their own, so only the first words are looked for.
        let words = |result: &TestResult, plot: Plot| {
            let runs = [Run { name: "run", result }];
            plot.draw(&runs, Sheet::Wide).unwrap_or_default()
        };
        assert!(words(&silent, Plot::PingCdf).contains("no reply to"));
        assert!(words(&silent, Plot::AllScaled).contains("under load not measured"));
        assert!(words(&silent, Plot::Totals).contains("not measured loaded"));
        let mut unprobed = full();
        unprobed.probes[0].samples.retain(|probe| probe.t_ms < 0.0);
        let unprobed = TestResult::new(unprobed.meta, unprobed.phases, unprobed.flows, unprobed.probes);
        assert!(words(&unprobed, Plot::PingCdf).contains("no probes under load"));
        for plot in Plot::ALL {
            assert!(!words(&unprobed, plot).contains("median no"), "{plot:?}");
        }
    }

    #[test]
    fn long_series_are_thinned_to_their_extremes() {
        let points: Vec<_> = (0..100_000)
            .map(|i| (f64::from(i), Some(if i == 77_777 { 999.0 } else { 1.0 })))
            .collect();
        let thinned = thin(points);
        assert!(thinned.len() < 3 * STRETCHES);
        assert!(thinned.contains(&(77_777.0, Some(999.0))));
        let points: Vec<_> = (0..100_000)
            .map(|i| (f64::from(i), (i != 5).then_some(1.0)))
            .collect();
        assert!(thin(points).contains(&(5.0, None)));
        let picture = rrul(&with_probes_every(1.0, 5.0));
        assert!(picture.len() < 100_000, "{}", picture.len());
    }
}

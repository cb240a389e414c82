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
mod totals;

pub use boxes::box_combine;
pub use cdf::ping_cdf;
pub use comparison::latency_comparison;
pub use flows::{per_flow, tcp};
pub(crate) use frame::{goodput, latency};
pub use rrul::rrul;
pub use run::Run;
pub use totals::totals;

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
    pub fn draw(self, runs: &[Run<'_>]) -> Option<String> {
        let first = runs.first()?;
        let has_probes = runs
            .iter()
            .any(|run| run.result.probes.iter().any(|p| !p.samples.is_empty()));
        let has_flows = runs.iter().any(|run| !run.result.flows.is_empty());
        match self {
            Self::AllScaled => (has_flows || has_probes).then(|| rrul(first.result)),
            Self::PingCdf => has_probes.then(|| ping_cdf(runs)),
            Self::BoxCombine => (has_flows || has_probes).then(|| box_combine(runs)),
            Self::Totals => (has_flows || has_probes).then(|| totals(runs)),
            Self::PerFlow => (!first.result.flows.is_empty()).then(|| per_flow(first.result)),
            Self::Tcp => {
                let known = first.result.flows.iter().any(|flow| !flow.sender.is_empty());
                known.then(|| tcp(first.result))
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
            insta::assert_snapshot!(plot.name(), plot.draw(&runs[..count]).unwrap());
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
            assert_eq!(plot.draw(&runs), None);
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
                .draw(&[Run {
                    name: "silent",
                    result: &silent,
                }])
                .unwrap();
            assert!(!picture.contains("NaN") && !picture.contains("inf"), "{picture}");
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

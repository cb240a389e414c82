//! The figures of runs on recorded lines, as JSON and for the table.

use serde::Serialize;
use sqm_sim::autorate_bench::{self, Contender};

use super::Task;
use crate::autorate::bench::figures::millis;

/// The whole report.
#[derive(Serialize)]
pub(super) struct Report {
    load: String,
    runs: Vec<Run>,
    /// Means over the seeds.
    pub(super) means: Vec<Mean>,
    pub(super) controllers: Vec<Summary>,
}

/// One run.
#[derive(Serialize)]
pub(super) struct Run {
    #[serde(flatten)]
    pair: Pair,
    controller: &'static str,
    seed: u64,
    #[serde(flatten)]
    pub(super) figures: Figures,
}

/// A controller on a line with a kind of signals: means over the seeds.
#[derive(Serialize)]
pub(super) struct Mean {
    #[serde(flatten)]
    pub(super) pair: Pair,
    pub(super) controller: &'static str,
    #[serde(flatten)]
    pub(super) figures: Figures,
}

/// A line and a kind of signals.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub(super) struct Pair {
    pub(super) line: String,
    pub(super) signals: &'static str,
}

#[derive(Clone, Copy, Serialize)]
pub(super) struct Figures {
    pub(super) above_30_ms_percent: f64,
    pub(super) delay_p95_ms: f64,
    pub(super) delivered_down_mbytes: f64,
    pub(super) delivered_up_mbytes: f64,
    /// See [`autorate_bench::Figures::utility`].
    pub(super) utility: f64,
    pub(super) false_cuts_per_hour: f64,
}

/// A controller over all pairs.
#[derive(Serialize)]
pub(super) struct Summary {
    pub(super) controller: &'static str,
    pub(super) pairs: usize,
    pub(super) mean_utility: f64,
    /// Null for cake-autorate itself, or if it did not run.
    pub(super) against_cake_autorate: Option<Against>,
    /// Mean of the oracle's utility above this one; null if the oracle did not run.
    pub(super) mean_below_oracle: Option<f64>,
}

/// A controller compared with cake-autorate on the same pairs.
#[derive(Serialize)]
pub(super) struct Against {
    /// Pairs in which the utility is higher.
    pub(super) better_pairs: usize,
    /// The lowest difference of the utility.
    pub(super) worst_difference: f64,
    pub(super) worst: Pair,
}

impl Run {
    pub(super) fn new(task: &Task<'_>, figures: &autorate_bench::Figures) -> Self {
        let mbytes = figures.delivered.map(|bytes| bytes.0 as f64 / 1e6);
        Self {
            pair: Pair {
                line: task.trace.name.clone(),
                signals: task.signals.name(),
            },
            controller: task.contender.name(),
            seed: task.seed,
            figures: Figures {
                above_30_ms_percent: figures.above_30_ms_percent,
                delay_p95_ms: millis(figures.delay_p95),
                delivered_down_mbytes: mbytes.download,
                delivered_up_mbytes: mbytes.upload,
                utility: figures.utility(),
                false_cuts_per_hour: figures.false_cuts_per_hour,
            },
        }
    }

    /// Its title, such as `train, echo, sqm, seed 1`.
    pub(super) fn title(&self) -> String {
        let Pair { line, signals } = &self.pair;
        format!("{line}, {signals}, {}, seed {}", self.controller, self.seed)
    }

    /// The name of its picture.
    pub(super) fn file_name(&self) -> String {
        self.title().replace(", ", "-").replace("seed ", "") + ".svg"
    }

    fn is_of_same(&self, other: &Self) -> bool {
        self.pair == other.pair && self.controller == other.controller
    }
}

impl Figures {
    fn mean(runs: &[Run]) -> Self {
        let mean =
            |of: fn(&Self) -> f64| runs.iter().map(|run| of(&run.figures)).sum::<f64>() / runs.len() as f64;
        Self {
            above_30_ms_percent: mean(|figures| figures.above_30_ms_percent),
            delay_p95_ms: mean(|figures| figures.delay_p95_ms),
            delivered_down_mbytes: mean(|figures| figures.delivered_down_mbytes),
            delivered_up_mbytes: mean(|figures| figures.delivered_up_mbytes),
            utility: mean(|figures| figures.utility),
            false_cuts_per_hour: mean(|figures| figures.false_cuts_per_hour),
        }
    }
}

impl Report {
    /// Runs that differ only in their seed must stand together.
    pub(super) fn new(load: String, runs: Vec<Run>) -> Self {
        let mean = |runs: &[Run]| Mean {
            pair: runs[0].pair.clone(),
            controller: runs[0].controller,
            figures: Figures::mean(runs),
        };
        let means: Vec<_> = runs.chunk_by(Run::is_of_same).map(mean).collect();
        let controllers = Contender::ALL
            .into_iter()
            .filter_map(|contender| Summary::of(contender, &means));
        Self {
            load,
            controllers: controllers.collect(),
            runs,
            means,
        }
    }
}

impl Summary {
    /// None if the controller did not run.
    fn of(contender: Contender, means: &[Mean]) -> Option<Self> {
        let of = |contender: Contender| {
            means
                .iter()
                .filter(move |mean| mean.controller == contender.name())
        };
        let mean =
            |values: Vec<f64>| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
        // Each mean beside that of another controller on the same pair.
        let beside = |other| of(contender).zip(of(other));
        let gaps = beside(Contender::Oracle).map(|(mine, best)| best.figures.utility - mine.figures.utility);
        let against = || beside(Contender::CakeAutorate).filter(|_| contender != Contender::CakeAutorate);
        Some(Self {
            controller: contender.name(),
            pairs: of(contender).count(),
            mean_utility: mean(of(contender).map(|mean| mean.figures.utility).collect())?,
            against_cake_autorate: Against::of(&against().collect::<Vec<_>>()),
            mean_below_oracle: mean(gaps.collect()),
        })
    }
}

impl Against {
    /// None if there is nothing to compare.
    fn of(pairs: &[(&Mean, &Mean)]) -> Option<Self> {
        let difference = |(mine, theirs): &(&Mean, &Mean)| mine.figures.utility - theirs.figures.utility;
        let worst = pairs
            .iter()
            .min_by(|one, other| difference(one).total_cmp(&difference(other)))?;
        Some(Self {
            better_pairs: pairs.iter().filter(|pair| difference(pair) > 0.0).count(),
            worst_difference: difference(worst),
            worst: worst.0.pair.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(line: &str, contender: Contender, utility: f64) -> Mean {
        Mean {
            pair: Pair {
                line: line.to_owned(),
                signals: "echo",
            },
            controller: contender.name(),
            figures: Figures {
                above_30_ms_percent: 0.0,
                delay_p95_ms: 0.0,
                delivered_down_mbytes: 0.0,
                delivered_up_mbytes: 0.0,
                utility,
                false_cuts_per_hour: 0.0,
            },
        }
    }

    #[test]
    fn controllers_are_compared_pair_by_pair() {
        let means = [
            mean("a", Contender::Sqm, 5.0),
            mean("a", Contender::CakeAutorate, 4.0),
            mean("a", Contender::Oracle, 6.0),
            mean("b", Contender::Sqm, 3.0),
            mean("b", Contender::CakeAutorate, 3.5),
            mean("b", Contender::Oracle, 6.0),
        ];
        let summary = Summary::of(Contender::Sqm, &means).expect("it ran");
        assert_eq!((summary.pairs, summary.mean_utility), (2, 4.0));
        assert_eq!(summary.mean_below_oracle, Some(2.0));
        let against = summary.against_cake_autorate.expect("cake-autorate ran");
        assert_eq!((against.better_pairs, against.worst_difference), (1, -0.5));
        assert_eq!(against.worst.line, "b");

        let theirs = Summary::of(Contender::CakeAutorate, &means).expect("it ran");
        assert!(theirs.against_cake_autorate.is_none());
        assert!(Summary::of(Contender::Unshaped, &means).is_none());
        let alone = Summary::of(Contender::Sqm, &means[..1]).expect("it ran");
        assert!(alone.against_cake_autorate.is_none() && alone.mean_below_oracle.is_none());
    }
}

//! Figures over several seeds. A single run on a random line says little about a controller.

use std::fmt::{self, Write as _};
use std::ops::RangeInclusive;
use std::str::FromStr;

use sqm_sim::autorate_bench::Contender;

use super::SignalsArg;
use super::figures::{Run, Sum, percent_more, slowest};

/// One seed, or an inclusive range of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seeds(RangeInclusive<u64>);

impl Seeds {
    /// The most seeds in one run. A choice: this many take hours.
    const MOST: u64 = 1000;

    pub(super) fn each(&self) -> RangeInclusive<u64> {
        self.0.clone()
    }

    pub(super) fn are_many(&self) -> bool {
        self.0.start() < self.0.end()
    }
}

impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.0.start(), self.0.end());
        match self.are_many() {
            true => write!(f, "seeds {first} to {last}"),
            false => write!(f, "seed {first}"),
        }
    }
}

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            text.parse::<u64>()
                .map_err(|_| format!("'{text}' is not a seed: give a whole number, or a range such as 1-20"))
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (number(first)?, number(last)?);
        if last < first {
            return Err(format!("{first}-{last} is empty: give the lower seed first"));
        }
        if last - first >= Self::MOST {
            return Err(format!("{first}-{last} has more than {} seeds", Self::MOST));
        }
        Ok(Self(first..=last))
    }
}

/// How a controller compares with cake-autorate on the same line and seed: mean and worst change over several seeds.
#[derive(Clone, Copy)]
struct Change {
    mean: f64,
    worst: f64,
    worst_seed: u64,
}

impl Change {
    /// Sums up pairs of a seed and its change; none if there are no pairs. `bad` is 1.0 if a higher change is worse,
    /// -1.0 if a lower one is.
    fn of(changes: &[(u64, f64)], bad: f64) -> Option<Self> {
        let worst = changes
            .iter()
            .max_by(|(_, one), (_, other)| (bad * one).total_cmp(&(bad * other)))?;
        Some(Self {
            mean: changes.iter().map(|(_, change)| change).sum::<f64>() / changes.len() as f64,
            worst: worst.1,
            worst_seed: worst.0,
        })
    }
}

/// The table for one kind of signals. `runs` are ordered by seed, then trace, then controller; `sums` has one entry
/// for each seed, over all varying lines together.
pub(super) fn table(signals: SignalsArg, seeds: &Seeds, runs: &[Run], sums: &[Sum]) -> String {
    let first = seeds.0.start();
    let mut text = format!("signals: {}, {seeds}, against cake-autorate\n", signals.name());
    text += "trace        controller         >30 ms:  mean   worst (seed)    bytes:  mean   worst (seed)  false cuts  fall s\n";
    text += "                                                                                             most per h slowest\n";
    let traces: Vec<_> = runs.chunks(Contender::ALL.len()).collect();
    let names = traces
        .iter()
        .take_while(|trace| trace[0].seed == *first)
        .map(|trace| &trace[0].trace);
    for name in names {
        let of_all_seeds: Vec<_> = traces
            .iter()
            .copied()
            .filter(|trace| trace[0].trace == *name)
            .collect();
        for index in 0..Contender::ALL.len() {
            text += &row(&of_all_seeds, index);
        }
    }
    let changes = |of: fn(&Sum) -> f64| sums.iter().map(|sum| (sum.seed, of(sum))).collect::<Vec<_>>();
    let time = Change::of(&changes(|sum| -sum.less_time_above_30_ms_percent), 1.0);
    let bytes = Change::of(&changes(|sum| sum.more_bytes_percent), -1.0);
    if time.is_some() {
        writeln!(
            text,
            "{:27} {} {}",
            "all lines that vary, in total",
            cell(time),
            cell(bytes)
        )
        .expect("a string takes everything");
    }
    text + "\n"
}

/// The row of one controller on one trace. `seeds` holds all runs on that trace, one slice for each seed.
fn row(seeds: &[&[Run]], index: usize) -> String {
    let run = &seeds[0][index];
    let is_compared = run.varies && Contender::ALL[index] != Contender::CakeAutorate;
    let theirs = Contender::ALL
        .iter()
        .position(|contender| *contender == Contender::CakeAutorate)
        .expect("it is one of all");
    let changes = |of: fn(&Run) -> f64| {
        let change = |seed: &&[Run]| {
            (
                seed[index].seed,
                percent_more(of(&seed[index]), of(&seed[theirs])),
            )
        };
        seeds
            .iter()
            .filter(|_| is_compared)
            .map(change)
            .collect::<Vec<_>>()
    };
    let time = Change::of(&changes(|run| run.above_30_ms_percent), 1.0);
    let bytes = Change::of(&changes(|run| run.delivered_bytes() as f64), -1.0);
    let false_cuts = seeds
        .iter()
        .map(|seed| seed[index].false_cuts_per_hour)
        .fold(0.0, f64::max);
    format!(
        "{:12} {:14} {} {} {false_cuts:>11.0} {:>7}\n",
        run.trace,
        run.controller,
        cell(time),
        cell(bytes),
        slowest(seeds.iter().flat_map(|seed| &seed[index].falls)),
    )
}

fn cell(change: Option<Change>) -> String {
    let text = change.map(|change| {
        let seed = format!("({})", change.worst_seed);
        format!("{:>+7.1} % {:>+7.1} % {seed:>6}", change.mean, change.worst)
    });
    format!("{:>28}", text.unwrap_or_else(|| "-".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_one_or_a_range() {
        assert_eq!("7".parse(), Ok(Seeds(7..=7)));
        assert_eq!("1-20".parse(), Ok(Seeds(1..=20)));
        for wrong in [
            "",
            "-",
            "1-",
            "-3",
            "x",
            "1-2-3",
            "20-1",
            "1..3",
            "1-1001",
            "18446744073709551616",
        ] {
            assert!(wrong.parse::<Seeds>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_worst_is_the_most_time_or_the_fewest_bytes() {
        let changes = [(1, -50.0), (2, -30.0), (3, -70.0)];
        let of = |bad| Change::of(&changes, bad).map(|change| (change.mean, change.worst, change.worst_seed));
        assert_eq!(of(1.0), Some((-50.0, -30.0, 2)));
        assert_eq!(of(-1.0), Some((-50.0, -70.0, 3)));
        assert!(Change::of(&[], 1.0).is_none());
    }
}

//! `sqm-lab autorate bench`: runs sqm's rate controller and others on lines of varying capacity, modelled or recorded,
//! in virtual time.

mod figures;
mod recorded;
mod seeds;
mod table;

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::anyhow;
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use sqm_core::nearest::nearest;
use sqm_sim::autorate_bench::{self, Contender, Signals, Trace};

use figures::{Report, Run, Sum};
use seeds::Seeds;
use sqm::json;
use sqm_process::failure::Failure;
use sqm_process::output;

/// Compare sqm's controller, cake-autorate's arithmetic, an oracle that knows the line's rate one round trip late, and
/// no shaper, on the same lines in virtual time.
///
/// The lines are modelled ones (--trace), or recorded ones from files (--line). A seed gives equal figures, byte for
/// byte, on every machine. docs/results/autorate-bench.md explains the traces, the model and its limits,
/// docs/results/autorate-lines.md the figures of recorded lines.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm-lab autorate bench
  sqm-lab autorate bench --trace lte,collapse --seed 7
  sqm-lab autorate bench --trace lte --seed 1-20
  sqm-lab autorate bench --signals one-way --json
  sqm-lab autorate bench --line train.csv home.csv --seed 1-5
  sqm-lab autorate bench --line bus.down,bus.up --load 1/0:30,1/1:30 --contender sqm,oracle --pictures bus
  sqm-lab autorate bench --line /var/log/sqm/rates.csv --buffer 200ms --path 20ms")]
pub(super) struct Args {
    /// Only these traces (see --list) [default: all].
    #[arg(long, value_name = "NAMES", value_delimiter = ',', num_args = 1.., conflicts_with = "line")]
    trace: Vec<String>,
    /// The seed of the generated lines and of all noise; for a range such as 1-20, prints the mean and the worst seed.
    #[arg(long, value_name = "N|FROM-TO", default_value = "1")]
    seed: Seeds,
    /// The delay signals that the controllers receive [default: echo, one-way, tcp].
    #[arg(long, value_enum, value_name = "KINDS", value_delimiter = ',', num_args = 1..)]
    signals: Vec<SignalsArg>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// List the traces and end.
    #[arg(long, conflicts_with = "line")]
    list: bool,
    #[command(flatten)]
    recorded: recorded::Args,
}

#[derive(Clone, Copy, ValueEnum)]
enum SignalsArg {
    /// Round trips to reflectors, cake-autorate's default.
    Echo,
    /// One-way delays to reflectors.
    OneWay,
    /// Round trips to reflectors, and one-way delays of the user's own TCP flows, which cake-autorate ignores.
    Tcp,
    /// As tcp, but the carrier lets probes bypass the line's queues.
    Bypass,
}

/// A trace of --list, for programs.
#[derive(Serialize)]
struct Listed<'a> {
    trace: &'a str,
    about: &'a str,
}

impl Args {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        if self.list {
            let traces = self.traces(*self.seed.each().start())?;
            if self.json {
                let rows: Vec<Listed> = traces
                    .iter()
                    .map(|trace| Listed {
                        trace: &trace.name,
                        about: &trace.about,
                    })
                    .collect();
                json::print(&json::list(&rows))?;
                return Ok(ExitCode::SUCCESS);
            }
            for trace in &traces {
                outln!("{:12} {}", trace.name, trace.about);
            }
            return Ok(ExitCode::SUCCESS);
        }
        let signals = if self.signals.is_empty() {
            &SignalsArg::DEFAULT[..]
        } else {
            &self.signals
        };
        if self.recorded.is_asked_for() {
            return self.recorded.run(signals, &self.seed, self.json);
        }
        let (mut runs, mut sums) = (Vec::new(), Vec::new());
        for signals in signals {
            let begun = (runs.len(), sums.len());
            runs.extend(self.runs(*signals)?);
            if output::is_lost() {
                return Ok(ExitCode::SUCCESS);
            }
            for seed in runs[begun.0..].chunk_by(|one, next| one.seed == next.seed) {
                sums.extend(Sum::new(seed[0].seed, *signals, seed));
            }
            if !self.json {
                out!("{}", self.shown(*signals, &runs[begun.0..], &sums[begun.1..]));
            }
        }
        if self.json {
            let report = Report { runs, varying: sums };
            json::print(&json::object(&report))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn shown(&self, signals: SignalsArg, runs: &[Run], sums: &[Sum]) -> String {
        if self.seed.are_many() {
            seeds::table(signals, &self.seed, runs, sums)
        } else {
            table::table(signals, runs) + &table::in_sum(sums.first())
        }
    }

    /// All runs with these signals: by seed, then by trace, then by controller.
    fn runs(&self, signals: SignalsArg) -> Result<Vec<Run>, Failure> {
        let mut tasks = Vec::new();
        for seed in self.seed.each() {
            for trace in self.traces(seed)? {
                tasks.extend(Contender::ALL.map(|contender| (seed, trace.clone(), contender)));
            }
        }
        let bar = progress(tasks.len() as u64, signals.name());
        let runs = in_parallel(&tasks, |(seed, trace, contender)| {
            let figures = autorate_bench::run(trace, *contender, signals.into(), *seed, &mut |_| {});
            bar.inc(1);
            Run::new(trace, *contender, signals, *seed, &figures)
        });
        bar.finish_and_clear();
        Ok(runs)
    }

    fn traces(&self, seed: u64) -> Result<Vec<Trace>, Failure> {
        let all = Trace::all(seed);
        for name in &self.trace {
            if !all.iter().any(|trace| trace.name == *name) {
                let meant = nearest(name, all.iter().map(|trace| trace.name.as_str()));
                let meant = meant.map_or_else(String::new, |meant| format!("; did you mean '{meant}'?"));
                let error = anyhow!("there is no trace '{name}'{meant} (--list prints all)");
                return Err(Failure::Usage(error));
            }
        }
        let wanted = |trace: &Trace| self.trace.is_empty() || self.trace.contains(&trace.name);
        Ok(all.into_iter().filter(wanted).collect())
    }
}

impl From<SignalsArg> for Signals {
    fn from(arg: SignalsArg) -> Self {
        match arg {
            SignalsArg::Echo => Self::Echo,
            SignalsArg::OneWay => Self::OneWay,
            SignalsArg::Tcp => Self::Tcp,
            SignalsArg::Bypass => Self::Bypass,
        }
    }
}

impl SignalsArg {
    /// Those of the published tables.
    const DEFAULT: [Self; 3] = [Self::Echo, Self::OneWay, Self::Tcp];

    const fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::OneWay => "one-way",
            Self::Tcp => "tcp",
            Self::Bypass => "bypass",
        }
    }
}

/// A progress bar on a terminal; hidden elsewhere.
fn progress(runs: u64, message: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos} of {len} runs, {eta} left");
    ProgressBar::new(runs)
        .with_style(style.expect("the template is a constant"))
        .with_message(message)
}

/// Runs all tasks on all processors and returns the outcomes in the order of the tasks. Tasks that have not started
/// are skipped once standard output has lost its reader.
fn in_parallel<T: Sync, R: Send>(tasks: &[T], run: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let task = tasks.get(place).filter(|_| !output::is_lost());
            let Some(task) = task else { return done };
            done.push((place, run(task)));
        }
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut done: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..processors.min(tasks.len()))
            .map(|_| scope.spawn(worker))
            .collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, _>| worker.join().expect("a run ends");
        workers.into_iter().flat_map(join).collect()
    });
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

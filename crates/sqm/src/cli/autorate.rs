//! `sqm autorate`: the controller of varying lines. So far its bench, in virtual time.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::{Subcommand, ValueEnum};
use serde::Serialize;
use sqm_core::autorate::Direction;
use sqm_core::nearest::nearest;
use sqm_core::units::Nanos;
use sqm_sim::autorate_bench::{self, Contender, Figures, Recovery, Signals, Trace};

use crate::failure::Failure;

/// Keep a varying line at the highest rate without a queue; needs no privileges so far.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Bench(Bench),
}

/// Run our controller, cake-autorate's arithmetic, one that is told the truth a round trip late and none at all on the same modelled
/// lines, in virtual time.
///
/// The same seed gives the same figures, byte for byte, on every machine. docs/autorate.md explains the traces, the
/// model and its limits.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm autorate bench
  sqm autorate bench --trace lte collapse --seed 7
  sqm autorate bench --signals one-way --json")]
struct Bench {
    /// Only these traces; see --list.
    #[arg(long, value_name = "NAME", num_args = 1..)]
    trace: Vec<String>,
    /// What the generated lines and all noise are made from.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// What the controllers are told of delay; all three kinds by default.
    #[arg(long, value_enum, value_name = "KIND", num_args = 1..)]
    signals: Vec<SignalsArg>,
    /// One JSON object for programs.
    #[arg(long)]
    json: bool,
    /// Only say which traces there are.
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum SignalsArg {
    /// Round trips to reflectors, cake-autorate's default.
    Echo,
    /// One-way delays to reflectors.
    OneWay,
    /// Round trips to reflectors, and delays each way of the user's own TCP flows, of which cake-autorate takes no notice.
    Tcp,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Bench(bench) => bench.run(),
        }
    }
}

impl Bench {
    fn run(self) -> Result<ExitCode, Failure> {
        let traces = self.traces()?;
        if self.list {
            for trace in &traces {
                println!("{:12} {}", trace.name, trace.about);
            }
            return Ok(ExitCode::SUCCESS);
        }
        let signals = if self.signals.is_empty() {
            SignalsArg::value_variants()
        } else {
            &self.signals
        };
        let (mut runs, mut sums) = (Vec::new(), Vec::new());
        for signals in signals {
            let begun = runs.len();
            for trace in &traces {
                runs.extend(Contender::ALL.map(|contender| self.run_one(trace, contender, *signals)));
            }
            let sum = Sum::new(*signals, &runs[begun..]);
            if !self.json {
                print!("{}{}", table(*signals, &runs[begun..]), in_sum(sum.as_ref()));
            }
            sums.extend(sum);
        }
        if self.json {
            let report = Report {
                seed: self.seed,
                runs,
                varying: sums,
            };
            println!(
                "{}",
                serde_json::to_string_pretty(&report).context("writing JSON")?
            );
        }
        Ok(ExitCode::SUCCESS)
    }

    fn traces(&self) -> Result<Vec<Trace>, Failure> {
        let all = Trace::all(self.seed);
        for name in &self.trace {
            if !all.iter().any(|trace| trace.name == name) {
                let meant = nearest(name, all.iter().map(|trace| trace.name));
                let meant = meant.map_or_else(String::new, |meant| format!("; did you mean '{meant}'?"));
                let error = anyhow!("there is no trace '{name}'{meant} (--list says which there are)");
                return Err(Failure::Usage(error));
            }
        }
        let wanted =
            |trace: &Trace| self.trace.is_empty() || self.trace.iter().any(|name| name == trace.name);
        Ok(all.into_iter().filter(wanted).collect())
    }

    fn run_one(&self, trace: &Trace, contender: Contender, signals: SignalsArg) -> Run {
        let figures = autorate_bench::run(trace, contender, signals.into(), self.seed, &mut |_| {});
        Run::new(trace, contender, signals, &figures)
    }
}

impl From<SignalsArg> for Signals {
    fn from(arg: SignalsArg) -> Self {
        match arg {
            SignalsArg::Echo => Self::Echo,
            SignalsArg::OneWay => Self::OneWay,
            SignalsArg::Tcp => Self::Tcp,
        }
    }
}

impl SignalsArg {
    const fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::OneWay => "one-way",
            Self::Tcp => "tcp",
        }
    }
}

#[derive(Serialize)]
struct Report {
    seed: u64,
    runs: Vec<Run>,
    varying: Vec<Sum>,
}

/// Ours against cake-autorate's on all lines that vary together.
#[derive(Serialize)]
struct Sum {
    signals: &'static str,
    less_time_above_30_ms_percent: f64,
    more_bytes_percent: f64,
}

impl Sum {
    /// None if no line varies.
    fn new(signals: SignalsArg, runs: &[Run]) -> Option<Self> {
        let pairs = || {
            runs.chunks(Contender::ALL.len()).filter_map(|trace| match trace {
                [ours, theirs, ..] if ours.varies => Some([ours, theirs]),
                _ => None,
            })
        };
        pairs().next()?;
        let above = |index: usize| {
            let seconds = pairs().map(|pair| pair[index].above_30_ms_percent * pair[index].length_s);
            seconds.sum::<f64>()
        };
        let bytes = |index: usize| pairs().map(|pair| pair[index].delivered_bytes()).sum::<u64>() as f64;
        Some(Self {
            signals: signals.name(),
            less_time_above_30_ms_percent: -percent_more(above(0), above(1)),
            more_bytes_percent: percent_more(bytes(0), bytes(1)),
        })
    }
}

/// The figures of one run, for programs: the unit is the last word of each name.
#[derive(Serialize)]
struct Run {
    trace: &'static str,
    varies: bool,
    length_s: f64,
    signals: &'static str,
    controller: &'static str,
    above_30_ms_percent: f64,
    delay_p95_ms: f64,
    loaded_delay_p95_ms: f64,
    delivered_down_bytes: u64,
    delivered_up_bytes: u64,
    utilisation_down_percent: f64,
    utilisation_up_percent: f64,
    false_cuts_per_hour: f64,
    probes_per_second: f64,
    falls: Vec<Step>,
    rises: Vec<Step>,
}

/// A sudden change of the line. What is absent did not happen before the next change.
#[derive(Serialize)]
struct Step {
    at_s: f64,
    direction: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_followed_after_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_gone_after_ms: Option<f64>,
}

impl Run {
    fn new(trace: &Trace, contender: Contender, signals: SignalsArg, figures: &Figures) -> Self {
        let steps = |steps: &[Recovery]| steps.iter().map(Step::new).collect();
        Self {
            trace: trace.name,
            varies: trace.varies,
            length_s: millis(trace.length) / 1000.0,
            signals: signals.name(),
            controller: contender.name(),
            above_30_ms_percent: figures.above_30_ms_percent,
            delay_p95_ms: millis(figures.delay_p95),
            loaded_delay_p95_ms: millis(figures.loaded_delay_p95),
            delivered_down_bytes: figures.delivered.ingress.0,
            delivered_up_bytes: figures.delivered.egress.0,
            utilisation_down_percent: figures.utilisation_percent.ingress,
            utilisation_up_percent: figures.utilisation_percent.egress,
            false_cuts_per_hour: figures.false_cuts_per_hour,
            probes_per_second: figures.probes_per_second,
            falls: steps(&figures.falls),
            rises: steps(&figures.rises),
        }
    }

    fn delivered_bytes(&self) -> u64 {
        self.delivered_down_bytes + self.delivered_up_bytes
    }
}

impl Step {
    fn new(recovery: &Recovery) -> Self {
        Self {
            at_s: millis(recovery.at) / 1000.0,
            direction: match recovery.direction {
                Direction::Ingress => "down",
                Direction::Egress => "up",
            },
            rate_followed_after_ms: recovery.rate_followed_after.map(millis),
            delay_gone_after_ms: recovery.delay_gone_after.map(millis),
        }
    }
}

fn millis(span: Nanos) -> f64 {
    span.0 as f64 / 1e6
}

/// The runs of one kind of signals: for each trace ours, cake-autorate's, that of who knows the truth, and the line without any.
fn table(signals: SignalsArg, runs: &[Run]) -> String {
    let mut text = format!("signals: {}\n", signals.name());
    text += "trace        controller      >30 ms  p95 load  delivered  use down/up  false cuts  fall s  rise s  probes\n";
    text += "                                  %        ms         MB            %      per h                    per s\n";
    for trace in runs.chunks(Contender::ALL.len()) {
        for run in trace {
            let use_both = format!(
                "{:.0}/{:.0}",
                run.utilisation_down_percent, run.utilisation_up_percent
            );
            writeln!(
                text,
                "{:12} {:14} {:7.2} {:9.1} {:10.1} {:>12} {:>11.0} {:>7} {:>7} {:>7.2}",
                run.trace,
                run.controller,
                run.above_30_ms_percent,
                run.loaded_delay_p95_ms,
                run.delivered_bytes() as f64 / 1e6,
                use_both,
                run.false_cuts_per_hour,
                slowest(&run.falls),
                slowest(&run.rises),
                run.probes_per_second,
            )
            .expect("a string takes everything");
        }
        if let [ours, theirs, ..] = trace
            && ours.varies
        {
            let time = percent_more(ours.above_30_ms_percent, theirs.above_30_ms_percent);
            let bytes = percent_more(ours.delivered_bytes() as f64, theirs.delivered_bytes() as f64);
            writeln!(
                text,
                "{:12} {:14} {time:>+6.0} % {bytes:>+19.1} %",
                "", "difference"
            )
            .expect("a string takes everything");
        }
    }
    text
}

/// The last line of a table.
fn in_sum(sum: Option<&Sum>) -> String {
    let text = sum.map(|sum| {
        format!(
            "all lines that vary, in sum: {:.0} % less time above 30 ms, {:+.1} % bytes\n",
            sum.less_time_above_30_ms_percent, sum.more_bytes_percent
        )
    });
    text.unwrap_or_default() + "\n"
}

/// The slowest recovery in seconds, or what else can be said.
fn slowest(steps: &[Step]) -> String {
    let mut slowest: f64 = 0.0;
    for step in steps {
        match step.rate_followed_after_ms {
            Some(after) => slowest = slowest.max(after),
            None => return "never".to_owned(),
        }
    }
    if steps.is_empty() {
        "-".to_owned()
    } else {
        format!("{:.2}", slowest / 1000.0)
    }
}

fn percent_more(ours: f64, theirs: f64) -> f64 {
    if theirs == 0.0 {
        0.0
    } else {
        100.0 * (ours / theirs - 1.0)
    }
}

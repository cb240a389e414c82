//! `sqm autorate replay`: runs the controller again on the samples of a log and compares its decisions with the
//! recorded ones.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;
use sqm_autorate::cake_autorate::CakeAutorate;
use sqm_autorate::trace::replay::{Replay, ReplayStep};
use sqm_autorate::trace::{ControllerConfig, Entry, PROGRAM, ReasonWord};
use sqm_autorate::{Autorate, Bounds, Choice, Controller, Decision, Probes, Sample};
use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::{Instant, Nanos, Rate};
use sqm_measure::autorate_trace;
use sqm_measure::chart::{Chart, Line, Panel};
use sqm_measure::{foreign, stats};

use crate::json;
use sqm_process::failure::Failure;

use crate::cli::setup::parse_rate;

/// If a log begins in the middle of a run, differences within this time are not counted. The controller first has to
/// hear from all paths and to learn their delay without a queue.
const WARM_UP: Nanos = Nanos::from_millis(30_000);
/// The longest time between two lines of a log. A longer gap means that lines are missing, and only this much of it
/// is counted.
const LONGEST_GAP: Nanos = Nanos::from_millis(90_000);
/// The most points of a curve in the picture.
const POINTS: usize = 3000;

/// Replay the samples in a log through the controller and compare its decisions with the recorded ones
///
/// LOG is a file that `option autorate_log` writes, or a log of cake-autorate. Nothing is changed. After the first decision that differs, the line
/// would have behaved differently, too: the later the samples, the less they show of what would have happened.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm autorate replay /var/log/sqm/rates.csv
  sqm autorate replay rates.csv.old rates.csv --max-download 60mbit --svg rates.svg
  sqm autorate replay rates.csv --json | jq -e '.first_difference == null'
  sqm autorate replay rates.csv --as cake-autorate
  sqm autorate replay cake-autorate.primary.log --min-download 5mbit --max-download 80mbit

Exit codes: 0 replayed, with or without differences; 1 the log is damaged or a file could not be written; 2 wrong \
    arguments")]
pub(super) struct Args {
    /// Logs, oldest first
    #[arg(value_name = "LOG", required = true)]
    logs: Vec<PathBuf>,
    /// The controller that decides in the replay
    #[arg(long = "as", value_name = "CONTROLLER", value_enum, default_value = "sqm")]
    pilot: Pilot,
    /// Lower bound of the download, in place of the recorded one: 2mbit, or a bare number in kbit/s as in the
    /// configuration
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    min_download: Option<Rate>,
    /// Rate of the download to begin with, in place of the recorded one
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    download: Option<Rate>,
    /// Upper bound of the download, in place of the recorded one
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    max_download: Option<Rate>,
    /// Lower bound of the upload, in place of the recorded one
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    min_upload: Option<Rate>,
    /// Rate of the upload to begin with, in place of the recorded one
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    upload: Option<Rate>,
    /// Upper bound of the upload, in place of the recorded one
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    max_upload: Option<Rate>,
    /// Draw the recorded and the replayed rates into this file, as SVG
    #[arg(long, alias = "plot", value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print the comparison as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Pilot {
    /// sqm's own controller
    Sqm,
    /// cake-autorate's arithmetic with its defaults
    CakeAutorate,
}

impl Args {
    /// Prints the comparison, and draws it if a picture was requested.
    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        let mut replay = Replay::new(|now: Instant, config: &ControllerConfig| -> Now {
            let bounds = self.bounds(config.bounds);
            match self.pilot {
                Pilot::Sqm => Now::Sqm(Box::new(Autorate::new(now, bounds, config.learned))),
                Pilot::CakeAutorate => Now::CakeAutorate(Box::new(CakeAutorate::new(now, bounds))),
            }
        });
        let mut comparison = Comparison::new(self);
        for log in &self.logs {
            let cuts = autorate_trace::read(log, &mut |line, row| {
                let played = replay.play(&row);
                comparison.add(log, line, &row, played);
            })?;
            comparison.cut.extend(cuts.into_iter().map(|cut| CutLine {
                log: log.clone(),
                line: cut.line,
                reason: cut.reason,
            }));
        }
        if let Some(path) = &self.svg {
            let picture = comparison.picture(&self.logs).svg();
            sqm_process::output_file::write(path, picture)?;
        }
        let report = comparison.report(self);
        match self.json {
            true => json::print(&json::object(&report))?,
            false => out!("{}", report.text()),
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The recorded bounds, with those given on the command line in their place.
    fn bounds(&self, then: PerDirection<Bounds>) -> PerDirection<Bounds> {
        let other = |then: Bounds, min: Option<Rate>, base: Option<Rate>, max: Option<Rate>| Bounds {
            min: min.or(then.min),
            base: base.or(then.base),
            max: max.or(then.max),
        };
        PerDirection {
            download: other(then.download, self.min_download, self.download, self.max_download),
            upload: other(then.upload, self.min_upload, self.upload, self.max_upload),
        }
    }
}

enum Now {
    Sqm(Box<Autorate>),
    CakeAutorate(Box<CakeAutorate>),
}

impl Controller for Now {
    fn step(&mut self, now: Instant, samples: &[Sample]) -> Decision {
        match self {
            Self::Sqm(controller) => controller.step(now, samples),
            Self::CakeAutorate(controller) => controller.step(now, samples),
        }
    }
}

/// The comparison so far.
struct Comparison<'a> {
    args: &'a Args,
    runs: Vec<Run>,
    /// A direction without a configured rate is not shaped. Decisions for it are ignored.
    is_shaped: PerDirection<bool>,
    is_another: PerDirection<bool>,
    /// cake-autorate wrote the log, which does not hold its probe interval.
    is_cake_autorate: bool,
    decisions: u64,
    different: u64,
    first: Option<Difference>,
    /// For each direction: the recorded decisions, then the replayed ones.
    tallies: PerDirection<[Tally; 2]>,
    last: Option<(Instant, [Decision; 2])>,
    began: Instant,
    nanos: u64,
    series: PerDirection<Vec<Point>>,
    cut: Vec<CutLine>,
}

/// One direction at a line of the log.
struct Point {
    /// Time since the first line of the first log, without missing time.
    seconds: f64,
    /// The recorded rate, then the replayed one.
    rates: [Rate; 2],
    load: Rate,
}

/// Statistics of one direction's rates.
#[derive(Default)]
struct Tally {
    /// Each rate in bit/s with the nanoseconds for which it was in force.
    rates: Vec<(u64, u64)>,
    cuts: u64,
    was_cut: bool,
}

impl Tally {
    fn add(&mut self, choice: Choice) {
        let is_cut = choice.reason.is_cut();
        self.cuts += u64::from(is_cut && !self.was_cut);
        self.was_cut = is_cut;
    }

    fn figures(&self) -> Figures {
        let mut rates = self.rates.clone();
        rates.sort_unstable();
        let all: u64 = rates.iter().map(|(_, nanos)| nanos).sum();
        let weighted: Vec<_> = rates
            .iter()
            .map(|(rate, nanos)| (*rate as f64, *nanos as f64))
            .collect();
        let below =
            |percent: f64| stats::weighted_percentile(&weighted, percent).map_or(0, |rate| rate as u64);
        let sum: u128 = rates
            .iter()
            .map(|(rate, nanos)| u128::from(*rate) * u128::from(*nanos))
            .sum();
        Figures {
            mean_bits_per_sec: u64::try_from(sum / u128::from(all.max(1))).unwrap_or(u64::MAX),
            lowest_bits_per_sec: below(0.0),
            p5_bits_per_sec: below(5.0),
            median_bits_per_sec: below(50.0),
            p95_bits_per_sec: below(95.0),
            highest_bits_per_sec: below(100.0),
            cuts: self.cuts,
        }
    }
}

impl<'a> Comparison<'a> {
    fn new(args: &'a Args) -> Self {
        let both = |value| PerDirection {
            download: value,
            upload: value,
        };
        Self {
            args,
            runs: Vec::new(),
            is_shaped: both(true),
            is_another: both(false),
            is_cake_autorate: false,
            decisions: 0,
            different: 0,
            first: None,
            tallies: PerDirection::default(),
            last: None,
            began: Instant(0),
            nanos: 0,
            series: PerDirection::default(),
            cut: Vec::new(),
        }
    }

    fn add(&mut self, log: &Path, line: usize, row: &Entry, played: ReplayStep) {
        if played.is_new {
            self.begin(log, line, row, played.is_exact);
        }
        // The previous decisions were in force until now.
        if let Some((at, decisions)) = self.last {
            let span = row.at.since(at).0.min(LONGEST_GAP.0);
            self.nanos += span;
            for direction in Direction::BOTH {
                for (tally, decision) in self.tallies[direction].iter_mut().zip(decisions) {
                    tally
                        .rates
                        .push((decision.rates[direction].rate.bits_per_sec(), span));
                }
            }
        }
        let decisions = [row.decision, played.decision];
        for direction in Direction::BOTH {
            for (tally, decision) in self.tallies[direction].iter_mut().zip(decisions) {
                tally.add(decision.rates[direction]);
            }
            let rates = decisions.map(|decision| decision.rates[direction].rate);
            self.series[direction].push(Point {
                seconds: self.nanos as f64 / 1e9,
                rates,
                load: row.throughput[direction],
            });
        }
        self.last = Some((row.at, decisions));
        if !played.is_exact && row.at.since(self.began) < WARM_UP {
            return;
        }
        self.decisions += 1;
        let [then, now] = decisions;
        let differs =
            |direction: Direction| self.is_shaped[direction] && then.rates[direction] != now.rates[direction];
        let what = match Direction::BOTH.map(differs) {
            [true, _] => What::Download,
            [_, true] => What::Upload,
            // cake-autorate has its own probe interval, so that only sqm's is compared.
            _ if self.args.pilot == Pilot::Sqm && !self.is_cake_autorate && then.probes != now.probes => {
                What::Probes
            }
            _ => return,
        };
        self.different += 1;
        if self.first.is_none() {
            let shown = |decision: Decision| ShownDecision::new(what, decision);
            self.first = Some(Difference {
                log: log.to_owned(),
                line,
                unix_ms: row.unix_ms,
                after_seconds: self.nanos as f64 / 1e9,
                what,
                then: shown(then),
                now: shown(now),
            });
        }
    }

    fn begin(&mut self, log: &Path, line: usize, row: &Entry, is_exact: bool) {
        self.last = None;
        self.began = row.at;
        for direction in Direction::BOTH {
            for tally in &mut self.tallies[direction] {
                tally.was_cut = false;
            }
        }
        let config = row.start.as_ref().map(|start| &*start.config);
        if let Some(config) = config {
            self.is_cake_autorate = config.program == autorate_trace::CAKE_AUTORATE;
            let is_shaped = |direction: Direction| config.bounds[direction].base.is_some();
            let now = self.args.bounds(config.bounds);
            for direction in Direction::BOTH {
                let was_shaped = self.is_another[direction] && self.is_shaped[direction];
                self.is_shaped[direction] = is_shaped(direction) || was_shaped;
                self.is_another[direction] |= now[direction] != config.bounds[direction];
            }
        }
        self.runs.push(Run {
            log: log.to_owned(),
            line,
            unix_ms: row.unix_ms,
            after_seconds: self.nanos as f64 / 1e9,
            is_exact,
            program: config.map(|config| foreign::printable(&config.program).into_owned()),
        });
    }

    fn report(&self, args: &Args) -> Report {
        let side = |direction: Direction| {
            self.is_shaped[direction].then(|| {
                let [then, now] = &self.tallies[direction];
                RecordedAndReplayed {
                    then: then.figures(),
                    now: now.figures(),
                }
            })
        };
        Report {
            logs: args.logs.clone(),
            controller: args.pilot,
            program: PROGRAM,
            has_other_bounds: self.is_another.download || self.is_another.upload,
            seconds: self.nanos as f64 / 1e9,
            decisions: self.decisions,
            different: self.different,
            first_difference: self.first.clone(),
            download: side(Direction::Download),
            upload: side(Direction::Upload),
            runs: self.runs.clone(),
            cut_lines: self.cut.clone(),
        }
    }

    fn picture(&self, logs: &[PathBuf]) -> Chart {
        let panel = |(direction, name): (Direction, &str)| {
            let series = &self.series[direction];
            // Keep the first point of each `step` points: the picture is to compare shapes.
            let points = |value: fn(&Point) -> Rate| -> Vec<(f64, Option<f64>)> {
                let step = series.len().div_ceil(POINTS).max(1);
                let kept = series.iter().step_by(step);
                kept.map(|point| (point.seconds, Some(mbit(value(point).bits_per_sec()))))
                    .collect()
            };
            Panel {
                y: format!("{name} (Mbit/s)"),
                lines: vec![
                    Line::thin("recorded load", points(|point| point.load)),
                    Line::new("recorded rate", points(|point| point.rates[0])),
                    Line::new("replayed rate", points(|point| point.rates[1])),
                ],
            }
        };
        let names = [(Direction::Download, "Download"), (Direction::Upload, "Upload")];
        let shaped = names
            .into_iter()
            .filter(|(direction, _)| self.is_shaped[*direction]);
        let logs: Vec<String> = logs.iter().map(|log| log.display().to_string()).collect();
        Chart {
            title: "Recorded and replayed rates".to_owned(),
            subtitle: format!(
                "{}: {} of {} decisions differ",
                logs.join(", "),
                self.different,
                self.decisions
            ),
            x: "Time in the log (s)".to_owned(),
            panels: shaped.map(panel).collect(),
        }
    }
}

#[derive(Serialize)]
struct Report {
    logs: Vec<PathBuf>,
    controller: Pilot,
    program: &'static str,
    /// True if the bounds differ from the recorded ones.
    has_other_bounds: bool,
    /// Time that the logs cover, without missing time.
    seconds: f64,
    /// Number of decisions that were compared: one for each line of the log.
    decisions: u64,
    different: u64,
    first_difference: Option<Difference>,
    /// None if the direction is not shaped.
    download: Option<RecordedAndReplayed>,
    upload: Option<RecordedAndReplayed>,
    runs: Vec<Run>,
    /// Incomplete lines, which were left out.
    cut_lines: Vec<CutLine>,
}

/// One run of a controller within the logs.
#[derive(Clone, Serialize)]
struct Run {
    log: PathBuf,
    line: usize,
    unix_ms: u64,
    after_seconds: f64,
    /// The log holds the state that the controller began with, so that the replay is exact.
    is_exact: bool,
    /// The program and version that wrote the log.
    program: Option<String>,
}

#[derive(Clone, Serialize)]
struct CutLine {
    log: PathBuf,
    line: usize,
    reason: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum What {
    Download,
    Upload,
    Probes,
}

#[derive(Clone, Serialize)]
struct Difference {
    log: PathBuf,
    line: usize,
    unix_ms: u64,
    after_seconds: f64,
    what: What,
    then: ShownDecision,
    now: ShownDecision,
}

/// A decision for the direction in which the two sides differ.
#[derive(Clone, Serialize)]
struct ShownDecision {
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_bits_per_sec: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    probe_interval_ms: f64,
    #[serde(skip)]
    words: String,
}

impl ShownDecision {
    fn new(what: What, decision: Decision) -> Self {
        let choice = match what {
            What::Download => Some(decision.rates.download),
            What::Upload => Some(decision.rates.upload),
            What::Probes => None,
        };
        let gap = match decision.probes {
            Probes::Off => 0.0,
            Probes::Every(Nanos(gap)) => gap as f64 / 1e6,
        };
        Self {
            rate_bits_per_sec: choice.map(|choice| choice.rate.bits_per_sec()),
            reason: choice.map(|choice| ReasonWord(choice.reason).to_string()),
            probe_interval_ms: gap,
            words: match (choice, gap) {
                (Some(choice), _) => format!(
                    "{:.3} Mbit/s, {}",
                    mbit(choice.rate.bits_per_sec()),
                    choice.reason
                ),
                (None, 0.0) => "no probes".to_owned(),
                (None, gap) => format!("a probe every {gap} ms"),
            },
        }
    }
}

#[derive(Serialize)]
struct RecordedAndReplayed {
    then: Figures,
    now: Figures,
}

/// Statistics of the rates, each weighted by the time for which it was in force.
#[derive(Serialize)]
struct Figures {
    mean_bits_per_sec: u64,
    lowest_bits_per_sec: u64,
    p5_bits_per_sec: u64,
    median_bits_per_sec: u64,
    p95_bits_per_sec: u64,
    highest_bits_per_sec: u64,
    /// Number of rate cuts because of a queue. Consecutive cuts count once.
    cuts: u64,
}

/// The version of the controller in the name of a program, empty for the first one.
fn controller(program: &str) -> &str {
    program.split_once('+').map_or("", |(_, controller)| controller)
}

impl Report {
    fn text(&self) -> String {
        let mut text = format!(
            "{:.1} s in the log, {} decisions compared",
            self.seconds, self.decisions
        );
        text += match (self.controller, self.has_other_bounds) {
            (Pilot::Sqm, false) => ", with the recorded bounds\n",
            (Pilot::Sqm, true) => ", with bounds other than the recorded ones\n",
            (Pilot::CakeAutorate, _) => ", with cake-autorate's arithmetic\n",
        };
        for cut in &self.cut_lines {
            let (log, line) = (cut.log.display(), cut.line);
            text += &format!("{log}, line {line}: incomplete and skipped ({})\n", cut.reason);
        }
        for run in &self.runs {
            let (log, line) = (run.log.display(), run.line);
            if run.program.as_deref() == Some(autorate_trace::CAKE_AUTORATE) {
                text += &format!(
                    "{log}, line {line}: written by cake-autorate, whose log does not hold the bounds of its rates: give them with \
                     --min-download, --max-download, --min-upload and --max-upload; the replay starts at the recorded rate\n"
                );
                continue;
            }
            if !run.is_exact {
                text += &format!(
                    "{log}, line {line}: the log begins in the middle of a run, without the controller's state: \
                     the replay starts at the recorded rate and does not compare the first {} s; to replay the \
                     whole run, give FILE.old before FILE\n",
                    WARM_UP.0 / 1_000_000_000
                );
            }
            if run
                .program
                .as_ref()
                .is_some_and(|program| program != self.program)
            {
                let program = run.program.as_deref().unwrap_or_default();
                text += &format!(
                    "{log}, line {line}: written by {program}, this is {}{}\n",
                    self.program,
                    if controller(program) == controller(self.program) {
                        ""
                    } else {
                        ": another controller made the recorded decisions, so that the replay differs from them"
                    }
                );
            }
        }
        text += &match &self.first_difference {
            None if self.decisions == 0 => "too short to compare anything\n".to_owned(),
            None => "all decisions are the same\n".to_owned(),
            Some(first) => first.text(self.different, self.decisions),
        };
        text += "\nMbit/s              mean   lowest      5 %   median     95 %  highest   cuts\n";
        for (name, both) in [("download", &self.download), ("upload", &self.upload)] {
            let Some(both) = both else { continue };
            for (when, figures) in [("recorded", &both.then), ("replayed", &both.now)] {
                text += &format!("{name:<8} {when:<8}");
                for rate in [
                    figures.mean_bits_per_sec,
                    figures.lowest_bits_per_sec,
                    figures.p5_bits_per_sec,
                    figures.median_bits_per_sec,
                    figures.p95_bits_per_sec,
                    figures.highest_bits_per_sec,
                ] {
                    text += &format!(" {:>8.2}", mbit(rate));
                }
                text += &format!(" {:>6}\n", figures.cuts);
            }
        }
        text + "5 %, median, 95 %: the rate was at most this for that part of the time; cuts: rate reductions \
            because of a queue\n"
    }
}

impl Difference {
    fn text(&self, different: u64, decisions: u64) -> String {
        let what = match self.what {
            What::Download => "download",
            What::Upload => "upload",
            What::Probes => "probes",
        };
        format!(
            "{different} decisions ({:.2} %) differ; the first is {:.3} s after the beginning ({}, line {}):\n\
             {what:<9} recorded {}\n          replayed {}\n",
            different as f64 * 100.0 / decisions as f64,
            self.after_seconds,
            self.log.display(),
            self.line,
            self.then.words,
            self.now.words
        )
    }
}

fn mbit(bits_per_sec: u64) -> f64 {
    bits_per_sec as f64 / 1e6
}

//! The bench on lines that were recorded on real networks.

mod figures;
mod picture;
mod source;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use sqm_core::units::Nanos;
use sqm_sim::autorate_bench::{self, Conditions, Contender, LoadCycle, Trace};

use super::seeds::Seeds;
use super::{SignalsArg, in_parallel, progress};
use figures::{Report, Run};
use picture::History;
use source::Source;
use sqm::json;
use sqm_process::failure::Failure;
use sqm_process::{output, output_file};

#[derive(clap::Args)]
#[command(next_help_heading = "Recorded lines")]
#[group(skip)]
pub(super) struct Args {
    /// Recorded lines in place of the traces: CSV files of 'time_s,download_kbit,upload_kbit'; pairs DOWN,UP of
    /// mahimahi's packet-delivery files (a time in milliseconds for each 1500 bytes); logs of autorate (option
    /// autorate_log) or of cake-autorate, whose chosen rates are taken for the capacity of both directions.
    #[arg(long, value_name = "FILE|DOWN,UP", num_args = 1..)]
    line: Vec<String>,
    /// The load, repeated until the recording ends: parts of DOWNLOADS/UPLOADS:SECONDS, at most 4 flows each way.
    #[arg(long, value_name = "LOAD", default_value_t, requires = "line")]
    load: LoadCycle,
    /// The time that a full buffer of the line takes to drain at its mean rate.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = sqm::parse_delay, requires = "line")]
    buffer: Nanos,
    /// The round trip without queues.
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = sqm::parse_delay, requires = "line")]
    path: Nanos,
    /// The lower bound of the rates, by the line's mean rate.
    #[arg(long, value_name = "FACTOR", default_value = "0.1", value_parser = parse_min, requires = "line")]
    min: u32,
    /// The upper bound of the rates, by the line's mean rate.
    #[arg(long, value_name = "FACTOR", default_value = "4", value_parser = parse_max, requires = "line")]
    max: u32,
    /// Only these controllers [default: all].
    #[arg(long, value_name = "NAMES", value_delimiter = ',', num_args = 1.., value_parser = contenders(), requires = "line")]
    contender: Vec<Contender>,
    /// A folder for a picture of each run, as SVG: rate, capacity and queue of each direction over time.
    #[arg(long, value_name = "FOLDER", requires = "line")]
    pictures: Option<PathBuf>,
}

/// One run: on a line, with a kind of signals, by a controller, with a seed.
struct Task<'a> {
    trace: &'a Trace,
    signals: SignalsArg,
    contender: Contender,
    seed: u64,
}

impl Args {
    pub(super) const fn is_asked_for(&self) -> bool {
        !self.line.is_empty()
    }

    pub(super) fn run(&self, signals: &[SignalsArg], seeds: &Seeds, json: bool) -> Result<ExitCode, Failure> {
        let sources = source::read_all(&self.line)?;
        if let Some(folder) = &self.pictures {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        }
        let traces = self.traces(&sources);
        let tasks = self.tasks(&traces, signals, seeds);
        let bar = progress(tasks.len() as u64, "recorded lines");
        let runs = in_parallel(&tasks, |task| {
            let run = task.run(self.pictures.as_deref());
            bar.inc(1);
            run
        });
        bar.finish_and_clear();
        if output::is_lost() {
            return Ok(ExitCode::SUCCESS);
        }
        let report = Report::new(self.load.to_string(), runs.into_iter().collect::<Result<_, _>>()?);
        match json {
            true => json::print(&json::object(&report))?,
            false => out!("{}", table::table(&report, seeds)),
        }
        Ok(ExitCode::SUCCESS)
    }

    fn traces(&self, sources: &[Source]) -> Vec<Trace> {
        let conditions = Conditions {
            load: self.load.clone(),
            buffer: self.buffer,
            rtt: self.path,
            min: self.min,
            max: self.max,
            ..Conditions::default()
        };
        let trace = |source: &Source| source.recorded.trace(&source.name, &conditions);
        sources.iter().map(trace).collect()
    }

    /// All runs: by line, then by signals, then by controller, then by seed.
    fn tasks<'a>(&self, traces: &'a [Trace], signals: &[SignalsArg], seeds: &Seeds) -> Vec<Task<'a>> {
        let mut tasks = Vec::new();
        for trace in traces {
            for signals in signals.iter().copied() {
                let is_wanted =
                    |contender: &Contender| self.contender.is_empty() || self.contender.contains(contender);
                for contender in Contender::ALL.into_iter().filter(is_wanted) {
                    tasks.extend(seeds.each().map(|seed| Task {
                        trace,
                        signals,
                        contender,
                        seed,
                    }));
                }
            }
        }
        tasks
    }
}

impl Task<'_> {
    fn run(&self, pictures: Option<&Path>) -> anyhow::Result<Run> {
        let mut history = pictures.map(|_| History::new(self.trace.length));
        let figures = autorate_bench::run(
            self.trace,
            self.contender,
            self.signals.into(),
            self.seed,
            &mut |moment| {
                if let Some(history) = &mut history {
                    history.add(moment);
                }
            },
        );
        let run = Run::new(self, &figures);
        if let (Some(folder), Some(history)) = (pictures, history) {
            let chart = history.chart(self.contender, &run);
            output_file::write(&folder.join(run.file_name()), chart.svg())?;
        }
        Ok(run)
    }
}

fn contenders() -> impl TypedValueParser<Value = Contender> {
    PossibleValuesParser::new(Contender::ALL.map(Contender::name)).map(|name| {
        let named = Contender::ALL
            .into_iter()
            .find(|contender| contender.name() == name);
        named.expect("the parser accepts only these names")
    })
}

/// Parses a factor of at most 1 into thousandths.
fn parse_min(text: &str) -> Result<u32, String> {
    parse_factor(text, 0.01, 1.0)
}

/// Parses a factor of at least 1 into thousandths.
fn parse_max(text: &str) -> Result<u32, String> {
    parse_factor(text, 1.0, 100.0)
}

fn parse_factor(text: &str, least: f64, most: f64) -> Result<u32, String> {
    let factor = text
        .parse::<f64>()
        .ok()
        .filter(|factor| (least..=most).contains(factor));
    let factor = factor.ok_or_else(|| format!("'{text}' is not a number from {least} to {most}"))?;
    Ok((factor * 1000.0).round() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_thousandths_within_their_limits() {
        assert_eq!(parse_min("0.25"), Ok(250));
        assert_eq!(parse_max("1.5"), Ok(1500));
        for wrong in ["0", "0.001", "1.1", "-1", "nan", "x", ""] {
            assert!(parse_min(wrong).is_err(), "{wrong}");
        }
        assert!(parse_max("0.9").is_err() && parse_max("101").is_err());
    }
}

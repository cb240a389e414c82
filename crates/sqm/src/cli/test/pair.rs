//! `sqm test --without-and-with`: a test while the daemon pauses the shaping of an interface, and one with the shaping.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::anyhow;
use sqm_api::client;
use sqm_api::held_pause::HeldPause;
use sqm_api::pause::{MAX_SECONDS, Pause};
use sqm_measure::grade::Verdict;
use sqm_measure::result::TestResult;
use sqm_process::failure::Failure;

use super::{Args, conclude};

/// Time for connecting and for the results, seconds, beyond the length of the test. A choice.
const LATEST: u64 = 10;

impl Args {
    pub(super) fn run_pair(&self, interface: &str, stop: &Arc<AtomicBool>) -> Result<ExitCode, Failure> {
        if self.json.as_ref().is_some_and(|path| path.as_os_str() == "-") {
            return Err(Failure::Usage(anyhow!(
                "two tests are not one JSON document: give --json a file, such as --json pair.json, which makes \
                 pair-without.json and pair-with.json"
            )));
        }
        let pause = Pause {
            interface: interface.to_owned(),
            seconds: self.pause_seconds()?,
        };
        let held = HeldPause::begin(client::in_folder(&self.state_dir), &pause).map_err(failed)?;
        if !self.quiet {
            errln!("test 1 of 2, without SQM: {interface} is not shaped");
        }
        let measured = self.measure_as(Some(&self.title_of("without SQM")), stop);
        // The interface is shaped before anything else is reported: the test may have failed, or Ctrl-C has ended it.
        let resumed = held.resume().map_err(failed);
        let without = measured?;
        self.write_files(&without.result, &|path| named(path, "without"))?;
        if without.failure.is_some() {
            resumed?;
            return conclude(without);
        }
        resumed?;
        if stop.load(Ordering::Relaxed) {
            return Err(Failure::Failed(anyhow!("interrupted; {interface} is shaped")));
        }
        if !self.quiet {
            errln!("test 2 of 2, with SQM: {interface} is shaped again");
        }
        let with = self.measure_as(Some(&self.title_of("with SQM")), stop)?;
        self.write_files(&with.result, &|path| named(path, "with"))?;
        if !self.quiet {
            out!("{}", side_by_side(&without.result, &with.result));
        }
        conclude(with)
    }

    /// How long the daemon may pause the shaping.
    fn pause_seconds(&self) -> Result<u32, Failure> {
        let settings = self.settings();
        let length = settings.idle_ms + settings.load_ms + settings.after_ms;
        let seconds = length.div_ceil(1000) + LATEST;
        match u32::try_from(seconds) {
            Ok(seconds) if seconds <= MAX_SECONDS => Ok(seconds),
            _ => Err(Failure::Usage(anyhow!(
                "a test without SQM lasts at most {} s, because the daemon pauses the shaping for {MAX_SECONDS} s at most, and this \
                 one would last {} s: give a shorter --duration",
                u64::from(MAX_SECONDS) - LATEST,
                seconds - LATEST
            ))),
        }
    }

    fn title_of(&self, which: &str) -> String {
        match &self.title {
            Some(title) => format!("{title}, {which}"),
            None => which.to_owned(),
        }
    }
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Failure {
    Failure::Failed(error.into())
}

/// The name of a file with this word before its first extension.
fn named(path: &Path, word: &str) -> PathBuf {
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let (stem, extensions) = match name.split_once('.') {
        Some((stem, extensions)) => (stem, format!(".{extensions}")),
        None => (name.as_str(), String::new()),
    };
    path.with_file_name(format!("{stem}-{word}{extensions}"))
}

/// Both results, a column for each, and what people notice.
fn side_by_side(without: &TestResult, with: &TestResult) -> String {
    let both = [without, with];
    let verdicts = both.map(Verdict::of);
    let letter = |verdict: &Verdict| {
        verdict
            .grade
            .as_ref()
            .map_or_else(|| "-".to_owned(), |grade| grade.letter.clone())
    };
    let added = |verdict: &Verdict| match &verdict.grade {
        Some(grade) => format!("{:+.1}", grade.added_ms),
        None => "-".to_owned(),
    };
    let figure = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
    };
    let rows = [
        ("grade", verdicts.each_ref().map(letter), ""),
        ("added by load", verdicts.each_ref().map(added), "ms, median"),
        (
            "idle latency",
            both.map(|one| figure(one.summary.idle_ms, 1)),
            "ms, median",
        ),
        (
            "loaded latency",
            both.map(|one| figure(one.summary.latency_median_ms, 1)),
            "ms, median",
        ),
        (
            "",
            both.map(|one| figure(one.summary.latency_p95_ms, 1)),
            "ms, 95 % are below",
        ),
        (
            "",
            both.map(|one| figure(one.summary.latency_p99_ms, 1)),
            "ms, 99 % are below",
        ),
        (
            "download",
            both.map(|one| figure(one.summary.download_mbit, 2)),
            "Mbit/s",
        ),
        (
            "upload",
            both.map(|one| figure(one.summary.upload_mbit, 2)),
            "Mbit/s",
        ),
        (
            "lost",
            both.map(|one| format!("{} of {}", one.summary.probes_lost, one.summary.probes_sent)),
            "probes",
        ),
    ];
    let mut text = format!("{:<16}{:>14}{:>14}\n", "", "without SQM", "with SQM");
    for (name, [before, after], unit) in rows {
        let row = format!("{name:<16}{before:>14}{after:>14} {unit}");
        writeln!(text, "{}", row.trim_end()).expect("a string grows");
    }
    for (name, verdict) in ["without SQM", "with SQM"].iter().zip(&verdicts) {
        if let Some(grade) = &verdict.grade {
            writeln!(text, "{name}: {}", grade.sentence).expect("a string grows");
        }
        for finding in &verdict.findings {
            writeln!(text, "{name}: {}", finding.text).expect("a string grows");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_pair_keep_their_folder_and_their_extensions() {
        for (given, made) in [
            ("line.flent.gz", "line-without.flent.gz"),
            ("out/a.svg", "out/a-without.svg"),
            ("/tmp/result", "/tmp/result-without"),
        ] {
            assert_eq!(named(Path::new(given), "without"), Path::new(made));
        }
    }
}

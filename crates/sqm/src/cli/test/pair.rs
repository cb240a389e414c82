//! `sqm test --without-and-with`: a test while the daemon pauses the shaping of an interface, and one with the shaping.

mod comparison;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::anyhow;
use serde::Serialize;
use sqm_api::client;
use sqm_api::held_pause::HeldPause;
use sqm_api::pause::{MAX_SECONDS, Pause};
use sqm_measure::client::Outcome;
use sqm_measure::rpm::client::Report;
use sqm_process::failure::Failure;

use self::comparison::Comparison;
use super::rpm::{longest_ms, write_report};
use super::{Args, conclude, for_user, listen_for_signals};
use crate::json;

/// Time for connecting and for the results, seconds, beyond the length of the test. A choice.
const LATEST: u64 = 10;

/// The result of one of the two tests.
enum Found {
    Load(Box<Outcome>),
    Responsiveness(Box<Report>),
}

/// The document of --json.
#[derive(Serialize)]
struct Document<'a, T> {
    interface: &'a str,
    without: &'a T,
    with: &'a T,
    comparison: &'a Comparison,
}

impl Args {
    pub(super) fn run_pair(&self, interface: &str) -> Result<ExitCode, Failure> {
        if self.sweep {
            return Err(Failure::Usage(anyhow!(
                "--without-and-with compares latency, which --sweep does not measure: leave one of them out"
            )));
        }
        if self.rpm {
            self.refuse_without_effect()?;
        }
        let pause = Pause {
            interface: interface.to_owned(),
            seconds: self.pause_seconds()?,
        };
        let stop = match self.rpm {
            // A signal ends the program. The daemon then shapes the interface.
            true => Arc::default(),
            false => listen_for_signals().map_err(for_user)?,
        };
        let held = HeldPause::begin(client::in_folder(&self.state_dir), &pause).map_err(failed)?;
        if !self.quiet {
            errln!("test 1 of 2, without SQM: {interface} is not shaped");
        }
        let measured = self.measure_one("without SQM", &stop);
        // The interface is shaped before anything else is reported: the test may have failed, or Ctrl-C has ended it.
        let resumed = held.resume().map_err(failed);
        let without = measured?;
        self.write_found(&without, "without")?;
        if without.is_failed() {
            resumed?;
            return without.conclude();
        }
        resumed?;
        if stop.load(Ordering::Relaxed) {
            return Err(Failure::Failed(anyhow!("interrupted; {interface} is shaped")));
        }
        if !self.quiet {
            errln!("test 2 of 2, with SQM: {interface} is shaped again");
        }
        let with = self.measure_one("with SQM", &stop)?;
        self.write_found(&with, "with")?;
        match (&without, &with) {
            (Found::Load(without), Found::Load(with)) => {
                let (without, with) = (&without.result, &with.result);
                let comparison = Comparison::of_loads([without, with]);
                self.compare(interface, without, with, &comparison)?;
            }
            (Found::Responsiveness(without), Found::Responsiveness(with)) => {
                let comparison = Comparison::of_responsiveness([without, with]);
                self.compare(interface, &**without, &**with, &comparison)?;
            }
            _ => unreachable!("both tests are of one kind"),
        }
        with.conclude()
    }

    fn measure_one(&self, which: &str, stop: &Arc<AtomicBool>) -> Result<Found, Failure> {
        Ok(match self.rpm {
            true => Found::Responsiveness(Box::new(self.measure_rpm()?)),
            false => Found::Load(Box::new(self.measure_as(Some(&self.title_of(which)), stop)?)),
        })
    }

    /// Writes the files of one test, with this word in their names.
    fn write_found(&self, found: &Found, word: &str) -> Result<(), Failure> {
        match found {
            Found::Load(outcome) => self.write_files(&outcome.result, &|path| named(path, word)),
            Found::Responsiveness(report) => match self.json_file() {
                Some(path) => write_report(report, &named(path, word)),
                None => Ok(()),
            },
        }
    }

    /// Prints both tests, as one document or as a table.
    fn compare<T: Serialize>(
        &self,
        interface: &str,
        without: &T,
        with: &T,
        comparison: &Comparison,
    ) -> Result<(), Failure> {
        if self.prints_json() {
            let document = Document {
                interface,
                without,
                with,
                comparison,
            };
            outln!("{}", serde_json::to_string(&json::object(&document))?);
        } else if !self.quiet {
            out!("{}", comparison.text());
        }
        Ok(())
    }

    /// How long the daemon may pause the shaping.
    fn pause_seconds(&self) -> Result<u32, Failure> {
        let settings = self.settings();
        let length = match self.rpm {
            true => longest_ms(self.rpm_limit()),
            false => settings.idle_ms + settings.load_ms + settings.after_ms,
        };
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

impl Found {
    fn is_failed(&self) -> bool {
        matches!(self, Self::Load(outcome) if outcome.failure.is_some())
    }

    fn conclude(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Load(outcome) => conclude(*outcome),
            Self::Responsiveness(_) => Ok(ExitCode::SUCCESS),
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

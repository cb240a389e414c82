//! `sqm test --rpm`: the IETF's responsiveness test, against any server that speaks its protocol.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use sqm_core::direction::Direction;
use sqm_measure::client::{Progress, Stage};
use sqm_measure::rpm::client::{self, Report, Server};
use sqm_measure::rpm::{Confidence, Responsiveness};

use super::{Args, display};
use crate::cli::graded;
use sqm_process::failure::Failure;
use sqm_process::output_file;

/// The port of HTTPS.
const HTTPS: u16 = 443;
/// The longest load of a direction, milliseconds: a choice of the draft.
const LIMIT_MS: u64 = 20_000;

impl Args {
    pub(super) fn run_rpm(&self) -> Result<ExitCode, Failure> {
        self.refuse_without_effect()?;
        let report = self.measure_rpm()?;
        if let Some(path) = self.json_file() {
            write_report(&report, path)?;
        }
        if self.prints_json() {
            outln!("{}", serde_json::to_string(&report)?);
        } else if !self.quiet {
            graded::print(&figures(&report));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// How long each direction is loaded at most.
    pub(super) fn rpm_limit(&self) -> Duration {
        Duration::from_millis(self.duration.unwrap_or(LIMIT_MS))
    }

    /// Runs one test. Its progress is printed on standard error.
    pub(super) fn measure_rpm(&self) -> Result<Report, Failure> {
        let server = Server {
            host: self.host[0].clone(),
            port: self.port.unwrap_or(HTTPS),
            verify: !self.insecure,
            limit: self.rpm_limit(),
        };
        let mut clock = Clock::new(server.limit);
        client::run(&server, &mut |direction, mbit, connections, rpm| {
            if self.progress.is_some() {
                display::show_json(&clock.progress(direction, mbit, rpm), Some(direction.name()));
            } else if !self.quiet {
                let rpm = rpm.map_or_else(|| "no".to_owned(), |rpm| format!("{rpm:.0}"));
                errln!(
                    "{:<8}  {mbit:8.1} Mbit/s over {connections:2} {}, {rpm} RPM",
                    direction.name(),
                    noun(connections)
                );
            }
        })
        .map_err(|error| Failure::Failed(error.into()))
    }

    /// Refuses what this test does not have.
    pub(super) fn refuse_without_effect(&self) -> Result<(), Failure> {
        let given = [
            (self.save.is_some(), "--save", "save the result with --json FILE"),
            (
                self.down.is_some(),
                "--down",
                "the test opens connections until the line is full",
            ),
            (
                self.up.is_some(),
                "--up",
                "the test opens connections until the line is full",
            ),
            (
                self.after.is_some(),
                "--after",
                "the line is idle only before the test",
            ),
            (
                self.settle.is_some(),
                "--settle",
                "the test ends when its figures are stable",
            ),
            (
                self.v4 || self.v6,
                "-4 or -6",
                "give the address in place of the name",
            ),
            (self.secret.is_some(), "--secret", "the protocol has none"),
            (self.host.len() > 1, "a second host", "the test has one server"),
        ];
        match given.into_iter().find(|(is_given, ..)| *is_given) {
            None => Ok(()),
            Some((_, name, why)) => Err(Failure::Usage(anyhow!(
                "{name} has no effect with --rpm and must be left out: {why}"
            ))),
        }
    }
}

/// The longest time of a test with this limit, milliseconds: both directions after each other, and the idle line before.
pub(super) fn longest_ms(limit: Duration) -> u64 {
    2 * limit.as_millis() as u64
}

/// Writes the result as JSON.
pub(super) fn write_report(report: &Report, path: &Path) -> Result<(), Failure> {
    Ok(output_file::write(path, serde_json::to_string(report)? + "\n")?)
}

/// Progress of the test. Each direction takes at most `limit`, and often less.
struct Clock {
    limit: Duration,
    begun: Instant,
    /// When the uploads began.
    turned: Option<Instant>,
}

impl Clock {
    fn new(limit: Duration) -> Self {
        Self {
            limit,
            begun: Instant::now(),
            turned: None,
        }
    }

    /// The progress in the form of the other tests. The round trip is a minute divided by the RPM.
    fn progress(&mut self, direction: Direction, mbit: f64, rpm: Option<f64>) -> Progress {
        let (began, limit) = match direction {
            Direction::Download => (self.begun, 2 * self.limit),
            Direction::Upload => (*self.turned.get_or_insert_with(Instant::now), self.limit),
        };
        let of = |asked| if direction == asked { mbit } else { 0.0 };
        Progress {
            stage: Stage::Load,
            elapsed: self.begun.elapsed(),
            left: limit.saturating_sub(began.elapsed()),
            download_mbit: of(Direction::Download),
            upload_mbit: of(Direction::Upload),
            rtt: rpm
                .filter(|rpm| *rpm > 0.0)
                .map(|rpm| Duration::from_secs_f64(60.0 / rpm)),
            round_trips: Vec::new(),
        }
    }
}

fn figures(report: &Report) -> String {
    let mut text = format!("responsiveness by {}\n", report.draft);
    if let Some(rpm) = report.idle_rpm {
        text += &format!("idle      {rpm:8.0} RPM of new connections\n");
    }
    for (name, found) in [("download", &report.download), ("upload", &report.upload)] {
        if let Some(found) = found {
            text += &line(name, found);
        }
    }
    if let Some(grade) = &report.grade {
        text += &grade.to_text();
    }
    for finding in &report.findings {
        text += &format!("{}\n", finding.to_text());
    }
    text
}

fn line(name: &str, found: &Responsiveness) -> String {
    let confidence = match found.confidence {
        Confidence::Low => "low",
        Confidence::Medium => "medium: the figures did not become stable",
        Confidence::High => "high",
    };
    format!(
        "{name:<8}  {:8.0} RPM ({}): foreign {:.0} of {} probes, self {:.0} of {}\n\
         {:<8}  {:8.1} Mbit/s over {} {}; confidence {confidence}\n",
        found.rpm,
        found.word(),
        found.foreign_rpm,
        found.foreign_probes,
        found.self_rpm,
        found.self_probes,
        "",
        found.mbit,
        found.connections,
        noun(found.connections),
    )
}

/// "connection", in the plural unless there is one.
const fn noun(connections: usize) -> &'static str {
    match connections {
        1 => "connection",
        _ => "connections",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_connection_is_singular() {
        let found = |connections| Responsiveness {
            rpm: 300.0,
            foreign_rpm: 300.0,
            self_rpm: 300.0,
            mbit: 20.0,
            connections,
            foreign_probes: 100,
            self_probes: 100,
            confidence: Confidence::High,
            added: None,
        };
        assert!(line("upload", &found(1)).contains("over 1 connection; "));
        assert!(line("upload", &found(7)).contains("over 7 connections; "));
    }
}

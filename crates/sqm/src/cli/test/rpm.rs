//! `sqm test --rpm`: the IETF's responsiveness test, against any server that speaks its protocol.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use sqm_core::direction::Direction;
use sqm_measure::client::{Progress, Stage};
use sqm_measure::rpm::client::{self, Report, Server};
use sqm_measure::rpm::{Confidence, Responsiveness};

use super::{Args, display};
use sqm_process::failure::Failure;

/// The port of HTTPS.
const HTTPS: u16 = 443;

impl Args {
    pub(super) fn run_rpm(&self) -> Result<ExitCode, Failure> {
        let server = Server {
            host: self.host[0].clone(),
            port: self.port.unwrap_or(HTTPS),
            verify: !self.insecure,
            limit: Duration::from_millis(self.duration.unwrap_or(20_000)),
        };
        let mut clock = Clock::new(server.limit);
        let report = client::run(&server, &mut |direction, mbit, connections, rpm| {
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
        .map_err(|error| Failure::Failed(error.into()))?;
        let to_stdout = self.json.as_ref().is_some_and(|path| path.as_os_str() == "-");
        if let Some(path) = &self.json {
            let line = serde_json::to_string(&report)? + "\n";
            if to_stdout {
                out!("{line}");
            } else {
                sqm_process::output_file::write(path, line)?;
            }
        }
        if !self.quiet && !to_stdout {
            out!("{}", figures(&report));
        }
        Ok(ExitCode::SUCCESS)
    }
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

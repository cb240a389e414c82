//! `sqm replay --vector`: plays scenarios that were recorded from Linux's queues, and compares the outcomes.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use serde::Serialize;

use super::{failure, write_line};
use crate::json;
use sqm_process::failure::Failure;
use sqm_process::output;
use sqm_replay::vector::{Deed, Vector, What};

/// Plays each file and compares it with the recording. With `events`, prints the events of a single file instead.
pub(super) fn run(files: &[PathBuf], events: bool) -> Result<ExitCode, Failure> {
    if events {
        let [file] = files else {
            let error = anyhow!("--events takes one vector at a time: its lines do not name the vector");
            return Err(Failure::Usage(error));
        };
        return print_events(&Vector::load(file).map_err(failure)?);
    }
    let mut worst = Ok(ExitCode::SUCCESS);
    for file in files {
        if output::is_lost() {
            break;
        }
        match compare(file) {
            Ok(0) => {}
            Ok(_) => worst = worst.map(|_| ExitCode::FAILURE),
            // Play the remaining files as well. The last error becomes the exit code, and earlier ones are printed.
            Err(failure) => {
                if let Err(earlier) = std::mem::replace(&mut worst, Err(failure)) {
                    earlier.report();
                }
            }
        }
    }
    worst
}

/// The line of output for one vector.
#[derive(Serialize)]
struct Verdict<'a> {
    name: &'a str,
    packets: usize,
    sent: usize,
    dropped: usize,
    mismatches: usize,
}

/// Plays one vector, prints its line, and returns the number of mismatches.
fn compare(file: &Path) -> Result<usize, Failure> {
    let vector = Vector::load(file).map_err(failure)?;
    let outcome = vector.run().map_err(failure)?;
    let Some(differences) = vector.differences(&outcome) else {
        let name = file.display();
        let error =
            anyhow!("{name} has no expected events to compare with; --events prints what the queue does");
        return Err(Failure::Usage(error));
    };
    let sent = outcome
        .deeds
        .iter()
        .filter(|deed| deed.what == What::Sent)
        .count();
    let verdict = Verdict {
        name: &vector.name,
        packets: vector.packets.len(),
        sent,
        dropped: outcome.deeds.len() - sent,
        mismatches: differences.len(),
    };
    outln!(
        "{}",
        serde_json::to_string(&json::object(&verdict)).context("writing JSON")?
    );
    for difference in differences.iter().filter(|difference| difference.is_first) {
        errln!("{}: {difference}", vector.name);
    }
    Ok(differences.len())
}

/// One event of one packet, as JSON.
#[derive(Serialize)]
struct Event {
    ev: &'static str,
    id: u64,
    t_ns: u64,
    ce: u8,
    reason: Option<&'static str>,
}

impl From<&Deed> for Event {
    fn from(deed: &Deed) -> Self {
        let (ev, reason) = match deed.what {
            What::Sent => ("sent", None),
            What::Dropped(reason) => ("drop", Some(reason.name())),
        };
        Self {
            ev,
            id: deed.id,
            t_ns: deed.t_ns,
            ce: deed.ce(),
            reason,
        }
    }
}

fn print_events(vector: &Vector) -> Result<ExitCode, Failure> {
    let mut output = BufWriter::new(output::stdout());
    for deed in &vector.run().map_err(failure)?.deeds {
        write_line(&mut output, &Event::from(deed))?;
    }
    output.flush()?;
    Ok(ExitCode::SUCCESS)
}

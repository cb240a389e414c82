//! `sqm replay`: recorded packets through a queue, in virtual time.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use serde::Serialize;

use crate::failure::Failure;
use crate::replay::vector::{Deed, Vector, What};

/// Send recorded packets through a queue in virtual time and tell what would have happened to them.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm replay --vector crates/core/testdata/vectors/*.json
  sqm replay --vector cake-a000.json --events

Exit codes: 0 done, 1 a recorded scenario came out differently, 2 the request or a file is wrong.")]
pub(crate) struct Args {
    /// Play scenarios that were recorded from Linux's queues, and compare: one JSON line for each.
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    vector: Vec<PathBuf>,
    /// Print what the queue did to each packet, one JSON line each, and compare nothing.
    #[arg(long)]
    events: bool,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self.replay() {
            // Whoever reads has seen enough.
            Err(failure) if is_closed_pipe(&failure) => Ok(ExitCode::SUCCESS),
            result => result,
        }
    }

    fn replay(self) -> Result<ExitCode, Failure> {
        if self.events {
            let [file] = self.vector.as_slice() else {
                let error = anyhow!("--events takes one vector at a time: its lines do not name the vector");
                return Err(Failure::Usage(error));
            };
            return print_events(&Vector::load(file)?);
        }
        let mut worst = Ok(ExitCode::SUCCESS);
        for file in &self.vector {
            match compare(file) {
                Ok(0) => {}
                Ok(_) => worst = worst.map(|_| ExitCode::FAILURE),
                // The others are still worth knowing, and the last error ends the command.
                Err(failure) => {
                    if let Err(earlier) = std::mem::replace(&mut worst, Err(failure)) {
                        earlier.report();
                    }
                }
            }
        }
        worst
    }
}

/// A vector's line of output.
#[derive(Serialize)]
struct Verdict<'a> {
    name: &'a str,
    packets: usize,
    sent: usize,
    dropped: usize,
    mismatches: usize,
}

/// Plays one vector, prints its line and answers the number of mismatches.
fn compare(file: &Path) -> Result<usize, Failure> {
    let vector = Vector::load(file)?;
    let outcome = vector.run()?;
    let Some(differences) = vector.differences(&outcome) else {
        let name = file.display();
        let error = anyhow!("{name} says nothing of what to expect; --events shows what the queue does");
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
    write_line(&mut io::stdout().lock(), &verdict)?;
    for difference in differences.iter().filter(|difference| difference.is_first) {
        eprintln!("{}: {difference}", vector.name);
    }
    Ok(differences.len())
}

/// What happened to one packet.
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
    let mut output = BufWriter::new(io::stdout().lock());
    for deed in &vector.run()?.deeds {
        write_line(&mut output, &Event::from(deed))?;
    }
    output.flush().context("writing to standard output")?;
    Ok(ExitCode::SUCCESS)
}

fn write_line(output: &mut impl Write, line: &impl Serialize) -> Result<(), Failure> {
    let mut line = serde_json::to_vec(line).context("writing JSON")?;
    line.push(b'\n');
    output.write_all(&line).context("writing to standard output")?;
    Ok(())
}

fn is_closed_pipe(failure: &Failure) -> bool {
    let Failure::Failed(error) = failure else {
        return false;
    };
    let cause = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

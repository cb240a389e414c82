//! `sqm replay`: plays recorded packets through a queue, in virtual time.

mod vector;

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use sqm_core::profile::Profile;
use sqm_core::units::Rate;

use sqm_replay::capture::{Event, Replay, Request, replay};
use sqm_replay::picture;
use sqm_replay::queue::{Build, Shape};
use sqm_replay::report::{self, Report};
use sqm_replay::source::{Direction, Prefix};
use sqm_replay::{Error, Output};

use crate::json;
use sqm_plan::line_rate;
use sqm_process::failure::Failure;
use sqm_process::output;
use sqm_process::output_file::{self, OutputFile};

/// Send a capture through a queue in virtual time, and report what would have happened to its packets
///
/// Packets arrive at the times of the capture. They leave at the rate of the queue's own shaper, of the device behind
/// it (--link), or of both. Frames count as they were captured, link header included. A packet's delay is the time
/// until it begins to leave. TCP does not react: the capture has the packets that were sent then, not those that would
/// have been sent with this queue. Needs no privileges and changes nothing on the machine.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm replay --qdisc 'cake bandwidth 20mbit dual-srchost ack-filter' --from 192.168.1.0/24 capture.pcap
  sqm replay --tree classes.tc --json capture.pcap
  sqm replay --qdisc fq_codel --link 20mbit --svg delay.svg --out shaped.pcap capture.pcapng
  tcpdump -w - -i eth0 -Q out | sqm replay --qdisc 'cake bandwidth 20mbit' --events -
  sqm replay --vector crates/core/testdata/vectors/*.json

Exit codes: 0 done; 1 the capture is damaged or cut short (the part before is reported), a file could not be written,
or a recorded scenario differs; 2 the request or a file is wrong; 4 a queue that only the kernel has.")]
pub(crate) struct Args {
    /// A pcap or pcapng file; - is standard input
    #[arg(value_name = "CAPTURE", required_unless_present = "vector")]
    capture: Option<PathBuf>,
    /// The queue, in tc's words
    #[arg(long, value_name = "WORDS", required_unless_present_any = ["tree", "vector"])]
    qdisc: Option<String>,
    /// A tree of classes and queues: a file of tc commands (qdisc add, class add, filter add)
    #[arg(long, value_name = "FILE", conflicts_with = "qdisc")]
    tree: Option<PathBuf>,
    /// The rate of the device behind the queue. Needed if the queue does not shape; with a shaper it is only an upper
    /// bound
    #[arg(long, value_name = "RATE", value_parser = line_rate::parse)]
    link: Option<Rate>,
    /// The kernel's known defects that the queue has: all (kernel), for comparison, or none (fixed)
    #[arg(long, value_enum, default_value_t = Defects::Fixed)]
    profile: Defects,
    /// Seed of hashes and random numbers: the same seed gives the same result
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// The device's MTU, bytes without its link header
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(68..=65535))]
    mtu: u32,
    /// Only packets from these addresses, such as 192.168.1.0/24: a queue sees one direction
    #[arg(long, value_name = "PREFIXES", value_delimiter = ',')]
    from: Vec<Prefix>,
    /// Only packets to these addresses
    #[arg(long, value_name = "PREFIXES", value_delimiter = ',')]
    to: Vec<Prefix>,
    /// How many flows the table shows, largest first
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    flows: usize,
    /// Print the report as JSON, with all flows, and the counters that tc -s would show for queues and classes
    #[arg(long, conflicts_with = "events")]
    json: bool,
    /// Print what happens to each packet, one line of JSON each, instead of the report; vectors are then not compared
    #[arg(long)]
    events: bool,
    /// Draw delay and throughput over time into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write the packets that left, with the times at which they left and their marks; as pcapng if the name ends in
    /// .pcapng
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Play scenarios that were recorded from Linux's queues, and compare: one line of JSON for each
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["capture", "qdisc", "tree", "link", "from", "to", "json", "svg", "out"])]
    vector: Vec<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Defects {
    Kernel,
    Fixed,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if self.vector.is_empty() {
            self.replay()
        } else {
            vector::run(&self.vector, self.events)
        }
    }

    fn replay(self) -> Result<ExitCode, Failure> {
        let Self {
            json,
            events,
            flows,
            ref svg,
            ref out,
            ..
        } = self;
        let (svg, out) = (svg.clone(), out.clone());
        let request = self.request()?;
        let mut written = match &out {
            Some(path) => Some(begin(path, &request.capture)?),
            None => None,
        };
        let mut output = BufWriter::new(output::stdout());
        let mut each = |event: &Event| match events {
            true => write_line(&mut output, &EventJson::from(event)).map_err(Error::Failed),
            false => Ok(()),
        };
        let bar = progress(&request.capture);
        // Requested files are written even if standard output has lost its reader.
        let is_for_files = svg.is_some() || out.is_some();
        let mut progress = |position| {
            bar.set_position(position);
            is_for_files || !output::is_lost()
        };
        let packets = match (&mut written, &out) {
            (Some(file), Some(path)) => Some(Output::begin(file, path).map_err(failure)?),
            _ => None,
        };
        let replay = replay(&request, packets, &mut each, &mut progress);
        bar.finish_and_clear();
        let Some(replay) = replay.map_err(failure)? else {
            return Ok(ExitCode::SUCCESS);
        };
        if let (Some(file), Some(path)) = (written, &out) {
            file.commit()
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        output.flush()?;
        for warning in &replay.warnings {
            errln!("warning: {warning}");
        }
        if events {
            // Outputs other than events have this in their report.
            for odd in report::odd_packets(&replay) {
                errln!("packets: {odd}");
            }
        }
        if let Some(file) = svg {
            output_file::write(&file, picture::svg(&request, &replay))?;
        }
        if json {
            let report = Report::new(&request, &replay);
            json::print(&json::object(&report))?;
        } else if !events {
            out!("{}", report::text(&request, &replay, flows));
        }
        verdict(&request, &replay)
    }

    fn request(self) -> Result<Request, Failure> {
        let shape = match (&self.qdisc, &self.tree) {
            (Some(words), _) => Shape::one(words).map_err(failure)?,
            (None, Some(file)) => {
                let name = file.display().to_string();
                let commands = fs::read_to_string(file)
                    .with_context(|| format!("cannot read the tree {name}"))
                    .map_err(Failure::Usage)?;
                Shape::tree(&commands, &name).map_err(failure)?
            }
            (None, None) => return Err(Failure::Usage(anyhow!("name a queue with --qdisc or --tree"))),
        };
        Ok(Request {
            capture: self.capture.unwrap_or_else(|| "-".into()),
            shape,
            link: self.link,
            direction: Direction {
                from: self.from,
                to: self.to,
            },
            build: Build {
                profile: match self.profile {
                    Defects::Kernel => Profile::KERNEL,
                    Defects::Fixed => Profile::FIXED,
                },
                seed: self.seed,
            },
            mtu: self.mtu,
        })
    }
}

/// Opens the file for the packets that leave the queue. It must not be the capture that is being read.
fn begin(out: &Path, capture: &Path) -> Result<OutputFile, Failure> {
    let same = |a: &Path, b: &Path| {
        a.canonicalize()
            .is_ok_and(|a| b.canonicalize().is_ok_and(|b| a == b))
    };
    if same(out, capture) {
        let error = anyhow!("--out would overwrite the capture {}", capture.display());
        return Err(Failure::Usage(error));
    }
    Ok(OutputFile::begin(out)?)
}

/// Turns an error of a replay into a failure with its exit code.
fn failure(error: Error) -> Failure {
    match error {
        Error::Input(error) => Failure::Usage(error),
        Error::Unsupported(error) => Failure::Unsupported(error),
        Error::Failed(error) => Failure::Failed(error),
    }
}

/// A progress bar on a terminal for files of known size; hidden elsewhere.
fn progress(capture: &Path) -> ProgressBar {
    let Ok(size) = fs::metadata(capture).map(|metadata| metadata.len()) else {
        return ProgressBar::hidden();
    };
    let style = ProgressStyle::with_template("{wide_bar} {bytes} of {total_bytes}, {eta} left");
    ProgressBar::new(size).with_style(style.expect("the template is a constant"))
}

/// A damaged capture is a failure, although its readable part has been played and reported.
fn verdict(request: &Request, replay: &Replay) -> Result<ExitCode, Failure> {
    match &replay.damage {
        None => Ok(ExitCode::SUCCESS),
        Some(damage) => {
            let file = request.capture.display();
            Err(anyhow!("{file}: {damage}; the report above covers the part before that").into())
        }
    }
}

/// One event of one packet, as JSON.
#[derive(Serialize)]
struct EventJson {
    ev: &'static str,
    id: u64,
    t_ns: u64,
    ce: u8,
    reason: Option<&'static str>,
    delay_ns: u64,
    tin: Option<&'static str>,
}

impl From<&Event> for EventJson {
    fn from(event: &Event) -> Self {
        Self {
            ev: if event.reason.is_none() { "sent" } else { "drop" },
            id: event.number,
            t_ns: event.now.0,
            ce: event.is_marked.into(),
            reason: event.reason.map(|reason| reason.name()),
            delay_ns: event.now.since(event.arrived).0,
            tin: event.tin,
        }
    }
}

fn write_line(output: &mut impl Write, line: &impl Serialize) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(line).context("writing JSON")?;
    line.push(b'\n');
    output.write_all(&line)?;
    Ok(())
}

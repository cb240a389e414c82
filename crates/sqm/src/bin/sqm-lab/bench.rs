//! `sqm-lab bench`.

use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use sqm_core::qdisc::Qdisc;
use sqm_core::workload::{NAMED, Named, Packet, Sizes, Steady, Workload};

use sqm::json;
use sqm_process::failure::Failure;
use sqm_process::output;

/// Measure the cost of a queue per packet, in nanoseconds of this machine's processor
///
/// Each workload keeps a queue at a steady backlog: packet bytes in, headers parsed, flows hashed with a key, one
/// dequeue that answers "not yet" per packet if the queue shapes. A plain FIFO runs in the same loop in turns with it,
/// and `net` is the difference. Other work on the machine raises all figures, so compare within one run only.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm-lab bench                                  all named workloads
  sqm-lab bench --list                           list them; with --json for programs
  sqm-lab bench --workload cake-1g --json
  sqm-lab bench --qdisc 'cake bandwidth 100mbit diffserv4' --flows 1000 --sizes acks:50")]
pub(super) struct Args {
    /// Only these named workloads [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = PossibleValuesParser::new(NAMED.iter().map(|named| named.name)))]
    workload: Vec<String>,
    /// List the workloads and end
    #[arg(long, conflicts_with = "workload")]
    list: bool,
    /// Another queue, in tc's words
    #[arg(long, value_name = "SPEC", conflicts_with_all = ["workload", "list"])]
    qdisc: Option<String>,
    /// Number of flows
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1_000_000), requires = "qdisc")]
    flows: u32,
    /// Number of hosts that send them
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=65_536), requires = "qdisc")]
    hosts: u32,
    /// Packets kept in the queue
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000), requires = "qdisc")]
    backlog: u32,
    /// Packet sizes: imix, full (1514 bytes), or acks:PERCENT
    #[arg(long, value_name = "SIZES", default_value = "imix", value_parser = parse_sizes, requires = "qdisc")]
    sizes: Sizes,
    /// Turns of 5000 packets each, after one to warm up
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    turns: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A workload of --list, for programs.
#[derive(Serialize)]
struct Listed {
    workload: &'static str,
    qdisc: &'static str,
    about: String,
}

impl Listed {
    fn of(named: &Named) -> Self {
        Self {
            workload: named.name,
            qdisc: named.qdisc,
            about: named.workload.to_string(),
        }
    }
}

/// The cost of one workload.
#[derive(Serialize)]
struct Cost {
    workload: String,
    qdisc: String,
    flows: u32,
    hosts: u32,
    backlog: usize,
    /// Median over the turns, loop overhead included.
    ns_per_packet: f64,
    /// Median of a FIFO in that loop.
    fifo_ns_per_packet: f64,
    /// Cost of the queue without that of the FIFO and the loop.
    net_ns_per_packet: f64,
    /// Throughput of one core, loop overhead included.
    packets_per_s: f64,
    dropped_percent: f64,
}

impl Args {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        if self.list && self.json {
            json::print(&json::list(&NAMED.each_ref().map(Listed::of)))?;
            return Ok(ExitCode::SUCCESS);
        }
        if self.list {
            for Named {
                name,
                qdisc,
                workload,
            } in &NAMED
            {
                outln!("{name:16} {qdisc:56} {workload}");
            }
            return Ok(ExitCode::SUCCESS);
        }
        let chosen: Vec<(String, String, Workload)> = match &self.qdisc {
            Some(qdisc) => vec![("own".to_owned(), qdisc.clone(), self.own_workload(qdisc))],
            None => NAMED
                .iter()
                .filter(|named| {
                    self.workload.is_empty() || self.workload.iter().any(|name| name == named.name)
                })
                .map(|named| (named.name.to_owned(), named.qdisc.to_owned(), named.workload))
                .collect(),
        };
        if !self.json {
            outln!(
                "{:16} {:>9} {:>9} {:>9} {:>12} {:>8}",
                "",
                "ns/packet",
                "FIFO",
                "net",
                "packets/s",
                "dropped"
            );
        }
        let mut costs = Vec::new();
        for (name, qdisc, workload) in chosen {
            let Some(cost) = measure(name, &qdisc, workload, self.turns)? else {
                return Ok(ExitCode::SUCCESS);
            };
            if !self.json {
                outln!("{cost}");
            }
            costs.push(cost);
        }
        if self.json {
            json::print(&json::list(&costs))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn own_workload(&self, qdisc: &str) -> Workload {
        Workload {
            flows: self.flows,
            hosts: self.hosts,
            backlog: self.backlog as usize,
            sizes: self.sizes,
            shaped: sqm_core::workload::shapes(qdisc),
        }
    }
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:16} {:9.0} {:9.0} {:9.0} {:12.0} {:7.2}%",
            self.workload,
            self.ns_per_packet,
            self.fifo_ns_per_packet,
            self.net_ns_per_packet,
            self.packets_per_s,
            self.dropped_percent
        )
    }
}

fn parse_sizes(text: &str) -> Result<Sizes, String> {
    match text {
        "imix" => Ok(Sizes::Imix),
        "full" => Ok(Sizes::Full),
        _ => text
            .strip_prefix("acks:")
            .and_then(|percent| percent.parse().ok())
            .filter(|percent| *percent <= 100)
            .map(Sizes::Acks)
            .ok_or_else(|| "write imix, full, or acks:0 to acks:100".to_owned()),
    }
}

/// Measures the queue and a FIFO in alternating turns, so that other load on the machine affects both. None if
/// standard output has lost its reader.
fn measure(name: String, qdisc: &str, workload: Workload, turns: u32) -> Result<Option<Cost>, Failure> {
    let build = |text: &str| {
        sqm_core::workload::build(text)
            .map_err(|error| Failure::Usage(anyhow::anyhow!("--qdisc '{text}': {error}")))
    };
    let mut queue = Steady::new(build(qdisc)?, workload);
    let mut fifo = Steady::new(build(sqm_core::workload::FIFO)?, workload);
    let (mut queue_ns, mut fifo_ns) = (Vec::new(), Vec::new());
    for turn in 0..=turns {
        if output::is_lost() {
            return Ok(None);
        }
        let (of_queue, of_fifo) = (time(&mut queue), time(&mut fifo));
        if turn > 0 {
            queue_ns.push(of_queue);
            fifo_ns.push(of_fifo);
        }
    }
    let (ns_per_packet, fifo_ns_per_packet) = (median(&mut queue_ns), median(&mut fifo_ns));
    let (enqueued, dropped) = queue.counts();
    Ok(Some(Cost {
        workload: name,
        qdisc: qdisc.to_owned(),
        flows: workload.flows,
        hosts: workload.hosts,
        backlog: workload.backlog,
        ns_per_packet,
        fifo_ns_per_packet,
        net_ns_per_packet: ns_per_packet - fifo_ns_per_packet,
        packets_per_s: 1e9 / ns_per_packet,
        dropped_percent: dropped as f64 * 100.0 / enqueued as f64,
    }))
}

/// Nanoseconds of processor time per packet over one turn.
fn time(steady: &mut Steady<impl Qdisc<Packet>>) -> f64 {
    const PACKETS: u64 = 5000;
    let before = thread_time_ns();
    steady.run(PACKETS);
    (thread_time_ns() - before) as f64 / PACKETS as f64
}

fn thread_time_ns() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use sqm_core::workload::{BASE, build};

    use super::*;

    #[test]
    fn the_loop_keeps_its_backlog_or_the_queues_limit() {
        for (qdisc, held) in [("cake unlimited", 100), ("pfifo limit 10", 10)] {
            let mut steady = Steady::new(build(qdisc).expect("words of tc"), BASE);
            steady.run(5000);
            assert_eq!(steady.queue().backlog().packets, held, "{qdisc}");
            let (enqueued, dropped) = steady.counts();
            assert!(enqueued >= 5000);
            assert_eq!(dropped > 0, held < 100, "{qdisc}");
        }
    }
}

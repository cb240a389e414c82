//! The report of a replay, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use sqm_core::packet::{Addresses, Tuple};

use super::capture::{Replay, Request, tin_name};
use super::source::Skipped;
use super::statistics;
use super::tally::Counts;

/// A report for programs. Units are in the names.
#[derive(Serialize)]
pub struct Report {
    qdisc: Vec<String>,
    profile: &'static str,
    seed: u64,
    link_bits_per_sec: Option<u64>,
    capture: CaptureJson,
    total: CountsJson,
    /// CAKE's tins, in the order in which `tc` shows them.
    tins: Vec<TinJson>,
    /// The flows, in the order of their first packets.
    flows: Vec<FlowJson>,
    /// The counters of each queue and class after the last packet.
    statistics: Vec<serde_json::Value>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct CaptureJson {
    file: String,
    packets: u64,
    first_ns: u64,
    skipped: Skipped,
    reordered: u64,
    /// The error that ended the capture early; absent if it was read to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<String>,
}

#[derive(Serialize)]
struct TinJson {
    name: &'static str,
    #[serde(flatten)]
    counts: CountsJson,
}

#[derive(Serialize)]
struct FlowJson {
    /// `tcp`, `udp`, another protocol's number, `not ip`, or `other` for all flows beyond the largest number that is distinguished.
    protocol: String,
    source: Option<String>,
    source_port: u16,
    destination: Option<String>,
    destination_port: u16,
    #[serde(flatten)]
    counts: CountsJson,
}

#[derive(Serialize)]
struct CountsJson {
    packets: u64,
    bytes: u64,
    sent_packets: u64,
    sent_bytes: u64,
    drops: BTreeMap<&'static str, u64>,
    marks: u64,
    /// The mean sending rate from the first arrival to the last departure.
    throughput_mbit: Option<f64>,
    delay_ms: Option<DelayJson>,
}

#[derive(Serialize)]
struct DelayJson {
    min: f64,
    median: f64,
    p95: f64,
    max: f64,
}

impl From<&Counts> for CountsJson {
    fn from(counts: &Counts) -> Self {
        Self {
            packets: counts.packets,
            bytes: counts.bytes,
            sent_packets: counts.sent_packets,
            sent_bytes: counts.sent_bytes,
            drops: counts
                .drops
                .iter()
                .map(|(reason, count)| (reason.name(), *count))
                .collect(),
            marks: counts.marks,
            throughput_mbit: counts.sent_bits_per_sec().map(|rate| rate / 1e6),
            delay_ms: delays(counts).map(|[min, median, p95, max]| DelayJson {
                min,
                median,
                p95,
                max,
            }),
        }
    }
}

/// Least, median, 95th percentile and greatest delay, milliseconds.
fn delays(counts: &Counts) -> Option<[f64; 4]> {
    let (least, most) = counts.delays.range()?;
    let (median, p95) = (counts.delays.quantile(0.5)?, counts.delays.quantile(0.95)?);
    Some([least, median, p95, most].map(|nanos| nanos as f64 / 1e6))
}

impl Report {
    /// The report of a replay and its parameters.
    pub fn new(request: &Request, replay: &Replay) -> Self {
        let flows = replay.tally.flows.iter().enumerate();
        Self {
            qdisc: request.shape.words(),
            profile: request.build.profile_name(),
            seed: request.build.seed,
            link_bits_per_sec: request.link.map(|rate| rate.bits_per_sec()),
            capture: CaptureJson {
                file: request.capture.display().to_string(),
                packets: replay.read,
                first_ns: replay.start.0,
                skipped: replay.skipped,
                reordered: replay.reordered,
                damage: replay.damage.clone(),
            },
            total: (&replay.tally.total).into(),
            tins: tins(replay)
                .map(|(name, counts)| TinJson {
                    name,
                    counts: counts.into(),
                })
                .collect(),
            flows: flows
                .map(|(number, flow)| FlowJson {
                    protocol: if is_other(replay, number) {
                        "other".to_owned()
                    } else {
                        protocol(&flow.tuple)
                    },
                    source: addresses(&flow.tuple).map(|(source, _)| source),
                    source_port: flow.tuple.source_port,
                    destination: addresses(&flow.tuple).map(|(_, destination)| destination),
                    destination_port: flow.tuple.destination_port,
                    counts: (&flow.counts).into(),
                })
                .collect(),
            statistics: replay.statistics.iter().map(statistics::of).collect(),
            warnings: replay.warnings.clone(),
        }
    }
}

/// The report for people, with the `most` largest flows.
pub fn text(request: &Request, replay: &Replay, most: usize) -> String {
    let mut text = String::new();
    for words in request.shape.words() {
        line(&mut text, format_args!("{words}"));
    }
    if let Some(link) = request.link {
        line(&mut text, format_args!("on a link of {link}"));
    }
    let total = &replay.tally.total;
    let mut summary = format!("{}: {} packets", request.capture.display(), replay.read);
    for odd in odd_packets(replay) {
        write!(summary, ", {odd}").expect("a string grows");
    }
    line(&mut text, format_args!("{summary}\n"));

    let mut rows = vec![row("all", total)];
    rows.extend(tins(replay).map(|(name, counts)| row(&format!("tin {name}"), counts)));
    let mut flows: Vec<(usize, &Counts)> = replay
        .tally
        .flows
        .iter()
        .map(|flow| &flow.counts)
        .enumerate()
        .collect();
    flows.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.bytes));
    let hidden = flows.len().saturating_sub(most);
    for (number, counts) in flows.into_iter().take(most) {
        let name = if is_other(replay, number) {
            "all other flows".to_owned()
        } else {
            name(&replay.tally.flows[number].tuple)
        };
        rows.push(row(&name, counts));
    }
    table(&mut text, &rows);
    if hidden > 0 {
        line(
            &mut text,
            format_args!("and {hidden} smaller flows; --flows shows more, --json all"),
        );
    }
    let reasons: Vec<_> = total
        .drops
        .iter()
        .map(|(reason, count)| format!("{count} {}", reason.name()))
        .collect();
    if !reasons.is_empty() {
        line(&mut text, format_args!("\ndropped: {}", reasons.join(", ")));
    }
    text
}

/// The packets that did not go through the queue as captured, with the reason.
pub fn odd_packets(replay: &Replay) -> Vec<String> {
    let skipped = replay.skipped;
    let counts = [
        (skipped.other_direction, "skipped: in another direction"),
        (skipped.zero_length, "skipped: of zero length"),
        (skipped.without_time, "skipped: without a time"),
        (
            skipped.backwards_in_time,
            "skipped: earlier than the packets before them",
        ),
        (skipped.unknown_link_type, "skipped: unsupported link type"),
        (replay.reordered, "a little out of order"),
    ];
    let odd = counts.into_iter().filter(|(count, _)| *count > 0);
    odd.map(|(count, why)| format!("{count} {why}")).collect()
}

fn is_other(replay: &Replay, number: usize) -> bool {
    replay.tally.has_other_flows && number + 1 == replay.tally.flows.len()
}

/// The tins in the order in which `tc` shows them.
fn tins(replay: &Replay) -> impl Iterator<Item = (&'static str, &Counts)> {
    replay.layout.into_iter().flat_map(|layout| {
        layout.display.iter().map(|tin| {
            (
                tin_name(layout, (*tin).into()),
                &replay.tally.tins[usize::from(*tin)],
            )
        })
    })
}

const COLUMNS: usize = 10;

const HEADINGS: [&str; COLUMNS] = [
    "", "packets", "bytes", "drops", "marks", "Mbit/s", "min ms", "median", "p95", "max",
];

fn row(name: &str, counts: &Counts) -> [String; COLUMNS] {
    let [min, median, p95, max] = delays(counts).map_or_else(
        || [const { String::new() }; 4],
        |delays| delays.map(|ms| format!("{ms:.3}")),
    );
    let rate = counts.sent_bits_per_sec();
    [
        name.to_owned(),
        counts.packets.to_string(),
        counts.bytes.to_string(),
        counts.dropped_packets().to_string(),
        counts.marks.to_string(),
        rate.map_or_else(String::new, |rate| format!("{:.3}", rate / 1e6)),
        min,
        median,
        p95,
        max,
    ]
}

fn table(text: &mut String, rows: &[[String; COLUMNS]]) {
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0).max(HEADINGS[column].len())
    });
    let mut put = |cells: [&str; COLUMNS]| {
        let mut joined = format!("{:<width$}", cells[0], width = widths[0]);
        for (cell, width) in cells.iter().zip(widths).skip(1) {
            write!(joined, "  {cell:>width$}").expect("a string grows");
        }
        line(text, format_args!("{}", joined.trim_end()));
    };
    put(HEADINGS);
    for row in rows {
        put(std::array::from_fn(|column| row[column].as_str()));
    }
}

fn name(tuple: &Tuple) -> String {
    let Some((source, destination)) = addresses(tuple) else {
        return protocol(tuple);
    };
    let end = |address: String, port: u16| match (port, address.contains(':')) {
        (0, _) => address,
        (port, false) => format!("{address}:{port}"),
        (port, true) => format!("[{address}]:{port}"),
    };
    format!(
        "{} {} > {}",
        protocol(tuple),
        end(source, tuple.source_port),
        end(destination, tuple.destination_port)
    )
}

fn addresses(tuple: &Tuple) -> Option<(String, String)> {
    match tuple.addresses {
        Addresses::V4 { source, destination } => Some((source.to_string(), destination.to_string())),
        Addresses::V6 { source, destination } => Some((source.to_string(), destination.to_string())),
        Addresses::None => None,
    }
}

fn protocol(tuple: &Tuple) -> String {
    match (tuple.addresses, tuple.protocol) {
        (Addresses::None, _) => "not ip".to_owned(),
        (_, 1) => "icmp".to_owned(),
        (_, 6) => "tcp".to_owned(),
        (_, 17) => "udp".to_owned(),
        (_, 58) => "icmpv6".to_owned(),
        (_, number) => format!("protocol {number}"),
    }
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    writeln!(text, "{arguments}").expect("a string grows");
}

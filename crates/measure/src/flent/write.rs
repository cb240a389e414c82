//! Writes a result as a Flent file.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};
use sqm_core::direction::Direction;

use super::format::{OWN_KEY, VERSION};
use crate::calendar;
use crate::result::{Flow, Probe, ProbeKind, ProbeSeries, TcpSample, TestResult, Transport};
use crate::stats;

/// Step of Flent's grid of times, in seconds.
const STEP_S: f64 = 0.2;
/// Flent bridges gaps of up to five steps.
const BRIDGED_STEPS: f64 = 5.0;
/// Largest number of steps of the grid: longer tests than any server allows would fill the memory. A choice.
const MAX_STEPS: usize = 100_000;
/// Longest file name, bytes: Flent's limit, below the 255 of most file systems.
const MAX_NAME: usize = 250;

/// The text of the file, before compression.
pub fn to_json(result: &TestResult) -> String {
    let writer = Writer::new(result);
    serde_json::to_string(&writer.file())
        .expect("a result has no keys but strings and no failing serializers")
}

/// The file name that Flent would use: test, time, title.
pub fn file_name(result: &TestResult) -> String {
    let meta = &result.meta;
    let time = calendar::iso_microseconds(meta.start_unix.unwrap_or(0.0), "").replace(':', "");
    let head = format!("{}-{time}", safe(&meta.test));
    let title = meta.title.as_deref().map(safe).unwrap_or_default();
    let dot = if title.is_empty() { "" } else { "." };
    let room = MAX_NAME.saturating_sub(head.len() + dot.len() + SUFFIX.len());
    let title: String = title.chars().take(room).collect();
    format!("{head}{dot}{title}{SUFFIX}")
}

const SUFFIX: &str = ".flent.gz";

fn safe(text: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
    text.chars().map(|c| if allowed(c) { c } else { '_' }).collect()
}

/// The file.
#[derive(Serialize)]
struct File {
    metadata: Map<String, Value>,
    raw_values: BTreeMap<String, Vec<Raw>>,
    results: BTreeMap<String, Vec<Option<f64>>>,
    version: u64,
    x_values: Vec<f64>,
}

/// A sample. Each kind of series has some of these members.
#[derive(Clone, Default, Serialize)]
struct Raw {
    t: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    val: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owd_up: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owd_down: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost_dir: Option<Option<&'static str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp_cwnd: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp_rtt: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp_rtt_var: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp_pacing_rate: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp_delivery_rate: Option<f64>,
}

/// Builds a file.
struct Writer<'a> {
    result: &'a TestResult,
    /// Time of x = 0, in seconds since 1970.
    t0: f64,
    /// Time of x = 0, in milliseconds since the load began.
    t0_ms: f64,
    x_values: Vec<f64>,
    raw: BTreeMap<String, Vec<Raw>>,
    results: BTreeMap<String, Vec<Option<f64>>>,
    series_meta: Map<String, Value>,
}

impl<'a> Writer<'a> {
    fn new(result: &'a TestResult) -> Self {
        let (from, to) = span(result);
        let steps = (((to - from) / 1000.0 / STEP_S).ceil() as usize).min(MAX_STEPS);
        Self {
            result,
            t0: result.meta.start_unix.unwrap_or(0.0) + from / 1000.0,
            t0_ms: from,
            x_values: (0..=steps).map(|k| round(k as f64 * STEP_S, 6)).collect(),
            raw: BTreeMap::new(),
            results: BTreeMap::new(),
            series_meta: Map::new(),
        }
    }

    fn file(mut self) -> File {
        for flow in &self.result.flows {
            self.flow(flow);
        }
        for direction in Direction::BOTH {
            self.totals(direction);
        }
        self.both_totals();
        for series in &self.result.probes {
            self.probes(&series.name, series);
        }
        self.only_icmp();
        self.mean_ping();
        for series in &self.result.evidence {
            let points: Vec<_> = series
                .samples
                .iter()
                .filter_map(|(t, v)| Some((*t, (*v)?)))
                .collect();
            self.extra(&series.name, &series.unit, &points);
        }
        File {
            metadata: self.metadata(),
            raw_values: self.raw,
            results: self.results,
            version: VERSION,
            x_values: self.x_values,
        }
    }

    fn flow(&mut self, flow: &Flow) {
        let mut raw = Vec::new();
        let mut begin = 0.0;
        for sample in &flow.samples {
            let length = sample.t_ms - begin;
            if length > 0.0 {
                raw.push(Raw {
                    dur: Some(round(length / 1000.0, 6)),
                    val: Some(round(sample.bytes as f64 * 8.0 / 1000.0 / length, 6)),
                    ..self.at(sample.t_ms)
                });
            }
            begin = sample.t_ms;
        }
        for tcp in &flow.sender {
            raw.push(Raw {
                tcp_cwnd: tcp.cwnd,
                tcp_rtt: tcp.rtt_ms,
                tcp_rtt_var: tcp.rttvar_ms,
                tcp_pacing_rate: tcp.pacing_mbit,
                tcp_delivery_rate: tcp.delivery_mbit,
                ..self.at(tcp.t_ms)
            });
        }
        raw.sort_by(|a, b| a.t.total_cmp(&b.t));
        self.raw.insert(flow.name.clone(), raw);
        let end = flow.samples.last().map_or(0.0, |sample| sample.t_ms);
        let on_grid = self.grid(|t| {
            let (from, to) = ((t - STEP_S * 1000.0).max(0.0), t.min(end));
            (to > from).then(|| round(flow.mbit_between(from, to), 6))
        });
        let mean = flow.mbit_between(0.0, end);
        self.series(&flow.name, "Mbits/s", on_grid, Some(mean));
        self.flow_meta(flow, end);
        type Value = fn(&TcpSample) -> Option<f64>;
        let tcp: [(&str, &str, Value); 5] = [
            ("tcp_cwnd", "segments", |s| s.cwnd),
            ("tcp_rtt", "ms", |s| s.rtt_ms),
            ("tcp_rtt_var", "ms", |s| s.rttvar_ms),
            ("tcp_pacing_rate", "Mbits/s", |s| s.pacing_mbit),
            ("tcp_delivery_rate", "Mbits/s", |s| s.delivery_mbit),
        ];
        for (name, unit, value) in tcp {
            let points: Vec<_> = flow
                .sender
                .iter()
                .filter_map(|s| Some((s.t_ms, value(s)?)))
                .collect();
            if !points.is_empty() {
                let on_grid = self.interpolated(&points);
                let mean = stats::mean(&points.iter().map(|(_, v)| *v).collect::<Vec<_>>());
                self.series(&format!("{}::{name}", flow.name), unit, on_grid, mean);
            }
        }
    }

    fn flow_meta(&mut self, flow: &Flow, end_ms: f64) {
        let entry = self.meta_of(&flow.name);
        let bytes: u64 = flow.samples.iter().map(|sample| sample.bytes).sum();
        entry.insert("BYTES_RECVD".into(), bytes.into());
        entry.insert("ELAPSED_TIME".into(), (end_ms / 1000.0).into());
        if flow.transport == Transport::Tcp {
            entry.insert("CONG_CONTROL".into(), flow.congestion.as_str().into());
        }
        let tos = format!("0x{:02x}", flow.dscp << 2);
        for key in ["UPSTREAM_TOS", "DOWNSTREAM_TOS", "DATA_TOS"] {
            entry.insert(key.into(), tos.as_str().into());
        }
        if let Some(mss) = flow.mss {
            entry.insert("TCP_MSS".into(), mss.into());
        }
        if let Some(totals) = flow.totals {
            entry.insert("BYTES_SENT".into(), totals.bytes_sent.into());
            entry.insert("TCP_RETRANSMIT".into(), totals.retransmits.into());
        }
    }

    /// Sum, mean and fairness of the flows of one direction. They are computed on the common grid, so that no flow is missing from a
    /// sum because of the times of its samples.
    fn totals(&mut self, direction: Direction) {
        let flows: Vec<&str> = self
            .result
            .flows(direction)
            .map(|flow| flow.name.as_str())
            .collect();
        // Flent computes these only for tests that can have more than one flow.
        if matches!(
            self.result.meta.test.as_str(),
            "tcp_upload" | "tcp_download" | "tcp_bidirectional"
        ) || flows.is_empty()
        {
            return;
        }
        let way = way(direction);
        let rates: Vec<Vec<f64>> = (0..self.x_values.len())
            .map(|k| flows.iter().filter_map(|name| self.results[*name][k]).collect())
            .collect();
        let total = |rates: &Vec<f64>| (!rates.is_empty()).then(|| round(rates.iter().sum(), 6));
        let mean = |rates: &Vec<f64>| stats::mean(rates).map(|v| round(v, 6));
        let fairness = |rates: &Vec<f64>| stats::jain(rates).map(|v| round(v, 6));
        let sum = rates.iter().map(total).collect();
        self.computed(&format!("{way} sum"), "Mbits/s", sum);
        self.computed(&format!("{way} avg"), "Mbits/s", rates.iter().map(mean).collect());
        self.computed(
            &format!("{way} fairness"),
            "Idx",
            rates.iter().map(fairness).collect(),
        );
    }

    fn both_totals(&mut self) {
        let sums = Direction::BOTH.map(|d| self.results.get(&format!("{} sum", way(d))));
        let [Some(down), Some(up)] = sums else { return };
        let both = down.iter().zip(up).map(|(a, b)| match (a, b) {
            (Some(a), Some(b)) => Some(round(a + b, 6)),
            _ => a.or(*b),
        });
        let both = both.collect();
        self.computed("TCP totals", "Mbits/s", both);
    }

    fn probes(&mut self, name: &str, series: &ProbeSeries) {
        let raw = series
            .samples
            .iter()
            .enumerate()
            .map(|(seq, probe)| self.probe(seq, probe))
            .collect();
        self.raw.insert(name.to_owned(), raw);
        let points = arrivals(series);
        let rtts: Vec<f64> = points.iter().map(|(_, rtt)| *rtt).collect();
        let on_grid = self.interpolated(&points);
        self.series(name, "ms", on_grid, stats::mean(&rtts));
        let (sent, received) = (series.samples.len(), rtts.len());
        let runner = match series.kind {
            ProbeKind::Udp | ProbeKind::Voip => "sqm: UDP echo",
            ProbeKind::Icmp => "sqm: ICMP echo",
            ProbeKind::Tcp => "sqm: TCP handshake",
            ProbeKind::Http => "sqm: HTTP request",
        };
        let entry = self.meta_of(name);
        entry.insert("RUNNER".into(), runner.into());
        entry.insert("PACKETS_SENT".into(), sent.into());
        entry.insert("PACKETS_RECEIVED".into(), received.into());
        if sent > 0 {
            let share = (sent - received) as f64 / sent as f64;
            entry.insert("PACKET_LOSS_RATE".into(), round(share, 6).into());
        }
        for (key, p) in [("RTT_MIN", 0.0), ("RTT_MEDIAN", 50.0), ("RTT_MAX", 100.0)] {
            if let Some(value) = stats::percentile(&rtts, p) {
                entry.insert(key.into(), round(value, 6).into());
            }
        }
    }

    fn probe(&self, seq: usize, probe: &Probe) -> Raw {
        match probe.rtt_ms {
            Some(rtt) => Raw {
                seq: Some(seq),
                val: Some(rtt),
                owd_up: probe.up_ms,
                owd_down: probe.down_ms,
                ..self.at(probe.t_ms + rtt)
            },
            None => Raw {
                seq: Some(seq),
                lost: Some(true),
                lost_dir: Some(probe.lost.map(|direction| match direction {
                    Direction::Upload => "up",
                    Direction::Download => "down",
                })),
                ..self.at(probe.t_ms)
            },
        }
    }

    /// Flent's plain TCP tests have latency under the name of ICMP only, and would show none without it. If there is no ICMP series,
    /// the first series is written under that name, too. Its metadata says how it was measured.
    fn only_icmp(&mut self) {
        const NAME: &str = "Ping (ms) ICMP";
        let first = self.result.probes.first();
        if let Some(series) = first.filter(|_| self.result.meta.test.starts_with("tcp_"))
            && !self.raw.contains_key(NAME)
        {
            self.probes(NAME, series);
        }
    }

    fn mean_ping(&mut self) {
        let names: Vec<String> = self
            .raw
            .keys()
            .filter(|name| name.starts_with("Ping (ms)"))
            .cloned()
            .collect();
        let mean = |k: usize| {
            let values: Vec<f64> = names.iter().filter_map(|name| self.results[name][k]).collect();
            stats::mean(&values).map(|v| round(v, 6))
        };
        let means = (0..self.x_values.len()).map(mean).collect();
        if !names.is_empty() {
            self.computed("Ping (ms) avg", "ms", means);
        }
    }

    fn extra(&mut self, name: &str, unit: &str, points: &[(f64, f64)]) {
        let raw = points
            .iter()
            .map(|(t, value)| Raw {
                val: Some(*value),
                ..self.at(*t)
            })
            .collect();
        self.raw.insert(name.to_owned(), raw);
        let on_grid = self.interpolated(points);
        let mean = stats::mean(&points.iter().map(|(_, v)| *v).collect::<Vec<_>>());
        self.series(name, unit, on_grid, mean);
    }

    fn at(&self, t_ms: f64) -> Raw {
        Raw {
            t: round(self.t0 + (t_ms - self.t0_ms) / 1000.0, 6),
            ..Raw::default()
        }
    }

    fn grid(&self, value: impl Fn(f64) -> Option<f64>) -> Vec<Option<f64>> {
        self.x_values
            .iter()
            .map(|x| value(self.t0_ms + x * 1000.0))
            .collect()
    }

    /// Interpolates linearly between neighbours, as Flent does on its grid.
    fn interpolated(&self, points: &[(f64, f64)]) -> Vec<Option<f64>> {
        let bridged = BRIDGED_STEPS * STEP_S * 1000.0;
        self.grid(|t| {
            let next = points.partition_point(|(at, _)| *at < t);
            match (next.checked_sub(1).map(|i| points[i]), points.get(next)) {
                (_, Some((at, value))) if *at == t => Some(*value),
                (Some((t1, v1)), Some((t2, v2))) if t2 - t1 <= bridged => {
                    Some(round(v1 + (v2 - v1) * (t - t1) / (t2 - t1), 6))
                }
                (None, Some((at, value))) if at - t <= STEP_S * 500.0 => Some(*value),
                _ => None,
            }
        })
    }

    fn computed(&mut self, name: &str, unit: &str, on_grid: Vec<Option<f64>>) {
        let present: Vec<f64> = on_grid.iter().copied().flatten().collect();
        self.raw.insert(name.to_owned(), Vec::new());
        self.series(name, unit, on_grid, stats::mean(&present));
        self.meta_of(name).insert("COMPUTED_LATE".into(), false.into());
    }

    fn series(&mut self, name: &str, unit: &str, on_grid: Vec<Option<f64>>, mean: Option<f64>) {
        self.results.insert(name.to_owned(), on_grid);
        let index = self.series_meta.len();
        let entry = self.meta_of(name);
        entry.insert("IDX".into(), index.into());
        entry.insert("UNITS".into(), unit.into());
        entry.entry("RUNNER").or_insert_with(|| "sqm".into());
        if let Some(mean) = mean {
            entry.insert("MEAN_VALUE".into(), round(mean, 6).into());
        }
    }

    fn meta_of(&mut self, name: &str) -> &mut Map<String, Value> {
        let entry = self
            .series_meta
            .entry(name)
            .or_insert_with(|| Value::Object(Map::new()));
        entry.as_object_mut().expect("only objects are put there")
    }

    fn metadata(&self) -> Map<String, Value> {
        let meta = &self.result.meta;
        let last = self.x_values.last().copied().unwrap_or(0.0);
        let ip_version = if meta.remote.starts_with('[') { 6 } else { 4 };
        let value = json!({
            "BATCH_NAME": null, "BATCH_TIME": null, "BATCH_TITLE": null, "BATCH_UUID": null,
            "DATA_FILENAME": file_name(self.result),
            "FAILED_RUNNERS": 0,
            "HOST": meta.host,
            "HOSTS": [meta.host],
            "IP_VERSION": ip_version,
            "KERNEL_NAME": "Linux",
            "KERNEL_RELEASE": meta.kernel,
            "LENGTH": whole(meta.settings.load_ms as f64 / 1000.0),
            "LOCAL_HOST": if meta.local_host.is_empty() { &meta.local } else { &meta.local_host },
            "NAME": meta.test,
            "NOTE": meta.partial.as_ref().map(|reason| format!("cut short: {reason}")),
            "SERIES_META": self.series_meta,
            "STEP_SIZE": STEP_S,
            "T0": calendar::iso_microseconds(self.t0, "Z"),
            "TEST_PARAMETERS": self.test_parameters(),
            "TIME": calendar::iso_microseconds(self.t0, "Z"),
            "TITLE": meta.title,
            "TOTAL_LENGTH": whole(last),
            OWN_KEY: self.result,
        });
        match value {
            Value::Object(map) => map,
            _ => unreachable!("an object was written"),
        }
    }

    /// The parameters that Flent's test definitions use. Flent keeps all of them as text.
    fn test_parameters(&self) -> BTreeMap<String, String> {
        let settings = &self.result.meta.settings;
        let mut parameters = self.result.meta.parameters.clone();
        parameters.insert("download_streams".into(), settings.down.to_string());
        parameters.insert("upload_streams".into(), settings.up.to_string());
        if let Some(congestion) = &settings.congestion {
            parameters.insert("tcp_cong_control".into(), congestion.clone());
        }
        parameters
    }
}

fn way(direction: Direction) -> &'static str {
    match direction {
        Direction::Download => "TCP download",
        Direction::Upload => "TCP upload",
    }
}

/// First and last moment of the test, in milliseconds since the load began.
fn span(result: &TestResult) -> (f64, f64) {
    let first = result.phases.first().map_or(0.0, |phase| phase.from_ms);
    let last = result.phases.last().map_or(0.0, |phase| phase.to_ms);
    let probes = result.probes.iter().flat_map(|series| &series.samples);
    let earliest = probes.map(|probe| probe.t_ms).fold(first, f64::min);
    (earliest, last.max(earliest))
}

/// Times of arrival in order, each with its round trip.
fn arrivals(series: &ProbeSeries) -> Vec<(f64, f64)> {
    let mut points: Vec<_> = series
        .samples
        .iter()
        .filter_map(|p| Some((p.t_ms + p.rtt_ms?, p.rtt_ms?)))
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// Seconds as Flent writes them: whole ones without a decimal point.
fn whole(seconds: f64) -> Value {
    if seconds.fract() == 0.0 {
        (seconds as u64).into()
    } else {
        seconds.into()
    }
}

fn round(value: f64, digits: i32) -> f64 {
    let factor = 10_f64.powi(digits);
    (value * factor).round() / factor
}

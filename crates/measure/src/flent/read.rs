//! Reads a Flent file as a result.

mod intervals;
mod numbers;
mod parts;
mod spans;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use serde_json::value::RawValue;
use sqm_core::direction::Direction;

use intervals::Intervals;
use numbers::{SANE, delay, differences, numbers, round, sane};
use parts::{File, Raw, SeriesMeta, each_of, parse, small};

use super::format::{DELAY_S, OWN_KEY, VERSION};
use crate::foreign::MAX_REASON;
use crate::result::plausibility::{self, MAX_LATENCY_MS, MAX_MBIT, within};
use crate::result::{
    Finding, Flow, LoadOrder, MAX_TITLE, Meta, Probe, ProbeKind, ProbeSeries, Sample, Series, Settings,
    Severity, TcpSample, TestResult, Transport,
};
use crate::room::{Few, Room};
use crate::{calendar, foreign};

/// Probes missing from a numbered series count as lost, up to this many in a row. A choice.
const MAX_GAP: f64 = 10_000.0;

/// Longest sample of a series of another kind, and longest list of parameters, bytes. Choices.
const MAX_SAMPLE: usize = 64 << 10;
const MAX_PARAMETERS: usize = 256 << 10;
/// A parameter keeps at most this many characters.
const MAX_PARAMETER: usize = 4000;
/// Largest number of moments on the grid of a file of version 1. A choice.
const MAX_GRID: usize = 200_000;
/// A unit keeps at most this many characters.
const MAX_UNIT: usize = 40;
/// An invalid version is shown with at most this many characters.
const MAX_VERSION: usize = 40;
/// Memory of a name and an empty list, bytes, roughly.
const SERIES: usize = 200;

/// Reads the text of a file. The error says, for people, what is wrong with it.
pub fn from_json(text: &str) -> Result<TestResult, String> {
    from_json_within(text, &Room::default())
}

pub(crate) fn from_json_within(text: &str, room: &Room) -> Result<TestResult, String> {
    let brief = |reason: String| foreign::brief(&reason, MAX_REASON);
    let file: File<'_> = serde_json::from_str(text).map_err(|e| brief(e.to_string()))?;
    if let Some(own) = file.metadata.0.get(OWN_KEY) {
        return TestResult::from_json_within(own.get(), room)
            .map_err(|e| format!("its part '{OWN_KEY}': {e}"));
    }
    let version = match file.version {
        None => 1,
        Some(raw) => small(raw)
            .and_then(|version| version.as_u64())
            .filter(|version| (1..=VERSION).contains(version))
            .ok_or_else(|| {
                let version = foreign::brief(raw.get(), MAX_VERSION);
                format!("its version is {version}; this program reads Flent's versions 1 to {VERSION}")
            })?,
    };
    // The reader counts its memory on a copy of `room`. The caller takes the memory of the complete result.
    let reader = Reader::new(&file, version, room.clone()).map_err(brief)?;
    reader.read().map_err(brief)
}

/// The kind of a series.
enum Kind {
    Flow(Direction, Transport),
    Probes(ProbeKind),
    /// Computed from other series: sums and means.
    Computed,
    Other,
}

/// The intervals of netperf's UDP_RR that are no round trips.
#[derive(Default)]
struct Stalled {
    count: usize,
    longest_s: f64,
}

impl Stalled {
    fn finding(&self) -> Option<Finding> {
        let text = format!(
            "intervals of netperf's UDP_RR that are no round trips are left out: {}, the longest of {:.1} s; it stops at the first lost \
             packet",
            self.count, self.longest_s
        );
        (self.count > 0).then(|| Finding::new(Severity::Warning, "probes_stalled", text))
    }
}

struct Reader<'a> {
    file: &'a File<'a>,
    version: u64,
    room: Room,
    series_meta: BTreeMap<String, SeriesMeta<'a>>,
    step_s: f64,
    /// Length of the idle phases before and after the load, in seconds.
    delay_s: f64,
    length_s: f64,
    /// When the load began, in seconds since 1970.
    start: f64,
    /// The servers of the test.
    hosts: Vec<String>,
}

impl<'a> Reader<'a> {
    fn new(file: &'a File<'a>, version: u64, room: Room) -> Result<Self, String> {
        let series_meta = match file.metadata.0.get("SERIES_META") {
            Some(raw) => parse::<Few<SeriesMeta<'a>>>(raw, "SERIES_META")?.0,
            None => BTreeMap::new(),
        };
        let number = |key| -> Option<f64> {
            let value = small(file.metadata.0.get(key)?)?;
            value.as_f64().filter(|n| (0.0..SANE).contains(n))
        };
        let length_s = number("LENGTH").ok_or("metadata has no LENGTH")?;
        let delay_s = match number("TOTAL_LENGTH") {
            Some(total) if total >= length_s => (total - length_s) / 2.0,
            _ => DELAY_S,
        };
        let step_s = number("STEP_SIZE").filter(|step| *step > 0.0).unwrap_or(0.2);
        let mut reader = Self {
            file,
            version,
            room,
            series_meta,
            step_s,
            delay_s,
            length_s,
            start: 0.0,
            hosts: Vec::new(),
        };
        reader.hosts = reader.hosts();
        reader.start = reader.t0()? + delay_s;
        Ok(reader)
    }

    fn read(self) -> Result<TestResult, String> {
        let mut flows = Vec::new();
        let mut probes = Vec::new();
        let mut evidence = Vec::new();
        let (mut findings, mut stalled) = (Vec::new(), Stalled::default());
        for name in self.names() {
            match self.kind(&name) {
                Kind::Flow(direction, transport) => {
                    flows.push(self.flow(&name, direction, transport)?);
                }
                Kind::Probes(ProbeKind::Voip) if self.is_one_way(&name)? => {
                    let text = format!(
                        "{name} has one-way delays only (D-ITG): its packets are not among the figures"
                    );
                    findings.push(Finding::new(Severity::Note, "voip_one_way", text));
                    evidence.extend(self.other(&name)?);
                }
                Kind::Probes(kind) => probes.push(self.probes(&name, kind, &mut stalled)?),
                Kind::Computed => {}
                Kind::Other => evidence.extend(self.other(&name)?),
            }
        }
        flows.retain(|flow| !flow.samples.is_empty());
        probes.retain(|series| !series.samples.is_empty());
        if flows.is_empty() && probes.is_empty() && evidence.is_empty() {
            return Err("it holds no samples".to_owned());
        }
        flows.sort_by_key(|flow| flow.direction);
        let meta = self.meta(&flows, &probes)?;
        let mut result = TestResult::new(meta, Vec::new(), flows, probes);
        plausibility::check_samples(&result)?;
        plausibility::check_figures(&result)?;
        result.evidence = evidence;
        result.findings = findings;
        result.findings.extend(stalled.finding());
        if result.flows(Direction::Upload).next().is_some() {
            result.findings.push(Finding {
                severity: Severity::Note,
                code: "counted_at_sender".to_owned(),
                text: "Flent counts uploads at the sender: data that was still in buffers at the end is included"
                    .to_owned(),
            });
        }
        Ok(result)
    }

    fn meta(&self, flows: &[Flow], probes: &[ProbeSeries]) -> Result<Meta, String> {
        let test = self.text("NAME").ok_or("metadata has no NAME")?;
        let count = |direction| flows.iter().filter(|flow| flow.direction == direction).count() as u32;
        let ms = |seconds: f64| (seconds * 1000.0).round() as u64;
        let load_ms = ms(self.length_s);
        let mut congestion: Vec<_> = flows.iter().map(|flow| flow.congestion.clone()).collect();
        congestion.dedup();
        let settings = Settings {
            down: count(Direction::Download),
            up: count(Direction::Upload),
            idle_ms: ms(self.delay_s),
            load_ms,
            load_order: LoadOrder::Together,
            after_ms: ms(self.delay_s),
            // A fifth of the load, at most two seconds, for the flows to find their rate.
            settle_ms: (load_ms / 5).min(2000),
            probe_interval_ms: probes
                .first()
                .map_or(0, |series| series.interval_ms.round() as u64),
            congestion: match congestion.as_slice() {
                [one] if !one.is_empty() => Some(one.clone()),
                _ => None,
            },
            dscp: marks(flows),
            mss: None,
            ecn: None,
        };
        let program = self
            .text("FLENT_VERSION")
            .or_else(|| self.text("NETPERF_WRAPPER_VERSION"));
        Ok(Meta {
            test,
            title: self
                .text("TITLE")
                .filter(|title| !title.is_empty())
                .map(|title| title.chars().take(MAX_TITLE).collect()),
            time: calendar::iso_seconds(self.start),
            start_unix: Some(self.start),
            host: self.text("HOST").unwrap_or_default(),
            local_host: self.text("LOCAL_HOST").unwrap_or_default(),
            program: format!("Flent {}", program.unwrap_or_default())
                .trim_end()
                .to_owned(),
            kernel: self.text("KERNEL_RELEASE").unwrap_or_default(),
            settings,
            parameters: self.parameters(),
            ..Meta::default()
        })
    }

    /// The parameters of the test, and the user's note. The rest of the metadata is not read.
    fn parameters(&self) -> BTreeMap<String, String> {
        let raw = self.file.metadata.0.get("TEST_PARAMETERS");
        let raw = raw.filter(|raw| raw.get().len() <= MAX_PARAMETERS);
        let given: BTreeMap<String, Value> = raw
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default();
        let plain = |value: Value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let given = given
            .into_iter()
            .map(|(key, value)| (foreign::printable(&key).into_owned(), plain(value)));
        let note = self.text("NOTE").map(|note| ("note".to_owned(), note));
        let version = self
            .text("IP_VERSION")
            .map(|version| ("ip_version".to_owned(), version));
        let all = given.chain(note).chain(version);
        let brief = |text: &str| text.chars().take(MAX_PARAMETER).collect::<String>();
        all.map(|(key, text)| (key, foreign::printable_lines(&brief(&text)).into_owned()))
            .collect()
    }

    /// A text or a number in the metadata, as text.
    fn text(&self, key: &str) -> Option<String> {
        let raw = self.file.metadata.0.get(key)?;
        if raw.get().starts_with('"') {
            let text: Cow<'_, str> = serde_json::from_str(raw.get()).ok()?;
            return Some(foreign::printable_lines(&text).into_owned());
        }
        match small(raw)? {
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }

    /// The time of x = 0, in seconds since 1970.
    fn t0(&self) -> Result<f64, String> {
        let noted = self.text("T0").or_else(|| self.text("TIME"));
        let first = self.first_sample()?;
        let Some((time, utc)) = noted.as_deref().and_then(calendar::parse) else {
            return first.ok_or_else(|| "it has neither a start time nor times of its samples".to_owned());
        };
        match first {
            // Older files have local time without its zone: it differs from the times of the samples by whole hours.
            Some(first) if !utc => Ok(time + ((first - time) / 3600.0).round() * 3600.0),
            _ => Ok(time),
        }
    }

    fn first_sample(&self) -> Result<Option<f64>, String> {
        let mut first: Option<f64> = None;
        for name in self.names() {
            self.each_raw(&name, &mut |raw| {
                let t = raw.t.filter(|t| (0.0..1e11).contains(t));
                first = t.into_iter().chain(first).reduce(f64::min);
                Ok(())
            })?;
        }
        Ok(first)
    }

    fn names(&self) -> BTreeSet<String> {
        let mut names: BTreeSet<String> = self.file.raw_values.0.keys().cloned().collect();
        if self.version == 1 {
            names.extend(self.file.results.0.keys().cloned());
            names.extend(self.series_meta.keys().cloned());
        }
        names
    }

    fn kind(&self, name: &str) -> Kind {
        let lower = name.to_lowercase();
        let meta = self.series_meta.get(name);
        let computed = [" avg", " sum", " fairness", "totals"];
        if computed.iter().any(|end| lower.ends_with(end)) || name.contains("::tcp_") {
            return Kind::Computed;
        }
        if lower.starts_with("ping (ms)") {
            return Kind::Probes(if lower.contains("udp") {
                ProbeKind::Udp
            } else {
                ProbeKind::Icmp
            });
        }
        match lower.as_str() {
            "voip" => return Kind::Probes(ProbeKind::Voip),
            "http latency" => return Kind::Probes(ProbeKind::Http),
            _ => {}
        }
        let is_rate = meta
            .and_then(|m| m.units.as_deref())
            .is_none_or(|units| units == "Mbits/s");
        let transport = match lower.split(' ').next() {
            Some("tcp" | "sctp") => Transport::Tcp,
            Some("udp") => Transport::Udp,
            _ => return Kind::Other,
        };
        let command = meta.and_then(|m| m.command.as_deref()).unwrap_or_default();
        let direction = if lower.contains("download") || command.contains("_MAERTS") {
            Direction::Download
        } else if lower.contains("upload") || command.contains("_STREAM") {
            Direction::Upload
        } else {
            return Kind::Other;
        };
        if is_rate {
            Kind::Flow(direction, transport)
        } else {
            Kind::Other
        }
    }

    fn flow(&self, name: &str, direction: Direction, transport: Transport) -> Result<Flow, String> {
        let meta = self.series_meta.get(name);
        let mss = meta.and_then(|m| m.mss).and_then(small);
        let (mut intervals, mut sender) = (Intervals::new(self.step_s), Vec::new());
        self.each(name, &mut |raw| {
            if let Some(mbit) = raw.val {
                within(&format!("a rate of '{name}'"), mbit, (0.0, MAX_MBIT), "Mbit/s")?;
            }
            self.room
                .take(intervals.take(raw.t.map(|t| self.ms(t)), &raw) * size_of::<Sample>())?;
            if let Some(sample) = self.tcp(&raw) {
                self.room.take(size_of_val(&sample))?;
                sender.push(sample);
            }
            Ok(())
        })?;
        Ok(Flow {
            transport,
            congestion: meta.and_then(|m| m.congestion.clone()).unwrap_or_default(),
            dscp: mark(name),
            mss: mss
                .and_then(|v| v.as_u64().or_else(|| v.as_str()?.parse().ok()))
                .and_then(|n| u32::try_from(n).ok()),
            samples: intervals.samples,
            sender,
            ..Flow::new(name, direction)
        })
    }

    fn tcp(&self, raw: &Raw) -> Option<TcpSample> {
        let known = [
            raw.tcp_cwnd,
            raw.tcp_rtt,
            raw.tcp_delivery_rate,
            raw.tcp_pacing_rate,
        ];
        known.iter().any(Option::is_some).then_some(())?;
        Some(TcpSample {
            t_ms: self.ms(raw.t?),
            rtt_ms: sane(raw.tcp_rtt),
            rttvar_ms: sane(raw.tcp_rtt_var),
            cwnd: sane(raw.tcp_cwnd),
            delivery_mbit: sane(raw.tcp_delivery_rate),
            pacing_mbit: sane(raw.tcp_pacing_rate),
            ..TcpSample::default()
        })
    }

    fn probes(&self, name: &str, kind: ProbeKind, stalled: &mut Stalled) -> Result<ProbeSeries, String> {
        let interval_ms = match kind {
            ProbeKind::Voip => 20.0,
            _ => self.step_s * 1000.0,
        };
        let mut samples = Vec::new();
        let mut last_seq: Option<f64> = None;
        let mut spans: Vec<f64> = Vec::new();
        self.each(name, &mut |raw| {
            let Some(t) = raw.t else { return Ok(()) };
            let lost = raw.lost == Some(true);
            if let Some(rtt) = raw.val.filter(|_| !lost) {
                within(
                    &format!("a round trip of '{name}'"),
                    rtt,
                    (0.0, MAX_LATENCY_MS),
                    "ms",
                )?;
            }
            let Some(rtt) = sane(raw.val).or_else(|| lost.then_some(0.0)) else {
                return Ok(());
            };
            // An answered probe has the time of its arrival, a lost one that of its sending.
            let t_ms = round(self.ms(t) - rtt);
            if t_ms.abs() > SANE * 1000.0 {
                return Ok(());
            }
            if let (Some(last), Some(seq)) = (last_seq, raw.seq) {
                let missing = seq - last - 1.0;
                let missing = if (0.0..MAX_GAP).contains(&missing) {
                    missing as u32
                } else {
                    0
                };
                self.room.take(missing as usize * size_of::<Probe>())?;
                samples.extend((1..=missing).rev().map(|n| at(t_ms - f64::from(n) * interval_ms)));
            }
            last_seq = raw.seq.or(last_seq);
            self.room.take(size_of::<Probe>())?;
            if let Some(span) = raw.dur {
                self.room.take(size_of_val(&span))?;
                spans.push(span);
            }
            samples.push(Probe {
                rtt_ms: (!lost).then_some(rtt),
                up_ms: delay(raw.owd_up),
                down_ms: delay(raw.owd_down),
                lost: match raw.lost_dir.as_deref() {
                    Some("up") => Some(Direction::Upload),
                    Some("down") => Some(Direction::Download),
                    _ => None,
                },
                ..at(t_ms)
            });
            Ok(())
        })?;
        // Only series of netperf's UDP_RR have intervals, and then all of their samples have one.
        if spans.len() == samples.len() {
            for place in spans::stalled(&spans, self.step_s).into_iter().rev() {
                samples.remove(place);
                stalled.count += 1;
                stalled.longest_s = stalled.longest_s.max(spans[place]);
            }
        }
        // A stable sort would take half as much memory again.
        samples.sort_unstable_by(|a, b| a.t_ms.total_cmp(&b.t_ms));
        Ok(ProbeSeries {
            name: name.to_owned(),
            kind,
            dscp: mark(name),
            peer: self.peer(name),
            interval_ms,
            samples,
            ..ProbeSeries::default()
        })
    }

    /// The servers that the metadata names.
    fn hosts(&self) -> Vec<String> {
        let raw = self.file.metadata.0.get("HOSTS");
        let raw = raw.filter(|raw| raw.get().len() <= MAX_PARAMETERS);
        raw.and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default()
    }

    /// The server in the name of a series: Flent names it in tests with several servers.
    fn peer(&self, name: &str) -> Option<String> {
        let is_server = |word: &&str| {
            self.hosts.iter().any(|host| host == word)
                || word.contains(['.', ':'])
                || ["IPv4", "IPv6"].contains(word)
        };
        let words = name.strip_prefix("Ping (ms) ")?.split(' ');
        words
            .skip(1)
            .find(is_server)
            .map(|word| foreign::brief(word, MAX_TITLE))
    }

    /// True if the samples are one-way delays: those of D-ITG, unlike irtt's, have the size of their packet.
    fn is_one_way(&self, name: &str) -> Result<bool, String> {
        let mut is_one_way = false;
        self.each_raw(name, &mut |raw| {
            is_one_way |= raw.size.is_some() && raw.owd_up.is_none();
            Ok(())
        })?;
        Ok(is_one_way)
    }

    /// A series for every number in the samples: `name` for the value, `name::key` for the others.
    fn other(&self, name: &str) -> Result<Vec<Series>, String> {
        let Some(raw) = self.file.raw_values.0.get(name) else {
            return Ok(Vec::new());
        };
        let units = self
            .series_meta
            .get(name)
            .and_then(|m| m.units.clone())
            .unwrap_or_default();
        let mut found: BTreeMap<String, Vec<(f64, Option<f64>)>> = BTreeMap::new();
        each_of(raw, name, &mut |sample: &RawValue| {
            if sample.get().len() > MAX_SAMPLE {
                return Err(format!("a sample of more than {} KiB", MAX_SAMPLE >> 10));
            }
            let sample: BTreeMap<String, Value> = parse(sample, "a sample")?;
            let Some(t) = sample.get("t").and_then(Value::as_f64) else {
                return Ok(());
            };
            let t_ms = self.ms(t);
            let numbers_of = sample
                .iter()
                .filter(|(key, _)| !matches!(key.as_str(), "t" | "dur" | "seq"));
            for (key, value) in numbers_of {
                let key = if key == "val" {
                    name.to_owned()
                } else {
                    format!("{name}::{key}")
                };
                numbers(&key, value, &mut |key, value| {
                    let point = (t_ms, Some(value));
                    let is_new = !found.contains_key(key);
                    let more = if is_new { SERIES + key.len() } else { 0 };
                    self.room.take(more + size_of_val(&point))?;
                    found.entry(key.to_owned()).or_default().push(point);
                    Ok(())
                })?;
            }
            Ok(())
        })?;
        if self.version < 4 {
            for (key, samples) in &mut found {
                if key.ends_with("::dropped") || key.ends_with("::ecn_mark") {
                    differences(samples);
                }
            }
        }
        let series = |(name, samples): (String, _)| Series {
            name: foreign::printable(&name).into_owned(),
            unit: foreign::brief(&units, MAX_UNIT),
            samples,
        };
        Ok(found.into_iter().map(series).collect())
    }

    /// The samples of a series in the units of version 4.
    fn each(&self, name: &str, take: &mut dyn FnMut(Raw) -> Result<(), String>) -> Result<(), String> {
        let mut is_empty = true;
        self.each_raw(name, &mut |mut raw| {
            is_empty = false;
            if self.version < 4 {
                if name.contains("UDP") && raw.dur.is_some() {
                    // These versions have transactions per second.
                    raw.val = raw.val.filter(|rate| *rate > 0.0).map(|rate| 1000.0 / rate);
                } else if name == "HTTP latency" {
                    raw.val = raw.val.map(|seconds| seconds * 1000.0);
                }
            }
            take(raw)
        })?;
        match is_empty && self.version == 1 {
            true => self.each_on_grid(name, take),
            false => Ok(()),
        }
    }

    fn each_raw(&self, name: &str, take: &mut dyn FnMut(Raw) -> Result<(), String>) -> Result<(), String> {
        let moved = || self.series_meta.get(name).and_then(|meta| meta.raw_values);
        match self.file.raw_values.0.get(name).copied().or_else(moved) {
            Some(raw) => each_of(raw, name, take),
            None => Ok(()),
        }
    }

    /// Passes the values on the grid to `take`: a file of version 1 may have no samples.
    fn each_on_grid(
        &self,
        name: &str,
        take: &mut dyn FnMut(Raw) -> Result<(), String>,
    ) -> Result<(), String> {
        let (Some(values), Some(x_values)) = (self.file.results.0.get(name), self.file.x_values) else {
            return Ok(());
        };
        let mut grid = Vec::new();
        each_of(x_values, "x_values", &mut |x: f64| {
            grid.push(x);
            match grid.len() > MAX_GRID {
                true => Err(format!("more than {MAX_GRID} moments")),
                false => Ok(()),
            }
        })?;
        let t0 = self.start - self.delay_s;
        let mut grid = grid.into_iter();
        each_of(values, name, &mut |val: Option<f64>| {
            grid.next().map_or(Ok(()), |x| {
                take(Raw {
                    t: Some(t0 + x),
                    val,
                    ..Raw::default()
                })
            })
        })
    }

    /// Converts seconds since 1970 to milliseconds since the load began.
    fn ms(&self, t: f64) -> f64 {
        round((t - self.start) * 1000.0)
    }
}

/// The DSCPs of the flows of one direction, in turn.
fn marks(flows: &[Flow]) -> Vec<u8> {
    let direction = flows.first().map(|flow| flow.direction);
    let flows = flows.iter().filter(|flow| Some(flow.direction) == direction);
    let mut marks: Vec<u8> = flows.map(|flow| flow.dscp).collect();
    marks.dedup();
    marks
}

/// The DSCP in the name of a series.
fn mark(name: &str) -> u8 {
    let word = name.rsplit(' ').next().unwrap_or_default();
    let word = word.split("::").next().unwrap_or_default();
    match word {
        "BK" => 8,
        "EF" => 46,
        _ => match word.as_bytes() {
            [b'C', b'S', class @ b'0'..=b'7'] => (class - b'0') * 8,
            _ => 0,
        },
    }
}

/// A probe without an answer.
fn at(t_ms: f64) -> Probe {
    Probe {
        due_ms: t_ms,
        t_ms,
        ..Probe::default()
    }
}

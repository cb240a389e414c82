//! The result of one test: everything that was measured, and the file it is kept in.
//!
//! Times are milliseconds since the load began, so the idle phase has negative ones. Bytes are TCP payload, counted
//! where they arrived. Mbit/s are 10^6 bits per second. Series bear the names that Flent gives them, so that the same
//! thing has one name in either program.

pub(crate) mod plausibility;
mod summary;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub(crate) use crate::calendar::rfc3339;
use crate::protocol::MAX_REASON;
use crate::room::{self, Room};
use crate::{Error, file, flent, foreign};
pub use summary::{DirectionFigures, Latency, ProbeFigures, Summary};

/// Version of the file format; a reader refuses any other.
pub const VERSION: u32 = 2;
const FORMAT: &str = "sqm-test";
/// Characters of a title that are kept.
pub(crate) const MAX_TITLE: usize = 200;
/// Characters of a finding, and of the reason why a test ended early.
const MAX_TEXT: usize = 1000;
/// The steady window ends this long before the load does: the ends of the two sides' clocks and of the flows differ a little.
pub const TAIL_MS: u64 = 1000;

/// One test, complete or cut short.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TestResult {
    /// Always `sqm-test`.
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// What was tested, when, by what.
    pub meta: Meta,
    /// The figures to quote.
    pub summary: Summary,
    /// What was going on when, in order of time.
    #[serde(deserialize_with = "room::few")]
    pub phases: Vec<Phase>,
    /// Every flow of the load: downloads first, each direction in order.
    #[serde(deserialize_with = "room::few")]
    pub flows: Vec<Flow>,
    /// Every series of probes.
    #[serde(deserialize_with = "room::few")]
    pub probes: Vec<ProbeSeries>,
    /// Anything else with a value over time: processor load, counters of interfaces and queues. Flent's names where it
    /// has one (`cpu_stats_router::load`), and its units.
    #[serde(
        default,
        deserialize_with = "room::few",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub evidence: Vec<Series>,
    /// Texts taken down before, during or after the test, by name: `qdisc before`, `qdisc after`.
    #[serde(
        default,
        deserialize_with = "room::few_names",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub snapshots: BTreeMap<String, String>,
    /// What is wrong or noteworthy about the run.
    #[serde(
        default,
        deserialize_with = "room::few",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub findings: Vec<Finding>,
}

/// The circumstances of a test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// Flent's name of the test: `rrul`, `rrul_be`, `tcp_8down`.
    pub test: String,
    /// The user's own words.
    pub title: Option<String>,
    /// When the load began: RFC 3339, UTC, to the second.
    pub time: String,
    /// The same moment in seconds since 1970, as exactly as it is known; none if the file does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_unix: Option<f64>,
    /// The server as the user named it.
    pub host: String,
    /// Name of this machine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub local_host: String,
    /// This end's address of the control connection.
    pub local: String,
    /// The server's address of the control connection.
    pub remote: String,
    /// Version of the client program.
    pub program: String,
    /// Version of the server program.
    pub server_program: String,
    /// The client's kernel release.
    pub kernel: String,
    /// The server's kernel release.
    pub server_kernel: String,
    /// What was asked for.
    pub settings: Settings,
    /// The server's clock against the client's, if it was estimated; one-way delays rest on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<Clock>,
    /// Why the test ended before its time; none if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<String>,
    /// Anything else worth knowing, by name; settings of other programs' tests among it.
    #[serde(
        default,
        deserialize_with = "room::few_names",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub parameters: BTreeMap<String, String>,
}

/// How far the server's clock is ahead, and how well that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    /// The server's clock minus the client's, when the load began.
    pub offset_ms: f64,
    /// The true offset lies within this of the estimate: half of the smallest round trip, because nothing tells how
    /// that divides between the two ways.
    pub error_ms: f64,
    /// How fast the offset grows, in parts per million.
    pub drift_ppm: f64,
}

/// How a test is run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// TCP flows from server to client, 0 to 64.
    pub down: u32,
    /// TCP flows from client to server, 0 to 64.
    pub up: u32,
    /// Baseline before the load, in milliseconds, at most a minute.
    pub idle_ms: u64,
    /// Length of the load in milliseconds.
    pub load_ms: u64,
    /// Idle time measured after the load, in milliseconds.
    #[serde(default)]
    pub after_ms: u64,
    /// The figures leave out this much of the load's beginning, in milliseconds; [`TAIL_MS`] of its end are left out too.
    pub settle_ms: u64,
    /// Time between two probes in milliseconds.
    pub probe_interval_ms: u64,
    /// Congestion control of all senders; none keeps each system's own.
    pub congestion: Option<String>,
    /// DSCP of the flows of each direction, 0 to 63: the first flow takes the first, and so on, again from the start when they run out.
    pub dscp: Vec<u8>,
    /// Largest TCP segment in bytes, options included; none keeps the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mss: Option<u32>,
    /// Whether ECN was asked for; none keeps the system's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecn: Option<bool>,
}

impl Default for Settings {
    /// Four flows each way, 25 s, as in RRUL but shorter.
    fn default() -> Self {
        Self {
            down: 4,
            up: 4,
            idle_ms: 3000,
            load_ms: 25_000,
            after_ms: 0,
            settle_ms: 4000,
            probe_interval_ms: 100,
            congestion: Some("cubic".to_owned()),
            dscp: vec![0],
            mss: None,
            ecn: None,
        }
    }
}

impl Settings {
    /// The phases of a test that loads the line once: idle, load, idle.
    pub fn phases(&self) -> Vec<Phase> {
        let (idle, load, after) = (self.idle_ms as f64, self.load_ms as f64, self.after_ms as f64);
        let loaded = [(Direction::Down, self.down), (Direction::Up, self.up)];
        let loaded = loaded
            .into_iter()
            .filter(|(_, flows)| *flows > 0)
            .map(|(d, _)| d)
            .collect();
        let phase = |loaded, from_ms, to_ms| Phase {
            loaded,
            from_ms,
            to_ms,
        };
        let phases = [
            phase(Vec::new(), -idle, 0.0),
            phase(loaded, 0.0, load),
            phase(Vec::new(), load, load + after),
        ];
        phases.into_iter().filter(|p| p.to_ms > p.from_ms).collect()
    }
}

/// A part of a test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// The directions that carry load; none on an idle line.
    pub loaded: Vec<Direction>,
    /// Its beginning.
    pub from_ms: f64,
    /// Its end.
    pub to_ms: f64,
}

impl Phase {
    /// Whether the line carries nothing but probes.
    pub fn is_idle(&self) -> bool {
        self.loaded.is_empty()
    }

    /// The part of a load that figures are drawn from: without its beginning and its last second.
    pub fn steady(&self, settle_ms: u64) -> (f64, f64) {
        let from = self.from_ms + settle_ms as f64;
        (from, (self.to_ms - TAIL_MS as f64).max(from))
    }
}

/// Which way the bytes go, as the client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From server to client.
    Down,
    /// From client to server.
    Up,
}

impl Direction {
    /// For people.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Down => "download",
            Self::Up => "upload",
        }
    }

    /// Where the acknowledgements go.
    pub const fn opposite(self) -> Self {
        match self {
            Self::Down => Self::Up,
            Self::Up => Self::Down,
        }
    }
}

/// What carries a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// As much as congestion control allows.
    #[default]
    Tcp,
    /// At a fixed rate.
    Udp,
}

/// One flow of the load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Flent's name of it: `TCP download BE`, `TCP upload::3`.
    pub name: String,
    /// Which way it goes.
    pub direction: Direction,
    /// TCP or UDP.
    #[serde(default)]
    pub transport: Transport,
    /// The sender's congestion control, as its kernel reported it.
    pub congestion: String,
    /// DSCP that the sender put on its packets, 0 to 63.
    pub dscp: u8,
    /// DSCP that was seen where the packets arrived; none if nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp_arrived: Option<u8>,
    /// Whether both ends agreed on ECN; none if nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecn: Option<bool>,
    /// The sender's segment size in bytes of payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mss: Option<u32>,
    /// The other end, if it is not the test's server: address, or `IPv4` and `IPv6` where one test uses both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Goodput in the steady part of the phases that load this direction, in Mbit/s.
    pub mbit: f64,
    /// What arrived, interval by interval.
    pub samples: Vec<Sample>,
    /// The sender's kernel about the connection, over time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sender: Vec<TcpSample>,
    /// The receiver's kernel about it; most of what TCP knows, only the sender knows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receiver: Vec<TcpSample>,
    /// The sender's account of the whole connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totals: Option<TcpTotals>,
}

/// A kernel's view of a TCP connection at one moment (Linux `TCP_INFO`); what is not known is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TcpSample {
    /// When.
    pub t_ms: f64,
    /// Smoothed round trip (RFC 6298): good for the trend, not for percentiles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<f64>,
    /// Its mean deviation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rttvar_ms: Option<f64>,
    /// The smallest round trip lately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rtt_ms: Option<f64>,
    /// Congestion window in segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwnd: Option<f64>,
    /// Segments sent again, since the connection began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// The rate at which data was lately delivered, in Mbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_mbit: Option<f64>,
    /// The rate at which the sender spaces its packets, in Mbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pacing_mbit: Option<f64>,
    /// Segments acknowledged as marked by ECN, since the connection began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_ce: Option<u64>,
    /// Segments that have arrived, those behind a gap included, since the connection began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered: Option<u64>,
}

/// What a sender's kernel counted over a whole connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TcpTotals {
    /// Payload sent, repeats included.
    pub bytes_sent: u64,
    /// Payload sent again.
    pub bytes_retransmitted: u64,
    /// Segments sent again.
    pub retransmits: u64,
    /// Segments acknowledged as marked by ECN.
    pub delivered_ce: u64,
    /// Time with data under way.
    pub busy_ms: f64,
    /// Of that, waiting for the receiver's window.
    pub rwnd_limited_ms: f64,
    /// Of that, waiting for the sender's own buffer.
    pub sndbuf_limited_ms: f64,
}

/// What arrived of one flow since the sample before. In a file: `[t_ms, bytes]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "(f64, u64)", into = "(f64, u64)")]
pub struct Sample {
    /// End of the interval, on the receiver's monotonic clock.
    pub t_ms: f64,
    /// TCP payload.
    pub bytes: u64,
}

impl From<(f64, u64)> for Sample {
    fn from((t_ms, bytes): (f64, u64)) -> Self {
        Self { t_ms, bytes }
    }
}

impl From<Sample> for (f64, u64) {
    fn from(sample: Sample) -> Self {
        (sample.t_ms, sample.bytes)
    }
}

/// How a probe travels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeKind {
    /// A UDP packet and its echo.
    #[default]
    Udp,
    /// An ICMP echo.
    Icmp,
    /// The handshake of a new TCP connection.
    Tcp,
    /// A small HTTP request and its answer.
    Http,
    /// A UDP packet of the size and spacing of a call (G.711: 172 bytes every 20 ms) and its echo.
    Voip,
}

/// One timetable of probes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbeSeries {
    /// Flent's name of it: `Ping (ms) UDP EF`.
    pub name: String,
    /// How they travel.
    pub kind: ProbeKind,
    /// DSCP of the probes both ways, 0 to 63.
    pub dscp: u8,
    /// Whom they ask, if not the test's server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Time between two.
    pub interval_ms: f64,
    /// Payload of one, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u32>,
    /// Traffic class bytes (DSCP and ECN) of the probes as they reached the server, with the number of probes that bore each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arrived_up: BTreeMap<u8, u64>,
    /// The same of the replies as they came back.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arrived_down: BTreeMap<u8, u64>,
    /// Every probe, in order of sending.
    pub samples: Vec<Probe>,
}

/// One probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// When the timetable wanted it sent.
    pub due_ms: f64,
    /// When it was sent.
    pub t_ms: f64,
    /// From sending to the reply's arrival; null if none ever came.
    pub rtt_ms: Option<f64>,
    /// From here to the server, by clocks that agree within [`Clock::error_ms`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_ms: Option<f64>,
    /// From the server to here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_ms: Option<f64>,
    /// When the server had it, on the server's clock, whose origin means nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_ms: Option<f64>,
    /// The way on which it was lost, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Direction>,
}

/// A value over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// What it is of.
    pub name: String,
    /// Unit of its values: `ms`, `Mbits/s`, `bytes`; empty for a share from 0 to 1.
    pub unit: String,
    /// Moment in milliseconds, and value; null where there was none.
    pub samples: Vec<(f64, Option<f64>)>,
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// The figures may mean something else than they seem to.
    Warning,
    /// The figures do not tell about the line: no grade may be drawn from them.
    Invalid,
}

/// Something that a reader of the figures must know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// What it is, for programs: `cpu_saturated`, `too_few_probes`, `load_not_reached`, `cross_traffic`, `marks_changed`.
    pub code: String,
    /// What was seen, with figures, and what to do.
    pub text: String,
}

impl TestResult {
    /// Puts a test together and draws the figures from it; `phases` empty means those of the settings.
    pub fn new(meta: Meta, phases: Vec<Phase>, flows: Vec<Flow>, probes: Vec<ProbeSeries>) -> Self {
        let phases = if phases.is_empty() {
            meta.settings.phases()
        } else {
            phases
        };
        let mut result = Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            meta,
            summary: Summary::default(),
            phases,
            flows,
            probes,
            evidence: Vec::new(),
            snapshots: BTreeMap::new(),
            findings: Vec::new(),
        };
        result.redraw();
        result
    }

    /// Whether the figures tell about the line.
    pub fn is_valid(&self) -> bool {
        self.findings.iter().all(|f| f.severity < Severity::Invalid)
    }

    /// The series that the headline figures are of: UDP echoes if there are any, because some networks treat ICMP and
    /// new connections apart; else the first kind present.
    pub fn headline_probes(&self) -> Vec<&ProbeSeries> {
        summary::headline(&self.probes)
    }

    /// The steady windows of the load, from first to last millisecond each.
    pub fn steady(&self) -> impl Iterator<Item = (f64, f64)> {
        let settle_ms = self.meta.settings.settle_ms;
        self.phases
            .iter()
            .filter(|p| !p.is_idle())
            .map(move |p| p.steady(settle_ms))
    }

    /// The flows of one direction.
    pub fn flows(&self, direction: Direction) -> impl Iterator<Item = &Flow> {
        self.flows.iter().filter(move |flow| flow.direction == direction)
    }

    /// One line of JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a result has no keys but strings and no failing serializers")
    }

    /// Reads a result file: one of ours or of Flent's, compressed or not.
    pub fn load(path: &Path) -> Result<Self, Error> {
        Self::load_within(path, &Room::default())
    }

    /// The same of one of several files that are read together; what it holds is taken from `room`.
    pub fn load_within(path: &Path, room: &Room) -> Result<Self, Error> {
        let text = file::read(path)?;
        Self::from_text(&text, room).map_err(|reason| Error::Format {
            path: path.to_owned(),
            reason,
        })
    }

    /// The same of a file's bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        Self::from_text(&file::unpack(bytes).map_err(|e| e.to_string())?, &Room::default())
    }

    fn from_text(text: &str, room: &Room) -> Result<Self, String> {
        let result = if file::is_flent(text) {
            flent::from_json_within(text, room)
        } else {
            Self::from_json_within(text, room)
        }?;
        room.take(result.size())?;
        Ok(result)
    }

    /// What it holds, in bytes.
    fn size(&self) -> usize {
        let flows = self.flows.iter();
        let flows = flows.map(|flow| {
            size_of_val(&*flow.samples) + size_of_val(&*flow.sender) + size_of_val(&*flow.receiver)
        });
        let probes = self.probes.iter().map(|series| size_of_val(&*series.samples));
        let evidence = self.evidence.iter().map(|series| size_of_val(&*series.samples));
        flows.chain(probes).chain(evidence).sum()
    }

    /// Writes a result file, as its name says: `.flent.gz` for Flent and us, else our plain JSON.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        file::write(path, self)
    }

    /// Reads a result; the error says in words where the text departs from one.
    pub fn from_json(text: &str) -> Result<Self, String> {
        Self::from_json_within(text, &Room::default())
    }

    pub(crate) fn from_json_within(text: &str, room: &Room) -> Result<Self, String> {
        // Looked at first: another version may differ in everything else.
        #[derive(Deserialize)]
        struct Head {
            format: String,
            version: u32,
        }
        let brief = |e: serde_json::Error| foreign::brief(&e.to_string(), MAX_REASON);
        let head: Head = serde_json::from_str(text).map_err(brief)?;
        if head.format != FORMAT {
            let format = foreign::brief(&head.format, MAX_TITLE);
            return Err(format!("its format is '{format}', not '{FORMAT}'"));
        }
        if head.version != VERSION {
            return Err(format!(
                "its version is {}; this program reads version {VERSION}",
                head.version
            ));
        }
        room.check(text)?;
        let mut result: Self = serde_json::from_str(text).map_err(brief)?;
        result.make_printable();
        result.check_samples()?;
        result.redraw();
        result.check_figures()?;
        Ok(result)
    }

    /// Draws the figures from the samples: what a file says of itself need not be so.
    fn redraw(&mut self) {
        let settle_ms = self.meta.settings.settle_ms;
        for flow in &mut self.flows {
            flow.mbit = summary::goodput(flow, &self.phases, settle_ms);
        }
        self.summary = Summary::new(&self.flows, &self.probes, &self.phases, settle_ms);
    }

    /// Whoever wrote the file may have written anything into its texts.
    fn make_printable(&mut self) {
        let clean = |text: &mut String| {
            if let Cow::Owned(clean) = foreign::printable(text) {
                *text = clean;
            }
        };
        let clean_lines = |text: &mut String| {
            if let Cow::Owned(clean) = foreign::printable_lines(text) {
                *text = clean;
            }
        };
        let meta = &mut self.meta;
        if let Some(title) = &mut meta.title {
            *title = foreign::brief(title, MAX_TITLE);
        }
        for text in [
            &mut meta.test,
            &mut meta.time,
            &mut meta.host,
            &mut meta.local_host,
            &mut meta.local,
            &mut meta.remote,
            &mut meta.program,
            &mut meta.server_program,
            &mut meta.kernel,
            &mut meta.server_kernel,
        ] {
            clean(text);
        }
        meta.settings.congestion.iter_mut().for_each(clean);
        if let Some(reason) = &mut meta.partial {
            *reason = foreign::brief(reason, MAX_TEXT);
        }
        for flow in &mut self.flows {
            clean(&mut flow.name);
            clean(&mut flow.congestion);
            flow.peer.iter_mut().for_each(clean);
        }
        for series in &mut self.probes {
            clean(&mut series.name);
            series.peer.iter_mut().for_each(clean);
        }
        for series in &mut self.evidence {
            clean(&mut series.name);
            clean(&mut series.unit);
        }
        for finding in &mut self.findings {
            finding.code = foreign::brief(&finding.code, MAX_TITLE);
            finding.text = foreign::brief(&finding.text, MAX_TEXT);
        }
        for texts in [&mut meta.parameters, &mut self.snapshots] {
            texts.values_mut().for_each(clean_lines);
            if texts
                .keys()
                .any(|name| matches!(foreign::printable(name), Cow::Owned(_)))
            {
                let all = std::mem::take(texts).into_iter();
                *texts = all
                    .map(|(name, text)| (foreign::printable(&name).into_owned(), text))
                    .collect();
            }
        }
    }
}

impl Finding {
    /// For people.
    pub fn to_text(&self) -> String {
        let kind = match self.severity {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Invalid => "invalid",
        };
        format!("{kind}: {}", self.text)
    }
}

impl Flow {
    /// A flow of which nothing is known yet.
    pub fn new(name: &str, direction: Direction) -> Self {
        Self {
            name: name.to_owned(),
            direction,
            transport: Transport::Tcp,
            congestion: String::new(),
            dscp: 0,
            dscp_arrived: None,
            ecn: None,
            mss: None,
            peer: None,
            mbit: 0.0,
            samples: Vec::new(),
            sender: Vec::new(),
            receiver: Vec::new(),
            totals: None,
        }
    }

    /// Mean goodput between two moments in Mbit/s.
    pub fn mbit_between(&self, from_ms: f64, to_ms: f64) -> f64 {
        mbit_between(&self.samples, from_ms, to_ms)
    }

    /// Mean rate between two moments in Mbit/s, by segments that the sender knows to have arrived; none without its word.
    ///
    /// A receiver hands out nothing behind a gap until the gap is filled, so a few seconds of goodput are off by what a queue
    /// holds. Segments have arrived when they have arrived: for short measurements of full segments this is the better count.
    pub fn delivered_mbit_between(&self, from_ms: f64, to_ms: f64) -> Option<f64> {
        let counted = |sample: &TcpSample| Some((sample.t_ms, sample.delivered?));
        let inside = self
            .sender
            .iter()
            .filter(|s| s.t_ms >= from_ms && s.t_ms <= to_ms);
        let mut inside = inside.filter_map(counted);
        let (first, last) = (inside.next()?, inside.next_back()?);
        let bytes = last.1.checked_sub(first.1)? as f64 * f64::from(self.mss?);
        (last.0 > first.0).then(|| bytes * 8.0 / 1000.0 / (last.0 - first.0))
    }
}

/// Mean rate in Mbit/s, as if the bytes of an interval had arrived evenly over it.
fn mbit_between(samples: &[Sample], from_ms: f64, to_ms: f64) -> f64 {
    // An hour has many samples, and its pictures ask for many stretches of it.
    let first = samples.partition_point(|sample| sample.t_ms <= from_ms);
    let mut begin = first.checked_sub(1).map_or(0.0, |last| samples[last].t_ms);
    let mut bytes = 0.0;
    for sample in &samples[first..] {
        if begin >= to_ms {
            break;
        }
        let inside = sample.t_ms.min(to_ms) - f64::max(begin, from_ms);
        if inside > 0.0 {
            bytes += sample.bytes as f64 * inside / (sample.t_ms - begin);
        }
        begin = sample.t_ms;
    }
    if to_ms > from_ms {
        bytes * 8.0 / 1000.0 / (to_ms - from_ms)
    } else {
        0.0
    }
}

#[cfg(test)]
pub(crate) mod tests;

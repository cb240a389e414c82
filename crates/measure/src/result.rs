//! The result of one test: the file format, and the figures drawn from its samples.
//!
//! Times are milliseconds since the load began, so the idle phase has negative ones. Bytes are TCP payload, counted
//! where they arrived. Mbit/s are 10^6 bits per second.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::{Error, stats};

/// Version of the file format; a reader refuses a newer one.
pub const VERSION: u32 = 1;
const FORMAT: &str = "sqm-test";
/// The steady window ends this long before the load does: the ends of the two sides' clocks and of the flows differ a little.
pub const TAIL_MS: u64 = 1000;

/// One test, complete.
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
    /// Every TCP flow: downloads first, each direction in order.
    pub flows: Vec<Flow>,
    /// Every probe, in order of sending.
    pub probes: Vec<Probe>,
}

/// The circumstances of a test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// The user's own words.
    pub title: Option<String>,
    /// When the load began: RFC 3339, UTC, to the second.
    pub time: String,
    /// The server as the user named it.
    pub host: String,
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
    /// The figures leave out this much of the load's beginning, in milliseconds; [`TAIL_MS`] of its end are left out too.
    pub settle_ms: u64,
    /// Time between two probes in milliseconds.
    pub probe_interval_ms: u64,
    /// Congestion control of all senders; none keeps each system's own.
    pub congestion: Option<String>,
    /// DSCP of the flows of each direction, 0 to 63: the first flow takes the first, and so on, again from the start when they run out.
    pub dscp: Vec<u8>,
}

impl Default for Settings {
    /// Four flows each way, 25 s, as in RRUL but shorter.
    fn default() -> Self {
        Self {
            down: 4,
            up: 4,
            idle_ms: 3000,
            load_ms: 25_000,
            settle_ms: 4000,
            probe_interval_ms: 100,
            congestion: Some("cubic".to_owned()),
            dscp: vec![0],
        }
    }
}

impl Settings {
    /// The part of the load that the figures are drawn from: first and last millisecond.
    pub fn steady_ms(&self) -> (f64, f64) {
        (self.settle_ms as f64, self.load_ms.saturating_sub(TAIL_MS) as f64)
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

/// One TCP flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Which way it goes.
    pub direction: Direction,
    /// The sender's congestion control, as its kernel reported it.
    pub congestion: String,
    /// DSCP that the sender put on its packets, 0 to 63.
    pub dscp: u8,
    /// Goodput in the steady window, in Mbit/s.
    pub mbit: f64,
    /// What arrived, interval by interval.
    pub samples: Vec<Sample>,
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

/// One probe.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// When the timetable wanted it sent.
    pub due_ms: f64,
    /// When it was sent.
    pub t_ms: f64,
    /// From sending to the reply's arrival; null if none ever came.
    pub rtt_ms: Option<f64>,
    /// When the server had it, on the server's clock, whose origin means nothing.
    pub server_ms: Option<f64>,
}

/// The figures to quote. Latency and goodput are of the steady window; a figure without samples is null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Median round trip before the load.
    pub idle_ms: Option<f64>,
    /// 95th percentile before the load.
    pub idle_p95_ms: Option<f64>,
    /// Median round trip under load.
    pub latency_median_ms: Option<f64>,
    /// 95th percentile under load.
    pub latency_p95_ms: Option<f64>,
    /// 99th percentile under load.
    pub latency_p99_ms: Option<f64>,
    /// The worst round trip under load.
    pub latency_max_ms: Option<f64>,
    /// Probes sent in the whole test.
    pub probes_sent: u64,
    /// Probes whose reply never came.
    pub probes_lost: u64,
    /// Sum of the download flows.
    pub download_mbit: f64,
    /// Sum of the upload flows.
    pub upload_mbit: f64,
    /// Jain's index over the download flows.
    pub jain_down: Option<f64>,
    /// Jain's index over the upload flows.
    pub jain_up: Option<f64>,
}

impl TestResult {
    /// Puts samples together and draws the figures from them.
    pub fn new(meta: Meta, mut flows: Vec<Flow>, probes: Vec<Probe>) -> Self {
        let (from, to) = meta.settings.steady_ms();
        for flow in &mut flows {
            flow.mbit = round(flow.mbit_between(from, to));
        }
        let summary = Summary::new(&flows, &probes, from, to);
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            meta,
            summary,
            flows,
            probes,
        }
    }

    /// The flows of one direction.
    pub fn flows(&self, direction: Direction) -> impl Iterator<Item = &Flow> {
        self.flows.iter().filter(move |flow| flow.direction == direction)
    }

    /// One line of JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a result has no keys but strings and no failing serializers")
    }

    /// Reads a result file.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|reason| Error::Read {
            path: path.to_owned(),
            reason,
        })?;
        Self::from_json(&text).map_err(|reason| Error::Format {
            path: path.to_owned(),
            reason,
        })
    }

    /// Reads a result; the error says in words where the text departs from one.
    pub fn from_json(text: &str) -> Result<Self, String> {
        // Looked at first: another version may differ in everything else.
        #[derive(Deserialize)]
        struct Head {
            format: String,
            version: u32,
        }
        let head: Head = serde_json::from_str(text).map_err(|e| e.to_string())?;
        if head.format != FORMAT {
            return Err(format!("its format is '{}', not '{FORMAT}'", head.format));
        }
        if head.version != VERSION {
            return Err(format!(
                "its version is {}; this program reads version {VERSION}",
                head.version
            ));
        }
        serde_json::from_str(text).map_err(|e| e.to_string())
    }
}

impl Summary {
    fn new(flows: &[Flow], probes: &[Probe], from: f64, to: f64) -> Self {
        let rtts = |from: f64, to: f64| -> Vec<f64> {
            probes
                .iter()
                .filter(|p| p.t_ms >= from && p.t_ms < to)
                .filter_map(|p| p.rtt_ms)
                .collect()
        };
        let (idle, loaded) = (rtts(f64::NEG_INFINITY, 0.0), rtts(from, to));
        let rates = |direction| -> Vec<f64> {
            flows
                .iter()
                .filter(|f| f.direction == direction)
                .map(|f| f.mbit)
                .collect()
        };
        let (down, up) = (rates(Direction::Down), rates(Direction::Up));
        Self {
            idle_ms: stats::median(&idle).map(round),
            idle_p95_ms: stats::percentile(&idle, 95.0).map(round),
            latency_median_ms: stats::median(&loaded).map(round),
            latency_p95_ms: stats::percentile(&loaded, 95.0).map(round),
            latency_p99_ms: stats::percentile(&loaded, 99.0).map(round),
            latency_max_ms: stats::percentile(&loaded, 100.0).map(round),
            probes_sent: probes.len() as u64,
            probes_lost: probes.iter().filter(|p| p.rtt_ms.is_none()).count() as u64,
            download_mbit: round(total(&down)),
            upload_mbit: round(total(&up)),
            jain_down: stats::jain(&down).map(round),
            jain_up: stats::jain(&up).map(round),
        }
    }
}

impl Flow {
    /// Mean goodput between two moments in Mbit/s.
    pub fn mbit_between(&self, from_ms: f64, to_ms: f64) -> f64 {
        mbit_between(&self.samples, from_ms, to_ms)
    }
}

/// Mean rate in Mbit/s, as if the bytes of an interval had arrived evenly over it.
fn mbit_between(samples: &[Sample], from_ms: f64, to_ms: f64) -> f64 {
    let mut bytes = 0.0;
    let mut begin = 0.0;
    for sample in samples {
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

/// A plain sum of no flows is -0.0, which would be printed so.
fn total(rates: &[f64]) -> f64 {
    rates.iter().fold(0.0, |sum, rate| sum + rate)
}

/// Three decimals: microseconds, kilobits.
fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// RFC 3339 in UTC, to the second.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO)
        .as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Gregorian calendar from a day count, in years that begin in March so that the leap day comes last
    // (Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days).
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A made-up result with round figures: `bloat_ms` of queue under load, two flows each way.
    pub(crate) fn example(title: &str, bloat_ms: f64, down_mbit: f64, up_mbit: f64) -> TestResult {
        let settings = Settings {
            down: 2,
            up: 2,
            idle_ms: 2000,
            load_ms: 8000,
            settle_ms: 2000,
            probe_interval_ms: 500,
            ..Settings::default()
        };
        let flow = |direction, share: f64, mbit: f64| Flow {
            direction,
            congestion: "cubic".to_owned(),
            dscp: 0,
            mbit: 0.0,
            samples: (1..=8)
                .map(|i| Sample {
                    t_ms: f64::from(i) * 1000.0,
                    bytes: (mbit * share * 125_000.0 * if i == 1 { 0.5 } else { 1.0 }) as u64,
                })
                .collect(),
        };
        let probes = (-4..16)
            .map(|i| {
                let t_ms = f64::from(i) * 500.0;
                let filled = (t_ms / 2000.0).clamp(0.0, 1.0);
                let wobble = f64::from(i * i % 5) / 20.0;
                let rtt = 20.0 + bloat_ms * filled * (1.0 + wobble);
                Probe {
                    due_ms: t_ms,
                    t_ms,
                    rtt_ms: (i != 9).then_some(rtt),
                    server_ms: None,
                }
            })
            .collect();
        let meta = Meta {
            title: Some(title.to_owned()),
            time: "2026-01-02T03:04:05Z".to_owned(),
            host: "server.example".to_owned(),
            local: "192.0.2.1:50000".to_owned(),
            remote: "198.51.100.1:35353".to_owned(),
            program: "1.0.0".to_owned(),
            server_program: "1.0.0".to_owned(),
            kernel: "6.1.0".to_owned(),
            server_kernel: "6.1.0".to_owned(),
            settings,
        };
        let flows = vec![
            flow(Direction::Down, 0.6, down_mbit),
            flow(Direction::Down, 0.4, down_mbit),
            flow(Direction::Up, 0.5, up_mbit),
            flow(Direction::Up, 0.5, up_mbit),
        ];
        TestResult::new(meta, flows, probes)
    }

    #[test]
    fn figures_are_of_the_steady_window() {
        let summary = example("x", 1000.0, 20.0, 4.0).summary;
        assert_eq!(summary.idle_ms, Some(20.0));
        assert_eq!(summary.download_mbit, 20.0);
        assert_eq!(summary.upload_mbit, 4.0);
        assert_eq!(summary.jain_up, Some(1.0));
        assert_eq!((summary.probes_sent, summary.probes_lost), (20, 1));
        assert!(summary.latency_median_ms > Some(1000.0));
    }

    #[test]
    fn an_interval_across_the_window_counts_by_its_part_inside() {
        let samples = [
            Sample {
                t_ms: 1000.0,
                bytes: 125_000,
            },
            Sample {
                t_ms: 2000.0,
                bytes: 375_000,
            },
        ];
        assert_eq!(mbit_between(&samples, 0.0, 2000.0), 2.0);
        assert_eq!(mbit_between(&samples, 500.0, 1500.0), 2.0);
        assert_eq!(mbit_between(&samples, 1500.0, 2000.0), 3.0);
        assert_eq!(mbit_between(&samples, 1500.0, 1500.0), 0.0);
    }

    #[test]
    fn a_result_survives_its_file() {
        let result = example("a \"title\"", 100.0, 20.0, 4.0);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        std::fs::write(&path, result.to_json()).unwrap();
        assert_eq!(TestResult::load(&path).unwrap(), result);
    }

    #[test]
    fn other_files_are_refused_in_words() {
        let newer = example("x", 1.0, 1.0, 1.0)
            .to_json()
            .replacen("\"version\":1", "\"version\":2", 1);
        assert_eq!(
            TestResult::from_json(&newer).unwrap_err(),
            "its version is 2; this program reads version 1"
        );
        let other = r#"{"format":"flent","version":4}"#;
        assert_eq!(
            TestResult::from_json(other).unwrap_err(),
            "its format is 'flent', not 'sqm-test'"
        );
        assert!(
            TestResult::load(Path::new("/nonexistent"))
                .unwrap_err()
                .to_string()
                .contains("/nonexistent")
        );
    }

    #[test]
    fn times_are_written_in_utc() {
        let at = |seconds| rfc3339(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(at(1_767_225_599), "2025-12-31T23:59:59Z");
    }
}

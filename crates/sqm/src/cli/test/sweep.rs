//! `sqm test --sweep`: measures goodput at several packet sizes and fits the line's gross rate and overhead to it.

use std::net::SocketAddr;
use std::process::ExitCode;

use serde::Serialize;
use sqm_core::direction::Direction;
use sqm_measure::client::{Outcome, Test};
use sqm_measure::overhead_fit::{Configured, Fit, Framing, HEADERS_V4, HEADERS_V6, Point, advice};
use sqm_measure::result::direction_word;
use sqm_measure::result::{Flow, Settings, TestResult};
use sqm_measure::scenario::Scenario;
use sqm_plan::line::ConfiguredLine;

use crate::json;

use super::{Args, configured, for_user, listen_for_signals, queues};
use sqm_process::failure::Failure;

/// Segment sizes, bytes with TCP's options. They are evenly spaced in 1/size, as the fit needs them. The smallest is
/// large enough that a router's packet rate does not become the limit.
const SEGMENTS: [u32; 8] = [1460, 1100, 800, 620, 480, 380, 290, 216];
/// Duration of the load at each size, and how much of its beginning is left out, milliseconds.
const LOAD_MS: u64 = 8000;
const SETTLE_MS: u64 = 3000;
/// Idle time before each load, milliseconds.
const IDLE_MS: u64 = 500;
/// Parallel flows. A single flow may leave the line idle at times.
const FLOWS: u32 = 4;

/// The document of `--json`.
#[derive(Serialize)]
struct Sweep<'a> {
    sweep: &'a [Swept],
}

/// The sweep of one direction.
#[derive(Serialize)]
struct Swept {
    #[serde(with = "direction_word")]
    direction: Direction,
    /// Headers of TCP and IP in each packet, bytes.
    header_bytes: f64,
    points: Vec<Point>,
    fit: Option<Fit>,
    /// The reason if there is no fit.
    reason: Option<String>,
    /// The configured figures of this line, if there is a configuration.
    configured: Option<Configured>,
    /// Suggested changes to the configuration.
    advice: Vec<String>,
}

impl Args {
    pub(super) fn run_sweep(&self) -> Result<ExitCode, Failure> {
        let lines = configured::lines(self.config.as_ref())?;
        if !lines.is_empty() && queues::gauges().is_some() {
            errln!(
                "sqm: warning: this machine shapes, so the sweep measures its shaper instead of the line; run \
                 'sqm stop' first"
            );
        }
        let mut swept = Vec::new();
        for (direction, flows) in [(Direction::Download, self.down), (Direction::Upload, self.up)] {
            let flows = flows.unwrap_or(FLOWS);
            if flows > 0 {
                swept.push(self.sweep(direction, flows, &lines)?);
            }
        }
        let to_stdout = self.json.as_ref().is_some_and(|path| path.as_os_str() == "-");
        if let Some(path) = &self.json {
            let line = serde_json::to_string(&json::object(&Sweep { sweep: &swept }))? + "\n";
            if to_stdout {
                out!("{line}");
            } else {
                sqm_process::output_file::write(path, line)?;
            }
        }
        if !self.quiet && !to_stdout {
            for direction in &swept {
                out!("{}", table(direction));
            }
        }
        match swept.iter().find_map(|s| s.reason.as_ref()) {
            None => Ok(ExitCode::SUCCESS),
            Some(reason) => Err(Failure::Failed(anyhow::anyhow!("{reason}"))),
        }
    }

    fn sweep(&self, direction: Direction, flows: u32, lines: &[ConfiguredLine]) -> Result<Swept, Failure> {
        let (down, up) = match direction {
            Direction::Download => (flows, 0),
            Direction::Upload => (0, flows),
        };
        let stop = listen_for_signals().map_err(for_user)?;
        let mut points = Vec::new();
        let (mut header_bytes, mut configured) = (HEADERS_V4, None);
        for (index, mss) in SEGMENTS.into_iter().enumerate() {
            if !self.quiet {
                errln!(
                    "{}, segments of {mss} bytes ({} of {})",
                    direction.name(),
                    index + 1,
                    SEGMENTS.len()
                );
            }
            let mut test = Test {
                targets: self.targets()?,
                scenario: Scenario::of_flows(down, up, &[0]),
                settings: Settings {
                    down,
                    up,
                    mss: Some(mss),
                    idle_ms: IDLE_MS,
                    load_ms: self.duration.unwrap_or(LOAD_MS),
                    after_ms: 0,
                    settle_ms: SETTLE_MS,
                    ..self.settings()
                },
                title: None,
            };
            let Outcome { result, failure } = self.measure(&mut test, true, &stop).map_err(for_user)?;
            if let Some(failure) = failure {
                return Err(Failure::Failed(failure.into()));
            }
            if result.meta.remote.starts_with('[') {
                header_bytes = HEADERS_V6;
            }
            if let Ok(local) = result.meta.local.parse::<SocketAddr>() {
                let line = configured::of_test(lines, local.ip());
                configured = line.and_then(|line| configured::direction(line, direction));
            }
            let payload = result.flows.iter().find_map(|flow| flow.mss).unwrap_or(mss);
            points.push(Point {
                payload: f64::from(payload),
                goodput_mbit: goodput(&result),
            });
        }
        let (fit, reason) = match Fit::of(&points) {
            Ok(fit) => (Some(fit), None),
            Err(unfit) => (
                None,
                Some(format!("the {} cannot be fitted: {unfit}", direction.name())),
            ),
        };
        let advice = match (&fit, &configured) {
            (Some(fit), Some(configured)) => advice(fit, configured, header_bytes),
            _ => Vec::new(),
        };
        Ok(Swept {
            configured,
            advice,
            direction,
            header_bytes,
            points,
            fit,
            reason,
        })
    }
}

/// Goodput in the steady window, Mbit/s. The sender's count is preferred where it is known, because it does not
/// suffer from a few lost packets.
fn goodput(result: &TestResult) -> f64 {
    /// A server's count of a download is accepted up to this multiple of the bytes that arrived here. Data that waits
    /// in a queue cannot explain a larger difference.
    const MOST: f64 = 1.5;
    let (from, to) = result.steady().next().unwrap_or_default();
    let rate = |flow: &Flow| {
        let told = flow.delivered_mbit_between(from, to);
        told.filter(|told| flow.direction == Direction::Upload || *told <= MOST * flow.mbit)
            .unwrap_or(flow.mbit)
    };
    result.flows.iter().map(rate).sum()
}

fn table(swept: &Swept) -> String {
    let mut text = format!(
        "{:<10}payload    Mbit/s    fitted   off by\n",
        swept.direction.name()
    );
    for (index, point) in swept.points.iter().enumerate() {
        text += &format!("{:>17.0} {:>9.3}", point.payload, point.goodput_mbit);
        if let Some(fit) = &swept.fit {
            let (fitted, off) = (fit.goodput(point.payload), fit.residuals[index] * 100.0);
            text += &format!(" {fitted:>9.3} {off:>+7.2} %");
        }
        text.push('\n');
    }
    match &swept.fit {
        Some(fit) => {
            text += &words(fit, swept.header_bytes);
            text += &comparison(swept);
        }
        None => text += swept.reason.as_deref().unwrap_or_default(),
    }
    text + "\n"
}

/// Compares the configuration with the measurement.
fn comparison(swept: &Swept) -> String {
    let Some(configured) = &swept.configured else {
        return String::new();
    };
    let cells = if configured.atm { ", ATM cells" } else { "" };
    let mut text = format!(
        "configured {:.3} Mbit/s, overhead {:.0}{cells}\n",
        configured.rate_mbit, configured.overhead
    );
    for advice in &swept.advice {
        text += &format!("to change  {advice}\n");
    }
    if swept.advice.is_empty() {
        text += "           which agrees with the measurement\n";
    }
    text
}

fn words(fit: &Fit, header_bytes: f64) -> String {
    let (low, high) = fit.gross_interval;
    let overhead = fit.bytes - header_bytes;
    let (fewest, most) = (
        fit.bytes_interval.0 - header_bytes,
        fit.bytes_interval.1 - header_bytes,
    );
    let framing = match fit.framing {
        Framing::Packets => "whole packets",
        Framing::AtmCells => "ATM cells (linklayer atm)",
    };
    format!(
        "gross rate {:.3} Mbit/s (95 %: {low:.3} to {high:.3})\n\
         per packet {:.1} bytes around the payload: {header_bytes:.0} of TCP and IP, and {overhead:.1} of overhead \
         (95 %: {fewest:.1} to {most:.1})\n\
         framing    {framing}\n",
        fit.gross_mbit, fit.bytes
    )
}

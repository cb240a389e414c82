//! `sqm test`.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use sqm_measure::client::{self, Family, Progress, Target};
use sqm_measure::protocol::DEFAULT_PORT;
use sqm_measure::result::{Settings, TestResult};
use sqm_measure::{Error, plot};

use crate::failure::Failure;

/// Latency while the line is full: uploads and downloads at once, with probes through all of it
///
/// Needs `sqm serve` on a machine beyond the line under test, and no privileges on either. First the idle line, then four
/// TCP flows each way, while a small packet goes there and back ten times a second.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm test server.example                          half a minute, figures on the terminal
  sqm test server.example --svg before.svg --json before.json --title 'no SQM'
  sqm test server.example --up 0 --down 1          one download alone
  sqm test server.example --dscp 0,cs1,cs5,ef      one flow per Wi-Fi class, as in RRUL
  sqm test server.example --json - | jq .summary

Exit codes: 0 done, 1 the test failed, 2 wrong arguments.")]
pub(crate) struct Args {
    /// Name or address of a machine that runs `sqm serve`
    host: String,
    /// TCP and UDP port of the server
    #[arg(long, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Downloads at once
    #[arg(long, value_name = "N", default_value_t = 4)]
    down: u32,
    /// Uploads at once
    #[arg(long, value_name = "N", default_value_t = 4)]
    up: u32,
    /// Length of the load
    #[arg(long, value_name = "TIME", default_value = "25s", value_parser = parse_ms)]
    duration: u64,
    /// Length of the idle phase before it
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_ms)]
    idle: u64,
    /// The figures leave out this much of the load's beginning, and its last second
    #[arg(long, value_name = "TIME", default_value = "4s", value_parser = parse_ms)]
    settle: u64,
    /// Congestion control of all senders at both ends; 'system' keeps each system's own. Unless given: cubic, or
    /// the system's own (with a warning) where only root may choose cubic
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// DSCP of the flows in turn, as numbers or names (ef, cs1, af41)
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0", value_parser = parse_dscp)]
    dscp: Vec<u8>,
    /// Time between two probes
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_ms)]
    probe_interval: u64,
    /// Writes the result with all samples to this file; '-' is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draws download, upload and latency over time into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Name of the test, for the result and the picture
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// IPv4 only
    #[arg(short = '4', conflicts_with = "v6")]
    v4: bool,
    /// IPv6 only
    #[arg(short = '6')]
    v6: bool,
    /// No progress and no table
    #[arg(long, short)]
    quiet: bool,
}

/// "25s", "100ms", "2m"; a bare number is seconds. In milliseconds.
fn parse_ms(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit {
        "ms" => 1.0,
        "s" | "" => 1000.0,
        "m" | "min" => 60_000.0,
        _ => return Err(format!("no unit of time '{unit}'; write 100ms, 25s or 2m")),
    };
    match number.parse::<f64>() {
        Ok(n) if (0.0..=1e9).contains(&n) => Ok((n * factor).round() as u64),
        _ => Err(format!("'{number}' is no length of time; write 100ms, 25s or 2m")),
    }
}

/// A code point by number or by name (RFC 2474, 2597, 3246, 8622).
fn parse_dscp(text: &str) -> Result<u8, String> {
    let lower = text.to_ascii_lowercase();
    let digits = |prefix: &str| lower.strip_prefix(prefix).map(str::as_bytes);
    let value = match lower.as_str() {
        "be" | "df" => Some(0),
        "le" => Some(1),
        "ef" => Some(46),
        number => number.parse().ok().filter(|n| *n < 64),
    };
    value
        .or_else(|| match digits("cs")? {
            [class @ b'0'..=b'7'] => Some((class - b'0') * 8),
            _ => None,
        })
        .or_else(|| match digits("af")? {
            [class @ b'1'..=b'4', drop @ b'1'..=b'3'] => Some((class - b'0') * 8 + (drop - b'0') * 2),
            _ => None,
        })
        .ok_or_else(|| format!("no DSCP '{text}'; write 0 to 63, be, le, ef, cs0 to cs7, or af11 to af43"))
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let mut settings = self.settings();
        let family = if self.v4 {
            Some(Family::V4)
        } else if self.v6 {
            Some(Family::V6)
        } else {
            None
        };
        let target = Target {
            host: self.host.clone(),
            port: self.port,
            family,
        };
        let mut display = Display::new(&settings, self.quiet);
        let title = self.title.as_deref();
        let mut outcome = client::run(&target, &settings, title, &mut |p| display.show(p));
        if let (Err(error @ Error::Congestion { .. }), None) = (&outcome, &self.congestion) {
            eprintln!("sqm: warning: {error}; measuring with the system's own, which the result names");
            settings.congestion = None;
            outcome = client::run(&target, &settings, title, &mut |p| display.show(p));
        }
        display.finish();
        let result = outcome.map_err(|error| match error {
            Error::Settings(_) | Error::Congestion { .. } => Failure::Usage(error.into()),
            other => Failure::Failed(other.into()),
        })?;
        self.deliver(&result)?;
        Ok(ExitCode::SUCCESS)
    }

    fn settings(&self) -> Settings {
        Settings {
            down: self.down,
            up: self.up,
            idle_ms: self.idle,
            load_ms: self.duration,
            settle_ms: self.settle,
            probe_interval_ms: self.probe_interval,
            congestion: match self.congestion.as_deref() {
                None => Some("cubic".to_owned()),
                Some("system") => None,
                Some(name) => Some(name.to_owned()),
            },
            dscp: self.dscp.clone(),
            ..Settings::default()
        }
    }

    fn deliver(&self, result: &TestResult) -> anyhow::Result<()> {
        let to_stdout = self.json.as_ref().is_some_and(|path| path.as_os_str() == "-");
        if let Some(path) = &self.svg {
            std::fs::write(path, plot::rrul(result))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        if let Some(path) = &self.json {
            let line = result.to_json() + "\n";
            if to_stdout {
                std::io::stdout()
                    .write_all(line.as_bytes())
                    .context("cannot write to standard output")?;
            } else {
                std::fs::write(path, line).with_context(|| format!("cannot write {}", path.display()))?;
            }
        }
        if !self.quiet && !to_stdout {
            std::io::stdout()
                .write_all(table(result).as_bytes())
                .context("cannot write to standard output")?;
        }
        Ok(())
    }
}

/// Progress on standard error: a bar on a terminal, lines elsewhere.
enum Display {
    Quiet,
    Lines { load_s: f64, announced_idle: bool },
    Bar { bar: ProgressBar, idle: Duration },
}

impl Display {
    fn new(settings: &Settings, quiet: bool) -> Self {
        if quiet {
            return Self::Quiet;
        }
        if !std::io::stderr().is_terminal() {
            return Self::Lines {
                load_s: settings.load_ms as f64 / 1000.0,
                announced_idle: false,
            };
        }
        let bar = ProgressBar::new(settings.idle_ms + settings.load_ms);
        let style = ProgressStyle::with_template("{wide_bar} {msg}").expect("the template is a constant");
        bar.set_style(style);
        Self::Bar {
            bar,
            idle: Duration::from_millis(settings.idle_ms),
        }
    }

    fn show(&mut self, progress: Progress) {
        let text = describe(progress);
        match self {
            Self::Quiet => {}
            Self::Lines {
                load_s,
                announced_idle,
            } => match progress {
                Progress::Idle { .. } if *announced_idle => {}
                Progress::Idle { .. } => {
                    *announced_idle = true;
                    eprintln!("idle line");
                }
                Progress::Load { elapsed, .. } => {
                    eprintln!("{:3.0} of {load_s:.0} s  {text}", elapsed.as_secs_f64());
                }
                Progress::Collect => eprintln!("{text}"),
            },
            Self::Bar { bar, idle } => {
                match progress {
                    Progress::Idle { elapsed, .. } => bar.set_position(elapsed.as_millis() as u64),
                    Progress::Load { elapsed, .. } => bar.set_position((*idle + elapsed).as_millis() as u64),
                    Progress::Collect => {}
                }
                bar.set_message(text);
            }
        }
    }

    fn finish(&self) {
        if let Self::Bar { bar, .. } = self {
            bar.finish_and_clear();
        }
    }
}

fn describe(progress: Progress) -> String {
    let ms = |rtt: Option<Duration>| match rtt {
        Some(rtt) => format!("{:.1} ms", rtt.as_secs_f64() * 1000.0),
        None => "no reply yet".to_owned(),
    };
    match progress {
        Progress::Idle { rtt, .. } => format!("idle, {}", ms(rtt)),
        Progress::Load {
            download_mbit,
            upload_mbit,
            rtt,
            ..
        } => {
            format!(
                "down {download_mbit:.1} Mbit/s, up {upload_mbit:.1} Mbit/s, {}",
                ms(rtt)
            )
        }
        Progress::Collect => "waiting for late packets".to_owned(),
    }
}

/// The figures for a person.
fn table(result: &TestResult) -> String {
    let summary = &result.summary;
    let ms = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.1}"));
    let mut text = String::new();
    let mut line = |name: &str, value: String, unit: &str, note: &str| {
        let row = format!("{name:<18}{value:>10} {unit:<8}{note}");
        writeln!(text, "{}", row.trim_end()).expect("a string grows");
    };
    let fairness = |index: Option<f64>, flows: u32| match index {
        Some(index) if flows > 1 => format!("{flows} flows, fairness {index:.2}"),
        _ if flows == 1 => "1 flow".to_owned(),
        _ => format!("{flows} flows"),
    };
    let settings = &result.meta.settings;
    let (from, to) = result.steady().next().unwrap_or_default();
    let window = format!(
        "median, from {:.0} s to {:.0} s of the load",
        from / 1000.0,
        to / 1000.0
    );
    line("idle latency", ms(summary.idle_ms), "ms", "median");
    line("loaded latency", ms(summary.latency_median_ms), "ms", &window);
    line("", ms(summary.latency_p95_ms), "ms", "95 % are below");
    line("", ms(summary.latency_p99_ms), "ms", "99 % are below");
    line("", ms(summary.latency_max_ms), "ms", "worst");
    let (down, up) = (
        fairness(summary.jain_down, settings.down),
        fairness(summary.jain_up, settings.up),
    );
    line(
        "download",
        format!("{:.2}", summary.download_mbit),
        "Mbit/s",
        &down,
    );
    line("upload", format!("{:.2}", summary.upload_mbit), "Mbit/s", &up);
    let sent = format!("of {} probes", summary.probes_sent);
    line("lost", summary.probes_lost.to_string(), "", &sent);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_take_units() {
        assert_eq!(parse_ms("25s"), Ok(25_000));
        assert_eq!(parse_ms("1.5"), Ok(1500));
        assert_eq!(parse_ms("100ms"), Ok(100));
        assert_eq!(parse_ms("2m"), Ok(120_000));
        for wrong in ["", "s", "-1s", "1h", "nan", "1e99"] {
            assert!(parse_ms(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn code_points_have_names() {
        for (text, value) in [
            ("0", 0),
            ("EF", 46),
            ("cs1", 8),
            ("cs5", 40),
            ("af41", 34),
            ("af13", 14),
            ("63", 63),
        ] {
            assert_eq!(parse_dscp(text), Ok(value));
        }
        for wrong in ["64", "cs8", "af44", "af1", "", "x"] {
            assert!(parse_dscp(wrong).is_err(), "{wrong}");
        }
    }
}

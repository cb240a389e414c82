//! `sqm tune`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use clap::ValueHint;
use sqm_configuration::uci_override;
use sqm_kernel::{capability, state};
use sqm_measure::client::Target;
use sqm_measure::plot::{self, Plot, Run, Sheet};
use sqm_measure::protocol::DEFAULT_PORT;

use super::test::read_secret;
use super::{completion, duration};
use crate::json;
use sqm_process::failure::Failure;
use sqm_tune::{Report, Results, Server};

/// The port of HTTPS.
const HTTPS: u16 = 443;

/// Find the highest rates at which latency stays flat under load, in about a minute and a half
///
/// Run it on the machine that shapes, against `sqm serve` beyond the line, while the line carries no other traffic. A
/// server of draft-ietf-ippm-responsiveness or a large file on the web works, too; settings that such a server cannot
/// measure keep their configured values, and the report names them. The configuration must have a section for the
/// interface. Its rates do not matter, its other options do. First downloads, then uploads fill the line while the
/// shaper's rates change; a test with both directions at once verifies the result. Afterwards the previous shaping is
/// restored, unless --write keeps the new rates.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm tune server.example                    find the best rates; the previous shaping is restored
  sqm tune server.example --write            write the rates to /etc/config/sqm and keep them in force
  sqm tune --rpm rpm.example                 any server of the IETF's responsiveness test (networkQuality)

Exit codes: 0 rates were found, 1 none were found, 2 wrong configuration or arguments, 3 needs root, 4 the kernel lacks a feature. 'sqm tune --help' says more.")]
#[command(after_long_help = "Examples:
  sqm tune server.example                    find the best rates; the previous shaping is restored
  sqm tune server.example --write            write the rates to /etc/config/sqm and keep them in force; the old file is kept
  sqm tune server.example --target 10ms      accept 10 ms of added latency
  sqm tune server.example wan0 --json
  sqm tune server.example --out before-and-after && sqm compare before-and-after/*.flent.gz
  sqm tune --rpm rpm.example                 any server of the IETF's responsiveness test (networkQuality)
  sqm tune https://rpm.example/.well-known/nq    the same, by the URL of its configuration
  sqm tune https://example.net/10GB.bin --reflector 192.0.2.53    any large file: searches the download only
  sqm tune https://example.net/10GB.bin --upload-url https://example.net/in    both directions, if that URL takes a POST

Exit codes: 0 rates were found, 1 no rates were found (the previous shaping is restored), 2 wrong configuration or arguments, 3 needs root, 4 the kernel lacks a feature")]
pub(crate) struct Args {
    /// Name or address of a machine that runs `sqm serve`, or a URL
    ///
    /// With --rpm it is any server of that protocol. A URL is that of such a server's configuration, or of a file so large that
    /// the line needs 15 s or more for it
    #[arg(value_name = "SERVER")]
    host: Option<String>,
    /// The interface to tune, if the configuration has several
    #[arg(add = completion::interfaces())]
    interface: Option<String>,
    /// SERVER as an option, so that INTERFACE can be given alone
    #[arg(help_heading = "Server", long, value_name = "SERVER")]
    server: Option<String>,
    /// SERVER speaks the protocol of draft-ietf-ippm-responsiveness over HTTPS
    ///
    /// `sqm serve` does, with --insecure --port 35353
    #[arg(help_heading = "Server", long)]
    rpm: bool,
    /// With the URL of a file: a URL that takes a POST of 25 MB
    ///
    /// Without it the upload keeps its configured rate
    #[arg(help_heading = "Server", long, value_name = "URL")]
    upload_url: Option<String>,
    /// With --rpm or a URL: the host that answers probes [default: the URL's host]
    ///
    /// As HOST or HOST:PORT; it answers by ICMP, TCP or DNS
    #[arg(help_heading = "Server", long, value_name = "HOST")]
    reflector: Option<String>,
    /// With --rpm or a URL: do not verify the server's certificate
    #[arg(help_heading = "Server", long)]
    insecure: bool,
    /// The configuration, in the format of OpenWrt's sqm
    #[arg(help_heading = "Search", long, value_name = "FILE", default_value = "/etc/config/sqm", value_parser = uci_override::parse, value_hint = ValueHint::FilePath)]
    config: PathBuf,
    /// Latency that load may add, 95th percentile; a bare number is milliseconds
    ///
    /// On slow lines the target is at least the time that two full packets each way and the acknowledgements between them take
    #[arg(help_heading = "Search", long, value_name = "TIME", default_value = "5ms", value_parser = parse_target)]
    target: f64,
    /// Write the rates to the configuration and leave the new shaping in force
    ///
    /// The old file is kept as FILE.before-tune
    #[arg(help_heading = "Search", long)]
    write: bool,
    /// Draw the latency before and after into this file, as SVG
    #[arg(help_heading = "Output", long, alias = "plot", value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Keep the measurements before and after in this folder
    ///
    /// As files for `sqm compare` and as pictures, and the report with every step as tune.json
    #[arg(help_heading = "Output", long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Do not measure how the line frames packets, which takes five seconds
    #[arg(help_heading = "Search", long)]
    quick: bool,
    /// Count the measured overhead of a packet in place of the configured one
    ///
    /// If they differ: in the search, and with --write in the configuration
    #[arg(help_heading = "Search", long, conflicts_with = "quick")]
    set_overhead: bool,
    /// Port of the server [default: 35353; 443 with --rpm]
    #[arg(help_heading = "Server", long)]
    port: Option<u16>,
    /// File whose first line is the server's secret
    #[arg(help_heading = "Server", long, value_name = "FILE")]
    secret: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(help_heading = "Output", long)]
    json: bool,
    /// Folder for the state that `sqm stop` restores
    #[arg(help_heading = "Search", long, value_name = "DIR", env = "SQM_STATE_DIR", default_value = state::DIRECTORY)]
    state_dir: PathBuf,
    /// Former options, whose error names what to use instead
    #[arg(long, hide = true)]
    dry_run: bool,
    #[arg(long, hide = true, num_args = 1..)]
    replay: Vec<String>,
}

fn is_url(place: &str) -> bool {
    place.starts_with("https://") || place.starts_with("http://")
}

fn parse_target(text: &str) -> Result<f64, String> {
    let ms = duration::parse_target(text)?.as_secs_f64() * 1000.0;
    match (0.5..=1000.0).contains(&ms) {
        true => Ok(ms),
        false => Err("the target must be from 0.5 to 1000 ms".to_owned()),
    }
}

impl Args {
    pub(super) const fn changes_something(&self) -> bool {
        self.write
    }

    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if !self.replay.is_empty() {
            return Err(Failure::Usage(anyhow!(
                "'sqm tune --replay' was renamed: run 'sqm autorate replay {}'",
                self.replay.join(" ")
            )));
        }
        if self.dry_run {
            return Err(Failure::Usage(anyhow!(
                "--dry-run was removed: without --write, tune restores the previous shaping anyway"
            )));
        }
        let (place, interface) = self.places()?;
        self.check_options(place)?;
        capability::require_privileges("sqm tune")?;
        let (place, interface) = (place.to_owned(), interface.map(str::to_owned));
        let options = sqm_tune::Options {
            config: self.config.clone(),
            interface,
            state_dir: self.state_dir.clone(),
            target_ms: self.target,
            skips_overhead: self.quick,
            sets_overhead: self.set_overhead,
            writes: self.write,
        };
        let args = Arc::new(self);
        let its = Arc::clone(&args);
        let report = sqm_tune::run(
            options,
            move || its.find(&place),
            |report, results| args.keep(report, results),
        )?;
        args.conclude(&report)
    }

    /// Prints the report. The exit code is success if rates were found, or if none are needed.
    fn conclude(&self, report: &Report) -> Result<ExitCode, Failure> {
        if self.json {
            outln!("{}", serde_json::to_string(&json::object(report))?);
        } else {
            out!("{}", report.text(&self.config));
        }
        if report.has_rates() || report.needs_none() {
            return Ok(ExitCode::SUCCESS);
        }
        Err(Failure::Failed(anyhow!(
            "no rate keeps latency within {} ms: the queue is not at this line; the previous shaping is restored",
            self.target
        )))
    }

    /// The server and the interface, if they are named.
    fn places(&self) -> Result<(&str, Option<&str>), Failure> {
        match (&self.server, &self.host, &self.interface) {
            (None, Some(server), interface) => Ok((server, interface.as_deref())),
            (Some(server), interface, None) => Ok((server, interface.as_deref())),
            (None, None, _) => Err(Failure::Usage(anyhow!(
                "no server to measure with: name a machine beyond the line that runs 'sqm serve' (sqm tune HOST), the URL of a \
                 large file (sqm tune URL), or a responsiveness server (sqm tune --rpm HOST)"
            ))),
            _ => Err(Failure::Usage(anyhow!(
                "name one server, as the first argument or with --server"
            ))),
        }
    }

    /// Refuses options that would have no effect.
    fn check_options(&self, place: &str) -> Result<(), Failure> {
        let is_url = is_url(place);
        if is_url && self.rpm {
            return Err(Failure::Usage(anyhow!(
                "--rpm takes the name of a server; with a URL, leave --rpm out"
            )));
        }
        let is_web = is_url || self.rpm;
        for (name, is_given, has_effect, with) in [
            (
                "--port",
                self.port.is_some(),
                !is_url,
                "the name of a server instead of a URL",
            ),
            (
                "--secret",
                self.secret.is_some(),
                !is_web,
                "a machine that runs sqm serve",
            ),
            ("--quick", self.quick, !is_web, "a machine that runs sqm serve"),
            (
                "--set-overhead",
                self.set_overhead,
                !is_web,
                "a machine that runs sqm serve",
            ),
            (
                "--upload-url",
                self.upload_url.is_some(),
                is_url,
                "the URL of a file",
            ),
            ("--reflector", self.reflector.is_some(), is_web, "--rpm or a URL"),
            ("--insecure", self.insecure, is_web, "--rpm or a URL"),
        ] {
            if is_given && !has_effect {
                return Err(Failure::Usage(anyhow!("{name} needs {with}")));
            }
        }
        Ok(())
    }

    fn find(&self, place: &str) -> Result<Server, Failure> {
        let found = if is_url(place) {
            Server::at(place, !self.insecure)
        } else if self.rpm {
            Server::rpm(place, self.port.unwrap_or(HTTPS), !self.insecure)
        } else {
            Ok(Server::Own(Target {
                host: place.to_owned(),
                port: self.port.unwrap_or(DEFAULT_PORT),
                family: None,
                secret: self.secret.as_deref().map(read_secret).transpose()?,
            }))
        };
        let found = found.map_err(|error| Failure::Failed(error.into()))?;
        Ok(found.with(self.upload_url.as_deref(), self.reflector.as_deref()))
    }

    /// Writes the requested files: results, pictures and the report.
    fn keep(&self, report: &Report, results: &Results) -> Result<(), Failure> {
        if self.out.is_none() && self.svg.is_none() {
            return Ok(());
        }
        let runs: Vec<Run<'_>> = results
            .iter()
            .map(|(name, result)| Run { name, result })
            .collect();
        let write = |path: &Path, text: &str| sqm_process::output_file::write(path, text);
        if let Some(file) = &self.svg {
            write(file, &plot::ping_cdf(&runs))?;
        }
        if let Some(folder) = &self.out {
            // Each picture in the widths of a large screen and of a phone.
            let draw = |name: &str, plot: Plot, runs: &[Run<'_>]| {
                for (suffix, sheet) in [("", Sheet::Wide), ("-narrow", Sheet::Narrow)] {
                    if let Some(picture) = plot.draw(runs, sheet) {
                        write(&folder.join(format!("{name}{suffix}.svg")), &picture)?;
                    }
                }
                Ok::<_, Failure>(())
            };
            std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
            for (name, result) in results {
                result.save(&folder.join(format!("{name}.flent.gz")))?;
                let run = Run { name, result };
                draw(name, Plot::AllScaled, &[run])?;
            }
            draw("latency", Plot::PingCdf, &runs)?;
            write(&folder.join("tune.json"), &json::pretty(&json::object(report))?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        args: Args,
    }

    fn args(words: &str) -> Args {
        let words = ["tune"].into_iter().chain(words.split_whitespace());
        Program::try_parse_from(words).expect("clap takes it").args
    }

    #[test]
    fn a_server_is_an_argument_or_an_option() {
        for (words, expected) in [
            ("a.example", ("a.example", None)),
            ("a.example wan0", ("a.example", Some("wan0"))),
            ("--server a.example", ("a.example", None)),
            ("--server a.example wan0", ("a.example", Some("wan0"))),
        ] {
            assert_eq!(args(words).places().ok(), Some(expected), "{words}");
        }
        assert!(args("--server a.example wan0 b.example").places().is_err());
        assert!(args("").places().is_err());
    }

    #[test]
    fn options_without_effect_are_refused() {
        let refused = |words| {
            let args = args(words);
            let place = args.places().expect("a place").0.to_owned();
            args.check_options(&place).is_err()
        };
        for words in [
            "https://a.example/file --rpm",
            "https://a.example/file --port 1",
            "https://a.example/file --secret f",
            "--rpm a.example --quick",
            "--rpm a.example --upload-url https://a.example/",
            "a.example --insecure",
            "a.example --reflector b.example",
        ] {
            assert!(refused(words), "{words}");
        }
        for words in [
            "a.example --port 1 --secret f --quick",
            "--rpm a.example --port 1 --insecure --reflector b.example",
            "http://a.example/file --upload-url http://a.example/in --reflector b.example:53 --insecure",
        ] {
            assert!(!refused(words), "{words}");
        }
    }
}

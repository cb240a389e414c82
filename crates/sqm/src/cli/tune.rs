//! `sqm tune`.

mod replay;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, anyhow};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use sqm_core::units::Rate;
use sqm_kernel::{capability, state};
use sqm_measure::client::Target;
use sqm_measure::plot::{self, Run};
use sqm_measure::protocol::DEFAULT_PORT;
use sqm_measure::result::{Direction, Settings, TestResult};

use super::test::read_secret;
use crate::tune::framing::{Loaded, rate};
use crate::tune::guard;
use crate::tune::limit;
use crate::tune::line::{self, Found, Plan as SearchPlan};
use crate::tune::load::Load;
use crate::tune::overhead::{self, Overhead};
use crate::tune::search::NO_BLOAT_MS;
use crate::tune::server::Server;
use crate::tune::shaper::{Lent, Shaper};
use crate::tune::verify::{Rates, Verification, Verified};
use crate::tune::{Log, Step, Trouble};
use sqm_process::failure::Failure;

/// The port of HTTPS.
const HTTPS: u16 = 443;
/// Transfers at once in each direction, as in RRUL.
const FLOWS: u32 = 4;

/// Find the highest rates at which latency stays flat under load, in about a minute and a half
///
/// Run it on the machine that shapes, against `sqm serve` beyond the line, while nobody else uses the line. Any server of
/// draft-ietf-ippm-responsiveness will do as well, or any large file on the web: what those cannot tell stays as it is
/// configured, and is said. It needs a configured section for the interface; its rates do not matter, everything else does.
/// First downloads, then uploads fill the line while the shaper's rates change under them; a test with both at once ends it.
/// The shaping from before is back afterwards, unless you take the new rates with --write.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm tune server.example                    what would be best; everything is as before afterwards
  sqm tune server.example --write            the rates into /etc/config/sqm and the kernel; the old file is kept
  sqm tune server.example --target 10        10 ms of added latency are fine
  sqm tune server.example wan0 --json
  sqm tune server.example --out before-and-after && sqm compare before-and-after/*.flent.gz
  sqm tune --rpm rpm.example                 a server of the IETF's responsiveness test, as networkQuality has it
  sqm tune https://rpm.example/.well-known/nq    the same by the URL of its configuration
  sqm tune https://example.net/10GB.bin --reflector 192.0.2.53    any large file: the download alone is searched
  sqm tune https://example.net/10GB.bin --upload-url https://example.net/in    both, if something takes a POST there
  sqm tune --replay /tmp/rates.csv                         autorate's decisions again, beside those of then
  sqm tune --replay /tmp/rates.csv.old /tmp/rates.csv --max-download 60mbit --plot rates.svg
  sqm tune --replay /tmp/rates.csv --json | jq -e '.first_difference == null'

Exit codes: 0 rates were found, or the log was replayed (whatever came of it), 1 no rates were found (everything is as before)
or the log is broken, 2 wrong configuration or arguments, 3 needs root, 4 the kernel lacks a part")]
pub(crate) struct Args {
    /// Name or address of a machine that runs `sqm serve`, with --rpm of any server of that protocol; or the URL of such a
    /// server's configuration; or that of a large file, which lasts 15 s at the line's rate or longer
    #[arg(value_name = "SERVER", required_unless_present_any = ["server", "replay", "guard"])]
    host: Option<String>,
    /// The interface, if the configuration has several
    interface: Option<String>,
    /// The same as SERVER in front; INTERFACE may then stand alone
    #[arg(long, value_name = "SERVER")]
    server: Option<String>,
    /// SERVER speaks the protocol of draft-ietf-ippm-responsiveness over HTTPS; `sqm serve` does, with
    /// --insecure --port 35353
    #[arg(long)]
    rpm: bool,
    /// With the URL of a file: what takes a POST of 25 MB. Without it the upload stays as it is configured
    #[arg(long, value_name = "URL")]
    upload_url: Option<String>,
    /// With --rpm or a URL: who is asked for the time, by ICMP, TCP and DNS, as HOST or HOST:PORT [default: the URL's host]
    #[arg(long, value_name = "HOST")]
    reflector: Option<String>,
    /// With --rpm or a URL: take the server's certificate as it is
    #[arg(long)]
    insecure: bool,
    /// The configuration, in the format of OpenWrt's sqm
    #[arg(long, value_name = "FILE", default_value = "/etc/config/sqm")]
    config: PathBuf,
    /// Latency that load may add, 95th percentile, in milliseconds. Two full packets each way, and the acknowledgements
    /// between them, take their time on any line: on slow ones the target is not less than that
    #[arg(long, value_name = "MS", default_value_t = 5.0, value_parser = parse_target)]
    target: f64,
    /// Write the rates to the configuration, keep the old one beside it as FILE.before-tune, and leave the new shaping on
    #[arg(long, conflicts_with = "dry_run")]
    write: bool,
    /// Change nothing for good: this is so without --write, too
    #[arg(long)]
    dry_run: bool,
    /// Draw the latency before and after into this file, as SVG; with --replay, the rates then and now
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Keep the measurements before and after in this folder, as files for `sqm compare` and as pictures, and the report
    /// with every step as tune.json
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Do not look at how the line frames packets, which takes five seconds
    #[arg(long)]
    quick: bool,
    /// Port of the server [default: 35353; 443 with --rpm]
    #[arg(long)]
    port: Option<u16>,
    /// File whose first line is the secret that the server wants its clients to know
    #[arg(long, value_name = "FILE")]
    secret: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Where to keep what stop must put back
    #[arg(long, value_name = "DIR", env = "SQM_STATE_DIR", default_value = state::DIRECTORY)]
    state_dir: PathBuf,
    /// Waits for the end of the tune that started it, and puts back the shaping from before if that could not
    #[arg(long, hide = true)]
    guard: bool,
    #[command(flatten)]
    replay: replay::ReplayArgs,
}

fn is_url(place: &str) -> bool {
    place.starts_with("https://") || place.starts_with("http://")
}

fn parse_target(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ms) if (0.5..=1000.0).contains(&ms) => Ok(ms),
        _ => Err("a target is from 0.5 to 1000 ms".to_owned()),
    }
}

/// Everything that was found out.
#[derive(Serialize)]
struct Report {
    interface: String,
    target_ms: f64,
    /// Whom the line was loaded with: sqm serve, rpm or url.
    server: &'static str,
    /// What such a server cannot tell, and what becomes of it.
    not_told: Vec<String>,
    /// What full packets alone add with all loaded directions full: the target where it is more.
    floor_ms: f64,
    /// How the line frames packets; none if that could not be told.
    overhead: Option<Overhead>,
    found: Vec<Found>,
    /// With the rates set and all directions loaded that can be.
    verified: Option<Verified>,
    /// Rates for the configuration, kbit/s; 0 leaves a direction unshaped. One that was not searched keeps its own.
    download_kbit: u64,
    upload_kbit: u64,
    is_written: bool,
    /// Why the target does not hold, if it does not.
    warning: Option<String>,
    /// Everything that was done, with its reason.
    steps: Vec<Step>,
}

/// What a search has come to.
struct Tuned {
    report: Report,
    /// The measurements, if they are to be kept.
    results: Vec<(String, TestResult)>,
}

impl Args {
    pub(super) const fn changes_something(&self) -> bool {
        self.write
    }

    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if self.guard {
            return guard::watch(&self.state_dir);
        }
        if self.replay.is_wanted() {
            self.replay.run(self.json, self.plot.as_deref())?;
            return Ok(ExitCode::SUCCESS);
        }
        capability::require_privileges("sqm tune")?;
        let (place, interface) = self.places()?;
        self.check_options(place)?;
        let lent = Lent::new(Shaper::open(&self.config, interface, &self.state_dir)?);
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, stop.clone()).context("cannot listen for signals")?;
        }
        let args = Arc::new(self);
        let (its, shaper, its_stop) = (Arc::clone(&args), lent.clone(), Arc::clone(&stop));
        let tuned = limit::run(&stop, move || its.tune(&shaper, &its_stop));
        // Whatever becomes of the search, it changes nothing from here on.
        let shaper = lent.take_back().ok_or_else(|| {
            Failure::Failed(anyhow!(
                "the kernel does not answer; the shaping from before comes back when it does"
            ))
        })?;
        args.conclude(tuned, shaper)
    }

    /// Puts the shaping from before back, or the new rates into force, and says what was found.
    fn conclude(&self, tuned: Result<Tuned, Failure>, mut shaper: Shaper) -> Result<ExitCode, Failure> {
        let is_to_stay = self.write && tuned.as_ref().is_ok_and(|tuned| tuned.report.has_rates());
        if !is_to_stay {
            shaper.undo()?;
        }
        let Tuned { mut report, results } = tuned?;
        self.keep(&results, &report)?;
        if is_to_stay {
            let found = |direction, kbit| report.found(direction).map(|_| Rate::from_kbits_per_sec(kbit));
            shaper.write((
                found(Direction::Down, report.download_kbit),
                found(Direction::Up, report.upload_kbit),
            ))?;
            report.is_written = true;
        }
        if self.json {
            outln!("{}", serde_json::to_string(&report)?);
        } else {
            out!("{}", text(&report, self));
        }
        if report.has_rates() || report.needs_none() {
            return Ok(ExitCode::SUCCESS);
        }
        Err(Failure::Failed(anyhow!(
            "no rate keeps latency within {} ms: the queue is not at this line; everything is as it was before",
            self.target
        )))
    }

    /// The server and the interface, as far as they are named.
    fn places(&self) -> Result<(&str, Option<&str>), Failure> {
        match (&self.server, &self.host, &self.interface) {
            (None, Some(server), interface) => Ok((server, interface.as_deref())),
            (Some(server), interface, None) => Ok((server, interface.as_deref())),
            _ => Err(Failure::Usage(anyhow!(
                "name one server: in front, or with --server"
            ))),
        }
    }

    /// Refuses what would have no effect.
    fn check_options(&self, place: &str) -> Result<(), Failure> {
        let is_url = is_url(place);
        if is_url && self.rpm {
            return Err(Failure::Usage(anyhow!(
                "--rpm goes with the name of a server; a URL needs no --rpm"
            )));
        }
        let is_web = is_url || self.rpm;
        for (name, is_given, has_effect, with) in [
            (
                "--port",
                self.port.is_some(),
                !is_url,
                "the name of a server, not with a URL",
            ),
            (
                "--secret",
                self.secret.is_some(),
                !is_web,
                "a machine that runs sqm serve",
            ),
            ("--quick", self.quick, !is_web, "a machine that runs sqm serve"),
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
                return Err(Failure::Usage(anyhow!("{name} goes with {with}")));
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

    fn tune(&self, shaper: &Lent, stop: &AtomicBool) -> Result<Tuned, Failure> {
        let mut log = Log::new();
        let server = &self.find(self.places()?.0)?;
        let directions = server.directions();
        let flows = |direction| if directions.contains(&direction) { FLOWS } else { 0 };
        let mut settings = Settings {
            down: flows(Direction::Down),
            up: flows(Direction::Up),
            ..Settings::default()
        };
        if !has_cubic() {
            settings.congestion = None;
        }
        let (mut found, mut loads) = (Vec::new(), Vec::new());
        let mut not_told = server.not_told();
        for untold in &not_told {
            log.say(None, format!("not told by such a server: {untold}"));
        }
        shaper.with(|shaper| shaper.lift(&directions))?;
        let framing = || shaper.with(|shaper| Ok::<_, Failure>(shaper.framing()));
        let overhead = match server {
            Server::Own(target) if !self.quick => overhead::check(target, framing()?, stop, &mut log),
            _ => None,
        };
        if let Some(overhead) = &overhead {
            shaper.with(|shaper| shaper.set_options(&overhead.options))?;
        }
        let framing = framing()?;
        let (interface, configured) = shaper.with(|shaper| {
            let configured = |direction| shaper.configured(direction);
            let configured = [configured(Direction::Down), configured(Direction::Up)];
            Ok::<_, Failure>((shaper.interface().to_owned(), configured))
        })?;
        let set = |direction, mbit| shaper.with(|shaper| shaper.set(direction, mbit));
        for direction in directions.iter().copied() {
            let plan = SearchPlan {
                server,
                direction,
                interface: &interface,
                allowed_ms: self.target,
                framing,
                settings: settings.clone(),
                stop,
            };
            let (one, load) = plan
                .run(&mut |rate| set(direction, rate), &mut log)
                .map_err(for_user)?;
            set(direction, one.rate_mbit)?;
            found.push(one);
            loads.push((direction, load));
        }
        let of = |direction| found.iter().find(|found: &&Found| found.direction == direction);
        let shaped = |direction| {
            let found = of(direction)?;
            Some(rate(found.rate_mbit.unwrap_or(found.carried_mbit)))
        };
        let loaded = Loaded {
            down: shaped(Direction::Down),
            up: shaped(Direction::Up),
        };
        let floor_ms = framing.floor_ms(loaded);
        if let (Some(down), None, Some(up)) = (loaded.down, loaded.up, configured[1])
            && let Some(narrow) = framing.too_narrow_for_acknowledgements(down, up)
        {
            log.say(Some(Direction::Up), narrow.clone());
            not_told.push(narrow);
        }
        let idle_ms = found.iter().map(|found| found.idle_ms).sum::<f64>() / found.len() as f64;
        let carried = Rates::carried(of(Direction::Down), of(Direction::Up));
        let rates = Rates::together(of(Direction::Down), of(Direction::Up), framing.packet_mbit());
        if let (Some(alone), Some(down)) = (of(Direction::Down).and_then(|found| found.rate_mbit), rates.down)
            && down < alone
        {
            log.say(
                Some(Direction::Down),
                format!(
                    "{down:.2} Mbit/s to begin with beside this upload: acknowledgements that wait for its packets let loose bursts"
                ),
            );
        }
        let kept = |(direction, configured): (Direction, Option<Rate>)| match of(direction) {
            Some(_) => 0,
            None => configured.map_or(0, |rate| rate.bits_per_sec() / 1000),
        };
        let kept = [(Direction::Down, configured[0]), (Direction::Up, configured[1])].map(kept);
        let mut report = Report {
            interface: interface.clone(),
            target_ms: self.target,
            server: server.kind(),
            not_told,
            floor_ms,
            overhead,
            found,
            verified: None,
            download_kbit: kept[0],
            upload_kbit: kept[1],
            is_written: false,
            warning: None,
            steps: Vec::new(),
        };
        let mut after = None;
        if rates.down.is_some() || rates.up.is_some() {
            let verification = Verification {
                server,
                interface: &interface,
                framing,
                settings: &settings,
                carried,
                floor_ms,
                idle_ms,
                probe_interval_ms: framing.probe_interval_ms(loaded),
                allowed_ms: self.target,
                stop,
            };
            let mut shape = |rates: Rates| {
                let mut searched = directions.iter();
                searched.try_for_each(|direction| set(*direction, rates.of(*direction)))
            };
            let proof = verification.run(rates, &mut shape, &mut log).map_err(for_user)?;
            for found in &report.found {
                let mbit = proof.rates.of(found.direction).unwrap_or_default();
                let kbit = (mbit * 1000.0).floor() as u64;
                match found.direction {
                    Direction::Down => report.download_kbit = kbit,
                    Direction::Up => report.upload_kbit = kbit,
                }
            }
            report.verified = Some(proof.verified);
            report.warning = proof.warning;
            after = Some(proof.result);
        }
        report.steps = log.into_steps();
        let results = match self.out.is_none() && self.plot.is_none() {
            true => Vec::new(),
            false => results(loads, after),
        };
        Ok(Tuned { report, results })
    }

    /// Writes what was asked for: results, pictures and the report.
    fn keep(&self, results: &[(String, TestResult)], report: &Report) -> Result<(), Failure> {
        if self.out.is_none() && self.plot.is_none() {
            return Ok(());
        }
        let runs: Vec<Run<'_>> = results
            .iter()
            .map(|(name, result)| Run { name, result })
            .collect();
        let write = |path: &Path, text: &str| sqm_process::written::write(path, text);
        if let Some(file) = &self.plot {
            write(file, &plot::ping_cdf(&runs))?;
        }
        if let Some(folder) = &self.out {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
            for (name, result) in results {
                result.save(&folder.join(format!("{name}.flent.gz")))?;
                write(&folder.join(format!("{name}.svg")), &plot::rrul(result))?;
            }
            write(&folder.join("latency.svg"), &plot::ping_cdf(&runs))?;
            write(&folder.join("tune.json"), &serde_json::to_string_pretty(report)?)?;
        }
        Ok(())
    }
}

impl Report {
    fn has_rates(&self) -> bool {
        self.found.iter().any(|found| found.rate_mbit.is_some())
    }

    /// What was found out of a direction; none if it was not searched.
    fn found(&self, direction: Direction) -> Option<&Found> {
        self.found.iter().find(|found| found.direction == direction)
    }

    /// Options without which the rates are wrong.
    fn options(&self) -> &[(&'static str, String)] {
        self.overhead.as_ref().map_or(&[], |overhead| &overhead.options)
    }

    /// Nothing bloats.
    fn needs_none(&self) -> bool {
        self.found.iter().all(|found| found.bloat_ms <= NO_BLOAT_MS)
    }
}

/// The line without a shaper, and as it is tuned.
fn results(loads: Vec<(Direction, Load)>, after: Option<TestResult>) -> Vec<(String, TestResult)> {
    let unshaped = loads.into_iter().filter_map(|(direction, load)| {
        Some((
            format!("before-{}", direction.word()),
            line::without_shaper(load, direction)?,
        ))
    });
    unshaped
        .chain(after.map(|after| ("after".to_owned(), after)))
        .collect()
}

fn has_cubic() -> bool {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .is_ok_and(|list| list.split_whitespace().any(|name| name == "cubic"))
}

fn for_user(trouble: Trouble) -> Failure {
    match trouble {
        Trouble::Measuring(error) => Failure::Failed(anyhow!("{error}; the shaping from before is back")),
        Trouble::Shaping(error) => Failure::Failed(error),
        Trouble::Interrupted => Failure::Failed(anyhow!("interrupted; the shaping from before is back")),
    }
}

fn text(report: &Report, args: &Args) -> String {
    let mut text = String::new();
    for advice in report.overhead.iter().flat_map(|overhead| &overhead.advice) {
        text += &format!("overhead  {advice}\n");
    }
    for untold in &report.not_told {
        text += &format!("not told  {untold}\n");
    }
    for found in &report.found {
        let rate = match found.rate_mbit {
            Some(rate) => format!("{:.0} kbit/s", rate * 1000.0),
            None => "no rate keeps latency flat".to_owned(),
        };
        text += &format!(
            "{:<9} idle {:.1} ms, load added {:.1} ms at {:.2} Mbit/s: {rate}\n",
            found.direction.word(),
            found.idle_ms,
            found.bloat_ms,
            found.unshaped_mbit,
        );
    }
    if let Some(verified) = &report.verified {
        let carried = report.found.iter().map(|found| match found.direction {
            Direction::Down => format!("download {:.2}", verified.download_mbit),
            Direction::Up => format!("upload {:.2}", verified.upload_mbit),
        });
        text += &format!(
            "verified  idle {:.1} ms, load adds {:.1} ms; {} Mbit/s\n",
            verified.idle_ms,
            verified.added_p95_ms,
            carried.collect::<Vec<_>>().join(", ")
        );
    }
    if let Some(warning) = &report.warning {
        text += &format!("warning   {warning}\n");
    } else if report.has_rates() && report.floor_ms > report.target_ms {
        text += &format!(
            "          of that, full packets take up to {:.1} ms on this line: no less was to be had\n",
            report.floor_ms
        );
    }
    if report.is_written {
        text += &format!(
            "written to {}; the new rates are in force\n",
            args.config.display()
        );
    } else if report.has_rates() {
        text += &format!(
            "the shaping from before is back; for {}:\n",
            args.config.display()
        );
        for found in &report.found {
            let (option, kbit) = match found.direction {
                Direction::Down => ("download", report.download_kbit),
                Direction::Up => ("upload", report.upload_kbit),
            };
            text += &format!("\toption {option} '{kbit}'\n");
        }
        for (option, value) in report.options() {
            text += &format!("\toption {option} '{value}'\n");
        }
    }
    text
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
    fn a_server_stands_in_front_or_behind_its_option() {
        for (words, expected) in [
            ("a.example", ("a.example", None)),
            ("a.example wan0", ("a.example", Some("wan0"))),
            ("--server a.example", ("a.example", None)),
            ("--server a.example wan0", ("a.example", Some("wan0"))),
        ] {
            assert_eq!(args(words).places().ok(), Some(expected), "{words}");
        }
        assert!(args("--server a.example wan0 b.example").places().is_err());
        assert!(Program::try_parse_from(["tune"]).is_err());
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

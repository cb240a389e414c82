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

use super::shape::failure;
use super::test::read_secret;
use crate::failure::Failure;
use crate::tune::framing::{Loaded, rate};
use crate::tune::line::{Found, Load, Plan as SearchPlan};
use crate::tune::overhead::{self, Overhead};
use crate::tune::search::NO_BLOAT_MS;
use crate::tune::shaper::Shaper;
use crate::tune::verify::{Rates, Verification, Verified};
use crate::tune::{Log, Step, Trouble};

/// Find the highest rates at which latency stays flat under load, in about a minute and a half
///
/// Run it on the machine that shapes, against `sqm serve` beyond the line, while nobody else uses the line. It needs a
/// configured section for the interface; its rates do not matter, everything else does. First downloads, then uploads fill
/// the line while the shaper's rates change under them; a test with both at once ends it. The shaping from before is back
/// afterwards, unless you take the new rates with --write.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm tune server.example                    what would be best; everything is as before afterwards
  sqm tune server.example --write            the rates into /etc/config/sqm and the kernel; the old file is kept
  sqm tune server.example --target 10        10 ms of added latency are fine
  sqm tune server.example wan0 --json
  sqm tune server.example --out before-and-after && sqm compare before-and-after/*.flent.gz
  sqm tune --replay /tmp/rates.csv                         autorate's decisions again, beside those of then
  sqm tune --replay /tmp/rates.csv.old /tmp/rates.csv --max-download 60mbit --plot rates.svg
  sqm tune --replay /tmp/rates.csv --json | jq -e '.first_difference == null'

Exit codes: 0 rates were found, or the log was replayed (whatever came of it), 1 no rates were found (everything is as before)
or the log is broken, 2 wrong configuration or arguments, 3 needs root, 4 the kernel lacks a part")]
pub(crate) struct Args {
    /// Name or address of a machine that runs `sqm serve`
    #[arg(required_unless_present = "replay")]
    host: Option<String>,
    /// The interface, if the configuration has several
    interface: Option<String>,
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
    /// TCP and UDP port of the server
    #[arg(long, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// File whose first line is the secret that the server wants its clients to know
    #[arg(long, value_name = "FILE")]
    secret: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Where to keep what stop must put back
    #[arg(long, value_name = "DIR", env = "SQM_STATE_DIR", default_value = state::DIRECTORY)]
    state_dir: PathBuf,
    #[command(flatten)]
    replay: replay::ReplayArgs,
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
    /// What full packets alone add with both directions full: the target where it is more.
    floor_ms: f64,
    /// How the line frames packets; none if that could not be told.
    overhead: Option<Overhead>,
    found: Vec<Found>,
    /// With both rates set and both directions loaded.
    verified: Option<Verified>,
    /// Rates for the configuration, kbit/s; 0 leaves a direction unshaped.
    download_kbit: u64,
    upload_kbit: u64,
    is_written: bool,
    /// Why the target does not hold, if it does not.
    warning: Option<String>,
    /// Everything that was done, with its reason.
    steps: Vec<Step>,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if self.replay.is_wanted() {
            self.replay.run(self.json, self.plot.as_deref())?;
            return Ok(ExitCode::SUCCESS);
        }
        capability::require_privileges("sqm tune").map_err(failure)?;
        let mut shaper = Shaper::open(&self.config, self.interface.as_deref(), &self.state_dir)?;
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, stop.clone()).context("cannot listen for signals")?;
        }
        let tuned = self.tune(&mut shaper, &stop);
        let keep = self.write && tuned.as_ref().is_ok_and(Report::has_rates);
        let mut report = match (tuned, shaper.finish(keep)) {
            (tuned, Ok(())) => tuned?,
            (_, Err(restore)) => return Err(restore),
        };
        if keep {
            let kbit = Rate::from_kbits_per_sec;
            shaper.write((kbit(report.download_kbit), kbit(report.upload_kbit)))?;
            report.is_written = true;
        }
        if self.json {
            println!("{}", serde_json::to_string(&report)?);
        } else {
            print!("{}", text(&report, &self));
        }
        if report.has_rates() || report.needs_none() {
            return Ok(ExitCode::SUCCESS);
        }
        Err(Failure::Failed(anyhow!(
            "no rate keeps latency within {} ms: the queue is not at this line; everything is as it was before",
            self.target
        )))
    }

    fn tune(&self, shaper: &mut Shaper, stop: &AtomicBool) -> Result<Report, Failure> {
        let target = Target {
            host: self.host.clone().unwrap_or_default(),
            port: self.port,
            family: None,
            secret: self.secret.as_deref().map(read_secret).transpose()?,
        };
        let mut settings = Settings {
            down: 4,
            up: 4,
            ..Settings::default()
        };
        if !has_cubic() {
            settings.congestion = None;
        }
        let mut log = Log::new();
        let (mut found, mut loads) = (Vec::new(), Vec::new());
        shaper.lift()?;
        let overhead = match self.quick {
            true => None,
            false => overhead::check(&target, shaper.framing(), stop, &mut log),
        };
        if let Some(overhead) = &overhead {
            shaper.set_options(&overhead.options)?;
        }
        let (interface, framing) = (shaper.interface().to_owned(), shaper.framing());
        for direction in [Direction::Down, Direction::Up] {
            let plan = SearchPlan {
                target: &target,
                direction,
                interface: &interface,
                allowed_ms: self.target,
                framing,
                settings: settings.clone(),
                stop,
            };
            let (one, load) = plan
                .run(&mut |rate| shaper.set(direction, rate), &mut log)
                .map_err(for_user)?;
            shaper.set(direction, one.rate_mbit)?;
            found.push(one);
            loads.push((direction, load));
        }
        let carried = |found: &Found| Some(rate(found.rate_mbit.unwrap_or(found.unshaped_mbit)));
        let floor_ms = framing.floor_ms(Loaded {
            down: carried(&found[0]),
            up: carried(&found[1]),
        });
        let mut report = Report {
            interface,
            target_ms: self.target,
            floor_ms,
            overhead,
            found,
            verified: None,
            download_kbit: 0,
            upload_kbit: 0,
            is_written: false,
            warning: None,
            steps: Vec::new(),
        };
        let mut after = None;
        let rates = Rates {
            down: report.found[0].rate_mbit,
            up: report.found[1].rate_mbit,
        };
        if rates.down.is_some() || rates.up.is_some() {
            let verification = Verification {
                target: &target,
                settings: &settings,
                floor_ms,
                allowed_ms: self.target,
                stop,
            };
            let mut shape = |rates: Rates| {
                shaper.set(Direction::Down, rates.down)?;
                shaper.set(Direction::Up, rates.up)
            };
            let proof = verification.run(rates, &mut shape, &mut log).map_err(for_user)?;
            let kbit = |mbit: Option<f64>| mbit.map_or(0, |mbit| (mbit * 1000.0).floor() as u64);
            report.download_kbit = kbit(proof.rates.down);
            report.upload_kbit = kbit(proof.rates.up);
            report.verified = Some(proof.verified);
            report.warning = proof.warning;
            after = Some(proof.result);
        }
        report.steps = log.into_steps();
        self.keep(loads, after, &report)?;
        Ok(report)
    }

    /// Writes what was asked for: results, pictures and the report.
    fn keep(
        &self,
        loads: Vec<(Direction, Load)>,
        after: Option<TestResult>,
        report: &Report,
    ) -> Result<(), Failure> {
        if self.out.is_none() && self.plot.is_none() {
            return Ok(());
        }
        let unshaped = loads.into_iter().filter_map(|(direction, load)| {
            Some((format!("before-{}", direction.word()), load.unshaped(direction)?))
        });
        let mut results: Vec<(String, TestResult)> = unshaped.collect();
        results.extend(after.map(|after| ("after".to_owned(), after)));
        let runs: Vec<Run<'_>> = results
            .iter()
            .map(|(name, result)| Run { name, result })
            .collect();
        let write = |path: &Path, text: &str| {
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        if let Some(file) = &self.plot {
            write(file, &plot::ping_cdf(&runs))?;
        }
        if let Some(folder) = &self.out {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
            for (name, result) in &results {
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
        self.download_kbit > 0 || self.upload_kbit > 0
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
        text += &format!(
            "both      idle {:.1} ms, load adds {:.1} ms; download {:.2}, upload {:.2} Mbit/s\n",
            verified.idle_ms, verified.added_p95_ms, verified.download_mbit, verified.upload_mbit
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
            "the shaping from before is back; for {}:\n\toption download '{}'\n\toption upload '{}'\n",
            args.config.display(),
            report.download_kbit,
            report.upload_kbit
        );
        for (option, value) in report.options() {
            text += &format!("\toption {option} '{value}'\n");
        }
    }
    text
}

//! `sqm tune`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, anyhow};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use sqm_core::units::Rate;
use sqm_kernel::apply::{self, Started};
use sqm_kernel::netlink::link::Link;
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::state::{self, Store};
use sqm_kernel::{capability, observe, stack};
use sqm_measure::client::{self, Hooks, Target, Test};
use sqm_measure::protocol::DEFAULT_PORT;
use sqm_measure::result::{Direction, Settings, TestResult};
use sqm_measure::scenario::Scenario;
use sqm_plan::line::ConfiguredLine;
use sqm_plan::plan::Plan;
use sqm_plan::uci::Document;

use super::config;
use super::shape::failure;
use super::test::read_secret;
use crate::failure::Failure;
use crate::replace::replace;
use crate::tune::line::{Found, Framing, Plan as SearchPlan, Trouble};
use crate::tune::search::NO_BLOAT_MS;

/// Lifts the limit: no line is as fast, and the shaper's arithmetic still holds.
const UNLIMITED: Rate = Rate::from_kbits_per_sec(10_000_000);
/// Length of the test at the end, and of its beginning that does not count, in milliseconds.
const VERIFY_MS: u64 = 13_000;
const VERIFY_SETTLE_MS: u64 = 7000;
/// Time between its probes, in milliseconds.
const PROBE_INTERVAL_MS: u64 = 40;

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

Exit codes: 0 rates were found, 1 they were not (everything is as before), 2 wrong configuration or arguments,
3 needs root, 4 the kernel lacks a part")]
pub(crate) struct Args {
    /// Name or address of a machine that runs `sqm serve`
    host: String,
    /// The interface, if the configuration has several
    interface: Option<String>,
    /// The configuration, in the format of OpenWrt's sqm
    #[arg(long, value_name = "FILE", default_value = "/etc/config/sqm")]
    config: PathBuf,
    /// Latency that load may add, 95th percentile, in milliseconds; never less than two full packets take on the line
    #[arg(long, value_name = "MS", default_value_t = 5.0, value_parser = parse_target)]
    target: f64,
    /// Write the rates to the configuration, keep the old one beside it as FILE.before-tune, and leave the new shaping on
    #[arg(long, conflicts_with = "dry_run")]
    write: bool,
    /// Change nothing for good: this is so without --write, too
    #[arg(long)]
    dry_run: bool,
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
    found: Vec<Found>,
    /// With both rates set and both directions loaded.
    verified: Option<Verified>,
    /// Rates for the configuration, kbit/s; 0 leaves a direction unshaped.
    download_kbit: u64,
    upload_kbit: u64,
    is_written: bool,
}

#[derive(Clone, Copy, Serialize)]
struct Verified {
    idle_ms: f64,
    added_p95_ms: f64,
    download_mbit: f64,
    upload_mbit: f64,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        capability::require_privileges("sqm tune").map_err(failure)?;
        let mut shaper = Shaper::open(&self)?;
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
            self.write_rates(&shaper, &report)?;
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
            host: self.host.clone(),
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
        let mut found = Vec::new();
        let (line, header) = (shaper.line.clone(), shaper.header);
        for direction in [Direction::Down, Direction::Up] {
            let plan = SearchPlan {
                target: &target,
                direction,
                allowed_ms: self.target,
                framing: Framing { line: &line, header },
                settings: settings.clone(),
                stop,
            };
            let one = plan
                .run(&mut |rate| shaper.set(direction, rate), &mut |what| {
                    eprintln!("{}: {what}", direction.word());
                })
                .map_err(for_user)?;
            shaper.set(direction, one.rate_mbit)?;
            found.push(one);
        }
        let kbit = |found: &Found| found.rate_mbit.map_or(0, |mbit| (mbit * 1000.0).floor() as u64);
        let (download_kbit, upload_kbit) = (kbit(&found[0]), kbit(&found[1]));
        let mut report = Report {
            interface: shaper.line.interface.clone(),
            target_ms: self.target,
            found,
            verified: None,
            download_kbit,
            upload_kbit,
            is_written: false,
        };
        if report.has_rates() {
            eprintln!("both: a test with these rates");
            report.verified = Some(verify(&target, &settings, stop)?);
        }
        Ok(report)
    }

    /// The new file appears whole or not at all.
    fn write_rates(&self, shaper: &Shaper, report: &Report) -> Result<(), Failure> {
        let rates = (
            Rate::from_kbits_per_sec(report.download_kbit),
            Rate::from_kbits_per_sec(report.upload_kbit),
        );
        let text = shaper.text_with(rates);
        let mut kept = self.config.as_os_str().to_owned();
        kept.push(".before-tune");
        let kept = PathBuf::from(kept);
        std::fs::copy(&self.config, &kept).with_context(|| format!("cannot write {}", kept.display()))?;
        Ok(replace(&self.config, &text)?)
    }
}

impl Report {
    fn has_rates(&self) -> bool {
        self.download_kbit > 0 || self.upload_kbit > 0
    }

    /// Nothing bloats.
    fn needs_none(&self) -> bool {
        self.found.iter().all(|found| found.bloat_ms <= NO_BLOAT_MS)
    }
}

/// Both directions at once, with the rates that are set.
fn verify(target: &Target, settings: &Settings, stop: &AtomicBool) -> Result<Verified, Failure> {
    let test = Test {
        targets: vec![target.clone()],
        scenario: Scenario::of_flows(settings.down, settings.up, &[0]),
        settings: Settings {
            idle_ms: 2000,
            load_ms: VERIFY_MS,
            settle_ms: VERIFY_SETTLE_MS,
            probe_interval_ms: PROBE_INTERVAL_MS,
            ..settings.clone()
        },
        title: None,
    };
    let hooks = Hooks {
        progress: &mut |_| {},
        stop,
        readings: None,
    };
    let outcome = client::run(&test, hooks).map_err(|error| for_user(Trouble::Measuring(error)))?;
    if let Some(trouble) = outcome.trouble {
        return Err(for_user(Trouble::Measuring(trouble)));
    }
    let TestResult { summary, .. } = outcome.result;
    let idle_ms = summary.idle_ms.unwrap_or_default();
    Ok(Verified {
        idle_ms,
        added_p95_ms: summary.latency_p95_ms.unwrap_or(f64::INFINITY) - idle_ms,
        download_mbit: summary.download_mbit,
        upload_mbit: summary.upload_mbit,
    })
}

/// The shaper of one interface, with rates that change and a way back.
struct Shaper {
    socket: Socket,
    store: Store,
    links: Vec<Link>,
    document: Document,
    /// Which section of the document.
    section: usize,
    config: PathBuf,
    line: ConfiguredLine,
    /// Bytes of link header that the interface counts in each packet.
    header: f64,
    /// Download and upload now.
    rates: (Rate, Rate),
    /// The way back to what was there before; none before the first change.
    before: Option<Started>,
}

impl Shaper {
    fn open(args: &Args) -> Result<Self, Failure> {
        let file = args.config.display().to_string();
        let text = config::read(&args.config)?;
        let mut socket = Socket::open().context("cannot open a netlink socket")?;
        let links = observe::links(&mut socket).map_err(failure)?;
        let lines = config::parse(&text, &args.config, &links)?.lines;
        let line = choose(&lines, args.interface.as_deref(), &file)?.clone();
        let document = Document::parse_bytes(&text).expect("it was read a moment ago");
        let sections = document.sections();
        let section = sections.iter().find(|section| section.line == line.at);
        let section = section.expect("the line comes from there").index;
        let header = f64::from(stack::device(&links, &line.interface).header);
        let store = Store::open(&args.state_dir).map_err(failure)?;
        Ok(Self {
            header,
            socket,
            store,
            links,
            document,
            section,
            config: args.config.clone(),
            line,
            rates: (UNLIMITED, UNLIMITED),
            before: None,
        })
    }

    fn set(&mut self, direction: Direction, mbit: Option<f64>) -> anyhow::Result<()> {
        let rate = mbit.map_or(UNLIMITED, |mbit| Rate::from_bits_per_sec((mbit * 1e6) as u64));
        match direction {
            Direction::Down => self.rates.0 = rate,
            Direction::Up => self.rates.1 = rate,
        }
        let text = self.text_with(self.rates);
        let plan = self.plan(&text).map_err(|error| anyhow!("{error}"))?;
        let started = apply::start(&mut self.socket, &self.store, &plan)?;
        // The first change knows the way back to where we began; the later ones do not matter.
        self.before.get_or_insert(started);
        Ok(())
    }

    fn plan(&self, text: &str) -> Result<Plan, Failure> {
        let plans = config::parse(text.as_bytes(), &self.config, &self.links)?.plans;
        let mut wanted = plans
            .into_iter()
            .filter(|plan| plan.interface == self.line.interface);
        wanted
            .next()
            .ok_or_else(|| Failure::Usage(anyhow!("{} lost its section", self.config.display())))
    }

    /// The configuration with these rates instead of its own.
    fn text_with(&self, (download, upload): (Rate, Rate)) -> String {
        let mut document = self.document.clone();
        for (option, rate) in [("download", download), ("upload", upload)] {
            let kbit = (rate.bits_per_sec() / 1000).to_string();
            let is_set = document.set(self.section, option, &kbit);
            debug_assert!(is_set, "the section is there");
        }
        document.to_string()
    }

    /// Keeps the rates, or puts back what was there before.
    fn finish(&mut self, keep: bool) -> Result<(), Failure> {
        match self.before.take() {
            Some(before) if !keep => before.undo(&mut self.socket, &self.store).map_err(failure),
            _ => Ok(()),
        }
    }
}

/// The way back is taken whatever happens.
impl Drop for Shaper {
    fn drop(&mut self) {
        if let Err(error) = self.finish(false) {
            error.report();
        }
    }
}

fn choose<'a>(
    lines: &'a [ConfiguredLine],
    interface: Option<&str>,
    file: &str,
) -> Result<&'a ConfiguredLine, Failure> {
    let names: Vec<&str> = lines.iter().map(|line| line.interface.as_str()).collect();
    let chosen = match (interface, lines) {
        (Some(name), _) => lines.iter().find(|line| line.interface == name),
        (None, [only]) => Some(only),
        _ => None,
    };
    chosen.ok_or_else(|| {
        Failure::Usage(anyhow!(match (names.is_empty(), interface) {
            (true, _) => format!("{file} has no enabled section; tune needs one for its interface"),
            (_, Some(name)) => format!(
                "{file} has no enabled section for {name}; there is {}",
                names.join(", ")
            ),
            _ => format!("{file} has several interfaces; name one of {}", names.join(", ")),
        }))
    })
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
    }
    text
}

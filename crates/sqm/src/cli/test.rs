//! `sqm test`.

#[cfg(feature = "full")]
mod configured;
mod display;
#[cfg(feature = "full")]
mod pair;
mod phases;
mod queues;
#[cfg(feature = "full")]
mod rpm;
#[cfg(feature = "full")]
mod sweep;
mod table;
#[cfg(feature = "full")]
mod web;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(feature = "full")]
use crate::cli::completion;
use crate::cli::dscp::parse_dscp;
use crate::cli::{duration, graded};
use anyhow::Context as _;
use signal_hook::consts::{SIGINT, SIGTERM};
use sqm_core::direction::Direction;
use sqm_measure::Error;
use sqm_measure::client::{self, Family, Hooks, Outcome, Target, Test};
#[cfg(feature = "full")]
use sqm_measure::plot;
use sqm_measure::protocol::DEFAULT_PORT;
use sqm_measure::result::{LoadOrder, Settings, TestResult};
use sqm_measure::scenario::{Scenario, TESTS};

use self::display::Display;
use crate::json;
use crate::{Suggested, suggested};
use sqm_process::failure::Failure;
use sqm_process::output_file;

/// Length of the load, milliseconds: 10 s for each phase. A choice: slow start ends within [`SETTLE_MS`] on most lines, and the rest is
/// long enough for percentiles.
const LOAD_MS: u64 = 30_000;
/// Length of the load of Flent's tests, milliseconds: its default.
const FLENT_LOAD_MS: u64 = 60_000;
/// The figures leave out this much of the beginning of each phase, milliseconds, and at most this share of it. Choices.
const SETTLE_MS: u64 = 4000;
const SETTLE_SHARE: f64 = 0.4;

/// Latency while the line is full: downloads alone, uploads alone, then both at once, with probes through all of it
///
/// Needs `sqm serve` on a machine beyond the line under test, and no privileges on either machine. Probes measure the
/// idle line, then the line under four downloads, under four uploads, under both at once (10 s each), then the idle line
/// again. The rates come from the phases with one direction: with both at once, a line with a large buffer carries less.
/// Ctrl-C ends a test early and keeps what was measured.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm test server.example                          three phases: 40 s, figures on the terminal
  sqm test server.example --save before.flent.gz   a file that Flent and sqm compare open
  sqm test --rpm rpm.example                       responsiveness by HTTP, without `sqm serve`
  sqm test --url https://example.net/1GB.bin       any large file

Exit codes: 0 done, 1 the test failed or ended early, 2 wrong arguments. 'sqm test --help' says more.")]
#[command(after_long_help = "Examples:
  sqm test server.example                          three phases: 40 s, figures on the terminal
  sqm test server.example --duration 60            20 s of each phase
  sqm test server.example --test rrul_be           Flent's test: both directions at once for a minute
  sqm test server.example --test rrul              marked flows, one per Wi-Fi class
  sqm test server.example --svg before.svg --json before.json --title 'no SQM'
  sqm test server.example --up 0 --down 1          one download alone
  sqm test a.example b.example c.example d.example --test rtt_fair
  sqm test --list                                  list the tests
  sudo sqm test server.example --without-and-with eth0    both grades, side by side
  sqm test server.example --save before.flent.gz   a file that Flent opens
  sqm test --sweep server.example --config /etc/config/sqm    is the overhead right?
  sqm test --rpm rpm.example                       responsiveness by HTTP, without `sqm serve`
  sqm test --url https://example.net/1GB.bin --reflector 192.0.2.53    any large file, probes to your provider's name server
  sqm test server.example --json | jq .summary

Exit codes: 0 done, 1 the test failed or ended early (what was measured is kept), 2 wrong arguments.")]
pub(crate) struct Args {
    /// Name or address of a machine that runs `sqm serve`; several for rtt_fair
    #[arg(conflicts_with_all = ["url", "upload_url"])]
    host: Vec<String>,
    /// Test twice: while the daemon pauses the shaping of this interface, and with it
    ///
    /// Prints both grades side by side, or with --json both tests and the comparison. Files get -without and -with in their
    /// names. Ctrl-C leaves the interface shaped
    #[arg(
        help_heading = "Other ways to test",
        long,
        value_name = "INTERFACE",
        conflicts_with = "list"
    )]
    #[cfg_attr(feature = "full", arg(add = completion::interfaces()))]
    without_and_with: Option<String>,
    /// With --without-and-with: the folder with the daemon's socket
    #[arg(help_heading = "Other ways to test", long, value_name = "DIR", env = "SQM_STATE_DIR", default_value = sqm_kernel::state::DIRECTORY)]
    state_dir: PathBuf,
    /// The test to run, by Flent's name, in place of the three phases
    #[arg(help_heading = "Other ways to test", long, value_name = "NAME", hide_possible_values = true,
          value_parser = Suggested { names: test_names, parse: suggested::any })]
    test: Option<String>,
    /// List the tests
    #[arg(help_heading = "Other ways to test", long)]
    list: bool,
    /// TCP and UDP port of the server [default: 35353; 443 with --rpm]
    #[arg(help_heading = "Server", long)]
    port: Option<u16>,
    /// Measure responsiveness by HTTP, against any server of draft-ietf-ippm-responsiveness
    ///
    /// It needs no `sqm serve`, but works with it: --rpm --insecure --port 35353
    #[arg(help_heading = "Other ways to test", long, conflicts_with_all = ["test", "dscp", "mss", "ecn", "svg", "congestion", "png"])]
    rpm: bool,
    /// Measure the line's gross rate and its overhead of each packet
    ///
    /// It measures goodput at eight packet sizes, each direction by itself. --down 0 or --up 0 leaves a direction out, and
    /// --duration applies to each size
    #[arg(help_heading = "Other ways to test", long, conflicts_with_all = ["test", "dscp", "mss", "svg", "png", "rpm", "save", "idle", "after", "settle"])]
    sweep: bool,
    /// Load the line by fetching this large file again and again
    #[arg(help_heading = "Other ways to test", long, value_name = "URL", conflicts_with_all = ["test", "rpm", "sweep", "secret", "dscp", "mss", "port"])]
    url: Option<String>,
    /// Load the line by sending to this URL, which takes a POST of 25 MB; alone or with --url
    #[arg(help_heading = "Other ways to test", long, value_name = "URL", conflicts_with_all = ["test", "rpm", "sweep", "secret", "dscp", "mss", "port"])]
    upload_url: Option<String>,
    /// With --url: the host that answers probes [default: the URL's host]
    ///
    /// As HOST or HOST:PORT; it answers by ICMP, TCP or DNS
    #[arg(help_heading = "Other ways to test", long, value_name = "HOST")]
    reflector: Option<String>,
    /// With --sweep: compare the result with this configuration [default: /etc/config/sqm, if there is one]
    #[arg(
        help_heading = "Other ways to test",
        long,
        value_name = "FILE",
        requires = "sweep"
    )]
    config: Option<PathBuf>,
    /// With --rpm or --url: do not verify the server's certificate
    #[arg(help_heading = "Other ways to test", long)]
    insecure: bool,
    /// File whose first line is the server's secret
    #[arg(help_heading = "Server", long, value_name = "FILE")]
    secret: Option<PathBuf>,
    /// Downloads at once
    #[arg(help_heading = "Load", long, value_name = "N")]
    down: Option<u32>,
    /// Uploads at once
    #[arg(help_heading = "Load", long, value_name = "N")]
    up: Option<u32>,
    /// Load both directions at once for the whole time, as Flent's tests do
    #[arg(help_heading = "Load", long, conflicts_with_all = ["rpm", "sweep"])]
    together: bool,
    /// Length of the load, all phases together [default: 30s]
    ///
    /// With --test the default is 60s, as in Flent, and with --rpm at most 20s in each direction
    #[arg(help_heading = "Load", long, value_name = "TIME", value_parser = duration::parse_ms)]
    duration: Option<u64>,
    /// Length of the idle phase before the load
    #[arg(help_heading = "Load", long, value_name = "TIME", default_value = "5s", value_parser = duration::parse_ms)]
    idle: u64,
    /// Length of the idle phase after the load [default: as before it]
    #[arg(help_heading = "Load", long, value_name = "TIME", value_parser = duration::parse_ms)]
    after: Option<u64>,
    /// How much of the beginning of each phase the figures leave out [default: 4s]
    ///
    /// In a phase shorter than 10s the default is two fifths of it. The last second of each phase is left out, too
    #[arg(help_heading = "Load", long, value_name = "TIME", value_parser = duration::parse_ms)]
    settle: Option<u64>,
    /// Congestion control of all senders at both ends [default: cubic]
    ///
    /// 'system' keeps each system's default. Where only root may choose cubic, the test takes that default and warns
    #[arg(help_heading = "Load", long, value_name = "NAME", value_hint = clap::ValueHint::Other)]
    congestion: Option<String>,
    /// DSCPs of the flows, in turn: numbers or names (ef, cs1, af41)
    #[arg(help_heading = "Load", long, value_name = "DSCPS", value_delimiter = ',', value_parser = parse_dscp)]
    dscp: Vec<u8>,
    /// Largest TCP segment both ways, for smaller packets without touching the router
    #[arg(help_heading = "Load", long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(88..=32_767))]
    mss: Option<u32>,
    /// Check whether the flows use ECN as you say
    ///
    /// The system decides whether they do (net.ipv4.tcp_ecn)
    #[arg(help_heading = "Load", long, value_enum)]
    ecn: Option<OnOff>,
    /// Time between two UDP probes of a series
    #[arg(help_heading = "Load", long, value_name = "TIME", default_value = "100ms", value_parser = duration::parse_ms)]
    probe_interval: u64,
    /// Print the result as JSON, or write it to this file
    ///
    /// It has all samples. Without a file, give --json after the host
    #[arg(help_heading = "Output", long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Save the result as Flent does if the name ends in .flent.gz, otherwise as --json does
    #[arg(help_heading = "Output", long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Draw download, upload and latency over time into this file
    #[arg(help_heading = "Output", long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Draw the picture as PNG, in twice the size for sharp print
    #[arg(help_heading = "Output", long, value_name = "FILE")]
    png: Option<PathBuf>,
    /// Name of the test, for the result and the picture
    #[arg(help_heading = "Output", long, value_name = "TEXT")]
    title: Option<String>,
    /// IPv4 only
    #[arg(help_heading = "Server", short = '4', conflicts_with = "v6")]
    v4: bool,
    /// IPv6 only
    #[arg(help_heading = "Server", short = '6')]
    v6: bool,
    /// Print neither progress nor the table
    #[arg(help_heading = "Output", long, short)]
    quiet: bool,
    /// Print the rule of the grade and the letters of other speed tests as well
    #[arg(help_heading = "Output", long, short, conflicts_with_all = ["quiet", "rpm", "sweep"])]
    verbose: bool,
    /// Print progress as lines of JSON on standard error, for programs
    ///
    /// There are five a second
    #[arg(help_heading = "Output", long, value_enum, value_name = "FORM")]
    progress: Option<display::Form>,
}

/// The names for `--test`, for a shell to complete.
fn test_names() -> Vec<&'static str> {
    TESTS.iter().map(|(name, _)| *name).collect()
}

/// A test of --list, for programs.
#[derive(serde::Serialize)]
struct Named {
    name: &'static str,
    about: &'static str,
}

/// A switch.
#[derive(Clone, Copy, clap::ValueEnum)]
enum OnOff {
    On,
    Off,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if self.list {
            if self.json.is_some() {
                let rows = TESTS.map(|(name, about)| Named { name, about });
                json::print(&json::list(&rows))?;
                return Ok(ExitCode::SUCCESS);
            }
            for (name, meaning) in TESTS {
                outln!("{name:<22}{meaning}");
            }
            outln!("Without --test: downloads alone, uploads alone, then both at once");
            return Ok(ExitCode::SUCCESS);
        }
        let is_web = self.url.is_some() || self.upload_url.is_some();
        if self.host.is_empty()
            && !is_web
            && let Some(file) = self.json.as_ref().filter(|file| file.as_os_str() != "-")
        {
            return Err(Failure::Usage(anyhow::anyhow!(
                "no server to test with: '{0}' is the file that --json writes; for a server of that name run 'sqm test {0} --json'",
                file.display()
            )));
        }
        if self.host.is_empty() && !is_web {
            return Err(Failure::Usage(anyhow::anyhow!(
                "no server to test with: name a machine beyond the line that runs 'sqm serve' (sqm test HOST), a large file on \
                 the web (sqm test --url URL), or a responsiveness server (sqm test --rpm HOST)"
            )));
        }
        #[cfg(not(feature = "full"))]
        self.refuse_what_needs_full()?;
        for (given, name, fits, needed) in [
            (
                self.reflector.is_some(),
                "--reflector",
                is_web,
                "--url or --upload-url",
            ),
            (
                self.insecure,
                "--insecure",
                is_web || self.rpm,
                "--rpm, --url or --upload-url",
            ),
        ] {
            if given && !fits {
                return Err(Failure::Usage(anyhow::anyhow!("{name} needs {needed}")));
            }
        }
        #[cfg(feature = "full")]
        if let Some(interface) = &self.without_and_with {
            return self.run_pair(interface);
        }
        #[cfg(feature = "full")]
        if self.rpm {
            return self.run_rpm();
        }
        #[cfg(feature = "full")]
        if self.sweep {
            return self.run_sweep();
        }
        let stop = listen_for_signals().map_err(for_user)?;
        let outcome = self.measure_as(self.title.as_deref(), &stop)?;
        self.deliver(&outcome.result)?;
        conclude(outcome)
    }

    /// Runs one test under this title, against `sqm serve` or plain URLs.
    fn measure_as(&self, title: Option<&str>, stop: &Arc<AtomicBool>) -> Result<Outcome, Failure> {
        #[cfg(feature = "full")]
        if self.url.is_some() || self.upload_url.is_some() {
            return self.measure_web(title, stop);
        }
        let mut test = Test {
            targets: self.targets()?,
            scenario: self.scenario()?,
            settings: self.settings(),
            title: title.map(str::to_owned),
        };
        test.settings.down = test.scenario.count(Direction::Download);
        test.settings.up = test.scenario.count(Direction::Upload);
        self.settle(&mut test.settings);
        let way = if test.settings.down > 0 {
            Direction::Download
        } else {
            Direction::Upload
        };
        let flows = test.scenario.flows.iter().filter(|flow| flow.direction == way);
        test.settings.dscp = flows.map(|flow| flow.dscp).collect();
        test.settings.dscp.dedup();
        self.measure(&mut test, self.quiet, stop).map_err(for_user)
    }

    fn measure(&self, test: &mut Test, quiet: bool, stop: &Arc<AtomicBool>) -> Result<Outcome, Error> {
        let asked = test.clone();
        self.supervise(&mut test.settings, quiet, stop, |settings, hooks| {
            let test = Test {
                settings: settings.clone(),
                ..asked.clone()
            };
            client::run(&test, hooks)
        })
    }

    /// Runs a test, shows its progress, and ends it when `stop` is set. If cubic is unavailable and no congestion control was
    /// requested, the test is repeated with the system's default.
    fn supervise(
        &self,
        settings: &mut Settings,
        quiet: bool,
        stop: &Arc<AtomicBool>,
        run: impl Fn(&Settings, Hooks<'_>) -> Result<Outcome, Error>,
    ) -> Result<Outcome, Error> {
        let mut display = Display::new(settings, quiet, self.progress);
        let mut run = |settings: &Settings| {
            let hooks = Hooks {
                progress: &mut |progress| display.show(progress),
                stop,
                gauges: queues::gauges(),
            };
            run(settings, hooks)
        };
        let mut outcome = run(settings);
        if let (Err(error @ Error::Congestion { .. }), None) = (&outcome, &self.congestion) {
            errln!("sqm: warning: {error}; measuring with the system's default, which the result names");
            settings.congestion = None;
            outcome = run(settings);
        }
        display.finish();
        outcome
    }

    fn family(&self) -> Option<Family> {
        match (self.v4, self.v6) {
            (true, _) => Some(Family::V4),
            (_, true) => Some(Family::V6),
            _ => None,
        }
    }

    fn targets(&self) -> Result<Vec<Target>, Failure> {
        let family = self.family();
        let secret = self.secret.as_deref().map(read_secret).transpose()?;
        let target = |host: &String| Target {
            host: host.clone(),
            port: self.port.unwrap_or(DEFAULT_PORT),
            family,
            secret: secret.clone(),
        };
        Ok(self.host.iter().map(target).collect())
    }

    fn scenario(&self) -> Result<Scenario, Failure> {
        let (down, up) = (self.down, self.up);
        let Some(name) = &self.test else {
            let marks: &[u8] = if self.dscp.is_empty() { &[0] } else { &self.dscp };
            return Ok(Scenario::of_flows(down.unwrap_or(4), up.unwrap_or(4), marks));
        };
        if !self.dscp.is_empty() {
            return Err(Failure::Usage(anyhow::anyhow!(
                "the test '{name}' sets its own DSCPs: give --dscp only with --down and --up"
            )));
        }
        let counts_flows = matches!(name.as_str(), "rrul_be_nflows" | "tcp_ndown" | "tcp_nup");
        if !counts_flows && (down.is_some() || up.is_some()) {
            return Err(Failure::Usage(anyhow::anyhow!(
                "the test '{name}' has a fixed number of flows: give --down and --up with rrul_be_nflows, \
                 tcp_ndown or tcp_nup, or without --test"
            )));
        }
        Scenario::named(name, &self.host, down.unwrap_or(4), up.unwrap_or(4)).ok_or_else(|| {
            Failure::Usage(anyhow::anyhow!(
                "there is no test '{name}'; 'sqm test --list' lists the tests"
            ))
        })
    }

    /// Sets how much of each phase's beginning the figures leave out. The flows must be known.
    fn settle(&self, settings: &mut Settings) {
        let usual = match settings.is_in_turn() {
            true => SETTLE_MS.min((settings.phase_ms() * SETTLE_SHARE) as u64),
            false => SETTLE_MS,
        };
        settings.settle_ms = self.settle.unwrap_or(usual);
    }

    fn settings(&self) -> Settings {
        let (load_order, load_ms) = match &self.test {
            Some(_) => (LoadOrder::Together, FLENT_LOAD_MS),
            None if self.together => (LoadOrder::Together, LOAD_MS),
            None => (LoadOrder::InTurn, LOAD_MS),
        };
        Settings {
            idle_ms: self.idle,
            load_ms: self.duration.unwrap_or(load_ms),
            load_order,
            after_ms: self.after.unwrap_or(self.idle),
            settle_ms: SETTLE_MS,
            probe_interval_ms: self.probe_interval,
            congestion: match self.congestion.as_deref() {
                None => Some("cubic".to_owned()),
                Some("system") => None,
                Some(name) => Some(name.to_owned()),
            },
            dscp: self.dscp.clone(),
            mss: self.mss,
            ecn: self.ecn.map(|ecn| matches!(ecn, OnOff::On)),
            ..Settings::default()
        }
    }

    fn deliver(&self, result: &TestResult) -> Result<(), Failure> {
        self.write_files(result, &|path| path.to_owned())?;
        if self.prints_json() {
            outln!("{}", result.to_json());
        } else if !self.quiet {
            graded::print(&table::figures(result, self.verbose));
        }
        Ok(())
    }

    fn prints_json(&self) -> bool {
        self.json.as_ref().is_some_and(|path| path.as_os_str() == "-")
    }

    /// The file of --json.
    fn json_file(&self) -> Option<&Path> {
        self.json.as_deref().filter(|path| path.as_os_str() != "-")
    }

    /// The flags that a program for routers does not have the code for.
    #[cfg(not(feature = "full"))]
    fn refuse_what_needs_full(&self) -> Result<(), Failure> {
        let given = [
            (self.rpm, "--rpm"),
            (self.url.is_some(), "--url"),
            (self.upload_url.is_some(), "--upload-url"),
            (self.svg.is_some(), "--svg"),
            (self.png.is_some(), "--png"),
            (self.sweep, "--sweep"),
            (self.without_and_with.is_some(), "--without-and-with"),
        ];
        match given.into_iter().find(|(is_given, _)| *is_given) {
            None => Ok(()),
            Some((_, name)) => Err(Failure::Usage(anyhow::anyhow!(
                "{name} is not in this program, which was built for routers: test against 'sqm serve', save the result with \
                 --json FILE, or run the full program on another machine behind this router"
            ))),
        }
    }

    #[cfg(feature = "full")]
    fn draw(&self, result: &TestResult, name: &dyn Fn(&Path) -> PathBuf) -> Result<(), Failure> {
        if let Some(path) = &self.svg {
            output_file::write(&name(path), plot::rrul(result))?;
        }
        if let Some(path) = &self.png {
            let picture = crate::png::render(&plot::rrul(result))?;
            output_file::write(&name(path), picture)?;
        }
        Ok(())
    }

    /// Writes the files that the user asked for, under the names that `name` makes of theirs.
    fn write_files(&self, result: &TestResult, name: &dyn Fn(&Path) -> PathBuf) -> Result<(), Failure> {
        #[cfg(feature = "full")]
        self.draw(result, name)?;
        if let Some(path) = &self.save {
            result.save(&name(path))?;
        }
        if let Some(path) = self.json_file() {
            output_file::write(&name(path), result.to_json() + "\n")?;
        }
        Ok(())
    }
}

/// Measures as the words of a command line say, of which the first is `test`. For `sqm setup`.
#[cfg(not(feature = "full"))]
pub(in crate::cli) fn measured(words: Vec<std::ffi::OsString>) -> Result<TestResult, Failure> {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }
    let line = <Line as clap::Parser>::try_parse_from(words)
        .map_err(|error| Failure::Usage(anyhow::anyhow!("{error}")))?;
    line.args.refuse_what_needs_full()?;
    let stop = listen_for_signals().map_err(for_user)?;
    let outcome = line.args.measure_as(None, &stop)?;
    // Setting the flag restores the default action: after the test, Ctrl-C ends the program at once.
    let was_stopped = stop.swap(true, Ordering::Relaxed);
    match outcome.failure {
        Some(failure) => Err(Failure::Failed(failure.into())),
        None if was_stopped => Err(Failure::Failed(anyhow::anyhow!("the test was stopped"))),
        None => Ok(outcome.result),
    }
}

/// A flag that Ctrl-C sets. A second signal ends the program at once, by its default action.
fn listen_for_signals() -> Result<Arc<AtomicBool>, Error> {
    // Until both handlers of a signal are registered, it ends the program.
    let stop = Arc::new(AtomicBool::new(true));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .map_err(|reason| Error::System {
                action: "listen for signals".to_owned(),
                reason,
            })?;
    }
    stop.store(false, Ordering::Relaxed);
    Ok(stop)
}

fn conclude(outcome: Outcome) -> Result<ExitCode, Failure> {
    match outcome.failure {
        None => Ok(ExitCode::SUCCESS),
        Some(failure) => Err(Failure::Failed(failure.into())),
    }
}

/// Separates errors that the user can correct (exit code 2) from failures of the test.
fn for_user(error: Error) -> Failure {
    match error {
        Error::Settings(_) | Error::Congestion { .. } | Error::Secret { .. } => Failure::Usage(error.into()),
        other => Failure::Failed(other.into()),
    }
}

/// Reads the first line of a file, without surrounding blanks.
pub(crate) fn read_secret(path: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the secret in {}", path.display()))
        .map_err(Failure::Usage)?;
    let secret = text.lines().next().unwrap_or_default().trim();
    if secret.is_empty() {
        return Err(Failure::Usage(anyhow::anyhow!(
            "the first line of {} is empty; write the secret there",
            path.display()
        )));
    }
    Ok(secret.to_owned())
}

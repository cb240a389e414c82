//! `sqm serve`.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use sqm_core::units::Rate;
use sqm_measure::protocol::DEFAULT_PORT;
use sqm_measure::server::{Config, Server};

use super::setup::parse_rate;
use super::test::read_secret;
use super::{duration, log_level};
use crate::json;
use sqm_process::failure::Failure;
use sqm_process::output;
use tracing::info;

/// The far end for `sqm test`: run it on a machine beyond the line under test
///
/// Needs no privileges. Opens one TCP port and the UDP port of the same number. Without a secret, anyone who reaches
/// the port can load this machine's line, within the limits below: close the port in the firewall, set a secret, or end
/// the program after your tests. Answers to probes are never larger than the probes. They go only to addresses that
/// asked for a test by TCP, or that have proven that they receive at their address.
///
/// It is also a reflector for autorate ('list autorate_reflectors sqm://ADDRESS' where 'sqm daemon' runs), with or
/// without a secret.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm serve                              all addresses, IPv6 and IPv4, port 35353
  sqm serve --listen 192.0.2.1:5000      this address and port only
  sqm serve --secret /etc/sqm/secret     for clients with 'sqm test --secret'
  sqm serve --max-duration 60s --max-clients 1 --max-rate 100mbit
  sqm serve --once                       end after one test
  sqm serve --once --json                with a line of JSON when it listens and when it ends")]
pub(crate) struct Args {
    /// Address, port, or both to listen on [default: all addresses, port 35353]
    #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
    listen: Option<SocketAddr>,
    /// File whose first line is the secret that clients must know [default: none, any client may test]
    #[arg(long, value_name = "FILE")]
    secret: Option<PathBuf>,
    /// The longest load that a client may ask for
    #[arg(long, alias = "max-seconds", value_name = "TIME", default_value = "5m", value_parser = parse_load)]
    max_duration: u64,
    /// Most tests at the same time; tests on the same line disturb each other
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    max_clients: u32,
    /// Most tests at the same time from one address
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    max_per_address: u32,
    /// Highest rate of the load in each direction of one test [default: unlimited]
    #[arg(long, value_name = "RATE", value_parser = parse_limit)]
    max_rate: Option<Rate>,
    /// Most probes answered per second in one test
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    max_probes: u32,
    /// Most answers per second to each address that probes outside a test, as autorate does; 0: none
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    max_reflections: u32,
    /// Do not serve tests of responsiveness (draft-ietf-ippm-responsiveness) by HTTPS on the same TCP port. A server
    /// with a secret never does, because those clients know no secrets
    #[arg(long)]
    no_https: bool,
    /// End after the first test
    #[arg(long)]
    once: bool,
    /// Print a line of JSON when the server listens, and one when it ends
    #[arg(long)]
    json: bool,
    /// Print nothing
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    log: log_level::LogArgs,
}

/// Parses the length of a load, in seconds.
fn parse_load(text: &str) -> Result<u64, String> {
    duration::parse_seconds(text, 1, 3600)
}

/// Parses a rate as the shaping commands do. A load below 1 Mbit/s would say nothing about a line.
fn parse_limit(text: &str) -> Result<Rate, String> {
    match parse_rate(text) {
        Ok(rate) if rate.kbits_per_sec() < 1000 => Err("the rate must be at least 1mbit".to_owned()),
        Ok(rate) => Ok(rate),
        Err(error) => Err(error.to_string()),
    }
}

fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::new(std::net::Ipv6Addr::UNSPECIFIED.into(), port));
    }
    let ip: IpAddr = text.trim_matches(['[', ']']).parse().map_err(|_| {
        "write an address, a port or both: 192.0.2.1, 5000, 192.0.2.1:5000, [2001:db8::1]:5000".to_owned()
    })?;
    Ok(SocketAddr::new(ip, DEFAULT_PORT))
}

/// Raises the limit of open files to the hard limit: the usual 1024 are fewer than the flows of eight clients. If
/// this fails, connections beyond the limit have to wait.
fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    );
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let secret = self.secret.as_deref().map(read_secret).transpose()?;
        let is_open = secret.is_none();
        let config = Config {
            listen: self.listen,
            secret,
            max_load: Duration::from_secs(self.max_duration),
            max_clients: self.max_clients as usize,
            max_per_address: self.max_per_address as usize,
            max_rate: self.max_rate.map(|rate| rate.bits_per_sec() / 8),
            max_probes_per_s: self.max_probes,
            max_reflections_per_s: self.max_reflections,
            https: is_open && !self.no_https,
            once: self.once,
        };
        if !self.quiet {
            self.log.start();
        }
        allow_many_files();
        let server = Server::bind(config, |line| info!("sqm: {line}"))?;
        let address = server.local_addr()?;
        let report = |event| Event {
            event,
            address,
            needs_secret: !is_open,
        };
        if self.json {
            report("listening").print()?;
            print_at_signal(report("ended"))?;
        }
        info!(
            "sqm: serving on {} (TCP and UDP), {}; end with Ctrl-C",
            address,
            if is_open {
                "open to any client"
            } else {
                "for clients that know the secret"
            }
        );
        server.run()?;
        if self.json {
            report("ended").print()?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A line of --json.
#[derive(Serialize)]
struct Event {
    event: &'static str,
    address: SocketAddr,
    needs_secret: bool,
}

impl Event {
    fn print(&self) -> Result<(), Failure> {
        outln!("{}", serde_json::to_string(&json::object(self))?);
        output::stdout().flush()?;
        Ok(())
    }
}

/// Prints the event when a signal ends the program, which then ends as it would without this.
fn print_at_signal(event: Event) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).context("cannot listen for signals")?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            if let Some(signal) = signals.forever().next() {
                let _ = event.print();
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        })
        .context("cannot start a thread")?;
    Ok(())
}

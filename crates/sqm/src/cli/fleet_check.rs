//! `sqm fleet-check`: may a configuration that a management system has just applied stay? OpenWISP runs it as its `test_script`, and
//! puts the configuration from before back if it fails.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Serialize;
use sqm_kernel::Difference;
use sqm_process::failure::{Failure, without_numbers};

use super::config::Which;
use super::duration;
use super::shape::{State, Verify};
use crate::json;

/// Check a configuration that another system has just applied: it is in force, and servers are reached in time.
///
/// For the option `test_script` of OpenWISP. It waits until the kernel holds what is configured and each server accepts a connection.
/// Then it connects to each server five times. If the median round trip is too long, or something is missing when the time is
/// over, it exits with 1, and OpenWISP puts the configuration from before back.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm fleet-check --reach openwisp.example.net:443
  sqm fleet-check --reach openwisp.example.net:443 --round-trip 200ms --within 1m

Exit codes: 0 it may stay, 1 it is not in force, or a server is not reached or too far away, 2 wrong arguments or configuration")]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
    /// Servers that must accept a TCP connection, as HOST:PORT: the controller.
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', value_parser = with_port)]
    reach: Vec<String>,
    /// The longest median round trip to these servers.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration::parse)]
    round_trip: Duration,
    /// How long to wait for all of it. OpenWISP's agent may be restarted 30 s after it has begun to apply a configuration.
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = duration::parse)]
    within: Duration,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state: State,
}

/// The result.
#[derive(Serialize)]
struct Checked {
    may_stay: bool,
    differences: Vec<Difference>,
    servers: Vec<Server>,
}

/// A server that must be reached.
#[derive(Serialize)]
struct Server {
    server: String,
    round_trip_ms: Option<f64>,
    error: Option<String>,
}

/// The pause between two looks. A choice: the daemon applies a configuration within a second.
const PAUSE: Duration = Duration::from_millis(500);

/// Connections to each server. A choice: the median bears two that are slow by chance.
const CONNECTIONS: usize = 5;

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let end = Instant::now() + self.within;
        let verify = Verify::quiet(self.which, self.state);
        // Prints the file's warnings, once.
        let is_nothing = verify.is_nothing()?;
        let differences = differences(&verify, end)?;
        let longest = self.round_trip;
        let servers = self
            .reach
            .into_iter()
            .map(|server| Server::tried(server, longest, end));
        let servers: Vec<Server> = servers.collect();
        let checked = Checked {
            may_stay: differences.is_empty() && servers.iter().all(|server| server.error.is_none()),
            differences,
            servers,
        };
        if self.json {
            json::print(&json::object(&checked))?;
        } else {
            checked.print(is_nothing);
        }
        Ok(ExitCode::from(u8::from(!checked.may_stay)))
    }
}

impl Checked {
    fn print(&self, is_nothing: bool) {
        if is_nothing {
            outln!("no interface is configured and enabled: there is nothing to compare");
        } else if self.differences.is_empty() {
            outln!("the kernel holds what is configured");
        }
        self.differences
            .iter()
            .for_each(|difference| outln!("{difference}"));
        for Server {
            server,
            round_trip_ms,
            error,
        } in &self.servers
        {
            let round_trip = round_trip_ms.map(|ms| format!("a round trip of {ms:.1} ms"));
            let said: Vec<String> = round_trip.into_iter().chain(error.clone()).collect();
            outln!("{server}: {}", said.join(", "));
        }
        if self.servers.is_empty() {
            outln!("no server was to be reached (--reach)");
        }
    }
}

impl Server {
    fn tried(server: String, longest: Duration, end: Instant) -> Self {
        let median = median_round_trip(&server, end);
        let error = match &median {
            Ok(median) if *median <= longest => None,
            Ok(_) => Some(format!("longer than {longest:?}")),
            Err(error) => Some(format!("not reached: {}", without_numbers(&error.to_string()))),
        };
        Self {
            server,
            round_trip_ms: median.ok().map(|median| median.as_secs_f64() * 1000.0),
            error,
        }
    }
}

/// The differences that are left at `end`. A device may be absent for a while when the network is configured, too.
fn differences(verify: &Verify, end: Instant) -> Result<Vec<Difference>, Failure> {
    loop {
        match verify.compare() {
            Ok(found) if found.differences.is_empty() => return Ok(Vec::new()),
            found if Instant::now() >= end => return Ok(found?.differences),
            _ => sleep(PAUSE),
        }
    }
}

/// The median of the times that connections need. Failed ones are tried again until `end`.
fn median_round_trip(server: &str, end: Instant) -> io::Result<Duration> {
    let mut round_trips = Vec::with_capacity(CONNECTIONS);
    while round_trips.len() < CONNECTIONS {
        match connection(server, end) {
            Ok(round_trip) => round_trips.push(round_trip),
            Err(error) if Instant::now() + PAUSE >= end => return Err(error),
            Err(_) => sleep(PAUSE),
        }
    }
    round_trips.sort();
    Ok(round_trips[CONNECTIONS / 2])
}

/// The time that a connection to the first of the server's addresses that answers needs.
fn connection(server: &str, end: Instant) -> io::Result<Duration> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "it has no address");
    for address in server.to_socket_addrs()? {
        let left = end.saturating_duration_since(Instant::now()).max(PAUSE);
        let begin = Instant::now();
        match TcpStream::connect_timeout(&address, left) {
            Ok(_) => return Ok(begin.elapsed()),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Accepts a server's name or address with its port.
fn with_port(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) => {
            Ok(text.to_owned())
        }
        _ => Err(
            "a host and its port are wanted, such as openwisp.example.net:443 or [2001:db8::1]:443"
                .to_owned(),
        ),
    }
}

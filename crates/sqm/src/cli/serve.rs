//! `sqm serve`.

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use sqm_measure::protocol::DEFAULT_PORT;
use sqm_measure::server::{Config, Server};

use crate::failure::Failure;

/// The far end for `sqm test`: run it on a machine beyond the line under test
///
/// Needs no privileges. Opens one TCP port and the UDP port of the same number. Anyone who reaches the port can load this
/// machine's line for the time allowed, so close it in the firewall, or end the program, when nobody tests.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm serve                              all addresses, IPv6 and IPv4, port 35353
  sqm serve --listen 192.0.2.1:5000      this address and port only
  sqm serve --max-seconds 60 --max-clients 1")]
pub(crate) struct Args {
    /// Address, port, or both to listen on [default: all addresses, port 35353]
    #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
    listen: Option<SocketAddr>,
    /// The longest load that a client may ask for
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=3600))]
    max_seconds: u64,
    /// Tests at the same time; they disturb each other on one line
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    max_clients: u32,
    /// Say nothing
    #[arg(long, short)]
    quiet: bool,
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

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let server = Server::bind(Config {
            listen: self.listen,
            max_load: Duration::from_secs(self.max_seconds),
            max_clients: self.max_clients as usize,
        })?;
        if !self.quiet {
            eprintln!(
                "sqm: serving on {} (TCP and UDP); end with Ctrl-C",
                server.local_addr()?
            );
        }
        match server.run()? {}
    }
}

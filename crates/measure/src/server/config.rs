//! The limits that a server keeps.

use std::net::SocketAddr;
use std::time::Duration;

use crate::protocol::{self, MAX_FLOWS, MAX_LOAD_MS};

/// The limits of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address and port, of TCP and of UDP. `None` is all addresses of the machine and the default port.
    pub listen: Option<SocketAddr>,
    /// The secret that clients must know. `None` admits every client.
    pub secret: Option<String>,
    /// The longest load of a test.
    pub max_load: Duration,
    /// Largest number of simultaneous tests.
    pub max_clients: usize,
    /// Largest number of simultaneous tests from one address.
    pub max_per_address: usize,
    /// Rate limit in each direction of one test, bytes per second.
    pub max_rate: Option<u64>,
    /// The server answers this many probes per second in one test and drops the rest.
    pub max_probes_per_s: u32,
    /// Answers per second to each address (each /64 of IPv6) that asks for the time outside a test. Zero answers none.
    pub max_reflections_per_s: u32,
    /// Also serve HTTPS on the same port, to every client, for tests of responsiveness.
    pub https: bool,
    /// End the server after the first test.
    pub once: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: None,
            secret: None,
            max_load: Duration::from_secs(300),
            max_clients: 8,
            max_per_address: 4,
            max_rate: None,
            max_probes_per_s: 1000,
            max_reflections_per_s: 100,
            https: true,
            once: false,
        }
    }
}

/// The test that a client asks for.
pub(super) struct Asked {
    pub(super) down: u32,
    pub(super) up: u32,
    pub(super) load_ms: u64,
}

impl Config {
    /// Refuses a test beyond the limits. The error is the reason for the client.
    pub(super) fn allows(&self, version: u32, asked: &Asked) -> Result<(), String> {
        let ours = protocol::VERSION;
        if version != ours {
            return Err(format!(
                "it speaks protocol version {ours}, this program {version}; use the same sqm on both"
            ));
        }
        let limit_ms = MAX_LOAD_MS.min(self.max_load.as_millis() as u64);
        if asked.load_ms > limit_ms {
            return Err(format!("it allows at most {} s of load", limit_ms / 1000));
        }
        if asked.load_ms == 0 {
            return Err("the load must last longer than 0 s".to_owned());
        }
        if asked.down > MAX_FLOWS || asked.up > MAX_FLOWS {
            return Err(format!("it allows at most {MAX_FLOWS} flows in each direction"));
        }
        Ok(())
    }
}

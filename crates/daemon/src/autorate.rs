//! Rates that follow the line: a thread with a controller for each interface with `option autorate`.
//!
//! The controller is [`sqm_autorate`]'s. A [`driver`] feeds it with samples: from reflectors ([`prober`]), from the device's
//! counters ([`throughput`]) and from TCP connections that pass the device ([`passive_rtt`]). It leaves the rates that the
//! controller wants in the [`RateMailbox`] for the main loop, the only thread that changes the kernel. [`AutorateThreads`]
//! starts the threads and restarts those that panic. When the daemon ends, the last rates stay in force.

mod capacity_store;
mod driver;
mod log;
mod packet_sampler;
mod passive_rtt;
mod prober;
mod rate_mailbox;
mod tcp_timestamps;
mod threads;
mod throughput;

use std::path::PathBuf;
use std::sync::Arc;

use sqm_autorate::Bounds;
use sqm_core::direction::PerDirection;
use sqm_core::spec::cake::Framing;
use sqm_core::units::Nanos;
use sqm_plan::line::ConfiguredLine;
use sqm_plan::settings::{LOG_FOLDER, Limits, Reflector};

use crate::journal::Journal;
use crate::waker::Waker;
#[cfg(feature = "fleet")]
pub(super) use packet_sampler::Need;
#[cfg(feature = "fleet")]
pub(super) use passive_rtt::PassiveRtt;
#[cfg(any(test, fuzzing))]
pub use passive_rtt::fuzz as fuzz_segments;
pub(super) use rate_mailbox::RateMailbox;
pub(super) use threads::AutorateThreads;
#[cfg(feature = "fleet")]
pub(super) use throughput::ThroughputReader;

/// The default reflectors: anycast resolvers of three operators that answer pings and are meant for many clients. A choice.
const REFLECTORS: [&str; 9] = [
    "1.1.1.1",
    "8.8.8.8",
    "9.9.9.9",
    "1.0.0.1",
    "8.8.4.4",
    "149.112.112.112",
    "2606:4700:4700::1111",
    "2001:4860:4860::8888",
    "2620:fe::fe",
];

/// The state that the autorate threads share with the rest of the daemon.
#[derive(Clone)]
pub(super) struct Context {
    /// The state folder.
    pub(super) state_dir: PathBuf,
    pub(super) journal: Arc<Journal>,
    pub(super) rates: Arc<RateMailbox>,
    /// Wakes the main loop when rates are wanted.
    pub(super) waker: Waker,
}

/// The configuration of autorate for one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LineConfig {
    pub(super) interface: String,
    /// The device faces the home: its egress is the download.
    faces_lan: bool,
    bounds: PerDirection<Bounds>,
    /// Directions without a rate are not shaped.
    is_shaped: PerDirection<bool>,
    framing: Framing,
    reflectors: Vec<Reflector>,
    /// The interval of the queues' AQM, if it is known: the longest round trip for which they are set up.
    interval: Option<Nanos>,
    log: Option<PathBuf>,
}

impl LineConfig {
    /// `None` if the line has no `option autorate`.
    pub(super) fn new(line: &ConfiguredLine) -> Option<Self> {
        let autorate = line.autorate.as_ref()?;
        let bounds = |base, limits: Limits| Bounds {
            min: limits.min,
            base,
            max: limits.max,
        };
        let defaults = || REFLECTORS.iter().filter_map(|word| word.parse().ok());
        Some(Self {
            interface: line.interface.clone(),
            faces_lan: line.faces_lan,
            bounds: PerDirection {
                download: bounds(line.download, autorate.download),
                upload: bounds(line.upload, autorate.upload),
            },
            is_shaped: PerDirection {
                download: line.download.is_some(),
                upload: line.upload.is_some(),
            },
            framing: line.framing,
            interval: line.interval,
            log: autorate.log.as_ref().map(|name| log_folder().join(name)),
            reflectors: match autorate.reflectors.is_empty() {
                true => defaults().collect(),
                false => autorate.reflectors.clone(),
            },
        })
    }
}

/// The unit's log folder, if systemd names one (`LogsDirectory=`); otherwise [`LOG_FOLDER`].
fn log_folder() -> PathBuf {
    std::env::var_os("LOGS_DIRECTORY").map_or_else(|| PathBuf::from(LOG_FOLDER), PathBuf::from)
}

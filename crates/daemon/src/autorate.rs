//! Rates that follow the line: a thread for each interface with `option autorate`, which looks and decides.
//!
//! The decisions are those of [`sqm_autorate`]. A [`driver`] brings it samples, from its [`prober`], the device's
//! [`traffic`] and the connections that pass it ([`passive`]), and lays the rates it wants on the [`Board`], where the keeper, who
//! alone changes anything, takes them. The [`Fleet`] starts the threads and looks after them. When the daemon dies, the last rates
//! stay.

mod driver;
mod fleet;
mod flows;
mod kept;
mod log;
mod passive;
mod prober;
mod tap;
mod traffic;

#[cfg(any(test, fuzzing))]
pub use passive::fuzz as fuzz_segments;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

use serde::Serialize;
use sqm_autorate::Bounds;
use sqm_core::direction::PerDirection;
use sqm_core::spec::cake::Framing;
use sqm_core::units::Nanos;
use sqm_plan::line::ConfiguredLine;
use sqm_plan::settings::{LOG_FOLDER, Limits, Reflector};

pub(super) use fleet::Fleet;

use sqm_configuration::rates::Rates;

/// Of three operators, as all that many people's lines may ask: anycast resolvers that answer pings.
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

/// What is configured for one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) interface: String,
    /// What leaves the device is the download.
    faces_lan: bool,
    bounds: PerDirection<Bounds>,
    /// Directions without a rate are not shaped.
    is_shaped: PerDirection<bool>,
    framing: Framing,
    reflectors: Vec<Reflector>,
    /// What its queues take for the longest path.
    interval: Option<Nanos>,
    log: Option<PathBuf>,
}

impl Line {
    /// None if its rates are to stay.
    pub(super) fn of(line: &ConfiguredLine) -> Option<Self> {
        let autorate = line.autorate.as_ref()?;
        let bounds = |base, limits: Limits| Bounds {
            min: limits.min,
            base,
            max: limits.max,
        };
        let usual = || REFLECTORS.iter().filter_map(|word| word.parse().ok());
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
                true => usual().collect(),
                false => autorate.reflectors.clone(),
            },
        })
    }
}

/// Where systemd has the logs of the unit, if it has `LogsDirectory=`; else the usual place.
fn log_folder() -> PathBuf {
    std::env::var_os("LOGS_DIRECTORY").map_or_else(|| PathBuf::from(LOG_FOLDER), PathBuf::from)
}

/// What one controller tells of itself.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Status {
    pub(super) download: Direction,
    pub(super) upload: Direction,
    /// Whether reflectors are being asked.
    pub(super) is_probing: bool,
    pub(super) probes_sent: u64,
    pub(super) reflectors: Vec<ReflectorStatus>,
    /// What the user's own connections told of the delay: how often.
    pub(super) tcp_samples: u64,
    /// What to write in the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) advice: Option<String>,
    /// Why the rates do not follow the line: then those of the file hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) trouble: Option<String>,
}

/// One direction.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Direction {
    pub(super) rate_bits_per_sec: u64,
    /// Why the rate is what it is.
    pub(super) reason: String,
    /// What passes.
    pub(super) load_bits_per_sec: u64,
    /// How often it was lowered because of a queue.
    pub(super) cuts: u64,
}

/// Somebody who is asked for the time it takes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ReflectorStatus {
    /// As it can be configured.
    pub(super) address: String,
    /// Last round trip.
    pub(super) rtt_ms: Option<f64>,
    /// Each direction alone is known from it.
    pub(super) is_one_way: bool,
    pub(super) answers: u64,
    pub(super) lost: u64,
}

/// Where controllers and the rest of the daemon meet.
#[derive(Debug, Default)]
pub(super) struct Board(Mutex<BTreeMap<String, Notice>>);

#[derive(Debug)]
struct Notice {
    status: Status,
    wanted: Option<Rates>,
}

impl Board {
    /// How things are. Rates that are wanted replace those that nobody has taken yet.
    fn tell(&self, interface: &str, status: Status, wanted: Option<Rates>) {
        let mut notices = self.lock();
        let before = notices.remove(interface).and_then(|notice| notice.wanted);
        let wanted = wanted.or(before);
        notices.insert(interface.to_owned(), Notice { status, wanted });
    }

    fn forget(&self, interface: &str) {
        self.lock().remove(interface);
    }

    /// There is no controller, and why; what it wanted last no longer counts.
    fn fail(&self, interface: &str, trouble: String) {
        let status = Status {
            trouble: Some(trouble),
            ..Status::default()
        };
        let notice = Notice { status, wanted: None };
        self.lock().insert(interface.to_owned(), notice);
    }

    /// What controllers wanted since the last call.
    pub(super) fn take_wanted(&self) -> Vec<(String, Rates)> {
        let mut notices = self.lock();
        let wanted = notices
            .iter_mut()
            .filter_map(|(interface, notice)| Some((interface.clone(), notice.wanted.take()?)));
        wanted.collect()
    }

    pub(super) fn status(&self, interface: &str) -> Option<Status> {
        self.lock().get(interface).map(|notice| notice.status.clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Notice>> {
        self.0.lock().expect("no holder of this lock panics")
    }
}

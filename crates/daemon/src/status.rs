//! The status of the daemon and its interfaces, as the API returns it.

use serde::Serialize;
use sqm_core::units::Instant;

use super::autorate;
use super::reconciler::{Section, State};
use sqm_kernel::status::InterfaceStatus;

/// The version of the API's responses. It increases with each incompatible change.
pub(super) const VERSION: u32 = 1;

/// The status of the daemon.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Status {
    pub(super) version: u32,
    /// The program's version.
    pub(super) program: &'static str,
    pub(super) process: u32,
    /// `ok`: each configured interface is shaped or waits for its device. `degraded`: the interfaces, the errors or the
    /// warnings say why.
    pub(super) health: &'static str,
    pub(super) configuration: File,
    pub(super) interfaces: Vec<Interface>,
}

/// The status of the configuration file.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct File {
    pub(super) file: String,
    /// Why the file's present text is not in force. The text that was read before is.
    pub(super) errors: Vec<String>,
    pub(super) warnings: Vec<String>,
    /// The state folder cannot be written, as a warning says.
    #[serde(skip)]
    pub(super) is_state_unwritable: bool,
}

/// The status of one interface.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Interface {
    pub(super) interface: String,
    /// `shaped`, `waiting`, `failed`, `drifted`, `contested`, `stopped`, `unconfirmed` or `new`.
    pub(super) state: &'static str,
    /// Why it is not shaped.
    pub(super) why: Option<String>,
    /// How long it has been in this state at the time of the response, seconds.
    pub(super) for_seconds: f64,
    #[serde(skip)]
    since: Instant,
    /// How often its queues were set up or changed.
    pub(super) applied: u64,
    /// How often a change of another program was undone.
    pub(super) repaired: u64,
    /// The steps of the last change.
    pub(super) changes: Vec<String>,
    pub(super) device: Option<Device>,
    /// The rate controller and its last decision, with `option autorate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) autorate: Option<autorate::Status>,
    /// The kernel's queues at the time of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) queues: Option<InterfaceStatus>,
}

/// The state of the device that the kernel reports.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Device {
    pub(super) index: u32,
    pub(super) mtu_bytes: u32,
    pub(super) up: bool,
    pub(super) carrier: bool,
}

impl Status {
    pub(super) fn new(sections: &[Section], configuration: File, now: Instant) -> Self {
        let is_good =
            |section: &Section| matches!(section.state, State::Shaped | State::Waiting | State::New);
        let is_ok = configuration.errors.is_empty()
            && !configuration.is_state_unwritable
            && sections.iter().all(is_good);
        Self {
            version: VERSION,
            program: env!("CARGO_PKG_VERSION"),
            process: std::process::id(),
            health: if is_ok { "ok" } else { "degraded" },
            configuration,
            interfaces: sections
                .iter()
                .map(|section| Interface::new(section, now))
                .collect(),
        }
    }

    /// The status with [`Interface::for_seconds`] as of `now`.
    pub(super) fn at(mut self, now: Instant) -> Self {
        for interface in &mut self.interfaces {
            interface.for_seconds = seconds(now, interface.since);
        }
        self
    }

    /// The status in one line, for the service manager.
    pub(super) fn line(&self) -> String {
        let words: Vec<String> = self
            .interfaces
            .iter()
            .map(
                |Interface {
                     interface,
                     state,
                     why,
                     ..
                 }| match why {
                    Some(why) => format!("{interface} {state}: {why}"),
                    None => format!("{interface} {state}"),
                },
            )
            .collect();
        let line = match (&words[..], &self.configuration.errors[..]) {
            (_, [error, ..]) => format!("the previous configuration is in force: {error}"),
            ([], _) => "no interface is configured and enabled".to_owned(),
            (words, _) => words.join(", "),
        };
        line.replace('\n', " ")
    }
}

impl Interface {
    fn new(section: &Section, now: Instant) -> Self {
        Self {
            interface: section.interface.clone(),
            state: section.state.name(),
            why: section.why.clone(),
            for_seconds: seconds(now, section.since),
            since: section.since,
            applied: section.applied,
            repaired: section.repaired,
            changes: section.changes.clone(),
            device: section.device.map(|device| Device {
                index: device.index,
                mtu_bytes: device.mtu,
                up: device.up,
                carrier: device.carrier,
            }),
            autorate: None,
            queues: None,
        }
    }
}

fn seconds(now: Instant, since: Instant) -> f64 {
    now.since(since).0 as f64 / 1e9
}

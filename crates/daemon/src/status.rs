//! What the daemon tells of itself and of its interfaces, in the words of the API.

use serde::Serialize;
use sqm_core::units::Instant;

use super::autorate;
use super::keep::{Section, State};
use sqm_kernel::status::InterfaceStatus;

/// Of everything that the API tells; a change that breaks readers makes it one more.
pub(super) const VERSION: u32 = 1;

/// The whole.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Status {
    pub(super) version: u32,
    /// Of the program.
    pub(super) program: &'static str,
    pub(super) process: u32,
    /// `ok`: all that is configured is shaped or waits for its device; `degraded`: see the interfaces.
    pub(super) health: &'static str,
    pub(super) configuration: File,
    pub(super) interfaces: Vec<Interface>,
}

/// The configuration.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct File {
    pub(super) file: String,
    /// Why the file as it is now is not in force; what was read before is.
    pub(super) errors: Vec<String>,
    pub(super) warnings: Vec<String>,
    /// Something of the state cannot be written, as a warning says.
    #[serde(skip)]
    pub(super) is_hindered: bool,
}

/// One interface.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Interface {
    pub(super) interface: String,
    /// `shaped`, `waiting`, `failed`, `drifted`, `contested`, `stopped`, `unconfirmed` or `new`.
    pub(super) state: &'static str,
    /// Why it is not shaped.
    pub(super) why: Option<String>,
    /// For so long, seconds; at the moment of the answer.
    pub(super) for_seconds: f64,
    #[serde(skip)]
    since: Instant,
    /// How often it was set up or changed, and how often a change of others was undone.
    pub(super) applied: u64,
    pub(super) repaired: u64,
    /// What the last change consisted of.
    pub(super) changes: Vec<String>,
    pub(super) device: Option<Device>,
    /// The rate controller and its last decision, if it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) autorate: Option<autorate::Status>,
    /// What the kernel's queues hold at this moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) queues: Option<InterfaceStatus>,
}

/// What the kernel says of the device.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Device {
    pub(super) index: u32,
    pub(super) mtu_bytes: u32,
    pub(super) up: bool,
    pub(super) carrier: bool,
}

impl Status {
    pub(super) fn of(sections: &[Section], configuration: File, now: Instant) -> Self {
        let fine = |section: &Section| matches!(section.state, State::Shaped | State::Waiting | State::New);
        let is_ok =
            configuration.errors.is_empty() && !configuration.is_hindered && sections.iter().all(fine);
        Self {
            version: VERSION,
            program: env!("CARGO_PKG_VERSION"),
            process: std::process::id(),
            health: if is_ok { "ok" } else { "degraded" },
            configuration,
            interfaces: sections
                .iter()
                .map(|section| Interface::of(section, now))
                .collect(),
        }
    }

    /// The same at a later moment: how long each interface has been in its state.
    pub(super) fn at(mut self, now: Instant) -> Self {
        for interface in &mut self.interfaces {
            interface.for_seconds = seconds(now, interface.since);
        }
        self
    }

    /// One line, for a service manager.
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
            (_, [error, ..]) => format!("the configuration as it was before is in force: {error}"),
            ([], _) => "no interface is configured and enabled".to_owned(),
            (words, _) => words.join(", "),
        };
        line.replace('\n', " ")
    }
}

impl Interface {
    fn of(section: &Section, now: Instant) -> Self {
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

//! Makes the status that the API answers.

use sqm_api::VERSION;
use sqm_api::status::{ConfigurationStatus, Device, Health, Interface, RateController, State, Status};
use sqm_core::units::{Instant, Nanos};

use super::rate_watch::{self, Controller};
use super::reconciler::Section;

/// A status, and when each of its interfaces entered its state.
#[derive(Clone, Debug)]
pub(super) struct Published {
    status: Status,
    since: Vec<Instant>,
    /// When the pause of each interface ends, if it is paused.
    paused_until: Vec<Option<Instant>>,
    /// The program that controls the rates of each interface.
    rate_controllers: Vec<Option<Controller>>,
}

impl Published {
    /// `is_degraded`: a warning in `configuration` is about something that is not in force or cannot be written.
    pub(super) fn new(sections: &[Section], configuration: ConfigurationStatus, is_degraded: bool) -> Self {
        let is_good = |section: &Section| {
            matches!(
                section.state,
                State::Shaped | State::Waiting | State::New | State::Paused
            )
        };
        let is_ok = configuration.errors.is_empty() && !is_degraded && sections.iter().all(is_good);
        let status = Status {
            version: VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            process: std::process::id(),
            health: if is_ok { Health::Ok } else { Health::Degraded },
            configuration,
            interfaces: sections.iter().map(interface).collect(),
        };
        let since = sections.iter().map(|section| section.since).collect();
        let paused_until = sections.iter().map(Section::paused_until).collect();
        Self {
            status,
            since,
            paused_until,
            rate_controllers: sections.iter().map(Section::rate_controller).collect(),
        }
    }

    /// The status at this moment.
    pub(super) fn at(&self, now: Instant) -> Status {
        let mut status = self.status.clone();
        for (interface, since) in status.interfaces.iter_mut().zip(&self.since) {
            interface.for_seconds = seconds(now.since(*since));
        }
        for (interface, until) in status.interfaces.iter_mut().zip(&self.paused_until) {
            let is_paused = interface.state == State::Paused;
            interface.paused_for_seconds = until.filter(|_| is_paused).map(|until| seconds(until.since(now)));
        }
        for (interface, controller) in status.interfaces.iter_mut().zip(&self.rate_controllers) {
            interface.rate_controller = controller.map(|controller| rate_controller(controller, now));
        }
        status
    }

    /// The status in one line, for the service manager.
    pub(super) fn line(&self) -> String {
        let words: Vec<String> = self
            .status
            .interfaces
            .iter()
            .map(
                |Interface {
                     interface,
                     state,
                     why,
                     ..
                 }| match why {
                    Some(why) => format!("{interface} {}: {why}", state.name()),
                    None => format!("{interface} {}", state.name()),
                },
            )
            .collect();
        let line = match (&words[..], &self.status.configuration.errors[..]) {
            ([], [error, ..]) => format!("no interface is shaped: {error}"),
            (_, [error, ..]) => format!("the previous configuration is in force: {error}"),
            ([], _) => "no interface is configured and enabled".to_owned(),
            (words, _) => words.join(", "),
        };
        line.replace('\n', " ")
    }
}

fn seconds(span: Nanos) -> f64 {
    span.0 as f64 / 1e9
}

fn rate_controller(controller: Controller, now: Instant) -> RateController {
    let directions = controller.directions.iter().filter(|(_, is_its)| **is_its);
    RateController {
        directions: directions
            .map(|(direction, _)| direction.name().to_owned())
            .collect(),
        for_seconds: seconds(now.since(controller.since)),
        silent_for_seconds: seconds(now.since(controller.changed)),
        ends_after_seconds: seconds(rate_watch::SILENCE),
    }
}

fn interface(section: &Section) -> Interface {
    Interface {
        interface: section.interface.clone(),
        state: section.state,
        why: section.why.clone(),
        rate_controller: None,
        paused_for_seconds: None,
        for_seconds: 0.0,
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

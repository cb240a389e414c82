//! Pauses of the shaping, for tests of the line without SQM.
//!
//! Only memory holds a pause: it ends with its time, with the connection of its client, with any reload or request to apply the
//! interface, and with the daemon.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use sqm_api::status::State;
use tokio::sync::mpsc::{Sender, channel};

use super::Daemon;
use crate::clock::{monotonic, nanos};
use crate::reconciler::{Event, Section};
use crate::shared::{Pause, PauseGuard, PauseId};

/// The pauses whose clients are connected.
#[derive(Default)]
pub(super) struct Pauses {
    last_id: PauseId,
    held: Vec<Held>,
}

struct Held {
    id: PauseId,
    interface: String,
    /// Dropped when the pause is over, which ends the client's stream.
    _events: Sender<Bytes>,
}

impl Daemon {
    /// Pauses an interface. If the queues cannot be removed now, they are left as they are.
    pub(super) fn pause(&mut self, interface: String, longest: Duration) -> Result<Pause, Vec<String>> {
        match self.section(&interface).map(|section| section.state) {
            Some(State::Shaped) => {}
            Some(state) => {
                let text = format!(
                    "{interface} is not shaped, so there is nothing to pause: it is {}",
                    state.name()
                );
                return Err(vec![text]);
            }
            None => {
                let file = self.shaper.file().display();
                return Err(vec![format!("{file} has no enabled section for {interface}")]);
            }
        }
        let until = monotonic() + nanos(longest);
        self.reconciler.handle(
            Event::PauseRequested {
                interface: interface.clone(),
                until,
            },
            monotonic(),
        );
        self.reconcile();
        let section = self.section(&interface);
        let (state, why) = section.map_or((State::New, None), |section| (section.state, section.why.clone()));
        if state != State::Paused {
            self.reconciler
                .handle(Event::PauseEnded(interface.clone()), monotonic());
            let why = why.unwrap_or_else(|| state.name().to_owned());
            return Err(vec![format!("{interface} cannot be paused: {why}")]);
        }
        Ok(self.hold(interface, longest))
    }

    fn hold(&mut self, interface: String, longest: Duration) -> Pause {
        let pauses = &mut self.pauses;
        pauses.last_id += 1;
        let id = pauses.last_id;
        let (sender, events) = channel(1);
        let begun = json!({"interface": interface, "seconds": longest.as_secs()});
        // The channel has room for its first event.
        let _ = sender.try_send(sqm_http::event("paused", &begun));
        let weak = sender.downgrade();
        pauses.held.push(Held {
            id,
            interface,
            _events: sender,
        });
        Pause {
            events,
            sender: weak,
            guard: PauseGuard {
                id,
                shared: Arc::clone(&self.shared),
            },
        }
    }

    /// Ends the pause of a client that has gone, unless it is over already.
    pub(super) fn end_pause(&mut self, id: PauseId) {
        let held = &mut self.pauses.held;
        let Some(at) = held.iter().position(|pause| pause.id == id) else {
            return;
        };
        let interface = held.remove(at).interface;
        self.reconciler.handle(Event::PauseEnded(interface), monotonic());
        self.reconcile();
    }

    /// Ends the streams of the pauses that are over.
    pub(super) fn drop_ended_pauses(&mut self) {
        let sections = self.reconciler.sections();
        let is_paused = |interface: &str| {
            let mut sections = sections.iter();
            sections.any(|section| section.interface == interface && section.paused_until().is_some())
        };
        self.pauses.held.retain(|pause| is_paused(&pause.interface));
    }

    fn section(&self, interface: &str) -> Option<&Section> {
        let mut sections = self.reconciler.sections().iter();
        sections.find(|section| section.interface == interface)
    }
}

//! Publishes the status and writes log entries.

use sqm_api::journal::LogKind;
use sqm_api::status::{ConfigurationStatus, State};

use super::Daemon;
use crate::reconciler::Outcome;
use crate::sd_notify;
use crate::status::Published;
use crate::unconfirmed_change::PendingFileRollback;
use tracing::{error, info, warn};

impl Daemon {
    /// Publishes the status for the API, and its one-line form for the service manager.
    pub(super) fn publish(&mut self) {
        let state_error = self.shaper.state_error();
        if state_error != self.state_error {
            match &state_error {
                Some(error) => self.warn(LogKind::State, None, error.clone()),
                None => self.info(
                    LogKind::State,
                    None,
                    "the state folder can be written again".to_owned(),
                ),
            }
            self.state_error.clone_from(&state_error);
        }
        let pending = self.pending_rollback.as_ref().map(PendingFileRollback::message);
        let warnings = self.shaper.configuration.warnings.iter();
        let configuration = ConfigurationStatus {
            file: self.shaper.file().display().to_string(),
            errors: pending.into_iter().chain(self.errors.iter().cloned()).collect(),
            warnings: state_error.iter().chain(warnings).cloned().collect(),
        };
        let status = Published::new(self.reconciler.sections(), configuration, state_error.is_some());
        let line = status.line();
        if line != self.notified {
            sd_notify::notify(&format!("STATUS={line}"));
            self.notified = line;
        }
        self.shared.publish(status);
    }

    /// Logs the steps of a check that changed the queues.
    pub(super) fn log_change(&self, interface: &str, outcome: &Outcome) {
        if let Outcome::Changed { changes, .. } = outcome {
            self.info(LogKind::Changed, Some(interface), changes.join("; "));
        }
    }

    /// Logs the state of an interface, if it differs from the published one, and publishes it.
    pub(super) fn log_state(&mut self, interface: &str) {
        let is_it = |name: &str| name == interface;
        let before = self
            .shared
            .status()
            .interfaces
            .into_iter()
            .find(|known| is_it(&known.interface));
        let section = self
            .reconciler
            .sections()
            .iter()
            .find(|section| is_it(&section.interface));
        let Some(section) = section else { return };
        let (state, why) = (section.state, section.why.clone());
        if before.is_some_and(|before| before.state == state && before.why == why) {
            return;
        }
        let text = why.map_or_else(
            || state.name().to_owned(),
            |why| format!("{}: {why}", state.name()),
        );
        match state {
            State::Failed | State::Drifted | State::Contested => {
                self.warn(LogKind::State, Some(interface), text)
            }
            _ => self.info(LogKind::State, Some(interface), text),
        }
        self.publish();
    }

    /// Logs the warnings of the configuration.
    pub(super) fn log_warnings(&self) {
        for warning in &self.shaper.configuration.warnings {
            self.warn(LogKind::Configuration, None, warning.clone());
        }
    }

    /// Logs an ordinary event, and records it for the API's clients.
    pub(super) fn info(&self, kind: LogKind, interface: Option<&str>, text: String) {
        info!(
            kind = kind.name(),
            interface,
            "{}",
            with_interface(interface, &text)
        );
        self.shared.journal.record(kind, interface, text);
    }

    /// Logs what a person should look at, and records it for the API's clients.
    pub(super) fn warn(&self, kind: LogKind, interface: Option<&str>, text: String) {
        warn!(
            kind = kind.name(),
            interface,
            "{}",
            with_interface(interface, &text)
        );
        self.shared.journal.record(kind, interface, text);
    }

    /// Logs what could not be done as asked, and records it for the API's clients.
    pub(super) fn error(&self, kind: LogKind, interface: Option<&str>, text: String) {
        error!(
            kind = kind.name(),
            interface,
            "{}",
            with_interface(interface, &text)
        );
        self.shared.journal.record(kind, interface, text);
    }
}

/// A log entry as text: with the name of the interface first, if it is about one.
fn with_interface(interface: Option<&str>, text: &str) -> String {
    interface.map_or_else(|| text.to_owned(), |interface| format!("{interface}: {text}"))
}

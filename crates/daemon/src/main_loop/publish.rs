//! Publishes the status and writes log entries.

use sqm_api::journal::LogKind;
use sqm_api::status::{ConfigurationStatus, State};

use super::Daemon;
use crate::rate_watch;
use crate::reconciler::Outcome;
use crate::sd_notify;
use crate::status::Published;
use crate::unconfirmed_change::PendingFileRollback;
use sqm_process::logging::{self, Level};
use tracing::{error, info, warn};

impl Daemon {
    /// Publishes the status for the API, and its one-line form for the service manager.
    pub(super) fn publish(&mut self) {
        let state_error = self.shaper.state_error();
        if state_error != self.state_error {
            match &state_error {
                Some(error) => self.log(Level::WARN, LogKind::State, None, error.clone()),
                None => self.log(
                    Level::INFO,
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
        let is_degraded = state_error.is_some() || self.shaper.configuration.is_incomplete;
        let status = Published::new(self.reconciler.sections(), configuration, is_degraded);
        let line = status.line();
        // First: a service manager that receives the line may ask for the status.
        self.shared.publish(status);
        if line != self.notified {
            sd_notify::notify(&format!("STATUS={line}"));
            self.notified = line;
        }
    }

    /// Logs the steps of a check that changed the queues.
    pub(super) fn log_change(&self, interface: &str, outcome: &Outcome) {
        if let Outcome::Changed { changes, .. } = outcome {
            // The entry begins with the interface already.
            let prefix = format!("{interface}: ");
            let without = |change: &String| change.strip_prefix(&prefix).unwrap_or(change).to_owned();
            let changes: Vec<String> = changes.iter().map(without).collect();
            self.log(Level::INFO, LogKind::Changed, Some(interface), changes.join("; "));
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
        let controller = before.as_ref().and_then(|before| before.rate_controller.as_ref());
        let is_silent = controller.is_some_and(|other| other.silent_for_seconds >= other.ends_after_seconds);
        if before.is_some_and(|before| before.state == state && before.why == why) {
            return;
        }
        let text = why.map_or_else(
            || state.name().to_owned(),
            |why| format!("{}: {why}", state.name()),
        );
        let text = match is_silent && section.rate_controller().is_none() {
            true => format!(
                "{text}: the other program has not changed the rates for {} s: the daemon keeps them again",
                rate_watch::SILENCE.0 / 1_000_000_000
            ),
            false => text,
        };
        match state {
            State::Failed | State::Drifted | State::Contested => {
                self.log(Level::WARN, LogKind::State, Some(interface), text)
            }
            _ => self.log(Level::INFO, LogKind::State, Some(interface), text),
        }
        self.publish();
    }

    /// Logs the warnings of the configuration.
    pub(super) fn log_warnings(&self) {
        for warning in &self.shaper.configuration.warnings {
            self.log(Level::WARN, LogKind::Configuration, None, warning.clone());
        }
    }

    /// Writes an entry to the log, and records it with its level for the API's clients.
    pub(super) fn log(&self, level: Level, kind: LogKind, interface: Option<&str>, text: String) {
        let message = interface.map_or_else(|| text.clone(), |interface| format!("{interface}: {text}"));
        let name = kind.name();
        // The macros of `tracing` take a level that is known when they are compiled.
        match level {
            Level::ERROR => error!(kind = name, interface, "{message}"),
            Level::WARN => warn!(kind = name, interface, "{message}"),
            _ => info!(kind = name, interface, "{message}"),
        }
        let text = format!("{}{text}", logging::prefix(level));
        self.shared.journal.record(kind, interface, text);
    }
}

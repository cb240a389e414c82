//! Writes the rates that the autorate threads want.

use super::Daemon;
use crate::autorate::LineConfig;
use crate::clock::monotonic;
use crate::reconciler::Event;
use sqm_api::journal::LogKind;
use sqm_api::status::State;
use sqm_process::logging::Level;

impl Daemon {
    /// Starts and stops autorate threads by the configuration, and writes the rates that they want.
    pub(super) fn run_autorate(&mut self) {
        // No controller follows a line that is not shaped: it would take the line's own queue for one of the shaper.
        let sections = self.reconciler.sections().iter();
        let paused: Vec<_> = sections
            .filter(|section| section.paused_until().is_some())
            .collect();
        let is_paused = |line: &&LineConfig| paused.iter().any(|section| section.interface == line.interface);
        let lines = &self.shaper.configuration.autorates;
        let lines: Vec<_> = lines.iter().filter(|line| !is_paused(line)).cloned().collect();
        let context = self.shared.autorate_context();
        let changes = self.autorate.configure(&lines, &context, monotonic());
        for (interface, text) in changes.messages {
            self.log(Level::INFO, LogKind::Autorate, Some(&interface), text);
        }
        for interface in changes.ended {
            self.shaper.forget_rates(&interface);
            self.reconciler
                .handle(Event::RatesChanged(interface), monotonic());
        }
        let error = self.set_rates();
        if error != self.rate_error {
            if let Some(error) = &error {
                let text = format!("the rates that autorate wants could not be set: {error}");
                self.log(Level::WARN, LogKind::Autorate, None, text);
            }
            self.rate_error = error;
        }
    }

    /// Returns the last error, if there was one.
    fn set_rates(&mut self) -> Option<String> {
        let mut last_error = None;
        for (interface, rates) in self.shared.rates.take_wanted() {
            let sections = self.reconciler.sections();
            let section = sections.iter().find(|section| section.interface == interface);
            // If an event has scheduled a check, that check writes the rates, too. Rates that another program controls are not written.
            let is_shaped = section.is_some_and(|section| {
                let is_controlled = section.rate_controller().is_some();
                section.state == State::Shaped && !section.has_event() && !is_controlled
            });
            if let Err(error) = self.shaper.set_rates(&interface, rates, is_shaped) {
                last_error = Some(format!("{interface}: {error}"));
            }
        }
        last_error
    }
}

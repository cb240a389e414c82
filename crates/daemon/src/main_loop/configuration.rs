//! Changes of the configuration: reloads of the file, and changes by the API, which may have to be confirmed.
//!
//! The queues never depend on a disk: an unconfirmed change is rolled back in the kernel from memory, even if its file cannot be
//! restored.

use std::time::Duration;

use anyhow::Context;
use sqm_api::configuration::{ConfigurationFile, Configured, Unconfirmed};
use sqm_api::journal::LogKind;
use sqm_api::status::State;
use sqm_files::Error;
use sqm_plan::uci::bytes::{to_bytes, to_text};

use super::Daemon;
use super::awaited_file::AwaitedFile;
use crate::clock::{monotonic, nanos};
use crate::reconciler::{ConfiguredInterface, Event, Section};
use crate::shape::{Candidate, Configuration, LoadError};
use crate::shared::Refused;
use crate::unconfirmed_change::{self, PendingFileRollback, UnconfirmedChange, time_left};
use sqm_configuration::{SavedText, commit_confirm, revision, staged};
use sqm_process::logging::Level;

impl Daemon {
    /// Reads the configuration file again and applies it. A section with errors is left as it is; a file of which no section
    /// can be applied changes nothing.
    pub(super) fn reload(&mut self) -> Result<(), Vec<String>> {
        self.retry_file_rollback();
        if let Some(pending) = self
            .pending_rollback
            .as_ref()
            .filter(|pending| pending.is_in_file())
        {
            return Err(vec![pending.message()]);
        }
        self.load_file(Event::Configured)
            .map_err(|error| error.messages())
    }

    /// Loads a configuration file that was missing or had errors at the start, once there is another.
    pub(super) fn look_for_file(&mut self) {
        let now = monotonic();
        if self.pending_rollback.is_some() {
            // It restores the file.
            return;
        }
        let file = self.shaper.find_file();
        if !self
            .awaited_file
            .as_mut()
            .is_some_and(|awaited| awaited.has_changed(file, now))
        {
            return;
        }
        // An earlier daemon may have ended while a change was unconfirmed.
        let recovered = unconfirmed_change::recover(self.shaper.file(), now);
        for message in recovered.messages {
            self.log(Level::WARN, LogKind::Configuration, None, message);
        }
        self.pending_rollback = recovered.pending;
        if self.pending_rollback.is_none() {
            // Errors are logged.
            let _ = self.load_file(Event::Configured);
        }
    }

    fn load_file(&mut self, event: impl FnOnce(Vec<ConfiguredInterface>) -> Event) -> Result<(), LoadError> {
        if let Some(awaited) = &mut self.awaited_file {
            *awaited = AwaitedFile::of(self.shaper.file(), monotonic());
        }
        match self.shaper.read_candidate() {
            Ok(candidate) => {
                self.install(candidate, event);
                Ok(())
            }
            Err(error) => {
                self.errors = error.messages();
                for error in &self.errors {
                    self.log(Level::ERROR, LogKind::Configuration, None, error.clone());
                }
                Err(error)
            }
        }
    }

    /// Makes a configuration the daemon's. The next reconciliation brings its plans into force.
    fn install(&mut self, candidate: Candidate, event: impl FnOnce(Vec<ConfiguredInterface>) -> Event) {
        let interfaces = self.shaper.install(candidate);
        self.awaited_file = None;
        self.errors.clear();
        self.log_warnings();
        self.reconciler.handle(event(interfaces), monotonic());
        // The reconciler does not know the devices of new sections yet.
        let _ = self.read_devices();
    }

    /// The configuration file, for the API.
    pub(super) fn read_configuration(&self) -> anyhow::Result<ConfigurationFile> {
        let file = self.shaper.file();
        let text = sqm_configuration::read_if_there(file).context("cannot read the configuration")?;
        let text = text.unwrap_or_default();
        Ok(ConfigurationFile {
            file: file.display().to_string(),
            revision: revision::of(&text),
            text: to_text(&text).into_owned(),
            unconfirmed: self.unconfirmed_status(),
        })
    }

    fn unconfirmed_status(&self) -> Option<Unconfirmed> {
        let pending = self
            .pending_rollback
            .as_ref()
            .filter(|pending| pending.is_in_file());
        let change = self
            .unconfirmed
            .as_ref()
            .or_else(|| pending.map(|pending| &pending.change));
        change.map(|change| Unconfirmed {
            revision: change.saved.revision().to_owned(),
            seconds_left: time_left(change.until, monotonic()).as_secs_f64(),
        })
    }

    /// Writes the configuration, if the file still has the revision `known`, and applies it. After any error the file and the
    /// queues are as before.
    pub(super) fn configure(
        &mut self,
        text: &str,
        known: &str,
        confirm: Duration,
    ) -> Result<Configured, Refused> {
        if self.unconfirmed.is_some() || commit_confirm::is_pending(&self.shared.state_dir) {
            return Err(Refused::Unconfirmed);
        }
        self.retry_file_rollback();
        if let Some(pending) = &self.pending_rollback {
            return Err(Refused::Failed(vec![pending.message()]));
        }
        let file = self.shaper.file().to_owned();
        if let Some(obstacle) = staged::obstacle(&file) {
            return Err(Refused::Failed(vec![obstacle]));
        }
        let found = sqm_configuration::read_if_there(&file);
        let found = found.map_err(|error| Refused::Failed(vec![error.to_string()]))?;
        let before = found.clone().unwrap_or_default();
        if revision::of(&before) != known {
            return Err(Refused::Conflict(revision::of(&before)));
        }
        let text = to_bytes(text);
        let candidate = self.shaper.candidate(text.clone());
        let candidate = candidate.map_err(|error| Refused::Wrong(error.messages()))?;
        if text == before {
            self.install(candidate, Event::Configured);
            self.reconcile();
            return Ok(self.configured(known.to_owned()));
        }
        let failed_before = self.failed();
        let revision = revision::of(&text);
        let until = monotonic() + nanos(confirm);
        let in_force = self.shaper.configuration.clone();
        let saved = SavedText::save(&file, before, revision.clone())
            .context("the previous configuration cannot be saved")
            .map_err(Refused::failed)?;
        let outcome = match sqm_configuration::replace(&file, found.as_deref(), &text) {
            Err(Error::Changed { .. }) => return Err(self.conflict(&saved)),
            written => written.map_err(|error| vec![error.to_string()]),
        };
        self.unconfirmed = Some(UnconfirmedChange {
            saved,
            until,
            in_force,
            stopped: self.stopped(),
        });
        if outcome.is_ok() {
            self.install(candidate, Event::Configured);
        }
        self.reconcile();
        let outcome = outcome.and_then(|()| {
            let failures: Vec<String> = self
                .failed()
                .into_iter()
                .filter(|failure| !failed_before.contains(failure))
                .collect();
            if failures.is_empty() {
                Ok(())
            } else {
                Err(failures)
            }
        });
        if let Err(reasons) = outcome {
            self.roll_back("the new configuration could not be applied and was rolled back")?;
            return Err(Refused::Failed(reasons));
        }
        if confirm.is_zero() {
            self.confirm()?;
        } else {
            let seconds = confirm.as_secs();
            self.log(
                Level::INFO,
                LogKind::Configuration,
                None,
                format!("a change of the configuration waits {seconds} s for its confirmation"),
            );
        }
        Ok(self.configured(revision))
    }

    /// Another program has written the file since it was read. Nothing was written, so there is nothing to roll back.
    fn conflict(&self, saved: &SavedText) -> Refused {
        if let Err(error) = saved.discard() {
            let text = format!("the saved copy of the previous configuration cannot be removed: {error}");
            self.log(Level::WARN, LogKind::Configuration, None, text);
        }
        match sqm_configuration::read_if_there(self.shaper.file()) {
            Ok(now) => Refused::Conflict(revision::of(&now.unwrap_or_default())),
            Err(error) => Refused::Failed(vec![error.to_string()]),
        }
    }

    /// The interfaces that were stopped by hand.
    fn stopped(&self) -> Vec<String> {
        let stopped = |section: &&Section| section.state == State::Stopped;
        let sections = self.reconciler.sections().iter().filter(stopped);
        sections.map(|section| section.interface.clone()).collect()
    }

    /// The interfaces whose last check failed, with the reason.
    fn failed(&self) -> Vec<String> {
        let failed = |section: &&Section| section.state == State::Failed;
        let sections = self.reconciler.sections().iter().filter(failed);
        sections
            .map(|section| {
                format!(
                    "{}: {}",
                    section.interface,
                    section.why.as_deref().unwrap_or("failed")
                )
            })
            .collect()
    }

    fn configured(&self, revision: String) -> Configured {
        Configured {
            revision,
            unconfirmed: self.unconfirmed_status(),
            interfaces: self.shared.status().interfaces,
        }
    }

    /// Makes the unconfirmed change permanent. If the saved copy of the previous text cannot be removed, the change stays
    /// unconfirmed.
    pub(super) fn confirm(&mut self) -> Result<Configured, Refused> {
        let change = self.unconfirmed.take().ok_or(Refused::NothingWaits)?;
        if let Err(error) = change.saved.discard() {
            self.unconfirmed = Some(change);
            let text =
                format!("the change cannot be confirmed: {error}; unless that succeeds, it is rolled back");
            return Err(Refused::Failed(vec![text]));
        }
        self.log(
            Level::INFO,
            LogKind::Configuration,
            None,
            "the change of the configuration is permanent".to_owned(),
        );
        Ok(self.configured(change.saved.revision().to_owned()))
    }

    /// Rolls the unconfirmed change back, in the file and in the kernel; or in the file alone, if that is still pending. `why` is
    /// for the log.
    pub(super) fn roll_back(&mut self, why: &str) -> Result<Configured, Refused> {
        if let Some(change) = self.unconfirmed.take() {
            match change.saved.restore() {
                Ok(is_restored) => self.roll_back_queues(why, change, is_restored)?,
                Err(error) => {
                    let text = format!(
                        "{why}, except the file, which could not be restored; the daemon keeps trying: {error}"
                    );
                    self.log(Level::WARN, LogKind::Configuration, None, text);
                    let (in_force, stopped) = (change.in_force.clone(), change.stopped.clone());
                    self.pending_rollback =
                        Some(PendingFileRollback::new(change, error.to_string(), monotonic()));
                    self.resume(in_force, stopped)?;
                    self.reconcile();
                }
            }
        } else if self.pending_rollback.is_some() {
            self.retry_file_rollback();
        } else {
            return Err(Refused::NothingWaits);
        }
        if let Some(pending) = &self.pending_rollback {
            return Err(Refused::Failed(vec![pending.message()]));
        }
        let file = self.read_configuration().map_err(Refused::failed)?;
        Ok(self.configured(file.revision))
    }

    /// Applies the file after a rollback. It holds the previous text, or, unless `is_restored`, what another program has written
    /// in the meantime.
    fn roll_back_queues(
        &mut self,
        why: &str,
        change: UnconfirmedChange,
        is_restored: bool,
    ) -> Result<(), Refused> {
        let text = match is_restored {
            true => why.to_owned(),
            false => format!(
                "{why}, except the file: another program has written it in the meantime, and it is left unchanged"
            ),
        };
        self.log(Level::INFO, LogKind::Configuration, None, text);
        // If the file has errors, as it may have had before the change, the configuration that was in force is resumed.
        let stopped = change.stopped.clone();
        let rolled_back = |interfaces| Event::RolledBack { interfaces, stopped };
        if self.load_file(rolled_back).is_err() {
            self.resume(change.in_force, change.stopped)?;
        }
        self.reconcile();
        Ok(())
    }

    /// Applies a configuration that was in force before, whatever the file holds.
    fn resume(&mut self, in_force: Configuration, stopped: Vec<String>) -> Result<(), Refused> {
        let interfaces = self.shaper.resume(in_force);
        let interfaces = interfaces.map_err(|error| Refused::Failed(error.messages()))?;
        self.reconciler
            .handle(Event::RolledBack { interfaces, stopped }, monotonic());
        let _ = self.read_devices();
        Ok(())
    }

    /// Tries again to restore the file of a change that was rolled back.
    fn retry_file_rollback(&mut self) {
        let Some(pending) = self.pending_rollback.take() else {
            return;
        };
        match pending.change.saved.restore() {
            Ok(is_restored) => {
                let why = "the file of the change that was not confirmed is restored";
                // Errors are logged.
                let _ = self.roll_back_queues(why, pending.change, is_restored);
            }
            Err(error) => {
                self.pending_rollback = Some(pending.failed_again(error.to_string(), monotonic()));
            }
        }
    }

    /// Rolls back a change whose time is up, and retries a pending rollback of the file if that is due.
    pub(super) fn expire_unconfirmed(&mut self) {
        let now = monotonic();
        if self
            .unconfirmed
            .as_ref()
            .is_some_and(|change| change.until <= now)
        {
            // Errors are logged.
            let _ = self.roll_back("the change was not confirmed in time and was rolled back");
        }
        if self
            .pending_rollback
            .as_ref()
            .is_some_and(|pending| pending.due <= now)
        {
            self.retry_file_rollback();
        }
    }
}

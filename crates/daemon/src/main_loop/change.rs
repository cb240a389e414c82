//! The configuration changed by the API, or read anew: what is written, what is in force, and what waits for a confirmation.
//!
//! What is in force never depends on a disk. A change that nobody confirms is put back in the kernel from memory, whatever
//! becomes of the file.

use std::time::Duration;

use anyhow::Context;
use sqm_files::Error;

use super::Daemon;
use crate::clock::{monotonic, nanos};
use crate::keep::{self, Event, Named};
use crate::shape::Configuration;
use crate::shared::{Configured, File, Refused, Unconfirmed};
use crate::trial::{self, Overdue, Trial};
use sqm_configuration::commit_confirm;
use sqm_configuration::revision;

impl Daemon {
    /// Reads the configuration anew. One with errors changes nothing.
    pub(super) fn reload(&mut self) -> Result<(), Vec<String>> {
        self.write_overdue();
        if let Some(overdue) = self.overdue.as_ref().filter(|overdue| overdue.is_in_file()) {
            return Err(vec![overdue.told()]);
        }
        self.read_anew(Event::Configured)
    }

    fn read_anew(&mut self, event: impl FnOnce(Vec<Named>) -> Event) -> Result<(), Vec<String>> {
        match self.shaper.load() {
            Ok(named) => {
                self.errors.clear();
                self.tell_configuration();
                self.keeper.on(event(named), monotonic());
                // Sections that are new have not heard of their devices.
                let _ = self.see_devices();
                Ok(())
            }
            Err(errors) => {
                for error in &errors {
                    self.say("configuration", None, format!("error: {error}"));
                }
                self.errors.clone_from(&errors);
                Err(errors)
            }
        }
    }

    pub(super) fn read_configuration(&self) -> anyhow::Result<File> {
        let file = self.shaper.file();
        let text = sqm_configuration::read_if_there(file).context("cannot read the configuration")?;
        let text = text.unwrap_or_default();
        Ok(File {
            file: file.display().to_string(),
            revision: revision::of(&text),
            text: String::from_utf8_lossy(&text).into_owned(),
            unconfirmed: self.unconfirmed(),
        })
    }

    fn unconfirmed(&self) -> Option<Unconfirmed> {
        let overdue = self.overdue.as_ref().filter(|overdue| overdue.is_in_file());
        let trial = self
            .trial
            .as_ref()
            .or_else(|| overdue.map(|overdue| &overdue.trial));
        trial.map(|trial| Unconfirmed {
            revision: trial.revision.clone(),
            seconds_left: trial::left(trial.until, monotonic()).as_secs_f64(),
        })
    }

    /// Writes the configuration and brings it into force. On any failure file and queues are as before.
    pub(super) fn configure(
        &mut self,
        text: &str,
        known: &str,
        confirm: Duration,
    ) -> Result<Configured, Refused> {
        if self.trial.is_some() || commit_confirm::is_pending(&self.shared.state_dir) {
            return Err(Refused::Unconfirmed);
        }
        self.write_overdue();
        if let Some(overdue) = &self.overdue {
            return Err(Refused::Failed(vec![overdue.told()]));
        }
        let file = self.shaper.file().to_owned();
        let found = sqm_configuration::read_if_there(&file);
        let found = found.map_err(|error| Refused::Failed(vec![error.to_string()]))?;
        let before = found.clone().unwrap_or_default();
        if revision::of(&before) != known {
            return Err(Refused::Conflict(revision::of(&before)));
        }
        self.shaper.judge(text.as_bytes()).map_err(Refused::Wrong)?;
        if text.as_bytes() == before {
            self.reload().map_err(Refused::Wrong)?;
            self.work();
            return Ok(self.configured(known.to_owned()));
        }
        let failed = self.failed();
        let revision = revision::of(text.as_bytes());
        let until = monotonic() + nanos(confirm);
        let in_force = self.shaper.configuration.clone();
        let mut trial =
            Trial::begin(&file, before, in_force, revision.clone(), until).map_err(Refused::of)?;
        trial.stopped = self.stopped();
        let outcome = match sqm_configuration::replace(&file, found.as_deref(), text.as_bytes()) {
            Err(Error::Changed { .. }) => return Err(self.conflict(&trial)),
            written => written.map_err(|error| vec![error.to_string()]),
        };
        self.trial = Some(trial);
        let outcome = outcome.and_then(|()| self.reload());
        self.work();
        let outcome = outcome.and_then(|()| {
            let news: Vec<String> = self
                .failed()
                .into_iter()
                .filter(|one| !failed.contains(one))
                .collect();
            if news.is_empty() { Ok(()) } else { Err(news) }
        });
        if let Err(reasons) = outcome {
            self.revert("the new configuration could not be brought into force; as it was before")?;
            return Err(Refused::Failed(reasons));
        }
        if confirm.is_zero() {
            self.confirm()?;
        } else {
            let seconds = confirm.as_secs();
            self.say(
                "configuration",
                None,
                format!("a change waits {seconds} s for its confirmation"),
            );
        }
        Ok(self.configured(revision))
    }

    /// Another program has written the file since it was read: nothing was written, and nothing is to be put back.
    fn conflict(&self, trial: &Trial) -> Refused {
        if let Err(error) = trial.keep() {
            let text = format!("what was kept of a change cannot be removed: {error}");
            self.say("configuration", None, text);
        }
        match sqm_configuration::read_if_there(self.shaper.file()) {
            Ok(now) => Refused::Conflict(revision::of(&now.unwrap_or_default())),
            Err(error) => Refused::Failed(vec![error.to_string()]),
        }
    }

    /// The interfaces that are stopped by hand.
    fn stopped(&self) -> Vec<String> {
        let stopped = |section: &&keep::Section| section.state == keep::State::Stopped;
        let sections = self.keeper.sections().iter().filter(stopped);
        sections.map(|section| section.interface.clone()).collect()
    }

    /// The interfaces that cannot be shaped, with the reason.
    fn failed(&self) -> Vec<String> {
        let failed = |section: &&keep::Section| section.state == keep::State::Failed;
        let sections = self.keeper.sections().iter().filter(failed);
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
            unconfirmed: self.unconfirmed(),
            interfaces: self.shared.status().interfaces,
        }
    }

    /// What waits for a confirmation stays. If that cannot be written down, it waits on.
    pub(super) fn confirm(&mut self) -> Result<Configured, Refused> {
        let trial = self.trial.take().ok_or(Refused::NothingWaits)?;
        if let Err(error) = trial.keep() {
            self.trial = Some(trial);
            let text = format!("the change cannot be confirmed: {error}; without it, the change is put back");
            return Err(Refused::Failed(vec![text]));
        }
        self.say(
            "configuration",
            None,
            "the changed configuration stays".to_owned(),
        );
        Ok(self.configured(trial.revision))
    }

    /// Puts back file and queues as they were before what waits for a confirmation; or only the file, where the queues were.
    pub(super) fn revert(&mut self, why: &str) -> Result<Configured, Refused> {
        if let Some(trial) = self.trial.take() {
            match trial.undo() {
                Ok(is_undone) => self.put_back(why, trial, is_undone)?,
                Err(error) => {
                    let text = format!(
                        "{why}, but for the file, which could not be put back and is tried again: {error}"
                    );
                    self.say("configuration", None, text);
                    let (in_force, stopped) = (trial.in_force.clone(), trial.stopped.clone());
                    self.overdue = Some(Overdue::new(trial, error.to_string(), monotonic()));
                    self.take_up(in_force, stopped).map_err(Refused::Failed)?;
                    self.work();
                }
            }
        } else if self.overdue.is_some() {
            self.write_overdue();
        } else {
            return Err(Refused::NothingWaits);
        }
        if let Some(overdue) = &self.overdue {
            return Err(Refused::Failed(vec![overdue.told()]));
        }
        let file = self.read_configuration().map_err(Refused::of)?;
        Ok(self.configured(file.revision))
    }

    /// The file is as it is to be: so are the queues.
    fn put_back(&mut self, why: &str, trial: Trial, is_undone: bool) -> Result<(), Refused> {
        let text = match is_undone {
            true => why.to_owned(),
            false => format!("{why}; but somebody has written the file since, and that stays"),
        };
        self.say("configuration", None, text);
        // A file that was wrong before is wrong again; what was in force before is in force again.
        let stopped = trial.stopped.clone();
        let rolled_back = |named| Event::RolledBack { named, stopped };
        if self.read_anew(rolled_back).is_err() {
            self.take_up(trial.in_force, trial.stopped)
                .map_err(Refused::Failed)?;
        }
        self.work();
        Ok(())
    }

    fn take_up(&mut self, in_force: Configuration, stopped: Vec<String>) -> Result<(), Vec<String>> {
        let named = self.shaper.take_up(in_force)?;
        self.keeper.on(Event::RolledBack { named, stopped }, monotonic());
        let _ = self.see_devices();
        Ok(())
    }

    /// Puts back the file of a change that ended, if that is left to do.
    fn write_overdue(&mut self) {
        let Some(overdue) = self.overdue.take() else {
            return;
        };
        match overdue.trial.undo() {
            Ok(is_undone) => {
                let why = "the file is as it was before the change that nobody confirmed";
                // It says itself what goes wrong.
                let _ = self.put_back(why, overdue.trial, is_undone);
            }
            Err(error) => self.overdue = Some(overdue.failed(error.to_string(), monotonic())),
        }
    }

    /// Puts back what nobody has confirmed in time.
    pub(super) fn end_trial(&mut self) {
        let now = monotonic();
        if self.trial.as_ref().is_some_and(|trial| trial.until <= now) {
            // It says itself what goes wrong.
            let _ = self.revert("nobody has confirmed the change in time: as it was before");
        }
        if self.overdue.as_ref().is_some_and(|overdue| overdue.due <= now) {
            self.write_overdue();
        }
    }
}

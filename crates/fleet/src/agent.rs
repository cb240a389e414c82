//! A router's handling of the documents that it is given. Pure: the caller has the store, the files, the clock and the configuration.
//!
//! A document is tried as a change that has to be confirmed: whatever happens to the agent, the daemon rolls it back by itself. Each step
//! is in the [`Memory`], which the caller writes before it does anything else, so a router that loses power at any moment goes on:
//!
//! | killed | then |
//! | --- | --- |
//! | before or during the trial | the daemon has rolled the change back; the document is tried again, three times in all |
//! | after the verdict *keep*, before the confirmation | as above |
//! | during a test at a quiet hour | as above |
//! | after the confirmation | the configuration file holds the document's text: it counts as kept |

use serde::{Deserialize, Serialize};

use crate::desired::{Admission, Desired, Receiver};
use crate::judgement::{Load, Measured, Second, Verdict, Window, judge};
use crate::name::Name;
use crate::quiet_test::QuietTest;
use crate::report::{Judged, Outcome, Refused};
use crate::signed::PublicKey;
use quiet::Quiet;

mod quiet;

/// How often a document is tried that something interrupts. A choice: a restart is not the document's fault, but a document that ends
/// the daemon must not do so for ever.
const ATTEMPTS: u32 = 3;
/// How long the agent waits before it tries a change again that another change of the configuration held up, seconds; a choice.
const BUSY_S: u64 = 10;
/// The time for the confirmation beyond the longest observation, seconds. A choice: the verdict is carried out in far less.
const CONFIRM_MARGIN_S: u64 = 60;

/// The router's name, and the key of its operator.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its name.
    pub router: Name,
    /// The key that signs its documents.
    pub key: PublicKey,
}

/// The agent's knowledge. It survives on the router's disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// The last document that was taken, as text.
    pub document: Option<String>,
    /// Its revision; 0 if there was none.
    pub revision: u64,
    /// The revision whose configuration is in force; 0 if it is none of a document.
    pub in_force: u64,
    /// The outcome of the last document.
    pub outcome: Option<Outcome>,
    /// The trial of the last document, while it is not settled.
    pub trial: Option<Trial>,
    /// The document that was refused last.
    pub refused: Option<Refused>,
}

/// The trial of a document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// How often it has begun.
    pub attempts: u32,
    /// The round trips before the change.
    pub before: Option<Measured>,
    /// When the change was applied, seconds since 1970 (UTC); `None`: it has not been.
    pub since_unix_s: Option<u64>,
    /// The verdict, once there is one and until it is carried out.
    pub judged: Option<Judged>,
}

/// The caller's next step.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Write the memory. Nothing else is done before that has succeeded.
    Remember,
    /// Apply this configuration, to be confirmed within this time, and call [`Agent::applied`].
    Apply {
        /// The sections of the document.
        configuration: String,
        /// Seconds.
        confirm_s: u64,
    },
    /// Confirm the change, and call [`Agent::carried_out`].
    Confirm,
    /// Roll the change back, and call [`Agent::carried_out`].
    Revert,
    /// Test the line, observe it meanwhile, and call [`Agent::tested`]. The test is ended early if [`Agent::is_testing`] becomes false.
    Test(QuietTest),
    /// Publish a report.
    Report,
}

/// How a configuration could be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It is in force, until it is confirmed or rolled back.
    Yes,
    /// It is in force already, for good: the file holds this text.
    Already,
    /// It has errors, each on one line. Everything is as before.
    Invalid(Vec<String>),
    /// Another change waits for its confirmation, or somebody wrote the file meanwhile. Everything is as before.
    Busy,
}

/// How a change has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its configuration is in force for good.
    Kept,
    /// The configuration from before is back.
    RolledBack,
}

/// How a test has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TestEnd {
    /// It loaded the line for its whole time.
    Done,
    /// It has transferred as much as it may.
    TooMuch,
    /// It was not possible, for this reason.
    Failed(String),
}

/// The agent of a router.
#[derive(Debug)]
pub struct Agent {
    identity: Identity,
    memory: Memory,
    /// The last seconds under load of the configuration in force.
    before: Window,
    /// The seconds under load of the trial.
    after: Window,
    /// The test of a trial that its users gave too little load.
    quiet: Quiet,
    /// The seconds under load of the test that runs.
    test: Window,
    /// When a line was in use last.
    used_unix_s: u64,
    /// When a waiting document or a trial that was held up is looked at again.
    due: Option<u64>,
}

impl Agent {
    /// Begins with what is remembered.
    pub fn new(identity: Identity, mut memory: Memory) -> Self {
        // The daemon rolls a change back that was not confirmed before it ended, so it is applied again.
        if let Some(trial) = &mut memory.trial {
            trial.since_unix_s = None;
        }
        let is_unsettled = memory.trial.is_some() || matches!(memory.outcome, Some(Outcome::Waiting { .. }));
        Self {
            identity,
            memory,
            before: Window::default(),
            after: Window::default(),
            quiet: Quiet::None,
            test: Window::default(),
            used_unix_s: 0,
            due: is_unsettled.then_some(0),
        }
    }

    /// The router's name.
    pub const fn router(&self) -> &Name {
        &self.identity.router
    }

    /// The value to be written on [`Action::Remember`].
    pub const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// When [`Agent::look`] is to be called at the latest, seconds since 1970 (UTC).
    pub const fn due(&self) -> Option<u64> {
        self.due
    }

    /// True while a change waits for its verdict.
    pub fn is_observing(&self) -> bool {
        self.memory
            .trial
            .as_ref()
            .is_some_and(|trial| trial.since_unix_s.is_some())
    }

    /// Takes an envelope that the store holds for this router. The one that was taken last changes nothing.
    pub fn receive(&mut self, envelope: &[u8], now: u64) -> Vec<Action> {
        let document = match self.identity.key.open(envelope) {
            Ok(document) => document,
            Err(refusal) => return self.refuse(None, refusal.to_string(), now),
        };
        if self.memory.document.as_ref() == Some(&document) {
            return Vec::new();
        }
        let desired = match Desired::parse(&document) {
            Ok(desired) => desired,
            Err(refusal) => return self.refuse(None, refusal.to_string(), now),
        };
        match desired.admit(&self.receiver(now)) {
            Err(refusal) => self.refuse(Some(desired.revision), refusal.to_string(), now),
            // The newer document is looked at when the present one is settled.
            Ok(_) if self.is_observing() => self.do_not_wait_for_test(),
            Ok(admission) => {
                self.quiet = Quiet::None;
                self.memory.document = Some(document);
                self.memory.revision = desired.revision;
                self.memory.trial = None;
                self.memory.refused = None;
                self.schedule(&desired, admission, now)
            }
        }
    }

    fn receiver(&self, now: u64) -> Receiver {
        Receiver {
            router: self.identity.router.clone(),
            revision: self.memory.revision,
            now_unix_s: now,
        }
    }

    fn refuse(&mut self, revision: Option<u64>, reason: String, now: u64) -> Vec<Action> {
        let known = self.memory.refused.as_ref();
        if known.is_some_and(|known| known.revision == revision && known.reason == reason) {
            return Vec::new();
        }
        self.memory.refused = Some(Refused {
            revision,
            reason,
            at_unix_s: now,
        });
        vec![Action::Remember, Action::Report]
    }

    /// Begins the trial, or waits for the document's time.
    fn schedule(&mut self, desired: &Desired, admission: Admission, now: u64) -> Vec<Action> {
        let until_unix_s = match admission {
            Admission::Now => return self.begin(desired),
            Admission::Later(at) => Some(at),
            Admission::ClockNotSet => None,
        };
        self.due = Some(until_unix_s.unwrap_or(now + BUSY_S));
        let outcome = Some(Outcome::Waiting { until_unix_s });
        if self.memory.outcome == outcome {
            return Vec::new();
        }
        self.memory.outcome = outcome;
        vec![Action::Remember, Action::Report]
    }

    fn begin(&mut self, desired: &Desired) -> Vec<Action> {
        self.due = None;
        let before = self.before.measured();
        let old = self.memory.trial.take();
        let attempts = old.as_ref().map_or(1, |trial| trial.attempts + 1);
        if attempts > ATTEMPTS {
            let reason = format!(
                "the trial was interrupted {ATTEMPTS} times, by a restart of the daemon or of the router"
            );
            let judged = Judged {
                verdict: Verdict::Unjudged,
                reason,
                before,
                after: None,
            };
            return self.settle(Outcome::RolledBack(judged));
        }
        self.memory.trial = Some(Trial {
            attempts,
            before: before.or_else(|| old.and_then(|trial| trial.before)),
            since_unix_s: None,
            judged: None,
        });
        self.memory.outcome = Some(Outcome::Observed {
            quiet_test_unix_s: None,
        });
        vec![Action::Remember, apply(desired)]
    }

    /// Looks at a document that waits, or at a trial that was held up or interrupted.
    pub fn look(&mut self, now: u64) -> Vec<Action> {
        if self.due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        self.due = None;
        let Some(desired) = self.document() else {
            return Vec::new();
        };
        if self.quiet != Quiet::None {
            return self.look_at_test(&desired, now);
        }
        // It was admitted before, with a lower revision remembered.
        let receiver = Receiver {
            revision: desired.revision.saturating_sub(1),
            ..self.receiver(now)
        };
        match desired.admit(&receiver) {
            Ok(admission) => self.schedule(&desired, admission, now),
            Err(refusal) => {
                let outcome = Outcome::Invalid {
                    errors: vec![refusal.to_string()],
                };
                self.settle(outcome)
            }
        }
    }

    fn document(&self) -> Option<Desired> {
        Desired::parse(self.memory.document.as_ref()?).ok()
    }

    /// The outcome of [`Action::Apply`].
    pub fn applied(&mut self, applied: Applied, now: u64) -> Vec<Action> {
        let Some(trial) = &mut self.memory.trial else {
            return Vec::new();
        };
        match applied {
            Applied::Yes => {
                trial.since_unix_s = Some(now);
                self.after = Window::default();
                // A test has judged it before.
                let is_judged = trial.judged.is_some();
                vec![
                    Action::Remember,
                    if is_judged {
                        Action::Confirm
                    } else {
                        Action::Report
                    },
                ]
            }
            Applied::Already => {
                let judged = trial.judged.take().unwrap_or_else(|| Judged {
                    verdict: Verdict::Unjudged,
                    reason: "the configuration was in force already".into(),
                    before: trial.before,
                    after: None,
                });
                self.memory.in_force = self.memory.revision;
                self.settle(Outcome::Kept(judged))
            }
            Applied::Invalid(errors) => self.settle(Outcome::Invalid { errors }),
            Applied::Busy => {
                // That was no trial.
                trial.attempts -= 1;
                self.due = Some(now + BUSY_S);
                vec![Action::Remember]
            }
        }
    }

    /// Takes what the router saw on a line in the last second.
    pub fn observe(&mut self, second: &Second, load: Load, now: u64) -> Vec<Action> {
        if !load.is_idle(second.throughput) {
            self.used_unix_s = now;
        }
        if self.is_testing() {
            self.test.add(second, load);
            return Vec::new();
        }
        if !self.is_observing() {
            self.before.add(second, load);
            return Vec::new();
        }
        self.after.add(second, load);
        let Some(desired) = self.document() else {
            return Vec::new();
        };
        match self.verdict(&desired, now) {
            Some((Verdict::Unjudged, _)) if desired.judgement.quiet_test.is_some() => {
                self.wait_for_test(&desired, now)
            }
            Some((verdict, reason)) => self.conclude(verdict, reason),
            None => Vec::new(),
        }
    }

    /// The verdict on the trial by the round trips of the users, once there is one that is not carried out yet.
    fn verdict(&self, desired: &Desired, now: u64) -> Option<(Verdict, String)> {
        let trial = self
            .memory
            .trial
            .as_ref()
            .filter(|trial| trial.judged.is_none())?;
        let observed_s = now.saturating_sub(trial.since_unix_s?);
        judge(
            &desired.judgement,
            trial.before.as_ref(),
            self.after.measured().as_ref(),
            observed_s,
        )
    }

    /// Carries a verdict out.
    fn conclude(&mut self, verdict: Verdict, reason: String) -> Vec<Action> {
        self.quiet = Quiet::None;
        let Some(trial) = &mut self.memory.trial else {
            return Vec::new();
        };
        trial.judged = Some(Judged {
            verdict,
            reason,
            before: trial.before,
            after: self.after.measured(),
        });
        let action = match verdict {
            Verdict::Worse => Action::Revert,
            Verdict::Good | Verdict::Unjudged => Action::Confirm,
        };
        vec![Action::Remember, action]
    }

    /// The outcome of [`Action::Confirm`] or [`Action::Revert`], or of what somebody else did to the change meanwhile.
    pub fn carried_out(&mut self, ended: Ended) -> Vec<Action> {
        if ended == Ended::RolledBack && self.test_what_was_before() {
            return vec![Action::Remember];
        }
        let Some(trial) = &mut self.memory.trial else {
            return Vec::new();
        };
        let measured = |reason: &str, trial: &Trial| Judged {
            verdict: Verdict::Unjudged,
            reason: reason.into(),
            before: trial.before,
            after: None,
        };
        let judged = trial.judged.take();
        let outcome = match ended {
            Ended::Kept => {
                let by_hand = || measured("it was confirmed by hand before there was a verdict", trial);
                self.memory.in_force = self.memory.revision;
                self.before = std::mem::take(&mut self.after);
                Outcome::Kept(
                    judged
                        .filter(|judged| judged.verdict != Verdict::Worse)
                        .unwrap_or_else(by_hand),
                )
            }
            Ended::RolledBack => {
                let by_hand = || measured("it was rolled back by hand, or by the daemon at a restart", trial);
                self.after = Window::default();
                Outcome::RolledBack(
                    judged
                        .filter(|judged| judged.verdict == Verdict::Worse)
                        .unwrap_or_else(by_hand),
                )
            }
        };
        self.settle(outcome)
    }

    fn settle(&mut self, outcome: Outcome) -> Vec<Action> {
        self.memory.trial = None;
        self.memory.outcome = Some(outcome);
        self.quiet = Quiet::None;
        self.due = None;
        vec![Action::Remember, Action::Report]
    }
}

/// Applies the configuration of a document, with the time that its judgement may take.
fn apply(desired: &Desired) -> Action {
    let rules = &desired.judgement;
    let test_s = rules.quiet_test.as_ref().map_or(0, QuietTest::longest_s);
    Action::Apply {
        configuration: desired.configuration.clone(),
        confirm_s: u64::from(rules.longest_s) + test_s + CONFIRM_MARGIN_S,
    }
}

#[cfg(test)]
mod tests;

//! The agent's part in a test at a quiet hour.
//!
//! Both configurations are tested, one right after the other, so that they are compared under the same load: first the document's, which is
//! in force, then the one from before, for which the change is rolled back. If the document's is not worse, it is applied again.

use super::{Action, Agent, TestEnd, apply};
use crate::desired::Desired;
use crate::judgement::{Measured, Verdict, Window, judge};
use crate::quiet_test::QuietTest;
use crate::report::{Judged, Outcome};

/// The line must have been idle for this long before a test, seconds; a choice.
const IDLE_S: u64 = 60;
/// The wait after a test that was not possible, seconds. A choice: the server may be busy with the tests of other routers, each of which
/// takes less.
const AGAIN_S: u64 = 300;

/// How far the test of a trial is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Quiet {
    /// No test is wanted.
    None,
    /// The test of the document's configuration waits for its time and for an idle line.
    Waits {
        /// The end of the time in which it may begin, seconds since 1970 (UTC).
        closes_unix_s: u64,
        /// Why the last one was not possible.
        failed: Option<String>,
    },
    /// The document's configuration is tested.
    After {
        /// As in [`Quiet::Waits`].
        closes_unix_s: u64,
    },
    /// The configuration from before is being put back, to be tested as well.
    PutsBack {
        /// The figures of the document's configuration.
        after: Measured,
    },
    /// The configuration from before is tested.
    Before {
        /// As in [`Quiet::PutsBack`].
        after: Measured,
    },
}

impl Agent {
    /// True while a test runs, or is about to.
    pub const fn is_testing(&self) -> bool {
        matches!(self.quiet, Quiet::After { .. } | Quiet::Before { .. })
    }

    /// The users gave too little load: the trial goes on until there was a test.
    pub(super) fn wait_for_test(&mut self, desired: &Desired, now: u64) -> Vec<Action> {
        let Some(test) = &desired.judgement.quiet_test else {
            return Vec::new();
        };
        if self.quiet != Quiet::None {
            return Vec::new();
        }
        let opens_unix_s = test.daily.opens_at(now);
        self.quiet = Quiet::Waits {
            closes_unix_s: test.daily.closes_at(now),
            failed: None,
        };
        self.due = Some(opens_unix_s);
        self.memory.outcome = Some(Outcome::Observed {
            quiet_test_unix_s: Some(opens_unix_s),
        });
        vec![Action::Remember, Action::Report]
    }

    /// A newer document is there: the present one is settled without its test.
    pub(super) fn do_not_wait_for_test(&mut self) -> Vec<Action> {
        match self.quiet {
            Quiet::Waits { .. } | Quiet::After { .. } => {
                let reason = "too little load for a verdict, and a newer document arrived before the test at a quiet hour";
                self.conclude(Verdict::Unjudged, reason.into())
            }
            _ => Vec::new(),
        }
    }

    /// Begins a test if it may begin now.
    pub(super) fn look_at_test(&mut self, desired: &Desired, now: u64) -> Vec<Action> {
        let Some(test) = &desired.judgement.quiet_test else {
            return Vec::new();
        };
        let idle_unix_s = self.used_unix_s.saturating_add(IDLE_S);
        match &self.quiet {
            Quiet::Waits {
                closes_unix_s,
                failed,
            } if *closes_unix_s <= now => {
                let why = failed
                    .clone()
                    .unwrap_or_else(|| format!("the line was in use, and never idle for {IDLE_S} s"));
                self.give_up(desired, test, &why, now)
            }
            Quiet::Waits { closes_unix_s, .. } if idle_unix_s > now => {
                self.due = Some(idle_unix_s.min(*closes_unix_s));
                Vec::new()
            }
            &Quiet::Waits { closes_unix_s, .. } => {
                self.quiet = Quiet::After { closes_unix_s };
                self.begin_test(test)
            }
            Quiet::Before { .. } => self.begin_test(test),
            Quiet::None | Quiet::After { .. } | Quiet::PutsBack { .. } => Vec::new(),
        }
    }

    fn begin_test(&mut self, test: &QuietTest) -> Vec<Action> {
        self.test = Window::default();
        vec![Action::Test(test.clone())]
    }

    /// The change has been rolled back: if that was for a test, the test is due. Returns `false` if it was not.
    pub(super) fn test_what_was_before(&mut self) -> bool {
        let Quiet::PutsBack { after } = self.quiet else {
            return false;
        };
        self.quiet = Quiet::Before { after };
        self.due = Some(0);
        if let Some(trial) = &mut self.memory.trial {
            trial.since_unix_s = None;
        }
        true
    }

    /// The outcome of [`Action::Test`].
    pub fn tested(&mut self, end: TestEnd, now: u64) -> Vec<Action> {
        let Some(desired) = self.document() else {
            return Vec::new();
        };
        let Some(test) = &desired.judgement.quiet_test else {
            return Vec::new();
        };
        let measured = self.test.measured();
        match (self.quiet.clone(), end) {
            (Quiet::After { closes_unix_s }, TestEnd::Failed(why)) => {
                self.due = Some((now + AGAIN_S).min(closes_unix_s));
                self.quiet = Quiet::Waits {
                    closes_unix_s,
                    failed: Some(why),
                };
                Vec::new()
            }
            (Quiet::After { .. }, end) => {
                match measured.filter(|after| after.loaded_s >= desired.judgement.minimum_s) {
                    Some(after) => {
                        self.quiet = Quiet::PutsBack { after };
                        vec![Action::Revert]
                    }
                    None => self.give_up(&desired, test, &too_little(test, measured.as_ref(), &end), now),
                }
            }
            (Quiet::Before { after }, end) => self.compare(&desired, test, measured, after, &end),
            (Quiet::None | Quiet::Waits { .. } | Quiet::PutsBack { .. }, _) => Vec::new(),
        }
    }

    /// Judges the two tests. The configuration from before is in force.
    fn compare(
        &mut self,
        desired: &Desired,
        test: &QuietTest,
        before: Option<Measured>,
        after: Measured,
        end: &TestEnd,
    ) -> Vec<Action> {
        let judged = judge(&desired.judgement, before.as_ref(), Some(&after), u64::MAX);
        let server = &test.server;
        let (verdict, reason) = match (end, judged) {
            (TestEnd::Failed(why), _) => {
                let reason = format!(
                    "too little load for a verdict, and the configuration from before could not be tested with {server}: {why}"
                );
                (Verdict::Unjudged, reason)
            }
            (_, Some((verdict @ (Verdict::Good | Verdict::Worse), figures))) => {
                (verdict, format!("in a test with {server} {figures}"))
            }
            _ => {
                let why = too_little(test, before.as_ref(), end);
                let reason = format!(
                    "too little load for a verdict, also in a test of the configuration from before with {server}: {why}"
                );
                (Verdict::Unjudged, reason)
            }
        };
        let judged = Judged {
            verdict,
            reason,
            before,
            after: Some(after),
        };
        if verdict == Verdict::Worse {
            return self.settle(Outcome::RolledBack(judged));
        }
        self.quiet = Quiet::None;
        if let Some(trial) = &mut self.memory.trial {
            trial.judged = Some(judged);
        }
        vec![Action::Remember, apply(desired)]
    }

    /// Keeps the document's configuration without a verdict.
    fn give_up(&mut self, desired: &Desired, test: &QuietTest, why: &str, now: u64) -> Vec<Action> {
        // The users may have given enough load at the last moment.
        let (verdict, reason) = match self.verdict(desired, now) {
            Some((verdict @ (Verdict::Good | Verdict::Worse), reason)) => (verdict, reason),
            Some((_, reason)) => (
                Verdict::Unjudged,
                format!("{reason}; a test with {} gave none either: {why}", test.server),
            ),
            None => return Vec::new(),
        };
        self.conclude(verdict, reason)
    }
}

fn too_little(test: &QuietTest, measured: Option<&Measured>, end: &TestEnd) -> String {
    let loaded_s = measured.map_or(0, |measured| measured.loaded_s);
    let early = match end {
        TestEnd::TooMuch => format!(", and ended after {} MB", test.most_mbyte),
        _ => String::new(),
    };
    format!("it loaded the line for {loaded_s} s{early}")
}

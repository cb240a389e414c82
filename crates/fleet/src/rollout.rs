//! A roll-out: new documents for some routers first, for the others when the first have kept them.
//!
//! The state is one JSON document in the store. [`RollOut::advance`] looks at the routers' reports and says which documents to hand out
//! now. It can be called again at any time, also by another process after the first one was killed: an action that was carried out already
//! is harmless to repeat.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::daily::Daily;
use crate::judgement::Verdict;
use crate::name::Name;
use crate::report::{Outcome, Report};

/// The schema of the roll-outs that this version writes and reads.
pub const SCHEMA: &str = "sqm-fleet-rollout/1";

/// A roll-out and how far it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RollOut {
    /// [`SCHEMA`].
    pub schema: String,
    /// Its name.
    pub name: Name,
    /// The revision of its documents.
    pub revision: u64,
    /// When it was made, seconds since 1970 (UTC).
    pub created_unix_s: u64,
    /// The rules.
    pub rules: Rules,
    /// The routers in the order in which they have their turn.
    pub routers: Vec<Name>,
    /// How far it is.
    pub progress: Progress,
}

/// The rules of a roll-out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// The share of all routers that have the documents after each step. After the last step all have them.
    pub steps: Vec<Share>,
    /// The time between the end of a step and the beginning of the next, seconds.
    pub hold_s: u64,
    /// The roll-out halts when more than this share of the judged routers of a step is bad, per cent.
    pub halt_percent: f64,
    /// A router that says nothing for this long is silent, seconds.
    pub silent_s: u64,
    /// No document is handed out in these spans.
    #[serde(default)]
    pub freezes: Vec<Span>,
    /// Documents are handed out between these times of each day only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daily: Option<Daily>,
}

/// A number of routers, or a share of all.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Share {
    /// This many.
    Routers(usize),
    /// This share of all, per cent; at least one router.
    Percent(f64),
}

/// A span of time, seconds since 1970 (UTC).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Its first second.
    pub from_unix_s: u64,
    /// The first second behind it.
    pub to_unix_s: u64,
}

/// How far a roll-out is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Progress {
    /// The routers of this step have their documents, or are about to.
    Running {
        /// The step, from 0.
        step: usize,
        /// When its documents were handed out, seconds since 1970 (UTC); `None`: not yet.
        since_unix_s: Option<u64>,
        /// When its last router was settled.
        settled_unix_s: Option<u64>,
    },
    /// It stopped by itself or was stopped, and waits for a person.
    Halted {
        /// The step.
        step: usize,
        /// When its documents were handed out; `None`: they were not.
        since_unix_s: Option<u64>,
        /// Why.
        reason: String,
    },
    /// Every router has its document.
    Done,
    /// The routers were given their documents from before.
    Reverted,
}

/// The last news of a router.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Its last report.
    pub report: Option<Report>,
    /// When it was heard last, by the store's clock, seconds since 1970 (UTC).
    pub last_seen_unix_s: Option<u64>,
}

/// How far a router is with its document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It is busy with its document.
    Busy,
    /// It has kept it.
    Kept,
    /// It has kept it without a verdict.
    Unjudged,
    /// It rolled it back.
    RolledBack,
    /// It refused it, or could not apply it.
    Refused,
    /// It was heard before it had the document, and is silent since.
    FellSilent,
    /// It was silent before. It takes the document when it returns.
    Absent,
}

impl Standing {
    /// True if it counts against the roll-out.
    pub const fn is_bad(self) -> bool {
        matches!(self, Self::RolledBack | Self::Refused | Self::FellSilent)
    }
}

/// The caller's next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Hand out the documents of these routers, then call [`RollOut::handed_out`].
    HandOut(Vec<Name>),
    /// Look again at this time at the latest, seconds since 1970 (UTC), or when a report arrives.
    Wait(u64),
    /// There is nothing to do until a person decides.
    Nothing,
}

/// How often a running roll-out is looked at without a report; a choice.
const LOOK_S: u64 = 10;

impl Default for Rules {
    /// One router, a twentieth, a quarter, all; ten minutes between the steps. Choices, after the usual practice of canaries.
    fn default() -> Self {
        Self {
            steps: vec![
                Share::Routers(1),
                Share::Percent(5.0),
                Share::Percent(25.0),
                Share::Percent(100.0),
            ],
            hold_s: 600,
            halt_percent: 10.0,
            silent_s: 300,
            freezes: Vec::new(),
            daily: None,
        }
    }
}

impl Rules {
    /// Returns what is wrong with these rules.
    ///
    /// # Errors
    /// A sentence.
    pub fn check(&self) -> Result<(), String> {
        let is_wrong = |share: &Share| match share {
            Share::Routers(number) => *number == 0,
            Share::Percent(percent) => !(*percent > 0.0 && *percent <= 100.0),
        };
        if self.steps.iter().any(is_wrong) {
            return Err(
                "each step must be a number of routers from 1, or a share above 0 % and up to 100 %".into(),
            );
        }
        if !(0.0..=100.0).contains(&self.halt_percent) {
            return Err("the share at which the roll-out halts must be 0 to 100 %".into());
        }
        if self.silent_s < 60 {
            return Err("a router must be allowed to be silent for 60 s: it reports each minute".into());
        }
        if self.freezes.iter().any(|span| span.from_unix_s >= span.to_unix_s) {
            return Err("a freeze must end after it begins".into());
        }
        self.daily.map_or(Ok(()), Daily::check)
    }

    /// When documents may be handed out, from `now` on.
    fn opens_at(&self, now: u64) -> u64 {
        let mut at = now;
        // Each pass leaves a freeze or reaches the next opening of the day; a freeze that is left does not come again.
        for _ in 0..=self.freezes.len() * 2 + 1 {
            let begin = at;
            let frozen = self
                .freezes
                .iter()
                .filter(|span| (span.from_unix_s..span.to_unix_s).contains(&at));
            at = frozen.map(|span| span.to_unix_s).max().unwrap_or(at);
            at = self.daily.map_or(at, |daily| daily.opens_at(at));
            if at == begin {
                break;
            }
        }
        at
    }
}

impl RollOut {
    /// A roll-out of which nothing has been handed out.
    pub fn new(name: Name, revision: u64, now: u64, rules: Rules, routers: Vec<Name>) -> Self {
        Self {
            schema: SCHEMA.into(),
            name,
            revision,
            created_unix_s: now,
            rules,
            routers,
            progress: Progress::Running {
                step: 0,
                since_unix_s: None,
                settled_unix_s: None,
            },
        }
    }

    /// Reads a roll-out.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the text.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let found: Self =
            serde_json::from_slice(bytes).map_err(|error| format!("it is no roll-out: {error}"))?;
        if found.schema != SCHEMA {
            return Err(format!(
                "its schema is '{}', and this version of sqm reads '{SCHEMA}'",
                found.schema
            ));
        }
        found.rules.check()?;
        match found.progress {
            Progress::Running { step, .. } | Progress::Halted { step, .. } if step > found.step_count() => {
                Err(format!(
                    "it is in step {step} of {}, counted from 0",
                    found.step_count()
                ))
            }
            _ => Ok(found),
        }
    }

    /// The number of routers that have their documents after each step. A step that adds none is left out, and one that adds all
    /// others is the last.
    fn reaches(&self) -> Vec<usize> {
        let all = self.routers.len();
        let of = |share: &Share| match *share {
            Share::Routers(number) => number.min(all),
            Share::Percent(percent) => {
                ((all as f64 * percent / 100.0).round() as usize).clamp(1.min(all), all)
            }
        };
        let mut reaches = Vec::new();
        for reach in self.rules.steps.iter().map(of).chain([all]) {
            if reach > reaches.last().copied().unwrap_or(0) {
                reaches.push(reach);
            }
        }
        reaches
    }

    /// The number of steps.
    pub fn step_count(&self) -> usize {
        self.reaches().len()
    }

    /// The routers of a step, from 0. There are none behind the last step.
    pub fn routers_of(&self, step: usize) -> &[Name] {
        let reaches = self.reaches();
        let begin = step
            .checked_sub(1)
            .map_or(0, |before| reaches.get(before).copied().unwrap_or(0));
        let end = reaches.get(step).copied().unwrap_or(begin);
        &self.routers[begin..end]
    }

    /// How far a router is, if its document was handed out at `since`.
    fn standing(&self, seen: &Seen, since: u64, now: u64) -> Standing {
        let is_silent = seen
            .last_seen_unix_s
            .is_none_or(|at| at.saturating_add(self.rules.silent_s) < now);
        let was_silent = seen
            .last_seen_unix_s
            .is_none_or(|at| at.saturating_add(self.rules.silent_s) < since);
        if let Some(report) = seen
            .report
            .as_ref()
            .filter(|report| report.is_settled(self.revision))
        {
            return match &report.outcome {
                _ if report
                    .refused
                    .as_ref()
                    .is_some_and(|refused| refused.revision == Some(self.revision)) =>
                {
                    Standing::Refused
                }
                // A later document is there already.
                _ if report.revision > self.revision => Standing::Kept,
                Some(Outcome::RolledBack(_)) => Standing::RolledBack,
                Some(Outcome::Invalid { .. }) => Standing::Refused,
                Some(Outcome::Kept(judged)) if judged.verdict == Verdict::Unjudged => Standing::Unjudged,
                _ => Standing::Kept,
            };
        }
        match (is_silent, was_silent) {
            (true, true) => Standing::Absent,
            (true, false) => Standing::FellSilent,
            (false, _) => Standing::Busy,
        }
    }

    /// How far the routers of the present step are; those of all steps, if the roll-out has ended.
    pub fn standings(&self, seen: &BTreeMap<Name, Seen>, now: u64) -> BTreeMap<Name, Standing> {
        let (routers, since) = match &self.progress {
            Progress::Running {
                step, since_unix_s, ..
            }
            | Progress::Halted {
                step, since_unix_s, ..
            } => (self.routers_of(*step), *since_unix_s),
            Progress::Done | Progress::Reverted => (&self.routers[..], Some(self.created_unix_s)),
        };
        // Before the documents are handed out, nothing counts.
        let Some(since) = since else {
            return BTreeMap::new();
        };
        let nothing = Seen::default();
        let standing = |name: &Name| self.standing(seen.get(name).unwrap_or(&nothing), since, now);
        routers
            .iter()
            .map(|name| (name.clone(), standing(name)))
            .collect()
    }

    /// Looks at the reports, and says what to do next.
    pub fn advance(&mut self, seen: &BTreeMap<Name, Seen>, now: u64) -> Action {
        let Progress::Running {
            step,
            since_unix_s,
            settled_unix_s,
        } = self.progress
        else {
            return Action::Nothing;
        };
        if step >= self.step_count() {
            self.progress = Progress::Done;
            return Action::Nothing;
        }
        if since_unix_s.is_none() {
            return match self.rules.opens_at(now) {
                open if open > now => Action::Wait(open),
                _ => Action::HandOut(self.routers_of(step).to_vec()),
            };
        }
        let standings = self.standings(seen, now);
        if let Some(reason) = self.reason_to_halt(&standings) {
            self.progress = Progress::Halted {
                step,
                since_unix_s,
                reason,
            };
            return Action::Nothing;
        }
        if standings.values().any(|&standing| standing == Standing::Busy) {
            return Action::Wait(now.saturating_add(LOOK_S));
        }
        let settled = settled_unix_s.unwrap_or(now);
        let is_last = step + 1 == self.step_count();
        let held = settled.saturating_add(self.rules.hold_s);
        if !is_last && now < held {
            self.progress = Progress::Running {
                step,
                since_unix_s,
                settled_unix_s: Some(settled),
            };
            return Action::Wait(held.min(now.saturating_add(LOOK_S)));
        }
        self.begin(step + 1);
        self.advance(seen, now)
    }

    fn begin(&mut self, step: usize) {
        self.progress = Progress::Running {
            step,
            since_unix_s: None,
            settled_unix_s: None,
        };
    }

    /// The documents of the present step have been handed out.
    pub fn handed_out(&mut self, now: u64) {
        if let Progress::Running {
            since_unix_s: since @ None,
            ..
        } = &mut self.progress
        {
            *since = Some(now);
        }
    }

    /// Goes on after a halt: with the next step if the documents of this one were handed out. False if the roll-out is not halted.
    pub fn resume(&mut self) -> bool {
        let Progress::Halted {
            step, since_unix_s, ..
        } = self.progress
        else {
            return false;
        };
        self.begin(if since_unix_s.is_some() { step + 1 } else { step });
        true
    }

    /// Halts by a person's decision. False if there is nothing to halt.
    pub fn halt(&mut self, reason: String) -> bool {
        let Progress::Running {
            step, since_unix_s, ..
        } = self.progress
        else {
            return false;
        };
        self.progress = Progress::Halted {
            step,
            since_unix_s,
            reason,
        };
        true
    }

    fn reason_to_halt(&self, standings: &BTreeMap<Name, Standing>) -> Option<String> {
        let judged = standings
            .values()
            .filter(|standing| standing.is_bad() || **standing == Standing::Kept)
            .count();
        let bad: Vec<_> = standings
            .iter()
            .filter(|(_, standing)| standing.is_bad())
            .collect();
        // Routers that are still busy may turn out well: the share is that of the whole step, and grows until it is settled.
        let busy = standings
            .values()
            .filter(|&&standing| standing == Standing::Busy)
            .count();
        let share = bad.len() as f64 * 100.0 / (judged + busy).max(1) as f64;
        if bad.is_empty() || share <= self.rules.halt_percent {
            return None;
        }
        let count = |wanted| bad.iter().filter(|(_, standing)| **standing == wanted).count();
        let words = [
            (count(Standing::RolledBack), "rolled the document back"),
            (count(Standing::Refused), "refused it"),
            (count(Standing::FellSilent), "fell silent"),
        ];
        let words: Vec<String> = words
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        let names: Vec<&str> = bad.iter().take(5).map(|(name, _)| name.as_str()).collect();
        let more = if bad.len() > names.len() { ", …" } else { "" };
        Some(format!(
            "{} of {} routers of this step failed ({}; unjudged ones are not counted): {}{more}",
            bad.len(),
            judged + busy,
            words.join(", "),
            names.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests;

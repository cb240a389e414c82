//! Decides whether rates that another program has set are a rate controller's, as a pure function of the times at which they
//! changed.
//!
//! A rate controller, such as cake-autorate or a script, changes the rates again and again, because the line's capacity varies.
//! Undoing its changes would fight it. A single change, such as a person's, is undone. Both look the same at first, so a changed
//! rate is left for [`SETTLE`]: most controllers change it again within that time.
//!
//! After [`MANY`] changes within [`SILENCE`] the rates are a controller's, in both directions: a controller may change one
//! direction rarely. They are the daemon's again after [`SILENCE`] without a change.

use std::collections::VecDeque;

use sqm_core::direction::PerDirection;
use sqm_core::units::{Instant, Nanos, Rate};

/// A changed rate is undone when it has not changed again for this long. A choice: a controller that changes its rate twice a
/// second, as sqm-autorate does, is found without undoing one of its changes, and a person's change is undone within a second.
pub(super) const SETTLE: Nanos = Nanos::from_millis(700);
/// This many changes within [`SILENCE`] are those of a controller. A choice: as many repairs as of other changes are a conflict.
pub(super) const MANY: usize = 5;
/// Without a change for this long, a controller counts as ended. A choice: controllers pause for minutes while a line is idle,
/// and a line whose controller has died is at a wrong rate until then.
pub(super) const SILENCE: Nanos = Nanos::from_millis(600_000);

/// The rates in each direction that differ from those that the daemon has set; none where there is no difference. A rate of `None`
/// is unlimited.
pub(super) type OtherRates = PerDirection<Vec<Option<Rate>>>;

/// The rates of one interface that other programs have set.
#[derive(Clone, Debug, Default)]
pub(super) struct RateWatch {
    /// The rates of other programs at the last check.
    found: OtherRates,
    /// True if that check has left them, and a later one decides.
    is_undecided: bool,
    /// When they changed, within [`SILENCE`]; at most [`MANY`].
    changes: VecDeque<Instant>,
    controller: Option<Controller>,
}

/// Another program that controls the rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Controller {
    /// When it was found.
    pub(super) since: Instant,
    /// When it changed a rate last.
    pub(super) changed: Instant,
    /// The directions in which it has changed a rate.
    pub(super) directions: PerDirection<bool>,
}

impl RateWatch {
    /// Takes the rates of other programs that a check has found and left; none if it has undone them.
    pub(super) fn found(&mut self, found: OtherRates, now: Instant) {
        let directions = found.as_ref().map(|rates| !rates.is_empty());
        let is_any = directions != PerDirection::both(false);
        self.is_undecided = is_any && self.controller.is_none();
        if found == self.found {
            return;
        }
        let is_change = is_any || self.controller.is_some();
        self.found = found;
        if !is_change {
            return;
        }
        self.changes.push_back(now);
        if self.changes.len() > MANY {
            self.changes.pop_front();
        }
        while self
            .changes
            .front()
            .is_some_and(|first| now.since(*first) >= SILENCE)
        {
            self.changes.pop_front();
        }
        if let Some(controller) = &mut self.controller {
            controller.changed = now;
            for (direction, has_changed) in directions.iter() {
                controller.directions[direction] |= has_changed;
            }
        } else if self.changes.len() == MANY {
            self.is_undecided = false;
            self.controller = Some(Controller {
                since: now,
                changed: now,
                directions,
            });
        }
    }

    /// The program that controls the rates, if there is one.
    pub(super) fn controller(&self) -> Option<Controller> {
        self.controller
    }

    /// Decides whether the check at `now` must leave the rates of other programs. `has_event`: the kernel has reported a change since
    /// the last check, which may have been another change of the rates.
    pub(super) fn leaves_rates(&mut self, has_event: bool, now: Instant) -> bool {
        if let Some(controller) = self.controller {
            if now.since(controller.changed) < SILENCE {
                return true;
            }
            self.controller = None;
            self.changes = VecDeque::from([controller.changed]);
        }
        let is_known = self.found != OtherRates::default();
        let is_settled = self.changes.back().is_none_or(|last| now.since(*last) >= SETTLE);
        has_event || !is_known || !is_settled
    }

    /// The daemon sets its own rates, whatever the kernel holds.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// When a check decides about these rates. If there was an event, the check at that time did not, and the time is past.
    pub(super) fn due(&self) -> Option<Instant> {
        if let Some(controller) = self.controller {
            return Some(controller.changed + SILENCE);
        }
        let settled = *self.changes.back()? + SETTLE;
        self.is_undecided.then_some(settled)
    }

    /// True if the rates of other programs were left at the last check, and a later check decides about them.
    pub(super) fn is_undecided(&self) -> bool {
        self.is_undecided
    }
}

#[cfg(test)]
mod tests;

//! Which queues are ours, and what a start therefore does with each direction. Pure.
//!
//! Three parties may have set up what stands on a device: this program (the record says so), another program, or the
//! kernel by default. A start replaces queues of any of them. What `stop` restores later depends on whose they were:
//! our own queues are never recorded as the state from before.

use sqm_core::handle::Handle;
use sqm_plan::plan::{Firewall, Plan};

use crate::firewall::TableChange;
use crate::observe::{Observed, RootId};
use crate::scripts_state::ScriptsState;
use crate::snapshot::{IngressState, QdiscTree, Snapshot};
use crate::state::Record;

/// The facts about the device on which ownership depends.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The device's index. A device that was removed and made again has another.
    pub(crate) index: u32,
    /// Its root qdisc, unless that is the kernel's default.
    pub(crate) root: Option<RootId>,
    /// The IFB.
    pub(crate) ifb: Option<FoundIfb>,
    /// The state file of sqm-scripts.
    pub(crate) scripts_state: ScriptsState,
    /// True if the planned firewall table holds the planned rules; `None` if none is planned.
    pub(crate) firewall: Option<bool>,
    /// True if the kernel holds all of the plan already.
    pub(crate) is_as_planned: bool,
}

/// The facts about the IFB on which ownership depends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundIfb {
    /// Its index. One that was removed and made again has another.
    pub(crate) index: u32,
    /// Its root qdisc, unless that is the kernel's default.
    pub(crate) root: Option<RootId>,
    /// True if all packets that arrive on the device are redirected to it.
    pub(crate) is_redirected: bool,
}

impl Found {
    /// The facts in what was observed.
    pub(crate) fn of(observed: &Observed, scripts_state: ScriptsState, is_as_planned: bool) -> Self {
        let device = &observed.device;
        Self {
            index: device.link.index,
            root: device.root_id(),
            ifb: observed.ifb.as_ref().map(|ifb| FoundIfb {
                index: ifb.link.index,
                root: ifb.root_id(),
                is_redirected: device.redirect.as_ref() == Some(&ifb.link.name),
            }),
            scripts_state,
            firewall: observed.firewall,
            is_as_planned,
        }
    }
}

/// The owner of the queues in a direction that we have shaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Ours, or what is left of them after one of our processes was killed.
    Ours,
    /// Ours on the IFB, but packets are not redirected to it any more.
    WithoutRedirect,
    /// None: another program has removed ours.
    Gone,
    /// Another program's.
    Foreign,
}

/// The work of a start, and its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) egress: DirectionDecision,
    pub(crate) ingress: DirectionDecision,
    pub(crate) firewall: TableChange,
    /// The root of another program that the planned one replaces.
    pub(crate) takeover: Option<Takeover>,
    /// Our root from before. Until the change is complete, that one and the planned one are both ours.
    pub(crate) replaces: Option<RootId>,
    /// A firewall table that must not exist: one of this name that our record does not know is another program's.
    pub(crate) unrecorded_table: Option<String>,
    /// A firewall table to remove at the end if it exists: a damaged record may have been about it.
    pub(crate) leftover_table: Option<String>,
    /// True if the kernel needs no change.
    pub(crate) is_unchanged: bool,
}

/// The decision for one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectionDecision {
    pub(crate) action: Action,
    pub(crate) previous: Previous,
}

/// The work of a start in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The plan does not shape it, and neither did we so far.
    Leave,
    /// The plan shapes it.
    Shape,
    /// We have shaped it so far, and the plan does not any more: the previous state is restored.
    Restore,
}

/// Where the state from before our queues is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Previous {
    /// It is on record, because our queues are in force now; the snapshot has what the record lacks.
    Recorded,
    /// The IFB's part is on record; the redirect, which another program has removed, is not restored.
    RecordedIfb,
    /// It is the present state, except that an ingress qdisc without a redirect is what is left of ours.
    SnapshotWithoutHook,
    /// It is the present state.
    Snapshot,
    /// It is the present state, except that the IFB is ours.
    SnapshotWithoutIfb,
    /// It is not known, because a process of ours was killed and its record is gone. The kernel's default is assumed.
    Default,
}

/// Our root replaces another program's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Takeover {
    /// Another program has replaced our root since we set it.
    Again { ours: RootId, theirs: RootId },
    /// Ours was not there before.
    First { theirs: RootId },
}

/// Decides from the record of the interface (of this device or of one that is gone), what was found, and the plan.
pub(crate) fn decide(record: Option<&Record>, found: &Found, plan: &Plan) -> Decision {
    // A device that was removed and made again has lost our queues: the record is about the one that is gone.
    let own = record.filter(|record| record.index == found.index);
    let is_lost = record.is_some_and(|record| record.is_lost);
    let egress = action(
        plan.egress.is_some(),
        own.is_some_and(|record| record.egress.is_some()),
    );
    let ingress = action(plan.ingress.is_some(), own.is_some_and(|record| record.ingress));
    let is_unchanged = found.is_as_planned && egress != Action::Restore && ingress != Action::Restore;
    let firewall = TableChange {
        // A table does not go with the device: any record of the interface counts.
        before: record.and_then(|record| record.firewall.clone()),
        after: plan.firewall.clone(),
    };
    let planned_root = planned_root(plan);
    Decision {
        egress: DirectionDecision {
            action: egress,
            previous: previous_egress(own, found, is_unchanged),
        },
        ingress: DirectionDecision {
            action: ingress,
            previous: previous_ingress(own, record, found, plan, is_unchanged),
        },
        takeover: takeover(own, found, plan).filter(|_| !is_unchanged),
        replaces: found
            .root
            .clone()
            .filter(|root| planned_root.as_ref() != Some(root))
            .filter(|root| {
                own.is_some_and(|own| own.owns(root) && own.egress_standing(found) == Standing::Ours)
            }),
        unrecorded_table: match (&firewall.before, &firewall.after, found.firewall) {
            (None, Some(after), Some(false)) if !is_lost => Some(after.table.clone()),
            _ => None,
        },
        leftover_table: (is_lost && plan.firewall.is_none()).then(|| Firewall::table_of(&plan.interface)),
        firewall,
        is_unchanged,
    }
}

/// The root that a plan sets on the device.
pub(crate) fn planned_root(plan: &Plan) -> Option<RootId> {
    let root = plan.egress.as_ref()?.root()?;
    Some(RootId {
        kind: root.qdisc.kind().to_owned(),
        handle: root.handle,
    })
}

fn action(is_planned: bool, is_ours: bool) -> Action {
    match (is_planned, is_ours) {
        (true, _) => Action::Shape,
        (false, true) => Action::Restore,
        (false, false) => Action::Leave,
    }
}

fn previous_egress(own: Option<&Record>, found: &Found, is_unchanged: bool) -> Previous {
    match own.map(|record| (record, record.egress_standing(found))) {
        // An interrupted `stop` may have restored the previous root.
        Some((record, Standing::Foreign)) if record.has_previous_root(found) => Previous::Recorded,
        // Another program has set its queues since, or removed ours: what is there now is what to restore.
        Some((_, Standing::Foreign | Standing::Gone)) => Previous::Snapshot,
        Some(_) => Previous::Recorded,
        None if is_unchanged => Previous::Default,
        None => Previous::Snapshot,
    }
}

fn previous_ingress(
    own: Option<&Record>,
    record: Option<&Record>,
    found: &Found,
    plan: &Plan,
    is_unchanged: bool,
) -> Previous {
    match (own.map(|own| own.ingress_standing(found)), record) {
        (Some(Standing::Ours), _) => Previous::Recorded,
        (Some(Standing::WithoutRedirect), _) => Previous::RecordedIfb,
        (Some(Standing::Gone), _) => Previous::SnapshotWithoutHook,
        (Some(Standing::Foreign), _) => Previous::Snapshot,
        (None, _) if is_unchanged => Previous::Default,
        // We made the IFB for a device that is gone.
        (None, Some(gone)) if gone.made(&plan.ifb()) && gone.may_own_ifb(found) => {
            Previous::SnapshotWithoutIfb
        }
        (None, _) => Previous::Snapshot,
    }
}

fn takeover(own: Option<&Record>, found: &Found, plan: &Plan) -> Option<Takeover> {
    plan.egress.as_ref()?;
    let theirs = found.root.clone()?;
    match own.and_then(|record| Some((record, record.egress.clone()?))) {
        Some((record, _)) if record.egress_standing(found) == Standing::Ours => None,
        Some((_, ours)) => Some(Takeover::Again { ours, theirs }),
        None => Some(Takeover::First { theirs }),
    }
}

impl Decision {
    /// Egress and ingress: true if the direction is changed, and must be in the snapshot.
    pub(crate) fn touches(&self) -> (bool, bool) {
        (
            self.egress.action != Action::Leave,
            self.ingress.action != Action::Leave,
        )
    }

    /// The state from before our queues, given the snapshot of what is changed now.
    pub(crate) fn previous(&self, record: Option<&Record>, snapshot: &Snapshot) -> Snapshot {
        let recorded = record.map(|record| record.previous.clone()).unwrap_or_default();
        let Snapshot { egress, ingress } = snapshot.clone();
        Snapshot {
            egress: match self.egress.previous {
                Previous::Recorded | Previous::RecordedIfb => recorded.egress.or(egress),
                Previous::Snapshot | Previous::SnapshotWithoutIfb | Previous::SnapshotWithoutHook => egress,
                Previous::Default => egress.map(|_| QdiscTree::default()),
            },
            ingress: match self.ingress.previous {
                Previous::Recorded => recorded.ingress.or(ingress),
                Previous::RecordedIfb => match (recorded.ingress, ingress) {
                    (Some(recorded), Some(now)) => Some(recorded.with_qdisc_of(now)),
                    (recorded, now) => recorded.or(now),
                },
                Previous::Snapshot => ingress,
                Previous::SnapshotWithoutHook => {
                    ingress.map(|now| IngressState::default().with_qdisc_of(now))
                }
                Previous::SnapshotWithoutIfb => ingress.map(IngressState::without_ifb),
                Previous::Default => ingress.map(|_| IngressState::default()),
            },
        }
    }

    /// Splits the previous state: what is restored now, and what `stop` restores later.
    pub(crate) fn split(&self, previous: Snapshot) -> (Snapshot, Snapshot) {
        let (egress_now, egress_later) = split(self.egress.action, previous.egress);
        let (ingress_now, ingress_later) = split(self.ingress.action, previous.ingress);
        (
            Snapshot {
                egress: egress_now,
                ingress: ingress_now,
            },
            Snapshot {
                egress: egress_later,
                ingress: ingress_later,
            },
        )
    }
}

fn split<T>(action: Action, previous: Option<T>) -> (Option<T>, Option<T>) {
    match action {
        Action::Restore => (previous, None),
        Action::Leave | Action::Shape => (None, previous),
    }
}

/// True if `root` is our root. On a kernel without cake_mq, a plain CAKE stands in for it.
fn stands_for(root: &RootId, ours: &RootId) -> bool {
    root == ours || (root.handle == ours.handle && ours.kind == "cake_mq" && root.kind == "cake")
}

impl Record {
    /// A record that was lost, completed by what is found on the device: a root of a kind and handle that we use is
    /// taken for ours. Other records stay as they are.
    pub(crate) fn completed(self, index: u32, root: Option<RootId>) -> Self {
        /// The kinds of root that our setup scripts use.
        const KINDS: [&str; 5] = ["cake", "cake_mq", "htb", "hfsc", "tbf"];
        /// The handle that our setup scripts give to the root.
        const HANDLE: Handle = Handle::new(1, 0);
        if !self.is_lost {
            return self;
        }
        Self {
            index,
            egress: root.filter(|root| KINDS.contains(&root.kind.as_str()) && root.handle == HANDLE),
            ..self
        }
    }

    /// True if we made this IFB; if not, it was there before our first start.
    pub(crate) fn made(&self, ifb: &str) -> bool {
        let ingress = self.previous.ingress.as_ref();
        self.ifb == ifb && ingress.is_some_and(IngressState::has_no_ifb)
    }

    /// True if this root is ours.
    pub(crate) fn owns(&self, root: &RootId) -> bool {
        let mut ours = self.egress.iter().chain(&self.replaces);
        ours.any(|ours| stands_for(root, ours))
    }

    /// The owner of the device's root qdisc.
    pub(crate) fn egress_standing(&self, found: &Found) -> Standing {
        let was_interrupted = self.is_changing || self.is_lost;
        match &found.root {
            _ if self.egress.is_none() && !self.is_lost => Standing::Ours,
            None if was_interrupted => Standing::Ours,
            None => Standing::Gone,
            Some(_) if self.is_taken_over(found) => Standing::Foreign,
            Some(root) if self.owns(root) => Standing::Ours,
            Some(_) => Standing::Foreign,
        }
    }

    /// The owner of the IFB and the redirect that arriving packets pass.
    pub(crate) fn ingress_standing(&self, found: &Found) -> Standing {
        if !self.ingress || self.is_changing || self.is_lost {
            return Standing::Ours;
        }
        match &found.ifb {
            None => Standing::Gone,
            Some(_) if self.is_taken_over(found) || !self.may_own_ifb(found) => Standing::Foreign,
            Some(ifb) if !ifb.is_redirected => Standing::WithoutRedirect,
            Some(_) => Standing::Ours,
        }
    }

    /// False if another program has made the IFB, or set its own root there.
    fn may_own_ifb(&self, found: &Found) -> bool {
        let Some(ifb) = &found.ifb else { return false };
        let is_other_root = match (&ifb.root, &self.ifb_root) {
            (Some(root), Some(ours)) => !stands_for(root, ours),
            _ => false,
        };
        self.ifb_index.is_none_or(|index| index == ifb.index) && !is_other_root
    }

    /// True if sqm-scripts has set its queues up since this record was written.
    fn is_taken_over(&self, found: &Found) -> bool {
        found.scripts_state.is_newer_than(self.scripts_state.as_ref())
    }

    /// True if the device has the root from before our first start.
    fn has_previous_root(&self, found: &Found) -> bool {
        let previous = self.previous.egress.as_ref();
        let root = found.root.as_ref().filter(|_| !self.is_taken_over(found));
        root.is_some_and(|root| previous.is_some_and(|tree| tree.has_root(root)))
    }
}

#[cfg(test)]
mod tests;

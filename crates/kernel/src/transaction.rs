//! Brings a plan into force, or changes nothing.
//!
//! [`Transaction::prepare`] takes a look at the kernel, a snapshot of what the change touches, and decides what to do; it
//! changes nothing. [`Transaction::apply`] then
//!
//! 1. writes the record that `stop` needs, so that a process killed half-way leaves it behind,
//! 2. executes the steps,
//! 3. commits: reads back what the kernel holds, compares every parameter, and completes the record.
//!
//! If any of that fails, it rolls back to the snapshot. [`Transaction::rollback_state`] is known before the first change
//! and can be given to another process, which rolls back if this one is killed.

use serde::{Deserialize, Serialize};
use sqm_plan::plan::Plan;

use crate::diff::{self, Step};
use crate::error::Error;
use crate::execute::perform;
use crate::firewall::{self, TableChange};
use crate::foreign::{self, QdiscManager};
use crate::netlink::link::Link;
use crate::netlink::socket::Socket;
use crate::observe::{self, Device, Observed, RootId};
use crate::other_rates::OtherRates;
use crate::ownership::{self, Decision, Found, Takeover};
use crate::scripts_state::ScriptsState;
use crate::snapshot::Snapshot;
use crate::state::{Record, Store};
use crate::verify::{self, Comparison};

/// A change from what the kernel holds to a plan, ready to be applied.
#[derive(Debug)]
#[must_use = "nothing is changed until it is applied"]
pub struct Transaction<'p> {
    plan: &'p Plan,
    decision: Decision,
    /// The devices that the steps are about.
    links: Vec<Link>,
    steps: Vec<Step>,
    /// The previous state of directions that the plan does not shape any more.
    restored: Snapshot,
    /// The record while the change is under way.
    record: Record,
    changes: Vec<String>,
    rollback: RollbackState,
    /// True if another program may change the rates meanwhile.
    keeps_other_rates: bool,
}

/// The result of a transaction: the plan is in force.
#[derive(Debug)]
#[must_use]
pub struct Applied {
    /// The changes that were made, in order; empty if everything was as planned before.
    pub changes: Vec<String>,
    /// Restores what was there before.
    pub rollback: RollbackState,
}

/// Everything that a rollback needs. It can be serialised for another process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RollbackState {
    interface: String,
    ifb: String,
    before: Snapshot,
    firewall: TableChange,
    record_before: Option<Record>,
    /// True if the IFB was the one of the record.
    owns_ifb: bool,
}

impl<'p> Transaction<'p> {
    /// Prepares a change to `plan` from what was found just before, while `store` was locked already. Changes nothing in
    /// the kernel.
    ///
    /// Fails if what the change would replace could not be restored later.
    pub fn prepare(
        socket: &mut Socket,
        store: &Store,
        plan: &'p Plan,
        found: Comparison,
    ) -> Result<Self, Error> {
        let is_as_planned = found.is_as_planned();
        let observed = found.observed;
        let (interface, ifb) = (&plan.interface, plan.ifb());
        let found = Found::of(&observed, ScriptsState::read(interface), is_as_planned);
        let record_before = store
            .read(interface)?
            .map(|record| record.completed(found.index, found.root.clone()));
        let decision = ownership::decide(record_before.as_ref(), &found, plan);
        let mut changes = takeover_note(&decision, &observed);
        let steps = diff::steps(plan, &observed);
        let redirects = steps.iter().any(|step| matches!(step, Step::Redirect { .. }));
        changes.extend(observed.device.other_filters_note().filter(|_| redirects));
        if let Some(table) = &decision.unrecorded_table {
            firewall::refuse_foreign_table(interface, table)?;
        }
        let (egress, ingress) = decision.touches();
        let before = Snapshot::take(socket, &observed, &ifb, egress, ingress)?;
        let previous = decision.previous(record_before.as_ref(), &before);
        let (restored, previous) = decision.split(previous);
        // While parameters change in place, all of our queues stay.
        let is_changing = restored != Snapshot::default() || !steps.iter().all(Step::is_in_place);
        let (ifb_index, ifb_root) = match is_changing {
            true => (None, None),
            false => ifb_identity(plan, observed.ifb.as_ref()),
        };
        let keeps_index = |record: &Record| record.ifb_index == found.ifb.as_ref().map(|ifb| ifb.index);
        let owns_ifb = record_before.as_ref().is_some_and(keeps_index);
        changes.extend(store.take_notes());
        Ok(Self {
            plan,
            steps,
            restored,
            record: Record {
                ifb_index,
                ifb_root,
                is_changing,
                ..record_during(plan, found, &decision, previous)
            },
            changes,
            rollback: RollbackState {
                interface: interface.clone(),
                ifb,
                before,
                firewall: decision.firewall.clone(),
                record_before,
                owns_ifb,
            },
            links: observed.links,
            decision,
            keeps_other_rates: false,
        })
    }

    /// Another program changes the rates again and again: rates that differ from the plan when it is read back are its own.
    pub fn keeping_other_rates(self) -> Self {
        Self {
            keeps_other_rates: true,
            ..self
        }
    }

    /// Takes a look at the kernel, and prepares a change to `plan`.
    pub fn prepare_now(socket: &mut Socket, store: &Store, plan: &'p Plan) -> Result<Self, Error> {
        let found = Comparison::read(socket, plan)?;
        Self::prepare(socket, store, plan, found)
    }

    /// The steps that lead to the plan; none if everything is as planned.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Restores what is there now; to be given to another process before the plan is applied.
    pub fn rollback_state(&self) -> &RollbackState {
        &self.rollback
    }

    /// Brings the plan into force, or rolls back. Needs `CAP_NET_ADMIN`.
    pub fn apply(mut self, socket: &mut Socket, store: &Store) -> Result<Applied, Error> {
        if self.rollback.record_before.as_ref() != Some(&self.record) {
            store.write(&self.record)?;
        }
        let outcome = self.execute(socket).and_then(|()| self.commit(socket, store));
        match outcome {
            Ok(()) => Ok(Applied {
                changes: self.changes,
                rollback: self.rollback,
            }),
            Err(cause) => Err(self.rollback.roll_back_after(cause, socket, store)),
        }
    }

    /// Restores the directions that the plan does not shape any more, and makes the others what the plan says.
    fn execute(&mut self, socket: &mut Socket) -> Result<(), Error> {
        let (interface, ifb) = (&self.plan.interface, self.plan.ifb());
        if let Some(tree) = &self.restored.egress {
            tree.restore(socket, interface)?;
            self.changes.push(format!("{interface}: egress restored"));
        }
        if let Some(ingress) = &self.restored.ingress {
            ingress.restore(socket, interface, &ifb)?;
            self.changes.push(format!("{interface}: ingress restored"));
        }
        for step in &self.steps {
            let note = perform(socket, &mut self.links, step)?;
            self.changes.push(step.to_string());
            self.changes.extend(note);
        }
        // After the filters that used its marks have gone.
        if let Some(table) = self.decision.firewall.stale_table() {
            firewall::remove(interface, table)?;
            self.changes.push(format!("firewall: table {table} removed"));
        }
        if let Some(table) = &self.decision.leftover_table {
            firewall::remove(interface, table)?;
        }
        Ok(())
    }

    /// Makes sure that the kernel holds the plan, and completes the record.
    fn commit(&self, socket: &mut Socket, store: &Store) -> Result<(), Error> {
        let plan = self.plan;
        let (mut ifb_index, mut ifb_root) = (self.record.ifb_index, self.record.ifb_root.clone());
        if !self.decision.is_unchanged {
            let Comparison {
                mut differences,
                observed,
            } = Comparison::read(socket, plan)?;
            if self.keeps_other_rates {
                let others = OtherRates::find(plan, &observed);
                differences = verify::compare(&others.kept(plan), &observed);
            }
            if !differences.is_empty() {
                return Err(Error::Differs {
                    interface: plan.interface.clone(),
                    differences,
                });
            }
            (ifb_index, ifb_root) = ifb_identity(plan, observed.ifb.as_ref());
        }
        if plan.egress.is_none() && plan.ingress.is_none() {
            return store.remove(&plan.interface);
        }
        let complete = Record {
            replaces: None,
            is_changing: false,
            ifb_index,
            ifb_root,
            firewall: plan.firewall.clone(),
            ..self.record.clone()
        };
        if complete == self.record {
            return Ok(());
        }
        store.write(&complete)
    }
}

impl RollbackState {
    /// Restores the queues, the firewall table and the record from before.
    pub fn roll_back(&self, socket: &mut Socket, store: &Store) -> Result<(), Error> {
        let queues = self.before.restore(socket, &self.interface, &self.ifb);
        let table = self.firewall.undo(&self.interface);
        queues.and(table)?;
        let Some(mut record) = self.record_before.clone() else {
            return store.remove(&self.interface);
        };
        if self.owns_ifb {
            // It may have been removed and made again.
            record.ifb_index = observe::link_named(socket, &self.ifb)?.map(|link| link.index);
        }
        store.write(&record)
    }

    /// Rolls back because of `cause`, and returns the error to report.
    fn roll_back_after(&self, cause: Error, socket: &mut Socket, store: &Store) -> Error {
        match self.roll_back(socket, store) {
            Ok(()) => cause,
            Err(restore) => Error::NotRestored {
                cause: Box::new(cause),
                restore: Box::new(restore),
            },
        }
    }
}

/// The record while the change is under way: it names what may be there from before, too.
fn record_during(plan: &Plan, found: Found, decision: &Decision, previous: Snapshot) -> Record {
    let TableChange { before, after } = decision.firewall.clone();
    Record {
        interface: plan.interface.clone(),
        index: found.index,
        ifb: plan.ifb(),
        egress: ownership::planned_root(plan),
        replaces: decision.replaces.clone(),
        ingress: plan.ingress.is_some(),
        ifb_index: None,
        ifb_root: None,
        scripts_state: Some(found.scripts_state),
        is_changing: true,
        firewall: after.or(before),
        previous,
        is_lost: false,
    }
}

/// Index and root of the IFB, if the plan shapes ingress.
fn ifb_identity(plan: &Plan, ifb: Option<&Device>) -> (Option<u32>, Option<RootId>) {
    let ifb = ifb.filter(|_| plan.ingress.is_some());
    (ifb.map(|ifb| ifb.link.index), ifb.and_then(Device::root_id))
}

/// The message that our root replaces the one of another program, and which program that probably is.
fn takeover_note(decision: &Decision, observed: &Observed) -> Vec<String> {
    let Some(takeover) = &decision.takeover else {
        return Vec::new();
    };
    let Link { name, index, .. } = &observed.device.link;
    let manager = foreign::find_manager(name, *index);
    let note = match takeover {
        Takeover::Again { ours, theirs } => format!(
            "{name}: another program has replaced sqm's {ours} with {theirs} (set up by {manager}): let only one program \
             shape this device"
        ),
        Takeover::First { theirs } => {
            format!("{name}: replaces {theirs}, set up by {manager}; stop restores it")
        }
    };
    let is_scripts = manager == QdiscManager::SqmScripts;
    let left = foreign::left_by_scripts(name).filter(|_| is_scripts);
    [note].into_iter().chain(left).collect()
}

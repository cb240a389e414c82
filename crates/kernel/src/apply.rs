//! A plan becomes the kernel's state, or nothing changes.
//!
//! Snapshot, record, smallest change, read back, verify; on any failure the snapshot is put back. A plan that
//! differs only in parameters is reached by changing them in place, under running traffic. A root of another number
//! is replaced in one step; only one of the same number and another kind has to go first, and for that moment the
//! kernel's default queues the packets.

use sqm_core::spec::Qdisc;
use sqm_plan::plan::{Plan, PlannedClass, PlannedQdisc, Tree};

use crate::error::Error;
use crate::netlink::fq_codel::Purpose;
use crate::netlink::link::{self, Link};
use crate::netlink::redirect::PREFERENCE;
use crate::netlink::socket::Socket;
use crate::netlink::traffic::{self, NewQdisc, ROOT};
use crate::netlink::{cake, fq_codel, htb, size_table};
use crate::observe::{self, Entries, ObservedQdisc, handle, number};
use crate::snapshot::{Arrivals, Queues, Snapshot, make_hook, remove_hook};
use crate::state::{Record, Store};
use crate::verify::{is_default_quantum, same_class, same_qdisc, same_shape, same_stab, verify};

/// A plan that is in force, and the way back from it.
#[derive(Debug)]
#[must_use]
pub struct Started {
    /// What was changed, in order; empty if everything was as planned already.
    pub changes: Vec<String>,
    interface: String,
    ifb: String,
    before: Snapshot,
    record_before: Option<Record>,
}

/// Brings a plan into force. Needs `CAP_NET_ADMIN`.
pub fn start(socket: &mut Socket, store: &Store, plan: &Plan) -> Result<Started, Error> {
    let (interface, ifb) = (&plan.interface, plan.ifb());
    let links = observe::links(socket)?;
    let link = observe::find(&links, interface)?;
    let record_before = store.read(interface)?;
    // A device that has been removed and has come back has lost our queues; the record is of the one that is gone.
    let record = record_before.clone().filter(|r| r.index == link.index);
    let drops_egress = plan.egress.is_none() && record.as_ref().is_some_and(|r| r.egress.is_some());
    let drops_ingress = plan.ingress.is_none() && record.as_ref().is_some_and(|r| r.ingress);
    let touches_egress = plan.egress.is_some() || drops_egress;
    let touches_ingress = plan.ingress.is_some() || drops_ingress;
    let before = Snapshot::take(socket, interface, &ifb, touches_egress, touches_ingress)?;

    let as_planned = verify(socket, plan)?.is_empty() && !drops_egress && !drops_ingress;
    let previous = match &record {
        // What stood there before the first start stays on record through every later one.
        Some(record) => Snapshot {
            egress: record.previous.egress.clone().or_else(|| before.egress.clone()),
            ingress: record.previous.ingress.clone().or_else(|| before.ingress.clone()),
        },
        // Queues that are exactly ours without a record are ours, started by a process whose record is lost.
        None if as_planned => Snapshot {
            egress: before.egress.as_ref().map(|_| Queues::default()),
            ingress: before.ingress.as_ref().map(|_| Arrivals::default()),
        },
        None => before.clone(),
    };
    let root = plan.egress.as_ref().and_then(|tree| tree.qdiscs.first());
    store.write(&Record {
        interface: interface.clone(),
        index: link.index,
        ifb: ifb.clone(),
        egress: root.map(|root| (root.qdisc.kind().to_owned(), number(root.handle))),
        ingress: plan.ingress.is_some(),
        previous: Snapshot {
            egress: previous.egress.clone().filter(|_| !drops_egress),
            ingress: previous.ingress.clone().filter(|_| !drops_ingress),
        },
    })?;

    let mut started = Started {
        changes: Vec::new(),
        interface: interface.clone(),
        ifb: ifb.clone(),
        before,
        record_before,
    };
    if as_planned {
        return Ok(started);
    }
    let returned = Snapshot {
        egress: previous.egress.filter(|_| drops_egress),
        ingress: previous.ingress.filter(|_| drops_ingress),
    };
    let outcome = carry_out(socket, plan, &returned, &mut started.changes).and_then(|()| {
        let differences = verify(socket, plan)?;
        if differences.is_empty() {
            return Ok(());
        }
        Err(Error::Differs {
            interface: interface.clone(),
            differences,
        })
    });
    match outcome {
        Ok(()) => {
            if plan.egress.is_none() && plan.ingress.is_none() {
                store.remove(interface)?;
            }
            Ok(started)
        }
        Err(cause) => match started.undo(socket, store) {
            Ok(()) => Err(cause),
            Err(restore) => Err(Error::NotRestored {
                cause: Box::new(cause),
                restore: Box::new(restore),
            }),
        },
    }
}

impl Started {
    /// Puts back what was there before this start.
    pub fn undo(self, socket: &mut Socket, store: &Store) -> Result<(), Error> {
        self.before.restore(socket, &self.interface, &self.ifb)?;
        match &self.record_before {
            Some(record) => store.write(record),
            None => store.remove(&self.interface),
        }
    }
}

/// What `stop` did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Everything is as it was before the start. The notes tell what was left alone because it is no longer ours.
    Restored(Vec<String>),
    /// There was nothing to stop.
    NotRunning,
}

/// Takes our queues away and puts back what was there before.
pub fn stop(socket: &mut Socket, store: &Store, interface: &str) -> Result<Stopped, Error> {
    let Some(record) = store.read(interface)? else {
        return Ok(Stopped::NotRunning);
    };
    let mut previous = record.previous;
    let mut notes = Vec::new();
    let links = observe::links(socket)?;
    let device = links
        .iter()
        .find(|l| l.name == interface)
        .filter(|l| l.index == record.index);
    let Some(device) = device else {
        // The queues went with the device; only an IFB of our making is left.
        if previous.ingress.is_some_and(|arrivals| arrivals.has_no_ifb())
            && let Some(ifb) = links.iter().find(|l| l.name == record.ifb)
        {
            link::delete(socket, ifb.index).map_err(Error::kernel(&record.ifb, "remove the device"))?;
        }
        store.remove(interface)?;
        return Ok(Stopped::Restored(vec![format!("{interface} itself is gone")]));
    };
    let entries = Entries::read(socket, device)?;
    let root = entries.root().map(|root| (root.kind(), root.handle));
    if record.egress.is_some() && root.is_some() && root != record.egress {
        let (kind, number) = root.unwrap_or_default();
        notes.push(format!(
            "{interface}: left {kind} {} alone, it is not ours",
            handle(number)
        ));
        previous.egress = None;
    }
    previous.restore(socket, interface, &record.ifb)?;
    store.remove(interface)?;
    Ok(Stopped::Restored(notes))
}

/// Directions that the plan no longer shapes get back what was there; the others get the plan's queues.
fn carry_out(
    socket: &mut Socket,
    plan: &Plan,
    returned: &Snapshot,
    changes: &mut Vec<String>,
) -> Result<(), Error> {
    let (interface, ifb) = (&plan.interface, plan.ifb());
    if let Some(queues) = &returned.egress {
        queues.restore(socket, interface)?;
        changes.push(format!("{interface}: egress as it was before"));
    }
    if let Some(arrivals) = &returned.ingress {
        arrivals.restore(socket, interface, &ifb)?;
        changes.push(format!("{interface}: ingress as it was before"));
    }
    if let Some(tree) = &plan.egress {
        realise(socket, interface, tree, changes)?;
    }
    if let Some(tree) = &plan.ingress {
        if !observe::links(socket)?.iter().any(|l| l.name == ifb) {
            link::create(socket, &ifb, "ifb").map_err(Error::kernel(&ifb, "add the device"))?;
            changes.push(format!("{ifb}: added"));
        }
        realise(socket, &ifb, tree, changes)?;
        redirect(socket, interface, &ifb, changes)?;
    }
    Ok(())
}

/// Arriving packets go to the IFB, which is up and has its queues by now.
fn redirect(socket: &mut Socket, interface: &str, ifb: &str, changes: &mut Vec<String>) -> Result<(), Error> {
    let links = observe::links(socket)?;
    let (device, target) = (observe::find(&links, interface)?, observe::find(&links, ifb)?);
    if !target.up {
        link::set_up(socket, target.index, true).map_err(Error::kernel(ifb, "set the device up"))?;
        changes.push(format!("{ifb}: up"));
    }
    let entries = Entries::read(socket, device)?;
    if entries.redirect().is_some_and(|(_, index)| index == target.index) {
        return Ok(());
    }
    if entries.hook.is_some() {
        remove_hook(socket, device)?;
    }
    make_hook(socket, device, "ingress", Some((PREFERENCE, target.index)))?;
    changes.push(format!("{interface}: arriving packets go to {ifb}"));
    Ok(())
}

/// The queues of one device become the tree, by the smallest change.
fn realise(socket: &mut Socket, device: &str, tree: &Tree, changes: &mut Vec<String>) -> Result<(), Error> {
    let links = observe::links(socket)?;
    let link = observe::find(&links, device)?;
    let now = observe::device(socket, &links, link)?;
    let found = |planned: &PlannedQdisc| now.qdiscs.iter().find(|q| q.parent == planned.parent);
    let root_can_stay = tree.qdiscs.iter().filter(|q| q.parent.is_none()).all(|root| {
        found(root).is_some_and(|found| is_as_planned(root, found, link) || can_change(root, found, link))
    });
    if !same_shape(tree, &now) || !root_can_stay {
        return rebuild(socket, link, &now.qdiscs, tree, changes);
    }
    for planned in &tree.qdiscs {
        let Some(found) = found(planned).filter(|found| !is_as_planned(planned, found, link)) else {
            continue;
        };
        if can_change(planned, found, link) {
            change(socket, link, planned, changes)?;
        } else {
            traffic::delete_qdisc(socket, link.index, number(planned.handle), parent(planned)).map_err(
                Error::kernel(device, format!("remove the qdisc {}", planned.handle)),
            )?;
            create(socket, link, planned, changes)?;
        }
    }
    for planned in &tree.classes {
        let there = now
            .classes
            .iter()
            .any(|c| c.id == planned.id && same_class(&planned.class, &c.class));
        if !there {
            put_class(socket, link, planned, changes)?;
        }
    }
    Ok(())
}

/// Root, classes, leaves, all new.
fn rebuild(
    socket: &mut Socket,
    link: &Link,
    now: &[ObservedQdisc],
    tree: &Tree,
    changes: &mut Vec<String>,
) -> Result<(), Error> {
    let root = now.iter().find(|q| q.parent.is_none() && q.handle.major != 0);
    let number_taken = now
        .iter()
        .any(|q| tree.qdiscs.iter().any(|planned| planned.handle == q.handle));
    if let Some(root) = root.filter(|_| number_taken) {
        traffic::delete_qdisc(socket, link.index, number(root.handle), ROOT).map_err(Error::kernel(
            &link.name,
            format!("remove the root qdisc {}", root.handle),
        ))?;
        changes.push(format!("{}: removed {} {}", link.name, root.kind, root.handle));
    }
    let (roots, leaves): (Vec<_>, Vec<_>) = tree.qdiscs.iter().partition(|q| q.parent.is_none());
    roots
        .into_iter()
        .try_for_each(|root| create(socket, link, root, changes))?;
    tree.classes
        .iter()
        .try_for_each(|class| put_class(socket, link, class, changes))?;
    leaves
        .into_iter()
        .try_for_each(|leaf| create(socket, link, leaf, changes))
}

fn is_as_planned(planned: &PlannedQdisc, found: &ObservedQdisc, link: &Link) -> bool {
    let same = found
        .qdisc
        .as_ref()
        .is_some_and(|qdisc| same_qdisc(&planned.qdisc, qdisc, link.mtu));
    same && same_stab(planned.stab.as_ref(), found.stab.as_ref())
}

/// Whether the kernel can go from one to the other without a new qdisc.
fn can_change(planned: &PlannedQdisc, found: &ObservedQdisc, link: &Link) -> bool {
    match (&planned.qdisc, &found.qdisc) {
        (Qdisc::Cake(_), Some(Qdisc::Cake(_))) => true,
        // HTB has no change operation; its size table is not its own and can change.
        (Qdisc::Htb(_), Some(found)) => same_qdisc(&planned.qdisc, found, link.mtu),
        // The number of flows is fixed, and a threshold or quantum once given cannot be taken back.
        (Qdisc::FqCodel(planned), Some(Qdisc::FqCodel(found))) => {
            let quantum_can = planned.quantum.is_some() || is_default_quantum(found.quantum, link.mtu);
            let threshold_can = planned.ce_threshold.is_some() || found.ce_threshold.is_none();
            planned.flows == found.flows && threshold_can && quantum_can
        }
        _ => false,
    }
}

fn create(
    socket: &mut Socket,
    link: &Link,
    planned: &PlannedQdisc,
    changes: &mut Vec<String>,
) -> Result<(), Error> {
    let options = options(&planned.qdisc, Purpose::Create);
    let stab = planned.stab.as_ref().map(size_table::encode);
    request(link, planned, &options, stab.as_deref())
        .create(socket)
        .map_err(Error::kernel(
            &link.name,
            format!("add the qdisc {} {}", planned.handle, planned.qdisc),
        ))?;
    changes.push(format!(
        "{}: added {} {}",
        link.name, planned.handle, planned.qdisc
    ));
    Ok(())
}

fn change(
    socket: &mut Socket,
    link: &Link,
    planned: &PlannedQdisc,
    changes: &mut Vec<String>,
) -> Result<(), Error> {
    let options = match &planned.qdisc {
        Qdisc::Htb(_) => Vec::new(),
        qdisc => options(qdisc, Purpose::Change),
    };
    let stab = planned.stab.as_ref().map(size_table::encode);
    request(link, planned, &options, stab.as_deref())
        .change(socket)
        .map_err(Error::kernel(
            &link.name,
            format!("change the qdisc {} to {}", planned.handle, planned.qdisc),
        ))?;
    changes.push(format!(
        "{}: changed {} to {}",
        link.name, planned.handle, planned.qdisc
    ));
    Ok(())
}

fn put_class(
    socket: &mut Socket,
    link: &Link,
    planned: &PlannedClass,
    changes: &mut Vec<String>,
) -> Result<(), Error> {
    let PlannedClass { parent, id, class } = planned;
    traffic::put_class(
        socket,
        link.index,
        number(*parent),
        number(*id),
        "htb",
        &htb::encode_class(class),
    )
    .map_err(Error::kernel(
        &link.name,
        format!("set the class {id} below {parent}"),
    ))?;
    changes.push(format!("{}: class {id} {}", link.name, class));
    Ok(())
}

fn request<'a>(
    link: &Link,
    planned: &'a PlannedQdisc,
    options: &'a [u8],
    stab: Option<&'a [u8]>,
) -> NewQdisc<'a> {
    NewQdisc {
        device: link.index,
        parent: parent(planned),
        handle: number(planned.handle),
        kind: planned.qdisc.kind(),
        options,
        stab,
    }
}

fn parent(planned: &PlannedQdisc) -> u32 {
    planned.parent.map_or(ROOT, number)
}

fn options(qdisc: &Qdisc, purpose: Purpose) -> Vec<u8> {
    match qdisc {
        Qdisc::Cake(c) => cake::encode(c),
        Qdisc::FqCodel(c) => fq_codel::encode(c, purpose),
        Qdisc::Htb(h) => htb::encode_root(h),
        _ => Vec::new(),
    }
}

//! A plan becomes the kernel's state, or nothing changes.
//!
//! Record, snapshot, smallest change ([`diff`](crate::diff)), read back, verify; on any failure the snapshot is put
//! back.

use std::num::NonZero;

use serde::{Deserialize, Serialize};
use sqm_core::spec::Qdisc;
use sqm_plan::plan::{Firewall, Plan, PlannedQdisc};

use crate::capability;
use crate::diff::{self, Step};
use crate::error::Error;
use crate::netlink::fq_codel::Purpose;
use crate::netlink::link::{self, Link};
use crate::netlink::redirect::PREFERENCE;
use crate::netlink::socket::{Refusal, Socket};
use crate::netlink::traffic::{self, NewFilter, NewQdisc, ROOT};
use crate::netlink::{filter, nftables, options, size_table};
use crate::observe::{self, Entries, handle, number};
use crate::owner;
use crate::snapshot::{Arrivals, Queues, Snapshot, make_hook, remove_hook};
use crate::state::{Record, Store};
use crate::verify::{Observed, compare, firewall_socket, verify};

/// A plan that is in force, and the way back from it, which another process can take as well.
#[derive(Debug, Serialize, Deserialize)]
#[must_use]
pub struct Started {
    /// What was changed, in order; empty if everything was as planned already.
    pub changes: Vec<String>,
    interface: String,
    ifb: String,
    before: Snapshot,
    firewall: TableChange,
    record_before: Option<Record>,
}

/// What a start does to the firewall: the table that our record names before, and after.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct TableChange {
    before: Option<Firewall>,
    after: Option<Firewall>,
}

/// Brings a plan into force. Needs `CAP_NET_ADMIN`.
pub fn start(socket: &mut Socket, store: &Store, plan: &Plan) -> Result<Started, Error> {
    let observed = Observed::read(socket, plan)?;
    start_from(socket, store, plan, observed)
}

/// The same, but `told` hears of the way back before anything is changed: this process may not live to take it.
pub fn start_telling(
    socket: &mut Socket,
    store: &Store,
    plan: &Plan,
    told: &mut dyn FnMut(&Started),
) -> Result<Started, Error> {
    let observed = Observed::read(socket, plan)?;
    start_from_telling(socket, store, plan, observed, told)
}

/// The same from what was observed just before, while `store` was held already.
pub fn start_from(
    socket: &mut Socket,
    store: &Store,
    plan: &Plan,
    observed: Observed,
) -> Result<Started, Error> {
    start_from_telling(socket, store, plan, observed, &mut |_| {})
}

fn start_from_telling(
    socket: &mut Socket,
    store: &Store,
    plan: &Plan,
    observed: Observed,
    told: &mut dyn FnMut(&Started),
) -> Result<Started, Error> {
    let (interface, ifb) = (&plan.interface, plan.ifb());
    let link = &observed.device.link;
    let record_before = store.read(interface)?;
    let record_before = record_before.map(|record| record.found(link.index, root_of(&observed)));
    let is_lost = record_before.as_ref().is_some_and(|record| record.is_lost);
    // A device that has been removed and has come back has lost our queues; the record is of the one that is gone.
    let record = record_before.clone().filter(|r| r.index == link.index);
    let drops_egress = plan.egress.is_none() && record.as_ref().is_some_and(|r| r.egress.is_some());
    let drops_ingress = plan.ingress.is_none() && record.as_ref().is_some_and(|r| r.ingress);
    let touches_egress = plan.egress.is_some() || drops_egress;
    let touches_ingress = plan.ingress.is_some() || drops_ingress;
    let firewall = TableChange {
        // The table is not the device's: it stays when the device goes.
        before: record_before.as_ref().and_then(|r| r.firewall.clone()),
        after: plan.firewall.clone(),
    };
    let as_planned = compare(plan, &observed).is_empty() && !drops_egress && !drops_ingress;
    let mut changes = replaced_by_others(plan, &observed, record.as_ref());
    // A table of the name we need that is not on our record is somebody else's, unless the record is lost.
    if !is_lost {
        firewall.refuse_strangers(interface, &observed)?;
    }
    let before = Snapshot::take(socket, &observed, &ifb, touches_egress, touches_ingress)?;

    let previous = match &record {
        // What stood there before the first start stays on record through every later one, unless somebody has set
        // something else since.
        Some(record) => Snapshot {
            egress: match root_of(&observed).filter(|root| record.is_foreign(root)) {
                Some(_) => before.egress.clone(),
                None => record.previous.egress.clone().or_else(|| before.egress.clone()),
            },
            ingress: record.previous.ingress.clone().or_else(|| before.ingress.clone()),
        },
        // Queues that are exactly ours without a record are ours, started by a process whose record is lost.
        None if as_planned => Snapshot {
            egress: before.egress.as_ref().map(|_| Queues::default()),
            ingress: before.ingress.as_ref().map(|_| Arrivals::default()),
        },
        None => Snapshot {
            egress: before.egress.clone(),
            // An IFB that was made for the device that is gone is still of our making.
            ingress: match (&record_before, before.ingress.clone()) {
                (Some(gone), Some(arrivals)) if gone.made(&ifb) => Some(arrivals.without_ifb()),
                (_, arrivals) => arrivals,
            },
        },
    };
    let root = plan.egress.as_ref().and_then(|tree| tree.root());
    let ours = root.map(|root| (root.qdisc.kind().to_owned(), number(root.handle)));
    let new_record = Record {
        interface: interface.clone(),
        index: link.index,
        ifb: ifb.clone(),
        replaces: root_of(&observed)
            .filter(|root| ours.as_ref() != Some(root))
            .filter(|root| record.as_ref().is_some_and(|record| record.owns(root))),
        egress: ours,
        ingress: plan.ingress.is_some(),
        firewall: firewall.after.clone().or_else(|| firewall.before.clone()),
        previous: Snapshot {
            egress: previous.egress.clone().filter(|_| !drops_egress),
            ingress: previous.ingress.clone().filter(|_| !drops_ingress),
        },
        is_lost: false,
    };
    if as_planned {
        changes.clear();
    }
    changes.extend(store.take_notes());
    let mut started = Started {
        changes,
        interface: interface.clone(),
        ifb: ifb.clone(),
        before,
        firewall,
        record_before,
    };
    told(&started);
    if started.record_before.as_ref() != Some(&new_record) {
        store.write(&new_record)?;
    }
    let returned = Snapshot {
        egress: previous.egress.filter(|_| drops_egress),
        ingress: previous.ingress.filter(|_| drops_ingress),
    };
    let outcome = carry_out(socket, plan, &observed, &returned, &mut started).and_then(|()| {
        if is_lost && plan.firewall.is_none() {
            remove_table(interface, &Firewall::table_of(interface))?;
        }
        let differences = if as_planned {
            Vec::new()
        } else {
            verify(socket, plan)?
        };
        if differences.is_empty() {
            return Ok(());
        }
        Err(Error::Differs {
            interface: interface.clone(),
            differences,
        })
    });
    let outcome = outcome.and_then(|()| match (&plan.egress, &plan.ingress, &plan.firewall) {
        (None, None, _) => store.remove(interface),
        (.., firewall) if new_record.replaces.is_some() || new_record.firewall != *firewall => {
            store.write(&Record {
                replaces: None,
                firewall: firewall.clone(),
                ..new_record
            })
        }
        _ => Ok(()),
    });
    match outcome {
        Ok(()) => Ok(started),
        Err(cause) => match started.undo(socket, store) {
            Ok(()) => Err(cause),
            Err(restore) => Err(Error::NotRestored {
                cause: Box::new(cause),
                restore: Box::new(restore),
            }),
        },
    }
}

/// Goes from one plan that is in force to another that differs in rates, without looking at the kernel before or after:
/// for rates that change many times a second. False, and nothing done, if it takes more than that. After an error nobody
/// knows what holds: look with [`start`].
pub fn change_rates(socket: &mut Socket, links: &[Link], from: &Plan, to: &Plan) -> Result<bool, Error> {
    let Some(steps) = diff::changes(from, to) else {
        return Ok(false);
    };
    let (interface, ifb) = (&to.interface, to.ifb());
    let is_ours = |link: &&Link| link.name == *interface || link.name == ifb;
    let mut links: Vec<Link> = links.iter().filter(is_ours).cloned().collect();
    for step in steps {
        // Its notes are of what is made new.
        let _ = perform(socket, &mut links, &step)?;
    }
    Ok(true)
}

impl Started {
    /// Puts back what was there before this start.
    pub fn undo(self, socket: &mut Socket, store: &Store) -> Result<(), Error> {
        let queues = self.before.restore(socket, &self.interface, &self.ifb);
        let table = self.firewall.undo(&self.interface);
        queues.and(table)?;
        match &self.record_before {
            Some(record) => store.write(record),
            None => store.remove(&self.interface),
        }
    }
}

impl TableChange {
    /// What is in a table of somebody else could not be put back.
    fn refuse_strangers(&self, interface: &str, observed: &Observed) -> Result<(), Error> {
        let (Some(after), Some(false), None) = (&self.after, observed.firewall, &self.before) else {
            return Ok(());
        };
        let mut socket = firewall_socket(interface)?;
        let exists = nftables::exists(&mut socket, &after.table);
        if exists.map_err(Error::firewall(interface, "list the firewall tables"))? {
            return Err(Error::InTheWay {
                interface: interface.to_owned(),
                what: format!("the firewall table inet {}", after.table),
                remedy: "Whoever made it (sqm-scripts does) must stop first, or remove it with nft.",
            });
        }
        Ok(())
    }

    fn undo(&self, interface: &str) -> Result<(), Error> {
        match (&self.before, &self.after) {
            (None, None) => Ok(()),
            (Some(before), _) => set_table(interface, before),
            (None, Some(after)) => remove_table(interface, &after.table),
        }
    }
}

fn set_table(interface: &str, firewall: &Firewall) -> Result<(), Error> {
    let mut socket = firewall_socket(interface)?;
    let same = nftables::holds(&mut socket, firewall)
        .map_err(Error::firewall(interface, "list the firewall rules"))?;
    if same {
        return Ok(());
    }
    nftables::set(&mut socket, firewall).map_err(Error::firewall(
        interface,
        format!("set the firewall table {}", firewall.table),
    ))
}

fn remove_table(interface: &str, table: &str) -> Result<(), Error> {
    let mut socket = firewall_socket(interface)?;
    let operation = || format!("remove the firewall table {table}");
    if nftables::exists(&mut socket, table).map_err(Error::firewall(interface, operation()))? {
        nftables::remove(&mut socket, table).map_err(Error::firewall(interface, operation()))?;
    }
    Ok(())
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
    let mut previous = record.previous.clone();
    let mut notes = store.take_notes();
    match &record.firewall {
        Some(firewall) => remove_table(interface, &firewall.table)?,
        None if record.is_lost => remove_table(interface, &Firewall::table_of(interface))?,
        None => {}
    }
    // By its number: it may have been renamed.
    let device = match record.is_lost {
        true => observe::link_named(socket, interface)?,
        false => observe::link_numbered(socket, record.index)?,
    };
    let Some(device) = device else {
        // The queues went with the device; only an IFB of our making is left.
        if previous.ingress.is_some_and(|arrivals| arrivals.has_no_ifb())
            && let Some(ifb) = observe::link_named(socket, &record.ifb)?
        {
            link::delete(socket, ifb.index).map_err(Error::kernel(&record.ifb, "remove the device"))?;
        }
        store.remove(interface)?;
        return Ok(Stopped::Restored(vec![format!("{interface} itself is gone")]));
    };
    let entries = Entries::read(socket, &device)?;
    let root = entries.root().map(|root| (root.kind(), root.handle));
    let shapes_egress = record.egress.is_some() || record.is_lost;
    let record = record.found(device.index, root.clone());
    let is_foreign = |root: &&(String, u32)| shapes_egress && !record.owns(root);
    if let Some((kind, number)) = root.as_ref().filter(is_foreign) {
        let owner = owner::find(interface, device.index);
        notes.push(format!(
            "{interface}: left {kind} {} alone, it is not ours ({owner})",
            handle(*number)
        ));
        previous.egress = None;
    }
    previous.restore_from(socket, &device, &entries, &record.ifb)?;
    if record.is_lost {
        notes.push(format!(
            "{interface}: the kernel's default queues are there now: what was before is not known, because the record was damaged"
        ));
    }
    store.remove(interface)?;
    Ok(Stopped::Restored(notes))
}

/// Kind and number of the device's root, unless it is the kernel's own default.
fn root_of(observed: &Observed) -> Option<(String, u32)> {
    let root = observed.device.root()?;
    Some((root.kind.clone(), number(root.handle)))
}

/// Whose queues stand where ours stood, or stand where ours shall be.
fn replaced_by_others(plan: &Plan, observed: &Observed, record: Option<&Record>) -> Vec<String> {
    let interface = &plan.interface;
    let Some(root) = root_of(observed).filter(|_| plan.egress.is_some()) else {
        return Vec::new();
    };
    let what = format!("{} {}", root.0, handle(root.1));
    let owner = || owner::find(interface, observed.device.link.index);
    match record.and_then(|record| Some((record, record.egress.as_ref()?))) {
        Some((record, _)) if record.owns(&root) => Vec::new(),
        Some((_, ours)) => vec![format!(
            "{interface}: {what} has replaced our {} {} since ({}); two programs that shape one device undo each \
             other's work",
            ours.0,
            handle(ours.1),
            owner()
        )],
        None => vec![format!(
            "{interface}: takes the place of {what} ({}); stop puts it back",
            owner()
        )],
    }
}

/// Directions that the plan no longer shapes get back what was there; the others get the plan's queues.
fn carry_out(
    socket: &mut Socket,
    plan: &Plan,
    observed: &Observed,
    returned: &Snapshot,
    started: &mut Started,
) -> Result<(), Error> {
    let (interface, ifb) = (&plan.interface, plan.ifb());
    if let Some(queues) = &returned.egress {
        queues.restore(socket, interface)?;
        started
            .changes
            .push(format!("{interface}: egress as it was before"));
    }
    if let Some(arrivals) = &returned.ingress {
        arrivals.restore(socket, interface, &ifb)?;
        started
            .changes
            .push(format!("{interface}: ingress as it was before"));
    }
    let mut links = observed.links.clone();
    for step in diff::steps(plan, observed) {
        let note = perform(socket, &mut links, &step)?;
        started.changes.push(step.to_string());
        started.changes.extend(note);
    }
    // Marks that nothing looks at any more.
    if let (Some(before), after) = (&started.firewall.before, &started.firewall.after)
        && after.as_ref().is_none_or(|after| after.table != before.table)
    {
        remove_table(interface, &before.table)?;
        started
            .changes
            .push(format!("firewall: table {} removed", before.table));
    }
    Ok(())
}

/// Does one step. Answers what was done otherwise than planned. `links` are the devices as they were, with those made
/// since.
fn perform(socket: &mut Socket, links: &mut Vec<Link>, step: &Step) -> Result<Option<String>, Error> {
    let refused = |device: &str, refusal| {
        capability::missing(step, &refusal).unwrap_or_else(|| Error::kernel(device, step.request())(refusal))
    };
    match step {
        Step::SetFirewall(firewall) => {
            let mut socket = firewall_socket(&firewall.interface)?;
            nftables::set(&mut socket, firewall)
                .map_err(Error::firewall(&firewall.interface, step.request()))?;
        }
        Step::AddIfb { name, many_queues } => {
            let queues = if *many_queues {
                std::thread::available_parallelism().map_or(1, NonZero::get) as u32
            } else {
                1
            };
            link::create_with_queues(socket, name, "ifb", queues)
                .and_then(|()| link::get(socket, name))
                .map(|link| links.push(link))
                .map_err(|refusal| refused(name, refusal))?;
        }
        Step::SetUp(device) => {
            let link = observe::find(links, device)?;
            link::set_up(socket, link.index, true).map_err(|refusal| refused(device, refusal))?;
        }
        Step::AddQdisc(device, planned) => {
            let link = observe::find(links, device)?;
            return add(socket, link, planned).map_err(|refusal| refused(device, refusal));
        }
        Step::ChangeQdisc(device, planned) => {
            let link = observe::find(links, device)?;
            change(socket, link, planned).map_err(|refusal| refused(device, refusal))?;
        }
        Step::RemoveQdisc {
            device,
            handle,
            parent,
            ..
        } => {
            let link = observe::find(links, device)?;
            let parent = parent.map_or(ROOT, number);
            traffic::delete_qdisc(socket, link.index, number(*handle), parent)
                .map_err(|refusal| refused(device, refusal))?;
        }
        Step::PutClass(device, planned, _) => {
            let link = observe::find(links, device)?;
            traffic::put_class(
                socket,
                link.index,
                number(planned.parent),
                number(planned.id),
                planned.class.kind(),
                &options::encode_class(&planned.class),
            )
            .map_err(|refusal| refused(device, refusal))?;
        }
        Step::AddFilter(device, root, planned) => {
            let link = observe::find(links, device)?;
            let (filter, kind, handle, options) = filter::encode(planned);
            let new = NewFilter {
                device: link.index,
                parent: number(*root),
                preference: filter.preference,
                protocol: filter.protocol,
                handle,
                kind,
                options: &options,
            };
            new.create(socket).map_err(|refusal| refused(device, refusal))?;
        }
        Step::RemoveFilter(device, root, filter) => {
            let link = observe::find(links, device)?;
            traffic::delete_filters(
                socket,
                link.index,
                number(*root),
                filter.preference,
                filter.protocol,
            )
            .map_err(|refusal| refused(device, refusal))?;
        }
        Step::RemoveHook(device) => remove_hook(socket, observe::find(links, device)?)?,
        Step::Redirect { device, ifb } => {
            let (link, target) = (observe::find(links, device)?, observe::find(links, ifb)?);
            make_hook(socket, link, "ingress", Some((PREFERENCE, target.index)))
                .map_err(|refusal| refused(device, refusal))?;
        }
    }
    Ok(None)
}

/// Makes a qdisc. A kernel without CAKE for many queues gets a plain one.
fn add(socket: &mut Socket, link: &Link, planned: &PlannedQdisc) -> Result<Option<String>, Refusal> {
    let options = options::encode(&planned.qdisc, Purpose::Create);
    let stab = planned.stab.as_ref().map(size_table::encode);
    let new = request(link, planned, &options, stab.as_deref());
    let made = new.create(socket);
    let (Qdisc::CakeMq(_), Err(refusal)) = (&planned.qdisc, &made) else {
        return made.map(|()| None);
    };
    if !refusal.is(rustix::io::Errno::NOENT) && !refusal.is(rustix::io::Errno::OPNOTSUPP) {
        return made.map(|()| None);
    }
    NewQdisc { kind: "cake", ..new }.create(socket)?;
    Ok(Some(format!(
        "{}: cake in its place, because this kernel has no cake_mq (Linux 7.0 has)",
        link.name
    )))
}

fn change(socket: &mut Socket, link: &Link, planned: &PlannedQdisc) -> Result<(), Refusal> {
    let options = match &planned.qdisc {
        Qdisc::Htb(_) => Vec::new(),
        qdisc => options::encode(qdisc, Purpose::Change),
    };
    let stab = planned.stab.as_ref().map(size_table::encode);
    let new = request(link, planned, &options, stab.as_deref());
    match (&planned.qdisc, new.change(socket)) {
        // A plain CAKE stands there, because the kernel had none for many queues.
        (Qdisc::CakeMq(_), Err(_)) => NewQdisc { kind: "cake", ..new }.change(socket),
        (_, outcome) => outcome,
    }
}

fn request<'a>(
    link: &Link,
    planned: &'a PlannedQdisc,
    options: &'a [u8],
    stab: Option<&'a [u8]>,
) -> NewQdisc<'a> {
    NewQdisc {
        device: link.index,
        parent: planned.parent.map_or(ROOT, number),
        handle: number(planned.handle),
        kind: planned.qdisc.kind(),
        options,
        stab,
    }
}

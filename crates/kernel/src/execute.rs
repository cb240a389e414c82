//! Carries out the steps that [`diff`] has computed, through netlink.

use std::num::NonZero;

use sqm_core::handle::Handle;
use sqm_core::spec::Qdisc;
use sqm_plan::plan::{Plan, PlannedClass, PlannedQdisc};

use crate::capability;
use crate::diff::{self, Step};
use crate::error::Error;
use crate::firewall;
use crate::netlink::fq_codel::Purpose;
use crate::netlink::link::{self, Link};
use crate::netlink::socket::{NetlinkError, Socket};
use crate::netlink::tc::{self, NewFilter, NewQdisc, ROOT};
use crate::netlink::{filter, options, size_table};
use crate::observe;
use crate::snapshot::set_redirect;

/// Changes parameters from one plan, which is in force, to another, without reading the kernel's state before or after:
/// for rates that change many times a second.
///
/// Returns false, and does nothing, if the plans differ in more than parameters that can be changed in place. After an
/// error the state of the queues is unknown: apply the plan by a [`Transaction`](crate::transaction::Transaction).
pub fn change_rates(socket: &mut Socket, links: &[Link], from: &Plan, to: &Plan) -> Result<bool, Error> {
    let Some(steps) = diff::changes(from, to) else {
        return Ok(false);
    };
    let (interface, ifb) = (&to.interface, to.ifb());
    let is_ours = |link: &&Link| link.name == *interface || link.name == ifb;
    let mut links: Vec<Link> = links.iter().filter(is_ours).cloned().collect();
    for step in steps {
        // Only steps that create a qdisc have a note.
        let _ = perform(socket, &mut links, &step)?;
    }
    Ok(true)
}

/// Carries out one step, and returns a note if something was done otherwise than planned. `links` holds the devices; an
/// IFB that the step creates is added.
pub(crate) fn perform(
    socket: &mut Socket,
    links: &mut Vec<Link>,
    step: &Step,
) -> Result<Option<String>, Error> {
    let failed = |device: &str, error| {
        capability::missing(step, &error).unwrap_or_else(|| Error::kernel(device, step.request())(error))
    };
    match step {
        Step::SetFirewall(firewall) => firewall::set(firewall)?,
        Step::AddIfb { name, many_queues } => {
            let link = add_ifb(socket, name, *many_queues).map_err(|error| failed(name, error))?;
            links.push(link);
        }
        Step::SetUp(device) => {
            let link = observe::find(links, device)?;
            link::set_up(socket, link.index, true).map_err(|error| failed(device, error))?;
        }
        Step::AddQdisc(device, planned) => {
            let link = observe::find(links, device)?;
            return add_qdisc(socket, link, planned).map_err(|error| failed(device, error));
        }
        Step::ChangeQdisc(device, planned) => {
            let link = observe::find(links, device)?;
            change_qdisc(socket, link, planned).map_err(|error| failed(device, error))?;
        }
        Step::RemoveQdisc {
            device,
            handle,
            parent,
            ..
        } => {
            let link = observe::find(links, device)?;
            let parent = parent.map_or(ROOT, Handle::bits);
            tc::delete_qdisc(socket, link.index, handle.bits(), parent)
                .map_err(|error| failed(device, error))?;
        }
        Step::AddClass(device, planned) | Step::ChangeClass(device, planned) => {
            let link = observe::find(links, device)?;
            put_class(socket, link, planned).map_err(|error| failed(device, error))?;
        }
        Step::AddFilter(device, root, planned) => {
            let link = observe::find(links, device)?;
            let (filter, kind, handle, options) = filter::encode(planned);
            let new = NewFilter {
                device: link.index,
                parent: root.bits(),
                preference: filter.preference,
                protocol: filter.protocol,
                handle,
                kind,
                options: &options,
            };
            new.create(socket).map_err(|error| failed(device, error))?;
        }
        Step::RemoveFilter(device, root, filter) => {
            let link = observe::find(links, device)?;
            let (preference, protocol) = (filter.preference, filter.protocol);
            tc::delete_filters(socket, link.index, root.bits(), preference, protocol)
                .map_err(|error| failed(device, error))?;
        }
        Step::RemoveRedirect {
            device,
            filter,
            listed,
        } => {
            tc::delete_filter(socket, filter, listed).map_err(|error| failed(device, error))?;
        }
        Step::Redirect {
            device,
            ifb,
            qdisc,
            preference,
        } => {
            let (link, target) = (observe::find(links, device)?, observe::find(links, ifb)?);
            let to = (*preference, target.index);
            set_redirect(socket, link, qdisc.as_deref(), to).map_err(|error| failed(device, error))?;
        }
    }
    Ok(None)
}

/// Makes an IFB, with a transmit queue for each processor if many are asked for.
fn add_ifb(socket: &mut Socket, name: &str, many_queues: bool) -> Result<Link, NetlinkError> {
    let queues = if many_queues {
        std::thread::available_parallelism().map_or(1, NonZero::get) as u32
    } else {
        1
    };
    link::create_with_queues(socket, name, "ifb", queues)?;
    link::get(socket, name)
}

/// Makes a qdisc. On a kernel without cake_mq, makes a plain CAKE and returns a note that says so.
fn add_qdisc(
    socket: &mut Socket,
    link: &Link,
    planned: &PlannedQdisc,
) -> Result<Option<String>, NetlinkError> {
    let options = options::encode(&planned.qdisc, Purpose::Create);
    let stab = planned.stab.as_ref().map(size_table::encode);
    let new = request(link, planned, &options, stab.as_deref());
    let created = new.create(socket);
    let (Qdisc::CakeMq(_), Err(error)) = (&planned.qdisc, &created) else {
        return created.map(|()| None);
    };
    if !error.is(rustix::io::Errno::NOENT) && !error.is(rustix::io::Errno::OPNOTSUPP) {
        return created.map(|()| None);
    }
    NewQdisc { kind: "cake", ..new }.create(socket)?;
    Ok(Some(format!(
        "{}: plain cake in place of cake_mq, which this kernel lacks (Linux 7.0 has it)",
        link.name
    )))
}

fn change_qdisc(socket: &mut Socket, link: &Link, planned: &PlannedQdisc) -> Result<(), NetlinkError> {
    let options = match &planned.qdisc {
        // HTB's root has no change operation; a change without options still changes the size table.
        Qdisc::Htb(_) => Vec::new(),
        qdisc => options::encode(qdisc, Purpose::Change),
    };
    let stab = planned.stab.as_ref().map(size_table::encode);
    let new = request(link, planned, &options, stab.as_deref());
    match (&planned.qdisc, new.change(socket)) {
        // A plain CAKE stands there if the kernel has no cake_mq.
        (Qdisc::CakeMq(_), Err(_)) => NewQdisc { kind: "cake", ..new }.change(socket),
        (_, outcome) => outcome,
    }
}

fn put_class(socket: &mut Socket, link: &Link, planned: &PlannedClass) -> Result<(), NetlinkError> {
    let (parent, id, kind) = (planned.parent.bits(), planned.id.bits(), planned.class.kind());
    let options = options::encode_class(&planned.class);
    tc::put_class(socket, link.index, parent, id, kind, &options)
}

fn request<'a>(
    link: &Link,
    planned: &'a PlannedQdisc,
    options: &'a [u8],
    stab: Option<&'a [u8]>,
) -> NewQdisc<'a> {
    NewQdisc {
        device: link.index,
        parent: planned.parent.map_or(ROOT, Handle::bits),
        handle: planned.handle.bits(),
        kind: planned.qdisc.kind(),
        options,
        stab,
    }
}

//! Stops shaping: removes our queues, and restores what was there before the first start.

use sqm_plan::plan::Firewall;

use crate::error::Error;
use crate::firewall;
use crate::foreign;
use crate::netlink::link::{self, Link};
use crate::netlink::socket::Socket;
use crate::observe::{self, Observed};
use crate::ownership::{Found, Standing};
use crate::scripts_state::ScriptsState;
use crate::snapshot::{IngressState, Snapshot};
use crate::state::{Record, Store};

/// The result of [`stop`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Everything is as it was before the start. The notes name what was left alone because it is not ours any more.
    Restored(Vec<String>),
    /// The interface has no record: it was not shaped.
    NotRunning,
}

/// Removes our queues and restores what was there before. Needs `CAP_NET_ADMIN`.
pub fn stop(socket: &mut Socket, store: &Store, interface: &str) -> Result<Stopped, Error> {
    let Some(record) = store.read(interface)? else {
        return Ok(Stopped::NotRunning);
    };
    let mut notes = store.take_notes();
    remove_table(&record)?;
    let Some(device) = shaped_device(socket, &record)? else {
        remove_our_ifb(socket, &record)?;
        store.remove(interface)?;
        return Ok(Stopped::Restored(vec![format!(
            "{interface}: the device no longer exists"
        )]));
    };
    let observed = Observed::queues(socket, &device.name, &record.ifb)?;
    let found = Found::of(&observed, ScriptsState::read(interface), false);
    let record = record.completed(device.index, found.root.clone());
    let previous = to_restore(socket, &record, &observed, &found, &mut notes)?;
    if !record.is_lost && previous != Snapshot::default() {
        // If this process is killed half-way, the next one knows that the queues are not gone for another reason. Without
        // the note it restores less, so a failure to write it stops nothing.
        let _ = store.write(&Record {
            is_changing: true,
            ..record.clone()
        });
    }
    previous.restore_from(socket, &device, &observed.device.entries, &record.ifb)?;
    notes.extend(observed.device.other_filters_note());
    if record.is_lost {
        notes.push(format!(
            "{interface}: restored the kernel's default queues; the previous ones are not known, because the \
             record was damaged"
        ));
    }
    store.remove(interface)?;
    Ok(Stopped::Restored(notes))
}

/// The state from before our first start, as far as our queues are still there: another program's queues stay, and
/// queues from before do not come back in place of ours if those have gone.
fn to_restore(
    socket: &mut Socket,
    record: &Record,
    observed: &Observed,
    found: &Found,
    notes: &mut Vec<String>,
) -> Result<Snapshot, Error> {
    let interface = &record.interface;
    let manager = foreign::find_manager(interface, found.index);
    let mut previous = record.previous.clone();
    let egress = record.egress_standing(found);
    if let (Standing::Foreign, Some(root)) = (egress, &found.root) {
        notes.push(format!(
            "{interface}: left {root} alone, because another program has set it up: {manager}"
        ));
    }
    if egress != Standing::Ours {
        previous.egress = None;
    }
    let ingress = record.ingress_standing(found);
    match ingress {
        Standing::Ours => {}
        Standing::WithoutRedirect => {
            let ifb = previous.ingress.take();
            let present = |ifb: IngressState| ifb.with_present_qdisc(socket, &observed.device.entries);
            previous.ingress = ifb.map(present).transpose()?;
        }
        Standing::Gone => {
            let nothing = IngressState::default();
            previous.ingress = Some(nothing.with_present_qdisc(socket, &observed.device.entries)?);
        }
        Standing::Foreign => {
            notes.push(format!(
                "{interface}: left {} and the redirect of arriving packets alone, because another program has set \
                 them up: {manager}",
                record.ifb
            ));
            previous.ingress = None;
        }
    }
    if egress == Standing::Gone || ingress == Standing::Gone {
        notes.push(format!(
            "{interface}: another program had removed sqm's queues already; the queues from before are not restored \
             there"
        ));
    }
    Ok(previous)
}

fn remove_table(record: &Record) -> Result<(), Error> {
    match &record.firewall {
        Some(firewall) => firewall::remove(&record.interface, &firewall.table),
        // There may have been one.
        None if record.is_lost => firewall::remove(&record.interface, &Firewall::table_of(&record.interface)),
        None => Ok(()),
    }
}

/// The device that was shaped. Its index identifies it, because it may have been renamed; a lost record has only the name.
fn shaped_device(socket: &mut Socket, record: &Record) -> Result<Option<Link>, Error> {
    if record.is_lost {
        observe::link_named(socket, &record.interface)
    } else {
        observe::link_numbered(socket, record.index)
    }
}

/// The queues have gone with the device; an IFB that we made is still there.
fn remove_our_ifb(socket: &mut Socket, record: &Record) -> Result<(), Error> {
    let ingress = record.previous.ingress.as_ref();
    if ingress.is_some_and(IngressState::has_no_ifb)
        && let Some(ifb) = observe::link_named(socket, &record.ifb)?
    {
        link::delete(socket, ifb.index).map_err(Error::kernel(&record.ifb, "remove the device"))?;
    }
    Ok(())
}

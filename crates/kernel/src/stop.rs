//! Stops shaping: removes our queues, and restores what was there before the first start.

use sqm_plan::plan::Firewall;

use crate::error::Error;
use crate::firewall;
use crate::foreign;
use crate::netlink::link::{self, Link};
use crate::netlink::socket::Socket;
use crate::observe::{self, Entries};
use crate::snapshot::IngressState;
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
    let entries = Entries::read(socket, &device)?;
    let root = entries.root_id();
    let record = record.completed(device.index, root.clone());
    let mut previous = record.previous.clone();
    if let Some(root) = root.filter(|root| record.leaves_alone(root)) {
        let manager = foreign::find_manager(interface, device.index);
        notes.push(format!(
            "{interface}: left {root} alone, because another program has set it up: {manager}"
        ));
        previous.egress = None;
    }
    previous.restore_from(socket, &device, &entries, &record.ifb)?;
    if record.is_lost {
        notes.push(format!(
            "{interface}: restored the kernel's default queues; the previous ones are not known, because the \
             record was damaged"
        ));
    }
    store.remove(interface)?;
    Ok(Stopped::Restored(notes))
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

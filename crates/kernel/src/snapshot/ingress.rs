//! The handling of packets that arrive on a device: its ingress qdisc, the redirect, and the IFB.

use serde::{Deserialize, Serialize};

use super::qdisc_tree::QdiscTree;
use crate::error::Error;
use crate::netlink::link::{self, Link};
use crate::netlink::redirect;
use crate::netlink::socket::{NetlinkError, Socket};
use crate::netlink::tc::{self, Entry, INGRESS, INGRESS_HANDLE, NewQdisc};
use crate::observe::{self, ArrivalFilter, Entries, Observed, ingress_parent, redirects_all_to};

/// The handling of arriving packets, and the IFB of the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IngressState {
    #[serde(rename = "hook")]
    qdisc: Option<IngressQdisc>,
    /// `None` if the device does not exist.
    ifb: Option<Ifb>,
}

/// The qdisc at the ingress hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct IngressQdisc {
    kind: String,
    redirect: Option<Redirect>,
}

/// A filter that redirects all packets to another device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Redirect {
    preference: u16,
    target: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Ifb {
    up: bool,
    queues: QdiscTree,
}

impl Redirect {
    /// The redirect of a device, if all arriving packets are redirected. One to a device that is gone loses all packets; it is
    /// not recorded.
    fn of(socket: &mut Socket, entries: &Entries) -> Result<Option<Self>, Error> {
        let Some((preference, index)) = entries.redirect() else {
            return Ok(None);
        };
        let target = observe::link_numbered(socket, index)?;
        Ok(target.map(|Link { name: target, .. }| Self { preference, target }))
    }
}

impl IngressQdisc {
    /// The qdisc at the ingress hook of a device, with its redirect.
    fn of(socket: &mut Socket, entries: &Entries) -> Result<Option<Self>, Error> {
        let Some(found) = &entries.ingress_qdisc else {
            return Ok(None);
        };
        let redirect = Redirect::of(socket, entries)?;
        Ok(Some(Self {
            kind: found.kind(),
            redirect,
        }))
    }
}

impl IngressState {
    /// Reads the state of a device and the IFB. Fails if it could not be restored.
    pub(super) fn of(socket: &mut Socket, observed: &Observed, ifb: &str) -> Result<Self, Error> {
        let device = &observed.device;
        let qdisc = match &device.entries.ingress_qdisc {
            None => None,
            Some(found) => {
                let kind = found.kind();
                if found.has_shared_block() {
                    return Err(Error::queues_in_the_way(
                        &device.link.name,
                        format!("the {kind} hook with filters shared with other devices"),
                    ));
                }
                let ifb = observed.ifb.as_ref().map(|ifb| ifb.link.index);
                refuse_redirects(&device.link.name, &device.other_filters, ifb)?;
                IngressQdisc::of(socket, &device.entries)?
            }
        };
        let ifb = match &observed.ifb {
            None => None,
            Some(there) if there.link.kind.as_deref() != Some("ifb") => {
                return Err(Error::queues_in_the_way(
                    &device.link.name,
                    format!("{ifb}, a device of another kind,"),
                ));
            }
            Some(there) => Some(Ifb {
                up: there.link.up,
                queues: QdiscTree::of(socket, there)?,
            }),
        };
        Ok(Self { qdisc, ifb })
    }

    /// True if there was no IFB. The one that is there now was then made for shaping, and is removed with it.
    pub(crate) fn has_no_ifb(&self) -> bool {
        self.ifb.is_none()
    }

    /// This state without the IFB, which is then removed when shaping stops.
    pub(crate) fn without_ifb(self) -> Self {
        Self { ifb: None, ..self }
    }

    /// The IFB of `self`, and the ingress qdisc of `hook`. One without a redirect is what is left of ours if there was none
    /// before.
    pub(crate) fn with_qdisc_of(self, hook: Self) -> Self {
        let is_left = |qdisc: &IngressQdisc| self.qdisc.is_none() && qdisc.redirect.is_none();
        Self {
            qdisc: hook.qdisc.filter(|qdisc| !is_left(qdisc)),
            ifb: self.ifb,
        }
    }

    /// Like [`Self::with_qdisc_of`], with the ingress qdisc as it is on the device now.
    pub(crate) fn with_present_qdisc(self, socket: &mut Socket, entries: &Entries) -> Result<Self, Error> {
        let qdisc = IngressQdisc::of(socket, entries)?;
        Ok(self.with_qdisc_of(Self { qdisc, ifb: None }))
    }

    /// True if `now` is this state restored. An ingress qdisc that we made stays if another program has put its filters
    /// there since.
    pub(super) fn is_restored_by(&self, now: &Self) -> bool {
        let is_kept = |qdisc: &IngressQdisc| qdisc.redirect.is_none();
        self.ifb == now.ifb
            && (self.qdisc == now.qdisc || self.qdisc.is_none() && now.qdisc.as_ref().is_some_and(is_kept))
    }

    pub(crate) fn restore(&self, socket: &mut Socket, interface: &str, ifb: &str) -> Result<(), Error> {
        let (link, entries) = observe::entries_of(socket, interface)?;
        self.restore_from(socket, &link, &entries, ifb)
    }

    pub(super) fn restore_from(
        &self,
        socket: &mut Socket,
        device: &Link,
        entries: &Entries,
        ifb: &str,
    ) -> Result<(), Error> {
        let now = IngressQdisc::of(socket, entries)?;
        let is_as_before = now == self.qdisc;
        // Redirects are removed before their target: packets redirected to a missing device are lost.
        let mut kept = now.as_ref().map(|qdisc| qdisc.kind.clone());
        if !is_as_before || (self.ifb.is_none() && !entries.ingress_filters.is_empty()) {
            self.remove_redirects(socket, device, entries, ifb, is_as_before)?;
            let is_needed = self.qdisc.as_ref().map(|qdisc| &qdisc.kind) == kept.as_ref();
            // A clsact qdisc is another program's; an ingress qdisc with filters of others stays for those.
            let is_ours_alone = kept.as_deref() == Some("ingress") && remaining(socket, device)?.is_empty();
            if !is_needed && is_ours_alone {
                remove_ingress_qdisc(socket, device)?;
                kept = None;
            }
        }
        self.restore_ifb(socket, ifb)?;
        let Some(qdisc) = self.qdisc.as_ref().filter(|_| !is_as_before) else {
            return Ok(());
        };
        let add_back =
            |error| Error::kernel(&device.name, format!("add back the {} qdisc", qdisc.kind))(error);
        match &qdisc.redirect {
            Some(to) => {
                let target = observe::existing(socket, &to.target)?.index;
                set_redirect_on(
                    socket,
                    device,
                    &qdisc.kind,
                    kept.as_deref(),
                    (to.preference, target),
                )
                .map_err(add_back)
            }
            None if kept.is_none() => create_ingress_qdisc(socket, device, &qdisc.kind).map_err(add_back),
            None => Ok(()),
        }
    }

    /// Removes all redirects, unless those are as before, and filters of any kind that redirect to an IFB that is about
    /// to be removed.
    fn remove_redirects(
        &self,
        socket: &mut Socket,
        device: &Link,
        entries: &Entries,
        ifb: &str,
        is_as_before: bool,
    ) -> Result<(), Error> {
        let lost = match self.ifb {
            Some(_) => None,
            None => observe::link_named(socket, ifb)?.map(|link| link.index),
        };
        let leads_to_lost = |filter: &Entry| {
            let target = redirect::decode_any_redirect(&filter.kind(), filter.options());
            // The kernel reports 0 for a device that is gone already.
            target.is_some_and(|target| target == 0 || Some(target) == lost)
        };
        for filter in &entries.ingress_filters {
            if leads_to_lost(filter) || (!is_as_before && redirects_all_to(filter).is_some()) {
                tc::delete_filter(socket, filter, &entries.ingress_filters).map_err(Error::kernel(
                    &device.name,
                    "remove a redirect of arriving packets",
                ))?;
            }
        }
        Ok(())
    }

    fn restore_ifb(&self, socket: &mut Socket, ifb: &str) -> Result<(), Error> {
        let now = observe::link_named(socket, ifb)?;
        match (&self.ifb, now) {
            (None, None) => Ok(()),
            (None, Some(link)) => {
                link::delete(socket, link.index).map_err(Error::kernel(ifb, "remove the device"))
            }
            (Some(before), now) => {
                if now.is_none() {
                    link::create(socket, ifb, "ifb").map_err(Error::kernel(ifb, "add the device"))?;
                }
                before.queues.restore(socket, ifb)?;
                let link = observe::existing(socket, ifb)?;
                if link.up == before.up {
                    return Ok(());
                }
                link::set_up(socket, link.index, before.up)
                    .map_err(Error::kernel(ifb, "set the device up or down"))
            }
        }
    }
}

/// Makes a redirect of all arriving packets: its preference, and the index of its target. `kept` is the kind of the
/// qdisc at the ingress hook; if there is none, one is made.
pub(crate) fn set_redirect(
    socket: &mut Socket,
    device: &Link,
    kept: Option<&str>,
    to: (u16, u32),
) -> Result<(), NetlinkError> {
    set_redirect_on(socket, device, "ingress", kept, to)
}

fn set_redirect_on(
    socket: &mut Socket,
    device: &Link,
    kind: &str,
    kept: Option<&str>,
    (preference, target): (u16, u32),
) -> Result<(), NetlinkError> {
    if kept.is_none() {
        create_ingress_qdisc(socket, device, kind)?;
    }
    let parent = ingress_parent(kept.unwrap_or(kind));
    redirect::create(socket, device.index, parent, preference, target)
}

/// Fails if filters of other programs redirect packets elsewhere than to the IFB: they would not be shaped.
fn refuse_redirects(interface: &str, others: &[ArrivalFilter], ifb: Option<u32>) -> Result<(), Error> {
    let elsewhere = |filter: &&ArrivalFilter| filter.target.is_some() && filter.target != ifb;
    others.iter().find(elsewhere).map_or(Ok(()), |filter| {
        Err(Error::queues_in_the_way(
            interface,
            format!("a filter that redirects arriving packets to another device ({filter})"),
        ))
    })
}

/// The filters that arriving packets pass now.
fn remaining(socket: &mut Socket, device: &Link) -> Result<Vec<Entry>, Error> {
    Ok(Entries::read(socket, device)?.ingress_filters)
}

/// Removes the qdisc at the ingress hook, with its filters.
fn remove_ingress_qdisc(socket: &mut Socket, device: &Link) -> Result<(), Error> {
    tc::delete_qdisc(socket, device.index, INGRESS_HANDLE, INGRESS)
        .map_err(Error::kernel(&device.name, "remove the ingress qdisc"))
}

/// Makes a qdisc at the ingress hook.
fn create_ingress_qdisc(socket: &mut Socket, device: &Link, kind: &str) -> Result<(), NetlinkError> {
    let ingress = NewQdisc {
        device: device.index,
        parent: INGRESS,
        handle: INGRESS_HANDLE,
        kind,
        options: &[],
        stab: None,
    };
    ingress.create(socket)
}

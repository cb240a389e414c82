//! The handling of packets that arrive on a device: its ingress qdisc, the redirect, and the IFB.

use serde::{Deserialize, Serialize};

use super::qdisc_tree::QdiscTree;
use crate::error::Error;
use crate::netlink::link::{self, Link};
use crate::netlink::redirect;
use crate::netlink::socket::{NetlinkError, Socket};
use crate::netlink::tc::{self, INGRESS, INGRESS_HANDLE, NewQdisc};
use crate::observe::{self, Entries, Observed};

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
    /// The redirect of a device, if all arriving packets are redirected.
    fn of(socket: &mut Socket, entries: &Entries) -> Result<Option<Self>, Error> {
        let Some((preference, index)) = entries.redirect() else {
            return Ok(None);
        };
        let target = observe::link_numbered(socket, index)?;
        Ok(target.map(|Link { name: target, .. }| Self { preference, target }))
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
                let redirect = Redirect::of(socket, &device.entries)?;
                // A redirect to a device that is gone loses all packets; it is not recorded.
                let is_known = redirect.is_some() || device.entries.redirect().is_some();
                if found.has_shared_block() || (!device.entries.ingress_filters.is_empty() && !is_known) {
                    return Err(Error::queues_in_the_way(
                        &device.link.name,
                        format!("the {kind} hook with filters"),
                    ));
                }
                Some(IngressQdisc { kind, redirect })
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
        let redirect = Redirect::of(socket, entries)?;
        let now = entries.ingress_qdisc.as_ref().map(|qdisc| IngressQdisc {
            kind: qdisc.kind(),
            redirect,
        });
        // The redirect is removed before its target: packets redirected to a missing device are lost.
        if now != self.qdisc && now.is_some() {
            remove_ingress_qdisc(socket, device)?;
        }
        self.restore_ifb(socket, ifb)?;
        match &self.qdisc {
            Some(qdisc) if now.as_ref() != Some(qdisc) => {
                let target = match &qdisc.redirect {
                    Some(to) => Some((to.preference, observe::existing(socket, &to.target)?.index)),
                    None => None,
                };
                create_ingress_qdisc(socket, device, &qdisc.kind, target).map_err(Error::kernel(
                    &device.name,
                    format!("add back the {} qdisc", qdisc.kind),
                ))
            }
            _ => Ok(()),
        }
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

/// Removes the qdisc at the ingress hook, with its filters.
pub(crate) fn remove_ingress_qdisc(socket: &mut Socket, device: &Link) -> Result<(), Error> {
    tc::delete_qdisc(socket, device.index, INGRESS_HANDLE, INGRESS)
        .map_err(Error::kernel(&device.name, "remove the ingress qdisc"))
}

/// Makes a qdisc at the ingress hook, with a redirect: its preference, and the index of its target.
pub(crate) fn create_ingress_qdisc(
    socket: &mut Socket,
    device: &Link,
    kind: &str,
    target: Option<(u16, u32)>,
) -> Result<(), NetlinkError> {
    let ingress = NewQdisc {
        device: device.index,
        parent: INGRESS,
        handle: INGRESS_HANDLE,
        kind,
        options: &[],
        stab: None,
    };
    ingress.create(socket)?;
    target.map_or(Ok(()), |(preference, index)| {
        redirect::create(socket, device.index, preference, index)
    })
}

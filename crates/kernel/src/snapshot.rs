//! Snapshots of the queues of a device, as the kernel reported them, and how they are restored.
//!
//! A snapshot is taken before the first change. It fails if something could not be restored later, and then nothing is
//! changed. The kernel's default queues are not recorded: when the root qdisc is removed, the kernel makes them again.

use serde::{Deserialize, Serialize};
use sqm_core::handle::Handle;

use crate::error::{Difference, Error};
use crate::netlink::link::{self, Link};
use crate::netlink::socket::{NetlinkError, Socket};
use crate::netlink::tc::{self, Entry, INGRESS, INGRESS_HANDLE, NewFilter, NewQdisc, ROOT};
use crate::netlink::{codel, filter, fq_codel, htb, redirect, sfq, size_table};
use crate::observe::{self, Device, Entries, Observed, RootId};

/// Kinds of qdisc that can be made again from what the kernel reports about them.
const RESTORABLE: [&str; 15] = [
    "bfifo",
    "cake",
    "cake_mq",
    "codel",
    "fq",
    "fq_codel",
    "hfsc",
    "htb",
    "noqueue",
    "pfifo",
    "pfifo_fast",
    "pfifo_head_drop",
    "pie",
    "sfq",
    "tbf",
];

/// The state of the directions that a change touches; `None` is a direction it does not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The queues of the device.
    pub egress: Option<QdiscTree>,
    /// What happens to arriving packets.
    pub ingress: Option<IngressState>,
}

/// The qdiscs, classes and filters of a device. Empty for the kernel's default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QdiscTree {
    qdiscs: Vec<RawQdisc>,
    classes: Vec<RawQdisc>,
    /// The filters on the root.
    #[serde(default)]
    filters: Vec<RawFilter>,
}

/// A filter as the kernel reported it, reduced to what is needed to make it again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct RawFilter {
    preference: u16,
    protocol: u16,
    parent: u32,
    /// The mark of an `fw` filter; 0 for others, whose handle the kernel chooses.
    handle: u32,
    kind: String,
    #[serde(with = "hexadecimal")]
    options: Vec<u8>,
}

/// What happens to arriving packets, and the IFB of the plan.
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

/// A qdisc or class as the kernel reported it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RawQdisc {
    handle: u32,
    parent: u32,
    kind: String,
    #[serde(with = "hexadecimal")]
    options: Vec<u8>,
    /// Content of `TCA_STAB`, with the table computed again; empty without a size table.
    #[serde(with = "hexadecimal")]
    stab: Vec<u8>,
}

impl Snapshot {
    /// Takes a snapshot of the directions asked for. Fails if something there could not be restored.
    pub(crate) fn take(
        socket: &mut Socket,
        observed: &Observed,
        ifb: &str,
        egress: bool,
        ingress: bool,
    ) -> Result<Self, Error> {
        Ok(Self {
            egress: if egress {
                Some(QdiscTree::of(socket, &observed.device)?)
            } else {
                None
            },
            ingress: if ingress {
                Some(IngressState::of(socket, observed, ifb)?)
            } else {
                None
            },
        })
    }

    /// Restores the snapshot, and compares the result with it. If one direction fails, the other is restored all the same, and
    /// the first error is returned.
    pub(crate) fn restore(&self, socket: &mut Socket, interface: &str, ifb: &str) -> Result<(), Error> {
        let (link, entries) = existing(socket, interface)?;
        self.restore_from(socket, &link, &entries, ifb)
    }

    /// Like [`Self::restore`], from entries that were just read.
    pub(crate) fn restore_from(
        &self,
        socket: &mut Socket,
        link: &Link,
        entries: &Entries,
        ifb: &str,
    ) -> Result<(), Error> {
        let interface = &link.name;
        let arrivals = self.ingress.as_ref().map_or(Ok(()), |arrivals| {
            arrivals.restore_from(socket, link, entries, ifb)
        });
        let queues = self
            .egress
            .as_ref()
            .map_or(Ok(()), |queues| queues.restore_from(socket, link, entries));
        arrivals.and(queues)?;
        let observed = Observed::queues(socket, interface, ifb)?;
        let now = Self::take(
            socket,
            &observed,
            ifb,
            self.egress.is_some(),
            self.ingress.is_some(),
        )?;
        if now == *self {
            return Ok(());
        }
        let difference = Difference {
            at: interface.clone(),
            planned: format!("as before: {}", self.words()),
            found: now.words(),
        };
        Err(Error::Differs {
            interface: interface.clone(),
            differences: vec![difference],
        })
    }

    fn words(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl QdiscTree {
    /// A tree that has only a root.
    #[cfg(test)]
    pub(crate) fn with_root(root: &RootId) -> Self {
        let root = RawQdisc {
            handle: root.handle.bits(),
            parent: ROOT,
            kind: root.kind.clone(),
            options: Vec::new(),
            stab: Vec::new(),
        };
        Self {
            qdiscs: vec![root],
            ..Self::default()
        }
    }

    /// Whether this is its root.
    pub(crate) fn has_root(&self, root: &RootId) -> bool {
        self.qdiscs
            .iter()
            .any(|q| q.parent == ROOT && q.handle == root.handle.bits() && q.kind == root.kind)
    }

    fn of(socket: &mut Socket, Device { link, entries, .. }: &Device) -> Result<Self, Error> {
        // A root with handle 0 is a default of the kernel, and so is everything below it.
        let Some(root) = entries.root() else {
            return Ok(Self::default());
        };
        let qdiscs: Vec<&Entry> = entries.qdiscs.iter().filter(|q| q.handle != 0).collect();
        for qdisc in &qdiscs {
            let kind = qdisc.kind();
            let red = kind == "sfq" && sfq::has_red(qdisc.options());
            let restorable = RESTORABLE.contains(&kind.as_str()) && !red && !qdisc.has_shared_block();
            if !restorable || !has_exact_table(qdisc) {
                let what = format!("the qdisc \"{kind} {}\"", Handle::from_bits(qdisc.handle));
                return Err(in_the_way(link, what));
            }
        }
        for parent in qdiscs.iter().copied().chain(&entries.classes) {
            let filters = if parent.handle == root.handle {
                entries.root_filters.clone()
            } else {
                tc::filters(socket, link.index, parent.handle)
                    .map_err(Error::kernel(&link.name, "list the filters"))?
            };
            let strange = |entry: &Entry| {
                filter::decode(entry).is_some_and(|filter| matches!(filter.rule, filter::Rule::Other(_)))
            };
            if filters.iter().any(strange) || (parent.handle != root.handle && !filters.is_empty()) {
                let what = format!(
                    "\"{} {}\" with filters",
                    parent.kind(),
                    Handle::from_bits(parent.handle)
                );
                return Err(in_the_way(link, what));
            }
        }
        Ok(Self {
            qdiscs: qdiscs.into_iter().map(RawQdisc::of).collect(),
            classes: entries.classes.iter().map(RawQdisc::of).collect(),
            filters: RawFilter::all(&entries.root_filters),
        })
    }

    pub(crate) fn restore(&self, socket: &mut Socket, device: &str) -> Result<(), Error> {
        let (link, entries) = existing(socket, device)?;
        self.restore_from(socket, &link, &entries)
    }

    fn restore_from(&self, socket: &mut Socket, link: &Link, entries: &Entries) -> Result<(), Error> {
        let now = Self {
            qdiscs: entries
                .root()
                .map_or_else(Vec::new, |_| entries.qdiscs.iter().map(RawQdisc::of).collect()),
            classes: entries.classes.iter().map(RawQdisc::of).collect(),
            filters: RawFilter::all(&entries.root_filters),
        };
        if now == *self || (self.has_shape_of(&now) && self.change_back(socket, link).is_ok()) {
            return Ok(());
        }
        if let Some(root) = entries.root() {
            tc::delete_qdisc(socket, link.index, root.handle, ROOT)
                .map_err(Error::kernel(&link.name, "remove the root qdisc"))?;
        }
        self.build(socket, link)
    }

    /// Whether both have the same kinds and handles in the same places. Then parameters can be changed back in place, under
    /// running traffic.
    fn has_shape_of(&self, other: &Self) -> bool {
        let places = |list: &[RawQdisc]| -> Vec<_> {
            list.iter()
                .map(|r| (r.parent, r.handle, r.kind.clone()))
                .collect()
        };
        !self.qdiscs.is_empty()
            && places(&self.qdiscs) == places(&other.qdiscs)
            && places(&self.classes) == places(&other.classes)
            && self.filters == other.filters
            // SFQ has no change operation.
            && self.qdiscs.iter().zip(&other.qdiscs).all(|(a, b)| a.kind != "sfq" || a == b)
    }

    fn change_back(&self, socket: &mut Socket, link: &Link) -> Result<(), Error> {
        for qdisc in &self.qdiscs {
            let options = match qdisc.kind.as_str() {
                // The parameters of HTB's root cannot be changed, so they are still the same.
                "htb" => Vec::new(),
                "fq_codel" => fq_codel::without_flows(&qdisc.recreate_options()),
                _ => qdisc.recreate_options(),
            };
            if qdisc.kind == "sfq" {
                continue;
            }
            let new = qdisc.request(link, &options);
            new.change(socket)
                .map_err(Error::kernel(&link.name, format!("change back {}", qdisc.kind)))?;
        }
        self.classes
            .iter()
            .try_for_each(|class| class.put_class(socket, link))
    }

    fn build(&self, socket: &mut Socket, link: &Link) -> Result<(), Error> {
        let (roots, leaves): (Vec<_>, Vec<_>) = self.qdiscs.iter().partition(|q| q.parent == ROOT);
        let create = |socket: &mut Socket, qdisc: &RawQdisc| {
            let options = qdisc.recreate_options();
            let new = qdisc.request(link, &options);
            new.create(socket)
                .map_err(Error::kernel(&link.name, format!("add back {}", qdisc.kind)))
        };
        roots.into_iter().try_for_each(|root| create(socket, root))?;
        self.classes
            .iter()
            .try_for_each(|class| class.put_class(socket, link))?;
        leaves.into_iter().try_for_each(|leaf| create(socket, leaf))?;
        self.filters
            .iter()
            .try_for_each(|filter| filter.create(socket, link))
    }
}

impl RawFilter {
    fn all(entries: &[Entry]) -> Vec<Self> {
        let mut filters: Vec<_> = entries
            .iter()
            .filter(|entry| filter::decode(entry).is_some())
            .map(|entry| {
                let kind = entry.kind();
                Self {
                    preference: entry.preference(),
                    protocol: entry.protocol(),
                    parent: entry.parent,
                    handle: if kind == "fw" { entry.handle } else { 0 },
                    options: filter::recreate_options(&kind, entry.options()),
                    kind,
                }
            })
            .collect();
        filters.sort();
        filters
    }

    fn create(&self, socket: &mut Socket, link: &Link) -> Result<(), Error> {
        let new = NewFilter {
            device: link.index,
            parent: self.parent,
            preference: self.preference,
            protocol: self.protocol,
            handle: self.handle,
            kind: &self.kind,
            options: &self.options,
        };
        new.create(socket)
            .map_err(Error::kernel(&link.name, "add back a filter"))
    }
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
    fn of(socket: &mut Socket, observed: &Observed, ifb: &str) -> Result<Self, Error> {
        let device = &observed.device;
        let qdisc = match &device.entries.ingress_qdisc {
            None => None,
            Some(found) => {
                let kind = found.kind();
                let redirect = Redirect::of(socket, &device.entries)?;
                // A redirect to a device that is gone loses all packets; it is not recorded.
                let is_known = redirect.is_some() || device.entries.redirect().is_some();
                if found.has_shared_block() || (!device.entries.ingress_filters.is_empty() && !is_known) {
                    return Err(in_the_way(&device.link, format!("the {kind} hook with filters")));
                }
                Some(IngressQdisc { kind, redirect })
            }
        };
        let ifb = match &observed.ifb {
            None => None,
            Some(there) if there.link.kind.as_deref() != Some("ifb") => {
                return Err(in_the_way(
                    &device.link,
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

    /// Whether there was no IFB. The one that is there now was then made for shaping, and is removed with it.
    pub(crate) fn has_no_ifb(&self) -> bool {
        self.ifb.is_none()
    }

    /// This state without the IFB, which is then removed when shaping stops.
    pub(crate) fn without_ifb(self) -> Self {
        Self { ifb: None, ..self }
    }

    pub(crate) fn restore(&self, socket: &mut Socket, interface: &str, ifb: &str) -> Result<(), Error> {
        let (link, entries) = existing(socket, interface)?;
        self.restore_from(socket, &link, &entries, ifb)
    }

    fn restore_from(
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

impl RawQdisc {
    fn of(entry: &Entry) -> Self {
        let stab = entry.stab().and_then(size_table::decode_stab);
        let kind = entry.kind();
        let options = match kind.as_str() {
            "sfq" => sfq::without_counters(entry.options()),
            _ => entry.options().to_vec(),
        };
        Self {
            handle: entry.handle,
            parent: entry.parent,
            kind,
            options,
            stab: stab.map(|stab| size_table::encode(&stab)).unwrap_or_default(),
        }
    }

    /// Options with which the kernel makes a qdisc that it reports with the recorded options.
    fn recreate_options(&self) -> Vec<u8> {
        match self.kind.as_str() {
            "htb" => htb::recreate_root_options(&self.options),
            "codel" => fq_codel::recreate_options(&self.options, &codel::TIMES),
            "fq_codel" => fq_codel::recreate_options(&self.options, &fq_codel::TIMES),
            "sfq" => sfq::recreate_options(&self.options),
            _ => self.options.clone(),
        }
    }

    fn request<'a>(&'a self, link: &Link, options: &'a [u8]) -> NewQdisc<'a> {
        NewQdisc {
            device: link.index,
            parent: self.parent,
            handle: self.handle,
            kind: &self.kind,
            options,
            stab: (!self.stab.is_empty()).then_some(&self.stab),
        }
    }

    fn put_class(&self, socket: &mut Socket, link: &Link) -> Result<(), Error> {
        tc::put_class(
            socket,
            link.index,
            self.parent,
            self.handle,
            &self.kind,
            &self.options,
        )
        .map_err(Error::kernel(
            &link.name,
            format!("add back the class {}", Handle::from_bits(self.handle)),
        ))
    }
}

/// The device of this name, and what the kernel lists about it.
fn existing(socket: &mut Socket, device: &str) -> Result<(Link, Entries), Error> {
    let link = observe::existing(socket, device)?;
    let entries = Entries::read(socket, &link)?;
    Ok((link, entries))
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

/// Whether the size table can be computed again from the parameters that the kernel reports.
fn has_exact_table(qdisc: &Entry) -> bool {
    qdisc.stab().is_none_or(|stab| {
        let again = size_table::decode_stab(stab).map(|decoded| size_table::encode(&decoded));
        again.is_some_and(|again| size_table::base(&again) == size_table::base(stab))
    })
}

fn in_the_way(link: &Link, what: String) -> Error {
    Error::InTheWay {
        interface: link.name.clone(),
        what,
        remedy: "Remove it with tc first, or leave this direction unshaped.",
    }
}

/// Bytes as hexadecimal digits in the state file, to be compared with the output of `strace` or a capture of netlink.
mod hexadecimal {
    use std::fmt::Write;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        let text = bytes.iter().fold(String::new(), |mut text, byte| {
            // Writing to a String does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        serializer.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect();
        match digits {
            Some(digits) if digits.len() % 2 == 0 => {
                Ok(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
            }
            _ => Err(D::Error::custom("expected pairs of hexadecimal digits")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_the_same_after_it_was_stored() {
        let root = RawQdisc {
            handle: 0x1_0000,
            parent: ROOT,
            kind: "tbf".to_owned(),
            options: vec![0, 0xff, 7],
            stab: Vec::new(),
        };
        let redirect = Redirect {
            preference: 10,
            target: "ifb4eth0".to_owned(),
        };
        let snapshot = Snapshot {
            egress: Some(QdiscTree {
                qdiscs: vec![root],
                classes: Vec::new(),
                filters: Vec::new(),
            }),
            ingress: Some(IngressState {
                qdisc: Some(IngressQdisc {
                    kind: "ingress".to_owned(),
                    redirect: Some(redirect),
                }),
                ifb: Some(Ifb {
                    up: true,
                    queues: QdiscTree::default(),
                }),
            }),
        };
        let text = serde_json::to_string(&snapshot).unwrap();
        assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), snapshot);
        assert!(serde_json::from_str::<Snapshot>(&text.replace("00ff07", "00ff0")).is_err());
    }
}

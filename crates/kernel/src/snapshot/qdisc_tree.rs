//! The qdiscs, classes and filters of a device, as the kernel reported them.

use serde::{Deserialize, Serialize};
use sqm_core::handle::Handle;

use super::hexadecimal;
use crate::error::Error;
use crate::netlink::link::Link;
use crate::netlink::socket::Socket;
use crate::netlink::tc::{self, Entry, NewFilter, NewQdisc, ROOT};
use crate::netlink::{codel, filter, fq_codel, htb, sfq, size_table};
use crate::observe::{self, Device, Entries, RootId};

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

/// The qdiscs, classes and filters of a device. Empty for the kernel's default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QdiscTree {
    qdiscs: Vec<RawQdisc>,
    classes: Vec<RawQdisc>,
    /// The filters on the root.
    #[serde(default)]
    filters: Vec<RawFilter>,
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

    /// True if this is its root.
    pub(crate) fn has_root(&self, root: &RootId) -> bool {
        self.qdiscs
            .iter()
            .any(|q| q.parent == ROOT && q.handle == root.handle.bits() && q.kind == root.kind)
    }

    /// Reads the queues of a device. Fails if they could not be restored.
    pub(super) fn of(socket: &mut Socket, Device { link, entries, .. }: &Device) -> Result<Self, Error> {
        // A root with handle 0 is a default of the kernel, and so is everything below it.
        let Some(root) = entries.root() else {
            return Ok(Self::default());
        };
        let qdiscs: Vec<&Entry> = entries.qdiscs.iter().filter(|q| q.handle != 0).collect();
        for qdisc in &qdiscs {
            require_restorable(link, qdisc)?;
        }
        require_plain_filters(link, root, &entries.root_filters)?;
        for parent in qdiscs.iter().copied().chain(&entries.classes) {
            if parent.handle != root.handle {
                let filters = tc::filters(socket, link.index, parent.handle)
                    .map_err(Error::kernel(&link.name, "list the filters"))?;
                require_no_filters(link, parent, &filters)?;
            }
        }
        Ok(Self {
            qdiscs: qdiscs.into_iter().map(RawQdisc::of).collect(),
            classes: entries.classes.iter().map(RawQdisc::of).collect(),
            filters: RawFilter::all(&entries.root_filters),
        })
    }

    pub(crate) fn restore(&self, socket: &mut Socket, device: &str) -> Result<(), Error> {
        let (link, entries) = observe::entries_of(socket, device)?;
        self.restore_from(socket, &link, &entries)
    }

    pub(super) fn restore_from(
        &self,
        socket: &mut Socket,
        link: &Link,
        entries: &Entries,
    ) -> Result<(), Error> {
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

    /// True if both have the same kinds and handles in the same places. Then parameters can be changed back in place, under
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

/// Fails if the qdisc could not be made again from what the kernel reports about it.
fn require_restorable(link: &Link, qdisc: &Entry) -> Result<(), Error> {
    let kind = qdisc.kind();
    let has_red = kind == "sfq" && sfq::has_red(qdisc.options());
    let is_known = RESTORABLE.contains(&kind.as_str()) && !has_red && !qdisc.has_shared_block();
    if is_known && has_exact_table(qdisc) {
        return Ok(());
    }
    let what = format!("the qdisc \"{kind} {}\"", Handle::from_bits(qdisc.handle));
    Err(Error::queues_in_the_way(&link.name, what))
}

/// Fails if the root has a filter that could not be made again.
fn require_plain_filters(link: &Link, root: &Entry, filters: &[Entry]) -> Result<(), Error> {
    let is_other = |entry: &Entry| {
        filter::decode(entry).is_some_and(|filter| matches!(filter.rule, filter::Rule::Other(_)))
    };
    if filters.iter().any(is_other) {
        return Err(filters_in_the_way(link, root));
    }
    Ok(())
}

/// Fails if there are filters on another qdisc than the root, or on a class: those are not recorded.
fn require_no_filters(link: &Link, parent: &Entry, filters: &[Entry]) -> Result<(), Error> {
    if filters.is_empty() {
        return Ok(());
    }
    Err(filters_in_the_way(link, parent))
}

fn filters_in_the_way(link: &Link, parent: &Entry) -> Error {
    let handle = Handle::from_bits(parent.handle);
    Error::queues_in_the_way(&link.name, format!("\"{} {handle}\" with filters", parent.kind()))
}

/// True if the size table can be computed again from the parameters that the kernel reports.
fn has_exact_table(qdisc: &Entry) -> bool {
    qdisc.stab().is_none_or(|stab| {
        let again = size_table::decode_stab(stab).map(|decoded| size_table::encode(&decoded));
        again.is_some_and(|again| size_table::base(&again) == size_table::base(stab))
    })
}

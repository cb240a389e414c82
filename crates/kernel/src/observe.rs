//! Reads what the kernel holds, in the terms of a plan, with counters. Needs no privileges.

use std::fmt;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sqm_core::spec::{Class, Qdisc, Stab};
use sqm_plan::plan::{Handle, Plan};

use crate::error::Error;
use crate::firewall;
use crate::netlink::link::{self, Link};
use crate::netlink::socket::{NetlinkError, Socket};
use crate::netlink::statistics::{
    self, CakeStatistics, FqCodelStatistics, Statistics, decode_cake, decode_fq_codel, decode_statistics,
};
use crate::netlink::tc::{self, Entry, INGRESS, INGRESS_HANDLE, ROOT};
use crate::netlink::{filter, options, redirect, size_table};

pub use statistics::TinStatistics;

/// A device with its qdiscs, classes and filters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The device itself.
    pub link: Link,
    /// Its qdiscs, root first; the one at the ingress hook is not among them.
    pub qdiscs: Vec<ObservedQdisc>,
    /// Its classes.
    pub classes: Vec<ObservedClass>,
    /// The filters on its root, in the order in which the kernel tries them.
    pub filters: Vec<filter::Filter>,
    /// Kind of the qdisc at the ingress hook.
    pub ingress_qdisc: Option<String>,
    /// The device to which all arriving packets are redirected.
    pub redirect: Option<String>,
    /// Filters of other programs on arriving packets.
    pub other_filters: Vec<ArrivalFilter>,
    /// The entries from which all of this was decoded.
    pub(crate) entries: Entries,
}

/// A filter of another program on arriving packets, such as one that restores DSCP (`ctinfo`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrivalFilter {
    /// The kernel tries filters in the order of their preferences.
    pub preference: u16,
    /// Its kind, such as `matchall`.
    pub kind: String,
    /// True if it comes after our redirect, which takes all packets: this filter never sees one.
    pub is_unreachable: bool,
    /// Index of the device to which it redirects packets.
    pub target: Option<u32>,
}

impl fmt::Display for ArrivalFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with preference {}", self.kind, self.preference)?;
        if self.is_unreachable {
            f.write_str(", which never sees a packet: the redirect comes before it")?;
        }
        Ok(())
    }
}

impl Device {
    /// The filters of other programs on arriving packets in words, if there are any: sqm leaves them alone.
    pub fn other_filters_note(&self) -> Option<String> {
        let all: Vec<String> = self.other_filters.iter().map(ToString::to_string).collect();
        (!all.is_empty()).then(|| {
            format!(
                "{}: filters of another program on arriving packets stay: {}",
                self.link.name,
                all.join("; ")
            )
        })
    }

    /// The root qdisc, unless it is the kernel's own default.
    pub fn root(&self) -> Option<&ObservedQdisc> {
        self.qdiscs
            .iter()
            .find(|q| q.parent.is_none() && q.handle.major != 0)
    }

    /// Kind and handle of the root qdisc, unless it is the kernel's own default.
    pub fn root_id(&self) -> Option<RootId> {
        self.root().map(|root| RootId {
            kind: root.kind.clone(),
            handle: root.handle,
        })
    }
}

/// A qdisc as the kernel reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedQdisc {
    /// Its parent; `None` for the root.
    pub parent: Option<Handle>,
    /// Its handle; 0 for one that the kernel made by default.
    pub handle: Handle,
    /// Its kind.
    pub kind: String,
    /// Its parameters, if it is of a kind that plans use.
    pub qdisc: Option<Qdisc>,
    /// Its size table.
    pub stab: Option<Stab>,
    /// Its counters.
    pub statistics: Statistics,
    /// Counters that only its kind has.
    pub detail: Detail,
}

/// Counters that only one kind of qdisc has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detail {
    /// None.
    None,
    /// CAKE's.
    Cake(CakeStatistics),
    /// fq_codel's.
    FqCodel(FqCodelStatistics),
}

/// A class as the kernel reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedClass {
    /// The parent class; for a class at the top, the root qdisc.
    pub parent: Handle,
    /// Its handle.
    pub id: Handle,
    /// Its parameters.
    pub class: Class,
    /// Its counters.
    pub statistics: Statistics,
}

/// Everything that a plan is about, as the kernel holds it.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The shaped device, the plan's IFB, and the device that arriving packets are redirected to, if it is another.
    pub(crate) links: Vec<Link>,
    /// The shaped device.
    pub device: Device,
    /// The plan's IFB, if there is one.
    pub ifb: Option<Device>,
    /// True if the firewall table holds the plan's rules; `None` if the plan has none.
    pub firewall: Option<bool>,
}

impl Observed {
    /// Reads it from the kernel. Needs no privileges, unless the plan has firewall rules.
    pub fn read(socket: &mut Socket, plan: &Plan) -> Result<Self, Error> {
        let mut observed = Self::queues(socket, &plan.interface, &plan.ifb())?;
        if let Some(firewall) = &plan.firewall {
            observed.firewall = Some(firewall::holds(firewall)?);
        }
        Ok(observed)
    }

    /// Reads the queues of a device and its IFB, and not the firewall.
    pub(crate) fn queues(socket: &mut Socket, interface: &str, ifb: &str) -> Result<Self, Error> {
        let link = existing(socket, interface)?;
        let ifb = link_named(socket, ifb)?;
        let entries = Entries::read(socket, &link)?;
        let mut links: Vec<Link> = ifb.iter().chain([&link]).cloned().collect();
        if let Some((_, index)) = entries.redirect()
            && links.iter().all(|link| link.index != index)
        {
            links.extend(link_numbered(socket, index)?);
        }
        let device = decode_device(entries, &links, &link);
        let ifb = ifb.map(|ifb| self::device(socket, &links, &ifb)).transpose()?;
        Ok(Self {
            links,
            device,
            ifb,
            firewall: None,
        })
    }
}

/// Kind and handle of a root qdisc, which identify it. Stored in records as `["cake", 65536]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(String, u32)", into = "(String, u32)")]
pub struct RootId {
    /// Its kind.
    pub kind: String,
    /// Its handle.
    pub handle: Handle,
}

impl From<(String, u32)> for RootId {
    fn from((kind, handle): (String, u32)) -> Self {
        Self {
            kind,
            handle: Handle::from_bits(handle),
        }
    }
}

impl From<RootId> for (String, u32) {
    fn from(RootId { kind, handle }: RootId) -> Self {
        (kind, handle.bits())
    }
}

impl fmt::Display for RootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.handle)
    }
}

/// All devices of the network namespace.
pub fn links(socket: &mut Socket) -> Result<Vec<Link>, Error> {
    link::list(socket).map_err(Error::kernel("network", "list the devices"))
}

/// The device of this name, if there is one. Only this device is requested: a machine may have thousands.
pub(crate) fn link_named(socket: &mut Socket, name: &str) -> Result<Option<Link>, Error> {
    let link = unless_absent(link::get(socket, name)).map_err(Error::kernel(name, "look for the device"))?;
    // The kernel also finds devices by alternative names, which plans do not use.
    Ok(link.filter(|link| link.name == name))
}

/// The device with this index, if there is one.
pub(crate) fn link_numbered(socket: &mut Socket, index: u32) -> Result<Option<Link>, Error> {
    // Indices start at 1; the kernel reports 0 as the target of a redirect whose device is gone.
    if index == 0 {
        return Ok(None);
    }
    unless_absent(link::get_by_index(socket, index))
        .map_err(Error::kernel(&format!("device {index}"), "look for the device"))
}

/// The device of this name, or an error that names the most similar one.
pub(crate) fn existing(socket: &mut Socket, name: &str) -> Result<Link, Error> {
    match link_named(socket, name)? {
        Some(link) => Ok(link),
        None => find(&links(socket)?, name).cloned(),
    }
}

/// The device of this name, and what the kernel lists about it.
pub(crate) fn entries_of(socket: &mut Socket, device: &str) -> Result<(Link, Entries), Error> {
    let link = existing(socket, device)?;
    let entries = Entries::read(socket, &link)?;
    Ok((link, entries))
}

fn unless_absent(answer: Result<Link, NetlinkError>) -> Result<Option<Link>, NetlinkError> {
    match answer {
        Ok(link) => Ok(Some(link)),
        // ERANGE: the name is longer than any device's.
        Err(error) if error.is(Errno::NODEV) || error.is(Errno::RANGE) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The names of devices other than `device` whose arriving packets a filter redirects to `target`.
pub fn others_redirecting_to(
    socket: &mut Socket,
    links: &[Link],
    target: &str,
    device: &str,
) -> Result<Vec<String>, Error> {
    let context = |what| Error::kernel(target, what);
    let Some(target) = links.iter().find(|link| link.name == target) else {
        return Ok(Vec::new());
    };
    let mut names = Vec::new();
    for qdisc in tc::ingress_qdiscs(socket).map_err(context("list the ingress qdiscs"))? {
        let link = links.iter().find(|link| link.index == qdisc.device);
        let Some(link) = link.filter(|link| link.name != device) else {
            continue;
        };
        let parent = ingress_parent(&qdisc.kind());
        let filters = tc::filters(socket, link.index, parent).map_err(context("list the filters"))?;
        let leads_there = |filter: &Entry| {
            redirect::decode_any_redirect(&filter.kind(), filter.options()) == Some(target.index)
        };
        if filters.iter().any(leads_there) {
            names.push(link.name.clone());
        }
    }
    Ok(names)
}

/// The device of this name among `links`, or an error that names the most similar one.
pub fn find<'a>(links: &'a [Link], name: &str) -> Result<&'a Link, Error> {
    links
        .iter()
        .find(|link| link.name == name)
        .ok_or_else(|| Error::NoInterface {
            name: name.to_owned(),
            nearest: sqm_core::nearest::nearest(name, links.iter().map(|l| l.name.as_str()))
                .map(str::to_owned),
            existing: links.iter().map(|l| l.name.clone()).collect(),
        })
}

/// Reads the qdiscs, classes and filters of a device. `links` must hold the device to which arriving packets are redirected.
pub fn device(socket: &mut Socket, links: &[Link], link: &Link) -> Result<Device, Error> {
    let entries = Entries::read(socket, link)?;
    Ok(decode_device(entries, links, link))
}

/// Decodes the entries that were read on `link`. `links` must hold the device to which arriving packets are redirected.
pub(crate) fn decode_device(entries: Entries, links: &[Link], link: &Link) -> Device {
    let redirect = entries
        .redirect()
        .and_then(|(_, index)| links.iter().find(|l| l.index == index));
    let mut qdiscs: Vec<_> = entries.qdiscs.iter().map(decode_qdisc).collect();
    // cake_mq has no counters itself: those of the CAKEs below it are added up.
    if let (Some(root), false) = (qdiscs.first_mut(), entries.cakes.is_empty()) {
        let each = entries.cakes.iter().map(|cake| decode_cake(cake.statistics()));
        root.detail = each
            .reduce(CakeStatistics::combined)
            .map_or(Detail::None, Detail::Cake);
    }
    Device {
        link: link.clone(),
        qdiscs,
        classes: entries.classes.iter().filter_map(decode_class).collect(),
        filters: entries.filters(),
        ingress_qdisc: entries.ingress_qdisc.as_ref().map(Entry::kind),
        redirect: redirect.map(|l| l.name.clone()),
        other_filters: entries.arrival_filters(),
        entries,
    }
}

/// The kernel's lists of a device, undecoded: a snapshot is made from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entries {
    /// Root first, parents before children.
    pub(crate) qdiscs: Vec<Entry>,
    /// The CAKEs below a cake_mq, which makes one for each transmit queue and allows no other children.
    cakes: Vec<Entry>,
    /// Parents before children.
    pub(crate) classes: Vec<Entry>,
    /// The filters on the root, and what the kernel lists beside them.
    pub(crate) root_filters: Vec<Entry>,
    /// The qdisc at the ingress hook.
    pub(crate) ingress_qdisc: Option<Entry>,
    /// The filters on it that arriving packets pass, in the order in which the kernel tries them.
    pub(crate) ingress_filters: Vec<Entry>,
}

impl Entries {
    pub(crate) fn read(socket: &mut Socket, link: &Link) -> Result<Self, Error> {
        let context = |what| Error::kernel(&link.name, what);
        let all = tc::qdiscs(socket, link.index).map_err(context("list the qdiscs"))?;
        let (mut ingress, mut qdiscs): (Vec<_>, Vec<_>) = all.into_iter().partition(|q| q.parent == INGRESS);
        qdiscs.sort_by_key(|q| q.parent != ROOT);
        let cakes = match qdiscs.first() {
            Some(root) if root.kind() == "cake_mq" => qdiscs.split_off(1),
            _ => Vec::new(),
        };
        // Only the classes of kinds that plans use are listed: others have a class for each of their queues.
        let of_plans = |entry: &Entry| CLASSFUL.contains(&entry.kind().as_str());
        let mut classes = Vec::new();
        let mut root_filters = Vec::new();
        if qdiscs.iter().any(of_plans) {
            classes = tc::classes(socket, link.index).map_err(context("list the classes"))?;
            // HFSC also lists its root as a class.
            classes.retain(|c| of_plans(c) && c.handle & 0xffff != 0);
            parents_first(&mut classes);
        }
        if let Some(root) = qdiscs.first().filter(|root| root.handle != 0) {
            root_filters =
                tc::filters(socket, link.index, root.handle).map_err(context("list the filters"))?;
        }
        let ingress_qdisc = ingress.pop();
        let mut ingress_filters = Vec::new();
        if let Some(qdisc) = &ingress_qdisc {
            let parent = ingress_parent(&qdisc.kind());
            ingress_filters = tc::filters(socket, link.index, parent).map_err(context("list the filters"))?;
            ingress_filters.retain(is_filter);
            ingress_filters.sort_by_key(Entry::preference);
        }
        Ok(Self {
            qdiscs,
            cakes,
            classes,
            root_filters,
            ingress_qdisc,
            ingress_filters,
        })
    }

    /// The filters on a root with classes, in the order in which the kernel tries them. Plans have filters on no other root.
    pub(crate) fn filters(&self) -> Vec<filter::Filter> {
        let has_classes = |root: &Entry| CLASSFUL.contains(&root.kind().as_str());
        if !self.root().is_some_and(has_classes) {
            return Vec::new();
        }
        let mut filters: Vec<_> = self.root_filters.iter().filter_map(filter::decode).collect();
        filters.sort();
        filters
    }

    /// The root qdisc, unless it is the kernel's own default.
    pub(crate) fn root(&self) -> Option<&Entry> {
        self.qdiscs.first().filter(|q| q.parent == ROOT && q.handle != 0)
    }

    /// Preference and target of the first filter that redirects all packets and does nothing else, as ours does.
    pub(crate) fn redirect(&self) -> Option<(u16, u32)> {
        let mut redirects = self.ingress_filters.iter();
        redirects.find_map(|filter| Some((filter.preference(), redirects_all_to(filter)?)))
    }

    /// The filters on arriving packets other than redirects of all packets.
    fn arrival_filters(&self) -> Vec<ArrivalFilter> {
        let redirect = self.redirect();
        let others = self.ingress_filters.iter();
        others
            .filter(|filter| redirects_all_to(filter).is_none())
            .map(|filter| ArrivalFilter {
                preference: filter.preference(),
                kind: filter.kind(),
                is_unreachable: redirect.is_some_and(|(preference, _)| filter.preference() > preference),
                target: redirect::decode_any_redirect(&filter.kind(), filter.options()),
            })
            .collect()
    }
}

/// The parent of filters on arriving packets under a qdisc at the ingress hook. `clsact` has another one for filters on
/// leaving packets.
pub(crate) fn ingress_parent(kind: &str) -> u32 {
    match kind {
        // `TC_H_MIN_INGRESS`.
        "clsact" => INGRESS_HANDLE | 0xfff2,
        _ => INGRESS_HANDLE,
    }
}

/// The index of the device to which this filter redirects all packets, if it does nothing else.
pub(crate) fn redirects_all_to(filter: &Entry) -> Option<u32> {
    (filter.kind() == redirect::KIND && filter.protocol() == tc::PROTOCOL_ALL)
        .then(|| redirect::decode_redirect(filter.options()))?
}

/// The kinds of qdisc whose classes plans use.
const CLASSFUL: [&str; 2] = ["htb", "hfsc"];

/// True if an entry is a filter. For each filter the kernel also lists an entry of its protocol, and its hash tables.
fn is_filter(entry: &Entry) -> bool {
    if entry.kind() == redirect::KIND {
        redirect::is_filter(entry.options())
    } else {
        entry.handle != 0
    }
}

/// Sorts classes so that each comes after its parent, because a class can only be made below one that exists. The kernel
/// lists them in the order of a hash table.
fn parents_first(classes: &mut [Entry]) {
    let all = classes.to_vec();
    let depth = |class: &Entry| {
        let mut parent = class.parent;
        // `TC_HTB_MAXDEPTH`: HTB has eight levels.
        (0..8)
            .take_while(|_| {
                let above = all.iter().find(|c| c.handle == parent);
                above.inspect(|c| parent = c.parent).is_some()
            })
            .count()
    };
    let mut keyed: Vec<_> = classes
        .iter()
        .map(|c| ((depth(c), c.handle), c.clone()))
        .collect();
    keyed.sort_by_key(|(key, _)| *key);
    for (slot, (_, class)) in classes.iter_mut().zip(keyed) {
        *slot = class;
    }
}

/// Decodes a qdisc.
pub fn decode_qdisc(entry: &Entry) -> ObservedQdisc {
    let (kind, parameters) = (entry.kind(), entry.options());
    let qdisc = options::decode(&kind, parameters);
    let detail = match kind.as_str() {
        "cake" | "cake_mq" => Detail::Cake(decode_cake(entry.statistics())),
        "fq_codel" => decode_fq_codel(entry.statistics()).map_or(Detail::None, Detail::FqCodel),
        _ => Detail::None,
    };
    ObservedQdisc {
        parent: (entry.parent != ROOT).then(|| Handle::from_bits(entry.parent)),
        handle: Handle::from_bits(entry.handle),
        kind,
        qdisc,
        stab: entry.stab().and_then(size_table::decode_stab),
        statistics: decode_statistics(entry.statistics()),
        detail,
    }
}

/// Decodes a class; `None` for a kind that plans do not use.
pub fn decode_class(entry: &Entry) -> Option<ObservedClass> {
    let id = Handle::from_bits(entry.handle);
    // The kernel reports ROOT as the parent of a class at the top; a plan, like `tc`, names the root qdisc.
    let parent = if entry.parent == ROOT {
        Handle::new(id.major, 0)
    } else {
        Handle::from_bits(entry.parent)
    };
    let class = options::decode_class(&entry.kind(), entry.options())?;
    Some(ObservedClass {
        parent,
        id,
        class,
        statistics: decode_statistics(entry.statistics()),
    })
}

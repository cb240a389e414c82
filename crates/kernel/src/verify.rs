//! The plan against the kernel's answer, parameter by parameter.
//!
//! Only the kernel's own rounding is allowed for, computed by the same functions that encode a plan
//! ([`options::held`](crate::netlink::options::held)); any other deviation is a difference.

use std::fmt;

use serde::Serialize;
use sqm_core::spec::{Class, HtbClass, Qdisc, Stab};
use sqm_core::units::{Bytes, Rate};
use sqm_plan::plan::{Plan, PlannedClass, Tree};

use crate::error::Error;
use crate::netlink::link::Link;
use crate::netlink::socket::Socket;
use crate::netlink::{filter, hfsc, htb, nftables, options, size_table};
use crate::observe::{self, Device, Entries, ObservedQdisc};

/// Longest link header that a device adds to its MTU when the kernel chooses fq_codel's quantum, bytes.
const LINK_HEADER_MAX: u32 = 64;

/// Something that is not as planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The object: device and number.
    pub at: String,
    /// What the plan says.
    pub planned: String,
    /// What the kernel says.
    pub found: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} planned {}, found {}", self.at, self.planned, self.found)
    }
}

/// Every difference between a plan and what the kernel holds; none if all is as planned.
///
/// A direction that the plan leaves alone is not looked at, except that a leftover redirect to the plan's IFB is a
/// difference. Needs no privileges, unless the plan has firewall rules: those the kernel shows to root only.
pub fn verify(socket: &mut Socket, plan: &Plan) -> Result<Vec<Difference>, Error> {
    Ok(compare(plan, &Observed::read(socket, plan)?))
}

/// All that a plan is about, as the kernel holds it.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The shaped device, the plan's IFB, and what arriving packets are sent to if that is another.
    pub(crate) links: Vec<Link>,
    /// The shaped device.
    pub device: Device,
    /// The plan's IFB.
    pub ifb: Option<Device>,
    /// Whether the plan's firewall rules stand as planned; `None` if it has none.
    pub firewall: Option<bool>,
}

impl Observed {
    /// Reads it.
    pub fn read(socket: &mut Socket, plan: &Plan) -> Result<Self, Error> {
        let mut observed = Self::queues(socket, &plan.interface, &plan.ifb())?;
        if let Some(firewall) = &plan.firewall {
            let mut socket = firewall_socket(&plan.interface)?;
            let holds = nftables::holds(&mut socket, firewall);
            observed.firewall =
                Some(holds.map_err(Error::firewall(&plan.interface, "list the firewall rules"))?);
        }
        Ok(observed)
    }

    /// Reads the queues of a device and its IFB.
    pub(crate) fn queues(socket: &mut Socket, interface: &str, ifb: &str) -> Result<Self, Error> {
        let link = observe::existing(socket, interface)?;
        let ifb = observe::link_named(socket, ifb)?;
        let entries = Entries::read(socket, &link)?;
        let mut links: Vec<Link> = ifb.iter().chain([&link]).cloned().collect();
        if let Some((_, index)) = entries.redirect()
            && links.iter().all(|link| link.index != index)
        {
            links.extend(observe::link_numbered(socket, index)?);
        }
        let device = observe::decode_device(entries, &links, &link);
        let ifb = ifb.map(|ifb| observe::device(socket, &links, &ifb)).transpose()?;
        Ok(Self {
            links,
            device,
            ifb,
            firewall: None,
        })
    }
}

/// A socket to the firewall.
pub(crate) fn firewall_socket(interface: &str) -> Result<Socket, Error> {
    Socket::of_firewall().map_err(|error| Error::firewall(interface, "reach the firewall")(error.into()))
}

/// The same for observations made before.
pub fn compare(plan: &Plan, observed: &Observed) -> Vec<Difference> {
    let Observed {
        device,
        ifb,
        firewall,
        ..
    } = observed;
    let mut differences = Differences(Vec::new());
    if let Some(tree) = &plan.egress {
        differences.tree(tree, device);
    }
    let ifb_name = plan.ifb();
    let redirect = device.redirect.as_deref();
    let at = format!("{} ingress", plan.interface);
    match (&plan.ingress, ifb) {
        (None, _) if redirect == Some(&ifb_name) => {
            differences.add(&at, "no redirect", format!("redirect to {ifb_name}"));
        }
        (None, _) => {}
        (Some(tree), Some(ifb)) => {
            if !ifb.link.up {
                differences.add(&ifb_name, "up", "down");
            }
            differences.tree(tree, ifb);
        }
        (Some(_), None) => differences.add(&ifb_name, "an ifb device", "no such device"),
    }
    if plan.ingress.is_some() && redirect != Some(&ifb_name) {
        let found = redirect.map_or_else(|| "no redirect".to_owned(), |name| format!("redirect to {name}"));
        differences.add(&at, format!("redirect to {ifb_name}"), found);
    }
    if let (Some(planned), Some(false)) = (&plan.firewall, firewall) {
        let at = format!("{} firewall", plan.interface);
        let rules = planned.rules().len();
        differences.add(
            &at,
            format!("table {} with {rules} rules", planned.table),
            "other rules or none",
        );
    }
    differences.0
}

/// Whether a device's queues have the plan's shape: same kinds and numbers in the same places, and nothing else.
/// Such queues can be brought to the plan by changing parameters alone.
pub(crate) fn same_shape(tree: &Tree, device: &Device) -> bool {
    let found = |q: &ObservedQdisc| (q.parent, q.handle, q.kind.clone());
    let mut planned: Vec<_> = tree
        .qdiscs
        .iter()
        .map(|q| {
            let stands_in = device
                .qdiscs
                .iter()
                .any(|found| found.parent == q.parent && found.kind == "cake");
            let kind = match q.qdisc.kind() {
                "cake_mq" if stands_in => "cake",
                kind => kind,
            };
            (q.parent, q.handle, kind.to_owned())
        })
        .collect();
    let mut there: Vec<_> = device.qdiscs.iter().map(found).collect();
    planned.sort();
    there.sort();
    let mut planned_classes: Vec<_> = tree.classes.iter().map(|c| (c.parent, c.id)).collect();
    let mut there_classes: Vec<_> = device.classes.iter().map(|c| (c.parent, c.id)).collect();
    planned_classes.sort();
    there_classes.sort();
    planned == there && planned_classes == there_classes
}

/// Whether one qdisc is as planned.
pub(crate) fn same_qdisc(planned: &Qdisc, found: &Qdisc, mtu: u32) -> bool {
    let expected = with_the_devices_own(options::held(planned), found, mtu);
    expected == *found
}

/// Whether a size table is as planned.
pub(crate) fn same_stab(planned: Option<&Stab>, found: Option<&Stab>) -> bool {
    planned.map(size_table::held).as_ref() == found
}

/// What a plan leaves to the device is as the kernel found it there.
fn with_the_devices_own(mut expected: Qdisc, found: &Qdisc, mtu: u32) -> Qdisc {
    match (&mut expected, found) {
        (Qdisc::FqCodel(expected), Qdisc::FqCodel(found))
            if expected.quantum.is_none() && is_default_quantum(found.quantum, mtu) =>
        {
            expected.quantum = found.quantum;
        }
        (Qdisc::Sfq(expected), Qdisc::Sfq(found))
            if expected.quantum.is_none() && is_default_quantum(found.quantum, mtu) =>
        {
            expected.quantum = found.quantum;
        }
        // Kept in ticks of the kernel's timer, of which there are a hundred in a second at least.
        (Qdisc::Pie(expected), Qdisc::Pie(found)) => {
            let (planned, there) = (expected.tupdate.as_micros(), found.tupdate.as_micros());
            if (planned..planned + 10_000).contains(&there) {
                expected.tupdate = found.tupdate;
            }
        }
        // The kernel multiplies and shifts where we divide.
        (Qdisc::Tbf(expected), Qdisc::Tbf(found)) => {
            if is_near(expected.burst, found.burst, expected.rate) {
                expected.burst = found.burst;
            }
            if let (Some(expected), Some(found)) = (&mut expected.peak, &found.peak)
                && is_near(expected.mtu, found.mtu, expected.rate)
            {
                expected.mtu = found.mtu;
            }
        }
        (Qdisc::Htb(expected), Qdisc::Htb(found)) => {
            expected.direct_qlen = expected.direct_qlen.or(found.direct_qlen);
        }
        (Qdisc::Pfifo(expected), Qdisc::Pfifo(found))
        | (Qdisc::Bfifo(expected), Qdisc::Bfifo(found))
        | (Qdisc::PfifoHeadDrop(expected), Qdisc::PfifoHeadDrop(found)) => {
            expected.limit = expected.limit.or(found.limit);
        }
        _ => {}
    }
    // Where the kernel has no CAKE for many queues, a plain one takes its place.
    match (expected, found) {
        (Qdisc::CakeMq(expected), Qdisc::Cake(_)) => Qdisc::Cake(expected),
        (expected, _) => expected,
    }
}

/// Whether two bursts are the same but for what passes in a microsecond.
fn is_near(Bytes(planned): Bytes, Bytes(found): Bytes, rate: Rate) -> bool {
    planned.abs_diff(found) <= rate.bytes_per_sec() / 1_000_000 + 1
}

/// Whether a class of a tree is as planned.
///
/// In a class of HTB with others below it quantum and priority mean nothing, and the kernel does not change them.
pub(crate) fn same_class(tree: &Tree, planned: &PlannedClass, found: &Class) -> bool {
    let has_children = tree.classes.iter().any(|class| class.parent == planned.id);
    match (&planned.class, found) {
        (Class::Htb(planned), Class::Htb(found)) if has_children => {
            let found = HtbClass {
                quantum: planned.quantum,
                prio: planned.prio,
                ..found.clone()
            };
            same_htb_class(planned, &found)
        }
        (Class::Htb(planned), Class::Htb(found)) => same_htb_class(planned, found),
        (Class::Hfsc(planned), Class::Hfsc(found)) => hfsc::held(planned) == *found,
        _ => false,
    }
}

/// iproute2 counts the time of a burst in whole microseconds, so what it set up by
/// [`render`](crate::render)'s commands may hold what passes in one microsecond less.
fn same_htb_class(planned: &HtbClass, found: &HtbClass) -> bool {
    let held = htb::held(planned);
    let near = |Bytes(held): Bytes, Bytes(found): Bytes, rate: Rate| {
        let microsecond_bytes = rate.bytes_per_sec() / 1_000_000 + 1;
        found <= held && held - found <= microsecond_bytes
    };
    near(held.burst, found.burst, held.rate)
        && near(held.cburst, found.cburst, held.ceil)
        && *found
            == HtbClass {
                quantum: planned.quantum.or(found.quantum),
                burst: found.burst,
                cburst: found.cburst,
                ..held
            }
}

/// A quantum left to the kernel is the device's MTU with its link header, whose length no message tells.
pub(crate) fn is_default_quantum(found: Option<u32>, mtu: u32) -> bool {
    found.is_some_and(|quantum| (mtu..=mtu.saturating_add(LINK_HEADER_MAX)).contains(&quantum))
}

struct Differences(Vec<Difference>);

impl Differences {
    fn add(&mut self, at: &str, planned: impl Into<String>, found: impl Into<String>) {
        self.0.push(Difference {
            at: at.to_owned(),
            planned: planned.into(),
            found: found.into(),
        });
    }

    fn tree(&mut self, tree: &Tree, device: &Device) {
        let name = &device.link.name;
        for planned in &tree.qdiscs {
            let at = format!("{name} {}", planned.handle);
            let place = |q: &&ObservedQdisc| q.parent == planned.parent;
            let Some(found) = device.qdiscs.iter().find(place) else {
                self.add(&at, planned.qdisc.to_string(), "no qdisc");
                continue;
            };
            if found.handle != planned.handle {
                self.add(
                    &at,
                    format!("handle {}", planned.handle),
                    format!("handle {}", found.handle),
                );
            }
            match &found.qdisc {
                Some(qdisc) if same_qdisc(&planned.qdisc, qdisc, device.link.mtu) => {}
                Some(qdisc) => self.add(&at, planned.qdisc.to_string(), qdisc.to_string()),
                None => self.add(&at, planned.qdisc.to_string(), found.kind.clone()),
            }
            if !same_stab(planned.stab.as_ref(), found.stab.as_ref()) {
                self.add(&at, table(planned.stab.as_ref()), table(found.stab.as_ref()));
            }
        }
        for planned in &tree.classes {
            let at = format!("{name} {}", planned.id);
            match device.classes.iter().find(|c| c.id == planned.id) {
                None => self.add(&at, planned.class.to_string(), "no class"),
                Some(found) => {
                    if found.parent != planned.parent {
                        self.add(
                            &at,
                            format!("parent {}", planned.parent),
                            format!("parent {}", found.parent),
                        );
                    }
                    if !same_class(tree, planned, &found.class) {
                        self.add(&at, planned.class.to_string(), found.class.to_string());
                    }
                }
            }
        }
        for extra in device
            .classes
            .iter()
            .filter(|c| tree.classes.iter().all(|p| p.id != c.id))
        {
            self.add(
                &format!("{name} {}", extra.id),
                "no class",
                extra.class.to_string(),
            );
        }
        let planned: Vec<_> = tree.filters.iter().map(|f| filter::encode(f).0).collect();
        for (filter, words) in planned.iter().zip(&tree.filters) {
            if !device.filters.contains(filter) {
                self.add(&format!("{name} filter"), words.to_string(), "no such filter");
            }
        }
        for extra in device.filters.iter().filter(|f| !planned.contains(f)) {
            let found = format!("one with preference {}", extra.preference);
            self.add(&format!("{name} filter"), "no filter", found);
        }
        for extra in device
            .qdiscs
            .iter()
            .filter(|q| tree.qdiscs.iter().all(|p| p.parent != q.parent))
        {
            self.add(
                &format!("{name} {}", extra.handle),
                "no qdisc",
                extra.kind.clone(),
            );
        }
    }
}

fn table(stab: Option<&Stab>) -> String {
    stab.map_or_else(|| "no size table".to_owned(), |stab| format!("stab {stab}"))
}

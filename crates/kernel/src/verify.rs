//! The plan against the kernel's answer, parameter by parameter.
//!
//! The kernel rounds rates and times when it stores them. That rounding is computed by the functions that encode a plan
//! ([`options::normalized`]) and is no difference; any other deviation is one.

use sqm_core::spec::{Class, HtbClass, Qdisc, Stab};
use sqm_core::units::{Bytes, Rate};
use sqm_plan::plan::{Plan, PlannedClass, PlannedQdisc, Tree};

use crate::error::{Difference, Error};
use crate::netlink::socket::Socket;
use crate::netlink::{filter, hfsc, htb, options, size_table};
use crate::observe::{ArrivalFilter, Device, Observed, ObservedClass, ObservedQdisc};

/// Longest link header that a device may add to its MTU when the kernel chooses a default quantum, bytes. Ethernet
/// adds 14; 64 leaves room for the headers of other link layers and is a choice.
const LINK_HEADER_MAX: u32 = 64;

/// The state of the kernel, compared with a plan.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The state of the kernel.
    pub observed: Observed,
    /// Where that deviates from the plan; empty if everything is as planned.
    pub differences: Vec<Difference>,
}

impl Comparison {
    /// Reads what the kernel holds, and compares. Needs no privileges, unless the plan has firewall rules: the kernel
    /// shows those to root only.
    pub fn read(socket: &mut Socket, plan: &Plan) -> Result<Self, Error> {
        let observed = Observed::read(socket, plan)?;
        Ok(Self {
            differences: compare(plan, &observed),
            observed,
        })
    }

    /// True if the kernel holds all of the plan.
    pub fn is_as_planned(&self) -> bool {
        self.differences.is_empty()
    }
}

/// Every difference between a plan and what the kernel was observed to hold.
///
/// Directions that the plan does not shape are not compared, with one exception: a redirect to the plan's IFB that
/// was left over is a difference.
pub fn compare(plan: &Plan, observed: &Observed) -> Vec<Difference> {
    let mut differences = Differences(Vec::new());
    if let Some(tree) = &plan.egress {
        differences.tree(tree, &observed.device);
    }
    differences.ingress(plan, observed);
    if let (Some(planned), Some(false)) = (&plan.firewall, observed.firewall) {
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

/// True if a device's queues have the plan's shape: the planned kinds and handles in the planned places, and nothing
/// else. Changes of parameters alone then lead to the plan.
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

/// True if a qdisc is as planned. `mtu` is the device's.
pub(crate) fn same_qdisc(planned: &Qdisc, found: &Qdisc, mtu: u32) -> bool {
    let expected = with_kernel_choices(options::normalized(planned), found, mtu);
    expected == *found
}

/// True if a size table is as planned.
pub(crate) fn same_stab(planned: Option<&Stab>, found: Option<&Stab>) -> bool {
    planned.map(size_table::normalized).as_ref() == found
}

/// Fills in the values that the plan leaves to the kernel, if what the kernel chose is plausible.
fn with_kernel_choices(mut expected: Qdisc, found: &Qdisc, mtu: u32) -> Qdisc {
    match (&mut expected, found) {
        // CAKE begins at the planned rate and moves it from then on.
        (Qdisc::Cake(expected) | Qdisc::CakeMq(expected), Qdisc::Cake(found) | Qdisc::CakeMq(found))
            if expected.autorate_ingress =>
        {
            expected.bandwidth = found.bandwidth
        }
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
        // The kernel keeps `tupdate` in jiffies; one is 10 ms at most (HZ is at least 100).
        (Qdisc::Pie(expected), Qdisc::Pie(found)) => {
            let (planned, there) = (expected.tupdate.as_micros(), found.tupdate.as_micros());
            if (planned..planned + 10_000).contains(&there) {
                expected.tupdate = found.tupdate;
            }
        }
        // The kernel computes transmission times by multiplying and shifting, we divide: the results differ slightly.
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
    // On a kernel without cake_mq, a plain CAKE stands in for it.
    match (expected, found) {
        (Qdisc::CakeMq(expected), Qdisc::Cake(_)) => Qdisc::Cake(expected),
        (expected, _) => expected,
    }
}

/// True if two bursts differ by no more than what passes in a microsecond at `rate`.
fn is_near(Bytes(planned): Bytes, Bytes(found): Bytes, rate: Rate) -> bool {
    planned.abs_diff(found) <= rate.bytes_per_sec() / 1_000_000 + 1
}

/// True if a class of a tree is as planned.
///
/// HTB uses quantum and priority only in classes without children, and does not change them in others, so they are not
/// compared there.
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
        (Class::Hfsc(planned), Class::Hfsc(found)) => hfsc::normalized(planned) == *found,
        _ => false,
    }
}

/// iproute2 counts the time of a burst in whole microseconds. A burst that `tc` has set by
/// [`render`](crate::render)'s commands may therefore be smaller by what passes in one microsecond.
fn same_htb_class(planned: &HtbClass, found: &HtbClass) -> bool {
    let normalized = htb::normalized(planned);
    let near = |Bytes(normalized): Bytes, Bytes(found): Bytes, rate: Rate| {
        let microsecond_bytes = rate.bytes_per_sec() / 1_000_000 + 1;
        found <= normalized && normalized - found <= microsecond_bytes
    };
    near(normalized.burst, found.burst, normalized.rate)
        && near(normalized.cburst, found.cburst, normalized.ceil)
        && *found
            == HtbClass {
                quantum: planned.quantum.or(found.quantum),
                burst: found.burst,
                cburst: found.cburst,
                ..normalized
            }
}

/// True if the kernel may have chosen this quantum for a device of this MTU: it adds the length of the link header, which
/// netlink does not report.
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

    fn ingress(&mut self, plan: &Plan, observed: &Observed) {
        let ifb_name = plan.ifb();
        let redirect = observed.device.redirect.as_deref();
        let at = format!("{} ingress", plan.interface);
        match (&plan.ingress, &observed.ifb) {
            (None, _) if redirect == Some(&ifb_name) => {
                self.add(&at, "no redirect", format!("redirect to {ifb_name}"));
            }
            (None, _) => {}
            (Some(tree), Some(ifb)) => {
                if !ifb.link.up {
                    self.add(&ifb_name, "up", "down");
                }
                self.tree(tree, ifb);
            }
            (Some(_), None) => self.add(&ifb_name, "an ifb device", "no such device"),
        }
        if plan.ingress.is_some() {
            let ifb = observed.ifb.as_ref().map(|ifb| ifb.link.index);
            let elsewhere = |filter: &&ArrivalFilter| filter.target.is_some() && filter.target != ifb;
            for filter in observed.device.other_filters.iter().filter(elsewhere) {
                let found = format!("a filter that redirects packets to another device ({filter})");
                self.add(&at, format!("redirect to {ifb_name}"), found);
            }
        }
        if plan.ingress.is_some() && redirect != Some(&ifb_name) {
            let found =
                redirect.map_or_else(|| "no redirect".to_owned(), |name| format!("redirect to {name}"));
            self.add(&at, format!("redirect to {ifb_name}"), found);
        }
    }

    fn tree(&mut self, tree: &Tree, device: &Device) {
        for planned in &tree.qdiscs {
            self.qdisc(planned, device);
        }
        self.classes(tree, device);
        self.filters(tree, device);
        let is_extra = |q: &&ObservedQdisc| tree.qdiscs.iter().all(|p| p.parent != q.parent);
        for extra in device.qdiscs.iter().filter(is_extra) {
            let at = format!("{} {}", device.link.name, extra.handle);
            self.add(&at, "no qdisc", extra.kind.clone());
        }
    }

    fn qdisc(&mut self, planned: &PlannedQdisc, device: &Device) {
        let at = format!("{} {}", device.link.name, planned.handle);
        let Some(found) = device.qdiscs.iter().find(|q| q.parent == planned.parent) else {
            return self.add(&at, planned.qdisc.to_string(), "no qdisc");
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

    fn classes(&mut self, tree: &Tree, device: &Device) {
        let name = &device.link.name;
        for planned in &tree.classes {
            let at = format!("{name} {}", planned.id);
            let Some(found) = device.classes.iter().find(|c| c.id == planned.id) else {
                self.add(&at, planned.class.to_string(), "no class");
                continue;
            };
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
        let is_extra = |c: &&ObservedClass| tree.classes.iter().all(|p| p.id != c.id);
        for extra in device.classes.iter().filter(is_extra) {
            self.add(
                &format!("{name} {}", extra.id),
                "no class",
                extra.class.to_string(),
            );
        }
    }

    fn filters(&mut self, tree: &Tree, device: &Device) {
        let at = format!("{} filter", device.link.name);
        let planned: Vec<_> = tree.filters.iter().map(|f| filter::encode(f).0).collect();
        for (filter, words) in planned.iter().zip(&tree.filters) {
            if !device.filters.contains(filter) {
                self.add(&at, words.to_string(), "no such filter");
            }
        }
        for extra in device.filters.iter().filter(|f| !planned.contains(f)) {
            let found = format!("one with preference {}", extra.preference);
            self.add(&at, "no filter", found);
        }
    }
}

/// A size table in words.
fn table(stab: Option<&Stab>) -> String {
    stab.map_or_else(|| "no size table".to_owned(), |stab| format!("stab {stab}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_that_cake_estimates_is_no_difference() {
        let parse = |words: &str| words.parse::<Qdisc>().expect(words);
        let same = |planned: &str, found: &str| same_qdisc(&parse(planned), &parse(found), 1500);
        for kind in ["cake", "cake_mq"] {
            let of = |words: &str| format!("{kind} {words}");
            let planned = of("bandwidth 20mbit autorate-ingress");
            for found in ["bandwidth 25085640bit autorate-ingress", "autorate-ingress"] {
                assert!(same(&planned, &of(found)), "{found}");
            }
            for found in ["bandwidth 20mbit", "bandwidth 25085640bit autorate-ingress nat"] {
                assert!(!same(&planned, &of(found)), "{found}");
            }
            let fixed = of("bandwidth 20mbit");
            for found in ["bandwidth 25085640bit", "bandwidth 20mbit autorate-ingress"] {
                assert!(!same(&fixed, &of(found)), "{found}");
            }
        }
        assert!(same(
            "cake_mq bandwidth 20mbit autorate-ingress",
            "cake bandwidth 3mbit autorate-ingress"
        ));
    }
}

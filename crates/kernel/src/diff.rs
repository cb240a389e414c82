//! Computes the smallest change from what the kernel holds to a plan, as steps in order. Pure.
//!
//! If only parameters differ, they are changed in place, under running traffic. A root with another handle is replaced in
//! one step. A root with the planned handle and another kind must be removed first; for that moment the kernel's default
//! qdisc queues the packets.

use std::fmt;

use sqm_core::spec::Qdisc;
use sqm_plan::plan::{Firewall, Handle, Plan, PlannedClass, PlannedFilter, PlannedQdisc, Tree};

use crate::netlink::filter::{self, Filter};
use crate::netlink::link::Link;
use crate::netlink::redirect::PREFERENCE;
use crate::netlink::tc::Entry;
use crate::observe::{Device, Observed, ObservedQdisc, redirects_all_to};
use crate::verify::{is_default_quantum, same_class, same_qdisc, same_shape, same_stab};

/// One change of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sets the firewall table, in one transaction of nftables.
    SetFirewall(Firewall),
    /// Makes an IFB.
    AddIfb {
        /// Its name.
        name: String,
        /// True if it gets a transmit queue for each processor.
        many_queues: bool,
    },
    /// Sets a device up.
    SetUp(String),
    /// Makes a qdisc. A root replaces one that has another handle.
    AddQdisc(String, PlannedQdisc),
    /// Changes the parameters of a qdisc.
    ChangeQdisc(String, PlannedQdisc),
    /// Removes a qdisc with everything below it.
    RemoveQdisc {
        /// The device.
        device: String,
        /// Its handle.
        handle: Handle,
        /// Its parent; `None` for the root.
        parent: Option<Handle>,
        /// Its kind.
        kind: String,
    },
    /// Makes a class.
    AddClass(String, PlannedClass),
    /// Changes the parameters of a class, or makes it if it is missing.
    ChangeClass(String, PlannedClass),
    /// Makes a filter on the root with this handle.
    AddFilter(String, Handle, PlannedFilter),
    /// Removes a filter from the root with this handle.
    RemoveFilter(String, Handle, Filter),
    /// Removes a filter that redirects all arriving packets to another device.
    RemoveRedirect {
        /// The device on which they arrive.
        device: String,
        /// The filter.
        filter: Entry,
        /// All filters that arriving packets pass.
        listed: Vec<Entry>,
    },
    /// Sends arriving packets to the IFB.
    Redirect {
        /// The device on which they arrive.
        device: String,
        /// The IFB.
        ifb: String,
        /// Kind of the qdisc that is at the ingress hook already; one is made if there is none.
        qdisc: Option<String>,
        /// Preference of the filter. It comes after those of other programs, which would see no packets otherwise.
        preference: u16,
    },
}

impl Step {
    /// True if it changes parameters and leaves all queues in place.
    pub(crate) const fn is_in_place(&self) -> bool {
        matches!(
            self,
            Self::SetFirewall(_) | Self::SetUp(_) | Self::ChangeQdisc(..) | Self::ChangeClass(..)
        )
    }

    /// The request in words, for the message of a failure.
    pub(crate) fn request(&self) -> String {
        match self {
            Self::SetFirewall(firewall) => format!("set the firewall table {}", firewall.table),
            Self::AddIfb { .. } => "add the device".to_owned(),
            Self::SetUp(_) => "set the device up".to_owned(),
            Self::AddQdisc(_, planned) => format!("add the qdisc {} {}", planned.handle, planned.qdisc),
            Self::ChangeQdisc(_, planned) => {
                format!("change the qdisc {} to {}", planned.handle, planned.qdisc)
            }
            Self::RemoveQdisc { handle, kind, .. } => format!("remove the qdisc {handle} {kind}"),
            Self::AddClass(_, planned) | Self::ChangeClass(_, planned) => {
                format!("set the class {} {}", planned.id, planned.class)
            }
            Self::AddFilter(_, _, filter) => format!("add the filter {filter}"),
            Self::RemoveFilter(_, _, filter) => format!("remove the filter {}", filter.preference),
            Self::RemoveRedirect { .. } => "remove a redirect of arriving packets".to_owned(),
            Self::Redirect { .. } => "redirect arriving packets".to_owned(),
        }
    }
}

/// The step in words, as a change that was made.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetFirewall(firewall) => {
                let (table, rules) = (&firewall.table, firewall.rules().len());
                write!(f, "firewall: table {table} with {rules} rules")
            }
            Self::AddIfb { name, .. } => write!(f, "{name}: added"),
            Self::SetUp(device) => write!(f, "{device}: up"),
            Self::AddQdisc(device, planned) => write!(f, "{device}: added {planned}"),
            Self::ChangeQdisc(device, planned) => {
                write!(f, "{device}: changed {} to ", planned.handle)?;
                if let Some(stab) = &planned.stab {
                    write!(f, "stab {stab} ")?;
                }
                write!(f, "{}", planned.qdisc)
            }
            Self::RemoveQdisc {
                device, handle, kind, ..
            } => write!(f, "{device}: removed {kind} {handle}"),
            Self::AddClass(device, planned) => write!(f, "{device}: added class {planned}"),
            Self::ChangeClass(device, planned) => {
                write!(f, "{device}: changed class {} to {}", planned.id, planned.class)
            }
            Self::AddFilter(device, _, filter) => write!(f, "{device}: added filter {filter}"),
            Self::RemoveFilter(device, _, filter) => {
                write!(f, "{device}: removed filter {}", filter.preference)
            }
            Self::RemoveRedirect { device, filter, .. } => {
                write!(
                    f,
                    "{device}: removed the redirect with preference {}",
                    filter.preference()
                )
            }
            Self::Redirect { device, ifb, .. } => {
                write!(f, "{device}: arriving packets are redirected to {ifb}")
            }
        }
    }
}

/// The steps that lead to a plan; none if everything is as planned. Directions that the plan does not shape are left
/// alone.
pub fn steps(plan: &Plan, observed: &Observed) -> Vec<Step> {
    let mut steps = Vec::new();
    // Rules that set marks come before the filters that match them.
    if let (Some(firewall), Some(false)) = (&plan.firewall, observed.firewall) {
        steps.push(Step::SetFirewall(firewall.clone()));
    }
    if let Some(tree) = &plan.egress {
        queues(&plan.interface, Some(&observed.device), tree, &mut steps);
    }
    if let Some(tree) = &plan.ingress {
        let ifb = plan.ifb();
        if observed.ifb.is_none() {
            let root = tree.root().map(|root| &root.qdisc);
            steps.push(Step::AddIfb {
                name: ifb.clone(),
                many_queues: matches!(root, Some(Qdisc::CakeMq(_))),
            });
        }
        queues(&ifb, observed.ifb.as_ref(), tree, &mut steps);
        if observed.ifb.as_ref().is_none_or(|ifb| !ifb.link.up) {
            steps.push(Step::SetUp(ifb.clone()));
        }
        // The redirect comes last: a device that is down loses packets, and one without queues does not shape them.
        if observed.device.redirect.as_deref() != Some(&ifb) {
            steps.extend(redirect(&observed.device, ifb));
        }
    }
    steps
}

/// The steps that replace the redirects of a device by one to the IFB. Other filters at the ingress hook stay.
fn redirect(now: &Device, ifb: String) -> Vec<Step> {
    let device = now.link.name.clone();
    let (redirects, others): (Vec<&Entry>, Vec<&Entry>) = now
        .entries
        .ingress_filters
        .iter()
        .partition(|filter| redirects_all_to(filter).is_some());
    let last = others.iter().map(|filter| filter.preference()).max();
    let remove = |filter: &Entry| Step::RemoveRedirect {
        device: device.clone(),
        filter: filter.clone(),
        listed: now.entries.ingress_filters.clone(),
    };
    let mut steps: Vec<Step> = redirects.into_iter().map(remove).collect();
    steps.push(Step::Redirect {
        device: device.clone(),
        ifb,
        qdisc: now.ingress_qdisc.clone(),
        preference: last.map_or(PREFERENCE, |last| PREFERENCE.max(last.saturating_add(1))),
    });
    steps
}

/// The steps from a plan that is in force to one that differs only in parameters such as rates. `None` if it takes more than
/// changes in place, or if that depends on what the kernel holds.
pub fn changes(from: &Plan, to: &Plan) -> Option<Vec<Step>> {
    let same_place = from.interface == to.interface && from.firewall == to.firewall;
    let mut steps = Vec::new();
    for (device, from, to) in [
        (to.interface.clone(), &from.egress, &to.egress),
        (to.ifb(), &from.ingress, &to.ingress),
    ] {
        match (from, to) {
            (None, None) => {}
            (Some(from), Some(to)) => tree_changes(&device, from, to, &mut steps)?,
            _ => return None,
        }
    }
    same_place.then_some(steps)
}

fn tree_changes(device: &str, from: &Tree, to: &Tree, steps: &mut Vec<Step>) -> Option<()> {
    let same_size = from.qdiscs.len() == to.qdiscs.len() && from.classes.len() == to.classes.len();
    if !same_size || from.filters != to.filters {
        return None;
    }
    for (from, to) in from.qdiscs.iter().zip(&to.qdiscs) {
        let same_place = (from.parent, from.handle, &from.stab) == (to.parent, to.handle, &to.stab);
        // For other kinds it depends on what the kernel holds: see `can_change`.
        let can = from.qdisc == to.qdisc
            || matches!(
                (&from.qdisc, &to.qdisc),
                (Qdisc::Cake(_), Qdisc::Cake(_)) | (Qdisc::CakeMq(_), Qdisc::CakeMq(_))
            );
        if !same_place || !can {
            return None;
        }
        if from != to {
            steps.push(Step::ChangeQdisc(device.to_owned(), to.clone()));
        }
    }
    for (from, to) in from.classes.iter().zip(&to.classes) {
        if (from.parent, from.id) != (to.parent, to.id) {
            return None;
        }
        if from != to {
            steps.push(Step::ChangeClass(device.to_owned(), to.clone()));
        }
    }
    Some(())
}

/// Adds the steps from the queues of a device to a planned tree. `now` is `None` for a device that is still to be made.
fn queues(device: &str, now: Option<&Device>, tree: &Tree, steps: &mut Vec<Step>) {
    let Some(now) = now else {
        return rebuild(device, &[], tree, steps);
    };
    let found = |planned: &PlannedQdisc| now.qdiscs.iter().find(|q| q.parent == planned.parent);
    let root_can_stay = tree.root().is_some_and(|root| {
        found(root)
            .is_some_and(|found| is_as_planned(root, found, &now.link) || can_change(root, found, &now.link))
    });
    if !same_shape(tree, now) || !root_can_stay {
        return rebuild(device, &now.qdiscs, tree, steps);
    }
    // Every change of a TBF resets the limit of a plain queue inside it.
    let mut sets_limits = false;
    for planned in &tree.qdiscs {
        let is_reset = sets_limits && matches!(planned.qdisc, Qdisc::Pfifo(_) | Qdisc::Bfifo(_));
        let differs = |found: &&ObservedQdisc| is_reset || !is_as_planned(planned, found, &now.link);
        let Some(found) = found(planned).filter(differs) else {
            continue;
        };
        sets_limits |= matches!(planned.qdisc, Qdisc::Tbf(_));
        if can_change(planned, found, &now.link) {
            steps.push(Step::ChangeQdisc(
                device.to_owned(),
                keeping_estimate(planned, found),
            ));
        } else {
            steps.push(remove(device, found));
            steps.push(Step::AddQdisc(device.to_owned(), planned.clone()));
        }
    }
    for planned in &tree.classes {
        let there = now
            .classes
            .iter()
            .any(|c| c.id == planned.id && same_class(tree, planned, &c.class));
        if !there {
            steps.push(Step::ChangeClass(device.to_owned(), planned.clone()));
        }
    }
    filters(device, now, tree, steps);
}

fn filters(device: &str, now: &Device, tree: &Tree, steps: &mut Vec<Step>) {
    let Some(root) = tree.root() else { return };
    let planned: Vec<Filter> = tree.filters.iter().map(|f| filter::encode(f).0).collect();
    for extra in now.filters.iter().filter(|f| !planned.contains(f)) {
        steps.push(Step::RemoveFilter(device.to_owned(), root.handle, extra.clone()));
    }
    for (words, filter) in tree.filters.iter().zip(&planned) {
        if !now.filters.contains(filter) {
            steps.push(Step::AddFilter(device.to_owned(), root.handle, words.clone()));
        }
    }
}

/// Adds the steps that make all queues anew: root, classes, leaves, filters.
fn rebuild(device: &str, now: &[ObservedQdisc], tree: &Tree, steps: &mut Vec<Step>) {
    let root = now.iter().find(|q| q.parent.is_none() && q.handle.major != 0);
    let number_taken = now
        .iter()
        .any(|q| tree.qdiscs.iter().any(|planned| planned.handle == q.handle));
    if let Some(root) = root.filter(|_| number_taken) {
        steps.push(remove(device, root));
    }
    let add = |qdisc: &PlannedQdisc| Step::AddQdisc(device.to_owned(), qdisc.clone());
    steps.extend(tree.root().map(add));
    let class = |class: &PlannedClass| Step::AddClass(device.to_owned(), class.clone());
    steps.extend(tree.classes.iter().map(class));
    steps.extend(tree.leaves().map(add));
    if let Some(root) = tree.root() {
        let filter = |filter: &PlannedFilter| Step::AddFilter(device.to_owned(), root.handle, filter.clone());
        steps.extend(tree.filters.iter().map(filter));
    }
}

fn remove(device: &str, found: &ObservedQdisc) -> Step {
    Step::RemoveQdisc {
        device: device.to_owned(),
        handle: found.handle,
        parent: found.parent,
        kind: found.kind.clone(),
    }
}

fn is_as_planned(planned: &PlannedQdisc, found: &ObservedQdisc, link: &Link) -> bool {
    let same = found
        .qdisc
        .as_ref()
        .is_some_and(|qdisc| same_qdisc(&planned.qdisc, qdisc, link.mtu));
    same && same_stab(planned.stab.as_ref(), found.stab.as_ref())
}

/// The planned parameters for a change in place. A CAKE that estimates its rate keeps the rate that it has found.
fn keeping_estimate(planned: &PlannedQdisc, found: &ObservedQdisc) -> PlannedQdisc {
    let mut planned = planned.clone();
    if let Qdisc::Cake(cake) | Qdisc::CakeMq(cake) = &mut planned.qdisc
        && let Some(Qdisc::Cake(found) | Qdisc::CakeMq(found)) = &found.qdisc
        && cake.autorate_ingress
        && found.autorate_ingress
    {
        cake.bandwidth = found.bandwidth;
    }
    planned
}

/// True if the kernel can change the qdisc it holds to the planned one, without making a new one.
fn can_change(planned: &PlannedQdisc, found: &ObservedQdisc, link: &Link) -> bool {
    let Some(there) = &found.qdisc else {
        return false;
    };
    match (&planned.qdisc, there) {
        (Qdisc::Cake(_) | Qdisc::CakeMq(_), Qdisc::Cake(_)) | (Qdisc::CakeMq(_), Qdisc::CakeMq(_)) => true,
        // HTB has no change operation, but the size table of any qdisc can be changed.
        (Qdisc::Htb(_), Qdisc::Htb(_)) => same_qdisc(&planned.qdisc, there, link.mtu),
        (Qdisc::Hfsc(_), Qdisc::Hfsc(_)) => true,
        // The number of flows is fixed when it is made, and a threshold or quantum cannot be unset.
        (Qdisc::FqCodel(planned), Qdisc::FqCodel(found)) => {
            let quantum_can = planned.quantum.is_some() || is_default_quantum(found.quantum, link.mtu);
            let threshold_can = planned.ce_threshold.is_some() || found.ce_threshold.is_none();
            planned.flows == found.flows && threshold_can && quantum_can
        }
        (Qdisc::Codel(planned), Qdisc::Codel(found)) => {
            planned.ce_threshold.is_some() || found.ce_threshold.is_none()
        }
        (Qdisc::Pie(planned), Qdisc::Pie(found)) => planned.dq_rate_estimator == found.dq_rate_estimator,
        (Qdisc::Tbf(planned), Qdisc::Tbf(found)) => planned.peak.is_some() == found.peak.is_some(),
        (Qdisc::Pfifo(planned), Qdisc::Pfifo(_))
        | (Qdisc::Bfifo(planned), Qdisc::Bfifo(_))
        | (Qdisc::PfifoHeadDrop(planned), Qdisc::PfifoHeadDrop(_)) => planned.limit.is_some(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(script: &str, options: &str) -> Plan {
        let text = format!(
            "config queue\n\toption enabled '1'\n\toption interface 'eth0'\n\toption script '{script}.qos'\n{options}"
        );
        let loaded = sqm_plan::load(text.as_bytes(), "test", &sqm_plan::device::Device::absent);
        loaded.expect("a configuration").plans.remove(0)
    }

    fn at(script: &str, rates: (u32, u32), more: &str) -> Plan {
        let (download, upload) = rates;
        plan(
            script,
            &format!("\toption download '{download}'\n\toption upload '{upload}'\n{more}"),
        )
    }

    #[test]
    fn new_rates_are_applied_without_reading_the_kernel() {
        for script in ["best_of_cake", "piece_of_cake", "layer_cake"] {
            let from = at(script, (20_000, 4000), "");
            assert_eq!(changes(&from, &from), Some(Vec::new()));
            let steps = changes(&from, &at(script, (30_000, 5000), "")).expect("rates only");
            let devices: Vec<_> = steps
                .iter()
                .map(|step| match step {
                    Step::ChangeQdisc(device, _) => device.as_str(),
                    other => panic!("{other}"),
                })
                .collect();
            assert_eq!(devices, ["eth0", "ifb4eth0"]);
            assert_eq!(
                changes(&from, &at(script, (20_000, 5000), "")).map(|s| s.len()),
                Some(1)
            );
        }
        // Rates of HTB's classes.
        let steps = changes(
            &at("simple", (20_000, 8000), ""),
            &at("simple", (30_000, 8000), ""),
        );
        let steps = steps.expect("rates only");
        assert!(!steps.is_empty() && steps.iter().all(|step| matches!(step, Step::ChangeClass(..))));
    }

    #[test]
    fn other_changes_require_reading_the_kernel() {
        let from = at("piece_of_cake", (20_000, 4000), "");
        for other in [
            at("simple", (20_000, 4000), ""),
            at("layer_cake", (0, 4000), ""),
            at("piece_of_cake", (0, 4000), ""),
        ] {
            assert_eq!(changes(&from, &other), None);
        }
    }
}

//! Rates that another program has set in the queues of a plan.
//!
//! A rate controller beside sqm, such as cake-autorate, changes the rate of CAKE, of the classes of HTB or HFSC, or of TBF, and
//! nothing else. [`OtherRates::find`] finds such rates, and [`OtherRates::kept`] makes the plan that has them in place of its own:
//! whatever still differs from that plan is another change.

use sqm_core::spec::hfsc::Curve;
use sqm_core::spec::{Class, HfscClass, Qdisc};
use sqm_core::units::Rate;
use sqm_plan::plan::{Plan, Tree};

use crate::netlink::{hfsc, htb, options};
use crate::observe::{Device, Observed};

/// The rates of another program in each direction of the device; none where the kernel holds the plan's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherRates {
    /// In the queues of the device itself.
    pub egress: Option<OtherRate>,
    /// In the queues of the IFB.
    pub ingress: Option<OtherRate>,
}

/// The rates of another program in the queues of one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherRate {
    /// The plan's queues, with the kernel's rates.
    tree: Tree,
    /// Each rate that differs from the plan's; a queue without a limit has none.
    pub rates: Vec<Option<Rate>>,
}

impl OtherRates {
    /// Finds the rates that differ from the plan's in the queues that are the plan's in kind, place and handle. The rate of a CAKE
    /// that estimates it by itself is no difference.
    pub fn find(plan: &Plan, observed: &Observed) -> Self {
        let find = |tree: &Option<Tree>, device: Option<&Device>| OtherRate::find(tree.as_ref()?, device?);
        Self {
            egress: find(&plan.egress, Some(&observed.device)),
            ingress: find(&plan.ingress, observed.ifb.as_ref()),
        }
    }

    /// True if all rates are the plan's.
    pub fn is_empty(&self) -> bool {
        self.egress.is_none() && self.ingress.is_none()
    }

    /// These rates, without those of a direction in which `others` has none.
    #[must_use]
    pub fn only_where(self, others: &Self) -> Self {
        Self {
            egress: self.egress.filter(|_| others.egress.is_some()),
            ingress: self.ingress.filter(|_| others.ingress.is_some()),
        }
    }

    /// The plan with these rates.
    #[must_use]
    pub fn kept(&self, plan: &Plan) -> Plan {
        let mut kept = plan.clone();
        for (tree, other) in [
            (&mut kept.egress, &self.egress),
            (&mut kept.ingress, &self.ingress),
        ] {
            if let Some(other) = other {
                *tree = Some(other.tree.clone());
            }
        }
        kept
    }
}

impl OtherRate {
    fn find(tree: &Tree, device: &Device) -> Option<Self> {
        let mut tree = tree.clone();
        let mut rates = Vec::new();
        for planned in &mut tree.qdiscs {
            let place = (planned.parent, planned.handle);
            let found = device
                .qdiscs
                .iter()
                .find(|found| (found.parent, found.handle) == place);
            let found = found.and_then(|found| found.qdisc.as_ref());
            rates.extend(found.and_then(|found| keep_qdisc_rate(&mut planned.qdisc, found)));
        }
        for planned in &mut tree.classes {
            let place = (planned.parent, planned.id);
            let found = device
                .classes
                .iter()
                .find(|found| (found.parent, found.id) == place);
            rates.extend(found.and_then(|found| keep_class_rate(&mut planned.class, &found.class)));
        }
        (!rates.is_empty()).then_some(Self { tree, rates })
    }
}

/// Gives a planned qdisc the kernel's rate, and returns that, if it differs.
fn keep_qdisc_rate(planned: &mut Qdisc, found: &Qdisc) -> Option<Option<Rate>> {
    match (&options::normalized(planned), planned, found) {
        (
            Qdisc::Cake(normalized) | Qdisc::CakeMq(normalized),
            Qdisc::Cake(planned) | Qdisc::CakeMq(planned),
            Qdisc::Cake(found) | Qdisc::CakeMq(found),
        ) if !planned.autorate_ingress && normalized.bandwidth != found.bandwidth => {
            planned.bandwidth = found.bandwidth;
            Some(found.bandwidth)
        }
        // `tc` wants the burst and the limit with each new rate, so they change with it.
        (Qdisc::Tbf(normalized), Qdisc::Tbf(planned), Qdisc::Tbf(found)) if normalized.rate != found.rate => {
            planned.rate = found.rate;
            planned.burst = found.burst;
            planned.limit = found.limit;
            planned.peak = found.peak;
            Some(Some(found.rate))
        }
        _ => None,
    }
}

/// Gives a planned class the kernel's rate, and returns that, if it differs.
fn keep_class_rate(planned: &mut Class, found: &Class) -> Option<Option<Rate>> {
    match (planned, found) {
        (Class::Htb(planned), Class::Htb(found)) => {
            let normalized = htb::normalized(planned);
            if (normalized.rate, normalized.ceil) == (found.rate, found.ceil) {
                return None;
            }
            planned.rate = found.rate;
            planned.ceil = found.ceil;
            // `tc` and the kernel compute these from the rates unless they are given.
            planned.burst = found.burst;
            planned.cburst = found.cburst;
            planned.quantum = found.quantum;
            Some(Some(found.ceil))
        }
        (Class::Hfsc(planned), Class::Hfsc(found)) if hfsc::normalized(planned) != *found => {
            *planned = found.clone();
            Some(highest(found))
        }
        _ => None,
    }
}

/// The rate up to which a class of HFSC may send.
fn highest(HfscClass { rt, ls, ul }: &HfscClass) -> Option<Rate> {
    [ul, rt, ls]
        .into_iter()
        .find_map(|curve| curve.map(|Curve { m2, .. }| m2))
}

#[cfg(test)]
mod tests {
    use sqm_core::spec::HtbClass;

    use super::*;
    use crate::verify::same_qdisc;

    fn qdisc(words: &str) -> Qdisc {
        words.parse().expect(words)
    }

    /// The rate that is kept, and whether the qdisc is as planned with that rate.
    fn kept(planned: &str, found: &str) -> (Option<String>, bool) {
        let (mut planned, found) = (qdisc(planned), options::normalized(&qdisc(found)));
        let rate = keep_qdisc_rate(&mut planned, &found);
        let rate = rate.map(|rate| rate.map_or_else(|| "none".to_owned(), |rate| rate.to_string()));
        (rate, same_qdisc(&planned, &found, 1500))
    }

    #[test]
    fn another_rate_is_kept_and_any_other_change_still_differs() {
        for (planned, found, rate, is_the_rest_as_planned) in [
            (
                "cake bandwidth 20mbit nat",
                "cake bandwidth 20mbit nat",
                None,
                true,
            ),
            (
                "cake bandwidth 20mbit nat",
                "cake bandwidth 3mbit nat",
                Some("3mbit"),
                true,
            ),
            ("cake bandwidth 20mbit nat", "cake nat", Some("none"), true),
            (
                "cake bandwidth 20mbit nat",
                "cake bandwidth 3mbit nonat",
                Some("3mbit"),
                false,
            ),
            (
                "cake bandwidth 20mbit",
                "cake bandwidth 20mbit overhead 30",
                None,
                false,
            ),
            (
                "cake bandwidth 20mbit autorate-ingress",
                "cake bandwidth 3mbit autorate-ingress",
                None,
                true,
            ),
            (
                "cake_mq bandwidth 20mbit",
                "cake bandwidth 3mbit",
                Some("3mbit"),
                true,
            ),
            ("cake bandwidth 20mbit", "fq_codel", None, false),
            (
                "tbf rate 8mbit burst 5kb latency 300ms",
                "tbf rate 3mbit burst 4kb latency 300ms",
                Some("3mbit"),
                true,
            ),
            (
                "tbf rate 8mbit burst 5kb latency 300ms",
                "tbf rate 8mbit burst 9kb latency 300ms",
                None,
                false,
            ),
        ] {
            let expected = (rate.map(str::to_owned), is_the_rest_as_planned);
            assert_eq!(kept(planned, found), expected, "{planned} | {found}");
        }
    }

    #[test]
    fn a_class_keeps_another_rate_but_not_another_priority() {
        let class = |words: &str| Class::Htb(HtbClass::parse(words).expect(words));
        let found = class("rate 3mbit ceil 4mbit prio 2 burst 3kb quantum 1514");
        let mut planned = class("rate 1mbit ceil 20mbit prio 2");
        let rate = keep_class_rate(&mut planned, &found);
        assert_eq!(rate, Some(Some(Rate::from_kbits_per_sec(4000))));
        assert_eq!(planned, found);
        let mut planned = class("rate 1mbit ceil 20mbit prio 1");
        let _ = keep_class_rate(&mut planned, &found);
        assert_ne!(planned, found);
        assert_eq!(keep_class_rate(&mut planned, &found), None);
    }
}

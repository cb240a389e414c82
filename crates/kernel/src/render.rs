//! The plan as the commands a person would type.
//!
//! The lines, run by a root shell in this order on a device without queues of its own, give what [`apply`](crate)
//! gives through netlink. They are for reading, teaching and comparing; the program never runs them.

use sqm_core::spec::{HtbClass, LinkLayer, Qdisc, Stab};
use sqm_plan::plan::{Plan, PlannedClass, PlannedQdisc, Tree};

/// One command per element, without line ends. Empty for a plan that shapes nothing.
pub fn tc(plan: &Plan) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(egress) = &plan.egress {
        tree(&plan.interface, egress, &mut lines);
    }
    if let Some(ingress) = &plan.ingress {
        let (device, ifb) = (&plan.interface, plan.ifb());
        lines.push(format!("ip link add {ifb} type ifb"));
        tree(&ifb, ingress, &mut lines);
        // The redirect comes last: a packet sent to a device that is down or has no queues yet would be lost or
        // pass unshaped.
        lines.push(format!("ip link set {ifb} up"));
        lines.push(format!("tc qdisc add dev {device} handle ffff: ingress"));
        lines.push(format!(
            "tc filter add dev {device} parent ffff: protocol all prio 10 u32 match u32 0 0 flowid 1:1 \
             action mirred egress redirect dev {ifb}"
        ));
    }
    lines
}

/// Root, then classes, then leaves: each needs the one above it.
fn tree(device: &str, tree: &Tree, lines: &mut Vec<String>) {
    let (roots, leaves): (Vec<_>, Vec<_>) = tree.qdiscs.iter().partition(|q| q.parent.is_none());
    lines.extend(roots.iter().map(|root| qdisc(device, root)));
    lines.extend(tree.classes.iter().map(|c| class(device, c)));
    lines.extend(leaves.iter().map(|leaf| qdisc(device, leaf)));
}

fn qdisc(device: &str, planned: &PlannedQdisc) -> String {
    let parent = planned.parent.map_or_else(|| "root".to_owned(), |p| format!("parent {p}"));
    let stab = planned.stab.as_ref().map(stab).unwrap_or_default();
    format!("tc qdisc add dev {device} {parent} handle {} {stab}{}", planned.handle, words(&planned.qdisc))
}

fn class(device: &str, planned: &PlannedClass) -> String {
    let PlannedClass { parent, id, class } = planned;
    let HtbClass { rate, ceil, prio, quantum, burst, cburst } = class;
    format!(
        "tc class add dev {device} parent {parent} classid {id} htb rate {rate} ceil {ceil} prio {prio} \
         quantum {quantum} burst {} cburst {}",
        burst.0, cburst.0
    )
}

fn stab(stab: &Stab) -> String {
    let Stab { mtu, tsize, mpu, overhead, linklayer } = stab;
    let linklayer = match linklayer {
        LinkLayer::Ethernet => "ethernet",
        LinkLayer::Atm => "atm",
    };
    format!("stab mtu {mtu} tsize {tsize} mpu {mpu} overhead {overhead} linklayer {linklayer} ")
}

/// The kind and what is always said about it.
fn words(qdisc: &Qdisc) -> String {
    match qdisc {
        Qdisc::Cake(cake) => {
            let bandwidth = cake.bandwidth.map_or_else(|| "unlimited".to_owned(), |r| format!("bandwidth {r}"));
            format!("cake {bandwidth}")
        }
        Qdisc::FqCodel(codel) => format!("fq_codel limit {} flows {}", codel.limit, codel.flows),
        Qdisc::Htb(htb) => format!("htb default {:x}", htb.default),
    }
}

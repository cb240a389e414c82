//! A plan as the `tc`, `ip` and `nft` commands that a person would type.
//!
//! Run by a root shell in this order, on a device with the kernel's default queues, they lead to the same state as a
//! [`Transaction`](crate::transaction::Transaction) does. They are for reading and comparing; the program never runs them.

use sqm_plan::plan::{Plan, PlannedClass, PlannedQdisc, Tree};

/// The commands, each without a line end, after a comment for each rate that moves. Empty for a plan that shapes nothing.
pub fn tc(plan: &Plan) -> Vec<String> {
    let moving = plan.moving().into_iter();
    let mut lines: Vec<String> = moving
        .map(|line| format!("# {}: {line}", plan.interface))
        .collect();
    if let Some(firewall) = &plan.firewall {
        lines.extend(firewall.nft());
    }
    if let Some(egress) = &plan.egress {
        tree(&plan.interface, egress, &mut lines);
    }
    if let Some(ingress) = &plan.ingress {
        let (device, ifb) = (&plan.interface, plan.ifb());
        lines.push(format!("ip link add {ifb} type ifb"));
        tree(&ifb, ingress, &mut lines);
        // The redirect comes last: a device that is down loses packets, and one without queues does not shape them.
        lines.push(format!("ip link set {ifb} up"));
        lines.push(format!("tc qdisc add dev {device} handle ffff: ingress"));
        lines.push(format!(
            "tc filter add dev {device} parent ffff: protocol all prio 10 u32 match u32 0 0 flowid 1:1 \
             action mirred egress redirect dev {ifb}"
        ));
    }
    lines
}

/// Adds the commands for a tree: root, then classes, then leaves, then filters, because each needs its parent.
fn tree(device: &str, tree: &Tree, lines: &mut Vec<String>) {
    lines.extend(tree.root().map(|root| qdisc(device, root)));
    lines.extend(tree.classes.iter().map(|c| class(device, c)));
    lines.extend(tree.leaves().map(|leaf| qdisc(device, leaf)));
    let parent = tree
        .root()
        .map(|root| root.handle.to_string())
        .unwrap_or_default();
    lines.extend(
        tree.filters
            .iter()
            .map(|filter| format!("tc filter add dev {device} parent {parent} {filter}")),
    );
}

fn qdisc(device: &str, planned: &PlannedQdisc) -> String {
    let parent = planned
        .parent
        .map_or_else(|| "root".to_owned(), |p| format!("parent {p}"));
    let stab = planned
        .stab
        .as_ref()
        .map(|s| format!("stab {s} "))
        .unwrap_or_default();
    format!(
        "tc qdisc add dev {device} {parent} handle {} {stab}{}",
        planned.handle, planned.qdisc
    )
}

fn class(device: &str, planned: &PlannedClass) -> String {
    let PlannedClass { parent, id, class } = planned;
    format!("tc class add dev {device} parent {parent} classid {id} {class}")
}

#[cfg(test)]
mod tests {
    use sqm_core::spec::{Class, HtbClass, LinkLayer, Qdisc, Stab};
    use sqm_core::units::{Bytes, Rate};
    use sqm_plan::plan::Handle;

    use super::*;

    fn qdisc(parent: Option<Handle>, handle: Handle, words: &str) -> PlannedQdisc {
        PlannedQdisc {
            parent,
            handle,
            stab: None,
            qdisc: Qdisc::parse(words).unwrap(),
        }
    }

    #[test]
    fn one_cake_per_direction() {
        let tree = |words| Tree {
            qdiscs: vec![qdisc(None, Handle::new(1, 0), words)],
            classes: Vec::new(),
            filters: Vec::new(),
        };
        let plan = Plan {
            interface: "eth0".to_owned(),
            script: "piece_of_cake.qos".to_owned(),
            egress: Some(tree("cake bandwidth 20mbit besteffort nat")),
            ingress: Some(tree("cake bandwidth 80mbit besteffort nat wash ingress")),
            firewall: None,
            autorate: None,
            notes: Vec::new(),
        };
        insta::assert_snapshot!(tc(&plan).join("\n"));
    }

    #[test]
    fn htb_with_a_size_table_and_one_leaf() {
        let rate = Rate::from_kbits_per_sec(4400);
        let class = HtbClass {
            rate,
            ceil: rate,
            prio: 0,
            quantum: Some(1749),
            burst: Bytes(1749),
            cburst: Bytes(1749),
            framing: Default::default(),
        };
        let stab = Stab {
            mtu: 2047,
            tsize: 512,
            mpu: 0,
            overhead: 40,
            linklayer: LinkLayer::Atm,
        };
        let (root, top, leaf) = (Handle::new(1, 0), Handle::new(1, 1), Handle::new(1, 0x10));
        let egress = Tree {
            qdiscs: vec![
                PlannedQdisc {
                    stab: Some(stab),
                    ..qdisc(None, root, "htb default 10")
                },
                qdisc(Some(leaf), Handle::new(0x110, 0), "fq_codel limit 1001 ecn"),
            ],
            classes: vec![
                PlannedClass {
                    parent: root,
                    id: top,
                    class: Class::Htb(class.clone()),
                },
                PlannedClass {
                    parent: top,
                    id: leaf,
                    class: Class::Htb(class),
                },
            ],
            filters: Vec::new(),
        };
        let plan = Plan {
            interface: "ppp0".to_owned(),
            script: "simplest.qos".to_owned(),
            egress: Some(egress),
            ingress: None,
            firewall: None,
            autorate: None,
            notes: Vec::new(),
        };
        insta::assert_snapshot!(tc(&plan).join("\n"));
    }
}

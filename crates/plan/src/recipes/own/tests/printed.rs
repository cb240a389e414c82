//! The commands that `sqm plan` prints are a text that gives the same plan again.

use proptest::prelude::*;

use super::{load, planned, section};
use crate::device::Device;
use crate::plan::{Firewall, Plan, Tree};

/// The commands of a plan, as `sqm_kernel::render` writes them.
fn printed(plan: &Plan) -> String {
    let mut lines: Vec<String> = plan.firewall.iter().flat_map(Firewall::nft).collect();
    if let Some(egress) = &plan.egress {
        commands(&plan.interface, egress, &mut lines);
    }
    if let Some(ingress) = &plan.ingress {
        let (device, ifb) = (&plan.interface, plan.ifb());
        lines.push(format!("ip link add {ifb} type ifb"));
        commands(&ifb, ingress, &mut lines);
        lines.push(format!("ip link set {ifb} up"));
        lines.push(format!("tc qdisc add dev {device} handle ffff: ingress"));
        lines.push(format!(
            "tc filter add dev {device} parent ffff: protocol all prio 10 u32 match u32 0 0 flowid 1:1 action mirred egress \
             redirect dev {ifb}"
        ));
    }
    lines.join("\n")
}

fn commands(device: &str, tree: &Tree, lines: &mut Vec<String>) {
    let qdisc = |planned: &crate::plan::PlannedQdisc| {
        let place = planned
            .parent
            .map_or_else(|| "root".to_owned(), |parent| format!("parent {parent}"));
        let stab = planned
            .stab
            .as_ref()
            .map_or_else(String::new, |stab| format!("stab {stab} "));
        format!(
            "tc qdisc add dev {device} {place} handle {} {stab}{}",
            planned.handle, planned.qdisc
        )
    };
    lines.extend(tree.root().map(qdisc));
    let classes = tree.classes.iter();
    lines.extend(classes.map(|c| {
        format!(
            "tc class add dev {device} parent {} classid {} {}",
            c.parent, c.id, c.class
        )
    }));
    lines.extend(tree.leaves().map(qdisc));
    let filters = tree.filters.iter();
    lines.extend(filters.map(|filter| format!("tc filter add dev {device} parent 1: {filter}")));
}

fn options() -> impl Strategy<Value = Vec<String>> {
    let one = |words: &'static [&'static str]| prop::sample::select(words).prop_map(str::to_owned);
    let rate = |name: &'static str| (1u64..2_000_000).prop_map(move |kbit| format!("{name} {kbit}"));
    (
        rate("download"),
        rate("upload"),
        one(&[
            "linklayer none",
            "linklayer ethernet",
            "linklayer atm",
            "linklayer ptm",
        ]),
        (-4i32..60).prop_map(|bytes| format!("overhead {bytes}")),
        one(&[
            "linklayer_adaptation_mechanism default",
            "linklayer_adaptation_mechanism tc_stab",
            "linklayer_adaptation_mechanism htb_private",
        ]),
        one(&[
            "qdisc fq_codel",
            "qdisc codel",
            "qdisc pie",
            "qdisc sfq",
            "qdisc pfifo",
            "qdisc bfifo",
            "qdisc cake",
        ]),
        one(&["squash_ingress 0", "squash_ingress 1", "squash_dscp 0"]),
        one(&["autoflow 0", "autoflow 1"]),
    )
        .prop_map(|(a, b, c, d, e, f, g, h)| vec![a, b, c, d, e, f, g, h])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_commands_of_a_plan_are_read_back_as_the_same_plan(
        script in prop::sample::select(&["simple.qos", "simplest.qos", "simplest_tbf.qos", "piece_of_cake.qos", "best_of_cake.qos",
            "hfsc_lite.qos", "hfsc_litest.qos"][..]),
        options in options(),
    ) {
        let given: Vec<&str> = options.iter().map(String::as_str).collect();
        let Ok(mut loaded) = load(&section(script, &given), "", &Device::absent) else { return Ok(()) };
        let plan = loaded.plans.remove(0);
        let read = planned(&printed(&plan), &[]).map_err(TestCaseError::fail)?;
        prop_assert_eq!(&read.egress, &plan.egress);
        prop_assert_eq!(&read.ingress, &plan.ingress);
        prop_assert_eq!(&read.firewall, &plan.firewall);
    }
}

#[test]
fn filters_by_header_fields_are_planned_and_read_back() {
    let text = "\
tc qdisc add dev $IFACE root handle 1: htb default 20
tc class add dev $IFACE parent 1: classid 1:10 htb rate 1mbit
tc class add dev $IFACE parent 1: classid 1:20 htb rate 9mbit
tc qdisc add dev $IFACE parent 1:10 fq_codel
tc qdisc add dev $IFACE parent 1:20 fq_codel
tc filter add dev $IFACE parent 1: protocol ip prio 1 u32 match ip dport 443 0xffff match ip protocol 17 0xff flowid 1:10
tc filter add dev $IFACE parent 1: protocol ip prio 2 flower ip_proto tcp dst_ip 192.0.2.0/24 dst_port 22 classid 1:10
tc filter add dev $IFACE parent 1: protocol ipv6 prio 3 u32 match ip6 src 2001:db8::/36 flowid 1:10
tc filter add dev $IFACE parent 1: protocol ip prio 4 u32 match ip dsfield 0x10 0x1e flowid 1:10
";
    let first = planned(text, &["download 0"]).unwrap();
    let again = planned(&printed(&first), &["download 0"]).unwrap();
    assert_eq!(first.egress, again.egress);
    let filters = &first.egress.unwrap().filters;
    let printed: Vec<String> = filters.iter().map(ToString::to_string).collect();
    assert_eq!(
        printed,
        [
            "protocol ip prio 1 u32 match u32 0x110000 0xff0000 at 8 match u32 0x1bb 0xffff at 20 flowid 1:10",
            "protocol ip prio 2 u32 match u32 0x60000 0xff0000 at 8 match u32 0xc0000200 0xffffff00 at 16 match u32 0x16 0xffff at 20 flowid 1:10",
            "protocol ipv6 prio 3 u32 match u32 0x20010db8 0xffffffff at 8 match u32 0x0 0xf0000000 at 12 flowid 1:10",
            "protocol ip prio 4 u32 match u32 0x100000 0x1e0000 at 0 flowid 1:10",
        ]
    );
}

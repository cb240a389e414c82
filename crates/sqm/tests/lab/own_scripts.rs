//! Texts of `tc` commands as people write them: planned, started, verified, shown and stopped on a real kernel.

use std::path::Path;

use sqm_lab::{Clock, Home, Line};

/// The name of a text, options of its section, separated by semicolons, and the text.
const TEXTS: &[(&str, &str, &str)] = &[
    (
        "htb_tree",
        "",
        "\
# Office: four classes up, plain cake down\n\
tc qdisc add dev $IFACE root handle 1: $STAB htb default 30 r2q 10\n\
tc class add dev $IFACE parent 1: classid 1:1 htb rate $UPLINK ceil $UPLINK $HTB_BURST $HTB_QUANTUM $HTB_FRAMING\n\
tc class add dev $IFACE parent 1:1 classid 1:10 htb rate $((UPLINK*2/10))kbit ceil $UPLINK prio 0 $HTB_FRAMING\n\
tc class add dev $IFACE parent 1:1 classid 1:20 htb rate $((UPLINK*5/10))kbit ceil $UPLINK prio 1 $HTB_FRAMING\n\
tc class add dev $IFACE parent 1:1 classid 1:30 htb rate $((UPLINK*3/10))kbit ceil $((UPLINK*9/10))kbit prio 2 $HTB_FRAMING\n\
tc qdisc add dev $IFACE parent 1:10 handle 10: pfifo limit 50\n\
tc qdisc add dev $IFACE parent 1:20 handle 20: fq_codel $LIMIT $TARGET $ECN $FLOWS\n\
tc qdisc add dev $IFACE parent 1:30 handle 30: sfq perturb 10\n\
tc filter add dev $IFACE parent 1: protocol ip prio 10 u32 match ip dport 5060 0xffff flowid 1:10\n\
tc filter add dev $IFACE parent 1: protocol ip prio 11 u32 match ip tos 0xb8 0xfc flowid 1:10\n\
tc filter add dev $IFACE parent 1: protocol ipv6 prio 12 u32 match ip6 dport 5060 0xffff flowid 1:10\n\
tc filter add dev $IFACE parent 1: protocol all prio 99 matchall flowid 1:20\n\
tc qdisc add dev $IFB root handle 1: cake bandwidth $DOWNLINK besteffort $NAT $WASH $CAKE_FRAMING\n",
    ),
    (
        "cake_be",
        "link docsis",
        "\
tc qdisc add dev $IFACE root cake bandwidth ${UPLINK}kbit besteffort triple-isolate nat ack-filter split-gso rtt 50ms $CAKE_FRAMING\n\
tc qdisc add dev $IFB root cake bandwidth ${DOWNLINK}kbit besteffort triple-isolate nat wash ingress $CAKE_FRAMING\n",
    ),
    (
        "up_only",
        "download 0",
        "\
# only what leaves\n\
tc qdisc replace dev $IFACE root handle 1: htb default 1\n\
tc class replace dev $IFACE parent 1: classid 1:1 htb rate $UPLINK\n\
tc qdisc replace dev $IFACE parent 1:1 fq_codel target 10ms interval 150ms noecn\n",
    ),
    (
        "hfsc",
        "linklayer atm;overhead 40",
        "\
tc qdisc add dev $IFACE root handle 1: $STAB hfsc default 20\n\
tc class add dev $IFACE parent 1: classid 1:1 hfsc sc rate $UPLINK ul rate $UPLINK\n\
tc class add dev $IFACE parent 1:1 classid 1:10 hfsc sc umax 1500b dmax 20ms rate $((UPLINK/4))kbit ul rate $UPLINK\n\
tc class add dev $IFACE parent 1:1 classid 1:20 hfsc ls m1 0bit d 50ms m2 $((UPLINK*3/4))kbit ul rate $UPLINK\n\
tc qdisc add dev $IFACE parent 1:10 handle 100: pfifo limit 100\n\
tc qdisc add dev $IFACE parent 1:20 handle 200: $QDISC $LIMIT $TARGET $ECN\n\
tc filter add dev $IFACE parent 1: protocol ip prio 1 u32 match ip protocol 1 0xff flowid 1:10\n\
tc qdisc add dev $IFB root handle 1: hfsc default 1\n\
tc class add dev $IFB parent 1: classid 1:1 hfsc ls rate $DOWNLINK ul rate $DOWNLINK\n\
tc qdisc add dev $IFB parent 1:1 fq_codel\n",
    ),
    ("layered", "qdisc codel", LAYERED),
    ("layered2", "qdisc cake", LAYERED),
    (
        "tbf",
        "",
        "\
tc qdisc add dev $IFACE root handle 1: tbf rate $UPLINK burst 16kb latency 100ms\n\
tc qdisc add dev $IFACE parent 1: handle 10: fq_codel\n\
tc qdisc add dev $IFB root handle 1: tbf rate $DOWNLINK burst $BURST limit 3mb\n\
tc qdisc add dev $IFB parent 1:1 handle 10: sfq\n",
    ),
    (
        "marks",
        "",
        "\
firewall mark\n\
firewall erase-dscp\n\
tc qdisc add dev $IFACE root handle 1: htb default 20\n\
tc class add dev $IFACE parent 1: classid 1:1 htb rate $UPLINK\n\
tc class add dev $IFACE parent 1:1 classid 1:10 htb rate $((UPLINK/3))kbit ceil $UPLINK prio 0\n\
tc class add dev $IFACE parent 1:1 classid 1:20 htb rate $((UPLINK/3))kbit ceil $UPLINK prio 1\n\
tc class add dev $IFACE parent 1:1 classid 1:30 htb rate $((UPLINK/3))kbit ceil $UPLINK prio 2\n\
tc qdisc add dev $IFACE parent 1:10 codel\n\
tc qdisc add dev $IFACE parent 1:20 fq_codel\n\
tc qdisc add dev $IFACE parent 1:30 pie\n\
tc filter add dev $IFACE parent 1: protocol ip prio 1 handle 1/$MARK_MASK fw flowid 1:10\n\
tc filter add dev $IFACE parent 1: protocol ip prio 2 handle 3/$MARK_MASK fw flowid 1:30\n\
tc qdisc add dev $IFB root cake bandwidth $DOWNLINK besteffort\n",
    ),
    (
        "cake_mq",
        "",
        "\
tc qdisc add dev $IFACE root $CAKE bandwidth $UPLINK $NAT $WASH $CAKE_FRAMING $CAKE_OPTIONS $OPTIONS\n\
ip link add $IFB type ifb\n\
ip link set dev $IFB up\n\
tc qdisc add dev $IFACE handle ffff: ingress\n\
tc qdisc add dev $IFB root $CAKE bandwidth $DOWNLINK $NAT $WASH $CAKE_FRAMING $CAKE_OPTIONS $OPTIONS\n\
tc filter add dev $IFACE parent ffff: protocol all matchall action mirred egress redirect dev $IFB\n",
    ),
    (
        "printed",
        "",
        "\
tc qdisc add dev $IFACE root handle 1: htb default 0x1\n\
tc class add dev $IFACE parent 1: classid 1:1 htb rate 5mbit ceil 5mbit burst 15k\n\
tc qdisc add dev $IFACE parent 1:1 bfifo limit 100kb\n\
tc qdisc add dev $IFB root tbf rate 50mbit burst 64kb latency 50ms\n\
tc qdisc add dev $IFB parent 1: pfifo_head_drop limit 300\n",
    ),
    // As Windows saves it, with commands over several lines.
    (
        "windows",
        "",
        "\u{feff}\ttc qdisc add \\\r\n\t\tdev $IFACE \\\r\n\t\troot cake \\\r\n\t\tbandwidth $UPLINK\r\n\r\n\
         \x20  tc\tqdisc\tadd dev $IFB root cake bandwidth $DOWNLINK # arrives\r\n",
    ),
];

/// Classes in three levels, or CAKE.
const LAYERED: &str = "\
# three levels of htb, both ways, and headings
[when not qdisc cake]
tc qdisc add dev $IFACE root handle 1: htb default 120
tc class add dev $IFACE parent 1: classid 1:1 htb rate $UPLINK
tc class add dev $IFACE parent 1:1 classid 1:10 htb rate $((UPLINK/2))kbit ceil $UPLINK
tc class add dev $IFACE parent 1:10 classid 1:110 htb rate $((UPLINK/4))kbit ceil $((UPLINK/2))kbit
tc class add dev $IFACE parent 1:10 classid 1:120 htb rate $((UPLINK/4))kbit ceil $UPLINK
tc class add dev $IFACE parent 1:1 classid 1:20 htb rate $((UPLINK/2))kbit ceil $UPLINK
tc qdisc add dev $IFACE parent 1:110 $QDISC
tc qdisc add dev $IFACE parent 1:120 $QDISC
tc qdisc add dev $IFACE parent 1:20 $QDISC
tc filter add dev $IFACE parent 1: protocol ip prio 1 flower ip_proto tcp dst_port 443 classid 1:110
tc filter add dev $IFACE parent 1: protocol ipv6 prio 2 flower ip_proto udp src_port 53 classid 1:20
[when qdisc cake]
tc qdisc add dev $IFACE root cake bandwidth $UPLINK diffserv4 $CAKE_FRAMING
[always]
tc qdisc add dev $IFB root cake bandwidth $DOWNLINK diffserv4 $WASH $CAKE_FRAMING
";

const TOOLS: &str = "
set +e
cd /tmp
on_router() { ip netns exec router \"$@\"; }
# The queues and filters of wan0, the IFB and the firewall, without counters.
queues() { on_router sh -c 'tc qdisc show dev wan0; tc class show dev wan0; tc filter show dev wan0; tc filter show dev wan0 ingress; ip -o link show type ifb; nft list tables' 2>&1; }
ok() { on_router sqm $* --config /tmp/sqm >said 2>&1 || { echo \"$name: sqm $*: $(cat said)\"; false; }; }
# Writes a section with a text and further options.
section() { printf \"config queue\\n\\toption enabled 1\\n\\toption interface wan0\\n\\toption download 50mbit\\n\\toption upload 10mbit\\n\\toption script $1\\n$2\" >sqm; }
try() {
    name=$1; section $1.tc \"$2\"; queues >before
    ok plan; ok start; grep -q 'wan0: shaped' said || cat said
    ok verify; ok status; grep -q '^wan0' said || { echo \"$name: the status:\"; cat said; }
    # What is printed is a text again, with the same queues.
    ok plan --format tc; grep '^tc \\|^ip \\|^nft ' said >again.tc
    rates=''; case \"$2\" in *'download 0'*) rates='\\toption download 0\\n' ;; esac
    section again.tc \"$rates\"; ok start; grep -q 'wan0: unchanged' said || { echo \"$name: the printed text:\"; cat said again.tc; }
    ok stop; queues >after; diff before after || echo \"$name: stop has left something\"
}
";

#[test]
fn texts_of_all_kinds_are_started_verified_shown_and_stopped() {
    let line = Line::named("cable24").expect("a known line");
    let program = Path::new(env!("CARGO_BIN_EXE_sqm-lab"));
    let home =
        Home::boot(Clock::Virtual, program, &line).unwrap_or_else(|e| panic!("the lab must start: {e}"));
    let mut script = TOOLS.to_owned();
    for (name, options, text) in TEXTS {
        home.write(&format!("/tmp/{name}.tc"), text.as_bytes())
            .expect("a file");
        let options = options.split(';').filter(|option| !option.is_empty());
        let options: String = options.map(|option| format!("\\toption {option}\\n")).collect();
        script += &format!("try {name} '{options}'\n");
    }
    let said = home.script(&script).expect("the lab answers");
    assert!(said.is_empty(), "{said}");
}

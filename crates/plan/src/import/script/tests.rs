use proptest::prelude::*;

use super::*;
use crate::import::Reader;
use crate::plan::Plan;

/// One class, or CAKE, in the forms of sqm-scripts.
const ONE_CLASS: &str = r#"# a setup script of one's own
. ${SQM_LIB_DIR}/defaults.sh

shape_with_cake() {
    $TC qdisc add dev $IFACE root `get_stab_string` cake bandwidth ${UPLINK}kbit besteffort `get_cake_lla_string` ${EQDISC_OPTS}
}

egress() {
    sqm_debug "leaving"
    LQ="quantum `get_htb_quantum $IFACE ${UPLINK} ${ESHAPER_QUANTUM_DUR_US}`"
    BURST="`get_htb_burst $IFACE ${UPLINK} ${ESHAPER_BURST_DUR_US}`"
    SILENT=1 $TC qdisc del dev $IFACE root
    case $QDISC in
        cake*) shape_with_cake; return ;;
    esac
    $TC qdisc add dev $IFACE root handle 1: $(get_stab_string) htb default 10
    $TC class add dev $IFACE parent 1: classid 1:1 htb $LQ rate ${UPLINK}kbit ceil ${UPLINK}kbit $BURST $(get_htb_adsll_string)
    $TC class add dev $IFACE parent 1:1 classid 1:10 htb $LQ rate ${UPLINK}kbit ceil ${UPLINK}kbit $BURST prio 0 $(get_htb_adsll_string)
    $TC qdisc add dev $IFACE parent 1:10 handle 110: $QDISC \
        $(get_limit ${ELIMIT}) $(get_target "${ETARGET}" ${UPLINK}) $(get_ecn ${EECN}) $(get_flows ${UPLINK}) ${EQDISC_OPTS}
}

ingress() {
    OPTS="besteffort nat"
    SILENT=1 $TC qdisc del dev $IFACE handle ffff: ingress
    $TC qdisc add dev $IFACE handle ffff: ingress
    if [ "$ZERO_DSCP_INGRESS" -eq "1" ]; then
        OPTS="$OPTS wash"
    fi
    [ "$QDISC" = "cake" ] || sqm_warn "cake all the same"
    $TC qdisc add dev $DEV root cake bandwidth ${DOWNLINK}kbit $OPTS >/dev/null 2>&1
    $IP link set dev $DEV up
    $TC filter add dev $IFACE parent ffff: protocol all prio 10 u32 \
        match u32 0 0 flowid 1:1 action mirred egress redirect dev $DEV
}

sqm_prepare_script() {
    do_modules
    verify_qdisc "htb" || return 1
}
"#;

/// Three classes with marks, in the forms of sqm-scripts.
const THREE_CLASSES: &str = r#". /usr/lib/sqm/defaults.sh
marks() {
    ipt -t mangle -N QOS_MARK_${IFACE}
    ipt -t mangle -A QOS_MARK_${IFACE} -j MARK --set-mark 0x2/${IPT_MASK}
    ipt -t mangle -A QOS_MARK_${IFACE} -m dscp --dscp-class CS1 -j MARK --set-mark 0x3/${IPT_MASK}
    ipt -t mangle -A QOS_MARK_${IFACE} -m dscp --dscp-class CS6 -j MARK --set-mark 0x1/${IPT_MASK}
    ipt -t mangle -A QOS_MARK_${IFACE} -m dscp --dscp-class EF -j MARK --set-mark 0x1/${IPT_MASK}
    ipt -t mangle -A QOS_MARK_${IFACE} -m dscp --dscp-class AF42 -j MARK --set-mark 0x1/${IPT_MASK}
    ipt -t mangle -A QOS_MARK_${IFACE} -m tos --tos Minimize-Delay -j MARK --set-mark 0x1/${IPT_MASK}
    if [ "$ZERO_DSCP_INGRESS" = "1" ]; then
        ipt -t mangle -I PREROUTING -i $IFACE -m dscp ! --dscp 0 -j DSCP --set-dscp-class be
    fi
    ipt -t mangle -A POSTROUTING -o $IFACE -m mark --mark 0x00/${IPT_MASK} -g QOS_MARK_${IFACE}
}

three() {
    THIRD=`expr $CEIL / 3`
    SIXTH=$((CEIL / 6))
    MOST=`expr $CEIL - 16`
    $TC class add dev $WHERE parent 1: classid 1:1 htb $LQ rate ${CEIL}kbit ceil ${CEIL}kbit $BURST `get_htb_adsll_string`
    $TC class add dev $WHERE parent 1:1 classid 1:11 htb $LQ rate $OWN ceil ${THIRD}kbit prio 1 `get_htb_adsll_string`
    $TC class add dev $WHERE parent 1:1 classid 1:12 htb $LQ rate ${SIXTH}kbit ceil ${MOST}kbit $BURST prio 2 `get_htb_adsll_string`
    $TC class add dev $WHERE parent 1:1 classid 1:13 htb $LQ rate ${SIXTH}kbit ceil ${MOST}kbit $BURST prio 3 `get_htb_adsll_string`
}

egress() {
    CEIL=$UPLINK; WHERE=$IFACE; OWN=128kbit
    LQ="quantum `get_htb_quantum $IFACE $CEIL ${ESHAPER_QUANTUM_DUR_US}`"
    BURST=`get_htb_burst $IFACE $CEIL ${ESHAPER_BURST_DUR_US}`
    $TC qdisc add dev $IFACE root handle 1: `get_stab_string` htb default 12
    three
    $TC qdisc add dev $IFACE parent 1:11 handle 110: $QDISC `get_limit ${ELIMIT}` `get_target "${ETARGET}" $UPLINK` `get_ecn ${EECN}` `get_quantum 300` `get_flows ${THIRD}` ${EQDISC_OPTS}
    $TC qdisc add dev $IFACE parent 1:12 handle 120: $QDISC `get_limit ${ELIMIT}` `get_target "${ETARGET}" $UPLINK` `get_ecn ${EECN}` `get_quantum 300` `get_flows ${SIXTH}` ${EQDISC_OPTS}
    $TC qdisc add dev $IFACE parent 1:13 handle 130: $QDISC `get_limit ${ELIMIT}` `get_target "${ETARGET}" $UPLINK` `get_ecn ${EECN}` `get_quantum 300` `get_flows ${SIXTH}` ${EQDISC_OPTS}
    $TC filter add dev $IFACE parent 1:0 protocol all prio 999 u32 match ip protocol 0 0x00 flowid 1:12
    $TC filter add dev $IFACE parent 1:0 protocol ip prio 1 handle 1/${IPT_MASK} fw classid 1:11
    $TC filter add dev $IFACE parent 1:0 protocol ip prio 2 handle 2/${IPT_MASK} fw classid 1:12
    $TC filter add dev $IFACE parent 1:0 protocol ip prio 3 handle 3/${IPT_MASK} fw classid 1:13
    $TC filter add dev $IFACE parent 1:0 protocol ipv6 prio 4 handle 1/${IPT_MASK} fw classid 1:11
    $TC filter add dev $IFACE parent 1:0 protocol ipv6 prio 5 handle 2/${IPT_MASK} fw classid 1:12
    $TC filter add dev $IFACE parent 1:0 protocol ipv6 prio 6 handle 3/${IPT_MASK} fw classid 1:13
    $TC filter add dev $IFACE parent 1:0 protocol arp prio 7 handle 1/${IPT_MASK} fw classid 1:11
    $TC filter add dev $IFACE parent 1:0 protocol ip prio 8 u32 match ip protocol 1 0xff flowid 1:13
}

ingress() {
    CEIL=$DOWNLINK; WHERE=$DEV; OWN=32kbit
    LQ="quantum `get_htb_quantum $IFACE $CEIL ${ISHAPER_QUANTUM_DUR_US}`"
    BURST=`get_htb_burst $IFACE $CEIL ${ISHAPER_BURST_DUR_US}`
    LEAF="`get_limit ${ILIMIT}` `get_target "${ITARGET}" ${DOWNLINK}` `get_ecn ${IECN}`"
    if [ "$IGNORE_DSCP_INGRESS" != "1" ]; then
        $TC qdisc add dev $DEV root handle 1: `get_stab_string` htb default 12
        three
        $TC qdisc add dev $DEV parent 1:11 handle 110: $QDISC $LEAF `get_quantum 500` `get_flows ${THIRD}` ${IQDISC_OPTS}
        $TC qdisc add dev $DEV parent 1:12 handle 120: $QDISC $LEAF `get_quantum 1500` `get_flows ${SIXTH}` ${IQDISC_OPTS}
        $TC qdisc add dev $DEV parent 1:13 handle 130: $QDISC $LEAF `get_quantum 300` `get_flows ${SIXTH}` ${IQDISC_OPTS}
        diffserv $DEV
        return
    fi
    $TC qdisc add dev $DEV root handle 1: `get_stab_string` htb default 10
    $TC class add dev $DEV parent 1: classid 1:1 htb $LQ rate ${CEIL}kbit ceil ${CEIL}kbit $BURST `get_htb_adsll_string`
    $TC class add dev $DEV parent 1:1 classid 1:10 htb $LQ rate ${CEIL}kbit ceil ${CEIL}kbit $BURST prio 0 `get_htb_adsll_string`
    $TC qdisc add dev $DEV parent 1:10 handle 110: $QDISC $LEAF `get_flows ${DOWNLINK}` ${IQDISC_OPTS}
}

sqm_prepare_script() {
    do_modules
    marks
}
"#;

fn carried(text: &str) -> Result<Carried, Vec<Remark>> {
    carry_over(&Source {
        name: "/usr/lib/sqm/mine.qos",
        text,
        reader: Reader::Shell,
    })
}

/// The plan of a section with this setup script, without its name.
fn plan(script: &str, text: &str, options: &str) -> Plan {
    let section = format!(
        "config queue\n option enabled 1\n option interface eth0\n option upload 10mbit\n option download 85mbit\n \
         option script {script}\n{options}"
    );
    let read = |_: &str| {
        Ok(OwnFile {
            path: "mine.tc".to_owned(),
            bytes: text.as_bytes().to_vec(),
        })
    };
    let configuration = Configuration::parse_with(section.as_bytes(), "sqm", &read).unwrap();
    let mut loaded = configuration.plan(&Device::absent, &BTreeMap::new()).unwrap();
    let mut plan = loaded.plans.remove(0);
    plan.script.clear();
    plan
}

#[test]
fn a_script_becomes_a_text_with_its_cases_as_headings() {
    let text = carried(ONE_CLASS).unwrap().text;
    assert_eq!(
        text,
        "\
# From mine.qos by 'sqm import'.

[when qdisc cake]
tc qdisc add dev $IFACE root $STAB cake bandwidth $UPLINK besteffort $CAKE_FRAMING $CAKE_OPTIONS $OPTIONS

[when not qdisc cake]
tc qdisc add dev $IFACE root handle 1: $STAB htb default 10
tc class add dev $IFACE parent 1: classid 1:1 htb $HTB_QUANTUM rate $UPLINK ceil $UPLINK $HTB_BURST $HTB_FRAMING
tc class add dev $IFACE parent 1:1 classid 1:10 htb $HTB_QUANTUM rate $UPLINK ceil $UPLINK $HTB_BURST prio 0 $HTB_FRAMING
tc qdisc add dev $IFACE parent 1:10 handle 110: $QDISC $LIMIT $TARGET $ECN $FLOWS $OPTIONS

[when squash_dscp]
tc qdisc add dev $IFB root cake bandwidth $DOWNLINK besteffort nat wash

[when not squash_dscp]
tc qdisc add dev $IFB root cake bandwidth $DOWNLINK besteffort nat
"
    );
}

#[test]
fn scripts_that_use_what_sqm_scripts_offers_give_the_plans_of_the_built_in_ones() {
    const OPTIONS: [&str; 9] = [
        "",
        " option linklayer atm\n option overhead 40\n",
        " option link vdsl2\n",
        " option linklayer ptm\n option overhead 30\n option linklayer_adaptation_mechanism htb_private\n",
        " option squash_ingress 0\n option autoflow 1\n",
        " option squash_dscp 0\n",
        " option qdisc codel\n option etarget 20ms\n",
        " option shaper_burst_dur_us 10000\n option ilimit 70\n",
        " option download 900\n option upload 0\n",
    ];
    let carried_over = carried(THREE_CLASSES).unwrap();
    let one = carried(ONE_CLASS).unwrap().text;
    for options in OPTIONS {
        assert_eq!(
            plan("mine.tc", &carried_over.text, options),
            plan("simple.qos", "", options),
            "{options}"
        );
        assert_eq!(
            plan("mine.tc", &one, options).egress,
            plan("simplest.qos", "", options).egress,
            "{options}"
        );
    }
    // Below 800 kbit/s the built-in setup script keeps less free, which the script does not know.
    let slow = " option upload 500\n";
    let keeps = |script, kbit: &str| plan(script, &carried_over.text, slow).to_string().contains(kbit);
    assert!(keeps("mine.tc", "ceil 484kbit") && keeps("simple.qos", "ceil 490kbit"));
    let lines: Vec<usize> = carried_over
        .differences
        .iter()
        .map(|remark| remark.line)
        .collect();
    assert_eq!(lines, [42, 43], "{:?}", carried_over.differences);
}

#[test]
fn what_is_not_carried_over_is_named_by_its_line() {
    let script = |line: &str| {
        format!(
            ". ${{SQM_LIB_DIR}}/defaults.sh\negress() {{\n    {line}\n    $TC qdisc add dev $IFACE root cake bandwidth ${{UPLINK}}kbit\n}}\n"
        )
    };
    carried(&script("do_modules")).unwrap();
    for (line, words) in [
        ("ethtool -K $IFACE gso off", "'ethtool'"),
        ("iptables -t mangle -F", "'iptables'"),
        ("ipt -t mangle -A FORWARD -j DROP", "not one of simple.qos"),
        ("for i in 1 2 3; do true; done", "'for'"),
        ("while true; do true; done", "'while'"),
        ("cat /proc/net/dev | wc -l", "'|'"),
        ("sleep 5 &", "'&'"),
        ("echo f > /sys/class/net/eth0/rps", "'>/sys/class/net/eth0/rps'"),
        ("sqm_log done >> /tmp/sqm.log", "'>/tmp/sqm.log'"),
        ("$IP link set dev $DEV mtu 9000", "'ip'"),
        ("OVERHEAD=44", "set option overhead in the section"),
        ("LLAM=tc_stab", "set option linklayer_adaptation_mechanism"),
        ("[[ $QDISC == cake ]] && X=1", "'[[' is not of the shell"),
        ("[ -n \"$QDISC\" ] || X=1", "this test is not carried over"),
        ("if do_modules; then X=1; fi", "only tests such as"),
        ("if { [ 1 = 1 ]; X=1; }; then X=1; fi", "only tests such as"),
        ("if [ 1 = 1 ] && do_modules; then X=1; fi", "only tests such as"),
        ("f() { X=$1; }; f", "$1 is not set"),
        (
            "ipt -t mangle -A QOS_MARK_${IFACE} -p tcp -m dscp --dscp-class EF -j MARK --set-mark 0x1/${IPT_MASK}",
            "not one of simple.qos",
        ),
        (
            "ipt -t mangle -A POSTROUTING -o $IFACE -p udp -m mark --mark 0x00/${IPT_MASK} -g QOS_MARK_${IFACE}",
            "not one of simple.qos",
        ),
        ("local RATE=$(cat /proc/rate)", "'cat' is not a helper"),
        ("RATE=$(cat /sys/class/net/$IFACE/speed)", "'cat' is not a helper"),
        ("RATE=`uci get sqm.eth1.download`", "'uci' is not a helper"),
        (
            "$TC class add dev $IFACE parent 1: classid 1:1 htb rate $RATE",
            "$RATE is not set",
        ),
        (
            "$TC class add dev $IFACE parent 1: classid 1:1 htb rate ${DWNLINK}kbit",
            "did you mean '$DOWNLINK'",
        ),
        (
            "$TC qdisc add dev $IFACE root handle 1: netem delay 5ms",
            "'netem'",
        ),
        ("$TC qdisc add dev eth7 root fq_codel", "'eth7'"),
        (
            "$TC qdisc add dev $IFACE root fq_codel limit $ELIMIT",
            "get_limit",
        ),
        (
            "$TC qdisc add dev $IFACE root fq_codel `get_limit $ILIMIT`",
            "of this direction",
        ),
        ("[ -e /etc/fast ] && RATE=5", "this test is not carried over"),
        (
            "[ \"$IFACE\" = \"eth1\" ] && RATE=5",
            "this test is not carried over",
        ),
        ("case $IFACE in eth*) RATE=5 ;; esac", "only 'case $QDISC in'"),
        (". /etc/sqm/more.sh", "the file that is read here is not known"),
        ("eval $TC qdisc add", "'eval'"),
        ("X=$((UPLINK % 3))", "'%'"),
        ("X=\"unclosed", "is not closed"),
        ("if true; then", "'fi' is expected"),
        ("rm -rf /", "'rm'"),
    ] {
        let errors = carried(&script(line)).expect_err(line);
        let said = errors[0].to_string();
        let is_at_the_end = ["X=\"unclosed", "if true; then"].contains(&line);
        assert!(
            is_at_the_end || said.starts_with("/usr/lib/sqm/mine.qos:3: "),
            "{line}: {said}"
        );
        assert!(said.contains(words), "{line}: {said}");
    }
    let own_start = format!("{}sqm_start() {{\n do_modules\n}}\n", script("do_modules"));
    assert!(
        carried(&own_start).unwrap_err()[0]
            .to_string()
            .contains("'sqm_start'")
    );
    assert!(
        carried("echo hello\n").unwrap_err()[0]
            .to_string()
            .contains("neither a function egress()")
    );
}

#[test]
fn a_redirect_that_does_more_is_named_and_one_that_sqm_makes_itself_is_left_out() {
    let script = |filter: &str| {
        format!(
            "ingress() {{\n    $TC qdisc add dev $IFACE handle ffff: ingress\n    $TC qdisc add dev $DEV root cake bandwidth \
             ${{DOWNLINK}}kbit\n    $TC filter add dev $IFACE parent ffff: {filter} action mirred egress redirect dev $DEV\n}}\n"
        )
    };
    for filter in [
        "protocol all prio 10 u32 match u32 0 0 flowid 1:1",
        "protocol all matchall",
    ] {
        let text = carried(&script(filter)).unwrap().text;
        assert!(!text.contains("filter"), "{text}");
    }
    for filter in [
        "protocol all prio 10 u32 match u32 0 0 flowid 1:1 action ctinfo dscp 63 128",
        "protocol all prio 10 u32 match u32 0 0 action connmark",
        "protocol all prio 10 u32 match u32 0 0 match ip protocol 6 0xff flowid 1:1",
        "protocol ip prio 10 u32 match u32 0 0 flowid 1:1",
    ] {
        let errors = carried(&script(filter)).expect_err(filter);
        assert!(
            errors[0]
                .to_string()
                .starts_with("/usr/lib/sqm/mine.qos:4: sqm leads all arriving packets"),
            "{errors:?}"
        );
    }
}

/// The lines of the text of a script with this body of `egress`, and these functions before it.
fn egress(functions: &str, body: &str) -> Vec<String> {
    let script = format!("{functions}\negress() {{\n{body}\n}}\n");
    let text = carried(&script)
        .unwrap_or_else(|errors| panic!("{body}: {errors:?}"))
        .text;
    text.lines()
        .filter(|line| !line.is_empty())
        .skip(1)
        .map(str::to_owned)
        .collect()
}

#[test]
fn each_side_of_a_test_is_carried_over() {
    let cake = |words: &str| format!("$TC qdisc add dev $IFACE root cake bandwidth ${{UPLINK}}kbit {words}");
    let (four, none) = (cake("diffserv4"), cake("besteffort"));
    let cake_or_not = [
        "[when qdisc cake]",
        "tc qdisc add dev $IFACE root cake bandwidth $UPLINK diffserv4",
        "[when not qdisc cake]",
        "tc qdisc add dev $IFACE root cake bandwidth $UPLINK besteffort",
    ];
    for body in [
        format!("[ \"$QDISC\" = \"cake\" ] && {four} || {none}"),
        format!("[ \"$QDISC\" != \"cake\" ] || {{ {four} && return; }}; {none}"),
        format!("if ! [ $QDISC = cake ]; then {none}; else {four}; fi"),
        format!("case $QDISC in cake) {{ {four}; }} ;; codel|pie) {none} ;; *) {none} ;; esac"),
        format!(
            "verify_qdisc cake || {{ sqm_warn \"it's not there\"; return 1; }}\n[ $QDISC = cake ] && {{ {four}; return; }}\n{none}"
        ),
    ] {
        let lines = egress("", &body);
        let (first, last) = (lines.iter().take(2), lines.iter().rev().take(1));
        assert!(
            first.eq(&cake_or_not[..2]) && last.eq(&cake_or_not[3..]),
            "{body}: {lines:#?}"
        );
    }
    let both = format!("if [ $QDISC = cake ] && [ $ZERO_DSCP_INGRESS = 1 ]; then {four}; else {none}; fi");
    let headings: Vec<String> = egress("", &both)
        .into_iter()
        .filter(|line| line.starts_with('['))
        .collect();
    assert_eq!(
        headings,
        [
            "[when qdisc cake and squash_dscp]",
            "[when qdisc cake and not squash_dscp]",
            "[when not qdisc cake]"
        ]
    );
}

#[test]
fn functions_take_arguments() {
    let functions = "\
leaf() { $TC qdisc add dev $1 parent $2 handle $3 fq_codel $4; }
part() {
    $TC class add dev $IFACE parent 1: classid 1:$1 htb rate $2
    leaf $IFACE 1:$1 ${1}: \"`get_limit $ELIMIT` `get_ecn $EECN`\"
}";
    let body = "$TC qdisc add dev $IFACE root handle 1: htb default 20\n\
                part 10 1mbit\npart 20 $((UPLINK / 2))kbit";
    assert_eq!(
        egress(functions, body),
        [
            "[always]",
            "tc qdisc add dev $IFACE root handle 1: htb default 20",
            "tc class add dev $IFACE parent 1: classid 1:10 htb rate 1mbit",
            "tc qdisc add dev $IFACE parent 1:10 handle 10: fq_codel $LIMIT $ECN",
            "tc class add dev $IFACE parent 1: classid 1:20 htb rate $((UPLINK / 2))kbit",
            "tc qdisc add dev $IFACE parent 1:20 handle 20: fq_codel $LIMIT $ECN",
        ]
    );
}

#[test]
fn a_script_of_endless_depth_or_length_is_refused_in_little_memory() {
    let (braces, expr) = (["${A:-", "}"], ["$(expr ", ")"]);
    let nested = |[open, close]: [&str; 2]| format!("X={}1{}", open.repeat(20_000), close.repeat(20_000));
    for (body, words) in [
        ("true && ".repeat(60_000) + "true", "within each other"),
        (
            format!(
                "if [ 1 = 2 ]; then true\n{}fi",
                "elif [ 1 = 2 ]; then true\n".repeat(20_000)
            ),
            "within each other",
        ),
        (nested(braces), "within each other"),
        (nested(expr), "within each other"),
        (format!("X=\"{}\"", nested(braces)), "within each other"),
        (
            format!("X=aaaaaaaa\n{}", "X=$X$X\n".repeat(60)),
            "more than 4096 bytes",
        ),
        (format!("X={}", "$UPLINK".repeat(60_000)), "more than 4096 bytes"),
    ] {
        let errors = carried(&format!("egress() {{\n{body}\n}}\n")).expect_err(words);
        assert!(errors[0].message.contains(words), "{words}: {}", errors[0]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// A damaged script is carried over to a good text, or its lines are named.
    #[test]
    fn a_script_that_is_cut_and_spliced_is_carried_over_or_named(
        base in prop::sample::select(&[ONE_CLASS, THREE_CLASSES][..]),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0..20usize, prop::sample::select(&[
            "", "\n", "`", "$(", ")", "((", "\"", "'", "{", "}", "${", ";;", "esac", "fi\n", "if [ ", "case $QDISC in ", "&&", "||", "|", "ü",
            "$QDISC", "egress", "return\n", "\\", "$1", "expr ", "[ \"$QDISC\" = \"cake\" ] && ",
        ][..])), 1..4),
    ) {
        let mut bytes = base.as_bytes().to_vec();
        for (at, length, piece) in cuts {
            let start = at.index(bytes.len());
            let end = (start + length).min(bytes.len());
            bytes.splice(start..end, piece.bytes());
        }
        let text = String::from_utf8_lossy(&bytes);
        let lines = text.lines().count().max(1);
        if let Err(errors) = carried(&text) {
            prop_assert!(!errors.is_empty());
            prop_assert!(errors.iter().all(|error| (1..=lines).contains(&error.line)), "{:?}", errors);
        }
    }
}

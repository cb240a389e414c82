//! Damaged texts are refused with the line and the word. A text that is not refused gives a whole plan.

use proptest::prelude::*;

use super::{load, planned, section};
use crate::device::Device;

/// A good text, whose lines the damaged ones replace.
const GOOD: &str = "\
# One class for what leaves, one CAKE for what arrives.
tc qdisc add dev $IFACE root handle 1: $STAB htb default 10
tc class add dev $IFACE parent 1: classid 1:1 htb rate $UPLINK ceil $UPLINK $HTB_BURST $HTB_FRAMING
tc class add dev $IFACE parent 1:1 classid 1:10 htb rate $((UPLINK / 3))kbit ceil $UPLINK
tc class add dev $IFACE parent 1:1 classid 1:11 htb rate $((UPLINK / 6))kbit ceil $UPLINK
tc qdisc add dev $IFACE parent 1:10 handle 110: $QDISC $LIMIT $TARGET $ECN $QUANTUM(300) $FLOWS $OPTIONS
tc qdisc add dev $IFACE parent 1:11 handle 111: fq_codel
tc filter add dev $IFACE parent 1: protocol ip prio 1 u32 match ip dport 53 0xffff flowid 1:11
ip link add $IFB type ifb
tc qdisc add dev $IFB root cake bandwidth ${DOWNLINK}kbit $NAT $CAKE_FRAMING $CAKE_OPTIONS
";

#[test]
fn the_text_that_the_damaged_ones_come_from_is_good() {
    let plan = planned(GOOD, &[]).unwrap();
    assert_eq!(plan.egress.unwrap().classes.len(), 3);
    assert!(
        plan.ingress
            .unwrap()
            .root()
            .unwrap()
            .to_string()
            .contains("cake bandwidth 85mbit")
    );
    assert_eq!(plan.script, "mine.tc");
}

/// The line to replace (0 adds one at the end), its damaged form, the line that the error names, and words of the error.
const DAMAGED: &[(usize, &str, usize, &str)] = &[
    // Words.
    (
        2,
        "tcc qdisc add dev $IFACE root handle 1: htb default 10",
        2,
        "'tcc'.*did you mean 'tc'",
    ),
    (
        2,
        "tc qdsc add dev $IFACE root handle 1: htb default 10",
        2,
        "'qdsc'.*did you mean 'qdisc'",
    ),
    (
        2,
        "tc qdisc ad dev $IFACE root handle 1: htb default 10",
        2,
        "'ad'.*did you mean 'add'",
    ),
    (2, "tc qdisc del dev $IFACE root", 2, "'del'.*leave the line out"),
    (
        2,
        "tc qdisc add dev $IFACE root handle 1: htbb default 10",
        2,
        "'htbb'.*did you mean 'htb'",
    ),
    (
        2,
        "tc qdisc add dev $IFACE root handle 1: htb defalt 10",
        2,
        "'defalt'.*did you mean 'default'",
    ),
    (
        2,
        "tc qdisc add dev $IFACE root handle 1: htb default",
        2,
        "'default' needs",
    ),
    (
        2,
        "tc qdisc add dev $IFACE root handle 1: htb default zz",
        2,
        "'zz'",
    ),
    (
        2,
        "tc qdisc add dev $IFACE root handle 1: prio bands 3",
        2,
        "'prio'.*unknown queueing discipline",
    ),
    (
        2,
        "tc qdisc add dev $IFACE root handle 1: netem delay 5ms",
        2,
        "'netem'",
    ),
    (
        2,
        "tc qdisc add dev $IFACE root",
        2,
        "the name of a queueing discipline is missing",
    ),
    (2, "tc", 2, "'dev' is missing"),
    (
        10,
        "tc qdisc add dev $IFB root cake bandwith $DOWNLINK",
        10,
        "'bandwith'.*did you mean 'bandwidth'",
    ),
    (10, "tc qdisc add dev $IFB root cake bandwidth fast", 10, "'fast'"),
    (
        10,
        "tc qdisc add dev $IFB root cake bandwidth 20mbits",
        10,
        "'20mbits'.*20mbit",
    ),
    (
        10,
        "tc qdisc add dev $IFB root cake bandwidth",
        10,
        "'bandwidth' needs a rate",
    ),
    (10, "tc qdisc add dev $IFB root cake overhead 999", 10, "'999'"),
    (10, "tc qdisc add dev $IFB root cake rtt 50 ms", 10, "'ms'"),
    (
        7,
        "tc qdisc add dev $IFACE parent 1:11 fq_codel limit -1",
        7,
        "'-1'",
    ),
    (7, "tc qdisc add dev $IFACE parent 1:11 fq_codel target 5", 0, ""),
    (
        7,
        "tc qdisc add dev $IFACE parent 1:11 fq_codel flows 70000",
        7,
        "'70000'",
    ),
    (
        3,
        "tc class add dev $IFACE parent 1: classid 1:1 htb",
        3,
        "htb needs 'rate'",
    ),
    (
        3,
        "tc class add dev $IFACE parent 1: classid 1:1 htb rate 0",
        3,
        "'0'",
    ),
    (
        3,
        "tc class add dev $IFACE parent 1: classid 1:1 htb rate $UPLINK ceil 1mbit",
        3,
        "'1:1'.*raise 'ceil'",
    ),
    (
        3,
        "tc class add dev $IFACE parent 1: classid 1:1 htb rate $UPLINK rate 5mbit",
        3,
        "'rate'.*twice",
    ),
    (
        10,
        "tc qdisc add dev $IFB root tbf rate $DOWNLINK burst $BURST burst 9kb latency 50ms",
        10,
        "'burst'.*twice",
    ),
    (
        3,
        "tc class add dev $IFACE parent 1: classid 1:1 htb rate $UPLINK prio 9",
        3,
        "'9'",
    ),
    // Devices.
    (
        2,
        "tc qdisc add root handle 1: htb default 10",
        2,
        "'dev' is missing",
    ),
    (
        2,
        "tc qdisc add dev eth1 root handle 1: htb default 10",
        2,
        "'eth1'.*neither",
    ),
    (
        2,
        "tc qdisc add dev $DEV root handle 1: htb default 10",
        2,
        "'$DEV'.*did you mean '$IFB'",
    ),
    (2, "tc qdisc add dev", 2, "'dev' is missing"),
    (
        2,
        "tc qdisc add dev $IFACE dev $IFACE root handle 1: htb default 10",
        2,
        "'dev'.*twice",
    ),
    (
        10,
        "tc qdisc add dev $IFACE root cake",
        10,
        "'root'.*line 2 has made the root",
    ),
    (10, "# nothing arrives", 0, "option download"),
    // Places.
    (
        2,
        "tc qdisc add dev $IFACE handle 1: htb default 10",
        2,
        "either 'root' or 'parent'",
    ),
    (
        2,
        "tc qdisc add dev $IFACE root parent 1: htb default 10",
        2,
        "either 'root' or 'parent'",
    ),
    (
        2,
        "tc qdisc add dev $IFACE root handle 0: htb default 10",
        2,
        "'0:'",
    ),
    (
        2,
        "tc qdisc add dev $IFACE root handle 1:2 htb default 10",
        2,
        "'1:2'",
    ),
    (
        2,
        "tc qdisc add dev $IFACE root handle 1 htb default 10",
        2,
        "'1'",
    ),
    (
        2,
        "tc qdisc add dev $IFACE root handle 1: handle 2: htb default 10",
        2,
        "'handle'.*twice",
    ),
    (
        3,
        "tc class add dev $IFACE parent 2: classid 1:1 htb rate $UPLINK",
        3,
        "'2:'.*no line before",
    ),
    (
        3,
        "tc class add dev $IFACE parent 1:1 classid 1:1 htb rate $UPLINK",
        3,
        "'1:1'.*cycle",
    ),
    (
        3,
        "tc class add dev $IFACE parent 1:10 classid 1:1 htb rate $UPLINK",
        3,
        "'1:10'.*no line before",
    ),
    (
        3,
        "tc class add dev $IFACE classid 1:1 htb rate $UPLINK",
        3,
        "'parent'",
    ),
    (
        3,
        "tc class add dev $IFACE parent 1: htb rate $UPLINK",
        3,
        "'classid'",
    ),
    (
        3,
        "tc class add dev $IFACE parent 1: classid 2:1 htb rate $UPLINK",
        3,
        "'2:1'",
    ),
    (
        3,
        "tc class add dev $IFACE parent 1: classid 1: htb rate $UPLINK",
        3,
        "'1:'",
    ),
    (
        3,
        "tc class add dev $IFACE parent 1: classid 1:1 hfsc sc rate $UPLINK",
        3,
        "'hfsc'.*no classes of hfsc",
    ),
    (
        5,
        "tc class add dev $IFACE parent 1:1 classid 1:10 htb rate $UPLINK",
        5,
        "'1:10'.*line 4 has made this class",
    ),
    (
        5,
        "tc class add dev $IFACE parent 1:10 classid 1:11 htb rate $UPLINK",
        6,
        "'1:10'.*has classes",
    ),
    (
        6,
        "tc qdisc add dev $IFACE parent 1:12 fq_codel",
        6,
        "'1:12'.*no line before",
    ),
    (
        6,
        "tc qdisc add dev $IFACE parent 1: fq_codel",
        6,
        "'1:'.*that is the root",
    ),
    (
        6,
        "tc qdisc add dev $IFACE parent 1:1 fq_codel",
        6,
        "'1:1'.*has classes",
    ),
    (
        6,
        "tc qdisc add dev $IFACE parent 1:10 handle 1: fq_codel",
        6,
        "'1:'.*line 2 has this handle",
    ),
    (
        7,
        "tc qdisc add dev $IFACE parent 1:10 handle 111: fq_codel",
        7,
        "'1:10'.*line 6 has put a queue there",
    ),
    (
        7,
        "tc qdisc add dev $IFACE parent 1:11 handle 110: fq_codel",
        7,
        "'110:'.*line 6 has this handle",
    ),
    (
        7,
        "tc qdisc add dev $IFACE parent 1:11 handle ffff: fq_codel",
        7,
        "'ffff:'",
    ),
    (
        7,
        "tc qdisc add dev $IFACE parent 1:11 stab overhead 4 fq_codel",
        7,
        "'stab'.*root",
    ),
    (
        7,
        "tc qdisc add dev $IFACE parent 1:11 handle 5: htb default 1",
        7,
        "'htb'.*is a root",
    ),
    (7, "# no queue in 1:11", 5, "'1:11'.*no queue"),
    (
        2,
        "tc qdisc add dev $IFACE root handle 1: htb default 12",
        2,
        "'default': 1:12",
    ),
    (
        2,
        "tc qdisc add dev $IFACE root handle 1: htb default 1",
        2,
        "'default': 1:1 ",
    ),
    (
        2,
        "tc qdisc add dev $IFACE root handle 1: htb",
        2,
        "'default' is missing",
    ),
    (
        2,
        "tc qdisc add dev $IFACE root handle 1: cake",
        3,
        "'htb'.*the root is cake",
    ),
    (2, "# no root", 3, "'1:'.*begin with the root"),
    // Filters.
    (
        8,
        "tc filter add dev $IFACE parent 1: protocol ip u32 match ip dport 53 0xffff flowid 1:11",
        8,
        "'filter'.*'prio'",
    ),
    (
        8,
        "tc filter add dev $IFACE parent 1: protocol ip prio 1 u32 match ip dport 53 0xffff flowid 1:99",
        8,
        "'1:99'",
    ),
    (
        8,
        "tc filter add dev $IFACE parent 1: protocol ip prio 1 u32 match ip dport 53 0xffff flowid 1:1",
        8,
        "'1:1'.*has classes",
    ),
    (
        8,
        "tc filter add dev $IFACE parent 1:1 protocol ip prio 1 matchall classid 1:11",
        8,
        "'1:1'.*on the root",
    ),
    (
        8,
        "tc filter add dev $IFACE parent 1: protocol ip prio 1 u32 match ip dport 53 0xffff",
        8,
        "a class",
    ),
    (
        8,
        "tc filter add dev $IFACE parent 1: protocol ipx prio 1 matchall classid 1:11",
        8,
        "'ipx'",
    ),
    (
        8,
        "tc filter add dev $IFACE parent 1: protocol ip prio 0 matchall classid 1:11",
        8,
        "'0'",
    ),
    (
        8,
        "tc filter add dev $IFACE parent 1: protocol ip prio 1 bpf classid 1:11",
        8,
        "'bpf'",
    ),
    (
        8,
        "tc filter add dev $IFACE parent ffff: protocol all prio 10 matchall action mirred egress redirect dev eth9",
        8,
        "'eth9'",
    ),
    (
        8,
        "tc filter add dev $IFACE parent ffff: protocol ip prio 10 matchall action drop",
        8,
        "'ffff:'",
    ),
    (
        0,
        "tc filter add dev $IFACE parent 1: protocol ip prio 1 matchall classid 1:10",
        11,
        "'1'.*line 8",
    ),
    // Variables and expressions.
    (
        3,
        "tc class add dev $IFACE parent 1: classid 1:1 htb rate $UPLNK",
        3,
        "'$UPLNK'.*did you mean '$UPLINK'",
    ),
    (
        3,
        "tc class add dev $IFACE parent 1: classid 1:1 htb rate ${UPLINK",
        3,
        "'${UPLINK'",
    ),
    (
        3,
        "tc class add dev $IFACE parent 1: classid 1:1 htb rate $",
        3,
        "'$'",
    ),
    (
        3,
        "tc class add dev $IFACE parent 1: classid 1:1 htb rate ${UPLINK}mbit",
        3,
        "'${UPLINK}mbit'",
    ),
    (
        4,
        "tc class add dev $IFACE parent 1:1 classid 1:10 htb rate $((UPLINK / 0))kbit",
        4,
        "division by zero",
    ),
    (
        4,
        "tc class add dev $IFACE parent 1:1 classid 1:10 htb rate $((UPLINK / ))kbit",
        4,
        "number or a name",
    ),
    (
        4,
        "tc class add dev $IFACE parent 1:1 classid 1:10 htb rate $((UPLINK / 3)kbit",
        4,
        "not closed",
    ),
    (
        4,
        "tc class add dev $IFACE parent 1:1 classid 1:10 htb rate $((CEIL / 3))kbit",
        4,
        "'CEIL'",
    ),
    (
        4,
        "tc class add dev $IFACE parent 1:1 classid 1:10 htb rate $((UPLINK - 99999999))kbit",
        4,
        "-",
    ),
    (
        4,
        "tc class add dev $IFACE parent 1:1 classid 1:10 htb rate $((max(UPLINK)))kbit",
        4,
        "'max' takes two",
    ),
    (
        4,
        "tc class add dev $IFACE parent 1:1 classid 1:10 htb rate $((9999999999 * 9999999999))kbit",
        4,
        "too large",
    ),
    (
        6,
        "tc qdisc add dev $IFACE parent 1:10 handle 110: $LIMIT fq_codel",
        6,
        "'$LIMIT'.*for a leaf",
    ),
    (
        6,
        "tc qdisc add dev $IFACE parent 1:10 handle 110: fq_codel $QUANTUM",
        6,
        "'$QUANTUM'.*bytes",
    ),
    (
        6,
        "tc qdisc add dev $IFACE parent 1:10 handle 110: fq_codel $LIMIT(3)",
        6,
        "'$LIMIT(3)'.*nothing in parentheses",
    ),
    (
        6,
        "tc qdisc add dev $IFACE parent 1:10 handle 110: $EQDISC $LIMIT",
        6,
        "'$EQDISC'",
    ),
    (
        10,
        "tc qdisc add dev $IFB root cake $LIMIT",
        10,
        "'$LIMIT'.*not for cake",
    ),
    // Commands of a shell.
    (9, "modprobe ifb", 9, "'modprobe'.*no shell"),
    (9, "for i in 1 2; do", 9, "belongs to a shell"),
    (9, "if true", 9, "'if'"),
    (
        9,
        "tc qdisc add dev $IFB root cake $(get_options)",
        9,
        "'$(get_options)'",
    ),
    (
        9,
        "$TC qdisc add dev $IFACE root cake",
        9,
        "'$TC'.*did you mean 'tc'",
    ),
    (9, "ip link set $IFACE down", 9, "'ip'"),
    (9, "ip link del $IFB", 9, "'ip'"),
    (
        9,
        "nft add table inet mine",
        9,
        "'nft add table inet mine'.*firewall mark",
    ),
    (
        9,
        "nft add rule inet sqm_eth0 postrouting drop",
        9,
        "'nft add rule inet sqm_eth0 postrouting drop'",
    ),
    (9, "nft add table inet sqm_eth0", 9, "'nft'"),
    (9, "firewall marks", 9, "'marks'.*did you mean 'mark'"),
    (9, "firewall mark all", 9, "'all'"),
    (9, "firewall", 9, "'firewall': after it"),
    (9, "tc qdisc add dev $IFB root \\", 10, "word 7 'tc'"),
    (0, "tc qdisc add dev $IFB \\", 11, "the text ends"),
    // Headings.
    (9, "[whenn qdisc cake]", 9, "'whenn'.*did you mean 'when'"),
    (9, "[when]", 9, "an option is missing"),
    (9, "[when qdisc]", 9, "'qdisc': after it"),
    (9, "[when qdisc cak]", 9, "'cak'.*did you mean 'cake'"),
    (9, "[when target 5ms]", 9, "'target'"),
    (9, "[when squash_dscp or squash_ingress]", 9, "'or'"),
    (9, "[when squash_dscp", 9, "ends with ']'"),
    (9, "[always on]", 9, "'on'"),
    (9, "[when squash_dscp and not squash_dscp]", 10, "never hold"),
];

/// Compares a message with a pattern of pieces in their order, `.*` between them; `|` separates alternatives.
fn fits(message: &str, pattern: &str) -> bool {
    pattern.split('|').any(|pattern| {
        let mut rest = message;
        pattern.split(".*").all(|piece| match rest.find(piece) {
            Some(at) => {
                rest = &rest[at + piece.len()..];
                true
            }
            None => false,
        })
    })
}

#[test]
fn a_damaged_text_is_refused_with_file_line_and_word() {
    let mut refused = 0;
    for &(replaced, line, named, pattern) in DAMAGED {
        let mut lines: Vec<&str> = GOOD.lines().collect();
        match replaced {
            0 => lines.push(line),
            number => lines[number - 1] = line,
        }
        let text = lines.join("\n");
        match planned(&text, &[]) {
            Ok(plan) => assert!(pattern.is_empty(), "{line}\n{plan}"),
            Err(errors) => {
                refused += 1;
                let first = errors.lines().next().unwrap();
                let place = match named {
                    0 => "sqm:6: option 'script': /etc/sqm/mine.tc:".to_owned(),
                    named => format!("sqm:6: option 'script': /etc/sqm/mine.tc:{named}: "),
                };
                assert!(first.starts_with(&place), "{line}\n{errors}");
                assert!(fits(first, pattern), "{line}\n{errors}wanted: {pattern}");
            }
        }
    }
    assert!(refused >= 100, "{refused}");
}

#[test]
fn a_line_for_a_direction_or_a_case_that_is_not_in_force_is_checked_as_well() {
    let text = GOOD.replace("root cake", "root cakee");
    assert!(
        planned(&text, &["download 0"])
            .unwrap_err()
            .contains("mine.tc:10: word 7 'cakee'")
    );
    let text = format!("{GOOD}[when qdisc cake]\ntc qdisc add dev $IFB root htb default 9\n");
    assert!(
        planned(&text, &[])
            .unwrap_err()
            .contains("mine.tc:12: word 'root': line 10")
    );
}

#[test]
fn bytes_that_are_no_text_are_refused_with_their_line() {
    let text = format!("{GOOD}tc qdisc \u{1}");
    let errors = planned(&text, &[]).unwrap_err();
    assert!(errors.contains(r"mine.tc:11: word '\u{1}': "), "{errors}");
}

#[test]
fn a_word_that_stands_for_a_long_text_is_refused_in_little_memory() {
    let text = GOOD.replace("$CAKE_OPTIONS", &"$OPTIONS".repeat(2000));
    let options = format!("iqdisc_opts {}", "nat ".repeat(50_000));
    let errors = planned(&text, &[&options]).unwrap_err();
    assert!(
        errors.contains("mine.tc:10: ") && errors.contains("more than 8192 bytes"),
        "{errors}"
    );
}

#[test]
fn a_text_that_an_editor_of_windows_has_saved_is_read() {
    let text = format!("\u{feff}{}", GOOD.replace('\n', "\r\n"));
    assert_eq!(planned(&text, &[]).unwrap(), planned(GOOD, &[]).unwrap());
    let text = text.replace("root cake", "root cakee");
    assert!(
        planned(&text, &[])
            .unwrap_err()
            .contains("mine.tc:10: word 7 'cakee'")
    );
}

#[test]
fn a_rate_that_autorate_may_choose_must_fit_the_text() {
    let text = GOOD.replace("$((UPLINK / 3))kbit", "$((UPLINK - 3000))kbit");
    planned(&text, &[]).unwrap();
    let errors = planned(&text, &["autorate 1", "min_upload 2mbit"]).unwrap_err();
    assert!(
        errors.contains("mine.tc:4: ") && errors.contains("at 2mbit"),
        "{errors}"
    );
    planned(&text, &["autorate 1", "min_upload 4mbit"]).unwrap();
}

#[test]
fn an_option_that_the_text_does_not_use_is_reported() {
    let warned = |text: &str, option: &str| {
        let loaded = load(&section("mine.tc", &[option]), text, &Device::absent).unwrap();
        let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
        warnings.join("\n")
    };
    let fixed = "tc qdisc add dev $IFACE root cake bandwidth 9mbit\ntc qdisc add dev $IFB root cake bandwidth $DOWNLINK\n";
    for option in [
        "upload 5mbit",
        "qdisc codel",
        "elimit 50",
        "itarget 5ms",
        "egress_ecn ECN",
        "iqdisc_opts nat",
        "autoflow 1",
        "shaper_burst_dur_us 2000",
        "ishaper_quantum_dur_us 2000",
        "cake_rtt 50ms",
        "ingress_cake_nat 1",
        "use_mq 1",
        "squash_dscp 0",
        "squash_ingress 0",
        "mark_mask 0x3f",
        "linklayer atm",
        "overhead 30",
        "tcMPU 64",
    ] {
        let name = option.split(' ').next().unwrap();
        let said = warned(fixed, option);
        assert!(
            said.contains(&format!("option '{name}': ignored: mine.tc does not use it")),
            "{option}: {said}"
        );
    }
    assert!(warned(fixed, "itarget 5ms").ends_with("it has no $TARGET for $IFB"));
    assert!(!warned(fixed, "download 5mbit").contains("'download'"));
    for option in [
        "eqdisc_opts quantum 500",
        "elimit 50",
        "etarget 5ms",
        "qdisc codel",
        "ingress_cake_nat 1",
        "linklayer atm",
    ] {
        let name = option.split(' ').next().unwrap();
        let said = warned(GOOD, option);
        assert!(!said.contains(&format!("'{name}': ignored")), "{option}: {said}");
    }
}

#[test]
fn a_name_is_a_bare_one_of_its_own() {
    for (name, words) in [
        ("/etc/sqm/mine.tc", "write the name alone"),
        ("../mine.tc", "write the name alone"),
        (".mine.tc", "not the name of a file"),
        ("my script.tc", "not the name of a file"),
        (
            "simple.tc",
            "has the name of the built-in simple.qos: give the file a name of its own; did you mean 'simple.qos'?",
        ),
        ("best_of_cake.tc", "has the name of the built-in best_of_cake.qos"),
        ("other.tc", "there is no other.tc"),
        ("mine.qos", "sqm runs no shell scripts"),
        ("mine", "such as 'mine.tc'"),
    ] {
        let errors = load(&section(name, &[]), GOOD, &Device::absent).unwrap_err();
        assert!(errors[0].to_string().contains(words), "{name}: {}", errors[0]);
    }
}

const OPTIONS: &[&[&str]] = &[
    &[],
    &["qdisc cake"],
    &["upload 1", "linklayer atm"],
    &["download 0"],
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// A text that is not refused gives each shaped direction its root.
    #[test]
    fn a_text_that_is_cut_and_spliced_is_planned_or_refused(
        base in prop::sample::select(&[GOOD, include_str!("simple.tc"), include_str!("simplest_tbf.tc")][..]),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0..12usize, prop::sample::select(&[
            "", " ", "\n", "\\\n", "$", "((", "))", "(", ")", "${", "}", "[", "]", "$UPLINK", "$((UPLINK", "1:10", "1:", "ffff:", "root",
            "parent", "handle", "cake", "htb", "dev", "tc ", "ü", "99999999999", "-1", "0x", "not ", "and ", "[always]\n", "/", "*", "min(",
        ][..])), 0..5),
        options in prop::sample::select(OPTIONS),
    ) {
        let mut bytes = base.as_bytes().to_vec();
        for (at, length, piece) in cuts {
            let start = at.index(bytes.len());
            let end = (start + length).min(bytes.len());
            bytes.splice(start..end, piece.bytes());
        }
        let text = String::from_utf8_lossy(&bytes);
        let lines = text.lines().count().max(1);
        match load(&section("mine.tc", options), &text, &Device::absent) {
            Ok(loaded) => {
                let plan = &loaded.plans[0];
                prop_assert!(plan.egress.as_ref().is_some_and(|tree| tree.root().is_some()));
                let is_shaped = !options.contains(&"download 0");
                prop_assert_eq!(plan.ingress.as_ref().is_some_and(|tree| tree.root().is_some()), is_shaped);
            }
            Err(errors) => {
                prop_assert!(!errors.is_empty());
                for error in errors {
                    let said = error.to_string();
                    if said.contains("more of this kind") {
                        continue;
                    }
                    let place = said.split("mine.tc:").nth(1).unwrap_or("");
                    let number = place.split(':').next().unwrap_or("").parse::<usize>();
                    prop_assert!(said.contains("option 'script': /etc/sqm/mine.tc") && said.len() < 1000, "{}", said);
                    prop_assert!(number.is_ok_and(|line| (1..=lines).contains(&line)), "{}", said);
                }
            }
        }
    }

    #[test]
    fn arbitrary_text_is_planned_or_refused(text in "(tc |[a-z$({}):/ \n\\[\\]#0-9])*{0,200}") {
        let _ = load(&section("mine.tc", &[]), &text, &Device::absent);
    }
}

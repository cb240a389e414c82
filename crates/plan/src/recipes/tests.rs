//! Settings in, plans out, as snapshots that a person can compare with what sqm-scripts would build.

use crate::device::Device;
use crate::load;

/// The plans (or errors) of a file and its warnings, as one text.
fn planned(text: &str) -> String {
    let lines = |diagnostics: &[crate::diagnostic::Diagnostic], what: &str| -> String {
        diagnostics.iter().map(|d| format!("{what}: {d}\n")).collect()
    };
    match load(text.as_bytes(), "sqm", &Device::absent) {
        Ok(loaded) => {
            let plans: String = loaded.plans.iter().map(ToString::to_string).collect();
            plans + &lines(&loaded.warnings, "warning")
        }
        Err(errors) => lines(&errors, "error"),
    }
}

/// A section for a script with further options, each `name value`.
fn section(script: &str, options: &[&str]) -> String {
    let mut text = format!(
        "config queue\n\toption enabled 1\n\toption interface eth0\n\toption download 85000\n\toption upload 10000\n\
         \toption script {script}.qos\n"
    );
    for option in options {
        let (name, value) = option.split_once(' ').unwrap();
        text.push_str(&format!("\toption {name} '{value}'\n"));
    }
    text
}

macro_rules! snapshot {
    ($name:ident, $script:literal $(, $option:literal)*) => {
        #[test]
        fn $name() {
            insta::assert_snapshot!(planned(&section($script, &[$($option),*])));
        }
    };
}

snapshot!(piece_of_cake, "piece_of_cake");
snapshot!(
    piece_of_cake_on_vdsl,
    "piece_of_cake",
    "qdisc cake",
    "linklayer ethernet",
    "overhead 34",
    "tcMPU 68"
);
snapshot!(
    piece_of_cake_on_adsl_without_wash,
    "piece_of_cake",
    "linklayer atm",
    "overhead 44",
    "squash_dscp 0"
);
snapshot!(
    piece_of_cake_with_words,
    "piece_of_cake",
    "iqdisc_opts nat dual-dsthost ingress",
    "eqdisc_opts nat dual-srchost ack-filter rtt 50ms"
);
snapshot!(
    piece_of_cake_with_a_size_table,
    "piece_of_cake",
    "linklayer ethernet",
    "overhead 26",
    "linklayer_adaptation_mechanism tc_stab"
);
snapshot!(download_only, "piece_of_cake", "upload 0");
snapshot!(layer_cake, "layer_cake", "qdisc cake");
snapshot!(
    layer_cake_with_layers_both_ways,
    "layer_cake",
    "squash_ingress 0",
    "squash_dscp 0",
    "iqdisc_opts diffserv4"
);
snapshot!(simplest, "simplest");
snapshot!(
    simplest_on_slow_adsl,
    "simplest",
    "download 2000",
    "upload 256kbit",
    "linklayer adsl",
    "overhead 40",
    "tcTSIZE 128",
    "egress_ecn NOECN",
    "ilimit 600",
    "itarget 15ms",
    "etarget default"
);
snapshot!(
    simplest_with_cake,
    "simplest",
    "qdisc cake",
    "linklayer ethernet",
    "overhead 22",
    "squash_dscp 0"
);
snapshot!(
    simplest_with_words,
    "simplest",
    "elimit 300",
    "eqdisc_opts limit 400 quantum 300",
    "squash_dscp 0"
);

snapshot!(
    ignored_by_cake,
    "piece_of_cake",
    "qdisc fq_codel",
    "ilimit 100",
    "etarget 5ms",
    "egress_ecn NOECN",
    "use_mq 1",
    "target 5ms",
    "overhead 44",
    "squash_ingress 0",
    "verbosity 8",
    "qdisc_advanced 0",
    "overhed 3",
    "autorate 1",
    "reflector_ping_interval_s 3"
);
snapshot!(
    words_that_undo_options,
    "piece_of_cake",
    "linklayer ethernet",
    "overhead 22",
    "iqdisc_opts bandwidth 20mbit bridged-ptm",
    "eqdisc_opts autorate-ingress via-ethernet raw mpu 64"
);
snapshot!(
    counted_by_htb,
    "simplest",
    "linklayer ethernet",
    "overhead 22",
    "linklayer_adaptation_mechanism htb_private",
    "squash_dscp 0"
);
snapshot!(
    several_errors_at_once,
    "piece_of_cake",
    "download 10mbits",
    "iqdisc_opts besteffrot",
    "eqdisc_opts nat rtt",
    "linklayer ehternet",
    "egress_ecn on",
    "enabled maybe",
    "itarget 5",
    "tcMPU -1"
);
snapshot!(
    too_much_overhead_for_cake,
    "layer_cake",
    "linklayer atm",
    "overhead 300",
    "tcMPU 300"
);
snapshot!(leaf_pie, "simplest", "qdisc pie");
snapshot!(leaf_unknown, "simplest", "qdisc fqcodel");
snapshot!(simple, "simple");
snapshot!(
    simple_with_three_classes_both_ways,
    "simple",
    "squash_ingress 0",
    "squash_dscp 0"
);
snapshot!(simple_with_cake, "simple", "qdisc cake");
snapshot!(simplest_tbf, "simplest_tbf", "qdisc cake");
snapshot!(hfsc_lite, "hfsc_lite", "qdisc sfq");
snapshot!(hfsc_litest, "hfsc_litest");
snapshot!(best_of_cake, "best_of_cake");
snapshot!(
    best_of_cake_towards_the_home,
    "best_of_cake",
    "facing lan",
    "upload 4400"
);
snapshot!(
    best_of_cake_with_its_own_options,
    "best_of_cake",
    "upload 4400",
    "link vdsl2-pppoe",
    "cake_rtt 30ms",
    "egress_cake_ack_filter off",
    "ingress_cake_tins diffserv8",
    "cake_memlimit 4mb",
    "squash_dscp 1"
);
snapshot!(
    two_setup_scripts,
    "best_of_cake",
    "ingress_script simplest.qos",
    "ingress_qdisc codel",
    "cake_nat 0",
    "itarget 20ms"
);
snapshot!(
    wrong_options_of_cake,
    "best_of_cake",
    "cake_rtt fast",
    "egress_cake_tins diffserv5",
    "cake_memlimit 4mb nat",
    "ingress_cake_ack_filter maybe",
    "cake_natt 1",
    "ingress_script simplst.qos",
    "mark_mask 0xf0"
);
snapshot!(script_unknown, "piece_of_cke");

#[test]
fn a_wrong_common_option_is_an_error_if_one_direction_has_its_own() {
    for (option, own, message) in [
        ("script", "egress_script simple.qos", "unknown script 'x'"),
        ("qdisc", "egress_qdisc codel", "unknown queueing discipline 'x'"),
    ] {
        let answer = planned(&section("simple", &[&format!("{option} x"), own]));
        assert!(answer.contains("error:") && answer.contains(message), "{answer}");
    }
}

/// The file that sqm-scripts ships, with the section switched on.
#[test]
fn shipped_file() {
    let text = include_str!("tests/shipped.uci");
    insta::assert_snapshot!("shipped_disabled", planned(text));
    insta::assert_snapshot!(
        "shipped_enabled",
        planned(&text.replace("enabled '0'", "enabled 'yes'"))
    );
}

#[test]
fn a_file_is_checked_as_a_whole() {
    let one = section("piece_of_cake", &[]);
    let on = |interface: &str| one.replace("eth0", interface);
    let off = on("eth0").replace("enabled 1", "enabled 0");
    let missing = "config queue\n\toption enabled 1\n";
    insta::assert_snapshot!("one_interface_twice", planned(&format!("{one}{one}")));
    insta::assert_snapshot!(
        "one_interface_twice_but_disabled",
        planned(&format!("{one}{off}"))
    );
    insta::assert_snapshot!(
        "one_ifb_twice",
        planned(&format!("{}{}", on("enx00112233aabb"), on("enx00112233aacc")))
    );
    insta::assert_snapshot!("all_missing", planned(missing));
    insta::assert_snapshot!("disabled_and_wrong", planned(&off.replace("85000", "fast")));
    insta::assert_snapshot!(
        "misspelt_section",
        planned("config qeue\n\nconfig timeserver ntp\n")
    );
    for name in ["a/b", "a b", "..", "sixteen-letters-", "eth0:1"] {
        insta::assert_snapshot!(planned(&on(&format!("'{name}'"))));
    }
}

#[test]
fn rates_are_kbit_or_carry_their_unit() {
    for (text, expected) in [
        ("85000", "bandwidth 85mbit"),
        ("85mbit", "bandwidth 85mbit"),
        ("4.4mbit", "bandwidth 4400kbit"),
        ("1gbit", "bandwidth 1gbit"),
        (
            "10mbits",
            "sqm:4: option 'download': '10mbits' is not a rate: unknown unit 'mbits'; did you mean '10mbit'?",
        ),
        (
            "4.4",
            "sqm:4: option 'download': '4.4' needs a unit, because only whole numbers are kbit/s: write '4.4mbit', or '4.4kbit'",
        ),
        ("-1", "sqm:4: option 'download': '-1' is not a rate"),
        (
            "500bit",
            "sqm:4: option 'download': '500bit' is less than 1 kbit/s, the lowest rate",
        ),
        (
            "1mbps",
            "sqm:4: option 'download': '1mbps' counts bytes, as in tc: it is 8mbit; did you mean '1mbit'?",
        ),
        ("99999999999999999999", "is too large for a rate"),
    ] {
        let text = section("piece_of_cake", &[]).replace("85000", text);
        let answer = planned(&text);
        assert!(answer.contains(expected), "{answer}");
    }
}

/// The words of each direction's root and the first class, and the warnings, for a device of that name.
fn counted(device: &str, script: &str, options: &[&str]) -> String {
    planned(&section(script, options).replace("eth0", device))
}

#[test]
fn overhead_has_one_meaning() {
    let options = |mechanism| {
        let mechanism = format!("linklayer_adaptation_mechanism {mechanism}");
        [
            "linklayer ethernet".to_owned(),
            "overhead 34".to_owned(),
            mechanism,
        ]
    };
    for (device, script, mechanism, expected) in [
        // Ethernet: the kernel's length has 14 bytes of the 34. PPP: it has none.
        ("eth0", "piece_of_cake", "cake", "noatm overhead 34"),
        ("ppp0", "piece_of_cake", "cake", "noatm overhead 34"),
        (
            "eth0",
            "piece_of_cake",
            "tc_stab",
            "overhead 20 linklayer ethernet cake",
        ),
        (
            "eth0",
            "simplest",
            "tc_stab",
            "overhead 20 linklayer ethernet htb",
        ),
        (
            "ppp0",
            "simplest",
            "tc_stab",
            "overhead 34 linklayer ethernet htb",
        ),
        ("eth0", "simplest", "htb_private", "cburst 1749b overhead 20"),
        ("ppp0", "simplest", "htb_private", "cburst 1749b overhead 34"),
        ("eth0", "simplest_tbf", "htb_private", "limit 376749b overhead 20"),
    ] {
        let options = options(mechanism);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let plan = counted(device, script, &options);
        assert!(plan.contains(expected), "{device} {script} {mechanism}: {plan}");
        let is_converted = device == "eth0" && mechanism != "cake";
        assert_eq!(
            plan.contains("note: overhead 34 above IP"),
            is_converted,
            "{plan}"
        );
    }
    // `adsl` is another name for `atm`, with every mechanism.
    let cells = counted("eth0", "piece_of_cake", &["linklayer adsl", "overhead 40"]);
    assert!(cells.contains("atm overhead 40"), "{cells}");
    // 64b/65b coding is CAKE's own, and elsewhere the rate's: 10 Mbit/s * 64 / 65.
    let cake = counted("eth0", "piece_of_cake", &["linklayer ptm", "overhead 30"]);
    assert!(
        cake.contains("bandwidth 10mbit") && cake.contains("ptm overhead 30"),
        "{cake}"
    );
    let htb = counted("eth0", "simplest", &["linklayer ptm", "overhead 30"]);
    assert!(
        htb.contains("rate 9846144bit") && htb.contains("overhead 16"),
        "{htb}"
    );
}

#[test]
fn an_unsuitable_mechanism_is_replaced() {
    for (script, overhead, mechanism, expected, said) in [
        ("piece_of_cake", "34", "htb_private", "overhead 34", "cake counts"),
        ("simplest", "34", "cake", "stab mtu 2047", "a size table counts"),
        (
            "simplest",
            "8",
            "htb_private",
            "overhead -6 linklayer",
            "htb cannot subtract the 6 bytes",
        ),
        (
            "hfsc_lite",
            "34",
            "htb_private",
            "stab mtu 2047",
            "a size table counts",
        ),
    ] {
        let overhead = format!("overhead {overhead}");
        let mechanism = format!("linklayer_adaptation_mechanism {mechanism}");
        let plan = counted("eth0", script, &["linklayer ethernet", &overhead, &mechanism]);
        assert!(plan.contains(expected) && plan.contains(said), "{plan}");
    }
}

#[test]
fn a_link_counts_what_the_device_stack_shows() {
    let counted = |device: &str, link: &str| counted(device, "best_of_cake", &[&format!("link {link}")]);
    assert!(counted("eth0", "vdsl2").contains("ptm overhead 22 mpu 64"));
    let stacked = counted("pppoe-wan", "vdsl2");
    assert!(
        stacked.contains("ptm overhead 30 mpu 64")
            && stacked.contains("note: link vdsl2: 8 bytes more for PPPoE on pppoe-wan"),
        "{stacked}"
    );
    assert!(counted("pppoe-wan", "vdsl2-pppoe").contains("overhead 30"));
    assert!(counted("eth0.7", "docsis").contains("overhead 22 mpu 64"));
    let own = planned(&section("best_of_cake", &["link vdsl2", "overhead 40"]).replace("eth0", "eth0.7"));
    assert!(
        own.contains("ptm overhead 40") && own.contains("overrides the value of option link"),
        "{own}"
    );
}

#[test]
fn simple_on_slow_lines() {
    for (kbit, first, everything) in [
        (
            "96",
            "rate 32kbit ceil 32kbit prio 1",
            "rate 16kbit ceil 95kbit prio 2",
        ),
        ("384", "rate 128kbit ceil 128kbit", "ceil 377kbit"),
        ("799", "rate 128kbit ceil 266kbit", "ceil 784kbit"),
        ("800", "rate 128kbit ceil 266kbit", "ceil 784kbit"),
        ("10", "rate 3kbit ceil 3kbit", "ceil 10kbit"),
        ("1", "rate 1kbit ceil 1kbit", "rate 1kbit ceil 1kbit"),
    ] {
        let plan = planned(&section("simple", &[]).replace("10000", kbit));
        assert!(
            plan.contains(first) && plan.contains(everything),
            "{kbit}: {plan}"
        );
    }
}

#[test]
fn the_number_of_flows_follows_the_class() {
    for (script, flows) in [
        ("simple", [32, 16, 16]),
        ("hfsc_lite", [16, 16, 32]),
        ("simplest", [64, 64, 64]),
    ] {
        let plan = planned(&section(script, &["autoflow 1", "download 0"]));
        let found: Vec<&str> = plan.lines().filter(|line| line.contains(" flows ")).collect();
        assert!(!found.is_empty(), "{plan}");
        for (line, flows) in found.into_iter().zip(flows) {
            assert!(line.contains(&format!(" flows {flows} ")), "{script}: {plan}");
        }
    }
}

#[test]
fn the_quantum_follows_the_burst_of_both_directions_only() {
    // 10 Mbit/s pass 1250 bytes in a millisecond, less than a packet in cells, and 12500 in ten.
    for (options, burst, quantum) in [
        (&["shaper_burst_dur_us 10000"][..], 12_500, 12_500),
        (&["eshaper_burst_dur_us 10000"], 12_500, 1749),
        (
            &["eshaper_burst_dur_us 10000", "shaper_burst_dur_us 20000"],
            12_500,
            25_000,
        ),
        (
            &["eshaper_quantum_dur_us 10000", "shaper_quantum_dur_us 20000"],
            1749,
            12_500,
        ),
        (
            &["eshaper_burst_dur_us ''", "shaper_burst_dur_us 10000"],
            12_500,
            12_500,
        ),
    ] {
        let plan = planned(&section("simplest", &[options, &["download 0"]].concat()));
        let class = plan
            .lines()
            .find(|line| line.contains("htb rate"))
            .expect("a class");
        assert!(
            class.contains(&format!("quantum {quantum} ")) && class.contains(&format!(" burst {burst}b ")),
            "{options:?}: {plan}"
        );
    }
}

#[test]
fn a_wrong_duration_is_reported_once() {
    let said = planned(&section(
        "simplest",
        &["shaper_burst_dur_us x", "eshaper_quantum_dur_us 1"],
    ));
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn hfsc_lite_with_cake() {
    let plan = planned(&section("hfsc_lite", &["qdisc cake"]));
    assert_eq!(plan.matches("fq_codel limit").count(), 6, "{plan}");
    assert!(plan.contains("the leaf is fq_codel"), "{plan}");
}

#[test]
fn cake_for_many_queues_where_the_device_has_them() {
    let text = section("best_of_cake", &["use_mq 1"]);
    let device = |queues| {
        move |name: &str| Device {
            queues,
            ..Device::absent(name)
        }
    };
    let plan = |queues| {
        load(text.as_bytes(), "sqm", &device(queues))
            .unwrap()
            .plans
            .remove(0)
            .to_string()
    };
    let both = plan((4, 4));
    assert_eq!(both.matches("root cake_mq bandwidth").count(), 2, "{both}");
    let one = plan((4, 1));
    assert!(
        one.contains("root cake_mq bandwidth 10mbit") && one.contains("root cake bandwidth 85mbit"),
        "{one}"
    );
    assert!(one.contains("note: use_mq: cake for arriving packets"), "{one}");
}

#[test]
fn best_of_cake_has_a_longer_rtt_on_slow_lines_but_not_on_the_slowest() {
    // Download and upload in kbit/s, and the round trips of both in milliseconds.
    for (download, upload, down, up) in [
        (1_000_000, 1_000_000, 100, 100),
        (48_000, 48_000, 100, 100),
        (24_000, 4400, 200, 600),
        (12_000, 8000, 400, 600),
        (2401, 2401, 600, 600),
        // The upload is slow, so that what the download does not leave free delays everybody.
        (13_000, 950, 100, 100),
        (24_000, 2400, 100, 100),
        (24_000, 0, 200, 0),
        (0, 4400, 0, 600),
    ] {
        let rates = [format!("download {download}"), format!("upload {upload}")];
        let plan = planned(&section("best_of_cake", &[&rates[0], &rates[1]]));
        let found: Vec<&str> = plan
            .lines()
            .filter_map(|line| line.split_once("split-gso rtt ")?.1.split(' ').next())
            .collect();
        let wanted: Vec<String> = [up, down]
            .into_iter()
            .filter(|ms| *ms > 0)
            .map(|ms| format!("{ms}ms"))
            .collect();
        assert_eq!(found, wanted, "{plan}");
    }
    let varies = planned(&section("best_of_cake", &["upload 4400", "autorate 1"]));
    assert_eq!(varies.matches("rtt 100ms").count(), 2, "{varies}");
}

mod mutations {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// Whatever happens to a good file, the answer is plans or errors with lines inside it, never a panic.
        #[test]
        fn a_damaged_file_does_not_panic(
            cuts in prop::collection::vec((any::<prop::sample::Index>(), 0..6usize, prop_oneof![
                Just(""), Just("'"), Just("\""), Just("\n"), Just("\\"), Just("config queue\n"), Just("99999999999"),
                Just("-"), Just("ü"), Just("simplest.qos"), Just("cake"), Just("mbit"), Just(" raw "), Just("\0"),
            ]), 1..8),
            words in "[a-z0-9. -]{0,40}",
        ) {
            let mut bytes = section("simplest", &[
                "linklayer atm", "overhead 40", "itarget 5ms", "eqdisc_opts limit 400", "ilimit 7", "qdisc fq_codel",
            ]).into_bytes();
            bytes.extend(section("piece_of_cake", &[&format!("iqdisc_opts {words}.")]).replace("eth0", "eth1").bytes());
            for (at, length, piece) in cuts {
                let start = at.index(bytes.len());
                let end = (start + length).min(bytes.len());
                bytes.splice(start..end, piece.bytes());
            }
            let lines = 1 + bytes.iter().filter(|b| **b == b'\n').count();
            match load(&bytes, "sqm", &Device::absent) {
                Ok(loaded) => prop_assert!(loaded.warnings.iter().all(|d| (1..=lines).contains(&d.line))),
                Err(errors) => {
                    prop_assert!(!errors.is_empty());
                    prop_assert!(errors.iter().all(|d| (1..=lines).contains(&d.line) && d.to_string().len() < 1000));
                }
            }
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = load(&bytes, "sqm", &Device::absent);
        }
    }
}

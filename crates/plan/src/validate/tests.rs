//! Configurations that people bring from elsewhere, and the message that leads to the right one.

use crate::device::Device;
use crate::{Loaded, load};

/// A section with these options, each `name value`; the last of a name holds.
fn section(options: &[&str]) -> String {
    let usual = [
        "enabled 1",
        "interface eth0",
        "download 85000",
        "upload 10000",
        "script best_of_cake.qos",
    ];
    let mut text = "config queue\n".to_owned();
    let is_given = |name: &str| {
        options
            .iter()
            .any(|option| option.split(' ').next() == Some(name))
    };
    let usual = usual
        .into_iter()
        .filter(|usual| !is_given(usual.split(' ').next().unwrap_or_default()));
    for option in usual.chain(options.iter().copied()) {
        let (name, value) = option.split_once(' ').unwrap();
        text.push_str(&format!("\toption {name} \"{value}\"\n"));
    }
    text
}

fn loaded(text: &str) -> Loaded {
    load(text.as_bytes(), "sqm", &Device::absent).unwrap_or_else(|errors| panic!("{text}{errors:?}"))
}

fn warnings(options: &[&str]) -> Vec<String> {
    let loaded = loaded(&section(options));
    loaded.warnings.iter().map(ToString::to_string).collect()
}

fn errors_of(text: &str) -> Vec<String> {
    let errors = load(text.as_bytes(), "sqm", &Device::absent).expect_err(text);
    errors.iter().map(ToString::to_string).collect()
}

fn errors(options: &[&str]) -> Vec<String> {
    errors_of(&section(options))
}

/// The only error.
fn only_error(options: &[&str]) -> String {
    let errors = errors(options);
    assert_eq!(errors.len(), 1, "{options:?}: {errors:?}");
    errors.into_iter().next().unwrap_or_default()
}

#[test]
fn options_behind_an_unticked_box_of_openwrts_form_apply_with_a_warning() {
    let planned = |options: &[&str]| {
        let loaded = loaded(&section(options));
        let plan = format!("{:?}", loaded.plans);
        (plan, warnings(options))
    };
    let (plan, told) = planned(&[
        "qdisc_really_really_advanced 0",
        "iqdisc_opts diffserv4",
        "eqdisc_opts nonat",
    ]);
    assert!(
        plan.contains("Diffserv4") && plan.contains("nat: false"),
        "{plan}"
    );
    assert_eq!(
        told,
        [
            "sqm:7: option 'qdisc_really_really_advanced': it hides fields of OpenWrt's form and switches nothing off: this \
             section's iqdisc_opts, eqdisc_opts counts as if it were ticked, as in sqm-scripts"
        ]
    );
    let (_, told) = planned(&[
        "linklayer_advanced 0",
        "linklayer ethernet",
        "overhead 22",
        "tcMPU 64",
    ]);
    assert!(told[0].contains("this section's tcMPU counts"), "{told:?}");
    // A ticked box, and the section that OpenWrt ships.
    assert_eq!(
        warnings(&[
            "linklayer_advanced 1",
            "linklayer ethernet",
            "overhead 22",
            "tcMPU 64"
        ]),
        [""; 0]
    );
    let shipped = [
        "qdisc_advanced 0",
        "ingress_ecn ECN",
        "egress_ecn ECN",
        "qdisc_really_really_advanced 0",
        "itarget auto",
        "etarget auto",
        "linklayer none",
    ];
    let (_, told) = planned(&shipped);
    assert!(told.iter().all(|warning| !warning.contains("hides")), "{told:?}");
}

/// A section as OpenWrt's page saves it untouched: the page adds these options where a section has none of that name.
fn saved_by_luci(options: &[&'static str]) -> Vec<&'static str> {
    let mut saved = options.to_vec();
    for added in ["qdisc cake", "linklayer none", "verbosity 5", "debug_logging 0"] {
        let name = added.split(' ').next();
        if options.iter().all(|option| option.split(' ').next() != name) {
            saved.push(added);
        }
    }
    saved
}

#[test]
fn a_section_that_openwrts_page_saves_untouched_is_planned_as_before() {
    let sections: [&[&str]; 9] = [
        &["download 85mbit", "upload 10mbit", "link docsis"],
        &["download 85000", "upload 10000", "link vdsl2-pppoe"],
        &["link docsis", "overhead 40"],
        &["link docsis", "linklayer atm"],
        &["script piece_of_cake.qos"],
        &["script layer_cake.qos", "link docsis", "cake_rtt 50ms"],
        &["script simple.qos", "qdisc fq_codel", "link docsis"],
        &[
            "script simplest.qos",
            "qdisc fq_codel",
            "linklayer ethernet",
            "overhead 22",
        ],
        &["script simplest_tbf.qos", "qdisc fq_codel"],
    ];
    for options in sections {
        let plans = |options: &[&str]| format!("{:#?}", loaded(&section(options)).plans);
        assert_eq!(plans(&saved_by_luci(options)), plans(options), "{options:?}");
    }
    let told = warnings(&["link docsis", "linklayer none"]);
    assert_eq!(
        told,
        [
            "sqm:8: option 'linklayer': ignored: option link gives the link layer, and 'none', which OpenWrt's page adds when it \
          saves a section, does not undo it"
        ]
    );
}

#[test]
fn an_unknown_option_is_reported_on_its_own_line_and_the_line_is_shaped() {
    for (option, meant) in [
        ("auto_rate", Some("autorate")),
        ("overhed", Some("overhead")),
        ("linklaier", Some("linklayer")),
        ("egress_enc", Some("egress_ecn")),
        ("cake_natt", Some("cake_nat")),
        ("mpu", Some("tcMPU")),
        ("tsize", Some("tcTSIZE")),
        ("diffserv", Some("cake_tins")),
        (
            "linklayer_adapt_mechanism",
            Some("linklayer_adaptation_mechanism"),
        ),
        ("ingress_cake_options", Some("iqdisc_opts")),
        ("min_dl_shaper_rate_kbps", Some("min_download")),
        ("delay_thr_ms", None),
        ("reflector_ping_interval_s", None),
    ] {
        let meant = meant.map_or(String::new(), |meant| format!("; did you mean '{meant}'?"));
        let expected = format!("sqm:7: option '{option}': ignored: sqm has no such option{meant}");
        assert_eq!(warnings(&[&format!("{option} 1")]), [expected]);
    }
    let said = warnings(&["tsize 512", "mpu 64", "startup_wait_s 60"]);
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(said[1].starts_with("sqm:8: option 'mpu'"), "{said:?}");
    // An option that the section has already is not what was meant by another name.
    let said = warnings(&["autorate 0", "auto_rate 0"]);
    assert_eq!(
        said,
        ["sqm:8: option 'auto_rate': ignored: sqm has no such option"]
    );
}

#[test]
fn a_missing_option_leads_to_its_misspelt_name() {
    let text = section(&[])
        .replace("upload", "uplaod")
        .replace("script", "scrpt");
    let said = errors_of(&text);
    assert_eq!(said.len(), 2, "{said:?}");
    for (option, name, line) in [("upload", "uplaod", 5), ("script", "scrpt", 6)] {
        let expected = format!("Option '{name}' on line {line} is probably meant to be it");
        let found = said
            .iter()
            .any(|said| said.contains(&format!("option '{option}': missing")) && said.ends_with(&expected));
        assert!(found, "{said:?}");
    }
}

#[test]
fn a_list_of_an_unknown_option_is_reported_once() {
    let text = section(&[])
        + "\tlist dns 'a.example'\n\tlist dns 'b.example'\nconfig classifier\n\toption dscp '40'\n";
    let said = loaded(&text).warnings;
    let said: Vec<String> = said.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "sqm:7: option 'dns': ignored: sqm has no such option",
            "sqm:9: unknown section type 'classifier'"
        ]
    );
}

#[test]
fn the_rate_that_was_probably_meant_is_suggested() {
    for (text, expected) in [
        ("19530.5", "; did you mean '19530.5kbit'?"),
        ("85000.5", "; did you mean '85000.5kbit'?"),
        ("97.5", ": write '97.5mbit', or '97.5kbit'"),
        ("100M", "; did you mean '100mbit'?"),
        ("50m", "; did you mean '50mbit'?"),
        ("1G", "; did you mean '1gbit'?"),
        ("85,000", "; did you mean '85000'?"),
        ("1,000,000", "; did you mean '1000000'?"),
        ("85 000", "; did you mean '85000'?"),
        ("80 Mbit/s", "; did you mean '80mbit'?"),
        ("0x4000", "; did you mean '16384'?"),
        ("2e4", "; did you mean '20000'?"),
        ("1_000", "; did you mean '1000'?"),
        ("20 000 kbit", "; did you mean '20000kbit'?"),
        ("1.000.000", "; did you mean '1000000'?"),
        ("+80mbit", "; did you mean '80mbit'?"),
        (
            "20k/s",
            "could mean 20kbit or 160kbit: type the one that you mean",
        ),
        ("12,5mbit", "; did you mean '12500kbit'?"),
        ("1234,567", "; did you mean '1234.567kbit'?"),
        ("8,50", ": write '8.50mbit', or '8.50kbit'"),
        (
            "100MB",
            "could mean 100mbit or 800mbit: type the one that you mean",
        ),
        (
            "100MB/s",
            "could mean 100mbit or 800mbit: type the one that you mean",
        ),
        (
            "1MiB",
            "could mean 1048576bit or 8388608bit: type the one that you mean",
        ),
        (
            "85,000kbit",
            "could mean 85kbit or 85mbit: type the one that you mean",
        ),
        ("80/20mbit", "is two rates: give download and upload one by one"),
    ] {
        let said = only_error(&[&format!("download {text}")]);
        assert!(said.ends_with(expected), "{said}");
    }
    for text in ["unlimited", "None", "off"] {
        let said = only_error(&[&format!("download {text}")]);
        assert!(said.ends_with("write 0 not to shape this direction"), "{said}");
    }
    for text in ["auto", "Auto", "AUTORATE"] {
        let said = only_error(&[&format!("download {text}")]);
        assert!(said.contains("option autorate '1'"), "{said}");
    }
    for text in ["auto", "-1", "0xfast", "50%", "1.2.3", "1..5"] {
        let said = only_error(&[&format!("download {text}")]);
        assert!(!said.contains("did you mean"), "{said}");
    }
}

#[test]
fn the_number_that_was_probably_meant_is_suggested() {
    for (text, meant) in [
        ("0x16", "22"),
        ("2_2", ""),
        ("22.0", "22"),
        ("22 bytes", "22"),
        ("22b", "22"),
        ("2e1", "20"),
        ("22.5", ""),
        ("22k", ""),
        ("1_000", "1000"),
        ("-0x4", ""),
    ] {
        let said = only_error(&["linklayer ethernet", &format!("overhead {text}")]);
        let expected = match meant {
            "" => format!("'{text}' is not a whole number from -1500 to 1500"),
            meant => format!("; did you mean '{meant}'?"),
        };
        assert!(said.ends_with(&expected), "{said}");
    }
    for (text, expected) in [
        ("5", "; did you mean '5ms'?"),
        ("0.005", ": write '0.005s', or '0.005ms'"),
        ("5000", ": write '5000us', or '5000ms'"),
    ] {
        let said = only_error(&["script simplest.qos", &format!("itarget {text}")]);
        assert!(said.ends_with(expected), "{said}");
    }
}

#[test]
fn a_rate_above_that_of_any_line_is_doubted() {
    for facing in ["internet", "lan"] {
        for option in ["download", "upload"] {
            let fast = format!("{option} 9999999mbit");
            let said = warnings(&[&format!("facing {facing}"), &fast]);
            let of_rate: Vec<_> = said
                .iter()
                .filter(|said| said.contains("faster than any Ethernet"))
                .collect();
            assert_eq!(of_rate.len(), 1, "{said:?}");
            assert!(
                of_rate[0].contains(&format!("option '{option}': 9999999mbit is")),
                "{said:?}"
            );
        }
    }
    let said = warnings(&["download 800gbit", "upload 400gbit"]);
    assert!(!said.iter().any(|said| said.contains("faster")), "{said:?}");
}

#[test]
fn a_time_with_a_blank_is_suggested_without_it() {
    let said = only_error(&["script simplest.qos", "itarget 5 ms"]);
    assert!(
        said.contains("option 'itarget'") && said.ends_with("; did you mean '5ms'?"),
        "{said}"
    );
}

#[test]
fn a_kind_of_line_is_no_link_layer() {
    for (text, preset, layer) in [
        ("vdsl", "vdsl2", "ptm"),
        ("VDSL2", "vdsl2", "ptm"),
        ("docsis", "docsis", "ethernet"),
        ("cable", "docsis", "ethernet"),
        ("gpon", "gpon", "ethernet"),
        ("adsl-pppoe-llc", "adsl-pppoe-llc", "atm"),
    ] {
        let said = only_error(&[&format!("linklayer {text}")]);
        let expected = format!("write option link '{preset}', or linklayer '{layer}'");
        assert!(
            said.contains(&expected) && !said.contains("did you mean"),
            "{said}"
        );
    }
    for (text, meant) in [("ehternet", "ethernet"), ("adls", "adsl"), ("ptn", "ptm")] {
        let said = only_error(&[&format!("linklayer {text}")]);
        assert!(said.ends_with(&format!("; did you mean '{meant}'?")), "{said}");
    }
    for (text, meant) in [
        ("vdsl", "vdsl2"),
        ("cable", "docsis"),
        ("doscis", "docsis"),
        ("5G", "lte"),
    ] {
        let said = only_error(&[&format!("link {text}")]);
        assert!(said.ends_with(&format!("; did you mean '{meant}'?")), "{said}");
    }
}

#[test]
fn a_reflector_in_words_says_what_to_write() {
    let said = only_error(&["autorate 1", "autorate_reflectors dns.example"]);
    assert!(
        said.contains("'dns.example' is neither an IP address") && said.contains(": write 192.0.2.1"),
        "{said}"
    );
    assert!(!said.contains("did you mean"), "{said}");
}

#[test]
fn bounds_of_the_direction_that_autorate_leaves_alone_have_no_effect() {
    let said = warnings(&["autorate download", "min_upload 500", "max_download 90000"]);
    let about: Vec<_> = said
        .iter()
        .filter(|said| said.contains("autorate moves"))
        .collect();
    assert_eq!(about.len(), 1, "{said:?}");
    assert!(
        about[0].contains("'min_upload'") && about[0].contains("the upload stays at its rate"),
        "{said:?}"
    );
    let said = only_error(&["autorate downlaod"]);
    assert!(
        said.contains("'downlaod' is not one of 0, 1, download, upload")
            && said.ends_with("did you mean 'download'?"),
        "{said}"
    );
    let loaded = loaded(&section(&["autorate on"]));
    let autorate = loaded.settings[0].autorate.as_ref().expect("autorate is on");
    assert_eq!(autorate.only, None, "the words of a switch go on to work");
}

#[test]
fn reflectors_have_blanks_or_commas_between_them() {
    for text in [
        "192.0.2.1 sqm://192.0.2.2",
        "192.0.2.1,sqm://192.0.2.2",
        "192.0.2.1, sqm://192.0.2.2",
    ] {
        let loaded = loaded(&section(&["autorate 1", &format!("autorate_reflectors {text}")]));
        let autorate = loaded.settings[0].autorate.as_ref().expect("autorate is on");
        let reflectors: Vec<String> = autorate.reflectors.iter().map(ToString::to_string).collect();
        assert_eq!(reflectors, ["192.0.2.1", "sqm://192.0.2.2"], "{text}");
    }
}

#[test]
fn scripts_of_other_packages_are_refused_with_the_one_that_does_the_same() {
    for (script, meant) in [
        ("simple_pppoe.qos", Some("simple.qos")),
        ("layer_cake_ct.qos", Some("layer_cake.qos")),
        ("simple_pppoe", Some("simple.qos")),
        ("/usr/lib/sqm/simple_pppoe.qos", Some("simple.qos")),
        ("./layer_cake.qos", Some("layer_cake.qos")),
        ("piece_of_cake", Some("piece_of_cake.qos")),
        ("bakesale.qos", None),
    ] {
        let said = only_error(&[&format!("script {script}")]);
        match meant {
            Some(meant) => assert!(said.ends_with(&format!("; did you mean '{meant}'?")), "{said}"),
            None => assert!(
                said.contains("sqm runs no shell scripts") && said.contains("'mine.tc'"),
                "{said}"
            ),
        }
    }
}

#[test]
fn a_leaf_without_effect_beside_cake_is_a_warning() {
    for qdisc in ["nfq_codel", "cake_mq", "fq_codel"] {
        let said = warnings(&["script piece_of_cake.qos", &format!("qdisc {qdisc}")]);
        let reason = format!("ignored: piece_of_cake.qos always uses cake, not '{qdisc}'");
        assert_eq!(said, [format!("sqm:7: option 'qdisc': {reason}")]);
    }
    let said = only_error(&["script simple.qos", "qdisc nfq_codel"]);
    assert!(said.ends_with("; did you mean 'fq_codel'?"), "{said}");
}

#[test]
fn a_limit_in_bytes_may_have_a_unit() {
    let limit = |qdisc: &str, limit: &str| {
        section(&[
            "script simplest.qos",
            &format!("qdisc {qdisc}"),
            &format!("elimit {limit}"),
        ])
    };
    let plans = |text: &str| loaded(text).plans;
    assert_eq!(plans(&limit("bfifo", "64kb")), plans(&limit("bfifo", "65536")));
    assert_ne!(plans(&limit("bfifo", "64kb")), plans(&limit("bfifo", "64")));
    for wrong in [
        limit("pfifo", "64kb"),
        limit("bfifo", "64kbb"),
        limit("bfifo", "0"),
        limit("bfifo", "5gb"),
    ] {
        let said = errors_of(&wrong);
        assert!(said.len() == 1 && said[0].contains("option 'elimit'"), "{said:?}");
    }
}

#[test]
fn two_sections_of_one_device_lead_to_one_with_two_scripts() {
    let one = section(&["download 0", "script layer_cake.qos"]);
    let other = section(&["upload 0", "script simplest.qos"]);
    let said = errors_of(&(one + &other));
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("egress_script and ingress_script"), "{said:?}");
}

#[test]
fn names_that_no_device_has_are_explained() {
    for (name, expected) in [
        ("@wan1", "netifd's alias of the logical interface wan1"),
        ("wan@eth0", "did you mean 'wan'?"),
        ("eth0.2@eth0", "did you mean 'eth0.2'?"),
        ("ppp*", "such as 'ppp0'"),
        ("ppp+", "such as 'ppp0'"),
        ("wlan%d", "such as 'wlan0'"),
        ("ppp[0-9]", "such as 'ppp0'"),
        ("*", "such as 'eth0'"),
    ] {
        let said = warnings(&[&format!("interface {name}")]);
        assert!(said.len() == 1 && said[0].contains(expected), "{said:?}");
        assert!(said[0].starts_with("sqm:6: option 'interface'"), "{said:?}");
    }
    for name in ["eth0", "pppoe-wan", "br-lan.20", "l2tp_vpn"] {
        assert!(warnings(&[&format!("interface {name}")]).is_empty());
    }
}

#[test]
fn a_byte_order_mark_is_no_text() {
    let text = section(&[]);
    for text in [text.clone(), text.replace('\n', "\r\n")] {
        assert_eq!(loaded(&format!("\u{feff}{text}")).plans, loaded(&text).plans);
    }
}

#[test]
fn the_output_of_uci_show_is_recognised() {
    for text in [
        "sqm.Starlink=queue\nsqm.Starlink.interface='eth0.2'\nsqm.Starlink.download='20000'\n",
        "\n# pasted\nsqm.@queue[0].enabled='1'\nsqm.@queue[0].interface='eth0'\n",
        "\u{feff}sqm.eth1=queue\r\n",
    ] {
        let said = errors_of(text);
        assert!(said.len() == 1 && said[0].contains("uci export sqm"), "{said:?}");
    }
    let said = errors_of("download=85000\nupload=10000\n");
    assert!(said.len() == 2 && said[0].contains("unknown keyword"), "{said:?}");
}

#[test]
fn cakes_estimate_and_autorate_exclude_each_other() {
    for (option, line) in [
        ("iqdisc_opts nat autorate-ingress", 9),
        ("ingress_cake_autorate_ingress 1", 9),
        ("eqdisc_opts autorate-ingress", 9),
    ] {
        let said = errors(&["autorate 1", "max_download 90000", option]);
        let name = option.split(' ').next().unwrap_or_default();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(
            said[0].starts_with(&format!("sqm:{line}: option '{name}'")),
            "{said:?}"
        );
        assert!(said[0].contains("option autorate on line 7"), "{said:?}");
        assert!(
            warnings(&["autorate 0", option])
                .iter()
                .all(|said| !said.contains("autorate on"))
        );
    }
    // The later word gives a fixed rate, which autorate cannot move either.
    let said = warnings(&["autorate 1", "iqdisc_opts autorate-ingress bandwidth 20mbit"]);
    assert!(
        said.iter()
            .any(|said| said.contains("option autorate cannot move it")),
        "{said:?}"
    );
}

#[test]
fn the_option_that_sets_cakes_estimate_is_named() {
    let said = warnings(&["cake_autorate_ingress 1"]);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].starts_with("sqm:7: option 'cake_autorate_ingress'")
            && said[0].ends_with("write ingress_cake_autorate_ingress, for arriving packets alone"),
        "{said:?}"
    );
    let said = warnings(&["egress_cake_autorate_ingress 1", "eqdisc_opts autorate-ingress"]);
    assert!(said[0].starts_with("sqm:8: option 'eqdisc_opts'"), "{said:?}");
}

#[test]
fn the_first_of_two_words_that_undo_each_other_is_reported() {
    for (words, cancelled, holds) in [
        ("diffserv4 nat besteffort", "diffserv4", "besteffort"),
        ("nat nonat", "nat", "nonat"),
        ("triple-isolate dual-srchost", "triple-isolate", "dual-srchost"),
        ("ack-filter no-ack-filter", "ack-filter", "no-ack-filter"),
        ("rtt 50ms rtt 100ms", "rtt 50ms", "rtt 100ms"),
        ("regional rtt 100ms", "regional", "rtt 100ms"),
        ("overhead 44 mpu 84 overhead 18", "overhead 44", "overhead 18"),
        ("overhead 44 raw", "overhead 44", "raw"),
        ("atm overhead 44 noatm", "atm", "noatm"),
        ("overhead 44 conservative", "overhead 44", "conservative"),
        ("overhead 44 mpu 84 docsis", "mpu 84", "docsis"),
        ("atm overhead 8 pppoe-ptm", "atm", "pppoe-ptm"),
        ("conservative raw", "conservative", "raw"),
        (
            "autorate-ingress bandwidth 8mbit",
            "autorate-ingress",
            "bandwidth 8mbit",
        ),
        ("wash nowash", "wash", "nowash"),
        ("split-gso no-split-gso", "split-gso", "no-split-gso"),
        ("memlimit 4mb memlimit 8mb", "memlimit 4mb", "memlimit 8mb"),
    ] {
        let said = warnings(&[&format!("eqdisc_opts {words}")]);
        let expected = format!(
            "sqm:7: option 'eqdisc_opts': '{cancelled}' has no effect, because '{holds}' comes after it: remove one of the two"
        );
        assert!(said.contains(&expected), "{said:?}");
    }
    for (words, cancelled, holds) in [
        ("limit 100 ecn limit 200", "limit 100", "limit 200"),
        ("ecn noecn", "ecn", "noecn"),
        ("target 5ms interval 90ms target 6ms", "target 5ms", "target 6ms"),
    ] {
        let said = warnings(&["script simplest.qos", &format!("eqdisc_opts {words}")]);
        let expected = format!("'{cancelled}' has no effect, because '{holds}' comes after it");
        assert!(said.iter().any(|said| said.contains(&expected)), "{said:?}");
    }
    let said = warnings(&[
        "script simplest.qos",
        "qdisc pie",
        "eqdisc_opts dq_rate_estimator no_dq_rate_estimator",
    ]);
    assert!(
        said.iter()
            .any(|said| said.contains("'dq_rate_estimator' has no effect")),
        "{said:?}"
    );
    for words in [
        "nat nat",
        "raw overhead 44",
        "bandwidth 8mbit autorate-ingress",
        "diffserv4 nat dual-srchost ack-filter",
        "docsis overhead 22",
        "ethernet ether-vlan",
    ] {
        let said = warnings(&[&format!("eqdisc_opts {words}")]);
        assert!(
            said.iter().all(|said| !said.contains("has no effect")),
            "{said:?}"
        );
    }
}

#[test]
fn words_that_suit_the_other_direction_are_reported() {
    for (option, expected) in [
        ("eqdisc_opts ingress", "counts packets that the queue drops"),
        ("egress_cake_ingress 1", "counts packets that the queue drops"),
        (
            "iqdisc_opts dual-srchost",
            "'dual-dsthost' shares it among the hosts of the home",
        ),
        (
            "eqdisc_opts dual-dsthost",
            "'dual-srchost' shares it among the hosts of the home",
        ),
        ("ingress_cake_isolation dual-srchost", "'dual-dsthost' shares it"),
    ] {
        let said = warnings(&[option]);
        let name = option.split(' ').next().unwrap_or_default();
        assert!(said.len() == 1 && said[0].contains(expected), "{said:?}");
        assert!(
            said[0].starts_with(&format!("sqm:7: option '{name}'")),
            "{said:?}"
        );
    }
    // Towards the home the download leaves the device.
    for option in [
        "eqdisc_opts ingress dual-dsthost",
        "iqdisc_opts egress dual-srchost",
    ] {
        assert_eq!(warnings(&["facing lan", option]), Vec::<String>::new());
        assert!(!warnings(&[option]).is_empty());
    }
}

#[test]
fn a_number_without_a_unit_is_reported_with_its_meaning() {
    for (option, expected) in [
        (
            "eqdisc_opts rtt 120",
            "'rtt 120' is 120 us, as in tc; did you mean 'rtt 120ms'?",
        ),
        (
            "iqdisc_opts bandwidth 85000",
            "'bandwidth 85000' is 85000 bit/s, as in tc; did you mean 'bandwidth 85000kbit'?",
        ),
        ("iqdisc_opts memlimit 32", "did you mean 'memlimit 32mb'?"),
        ("cake_rtt 120", "'120' is 120 us, as in tc; did you mean '120ms'?"),
    ] {
        let said = warnings(&[option]);
        let name = option.split(' ').next().unwrap_or_default();
        let found = said
            .iter()
            .any(|said| said.starts_with(&format!("sqm:7: option '{name}'")) && said.ends_with(expected));
        assert!(found, "{said:?}");
    }
    let said = warnings(&["script simplest.qos", "eqdisc_opts target 5 interval 100ms"]);
    assert!(
        said.iter()
            .any(|said| said.ends_with("did you mean 'target 5ms'?")),
        "{said:?}"
    );
    for words in ["rtt 120ms", "memlimit 33554432", "mpu 84"] {
        let said = warnings(&[&format!("eqdisc_opts {words}")]);
        assert!(said.iter().all(|said| !said.contains("as in tc")), "{said:?}");
    }
}

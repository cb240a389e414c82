use super::*;

fn one(text: &str) -> Imported {
    import(
        "eth0",
        &[Source {
            name: "eth0.iface.conf",
            text,
        }],
    )
    .unwrap()
}

fn errors(text: &str) -> Vec<String> {
    let source = Source {
        name: "eth0.iface.conf",
        text,
    };
    let errors = import("eth0", &[source]).unwrap_err();
    errors.iter().map(ToString::to_string).collect()
}

const PLAIN: &str = "UPLINK=1000\nDOWNLINK=\"85000\" # of the line\nSCRIPT='piece_of_cake.qos'\n";

#[test]
fn the_usual_file_becomes_a_section_without_differences() {
    let imported = one(PLAIN);
    assert_eq!(
        imported.to_string(),
        "config queue\n\toption interface 'eth0'\n\toption enabled '1'\n\toption download '85000'\n\
         \toption upload '1000'\n\toption script 'piece_of_cake.qos'\n"
    );
    assert_eq!(imported.differences, []);
}

#[test]
fn the_devices_file_overrides_the_default() {
    let sources = [
        Source {
            name: "default.conf",
            text: "UPLINK=1000\nDOWNLINK=2000\nSCRIPT=simple.qos\nexport LINKLAYER=atm",
        },
        Source {
            name: "eth0.iface.conf",
            text: "DOWNLINK=3000\nOVERHEAD=44\nENABLED=0",
        },
    ];
    let imported = import("eth0", &sources).unwrap();
    let get = |name: &str| {
        imported
            .options
            .iter()
            .find(|(option, _)| *option == name)
            .unwrap()
    };
    assert_eq!(get("download").1, "3000");
    assert_eq!(get("upload").1, "1000");
    assert_eq!(
        (get("linklayer").1.as_str(), get("overhead").1.as_str()),
        ("atm", "44")
    );
    assert_eq!(get("enabled").1, "0");
}

/// Each variable arrives where sqm-scripts would use it, and what is written is a configuration.
#[test]
fn every_variable_is_an_option_that_is_read() {
    let values = [
        ("ENABLED", "1"),
        ("DOWNLINK", "85000"),
        ("UPLINK", "10000"),
        ("QDISC", "fq_codel"),
        ("SCRIPT", "simple.qos"),
        ("USE_MQ", "0"),
        ("ZERO_DSCP_INGRESS", "0"),
        ("IGNORE_DSCP_INGRESS", "0"),
        ("IECN", "ECN"),
        ("EECN", "NOECN"),
        ("ILIMIT", "1001"),
        ("ELIMIT", "1001"),
        ("ITARGET", "auto"),
        ("ETARGET", "5ms"),
        ("IQDISC_OPTS", "flows 512"),
        ("EQDISC_OPTS", "flows 512"),
        ("LINKLAYER", "ethernet"),
        ("OVERHEAD", "26"),
        ("LLAM", "tc_stab"),
        ("STAB_MTU", "2047"),
        ("STAB_TSIZE", "512"),
        ("STAB_MPU", "64"),
        ("AUTOFLOW", "1"),
        ("MARK_MASK", "0xff"),
        ("SHAPER_BURST_DUR_US", "1000"),
        ("ISHAPER_BURST_DUR_US", "1000"),
        ("ESHAPER_BURST_DUR_US", "2000"),
        ("SHAPER_QUANTUM_DUR_US", "1000"),
        ("ISHAPER_QUANTUM_DUR_US", "1000"),
        ("ESHAPER_QUANTUM_DUR_US", "1000"),
        ("SQM_VERBOSITY_MAX", "5"),
    ];
    let text: String = values
        .iter()
        .map(|(name, value)| format!("{name}=\"{value}\"\n"))
        .collect();
    let imported = one(&text);
    assert_eq!(imported.differences, []);
    assert_eq!(imported.options.len(), VARIABLES.len() + 1);
    let section = imported.to_string();
    let loaded = crate::load(section.as_bytes(), "sqm", &crate::recipes::Device::absent).unwrap();
    assert_eq!(loaded.plans.len(), 1);
    let unknown = |warning: &&crate::diagnostic::Diagnostic| warning.message.contains("no such option");
    assert_eq!(loaded.warnings.iter().find(unknown), None);
}

#[test]
fn what_is_not_carried_over_is_said_with_its_line() {
    let text = format!(
        "{PLAIN}TC_BINARY=/sbin/tc\nUPLNK=5\nSQUASH_DSCP=0\nZERO_DSCP_INGRESS=1\nLIMIT=500\nILIMIT=\nETARGET=\nFROB=1\n"
    );
    let imported = one(&text);
    let said: Vec<String> = imported.differences.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "eth0.iface.conf:6: SQUASH_DSCP is another word for ZERO_DSCP_INGRESS, which stands here too",
            "eth0.iface.conf:11: FROB is no variable of sqm-scripts and is left out",
            "eth0.iface.conf:4: TC_BINARY is left out: no other program is started",
            "eth0.iface.conf:5: UPLNK is no variable of sqm-scripts and is left out; did you mean UPLINK?",
        ]
    );
    let text = imported.to_string();
    assert!(
        text.contains("ilimit '500'") && text.contains("elimit '500'") && text.contains("squash_dscp '1'")
    );
    assert!(!text.contains("etarget"), "{text}");
}

#[test]
fn first_words_of_cake_are_joined_with_the_last() {
    let layer = one(
        "UPLINK=1\nDOWNLINK=1\nSCRIPT=layer_cake.qos\nIGNORE_DSCP_INGRESS=0\nINGRESS_CAKE_OPTS='diffserv4 dual-dsthost'\nIQDISC_OPTS='rtt 50ms'\n",
    );
    assert!(
        layer
            .to_string()
            .contains("iqdisc_opts 'diffserv4 dual-dsthost nonat rtt 50ms'"),
        "{layer}"
    );
    assert_eq!(layer.differences.len(), 1);
    // Its best effort comes after the first words.
    let piece = one("UPLINK=1\nDOWNLINK=1\nSCRIPT=piece_of_cake.qos\nEGRESS_CAKE_OPTS='diffserv4 nat'\n");
    assert!(
        piece
            .to_string()
            .contains("eqdisc_opts 'diffserv4 nat besteffort'"),
        "{piece}"
    );
    let simple = one("UPLINK=1\nDOWNLINK=1\nSCRIPT=simple.qos\nEGRESS_CAKE_OPTS='nat'\n");
    assert!(
        simple.differences[0]
            .message
            .contains("no effect with simple.qos")
    );
}

/// layer_cake puts `besteffort` and `wash` behind the first words of what arrives unless it is told not to.
#[test]
fn first_words_of_cake_do_not_undo_what_the_set_up_adds() {
    let layer = "UPLINK=1\nDOWNLINK=1\nSCRIPT=layer_cake.qos\nEGRESS_CAKE_OPTS='diffserv4 nat'\n\
                 INGRESS_CAKE_OPTS='diffserv4 nat nowash'\n";
    let both = one(layer).to_string();
    assert!(
        both.contains("iqdisc_opts 'diffserv4 nat nowash besteffort wash'"),
        "{both}"
    );
    assert!(both.contains("eqdisc_opts 'diffserv4 nat'"), "{both}");
    let neither = one(&format!("{layer}SQUASH_DSCP=0\nSQUASH_INGRESS=0\n")).to_string();
    assert!(
        neither.contains("iqdisc_opts 'diffserv4 nat nowash'"),
        "{neither}"
    );
    let empty = one(&format!("{layer}INGRESS_CAKE_OPTS=\n")).to_string();
    assert!(!empty.contains("iqdisc_opts"), "{empty}");
}

#[test]
fn an_empty_variable_leaves_the_word_to_its_older_names() {
    let imported = one(&format!("{PLAIN}ZERO_DSCP_INGRESS=\nZERO_DSCP=\nSQUASH_DSCP=0\n"));
    assert!(imported.to_string().contains("squash_dscp '0'"), "{imported}");
    assert_eq!(imported.differences, []);
}

#[test]
fn a_limit_in_packets_is_none_in_bytes() {
    let imported = one(&format!("{PLAIN}QDISC=bfifo\nLIMIT=500\n"));
    assert!(!imported.to_string().contains("limit"), "{imported}");
    assert!(imported.differences[0].message.contains("counts packets"));
}

#[test]
fn a_missing_rate_is_what_sqm_scripts_takes_and_is_said() {
    let imported = one("SCRIPT=simplest.qos\nUPLINK=500\n");
    assert!(imported.to_string().contains("download '14698'"));
    assert!(imported.differences[0].message.contains("14698 kbit/s"));
}

#[test]
fn what_only_a_shell_understands_is_refused_all_together() {
    let text = "[ -n \"$X\" ] && UPLINK=1\nDOWNLINK=$((1000 * 85))\nSCRIPT=`echo simple.qos`\nIQDISC_OPTS=rtt 50ms\n\
                A=\"open\n. /etc/other\nB=1; C=2\nUPLINK=1 \\\n";
    let errors = errors(text);
    assert_eq!(errors.len(), 9, "{errors:#?}");
    assert!(errors[0].starts_with("eth0.iface.conf:1: this is no plain NAME=value"));
    assert!(errors[1].starts_with("eth0.iface.conf:2: '$' makes the shell"));
    assert!(errors[3].contains("put quotes around 'rtt 50ms'"));
    assert_eq!(errors[8], "SCRIPT is missing: sqm-scripts starts nothing without");
}

#[test]
fn the_file_and_iface_must_agree() {
    assert!(errors(&format!("{PLAIN}IFACE=eth1\n"))[0].contains("IFACE is eth1, and the file is for eth0"));
    assert_eq!(one(&format!("{PLAIN}IFACE=eth0\n")).differences, []);
}

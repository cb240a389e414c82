use super::*;
use crate::device::Device;

fn file<'a>(name: &'a str, text: &'a str) -> Source<'a> {
    let reader = match name {
        "sqm.conf" => Reader::Shell,
        _ => Reader::ShellOrSystemd,
    };
    Source { name, text, reader }
}

fn one(text: &str) -> Imported {
    import("eth0", &[file("eth0.iface.conf", text)]).unwrap()
}

fn errors(text: &str) -> Vec<String> {
    let errors = import("eth0", &[file("eth0.iface.conf", text)]).unwrap_err();
    errors.iter().map(ToString::to_string).collect()
}

fn said(imported: &Imported) -> Vec<String> {
    imported.differences.iter().map(ToString::to_string).collect()
}

const PLAIN: &str = "UPLINK=1000\nDOWNLINK=\"85000\" # of the line\nSCRIPT='piece_of_cake.qos'\n";

#[test]
fn a_usual_file_becomes_a_section_without_differences() {
    let imported = one(PLAIN);
    assert_eq!(
        imported.to_string(),
        "config queue\n\toption interface 'eth0'\n\toption enabled '1'\n\toption download '85000'\n\
         \toption upload '1000'\n\toption script 'piece_of_cake.qos'\n"
    );
    assert_eq!(imported.differences, []);
}

#[test]
fn a_byte_order_mark_and_line_ends_of_windows_are_no_text() {
    let text = format!("\u{feff}{}", PLAIN.replace('\n', "\r\n"));
    assert_eq!(one(&text), one(PLAIN));
}

#[test]
fn the_devices_file_overrides_the_default() {
    let sources = [
        file(
            "default.conf",
            "UPLINK=1000\nDOWNLINK=2000\nSCRIPT=simple.qos\nexport LINKLAYER=atm",
        ),
        file("eth0.iface.conf", "DOWNLINK=3000\nOVERHEAD=44\nENABLED=0"),
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
    assert_eq!(imported.options.len(), options::OF_SQM_SCRIPTS.len() + 1);
    let section = imported.to_string();
    let loaded = crate::load(section.as_bytes(), "sqm", &crate::device::Device::absent).unwrap();
    assert_eq!(loaded.plans.len(), 1);
    let unknown = |warning: &&crate::diagnostic::Diagnostic| warning.message.contains("no such option");
    assert_eq!(loaded.warnings.iter().find(unknown), None);
}

#[test]
fn variables_that_are_not_carried_over_are_reported_with_their_line() {
    let text = format!(
        "{PLAIN}TC_BINARY=/sbin/tc\nUPLNK=5\nSQUASH_DSCP=0\nZERO_DSCP_INGRESS=1\nLIMIT=500\nILIMIT=\nETARGET=\nFROB=1\n"
    );
    let imported = one(&text);
    assert_eq!(
        said(&imported),
        [
            "eth0.iface.conf:6: SQUASH_DSCP is another name for ZERO_DSCP_INGRESS, and the file sets both: remove one",
            "eth0.iface.conf:11: FROB is not a variable of sqm-scripts and is left out",
            "eth0.iface.conf:4: TC_BINARY is left out: sqm starts no other programs",
            "eth0.iface.conf:5: UPLNK is not a variable of sqm-scripts and is left out; did you mean UPLINK?",
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

/// On ingress layer_cake adds `besteffort` and `wash` after the first words, unless options prevent it.
#[test]
fn first_words_of_cake_do_not_undo_the_words_of_the_setup_script() {
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
fn an_empty_variable_defers_to_its_older_names() {
    let imported = one(&format!("{PLAIN}ZERO_DSCP_INGRESS=\nZERO_DSCP=\nSQUASH_DSCP=0\n"));
    assert!(imported.to_string().contains("squash_dscp '0'"), "{imported}");
    assert_eq!(imported.differences, []);
}

#[test]
fn a_limit_in_packets_is_not_used_as_bytes() {
    let imported = one(&format!("{PLAIN}QDISC=bfifo\nLIMIT=500\n"));
    assert!(!imported.to_string().contains("limit"), "{imported}");
    assert!(imported.differences[0].message.contains("counts packets"));
}

#[test]
fn a_missing_rate_gets_the_default_of_sqm_scripts_and_is_reported() {
    let imported = one("SCRIPT=simplest.qos\nUPLINK=500\n");
    assert!(imported.to_string().contains("download '14698'"));
    assert!(imported.differences[0].message.contains("14698 kbit/s"));
}

#[test]
fn shell_syntax_is_refused_with_all_its_errors() {
    let text = "[ -n \"$X\" ] && UPLINK=1\nDOWNLINK=$((1000 * 85))\nSCRIPT=`echo simple.qos`\nIQDISC_OPTS=rtt 50ms\n\
                A=\"open\n. /etc/other\nB=1; C=2\nUPLINK=1 \\\n";
    let errors = errors(text);
    assert_eq!(errors.len(), 9, "{errors:#?}");
    assert!(errors[0].starts_with("eth0.iface.conf:1: this line is not a plain NAME=value"));
    assert!(errors[1].starts_with("eth0.iface.conf:2: the shell would expand '$'"));
    assert!(errors[3].contains("put quotes around 'rtt 50ms'"));
    assert_eq!(
        errors[8],
        "SCRIPT is missing, and sqm-scripts starts nothing without it"
    );
}

#[test]
fn the_device_named_in_a_file_is_used_as_in_sqm_scripts() {
    let other = one(&format!("{PLAIN}IFACE=eth1\n"));
    assert!(other.to_string().contains("interface 'eth1'"), "{other}");
    assert_eq!(
        said(&other),
        [
            "eth0.iface.conf:4: IFACE is eth1 but the file is for eth0: sqm-scripts shapes eth1, so the section is for eth1"
        ]
    );
    assert_eq!(one(&format!("{PLAIN}IFACE=eth0\n")).differences, []);
    assert!(errors(&format!("{PLAIN}IFACE=\n"))[0].contains("starts nothing"));
}

/// The outcome of `[ "$ENABLED" -ne 1 ]` in dash, bash and busybox.
#[test]
fn enabled_is_compared_as_a_shell_compares_it() {
    for (value, is_on, is_reported) in [
        ("1", true, false),
        ("0", false, false),
        ("", true, false),
        ("' 01 '", true, false),
        ("+1", true, false),
        ("2", false, true),
        ("-1", false, true),
        ("on", true, true),
        ("off", true, true),
        ("0x0", true, true),
        ("99999999999999999999", true, true),
    ] {
        let imported = one(&format!("{PLAIN}ENABLED={value}\n"));
        let text = imported.to_string();
        assert_eq!(text.contains("enabled '1'"), is_on, "{value}: {text}");
        assert_eq!(text.contains("enabled '0'"), !is_on, "{value}: {text}");
        assert_eq!(imported.differences.len(), usize::from(is_reported), "{value}");
    }
    let off = one(&format!("{PLAIN}ENABLED=off\n"));
    assert_eq!(
        said(&off),
        [
            "eth0.iface.conf:4: ENABLED is 'off': that is not a number, and sqm-scripts then starts the device, so the section is enabled"
        ]
    );
}

#[test]
fn sqm_conf_is_read_last_and_as_a_shell_reads_it() {
    let shipped = "SQM_LIB_DIR=/usr/lib/sqm\nSQM_STATE_DIR=/run/sqm\n\
                   SQM_QDISC_STATE_DIR=${SQM_STATE_DIR}/available_qdiscs\n\
                   SQM_CHECK_QDISCS=\"fq_codel codel pie sfq cake\"\nSQM_SYSLOG=0\n";
    let with = |more: &str| {
        let last = format!("{shipped}{more}");
        import("eth0", &[file("eth0.iface.conf", PLAIN), file("sqm.conf", &last)])
    };
    assert_eq!(
        with("").unwrap(),
        one(PLAIN),
        "the file as shipped sets nothing for the line"
    );
    let more =
        with("OVERHEAD=44\nUPLINK=\"${DOWNLINK}\"\nIFACE=ppp$OVERHEAD\nSQM_STATE_DIR=/tmp/$SQM_SYSLOG-x\n")
            .unwrap();
    let text = more.to_string();
    assert!(
        text.contains("upload '85000'")
            && text.contains("overhead '44'")
            && text.contains("interface 'ppp44'"),
        "{text}"
    );
    assert_eq!(
        said(&more)[1],
        "sqm.conf:9: SQM_STATE_DIR is left out: '--state-dir' sets the state folder"
    );
    for unknown in [
        "UPLINK=$HOME",
        "UPLINK=${UPLINK:-5}",
        "UPLINK=$",
        "UPLINK=${UPLINK",
        "UPLINK=$1",
    ] {
        let errors = with(unknown).unwrap_err();
        assert!(
            errors[0]
                .to_string()
                .starts_with("sqm.conf:6: the shell would expand '$'"),
            "{unknown}: {errors:?}"
        );
    }
    // Systemd reads the other two as well, and puts nothing in.
    assert!(
        errors("UPLINK=5\nDOWNLINK=$UPLINK\nSCRIPT=simple.qos\n")[0].contains("the shell would expand '$'")
    );
}

/// The overhead after an import for this device, and the remark about it.
fn counted(device: &str, more: &str) -> (Option<String>, Vec<String>) {
    let mut imported = one(&format!("UPLINK=790\nDOWNLINK=11000\n{more}"));
    keep_counted_bytes(&mut imported, &Device::absent(device));
    (imported.get("overhead").map(str::to_owned), said(&imported))
}

#[test]
fn a_size_table_without_overhead_counts_as_before() {
    for more in [
        "SCRIPT=simple.qos\nLINKLAYER=atm\n#OVERHEAD=-4\n",
        "SCRIPT=simplest.qos\nLINKLAYER=ethernet\nOVERHEAD=0\n",
        "SCRIPT=simplest_tbf.qos\nLINKLAYER=adsl\nLLAM=htb_private\n",
        "SCRIPT=piece_of_cake.qos\nLINKLAYER=ethernet\nLLAM=tc_stab\n",
    ] {
        let (overhead, said) = counted("eth0", more);
        assert_eq!(overhead.as_deref(), Some("14"), "{more}");
        assert!(
            said.len() == 1 && said[0].contains("option overhead is 14"),
            "{said:?}"
        );
        // On PPP the kernel counts no header.
        let (overhead, said) = counted("ppp0", more);
        assert!(
            overhead.is_none_or(|overhead| overhead == "0") && said.is_empty(),
            "{more}"
        );
    }
    let (overhead, said) = counted("eth0", "SCRIPT=simple.qos\nLINKLAYER=atm\nOVERHEAD=40\n");
    assert_eq!(overhead.as_deref(), Some("40"));
    assert!(
        said.len() == 1 && said[0].contains("write 54 to count as before"),
        "{said:?}"
    );
    // CAKE counts from the IP header, and without a link layer nothing is counted.
    for more in [
        "SCRIPT=piece_of_cake.qos\nLINKLAYER=atm\n",
        "SCRIPT=simple.qos\nQDISC=cake\nLINKLAYER=atm\nOVERHEAD=44\n",
        "SCRIPT=simple.qos\nLINKLAYER=none\n",
        "SCRIPT=simple.qos\n",
    ] {
        let (overhead, said) = counted("eth0", more);
        assert!(
            overhead.is_none_or(|overhead| overhead == "44") && said.is_empty(),
            "{more}: {said:?}"
        );
    }
}

#[test]
fn settings_for_all_sections_are_named_with_the_options_that_replace_them() {
    let text = "# shipped\nSQM_LIB_DIR=/usr/lib/sqm\nSHAPER_BURST_DUR_US=5000\nLIMIT=700\nIPT_MASK=\"0xff\"\n\
        TC_BINARY=/sbin/tc\nFROB=1\n[ -f x ] && . x\nINGRESS_CAKE_OPTS=\"nat\"\n";
    let source = file("sqm.conf", text);
    let said = |is_replaced: &dyn Fn(&str) -> bool| -> Vec<String> {
        globals(&source, is_replaced)
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    let expected = [
        "sqm.conf:3: SHAPER_BURST_DUR_US has no effect, because sqm does not read this file: write option shaper_burst_dur_us '5000' into each section",
        "sqm.conf:4: LIMIT has no effect, because sqm does not read this file: write option ilimit '700' and option elimit '700' into each section",
        "sqm.conf:5: IPT_MASK has no effect, because sqm does not read this file: write option mark_mask '0xff' into each section",
        "sqm.conf:6: TC_BINARY has no effect: sqm starts no other programs",
        "sqm.conf:7: FROB has no effect: sqm does not read this file",
        "sqm.conf:8: sqm does not read this file; write what this line sets as options of each section",
        "sqm.conf:9: INGRESS_CAKE_OPTS has no effect, because sqm does not read this file: write option iqdisc_opts 'nat' into each section",
    ];
    assert_eq!(said(&|_| false), expected);
    let replaced = said(&|option| option != "elimit");
    assert!(
        replaced[0].ends_with("write option elimit '700' into each section"),
        "{replaced:?}"
    );
    assert_eq!(replaced.len(), 4, "{replaced:?}");
}

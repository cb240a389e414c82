//! `sqm import`: reads files of other programs, prints or writes sections, and reports every difference.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn import(directory: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sqm"))
        .arg("import")
        .args(words)
        .current_dir(directory)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

const DEFAULT: &str = "# for all\nUPLINK=1000\nDOWNLINK=85000\nSCRIPT=piece_of_cake.qos\n";

#[test]
fn imported_sections_are_read_by_plan() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("default.conf"), DEFAULT).unwrap();
    fs::write(
        path("sqm-none0.iface.conf"),
        "UPLINK=\"10000\"\nLINKLAYER=ethernet\nOVERHEAD=22\nDEV=ifb9\n",
    )
    .unwrap();
    fs::write(path("sqm-none1.iface.conf"), "SCRIPT=simple.qos\n").unwrap();

    let shown = import(directory.path(), &["sqm-none0.iface.conf"]);
    assert!(shown.status.success());
    let section = text(&shown.stdout);
    assert!(
        section.contains("option interface 'sqm-none0'") && section.contains("option upload '10000'"),
        "{section}"
    );
    assert!(
        section.contains("option download '85000'"),
        "default.conf is read first: {section}"
    );
    let said = text(&shown.stderr);
    assert!(
        said.contains("sqm-none0: differs: sqm-none0.iface.conf:4: DEV is left out"),
        "{said}"
    );

    let files = [
        "sqm-none0.iface.conf",
        "sqm-none1.iface.conf",
        "--write",
        "--config",
        "config",
    ];
    assert!(import(directory.path(), &files).status.success());
    let planned = Command::new(env!("CARGO_BIN_EXE_sqm"))
        .args(["plan", "--format", "tc", "--config"])
        .arg(path("config"))
        .output()
        .unwrap();
    let tc = text(&planned.stdout);
    assert!(
        tc.contains("dev sqm-none0 root handle 1: cake bandwidth 10mbit") && tc.contains("overhead 22"),
        "{tc}"
    );
    assert!(tc.contains("dev sqm-none1 root handle 1: htb"), "{tc}");

    // A second import would give a device two sections, and is refused.
    let before = fs::read(path("config")).unwrap();
    let again = import(directory.path(), &files);
    assert_eq!(again.status.code(), Some(2));
    assert!(
        text(&again.stderr).contains("config has a section for sqm-none0 already"),
        "{again:?}"
    );
    assert_eq!(fs::read(path("config")).unwrap(), before);

    let json = import(
        directory.path(),
        &["sqm-none1.iface.conf", "--json", "--no-default"],
    );
    let rows: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(rows[0]["interface"], "sqm-none1");
    assert_eq!(
        rows[0]["differences"].as_array().unwrap().len(),
        2,
        "both rates are missing: {rows}"
    );
}

/// `sqm.conf` overrides the other files, because sqm-scripts reads it last. A device that a file names takes
/// precedence over the file's name.
#[test]
fn files_are_read_in_the_order_of_sqm_scripts() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("default.conf"), DEFAULT).unwrap();
    fs::write(path("sqm-none0.iface.conf"), "UPLINK=10000\nENABLED=yes\n").unwrap();
    fs::write(path("other.iface.conf"), "IFACE=sqm-none0\n").unwrap();
    fs::write(
        path("sqm.conf"),
        "SQM_LIB_DIR=/usr/lib/sqm\nDOWNLINK=7000\nUPLINK=${DOWNLINK}\n",
    )
    .unwrap();
    let shown = import(directory.path(), &["sqm-none0.iface.conf"]);
    let section = text(&shown.stdout);
    assert!(
        section.contains("download '7000'") && section.contains("upload '7000'"),
        "{section}"
    );
    assert_eq!(
        text(&shown.stderr),
        "sqm-none0: differs: sqm-none0.iface.conf:2: ENABLED is 'yes': that is not a number, and sqm-scripts then starts the device, so the section is enabled\n"
    );

    let other = import(directory.path(), &["other.iface.conf"]);
    assert!(text(&other.stdout).contains("interface 'sqm-none0'"), "{other:?}");
    assert!(
        text(&other.stderr).contains("other.iface.conf:1: IFACE is sqm-none0"),
        "{other:?}"
    );

    let both = import(directory.path(), &["sqm-none0.iface.conf", "other.iface.conf"]);
    assert_eq!(
        both.status.code(),
        Some(2),
        "sqm-scripts itself would start one of them"
    );
    assert!(
        text(&both.stdout).contains("upload '7000'"),
        "the first one is shown: {both:?}"
    );
    assert!(
        text(&both.stderr).contains("other.iface.conf: another file is for sqm-none0, too"),
        "{both:?}"
    );
}

#[test]
fn files_that_cannot_be_read_are_named_and_the_others_are_imported() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("good0.iface.conf"), DEFAULT).unwrap();
    fs::write(
        path("wrong0.iface.conf"),
        "UPLINK=10mbits\nDOWNLINK=1\nSCRIPT=simple.qos\n",
    )
    .unwrap();
    for (file, line) in [
        ("command0", "UPLINK=$(cat rate)"),
        ("sum0", "UPLINK=$((1000*95/100))"),
        ("default0", "UPLINK=${UP:-1000}"),
        ("source0", ". /etc/sqm/common.conf"),
        ("if0", "if [ -f x ]; then"),
        ("two0", "UPLINK=1000; DOWNLINK=2000"),
    ] {
        let text = format!("DOWNLINK=2000\n{line}\nSCRIPT=simple.qos\n");
        fs::write(path(&format!("{file}.iface.conf")), text).unwrap();
    }
    for (n, (file, words)) in [
        (
            "command0.iface.conf",
            "command0.iface.conf:2: the shell would expand '$'",
        ),
        ("sum0.iface.conf", "sum0.iface.conf:2: the shell would expand '$'"),
        (
            "default0.iface.conf",
            "default0.iface.conf:2: the shell would expand '$'",
        ),
        (
            "source0.iface.conf",
            "source0.iface.conf:2: this line is not a plain NAME=value",
        ),
        (
            "if0.iface.conf",
            "if0.iface.conf:2: this line is not a plain NAME=value",
        ),
        (
            "two0.iface.conf",
            "two0.iface.conf:2: ';' is a command of the shell",
        ),
        ("wrong0.iface.conf", "option 'upload'"),
        ("gone0.iface.conf", "cannot read"),
        ("eth0.conf", "cannot read"),
        ("default.conf", "import knows no such file"),
    ]
    .into_iter()
    .enumerate()
    {
        fs::write(path("default.conf"), "").unwrap();
        let config = format!("config{n}");
        let output = import(
            directory.path(),
            &[file, "good0.iface.conf", "--write", "--config", &config],
        );
        assert_eq!(output.status.code(), Some(2), "{file}: {output:?}");
        let said = text(&output.stderr);
        assert!(
            said.contains(words) && said.contains("1 of 2 files could not be imported"),
            "{file}: {said}"
        );
        let written = fs::read_to_string(path(&config)).unwrap();
        assert!(written.contains("option interface 'good0'"), "{file}: {written}");
        assert_eq!(written.matches("config queue").count(), 1, "{file}: {written}");
        let alone = import(directory.path(), &[file, "--write", "--config", "never"]);
        assert_eq!(alone.status.code(), Some(2), "{file}");
        assert!(!path("never").exists(), "{file}");
    }
}

#[test]
fn every_difference_is_in_the_json_too() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(
        directory.path().join("sqm-none0.iface.conf"),
        "UPLINK=790\nDOWNLINK=11000\nSCRIPT=simple.qos\nLINKLAYER=atm\n#OVERHEAD=-4\nEECN=NOECN\nETARGET=5ms\nQDISC=pfifo\n",
    )
    .unwrap();
    let shown = import(directory.path(), &["sqm-none0.iface.conf"]);
    assert!(text(&shown.stdout).contains("option overhead '14'"), "{shown:?}");
    let json = import(directory.path(), &["sqm-none0.iface.conf", "--json"]);
    let rows: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let differences = rows[0]["differences"].as_array().unwrap();
    let said: Vec<&str> = text(&shown.stderr).lines().collect();
    assert_eq!(said.len(), differences.len(), "{said:?} {differences:?}");
    for (line, difference) in said.iter().zip(differences) {
        let difference = difference.as_str().unwrap();
        assert_eq!(*line, format!("sqm-none0: differs: {difference}"));
    }
    for part in [
        "option overhead is 14",
        "option 'etarget': ignored",
        "overhead 14 above IP",
    ] {
        assert!(said.iter().any(|line| line.contains(part)), "{part}: {said:?}");
    }
}

const CAKE_AUTORATE: &str = "#!/usr/bin/env bash
dl_if=ifb4sqm-none0 # download interface
ul_if=sqm-none0     # upload interface
adjust_dl_shaper_rate=1
adjust_ul_shaper_rate=0
min_dl_shaper_rate_kbps=3000
base_dl_shaper_rate_kbps=4000
max_dl_shaper_rate_kbps=9000
base_ul_shaper_rate_kbps=800
reflectors=(
\"192.0.2.1\" \"192.0.2.2\" # ours
)
";

/// A section that sqm-scripts has for the interface keeps its queues, and gets the rates of cake-autorate.
#[test]
fn files_of_cake_autorate_and_sqm_autorate_set_the_rates_of_the_section() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("config.primary.sh"), CAKE_AUTORATE).unwrap();
    let section = "config queue 'wan'\n\t# ours\n\toption enabled '1'\n\toption interface 'sqm-none0'\n\toption download '20000'\n\
        \toption upload '2000'\n\toption script 'piece_of_cake.qos'\n\toption overhead '44'\n\toption linklayer 'atm'\n";
    fs::write(path("config"), section).unwrap();
    let written = import(
        directory.path(),
        &["config.primary.sh", "--write", "--config", "config"],
    );
    assert!(written.status.success(), "{written:?}");
    let config = fs::read_to_string(path("config")).unwrap();
    for line in [
        "# ours",
        "option script 'piece_of_cake.qos'",
        "option download '4000'",
        "option min_download '3000'",
        "option max_download '9000'",
        "option upload '800'",
        "option autorate 'download'",
        "option autorate_reflectors '192.0.2.1 192.0.2.2'",
    ] {
        assert!(config.contains(line), "{line}: {config}");
    }
    assert_eq!(config.matches("config queue").count(), 1, "{config}");

    // Without such a section it becomes one. A file of UCI is known by its sections, whatever its name.
    fs::write(
        path("cake-autorate"),
        "config cake_autorate 'lte'\n\toption enabled '1'\n\toption ul_if 'sqm-none1'\n\toption dl_if 'ifb4sqm-none1'\n",
    )
    .unwrap();
    fs::write(
        path("sqm-autorate"),
        "config network\n\toption upload_interface 'sqm-none2'\n\toption download_interface 'ifb4sqm-none2'\n\
         \toption upload_base_kbits '10000'\n\toption download_base_kbits '90000'\n",
    )
    .unwrap();
    let files = ["cake-autorate", "sqm-autorate", "--write", "--config", "config"];
    let written = import(directory.path(), &files);
    assert!(written.status.success(), "{written:?}");
    let planned = Command::new(env!("CARGO_BIN_EXE_sqm"))
        .args(["plan", "--config"])
        .arg(path("config"))
        .output()
        .unwrap();
    assert!(planned.status.success(), "{planned:?}");
    for part in ["sqm-none1 by best_of_cake.qos", "sqm-none2 by best_of_cake.qos"] {
        assert!(text(&planned.stdout).contains(part), "{planned:?}");
    }
    // One that is disabled leaves the section as it is, but for autorate.
    fs::write(path("off.sh"), CAKE_AUTORATE).unwrap();
    fs::write(
        path("cake-autorate"),
        "config cake-autorate 'a'\n\toption enabled '0'\n\toption ul_if 'sqm-none0'\n\toption dl_if 'ifb4sqm-none0'\n",
    )
    .unwrap();
    let off = import(
        directory.path(),
        &["cake-autorate", "--write", "--config", "config"],
    );
    assert!(off.status.success(), "{off:?}");
    let config = fs::read_to_string(path("config")).unwrap();
    assert!(
        config.contains("option autorate '0'") && config.contains("option enabled '1'"),
        "{config}"
    );
}

/// On OpenWrt `/etc/sqm/sqm.conf` holds for all sections of `/etc/config/sqm`.
#[test]
fn settings_of_sqm_conf_beside_the_configuration_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::create_dir(path("config")).unwrap();
    fs::create_dir(path("sqm")).unwrap();
    let section = "config queue\n\toption enabled '1'\n\toption interface 'sqm-none0'\n\toption download '20000'\n\
        \toption upload '2000'\n\toption script 'simplest.qos'\n";
    fs::write(path("config/sqm"), section).unwrap();
    fs::write(
        path("sqm/sqm.conf"),
        "SQM_SYSLOG=0\nSHAPER_BURST_DUR_US=5000\nLIMIT=700\n",
    )
    .unwrap();
    let plan = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sqm"));
        let output = command
            .args(["plan", "--config"])
            .arg(path("config/sqm"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        text(&output.stderr).to_owned()
    };
    let said = plan();
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(
        said.contains("sqm.conf:2: SHAPER_BURST_DUR_US has no effect"),
        "{said}"
    );
    assert!(
        said.contains("write option ilimit '700' and option elimit '700'"),
        "{said}"
    );
    let options = "\toption shaper_burst_dur_us '5000'\n\toption ilimit '700'\n\toption elimit '700'\n";
    fs::write(path("config/sqm"), format!("{section}{options}")).unwrap();
    assert_eq!(plan(), "");
}

const SCRIPT: &str = ". ${SQM_LIB_DIR}/defaults.sh
egress() {
    $TC qdisc add dev $IFACE root `get_stab_string` cake bandwidth ${UPLINK}kbit `get_cake_lla_string` ${EQDISC_OPTS}
}
ingress() {
    $TC qdisc add dev $DEV root cake bandwidth ${DOWNLINK}kbit besteffort
    $IP link set dev $DEV up
}
";

#[test]
fn a_setup_script_becomes_a_text_that_a_section_names() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("mine.qos"), SCRIPT).unwrap();
    let shown = import(directory.path(), &["mine.qos"]);
    assert!(shown.status.success());
    let line =
        "tc qdisc add dev $IFACE root $STAB cake bandwidth $UPLINK $CAKE_FRAMING $CAKE_OPTIONS $OPTIONS";
    assert!(text(&shown.stdout).contains(line), "{}", text(&shown.stdout));
    let json = import(directory.path(), &["mine.qos", "--json"]);
    let rows: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert!(rows.to_string().contains("\"script\":\"mine.tc\""), "{rows}");
    assert!(!path("mine.tc").exists());

    for _ in 0..2 {
        let written = import(directory.path(), &["mine.qos", "--write", "--config", "sqm"]);
        assert!(written.status.success(), "{}", text(&written.stderr));
    }
    assert_eq!(fs::read(path("mine.tc")).unwrap(), shown.stdout);
    fs::write(
        path("sqm"),
        "config queue\n option enabled 1\n option interface sqm-none0\n option upload 10mbit\n option download 50mbit\n \
         option script mine.tc\n option link docsis\n",
    )
    .unwrap();
    let plan = |file: &str| {
        Command::new(env!("CARGO_BIN_EXE_sqm"))
            .args(["plan", "--format", "tc", "--config", file])
            .current_dir(directory.path())
            .output()
            .unwrap()
    };
    let planned = plan("sqm");
    assert!(planned.status.success(), "{}", text(&planned.stderr));
    let commands = text(&planned.stdout);
    assert!(
        commands.contains("cake bandwidth 10mbit") && commands.contains("overhead 18 mpu 64"),
        "{commands}"
    );

    // The commands that are printed are a text themselves.
    fs::write(path("printed.tc"), commands).unwrap();
    let config = fs::read_to_string(path("sqm")).unwrap();
    fs::write(path("again"), config.replace("mine.tc", "printed.tc")).unwrap();
    let again = plan("again");
    assert_eq!(text(&again.stdout), commands, "{}", text(&again.stderr));

    // A text of another content is not replaced.
    fs::write(path("mine.tc"), "# ours").unwrap();
    let refused = import(directory.path(), &["mine.qos", "--write", "--config", "sqm"]);
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(fs::read(path("mine.tc")).unwrap(), b"# ours");
}

/// The script would make a file if it were run.
#[test]
fn a_setup_script_with_a_foreign_line_is_named_by_it_and_nothing_is_written_or_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(
        path("mine.qos"),
        SCRIPT.replace("    $IP link set", "    touch ran\n    $IP link set"),
    )
    .unwrap();
    let refused = import(directory.path(), &["mine.qos", "--write", "--config", "sqm"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = text(&refused.stderr);
    assert!(
        said.contains("error: mine.qos:7: 'touch' is not carried over"),
        "{said}"
    );
    assert!(!path("mine.tc").exists() && !path("ran").exists());
}

//! `sqm import`: reads sqm-scripts' files of generic Linux, prints sections, and reports every difference.

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
    assert_eq!(text(&both.stdout), "");
    assert!(
        text(&both.stderr).contains("other.iface.conf: another file is for sqm-none0, too"),
        "{both:?}"
    );
}

#[test]
fn unreadable_files_are_named_and_nothing_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("good0.iface.conf"), DEFAULT).unwrap();
    fs::write(path("bad0.iface.conf"), "UPLINK=$(cat rate)\nSCRIPT=simple.qos\n").unwrap();
    fs::write(
        path("wrong0.iface.conf"),
        "UPLINK=10mbits\nDOWNLINK=1\nSCRIPT=simple.qos\n",
    )
    .unwrap();
    for (file, words) in [
        ("bad0.iface.conf", "bad0.iface.conf:1: the shell would expand '$'"),
        ("wrong0.iface.conf", "option 'upload'"),
        ("gone0.iface.conf", "cannot read"),
        ("eth0.conf", "followed by .iface.conf"),
    ] {
        let output = import(
            directory.path(),
            &["good0.iface.conf", file, "--write", "--config", "config"],
        );
        assert_eq!(output.status.code(), Some(2), "{file}: {output:?}");
        assert!(text(&output.stderr).contains(words), "{file}: {output:?}");
        assert!(!path("config").exists(), "{file}");
    }
}

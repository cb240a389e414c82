//! `sqm doctor --judge` with facts from any source. Findings on a real machine are tested in the lab.

use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn judge(facts: &Value) -> Output {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("facts"), facts.to_string()).unwrap();
    Command::new(env!("CARGO_BIN_EXE_sqm"))
        .args(["doctor", "--judge", "facts"])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn facts(processor: &Value, rate: u64) -> Value {
    json!({
        "sections": [{
            "interface": "eth0", "upload_kbit": rate, "download_kbit": rate,
            "upload_now_kbit": rate, "download_now_kbit": rate, "overhead_bytes": i32::MIN, "cells": "atm",
        }],
        "devices": [{"name": "eth0", "up": true}],
        "processors": [processor],
    })
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn extreme_rates_cause_findings_without_an_overflow() {
    let busy =
        json!({"idle_percent": 0.0, "packets_percent": 20.0, "squeezed": u64::MAX, "overrun": u64::MAX});
    let output = judge(&facts(&busy, u64::MAX));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("[processor-bound]"), "{said}");
    let longest = said.split(|c: char| !c.is_ascii_digit()).map(str::len).max();
    assert!(longest <= Some(20), "{said}");
}

#[test]
fn impossible_shares_are_refused_by_name() {
    for wrong in [json!(1e308), json!(-1.0), json!(100.5)] {
        for name in ["idle_percent", "packets_percent"] {
            let output = judge(&facts(&json!({name: wrong}), 1000));
            assert_eq!(output.status.code(), Some(2), "{name} {wrong}");
            let said = text(&output.stderr);
            assert!(said.contains("a percentage from 0 to 100"), "{said}");
            assert!(said.len() < 300, "{said}");
        }
    }
}

#[test]
fn rates_that_a_controller_moves_are_named_and_no_finding() {
    let sentence = "eth0: another program, a rate controller, moves the rates";
    let mut facts = facts(&json!({}), 1000);
    facts["sections"][0]["overhead_bytes"] = json!(18);
    facts["sections"][0]["rate_controller"] = json!(sentence);
    let output = judge(&facts);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.starts_with(&format!("note: {sentence}\n")) && said.contains("No problems found"),
        "{said}"
    );
}

/// The report of a configuration that names three texts.
fn report(texts: &[(&str, &[u8])]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let script = |option: &str, name: &str| format!("\toption {option} '{name}'\n");
    let config = format!(
        "config queue\n\toption enabled '1'\n\toption interface 'sqm-none0'\n\toption download '9mbit'\n\toption upload '1mbit'\n{}{}{}",
        script("script", "../away.tc"),
        script("egress_script", "mine.tc"),
        script("ingress_script", "gone.tc")
    );
    std::fs::create_dir(folder.path().join("etc")).unwrap();
    std::fs::write(folder.path().join("etc/sqm"), config).unwrap();
    std::fs::write(folder.path().join("away.tc"), "from another folder").unwrap();
    for (name, bytes) in texts {
        std::fs::write(folder.path().join("etc").join(name), bytes).unwrap();
    }
    let output = Command::new(env!("CARGO_BIN_EXE_sqm"))
        .args(["bugreport", "--config", "etc/sqm", "--seconds", "0", "--out", "-"])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

#[test]
fn a_report_has_the_texts_that_the_configuration_names_and_no_secret_of_theirs() {
    let good = b"# for mail to ada@example.org\ntc qdisc add dev $IFACE root cake bandwidth $UPLINK\n";
    let damaged = b"tc qdisc add dev $IFACE root kake \xff\n";
    for (bytes, line) in [
        (&good[..], "tc qdisc add dev $IFACE root cake bandwidth $UPLINK\n"),
        (&damaged[..], "tc qdisc add dev $IFACE root kake \u{fffd}\n"),
    ] {
        let said = report(&[("mine.tc", bytes), ("other.tc", b"not named")]);
        assert!(
            said.contains("== etc/mine.tc\n\n") && said.contains(line),
            "{said}"
        );
        assert!(
            said.contains("== gone.tc\n\nthere is no file gone.tc in etc or /etc/sqm"),
            "{said}"
        );
        for other in ["from another folder", "not named", "ada@example.org"] {
            assert!(!said.contains(other), "{other}: {said}");
        }
    }
}

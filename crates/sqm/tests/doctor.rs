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

//! The documents of `--json` are those of docs/reference/json.md.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use sqm_core::units::Instant;
use sqm_replay::pcap::{Format, LinkNumber, Writer};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/json.md");
const FLENT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../measure/tests/flent/voip.flent.gz"
);

/// Commands with the files that they need, each after the beginning of its heading in the page.
const COMMANDS: [(&str, &str); 25] = [
    ("sqm import --json", "sqm import --json eth0.iface.conf"),
    ("sqm plan --json", "sqm plan --config config --json"),
    ("sqm plan --json", "sqm plan --config config --format json"),
    ("sqm plan --diff --json", "sqm plan --config config --diff --json"),
    (
        "sqm plan --check --json",
        "sqm plan --config wrong --check --json",
    ),
    ("sqm status --json", "sqm status lo --json"),
    ("sqm verify --json", "sqm verify --config config --json"),
    (
        "sqm fleet-check --json",
        "sqm fleet-check --config config --within 0 --reach 127.0.0.1:1 --json",
    ),
    ("sqm doctor --json", "sqm doctor --judge facts --json"),
    ("sqm test --list --json", "sqm test --list --json"),
    ("sqm calc goodput --json", "sqm calc goodput 100mbit --json"),
    ("sqm calc gross --json", "sqm calc gross 90mbit --json"),
    ("sqm calc packet --json", "sqm calc packet --json"),
    (
        "sqm calc shape --json",
        "sqm calc shape --measured 9mbit 1mbit --json",
    ),
    ("sqm calc fifo --json", "sqm calc fifo 1mbit --packets 250 --json"),
    ("sqm calc latency --json", "sqm calc latency 1mbit --json"),
    ("sqm calc tin --json", "sqm calc tin ef --json"),
    ("sqm calc links --json", "sqm calc links --json"),
    (
        "sqm replay --json",
        "sqm replay --qdisc cake --link 20mbit --json capture",
    ),
    ("sqm-lab lines --json", "sqm-lab lines --json"),
    (
        "sqm-lab bench --json",
        "sqm-lab bench --workload fq_codel --turns 1 --json",
    ),
    ("sqm-lab bench --list --json", "sqm-lab bench --list --json"),
    (
        "sqm-lab autorate bench --list --json",
        "sqm-lab autorate bench --list --json",
    ),
    (
        "sqm-lab autorate bench --json",
        "sqm-lab autorate bench --trace lte --signals echo --json",
    ),
    (
        "sqm-lab autorate bench --line --json",
        "sqm-lab autorate bench --line line.csv --signals echo --json",
    ),
];

/// The fields that the page lists under a heading that names the command.
fn listed(page: &str, command: &str) -> BTreeSet<String> {
    let section = page.split("\n### ").find(|section| {
        let heading = section.lines().next().unwrap_or_default();
        heading.split(", ").any(|one| one.trim_matches('`') == command)
    });
    let section = section.unwrap_or_else(|| panic!("{PAGE} has no heading for '{command}'"));
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|row| row[2..].split(" | ").next().unwrap());
    cells
        .flat_map(|cell| cell.split(", "))
        .map(|field| field.trim_matches('`').to_owned())
        .collect()
}

/// The names of all fields, with those of the objects around them.
fn fields(value: &Value, above: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| fields(item, above, found)),
        Value::Object(object) => {
            for (name, value) in object {
                let path = if above.is_empty() {
                    name.clone()
                } else {
                    format!("{above}.{name}")
                };
                if !matches!(value, Value::Object(_)) {
                    found.insert(path.clone());
                }
                fields(value, &path, found);
            }
        }
        _ => {}
    }
}

fn is_covered(field: &str, listed: &BTreeSet<String>) -> bool {
    let is_whole = |above: &str| listed.contains(&format!("{above}.*")) || listed.contains(above);
    is_whole(field)
        || listed.iter().any(|other| {
            // An array of objects, or an object that is null, whose fields are listed.
            other
                .strip_prefix(field)
                .is_some_and(|below| below.starts_with('.'))
        })
        || field.match_indices('.').any(|(end, _)| is_whole(&field[..end]))
}

fn check(page: &str, heading: &str, document: &Value) {
    let listed = listed(page, heading);
    let objects: Vec<&Value> = match document {
        Value::Array(items) => items.iter().collect(),
        other => vec![other],
    };
    assert!(!objects.is_empty(), "{heading}");
    let mut found = BTreeSet::new();
    for object in objects {
        assert_eq!(object["version"], 1, "{heading}");
        fields(object, "", &mut found);
    }
    found.remove("version");
    for field in &found {
        assert!(is_covered(field, &listed), "{heading}: {PAGE} lacks '{field}'");
    }
    let top = |path: &str| path.split('.').next().unwrap().to_owned();
    let printed: BTreeSet<String> = found.iter().map(|path| top(path)).collect();
    for field in &listed {
        let is_optional = heading == "sqm compare --json" && field == "logs";
        assert!(
            is_optional || printed.contains(&top(field)),
            "{heading}: the document lacks '{field}'"
        );
    }
}

fn prepare(folder: &Path) {
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    write(
        "config",
        "config queue\n\toption enabled '1'\n\toption interface 'lo'\n\toption download '85000'\n\toption upload '10000'\n\
         \toption script 'simple.qos'\n",
    );
    write(
        "wrong",
        "config queue\n\toption enabled '1'\n\toption interface 'lo'\n",
    );
    write(
        "eth0.iface.conf",
        "UPLINK=1000\nDOWNLINK=85000\nSCRIPT=piece_of_cake.qos\nENABLED=1\n",
    );
    write(
        "facts",
        r#"{"sections": [{"interface": "lo", "upload_kbit": 10000, "download_kbit": 85000,
            "cells": "none", "differences": ["lo: planned cake, found noqueue"], "root": "noqueue 0:"}],
            "devices": [{"name": "lo", "up": true}], "default_devices": ["eth9"]}"#,
    );
    let mut writer = Writer::new(Vec::new(), Format::Pcap).unwrap();
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 100];
    packet.extend([0, 0, 0, 0, 64, 17, 0, 0, 192, 168, 1, 2, 203, 0, 113, 3]);
    packet.extend([0, 7, 0, 53, 0, 80, 0, 0]);
    let length = 114;
    writer
        .packet(Instant(1_000_000_000), LinkNumber::ETHERNET, length, &packet)
        .unwrap();
    fs::write(folder.join("capture"), writer.finish().unwrap()).unwrap();
    write("line.csv", "0,8000,2000\n5,4000,1000\n10,8000,2000\n");
}

fn document(folder: &Path, command: &str) -> Value {
    let mut words = command.split(' ');
    let program = match words.next() {
        Some("sqm-lab") => env!("CARGO_BIN_EXE_sqm-lab"),
        _ => env!("CARGO_BIN_EXE_sqm"),
    };
    let output = Command::new(program)
        .args(words)
        .current_dir(folder)
        .env("SQM_STATE_DIR", folder.join("state"))
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{command}: {error}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// The document of a dry run of setup for a device that leads to another machine.
fn planned_setup(folder: &Path) -> Value {
    let setup = format!(
        "ip link add d0 type veth peer name d1 && exec {} setup --dry-run --json --config config --interface d0 --link vdsl2 \
         --measured 50mbit 10mbit",
        env!("CARGO_BIN_EXE_sqm")
    );
    let mut command = support::in_own_network();
    let output = command
        .args(["sh", "-c", &setup])
        .current_dir(folder)
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn every_document_has_a_version_and_the_fields_of_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
    let page = fs::read_to_string(PAGE).unwrap();
    for (heading, command) in COMMANDS {
        check(&page, heading, &document(folder.path(), command));
    }
    let compare = format!("sqm compare {FLENT} --json");
    check(&page, "sqm compare --json", &document(folder.path(), &compare));
    check(&page, "sqm setup --json", &planned_setup(folder.path()));
    // A change that waits for its confirmation.
    fs::create_dir(folder.path().join("state")).unwrap();
    fs::write(folder.path().join("state/unconfirmed"), "").unwrap();
    check(
        &page,
        "sqm confirm --json",
        &document(folder.path(), "sqm confirm --json"),
    );
}

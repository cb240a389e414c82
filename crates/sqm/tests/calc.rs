//! `sqm calc` on the command line. Its formulas are tested in `crates/plan/src/arithmetic.rs`.

use std::process::{Command, Output};

fn calc(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sqm"))
        .arg("calc")
        .args(arguments)
        .output()
        .unwrap()
}

fn json(arguments: &[&str]) -> serde_json::Value {
    let output = calc(&[arguments, &["--json"]].concat());
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {complaint}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn near(value: &serde_json::Value, expected: f64, within: f64) {
    let number = value.as_f64().unwrap();
    assert!((number - expected).abs() <= within, "{number} is not {expected}");
}

#[test]
fn the_command_line_prints_the_numbers_of_the_pages() {
    let docsis = json(&["goodput", "100mbit", "--link", "docsis"]);
    near(&docsis["goodput_percent"], 100.0 - 3.82, 0.005);
    let pppoe = [
        "goodput",
        "100mbit",
        "--link",
        "ethernet-vlan-pppoe",
        "--timestamps",
    ];
    near(&json(&pppoe)["goodput_percent"], 93.39, 0.006);
    let back = [
        "gross",
        "93.385mbit",
        "--link",
        "ethernet-vlan-pppoe",
        "--timestamps",
    ];
    near(&json(&back)["gross_bits_per_sec"], 100e6, 1000.0);
    let gigabit = json(&["fifo", "1gbit", "--packets", "1000"]);
    assert_eq!(gigabit["packets_per_sec"], 81_274);
    near(&gigabit["delay_ms"], 12.3, 0.01);
    let modem = ["fifo", "1mbit", "--delay", "3000ms", "--overhead", "0"];
    assert_eq!(json(&modem)["packets"], 250);
    let modem = ["fifo", "1mbit", "--packets", "250", "--overhead", "0"];
    near(&json(&modem)["delay_ms"], 3000.0, 0.0);
    let shape = json(&["shape", "--advertised", "7mbit", "768kbit"]);
    assert_eq!(
        (&shape["download_kbit_per_sec"], &shape["upload_kbit_per_sec"]),
        (&5950.into(), &653.into())
    );
    let packet = json(&["packet", "--overhead", "44", "150"]);
    near(&packet[0]["added_percent"], 29.3, 0.1);
    let output = calc(&["goodput", "100mbit", "--link", "docsis"]);
    let words = String::from_utf8(output.stdout).unwrap();
    assert!(words.contains("96.18 % of gross (3.82 % less)"), "{words}");
}

/// Runs the commands of each row and expects everything in backquotes behind them in the output.
#[test]
fn every_command_of_the_numbers_has_its_answer() {
    let rows = include_str!("../../../docs/reference/numbers.md");
    let rows = rows.lines().filter(|line| line.contains("| `sqm calc "));
    let mut count = 0;
    for row in rows {
        let cells: Vec<&str> = row.split('|').collect();
        let quoted = |cell: &'static str| cell.split('`').skip(1).step_by(2);
        let command = quoted(cells[2]).next().unwrap();
        let words: Vec<&str> = command.split_whitespace().skip(2).collect();
        let output = calc(&words);
        assert!(output.status.success(), "{command}: {output:?}");
        let printed = String::from_utf8(output.stdout).unwrap();
        let answers: Vec<&str> = quoted(cells[3]).collect();
        assert!(!answers.is_empty(), "{row}");
        for answer in answers {
            assert!(
                printed.contains(answer),
                "{command} does not print {answer}: {printed}"
            );
        }
        count += 1;
    }
    assert!(count > 25, "{count} rows");
}

/// The expected targets are those of Linux's CAKE at these rates (`tc -s qdisc`, recorded in `crates/core/testdata`),
/// and those of sqm-scripts' `auto`.
#[test]
fn latency_follows_the_target_in_effect() {
    let slow = json(&["latency", "1mbit"]);
    near(&slow["sparse_flow_most_ms"], 12.304, 0.001);
    let queues = slow["queues"].as_array().unwrap();
    assert_eq!(queues[0]["queue"], "fq_codel");
    near(&queues[0]["target_ms"], 13.992, 0.0);
    near(&queues[1]["target_ms"], 18.168, 0.01);
    let fast = json(&["latency", "100mbit", "--tins", "diffserv4"]);
    let queues = fast["queues"].as_array().unwrap();
    assert_eq!(queues.len(), 5);
    near(&queues[2]["target_ms"], 5.0, 0.0);
    near(&queues[2]["interval_ms"], 100.0, 0.0);
}

#[test]
fn each_dscp_has_its_tin_and_share() {
    let of = |dscp: &str, mode: &str| json(&["tin", dscp, "--tins", mode])[0].clone();
    for (dscp, mode, name, share) in [
        // "Voice gets a minimum of 1/4 bandwidth, Video 1/2, Bulk 1/16th and Best Effort has a minimum of all of it"
        ("ef", "diffserv4", "Voice", 25.0),
        ("af41", "diffserv4", "Video", 50.0),
        ("cs1", "diffserv4", "Bulk", 6.25),
        ("be", "diffserv4", "Best Effort", 100.0),
        ("46", "diffserv3", "Voice", 25.0),
        ("46", "besteffort", "Best Effort", 100.0),
        ("cs6", "precedence", "Tin 6", 100.0 * 0.875_f64.powi(6)),
    ] {
        let row = of(dscp, mode);
        assert_eq!(row["name"], name, "{dscp} in {mode}");
        near(&row["share_percent"], share, 0.001);
    }
    assert_eq!(json(&["tin", "0"]).as_array().unwrap().len(), 5);
}

#[test]
fn invalid_input_is_refused_with_a_suggestion() {
    for (arguments, words) in [
        (&["goodput", "100"][..], "needs a unit: 100mbit, or 100kbit"),
        (&["goodput", "100MB/s"], "'100MB/s' could mean 100mbit or 800mbit"),
        (&["goodput", "1mbit", "--link", "docsys"], "did you mean 'docsis'"),
        (&["goodput", "1mbit", "--size", "40"], "have no payload"),
        (&["gross", "1mbit", "--size", "40"], "have no payload"),
        (&["tin", "64"], "'64' is not a DSCP"),
        (&["tin", "ef", "--tins", "diffserv5"], "diffserv"),
        (&["fifo", "1mbit"], "--packets"),
        (
            &["fifo", "0mbit", "--packets", "1"],
            "'0mbit' is not between 1bit and 1000tbit",
        ),
    ] {
        let output = calc(arguments);
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {complaint}");
        assert!(complaint.contains(words), "{arguments:?}: {complaint}");
    }
}

//! The commands that shape, as far as they can be tested without changing this machine's network. Their effect on
//! real queues is tested in the lab.

mod support;

use std::io::Write;
use std::process::Output;

use tempfile::NamedTempFile;

fn config(interface: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    write!(
        file,
        "config queue\n\toption enabled '1'\n\toption interface '{interface}'\n\toption download '85000'\n\
         \toption upload '10000'\n\toption script 'piece_of_cake.qos'\n"
    )
    .unwrap();
    file
}

fn sqm(arguments: &[&str]) -> Output {
    let mut command = support::without_net_admin(env!("CARGO_BIN_EXE_sqm"));
    command.args(arguments).output().unwrap()
}

/// Runs a command that must fail. Returns its exit code and standard error.
fn failure(arguments: &[&str]) -> (i32, String) {
    let output = sqm(arguments);
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[test]
fn a_wrong_file_is_refused_before_privileges_are_checked() {
    let mut file = config("lo");
    writeln!(file, "\toption uplaod '1'\nconfig queue\n\toption enabled '1'\n\toption interface 'lo'\n\toption upload 'fast'").unwrap();
    for command in ["start", "reload", "verify", "status"] {
        let (code, message) = failure(&[command, "--config", file.path().to_str().unwrap()]);
        assert_eq!(code, 2, "{command}: {message}");
        assert!(message.contains("nothing was done"), "{command}: {message}");
    }
    let (code, message) = failure(&["start", "--config", "/nonexistent/sqm"]);
    assert_eq!(code, 2, "{message}");
    assert!(message.contains("/nonexistent/sqm"), "{message}");
}

#[test]
fn shaping_names_the_missing_privilege() {
    let file = config("lo");
    let (code, message) = failure(&["start", "--config", file.path().to_str().unwrap()]);
    assert_eq!(
        (code, message.as_str()),
        (
            3,
            "sqm: sqm start needs CAP_NET_ADMIN: run it as root; nothing was changed\n"
        )
    );
    assert_eq!(failure(&["stop"]).0, 3);
}

#[test]
fn a_device_that_does_not_exist_is_named_with_those_that_do() {
    let file = config("lo0");
    for command in ["start", "verify", "status"] {
        let (code, message) = failure(&[command, "--config", file.path().to_str().unwrap()]);
        assert_eq!(code, 2, "{command}: {message}");
        assert!(
            message.contains("there is no network device lo0. Did you mean lo?"),
            "{command}: {message}"
        );
    }
}

#[test]
fn an_interface_that_is_not_configured_is_refused() {
    let file = config("lo");
    let (code, message) = failure(&["start", "--config", file.path().to_str().unwrap(), "eth7"]);
    assert_eq!(code, 2);
    assert!(
        message.contains("no enabled section for eth7; it has enabled sections for: lo"),
        "{message}"
    );
}

#[test]
fn verify_names_missing_queues() {
    let file = config("lo");
    let output = sqm(&["verify", "--json", "--config", file.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let differences: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let all: Vec<_> = differences
        .as_array()
        .unwrap()
        .iter()
        .map(|d| d["at"].as_str().unwrap())
        .collect();
    assert!(all.contains(&"ifb4lo") && all.contains(&"lo ingress"), "{all:?}");
}

#[test]
fn status_of_an_unshaped_device_needs_neither_privileges_nor_a_file() {
    let output = sqm(&["status", "--json", "lo"]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status[0]["egress"]["device"], "lo");
    assert_eq!(status[0]["ingress"], serde_json::Value::Null);
    let output = sqm(&["status", "lo"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("lo: not shaped\n"), "{text}");
}

#[test]
fn help_shows_examples_and_exit_codes() {
    let output = sqm(&["start", "--help"]);
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(
        help.contains("sqm start eth0") && help.contains("4 the kernel lacks a feature"),
        "{help}"
    );
}

//! `sqm fleet-check` and the template of docs/guide/openwisp.md, as OpenWISP's agent uses them: it runs the text of `test_script`, and
//! restores its backup if the exit code is not 0. That the check sees the kernel's queues is tested in the lab (`lab/shape.rs`).

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/openwisp.md");

/// A section for an interface that nobody shapes.
fn configuration(enabled: bool) -> String {
    format!(
        "config queue\n\toption enabled '{}'\n\toption interface 'lo'\n\toption download '8000'\n\toption upload '8000'\n\toption script 'piece_of_cake.qos'\n",
        u8::from(enabled)
    )
}

fn check(configuration: &str, words: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sqm");
    fs::write(&file, configuration).unwrap();
    Command::new(env!("CARGO_BIN_EXE_sqm"))
        .args(["fleet-check", "--within", "0", "--config", file.to_str().unwrap()])
        .args(words)
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_configuration_stays_if_the_controller_is_reached() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap().to_string();
    let output = check(&configuration(false), &["--reach", &server]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(
        said(&output).contains("there is nothing to compare"),
        "{}",
        said(&output)
    );
    assert!(
        said(&output).contains(&format!("{server}: a round trip of ")),
        "{}",
        said(&output)
    );
    let output = check(&configuration(false), &["--reach", &server, "--round-trip", "0s"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("longer than 0"), "{}", said(&output));
    drop(listener);
    let output = check(&configuration(false), &["--reach", &server, "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["may_stay"], false);
    assert_eq!(document["servers"][0]["round_trip_ms"], Value::Null);
    let error = document["servers"][0]["error"].as_str().unwrap();
    assert_eq!(error, "not reached: Connection refused");
}

#[test]
fn a_configuration_that_is_not_in_force_or_wrong_does_not_stay() {
    let output = check(&configuration(true), &[]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(
        said(&output).contains("lo ingress planned redirect"),
        "{}",
        said(&output)
    );
    let output = check("config queue\n\toption enabled 'maybe'\n", &[]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    for server in [
        "openwisp.example.net",
        ":443",
        "openwisp.example.net:0",
        "openwisp.example.net:https",
    ] {
        let output = check(&configuration(false), &["--reach", server]);
        assert_eq!(output.status.code(), Some(2), "{server}: {}", said(&output));
        assert!(
            said(&output).contains("openwisp.example.net:443"),
            "{}",
            said(&output)
        );
    }
}

/// The template of the guide, with values for its variables.
fn template() -> Value {
    let page = fs::read_to_string(GUIDE).unwrap();
    let (_, rest) = page.split_once("```json\n").unwrap();
    let (text, _) = rest.split_once("```").unwrap();
    let text = text
        .replace("{{ wan_device }}", "eth1")
        .replace("{{ download }}", "80mbit")
        .replace("{{ upload }}", "20mbit")
        .replace("{{ controller }}", "openwisp.example.net");
    assert!(!text.contains("{{"), "{text}");
    serde_json::from_str(&text).unwrap()
}

/// OpenWISP writes the keys of a section as its options, but for its type and its name.
#[test]
fn the_section_of_the_template_is_planned() {
    let template = template();
    let section = template["sqm"][0].as_object().unwrap();
    let mut text = format!(
        "config {} '{}'\n",
        section["config_name"].as_str().unwrap(),
        section["config_value"].as_str().unwrap()
    );
    for (option, value) in section.iter().filter(|(key, _)| !key.starts_with("config_")) {
        text += &format!("\toption {option} '{}'\n", value.as_str().unwrap());
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sqm");
    fs::write(&file, &text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_sqm"))
        .args(["plan", "--config", file.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{text}{}", said(&output));
    assert!(said(&output).contains("bandwidth 20mbit"), "{}", said(&output));
}

/// The agent reports the lines of the log that have its name.
#[test]
fn the_script_of_the_template_passes_the_exit_code_on_and_logs_the_reason() {
    let template = template();
    let script = &template["files"][0];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("test-sqm");
    program(&file, script["contents"].as_str().unwrap());
    assert_eq!(template["openwisp"][0]["test_script"], script["path"]);
    assert_eq!(script["mode"], "0755");
    program(
        &folder.path().join("logger"),
        "#!/bin/sh\necho \"$@\" >>log; cat >>log\n",
    );
    program(
        &folder.path().join("sqm"),
        "#!/bin/sh\necho \"$@\"; echo 'the reason' >&2; exit $CODE\n",
    );
    for code in ["0", "1", "2"] {
        let status = Command::new(&file)
            .current_dir(folder.path())
            .env("PATH", format!("{}:/usr/bin:/bin", folder.path().display()))
            .env("CODE", code)
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(code.parse().unwrap()));
    }
    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    let line = "-t openwisp\nfleet-check --reach openwisp.example.net:443\nthe reason\n";
    assert_eq!(log, line.repeat(3));
}

fn program(file: &Path, text: &str) {
    fs::write(file, text).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
}

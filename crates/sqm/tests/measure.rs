//! `sqm serve` and `sqm test` as a user runs them, over the loopback interface.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// A server on a port of the system's choice; ends with the test.
struct Server {
    child: Child,
    port: String,
}

impl Server {
    fn start() -> Self {
        let mut child = sqm()
            .args(["serve", "--listen", "127.0.0.1:0"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let port = line
            .split("127.0.0.1:")
            .nth(1)
            .unwrap()
            .split(' ')
            .next()
            .unwrap()
            .to_owned();
        Self { child, port }
    }

    fn test(&self, args: &[&str]) -> Output {
        let short = [
            "--duration",
            "2s",
            "--settle",
            "500ms",
            "--idle",
            "300ms",
            "--congestion",
            "system",
        ];
        sqm()
            .args(["test", "127.0.0.1", "--port", &self.port])
            .args(short)
            .args(args)
            .output()
            .unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn sqm() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sqm"));
    command.stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn json_alone_on_standard_output() {
    let server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    let picture = dir.path().join("test.svg");
    let output = server.test(&[
        "--up",
        "1",
        "--down",
        "1",
        "--json",
        "-",
        "--svg",
        picture.to_str().unwrap(),
        "--title",
        "A & B",
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["format"], "sqm-test");
    assert!(result["summary"]["download_mbit"].as_f64().unwrap() > 0.0);
    assert!(result["summary"]["upload_mbit"].as_f64().unwrap() > 0.0);
    assert!(result["summary"]["latency_p99_ms"].as_f64().is_some());
    assert_eq!(result["summary"]["probes_lost"], 0);
    // No terminal: progress in plain lines.
    assert!(text(&output.stderr).contains("idle line") && !text(&output.stderr).contains('\x1b'));
    assert!(std::fs::read_to_string(picture).unwrap().contains("A &amp; B"));
}

#[test]
fn a_table_for_people() {
    let server = Server::start();
    let output = server.test(&["--up", "0", "--down", "1"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for row in [
        "idle latency",
        "loaded latency",
        "99 % are below",
        "download",
        "upload",
        "lost",
    ] {
        assert!(text(&output.stdout).contains(row), "{row}");
    }
}

#[test]
fn exit_codes_tell_what_is_wrong() {
    let server = Server::start();
    let port = server.port.clone();
    let unknown = sqm()
        .args(["test", "127.0.0.1", "--congestion", "no-such"])
        .output()
        .unwrap();
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("no-such"));
    let too_short = sqm()
        .args(["test", "127.0.0.1", "--duration", "3s"])
        .output()
        .unwrap();
    assert_eq!(too_short.status.code(), Some(2));
    drop(server);
    let nobody = sqm()
        .args(["test", "127.0.0.1", "--congestion", "system", "--port", &port])
        .output()
        .unwrap();
    assert_eq!(nobody.status.code(), Some(1));
    assert!(text(&nobody.stderr).contains("127.0.0.1") && text(&nobody.stderr).contains("sqm serve"));
}

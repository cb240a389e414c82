//! `sqm serve` and `sqm test` on the command line, over the loopback interface.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// A server on a port that the system chooses. Dropping it kills the server.
struct Server {
    child: Child,
    port: String,
}

impl Server {
    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(options: &[&str]) -> Self {
        let mut child = sqm()
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(options)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        lines.read_line(&mut line).unwrap();
        // The server must not block on its standard error, which is read and ignored.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
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
            "--together",
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
fn standard_output_has_only_json() {
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
    // Standard error is no terminal, so that progress is in plain lines.
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
fn exit_codes_show_the_kind_of_error() {
    let server = Server::start();
    let port = server.port.clone();
    let unknown = sqm()
        .args(["test", "127.0.0.1", "--congestion", "no-such"])
        .output()
        .unwrap();
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("no-such"));
    let no_server = sqm().arg("test").output().unwrap();
    assert_eq!(no_server.status.code(), Some(2));
    for way in ["sqm serve", "--url", "--rpm"] {
        assert!(text(&no_server.stderr).contains(way), "{way}");
    }
    let server_as_file = sqm().args(["test", "--json", "127.0.0.1"]).output().unwrap();
    assert_eq!(server_as_file.status.code(), Some(2));
    assert!(text(&server_as_file.stderr).contains("sqm test 127.0.0.1 --json"));
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

#[test]
fn an_interrupted_test_is_saved_and_marked() {
    let server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("partial.json");
    let mut child = sqm()
        .args([
            "test",
            "127.0.0.1",
            "--port",
            &server.port,
            "--json",
            file.to_str().unwrap(),
        ])
        .args([
            "--duration",
            "60s",
            "--settle",
            "500ms",
            "--idle",
            "300ms",
            "--congestion",
            "system",
        ])
        .args(["--down", "1", "--up", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("  2 of 60 s")));
    let sent = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
    let words: Vec<_> = lines.map_while(Result::ok).collect();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{words:?}");
    assert!(words.iter().any(|line| line.contains("interrupted")), "{words:?}");
    // The reason is given once with the figures, and once as the error of the command.
    let figures = text(&output.stdout);
    assert!(
        figures.contains("no grade: the test ended early: interrupted"),
        "{figures}"
    );
    assert_eq!(figures.matches("interrupted").count(), 1, "{figures}");
    assert!(
        !figures.contains("no data arrived") && !figures.contains("probes came back"),
        "{figures}"
    );
    // The load began with the download.
    let upload = figures.lines().find(|line| line.starts_with("upload")).unwrap();
    assert_eq!(
        upload.split_whitespace().collect::<Vec<_>>(),
        ["upload", "-", "not", "tested"]
    );
    let result: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(result["summary"]["upload_mbit"], Value::Null);
    assert!(
        result["meta"]["partial"]
            .as_str()
            .unwrap()
            .contains("interrupted")
    );
    assert!(result["flows"][0]["samples"].as_array().unwrap().len() > 10);
}

/// Every frame on a terminal of 80 columns is one line, and its bar has ten cells that only become fuller.
#[test]
fn the_progress_bar_on_a_terminal_keeps_its_length() {
    let server = Server::start();
    let test = format!(
        "stty cols 80; {} test 127.0.0.1 --port {} --duration 6s --settle 200ms --idle 500ms --congestion system >/dev/null",
        env!("CARGO_BIN_EXE_sqm"),
        server.port
    );
    let output = Command::new("script")
        .args(["-qec", &test, "/dev/null"])
        .env("TERM", "xterm")
        .env("SHELL", "/bin/sh")
        .output()
        .unwrap();
    let screen = text(&output.stdout);
    let is_cell = |c: &char| matches!(c, '█' | '░');
    let frames: Vec<String> = screen
        .split(['\r', '\n'])
        .filter(|frame| frame.contains(" s left"))
        .map(|frame| {
            frame
                .chars()
                .skip_while(|c| !is_cell(c))
                .take_while(is_cell)
                .collect()
        })
        .collect();
    assert!(frames.len() > 20, "{screen}");
    let mut fullest = 0;
    for cells in &frames {
        assert_eq!(cells.chars().count(), 10, "{screen}");
        let full = cells.chars().filter(|c| *c == '█').count();
        assert!(full >= fullest, "{screen}");
        fullest = full;
    }
    assert!(fullest >= 9, "{screen}");
    assert!(!screen.contains("\u{1b}[1A"), "a frame takes two lines: {screen}");
}

#[test]
fn flents_tests_are_listed_and_run_by_name() {
    let listed = sqm().args(["test", "--list"]).output().unwrap();
    for name in ["rrul ", "rrul_be ", "tcp_8down ", "rtt_fair4be ", "voip "] {
        assert!(text(&listed.stdout).contains(name), "{name}");
    }
    let server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("one.flent.gz");
    let output = server.test(&["--test", "rrul_be", "--save", file.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(std::fs::read(file).unwrap()[..2], [0x1f, 0x8b]);
    let unknown = server.test(&["--test", "rrul_bee"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("--list"));
}

#[test]
fn a_server_for_one_test_ends_after_it() {
    let mut server = Server::start_with(&["--once"]);
    let output = server.test(&["--down", "1", "--up", "0"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn a_secret_is_read_from_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("secret");
    std::fs::write(&file, "open sesame\n").unwrap();
    let file = file.to_str().unwrap();
    let server = Server::start_with(&["--secret", file]);
    let without = server.test(&["--down", "1", "--up", "0"]);
    assert_eq!(without.status.code(), Some(2));
    assert!(text(&without.stderr).contains("--secret"));
    let with = server.test(&["--down", "1", "--up", "0", "--secret", file]);
    assert!(with.status.success(), "{}", text(&with.stderr));
}

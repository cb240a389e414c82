//! `sqm test` against misbehaving servers, over the loopback interface: it ends in time, its memory stays small, and
//! it reports the fault.
//!
//! `support/hostile_server.py` implements the behaviours. All of them are tried, several at a time.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Time that a test may take beyond its own length, whatever the server does.
const SPARE: Duration = Duration::from_secs(10);
/// Additional time on a busy machine.
const SLACK: Duration = Duration::from_secs(10);
/// Limit for the resident memory of the client, kB.
const MAX_MEMORY_KB: u64 = 64 << 10;
/// Number of parallel tests. Most of them wait most of the time.
const AT_ONCE: usize = 16;
const LOAD: Duration = Duration::from_secs(2);
const IDLE: Duration = Duration::from_millis(500);

fn script() -> &'static Path {
    Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/support/hostile_server.py"
    ))
}

/// A server with one behaviour.
struct Server {
    child: Child,
    port: String,
}

impl Server {
    fn start(behaviour: &str) -> Self {
        let mut child = Command::new("python3")
            .arg(script())
            .arg(behaviour)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("python3 starts");
        let mut port = String::new();
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped"));
        lines.read_line(&mut port).expect("the server tells its port");
        let port = port.trim().to_owned();
        assert!(!port.is_empty(), "{behaviour}: the server did not start");
        Self { child, port }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn behaviours() -> Vec<String> {
    let output = Command::new("python3")
        .arg(script())
        .arg("--list")
        .output()
        .expect("python3 starts");
    let names = String::from_utf8(output.stdout).expect("text");
    names.lines().map(str::to_owned).collect()
}

/// A short test against a server with this behaviour, and the test's duration if nothing goes wrong.
fn test(behaviour: &str, port: &str, secret: &Path) -> (Command, Duration) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sqm"));
    command.stdin(Stdio::null()).args(["test", "--duration", "2s"]);
    let url = format!("http://127.0.0.1:{port}/");
    let kind = behaviour.split('-').next().unwrap_or_default();
    match kind {
        "http" => command.args(["--url", &url]),
        "post" => command.args(["--upload-url", &url]),
        "rpm" => command.args(["127.0.0.1", "--port", port, "--rpm", "--insecure"]),
        "challenge" => command
            .args(["127.0.0.1", "--port", port, "--secret"])
            .arg(secret),
        _ => command.args(["127.0.0.1", "--port", port]),
    };
    if kind == "rpm" {
        return (command, LOAD * 2);
    }
    command.args([
        "--together",
        "--idle",
        "500ms",
        "--settle",
        "500ms",
        "--congestion",
        "system",
    ]);
    (command, IDLE * 2 + LOAD)
}

/// The outcome of a test.
struct Ended {
    code: Option<i32>,
    took: Duration,
    peak_kb: u64,
    words: String,
}

/// Peak memory of a process, kB; none if it has ended.
fn peak_kb(child: &Child) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Runs a command, and kills it if it does not end within `limit`.
fn run(mut command: Command, limit: Duration) -> Ended {
    let began = Instant::now();
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("sqm starts");
    let (out, err): (Option<ChildStdout>, Option<ChildStderr>) = (child.stdout.take(), child.stderr.take());
    let words = thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = err.expect("it is piped").read_to_end(&mut bytes);
        bytes
    });
    let figures = thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = out.expect("it is piped").read_to_end(&mut bytes);
        bytes
    });
    let mut peak = 0;
    let code = loop {
        peak = peak_kb(&child).unwrap_or(peak);
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            break status.code();
        }
        if began.elapsed() > limit {
            let _ = child.kill();
        }
        thread::sleep(Duration::from_millis(20));
    };
    let took = began.elapsed();
    let bytes = [words.join(), figures.join()].map(|read| read.expect("the pipe was read"));
    Ended {
        code,
        took,
        peak_kb: peak,
        words: String::from_utf8_lossy(&bytes.concat()).into_owned(),
    }
}

/// The acceptable exit codes, and the text that the message must contain.
fn expected(behaviour: &str) -> (&'static [i32], &'static str) {
    const LIES: &str = "reports impossible values";
    match behaviour {
        "welcome-no-probes" => (&[2], "answers 0 probes"),
        "welcome-version" => (&[1], "protocol version 99"),
        "probes-held" => (&[1], "it held a probe for"),
        "attach-dscp" | "load-words" | "results-endless" => (&[1], LIES),
        "results-many-samples" | "results-many-tcp" => (&[1], "at most"),
        "results-unknown-flow" => (&[1], "out of order"),
        "results-nan" | "results-infinite" => (&[1], "not a message of this protocol"),
        "results-silence" | "results-drip" | "load-slow-words" => (&[1], "no results within"),
        "http-redirect-port" => (&[1], "'99999' is not a port"),
        "connect-silence" | "accept-silence" | "hello-drip" | "http-silence" => (&[1], "no answer within"),
        "results-short" => (&[1], "are incomplete: "),
        "results-honest" => (&[0], ""),
        _ if behaviour.starts_with("results-omit") => (&[1], "are incomplete: "),
        "load-done-early" => (&[1], LIES),
        _ if behaviour.starts_with("progress-") => (&[1], LIES),
        _ if behaviour.starts_with("results-") && is_lie(behaviour) => (&[1], LIES),
        _ if behaviour.starts_with("flows-") || behaviour.starts_with("welcome-") => (&[0], ""),
        _ if behaviour.ends_with("-escapes") && !behaviour.starts_with("rpm-") => (&[1], "\\u001b]0;owned"),
        _ => (&[0, 1], ""),
    }
}

fn is_lie(behaviour: &str) -> bool {
    let lies = [
        "too-much",
        "overflow",
        "negative",
        "future",
        "backwards",
        "counters",
        "processor",
        "less",
        "empty",
        "swapped",
        "no-time",
        "roles",
    ];
    behaviour.starts_with("results-tcp-") || lies.iter().any(|lie| behaviour.ends_with(lie))
}

/// The first character that a terminal would interpret.
fn raw(text: &str) -> Option<char> {
    text.chars()
        .find(|c| (c.is_control() && *c != '\n') || ('\u{202a}'..='\u{202e}').contains(c))
}

/// Everything that is wrong with the outcome of a test.
fn faults(behaviour: &str, length: Duration, ended: &Ended) -> Vec<String> {
    let Ended {
        code,
        took,
        peak_kb,
        words,
    } = ended;
    let (codes, said) = expected(behaviour);
    let mut faults = Vec::new();
    if *took > length + SPARE + SLACK {
        faults.push(format!("took {:.1} s", took.as_secs_f64()));
    }
    if *peak_kb > MAX_MEMORY_KB {
        faults.push(format!("held {peak_kb} kB"));
    }
    if !code.is_some_and(|code| codes.contains(&code)) {
        faults.push(format!("ended with {code:?} instead of {codes:?}"));
    }
    if !words.contains(said) {
        faults.push(format!("did not say '{said}'"));
    }
    if words.contains("panicked") || words.len() > 20_000 {
        faults.push("said something odd".to_owned());
    }
    if let Some(c) = raw(words) {
        faults.push(format!("printed {c:?}"));
    }
    faults
}

#[test]
fn an_invalid_port_is_a_usage_error() {
    let (command, _) = test("http-", "99999", Path::new(""));
    let ended = run(command, SLACK);
    assert_eq!(ended.code, Some(2), "{}", ended.words);
    assert!(ended.words.contains("'99999' is not a port"), "{}", ended.words);
}

#[test]
fn no_server_can_stall_a_test_or_exhaust_memory() {
    let mut all = behaviours();
    assert!(all.len() >= 100, "{}", all.len());
    // The longest tests run first: the queue is emptied from its end.
    all.sort_by_key(|name| {
        ["silence", "drip", "words", "flood"]
            .iter()
            .any(|slow| name.contains(slow))
    });
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "open sesame\n").unwrap();
    let (queue, wrong) = (Mutex::new(all), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some(behaviour) = queue.lock().unwrap().pop() else {
                        return;
                    };
                    let server = Server::start(&behaviour);
                    let (command, length) = test(&behaviour, &server.port, &secret);
                    let ended = run(command, length + SPARE + SLACK * 2);
                    let faults = faults(&behaviour, length, &ended);
                    println!(
                        "{behaviour:26} {:5.1} s {:6} kB, code {:?}",
                        ended.took.as_secs_f64(),
                        ended.peak_kb,
                        ended.code
                    );
                    if !faults.is_empty() {
                        let fault = format!("{behaviour}: {}\n{}", faults.join(", "), ended.words);
                        wrong.lock().unwrap().push(fault);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// True if the process has installed a handler for SIGINT.
fn hears_interrupts(child: &Child) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & 2 != 0)
}

/// Interrupts a test when it reports this stage, or as soon as it handles SIGINT. Returns how long it took to end,
/// its exit code, and its output.
fn interrupt(behaviour: &str, stage: Option<&str>) -> (Duration, Option<i32>, String) {
    let server = Server::start(behaviour);
    let (mut command, _) = test(behaviour, &server.port, Path::new(""));
    let mut child = command
        .args(["--progress", "json"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("sqm starts");
    let mut lines = BufReader::new(child.stderr.take().expect("it is piped"));
    let mut said = String::new();
    match stage {
        Some(stage) => {
            let stage = format!("\"stage\":\"{stage}\"");
            while !said.contains(&stage) {
                assert!(lines.read_line(&mut said).unwrap() > 0, "{behaviour}: {said}");
            }
        }
        None => {
            while !hears_interrupts(&child) {
                assert!(child.try_wait().unwrap().is_none(), "{behaviour}");
                thread::yield_now();
            }
        }
    }
    let began = Instant::now();
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::INT).unwrap();
    lines.read_to_string(&mut said).unwrap();
    let code = child.wait().unwrap().code();
    (began.elapsed(), code, said)
}

#[test]
fn an_interrupt_ends_the_test_in_every_phase() {
    let cases = [
        ("connect-silence", None),
        ("accept-silence", None),
        ("hello-drip", None),
        ("attach-silence", None),
        ("probes-silence", Some("idle")),
        ("probes-flood", Some("idle")),
        ("load-silence", Some("load")),
        ("load-slow-words", Some("load")),
        ("flows-stall", Some("load")),
        ("results-silence", Some("collect")),
        ("results-drip", Some("collect")),
        ("load-slow-words", Some("collect")),
        ("http-silence", None),
        ("http-drip-head", None),
        ("http-slow-redirects", None),
        ("http-body-drip", Some("load")),
        ("post-unread", Some("load")),
    ];
    thread::scope(|scope| {
        for (behaviour, stage) in cases {
            scope.spawn(move || {
                let (took, code, said) = interrupt(behaviour, stage);
                println!("{behaviour:26} {stage:?}: {:.1} s", took.as_secs_f64());
                // It takes 2 s on an idle machine.
                assert!(took < Duration::from_secs(6), "{behaviour}: {took:?}");
                assert_eq!(code, Some(1), "{behaviour}: {said}");
                assert!(said.contains("interrupted"), "{behaviour}: {said}");
            });
        }
    });
}

//! `sqm test` against misbehaving servers, over the loopback interface: it ends, its memory stays small, and it reports
//! the fault.
//!
//! `support/hostile_server.py` implements the behaviours. All of them are tried, several at a time. How soon a test ends is
//! judged in the lab, whose clock does not depend on the load of the machine.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A program that has not ended by then is stalled, and is killed. A choice: more than ten times the longest test.
const PATIENCE: Duration = Duration::from_secs(180);
/// How often a running program is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// Limit for the resident memory of the client, kB.
const MAX_MEMORY_KB: u64 = 64 << 10;
/// Number of parallel tests. Most of them wait most of the time.
const AT_ONCE: usize = 16;
/// The phases of a short test.
const SHORT: Lengths = Lengths {
    idle: "500ms",
    load: "2s",
};

/// The lengths of the phases of a test, as options.
#[derive(Clone, Copy)]
struct Lengths {
    idle: &'static str,
    load: &'static str,
}

fn script() -> &'static Path {
    Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/support/hostile_server.py"
    ))
}

/// The process that starts servers.
struct Servers {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Servers {
    fn start() -> Mutex<Self> {
        let mut child = Command::new("python3")
            .arg(script())
            .arg("--many")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("python3 starts");
        let answers = BufReader::new(child.stdout.take().expect("it is piped"));
        Mutex::new(Self { child, answers })
    }

    fn server(&mut self, behaviour: &str) -> Server {
        let requests = self.child.stdin.as_mut().expect("it is piped");
        writeln!(requests, "{behaviour}").expect("the servers' process lives");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("text");
        let (process, port) = answer
            .trim_end()
            .split_once(' ')
            .unwrap_or_else(|| panic!("{behaviour}: the server did not start"));
        let process = process.parse().ok().and_then(Pid::from_raw);
        Server {
            process: process.expect("a process"),
            port: port.to_owned(),
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // The servers end with their input.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// A server with one behaviour.
struct Server {
    process: Pid,
    port: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = kill_process(self.process, Signal::KILL);
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

/// A test against a server with this behaviour.
fn test(behaviour: &str, port: &str, secret: &Path, Lengths { idle, load }: Lengths) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sqm"));
    command.args(["test", "--duration", load]);
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
    if kind != "rpm" {
        command.args(["--together", "--idle", idle, "--settle", "500ms"]);
        command.args(["--congestion", "system"]);
    }
    command
}

/// A running program, and what it has printed so far. Dropping it kills the program.
struct Program {
    child: Child,
    words: Arc<Mutex<Vec<u8>>>,
}

impl Program {
    fn words(&self) -> String {
        String::from_utf8_lossy(&self.words.lock().unwrap()).into_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The outcome of a program.
struct Ended {
    /// None if it was killed.
    code: Option<i32>,
    took: Duration,
    peak_kb: u64,
    words: String,
}

/// Peak memory of a process, kB; none if it has ended.
fn peak_kb(child: &Child) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Runs a command to its end, or until it is stalled. Interrupts it at the first moment that `is_time` accepts.
fn run(mut command: Command, mut is_time: impl FnMut(&Program) -> bool) -> Ended {
    let began = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("sqm starts");
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let words = Arc::default();
    let readers = [
        gather(out.expect("it is piped"), Arc::default()),
        gather(err.expect("it is piped"), Arc::clone(&words)),
    ];
    let mut program = Program { child, words };
    let (mut peak, mut is_interrupted) = (0, false);
    let code = loop {
        peak = peak_kb(&program.child).unwrap_or(peak);
        if let Some(status) = program.child.try_wait().expect("it can be waited for") {
            break status.code();
        }
        if !is_interrupted && is_time(&program) {
            is_interrupted = true;
            kill_process(Pid::from_child(&program.child), Signal::INT).expect("it takes signals");
        }
        if began.elapsed() > PATIENCE {
            program.child.kill().expect("it can be killed");
        }
        thread::sleep(LOOK);
    };
    let took = began.elapsed();
    let all = readers.map(|reader| reader.join().expect("the pipe was read"));
    Ended {
        code,
        took,
        peak_kb: peak,
        words: all.concat(),
    }
}

/// Reads a pipe to its end, into `words`. The thread returns all of it.
fn gather(mut pipe: impl Read + Send + 'static, words: Arc<Mutex<Vec<u8>>>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(length @ 1..) = pipe.read(&mut piece) {
            words.lock().unwrap().extend_from_slice(&piece[..length]);
        }
        String::from_utf8_lossy(&words.lock().unwrap()).into_owned()
    })
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
fn faults(behaviour: &str, ended: &Ended) -> Vec<String> {
    let Ended {
        code, peak_kb, words, ..
    } = ended;
    let (codes, said) = expected(behaviour);
    let mut faults = Vec::new();
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
    let ended = run(test("http-", "99999", Path::new(""), SHORT), |_| false);
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
    let servers = Servers::start();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some(behaviour) = queue.lock().unwrap().pop() else {
                        return;
                    };
                    let server = servers.lock().unwrap().server(&behaviour);
                    let ended = run(test(&behaviour, &server.port, &secret, SHORT), |_| false);
                    let faults = faults(&behaviour, &ended);
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

/// When a test is interrupted.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// It has so many TCP connections to the server, or is opening them.
    Connections(usize),
    /// It reports this stage.
    Stage(&'static str),
}

impl Moment {
    fn has_come(self, program: &Program, port: &str) -> bool {
        match self {
            Self::Connections(number) => connections(&program.child, port) >= number,
            Self::Stage(stage) => reports(&program.words(), stage),
        }
    }

    /// Phases that do not end by themselves before the interrupt comes.
    fn lengths(self) -> Lengths {
        let (idle, load) = match self {
            Self::Stage("idle") => ("60s", "2s"),
            Self::Stage("collect") => ("5s", "2s"),
            _ => ("5s", "10m"),
        };
        Lengths { idle, load }
    }
}

/// True if a test has reported this stage.
fn reports(words: &str, stage: &str) -> bool {
    words.contains(&format!("\"stage\":\"{stage}\""))
}

/// The number of TCP connections of a process to this port of any host, those without an answer included.
fn connections(child: &Child, port: &str) -> usize {
    let folder = format!("/proc/{}", child.id());
    let port: u16 = port.parse().expect("a port");
    let remote = format!(":{port:04X}");
    // proc_pid_net(5): the remote address is the third word, the inode the tenth. A descriptor is a link to `socket:[INODE]`.
    let table = fs::read_to_string(format!("{folder}/net/tcp")).unwrap_or_default();
    let to_port = table.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.len() > 9 && words[2].ends_with(&remote)).then(|| format!("socket:[{}]", words[9]))
    });
    let to_port: Vec<String> = to_port.collect();
    let open = fs::read_dir(format!("{folder}/fd")).into_iter().flatten();
    let links = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links
        .filter(|link| to_port.iter().any(|socket| link.as_os_str() == socket.as_str()))
        .count()
}

#[test]
fn an_interrupt_ends_the_test_in_every_phase() {
    use Moment::{Connections, Stage};
    let cases = [
        ("connect-silence", Connections(1)),
        ("accept-silence", Connections(1)),
        ("hello-drip", Connections(1)),
        ("attach-silence", Connections(2)),
        ("probes-silence", Stage("idle")),
        ("probes-flood", Stage("idle")),
        ("load-silence", Stage("load")),
        ("load-slow-words", Stage("load")),
        ("flows-stall", Stage("load")),
        ("results-silence", Stage("collect")),
        ("results-drip", Stage("collect")),
        ("load-slow-words", Stage("collect")),
        ("http-silence", Connections(1)),
        ("http-drip-head", Connections(1)),
        ("http-slow-redirects", Connections(1)),
        ("http-body-drip", Stage("load")),
        ("post-unread", Stage("load")),
    ];
    let servers = &Servers::start();
    thread::scope(|scope| {
        for (behaviour, moment) in cases {
            scope.spawn(move || {
                let server = servers.lock().unwrap().server(behaviour);
                let mut command = test(behaviour, &server.port, Path::new(""), moment.lengths());
                command.args(["--progress", "json"]);
                let ended = run(command, |program| moment.has_come(program, &server.port));
                let Ended { code, words, .. } = ended;
                println!("{behaviour:26} {moment:?}: {:.1} s", ended.took.as_secs_f64());
                assert_eq!(code, Some(1), "{behaviour}: {words}");
                assert!(words.contains("interrupted"), "{behaviour}: {words}");
                let goes_on = matches!(moment, Stage("idle")) && reports(&words, "load");
                assert!(!goes_on, "{behaviour}: {words}");
            });
        }
    });
}

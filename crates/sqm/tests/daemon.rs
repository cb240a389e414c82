//! `sqm daemon` as its clients and its service manager see it, in a network namespace on this machine. Its effect on
//! queues is tested in the lab (`lab/daemon.rs`).

mod support;

use std::fs;
use std::io::{Read, Write};

use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, recv};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use support::{Chance, Crowd, answered, in_own_network, some_kinds};

/// Time limit of each wait. Everything here takes far less on an idle machine; the limit allows for a busy one.
const PATIENCE: Duration = Duration::from_secs(120);

/// A daemon and the socket of its service manager. Dropping it kills the daemon.
struct Daemon {
    folder: tempfile::TempDir,
    process: Child,
    manager: UnixDatagram,
}

impl Daemon {
    /// Starts a daemon whose only section names a missing device, so that it neither needs nor touches the kernel's
    /// queues.
    fn start(options: &[&str]) -> Self {
        Self::start_watched(options, Some("200000"))
    }

    /// Starts a daemon with a watchdog interval in microseconds, or without a watchdog.
    fn start_watched(options: &[&str], watchdog: Option<&str>) -> Self {
        Self::start_with(Some(CONFIG), options, watchdog)
    }

    /// Starts a daemon with this text in the configuration file, or without that file.
    fn start_with(config: Option<&str>, options: &[&str], watchdog: Option<&str>) -> Self {
        Self::start_prepared(options, watchdog, |file, _| {
            if let Some(config) = config {
                fs::write(file, config).unwrap();
            }
        })
    }

    /// Starts a daemon after `prepare`, which gets the path of the configuration file, and the command.
    fn start_prepared(
        options: &[&str],
        watchdog: Option<&str>,
        prepare: impl FnOnce(&Path, &mut Command),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let manager = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        manager.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut command = in_own_network();
        command
            .arg(env!("CARGO_BIN_EXE_sqm"))
            .arg("daemon")
            .arg("--config")
            .arg(folder.path().join("sqm.conf"))
            .arg("--state-dir")
            .arg(folder.path().join("state"))
            .args(options)
            .env("NOTIFY_SOCKET", folder.path().join("notify"))
            .envs(watchdog.map(|micros| ("WATCHDOG_USEC", micros)));
        prepare(&folder.path().join("sqm.conf"), &mut command);
        let process = command.spawn().expect("util-linux has unshare");
        Self {
            folder,
            process,
            manager,
        }
    }

    fn ready(options: &[&str]) -> Self {
        let daemon = Self::start(options);
        daemon.manager_hears("READY=1");
        daemon
    }

    /// Waits until the daemon notifies its service manager of this. Returns all notifications until then.
    fn manager_hears(&self, words: &str) -> String {
        let mut heard = String::new();
        let mut bytes = [0; 4096];
        while !heard.contains(words) {
            // A process that was stopped and continued meanwhile gets EINTR from a socket with a time limit (signal(7)).
            let (length, _) = retry_on_intr(|| recv(&self.manager, &mut bytes[..], RecvFlags::empty()))
                .unwrap_or_else(|error| panic!("the daemon never said {words}: {error}; it said {heard}"));
            heard += std::str::from_utf8(&bytes[..length]).unwrap();
        }
        heard
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.process.id() as i32).unwrap(), signal).unwrap();
    }

    fn ends(mut self) -> ExitStatus {
        self.process.wait().unwrap()
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("state/api.sock")
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends a request and returns the status code, the head and the body.
    fn ask(&self, request: &str) -> (u16, String, String) {
        answer(self.connect(), request)
    }

    fn get(&self, path: &str) -> Value {
        let (code, _, body) = self.ask(&format!("GET {path} HTTP/1.0\r\n\r\n"));
        assert_eq!(code, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.process.id()))
            .unwrap()
            .count()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The daemon may have exited already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const CONFIG: &str = "config queue\n\toption enabled '1'\n\toption interface 'sqm-none0'\n\toption download '85000'\n\
                      \toption upload '10000'\n\toption script 'piece_of_cake.qos'\n";

fn answer<S: Read + Write>(mut stream: S, request: &str) -> (u16, String, String) {
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").expect("an answer has a head");
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    (code, head.to_ascii_lowercase(), body.to_owned())
}

#[test]
fn a_service_manager_receives_its_notifications() {
    let daemon = Daemon::start(&[]);
    let heard = daemon.manager_hears("READY=1");
    assert!(
        heard.contains("STATUS=sqm-none0 waiting: there is no network device sqm-none0"),
        "{heard}"
    );
    daemon.manager_hears("WATCHDOG=1");
    daemon.manager_hears("WATCHDOG=1");
    daemon.signal(Signal::HUP);
    let heard = daemon.manager_hears("READY=1");
    assert!(
        heard.contains("RELOADING=1") && heard.contains("MONOTONIC_USEC="),
        "{heard}"
    );
    fs::write(daemon.folder.path().join("sqm.conf"), "nonsense").unwrap();
    daemon.signal(Signal::HUP);
    daemon.manager_hears("the previous configuration is in force");
    daemon.signal(Signal::TERM);
    daemon.manager_hears("STOPPING=1");
    let socket = daemon.socket();
    assert!(daemon.ends().success());
    assert!(!socket.exists());
}

/// Sends more notifications than the socket's buffer holds, while nothing reads them.
#[test]
fn a_service_manager_that_does_not_read_delays_nothing() {
    let daemon = Daemon::ready(&[]);
    for _ in 0..600 {
        daemon.signal(Signal::HUP);
        assert_eq!(daemon.get("/v1/status")["version"], 1);
    }
    daemon.signal(Signal::TERM);
    assert!(daemon.ends().success());
}

#[test]
fn every_user_can_read_and_only_privileged_users_can_make_changes() {
    let daemon = Daemon::ready(&[]);
    let status = daemon.get("/v1/status");
    assert_eq!((&status["version"], &status["health"]), (&1.into(), &"ok".into()));
    assert_eq!(status["interfaces"][0]["state"], "waiting");
    assert_eq!(daemon.get("/v1/plan")[0]["ingress"]["device"], "ifb4sqm-none0");
    let apply = "POST /v1/apply HTTP/1.1\r\nHost: sqm\r\nConnection: close\r\nContent-Length: ";
    let (code, _, body) = daemon.ask(&format!("{apply}0\r\n\r\n"));
    assert_eq!(code, 200, "{body}");
    assert!(body.contains("sqm-none0"), "{body}");
    let (code, ..) = daemon.ask(&format!("{apply}26\r\n\r\n{{\"interface\": \"sqm-none0\"}}"));
    assert_eq!(code, 200);
    for (body, code, words) in [
        ("{\"interface\": \"eth7\"}", 422, "no enabled section for eth7"),
        ("{\"interfaec\": \"eth7\"}", 400, "interfaec"),
        ("\u{0}", 400, "the body is not"),
    ] {
        let (found, _, answer) = daemon.ask(&format!("{apply}{}\r\n\r\n{body}", body.len()));
        assert!(
            found == code && answer.contains(words),
            "{body}: {found} {answer}"
        );
    }
    // A configuration with errors is an error for the client, and the daemon keeps the previous one.
    fs::write(
        daemon.folder.path().join("sqm.conf"),
        CONFIG.replace("85000", "fast"),
    )
    .unwrap();
    let (code, _, body) = daemon.ask(&format!("{apply}0\r\n\r\n"));
    assert!(code == 422 && body.contains("sqm.conf:4: "), "{code} {body}");
    let status = daemon.get("/v1/status");
    assert_eq!(status["health"], "degraded");
    assert_eq!(daemon.get("/v1/plan")[0]["interface"], "sqm-none0");

    for (request, code) in [
        ("DELETE /v1/status HTTP/1.0\r\n\r\n", 405),
        ("GET /v1/apply HTTP/1.0\r\n\r\n", 405),
        ("GET / HTTP/1.0\r\n\r\n", 404),
        ("HEAD /v1/status HTTP/1.0\r\n\r\n", 200),
        ("GET /v1/status/ HTTP/1.0\r\n\r\n", 404),
    ] {
        let (found, head, _) = daemon.ask(request);
        assert_eq!(found, code, "{request}");
        assert!(code != 405 || head.contains("allow: "), "{head}");
    }
    // Only root can switch to another user and back.
    if rustix::process::geteuid().is_root() {
        let stranger = std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let nobody = rustix::process::Uid::from_raw(65534);
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
                let read = daemon.ask("GET /v1/status HTTP/1.0\r\n\r\n").0;
                (read, daemon.ask(&format!("{apply}0\r\n\r\n")))
            });
            asking.join().unwrap()
        });
        assert_eq!((stranger.0, stranger.1.0), (200, 403), "{}", stranger.1.2);
    }
}

#[test]
fn ages_are_computed_when_the_request_is_answered() {
    // A daemon with a watchdog would check the interface each time it notifies the service manager.
    let daemon = Daemon::start_watched(&[], None);
    daemon.manager_hears("READY=1");
    let age = || {
        daemon.get("/v1/status")["interfaces"][0]["for_seconds"]
            .as_f64()
            .unwrap()
    };
    let first = age();
    let end = std::time::Instant::now() + Duration::from_secs(20);
    // Nothing happens to the interface, and the daemon does not check it for half a minute. The age must grow within
    // a few seconds nevertheless.
    while age() < first + 0.3 {
        assert!(std::time::Instant::now() < end, "it stays {first} s");
        std::thread::sleep(Duration::from_millis(20));
    }
    // So does the age that the command prints, in whole seconds.
    let print = |stdout: std::process::Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sqm"));
        command
            .args(["status", "--daemon", "--state-dir"])
            .arg(daemon.folder.path().join("state"));
        command
            .stdout(stdout)
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap()
            .wait_with_output()
            .unwrap()
    };
    let printed = || {
        let output = print(std::process::Stdio::piped());
        let text = String::from_utf8(output.stdout).unwrap();
        let (_, rest) = text
            .split_once("sqm-none0: waiting for ")
            .unwrap_or_else(|| panic!("{text}"));
        rest.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let first = printed();
    while printed() == first {
        assert!(std::time::Instant::now() < end, "it stays {first} s");
        std::thread::sleep(Duration::from_millis(20));
    }
    // As in `sqm status --daemon | head -n 0`.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = print(writer.into());
    assert_eq!(
        (output.status.code(), output.stderr.as_slice()),
        (Some(0), &b""[..])
    );
}

#[test]
fn a_change_waits_at_most_an_hour_for_its_confirmation() {
    let daemon = Daemon::ready(&[]);
    let revision = daemon.get("/v1/configuration")["revision"].clone();
    for seconds in [3601_u32, u32::MAX] {
        let body =
            serde_json::json!({"text": "", "revision": revision, "confirm_seconds": seconds}).to_string();
        let (code, _, said) = daemon.ask(&format!(
            "PUT /v1/configuration HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        assert!(
            code == 400 && said.contains("confirm_seconds is from 0 to 3600"),
            "{code} {said}"
        );
    }
    assert_eq!(
        fs::read_to_string(daemon.folder.path().join("sqm.conf")).unwrap(),
        CONFIG
    );
}

#[test]
fn the_first_configuration_is_written_through_the_api() {
    let daemon = Daemon::start_with(None, &[], None);
    daemon.manager_hears("READY=1");
    let none = daemon.get("/v1/configuration");
    assert_eq!(none["text"], "");
    assert_eq!(daemon.get("/v1/status")["interfaces"], serde_json::json!([]));
    let body =
        serde_json::json!({"text": CONFIG, "revision": none["revision"], "confirm_seconds": 0}).to_string();
    let (code, _, said) = daemon.ask(&format!(
        "PUT /v1/configuration HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert_eq!(code, 200, "{said}");
    let file = fs::read_to_string(daemon.folder.path().join("sqm.conf")).unwrap();
    assert_eq!(file, CONFIG);
    let interfaces = daemon.get("/v1/status")["interfaces"].clone();
    assert_eq!(interfaces[0]["interface"], "sqm-none0", "{interfaces}");
}

/// procd starts a service that has ended again a second later, for ever (`respawn 3600 1 0`), so the daemon must not end.
#[test]
fn a_daemon_without_a_usable_configuration_says_so_once_and_waits_for_another_file() {
    type Make = fn(&Path);
    let cases: [(&str, Make, &str); 7] = [
        ("missing", |_| {}, "there is no configuration"),
        (
            "a line",
            |file| fs::write(file, "nonsense\n").unwrap(),
            "unknown keyword 'nonsense'",
        ),
        (
            "a value",
            |file| fs::write(file, CONFIG.replace("85000", "fast")).unwrap(),
            "'fast' is not a rate",
        ),
        (
            "too long",
            |file| fs::write(file, vec![b'#'; (1 << 20) + 1]).unwrap(),
            "cannot read the configuration",
        ),
        (
            "a folder",
            |file| fs::create_dir(file).unwrap(),
            "cannot read the configuration",
        ),
        (
            "a dangling link",
            |file| std::os::unix::fs::symlink("none", file).unwrap(),
            "cannot read the configuration",
        ),
        (
            "a FIFO",
            |file| assert!(Command::new("mkfifo").arg(file).status().unwrap().success()),
            "cannot read the configuration",
        ),
    ];
    for (name, make, said) in cases {
        let mut daemon = Daemon::start_prepared(&[], None, |file, command| {
            make(file);
            let log = fs::File::create(file.with_file_name("log")).unwrap();
            command.stderr(log);
        });
        let file = daemon.folder.path().join("sqm.conf");
        let log_file = daemon.folder.path().join("log");
        let log = || fs::read_to_string(&log_file).unwrap();
        daemon.manager_hears("READY=1");
        let status = daemon.get("/v1/status");
        assert_eq!(status["interfaces"], serde_json::json!([]), "{name}");
        let is_missing = name == "missing";
        assert_eq!(status["health"] == "ok", is_missing, "{name}: {status}");
        let errors = status["configuration"]["errors"].to_string();
        assert_eq!(errors.contains(said), !is_missing, "{name}: {errors}");
        // Another wrong file, which is reported as well, then the right one.
        let replacement = daemon.folder.path().join("new");
        let replace = |text: &str| {
            if file.is_dir() {
                fs::remove_dir(&file).unwrap();
            }
            fs::write(&replacement, text).unwrap();
            fs::rename(&replacement, &file).unwrap();
        };
        replace("other nonsense\n");
        daemon.manager_hears("unknown keyword 'other'");
        replace(CONFIG);
        daemon.manager_hears("sqm-none0 waiting");
        let status = daemon.get("/v1/status");
        assert_eq!(status["health"], "ok", "{name}: {status}");
        assert_eq!(log().matches(said).count(), 1, "{name}: {}", log());
        assert_eq!(
            log().matches("unknown keyword 'other'").count(),
            1,
            "{name}: {}",
            log()
        );
        assert!(daemon.process.try_wait().unwrap().is_none(), "{name}: {}", log());
        // Later a wrong file leaves the configuration as it was.
        replace("nonsense\n");
        daemon.signal(Signal::HUP);
        daemon.manager_hears("the previous configuration is in force");
        daemon.signal(Signal::TERM);
        assert_eq!(daemon.process.wait().unwrap().code(), Some(0), "{name}");
    }
}

/// The daemon at the start finds a change that was not confirmed, and can neither restore the file nor use its previous text.
#[test]
fn a_daemon_sleeps_while_a_file_that_had_errors_cannot_be_restored() {
    let wrong = "nonsense\n";
    let first = Daemon::start_with(Some(wrong), &[], None);
    first.manager_hears("READY=1");
    let revision = first.get("/v1/configuration")["revision"].clone();
    let body = serde_json::json!({"text": CONFIG, "revision": revision, "confirm_seconds": 3600}).to_string();
    let (code, _, said) = first.ask(&format!(
        "PUT /v1/configuration HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert_eq!(code, 200, "{said}");
    first.signal(Signal::KILL);
    let daemon = Daemon::start_prepared(&[], Some("400000"), |file, _| {
        for name in ["sqm.conf", "sqm.conf.before-trial"] {
            fs::copy(first.folder.path().join(name), file.with_file_name(name)).unwrap();
        }
        // A directory in place of the lock file cannot be locked.
        fs::create_dir(file.with_file_name(".sqm.conf.lock")).unwrap();
    });
    daemon.manager_hears("READY=1");
    let errors = daemon.get("/v1/status")["configuration"]["errors"].to_string();
    for error in ["a change that was not confirmed", "unknown keyword 'nonsense'"] {
        assert!(errors.contains(error), "{errors}");
    }
    // The daemon waits for another file as well, at which it looks for the first time after a second.
    for _ in 0..6 {
        daemon.manager_hears("WATCHDOG=1");
    }
    let sleeps = || -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", daemon.process.id())).unwrap();
        let count = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse().unwrap()
    };
    let before = sleeps();
    let mut heard = 0;
    while sleeps() < before + 5 {
        assert!(heard < 30, "the daemon runs without a pause");
        daemon.manager_hears("WATCHDOG=1");
        heard += 1;
    }
}

/// Another process, such as a stopped `sqm tune`, holds the lock. The daemon does not wait for it at its end.
#[test]
fn the_daemon_ends_even_if_another_program_holds_the_state_lock() {
    let daemon = Daemon::ready(&[]);
    let lock = fs::File::options()
        .write(true)
        .open(daemon.folder.path().join("state/lock"))
        .unwrap();
    lock.lock().unwrap();
    let begun = std::time::Instant::now();
    // The section has been removed from the configuration meanwhile as well.
    fs::write(daemon.folder.path().join("sqm.conf"), "").unwrap();
    daemon.signal(Signal::HUP);
    daemon.manager_hears("RELOADING=1");
    daemon.manager_hears("READY=1");
    daemon.signal(Signal::TERM);
    // The release takes more than a second: the service manager must not kill the daemon in the middle of it.
    daemon.manager_hears("EXTEND_TIMEOUT_USEC=10000000");
    assert_eq!(daemon.ends().code(), Some(1));
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
}

#[test]
fn events_are_streamed_as_they_happen() {
    let daemon = Daemon::ready(&[]);
    let mut stream = daemon.connect();
    stream
        .write_all(b"GET /v1/events HTTP/1.1\r\nHost: sqm\r\n\r\n")
        .unwrap();
    let mut heard = String::new();
    let mut bytes = [0; 4096];
    let mut until = |words: &str| {
        while !heard.contains(words) {
            let length = stream.read(&mut bytes).expect("the events go on");
            heard += std::str::from_utf8(&bytes[..length]).unwrap();
        }
    };
    until("event: state");
    until("waiting: there is no network device sqm-none0");
    fs::write(daemon.folder.path().join("sqm.conf"), "nonsense").unwrap();
    daemon.signal(Signal::HUP);
    until("event: configuration");
    until("unknown keyword 'nonsense'");
}

#[test]
fn metrics_are_served_on_loopback_only() {
    for address in ["0.0.0.0:9469", "[::]:9469", "192.0.2.1:9469"] {
        let output = Command::new(env!("CARGO_BIN_EXE_sqm"))
            .args(["daemon", "--metrics", address])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{address}");
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert!(
            complaint.contains("are served on loopback addresses only"),
            "{complaint}"
        );
    }
    let daemon = Daemon::ready(&[]);
    let (code, head, text) = daemon.ask("GET /metrics HTTP/1.0\r\n\r\n");
    assert_eq!(code, 200);
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"));
    let parsed = openmetrics_parser::openmetrics::parse_openmetrics(&text).expect("it is OpenMetrics");
    assert!(parsed.families.contains_key("sqm_healthy"), "{text}");
}

/// Number of random requests. `make fuzz` sends many more.
fn requests() -> u32 {
    std::env::var("SQM_REQUESTS").map_or(400, |n| n.parse().expect("a number"))
}

/// Sends random combinations of paths, methods and documented fields, with valid and invalid values. Every status
/// code must be a documented one, and every refusal must give its reason.
#[test]
fn random_requests_in_good_form_are_answered() {
    const PATHS: [&str; 16] = [
        "/v1/status",
        "/v1/status?queues=no",
        "/v1/plan",
        "/v1/apply",
        "/v1/configuration",
        "/v1/configuration",
        "/v1/configuration/confirm",
        "/v1/configuration/revert",
        "/v1/tune",
        "/v1/events",
        "/metrics",
        "/v1/doctor",
        "/v1/report",
        "/v1/status?%00=%ff&queues=maybe",
        "/v1/../v1/status",
        "//",
    ];
    const METHODS: [&str; 7] = ["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS"];
    const FIELDS: [&str; 8] = [
        "text",
        "revision",
        "confirm_seconds",
        "interface",
        "host",
        "fix",
        "port",
        "secret",
    ];
    const DOCUMENTED: [&str; 11] = [
        "200", "202", "400", "403", "404", "405", "408", "409", "413", "422", "503",
    ];
    let daemon = Daemon::ready(&[]);
    let mut chance = Chance(30);
    for n in 0..requests() {
        let (method, path) = (
            METHODS[chance.below(METHODS.len())],
            PATHS[chance.below(PATHS.len())],
        );
        // These take some seconds each, and are sent rarely.
        if matches!(path, "/v1/doctor" | "/v1/report") && chance.below(300) > 0 {
            continue;
        }
        let revision = daemon.get("/v1/configuration")["revision"].clone();
        let good = Value::from(CONFIG);
        let values = [
            Value::Null,
            Value::from(true),
            Value::from(-1),
            Value::from(1),
            Value::from(1e300),
            Value::from(""),
            Value::from("sqm-none0"),
            Value::from("\0\u{202e}--help"),
            Value::from("x".repeat(5000)),
            Value::from(vec![1]),
            revision.clone(),
            good.clone(),
        ];
        let mut body = serde_json::Map::new();
        for _ in 0..chance.below(5) {
            body.insert(
                FIELDS[chance.below(FIELDS.len())].to_owned(),
                values[chance.below(values.len())].clone(),
            );
        }
        if method == "PUT" && chance.below(2) == 0 {
            let text = if chance.below(3) == 0 {
                good
            } else {
                Value::from("# nothing\n")
            };
            body = serde_json::Map::from_iter([
                ("revision".to_owned(), revision),
                ("text".to_owned(), text),
                ("confirm_seconds".to_owned(), chance.below(3).into()),
            ]);
        }
        let body = Value::from(body).to_string();
        // Some bodies are longer than their Content-Length.
        let length = body.len().saturating_sub([0, 0, 0, 0, 7][chance.below(5)]);
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: sqm\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        let mut stream = daemon.connect();
        let _ = stream.write_all(request.as_bytes());
        let mut start = [0; 12];
        stream
            .read_exact(&mut start)
            .unwrap_or_else(|e| panic!("{n}: {e}: {request}"));
        let start = String::from_utf8_lossy(&start);
        let code = start
            .strip_prefix("HTTP/1.1 ")
            .unwrap_or_else(|| panic!("{start}"));
        assert!(DOCUMENTED.contains(&code), "{n}: {code} for {request}");
        if code.starts_with('4') && method != "HEAD" {
            let mut rest = String::new();
            stream.read_to_string(&mut rest).unwrap();
            let (_, answer) = rest.split_once("\r\n\r\n").expect("a head ends");
            let answer: Value =
                serde_json::from_str(answer).unwrap_or_else(|e| panic!("{e}: {request} {rest}"));
            assert_eq!(answer["version"], 1, "{request}");
            assert!(!answer["errors"][0].as_str().unwrap().is_empty(), "{request}");
        }
    }
    assert_eq!(daemon.get("/v1/status")["version"], 1);
    daemon.signal(Signal::TERM);
    assert!(daemon.ends().success());
}

/// Sends requests of random bytes and random words, and truncated valid ones. Later clients must be served as before.
#[test]
fn random_requests_do_not_disturb_other_clients() {
    const WORDS: [&str; 22] = [
        "GET ",
        "POST ",
        "HEAD ",
        "PUT ",
        "/v1/status",
        "/v1/apply",
        "/v1/plan",
        "/v1/events",
        "/metrics",
        "/",
        " HTTP/1.1\r\n",
        " HTTP/1.0\r\n",
        "Host: sqm\r\n",
        "Content-Length: 5\r\n",
        "Content-Length: -1\r\n",
        "Transfer-Encoding: chunked\r\n",
        "\r\n",
        "{\"interface\":",
        "\0",
        "ü",
        "Expect: 100-continue\r\n",
        "ffffffffffffffff\r\n",
    ];
    let daemon = Daemon::ready(&[]);
    let before = daemon.descriptors();
    let mut chance = Chance(20);
    let mut below = |n| chance.below(n);
    for n in 0..requests() {
        let mut stream = daemon.connect();
        let mut request = Vec::new();
        if below(3) == 0 {
            request.extend((0..below(2000)).map(|_| below(256) as u8));
        } else {
            for _ in 0..below(12) {
                request.extend(WORDS[below(WORDS.len())].bytes());
            }
        }
        // The daemon may refuse the request before its last byte.
        let _ = stream.write_all(&request);
        if below(2) == 0 {
            let _ = stream.shutdown(std::net::Shutdown::Write);
            if below(4) == 0 {
                stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
                let _ = stream.read(&mut [0; 100]);
            }
        }
        drop(stream);
        if n % 50 == 0 {
            assert_eq!(daemon.get("/v1/status")["version"], 1, "after {n} requests");
        }
    }
    // The daemon may not have noticed yet that the last clients are gone.
    while daemon.descriptors() > before {
        assert_eq!(daemon.get("/v1/status")["version"], 1);
    }
    daemon.signal(Signal::TERM);
    assert!(daemon.ends().success());
}

#[test]
fn a_client_that_shuts_down_its_sending_side_is_answered() {
    let daemon = Daemon::ready(&[]);
    let mut stream = daemon.connect();
    // Another thread answers this request. The client shuts down its half before that, as `nc -N` does.
    stream
        .write_all(b"POST /v1/apply HTTP/1.1\r\nHost: sqm\r\nContent-Length: 0\r\n\r\n")
        .unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let (code, _, body) = answer(stream, "");
    assert_eq!(code, 200, "{body}");
    // A client that sends nothing is disconnected.
    let mut stream = daemon.connect();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0);
}

#[test]
fn a_body_that_is_cut_off_is_a_bad_request_and_one_that_is_too_large_is_not() {
    let daemon = Daemon::ready(&[]);
    let apply = "POST /v1/apply HTTP/1.1\r\nHost: sqm\r\nConnection: close\r\n";
    let mut stream = daemon.connect();
    write!(stream, "{apply}Content-Length: 9\r\n\r\n{{").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let (code, _, said) = answer(stream, "");
    assert!(code == 400 && said.contains("cut off"), "{code} {said}");
    // The daemon answers and closes before it has read all of this one.
    let mut stream = daemon.connect();
    let large = " ".repeat(300 << 10);
    let _ = write!(stream, "{apply}Content-Length: {}\r\n\r\n{large}", large.len());
    let mut start = [0; 12];
    stream.read_exact(&mut start).unwrap();
    assert_eq!(std::str::from_utf8(&start).unwrap(), "HTTP/1.1 413");
}

#[test]
fn a_slow_client_does_not_delay_others() {
    let daemon = Daemon::ready(&[]);
    let slow: Vec<UnixStream> = (0..20)
        .map(|_| {
            let mut stream = daemon.connect();
            stream.write_all(b"GET /v1/sta").unwrap();
            stream
        })
        .collect();
    assert_eq!(daemon.get("/v1/status")["version"], 1);
    drop(slow);
    // The daemon gives up on a body that never ends.
    let (code, ..) =
        daemon.ask("POST /v1/apply HTTP/1.1\r\nHost: sqm\r\nConnection: close\r\nContent-Length: 9\r\n\r\n{");
    assert_eq!(code, 408);
}

#[test]
fn the_daemon_names_a_missing_privilege() {
    let mut command = support::without_net_admin(env!("CARGO_BIN_EXE_sqm"));
    let output = command.arg("daemon").output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("CAP_NET_ADMIN")
    );
}

/// The metrics port is in the daemon's network namespace, which the test cannot reach. It is queried from inside.
#[test]
fn the_metrics_port_serves_metrics_only() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("sqm.conf"), CONFIG).unwrap();
    let script = format!(
        "ip link set lo up
         {sqm} daemon --config {folder}/sqm.conf --state-dir {folder}/state --metrics 127.0.0.1:9469 2>/dev/null & daemon=$!
         until [ -S {folder}/state/api.sock ]; do sleep 0.05; done
         for asked in '/metrics HTTP/1.0' '/v1/status HTTP/1.0' '/metrics HTTP/1.0\\r\\nHost: localhost:9469' \
                      '/metrics HTTP/1.0\\r\\nHost: evil.example' '/metrics HTTP/1.0\\r\\nHost: localhost\\r\\nHost: evil.example'; do
             exec 3<>/dev/tcp/127.0.0.1/9469
             printf \"GET $asked\\r\\n\\r\\n\" >&3
             head -n 1 <&3
             exec 3>&-
         done
         kill $daemon; wait $daemon",
        sqm = env!("CARGO_BIN_EXE_sqm"),
        folder = folder.path().display(),
    );
    let output = in_own_network().args(["bash", "-c", &script]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    // DNS rebinding: a browser that was led here by another host name gets no metrics.
    let [found, missing, refused] = [
        "HTTP/1.0 200 OK",
        "HTTP/1.0 404 Not Found",
        "HTTP/1.0 403 Forbidden",
    ];
    assert_eq!(lines, [found, missing, found, refused, refused], "{said}");
}

/// Attacks one of the daemon's sockets with a crowd of connections, and expects the daemon to serve root on its own
/// socket meanwhile.
fn besiege(daemon: &Daemon, command: Command, kind: &str, server: &str, place: &str) {
    let _crowd = Crowd::gather(command, kind, server, place, "");
    let besieged = |what: &str, promised_s, something: &dyn Fn()| {
        let what = format!("{server} {kind}: {what}");
        answered(&what, Duration::from_secs(promised_s), something);
    };
    besieged("status", 1, &|| {
        assert_eq!(daemon.get("/v1/status")["version"], 1)
    });
    besieged("apply", 3, &|| {
        let (code, _, body) = daemon
            .ask("POST /v1/apply HTTP/1.1\r\nHost: sqm\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(code, 200, "{body}");
    });
    besieged("events", 1, &|| {
        let mut stream = daemon.connect();
        stream
            .write_all(b"GET /v1/events HTTP/1.1\r\nHost: sqm\r\n\r\n")
            .unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).unwrap();
        assert_eq!(&start, b"HTTP/1.1 200", "{kind}");
    });
}

/// Only root can switch to another user for a while. In the lab the test always runs as root (`lab/daemon.rs`).
#[test]
fn another_user_cannot_lock_out_root() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let daemon = Daemon::ready(&[]);
    let before = daemon.descriptors();
    let socket = daemon.socket();
    let socket = socket.to_str().unwrap();
    for kind in some_kinds(&[
        "idle", "line", "head", "body", "pipeline", "drip", "flood", "churn", "stream",
    ]) {
        besiege(&daemon, Command::new("env"), kind, "socket", socket);
    }
    // The daemon notices closed streams when it writes to them. It also opens some files of its own now and then.
    let end = std::time::Instant::now() + PATIENCE;
    while daemon.descriptors() > before + 3 {
        assert!(std::time::Instant::now() < end, "connections are left");
        std::thread::sleep(Duration::from_millis(100));
    }
    daemon.signal(Signal::TERM);
    assert!(daemon.ends().success());
}

/// The metrics port is in the daemon's network namespace.
#[test]
fn many_connections_to_the_metrics_port_lock_no_client_out() {
    let daemon = Daemon::ready(&["--metrics", "127.0.0.1:9469"]);
    let enter = || {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &daemon.process.id().to_string()]);
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--preserve-credentials"]);
        }
        command
    };
    let up = enter().args(["ip", "link", "set", "lo", "up"]).status().unwrap();
    assert!(up.success());
    for kind in some_kinds(&[
        "idle", "line", "head", "body", "pipeline", "drip", "flood", "churn",
    ]) {
        besiege(&daemon, enter(), kind, "metrics", "9469");
        // The metrics port cannot tell its clients apart, so that a client that sends without pause is served more
        // often. Only crowds that wait are expected to leave room.
        if !["idle", "line", "head", "body"].contains(&kind) {
            continue;
        }
        let _crowd = Crowd::gather(enter(), kind, "metrics", "9469", "");
        let ask =
            "exec 3<>/dev/tcp/127.0.0.1/9469; printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3; head -n 1 <&3";
        // The newest connection may be evicted as well before it is answered. A metrics collector would retry.
        let is_answered = || {
            let output = enter().args(["bash", "-c", ask]).output().unwrap();
            String::from_utf8_lossy(&output.stdout).trim() == "HTTP/1.0 200 OK"
        };
        answered(&format!("a collector, {kind}"), Duration::from_secs(1), || {
            while !is_answered() {}
        });
    }
}

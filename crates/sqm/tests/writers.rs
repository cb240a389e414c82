//! The daemon, `sqm import --write` and a program without locking write the same configuration. No text may be lost
//! silently.

mod support;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Barrier;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use support::{Chance, in_own_network};

/// Time limit of each wait. Everything here takes far less on an idle machine; the limit allows for a busy one.
const PATIENCE: Duration = Duration::from_secs(120);

const CONFIG: &str = "config queue\n\toption enabled '1'\n\toption interface 'sqm-none0'\n\toption download '85000'\n\
                      \toption upload '10000'\n\toption script 'piece_of_cake.qos'\n";

struct Daemon {
    folder: tempfile::TempDir,
    process: Child,
}

impl Daemon {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("sqm"), CONFIG).unwrap();
        let mut command = in_own_network();
        command
            .arg(env!("CARGO_BIN_EXE_sqm"))
            .arg("daemon")
            .arg("--config")
            .arg(folder.path().join("sqm"))
            .arg("--state-dir")
            .arg(folder.path().join("state"))
            .stderr(Stdio::null());
        let process = command.spawn().expect("util-linux has unshare");
        let daemon = Self { folder, process };
        let began = Instant::now();
        while UnixStream::connect(daemon.socket()).is_err() {
            assert!(began.elapsed() < PATIENCE, "the daemon has no socket");
            sleep(Duration::from_millis(20));
        }
        daemon
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("sqm")
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("state/api.sock")
    }

    /// Sends a request and returns the status code and the body.
    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} /v1{path} HTTP/1.1\r\nHost: sqm\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").expect("an answer has a head");
        let code = head.split(' ').nth(1).unwrap().parse().unwrap();
        (code, serde_json::from_str(body).unwrap())
    }

    /// Adds a line to the configuration through the API, again if the other writer held the lock for too long. False if another
    /// process has written first.
    fn add(&self, line: &str) -> bool {
        loop {
            if let Some(is_added) = self.try_to_add(line) {
                return is_added;
            }
        }
    }

    /// `None` if another process holds the lock.
    fn try_to_add(&self, line: &str) -> Option<bool> {
        let (code, known) = self.ask("GET", "/configuration", "");
        assert_eq!(code, 200, "{known}");
        let text = format!("{}{line}\n", known["text"].as_str().unwrap());
        let body = json!({"text": text, "revision": known["revision"], "confirm_seconds": 0});
        let (code, answer) = self.ask("PUT", "/configuration", &body.to_string());
        if answer.to_string().contains("another program holds this lock") {
            return None;
        }
        assert!(
            code == 200 || code == 409 && answer["revision"].is_string(),
            "{code}: {answer}"
        );
        Some(code == 200)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Imports a section for the device, again if the other writer held the lock for too long.
fn import(daemon: &Daemon, device: &str) -> Output {
    let file = daemon.folder.path().join(format!("{device}.iface.conf"));
    fs::write(&file, "UPLINK=1000\nDOWNLINK=2000\nSCRIPT=piece_of_cake.qos\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sqm"));
    command
        .arg("import")
        .arg(&file)
        .arg("--write")
        .arg("--config")
        .arg(daemon.config());
    loop {
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if !said.contains("another program holds this lock") {
            return output;
        }
    }
}

/// Writes the file without regard to other writers.
fn rename_into_place(config: &Path, text: &str) {
    let fresh = config.with_extension("theirs");
    fs::write(&fresh, text).unwrap();
    fs::rename(&fresh, config).unwrap();
}

fn writers_lose_no_text(rounds: usize) {
    let daemon = Daemon::start();
    let config = daemon.config();
    let mut chance = Chance(30);
    let (mut puts, mut imports, mut refusals) = (0, 0, 0);
    for round in 0..rounds {
        fs::write(&config, CONFIG).unwrap();
        let (put, device, theirs) = (
            format!("# put {round}"),
            format!("sqm-new{round}"),
            format!("# theirs {round}"),
        );
        let has_another = round % 3 != 0;
        let pauses: Vec<_> = (0..3)
            .map(|_| Duration::from_micros(chance.below(12_000) as u64))
            .collect();
        let barrier = Barrier::new(3);
        let (is_put, imported) = std::thread::scope(|scope| {
            let put = scope.spawn(|| {
                barrier.wait();
                sleep(pauses[0]);
                daemon.add(&put)
            });
            let imported = scope.spawn(|| {
                barrier.wait();
                sleep(pauses[1]);
                import(&daemon, &device)
            });
            barrier.wait();
            if has_another {
                sleep(pauses[2]);
                rename_into_place(&config, &format!("{CONFIG}{theirs}\n"));
            }
            (put.join().unwrap(), imported.join().unwrap())
        });
        let said = String::from_utf8_lossy(&imported.stderr).into_owned();
        let is_imported = imported.status.success();
        assert!(
            is_imported || imported.status.code() == Some(1) && said.contains("changed by another program"),
            "{said}"
        );
        puts += usize::from(is_put);
        imports += usize::from(is_imported);
        refusals += usize::from(!is_put) + usize::from(!is_imported);
        let last = fs::read_to_string(&config).unwrap();
        if has_another {
            // A program that wrote later has read this text.
            assert!(last.contains(&theirs), "round {round}: theirs is lost: {last}");
        } else {
            assert_eq!(last.contains(&put), is_put, "round {round}: {last}");
            assert_eq!(last.contains(&device), is_imported, "round {round}: {last}");
        }
        assert!(!config.with_extension("before-trial").exists());
    }
    println!("{rounds} rounds: {puts} put, {imports} imported, {refusals} told that another was there first");
    assert!(puts > 0 && imports > 0);
}

#[test]
fn two_hundred_races_of_daemon_command_and_another_program_lose_no_text() {
    writers_lose_no_text(if support::is_nightly() { 2000 } else { 200 });
}

/// Every user may ask the daemon for its plan. The daemon must not block on a file that is not regular.
#[test]
fn anything_else_in_place_of_the_configuration_is_named_and_nothing_hangs() {
    let daemon = Daemon::start();
    let config = daemon.config();
    /// Creates something in place of the file, and the text that the error must contain.
    type Other = (fn(&Path), &'static str);
    let others: [Other; 5] = [
        (
            |path| {
                use rustix::fs::{CWD, FileType, Mode, mknodat};
                mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();
            },
            "is a FIFO",
        ),
        (|path| fs::create_dir(path).unwrap(), "is a directory"),
        (
            |path| std::os::unix::fs::symlink("nowhere", path).unwrap(),
            "leads nowhere",
        ),
        (
            |path| std::os::unix::fs::symlink("/dev/zero", path).unwrap(),
            "is a device",
        ),
        (
            |path| fs::write(path, vec![b'#'; 2 << 20]).unwrap(),
            "is 2097152 bytes long, and no more than 1048576 are read",
        ),
    ];
    for (other, word) in others {
        fs::remove_file(&config).unwrap();
        other(&config);
        let (code, answer) = daemon.ask("POST", "/apply", "");
        assert!(
            code == 422 && answer.to_string().contains(word),
            "{code}: {answer}"
        );
        let (code, answer) = daemon.ask("GET", "/configuration", "");
        assert!(
            code >= 400 && answer.to_string().contains(word),
            "{code}: {answer}"
        );
        let body = json!({"text": CONFIG, "revision": "0".repeat(16), "confirm_seconds": 0});
        let (code, answer) = daemon.ask("PUT", "/configuration", &body.to_string());
        assert!(
            code == 422 && answer.to_string().contains(word),
            "{code}: {answer}"
        );
        let (code, plans) = daemon.ask("GET", "/plan", "");
        assert!(
            code == 200 && plans[0]["interface"] == "sqm-none0",
            "{code}: {plans}"
        );
        let (_, status) = daemon.ask("GET", "/status", "");
        assert_eq!(status["health"], "degraded");
        // The commands report the same error.
        let output = Command::new(env!("CARGO_BIN_EXE_sqm"))
            .arg("plan")
            .arg("--config")
            .arg(&config)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(word), "{said}");
        match fs::symlink_metadata(&config).unwrap().is_dir() {
            true => fs::remove_dir(&config).unwrap(),
            false => fs::remove_file(&config).unwrap(),
        }
        fs::write(&config, CONFIG).unwrap();
        let (code, answer) = daemon.ask("POST", "/apply", "");
        assert_eq!((code, &answer["health"]), (200, &json!("ok")), "{answer}");
    }
}

/// The configuration may be a pipe. No more than the permitted size is read from it.
#[test]
fn a_configuration_is_read_from_a_pipe_and_an_endless_one_is_refused() {
    let plan = |config: &str, input: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sqm"));
        command.args(["plan", "--config", config]).stdin(input);
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut planned = plan("/dev/stdin", Stdio::piped());
    planned
        .stdin
        .take()
        .unwrap()
        .write_all(CONFIG.as_bytes())
        .unwrap();
    let output = planned.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for (config, input) in [
        ("/dev/zero", Stdio::null()),
        ("/dev/stdin", fs::File::open("/dev/zero").unwrap().into()),
    ] {
        let output = plan(config, input).wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(2) && said.contains("more than 1048576 bytes"),
            "{said}"
        );
    }
}

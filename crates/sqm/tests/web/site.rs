//! A daemon, the web server in front of it, and an HTTP client.

use std::cell::RefCell;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::api;

/// Time limit of each wait. Everything here takes far less on an idle machine; the limit allows for a busy one.
const PATIENCE: Duration = Duration::from_secs(120);
/// The most connections that are tried for one request.
const MOST_TRIES: usize = 5;

/// The only device is missing, so that no kernel's queues are needed or touched.
pub(crate) const CONFIG: &str = "# mine\nconfig queue\n\toption enabled '1'\n\toption interface 'sqm-none0'\n\
                          \toption download '85000'\n\toption upload '10000'\n\toption script 'piece_of_cake.qos'\n";

pub(crate) struct Site {
    folder: tempfile::TempDir,
    daemon: Child,
    pub(crate) web: Web,
    pub(crate) port: u16,
    token: RefCell<String>,
    cookie: RefCell<String>,
}

/// An answer. Names and values in its head are in lower case.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {} {}", self.head, self.body))
    }
}

impl Site {
    pub(crate) fn start(options: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), options)
    }

    pub(crate) fn start_with_password(password: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        set_password(&folder.path().join("web"), password);
        Self::start_in(folder, &[])
    }

    pub(crate) fn start_in(folder: tempfile::TempDir, options: &[&str]) -> Self {
        Self::start_with(folder, options, &[], |_| {})
    }

    /// Starts the daemon with options. `prepare` may change the command that starts the web server.
    pub(crate) fn start_with(
        folder: tempfile::TempDir,
        options: &[&str],
        of_daemon: &[&str],
        prepare: impl FnOnce(&mut Command),
    ) -> Self {
        fs::write(folder.path().join("sqm.conf"), CONFIG).unwrap();
        let daemon = start_daemon(folder.path(), of_daemon);
        let mut command = Command::new(env!("CARGO_BIN_EXE_sqm"));
        prepare(&mut command);
        command
            .args(["web", "--listen", "127.0.0.1:0", "--socket"])
            .arg(folder.path().join("state/api.sock"))
            .arg("--dir")
            .arg(folder.path().join("web"))
            .args(options);
        let web = Web::spawn(command);
        let port = web.port;
        Self {
            folder,
            daemon,
            web,
            port,
            token: RefCell::default(),
            cookie: RefCell::default(),
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The text of the configuration file.
    pub(crate) fn config(&self) -> String {
        fs::read_to_string(self.folder().join("sqm.conf")).unwrap()
    }

    /// Asserts that the client may make changes. Requests carry the session's token from here on.
    pub(crate) fn admin(&self) {
        assert_eq!(self.get("/session").json()["role"], "admin");
        *self.token.borrow_mut() = self.token();
    }

    pub(crate) fn log_in(&self, password: &str) {
        let answer = self.send("POST", "/session", &serde_json::json!({"password": password}));
        assert_eq!(answer.code, 200, "{}", answer.body);
        let cookie = header(&answer.head, "set-cookie").unwrap();
        self.set_cookie(cookie.split(';').next().unwrap());
    }

    /// The token of the session.
    pub(crate) fn token(&self) -> String {
        self.get("/session").json()["token"].as_str().unwrap().to_owned()
    }

    pub(crate) fn cookie(&self) -> String {
        self.cookie.borrow().clone()
    }

    pub(crate) fn set_cookie(&self, cookie: &str) {
        cookie.clone_into(&mut self.cookie.borrow_mut());
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.raw(&format!("GET /api/v1{path} HTTP/1.1"), &[], b"")
    }

    /// Fetches a body that is not text.
    pub(crate) fn get_bytes(&self, path: &str) -> Vec<u8> {
        let mut stream = self.connect();
        let head = format!(
            "GET /api/v1{path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.host()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let body = bytes.split_off(end + 4);
        let head = String::from_utf8(bytes).unwrap().to_ascii_lowercase();
        api::judge("GET", path, 200, &head, "");
        body
    }

    /// Fetches a file of the web UI.
    pub(crate) fn page(&self, path: &str) -> Answer {
        self.raw(&format!("GET {path} HTTP/1.1"), &[], b"")
    }

    /// Sends a change as the web UI does, with the session's token.
    pub(crate) fn send(&self, method: &str, path: &str, body: &Value) -> Answer {
        let token = self.token();
        let text = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        self.raw(
            &format!("{method} /api/v1{path} HTTP/1.1"),
            &[("Content-Type", "application/json"), ("X-SQM-Token", &token)],
            text.as_bytes(),
        )
    }

    /// Sends a request with these header lines.
    pub(crate) fn raw(&self, line: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut head = format!("{line}\r\nHost: {}\r\nConnection: close\r\n", self.host());
        let has_cookie = headers.iter().any(|(name, _)| *name == "Cookie");
        let cookie = self.cookie();
        let cookie = (!has_cookie && !cookie.is_empty()).then_some(("Cookie", cookie.as_str()));
        for (name, value) in headers.iter().copied().chain(cookie) {
            head += &format!("{name}: {value}\r\n");
        }
        let mut bytes = format!("{head}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
        bytes.extend(body);
        self.exchange(line, &bytes)
    }

    /// Sends a request exactly as given.
    pub(crate) fn raw_head(&self, text: &str) -> Answer {
        self.exchange(text, text.as_bytes())
    }

    fn exchange(&self, line: &str, request: &[u8]) -> Answer {
        let ask = || {
            let mut stream = self.connect();
            // The server may refuse the request before its last byte.
            let _ = stream.write_all(request);
            read_answer(&mut stream)
        };
        // If a connection is closed before any byte was received, open another one, as browsers do.
        let answer = (0..MOST_TRIES).find_map(|_| ask());
        let answer = answer.unwrap_or_else(|| panic!("no answer to {line}"));
        let mut words = line.split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        // The HTTP library refuses some requests before they reach our code, with an empty body.
        let is_ours = answer.code != 400 || !answer.body.is_empty();
        if let Some(target) = target
            .strip_prefix("/api/v1")
            .filter(|_| is_ours && method != "HEAD")
        {
            api::judge(method, target, answer.code, &answer.head, &answer.body);
        }
        answer
    }

    pub(crate) fn connect(&self) -> TcpStream {
        connect(self.port)
    }

    pub(crate) fn stream(&self, path: &str) -> Events {
        let mut stream = self.connect();
        let cookie = self.cookie();
        let cookie = if cookie.is_empty() {
            cookie
        } else {
            format!("Cookie: {cookie}\r\n")
        };
        let head = format!(
            "GET /api/v1{path} HTTP/1.1\r\nHost: {}\r\n{cookie}\r\n",
            self.host()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut from = BufReader::new(stream);
        let mut line = String::new();
        from.read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 200"), "{path}: {line}");
        api::judge("GET", path, 200, "content-type: text/event-stream", "");
        Events(from)
    }

    /// Repeats the request until the answer is as wanted.
    pub(crate) fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let end = std::time::Instant::now() + PATIENCE;
        loop {
            let answer = self.get(path);
            if answer.code == 200 && wanted(&answer.json()) {
                return answer.json();
            }
            assert!(std::time::Instant::now() < end, "{path}: {}", answer.body);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Kills the daemon, as a power failure would.
    pub(crate) fn stop_daemon(&mut self) {
        kill(&mut self.daemon, Signal::KILL);
    }

    pub(crate) fn restart_daemon(&mut self) {
        self.stop_daemon();
        self.daemon = start_daemon(self.folder.path(), &[]);
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        kill(&mut self.daemon, Signal::KILL);
    }
}

/// The events of an event stream.
pub(crate) struct Events(BufReader<TcpStream>);

impl Events {
    /// The data of the next event with this name.
    pub(crate) fn event(&mut self, name: &str) -> Value {
        let mut is_it = false;
        loop {
            let mut line = String::new();
            assert!(
                self.0.read_line(&mut line).expect("the events go on") > 0,
                "the stream ended before '{name}'"
            );
            let line = line.trim_end();
            if let Some(event) = line.strip_prefix("event: ") {
                is_it = event == name;
            } else if let Some(data) = line.strip_prefix("data: ").filter(|_| is_it) {
                return serde_json::from_str(data).unwrap();
            }
        }
    }
}

/// A running `sqm web`. Dropping it kills the server.
pub(crate) struct Web {
    process: Child,
    pub(crate) port: u16,
    _errors: BufReader<ChildStderr>,
}

impl Web {
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut errors = BufReader::new(process.stderr.take().unwrap());
        let mut said = String::new();
        let port = loop {
            let mut line = String::new();
            assert!(
                errors.read_line(&mut line).unwrap() > 0,
                "it never said where the page is: {said}"
            );
            said += &line;
            let place = line
                .trim()
                .trim_end_matches('/')
                .rsplit(':')
                .next()
                .and_then(|port| port.parse().ok());
            if let Some(port) = place.filter(|_| line.contains("the page is at")) {
                break port;
            }
        };
        Self {
            process,
            port,
            _errors: errors,
        }
    }

    pub(crate) fn ask(&self, request: &str) -> Answer {
        let mut stream = connect(self.port);
        stream.write_all(request.as_bytes()).unwrap();
        read_answer(&mut stream).expect("an answer")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Peak memory (`VmHWM`), KiB.
    pub(crate) fn peak_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    pub(crate) fn end(&mut self) {
        kill_process(Pid::from_raw(self.pid() as i32).unwrap(), Signal::TERM).unwrap();
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        kill(&mut self.process, Signal::KILL);
    }
}

/// A running `sqm serve` on this machine. Dropping it kills the server.
pub(crate) struct Server {
    process: Child,
    pub(crate) port: u16,
    /// Kept open: the server would end if it could not write to it.
    _errors: BufReader<ChildStderr>,
}

impl Server {
    pub(crate) fn start() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_sqm"))
            .args(["serve", "--listen", "127.0.0.1:0"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut errors = BufReader::new(process.stderr.take().unwrap());
        let mut line = String::new();
        errors.read_line(&mut line).unwrap();
        let place = line.split("127.0.0.1:").nth(1).expect("it says where it serves");
        let digits: String = place.chars().take_while(char::is_ascii_digit).collect();
        Self {
            process,
            port: digits.parse().unwrap(),
            _errors: errors,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        kill(&mut self.process, Signal::KILL);
    }
}

pub(crate) fn set_password(dir: &Path, password: &str) {
    let output = try_password(dir, password);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

pub(crate) fn try_password(dir: &Path, password: &str) -> Output {
    let mut process = Command::new(env!("CARGO_BIN_EXE_sqm"))
        .args(["web", "--set-password", "--dir"])
        .arg(dir)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(process.stdin.take().unwrap(), "{password}").unwrap();
    process.wait_with_output().unwrap()
}

/// The value of a header line.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// The first bytes of a TLS server's answer to a client that speaks version 1.2 only.
pub(crate) fn tls_greeting(port: u16) -> std::io::Result<Vec<u8>> {
    // ClientHello (RFC 5246, 7.4.1.2): ECDHE with ECDSA and P-256, no session.
    let suites = [0xc0, 0x2b, 0xc0, 0x2c, 0xcc, 0xa9];
    let extensions: &[&[u8]] = &[
        &[0, 10, 0, 6, 0, 4, 0, 0x1d, 0, 0x17],
        &[0, 11, 0, 2, 1, 0],
        &[0, 13, 0, 6, 0, 4, 4, 3, 5, 3],
        &[0, 23, 0, 0],
    ];
    let extensions = extensions.concat();
    let mut hello = vec![3, 3];
    hello.extend([7; 32]);
    hello.extend([0, 0, suites.len() as u8]);
    hello.extend(suites);
    hello.extend([1, 0, 0, extensions.len() as u8]);
    hello.extend(extensions);
    let mut record = vec![22, 3, 1, 0, hello.len() as u8 + 4, 1, 0, 0, hello.len() as u8];
    record.extend(hello);
    let mut stream = connect(port);
    stream.write_all(&record)?;
    let mut greeting = vec![0; 3];
    stream.read_exact(&mut greeting)?;
    Ok(greeting)
}

pub(crate) fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Reads an answer. None if the connection ends without a byte.
fn read_answer(stream: &mut TcpStream) -> Option<Answer> {
    let mut bytes = Vec::new();
    // An answer counts even if the connection is reset after it.
    let _ = stream.read_to_end(&mut bytes);
    if bytes.is_empty() {
        return None;
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no answer: {text}"));
    Some(Answer {
        code: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head: head.to_ascii_lowercase(),
        body: body.to_owned(),
    })
}

fn start_daemon(folder: &Path, options: &[&str]) -> Child {
    let daemon = super::support::in_own_network()
        .arg(env!("CARGO_BIN_EXE_sqm"))
        .args(["daemon", "--config"])
        .arg(folder.join("sqm.conf"))
        .arg("--state-dir")
        .arg(folder.join("state"))
        .args(options)
        .stderr(Stdio::null())
        .spawn()
        .expect("util-linux has unshare");
    // The daemon is ready when its socket accepts connections.
    while UnixStream::connect(folder.join("state/api.sock")).is_err() {
        std::thread::sleep(Duration::from_millis(10));
    }
    daemon
}

fn kill(process: &mut Child, signal: Signal) {
    if process.try_wait().is_ok_and(|ended| ended.is_none()) {
        let _ = kill_process(Pid::from_raw(process.id() as i32).unwrap(), signal);
        let _ = process.wait();
    }
}

/// A misbehaving server of tests (`support/hostile_server.py`). Dropping it kills the server.
pub(crate) struct Hostile {
    process: Child,
    pub(crate) port: u16,
}

impl Hostile {
    pub(crate) fn start(behaviour: &str) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/hostile_server.py");
        let mut process = Command::new("python3")
            .arg(script)
            .arg(behaviour)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("python3 is there (lab/deps.sh)");
        let mut line = String::new();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let port = line.trim().parse().expect("it says its port");
        Self { process, port }
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        kill(&mut self.process, Signal::KILL);
    }
}

//! Disks that are full or read-only, missing folders, and FIFOs, directories and links in place of the web server's
//! files: it serves or names the file, follows no link, never hangs, and starts again afterwards.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Time limit of each wait. Everything here takes far less on an idle machine; the limit allows for a busy one.
const PATIENCE: Duration = Duration::from_secs(120);

/// Files of a server that uses TLS.
const FILES: [&str; 3] = ["certificate.der", "key.der", "tests"];
/// Files of a server with a password.
const OWNERS_FILES: [&str; 4] = [
    "password",
    "audit.jsonl",
    "audit-passwords.jsonl",
    "audit-refused.jsonl",
];

/// Shell commands that prepare `$file` in `$dir`, a file system of its own, before the server starts.
const STATES: [(&str, &str); 6] = [
    (
        "full",
        "dd if=/dev/zero of=$dir/tests.fill bs=1k 2>/dev/null || true",
    ),
    ("read-only", "mount -o remount,ro $dir"),
    ("gone", "umount $dir; rm -rf $dir"),
    ("fifo", "rm -rf $file; mkfifo $file"),
    ("folder", "rm -rf $file; mkdir $file"),
    ("dangling", "rm -rf $file; ln -s $outside/target $file"),
];

/// Starts the server in its own mount namespace, after the commands in `before`. With `is_known` the folder has the
/// files of an earlier server.
fn server(folder: &Path, options: &str, file: &str, before: &str, is_known: bool) -> Child {
    let known = match is_known {
        // An earlier server made these.
        true => format!("cp -r {}/kept/. $dir", folder.display()),
        false => "true".to_owned(),
    };
    let script = format!(
        "set -e; outside={0}/outside; dir={0}/web; file=$dir/{file}; mkdir -p $dir; mount -t tmpfs -o size=32k,mode=700 tmpfs $dir; {known}; {before}
         exec $1 web {options} --listen 127.0.0.1:0 --dir $dir \
         --socket {0}/none.sock",
        folder.display()
    );
    in_own_mounts()
        .args(["sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_sqm")])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("util-linux has unshare")
}

/// Sets another password after the commands in `before`. Exit code 99 means that the old password was lost although
/// the new one was not set.
fn other_password(folder: &Path, before: &str) -> (Option<i32>, String) {
    let script = format!(
        "outside={0}/outside; dir={0}/web; file=$dir/password; mkdir -p $dir; mount -t tmpfs -o size=32k,mode=700 tmpfs $dir
         cp -r {0}/kept/. $dir; {before}; [ ! -f $file ] || cp $file {0}/first
         echo battery staple | $1 web --set-password --dir $dir; code=$?
         [ $code = 0 ] || [ ! -f $file ] || cmp $file {0}/first || code=99
         exit $code",
        folder.display()
    );
    let mut command = in_own_mounts();
    let output = command
        .args(["sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_sqm")])
        .output();
    let output = output.expect("util-linux has unshare");
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

fn in_own_mounts() -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.arg("--mount");
    command
}

/// A folder with the world-writable subfolder `outside`: following a link would leave a file there.
fn open_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("outside")).unwrap();
    for (path, mode) in [(folder.path(), 0o755), (&folder.path().join("outside"), 0o777)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    folder
}

/// Returns the server's messages. If it serves, `visit` is called with its port and the server is killed. If it exits
/// by itself, the error has its exit code and its messages.
fn outcome(mut server: Child, visit: impl FnOnce(u16)) -> Result<String, (Option<i32>, String)> {
    let errors = server.stderr.take().expect("it is a pipe");
    let (sender, receiver) = channel();
    // The thread ends when the server closes its standard error.
    std::thread::spawn(move || {
        for line in BufReader::new(errors).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut said = String::new();
    loop {
        match receiver.recv_timeout(PATIENCE) {
            Ok(line) if line.contains("the page is at") => {
                let port = line
                    .trim()
                    .trim_end_matches('/')
                    .rsplit(':')
                    .next()
                    .and_then(|port| port.parse().ok());
                visit(port.expect("a port"));
                let _ = server.kill();
                let _ = server.wait();
                said.extend(receiver.iter().map(|line| line + "\n"));
                return Ok(said);
            }
            Ok(line) => said += &(line + "\n"),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                let _ = server.kill();
                let _ = server.wait();
                panic!("it neither serves nor ends: {said}");
            }
            Err(_) => return Err((server.wait().expect("it has ended").code(), said)),
        }
    }
}

/// Sends plain HTTP to a TLS port. An alert shows that the server is running.
fn answers(port: u16) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    stream
        .write_all(b"GET / HTTP/1.0\r\n\r\n")
        .expect("it takes bytes");
    stream.read_exact(&mut [0]).expect("an alert");
}

/// Returns the head and the body of the answer.
fn ask(port: u16, request: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let length = body.len();
    write!(
        stream,
        "{request}\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .expect("it takes bytes");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// The session of a client that is not logged in.
fn session(port: u16) -> serde_json::Value {
    let answer = ask(port, "GET /api/v1/session HTTP/1.1", "");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
    serde_json::from_str(body).expect("JSON")
}

/// A wrong password and a change without a login are refused, and both are logged.
fn refusals(port: u16) {
    let session = session(port);
    assert_eq!(session["password_set"], true, "{session}");
    let token = session["token"].as_str().expect("a token");
    for (path, body, code) in [
        ("session", "{\"password\":\"wrong\"}", 401),
        ("config/confirm", "", 403),
    ] {
        let request = format!("POST /api/v1/{path} HTTP/1.1\r\nX-SQM-Token: {token}");
        let answer = ask(port, &request, body);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {code} ")),
            "{path}: {answer}"
        );
    }
}

#[test]
fn no_state_of_the_password_file_lets_a_client_in_and_no_state_of_the_log_stops_the_page() {
    let folder = open_folder();
    let mut first = Command::new(env!("CARGO_BIN_EXE_sqm"))
        .args(["web", "--set-password", "--dir"])
        .arg(folder.path().join("kept"))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = first.stdin.take().unwrap();
    input.write_all(b"correct horse\n").unwrap();
    drop(input);
    assert!(first.wait().unwrap().success());
    for (state, before) in STATES {
        let (code, said) = other_password(folder.path(), before);
        match state {
            "gone" => assert_eq!(code, Some(0), "{state}: {said}"),
            _ => assert!(
                code == Some(1) && said.contains("/web"),
                "{state}: {code:?}, {said}"
            ),
        }
        assert!(!folder.path().join("outside/target").exists(), "{state}");
    }
    for file in OWNERS_FILES {
        for (state, before) in STATES {
            let cell = format!("{file}, {state}");
            let is_replaced = !["full", "read-only", "gone"].contains(&state);
            let visit = |port| match state {
                // A folder that is created anew has no password, and clients from this machine need none.
                "gone" => assert_eq!(session(port)["password_set"], false),
                _ => refusals(port),
            };
            // An earlier server has run, so that the folder belongs to the web server's user.
            let before = format!("mkdir -p $dir/tests; chown -R 65530:65530 $dir; {before}");
            match outcome(server(folder.path(), "", file, &before, true), visit) {
                Ok(said) => {
                    assert!(file != "password" || !is_replaced, "{cell}: it serves: {said}");
                    let is_reported = said.contains("cannot write to the log of changes");
                    let has_failed = match state {
                        "read-only" => true,
                        "full" | "gone" => is_reported,
                        // In the other states no change is made or refused for another reason, so that nothing is
                        // written to that file.
                        _ => file != "audit.jsonl",
                    };
                    assert_eq!(is_reported, has_failed, "{cell}: {said}");
                }
                Err((code, said)) => {
                    assert_eq!(code, Some(2), "{cell}: {said}");
                    assert!(file == "password" && is_replaced, "{cell}: {said}");
                    assert!(said.contains("/web/password"), "{cell}: {said}");
                }
            }
            assert!(!folder.path().join("outside/target").exists(), "{cell}");
            outcome(server(folder.path(), "", file, "true", true), refusals).expect("the next start works");
        }
    }
}

#[test]
fn the_page_starts_or_names_the_file_that_prevents_it() {
    let folder = open_folder();
    let at = |name: &str| -> PathBuf { folder.path().join(name) };
    // Files that a first server makes.
    let mut first = Command::new(env!("CARGO_BIN_EXE_sqm"))
        .args([
            "web",
            "--tls",
            "--listen",
            "127.0.0.1:0",
            "--socket",
            "/none",
            "--dir",
        ])
        .arg(at("kept"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(first.stderr.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(at("kept/certificate.der").exists(), "{line}");
    let mut refused = Vec::new();
    for file in FILES {
        for (state, before) in STATES {
            for is_known in [false, true] {
                let cell = format!("{file}, {state}, known: {is_known}");
                match outcome(server(folder.path(), "--tls", file, before, is_known), answers) {
                    Ok(_) => {}
                    Err((code, said)) => {
                        assert_eq!(code, Some(1), "{cell}: {said}");
                        let is_named = said.contains("/web");
                        assert!(is_named, "{cell}: {said}");
                        refused.push(cell.clone());
                    }
                }
                assert!(!at("outside/target").exists(), "{cell}");
                outcome(server(folder.path(), "--tls", file, "true", is_known), answers)
                    .expect("the next start works");
            }
        }
    }
    println!("refused:\n{}", refused.join("\n"));
    // With certificate and key in place, a full disk does not keep the server from serving.
    assert!(
        !refused.iter().any(|cell| cell.contains("full, known: true")),
        "{refused:?}"
    );
}

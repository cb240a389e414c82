//! Attacks on `sqm web`: occupying it, getting in without the password, and using the root rights that it was started
//! with.

#[allow(dead_code, reason = "web.rs uses the rest")]
#[path = "web/api.rs"]
mod api;
#[allow(dead_code, reason = "web.rs uses the rest")]
#[path = "web/site.rs"]
mod site;
mod support;

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use serde_json::{Value, json};

use site::Site;

/// Texts and changes that each made the server compute for many seconds.
fn laborious() -> [(Value, u16); 5] {
    let change = |at: usize| json!({"section": at + 1, "option": "interface", "value": format!("e{at}")});
    let changes: Vec<Value> = (0..4000).map(change).collect();
    let disabled = "config queue\n\toption interface 'eth0'\n".repeat(3000);
    let misspelt: String = (0..4500)
        .map(|at| format!("\toption interface{at} 'a'\n"))
        .collect();
    let enabled: String = (0..1000)
        .map(|at| {
            format!(
                "config queue\n\toption enabled 1\n\toption interface 'e{at}'\n\toption upload 1mbit\n\
                 \toption download 0\n\toption script simple.qos\n"
            )
        })
        .collect();
    [
        (json!({"text": "config queue\n".repeat(10_000)}), 200),
        (json!({"changes": changes}), 400),
        (json!({"text": disabled}), 200),
        (json!({"text": format!("config queue\n{misspelt}")}), 200),
        (json!({"text": enabled}), 200),
    ]
}

#[test]
fn an_expensive_check_delays_no_other_client_and_its_answer_is_small() {
    let site = Site::start(&[]);
    site.admin();
    for (body, code) in laborious() {
        let (sender, ended) = std::sync::mpsc::channel();
        let mut served = 0;
        let (token, host, port) = (site.token(), site.host(), site.port);
        std::thread::spawn(move || sender.send(ask(port, &host, &token, &body.to_string())));
        let answer = loop {
            match ended.recv_timeout(Duration::from_millis(1)) {
                Ok(answer) => break answer,
                Err(_) => served += usize::from(site.get("/session").code == 200),
            }
        };
        assert!(
            answer.contains(&format!("HTTP/1.1 {code}")),
            "{}",
            &answer[..answer.len().min(300)]
        );
        assert!(answer.len() < 1 << 20, "{} bytes", answer.len());
        assert!(served > 0, "nobody else was answered meanwhile");
    }
}

/// Sends a request on a new connection, as the web UI does.
fn ask(port: u16, host: &str, token: &str, body: &str) -> String {
    let mut stream = site::connect(port);
    let request = format!(
        "POST /api/v1/config/check HTTP/1.1\r\nHost: {host}\r\nX-SQM-Token: {token}\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn with_a_password_only_logged_in_clients_can_check_a_configuration() {
    let site = Site::start_with_password("correct horse");
    assert_eq!(site.send("POST", "/config/check", &json!({"text": ""})).code, 403);
    site.log_in("correct horse");
    assert_eq!(site.send("POST", "/config/check", &json!({"text": ""})).code, 200);
    let changes: Vec<Value> = (0..1001)
        .map(|_| json!({"section": 0, "option": "upload", "value": "1"}))
        .collect();
    let answer = site.send("POST", "/config/check", &json!({"changes": changes}));
    assert_eq!(answer.code, 400, "{}", answer.body);
    assert!(answer.body.contains("at most 1000 changes"), "{}", answer.body);
}

/// Creates something at a path.
type Make = fn(&Path);

/// Files in place of the password file that hold no password.
const NO_PASSWORDS: [(&str, Make); 6] = [
    ("leads nowhere", |path| symlink("nowhere", path).unwrap()),
    ("leads nowhere", |path| symlink("password", path).unwrap()),
    ("is a directory", |path| fs::create_dir(path).unwrap()),
    ("is a FIFO", |path| {
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR, 0).unwrap()
    }),
    ("contains no password", |path| fs::write(path, "").unwrap()),
    ("bytes long", |path| fs::write(path, "x".repeat(10_000)).unwrap()),
];

fn remove(path: &Path) {
    let _ = fs::remove_file(path).or_else(|_| fs::remove_dir(path));
}

#[test]
fn an_unreadable_password_file_lets_no_client_in() {
    let site = Site::start_with_password("correct horse");
    let file = site.folder().join("web/password");
    site.log_in("correct horse");
    assert_eq!(site.get("/session").json()["role"], "admin");
    for (why, make) in NO_PASSWORDS {
        remove(&file);
        make(&file);
        let session = site.get("/session").json();
        assert_eq!(
            (&session["role"], &session["password_set"]),
            (&json!("reader"), &json!(true)),
            "{why}"
        );
        let answer = site.send("POST", "/session", &json!({"password": "correct horse"}));
        assert_eq!(answer.code, 503, "{}", answer.body);
        assert!(answer.body.contains(why), "{}", answer.body);
        assert_eq!(
            site.send("POST", "/config/revert", &Value::Null).code,
            403,
            "{why}"
        );
        // A server that starts now reports the fault and exits.
        let (code, said) = try_start(&site.folder().join("web"));
        assert!(code == 2 && said.contains(why), "{code} {said}");
    }
    // A new password takes effect at once, although the server's user did not set it.
    remove(&file);
    site::set_password(&site.folder().join("web"), "another horse");
    site.log_in("another horse");
    assert_eq!(site.get("/session").json()["role"], "admin");
}

#[test]
fn a_folder_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        // Only root can start a server that switches to another user.
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("web");
    site::set_password(&dir, "correct horse");
    chown(&dir, Some(12345), Some(12345)).unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
    let (code, said) = try_start(&dir);
    assert!(
        code == 2 && said.contains("belongs to user number 12345"),
        "{code} {said}"
    );
    // Files of other users keep their owner.
    let other = folder.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("mine"), "").unwrap();
    let (code, said) = try_start(&other);
    assert!(
        code == 2 && said.contains("not one of the page's files"),
        "{code} {said}"
    );
    assert_eq!(fs::metadata(other.join("mine")).unwrap().uid(), 0);
    let (code, said) = try_start_with(&folder.path().join("new"), &["--user", "root"]);
    assert!(
        code == 2 && said.contains("must not run as root"),
        "{code} {said}"
    );
}

/// Runs a server that fails to start. Returns its exit code and its message.
fn try_start(dir: &Path) -> (i32, String) {
    try_start_with(dir, &[])
}

fn try_start_with(dir: &Path, options: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_sqm"))
        .args(["web", "--listen", "127.0.0.1:0", "--dir"])
        .arg(dir)
        .args(options)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let code = output.status.code().expect("it ends by itself");
    (code, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_server_started_by_root_changes_its_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let site = Site::start(&[]);
    site.admin();
    let status = fs::read_to_string(format!("/proc/{}/status", site.web.pid())).unwrap();
    let of = |name: &str| -> Vec<u32> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace()
            .map(|word| word.parse().unwrap())
            .collect()
    };
    let (uids, gids) = (of("Uid:"), of("Gid:"));
    let (uid, gid) = (uids[0], gids[0]);
    assert!(
        uid != 0 && uids == [uid; 4] && gid != 0 && gids == [gid; 4],
        "{status}"
    );
    assert_eq!(of("Groups:"), [0; 0]);
    // A process of this user must not read or change root's files.
    for (way, path) in [
        ("-r", "/etc/shadow"),
        ("-w", "/etc/passwd"),
        ("-w", "/etc"),
        ("-w", "/etc/cron.d"),
    ] {
        if !Path::new(path).exists() {
            continue;
        }
        let allowed = Command::new("test").args([way, path]).uid(uid).gid(gid).status();
        assert!(!allowed.unwrap().success(), "{way} {path}");
    }
    for name in ["web", "web/tests"] {
        assert_eq!(
            fs::metadata(site.folder().join(name)).unwrap().uid(),
            uid,
            "{name}"
        );
    }
    // The server can still do its work.
    let revision = site.get("/config").json()["revision"].clone();
    let change = json!([{"section": 0, "option": "upload", "value": "9000"}]);
    let body = json!({"revision": revision, "changes": change, "confirm_seconds": 0});
    let answer = site.send("PUT", "/config", &body);
    assert_eq!(answer.code, 200, "{}", answer.body);
    assert!(site.config().contains("upload '9000'"), "{}", site.config());
}

#[test]
fn only_users_that_the_daemon_recognises_can_make_changes() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for (daemon, code) in [(&["--admin-user", "nobody"][..], 200), (&[], 503)] {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let dir = folder.path().join("web");
        fs::create_dir(&dir).unwrap();
        chown(&dir, Some(65534), Some(65534)).unwrap();
        let site = Site::start_with(folder, &[], daemon, |command| {
            command.uid(65534).gid(65534);
        });
        site.admin();
        let answer = site.send("POST", "/doctor/fix", &Value::Null);
        assert_eq!(answer.code, code, "{}", answer.body);
    }
}

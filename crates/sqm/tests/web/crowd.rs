//! A thousand hostile connections from one address, and a logged-in client at the same address.

use std::process::Command;
use std::time::Duration;

use serde_json::json;

use super::site::{self, Site};
use super::support::{Crowd, answered, some_kinds};

/// The promised time to an answer.
const PROMISED: Duration = Duration::from_secs(3);

fn gather(port: u16, kind: &str, token: &str) -> Crowd {
    let header = format!("X-SQM-Token: {token}");
    Crowd::gather(Command::new("env"), kind, "page", &port.to_string(), &header)
}

#[test]
fn many_connections_do_not_lock_out_logged_in_clients() {
    let site = Site::start_with_password("correct horse");
    let token = site.token();
    site.log_in("correct horse");
    for kind in some_kinds(&[
        "idle", "line", "head", "body", "pipeline", "drip", "flood", "churn", "stream",
    ]) {
        let _crowd = gather(site.port, kind, &token);
        let answered =
            |what: &str, something: &dyn Fn()| answered(&format!("{kind}: {what}"), PROMISED, something);
        answered("page", &|| assert_eq!(site.page("/").code, 200));
        answered("status", &|| {
            assert_eq!(site.get("/status").json()["daemon"]["running"], true);
        });
        answered("config", &|| assert_eq!(site.get("/config").code, 200));
        answered("live", &|| drop(site.stream("/live?hz=5").event("sample")));
        answered("change", &|| {
            let answer = site.send("POST", "/config/check", &json!({"changes": []}));
            assert_eq!(answer.code, 200, "{}", answer.body);
        });
    }
    let peak = site.web.peak_kib();
    println!("peak of the server's memory: {peak} KiB");
    assert!(peak < 96 * 1024, "{peak} KiB");
}

/// An active stream is not idle, however many other connections come and go.
#[test]
fn many_connections_do_not_end_the_stream_of_another_client() {
    let site = Site::start_with_password("correct horse");
    let mut visitor = site.stream("/live?hz=5");
    visitor.event("sample");
    for kind in ["idle", "line"] {
        let _crowd = gather(site.port, kind, "");
        for _ in 0..20 {
            visitor.event("sample");
        }
    }
}

#[test]
fn stalled_handshakes_lock_no_client_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sqm"));
    command
        .args(["web", "--tls", "--listen", "127.0.0.1:0", "--dir"])
        .arg(folder.path());
    let server = site::Web::spawn(command);
    for kind in ["idle", "handshake", "churn"] {
        let _crowd = gather(server.port, kind, "");
        // A newcomer is not logged in yet, and can be evicted as well. A browser would then connect again.
        let is_greeted = || site::tls_greeting(server.port).is_ok_and(|greeting| greeting == b"\x16\x03\x03");
        answered(&format!("{kind}: greeting"), PROMISED, || while !is_greeted() {});
    }
}

/// A client that is not logged in can cause any number of refusals. The log must still keep changes and password
/// attempts.
#[test]
fn refusals_do_not_erase_the_log_of_changes() {
    let site = Site::start_with_password("correct horse");
    assert_eq!(
        site.send("POST", "/session", &json!({"password": "wrong"})).code,
        401
    );
    let token = site.token();
    let long = format!("{{\"{}\": 1}}", "x".repeat(100_000));
    let headers = [
        ("Content-Type", "application/json"),
        ("X-SQM-Token", token.as_str()),
    ];
    for _ in 0..20 {
        assert_eq!(
            site.raw("POST /api/v1/session HTTP/1.1", &headers, long.as_bytes())
                .code,
            400
        );
    }
    let host = site.host();
    let refused = format!("DELETE /api/v1/tests/x HTTP/1.1\r\nHost: {host}\r\n\r\n").repeat(16_000);
    let log_outs = format!("DELETE /api/v1/session HTTP/1.1\r\nHost: {host}\r\nX-SQM-Token: {token}\r\n\r\n")
        .repeat(4_000);
    for flood in [refused, log_outs] {
        use std::io::{Read, Write};
        let mut stream = site.connect();
        let mut answers = stream.try_clone().unwrap();
        let reader = std::thread::spawn(move || {
            let mut count = 0;
            let mut bytes = [0; 65536];
            while let Ok(length @ 1..) = answers.read(&mut bytes) {
                count += length;
            }
            count
        });
        stream.write_all(flood.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(reader.join().unwrap() > 1000);
    }
    site.log_in("correct horse");
    let entries = site.get("/audit?last=100").json()["entries"].clone();
    let entries = entries.as_array().unwrap();
    let count = |what: &str, outcome: &str| {
        let is_it = |entry: &&serde_json::Value| entry["what"] == what && entry["outcome"] == outcome;
        entries.iter().filter(is_it).count()
    };
    assert_eq!(count("log-in", "done"), 1, "{entries:?}");
    assert_eq!(count("log-in", "wrong password"), 1, "{entries:?}");
    assert_eq!(count("log-out", "done"), 0, "{entries:?}");
    let length = std::fs::read_dir(site.folder().join("web")).unwrap().flatten();
    let length: u64 = length
        .filter(|file| file.file_name().to_string_lossy().starts_with("audit"))
        .map(|file| file.metadata().unwrap().len())
        .sum();
    assert!(length < 64 * 1024, "{length} bytes");
}

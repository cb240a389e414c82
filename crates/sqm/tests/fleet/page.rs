//! `sqm fleet web` in front of real servers. Every answer of its API is checked against docs/openapi.yaml.

use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqm_fleet::Name;
use sqm_fleet::judgement::{Measured, Verdict};
use sqm_fleet::nats::Nats;
use sqm_fleet::report::{self, Judged, Outcome, Report};
use sqm_fleet::transport::{Key, Store as _};

use super::api;
use super::hub::{Hub, Single, block_on};
use super::servers::{now, programs};
use super::site::Web;

/// The longest wait for what the page is to show. A choice: far longer than any takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running `sqm fleet web`.
struct Page {
    web: Web,
}

impl Page {
    fn start(hub: &Hub) -> Self {
        Self {
            web: Web::spawn(hub.command(&["web", "--listen", "127.0.0.1:0"])),
        }
    }

    fn answer(&self, path: &str) -> (u16, String) {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\r\n",
            self.web.port
        );
        let answer = self.web.ask(&request);
        if let Some(target) = path
            .strip_prefix("/api/v1")
            .filter(|target| target.starts_with("/fleet"))
        {
            api::judge("GET", target, answer.code, &answer.head, &answer.body);
        }
        (answer.code, answer.body)
    }

    fn get(&self, path: &str) -> Value {
        let (code, body) = self.answer(&format!("/api/v1{path}"));
        assert_eq!(code, 200, "{path}: {body}");
        serde_json::from_str(&body).expect("JSON")
    }

    /// Reads the fleet until it is as wanted.
    fn until(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let begin = Instant::now();
        loop {
            let fleet = self.get("/fleet");
            if wanted(&fleet) {
                return fleet;
            }
            assert!(begin.elapsed() < PATIENCE, "{fleet}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn measured(p95_ms: f64) -> Measured {
    Measured {
        loaded_s: 60,
        samples: 600,
        p50_ms: p95_ms / 2.0,
        p95_ms,
        download_kbit: 80_000,
        upload_kbit: 20_000,
        dropped_per_s: 1.0,
    }
}

/// The report of a router that has rolled a document back.
fn report(router: &Name, revision: u64) -> Vec<u8> {
    let report = Report {
        schema: report::SCHEMA.into(),
        router: router.clone(),
        at_unix_s: now(),
        sqm_version: "0.1.0".into(),
        hardware: "x86_64".into(),
        revision,
        in_force: 0,
        outcome: Some(Outcome::RolledBack(Judged {
            verdict: Verdict::Worse,
            reason: "it went from 20.0 ms to 700.0 ms".into(),
            before: Some(measured(20.0)),
            after: Some(measured(700.0)),
        })),
        refused: None,
        differences: Vec::new(),
    };
    serde_json::to_vec(&report).expect("plain data")
}

/// The router writes its report and its heartbeat, with its own credentials.
async fn write_report(hub: &Hub, router: &Name) {
    let store = Nats::connect_now(&hub.options(router))
        .await
        .expect("the server answers");
    let text = report(router, 1);
    let written = store.put(&Key::Report(router.clone()), text.clone(), None).await;
    written.expect("its own report");
    let written = store.put(&Key::Heartbeat(router.clone()), text, None).await;
    written.expect("its own heartbeat");
}

#[test]
fn the_page_shows_who_has_what_and_how_it_feels_and_who_wrote_it() {
    for program in programs() {
        let Single { hub, mut server } = Single::start(program);
        let r1 = name("r1");
        hub.run(&["enroll", "r1", "--group", "homes", "--site", "berlin"]);
        hub.run(&["enroll", "r2", "--group", "homes", "--site", "berlin"]);
        let page = Page::start(&hub);
        let (code, html) = page.answer("/");
        assert!(code == 200 && html.contains("<!doctype html>"), "{html}");
        let fleet = page.until(|fleet| fleet["error"].is_null());
        assert_eq!(fleet["routers"][0]["state"], "never seen", "{fleet}");
        assert_eq!(
            fleet["places"][0]["states"],
            json!([{"state": "never seen", "routers": 2}])
        );

        // A page that is open learns it by itself.
        hub.run(&["set", &hub.configuration(50_000), "--router", "r1"]);
        block_on(write_report(&hub, &r1));
        let fleet = page.until(|fleet| fleet["routers"][0]["state"] == "rolled back");
        let row = &fleet["routers"][0];
        assert_eq!(row["reason"], "it went from 20.0 ms to 700.0 ms");
        assert_eq!((&row["wanted"], &row["in_force"]), (&json!(1), &json!(0)));
        assert_eq!(
            (&row["before_grade"], &row["after_grade"]),
            (&json!("A"), &json!("D"))
        );
        // `sqm fleet status` has the same words.
        let status: Value = serde_json::from_str(&hub.run(&["status", "--json"])).expect("JSON");
        for field in ["state", "reason", "before_p95_ms", "after_p95_ms", "after_grade"] {
            assert_eq!(status[0][field], row[field], "{field}");
        }

        let history = page.get("/fleet/routers/r1");
        let entries: Vec<(&str, &str)> = history["entries"]
            .as_array()
            .expect("entries")
            .iter()
            .map(|entry| {
                (
                    entry["by"].as_str().expect("text"),
                    entry["text"].as_str().expect("text"),
                )
            })
            .collect();
        assert_eq!(
            entries,
            [
                (
                    "router",
                    "revision 1: rolled back: it went from 20.0 ms to 700.0 ms"
                ),
                ("operator", "revision 1")
            ]
        );
        assert_eq!(history["entries"][1]["key"], hub.key().to_string());

        // Roll-outs in words, and their history. r2 never reports: it is absent.
        let roll_out = hub
            .command(&[
                "roll-out",
                "start",
                "evening",
                &hub.configuration(60_000),
                "--router",
                "r2",
            ])
            .output();
        assert!(roll_out.expect("sqm starts").status.success());
        let fleet = page.until(|fleet| fleet["roll_outs"][0]["state"] == "done");
        assert_eq!(
            fleet["roll_outs"][0]["text"],
            "done: all 1 routers have their document"
        );
        let history = page.get("/fleet/roll-outs/evening");
        let entries = history["entries"].as_array().expect("entries");
        assert_eq!(entries[0]["text"], "done: all 1 routers have their document");
        assert!(entries.len() > 1, "{history}");
        assert_eq!(page.get("/fleet/routers/nobody")["entries"], json!([]));
        assert_eq!(page.answer("/api/v1/fleet/routers/a.b").0, 404);
        assert_eq!(page.answer("/api/v1/status").0, 404, "that is a router's");
        assert_eq!(page.answer("/index.html").0, 404, "that is a router's");

        // A hub that does not answer, and one that does again.
        server.kill();
        let fleet = page.until(|fleet| !fleet["error"].is_null());
        assert_eq!(
            fleet["routers"][0]["state"], "rolled back",
            "what was read last stays"
        );
        assert!(fleet["read_unix_s"].is_u64());
        server.restart();
        page.until(|fleet| fleet["error"].is_null());
    }
}

#[test]
fn the_page_says_so_when_the_hub_never_answered_and_shows_nothing_without_the_password() {
    let hub = Hub::init(&["--url", "nats://127.0.0.1:1"]);
    hub.run(&["enroll", "r1"]);
    let page = Page::start(&hub);
    let fleet = page.get("/fleet");
    assert!(fleet["read_unix_s"].is_null(), "{fleet}");
    let error = fleet["error"].as_str().expect("text");
    assert!(error.contains("nats://127.0.0.1:1"), "{error}");
    drop(page);

    let refused = hub
        .command(&["web", "--listen", "0.0.0.0:0"])
        .output()
        .expect("sqm starts");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("'sqm fleet web --set-password'"), "{said}");
    let mut set = hub.command(&["web", "--set-password"]);
    let mut set = set.stdin(Stdio::piped()).spawn().expect("sqm starts");
    writeln!(set.stdin.take().expect("piped"), "correct horse battery").expect("it reads");
    assert!(set.wait().expect("it ends").success());
    let page = Page::start(&hub);
    for path in ["/fleet", "/fleet/routers/r1", "/fleet/roll-outs/evening"] {
        assert_eq!(page.answer(&format!("/api/v1{path}")).0, 403, "{path}");
    }
}

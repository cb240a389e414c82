//! `sqm web` as browsers and attackers see it, with a daemon in a network namespace whose only device is missing. Its
//! effect on queues is tested in the lab (`lab/web.rs`). Every answer of the API in these tests is checked against
//! docs/openapi.yaml.

#[path = "web/api.rs"]
mod api;
#[path = "web/crowd.rs"]
mod crowd;
#[path = "web/site.rs"]
mod site;
mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use site::{CONFIG, Site};
use support::Chance;

#[test]
fn every_route_answers_as_documented() {
    let site = Site::start(&[]);
    site.admin();
    for path in [
        "/session",
        "/status",
        "/history?seconds=60&points=10",
        "/options",
        "/links",
        "/interfaces",
        "/config",
        "/tests",
        "/tune",
        "/doctor",
        "/report",
        "/audit?last=5",
        "/openapi.yaml",
    ] {
        assert_eq!(site.get(path).code, 200, "{path}");
    }
    let kinds = site.get("/tests").json()["kinds"].clone();
    let names: Vec<&Value> = kinds
        .as_array()
        .unwrap()
        .iter()
        .map(|kind| &kind["name"])
        .collect();
    assert_eq!(json!(names), api::kinds());
    let mut live = site.stream("/live?hz=5");
    let first = live.event("sample");
    assert_eq!(first["interfaces"][0]["interface"], "sqm-none0", "{first}");
    api::judge_as("Sample", &first);
    api::judge_as("LogEntry", &site.stream("/events").event("state"));

    // A complete test against a server on this machine.
    let server = site::Server::start();
    let wanted = json!({"host": "127.0.0.1", "port": server.port, "kind": "tcp_download", "duration_s": 6, "title": "a <b>"});
    let test = site.send("POST", "/tests", &wanted);
    assert_eq!(test.code, 202, "{}", test.body);
    let id = test.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(site.send("POST", "/tests", &wanted).code, 409, "one at a time");
    assert_eq!(
        site.send("DELETE", &format!("/tests/{id}"), &Value::Null).code,
        409
    );
    let mut live = site.stream(&format!("/tests/{id}/live"));
    api::judge_as("Progress", &live.event("progress"));
    assert_eq!(site.get("/status").json()["running_test"], id);
    let end = live.event("end");
    api::judge_as("Test", &end);
    assert_eq!(end["state"], "done", "{end}");
    assert!(
        end["plots"].as_array().unwrap().contains(&json!("all_scaled")),
        "{end}"
    );
    assert!(end["summary"]["download_mbit"].as_f64().unwrap() > 1.0, "{end}");
    assert_eq!(site.get(&format!("/tests/{id}/live")).code, 409);
    assert_eq!(site.get(&format!("/tests/{id}")).json()["title"], "a <b>");
    let file = site.get_bytes(&format!("/tests/{id}/result.flent.gz"));
    assert!(file.starts_with(&[0x1f, 0x8b]), "it is packed");
    for plot in [
        "all_scaled",
        "ping_cdf",
        "box_combine",
        "totals",
        "per_flow",
        "tcp",
    ] {
        let picture = site.get(&format!("/tests/{id}/plots/{plot}.svg"));
        assert!(
            picture.code == 200 && picture.body.starts_with("<svg"),
            "{plot}: {}",
            picture.body
        );
        assert!(picture.head.contains("sandbox"), "{}", picture.head);
    }
    let compared = site.get(&format!("/compare?ids={id},{id}")).json();
    assert_eq!(compared["runs"][1]["name"], "a <b>");
    assert_eq!(site.get(&format!("/compare/box_combine.svg?ids={id}")).code, 200);
    assert_eq!(site.get(&format!("/compare/per_flow.svg?ids={id}")).code, 404);
    assert_eq!(
        site.send("POST", &format!("/tests/{id}/stop"), &Value::Null).code,
        409
    );
    assert_eq!(
        site.send("DELETE", &format!("/tests/{id}"), &Value::Null).code,
        204
    );
    assert_eq!(site.get(&format!("/tests/{id}")).code, 404);

    // A test that is stopped keeps its samples.
    let wanted = json!({"host": "127.0.0.1", "port": server.port, "duration_s": 60});
    let id = site.send("POST", "/tests", &wanted).json()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut live = site.stream(&format!("/tests/{id}/live"));
    while live.event("progress")["stage"] != "load" {}
    assert_eq!(
        site.send("POST", &format!("/tests/{id}/stop"), &Value::Null).code,
        202
    );
    assert_eq!(live.event("end")["state"], "stopped");

    // There is no line to tune. The search fails and gives the reason.
    assert_eq!(site.send("POST", "/tune/stop", &Value::Null).code, 409);
    assert_eq!(site.get("/tune/live").code, 409);
    let tune = site.send(
        "POST",
        "/tune",
        &json!({"host": "127.0.0.1", "port": server.port}),
    );
    assert_eq!(tune.code, 202, "{}", tune.body);
    let failed = site.until("/tune", |tune| tune["state"] != "running");
    assert_eq!(failed["state"], "failed", "{failed}");
    assert!(
        failed["error"].as_str().unwrap().contains("sqm-none0"),
        "{failed}"
    );
    let revision = site.get("/config").json()["revision"].clone();
    assert_eq!(
        site.send("POST", "/tune/accept", &json!({"revision": revision}))
            .code,
        409
    );

    let speeds = json!({"download": "80 Mbit/s", "upload": "fast", "source": "advertised"});
    let rates = site.send("POST", "/config/rates", &speeds).json();
    assert_eq!(rates["download"]["shaper_kbit"], 68_000, "{rates}");
    assert!(rates["upload"]["error"].is_string(), "{rates}");
    let checked = site.send("POST", "/config/check", &json!({}));
    assert!(checked.json()["ok"].as_bool().unwrap(), "{}", checked.body);
    assert_eq!(site.send("POST", "/config/confirm", &Value::Null).code, 409);
    assert_eq!(site.send("POST", "/config/revert", &Value::Null).code, 409);
    let fixed = site.send("POST", "/doctor/fix", &Value::Null);
    assert!([200, 422].contains(&fixed.code), "{}", fixed.body);
    assert_eq!(site.send("DELETE", "/session", &Value::Null).code, 204);
    assert_eq!(
        site.send("POST", "/session", &json!({"password": "x"})).code,
        409,
        "none is set"
    );
    api::nothing_was_left_out();
}

/// Starts a test against a misbehaving server, calls `act`, and returns how the test has ended, which must happen
/// within `most_s`. A second test must then be able to start and to be stopped.
fn against(behaviour: &str, duration_s: u32, most_s: u64, act: impl FnOnce(&Site, &str)) -> Value {
    let (site, server) = (Site::start(&[]), site::Hostile::start(behaviour));
    let wanted =
        json!({"host": "127.0.0.1", "port": server.port, "kind": "rrul_be", "duration_s": duration_s});
    let begin = || {
        let test = site.send("POST", "/tests", &wanted);
        assert_eq!(test.code, 202, "{behaviour}: {}", test.body);
        format!("/tests/{}", test.json()["id"].as_str().unwrap())
    };
    let (begun, path) = (std::time::Instant::now(), begin());
    act(&site, &path);
    let test = site.until(&path, |test| test["state"] != "running");
    let took = begun.elapsed();
    assert!(
        took < Duration::from_secs(most_s),
        "{behaviour}: {took:?}, {test}"
    );
    let path = begin();
    assert_eq!(site.send("POST", &format!("{path}/stop"), &Value::Null).code, 202);
    site.until(&path, |test| test["state"] != "running");
    test
}

/// Time that the server may add to a test on a busy machine, seconds.
const MORE_S: u64 = 20;

#[test]
fn the_first_stop_request_ends_a_test_whatever_the_server_does() {
    for behaviour in [
        "load-slow-words",
        "load-words",
        "results-slow-words",
        "hello-silence",
    ] {
        // The test would take five minutes.
        let test = against(behaviour, 300, 30 + MORE_S, |site, path| {
            if behaviour.starts_with("load") {
                let mut live = site.stream(&format!("{path}/live"));
                while live.event("progress")["stage"] != "load" {}
            }
            assert_eq!(site.send("POST", &format!("{path}/stop"), &Value::Null).code, 202);
        });
        assert_eq!(test["state"], "stopped", "{behaviour}: {test}");
    }
}

/// Three seconds before the load and after it, six under load, and ten of grace for the server's behaviour.
const SHORT_TEST_S: u64 = 3 + 6 + 3 + 10;

/// Two servers at a time.
#[test]
fn a_test_ends_in_time_whatever_the_server_does() {
    let behaviours: &[&str] = if support::is_nightly() {
        &[
            "load-slow-words",
            "results-slow-words",
            "accept-silence",
            "hello-drip",
            "attach-silence",
            "load-words",
            "load-silence",
            "load-huge",
            "results-words",
            "results-values",
            "results-endless",
            "flows-stall",
            "probes-flood",
        ]
    } else {
        &["load-slow-words", "results-slow-words"]
    };
    for two in behaviours.chunks(2) {
        std::thread::scope(|scope| {
            for behaviour in two {
                scope.spawn(move || {
                    let test = against(behaviour, 6, SHORT_TEST_S + MORE_S, |_, _| {});
                    println!("{behaviour}: {} {}", test["state"], test["error"]);
                });
            }
        });
    }
}

#[test]
fn responsiveness_and_plain_urls_need_no_sqm_serve() {
    let site = Site::start(&[]);
    site.admin();
    // The server speaks both protocols, with a certificate of its own.
    let server = site::Server::start();
    let run = |wanted: Value| {
        let test = site.send("POST", "/tests", &wanted);
        assert_eq!(test.code, 202, "{}", test.body);
        let id = test.json()["id"].as_str().unwrap().to_owned();
        let mut live = site.stream(&format!("/tests/{id}/live"));
        api::judge_as("Progress", &live.event("progress"));
        let end = live.event("end");
        assert_eq!(end["state"], "done", "{end}");
        api::judge_as("Test", &end);
        end
    };
    let end = run(json!({
        "kind": "rpm", "host": "127.0.0.1", "port": server.port, "insecure": true, "duration_s": 6
    }));
    for direction in ["download", "upload"] {
        let found = &end["responsiveness"][direction];
        assert!(found["rpm"].as_f64().is_some_and(|rpm| rpm > 1.0), "{end}");
    }
    assert!(end["bytes"].is_null() && end["summary"].is_null(), "{end}");
    let url = format!("https://127.0.0.1:{}/large", server.port);
    let end = run(json!({"kind": "url", "url": url, "insecure": true, "duration_s": 6}));
    assert_eq!(end["host"], url);
    assert!(end["summary"]["download_mbit"].as_f64().unwrap() > 1.0, "{end}");
    assert!(end["responsiveness"].is_null(), "{end}");
}

#[test]
fn a_result_that_an_older_version_graded_is_graded_again() {
    let folder = tempfile::tempdir().unwrap();
    let tests = folder.path().join("web/tests");
    fs::create_dir_all(&tests).unwrap();
    let id = "20260131T235959-0123abcd";
    // Downloads add nothing and uploads 600 ms: the mean of both was a D.
    let probe = |i: u32| {
        let t = f64::from(i) * 0.02;
        let rtt = if (15.0..25.0).contains(&t) { 620.0 } else { 20.0 };
        format!(
            r#"{{"t":{},"val":{rtt},"owd_up":{},"owd_down":10}}"#,
            1_577_880_000.0 + t + rtt / 1000.0,
            rtt - 10.0
        )
    };
    let probes: Vec<String> = (0..1500).map(probe).collect();
    let flow = |first: f64| -> String {
        let sample = |i: u32| {
            format!(
                r#"{{"t":{},"dur":1,"val":10}}"#,
                1_577_880_000.0 + first + f64::from(i)
            )
        };
        (1..=20).map(sample).collect::<Vec<_>>().join(",")
    };
    let file = format!(
        r#"{{"version":4,"x_values":[],"results":{{}},"raw_values":{{"TCP upload BE":[{}],"Ping (ms) UDP BE":[{}]}},"metadata":
        {{"NAME":"tcp_1up","TITLE":"t","HOST":"h","LOCAL_HOST":"l","LENGTH":20,"TOTAL_LENGTH":30,"STEP_SIZE":0.2,
        "T0":"2020-01-01T12:00:00.000000Z"}}}}"#,
        flow(5.0),
        probes.join(",")
    );
    fs::write(tests.join(format!("{id}.flent.gz")), &file).unwrap();
    let old = json!({
        "id": id, "state": "done", "kind": "tcp_1up", "host": "h", "title": null, "started_unix_ms": 0, "duration_s": 20, "error": null,
        "bytes": file.len(), "plots": [], "summary": null,
        "verdict": {"findings": [], "grade": {"letter": "A+", "added_ms": 1.0, "strict": "A+"}},
    });
    fs::write(tests.join(format!("{id}.json")), old.to_string()).unwrap();
    let site = Site::start_in(folder, &[]);
    let test = site.until(&format!("/tests/{id}"), |test| test["verdict"].is_object());
    assert_eq!(test["verdict"]["grade"]["letter"], "F", "{test}");
    let kept = fs::read_to_string(site.folder().join(format!("web/tests/{id}.json"))).unwrap();
    assert!(kept.contains("sentence"), "{kept}");
}

#[test]
fn missing_resources_and_invalid_requests_are_reported() {
    let site = Site::start(&[]);
    site.admin();
    let long = "x".repeat(130_000);
    for (method, path, body, code) in [
        ("POST", "/status", json!({}), 405),
        ("PUT", "/session", json!({}), 405),
        ("GET", "/config/check", Value::Null, 405),
        ("GET", "/nothing", Value::Null, 404),
        ("GET", "/tests/20260131T235959-0123abcd", Value::Null, 404),
        ("GET", "/tests/..%2f..%2fpassword", Value::Null, 404),
        ("GET", "/live?hz=6", Value::Null, 400),
        ("GET", "/live?hz=", Value::Null, 400),
        ("GET", "/status?x=1", Value::Null, 400),
        ("GET", "/history?points=10&points=10", Value::Null, 400),
        ("GET", "/compare", Value::Null, 400),
        ("GET", "/compare?ids=a", Value::Null, 400),
        ("GET", "/audit?last=0", Value::Null, 400),
        ("POST", "/tests", json!({"host": "--help"}), 400),
        ("POST", "/tests", json!({"host": "a", "kind": "none"}), 400),
        ("POST", "/tests", json!({"host": "a", "duration_s": 5}), 400),
        ("POST", "/tests", json!({"host": "a", "shell": "true"}), 400),
        ("POST", "/tests", json!({"host": "a", "title": "two\nlines"}), 400),
        ("POST", "/tests", json!({"host": "a", "secret": "a\nb"}), 400),
        (
            "POST",
            "/tests",
            json!({"kind": "url", "url": "file:///etc/passwd"}),
            400,
        ),
        (
            "POST",
            "/tests",
            json!({"kind": "rpm", "host": "a", "family": 4}),
            400,
        ),
        ("GET", "/tune/plots/latency.svg", Value::Null, 404),
        ("GET", "/tune/plots/..%2fwan0.json.svg", Value::Null, 404),
        ("POST", "/tune", json!({"host": "a", "interface": "-x"}), 400),
        ("POST", "/tune", json!({"host": "a", "target_ms": 0.1}), 400),
        ("PUT", "/config", json!({"revision": "0"}), 400),
        ("PUT", "/config", json!({"revision": "0", "text": ""}), 400),
        (
            "PUT",
            "/config",
            json!({"revision": "0000000000000000", "text": ""}),
            409,
        ),
        (
            "PUT",
            "/config",
            json!({"revision": "0000000000000000", "text": "", "confirm_seconds": 601}),
            400,
        ),
        ("POST", "/config/check", json!({"text": null}), 400),
        (
            "POST",
            "/config/check",
            json!({"changes": [[0, "a", "b", false]]}),
            400,
        ),
        ("POST", "/config/check", json!({"text": long}), 200),
        ("POST", "/config/check", json!({"text": "", "changes": []}), 400),
        (
            "POST",
            "/config/rates",
            json!({"download": "80 Mbit/s", "upload": "fast", "source": "advertised"}),
            200,
        ),
        (
            "POST",
            "/config/rates",
            json!({"download": "80", "upload": "20", "source": "guessed"}),
            400,
        ),
        (
            "POST",
            "/config/check",
            json!({"changes": [{"section": 7, "option": "a", "value": "b"}]}),
            400,
        ),
        ("POST", "/config/check", json!([]), 400),
    ] {
        let answer = match method {
            "GET" => site.get(path),
            _ => site.send(method, path, &body),
        };
        assert_eq!(answer.code, code, "{method} {path} {}", answer.body);
    }
    let token = site.token();
    let headers = [("Content-Type", "text/plain"), ("X-SQM-Token", token.as_str())];
    let text = site.raw("POST /api/v1/config/check HTTP/1.1", &headers, b"{}");
    assert_eq!(text.code, 415);
    let late = site.raw_head(&format!(
        "POST /api/v1/config/check HTTP/1.1\r\nHost: {}\r\nX-SQM-Token: {}\r\nContent-Type: application/json\r\n\
         Content-Length: 9\r\nConnection: close\r\n\r\n{{",
        site.host(),
        site.token()
    ));
    assert_eq!(late.code, 408);
    // Without the web UI the program explains how to build it. With it the UI is served.
    let page = site.page("/");
    assert!(
        page.code == 200 && page.body.contains("<!doctype html>"),
        "{}",
        page.body
    );
    assert!(
        page.head.contains("default-src 'self'") && !page.head.contains("unsafe"),
        "{}",
        page.head
    );
}

#[test]
fn requests_from_other_sites_are_refused() {
    let site = Site::start(&[]);
    let token = site.token();
    let host = site.host();
    let evil = [
        // DNS rebinding: the attacker's host name with our address.
        vec![("Host", "evil.example".to_owned())],
        vec![("Host", format!("evil.example:{}", site.port))],
        // A page from another origin sends requests to our address.
        vec![
            ("Host", host.clone()),
            ("Origin", "http://evil.example".to_owned()),
        ],
        vec![("Host", host.clone()), ("Origin", "null".to_owned())],
        vec![("Host", host.clone()), ("Origin", format!("https://{host}"))],
        vec![
            ("Host", host.clone()),
            ("Sec-Fetch-Site", "cross-site".to_owned()),
        ],
        vec![("Host", host.clone()), ("Sec-Fetch-Site", "same-site".to_owned())],
    ];
    for headers in &evil {
        for request in [
            "GET /api/v1/session",
            "GET /api/v1/config",
            "PUT /api/v1/config",
            "POST /api/v1/tests",
        ] {
            let lines: String = headers
                .iter()
                .map(|(name, value)| format!("{name}: {value}\r\n"))
                .collect();
            let answer = site.raw_head(&format!(
                "{request} HTTP/1.1\r\n{lines}X-SQM-Token: {token}\r\nContent-Type: application/json\r\n\
                 Content-Length: 2\r\nConnection: close\r\n\r\n{{}}"
            ));
            assert_eq!(answer.code, 403, "{request} {headers:?}");
            assert!(!answer.body.contains(&token), "{}", answer.body);
            assert!(!answer.head.contains("access-control"), "{}", answer.head);
        }
    }
    // An HTML form needs no preflight request, but does not know the token.
    for (headers, code) in [
        (vec![], 403),
        (vec![("X-SQM-Token", "0".repeat(64))], 403),
        (vec![("X-SQM-Token", String::new())], 403),
        (
            vec![
                ("X-SQM-Token", token.clone()),
                ("Origin", format!("http://{host}")),
            ],
            409,
        ),
    ] {
        let mut headers: Vec<(&str, &str)> = headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        headers.push(("Content-Type", "application/json"));
        let answer = site.raw("POST /api/v1/config/confirm HTTP/1.1", &headers, b"");
        assert_eq!(answer.code, code, "{headers:?}");
    }
    let preflight = site.raw_head(&format!(
        "OPTIONS /api/v1/config HTTP/1.1\r\nHost: {host}\r\nOrigin: http://evil.example\r\n\
         Access-Control-Request-Method: PUT\r\nConnection: close\r\n\r\n"
    ));
    assert!(
        preflight.code == 403 && !preflight.head.contains("access-control"),
        "{}",
        preflight.head
    );
    assert_eq!(site.config(), CONFIG);
}

#[test]
fn no_path_leaves_the_folder_of_the_page() {
    let site = Site::start(&[]);
    for path in [
        "/../password",
        "/../../../../etc/passwd",
        "/..%2f..%2fetc%2fpasswd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/assets/../../../etc/passwd",
        "//etc/passwd",
        "/assets/..\\..\\etc\\passwd",
        "/index.html/../../etc/passwd",
        "/api/v1/tests/../../password",
        "/api/v1/tests/%2e%2e/result.flent.gz",
        "/api/v1/tests/20260131T235959-0123abcd/plots/..%2f..%2f..%2fetc%2fpasswd.svg",
        "/api/v1/compare/..%2f..%2fetc%2fpasswd.svg?ids=20260131T235959-0123abcd",
    ] {
        let answer = site.raw(&format!("GET {path} HTTP/1.1"), &[], b"");
        assert!(
            [400, 404].contains(&answer.code),
            "{path}: {} {}",
            answer.code,
            answer.body
        );
        assert!(!answer.body.contains("root:"), "{path}");
    }
}

#[test]
fn with_a_password_every_client_reads_and_only_logged_in_clients_make_changes() {
    let site = Site::start_with_password("correct horse");
    let file = site.folder().join("web/password");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!fs::read_to_string(&file).unwrap().contains("correct"));
    let session = site.get("/session").json();
    assert_eq!(
        (&session["role"], &session["password_set"]),
        (&json!("reader"), &json!(true))
    );
    for path in ["/status", "/config", "/tests", "/tune", "/options"] {
        assert_eq!(site.get(path).code, 200, "{path}");
    }
    for path in ["/audit", "/report"] {
        assert_eq!(site.get(path).code, 403, "{path}");
    }
    for (method, path) in [
        ("POST", "/config/check"),
        ("PUT", "/config"),
        ("POST", "/config/confirm"),
        ("POST", "/config/revert"),
        ("POST", "/tests"),
        ("POST", "/tune"),
        ("POST", "/tune/stop"),
        ("POST", "/tune/accept"),
        ("POST", "/doctor/fix"),
        ("DELETE", "/tests/20260131T235959-0123abcd"),
        ("POST", "/tests/20260131T235959-0123abcd/stop"),
    ] {
        assert_eq!(site.send(method, path, &json!({})).code, 403, "{method} {path}");
    }
    // A session id that an attacker has planted in the browser is invalid, and does not become valid.
    let fixed = "f".repeat(64);
    site.set_cookie(&format!("sqm_session={fixed}"));
    assert_eq!(site.get("/session").json()["role"], "reader");
    let before = site.token();
    let answer = site.send("POST", "/session", &json!({"password": "correct horse"}));
    assert_eq!(answer.code, 200, "{}", answer.body);
    let cookie = site::header(&answer.head, "set-cookie").expect("a cookie");
    assert!(
        cookie.contains("; httponly") && cookie.contains("; samesite=strict"),
        "{cookie}"
    );
    assert!(!cookie.contains(&fixed));
    assert_eq!(
        site.get("/session").json()["role"],
        "reader",
        "the planted id is still none"
    );
    site.set_cookie(cookie.split(';').next().unwrap());
    let session = site.get("/session").json();
    assert_eq!(
        (&session["role"], &session["logged_in"]),
        (&json!("admin"), &json!(true))
    );
    assert_ne!(session["token"], before.as_str());
    // The token from before the login is no longer valid.
    let answer = site.raw(
        "POST /api/v1/config/confirm HTTP/1.1",
        &[
            ("X-SQM-Token", &before),
            ("Cookie", &site.cookie()),
            ("Content-Type", "application/json"),
        ],
        b"",
    );
    assert_eq!(answer.code, 403);
    site.admin();
    assert_eq!(site.send("POST", "/config/confirm", &Value::Null).code, 409);
    let audit = site.get("/audit").json();
    let entries = audit["entries"].as_array().unwrap();
    assert!(
        entries
            .iter()
            .any(|entry| entry["what"] == "log-in" && entry["outcome"] == "done"),
        "{audit}"
    );
    assert!(
        entries
            .iter()
            .any(|entry| entry["who"] == "reader" && entry["outcome"] == "log in first"),
        "{audit}"
    );
    assert!(!audit.to_string().contains("correct horse"));
    let log = site.folder().join("web/audit.jsonl");
    assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    // A new password ends the session at once.
    site::set_password(&site.folder().join("web"), "battery staple");
    assert_eq!(site.get("/session").json()["role"], "reader");
}

#[test]
fn guessing_passwords_locks_a_client_out_and_leaves_sessions_alone() {
    let site = Site::start_with_password("correct horse");
    site.log_in("correct horse");
    let owner = site.cookie();
    site.set_cookie("");
    let mut codes = Vec::new();
    for n in 0..12 {
        codes.push(
            site.send("POST", "/session", &json!({"password": format!("guess {n}")}))
                .code,
        );
    }
    assert_eq!(
        codes,
        [401, 401, 401, 401, 401, 429, 429, 429, 429, 429, 429, 429]
    );
    let locked = site.send("POST", "/session", &json!({"password": "correct horse"}));
    assert_eq!(locked.code, 429, "the right one, too: nobody learns which it was");
    let wait: u64 = site::header(&locked.head, "retry-after")
        .unwrap()
        .parse()
        .unwrap();
    assert!((1..=11).contains(&wait), "{wait}");
    site.set_cookie(&owner);
    assert_eq!(site.get("/session").json()["role"], "admin");
}

#[test]
fn addresses_that_other_machines_reach_need_a_password() {
    let folder = tempfile::tempdir().unwrap();
    let web = |listen: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sqm"));
        command
            .args(["web", "--listen", listen, "--dir"])
            .arg(folder.path());
        command
    };
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let output = web(listen).output().unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{listen}: {complaint}");
        assert!(complaint.contains("sqm web --set-password --dir"), "{complaint}");
    }
    let short = site::try_password(folder.path(), "short");
    assert_eq!(short.status.code(), Some(2));
    site::set_password(folder.path(), "long enough");
    let mut server = site::Web::spawn(web("0.0.0.0:0"));
    let answer = server.ask("GET /api/v1/session HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    assert!(answer.body.contains("\"role\":\"reader\""), "{}", answer.body);
    server.end();
    // After the password has been removed, the server refuses to start on this address again.
    fs::remove_file(folder.path().join("password")).unwrap();
    assert_eq!(web("0.0.0.0:0").output().unwrap().status.code(), Some(2));
}

#[test]
fn the_server_holds_no_privilege() {
    let site = Site::start(&[]);
    let status = fs::read_to_string(format!("/proc/{}/status", site.web.pid())).unwrap();
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        let line = status.lines().find(|line| line.starts_with(set)).unwrap();
        assert!(line.ends_with("0000000000000000"), "{line}");
    }
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    if rustix::process::geteuid().is_root() {
        assert!(status.contains("CapBnd:\t0000000000000000"), "{status}");
    }
}

#[test]
fn a_thousand_idle_connections_and_huge_bodies_lock_no_client_out() {
    let site = Site::start(&[]);
    let idle: Vec<TcpStream> = (0..1000)
        .map(|n| {
            let mut stream = TcpStream::connect(("127.0.0.1", site.port)).unwrap();
            if n % 2 == 0 {
                // The server may have evicted the connection already.
                let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: loc");
            }
            stream
        })
        .collect();
    for _ in 0..20 {
        assert_eq!(site.get("/status").code, 200);
    }
    drop(idle);
    let token = site.token();
    for chunked in [false, true] {
        let mut stream = site.connect();
        let framing = if chunked {
            "Transfer-Encoding: chunked"
        } else {
            "Content-Length: 100000000"
        };
        let head = format!(
            "POST /api/v1/config/check HTTP/1.1\r\nHost: {}\r\nX-SQM-Token: {token}\r\nContent-Type: application/json\r\n\
             {framing}\r\n\r\n",
            site.host()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let piece = if chunked {
            let mut piece = b"10000\r\n".to_vec();
            piece.extend([b' '; 0x10000]);
            piece.extend(b"\r\n");
            piece
        } else {
            vec![b' '; 0x10000]
        };
        let taken = (0..1600).take_while(|_| stream.write_all(&piece).is_ok()).count();
        assert!(taken < 1600, "a body of 100 MB was taken");
    }
    let head = format!(
        "GET /api/v1/status HTTP/1.1\r\nHost: {}\r\nX: {}\r\n\r\n",
        site.host(),
        "y".repeat(1 << 20)
    );
    let mut stream = site.connect();
    let _ = stream.write_all(head.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP/1.1 200"));
    assert_eq!(site.get("/status").code, 200);
    let peak = site.web.peak_kib();
    println!("peak of the server's memory: {peak} KiB");
    assert!(peak < 64 * 1024, "{peak} KiB");
}

/// The server has no WebSockets. It answers the upgrade request as a plain request, and frames that follow are not
/// taken for requests.
#[test]
fn frames_of_other_protocols_are_refused() {
    let site = Site::start(&[]);
    for frames in [
        &b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58"[..],
        b"\x8f\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x00\x00\x12\x04\x00\x00\x00\x00\x00",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ] {
        let mut stream = site.connect();
        let upgrade = format!(
            "GET /api/v1/session HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            site.host()
        );
        stream.write_all(upgrade.as_bytes()).unwrap();
        let _ = stream.write_all(frames);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(
            answer.starts_with("HTTP/1.1 200") && !answer.contains("101 Switching"),
            "{answer}"
        );
    }
    let mut stream = site.connect();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP/1.1 200"));
    assert_eq!(site.get("/status").code, 200);
}

#[test]
fn the_second_of_two_writers_gets_a_conflict_and_nothing_is_lost() {
    let site = Site::start(&[]);
    site.admin();
    let revision = site.get("/config").json()["revision"].clone();
    let change = |upload: &str| json!({"revision": revision, "confirm_seconds": 0, "changes": [{"section": 0, "option": "upload", "value": upload}]});
    let first = site.send("PUT", "/config", &change("11000"));
    assert_eq!(first.code, 200, "{}", first.body);
    let second = site.send("PUT", "/config", &change("12000"));
    assert_eq!((second.code, &second.json()["code"]), (409, &json!("conflict")));
    assert_eq!(second.json()["revision"], first.json()["revision"]);
    assert_eq!(site.config(), CONFIG.replace("10000", "11000"));
    // A user who edits the file by hand is detected as well.
    let revision = site.get("/config").json()["revision"].clone();
    fs::write(site.folder().join("sqm.conf"), CONFIG).unwrap();
    let late = site.send(
        "PUT",
        "/config",
        &json!({"revision": revision, "text": "", "confirm_seconds": 0}),
    );
    assert_eq!(late.code, 409);
    assert_eq!(site.config(), CONFIG);
    let wrong = site.send(
        "PUT",
        "/config",
        &json!({
            "revision": site.get("/config").json()["revision"], "text": CONFIG.replace("85000", "fast")
        }),
    );
    assert_eq!(wrong.code, 422);
    assert_eq!(
        wrong.json()["findings"][0]["option"],
        "download",
        "{}",
        wrong.body
    );
    assert_eq!(site.config(), CONFIG);
}

#[test]
fn an_unconfirmed_change_is_rolled_back_even_if_a_process_is_killed() {
    let mut site = Site::start(&[]);
    site.admin();
    let put = |site: &Site, seconds: u32| {
        let revision = site.get("/config").json()["revision"].clone();
        let body = json!({"revision": revision, "confirm_seconds": seconds, "text": CONFIG.replace("10000", "9000")});
        site.send("PUT", "/config", &body)
    };
    let waiting = put(&site, 600);
    assert_eq!(waiting.code, 200, "{}", waiting.body);
    assert_eq!(site.config(), CONFIG.replace("10000", "9000"));
    assert_eq!(
        put(&site, 600).json()["code"],
        "unconfirmed",
        "one change at a time"
    );
    assert_eq!(site.send("POST", "/config/revert", &Value::Null).code, 200);
    assert_eq!(site.config(), CONFIG);

    assert_eq!(put(&site, 1).code, 200);
    site.until("/config", |config| config["unconfirmed"].is_null());
    assert_eq!(site.config(), CONFIG);

    // The daemon dies. The next one still rolls the change back.
    assert_eq!(put(&site, 600).code, 200);
    site.restart_daemon();
    site.until("/status", |status| status["daemon"]["running"] == true);
    assert_eq!(site.config(), CONFIG);

    assert_eq!(put(&site, 600).code, 200);
    assert_eq!(site.send("POST", "/config/confirm", &Value::Null).code, 200);
    site.restart_daemon();
    site.until("/status", |status| status["daemon"]["running"] == true);
    assert_eq!(site.config(), CONFIG.replace("10000", "9000"));
    let left = fs::read_dir(site.folder()).unwrap().flatten();
    let left: Vec<_> = left
        .map(|file| file.file_name())
        .filter(|name| name.to_string_lossy().contains("trial"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn without_a_daemon_the_page_reports_it() {
    let mut site = Site::start(&[]);
    site.admin();
    site.stop_daemon();
    let status = site.get("/status").json();
    assert_eq!(status["daemon"]["health"], "absent");
    assert!(
        status["daemon"]["error"].as_str().unwrap().contains("sqm daemon"),
        "{status}"
    );
    for path in ["/config", "/tune", "/doctor", "/events"] {
        assert_eq!(site.get(path).code, 503, "{path}");
    }
    let answer = site.send(
        "PUT",
        "/config",
        &json!({"revision": "0000000000000000", "text": CONFIG}),
    );
    assert_eq!(answer.code, 503, "{}", answer.body);
}

#[test]
fn tls_encrypts_and_its_certificate_stays_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sqm"));
        command
            .args(["web", "--tls", "--listen", "127.0.0.1:0", "--dir"])
            .arg(folder.path());
        site::Web::spawn(command)
    };
    let mut server = start();
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(
        !answer.starts_with(b"HTTP"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    let greeting = site::tls_greeting(server.port).unwrap();
    assert_eq!(
        &greeting[..3],
        b"\x16\x03\x03",
        "a handshake of TLS is answered by one"
    );
    server.end();
    let certificate = fs::read(folder.path().join("certificate.der")).unwrap();
    let key = fs::metadata(folder.path().join("key.der")).unwrap();
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
    start().end();
    assert_eq!(
        fs::read(folder.path().join("certificate.der")).unwrap(),
        certificate
    );
}

/// Sends random words to the existing routes, and random bytes. Every answer must be documented, and none may report
/// an internal error. `SQM_REQUESTS` sets the number of requests (`make fuzz` sends many more).
#[test]
fn random_requests_do_not_disturb_other_clients() {
    const METHODS: [&str; 7] = ["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS"];
    const ENDS: [&str; 12] = [
        "",
        "",
        "",
        "/",
        "?",
        "?hz=1",
        "?ids=a,b",
        "?last=7",
        "?points=99999",
        "%00",
        "/x",
        "?seconds=-1",
    ];
    const BODIES: [&str; 14] = [
        "",
        "{}",
        "[]",
        "null",
        "{\"host\":\"h h\"}",
        "{\"host\":7}",
        "{\"password\":\"x\"}",
        "{\"revision\":\"0000000000000000\",\"text\":\"config queue\"}",
        "{\"text\":\"config queue\\n\\toption interface 'a'\\n\"}",
        "{\"changes\":[{\"section\":0,\"option\":\"upload\",\"value\":\"\\u0000\"}]}",
        "{\"changes\":[{\"section\":0,\"remove\":true}]}",
        "{\"changes\":[{\"section\":1000000}]}",
        "{\"revision\":\"x\",\"changes\":[],\"confirm_seconds\":4294967296}",
        "\u{1F980}",
    ];
    let count: u32 = std::env::var("SQM_REQUESTS").map_or(600, |n| n.parse().expect("a number"));
    let site = Site::start(&[]);
    site.admin();
    let paths = api::paths();
    let before = site.web.descriptors();
    let mut chance = Chance(8);
    let mut below = |n| chance.below(n);
    for n in 0..count {
        let path = &paths[below(paths.len())];
        let (method, end, body) = (METHODS[below(7)], ENDS[below(12)], BODIES[below(14)]);
        // The doctor and streams take long, and other tests cover them.
        let is_slow = ["doctor", "report", "live", "events"]
            .iter()
            .any(|slow| path.contains(slow));
        if below(4) == 0 {
            let mut stream = site.connect();
            let bytes: Vec<u8> = (0..below(3000)).map(|_| below(256) as u8).collect();
            // The server may refuse the request before its last byte.
            let _ = stream.write_all(if below(2) == 0 {
                &bytes
            } else {
                b"GET /api/v1/status HTTP/1.1\r\nHos"
            });
            continue;
        }
        if is_slow && (method == "GET" || path.contains("fix")) {
            continue;
        }
        let kind = [
            "application/json",
            "application/json; charset=utf-8",
            "text/plain",
        ][below(3)];
        let token = if below(8) == 0 {
            String::new()
        } else {
            site.token()
        };
        let answer = site.raw(
            &format!("{method} /api/v1{path}{end} HTTP/1.1"),
            &[("Content-Type", kind), ("X-SQM-Token", &token)],
            body.as_bytes(),
        );
        assert!(
            answer.code < 500 || answer.code == 503,
            "{n}: {method} {path}{end} {body}: {}",
            answer.body
        );
    }
    while site.web.descriptors() > before {
        assert_eq!(site.get("/status").code, 200);
    }
    assert_eq!(site.config(), CONFIG);
}

#[test]
fn a_slow_client_does_not_delay_others() {
    let site = Site::start(&[]);
    let slow: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut stream = site.connect();
            stream.write_all(b"GET /api/v1/status HT").unwrap();
            stream
        })
        .collect();
    assert_eq!(site.get("/status").code, 200);
    // Streams are limited for each address, and closed ones make room.
    let mut streams: Vec<_> = (0..12).map(|_| site.stream("/live?hz=1")).collect();
    streams.iter_mut().for_each(|stream| drop(stream.event("sample")));
    assert_eq!(site.get("/live").code, 503);
    drop((slow, streams));
    loop {
        let mut stream = site.connect();
        let head = format!("GET /api/v1/live HTTP/1.1\r\nHost: {}\r\n\r\n", site.host());
        stream.write_all(head.as_bytes()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).unwrap();
        if &start == b"HTTP/1.1 200" {
            break;
        }
    }
}

//! `sqm web` beside a daemon with real queues. Changes made through it take effect in the kernel, and attacks on it
//! change nothing there.

use serde_json::Value;
use sqm_lab::{Clock, Home, Line, home};

use crate::lab::shared;

/// A daemon and the web server on the router of this line.
fn boot(line: &str, config: &str) -> Home {
    let line = Line::named(line).expect("a known line");
    let home = shared::home(Clock::Virtual, &line);
    home.write("/etc/config/sqm", config.as_bytes()).expect("a file");
    for (name, text) in [
        ("/tmp/ask.py", include_str!("../web/ask.py")),
        ("/tmp/attack.py", include_str!("../web/attack.py")),
    ] {
        home.write(name, text.as_bytes()).expect("a file");
    }
    home.spawn("router", &["sh", "-c", "exec sqm daemon >/tmp/daemon.log 2>&1"])
        .expect("the daemon starts");
    home.script_on("router", "until [ -S /var/run/sqm/api.sock ]; do sleep 0.1; done")
        .expect("the daemon answers");
    let web = ["sqm", "web", "--dir", "/run/sqm-web"];
    home.spawn_server("router", &web, 8080).expect("sqm web starts");
    home
}

fn section(more: &str) -> String {
    format!(
        "config queue\n\toption enabled '1'\n\toption interface 'wan0'\n\toption download '22400'\n\toption upload '3900'\n\
         \toption script 'best_of_cake.qos'\n{more}"
    )
}

/// Sends a request to the web server. Returns its answer.
fn ask(home: &Home, words: &[&str]) -> Value {
    let words = [&["python3", "/tmp/ask.py"], words].concat();
    let text = home.run_ok("router", &words).expect("it is answered");
    serde_json::from_str(&text).expect("the answer is JSON")
}

fn tc(home: &Home) -> String {
    home.script_on("router", "tc qdisc show dev wan0; tc qdisc show dev ifb4wan0")
        .expect("tc shows the queues")
}

/// Half a minute of ten kinds of attack, with a thousand idle connections and traffic that fills the line. The
/// queues, their rates and their delay stay the same, and the server's memory stays small.
#[test]
fn attacks_on_the_page_do_not_reach_the_queues() {
    let home = boot("cable24", &section("\toption link 'docsis'\n"));
    let quiet = shared::load(&home, &["--duration", "15"]);
    let queues = tc(&home);
    let applied = |home: &Home| {
        let interface = &ask(home, &["GET", "/status"])["interfaces"][0];
        let told = ["state", "applied", "repaired"].map(|field| interface[field].clone());
        assert_eq!(told[0], "shaped", "{interface}");
        told
    };
    let before = applied(&home);
    home.spawn(
        "router",
        &[
            "sh",
            "-c",
            "python3 /tmp/attack.py 8080 30 >/tmp/attack 2>&1; touch /tmp/over",
        ],
    )
    .expect("the attack begins");
    let attacked = shared::load(&home, &["--duration", "15"]);
    let is_over = home
        .script_on("router", "[ ! -e /tmp/over ] || echo over")
        .expect("a shell");
    assert_eq!(is_over.trim(), "", "the attack outlasts the measurement");
    let said = home
        .script_on(
            "router",
            "until [ -e /tmp/over ]; do sleep 0.2; done; cat /tmp/attack",
        )
        .expect("the attack ends");
    println!(
        "{}{said}",
        shared::table(&[
            ("quiet".to_owned(), quiet.clone()),
            ("attacked".to_owned(), attacked.clone())
        ])
    );

    let outcome: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
    assert!(
        outcome["rounds"].as_u64().is_some_and(|rounds| rounds >= 5),
        "{said}"
    );
    for (what, count) in outcome["seen"].as_object().expect("counts") {
        let (_, code) = what.split_once(' ').expect("a name and a code");
        let is_refused = ["400", "403", "404", "409", "413", "closed"].contains(&code);
        // A request for a WebSocket is answered as a plain request.
        assert!(
            is_refused || what == "frames 200",
            "{what}: {count} times; {said}"
        );
    }
    assert_eq!(tc(&home), queues);
    assert_eq!(applied(&home), before);
    home.run_ok("router", &["sqm", "verify"])
        .expect("the kernel holds what is planned");
    for (what, quiet, attacked) in [
        ("download", quiet.down, attacked.down),
        ("upload", quiet.up, attacked.up),
    ] {
        assert!(
            (attacked / quiet - 1.0).abs() < 0.03,
            "{what}: {quiet} Mbit/s, attacked {attacked}"
        );
    }
    let (quiet, attacked) = (quiet.p95_ms, attacked.p95_ms);
    assert!(attacked < quiet + 3.0, "p95: {quiet} ms, attacked {attacked} ms");
    let peak = home
        .script_on("router", "sed -n 's/^VmHWM:[^0-9]*\\([0-9]*\\) kB/\\1/p' /proc/$(pidof -s sqm-web || pgrep -fo '^sqm web')/status")
        .expect("the server is there");
    let peak: u64 = peak.trim().parse().expect("its peak in KiB");
    println!("peak of the server's memory: {peak} KiB");
    assert!(peak < 64 * 1024, "{peak} KiB");
}

/// The line has ATM cells that the configuration does not count. The API applies the doctor's fix, and then the rates
/// of a search with the settings that they need.
#[test]
fn a_fix_and_a_search_through_the_api_take_effect() {
    let home = boot(
        "adsl8",
        &section("\toption linklayer 'atm'\n\toption overhead '0'\n"),
    );
    let found = ask(&home, &["GET", "/doctor"]);
    let is_found = |answer: &Value, list: &str| {
        let findings = answer[list].as_array().expect("findings");
        findings.iter().any(|finding| finding["id"] == "no-overhead")
    };
    assert!(is_found(&found, "findings"), "{found}");
    let fixed = ask(&home, &["POST", "/doctor/fix"]);
    assert!(
        is_found(&fixed, "fixed") && !is_found(&fixed, "findings"),
        "{fixed}"
    );
    assert!(tc(&home).contains("atm overhead 44"), "{}", tc(&home));
    home.run_ok("router", &["sqm", "verify"])
        .expect("the kernel holds what is planned");

    let put = serde_json::json!({
        "revision": ask(&home, &["GET", "/config"])["revision"],
        "text": section("\toption linklayer 'ethernet'\n\toption overhead '40'\n"),
        "confirm_seconds": 0,
    });
    ask(&home, &["PUT", "/config", &put.to_string()]);
    let wanted = format!("{{\"host\": \"{}\"}}", home::SERVER_V4);
    ask(&home, &["POST", "/tune", &wanted]);
    let tune = loop {
        let tune = ask(&home, &["GET", "/tune"]);
        if tune["state"] != "running" {
            break tune;
        }
        home.script("sleep 2").expect("time goes by");
    };
    assert_eq!(tune["state"], "done", "{tune}");
    assert_eq!(tune["plots"].as_array().map(Vec::len), Some(4), "{tune}");
    let picture = home
        .run_ok(
            "router",
            &["python3", "/tmp/ask.py", "GET", "/tune/plots/latency.svg"],
        )
        .expect("a picture");
    assert!(picture.starts_with("<svg"), "{picture}");
    assert!(
        !tc(&home).contains(" atm "),
        "nothing is written before it is taken: {}",
        tc(&home)
    );

    let revision = ask(&home, &["GET", "/config"])["revision"].clone();
    let taken = ask(
        &home,
        &["POST", "/tune/accept", &format!("{{\"revision\": {revision}}}")],
    );
    assert!(!taken["unconfirmed"].is_null(), "{taken}");
    ask(&home, &["POST", "/config/confirm"]);
    let text = ask(&home, &["GET", "/config"])["text"]
        .as_str()
        .expect("a text")
        .to_owned();
    for (option, value) in [
        ("download", &tune["result"]["download_kbit"]),
        ("upload", &tune["result"]["upload_kbit"]),
        ("linklayer", &Value::from("atm")),
    ] {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        assert!(
            text.contains(&format!("option {option} '{value}'")),
            "{option}: {text}"
        );
    }
    assert!(tc(&home).contains(" atm "), "{}", tc(&home));
    home.run_ok("router", &["sqm", "verify"])
        .expect("the kernel holds what is planned");
}

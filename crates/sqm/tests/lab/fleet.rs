//! Routers of a fleet: they take documents through the real server, judge them by the round trips of their users under load, and keep them
//! or put the configuration from before back.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use sqm_lab::{Clock, Home, Line};

use super::guide;
use super::shared::home;

/// A line that carries 7,000 and 1,200 kbit/s: the lab's cable line at a quarter of its rates, which has a quarter of the packets.
fn line() -> Line {
    let mut line = Line::named("cable24").expect("a known line");
    line.down.kbits_per_sec /= 4;
    line.up.kbits_per_sec /= 4;
    line
}

/// A configuration whose upload has this rate, kbit/s.
fn configuration(upload: u32) -> String {
    format!(
        "config queue\n\toption enabled '1'\n\toption interface 'wan0'\n\toption download '6250'\n\toption upload '{upload}'\n\
         \toption script 'best_of_cake.qos'\n\toption linklayer 'ethernet'\n\toption overhead '18'\n"
    )
}

/// A hub on the server, and the router `r1` under it.
fn start(home: &Home) {
    home.write(
        "/tmp/sqm",
        format!(
            "{}# mine\nconfig daemon\n\toption log_level 'debug'\n",
            configuration(1050)
        )
        .as_bytes(),
    )
    .expect("a file");
    home.script(&format!(
        "{HUB}fleet_url=nats://10.66.0.2:4222
         ip netns exec server sqm fleet hub init hub --url $fleet_url --listen 10.66.0.2:4222 --store /tmp/store >/dev/null 2>&1
         ip netns exec server nats-server --config hub/server.conf >nats.log 2>&1 &
         fleet enroll r1 >/dev/null
         key=$(sed -n \"s/^.*fleet_key '\\(.*\\)'/\\1/p\" hub/credentials/r1.conf)
         mkdir -p kept
         STATE_DIRECTORY=/tmp/kept ip netns exec router sqm daemon --config /tmp/sqm \
             --fleet-url $fleet_url --fleet-credentials /tmp/hub/credentials/r1.creds --fleet-key $key >log 2>&1 &
         until [ \"$(state 2>/dev/null)\" = 'no document' ]; do sleep 1; done"
    ))
    .expect("the router reports");
}

/// Shell functions: the operator's commands, and the state of the router.
const HUB: &str = "cd /tmp
    fleet() { ip netns exec server sqm fleet \"$@\" --hub hub; }
    state() { fleet status --json | sed -n 's/^ *\"state\": \"\\(.*\\)\",*$/\\1/p'; }
";

fn upload_in_force(home: &Home) -> String {
    home.script("tc -n router qdisc show dev wan0 root").expect("tc")
}

#[test]
fn a_document_for_a_model_of_hardware_reaches_its_router_and_leaves_other_sections_alone() {
    let home = home(Clock::Virtual, &line());
    start(&home);
    home.write("/tmp/good", configuration(1000).as_bytes())
        .expect("a file");
    home.script(&format!(
        "{HUB}hardware=$(fleet status --json | sed -n 's/^ *\"hardware\": \"\\(.*\\)\",*$/\\1/p')
         if fleet set good --hardware \"not $hardware\" 2>said; then exit 1; fi
         grep -q \"no router has reported the hardware 'not $hardware', but '$hardware'\" said
         fleet set good --hardware \"$hardware\" --observe 30s --longest 30s
         until [ \"$(state)\" = unjudged ]; do sleep 5; waited=$((waited + 5)); [ $waited -lt 60 ]; done"
    ))
    .expect("nobody uses the line, so it is kept without a verdict");
    assert!(upload_in_force(&home).contains("bandwidth 1Mbit"));
    let file = home.script("cat /tmp/sqm").expect("the configuration");
    assert!(
        file.starts_with("# mine\nconfig daemon\n\toption log_level 'debug'\n"),
        "{file}"
    );
}

#[test]
fn a_router_whose_line_nobody_uses_tests_it_itself() {
    let home = home(Clock::Virtual, &line());
    start(&home);
    for (file, upload) in [("/tmp/too-fast", 1500), ("/tmp/good", 1000)] {
        home.write(file, configuration(upload).as_bytes())
            .expect("a file");
    }
    // The quiet hours of the test are now.
    home.script(&format!(
        "{HUB}ip netns exec server sqm serve >/dev/null 2>&1 &
         hour=$(date -u +%H)
         hour=${{hour#0}}
         hours=$(printf '%02d:00-%02d:00' $(((hour + 23) % 24)) $(((hour + 2) % 24)))
         # A router is idle for a minute before its test begins.
         wait_until() {{
             waited=0
             until eval \"$1\"; do sleep 15; waited=$((waited + 15)); [ $waited -lt 600 ]; done
         }}
         set_and_await() {{
             fleet set $1 --all --observe 20s --longest 30s --quiet-test 10.66.0.2 --quiet-hours $hours
             wait_until 'fleet status | grep -q \"idle, from\"'
             wait_until '[ \"$(state)\" != observed ]'
             fleet status >$2
         }}
         set_and_await too-fast said-too-fast
         set_and_await good said-good"
    ))
    .expect("both documents are judged");
    let said = |file: &str| home.script(&format!("cat /tmp/said-{file}")).expect("a file");
    let says = |file: &str, state: &str| {
        let said = said(file);
        let wanted =
            "in a test with 10.66.0.2:35353 under load the 95th percentile of the added round trip went from";
        assert!(said.contains(state) && said.contains(wanted), "{said}");
    };
    // The line carries 1,200 kbit/s.
    says("too-fast", "rolled back");
    says("good", "kept");
    assert!(upload_in_force(&home).contains("bandwidth 1Mbit"));
}

#[test]
fn a_bad_document_halts_at_the_first_router_and_a_good_one_reaches_all() {
    let printed = roll_outs(4, &["r1"]);
    let page = fs::read_to_string(guide::folder().join("fleet.md")).expect("the guide");
    let shown = page
        .split("$ sqm-lab fleet-demo --routers 4\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .expect("the guide shows it");
    let [shown, plain] = [shown, &printed].map(guide::without_figures);
    assert_eq!(shown, plain, "{printed}");
}

/// Runs the demonstration with this many routers. The first document, which is far above the lines' rates, must be known to the first
/// tenth of them alone; the second one must reach all, also the last router, which is offline while it is rolled out. Returns what the
/// demonstration has printed.
pub(crate) fn roll_outs(routers: u8, canaries: &[&str]) -> String {
    let out = tempfile::tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_sqm-lab"))
        .args(["fleet-demo", "--routers", &routers.to_string(), "--out"])
        .arg(out.path())
        .output()
        .expect("sqm-lab runs");
    let printed =
        String::from_utf8_lossy(&output.stdout).replace(&*out.path().to_string_lossy(), "demo-out/fleet");
    assert!(
        output.status.success(),
        "{printed}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );

    let read = |file: &str| -> Value {
        let text =
            fs::read_to_string(out.path().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        serde_json::from_str(&text).expect("JSON")
    };
    let names: Vec<String> = (1..=routers).map(|number| format!("r{number}")).collect();
    for name in &names {
        let is_canary = canaries.contains(&name.as_str());
        let history = read(&format!("{name}.history.json"));
        let entries = history.as_array().expect("a list");
        let revisions: Vec<&Value> = entries
            .iter()
            .filter(|entry| entry["kind"] == "document")
            .map(|entry| &entry["revision"])
            .collect();
        assert_eq!(
            revisions,
            if is_canary { vec![1, 2] } else { vec![2] },
            "{name}: {history:#}"
        );
        let knows_first = entries
            .iter()
            .any(|entry| entry["kind"] == "report" && entry["revision"] == 1);
        assert_eq!(knows_first, is_canary, "{name}: {history:#}");
        assert_eq!(
            is_canary,
            exists(out.path(), &format!("too-fast/{name}.conf")),
            "{name}"
        );
    }
    for name in canaries {
        let report = read(&format!("too-fast/{name}.report.json"));
        let outcome = &report["outcome"];
        assert_eq!(
            (&outcome["state"], &report["in_force"]),
            (&"rolled_back".into(), &0.into()),
            "{report:#}"
        );
        assert!(
            outcome["after"]["loaded_s"].as_u64().expect("measured") <= 60,
            "{report:#}"
        );
        let [before, after] =
            ["before", "after"].map(|when| outcome[when]["p95_ms"].as_f64().expect("measured"));
        assert!(before < 60.0 && after > before + 100.0, "{report:#}");
    }
    for (name, is_last) in names.iter().zip((1..=routers).map(|number| number == routers)) {
        let report = read(&format!("faster/{name}.report.json"));
        let verdict = if is_last { "unjudged" } else { "good" };
        assert_eq!(
            (
                &report["in_force"],
                &report["outcome"]["state"],
                &report["outcome"]["verdict"]
            ),
            (&2.into(), &"kept".into(), &verdict.into()),
            "{report:#}"
        );
    }
    printed
}

fn exists(folder: &Path, file: &str) -> bool {
    folder.join(file).exists()
}

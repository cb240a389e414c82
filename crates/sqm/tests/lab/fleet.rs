//! A router of a fleet: it takes a document through the real server, judges it by the round trips of its users under load, and keeps it or
//! puts the configuration from before back.

use serde_json::Value;
use sqm_lab::{Clock, Home, Line};

use super::shared::home;

/// A configuration whose upload has this rate, kbit/s. The line carries 28,000 and 4,800.
fn configuration(upload: u32) -> String {
    format!(
        "config queue\n\toption enabled '1'\n\toption interface 'wan0'\n\toption download '25000'\n\toption upload '{upload}'\n\
         \toption script 'best_of_cake.qos'\n\toption linklayer 'ethernet'\n\toption overhead '18'\n"
    )
}

/// A hub on the server, and the router `r1` under it, with the daemon's arguments in `/tmp/arguments`.
fn start(home: &Home) {
    home.write(
        "/tmp/sqm",
        format!(
            "# mine\nconfig daemon\n\toption log_level 'debug'\n{}",
            configuration(4200)
        )
        .as_bytes(),
    )
    .expect("a file");
    home.script(
        "cd /tmp
         ip netns exec server sqm fleet hub init hub --url nats://10.66.0.2:4222 --listen 10.66.0.2:4222 --store /tmp/store >/dev/null 2>&1
         ip netns exec server nats-server --config hub/server.conf >nats.log 2>&1 & echo $! >nats.pid
         ip netns exec server sqm fleet enroll r1 --hub hub >enrolled
         key=$(sed -n \"s/^.*fleet_key '\\(.*\\)'/\\1/p\" enrolled)
         echo \"--fleet-url nats://10.66.0.2:4222 --fleet-credentials /tmp/hub/credentials/r1.creds --fleet-key $key\" >arguments
         mkdir -p kept
         until sqm fleet status --hub hub >/dev/null 2>&1 || ip netns exec server sqm fleet status --hub hub >said 2>&1; do sleep 0.5; done",
    )
    .expect("the hub starts");
    start_daemon(home);
    home.script(&format!(
        "{HUB}until [ \"$(state)\" = 'no document' ]; do sleep 1; done"
    ))
    .expect("the router reports");
}

fn start_daemon(home: &Home) {
    home.script(
        "cd /tmp
         STATE_DIRECTORY=/tmp/kept ip netns exec router sqm daemon --config /tmp/sqm $(cat arguments) >log 2>&1 & echo $! >pid
         until sqm status --daemon >said 2>&1 && grep -q '^wan0: shaped' said; do sleep 0.5; done",
    )
    .expect("the daemon shapes");
}

/// Shell functions: the operator's commands, and the state of the router.
const HUB: &str = "cd /tmp
    fleet() { ip netns exec server sqm fleet \"$@\" --hub hub; }
    state() { fleet status --json | sed -n 's/^ *\"state\": \"\\(.*\\)\",*$/\\1/p'; }
    load() { ip netns exec h1 sqm test 10.66.0.2 --together --quiet --json load.json --idle 1 --after 0 --duration $1; }
";

fn row(home: &Home) -> Value {
    let said = home
        .script(&format!("{HUB}fleet status --json"))
        .expect("a status");
    let rows: Value = serde_json::from_str(&said).expect("JSON");
    rows[0].clone()
}

fn upload_in_force(home: &Home) -> String {
    home.script("tc -n router qdisc show dev wan0 root").expect("tc")
}

#[test]
fn a_document_above_the_lines_rate_is_rolled_back_and_a_good_one_is_kept() {
    let home = home(Clock::Virtual, &Line::named("cable24").expect("a known line"));
    start(&home);
    home.write("/tmp/bad", configuration(6000).as_bytes())
        .expect("a file");
    home.write("/tmp/good", configuration(4000).as_bytes())
        .expect("a file");
    let said = home
        .script(&format!(
            "{HUB}load 200s >/dev/null 2>&1 & load=$!
             sleep 60
             fleet set bad --router r1
             until [ \"$(state)\" = 'rolled back' ]; do sleep 5; waited=$((waited + 5)); [ $waited -lt 100 ]; done
             echo rolled back after $waited s
             kill $load; wait $load || true"
        ))
        .expect("it is rolled back");
    let waited: u32 = said
        .split(" after ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next()?.parse().ok())
        .expect("a time");
    assert!(waited <= 60, "{said}");
    let seen = row(&home);
    assert_eq!(
        (&seen["wanted"], &seen["in_force"]),
        (&1.into(), &0.into()),
        "{seen:#}"
    );
    let [before, after] =
        ["before_p95_ms", "after_p95_ms"].map(|name| seen[name].as_f64().expect("measured"));
    assert!(before < 60.0 && after > before + 100.0, "{before} ms, {after} ms");
    assert!(upload_in_force(&home).contains("bandwidth 4200Kbit"));

    home.script(&format!(
        "{HUB}load 200s >/dev/null 2>&1 & load=$!
         sleep 60
         fleet set good --router r1
         until [ \"$(state)\" = kept ]; do sleep 5; waited=$((waited + 5)); [ $waited -lt 120 ]; done
         kill $load; wait $load || true"
    ))
    .expect("it is kept");
    assert!(upload_in_force(&home).contains("bandwidth 4Mbit"));
    let file = home.script("cat /tmp/sqm").expect("the configuration");
    assert!(
        file.starts_with("# mine\nconfig daemon\n\toption log_level 'debug'\n"),
        "{file}"
    );

    // The server dies, and the router starts again without it: shaped as last told.
    home.script(
        "kill -9 $(cat /tmp/nats.pid); kill -9 $(cat /tmp/pid); tc -n router qdisc del dev wan0 root",
    )
    .expect("killed");
    start_daemon(&home);
    assert!(upload_in_force(&home).contains("bandwidth 4Mbit"));
    // The server had acknowledged both documents, so they are there when it comes back.
    home.script(&format!(
        "cd /tmp; ip netns exec server nats-server --config hub/server.conf >nats.log 2>&1 &
         {HUB}until [ \"$(state 2>/dev/null)\" = kept ]; do sleep 5; waited=$((waited + 5)); [ $waited -lt 120 ]; done"
    ))
    .expect("the router is heard again");
    let seen = row(&home);
    assert_eq!(
        (&seen["wanted"], &seen["in_force"]),
        (&2.into(), &2.into()),
        "{seen:#}"
    );
}

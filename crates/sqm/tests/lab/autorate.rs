//! `option autorate` on a line whose rate changes under load, and when everything that it relies on fails.

use super::shared::home;
use serde_json::Value;
use sqm_lab::{Buffer, Clock, Direction, Home, Line};
use sqm_measure::result::TestResult;
use sqm_measure::stats;

/// A line with these initial rates, kbit/s.
pub(crate) fn line(down: u64, up: u64) -> Line {
    let direction = |kbits_per_sec| Direction {
        kbits_per_sec,
        buffer: Buffer::Millis(400),
        boost: None,
    };
    Line {
        name: "varying",
        down: direction(down),
        up: direction(up),
        base_rtt_ms: 25,
        overhead: 18,
        atm: false,
    }
}

pub(crate) fn start(home: &Home, reflectors: &str) {
    start_with(home, reflectors, "");
}

/// Starts autorate with further options.
pub(crate) fn start_with(home: &Home, reflectors: &str, more: &str) {
    let text = format!(
        "config queue\n\toption enabled '1'\n\toption interface 'wan0'\n\toption download '20000'\n\
         \toption upload '4000'\n\toption script 'best_of_cake.qos'\n\toption linklayer 'ethernet'\n\toption overhead '18'\n\
         \toption autorate '1'\n\toption min_download '1000'\n\toption max_download '80000'\n\
         \toption min_upload '500'\n\toption max_upload '20000'\n\toption autorate_reflectors '{reflectors}'\n\toption autorate_log 'rates.csv'\n{more}"
    );
    home.write("/tmp/sqm", text.as_bytes()).expect("a file");
    home.script(
        "LOGS_DIRECTORY=/tmp ip netns exec router sqm daemon --config /tmp/sqm >/tmp/log 2>&1 & echo $! >/tmp/pid
         until sqm status --daemon >/tmp/said 2>&1 && grep -q '^wan0: shaped' /tmp/said; do sleep 0.5; done",
    )
    .expect("the daemon shapes");
}

pub(crate) fn status(home: &Home) -> Value {
    status_of(&home.script("sqm status --daemon --json").expect("a status"))
}

pub(crate) fn status_of(said: &str) -> Value {
    let status: Value = serde_json::from_str(said).expect("JSON");
    status["interfaces"][0].clone()
}

/// A shell function that loads both directions from h1. The load may end early.
pub(crate) const LOAD: &str = "load() { ip netns exec h1 sqm test 10.66.0.2 --together --quiet --json /tmp/load.json --idle 1 --after 0 --duration $1; }
";

/// Like [`rates`], but from a status that was recorded earlier: any time may pass between two scripts.
pub(crate) fn rates_of(status: &Value, when: &str) -> [(f64, String); 2] {
    assert_eq!(status["state"], "shaped", "{when}: {status}");
    [("download", 1.0, 80.0), ("upload", 0.5, 20.0)].map(|(way, min, max)| {
        let one = &status["autorate"][way];
        let mbit = one["rate_bits_per_sec"].as_f64().expect("a rate") / 1e6;
        assert!((min..=max).contains(&mbit), "{when}: {way} {mbit}");
        (mbit, one["reason"].as_str().expect("a reason").to_owned())
    })
}

#[test]
fn a_rate_within_the_bounds_of_autorate_counts_as_configured() {
    let home = home(Clock::Virtual, &line(40_000, 8000));
    let config = "config queue\n\toption enabled '1'\n\toption interface 'wan0'\n\toption download '40000'\n\toption upload '8000'\n\
                  \toption script 'best_of_cake.qos'\n\toption autorate '1'\n\toption min_upload '5mbit'\n\toption max_upload '9mbit'\n";
    home.write("/tmp/sqm", config.as_bytes()).expect("a file");
    home.run_ok("router", &["sqm", "start", "--config", "/tmp/sqm"])
        .expect("sqm start");
    let verify = |rate: &str| {
        home.script(&format!(
            "set +e; tc -n router qdisc change dev wan0 root cake bandwidth {rate}
             ip netns exec router sqm verify --config /tmp/sqm; echo code $?"
        ))
        .expect("the lab answers")
    };
    for rate in ["5mbit", "6mbit", "9mbit"] {
        let said = verify(rate);
        assert!(
            said.contains(&format!("upload {rate}")) && said.contains("code 0"),
            "{said}"
        );
    }
    for rate in ["4900kbit", "9100kbit"] {
        let said = verify(rate);
        assert!(
            said.contains("upload as configured") && said.contains("code 1"),
            "{said}"
        );
    }
    let said = verify("6mbit besteffort");
    assert!(said.contains("besteffort") && said.contains("code 1"), "{said}");
}

/// Reflectors are `sqm serve` and `irtt server`, by both versions of IP. No host answers pings.
#[test]
fn udp_servers_show_one_way_delays() {
    let home = home(Clock::Virtual, &line(40_000, 8000));
    let serve =
        "ip netns exec server sqm serve --quiet & ip netns exec server irtt server >/tmp/irtt 2>&1 & sleep 1";
    home.script(serve).expect("servers");
    let reflectors = ["10.66.0.2", "[fd00:66::2]"].map(|at| format!("sqm://{at} irtt://{at}"));
    start(&home, &reflectors.join(" "));
    home.script(&format!("{LOAD}load 15s")).expect("a load");
    let found = status(&home);
    let [(down, _), (up, _)] = rates_of(&found, "found");
    assert!(down >= 0.75 * 40.0 && up >= 0.75 * 8.0, "{down}/{up}");
    let autorate = &found["autorate"];
    let all = autorate["reflectors"].as_array().expect("reflectors").clone();
    assert_eq!(all.len(), 4);
    for one in &all {
        assert_eq!(one["is_one_way"], true, "{autorate:#}");
        assert!(one["answers"].as_u64() > Some(20), "{autorate:#}");
    }
    assert!(autorate["tcp_samples"].as_u64() > Some(100), "{autorate:#}");

    // Both servers restart and have lost their sessions. The daemon waits half a minute before it contacts irtt
    // again. It probes as long as the line is used: an upload is enough.
    let said = home
        .script(&format!(
            "set +e; kill $(cat /tmp/servers)
             for one in $(cat /tmp/servers); do while grep -q '^State:.[^Z]' /proc/$one/status; do sleep 1; done; done
             {serve}
             ip netns exec h1 sqm test 10.66.0.2 --down 0 --quiet --idle 1 --after 0 --duration 50s; sqm status --daemon --json"
        ))
        .expect("a status");
    let again = status_of(&said)["autorate"]["reflectors"].clone();
    for (one, before) in again.as_array().expect("reflectors").iter().zip(&all) {
        let more = one["answers"].as_u64() > before["answers"].as_u64().map(|n| n + 20);
        assert!(more, "{again:#}");
    }
}

/// The rates of the line whose queues are bypassed, kbit/s. Twice as much takes twice the processor time, and shows the same.
const DOWN: u64 = 10_000;
const UP: u64 = 2000;

/// Lets ICMP and UDP bypass the modem's queues, as some carriers do: they have a band of their own beside the bottleneck.
fn bypass_queues(home: &Home) {
    let mut script = String::new();
    for (device, rate) in [("lan0", DOWN), ("wan0", UP)] {
        let (burst, limit) = (1600 + rate / 4, rate / 8 * 400);
        script += &format!(
            "tc -n modem qdisc replace dev {device} root handle 2: prio bands 2 priomap 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1
             tc -n modem qdisc add dev {device} parent 2:2 handle 1: tbf rate {rate}kbit burst {burst} limit {limit} overhead 4
             for kind in 'ip icmp' 'ip udp' 'ipv6 icmpv6' 'ipv6 udp'; do
                 set -- $kind
                 tc -n modem filter add dev {device} parent 2: protocol $1 flower ip_proto $2 classid 2:1
             done
"
        );
    }
    home.script(&script).expect("the modem takes orders");
}

/// Figures of a load of a minute: the 95th percentile of the round trips of its TCP connections from its 30th second on, and the
/// status and the daemon's log at that time.
struct Loaded {
    round_trip_p95_ms: f64,
    status: Value,
    said: String,
    log: String,
}

fn load_for_a_minute(is_bypassed: bool) -> Loaded {
    let home = home(Clock::Virtual, &line(DOWN, UP));
    if is_bypassed {
        bypass_queues(&home);
    }
    start(
        &home,
        "10.66.0.2 10.66.0.1 10.65.0.2 fd00:66::2 sqm://10.66.0.2 sqm://[fd00:66::2]",
    );
    let status = home
        .script(&format!(
            "{LOAD}load 60s & sleep 30; sqm status --daemon >/tmp/said; cp /tmp/log /tmp/log-then; sqm status --daemon --json; wait"
        ))
        .expect("a status");
    let read = |path: &str| home.script(&format!("cat {path}")).expect("a file");
    let result = TestResult::from_json(&read("/tmp/load.json")).expect("a result");
    let samples = result.flows.iter().flat_map(|flow| &flow.sender);
    let settled = samples.filter(|sample| sample.t_ms >= 30_000.0);
    let round_trips: Vec<f64> = settled.filter_map(|sample| sample.rtt_ms).collect();
    Loaded {
        round_trip_p95_ms: stats::percentile(&round_trips, 95.0).expect("connections"),
        status: status_of(&status),
        said: read("/tmp/said"),
        log: read("/tmp/log-then"),
    }
}

#[test]
fn a_line_whose_queue_is_bypassed_by_probes_is_recognised_and_shaped_like_another() {
    let [usual, bypassed] = [false, true].map(load_for_a_minute);
    let sentence = "icmp and udp are treated specially on this line";
    for (loaded, kinds, times) in [(&usual, 0, 0), (&bypassed, 2, 1)] {
        let Loaded {
            status, said, log, ..
        } = loaded;
        let named = status["autorate"]["specially_treated"].as_array().map(Vec::len);
        assert_eq!(named, Some(kinds), "{status:#}");
        assert_eq!(said.matches(sentence).count(), times, "{said}");
        assert_eq!(log.matches(sentence).count(), times, "{log}");
    }
    let [usual, bypassed] = [usual, bypassed].map(|loaded| loaded.round_trip_p95_ms);
    assert!(bypassed <= usual + 10.0, "{bypassed} ms against {usual} ms");
}

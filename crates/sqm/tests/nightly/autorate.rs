//! `option autorate` for minutes: on lines whose rates change every few seconds, over a satellite, and while everything
//! that the daemon relies on fails.

use std::fmt::Write;

use serde_json::Value;
use sqm_core::rng::Xorshift;
use sqm_lab::{Clock, Home, Line, home::SERVER_V4};
use sqm_measure::result::{Summary, TestResult};

use crate::lab::autorate::{LOAD, line, rates_of, start, start_with, status, status_of};
use crate::lab::shared::home;

/// The server, the core and its other side, by IPv4 and IPv6. Which hosts answer does not matter here.
const REFLECTORS: &str = "10.66.0.2 10.66.0.1 10.65.0.2 fd00:66::2 fd00:66::1 fd00:65::2";

/// Payload per byte on the line, in full-size packets.
const GOOD: f64 = 1448.0 / 1518.0;

/// Current rates of download and upload, Mbit/s, with their reasons. Fails unless the interface is shaped and the
/// rates are within their bounds.
fn rates(home: &Home, when: &str) -> [(f64, String); 2] {
    rates_of(&status(home), when)
}

/// Changes the modem's rates in the background. Each entry has a duration in seconds, then download and upload in
/// kbit/s.
fn vary(home: &Home, schedule: &[(u64, u64, u64)]) {
    let mut script = String::from("( ");
    for (seconds, down, up) in schedule {
        for (device, rate) in [("lan0", down), ("wan0", up)] {
            let (burst, limit) = (1600 + rate / 4, rate / 8 * 400);
            write!(
                script,
                "tc -n modem qdisc change dev {device} root handle 1: tbf rate {rate}kbit burst {burst} limit {limit} \
                 overhead 4; "
            )
            .expect("a String takes everything");
        }
        write!(script, "sleep {seconds}; ").expect("a String takes everything");
    }
    home.script(&format!("{script}) >/tmp/vary 2>&1 &"))
        .expect("the modem takes orders");
}

/// A line changes every 5 to 20 s. Each step has a duration in seconds, then download and upload in kbit/s.
const EVERY_FEW_SECONDS: [(u64, u64, u64); 25] = [
    (7, 40_000, 8000),
    (12, 16_000, 5000),
    (5, 30_000, 10_000),
    (18, 55_000, 12_000),
    (9, 24_000, 4000),
    (6, 12_000, 6000),
    (14, 35_000, 9000),
    (20, 48_000, 5000),
    (11, 20_000, 8000),
    (8, 60_000, 14_000),
    (16, 28_000, 7000),
    (5, 14_000, 4000),
    (13, 42_000, 10_000),
    (10, 22_000, 6000),
    (19, 50_000, 12_000),
    (7, 18_000, 5000),
    (15, 33_000, 8000),
    (6, 26_000, 11_000),
    (17, 45_000, 6000),
    (9, 15_000, 9000),
    (12, 38_000, 5000),
    (20, 30_000, 8000),
    (8, 52_000, 13_000),
    (14, 21_000, 7000),
    (19, 36_000, 9000),
];

#[test]
fn the_rates_follow_a_line_that_changes_every_few_seconds() {
    follow("", &EVERY_FEW_SECONDS, "--down 4 --up 4", 25.0);
}

#[test]
fn the_rates_follow_a_line_if_only_tcp_connections_show_the_direction() {
    let status = follow(
        "for n in server core; do
            ip netns exec $n iptables -A INPUT -p icmp --icmp-type timestamp-request -j DROP
        done",
        &EVERY_FEW_SECONDS,
        "--down 4 --up 4",
        28.0,
    );
    assert!(
        status["autorate"]["tcp_samples"].as_u64() > Some(1000),
        "{status}"
    );
}

#[test]
fn the_rate_of_a_download_alone_follows_a_line_that_changes_every_few_seconds() {
    // The first 126 s.
    follow("", &EVERY_FEW_SECONDS[..11], "--down 4 --up 0", 17.0);
}

/// A new pair of rates every 1 to 4 s, by a random walk between 7 and 70 and between 2 and 18 Mbit/s.
#[test]
fn the_rates_follow_a_line_that_walks_at_random() {
    let mut random = Xorshift::new(1);
    let mut between = |low: u64, high: u64| low + random.next_u64() % (high - low + 1);
    let (mut download, mut upload) = (30_000, 8000);
    let steps = (0..48).map(|_| {
        download = (download * between(50, 200) / 100).clamp(7000, 70_000);
        upload = (upload * between(50, 200) / 100).clamp(2000, 18_000);
        (between(1, 4), download, upload)
    });
    follow("", &steps.collect::<Vec<_>>(), "--down 4 --up 4", 36.0);
}

/// Follows a line with these steps under load, after the commands in `prepare`. Fails if something goes wrong or if more than
/// `most_ms` is added. Returns the final status.
fn follow(prepare: &str, schedule: &[(u64, u64, u64)], load: &str, most_ms: f64) -> Value {
    let home = home(Clock::Virtual, &line(40_000, 8000));
    home.script(prepare).expect("the lab answers");
    start(&home, REFLECTORS);
    vary(&home, schedule);
    let seconds: u64 = schedule.iter().map(|(seconds, ..)| seconds).sum();
    let json = home
        .script(&format!(
            "ip netns exec h1 sqm test {SERVER_V4} {load} --together --quiet --json - --idle 1 --after 0 --duration {seconds}s \
             --probe-interval 40ms"
        ))
        .expect("sqm test measures");
    let summary = TestResult::from_json(&json).expect("a result").summary;
    let mean = |of: fn(&(u64, u64, u64)) -> u64| {
        schedule.iter().map(|step| step.0 * of(step)).sum::<u64>() as f64 / seconds as f64 / 1000.0 * GOOD
    };
    let down = summary.download_mbit.map(|mbit| mbit / mean(|step| step.1));
    let up = summary.upload_mbit.map(|mbit| mbit / mean(|step| step.2));
    let added = summary.latency_p95_ms.expect("samples") - summary.idle_ms.expect("samples");
    let status = status(&home);
    println!(
        "{load}, {seconds} s: p95 {added:.1} ms, use {down:.3?}/{up:.3?}; {:#}\n{}",
        status["autorate"],
        home.script("cat /tmp/log /tmp/vary").unwrap_or_default()
    );
    assert!(added <= most_ms, "{added} ms");
    // There is no figure for a direction without flows.
    let is_used = down >= Some(0.8) && up.is_none_or(|up| up >= 0.8);
    assert!(is_used, "use {down:.3?}/{up:.3?}");
    assert_eq!(up.is_some(), load.contains("--up 4"), "use {down:.3?}/{up:.3?}");
    status
}

/// Replays the daemon's log, which holds all of its samples and decisions. The replay must give the same decisions
/// bit for bit.
fn is_replayed_as_it_was(home: &Home) {
    let said = home
        .script("sqm autorate replay --json $(ls /tmp/rates.csv.old 2>/dev/null) /tmp/rates.csv")
        .expect("a report");
    let report: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(report["first_difference"], Value::Null, "{report:#}");
    assert!(report["decisions"].as_u64() > Some(100), "{report:#}");
    println!(
        "{} s, {} lines, {} bytes",
        report["seconds"],
        report["decisions"],
        home.script("cat /tmp/rates.csv* | wc -c")
            .unwrap_or_default()
            .trim()
    );
}

#[test]
fn learned_capacities_outlive_the_daemon() {
    let home = home(Clock::Virtual, &line(40_000, 8000));
    start(&home, REFLECTORS);
    home.script(&format!("{LOAD}load 40s")).expect("a load");
    let [(found, _), _] = rates(&home, "found");
    assert!(found >= 30.0, "{found}");
    let again = |how: &str| {
        home.script(&format!(
            "kill -QUIT $(cat /tmp/pid); while grep -q '^State:.[^Z]' /proc/$(cat /tmp/pid)/status; do sleep 0.1; done; {how}"
        ))
        .expect("it ends");
        start(&home, REFLECTORS);
        home.script("sleep 1").expect("a second");
    };
    again("cp /var/run/sqm/autorate-wan0.learned /tmp/learned");
    let kept = home.script("cat /tmp/learned").expect("a file");
    assert!(kept.contains("download") && kept.contains("upload"), "{kept}");
    let [(down, _), _] = rates(&home, "learned");
    assert!(down >= 0.8 * found, "{down} of {found}: {kept}");

    again("echo nonsense >/var/run/sqm/autorate-wan0.learned");
    let [(down, _), _] = rates(&home, "nothing known");
    assert!((19.0..=21.0).contains(&down), "as the file says: {down}");
    is_replayed_as_it_was(&home);
}

/// A geostationary satellite link under three loads of 40 s. Returns the added latency (95th percentile, ms), the
/// goodput down and up (Mbit/s), and the daemon's status as text.
fn by_satellite(more: &str) -> (f64, [f64; 2], String) {
    let satellite = Line {
        base_rtt_ms: 600,
        ..line(25_000, 5000)
    };
    let home = home(Clock::Virtual, &satellite);
    home.script(
        "ip -n core route add 10.77.0.0/24 via 10.66.0.2
         for n in 1 2 3; do ip -n server addr add 10.77.0.$n/32 dev lo; done; ip -n server link set lo up",
    )
    .expect("reflectors");
    start_with(&home, "10.77.0.1 10.77.0.2 10.77.0.3", more);
    let test = "sqm test 10.66.0.2 --together --quiet --json - --idle 10 --after 0 --duration 40s";
    let words: Vec<_> = test.split(' ').collect();
    let tests = [(); 3].map(|()| {
        let json = home.run_ok("h1", &words).expect("sqm test measures");
        TestResult::from_json(&json).expect("a result").summary
    });
    let mean = |of: fn(&Summary) -> f64| tests.iter().map(of).sum::<f64>() / tests.len() as f64;
    let added = mean(|s| s.latency_p95_ms.expect("samples") - s.idle_ms.expect("samples"));
    let carried = [
        mean(|s| s.download_mbit.expect("downloads")),
        mean(|s| s.upload_mbit.expect("uploads")),
    ];
    println!("{more:?}: {added:.1} ms, {carried:.2?} Mbit/s");
    let said = home.script("sqm status --daemon").expect("a status");
    (added, carried, said)
}

#[test]
fn a_satellite_path_has_hardly_a_queue_and_carries_more_with_the_advised_rtt() {
    let (added, usual, said) = by_satellite("");
    assert!(added <= 10.0, "{added} ms");
    let (_, advised) = said.split_once("option cake_rtt '").expect("an advice");
    let (interval, _) = advised.split_once('\'').expect("a time");
    let (added, patient, said) = by_satellite(&format!("\toption cake_rtt '{interval}'\n"));
    assert!(added <= 10.0, "{added} ms");
    assert!(!said.contains("cake_rtt"), "{said}");
    assert!(patient[0] >= 1.2 * usual[0], "{usual:?} {patient:?}");
}

#[test]
fn the_line_stays_shaped_and_the_rates_return_after_any_failure() {
    let home = home(Clock::Virtual, &line(40_000, 8000));
    home.script(
        "ip -n core route add 10.77.0.0/24 via 10.66.0.2
         for n in 1 2 3; do ip -n server addr add 10.77.0.$n/32 dev lo; done; ip -n server link set lo up",
    )
    .expect("reflectors");
    start(&home, "10.77.0.1 10.77.0.2 10.77.0.3");
    let sh = |script: &str| {
        home.script(&format!("set +e; {LOAD}{script}; true"))
            .expect("the lab answers")
    };
    let is_found = |when: &str| {
        sh("load 20s");
        let [(down, _), (up, _)] = rates(&home, when);
        assert!(down >= 0.75 * 40.0 && up >= 0.75 * 8.0, "{when}: {down}/{up}");
    };
    is_found("at first");

    // The reflectors stop answering under load. The load itself goes on, and its output is discarded, because the lab
    // would wait for its end.
    let late_in_a_load = "load 20s >/dev/null 2>&1 & sleep 18; sqm status --daemon --json";
    sh("for n in 1 2 3; do ip -n server addr del 10.77.0.$n/32 dev lo; done");
    let said = status_of(&sh(late_in_a_load));
    let [(down, why), (up, _)] = rates_of(&said, "reflectors dead");
    assert!(
        down >= 0.75 * 40.0 && up >= 0.75 * 8.0 && !why.contains("no signals"),
        "the load itself tells: {down}/{up} {why}, {}",
        said["autorate"]
    );
    assert!(said["autorate"]["tcp_samples"].as_u64() > Some(100), "{said}");

    // TCP connections give no delays either.
    let stamps = |on: u8| {
        format!(
            "wait; for n in h1 server; do echo {on} | ip netns exec $n tee /proc/sys/net/ipv4/tcp_timestamps; done >/dev/null; "
        )
    };
    let said = status_of(&sh(&(stamps(0) + late_in_a_load)));
    let [(down, why), _] = rates_of(&said, "no signals");
    assert!(
        why.contains("no signals") || why.contains("towards base"),
        "{why}"
    );
    assert!(down >= 19.0, "it goes to base, not to nothing: {down}");
    sh(&(stamps(1) + "sleep 4; for n in 1 2 3; do ip -n server addr add 10.77.0.$n/32 dev lo; done"));
    is_found("reflectors back");

    // The answers of all reflectors are delayed at random.
    sh("tc -n server qdisc add dev eth0 root handle 1: prio
        tc -n server qdisc add dev eth0 parent 1:3 netem delay 100ms 100ms
        tc -n server filter add dev eth0 parent 1: protocol ip u32 match ip src 10.77.0.0/24 flowid 1:3
        load 20s");
    rates(&home, "reflectors lie");
    sh("tc -n server qdisc del dev eth0 root");
    is_found("reflectors tell the truth again");

    // All reflectors together answer at most twice a second.
    sh(
        "echo 16385 | ip netns exec server tee /proc/sys/net/ipv4/icmp_ratemask
        echo 500 | ip netns exec server tee /proc/sys/net/ipv4/icmp_ratelimit
        load 20s",
    );
    let lost = |status: Value| -> u64 {
        let reflectors = status["autorate"]["reflectors"]
            .as_array()
            .expect("reflectors")
            .clone();
        reflectors.iter().filter_map(|one| one["lost"].as_u64()).sum()
    };
    assert!(lost(status(&home)) > 100, "the limit holds");
    rates(&home, "reflectors answer seldom");
    sh("echo 6168 | ip netns exec server tee /proc/sys/net/ipv4/icmp_ratemask; sleep 31");
    is_found("reflectors answer always");

    // The wall clock jumps forth and back.
    sh(
        "load 20s & sleep 6; date -s @$(($(date +%s) + 3600)); sleep 6; date -s @$(($(date +%s) - 3600)); wait",
    );
    rates(&home, "the clock has jumped");
    is_found("after the jumps");

    // The line carries nothing for half a minute.
    let modem = |rate: u64| {
        format!(
            "for d in lan0 wan0; do tc -n modem qdisc change dev $d root handle 1: tbf rate {rate}bit burst 5k limit 200k; done"
        )
    };
    sh(&format!("load 50s & sleep 5; {}; sleep 30", modem(1000)));
    rates(&home, "no capacity");
    sh(&format!("{}; wait", modem(8_000_000)));
    sh("load 20s");
    let [(down, _), (up, _)] = rates(&home, "capacity back");
    assert!(
        down >= 0.75 * 8.0 && up >= 0.75 * 8.0,
        "capacity back: {down}/{up}"
    );

    // The device goes down and comes back.
    sh(
        "load 20s & sleep 5; ip -n router link set wan0 down; sleep 5; ip -n router link set wan0 up
        ip -n router route add default via 10.64.0.2; wait; load 20s",
    );
    let [(down, _), (up, _)] = rates(&home, "device back");
    assert!(down >= 0.75 * 8.0 && up >= 0.75 * 8.0, "device back: {down}/{up}");

    // The device is removed under load, and is made again.
    sh(&format!(
        "load 20s & sleep 5; ip -n router link del wan0; sleep 5
        ip -n router link add wan0 type veth peer name lan0 netns modem
        for end in router/wan0 modem/lan0; do
            ip netns exec ${{end%/*}} ethtool -K ${{end#*/}} tso off gso off gro off tx off rx off >/dev/null 2>&1
        done
        tc -n modem qdisc add dev lan0 root handle 1: tbf rate 8mbit burst 5k limit 200k
        ip -n modem addr add 10.64.0.2/30 dev lan0; ip -n modem link set lan0 up
        ip -n router addr add 10.64.0.1/30 dev wan0; ip -n router link set wan0 up
        ip -n modem route add 192.168.1.0/24 via 10.64.0.1
        ip -n router route add default via 10.64.0.2
        wait; {}; load 20s",
        modem(8_000_000)
    ));
    let [(down, _), (up, _)] = rates(&home, "device made again");
    assert!(
        down >= 0.75 * 8.0 && up >= 0.75 * 8.0,
        "device made again: {down}/{up}"
    );

    // The daemon dies. The last rates stay in force.
    rates(&home, "before the end");
    let kept = sh(
        "kill -KILL $(cat /tmp/pid); tc -n router qdisc show dev wan0 root >/tmp/then
         sleep 5; tc -n router qdisc show dev wan0 root | cmp - /tmp/then && cat /tmp/then",
    );
    assert!(kept.contains("cake 1: root"), "{kept}");
    home.run_ok("router", &["sqm", "verify", "--config", "/tmp/sqm"])
        .expect("they are what autorate may choose");
    is_replayed_as_it_was(&home);
}

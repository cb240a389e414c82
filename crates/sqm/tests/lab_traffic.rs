//! Our set-ups under traffic: equal shares for hosts, no packet lost by a change, and latency as low as the kernel's
//! queues reach when they are set up by hand.

mod lab;

use lab::{Figures, home, load, table};
use sqm_lab::{Clock, Home, Line, home::SERVER_V4};
use sqm_measure::result::TestResult;

fn start(home: &Home, script: &str, download: u64, upload: u64, options: &str) {
    let text = format!(
        "config queue\n\toption enabled '1'\n\toption interface 'wan0'\n\toption download '{download}'\n\
         \toption upload '{upload}'\n\toption script '{script}.qos'\n{options}"
    );
    home.write("/tmp/sqm", text.as_bytes()).expect("a file");
    home.run_ok("router", &["sqm", "start", "--config", "/tmp/sqm"])
        .expect("sqm start");
}

#[test]
fn hosts_behind_nat_get_equal_shares() {
    // A short way, so that one flow can fill its half: with 65 ms it takes its time after every drop.
    let home = home(Clock::Virtual, &Line::named("vdsl80").expect("a known line"));
    let options = "\toption linklayer 'ethernet'\n\toption overhead '30'\n";
    start(&home, "best_of_cake", 76_000, 19_000, options);
    let many = [
        "sqm",
        "test",
        SERVER_V4,
        "--quiet",
        "--down",
        "8",
        "--up",
        "8",
        "--json",
        "/tmp/h2.json",
    ];
    home.spawn("h2", &many).expect("h2 measures");
    let one = load(&home, &["--down", "1", "--up", "1"]);
    let json = home
        .script("set +e; while ! [ -s /tmp/h2.json ]; do sleep 0.2; done; sleep 0.2; cat /tmp/h2.json")
        .expect("h2 has a result");
    let eight = TestResult::from_json(&json)
        .expect("sqm test prints a result")
        .summary;
    for (what, one, eight) in [
        ("down", one.down, eight.download_mbit),
        ("up", one.up, eight.upload_mbit),
    ] {
        let share = one / (one + eight) * 100.0;
        println!("{what}: one flow {one:.2} Mbit/s, eight flows {eight:.2} Mbit/s: {share:.1} %");
        assert!(
            (47.0..=53.0).contains(&share),
            "{what}: {one} against {eight} Mbit/s: {share:.1} %"
        );
    }
}

#[test]
fn a_hundred_reloads_under_load_lose_nothing() {
    let home = home(Clock::Virtual, &Line::named("cable24").expect("a known line"));
    // Plain queues, larger than all that TCP sends ahead: whatever is dropped, a reload dropped.
    let options = "\toption qdisc 'pfifo'\n\toption ilimit '50000'\n\toption elimit '50000'\n\toption linklayer 'ethernet'
\toption overhead '18'\n";
    start(&home, "simplest", 24_000, 4400, options);
    home.spawn("h1", &["sqm", "test", SERVER_V4, "--quiet", "--duration", "60s"])
        .expect("h1 measures");
    let answer = home
        .script(
            "set +e; cd /tmp; sed 's/24000/23000/; s/4400/4300/' sqm >slower; sleep 8
             for n in $(seq 100); do
                 [ $((n % 2)) = 0 ] && config=sqm || config=slower
                 ip netns exec router sqm reload --config $config >said || cat said
                 sleep 0.3
                 tc -n modem -s qdisc show dev wan0 root | grep backlog
                 tc -n router -s qdisc show dev wan0 root | grep Sent
             done
             tc -n router -s qdisc show dev wan0; tc -n router -s qdisc show dev ifb4wan0
             ip netns exec router sqm verify --config sqm",
        )
        .expect("the lab answers");
    let dropped: Vec<&str> = answer
        .split("dropped ")
        .skip(1)
        .map(|rest| &rest[..rest.find(',').unwrap_or(0)])
        .collect();
    assert!(
        dropped.len() > 100 && dropped.iter().all(|n| *n == "0"),
        "{answer}"
    );
    // Less than two packets wait at the modem: nothing left the router faster than the line.
    let waiting: Vec<u64> = answer
        .lines()
        .filter(|line| line.contains("backlog"))
        .take(100)
        .filter_map(|line| line.split_whitespace().nth(1)?.strip_suffix('b')?.parse().ok())
        .collect();
    assert!(
        waiting.len() == 100 && waiting.iter().all(|bytes| *bytes <= 2 * 1514),
        "{waiting:?}"
    );
    // The same queue all along: its counter only grows, and it never was idle.
    let sent: Vec<u64> = answer
        .lines()
        .filter(|line| line.trim_start().starts_with("Sent"))
        .take(100)
        .filter_map(|line| line.split_whitespace().nth(1)?.parse().ok())
        .collect();
    assert!(
        sent.len() == 100 && sent.windows(2).all(|pair| pair[0] < pair[1]),
        "{sent:?}"
    );
    assert!(answer.contains("the kernel holds what is configured"), "{answer}");
}

/// Lines of the truth table with the set-ups that have a counterpart there: goodput down and up, median latency.
type Row = (&'static str, &'static str, u64, u64, &'static str, [f64; 3]);
const TRUTH: [Row; 8] = [
    (
        "cable24",
        "best_of_cake",
        24_000,
        4400,
        "\toption link 'docsis'\n",
        [22.18, 3.62, 67.0],
    ),
    ("cable24", "simple", 24_000, 4400, CABLE, [22.38, 3.60, 67.0]),
    ("cable24", "layer_cake", 24_000, 4400, CABLE, [22.23, 3.60, 67.1]),
    (
        "cable24",
        "simplest_tbf",
        24_000,
        4400,
        CABLE,
        [22.45, 3.60, 67.0],
    ),
    ("cable24", "hfsc_litest", 24_000, 4400, CABLE, [22.29, 3.62, 68.7]),
    ("cable24", "hfsc_lite", 24_000, 4400, CABLE, [22.29, 3.62, 68.7]),
    ("up1m", "best_of_cake", 13_000, 950, CABLE, [12.01, 0.65, 24.5]),
    ("up1m", "simple", 13_000, 950, CABLE, [11.83, 0.56, 23.5]),
];
const CABLE: &str = "\toption linklayer 'ethernet'\n\toption overhead '18'\n\toption tcMPU '64'\n";

#[test]
fn latency_and_goodput_are_those_of_queues_set_by_hand() {
    let mut rows: Vec<(String, Figures)> = Vec::new();
    let mut wrong = Vec::new();
    let mut booted: Option<(&str, Home)> = None;
    for (line, script, download, upload, options, [down, up, median]) in TRUTH {
        if booted.as_ref().is_none_or(|(name, _)| *name != line) {
            let line_data = Line::named(line).expect("a known line");
            booted = Some((line, home(Clock::Virtual, &line_data)));
        }
        let (_, home) = booted.as_ref().expect("booted just now");
        start(home, script, download, upload, options);
        let found = load(home, &[]);
        home.run_ok("router", &["sqm", "stop"]).expect("sqm stop");
        // The bounds of tests/lab_truth.rs, one-sided: better is no fault. One packet is a large part of a slow line.
        let (latency, goodput) = if line == "up1m" {
            (1.25, 0.85)
        } else {
            (1.05, 0.97)
        };
        let good = found.median_ms <= median * latency + 0.5
            && found.down >= down * goodput
            && found.up >= up * goodput;
        let name = format!("{line} {script}");
        if !good {
            wrong.push(format!("{name}: expected {median} ms, {down} and {up} Mbit/s"));
        }
        rows.push((name, found));
    }
    println!("{}", table(&rows));
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), table(&rows));
}

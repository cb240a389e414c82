//! The setup scripts under traffic: hosts get equal shares, changes lose no packets, and latency is as low as with the same
//! queues set up by hand.

use super::shared::{home, load, start};
use sqm_lab::{Clock, Home, Line, home::SERVER_V4};
use sqm_measure::result::TestResult;

/// A line, its rates in kbit/s, options beside the setup script, and for each direction whether its shares are judged.
type Shared = (&'static str, u64, u64, &'static str, [bool; 2]);

pub(crate) const CABLE: &str = "\toption link 'docsis'\n";

pub(crate) const LINES: [Shared; 10] = [
    ("cable24", 24_000, 4400, CABLE, [true, true]),
    (
        "vdsl80",
        76_000,
        19_000,
        "\toption link 'vdsl2-pppoe'\n",
        [true, true],
    ),
    ("cable180", 135_000, 12_000, CABLE, [true, true]),
    ("up1m", 13_000, 950, CABLE, [true, true]),
    ("boost24", 24_000, 4400, CABLE, [true, true]),
    // A host's share counts all of its bytes. If the upload has a ninth of the download's rate or less,
    // acknowledgements are a large part of them. The ACK filter removes more of one flow's acknowledgements than of
    // eight flows', and the host with one flow gets the rate that this saves.
    (
        "adsl8",
        7600,
        760,
        "\toption link 'adsl-pppoe-llc'\n",
        [true, false],
    ),
    (
        "adsl8",
        7600,
        760,
        "\toption link 'adsl-pppoe-llc'\n\toption egress_cake_ack_filter 'off'\n",
        [false, true],
    ),
    ("asym100", 90_000, 2250, CABLE, [true, false]),
    (
        "asym100",
        90_000,
        2250,
        "\toption link 'docsis'\n\toption egress_cake_ack_filter 'off'\n",
        [false, true],
    ),
    ("fiber1g", 900_000, 900_000, CABLE, [true, true]),
];

#[test]
fn hosts_behind_nat_get_equal_shares() {
    judge_shares(&LINES[0]);
}

pub(crate) fn judge_shares(&(name, download, upload, options, judged): &Shared) {
    let home = home(Clock::Virtual, &Line::named(name).expect("a known line"));
    start(&home, "best_of_cake", download, upload, options);
    for (share, is_judged) in shares(&home, name).into_iter().zip(judged) {
        assert!(
            !is_judged || (47.0..=53.0).contains(&share),
            "{name}: {share:.1} %"
        );
    }
}

/// The share of a host with one flow each way against one with eight, down and up, in percent.
pub(crate) fn shares(home: &Home, name: &str) -> [f64; 2] {
    let length = match name {
        // The rate is high enough for a short test, and slow start ends early.
        "fiber1g" => ["--settle", "3", "--duration", "8"],
        // A single packet is a large part of what these lines carry.
        "up1m" | "adsl8" => ["--settle", "4", "--duration", "300"],
        _ => ["--settle", "4", "--duration", "60"],
    };
    let many = [
        &[
            "sqm",
            "test",
            SERVER_V4,
            "--together",
            "--quiet",
            "--idle",
            "3",
            "--json",
            "/tmp/h2.json",
        ][..],
        &["--down", "8", "--up", "8"],
        &length,
    ]
    .concat();
    home.script("rm -f /tmp/h2.json").expect("the lab answers");
    home.spawn("h2", &many).expect("h2 measures");
    let one = load(home, &[&["--down", "1", "--up", "1"], &length[..]].concat());
    let json = home
        .script("set +e; while ! [ -s /tmp/h2.json ]; do sleep 1; done; sleep 0.2; cat /tmp/h2.json")
        .expect("h2 has a result");
    let eight = TestResult::from_json(&json)
        .expect("sqm test prints a result")
        .summary;
    [
        ("down", one.down, eight.download_mbit.expect("downloads")),
        ("up", one.up, eight.upload_mbit.expect("uploads")),
    ]
    .map(|(way, one, eight)| {
        let share = one / (one + eight) * 100.0;
        println!("{name} {way}: one flow {one:.2} Mbit/s, eight flows {eight:.2} Mbit/s: {share:.1} %");
        share
    })
}

#[test]
fn reloads_under_load_lose_nothing() {
    reload_under_load(10);
}

/// Reloads this many times, with another rate each time.
pub(crate) fn reload_under_load(times: usize) {
    let home = home(Clock::Virtual, &Line::named("cable24").expect("a known line"));
    // Plain queues, larger than all data that TCP has in flight. Any drop is caused by a reload.
    let options = "\toption qdisc 'pfifo'\n\toption ilimit '50000'\n\toption elimit '50000'\n\toption linklayer 'ethernet'
\toption overhead '18'\n";
    start(&home, "simplest", 24_000, 4400, options);
    home.spawn(
        "h1",
        &[
            "sqm",
            "test",
            SERVER_V4,
            "--together",
            "--quiet",
            "--duration",
            &format!("{}s", 20 + times * 2 / 5),
        ],
    )
    .expect("h1 measures");
    let answer = home
        .script(
            &(format!("times={times}\n")
                + "set +e; cd /tmp; sed 's/24000/23000/; s/4400/4300/' sqm >slower; sleep 8
             for n in $(seq $times); do
                 [ $((n % 2)) = 0 ] && config=sqm || config=slower
                 ip netns exec router sqm reload --config $config >said 2>&1 || { echo refused; cat said; }
                 sleep 0.3
                 tc -n modem -s qdisc show dev wan0 root | grep backlog
                 tc -n router -s qdisc show dev wan0 root | grep Sent
             done
             tc -n router -s qdisc show dev wan0; tc -n router -s qdisc show dev ifb4wan0
             ip netns exec router sqm verify --config sqm"),
        )
        .expect("the lab answers");
    assert!(!answer.contains("refused"), "{answer}");
    let dropped: Vec<&str> = answer
        .split("dropped ")
        .skip(1)
        .map(|rest| &rest[..rest.find(',').unwrap_or(0)])
        .collect();
    assert!(
        dropped.len() > times && dropped.iter().all(|n| *n == "0"),
        "{answer}"
    );
    // Less than two packets wait at the modem: the router never sent faster than the line.
    let waiting: Vec<u64> = answer
        .lines()
        .filter(|line| line.contains("backlog"))
        .take(times)
        .filter_map(|line| line.split_whitespace().nth(1)?.strip_suffix('b')?.parse().ok())
        .collect();
    assert!(
        waiting.len() == times && waiting.iter().all(|bytes| *bytes <= 2 * 1514),
        "{waiting:?}"
    );
    // A reload keeps the queue: its counter only grows, and the queue never was idle.
    let sent: Vec<u64> = answer
        .lines()
        .filter(|line| line.trim_start().starts_with("Sent"))
        .take(times)
        .filter_map(|line| line.split_whitespace().nth(1)?.parse().ok())
        .collect();
    assert!(
        sent.len() == times && sent.windows(2).all(|pair| pair[0] < pair[1]),
        "{sent:?}"
    );
    assert!(answer.contains("the kernel holds what is configured"), "{answer}");
}

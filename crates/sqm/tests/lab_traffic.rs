//! Our set-ups under traffic: equal shares for hosts, no packet lost by a change, and latency as low as the kernel's
//! queues reach when they are set up by hand.

mod lab;

use lab::{home, load, start};
use sqm_lab::{Clock, Line, home::SERVER_V4};
use sqm_measure::result::TestResult;

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
                 ip netns exec router sqm reload --config $config >said 2>&1 || { echo refused; cat said; }
                 sleep 0.3
                 tc -n modem -s qdisc show dev wan0 root | grep backlog
                 tc -n router -s qdisc show dev wan0 root | grep Sent
             done
             tc -n router -s qdisc show dev wan0; tc -n router -s qdisc show dev ifb4wan0
             ip netns exec router sqm verify --config sqm",
        )
        .expect("the lab answers");
    assert!(!answer.contains("refused"), "{answer}");
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

//! Helpers for the tests in the lab: a home network, a load, and its figures. A lab that cannot start fails the test.
use std::fmt::Write;
use std::path::Path;

use sqm_lab::{Clock, Home, Line, home};
use sqm_measure::protocol::DEFAULT_PORT;
use sqm_measure::result::TestResult;

/// Boots a home network on this line and starts `sqm serve` on its server.
pub(crate) fn home(clock: Clock, line: &Line) -> Home {
    let program = Path::new(env!("CARGO_BIN_EXE_sqm-lab"));
    let home = Home::boot(clock, program, line).unwrap_or_else(|e| panic!("the lab must start: {e}"));
    home.spawn_server("server", &["sqm", "serve"], DEFAULT_PORT)
        .expect("sqm serve starts");
    home
}

/// The figures of one measurement.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    pub(crate) idle_ms: f64,
    pub(crate) median_ms: f64,
    pub(crate) p95_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) down: f64,
    pub(crate) up: f64,
}

impl Figures {
    /// The mean of each figure over several runs.
    pub(crate) fn mean(runs: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| runs.iter().map(figure).sum::<f64>() / runs.len() as f64;
        Self {
            idle_ms: of(|f| f.idle_ms),
            median_ms: of(|f| f.median_ms),
            p95_ms: of(|f| f.p95_ms),
            p99_ms: of(|f| f.p99_ms),
            down: of(|f| f.down),
            up: of(|f| f.up),
        }
    }
}

/// Runs `sqm start` for the router's interface to the modem, with rates in kbit/s and further lines of options.
pub(crate) fn start(home: &Home, script: &str, download: u64, upload: u64, options: &str) {
    let text = format!(
        "config queue\n\toption enabled '1'\n\toption interface 'wan0'\n\toption download '{download}'\n\
         \toption upload '{upload}'\n\toption script '{script}.qos'\n{options}"
    );
    home.write("/tmp/sqm", text.as_bytes()).expect("a file");
    home.run_ok("router", &["sqm", "start", "--config", "/tmp/sqm"])
        .expect("sqm start");
}

/// Sets up the queues of the last [`start`] with the commands that `sqm plan` prints. The router must have no queues.
pub(crate) fn start_by_hand(home: &Home) {
    home.script(
        "ip netns exec router sqm plan --format tc --config /tmp/sqm >/tmp/by-hand 2>/dev/null
         ip netns exec router sh -e /tmp/by-hand",
    )
    .expect("what sqm plan prints can be run");
}

/// Removes the queues of [`start_by_hand`].
pub(crate) fn stop_by_hand(home: &Home) {
    home.script(
        "tc -n router qdisc del dev wan0 root; tc -n router qdisc del dev wan0 ingress; ip -n router link del ifb4wan0
         ip netns exec router nft delete table inet sqm_wan0 2>/dev/null || true",
    )
    .expect("tc takes it away");
}

/// Runs `sqm test` from h1 to the server, with both directions at once.
pub(crate) fn load(home: &Home, options: &[&str]) -> Figures {
    load_to(home, home::SERVER_V4, options)
}

/// Like [`load`], but to another address of the server.
pub(crate) fn load_to(home: &Home, server: &str, options: &[&str]) -> Figures {
    let words = [
        &[
            "sqm",
            "test",
            server,
            "--together",
            "--quiet",
            "--json",
            "-",
            "--idle",
            "3",
        ],
        options,
    ]
    .concat();
    let json = home.run_ok("h1", &words).expect("sqm test measures");
    let result = TestResult::from_json(&json).expect("sqm test prints a result");
    let summary = result.summary;
    let known = |figure: Option<f64>| figure.expect("a loaded line has latency samples");
    Figures {
        idle_ms: known(summary.idle_ms),
        median_ms: known(summary.latency_median_ms),
        p95_ms: known(summary.latency_p95_ms),
        p99_ms: known(summary.latency_p99_ms),
        down: summary.download_mbit.unwrap_or(0.0),
        up: summary.upload_mbit.unwrap_or(0.0),
    }
}

/// The figures as a table, for the message of a failed test.
pub(crate) fn table(rows: &[(String, Figures)]) -> String {
    let mut text = format!(
        "{:<24} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8}\n",
        "", "idle ms", "median", "p95", "p99", "down", "up"
    );
    for (name, f) in rows {
        writeln!(
            text,
            "{name:<24} {:>7.1} {:>8.1} {:>8.1} {:>8.1} {:>8.2} {:>8.2}",
            f.idle_ms, f.median_ms, f.p95_ms, f.p99_ms, f.down, f.up
        )
        .expect("a String takes everything");
    }
    text
}

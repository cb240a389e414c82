//! `sqm test` is accurate: in the lab the line's rate, framing and delay are known, and `ping` runs beside the test.

use super::shared::home;
use serde_json::Value;
use sqm_lab::line::{Buffer, Direction, Line};
use sqm_lab::{Clock, Home, home};
use sqm_measure::grade::Verdict;
use sqm_measure::result::{ProbeKind, TestResult};
use sqm_measure::stats;

/// Tolerance for goodput, as a share of the true value.
const GOODPUT: f64 = 0.01;
/// Tolerance for the idle round trip, milliseconds.
const IDLE_MS: f64 = 0.2;
/// Tolerance for the loaded latency, as a share of what `ping` measured at the same time.
const LOADED: f64 = 0.05;

/// A plain line with as much buffer as a Cubic flow needs.
fn line(down_kbits: u64, up_kbits: u64, base_rtt_ms: u32) -> Line {
    let direction = |kbits_per_sec| Direction {
        kbits_per_sec,
        buffer: Buffer::Millis(200),
        boost: None,
    };
    Line {
        name: "known",
        down: direction(down_kbits),
        up: direction(up_kbits),
        base_rtt_ms,
        overhead: 18,
        atm: false,
    }
}

/// Runs `sqm test` on h1 with `ping` beside it. Returns the result and the output of `ping`.
fn measure_beside_ping(home: &Home, options: &str) -> (TestResult, String) {
    let script = format!(
        "ip netns exec h1 ping -n -D -i 0.1 {server} >/tmp/ping.txt & ping=$!
         ip netns exec h1 sqm test {server} --quiet --json /tmp/result.json {options} || exit 1
         kill -INT $ping; wait $ping
         cat /tmp/result.json; echo; cat /tmp/ping.txt",
        server = home::SERVER_V4
    );
    let text = home.script(&script).expect("sqm test and ping measure");
    let (json, pings) = text.split_once('\n').expect("the result is one line");
    let result = TestResult::from_json(json).expect("sqm test writes a result");
    (result, pings.to_owned())
}

/// Round trips that `ping -D` measured in the steady window, milliseconds.
fn pinged(pings: &str, result: &TestResult) -> Vec<f64> {
    let start = result.meta.start_unix.expect("the client knows the time");
    let (from, to) = result.steady().next().expect("there was load");
    let samples = pings.lines().filter_map(|line| {
        // [1763740000.123456] 64 bytes from 10.66.0.2: icmp_seq=1 ttl=62 time=20.1 ms
        let (stamp, rest) = line.strip_prefix('[')?.split_once(']')?;
        let rtt: f64 = rest.split("time=").nth(1)?.split(' ').next()?.parse().ok()?;
        let arrived: f64 = stamp.parse().ok()?;
        Some(((arrived - start) * 1000.0 - rtt, rtt))
    });
    let inside = samples.filter(|(sent, _)| *sent >= from && *sent < to);
    inside.map(|(_, rtt)| rtt).collect()
}

pub(crate) fn assert_near(what: &str, measured: f64, truth: f64, tolerance: f64) {
    println!("{what}: {measured:.3}, truth {truth:.3}");
    assert!(
        (measured - truth).abs() <= tolerance,
        "{what}: {measured:.3} instead of {truth:.3} ± {tolerance:.3}"
    );
}

/// Checks goodput, idle latency and loaded latency of a test of one direction.
fn check(line: &Line, test: &str, measured_mbit: impl Fn(&TestResult) -> f64, gross_kbits: u64) {
    let home = home(Clock::Virtual, line);
    let options = format!("--test {test} --duration 20 --idle 5 --settle 6");
    let (result, pings) = measure_beside_ping(&home, &options);
    let truth = line.goodput_mbit(gross_kbits);
    assert_near(
        &format!("{test} goodput"),
        measured_mbit(&result),
        truth,
        truth * GOODPUT,
    );
    // The modem sends bursts of up to 2 ms of its rate at once, so that a lone packet sees only the delay.
    let idle = f64::from(line.base_rtt_ms);
    let measured = result.summary.idle_ms.expect("the idle line was measured");
    assert_near(&format!("{test} idle ms"), measured, idle, IDLE_MS);
    let pings = pinged(&pings, &result);
    assert!(pings.len() > 50, "{} pings", pings.len());
    for p in [50.0, 95.0] {
        let truth = stats::percentile(&pings, p).expect("there are pings");
        let ours: Vec<f64> = result
            .probes
            .iter()
            .filter(|series| series.kind == ProbeKind::Udp)
            .flat_map(|series| &series.samples)
            .filter(|probe| {
                result
                    .steady()
                    .any(|(from, to)| probe.t_ms >= from && probe.t_ms < to)
            })
            .filter_map(|probe| probe.rtt_ms)
            .collect();
        let ours = stats::percentile(&ours, p).expect("there are probes");
        assert_near(&format!("{test} loaded p{p:.0} ms"), ours, truth, truth * LOADED);
    }
    let verdict = Verdict::of(&result);
    assert!(verdict.grade.is_some(), "{:?}", verdict.findings);
}

#[test]
fn a_download_of_20_mbit() {
    let line = line(20_000, 5000, 30);
    check(
        &line,
        "tcp_download",
        |r| r.summary.download_mbit.expect("downloads"),
        20_000,
    );
}

#[test]
fn an_upload_of_5_mbit() {
    let line = line(20_000, 5000, 30);
    check(
        &line,
        "tcp_upload",
        |r| r.summary.upload_mbit.expect("uploads"),
        5000,
    );
}

#[test]
fn a_download_of_80_mbit() {
    let line = line(80_000, 20_000, 15);
    check(
        &line,
        "tcp_4down",
        |r| r.summary.download_mbit.expect("downloads"),
        80_000,
    );
}

/// Sweeps one direction. Returns the fit and the advice, and fails if the gross rate is off by more than this share.
pub(crate) fn sweep(line: &Line, options: &[&str], (gross_mbit, within): (f64, f64)) -> (Value, String) {
    let home = home(Clock::Virtual, line);
    home.write("/tmp/configured", CONFIGURED.as_bytes())
        .expect("a file");
    let words = [
        "sqm",
        "test",
        home::SERVER_V4,
        "--sweep",
        "--config",
        "/tmp/configured",
        "--quiet",
        "--json",
        "-",
    ];
    let json = home
        .run_ok("h1", &[&words, options].concat())
        .expect("the sweep measures");
    let swept: Value = serde_json::from_str(&json).expect("the sweep is JSON");
    assert_eq!(swept["version"], 1);
    let swept = swept["sweep"][0].clone();
    let fit = swept["fit"].clone();
    assert_near(
        "gross Mbit/s",
        number(&fit["gross_mbit"]),
        gross_mbit,
        gross_mbit * within,
    );
    (fit, swept["advice"].to_string())
}

pub(crate) fn number(value: &Value) -> f64 {
    value.as_f64().expect("the fit has figures")
}

/// More overhead than Ethernet has. For the ATM line the rate is too high and the cells are missing.
const CONFIGURED: &str = "config queue\n\toption enabled '1'\n\toption interface 'wan0'\n\toption download '60000'\n\
     \toption upload '4200'\n\toption script 'piece_of_cake.qos'\n\toption linklayer 'ethernet'\n\toption overhead '40'\n";

/// The sweep sees 66 bytes per packet: 52 of headers and 14 of Ethernet.
pub(crate) fn ethernet(down_kbits: u64, up_kbits: u64) -> Line {
    Line {
        overhead: 14,
        ..line(down_kbits, up_kbits, 14)
    }
}

#[test]
fn a_sweep_finds_rate_and_overhead_at_10_mbit() {
    let (fit, advice) = sweep(&ethernet(50_000, 10_000), &["--down", "0"], (10.0, 0.005));
    assert_eq!(fit["framing"], "packets");
    assert_near("bytes per packet", number(&fit["bytes"]), 66.0, 3.0);
    assert!(advice.contains("unnecessarily; set overhead 1"), "{advice}");
}

#[test]
fn a_sweep_recognises_atm() {
    let line = Line {
        overhead: 40,
        atm: true,
        ..line(20_000, 4000, 20)
    };
    let (fit, advice) = sweep(&line, &["--down", "0"], (4.0, 0.01));
    assert_eq!(fit["framing"], "atm_cells");
    // Eight packet sizes fall on few steps of the staircase of cells. The fit reports the interval within a cell that
    // it cannot resolve.
    let interval = &fit["bytes_interval"];
    let (low, high) = (number(&interval[0]), number(&interval[1]));
    assert!(low <= 92.0 && 92.0 <= high && high - low < 48.0, "{interval}");
    assert!(advice.contains("set linklayer 'atm'"), "{advice}");
    assert!(advice.contains("the queue stays in the modem"), "{advice}");
}

#[test]
fn rrul_over_both_protocols_at_once() {
    let home = home(Clock::Virtual, &line(20_000, 5_000, 20));
    let json = home
        .run_ok(
            "h1",
            &[
                "sqm",
                "test",
                home::SERVER_V4,
                home::SERVER_V6,
                "--test",
                "rrul46",
                "--quiet",
                "--json",
                "-",
                "--duration",
                "20",
                "--idle",
                "3",
                "--settle",
                "6",
            ],
        )
        .expect("sqm test measures");
    let result = TestResult::from_json(&json).expect("a result");
    let carried = |peer: &str| -> Vec<f64> {
        let flows = result.flows.iter().filter(|f| f.peer.as_deref() == Some(peer));
        flows.map(|flow| flow.mbit).collect()
    };
    for peer in ["IPv4", "IPv6"] {
        let mbit = carried(peer);
        assert!(
            mbit.len() == 4 && mbit.iter().all(|rate| *rate > 0.05),
            "{peer}: {mbit:?}"
        );
        let probes = result.probes.iter().filter(|s| s.peer.as_deref() == Some(peer));
        assert!(probes.clone().count() >= 2, "{peer}");
        for series in probes {
            assert!(
                series.samples.iter().any(|p| p.rtt_ms.is_some()),
                "{}",
                series.name
            );
        }
    }
    assert_near(
        "idle round trip",
        result.summary.idle_ms.expect("an idle line"),
        20.0,
        1.0,
    );
}

//! `sqm tune` on lines whose best rates are known.

use super::shared::home;
use serde_json::Value;
use sqm_lab::{Clock, Home, Line, home::SERVER_V4};

/// Tolerance for the rates, as a share of the best ones.
pub(crate) const RATE: f64 = 0.04;
/// Time limit of a search, seconds.
pub(crate) const LENGTH_S: f64 = 90.0;

pub(crate) fn configure(home: &Home, overhead: u16, layer: &str) {
    let text = format!(
        "# kept as it is\nconfig queue\n\toption enabled '1'\n\toption interface 'wan0'\n\toption download '1000'\n\
         \toption upload '1000'\n\toption script 'best_of_cake.qos'\n\toption linklayer '{layer}'\n\
         \toption overhead '{overhead}'\n"
    );
    home.write("/etc/config/sqm", text.as_bytes()).expect("a file");
}

/// Runs `sqm tune` against `server`, an address with options or a URL. Returns the report and the duration in
/// seconds.
pub(crate) fn tune(home: &Home, server: &str, options: &str) -> (Value, f64) {
    let said = home
        .script(&format!(
            "from=$(cut -d' ' -f1 /proc/uptime)
             ip netns exec router sqm tune {server} --json {options} || exit 1
             echo $from $(cut -d' ' -f1 /proc/uptime)"
        ))
        .expect("sqm tune finds rates");
    let (json, times) = said.split_once('\n').expect("the report is one line");
    let times: Vec<f64> = times
        .split_whitespace()
        .map(|t| t.parse().expect("a time"))
        .collect();
    (
        serde_json::from_str(json).expect("the report is JSON"),
        times[1] - times[0],
    )
}

/// Runs `sqm tune` with these options in /tmp. Runs `commands` there, in which `$tune` is its process id, as soon as it has
/// measured a direction without a shaper. Returns its exit code and all that it printed.
pub(crate) fn tune_meanwhile(home: &Home, options: &str, commands: &str) -> String {
    home.script(&format!(
        "cd /tmp
         set +e; rm -f err; touch err
         ip netns exec router sqm tune {SERVER_V4} {options} >out 2>err & tune=$!
         until grep -q 'load adds' err; do sleep 1; done
         {commands}
         wait $tune; echo \"code $?\"; cat out err"
    ))
    .expect("it ends")
}

pub(crate) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

pub(crate) fn tc(home: &Home) -> String {
    home.script(
        "tc -n router qdisc show dev wan0; tc -n router filter show dev wan0 ingress; ip -n router -o link | cut -d: -f2",
    )
    .expect("tc")
}

/// Bits that an IP packet of this many bytes takes on the line.
pub(crate) fn on_the_line(line: &Line, bytes: f64) -> f64 {
    let counted = bytes + f64::from(line.overhead);
    8.0 * if line.atm {
        (counted / 48.0).ceil() * 53.0
    } else {
        counted
    }
}

/// Latency that the load of both directions may add, 95th percentile, ms. It is tune's default target or, on a slow
/// line, the time of two full packets in each direction with the acknowledgements that the other direction causes
/// meanwhile.
pub(crate) fn allowed_ms(line: &Line) -> f64 {
    const TARGET: f64 = 5.0;
    let on_the_line = |bytes| on_the_line(line, bytes);
    let way = |own: u64, other: u64| {
        let two_packets_ms = 2.0 * on_the_line(1500.0) / own as f64;
        let acknowledgements = other as f64 * on_the_line(52.0) / on_the_line(1500.0) / 2.0;
        two_packets_ms * (1.0 + (acknowledgements / own as f64).min(1.0))
    };
    let (down, up) = (line.down.kbits_per_sec, line.up.kbits_per_sec);
    // The shaper rates are a little below the line's, so that the packets take a little longer.
    TARGET.max((way(down, up) + way(up, down)) * (1.0 + RATE))
}

/// Expects both rates to be close to this share of the line's rates, and not above the line's.
pub(crate) fn check_rates(line: &Line, report: &Value, best: f64) {
    for (what, gross) in [
        ("download_kbit", line.down.kbits_per_sec),
        ("upload_kbit", line.up.kbits_per_sec),
    ] {
        let share = number(&report[what]) / gross as f64;
        assert!(
            (best * (1.0 - RATE)..=1.0 + 0.01).contains(&share),
            "{what}: {share:.3} of the line's rate"
        );
    }
}

/// Tunes a line and checks everything but the rates.
pub(crate) fn tune_and_judge(line: &Line, layer: &str, server: &str) -> (Home, Value) {
    let home = home(Clock::Virtual, line);
    let report = tune_and_judge_at(&home, line, layer, server);
    (home, report)
}

/// Like [`tune_and_judge`], in a home network that is already running. Returns the report.
pub(crate) fn tune_and_judge_at(home: &Home, line: &Line, layer: &str, server: &str) -> Value {
    configure(home, line.overhead, layer);
    let before = tc(home);
    let (report, seconds) = tune(home, server, "");
    println!("{}: {seconds:.0} s, {report:#}", line.name);
    let added = number(&report["verified"]["added_p95_ms"]);
    let allowed = allowed_ms(line);
    assert!(added <= allowed, "{added} ms of {allowed}, {report}");
    assert!(report["warning"].is_null(), "{report}");
    assert_eq!(
        report["found"][0]["boost"].is_f64(),
        line.down.boost.is_some(),
        "{report}"
    );
    assert!(seconds <= LENGTH_S, "{seconds} s");
    let options = &report["overhead"]["options"];
    if line.atm && layer != "atm" {
        assert_eq!(
            *options,
            serde_json::json!([["linklayer", "atm"], ["overhead", line.overhead.to_string()]]),
            "{report}"
        );
    } else {
        assert!(options.as_array().is_none_or(Vec::is_empty), "{report}");
        let advice = &report["overhead"]["advice"];
        assert!(advice.as_array().is_none_or(Vec::is_empty), "{report}");
    }
    assert_eq!(tc(home), before, "the state from before is back");
    report
}

#[test]
fn rates_are_written_on_request_and_an_interrupted_search_is_rolled_back() {
    let line = Line::named("cable24").expect("a known line");
    let home = home(Clock::Virtual, &line);
    configure(&home, line.overhead, "ethernet");
    home.run_ok("router", &["sqm", "start"]).expect("sqm start");
    let before = tc(&home);
    let said = tune_meanwhile(&home, "", "kill -INT $tune");
    assert!(said.contains("code 1"), "{said}");
    assert!(
        said.contains("interrupted; the previous shaping has been restored"),
        "{said}"
    );
    let missing = home
        .run("router", &["sqm", "tune", SERVER_V4, "--port", "1"])
        .expect("it ends");
    assert_eq!(missing.code, 1, "{}", missing.stderr);
    assert_eq!(tc(&home), before, "the previous shaping has been restored");

    let (report, _) = tune(
        &home,
        SERVER_V4,
        "--write --target 20 --quick --out /tmp/kept --plot /tmp/kept.svg",
    );
    assert_eq!(report["is_written"], true);
    let compared = home
        .script(
            "sqm compare /tmp/kept/before-download.flent.gz /tmp/kept/before-upload.flent.gz /tmp/kept/after.flent.gz
             grep -c '<svg' /tmp/kept.svg /tmp/kept/*.svg; ls /tmp/kept/tune.json",
        )
        .expect("the results can be compared");
    assert!(compared.contains("download without a shaper"), "{compared}");
    // The picture of --plot, and four in two widths.
    assert_eq!(compared.matches("svg:1").count(), 1 + 4 * 2, "{compared}");
    let config = home.script("cat /etc/config/sqm").expect("a file");
    let download = format!("option download '{}'", report["download_kbit"]);
    assert!(
        config.contains(&download) && config.starts_with("# kept as it is\n"),
        "{config}"
    );
    let kept = home.script("cat /etc/config/sqm.before-tune").expect("a file");
    assert!(kept.contains("option download '1000'"), "{kept}");
    home.run_ok("router", &["sqm", "verify"])
        .expect("the new rates are in force");
    assert!(tc(&home) != before);
}

#[test]
fn a_cable_line() {
    let line = Line::named("cable24").expect("a known line");
    let (_, report) = tune_and_judge(&line, "ethernet", SERVER_V4);
    check_rates(&line, &report, 1.0);
}

#[test]
fn atm_cells_that_the_configuration_does_not_count() {
    // The best share that the exhaustive search of `a_line_in_atm_cells` finds in most of its runs.
    const BEST: f64 = 0.98;
    let line = Line::named("adsl8").expect("a known line");
    let (_, report) = tune_and_judge(&line, "ethernet", SERVER_V4);
    check_rates(&line, &report, BEST);
}

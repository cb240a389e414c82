use std::path::PathBuf;

use sqm_core::direction::Direction;

use super::*;
use crate::plot::Sheet;
use crate::result::tests::example;
use crate::result::{ProbeKind, Severity, TcpSample, TestResult};
use crate::stats;

/// A file that Flent 2.3.0 wrote. `tests/flent/README.md` says how.
fn fixture(name: &str) -> TestResult {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/flent/{name}.flent.gz"));
    TestResult::load(&path).unwrap()
}

fn mean_rtt(result: &TestResult, name: &str) -> f64 {
    let series = result.probes.iter().find(|series| series.name == name).unwrap();
    stats::mean(&series.samples.iter().filter_map(|p| p.rtt_ms).collect::<Vec<_>>()).unwrap()
}

#[test]
fn files_from_flent_open_with_their_series() {
    // Flows down, flows up, series of probes.
    for (name, down, up, probes) in [
        ("rrul-deep", 4, 4, 4),
        ("rrul-short", 4, 4, 4),
        ("rrul_be-deep", 4, 4, 4),
        ("rrul_be-short", 4, 4, 4),
        ("rrul_be_nflows-short", 3, 2, 2),
        ("rrul_noclassification-deep", 4, 4, 4),
        ("tcp_download-deep", 1, 0, 1),
        ("tcp_ndown-deep", 4, 0, 1),
        ("tcp_nup-short", 0, 2, 1),
        ("tcp_upload-short", 0, 1, 1),
        ("rtt_fair4be-short", 4, 4, 4),
        ("ping", 0, 0, 2),
        ("voip", 0, 0, 1),
    ] {
        let result = fixture(name);
        let flows = Direction::BOTH.map(|d| result.flows(d).count());
        assert_eq!((flows, result.probes.len()), ([down, up], probes), "{name}");
        assert_eq!(result.meta.local_host, "h1", "{name}");
        assert!(
            result.probes.iter().all(|series| series.samples.len() > 10),
            "{name}"
        );
        let summary = &result.summary;
        if down > 0 {
            assert!(
                (10.0..20.0).contains(&summary.download_mbit.unwrap()),
                "{name} {:?}",
                summary.download_mbit
            );
        }
        if up > 0 {
            assert!(
                (3.0..6.0).contains(&summary.upload_mbit.unwrap()),
                "{name} {:?}",
                summary.upload_mbit
            );
        }
    }
}

#[test]
fn the_figures_of_a_flent_file_match_its_own() {
    let result = fixture("rrul-deep");
    let meta = &result.meta;
    assert_eq!(
        (meta.test.as_str(), meta.title.as_deref()),
        ("rrul", Some("deep FIFO 20/5"))
    );
    assert_eq!(
        (meta.host.as_str(), meta.program.as_str()),
        ("10.77.0.2", "Flent 2.3.0")
    );
    assert_eq!(meta.time, "2026-11-21T16:23:46Z");
    let settings = &meta.settings;
    assert_eq!(
        (settings.idle_ms, settings.load_ms, settings.after_ms),
        (5000, 6000, 5000)
    );
    assert_eq!(settings.dscp, [0, 8, 40, 46]);
    // The mean of all samples according to Flent.
    assert!((mean_rtt(&result, "Ping (ms) UDP BE") - 51.371_874).abs() < 1e-5);
    assert!((mean_rtt(&result, "Ping (ms) ICMP") - 51.3).abs() < 0.1);
    let upload = result.flows(Direction::Upload).next().unwrap();
    assert_eq!(
        (upload.name.as_str(), upload.congestion.as_str()),
        ("TCP upload BE", "bbr")
    );
    let tcp: Vec<_> = upload.sender.iter().filter_map(|s| s.rtt_ms).collect();
    assert_eq!(tcp[0], 44.006);
    // Idle before the load, bloated by it.
    assert!(result.summary.idle_ms.unwrap() < 1.0);
    assert!(result.summary.latency_median_ms.unwrap() > 30.0);
    // Both directions are loaded at once. One-way delays tell them apart.
    let up = result.summary.up.as_ref().unwrap();
    let down = result.summary.down.as_ref().unwrap();
    assert!(
        up.one_way && up.added_median_ms > down.added_median_ms,
        "{up:?} {down:?}"
    );
}

#[test]
fn a_call_is_probes_every_20_ms() {
    let result = fixture("voip");
    assert_eq!(result.probes[0].kind, ProbeKind::Voip);
    assert_eq!(result.probes[0].interval_ms, 20.0);
}

#[test]
fn our_own_result_is_read_back_complete() {
    let mut result = example("Cable, \"24/4.4\"", 300.0, 20.0, 4.0);
    result.meta.start_unix = Some(1_767_323_045.123_456);
    result.flows[0].sender = vec![TcpSample {
        t_ms: 100.0,
        rtt_ms: Some(25.0),
        cwnd: Some(10.0),
        ..TcpSample::default()
    }];
    result.probes[0].arrived_up.insert(184, 12);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(file_name(&result));
    assert!(
        path.ends_with("rrul_be_nflows-2026-01-02T030405.123456.Cable___24_4_4_.flent.gz"),
        "{}",
        path.display()
    );
    result.save(&path).unwrap();
    assert_eq!(TestResult::load(&path).unwrap(), result);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn without_our_part_the_series_of_flent_are_read() {
    let mut written = example("x", 300.0, 20.0, 4.0);
    written.meta.start_unix = Some(1_767_323_045.0);
    let mut file: serde_json::Value = serde_json::from_str(&to_json(&written)).unwrap();
    file["metadata"].as_object_mut().unwrap().remove(OWN_KEY);
    let read = from_json(&file.to_string()).unwrap();
    assert_eq!(read.flows.len(), 4);
    // The reader assumes idle phases of equal length, as in Flent: one second each, where there were two before and none after.
    let sum: f64 = read
        .flows(Direction::Download)
        .map(|f| f.mbit_between(3000.0, 8000.0))
        .sum();
    assert!((sum - 20.0).abs() < 0.5, "{sum}");
    let rtts = |result: &TestResult| -> Vec<f64> {
        result.probes[0].samples.iter().filter_map(|p| p.rtt_ms).collect()
    };
    assert_eq!(rtts(&read), rtts(&written));
}

#[test]
fn the_sum_includes_all_flows_at_every_moment() {
    let mut result = example("x", 0.0, 20.0, 4.0);
    result.meta.start_unix = Some(0.0);
    let file: serde_json::Value = serde_json::from_str(&to_json(&result)).unwrap();
    let sums: Vec<f64> = file["results"]["TCP download sum"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|v| v.as_f64())
        .collect();
    // Eight seconds of load. The first has half of the rate.
    assert_eq!(sums.len(), 40);
    assert!(
        sums[..5].iter().all(|rate| (rate - 10.0).abs() < 1e-6),
        "{sums:?}"
    );
    assert!(
        sums[5..].iter().all(|rate| (rate - 20.0).abs() < 1e-6),
        "{sums:?}"
    );
    assert_eq!(file["raw_values"]["TCP download sum"], serde_json::json!([]));
}

fn old(version: u64, raw: &str, extra: &str) -> String {
    format!(
        r#"{{"version":{version},"x_values":[0,0.2,0.4],"results":{{"Ping (ms) UDP BE":[10,null,30]}},
        "raw_values":{{{raw}}},"metadata":{{"NAME":"rrul","LENGTH":10,"TOTAL_LENGTH":20,"STEP_SIZE":0.2,"TITLE":"t",
        "HOST":"h","LOCAL_HOST":"l",{extra}"T0":"2020-01-01T12:00:00.000000"}}}}"#
    )
}

#[test]
fn older_versions_are_converted() {
    // Transactions per second become round trips, seconds become milliseconds, and running counts become differences. The zone of
    // the local time, here two hours ahead, is found from the samples.
    let raw = r#""Ping (ms) UDP BE":[{"t":1577872800.5,"dur":0.2,"val":50.0}],"HTTP latency":[{"t":1577872801,"val":0.25}],
        "qdisc_stats_r":[{"t":1577872801,"dropped":5},{"t":1577872802,"dropped":9,"cake":{"Bulk":1.5}}]"#;
    let result = from_json(&old(3, raw, "")).unwrap();
    let rtt = |name: &str| result.probes.iter().find(|s| s.name == name).unwrap().samples[0];
    assert_eq!(rtt("Ping (ms) UDP BE").rtt_ms, Some(20.0));
    assert_eq!(rtt("Ping (ms) UDP BE").t_ms, -4520.0);
    assert_eq!(rtt("HTTP latency").rtt_ms, Some(250.0));
    let dropped = result
        .evidence
        .iter()
        .find(|s| s.name == "qdisc_stats_r::dropped")
        .unwrap();
    assert_eq!(
        dropped
            .samples
            .iter()
            .map(|(_, v)| v.unwrap())
            .collect::<Vec<_>>(),
        [0.0, 4.0]
    );
    assert!(
        result
            .evidence
            .iter()
            .any(|s| s.name == "qdisc_stats_r::cake::Bulk")
    );
    // The oldest files have only the values on the grid, or have their samples in another place.
    let result = from_json(&old(1, "", "")).unwrap();
    let samples = &result.probes[0].samples;
    assert_eq!(
        samples.iter().map(|p| p.rtt_ms.unwrap()).collect::<Vec<_>>(),
        [10.0, 30.0]
    );
    let moved = r#""SERIES_META":{"Ping (ms) ICMP":{"RAW_VALUES":[{"t":1577880001,"val":7}]}},"#;
    let result = from_json(&old(1, "", moved)).unwrap();
    let icmp = result.probes.iter().find(|s| s.name == "Ping (ms) ICMP").unwrap();
    assert_eq!(icmp.samples[0].rtt_ms, Some(7.0));
}

#[test]
fn probes_that_never_came_back_are_counted() {
    let raw = r#""Ping (ms) ICMP":[{"t":1577880000,"seq":0,"val":1},{"t":1577880000.8,"seq":4,"val":1}],
        "Ping (ms) UDP BE":[{"t":1577880000,"seq":0,"lost":true,"lost_dir":"up"},{"t":1577880001,"seq":1,"val":3}]"#;
    let result = from_json(&old(4, raw, "").replace("12:00:00.000000", "12:00:00.000000Z")).unwrap();
    let icmp = &result.probes[0];
    assert_eq!(icmp.samples.len(), 5);
    assert_eq!(icmp.samples.iter().filter(|p| p.rtt_ms.is_none()).count(), 3);
    assert_eq!(result.probes[1].samples[0].lost, Some(Direction::Upload));
    assert_eq!(result.summary.probes_lost, 1);
}

#[test]
fn damaged_files_are_refused_with_a_reason() {
    let good = old(4, r#""Ping (ms) ICMP":[{"t":1577880000,"val":1}]"#, "");
    assert!(from_json(&good).is_ok());
    for (damage, with, words) in [
        (r#""version":4"#, r#""version":5"#, "versions 1 to 4"),
        (r#""version":4"#, r#""version":0"#, "its version is 0;"),
        (r#""version":4"#, r#""version":-1"#, "its version is -1;"),
        (r#""version":4"#, r#""version":1.5"#, "its version is 1.5;"),
        (r#""version":4"#, r#""version":[4]"#, "its version is [4];"),
        (r#""LENGTH":10"#, r#""LENGTH":"ten""#, "LENGTH"),
        (r#""NAME":"rrul","#, "", "NAME"),
        (r#"[{"t":1577880000,"val":1}]"#, "[]", "no samples"),
        (r#"[{"t":1577880000,"val":1}]"#, "[7]", "Ping (ms) ICMP"),
        (r#"[{"t":1577880000,"val":1}]"#, r#"[{"t":1e400}]"#, "range"),
        (r#""metadata""#, r#""data""#, "metadata"),
    ] {
        assert!(good.contains(damage));
        let error = from_json(&good.replacen(damage, with, 1)).unwrap_err();
        assert!(error.contains(words), "{words}: {error}");
    }
    // Impossible values are refused, and not left out.
    let loaded = good.replacen(
        r#""raw_values":{"#,
        r#""raw_values":{"TCP download BE":[{"t":1577880003,"val":5,"dur":1}],"#,
        1,
    );
    assert!(from_json(&loaded).is_ok());
    for (figure, with, words) in [
        (
            r#""val":5"#,
            r#""val":1e308"#,
            "a rate of 'TCP download BE' of 1e308 Mbit/s",
        ),
        (
            r#""val":5"#,
            r#""val":-5"#,
            "a rate of 'TCP download BE' of -5 Mbit/s",
        ),
        (
            r#""val":1}"#,
            r#""val":-10}"#,
            "a round trip of 'Ping (ms) ICMP' of -10 ms",
        ),
        (
            r#""val":1}"#,
            r#""val":1e308}"#,
            "a round trip of 'Ping (ms) ICMP' of 1e308 ms",
        ),
    ] {
        assert!(loaded.contains(figure));
        let error = from_json(&loaded.replacen(figure, with, 1)).unwrap_err();
        assert!(error.contains(words), "{words}: {error}");
    }
    let deep = "[".repeat(100_000);
    assert!(from_json(&deep).is_err());
    assert!(from_json(&good.replace("\"t\"", &format!("\"x\":{deep}"))).is_err());
}

/// When the made-up files below begin, and their load of 60 s between two idle phases of 5 s.
const BEGIN: f64 = 1_577_880_000.0;
const SECONDS: f64 = 70.0;

/// A file with a download and these series of probes.
fn with_probes(version: u64, series: &[(&str, String)]) -> TestResult {
    let download: Vec<String> = (1..=300)
        .map(|i| {
            let t = BEGIN + 5.0 + f64::from(i) * 0.2;
            format!(r#"{{"t":{t:.3},"dur":0.2,"val":20}}"#)
        })
        .collect();
    let mut raw = vec![format!(r#""TCP download BE":[{}]"#, download.join(","))];
    raw.extend(
        series
            .iter()
            .map(|(name, samples)| format!("\"{name}\":[{samples}]")),
    );
    let text = old(version, &raw.join(","), r#""HOSTS":["near","far"],"#)
        .replace(
            "\"LENGTH\":10,\"TOTAL_LENGTH\":20",
            "\"LENGTH\":60,\"TOTAL_LENGTH\":70",
        )
        .replace("12:00:00.000000", "12:00:00.000000Z");
    from_json(&text).unwrap()
}

/// Pings, five a second: `idle` ms, and `loaded` ms under load.
fn icmp(idle: f64, loaded: f64) -> String {
    let sample = |i: i32| {
        let t = f64::from(i) * 0.2;
        let rtt = if (5.0..65.0).contains(&t) { loaded } else { idle };
        let arrived = BEGIN + t + rtt / 1000.0;
        format!(r#"{{"t":{arrived:.4},"seq":{i},"val":{rtt}}}"#)
    };
    (0..350).map(sample).collect::<Vec<_>>().join(",")
}

/// netperf's UDP_RR: intervals of 0.2 s, or of one request if that takes longer, until `until` seconds. Before version 4 a value is
/// transactions per second.
fn udp_rr(version: u64, rtt: impl Fn(f64) -> f64, until: f64) -> Vec<String> {
    let (mut t, mut lines) = (0.0, Vec::new());
    loop {
        let rtt = rtt(t);
        let span = f64::max(0.2, rtt / 1000.0);
        t += span;
        if t > until {
            return lines;
        }
        lines.push(interval(version, t, span, rtt));
    }
}

fn interval(version: u64, t: f64, span: f64, rtt: f64) -> String {
    let value = if version < 4 { 1000.0 / rtt } else { rtt };
    format!(r#"{{"t":{:.4},"dur":{span:.4},"val":{value:.4}}}"#, BEGIN + t)
}

/// The line that netperf prints when the test ends, of all the time since `from`, with this mean of its few requests.
fn last_line(version: u64, from: f64, mean_ms: f64) -> String {
    interval(version, SECONDS - 0.1, SECONDS - 0.1 - from, mean_ms)
}

fn verdict(result: &TestResult) -> crate::grade::Verdict {
    crate::grade::Verdict::of(result)
}

fn codes(result: &TestResult) -> Vec<String> {
    let findings = verdict(result).findings.into_iter();
    findings.map(|finding| finding.code).collect()
}

#[test]
fn pings_stand_in_for_udp_requests_that_stopped() {
    let usual = |t: f64| if t < 5.0 { 4.0 } else { 32.0 };
    for version in [3, 4] {
        for (until, mean_ms) in [(0.4, 25_000.0), (4.0, 9000.0), (9.0, 70_000.0), (30.0, 8000.0)] {
            let mut udp = udp_rr(version, usual, until);
            udp.push(last_line(version, until, mean_ms));
            let cut_off = udp_rr(version, usual, until);
            let only_the_last = last_line(version, 0.0, 64_000.0);
            for series in [udp.join(","), cut_off.join(","), only_the_last] {
                let result = with_probes(
                    version,
                    &[
                        ("Ping (ms) ICMP", icmp(5.0, 32.0)),
                        ("Ping (ms) UDP BE1", series.clone()),
                    ],
                );
                let summary = &result.summary;
                assert_eq!(
                    (summary.latency_median_ms, summary.latency_p99_ms, summary.idle_ms),
                    (Some(32.0), Some(32.0), Some(5.0)),
                    "version {version}, until {until} s"
                );
                let verdict = verdict(&result);
                let grade = verdict.grade.as_ref().expect("pings allow a grade");
                assert_eq!((grade.letter.as_str(), grade.added_ms), ("A", 27.0));
                let is_told = |code: &str| {
                    let found = verdict.findings.iter().find(|found| found.code == code);
                    found.is_some_and(|found| found.severity == Severity::Warning)
                };
                assert!(
                    is_told("probes_ended") || is_told("probes_stalled"),
                    "{verdict:?}"
                );
            }
        }
    }
}

#[test]
fn of_several_udp_series_those_that_last_count() {
    let usual = |t: f64| if t < 5.0 { 4.0 } else { 32.0 };
    let mut dead = udp_rr(4, usual, 9.0);
    dead.push(last_line(4, 9.0, 20_000.0));
    let result = with_probes(
        4,
        &[
            ("Ping (ms) UDP BE1", udp_rr(4, usual, SECONDS).join(",")),
            ("Ping (ms) UDP BE2", dead.join(",")),
            ("Ping (ms) ICMP", icmp(5.0, 33.0)),
        ],
    );
    assert_eq!(result.summary.latency_p99_ms, Some(32.0));
    assert!(
        codes(&result).contains(&"probes_ended".to_owned()),
        "{:?}",
        codes(&result)
    );
}

#[test]
fn a_udp_series_that_stopped_and_nothing_else_gives_no_grade_and_a_reason() {
    let mut udp = udp_rr(4, |t| if t < 5.0 { 4.0 } else { 32.0 }, 35.0);
    udp.push(last_line(4, 35.0, 9000.0));
    let result = with_probes(4, &[("Ping (ms) UDP BE1", udp.join(","))]);
    let verdict = verdict(&result);
    assert_eq!(verdict.grade, None);
    let reason = &verdict.findings[0];
    assert_eq!(
        (reason.code.as_str(), reason.severity),
        ("probes_ended", Severity::Invalid)
    );
    assert!(
        result.summary.latency_max_ms < Some(100.0),
        "{:?}",
        result.summary
    );
}

#[test]
fn too_few_probes_are_those_of_the_series_that_the_figures_come_from() {
    let few: Vec<String> = (0..60)
        .map(|i| interval(4, f64::from(i) + 0.9, 0.2, 30.0))
        .collect();
    let result = with_probes(4, &[("Ping (ms) UDP BE1", few.join(","))]);
    assert!(codes(&result).contains(&"too_few_probes".to_owned()));
    let both = with_probes(
        4,
        &[
            ("Ping (ms) UDP BE1", few.join(",")),
            ("Ping (ms) ICMP", icmp(5.0, 40.0)),
        ],
    );
    assert_eq!(both.summary.latency_median_ms, Some(40.0));
    assert!(verdict(&both).grade.is_some());
}

#[test]
fn a_queue_of_seconds_is_not_taken_for_a_series_that_stopped() {
    // The queue fills within some requests, and holds three seconds from then on.
    let deep = |t: f64| match t {
        t if t < 5.0 => 30.0,
        t if t < 65.0 => f64::min(3000.0, 30.0 + (t - 5.0) * 900.0),
        _ => 30.0,
    };
    for version in [3, 4] {
        let udp = udp_rr(version, deep, SECONDS);
        let count = udp.len();
        let result = with_probes(version, &[("Ping (ms) UDP BE1", udp.join(","))]);
        assert_eq!(result.probes[0].samples.len(), count);
        assert!(
            result.summary.latency_median_ms > Some(2900.0),
            "{:?}",
            result.summary
        );
        assert!(!codes(&result).contains(&"probes_stalled".to_owned()));
    }
}

#[test]
fn kinds_of_probes_that_disagree_by_far_are_told() {
    let udp = udp_rr(4, |t| if t < 5.0 { 4.0 } else { 31.0 }, SECONDS).join(",");
    let with = |loaded| {
        with_probes(
            4,
            &[
                ("Ping (ms) UDP BE1", udp.clone()),
                ("Ping (ms) ICMP", icmp(5.0, loaded)),
            ],
        )
    };
    let finding = verdict(&with(5578.0))
        .findings
        .into_iter()
        .find(|found| found.code == "probes_disagree");
    let finding = finding.expect("UDP 31 ms, ICMP 5578 ms");
    assert_eq!(finding.severity, Severity::Warning);
    assert!(
        finding.text.contains("31.0 ms") && finding.text.contains("5578.0 ms"),
        "{}",
        finding.text
    );
    assert!(codes(&with(45.0)).is_empty(), "{:?}", codes(&with(45.0)));
}

#[test]
fn an_idle_line_is_judged_for_each_server() {
    let result = with_probes(
        4,
        &[
            ("Ping (ms) ICMP1 near", icmp(10.0, 20.0)),
            ("Ping (ms) ICMP2 far", icmp(500.0, 510.0)),
        ],
    );
    assert!(codes(&result).is_empty(), "{:?}", codes(&result));
    let grade = verdict(&result).grade.unwrap();
    assert_eq!((grade.added_ms, grade.added_p99_ms), (10.0, Some(10.0)));
    let unsteady: Vec<String> = icmp(10.0, 20.0)
        .split("},")
        .enumerate()
        .map(|(i, sample)| {
            if i % 5 == 0 {
                sample.replace("\"val\":10", "\"val\":300")
            } else {
                sample.to_owned()
            }
        })
        .collect();
    let result = with_probes(
        4,
        &[
            ("Ping (ms) ICMP1 near", unsteady.join("},")),
            ("Ping (ms) ICMP2 far", icmp(500.0, 510.0)),
        ],
    );
    let findings = verdict(&result).findings;
    assert!(
        findings
            .iter()
            .any(|found| found.code == "cross_traffic" && found.text.contains("to near")),
        "{findings:?}"
    );
}

#[test]
fn a_call_of_d_itg_has_one_way_delays_and_is_named() {
    let call: Vec<String> = (0..3000)
        .map(|i| {
            format!(
                r#"{{"t":{:.3},"seq":{i},"size":92,"val":24.8}}"#,
                BEGIN + f64::from(i) * 0.02
            )
        })
        .collect();
    let result = with_probes(4, &[("VoIP", call.join(","))]);
    assert!(result.probes.is_empty() && result.evidence.iter().any(|series| series.name == "VoIP"));
    let codes = codes(&result);
    assert!(
        codes.contains(&"voip_one_way".to_owned()) && codes.contains(&"no_baseline".to_owned()),
        "{codes:?}"
    );
    // irtt's are round trips. They are used if there is nothing else.
    let call = call
        .join(",")
        .replace("\"size\":92", "\"owd_up\":1,\"owd_down\":1");
    let result = with_probes(4, &[("VoIP", call)]);
    assert_eq!(result.summary.latency_median_ms, Some(24.8));
}

/// The checks of `fuzz/fuzz_targets/flent.rs`, for a real file with a few bytes changed.
fn survives(text: &str) {
    use crate::plot::{Plot, Run};
    let Ok(result) = from_json(text) else { return };
    let _ = crate::grade::Verdict::of(&result).to_text();
    let runs = [Run {
        name: "damaged",
        result: &result,
    }];
    for plot in Plot::ALL {
        let picture = plot.draw(&runs, Sheet::Wide).unwrap_or_default();
        assert!(
            !picture.contains("NaN") && !picture.contains("\"inf"),
            "{}",
            plot.name()
        );
    }
    let again = from_json(&to_json(&result)).unwrap();
    assert_eq!(again.flows.len(), result.flows.len());
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(100))]

    #[test]
    fn a_damaged_file_is_refused_or_read(
        edits in proptest::collection::vec((0..1_000_000_usize, "[0-9eE.,:\\[\\]{}\"-]{0,6}", 0..8_usize), 1..6)
    ) {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/flent/tcp_download-deep.flent.gz");
        let mut text = crate::file::unpack(std::fs::File::open(path).unwrap()).unwrap();
        for (at, with, length) in edits {
            let at = at % text.len();
            if let Some(range) = text.get(at..(at + length).min(text.len())).map(|cut| at..at + cut.len()) {
                text.replace_range(range, &with);
            }
        }
        survives(&text);
    }

    #[test]
    fn extreme_numbers_are_refused_or_read(
        length in proptest::num::f64::ANY, step in proptest::num::f64::ANY,
        t in proptest::num::f64::ANY, val in proptest::num::f64::ANY, dur in proptest::num::f64::ANY,
    ) {
        let plain = |n: f64| if n.is_finite() { format!("{n:e}") } else { "null".to_owned() };
        let raw = format!(
            r#""TCP upload BE":[{{"t":{0},"val":{1},"dur":{2}}},{{"t":1577880003,"val":{1},"dur":{2},"tcp_rtt":{1}}}],
            "Ping (ms) ICMP":[{{"t":{0},"val":{1},"seq":{2}}},{{"t":1577880003,"val":5,"seq":1}}]"#,
            plain(t), plain(val), plain(dur)
        );
        let text = old(4, &raw, "").replace("\"LENGTH\":10", &format!("\"LENGTH\":{}", plain(length)));
        survives(&text.replace("\"STEP_SIZE\":0.2", &format!("\"STEP_SIZE\":{}", plain(step))));
    }
}

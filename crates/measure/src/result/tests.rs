//! Tests of results, and example results for the tests of other modules.

use std::path::Path;

use sqm_core::direction::Direction;

use super::*;

/// An invented result with round figures: `bloat_ms` of queue delay under load, two flows in each direction.
pub(crate) fn example(title: &str, bloat_ms: f64, down_mbit: f64, up_mbit: f64) -> TestResult {
    let settings = Settings {
        down: 2,
        up: 2,
        idle_ms: 2000,
        load_ms: 8000,
        settle_ms: 2000,
        probe_interval_ms: 500,
        ..Settings::default()
    };
    let flow = |name: &str, direction, share: f64, mbit: f64| Flow {
        congestion: "cubic".to_owned(),
        samples: (1..=8)
            .map(|i| Sample {
                t_ms: f64::from(i) * 1000.0,
                bytes: (mbit * share * 125_000.0 * if i == 1 { 0.5 } else { 1.0 }) as u64,
            })
            .collect(),
        ..Flow::new(name, direction)
    };
    let probes = (-4..16)
        .map(|i| {
            let t_ms = f64::from(i) * 500.0;
            let filled = (t_ms / 2000.0).clamp(0.0, 1.0);
            let wobble = f64::from(i * i % 5) / 20.0;
            let rtt = 20.0 + bloat_ms * filled * (1.0 + wobble);
            Probe {
                due_ms: t_ms,
                t_ms,
                rtt_ms: (i != 9).then_some(rtt),
                ..Probe::default()
            }
        })
        .collect();
    let meta = Meta {
        test: "rrul_be_nflows".to_owned(),
        title: Some(title.to_owned()),
        time: "2026-01-02T03:04:05Z".to_owned(),
        host: "server.example".to_owned(),
        local: "192.0.2.1:50000".to_owned(),
        remote: "198.51.100.1:35353".to_owned(),
        program: "1.0.0".to_owned(),
        server_program: "1.0.0".to_owned(),
        kernel: "6.1.0".to_owned(),
        server_kernel: "6.1.0".to_owned(),
        settings,
        ..Meta::default()
    };
    let flows = vec![
        flow("TCP download BE::1", Direction::Download, 0.6, down_mbit),
        flow("TCP download BE::2", Direction::Download, 0.4, down_mbit),
        flow("TCP upload BE::1", Direction::Upload, 0.5, up_mbit),
        flow("TCP upload BE::2", Direction::Upload, 0.5, up_mbit),
    ];
    let probes = ProbeSeries {
        name: "Ping (ms) UDP BE".to_owned(),
        interval_ms: 500.0,
        samples: probes,
        ..ProbeSeries::default()
    };
    TestResult::new(meta, Vec::new(), flows, vec![probes])
}

/// An example result with a probe every `interval_ms`, so that there are enough probes for a grade.
pub(crate) fn with_probes_every(interval_ms: f64, bloat_ms: f64) -> TestResult {
    let made = example("x", bloat_ms, 20.0, 4.0);
    let samples = (0..(10_000.0 / interval_ms) as u32).map(|i| {
        let t_ms = f64::from(i) * interval_ms - 2000.0;
        let filled = (t_ms / 2000.0).clamp(0.0, 1.0);
        let wobble = f64::from(i * i % 5) / 20.0;
        Probe {
            due_ms: t_ms,
            t_ms,
            rtt_ms: Some(20.0 + bloat_ms * filled * (1.0 + wobble)),
            ..Probe::default()
        }
    });
    let series = ProbeSeries {
        interval_ms,
        samples: samples.collect(),
        ..made.probes[0].clone()
    };
    TestResult::new(made.meta, made.phases, made.flows, vec![series])
}

/// An example of a test of three phases on a line of 80 and 20 Mbit/s: load adds 100 ms to the download, 200 ms to the upload. A probe
/// of the upload phase is lost, and two with both directions loaded, of which one on its way back.
pub(crate) fn in_turn() -> TestResult {
    let settings = Settings {
        down: 1,
        up: 1,
        idle_ms: 2000,
        load_ms: 24_000,
        load_order: LoadOrder::InTurn,
        settle_ms: 2000,
        probe_interval_ms: 100,
        ..Settings::default()
    };
    let phases = settings.phases();
    let carries = |t_ms: f64, direction| {
        let phase = phases.iter().find(|p| t_ms >= p.from_ms && t_ms < p.to_ms);
        phase.map_or((false, false), |p| {
            (p.loaded.contains(&direction), p.loaded.len() == 1)
        })
    };
    let flow = |name: &str, direction, alone: u64, both: u64| Flow {
        samples: (0..24_u64)
            .map(|second| Sample {
                t_ms: (second + 1) as f64 * 1000.0,
                bytes: match carries(second as f64 * 1000.0, direction) {
                    (true, true) => alone * 125_000,
                    (true, false) => both * 125_000,
                    (false, _) => 0,
                },
            })
            .collect(),
        ..Flow::new(name, direction)
    };
    let probe = |i: i32| {
        let t_ms = f64::from(i) * 100.0;
        let queue = |direction, ms| if carries(t_ms, direction).0 { ms } else { 0.0 };
        // Every second answer of the first phase is 4 ms later than its neighbours.
        let wobble = match (0..80).contains(&i) {
            true => f64::from(i % 2) * 4.0 - 2.0,
            false => 0.0,
        };
        let down_ms = 10.0 + wobble + queue(Direction::Download, 100.0);
        let up_ms = 10.0 + queue(Direction::Upload, 200.0);
        let lost = [120, 200, 210].contains(&i);
        Probe {
            due_ms: t_ms,
            t_ms,
            rtt_ms: (!lost).then_some(down_ms + up_ms),
            up_ms: (!lost).then_some(up_ms),
            down_ms: (!lost).then_some(down_ms),
            lost: match i {
                120 => Some(Direction::Upload),
                200 => Some(Direction::Download),
                _ => None,
            },
            ..Probe::default()
        }
    };
    let meta = Meta {
        test: "tcp_bidirectional".to_owned(),
        settings,
        ..example("in turn", 0.0, 1.0, 1.0).meta
    };
    let flows = vec![
        flow("TCP download", Direction::Download, 80, 60),
        flow("TCP upload", Direction::Upload, 20, 10),
    ];
    let probes = ProbeSeries {
        name: "Ping (ms) UDP BE".to_owned(),
        interval_ms: 100.0,
        samples: (-20..240).map(probe).collect(),
        ..ProbeSeries::default()
    };
    TestResult::new(meta, Vec::new(), flows, vec![probes])
}

#[test]
fn figures_come_from_the_steady_window() {
    let summary = example("x", 1000.0, 20.0, 4.0).summary;
    assert_eq!(summary.idle_ms, Some(20.0));
    assert_eq!(summary.download_mbit, Some(20.0));
    assert_eq!(summary.upload_mbit, Some(4.0));
    assert_eq!(summary.jain_up, Some(1.0));
    assert_eq!((summary.probes_sent, summary.probes_lost), (20, 1));
    assert!(summary.latency_median_ms > Some(1000.0));
}

#[test]
fn a_result_is_read_back_from_its_file() {
    let result = example("a \"title\"", 100.0, 20.0, 4.0);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.json");
    std::fs::write(&path, result.to_json()).unwrap();
    assert_eq!(TestResult::load(&path).unwrap(), result);
}

#[test]
fn every_figure_is_read_back_to_the_last_bit() {
    let mut result = example("x", 1.0, 1.0, 1.0);
    result.probes[0].samples = (0..1000)
        .map(|i| Probe {
            due_ms: f64::from(i),
            t_ms: f64::from(i),
            rtt_ms: Some(f64::from(i).sqrt()),
            ..Probe::default()
        })
        .collect();
    result.redraw();
    assert!(TestResult::from_json(&result.to_json()).unwrap() == result);
}

#[test]
fn other_files_are_refused_with_a_reason() {
    let newer = example("x", 1.0, 1.0, 1.0)
        .to_json()
        .replacen("\"version\":2", "\"version\":3", 1);
    assert_eq!(
        TestResult::from_json(&newer).unwrap_err(),
        "its version is 3; this program reads version 2"
    );
    let other = r#"{"format":"flent","version":4}"#;
    assert_eq!(
        TestResult::from_json(other).unwrap_err(),
        "its format is 'flent', not 'sqm-test'"
    );
    assert!(
        TestResult::load(Path::new("/nonexistent"))
            .unwrap_err()
            .to_string()
            .contains("/nonexistent")
    );
}

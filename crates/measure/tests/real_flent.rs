//! The real Flent opens our files and plots them without a warning. `make flent` installs it.

use std::f64::consts::TAU;
use std::path::{Path, PathBuf};
use std::process::Command;

use sqm_core::direction::Direction;
use sqm_measure::result::{
    Flow, LoadOrder, Meta, Probe, ProbeSeries, Sample, Series, Settings, TcpSample, TestResult,
};
use sqm_measure::scenario::Scenario;

/// The newest version, and that of Debian 12.
const VERSIONS: [&str; 2] = ["2.3.0", "2.1.1"];

/// Flent 2.1.1 prints this for every file, also for its own, with any Matplotlib that runs on today's Python.
const OWN_TROUBLE: &str = "'Figure' object has no attribute '_cachedRenderer'";

#[test]
fn flent_draws_every_plot_of_rrul() {
    let settings = Settings {
        dscp: vec![0, 8, 40, 46],
        ..rrul_times()
    };
    let files = Files::of(&[("before", 300.0, settings.clone()), ("after", 5.0, settings)]);
    for version in some(&VERSIONS) {
        for plot in some(&["all_scaled", "totals"]) {
            files.draw(version, plot, 1);
        }
        for plot in some(&["box_combine", "ping_cdf"]) {
            files.draw(version, plot, 2);
        }
    }
    for plot in some(&["tcp_cwnd", "tcp_rtt"]) {
        files.draw(VERSIONS[0], plot, 1);
    }
}

#[test]
fn flent_draws_the_plots_of_plain_tests() {
    let times = rrul_times();
    for &(down, up, plots) in some(&[
        (8, 2, &["all_scaled", "box_combine"][..]),
        (4, 4, &["all_scaled", "box_combine"]),
        (8, 0, &["totals", "ping_cdf"]),
        (1, 0, &["totals"]),
    ]) {
        let settings = Settings {
            down,
            up,
            ..times.clone()
        };
        let files = Files::of(&[("one", 100.0, settings)]);
        for plot in some(plots) {
            files.draw(VERSIONS[0], plot, 1);
        }
    }
}

/// Flent knows no phases: each direction is silent while the other is loaded alone.
#[test]
fn flent_plots_a_test_of_three_phases() {
    let settings = Settings {
        load_ms: 30_000,
        load_order: LoadOrder::InTurn,
        ..rrul_times()
    };
    let files = Files::of(&[("phases", 100.0, settings)]);
    for version in some(&VERSIONS) {
        for plot in some(&["all_scaled", "totals", "box_combine", "ping_cdf"]) {
            files.draw(version, plot, 1);
        }
    }
}

/// A quick test has three seconds of idle line before the load and none after it. Flent cuts off five at both ends.
#[test]
fn flent_plots_a_short_test() {
    let settings = Settings {
        idle_ms: 3000,
        load_ms: 25_000,
        after_ms: 0,
        ..rrul_times()
    };
    let files = Files::of(&[("short", 100.0, settings)]);
    for plot in some(&["all_scaled", "box_combine"]) {
        files.draw(VERSIONS[0], plot, 1);
    }
}

#[test]
fn the_text_summary_has_our_figures() {
    let files = Files::of(&[("x", 100.0, rrul_times())]);
    for version in VERSIONS {
        let text = flent(
            version,
            &["-f", "summary", "-i", files.paths[0].to_str().unwrap()],
        );
        let sum = text
            .lines()
            .find(|line| line.contains("TCP download sum"))
            .expect("a line of the sum");
        let mean: f64 = sum
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .next()
            .expect("a figure");
        // Flent's mean over our grid, which includes the start of the flows.
        assert!((mean - 20.0).abs() < 0.5, "{sum}");
    }
}

/// The plots to draw, the tests whose plots are drawn, or the versions to draw them: the first, and all with `SQM_NIGHTLY`. Each plot
/// takes Flent three seconds of the processor.
fn some<T>(all: &[T]) -> &[T] {
    let is_nightly = std::env::var_os("SQM_NIGHTLY").is_some();
    if is_nightly { all } else { &all[..1] }
}

fn rrul_times() -> Settings {
    Settings {
        idle_ms: 5000,
        load_ms: 20_000,
        after_ms: 5000,
        ..Settings::default()
    }
}

/// A folder with result files.
struct Files {
    dir: tempfile::TempDir,
    paths: Vec<PathBuf>,
}

impl Files {
    fn of(tests: &[(&str, f64, Settings)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let save = |(title, bloat_ms, settings): &(&str, f64, Settings)| {
            let path = dir.path().join(format!("{title}.flent.gz"));
            made_up(title, *bloat_ms, settings).save(&path).unwrap();
            path
        };
        let paths = tests.iter().map(save).collect();
        Self { dir, paths }
    }

    /// Has Flent draw a plot of the first `count` files.
    fn draw(&self, version: &str, plot: &str, count: usize) {
        let picture = self.dir.path().join("picture.png");
        let mut words = vec!["-f", "plot", "-p", plot, "-o", picture.to_str().unwrap()];
        for path in &self.paths[..count] {
            words.extend(["-i", path.to_str().unwrap()]);
        }
        flent(version, &words);
        let size = std::fs::metadata(&picture)
            .unwrap_or_else(|e| panic!("{version} {plot}: {e}"))
            .len();
        assert!(
            size > 5000,
            "{version} {plot}: a picture of {size} bytes is empty"
        );
        std::fs::remove_file(picture).unwrap();
    }
}

/// Runs Flent and returns its output. A warning or an error fails the test.
fn flent(version: &str, words: &[&str]) -> String {
    let program = installed(version);
    let output = Command::new(&program)
        .args(words)
        .env("MPLBACKEND", "Agg")
        .output()
        .unwrap_or_else(|e| panic!("{}: {e}; 'make flent' installs it", program.display()));
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    let complaint = said.lines().find(|line| {
        let words = ["WARN", "ERROR", "Traceback", "Warning"];
        words.iter().any(|word| line.contains(word)) && !line.ends_with(OWN_TROUBLE)
    });
    assert!(
        output.status.success() && complaint.is_none(),
        "Flent {version} {words:?}: {said}"
    );
    said.into_owned()
}

fn installed(version: &str) -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache =
        cache.unwrap_or_else(|| Path::new(&std::env::var_os("HOME").expect("HOME is set")).join(".cache"));
    cache.join("sqm/flent").join(version).join("bin/flent")
}

/// An invented result with plausible figures: 20 Mbit/s down, 4 up, `bloat_ms` of queue delay.
fn made_up(title: &str, bloat_ms: f64, settings: &Settings) -> TestResult {
    let scenario = Scenario::of_flows(settings.down, settings.up, &settings.dscp);
    let flows = (0..settings.down + settings.up).map(|index| {
        let (direction, mbit, flows) = if index < settings.down {
            (Direction::Download, 20.0, settings.down)
        } else {
            (Direction::Upload, 4.0, settings.up)
        };
        let count = settings.load_ms / 100;
        let t = move |i: u64| i as f64 * 100.0;
        let phases = settings.phases();
        let is_loaded = move |t_ms: f64| {
            let phase = phases.iter().find(|p| t_ms > p.from_ms && t_ms <= p.to_ms);
            phase.is_some_and(|phase| phase.loaded.contains(&direction))
        };
        Flow {
            congestion: "cubic".to_owned(),
            mss: Some(1448),
            samples: (1..=count)
                .map(|i| {
                    let wave = 1.0 + 0.1 * (i as f64 / 20.0 * TAU + f64::from(index)).sin();
                    let mbit = if is_loaded(t(i)) { mbit } else { 0.0 };
                    Sample {
                        t_ms: t(i),
                        bytes: (mbit / f64::from(flows) * 12_500.0 * wave) as u64,
                    }
                })
                .collect(),
            sender: (1..=count / 2)
                .map(|i| TcpSample {
                    t_ms: t(2 * i),
                    rtt_ms: Some(20.0 + bloat_ms * (i as f64 / 9.0).sin().abs()),
                    rttvar_ms: Some(2.0),
                    cwnd: Some(10.0 + (i % 50) as f64),
                    delivery_mbit: Some(mbit / f64::from(flows)),
                    pacing_mbit: Some(mbit),
                    ..TcpSample::default()
                })
                .collect(),
            ..Flow::new(&scenario.flows[index as usize].name, direction)
        }
    });
    let first = -(settings.idle_ms as i64) / 50;
    let last = (settings.load_ms + settings.after_ms) as i64 / 50;
    let series = |name: &str, kind| ProbeSeries {
        name: name.to_owned(),
        kind,
        interval_ms: 50.0,
        samples: (first..last)
            .map(|i| {
                let t_ms = i as f64 * 50.0;
                let loaded = t_ms > 0.0 && t_ms < settings.load_ms as f64;
                let queue = if loaded {
                    bloat_ms * (0.8 + 0.2 * (t_ms / 1700.0).sin())
                } else {
                    0.0
                };
                let answered = i % 97 != 0;
                Probe {
                    due_ms: t_ms,
                    t_ms,
                    rtt_ms: answered.then_some(20.0 + queue + (i % 7) as f64 / 10.0),
                    up_ms: answered.then_some(10.0 + queue),
                    down_ms: answered.then_some(10.0),
                    lost: (!answered).then_some(Direction::Upload),
                    ..Probe::default()
                }
            })
            .collect(),
        ..ProbeSeries::default()
    };
    let plans = scenario.probes.iter();
    let probes = plans.map(|plan| series(&plan.name, plan.kind)).collect();
    let meta = Meta {
        test: scenario.test.clone(),
        title: Some(title.to_owned()),
        time: "2026-01-02T03:04:05Z".to_owned(),
        start_unix: Some(1_767_323_045.25),
        host: "server.example".to_owned(),
        local_host: "h1".to_owned(),
        remote: "198.51.100.1:35353".to_owned(),
        settings: settings.clone(),
        ..Meta::default()
    };
    let mut result = TestResult::new(meta, Vec::new(), flows.collect(), probes);
    result.evidence = vec![Series {
        name: "cpu_stats_h1::load".to_owned(),
        unit: String::new(),
        samples: (0..20).map(|i| (f64::from(i) * 1000.0, Some(0.3))).collect(),
    }];
    result
}

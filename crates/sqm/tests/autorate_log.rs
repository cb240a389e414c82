//! Logs of `option autorate_log` on the command line: replayed by `sqm autorate replay`, drawn by `sqm compare`.
//!
//! The logs are written here from runs on modelled lines, in the daemon's format. The lab (`lab/autorate.rs`) shows
//! that the daemon's own logs are replayed bit for bit.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::rc::Rc;

use serde_json::Value;
use sqm_autorate::trace::{ControllerConfig, Entry, HEADER, PROGRAM, Start, Step};
use sqm_autorate::{Autorate, CapacityByHour, Controller, Decision, Sample, Signal};
use sqm_core::direction::PerDirection;
use sqm_core::units::{Instant, Rate};
use sqm_sim::autorate_bench::{START, Signals, Trace, run_controller};
use tempfile::TempDir;

/// A controller that records its samples and its decisions.
struct Recorder {
    controller: Autorate,
    start: Option<Start>,
    rows: Rc<RefCell<Vec<Entry>>>,
}

impl Controller for Recorder {
    fn step(&mut self, now: Instant, samples: &[Sample]) -> Decision {
        let decision = self.controller.step(now, samples);
        let load = |wanted| {
            let of = |sample: &Sample| match sample.signal {
                Signal::Traffic {
                    direction,
                    bytes,
                    span,
                } if direction == wanted => Some(bytes.0 * 8_000_000 / (span.0 / 1000).max(1)),
                _ => None,
            };
            Rate::from_bits_per_sec(samples.iter().find_map(of).unwrap_or(0))
        };
        self.rows.borrow_mut().push(Entry {
            unix_ms: 1_700_000_000_000 + now.0 / 1_000_000,
            at: now,
            decision,
            throughput: PerDirection {
                download: load(sqm_core::direction::Direction::Download),
                upload: load(sqm_core::direction::Direction::Upload),
            },
            start: self.start.take(),
            steps: vec![Step {
                at: now,
                samples: samples.to_vec(),
            }],
        });
        decision
    }
}

/// The log lines of a run on a modelled line, without the header.
fn run(trace: &str, signals: Signals) -> Vec<String> {
    let traces = Trace::all(1);
    let trace = traces
        .iter()
        .find(|one| one.name == trace)
        .expect("a trace of this name");
    let config = ControllerConfig {
        program: "test-1".to_owned(),
        bounds: trace.bounds,
        learned: PerDirection::<CapacityByHour>::default(),
    };
    let rows = Rc::new(RefCell::new(Vec::new()));
    let recorder = Recorder {
        controller: Autorate::new(START, config.bounds, config.learned),
        start: Some(Start {
            at: START,
            resumes: None,
            config: Box::new(config),
        }),
        rows: rows.clone(),
    };
    run_controller(trace, Box::new(recorder), signals, 1);
    rows.borrow().iter().map(Entry::to_string).collect()
}

fn write(folder: &TempDir, name: &str, lines: &[String]) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, format!("{HEADER}\n{}\n", lines.join("\n"))).expect("a file");
    path
}

fn replay(logs: &[&Path], more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sqm"));
    command.args(["autorate", "replay"]).args(logs).args(more);
    command.output().expect("the program runs")
}

fn report(logs: &[&Path], more: &[&str]) -> Value {
    let output = replay(logs, &[more, &["--json"]].concat());
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_replay_makes_exactly_the_recorded_decisions() {
    let folder = TempDir::new().expect("a folder");
    for (trace, signals) in [
        ("collapse", Signals::Echo),
        ("step", Signals::OneWay),
        ("changing", Signals::Tcp),
    ] {
        let lines = run(trace, signals);
        let log = write(&folder, trace, &lines);
        let report = report(&[&log], &[]);
        assert_eq!(report["first_difference"], Value::Null, "{trace}");
        assert_eq!(report["different"], 0, "{trace}");
        assert_eq!(report["decisions"].as_u64(), Some(lines.len() as u64), "{trace}");
        assert_eq!(report["download"]["then"], report["download"]["now"], "{trace}");
        assert!(report["download"]["now"]["cuts"].as_u64() > Some(0), "{trace}");
    }
}

#[test]
fn a_log_of_an_earlier_controller_is_replayed_with_a_word_about_it() {
    let folder = TempDir::new().expect("a folder");
    let mut lines = run("changing", Signals::Echo);
    lines.truncate(100);
    let mut said = |program: &str| {
        lines[0] = lines[0].replace("test-1", program);
        let output = replay(&[&write(&folder, program, &lines)], &[]);
        lines[0] = lines[0].replace(program, "test-1");
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).expect("text");
        text.contains("another controller made the recorded decisions")
    };
    assert!(said("sqm-0.1.0"));
    assert!(!said(PROGRAM));
}

#[test]
fn other_bounds_or_another_controller_lead_to_other_decisions() {
    let folder = TempDir::new().expect("a folder");
    let log = write(&folder, "log", &run("changing", Signals::Echo));
    let bounded = report(&[&log], &["--max-download", "20mbit"]);
    let highest = |report: &Value, when: &str| report["download"][when]["highest_bits_per_sec"].as_u64();
    assert!(highest(&bounded, "then") > Some(20_000_000));
    assert_eq!(highest(&bounded, "now"), Some(20_000_000));
    assert_eq!(bounded["has_other_bounds"], true);
    let first = &bounded["first_difference"];
    assert_eq!(first["what"], "download");
    assert!(first["then"]["rate_bits_per_sec"].as_u64() > first["now"]["rate_bits_per_sec"].as_u64());
    let theirs = report(&[&log], &["--as", "cake-autorate"]);
    assert_eq!(theirs["download"]["then"], bounded["download"]["then"]);
    assert!(theirs["different"].as_u64() > theirs["decisions"].as_u64().map(|all| all / 2));
    let picture = folder.path().join("rates.svg");
    let text = replay(
        &[&log],
        &[
            "--as",
            "cake-autorate",
            "--plot",
            picture.to_str().expect("a plain name"),
        ],
    );
    let text = String::from_utf8(text.stdout).expect("text");
    for words in ["the first is ", "recorded ", "replayed ", "cuts"] {
        assert!(text.contains(words), "{words} in {text}");
    }
    let picture = fs::read_to_string(picture).expect("a picture");
    assert!(picture.contains("recorded rate") && picture.contains("Upload (Mbit/s)"));
}

#[test]
fn logs_and_tests_appear_together_in_figures_and_pictures() {
    let folder = TempDir::new().expect("a folder");
    let out = folder.path().to_str().expect("a plain name");
    let (one, two) = (
        write(&folder, "one.csv", &run("step", Signals::OneWay)),
        write(&folder, "two.csv", &run("collapse", Signals::Echo)),
    );
    let compare = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sqm"));
        let output = command.arg("compare").arg(&one).arg(&two).args(args).output();
        let output = output.expect("the program runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("text")
    };
    let text = compare(&[
        "--plot",
        "all",
        "--out",
        out,
        "--html",
        &format!("{out}/page.html"),
    ]);
    for words in ["one.csv", "two.csv", "download", "upload", "add med"] {
        assert!(text.contains(words), "{words} in {text}");
    }
    for name in ["autorate-1", "autorate-2", "autorate_cdf"] {
        let svg = folder.path().join(format!("{name}.svg"));
        assert!(fs::read_to_string(svg).expect("a picture").contains("two.csv") || name == "autorate-1");
    }
    assert!(!folder.path().join("ping_cdf.svg").exists());
    let page = fs::read_to_string(folder.path().join("page.html")).expect("a page");
    assert_eq!(page.matches("<svg").count(), 3);
    let json: Value = serde_json::from_str(&compare(&["--json"])).expect("JSON");
    // The model's line carries 40 Mbit/s at most and is idle at times.
    let down = &json["logs"][0]["download"];
    assert!(down["rate_max_mbit"].as_f64() > Some(40.0), "{down}");
    assert!(
        down["load_mean_mbit"].as_f64() < down["rate_mean_mbit"].as_f64(),
        "{down}"
    );
    assert!(json["logs"][1]["delay"]["added_p95_ms"].as_f64() > Some(0.0));
    assert_eq!(json["runs"], Value::Array(Vec::new()));
}

#[test]
fn a_truncated_log_is_replayed_and_a_damaged_one_is_refused_with_its_line() {
    let folder = TempDir::new().expect("a folder");
    let lines = run("collapse", Signals::Echo);
    // A crash truncated the last line.
    let whole = fs::read_to_string(write(&folder, "whole", &lines)).expect("text");
    let cut = folder.path().join("cut");
    fs::write(&cut, &whole[..whole.len() - 9]).expect("a file");
    let told = report(&[&cut], &[]);
    assert_eq!(
        (&told["different"], &told["cut_lines"][0]["line"]),
        (&0.into(), &(lines.len() + 1).into())
    );
    // The end of a log, as `tail` prints it. The controller's state at the beginning is missing.
    let tail = write(&folder, "tail", &lines[lines.len() / 2..]);
    let told = report(&[&tail], &[]);
    assert_eq!(told["runs"][0]["is_exact"], false);
    assert!(told["decisions"].as_u64() > Some(100));
    let text = String::from_utf8(replay(&[&tail], &[]).stdout).expect("text");
    assert!(text.contains("line 2: the log begins in the middle"), "{text}");
    // A log that is damaged in the middle.
    let mut broken = lines.clone();
    broken[7] = broken[7].replace("step", "step stop");
    let broken = write(&folder, "broken", &broken);
    let output = replay(&[&broken], &[]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(said.contains("broken: line 9: column 10: \"stop"), "{said}");
    assert!(output.stdout.is_empty());
    // A file that is no log, a missing file, and an unknown option.
    let other = folder.path().join("other");
    fs::write(&other, "{}").expect("a file");
    let said = replay(&[&other], &[]);
    assert_eq!(said.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&said.stderr).contains("line 1"));
    assert_eq!(replay(&[Path::new("/nowhere")], &[]).status.code(), Some(1));
    assert_eq!(replay(&[&tail], &["--write"]).status.code(), Some(2));
    // Options that have no effect without a log are refused.
    for args in [
        &["server.example", "--max-upload", "3mbit"][..],
        &["--as", "cake-autorate"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sqm"));
        let output = command.arg("tune").args(args).output().expect("the program runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(2) && said.contains(args[args.len() - 2]),
            "{said}"
        );
    }
    assert_eq!(replay(&[&tail], &["--max-upload", "fast"]).status.code(), Some(2));
}

#[test]
fn an_endless_log_is_refused_at_once() {
    let folder = TempDir::new().expect("a folder");
    let long = folder.path().join("long.csv");
    // No line is longer than allowed, but the file as a whole is.
    fs::write(&long, format!("{}\n", "x".repeat(60_000)).repeat(600)).expect("a file");
    let escapes = folder.path().join("escapes.csv");
    fs::write(
        &escapes,
        format!("{HEADER}\n1,2,0,4,5,\x1b[31m\u{202e},7,8,grow,\"step\"\n").repeat(3),
    )
    .expect("a file");
    for log in [Path::new("/dev/zero"), Path::new("/dev/urandom"), &long, &escapes] {
        let output = Command::new("timeout")
            .args(["30", env!("CARGO_BIN_EXE_sqm"), "autorate", "replay"])
            .arg(log)
            .output()
            .expect("the program runs");
        // `timeout` exits with 124 if it had to end the program.
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(1), "{log:?}: {said}");
        assert!(said.contains(log.to_str().expect("text")), "{said}");
        assert!(
            said.len() < 1000 && !said.contains(|c: char| c.is_control() && c != '\n'),
            "{said:?}"
        );
    }
}

/// A log of cake-autorate with the samples and rates of a log of ours.
fn as_cake_autorate(lines: &[String]) -> String {
    let mut text = String::from(
        "DATA_HEADER; LOG_DATETIME; LOG_TIMESTAMP; PROC_TIME_US; DL_ACHIEVED_RATE_KBPS; UL_ACHIEVED_RATE_KBPS; REFLECTOR; \
         DL_OWD_US; UL_OWD_US; DL_OWD_DELTA_US; UL_OWD_DELTA_US; DL_LOAD_CONDITION; UL_LOAD_CONDITION; CAKE_DL_RATE_KBPS; \
         CAKE_UL_RATE_KBPS\n\
         LOAD_HEADER; LOG_DATETIME; LOG_TIMESTAMP; PROC_TIME_US; DL_ACHIEVED_RATE_KBPS; UL_ACHIEVED_RATE_KBPS; \
         CAKE_DL_RATE_KBPS; CAKE_UL_RATE_KBPS\n",
    );
    for line in lines {
        let entry = Entry::parse(line).expect("a line");
        let micros = entry.at.0 / 1000;
        let at = format!("{}.{:06}", 1_787_000_000 + micros / 1_000_000, micros % 1_000_000);
        let kbit = |rate: Rate| rate.bits_per_sec() / 1000;
        let (down, up) = (entry.decision.rates.download, entry.decision.rates.upload);
        let loads = format!(
            "{}; {}",
            kbit(entry.throughput.download),
            kbit(entry.throughput.upload)
        );
        let rates = format!("{}; {}", kbit(down.rate), kbit(up.rate));
        let condition = |is_cut: bool| if is_cut { "high_bb" } else { "high" };
        for sample in entry.steps.iter().flat_map(|step| &step.samples) {
            if let Signal::Echo { reflector, rtt, .. } = sample.signal {
                let half = rtt.0 / 2000;
                text += &format!(
                    "DATA; 2026-08-19-14:13:14; {at}; {at}; {loads}; 192.0.2.{reflector}; {half}; {half}; 0; 0; dl_{}; ul_{}; {rates}\n",
                    condition(down.reason.is_cut()),
                    condition(up.reason.is_cut())
                );
            }
        }
        text += &format!("LOAD; 2026-08-19-14:13:14; {at}; {at}; {loads}; {rates}\n");
    }
    text
}

#[test]
fn a_log_of_cake_autorate_is_compared_and_replayed() {
    let folder = TempDir::new().expect("a folder");
    let lines = run("lte", Signals::Echo);
    let ours = write(&folder, "ours.csv", &lines);
    let theirs = folder.path().join("cake-autorate.primary.log");
    fs::write(&theirs, as_cake_autorate(&lines)).expect("a file");
    // As cake-autorate exports it.
    let packed = Command::new("gzip")
        .args(["-k"])
        .arg(&theirs)
        .status()
        .expect("gzip runs");
    assert!(packed.success());
    let exported = folder.path().join("cake-autorate.primary.log.gz");
    let compare = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sqm"));
        command
            .arg("compare")
            .args([&ours, &theirs, &exported])
            .args(more);
        let output = command.output().expect("the program runs");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && told.is_empty(), "{told}");
        String::from_utf8(output.stdout).expect("text")
    };
    let figures: Value = serde_json::from_str(&compare(&["--json"])).expect("JSON");
    let logs = figures["logs"].as_array().expect("logs");
    assert_eq!(logs[1]["delay"], logs[2]["delay"], "compressed or not");
    let number = |log: &Value, path: &str| log.pointer(path).and_then(Value::as_f64);
    for path in [
        "/download/rate_mean_mbit",
        "/upload/rate_median_mbit",
        "/delay/added_median_ms",
        "/delay/added_p95_ms",
    ] {
        let (own, other) = (
            number(&logs[0], path).expect(path),
            number(&logs[1], path).expect(path),
        );
        assert!(
            (own - other).abs() <= 0.002 + own * 0.001,
            "{path}: {own} and {other}"
        );
    }
    assert_eq!(logs[1]["delay"]["lost"], Value::Null);
    let pictures = folder.path().join("pictures");
    let table = compare(&[
        "--plot",
        "autorate,autorate_cdf",
        "--out",
        &pictures.to_string_lossy(),
    ]);
    assert!(table.contains("cake-autorate.primary.log"), "{table}");
    let picture = fs::read_to_string(pictures.join("autorate-2.svg")).expect("a picture");
    assert!(
        picture.contains("worst") && !picture.contains("lost"),
        "its losses are not known"
    );

    let replayed = report(&[&theirs], &["--min-download", "1mbit"]);
    assert_eq!(replayed["runs"][0]["program"], "cake-autorate");
    assert_eq!(replayed["runs"][0]["is_exact"], false);
    assert_ne!(replayed["first_difference"]["what"], "probes");
    let text = String::from_utf8(replay(&[&theirs], &[]).stdout).expect("text");
    assert!(text.contains("does not hold the bounds of its rates"), "{text}");
}

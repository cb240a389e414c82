//! `sqm-lab autorate bench --line`: recorded lines from files of each format.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

fn bench(folder: &Path, words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sqm-lab"));
    command
        .args(["autorate", "bench"])
        .args(words.split(' '))
        .current_dir(folder);
    command.output().expect("the program runs")
}

fn report(folder: &Path, words: &str) -> Value {
    let output = bench(folder, &format!("{words} --json"));
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// A line of 12 and 3 Mbit/s for ten seconds that falls to a third in the middle, in each format.
fn recordings() -> TempDir {
    let folder = TempDir::new().expect("a folder");
    let write = |name: &str, text: String| fs::write(folder.path().join(name), text).expect("a file");
    let mut csv = "# a tunnel\ntime_s,download_kbit,upload_kbit\n".to_owned();
    let (mut download, mut upload) = (String::new(), String::new());
    for period in 0..250 {
        let (down, up) = if (100..150).contains(&period) {
            (10, 5)
        } else {
            (40, 10)
        };
        csv += &format!("{:.2},{},{}\n", f64::from(period) * 0.04, down * 300, up * 300);
        let opportunities = |count| {
            let line = |n| format!("{}\n", period * 40 + 39 - (count - 1 - n) * 40 / count);
            (0..count).map(line).collect::<String>()
        };
        download += &opportunities(down);
        upload += &opportunities(up);
    }
    write("tunnel.csv", csv);
    write("bus.down", download);
    write("bus.up", upload);
    let log = (0..20).map(|n| {
        let (down, up) = if n / 5 == 2 {
            (4_000_000, 1_500_000)
        } else {
            (12_000_000, 3_000_000)
        };
        let begin = if n == 0 { "begin:x:1:2:3:1:2:3 " } else { "" };
        format!(
            "{n},{},0,{down},0,grow,{up},0,grow,\"{begin}step\"\n",
            n * 500_000
        )
    });
    write("rates.csv", log.collect());
    folder
}

const SHORT: &str = "--signals echo --load 2/1:10";

#[test]
fn files_of_each_format_are_lines_and_the_same_line_gives_the_same_figures() {
    let folder = recordings();
    let words =
        format!("--line tunnel.csv bus.down,bus.up rates.csv {SHORT} --seed 1-2 --contender sqm,oracle");
    let report = report(folder.path(), &words);
    let runs = report["runs"].as_array().expect("a list");
    let told: Vec<_> = runs
        .iter()
        .map(|run| format!("{} {} {}", run["line"], run["controller"], run["seed"]).replace('"', ""))
        .collect();
    let expected: Vec<_> = ["tunnel", "bus", "rates"]
        .into_iter()
        .flat_map(|line| ["sqm 1", "sqm 2", "oracle 1", "oracle 2"].map(|run| format!("{line} {run}")))
        .collect();
    assert_eq!(told, expected);
    for index in 0..4 {
        let mut of_mahimahi = runs[4 + index].clone();
        of_mahimahi["line"] = runs[index]["line"].clone();
        assert_eq!(of_mahimahi, runs[index]);
    }
    // 12 Mbit/s for 8 s and 3 Mbit/s for 2 s are 12.75 MB.
    for oracle in [&runs[2], &runs[10]] {
        let delivered = oracle["delivered_down_mbytes"].as_f64().expect("a number");
        assert!((8.0..12.9).contains(&delivered), "{delivered}");
    }
    let mean = &report["means"][0];
    let sum = [&runs[0], &runs[1]]
        .map(|run| run["utility"].as_f64().expect("a number"))
        .iter()
        .sum::<f64>();
    assert_eq!(mean["utility"].as_f64(), Some(sum / 2.0));
    assert_eq!(report["controllers"][0]["pairs"], 3);
    assert_eq!(report["controllers"][0]["against_cake_autorate"], Value::Null);
}

#[test]
fn one_table_compares_the_controllers_and_a_seed_gives_the_same_output() {
    let folder = recordings();
    let words = format!("--line tunnel.csv {SHORT}");
    let [once, twice] = [bench(folder.path(), &words), bench(folder.path(), &words)];
    assert_eq!(once.stdout, twice.stdout);
    let text = String::from_utf8(once.stdout).expect("text");
    assert!(text.starts_with("means over seed 1\n"), "{text}");
    for controller in ["sqm", "cake-autorate", "oracle", "unshaped"] {
        assert_eq!(
            text.matches(&format!("tunnel        echo     {controller} "))
                .count(),
            1,
            "{text}"
        );
        assert_eq!(text.matches(&format!("\n{controller} ")).count(), 1, "{text}");
    }
    let last = text.lines().find(|line| line.starts_with("sqm "));
    assert!(
        last.is_some_and(|line| line.contains(" of 1 ") && line.contains("(tunnel, echo)")),
        "{text}"
    );
}

#[test]
fn each_run_has_a_picture() {
    let folder = recordings();
    let words = format!("--line tunnel.csv {SHORT} --contender sqm,unshaped --pictures new/pictures");
    let output = bench(folder.path(), &words);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let picture =
        |name: &str| fs::read_to_string(folder.path().join("new/pictures").join(name)).expect("a picture");
    let shaped = picture("tunnel-echo-sqm-1.svg");
    for word in [
        "tunnel, echo, sqm, seed 1",
        "Download (Mbit/s)",
        "Upload (ms)",
        ">capacity<",
        ">rate<",
        ">queue<",
    ] {
        assert!(shaped.contains(word), "{word}");
    }
    assert!(!picture("tunnel-echo-unshaped-1.svg").contains(">rate<"));
    // A folder that is a file.
    let output = bench(
        folder.path(),
        &format!("--line tunnel.csv {SHORT} --pictures tunnel.csv"),
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_bad_file_is_an_error_with_its_name_and_line() {
    let folder = recordings();
    let write = |name: &str, text: &[u8]| fs::write(folder.path().join(name), text).expect("a file");
    write("short.csv", b"0,1000,1000\n1,1000\n");
    write("order.up", b"5\n3\n");
    write(
        "broken.log",
        b"1,2,0,4,5,grow,7,8,grow,\"step\"\nwhat\n1,2,0,4,5,grow,7,8,grow,\"step\"\n",
    );
    write("binary.csv", b"0,1,1\n\xff\n");
    for (line, words) in [
        ("short.csv", "short.csv: line 2: not three numbers"),
        ("bus.down,order.up", "order.up: line 2: the time is before"),
        ("bus.down,none", "none"),
        (
            "bus.down",
            "bus.down: a packet-delivery file is for one direction",
        ),
        ("broken.log", "broken.log: line 2: "),
        ("binary.csv", "binary.csv is not text"),
        ("none.csv", "none.csv"),
    ] {
        let output = bench(folder.path(), &format!("--line {line}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {said}");
        assert!(said.contains(words) && output.stdout.is_empty(), "{line}: {said}");
    }
}

#[test]
fn wrong_arguments_are_named() {
    let folder = recordings();
    for (words, said) in [
        ("--line tunnel.csv --load 5/0:20", "DOWNLOADS/UPLOADS:SECONDS"),
        ("--line tunnel.csv --load 0/0:20", "has no flow"),
        ("--line tunnel.csv --buffer 100", "100ms"),
        ("--line tunnel.csv --min 2", "from 0.01 to 1"),
        ("--line tunnel.csv --contender sqmm", "cake-autorate"),
        ("--line tunnel.csv --trace lte", "cannot be used with"),
        ("--line tunnel.csv ./tunnel.csv", "two lines are called 'tunnel'"),
        ("--load 1/1:5", "--line"),
    ] {
        let output = bench(folder.path(), words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}: {error}");
        assert!(error.contains(said), "{words}: {error}");
    }
}

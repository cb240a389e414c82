//! `sqm-lab autorate bench` on the command line: two runs give the same output, and a wrong name is reported clearly.

use std::process::{Command, Output};

use serde_json::Value;

fn bench(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sqm-lab"));
    command.args(["autorate", "bench"]).args(args);
    command.output().expect("the program runs")
}

#[test]
fn the_same_seed_gives_the_same_output() {
    let args = ["--trace", "collapse", "--signals", "echo", "--json"];
    let [once, twice] = [bench(&args), bench(&args)];
    assert!(once.status.success());
    assert_eq!(once.stdout, twice.stdout);
    let report: Value = serde_json::from_slice(&once.stdout).expect("JSON");
    let runs = report["runs"].as_array().expect("a list");
    let controllers: Vec<_> = runs.iter().map(|run| &run["controller"]).collect();
    assert_eq!(controllers, ["sqm", "cake-autorate", "oracle", "unshaped"]);
    assert!(
        runs[0]["delivered_down_bytes"]
            .as_u64()
            .is_some_and(|bytes| bytes > 0)
    );
    let bytes = |run: &Value| {
        let of = |what| run[what].as_f64().expect("a number");
        of("delivered_down_bytes") + of("delivered_up_bytes")
    };
    let more = 100.0 * (bytes(&runs[0]) / bytes(&runs[1]) - 1.0);
    let said = report["varying"][0]["more_bytes_percent"].as_f64();
    assert!(
        said.is_some_and(|said| (said - more).abs() < 1e-6),
        "{said:?} {more}"
    );
}

#[test]
fn the_table_shows_ours_theirs_and_the_difference() {
    let output = bench(&["--trace", "collapse", "--signals", "echo"]);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.starts_with("signals: echo\n"), "{text}");
    for word in ["sqm", "cake-autorate", "oracle", "unshaped", "difference"] {
        assert_eq!(text.matches(&format!(" {word} ")).count(), 1, "{word} in {text}");
    }
    assert!(text.contains("\nall lines that vary, in total: "), "{text}");
}

#[test]
fn many_seeds_show_the_mean_and_the_worst_of_them() {
    let args = ["--trace", "collapse", "--signals", "one-way", "--seed", "1-3"];
    let json = bench(&[&args[..], &["--json"]].concat());
    let report: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    let runs = report["runs"].as_array().expect("a list");
    let seeds: Vec<_> = runs.iter().filter_map(|run| run["seed"].as_u64()).collect();
    assert_eq!(seeds, [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]);
    let above = |run: &Value| run["above_30_ms_percent"].as_f64().expect("a number");
    let changes: Vec<_> = runs
        .chunks(4)
        .map(|trace| 100.0 * (above(&trace[0]) / above(&trace[1]) - 1.0))
        .collect();
    let mean = changes.iter().sum::<f64>() / 3.0;
    let worst = changes.iter().copied().fold(f64::MIN, f64::max);
    let text = String::from_utf8(bench(&args).stdout).expect("text");
    assert!(
        text.starts_with("signals: one-way, seeds 1 to 3, against cake-autorate\n"),
        "{text}"
    );
    let row = text.lines().find(|line| line.starts_with("collapse     sqm "));
    let words: Vec<_> = row.expect("a row").split_whitespace().collect();
    assert_eq!(words[2], format!("{mean:+.1}"), "{text}");
    assert_eq!(words[4], format!("{worst:+.1}"), "{text}");
}

#[test]
fn invalid_seeds_are_a_usage_error() {
    for wrong in ["3-1", "some", "1-"] {
        let output = bench(&["--seed", wrong]);
        assert_eq!(output.status.code(), Some(2), "{wrong}");
        let error = String::from_utf8(output.stderr).expect("text");
        assert!(error.contains("seed"), "{error}");
    }
}

#[test]
fn an_unknown_trace_is_a_usage_error_that_names_the_nearest() {
    let output = bench(&["--trace", "colapse"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).expect("text");
    assert!(
        error.contains("'colapse'") && error.contains("'collapse'"),
        "{error}"
    );
}

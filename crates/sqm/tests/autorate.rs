//! The bench of autorate on the command line: the same twice, and clear about a wrong name.

use std::process::{Command, Output};

use serde_json::Value;

fn bench(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sqm"));
    command.args(["autorate", "bench"]).args(args);
    command.output().expect("the program runs")
}

#[test]
fn the_same_seed_prints_the_same_twice() {
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
    assert!(text.contains("\nall lines that vary, in sum: "), "{text}");
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

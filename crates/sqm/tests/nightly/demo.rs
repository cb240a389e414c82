//! The figures of the demonstration that the README shows.

use std::path::Path;
use std::process::Command;

/// By how much a figure may differ from the README's. On the unshaped lines a single packet decides which flow loses the next one, so
/// that two builds differ by up to 8 %.
const TOLERANCE: f64 = 0.15;

/// The rows of the table: a name, and its figures without the percentages.
fn rows(text: &str) -> Vec<(String, Vec<f64>)> {
    text.lines()
        .map(|line| line.split_whitespace().collect::<Vec<&str>>())
        .filter(|words| words.len() > 2 && ["before", "after"].contains(&words[1]))
        .map(|words| {
            let figures = words[2..].iter().filter_map(|word| word.parse().ok());
            (words[..2].join(" "), figures.collect())
        })
        .collect()
}

#[test]
fn the_demonstration_prints_the_figures_of_the_readme() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let begin = readme
        .find("```\n                        idle ms")
        .expect("the table");
    let shown = rows(readme[begin..].split("\n```").next().unwrap());
    assert_eq!(shown.len(), 4, "{shown:?}");

    let out = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_sqm-lab"))
        .args(["demo", "--clock", "virtual", "--out"])
        .arg(out.path())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let printed_rows = rows(&printed);
    assert_eq!(printed_rows.len(), shown.len(), "{printed}");
    for ((name, shown), (printed_name, figures)) in shown.iter().zip(&printed_rows) {
        assert_eq!(name, printed_name);
        let is_near = |(a, b): (&f64, &f64)| (a - b).abs() <= a * TOLERANCE;
        assert!(
            shown.len() == figures.len() && shown.iter().zip(figures).all(is_near),
            "{name}: the README shows {shown:?}, and the demonstration printed\n{printed}"
        );
    }
    assert!(out.path().join("index.html").exists(), "{printed}");
}

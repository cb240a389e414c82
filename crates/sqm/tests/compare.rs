//! `sqm compare` as a user runs it, over files that the real Flent wrote.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn compare(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sqm"))
        .arg("compare")
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Every file of Flent's that is kept as test data.
fn flent_files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../measure/tests/flent");
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|e| e == "gz"))
        .collect();
    files.sort();
    files
}

fn file(name: &str) -> String {
    let found = flent_files()
        .into_iter()
        .find(|path| path.ends_with(format!("{name}.flent.gz")))
        .unwrap();
    found.to_str().unwrap().to_owned()
}

#[test]
fn ten_files_of_flent_and_more_stand_in_one_table() {
    let files = flent_files();
    assert!(files.len() >= 10, "{}", files.len());
    let words: Vec<&str> = files.iter().map(|path| path.to_str().unwrap()).collect();
    let output = compare(&[&words[..], &["--json"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let runs = json["runs"].as_array().unwrap();
    assert_eq!(runs.len(), files.len());
    for run in runs {
        assert!(
            run["meta"]["program"]
                .as_str()
                .unwrap()
                .starts_with("Flent 2.3.0"),
            "{run}"
        );
        let probes = run["summary"]["probes"].as_array().unwrap();
        assert!(
            probes
                .iter()
                .any(|p| p["idle"]["median_ms"].is_f64() || p["loaded"]["median_ms"].is_f64()),
            "{run}"
        );
    }
    let table = compare(&words);
    assert!(table.status.success());
    assert!(
        text(&table.stdout)
            .lines()
            .filter(|line| line.contains("deep FIFO 20/5"))
            .count()
            >= 5
    );
}

#[test]
fn a_deep_and_a_short_queue_differ_in_figures_and_pictures() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("pictures");
    let page = dir.path().join("report.html");
    let (deep, short) = (file("rrul_be-deep"), file("rrul_be-short"));
    let output = compare(&[
        &deep,
        &short,
        "--plot",
        "all",
        "--out",
        out.to_str().unwrap(),
        "--html",
        page.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let worst_twentieth = |name: &str| -> f64 {
        let line = text(&output.stdout)
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap();
        line[name.len()..]
            .split_whitespace()
            .nth(2)
            .unwrap()
            .parse()
            .unwrap()
    };
    // BBR, with which these were made, fills the deep queue only now and then: the median hardly shows it.
    assert!(
        worst_twentieth("deep FIFO 20/5") > 3.0 * worst_twentieth("short FIFO 18/4.5"),
        "{}",
        text(&output.stdout)
    );
    for name in [
        "box_combine",
        "ping_cdf",
        "totals",
        "all_scaled-1",
        "all_scaled-2",
        "per_flow-1",
        "per_flow-2",
    ] {
        let svg = std::fs::read_to_string(out.join(format!("{name}.svg"))).unwrap();
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"), "{name}");
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("deep FIFO 20/5") && page.matches("<svg").count() >= 7);
    assert!(!page.contains("src=") && !page.contains("<script"));
}

/// Width and height that a PNG names, and whether it has more than one colour: pixels are not all alike.
fn png_size(bytes: &[u8]) -> (u32, u32) {
    assert_eq!(&bytes[..8], b"\x89PNG\r\n\x1a\n");
    assert_eq!(&bytes[12..16], b"IHDR");
    let at = |i: usize| u32::from_be_bytes(bytes[i..i + 4].try_into().unwrap());
    (at(16), at(20))
}

#[test]
fn pictures_come_as_png_too() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_str().unwrap();
    let deep = file("rrul_be-deep");
    let output = compare(&[&deep, "--plot", "all_scaled", "--png", "--out", out]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let svg = std::fs::read_to_string(dir.path().join("all_scaled.svg")).unwrap();
    let png = std::fs::read(dir.path().join("all_scaled.png")).unwrap();
    let (width, height) = png_size(&png);
    let view_box = format!("viewBox=\"0 0 {} {}\"", width / 2, height / 2);
    assert!(svg.contains(&view_box), "{width} x {height}");
    // Lines and words, not a white sheet.
    assert!(png.len() > 20_000, "{}", png.len());
    let output = compare(&[&deep, "--png"]);
    assert_eq!(
        output.status.code(),
        Some(2),
        "--png without --plot has no effect"
    );
}

#[test]
fn what_cannot_be_read_is_named_and_exits_with_one() {
    let dir = tempfile::tempdir().unwrap();
    let broken = dir.path().join("broken.flent.gz");
    std::fs::write(&broken, b"\x1f\x8b\x08 no gzip").unwrap();
    let output = compare(&[&file("ping"), broken.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("broken.flent.gz"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(compare(&["/nonexistent.flent.gz"]).status.code(), Some(1));
    assert_eq!(compare(&[]).status.code(), Some(2));
    assert_eq!(compare(&[&file("ping"), "--plot", "pie"]).status.code(), Some(2));
}

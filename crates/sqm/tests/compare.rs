//! `sqm compare` on the command line, with files that Flent itself wrote.

mod support;

use std::fs;
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

/// All Flent files among the test data.
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
fn many_files_appear_in_one_table() {
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
    // Five tests have the title "deep FIFO 20/5": rows with equal titles are told apart by their files.
    let said = text(&table.stdout);
    for name in ["rrul-deep ", "rrul_be-deep ", "tcp_ndown-deep "] {
        assert!(said.lines().any(|line| line.starts_with(name)), "{name}: {said}");
    }
}

#[test]
fn the_base_decides_the_sign_of_a_difference() {
    let (deep, short) = (file("rrul_be-deep"), file("rrul_be-short"));
    let change = |options: &[&str]| -> f64 {
        let output = compare(&[&[deep.as_str(), &short, "--json"], options].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        let found = &json["differences"][1];
        assert_eq!(found["figure"], "loaded latency, 95 %");
        assert_eq!(found["clear"], true, "{found}");
        found["mean"].as_f64().unwrap()
    };
    let from_first = change(&[]);
    assert!(from_first < -100.0, "{from_first}");
    assert_eq!(change(&["--base", "short FIFO 18/4.5"]), -from_first);
    assert_eq!(change(&["--base", &short]), -from_first);
    assert_eq!(change(&["--base", "rrul_be-deep"]), from_first);
    let unknown = compare(&[&deep, &short, "--base", "monday"]);
    assert_eq!(unknown.status.code(), Some(2));
    let said = text(&unknown.stderr);
    assert!(
        said.contains("monday") && said.contains("short FIFO 18/4.5"),
        "{said}"
    );
    // A clear difference needs no repetitions, and a small one does.
    let table = compare(&[&deep, &short]);
    let said = text(&table.stdout);
    let line = |figure: &str| said.lines().find(|line| line.starts_with(figure)).unwrap();
    assert!(!line("loaded latency, 95 %").contains("too few"), "{said}");
    assert!(line("download").contains("too few"), "{said}");
}

#[test]
fn the_summary_of_a_demonstration_is_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let summary = dir.path().join("summary.json");
    let figures = r#"{"latency_median_ms":1.0,"latency_p95_ms":2.0,"download_mbit":3.0,"upload_mbit":null}"#;
    fs::write(
        &summary,
        format!(r#"{{"lines":[{{"name":"vdsl","idle_ms":1.0,"before":{figures},"after":{figures}}}]}}"#),
    )
    .unwrap();
    let summary = summary.to_str().unwrap();
    let output = compare(&[summary, &file("rrul_be-deep")]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("summary.json: skipped"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(compare(&[summary]).status.code(), Some(1));
    fs::write(summary, r#"{"lines":[]}"#).unwrap();
    assert_eq!(compare(&[summary, &file("rrul_be-deep")]).status.code(), Some(1));
}

#[test]
fn a_direction_that_was_not_tested_has_no_figure() {
    let down = file("tcp_download-deep");
    let output = compare(&[&down, "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let summary = &json["runs"][0]["summary"];
    assert!(
        summary["download_mbit"].is_f64() && summary["upload_mbit"].is_null(),
        "{summary}"
    );
    let table = compare(&[&down]);
    assert!(!text(&table.stdout).contains("0.00"), "{}", text(&table.stdout));
    let dir = tempfile::tempdir().unwrap();
    let output = compare(&[&down, "--plot", "all", "--out", dir.path().to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for picture in ["all_scaled", "totals", "box_combine", "per_flow"] {
        let svg = fs::read_to_string(dir.path().join(format!("{picture}.svg"))).unwrap();
        assert!(
            !svg.contains("Upload (Mbit/s)") && !svg.contains("0 Mbit/s<"),
            "{picture}"
        );
    }
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
    // These files were made with BBR, which fills the deep queue only now and then. The median hardly shows it.
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

/// Width and height from the header of a PNG. Fails unless it has more than one colour: an empty picture would be
/// uniform.
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
    // An empty sheet would be smaller.
    assert!(png.len() > 20_000, "{}", png.len());
    let output = compare(&[&deep, "--png"]);
    assert_eq!(
        output.status.code(),
        Some(2),
        "--png without --plot has no effect"
    );
}

#[test]
fn one_picture_has_the_name_that_svg_and_png_give_it() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (deep, ping) = (file("rrul_be-deep"), file("ping"));
    let (svg, png) = (at("a.svg"), at("b.png"));
    let output = compare(&[&deep, &ping, "--plot", "ping_cdf", "--svg", &svg, "--png", &png]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(std::fs::read_to_string(&svg).unwrap().starts_with("<svg"));
    assert!(png_size(&std::fs::read(&png).unwrap()).0 > 1000);
    let only = at("only.png");
    assert!(
        compare(&[&deep, "--plot", "all_scaled", "--png", &only])
            .status
            .success()
    );
    let mut names: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["a.svg", "b.png", "only.png"]);
    // Several pictures have no place in one file, and a picture has no place in a test.
    for (words, why) in [
        (
            vec![&*deep, &*ping, "--plot", "all_scaled", "--svg", &*svg],
            "these are 2",
        ),
        (
            vec![&*deep, "--plot", "all", "--png", &*png],
            "a file takes one picture",
        ),
        (
            vec![&*deep, "--plot", "ping_cdf", "--out", "x", "--png", &*png],
            "--out has no effect",
        ),
        (
            vec!["--plot", "ping_cdf", "--png", &*deep, &*ping],
            "the name of a PNG file",
        ),
        (
            vec![&*deep, "--plot", "ping_cdf", "--out", "x", "--svg", &*svg],
            "cannot be used with",
        ),
    ] {
        let output = compare(&words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(why), "{words:?}: {said}");
    }
}

#[test]
fn an_unreadable_file_is_named_and_ends_with_exit_code_1() {
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

/// Limit for the resident memory of `sqm compare`, kB.
const MAX_MEMORY_KB: u64 = 256 << 10;

/// Compares a file while watching the memory. Returns the exit code, the output, and the peak memory in kB.
fn watched(files: &[&Path]) -> (Option<i32>, String, u64) {
    use std::io::{Read as _, Seek as _};
    // A pipe that nobody reads meanwhile would stop a program that prints too much.
    let mut printed = tempfile::tempfile().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_sqm"))
        .arg("compare")
        .args(files)
        .stdin(Stdio::null())
        .stdout(printed.try_clone().unwrap())
        .stderr(printed.try_clone().unwrap())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    let peak = || -> Option<u64> {
        let status = std::fs::read_to_string(&status).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        most = peak().unwrap_or(most);
        // Kill the process before it exhausts the memory of this machine.
        if most > 2 * MAX_MEMORY_KB {
            child.kill().unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let status = child.wait().unwrap();
    let mut said = String::new();
    printed.rewind().unwrap();
    printed.read_to_string(&mut said).unwrap();
    (status.code(), said, most)
}

fn packed(path: &Path, text: &str) {
    use std::io::Write as _;
    let file = std::fs::File::create(path).unwrap();
    let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    packed.write_all(text.as_bytes()).unwrap();
    packed.finish().unwrap();
}

/// A Flent file with these series.
fn flent(series: &str, meta: &str) -> String {
    format!(
        r#"{{"metadata":{{"NAME":"rrul","LENGTH":60,"T0":"2026-01-01T00:00:00Z"{meta}}},"version":4,
            "x_values":[],"results":{{}},"raw_values":{{{series}}}}}"#
    )
}

/// A result of `sqm test` with these parts instead of its flows, probes and evidence.
fn ours(parts: &str) -> String {
    format!(
        r#"{{"format":"sqm-test","version":2,"meta":{{"test":"x","title":null,"time":"","host":"","local":"","remote":"",
            "program":"","server_program":"","kernel":"","server_kernel":"","settings":{{"down":1,"up":0,"idle_ms":1,
            "load_ms":1000,"settle_ms":0,"probe_interval_ms":1,"congestion":null,"dscp":[0]}}}},"summary":{{"idle_ms":null,
            "idle_p95_ms":null,"latency_median_ms":null,"latency_p95_ms":null,"latency_p99_ms":null,"latency_max_ms":null,
            "probes_sent":0,"probes_lost":0,"download_mbit":0,"upload_mbit":0,"jain_down":null,"jain_up":null}},
            "phases":[],{parts}}}"#
    )
}

/// A JSON list with `times` copies of an item.
fn list(item: &str, times: usize) -> String {
    format!("[{}{item}]", format!("{item},").repeat(times - 1))
}

#[test]
fn small_files_do_not_become_large_ones_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let flow = |samples: &str| {
        format!(
            r#""flows":[{{"name":"x","direction":"down","congestion":"","dscp":0,"mbit":0,{samples}}}],"probes":[]"#
        )
    };
    let names = |value: &str, count: usize| -> String {
        let names: Vec<String> = (0..count).map(|n| format!("\"{n}\":{value}")).collect();
        names.join(",")
    };
    let gap = r#"{"t":1767225600,"val":1,"seq":0},{"t":1767225600,"val":1,"seq":10000}"#;
    // More objects than the memory for all files holds, 96 MiB with 152 bytes for each.
    let many = 700_000;
    let bombs = [
        (
            "empty",
            flent(&format!(r#""TCP download":{}"#, list("{}", 2 * many)), ""),
        ),
        (
            "numbers",
            flent(&format!(r#""x":{}"#, list("{\"t\":1,\"a\":1}", many)), ""),
        ),
        (
            "one sample",
            flent(&format!(r#""x":[{{"t":1,"a":{}}}]"#, list("0", 4 * many)), ""),
        ),
        (
            "tcp",
            flent(
                &format!(r#""TCP download":{}"#, list("{\"t\":1,\"tcp_cwnd\":1}", many)),
                "",
            ),
        ),
        (
            "gaps",
            flent(&format!(r#""Ping (ms) ICMP":{}"#, list(gap, 2000)), ""),
        ),
        ("names", flent(&names("0", many), "")),
        (
            "series",
            flent("", &format!(r#","SERIES_META":{{{}}}"#, names("{}", many))),
        ),
        (
            "metadata",
            flent("", &format!(r#","TEST_PARAMETERS":{}"#, list("[]", many))),
        ),
        (
            "length",
            flent("", &format!(r#","LENGTH":{}"#, list("0", 4 * many))),
        ),
        (
            "kernel",
            ours(&flow(&format!(
                r#""samples":[],"sender":{}"#,
                list("{\"t_ms\":0}", 2 * many)
            ))),
        ),
        (
            "probes",
            ours(&format!(
                r#""flows":[],"probes":[{{"name":"","kind":"udp","dscp":0,"interval_ms":1,"samples":{}}}]"#,
                list("{\"due_ms\":0,\"t_ms\":0}", many)
            )),
        ),
        (
            "evidence",
            ours(&format!(
                r#""flows":[],"probes":[],"evidence":{}"#,
                list(r#"{"name":"","unit":"","samples":[]}"#, many / 2)
            )),
        ),
        ("nothing", list("0", 4 * many)),
    ];
    // Each takes a second of the processor.
    let step = if support::is_nightly() { 1 } else { 3 };
    for (name, text) in bombs.into_iter().step_by(step) {
        let path = dir.path().join(format!("{name}.flent.gz"));
        packed(&path, &text);
        let (code, said, most) = watched(&[&path]);
        println!(
            "{name:12} {:9} bytes, {most:7} kB, code {code:?}: {said:.150}",
            path.metadata().unwrap().len()
        );
        // `numbers` is accepted: little of it remains after parsing.
        let expected = if name == "numbers" { 0 } else { 1 };
        assert_eq!(code, Some(expected), "{name}: {said}");
        assert!(most < MAX_MEMORY_KB, "{name}: {most} kB");
        assert!(said.len() < 1000, "{name}: {} bytes", said.len());
    }
}

#[test]
fn impossible_figures_are_neither_shown_nor_graded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("forged.json");
    // The figures in a file are not trusted: without samples no figures are shown.
    let sums = [
        (r#""idle_ms":null"#, r#""idle_ms":-1e9"#),
        (r#""latency_median_ms":null"#, r#""latency_median_ms":1e300"#),
        (r#""latency_p95_ms":null"#, r#""latency_p95_ms":1"#),
        (
            r#""probes_sent":0,"probes_lost":0"#,
            r#""probes_sent":5,"probes_lost":1099511627776"#,
        ),
        (
            r#""download_mbit":0,"upload_mbit":0"#,
            r#""download_mbit":1e9,"upload_mbit":-5"#,
        ),
        (
            r#""jain_up":null"#,
            r#""jain_up":77,"down":{"mbit":1e9,"added_median_ms":-50,"added_p95_ms":-50,"one_way":false}"#,
        ),
    ];
    let honest = ours(r#""flows":[],"probes":[]"#);
    let forged = sums.iter().fold(honest, |text, (from, to)| {
        assert!(text.contains(from));
        text.replacen(from, to, 1)
    });
    std::fs::write(&path, forged).unwrap();
    let output = compare(&[path.to_str().unwrap()]);
    let table = text(&output.stdout);
    let row = table.lines().find(|line| line.starts_with("forged")).unwrap();
    let words: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(words[1..], ["-", "-", "-", "-", "-", "-", "-", "-", "0", "none"]);
    assert!(
        !table.contains("1099511627776") && !table.contains("-50"),
        "{table}"
    );
    // Impossible samples are an error that names the file and the figure.
    let flow = r#""TCP upload":[{"t":1767225601,"val":1}],"TCP download":[{"t":1767225601,"val":1e308}]"#;
    std::fs::write(&path, flent(flow, "")).unwrap();
    let output = compare(&[path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("forged.json") && said.contains("'TCP download' of 1e308 Mbit/s"),
        "{said}"
    );
}

#[test]
fn of_thousands_of_findings_a_few_are_printed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("many.json");
    let findings: Vec<String> = (0..9999)
        .map(|n| {
            let text = "t".repeat(1 << 11);
            format!(r#"{{"severity":"note","code":"{n}","text":"{text}"}}"#)
        })
        .collect();
    let parts = format!(r#""flows":[],"probes":[],"findings":[{}]"#, findings.join(","));
    std::fs::write(&path, ours(&parts)).unwrap();
    let output = compare(&[path.to_str().unwrap()]);
    let said = text(&output.stdout);
    assert!(
        output.status.success() && said.len() < 30_000,
        "{} bytes",
        said.len()
    );
    assert!(said.contains("more findings"), "{said}");
}

#[test]
fn the_memory_for_all_files_together_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large.json");
    let samples = list("{\"due_ms\":0,\"t_ms\":-1,\"rtt_ms\":5}", 300_000);
    let series = format!(
        r#""flows":[],"probes":[{{"name":"Ping (ms) UDP","kind":"udp","dscp":0,"interval_ms":1,"samples":{samples}}}]"#
    );
    std::fs::write(&path, ours(&series)).unwrap();
    let path = path.as_path();
    let (code, said, _) = watched(&[path]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said, most) = watched(&[path; 6]);
    println!("six: {most} kB");
    assert!(
        code == Some(1) && said.contains("all files together may take 96 MiB"),
        "{said}"
    );
    assert!(most < MAX_MEMORY_KB, "{most} kB");
}

#[test]
fn an_error_quotes_little_of_the_file_and_no_control_characters() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("text.json");
    let escapes = "\\u001b]0;owned\\u0007\\u202e\\u009b31m";
    for text in [
        format!("\"{}\"", "x".repeat(8 << 20)),
        format!("\"{}\"", "\u{7f}".repeat(900_000)),
        format!(r#"{{"format":"{escapes}","version":2}}"#),
        format!(r#"{{"metadata":{{"{escapes}":1}},"raw_values":"{escapes}"}}"#),
        flent(r#""TCP download":"\u001b[31m""#, ""),
    ] {
        std::fs::write(&path, text).unwrap();
        let (code, said, most) = watched(&[&path]);
        assert_eq!(code, Some(1), "{said:.500}");
        assert!(said.len() < 1000 && most < MAX_MEMORY_KB, "{said:.500}");
        assert!(!said.contains(|c: char| c.is_control() && c != '\n'), "{said:?}");
    }
    let title = format!(r#","TITLE":"{escapes}{}""#, "x".repeat(100_000));
    let series = r#""TCP upload":[{"t":1767225601,"val":1}],"\u001b[2J":[{"t":1767225601,"val":1}]"#;
    std::fs::write(&path, flent(series, &title)).unwrap();
    for args in [&["--json"][..], &[]] {
        let output = compare(&[&[path.to_str().unwrap(), path.to_str().unwrap()], args].concat());
        let said = text(&output.stdout);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(said.contains("u001b]0;owned"), "{said}");
        assert!(
            !said.contains(|c: char| c.is_control() && c != '\n') && !said.contains('\u{202e}'),
            "{said:?}"
        );
        assert!(said.len() < 10_000, "{} bytes", said.len());
    }
}

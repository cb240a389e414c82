//! Prints the result of a test on the terminal.

use std::fmt::Write as _;

use sqm_measure::grade::Verdict;
use sqm_measure::result::TestResult;

/// The figures as text, followed by the grade and the findings; `is_detailed` adds the rule of the grade and the letters of others.
pub(super) fn figures(result: &TestResult, is_detailed: bool) -> String {
    let summary = &result.summary;
    let ms = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.1}"));
    let mut text = String::new();
    let mut line = |name: &str, value: String, unit: &str, note: &str| {
        let row = format!("{name:<18}{value:>10} {unit:<8}{note}");
        writeln!(text, "{}", row.trim_end()).expect("a string grows");
    };
    let fairness = |index: Option<f64>, flows: u32| match index {
        Some(index) if flows > 1 => format!("{flows} flows, fairness {index:.2}"),
        _ if flows == 1 => "1 flow".to_owned(),
        _ => format!("{flows} flows"),
    };
    let settings = &result.meta.settings;
    let window = match result.steady().collect::<Vec<_>>().as_slice() {
        [(from, to)] => format!(
            "median, from {:.0} s to {:.0} s of the load",
            from / 1000.0,
            to / 1000.0
        ),
        phases => format!("median of {} phases", phases.len()),
    };
    line("idle latency", ms(summary.idle_ms), "ms", "median");
    line("loaded latency", ms(summary.latency_median_ms), "ms", &window);
    line("", ms(summary.latency_p95_ms), "ms", "95 % are below");
    line("", ms(summary.latency_p99_ms), "ms", "99 % are below");
    line("", ms(summary.latency_max_ms), "ms", "worst");
    let (down, up) = (
        fairness(summary.jain_down, settings.down),
        fairness(summary.jain_up, settings.up),
    );
    for (name, mbit, note) in [
        ("download", summary.download_mbit, down),
        ("upload", summary.upload_mbit, up),
    ] {
        match mbit {
            Some(mbit) => line(name, format!("{mbit:.2}"), "Mbit/s", &note),
            None => line(name, "-".to_owned(), "", "not tested"),
        }
    }
    let sent = format!("of {} probes", summary.probes_sent);
    line("lost", summary.probes_lost.to_string(), "", &sent);
    let verdict = Verdict::of(result);
    let graded = match is_detailed {
        true => verdict.to_detailed_text(),
        false => verdict.to_text(),
    };
    text + &graded + &super::phases::table(result)
}

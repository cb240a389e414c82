//! A test in a picture, and the words that say how it was run.

use crate::result::TestResult;
use crate::svg::short;

/// A test with its name in a picture of several tests.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Short: a title, or the file's name.
    pub name: &'a str,
    /// The result.
    pub result: &'a TestResult,
}

/// How the test was run, so that a reader can repeat it.
pub(super) fn caption(result: &TestResult) -> String {
    let meta = &result.meta;
    let program = if meta.program.starts_with("Flent") {
        meta.program.clone()
    } else {
        format!("sqm {}", meta.program)
    };
    format!(
        "{} to {}, {}, {program}",
        meta.time,
        meta.host,
        setting_words(result)
    )
}

/// How several tests were run. Tests with equal settings share one description.
pub(super) fn captions(runs: &[Run<'_>]) -> String {
    let [first, rest @ ..] = runs else {
        return String::new();
    };
    let settings = |run: &Run<'_>| setting_words(run.result);
    if rest.is_empty() {
        caption(first.result)
    } else if rest.iter().all(|run| settings(run) == settings(first)) {
        format!("{} tests: {}", runs.len(), settings(first))
    } else {
        let list: Vec<String> = runs
            .iter()
            .map(|run| format!("{}: {}", run.name, settings(run)))
            .collect();
        list.join("; ")
    }
}

fn setting_words(result: &TestResult) -> String {
    let meta = &result.meta;
    let settings = &meta.settings;
    let mut congestion: Vec<&str> = result.flows.iter().map(|flow| flow.congestion.as_str()).collect();
    congestion.retain(|name| !name.is_empty());
    congestion.sort_unstable();
    congestion.dedup();
    let version = match meta.parameters.get("ip_version") {
        Some(version) => format!("IPv{version}"),
        None if meta.remote.starts_with('[') => "IPv6".to_owned(),
        None => "IPv4".to_owned(),
    };
    format!(
        "{} {version}, {} down and {} up{}, {}, {} s of load, a probe every {} ms",
        meta.test,
        flow_count(settings.down as usize),
        settings.up,
        if settings.is_in_turn() { " in turn" } else { "" },
        if congestion.is_empty() {
            "no TCP".to_owned()
        } else {
            congestion.join(" and ")
        },
        short(settings.load_ms as f64 / 1000.0),
        settings.probe_interval_ms
    )
}

pub(super) fn flow_count(flows: usize) -> String {
    if flows == 1 {
        "1 flow".to_owned()
    } else {
        format!("{flows} flows")
    }
}

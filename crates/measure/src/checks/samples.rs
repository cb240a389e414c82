//! The checks that the samples of a result allow, whichever program took them.

use std::collections::BTreeMap;

use sqm_core::direction::Direction;

use crate::result::headline::{self, ENOUGH};
use crate::result::{Finding, ProbeKind, ProbeSeries, Series, Severity, TestResult};
use crate::stats;

/// A core that is busier than this for more than [`BUSY_SHARE`] of the load has no time left for bursts. Choices.
const BUSY: f64 = 0.95;
const BUSY_SHARE: f64 = 0.1;
/// The line was not idle if the 95th percentile of its round trips exceeds the median by more than the larger of these: milliseconds,
/// and a share of the median. Choices.
const IDLE_SPREAD_MS: f64 = 10.0;
const IDLE_SPREAD: f64 = 0.5;
/// Kinds whose round trips can be compared: an HTTP request includes the server's work.
const COMPARED: [ProbeKind; 3] = [ProbeKind::Udp, ProbeKind::Icmp, ProbeKind::Tcp];
/// The medians of two kinds disagree if they differ by more than this, milliseconds (the bound between A and B), and by more than this
/// factor. With fewer answers a kind is not compared. Choices.
const DISAGREE_MS: f64 = 30.0;
const DISAGREE: f64 = 2.0;
const MIN_COMPARED: usize = 10;
/// Largest share of lost probes. A choice.
const LOSS: f64 = 0.1;

/// Findings that repeat that a test ended early: it had no time to load each direction, or for enough probes.
const FOLLOW_FROM_EARLY_END: [&str; 3] = ["load_not_reached", "too_few_probes", "no_latency"];

/// All findings of a result: those that the client of the test recorded, and those of its samples. The most severe come first.
pub(crate) fn findings(result: &TestResult) -> Vec<Finding> {
    let checks = [
        partial,
        loaded,
        ended,
        probes,
        idle,
        unanswered,
        processor,
        disagreement,
        marks,
        loss,
        call,
    ];
    let mut findings = result.findings.clone();
    for finding in checks.iter().filter_map(|check| check(result)) {
        // The client of the test may have made the same check with more knowledge.
        if findings.iter().all(|known| known.code != finding.code) {
            findings.push(finding);
        }
    }
    if result.meta.partial.is_some() {
        findings.retain(|finding| !FOLLOW_FROM_EARLY_END.contains(&finding.code.as_str()));
    }
    // An early end comes first: it is the reason for most of what else is wrong with such a test.
    findings.sort_by_key(|finding| (std::cmp::Reverse(finding.severity), finding.code != "partial"));
    findings
}

fn partial(result: &TestResult) -> Option<Finding> {
    let reason = result.meta.partial.as_ref()?;
    let text = format!("the test ended early: {reason}");
    Some(Finding::new(Severity::Invalid, "partial", text))
}

fn loaded(result: &TestResult) -> Option<Finding> {
    if result.phases.iter().all(|phase| phase.is_idle()) || result.flows.is_empty() {
        let text = "nothing loaded the line: this is the latency of an idle line".to_owned();
        return Some(Finding::new(Severity::Invalid, "no_load", text));
    }
    let silent = |direction| {
        let mut flows = result.flows(direction).peekable();
        flows.peek().is_some() && flows.all(|flow| flow.mbit <= 0.0)
    };
    for direction in Direction::BOTH {
        if silent(direction) {
            let text = format!(
                "no data arrived on any {} in the steady part of the load",
                direction.name()
            );
            return Some(Finding::new(Severity::Invalid, "load_not_reached", text));
        }
    }
    None
}

fn probes(result: &TestResult) -> Option<Finding> {
    let series = result.headline_probes();
    let answered = headline::answered_under_load(&series, &result.phases, result.meta.settings.settle_ms);
    if answered >= ENOUGH {
        return None;
    }
    let text = format!(
        "only {answered} probes came back under load, and {ENOUGH} are needed: test for longer, or with a shorter probe interval"
    );
    Some(Finding::new(Severity::Invalid, "too_few_probes", text))
}

fn idle(result: &TestResult) -> Option<Finding> {
    if result.summary.idle_ms.is_none() {
        let text = "no probe came back before the load: the latency that the load adds is unknown".to_owned();
        return Some(Finding::new(Severity::Invalid, "no_baseline", text));
    }
    let (server, median, p95) = idle_of_each_server(result)
        .into_iter()
        .find(|(_, median, p95)| p95 - median > IDLE_SPREAD_MS.max(median * IDLE_SPREAD))?;
    let server = server.map_or_else(String::new, |server| format!(" to {server}"));
    let text = format!(
        "the line was not idle before the load, or its latency varies: half of the probes{server} took up to {median:.1} \
         ms, one in twenty more than {p95:.1} ms; check for other traffic and for Wi-Fi"
    );
    Some(Finding::new(Severity::Warning, "cross_traffic", text))
}

/// A load under which no probe came back: a grade of the other loads would hide it.
fn unanswered(result: &TestResult) -> Option<Finding> {
    let loads = &result.summary.added;
    let load = loads.iter().find(|load| load.median_ms.is_none())?;
    let during = match load.loaded.as_slice() {
        [one] => format!("the {} alone loaded the line", one.name()),
        _ => "the line was loaded both ways".to_owned(),
    };
    let text = format!(
        "no probe came back while {during} ({} of {} were lost): the latency under this load is unknown",
        load.lost, load.sent
    );
    Some(Finding::new(Severity::Invalid, "no_latency", text))
}

/// Median and 95th percentile before the load, for each server.
fn idle_of_each_server(result: &TestResult) -> Vec<(Option<&str>, f64, f64)> {
    let begin = result.phases.iter().find(|phase| !phase.is_idle());
    let begin = begin.map_or(f64::INFINITY, |phase| phase.from_ms);
    let mut servers: BTreeMap<Option<&str>, Vec<f64>> = BTreeMap::new();
    for series in result.headline_probes() {
        let before = series.samples.iter().filter(|probe| probe.t_ms < begin);
        let all = servers.entry(series.peer.as_deref()).or_default();
        all.extend(before.filter_map(|probe| probe.rtt_ms));
    }
    let figures = servers
        .into_iter()
        .filter_map(|(server, rtts)| Some((server, stats::median(&rtts)?, stats::percentile(&rtts, 95.0)?)));
    figures.collect()
}

/// Series that ended early, or that another kind of probe stands in for.
fn ended(result: &TestResult) -> Option<Finding> {
    let used = result.headline_probes();
    let kind = used.first()?.kind;
    let preferred = result.probes.iter().map(|series| series.kind).min()?;
    let all = headline::of_kind(&result.probes, preferred);
    let missing: Vec<f64> = all
        .iter()
        .filter_map(|series| headline::ended_early(series, &result.phases))
        .collect();
    let (word, longest) = (
        preferred.word(),
        missing.iter().copied().fold(0.0, f64::max) / 1000.0,
    );
    let (severity, text) = if missing.len() == all.len() && kind == preferred {
        let text =
            format!("all {word} probes ended up to {longest:.0} s before the load, and there are no others");
        (Severity::Invalid, text)
    } else if kind == preferred {
        if missing.is_empty() {
            return None;
        }
        let (ended, of) = (missing.len(), all.len());
        let text = format!(
            "{ended} of {of} series of {word} probes ended up to {longest:.0} s before the load and are left out"
        );
        (Severity::Warning, text)
    } else {
        let why = if missing.is_empty() {
            format!("fewer than {ENOUGH} {word} probes came back under load")
        } else {
            format!("the {word} probes ended up to {longest:.0} s before the load")
        };
        let text = format!("{why}: latency is of the {} probes", kind.word());
        (Severity::Warning, text)
    };
    // A test that was cut short ended with all of its probes.
    let is_partial = result.meta.partial.is_some();
    (!is_partial).then(|| Finding::new(severity, "probes_ended", text))
}

/// Kinds of probes to the test's server whose round trips under load differ by far.
fn disagreement(result: &TestResult) -> Option<Finding> {
    let used = result.headline_probes().first()?.kind;
    let median = |kind| -> Option<f64> {
        let windows: Vec<_> = result.steady().collect();
        let living = headline::of_kind(&result.probes, kind)
            .into_iter()
            .filter(|series| headline::ended_early(series, &result.phases).is_none());
        let samples = living.flat_map(|series| &series.samples);
        let inside = samples.filter(|probe| {
            windows
                .iter()
                .any(|(from, to)| probe.t_ms >= *from && probe.t_ms < *to)
        });
        let rtts: Vec<f64> = inside.filter_map(|probe| probe.rtt_ms).collect();
        stats::median(&rtts).filter(|_| rtts.len() >= MIN_COMPARED)
    };
    let ours = median(used)?;
    let others = COMPARED.into_iter().filter(|kind| *kind != used);
    let (kind, theirs) = others
        .filter_map(|kind| Some((kind, median(kind)?)))
        .filter(|_| COMPARED.contains(&used))
        .find(|(_, theirs)| {
            let (low, high) = (ours.min(*theirs), ours.max(*theirs));
            high - low > DISAGREE_MS && high > DISAGREE * low
        })?;
    let text = format!(
        "kinds of probes disagree: under load half of the {} probes took up to {ours:.1} ms, half of the {} probes up to {theirs:.1} ms; \
         the figures are of the {} probes; the network or the server treats the kinds differently",
        used.word(),
        kind.word(),
        used.word()
    );
    Some(Finding::new(Severity::Warning, "probes_disagree", text))
}

/// A call's packets are a series of their own beside other probes, and stand in for them where there are none.
fn call(result: &TestResult) -> Option<Finding> {
    let used = result.headline_probes().first()?.kind;
    let call = result
        .probes
        .iter()
        .find(|series| series.kind == ProbeKind::Voip)?;
    let text = if used == ProbeKind::Voip {
        "there are no other probes: latency is of the call's packets (VoIP)".to_owned()
    } else {
        let figures = result
            .summary
            .probes
            .iter()
            .find(|figures| figures.name == call.name)?;
        let median = figures.loaded.median_ms.or(figures.idle.median_ms)?;
        format!(
            "the call's packets (VoIP) took {median:.1} ms (median); they are not among the figures of the other probes"
        )
    };
    Some(Finding::new(Severity::Note, "voip", text))
}

fn processor(result: &TestResult) -> Option<Finding> {
    let windows: Vec<_> = result.steady().collect();
    let inside = |t: f64| windows.iter().any(|(from, to)| t >= *from && t < *to);
    let busiest = |series: &Series| -> f64 {
        let loads: Vec<f64> = series
            .samples
            .iter()
            .filter(|(t, _)| inside(*t))
            .filter_map(|(_, v)| *v)
            .collect();
        let busy = loads.iter().filter(|load| **load > BUSY).count();
        if loads.is_empty() {
            0.0
        } else {
            busy as f64 / loads.len() as f64
        }
    };
    let cores = result
        .evidence
        .iter()
        .filter(|series| series.name.starts_with("cpu_stats_"));
    let worst = cores
        .map(|series| (busiest(series), &series.name))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match worst {
        Some((share, name)) if share > BUSY_SHARE => {
            let text = format!(
                "{} was above {:.0} % for {:.0} % of the load: the computer was the bottleneck, not the line",
                processor_words(name),
                BUSY * 100.0,
                share * 100.0
            );
            Some(Finding::new(Severity::Invalid, "cpu_saturated", text))
        }
        _ => None,
    }
}

/// The processor of a series in words: Flent's `cpu_stats_h1::cpu1` is processor 1 of h1, and `cpu_stats_h1::load` all of them.
fn processor_words(series: &str) -> String {
    let name = series.strip_prefix("cpu_stats_").unwrap_or(series);
    let (host, part) = name.split_once("::").unwrap_or((name, ""));
    match part.strip_prefix("cpu") {
        Some(number) if !number.is_empty() => format!("processor {number} of {host}"),
        _ => format!("the load of all processors of {host}"),
    }
}

fn marks(result: &TestResult) -> Option<Finding> {
    let mut changed: BTreeMap<(u8, u8), u64> = BTreeMap::new();
    for flow in &result.flows {
        if let Some(arrived) = flow.dscp_arrived.filter(|arrived| *arrived != flow.dscp) {
            *changed.entry((flow.dscp, arrived)).or_default() += 1;
        }
    }
    for series in &result.probes {
        for arrived in arrived(series).filter(|arrived| *arrived != series.dscp) {
            *changed.entry((series.dscp, arrived)).or_default() += 1;
        }
    }
    if changed.is_empty() {
        return None;
    }
    let list: Vec<String> = changed
        .keys()
        .map(|(sent, arrived)| format!("{sent} is {arrived}"))
        .collect();
    let text = format!(
        "the network changes DSCPs: {} on arrival; figures per class say nothing about classes",
        list.join(", ")
    );
    Some(Finding::new(Severity::Warning, "marks_changed", text))
}

/// The DSCPs of the probes and answers of a series on arrival.
fn arrived(series: &ProbeSeries) -> impl Iterator<Item = u8> {
    series
        .arrived_up
        .keys()
        .chain(series.arrived_down.keys())
        .map(|class| class >> 2)
}

fn loss(result: &TestResult) -> Option<Finding> {
    let (sent, lost) = (result.summary.probes_sent, result.summary.probes_lost);
    let share = stats::share(lost, sent);
    if share <= LOSS {
        return None;
    }
    let text = format!(
        "{lost} of {sent} probes were lost: the percentiles do not include them, so the real latency is worse"
    );
    Some(Finding::new(Severity::Warning, "probes_lost", text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::{example, with_probes_every};

    fn codes(result: &TestResult) -> Vec<(String, Severity)> {
        findings(result)
            .into_iter()
            .map(|f| (f.code, f.severity))
            .collect()
    }

    #[test]
    fn a_valid_test_has_no_findings() {
        assert_eq!(codes(&with_probes_every(20.0, 300.0)), []);
    }

    #[test]
    fn too_few_probes_are_invalid() {
        assert_eq!(
            codes(&example("x", 300.0, 20.0, 4.0)),
            [("too_few_probes".to_owned(), Severity::Invalid)]
        );
    }

    #[test]
    fn a_saturated_core_is_invalid() {
        let mut result = with_probes_every(20.0, 300.0);
        let load = |busy: f64| -> Vec<(f64, Option<f64>)> {
            (0..80)
                .map(|i| {
                    (
                        f64::from(i) * 100.0,
                        Some(if f64::from(i) < 80.0 * busy { 1.0 } else { 0.5 }),
                    )
                })
                .collect()
        };
        let series = |samples| Series {
            name: "cpu_stats_h1::cpu1".to_owned(),
            unit: String::new(),
            samples,
        };
        result.evidence = vec![series(load(0.3))];
        assert_eq!(codes(&result), []);
        result.evidence = vec![series(load(0.6))];
        assert_eq!(codes(&result), [("cpu_saturated".to_owned(), Severity::Invalid)]);
        let text = findings(&result)[0].text.clone();
        assert!(text.starts_with("processor 1 of h1 was above 95 % for"), "{text}");
    }

    #[test]
    fn changed_dscps_lost_probes_and_an_unsteady_idle_line_are_warnings() {
        let mut result = with_probes_every(20.0, 300.0);
        result.flows[0].dscp = 46;
        result.flows[0].dscp_arrived = Some(0);
        result.summary.probes_lost = result.summary.probes_sent / 2;
        for probe in result.probes[0].samples.iter_mut().step_by(7) {
            if probe.t_ms < 0.0 {
                probe.rtt_ms = Some(100.0);
            }
        }
        let codes: Vec<_> = codes(&result).into_iter().map(|(code, _)| code).collect();
        assert_eq!(codes, ["cross_traffic", "marks_changed", "probes_lost"]);
    }

    #[test]
    fn a_test_that_ended_early_or_carried_no_data_or_no_load_is_invalid() {
        let mut result = with_probes_every(20.0, 300.0);
        result.meta.partial = Some("interrupted".to_owned());
        assert_eq!(codes(&result)[0].0, "partial");
        // An interruption is the only reason: data and probes of the rest of the test cannot be expected.
        for flow in &mut result.flows {
            flow.mbit = 0.0;
        }
        result.probes[0].samples.truncate(10);
        assert_eq!(codes(&result), [("partial".to_owned(), Severity::Invalid)]);
        let mut result = with_probes_every(20.0, 300.0);
        for flow in &mut result.flows {
            flow.mbit = 0.0;
        }
        assert_eq!(codes(&result)[0].0, "load_not_reached");
        result.flows.clear();
        assert_eq!(codes(&result)[0].0, "no_load");
    }
}

//! Bounds for the samples of a result file that another program may have written. Pure.
//!
//! The figures in a file are not checked: they are computed again from the samples when the file is read. Samples are accepted
//! as long as some line and some clock could have produced them.

use sqm_core::direction::Direction;

use super::flow::{Flow, TcpSample};
use super::probe::{Probe, ProbeSeries};
use super::settings::Phase;
use super::test_result::TestResult;

/// The largest goodput that is accepted, in Mbit/s. A choice far above any line: 10 Tbit/s.
pub(crate) const MAX_MBIT: f64 = 1e7;
/// The longest round trip that is accepted, in milliseconds. A choice far above any timeout: one hour.
pub(crate) const MAX_LATENCY_MS: f64 = 3_600_000.0;
/// The farthest that a moment may be from the start of the load, and one clock from another, in milliseconds. A choice: thirty years.
const MAX_TIME_MS: f64 = 1e12;
/// An interval counts as at least this long when its rate is checked, in milliseconds: a busy machine reads the bytes of a second
/// late and all at once.
const MIN_INTERVAL_MS: f64 = 1000.0;
/// The largest delivery or pacing rate that is accepted, in Mbit/s. The kernel estimates both from single packets, so that they may
/// be far above the rate of the line.
const MAX_ESTIMATE_MBIT: f64 = 1e9;
/// The largest congestion window that is accepted, in segments: 2^53, the largest integer that every reader of JSON keeps exactly.
const MAX_COUNT: f64 = 9_007_199_254_740_992.0;
/// The largest number of phases that is accepted. A choice: our own tests have three.
const MAX_PHASES: usize = 100;

/// Refuses a number outside of `range`; the error names `what` and the number.
pub(crate) fn within(what: &str, value: f64, range: (f64, f64), unit: &str) -> Result<(), String> {
    if value >= range.0 && value <= range.1 {
        return Ok(());
    }
    // Written out, a large or small number may have three hundred digits.
    let value = if value.abs() < 1e9 && value.abs() > 1e-3 {
        value.to_string()
    } else {
        format!("{value:e}")
    };
    Err(impossible(&format!("{what} of {value} {unit}")))
}

/// Refuses samples that no line and no clock can produce.
pub(crate) fn check_samples(result: &TestResult) -> Result<(), String> {
    phases(&result.phases)?;
    result.flows.iter().try_for_each(flow)?;
    result.probes.iter().try_for_each(series)
}

/// Refuses figures out of bounds: samples that are each within bounds can still add up to such figures.
pub(crate) fn check_figures(result: &TestResult) -> Result<(), String> {
    let summary = &result.summary;
    for (direction, mbit, figures) in [
        (Direction::Download, summary.download_mbit, &summary.down),
        (Direction::Upload, summary.upload_mbit, &summary.up),
    ] {
        let word = direction.name();
        if let Some(mbit) = mbit {
            within(&format!("a {word}"), mbit, (0.0, MAX_MBIT), "Mbit/s")?;
        }
        let added = figures.iter().flat_map(|f| [f.added_median_ms, f.added_p95_ms]);
        for ms in added.flatten() {
            let range = (-MAX_LATENCY_MS, MAX_LATENCY_MS);
            within(&format!("latency added by the {word}"), ms, range, "ms")?;
        }
    }
    for load in &summary.added {
        let figures = [load.median_ms, load.p95_ms, load.p99_ms];
        for ms in figures.into_iter().flatten() {
            within("added latency", ms, (-MAX_LATENCY_MS, MAX_LATENCY_MS), "ms")?;
        }
    }
    Ok(())
}

fn impossible(what: &str) -> String {
    format!("it holds an impossible value: {what}")
}

fn phases(phases: &[Phase]) -> Result<(), String> {
    if phases.len() > MAX_PHASES {
        return Err(impossible(&format!("a test of {} phases", phases.len())));
    }
    let mut last = -MAX_TIME_MS;
    for phase in phases {
        moment("a phase's beginning", phase.from_ms)?;
        moment("a phase's end", phase.to_ms)?;
        if phase.to_ms < phase.from_ms || phase.from_ms < last {
            return Err(impossible("phases that go back in time"));
        }
        last = phase.to_ms;
    }
    Ok(())
}

fn flow(flow: &Flow) -> Result<(), String> {
    let name = &flow.name;
    let mut last = 0.0;
    for sample in &flow.samples {
        moment(&format!("a sample of '{name}'"), sample.t_ms)?;
        if sample.t_ms < last && last > 0.0 {
            return Err(impossible(&format!("samples of '{name}' that go back in time")));
        }
        let interval_ms = (sample.t_ms - last).max(MIN_INTERVAL_MS);
        let mbit = sample.bytes as f64 * 8.0 / 1000.0 / interval_ms;
        within(&format!("a rate of '{name}'"), mbit, (0.0, MAX_MBIT), "Mbit/s")?;
        last = sample.t_ms;
    }
    flow.sender
        .iter()
        .chain(&flow.receiver)
        .try_for_each(|sample| tcp(name, sample))
}

fn tcp(name: &str, sample: &TcpSample) -> Result<(), String> {
    moment(&format!("a sample of '{name}'"), sample.t_ms)?;
    let (latency, rate) = ((0.0, MAX_LATENCY_MS), (0.0, MAX_ESTIMATE_MBIT));
    for (what, value, range, unit) in [
        ("a round trip", sample.rtt_ms, latency, "ms"),
        ("a deviation", sample.rttvar_ms, latency, "ms"),
        ("a smallest round trip", sample.min_rtt_ms, latency, "ms"),
        ("a window", sample.cwnd, (0.0, MAX_COUNT), "segments"),
        ("a rate of delivery", sample.delivery_mbit, rate, "Mbit/s"),
        ("a rate of pacing", sample.pacing_mbit, rate, "Mbit/s"),
    ] {
        if let Some(value) = value {
            within(&format!("{what} of '{name}'"), value, range, unit)?;
        }
    }
    Ok(())
}

fn series(series: &ProbeSeries) -> Result<(), String> {
    series
        .samples
        .iter()
        .try_for_each(|sample| probe(&series.name, sample))
}

fn probe(name: &str, probe: &Probe) -> Result<(), String> {
    let is_sound = |value: Option<f64>, least: f64, most: f64| value.is_none_or(|v| v >= least && v <= most);
    let far = MAX_TIME_MS;
    // A fast path: a file has up to a million probes, and building the words for each takes time.
    if is_sound(probe.rtt_ms, 0.0, MAX_LATENCY_MS)
        && [Some(probe.t_ms), Some(probe.due_ms), probe.up_ms, probe.down_ms]
            .into_iter()
            .all(|value| is_sound(value, -far, far))
    {
        return Ok(());
    }
    moment(&format!("a probe of '{name}'"), probe.t_ms)?;
    moment(&format!("a probe of '{name}'"), probe.due_ms)?;
    for (what, value, least, most) in [
        ("a round trip", probe.rtt_ms, 0.0, MAX_LATENCY_MS),
        ("a delay upwards", probe.up_ms, -far, far),
        ("a delay downwards", probe.down_ms, -far, far),
    ] {
        if let Some(value) = value {
            within(&format!("{what} of '{name}'"), value, (least, most), "ms")?;
        }
    }
    Ok(())
}

fn moment(what: &str, t_ms: f64) -> Result<(), String> {
    within(
        &format!("{what} at a moment"),
        t_ms,
        (-MAX_TIME_MS, MAX_TIME_MS),
        "ms",
    )
}

#[cfg(test)]
mod tests {
    use crate::result::tests::{example, with_probes_every};
    use crate::result::{TcpSample, TestResult};

    #[test]
    fn the_figures_in_a_file_are_replaced_by_figures_computed_from_its_samples() {
        let honest = with_probes_every(20.0, 300.0);
        let mut forged = honest.clone();
        let summary = &mut forged.summary;
        summary.download_mbit = Some(1e9);
        summary.upload_mbit = Some(-5.0);
        summary.idle_ms = Some(-1e9);
        summary.latency_median_ms = Some(1e300);
        summary.latency_p95_ms = Some(1.0);
        (summary.probes_sent, summary.probes_lost) = (5, 1 << 40);
        summary.probes[0].loaded.sent = 1;
        summary.probes[0].loaded.lost = 1 << 40;
        if let Some(down) = &mut summary.down {
            down.added_median_ms = Some(-50.0);
        }
        forged.flows[0].mbit = 1e300;
        assert!(TestResult::from_json(&forged.to_json()).unwrap() == honest);
        // Without samples there are no figures.
        forged.flows.clear();
        forged.probes.clear();
        let empty = TestResult::from_json(&forged.to_json()).unwrap().summary;
        assert_eq!((empty.idle_ms, empty.latency_median_ms), (None, None));
        assert_eq!((empty.download_mbit, empty.probes_lost), (None, 0));
    }

    #[test]
    fn impossible_samples_are_refused_with_the_name_of_the_series() {
        let refused = |change: fn(&mut TestResult)| {
            let mut result = example("x", 300.0, 20.0, 4.0);
            change(&mut result);
            let error = TestResult::from_json(&result.to_json()).unwrap_err();
            assert!(
                error.starts_with("it holds an impossible value: ") && error.len() < 120,
                "{error}"
            );
            error
        };
        let error = refused(|r| r.flows[0].samples[3].bytes = 1 << 53);
        assert!(
            error.contains("TCP download BE::1") && error.contains("Mbit/s"),
            "{error}"
        );
        let error = refused(|r| r.probes[0].samples[3].rtt_ms = Some(-5.0));
        assert!(
            error.contains("a round trip of 'Ping (ms) UDP BE' of -5 ms"),
            "{error}"
        );
        let error = refused(|r| r.probes[0].samples[3].rtt_ms = Some(1e300));
        assert!(error.contains("of 1e300 ms"), "{error}");
        refused(|r| r.probes[0].samples[3].t_ms = 1e300);
        refused(|r| r.flows[0].samples[3].t_ms = 1e15);
        refused(|r| r.flows[0].samples[3].t_ms = 1.0);
        refused(|r| r.phases[1].to_ms = -1e9);
        refused(|r| r.phases = vec![r.phases[1].clone(); 101]);
        refused(|r| {
            let sample = TcpSample {
                rtt_ms: Some(1e300),
                ..TcpSample::default()
            };
            r.flows[0].sender = vec![sample];
        });
        refused(|r| {
            for probe in &mut r.probes[0].samples {
                // Both directions are loaded at once, so that the added latency comes from one-way delays.
                probe.down_ms = Some(if probe.t_ms < 0.0 { -1e11 } else { 1e11 });
            }
        });
    }
}

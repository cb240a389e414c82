//! The checks that only the client of a test can make, because they need to know how the samples came about.

use sqm_core::direction::Direction;

use crate::result::{Finding, Flow, Phase, Series, Severity, TcpTotals, TestResult};
use crate::stats;

/// A processor that is busy for this share of the time has none left for bursts of packets. A choice.
const SATURATED: f64 = 0.95;
/// If the buffer of one end held a flow back for more than this share of its busy time, the line did not limit the flow. A choice.
const HELD_BACK: f64 = 0.5;
/// Smallest latency that a full line adds, milliseconds. With less, and with flows that were held back, the line was not full. A choice.
const STANDING_QUEUE_MS: f64 = 5.0;
/// Share of other traffic, relative to the test's own, that makes the figures invalid. A choice.
const CROSS_TRAFFIC: f64 = 0.2;
/// Share of other traffic that gives a warning. A choice.
const SOME_CROSS_TRAFFIC: f64 = 0.05;
/// Largest ratio of frame bytes to payload bytes in packets of full size, retransmissions included. A choice.
const WIRE_SHARE: f64 = 1.12;
/// Headers of a packet and its Ethernet frame, bytes: 14 + 20 + 32.
const HEADERS: f64 = 66.0;
/// Payload of a packet of full size, bytes.
const FULL: f64 = 1460.0;
/// Bytes of acknowledgements as a share of the bytes that they acknowledge, for full segments. A choice.
const ACKNOWLEDGEMENTS: f64 = 0.06;
/// Traffic of the probes, the control connection and the background, in Mbit/s, at most. A choice.
const NOISE_MBIT: f64 = 0.5;

/// The findings of the client. `server_cpu` is the busy share of the server's busiest processor under load.
pub(crate) fn run_findings(result: &TestResult, server_cpu: Option<f64>) -> Vec<Finding> {
    let both = Direction::BOTH;
    let mut found = Vec::new();
    found.extend(server(server_cpu));
    found.extend(both.into_iter().filter_map(|direction| load(result, direction)));
    found.extend(both.into_iter().filter_map(|direction| others(result, direction)));
    found.extend(ecn(result));
    found
}

/// The values of a series in these windows.
fn inside(windows: &[(f64, f64)], series: &Series) -> Vec<f64> {
    let inside = |t: f64| windows.iter().any(|(from, to)| t >= *from && t <= *to);
    let samples = series.samples.iter().filter(|(t, _)| inside(*t));
    samples.filter_map(|(_, value)| *value).collect()
}

fn server(cpu: Option<f64>) -> Option<Finding> {
    let share = cpu.filter(|share| *share >= SATURATED)?;
    Some(Finding::new(
        Severity::Invalid,
        "server_cpu_saturated",
        format!(
            "a processor of the server was {:.0} % busy under load; test against a faster server",
            share * 100.0
        ),
    ))
}

fn load(result: &TestResult, direction: Direction) -> Option<Finding> {
    let flows: Vec<_> = result.flows(direction).collect();
    let way = direction.name();
    if flows.is_empty() {
        return None;
    }
    let held_back = flows.iter().filter(|flow| {
        flow.totals.is_some_and(|t| {
            t.busy_ms > 0.0 && (t.rwnd_limited_ms + t.sndbuf_limited_ms) / t.busy_ms > HELD_BACK
        })
    });
    let held_back = held_back.count();
    let added = result.summary.latency_median_ms? - result.summary.idle_ms?;
    (held_back == flows.len() && added < STANDING_QUEUE_MS).then(|| {
        Finding::new(
            Severity::Invalid,
            "load_not_reached",
            format!(
                "TCP buffers limited the {way} and no queue formed ({added:.1} ms added): the line was not full; \
                 use more flows, or allow larger TCP buffers (net.ipv4.tcp_rmem, tcp_wmem)"
            ),
        )
    })
}

/// The finding for traffic at the interface that is not the test's own.
fn others(result: &TestResult, direction: Direction) -> Option<Finding> {
    let suffix = match direction {
        Direction::Download => "::rx",
        Direction::Upload => "::tx",
    };
    let carries = |series: &&Series| series.name.starts_with("interface ") && series.name.ends_with(suffix);
    let counter = result.evidence.iter().find(carries)?;
    // The loopback interface counts each packet in both directions.
    if counter.name.starts_with("interface lo::") {
        return None;
    }
    // While each direction is loaded alone, the other one carries acknowledgements only.
    let windows = result.rate_windows(direction);
    let seen = stats::mean(&inside(&windows, counter))?;
    let ours: f64 = result.flows(direction).map(|flow| flow.mbit).sum();
    let is_loaded = |phase: &&Phase| phase.loaded == [direction];
    let other = match result.phases.iter().find(is_loaded) {
        Some(_) => 0.0,
        None => result.flows(direction.other()).map(|flow| flow.mbit).sum(),
    };
    // A retransmission of this machine passes its interface again, but its payload counts once. What fills the queue of a bloated line
    // has passed the interface, and arrives later.
    let sent = match direction {
        Direction::Download => ours,
        Direction::Upload => result
            .flows(direction)
            .map(|flow| flow.mbit * retransmission_factor(flow) + in_flight_growth(flow, &windows))
            .sum(),
    };
    // Small segments have relatively more header bytes and acknowledgements.
    let smaller = result.meta.settings.mss.map_or(1.0, |mss| FULL / f64::from(mss));
    let wire = WIRE_SHARE.max(1.0 + HEADERS * smaller / FULL * 1.1);
    // The acknowledgements for the other direction.
    let acknowledgements = other * ACKNOWLEDGEMENTS * smaller;
    let foreign = seen - sent * wire - acknowledgements - NOISE_MBIT;
    let share = foreign / ours.max(NOISE_MBIT);
    let severity = match share {
        share if share >= CROSS_TRAFFIC => Severity::Invalid,
        share if share >= SOME_CROSS_TRAFFIC => Severity::Warning,
        _ => return None,
    };
    Some(Finding::new(
        severity,
        "cross_traffic",
        format!(
            "{} carried {seen:.1} Mbit/s, of which {ours:.1} were the test's {}: other traffic used the line",
            counter.name.trim_end_matches(suffix),
            direction.name()
        ),
    ))
}

/// The ratio of the bytes that a flow's sender sent to those without retransmissions.
fn retransmission_factor(flow: &Flow) -> f64 {
    let new = |t: TcpTotals| t.bytes_sent.checked_sub(t.bytes_retransmitted);
    match flow.totals.and_then(|t| Some((t.bytes_sent, new(t)?))) {
        Some((sent, new)) if new > 0 => sent as f64 / new as f64,
        _ => 1.0,
    }
}

/// By how much a flow has sent more than what has arrived, because more of it was under way at the end of these windows than at their
/// beginning; Mbit/s.
fn in_flight_growth(flow: &Flow, windows: &[(f64, f64)]) -> f64 {
    let length_ms: f64 = windows.iter().map(|(from, to)| to - from).sum();
    let grown = windows.iter().filter_map(|(from, to)| {
        let inside = flow
            .sender
            .iter()
            .filter(|sample| (*from..=*to).contains(&sample.t_ms));
        let windows: Vec<f64> = inside.filter_map(|sample| sample.cwnd).collect();
        Some((windows.last()? - windows.first()?).max(0.0))
    });
    let bits = grown.sum::<f64>() * flow.mss.map_or(0.0, f64::from) * 8.0;
    if length_ms > 0.0 {
        bits / 1000.0 / length_ms
    } else {
        0.0
    }
}

fn ecn(result: &TestResult) -> Option<Finding> {
    let asked = result.meta.settings.ecn?;
    let known: Vec<bool> = result.flows.iter().filter_map(|flow| flow.ecn).collect();
    let agreed = known.iter().filter(|ecn| **ecn).count();
    if known.is_empty() || agreed == if asked { known.len() } else { 0 } {
        return None;
    }
    let all = known.len();
    let (wanted, remedy) = if asked {
        ("on", "set net.ipv4.tcp_ecn=1 here; servers accept ECN by default")
    } else {
        ("off", "set net.ipv4.tcp_ecn=0 here")
    };
    Some(Finding::new(
        Severity::Warning,
        "ecn_not_as_asked",
        format!("the test asked for ECN {wanted}, but {agreed} of {all} flows use it; {remedy}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::TcpSample;
    use crate::result::tests::example;

    /// A run with nothing wrong: two flows each way of 20 and 4 Mbit/s, 100 ms of queue.
    fn good() -> TestResult {
        example("x", 100.0, 20.0, 4.0)
    }

    fn steady(name: &str, value: f64) -> Series {
        Series {
            name: name.to_owned(),
            unit: String::new(),
            samples: (0..8).map(|i| (f64::from(i) * 1000.0, Some(value))).collect(),
        }
    }

    fn codes(result: &TestResult) -> Vec<(Severity, String)> {
        let found = run_findings(result, None).into_iter();
        found.map(|f| (f.severity, f.code)).collect()
    }

    #[test]
    fn a_good_run_has_no_findings() {
        let mut result = good();
        result.evidence = vec![
            steady("interface eth0::rx", 21.5),
            steady("interface eth0::tx", 5.5),
        ];
        assert_eq!(codes(&result), []);
    }

    #[test]
    fn a_saturated_server_makes_a_run_invalid() {
        assert_eq!(run_findings(&good(), Some(0.99))[0].code, "server_cpu_saturated");
        assert_eq!(run_findings(&good(), Some(0.5)), []);
    }

    #[test]
    fn a_load_that_tcp_buffers_held_back_did_not_fill_the_line() {
        let mut result = example("x", 1.0, 20.0, 4.0);
        for flow in &mut result.flows {
            flow.totals = Some(TcpTotals {
                busy_ms: 1000.0,
                rwnd_limited_ms: if flow.direction == Direction::Download {
                    800.0
                } else {
                    100.0
                },
                ..TcpTotals::default()
            });
        }
        assert_eq!(
            codes(&result),
            [(Severity::Invalid, "load_not_reached".to_owned())]
        );
        result.summary.latency_median_ms = Some(200.0);
        assert_eq!(codes(&result), []);
    }

    #[test]
    fn retransmissions_are_not_other_traffic() {
        let mut result = good();
        result.evidence = vec![steady("interface eth0::tx", 7.1)];
        assert_eq!(codes(&result), [(Severity::Invalid, "cross_traffic".to_owned())]);
        for flow in &mut result.flows {
            flow.totals = Some(TcpTotals {
                bytes_sent: 6_000_000,
                bytes_retransmitted: 1_200_000,
                ..TcpTotals::default()
            });
        }
        assert_eq!(codes(&result), []);
        // Lost copies of a download never reach this interface, so that retransmissions do not explain the difference.
        result.evidence = vec![steady("interface eth0::rx", 30.0)];
        assert_eq!(codes(&result), [(Severity::Invalid, "cross_traffic".to_owned())]);
    }

    #[test]
    fn what_fills_the_queue_is_not_other_traffic() {
        let mut result = good();
        let windows = result.rate_windows(Direction::Upload);
        let [(from, to)] = windows.as_slice() else {
            panic!("one window, not {windows:?}");
        };
        result.evidence = vec![steady("interface eth0::tx", 6.7)];
        assert_eq!(codes(&result), [(Severity::Warning, "cross_traffic".to_owned())]);
        for flow in &mut result.flows {
            flow.mss = Some(1250);
            // 10,000 bits each segment: 0.5 Mbit/s for each of the two uploads.
            let grown = (to - from) / 20.0;
            flow.sender = [(*from, 10.0), (*to, 10.0 + grown)]
                .map(|(t_ms, cwnd)| TcpSample {
                    t_ms,
                    cwnd: Some(cwnd),
                    ..TcpSample::default()
                })
                .to_vec();
        }
        assert_eq!(codes(&result), []);
        // A download does not fill a queue behind this interface.
        result.evidence = vec![steady("interface eth0::rx", 24.3)];
        assert_eq!(codes(&result), [(Severity::Warning, "cross_traffic".to_owned())]);
    }

    #[test]
    fn other_traffic_is_found_by_the_counters_of_the_interface() {
        let mut result = good();
        result.evidence = vec![steady("interface eth0::rx", 30.0)];
        assert_eq!(codes(&result), [(Severity::Invalid, "cross_traffic".to_owned())]);
        result.evidence = vec![steady("interface eth0::rx", 24.3)];
        assert_eq!(codes(&result), [(Severity::Warning, "cross_traffic".to_owned())]);
        // In packets of 536 bytes, headers are an eighth.
        result.meta.settings.mss = Some(536);
        assert_eq!(codes(&result), []);
    }

    #[test]
    fn missing_ecn_is_a_finding() {
        let mut result = good();
        result.meta.settings.ecn = Some(true);
        result.flows[0].ecn = Some(false);
        assert_eq!(
            codes(&result),
            [(Severity::Warning, "ecn_not_as_asked".to_owned())]
        );
        result.flows[0].ecn = Some(true);
        assert_eq!(codes(&result), []);
    }
}

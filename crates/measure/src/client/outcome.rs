//! Combines the measurements of both ends into a result.

use std::time::{SystemTime, UNIX_EPOCH};

use sqm_core::direction::Direction;

use super::cross_check::{Fault, FlowReports};
use super::host_metrics::Recorder;
use super::running::{Running, Series};
use super::types::Outcome;
use crate::calendar::rfc3339;
use crate::clock::Offset;
use crate::load::millis;
use crate::probe::Finished;
use crate::protocol::Seen;
use crate::result::{Clock, Flow, Meta, Phase, ProbeKind, ProbeSeries, TestResult};
use crate::scenario::ProbePlan;
use crate::{Error, checks, socket};

/// Queues drain after the load. Probes in this time are not used to compare the clocks, milliseconds. A choice.
const DRAIN_MS: f64 = 1000.0;

/// A series of probes that has ended, or the reason why it could not start.
type Ended = (ProbePlan, Result<Finished, String>);

/// The outcome of a test. `ours` has the results of the client for each flow.
pub(super) fn outcome(
    mut running: Running<'_>,
    ours: Vec<Seen>,
    began: SystemTime,
    recorder: Recorder,
) -> Outcome {
    let flows = flows(&mut running, ours);
    let start = running.start;
    let load_ms = millis(running.end.saturating_duration_since(start));
    let ended: Vec<Ended> = std::mem::take(&mut running.probes)
        .into_iter()
        .map(|Series { plan, prober }| (plan, prober.map(|p| p.finish(start, running.deadline))))
        .collect();
    let offsets: Vec<_> = (0..running.endpoints.len())
        .map(|endpoint| offset(&ended, endpoint, load_ms))
        .collect();
    let probes = ended
        .iter()
        .filter_map(|(plan, finished)| Some(probe_series(plan, finished.as_ref().ok()?, &offsets, &running)))
        .collect();
    let failure = running.failure.take();
    let meta = meta(&running, &ended, offsets[0].as_ref(), began, failure.as_ref());
    let phases = phases(&meta, load_ms, failure.is_some());
    let mut result = TestResult::new(meta, phases, flows, probes);
    result.evidence = recorder.finish(start);
    let server_cpu = running.endpoints.iter().filter_map(|e| e.busiest_cpu());
    result.findings = checks::run_findings(&result, server_cpu.max_by(f64::total_cmp));
    Outcome { result, failure }
}

fn meta(
    running: &Running<'_>,
    ended: &[Ended],
    offset: Option<&Offset>,
    began: SystemTime,
    failure: Option<&Error>,
) -> Meta {
    let test = running.test;
    let first = &running.endpoints[0];
    let mut meta = Meta {
        test: test.scenario.test.clone(),
        title: test.title.clone(),
        time: rfc3339(began),
        start_unix: began.duration_since(UNIX_EPOCH).ok().map(|t| t.as_secs_f64()),
        host: test.targets[0].host.clone(),
        local_host: socket::host_name(),
        local: first.local().to_string(),
        remote: first.remote().to_string(),
        program: env!("CARGO_PKG_VERSION").to_owned(),
        server_program: first.program.clone(),
        kernel: socket::kernel_release(),
        server_kernel: first.kernel.clone(),
        settings: test.settings.clone(),
        clock: offset.map(|offset| Clock {
            offset_ms: to_thousandths(offset.at_zero_ms()),
            error_ms: to_thousandths(offset.error_ms),
            drift_ppm: to_thousandths(offset.drift_ppm()),
        }),
        partial: failure.map(ToString::to_string),
        ..Meta::default()
    };
    for (plan, finished) in ended {
        if let Err(reason) = finished {
            meta.parameters
                .insert(format!("not measured: {}", plan.name), reason.clone());
        }
    }
    meta
}

/// The planned phases. If the load ended early, they end with it.
pub(super) fn phases(meta: &Meta, load_ms: f64, is_partial: bool) -> Vec<Phase> {
    let mut phases = meta.settings.phases();
    if is_partial {
        phases.retain(|phase| phase.from_ms < load_ms);
        for phase in &mut phases {
            phase.to_ms = phase.to_ms.min(load_ms);
        }
    }
    phases
}

fn flows(running: &mut Running<'_>, ours: Vec<Seen>) -> Vec<Flow> {
    // If the load ended early, the two sides stopped counting at different moments.
    let is_whole = running.failure.is_none();
    let load_ms = running.test.settings.load_ms as f64;
    let plans = &running.test.scenario.flows;
    let mut flows: Vec<Flow> = Vec::new();
    let mut last = None;
    for (attached, ours) in running.flows.iter().zip(ours) {
        let plan = &plans[attached.plan];
        let endpoint = &mut running.endpoints[attached.endpoint];
        let reported = match attached.direction {
            Direction::Upload => endpoint.reported(attached.number),
            Direction::Download => Vec::new(),
        };
        let theirs = endpoint.seen(attached.direction, attached.number);
        let reports = FlowReports {
            direction: attached.direction,
            reported: &reported,
            theirs: theirs.as_ref(),
            ours: &ours,
        };
        let judged = reports.check(is_whole.then_some(load_ms));
        let coarse = || Seen {
            samples: match attached.direction {
                Direction::Upload => endpoint.coarse_samples(attached.number),
                Direction::Download => Vec::new(),
            },
            ..Seen::default()
        };
        let theirs = match judged {
            Ok(()) => theirs.unwrap_or_else(coarse),
            Err(fault) => {
                let name = &plan.name;
                let (failure, theirs) = match fault {
                    Fault::Contradiction(what) => (
                        endpoint.implausible(&format!("in '{name}', {what}")),
                        Seen::default(),
                    ),
                    Fault::Incomplete(missing) => {
                        let failure = endpoint.incomplete(format!("{missing} of '{name}' is missing"));
                        (failure, theirs.unwrap_or_else(coarse))
                    }
                };
                running.failure.get_or_insert(failure);
                theirs
            }
        };
        let (sender, receiver) = match attached.direction {
            Direction::Download => (theirs, ours),
            Direction::Upload => (ours, theirs),
        };
        let flow = Flow {
            congestion: attached.congestion.clone(),
            dscp: plan.dscp,
            dscp_arrived: attached
                .dscp_arrived
                .filter(|_| attached.direction == Direction::Upload),
            ecn: sender.ecn.or(receiver.ecn),
            mss: sender.mss,
            peer: plan.peer.clone(),
            samples: receiver.samples,
            sender: sender.tcp,
            receiver: receiver.tcp,
            totals: sender.totals,
            ..Flow::new(&plan.name, plan.direction)
        };
        match flows.last_mut().filter(|_| last == Some(attached.plan)) {
            Some(earlier) => earlier.continue_with(flow),
            None => flows.push(flow),
        }
        last = Some(attached.plan);
    }
    flows
}

/// The offset of the server's clock, from the UDP probes on the idle line before and after the load. `None` if a probe contradicts
/// the estimate.
fn offset(ended: &[Ended], endpoint: usize, load_ms: f64) -> Option<Offset> {
    let series = ended.iter().filter(|(plan, _)| {
        plan.endpoint == endpoint && matches!(plan.kind, ProbeKind::Udp | ProbeKind::Voip)
    });
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for finished in series.filter_map(|(_, finished)| finished.as_ref().ok()) {
        before.extend(finished.exchanges(f64::NEG_INFINITY, 0.0));
        after.extend(finished.exchanges(load_ms + DRAIN_MS, f64::INFINITY));
    }
    Offset::estimate(&before, &after).filter(|offset| {
        let all = ended.iter().filter(|(plan, _)| plan.endpoint == endpoint);
        let finished = all.filter_map(|(_, finished)| finished.as_ref().ok());
        finished
            .flat_map(|finished| finished.exchanges(f64::NEG_INFINITY, f64::INFINITY))
            .all(|exchange| offset.is_possible(&exchange))
    })
}

fn probe_series(
    plan: &ProbePlan,
    finished: &Finished,
    offsets: &[Option<Offset>],
    running: &Running<'_>,
) -> ProbeSeries {
    let interval_ms = plan
        .interval_ms
        .unwrap_or(running.test.settings.probe_interval_ms);
    ProbeSeries {
        name: plan.name.clone(),
        kind: plan.kind,
        dscp: plan.dscp,
        peer: plan.peer.clone(),
        interval_ms: interval_ms as f64,
        bytes: (plan.bytes > 0).then_some(plan.bytes as u32),
        arrived_up: finished.tos_at_server(),
        arrived_down: finished.tos_at_client(),
        samples: finished.probes(offsets[plan.endpoint].as_ref()),
    }
}

fn to_thousandths(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

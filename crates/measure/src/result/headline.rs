//! The series of probes that the figures of a test come from. Pure.

use super::probe::{Probe, ProbeKind, ProbeSeries};
use super::settings::Phase;

/// Smallest number of answered probes under load: with fewer, a single probe decides the 99th percentile.
pub(crate) const ENOUGH: usize = 100;
/// A series without a probe in this share of the load, counted from its end, has ended early. netperf's UDP_RR stops at the first
/// packet that is lost. A choice.
const SILENT: f64 = 0.25;

/// The series of the headline figures: those of one kind.
///
/// UDP comes first, because some networks treat ICMP and new connections differently. A kind is passed over if its series ended early,
/// or if too few of its probes came back under load and another kind has enough.
pub(super) fn headline<'a>(
    probes: &'a [ProbeSeries],
    phases: &[Phase],
    settle_ms: u64,
) -> Vec<&'a ProbeSeries> {
    let mut kinds: Vec<ProbeKind> = probes.iter().map(|series| series.kind).collect();
    kinds.sort();
    kinds.dedup();
    let living = |kind: &ProbeKind| -> Vec<&ProbeSeries> {
        let found = of_kind(probes, *kind).into_iter();
        found
            .filter(|series| ended_early(series, phases).is_none())
            .collect()
    };
    let is_enough = |series: &[&ProbeSeries]| {
        answered_under_load(series, phases, settle_ms) >= ENOUGH && answered_before(series, phases)
    };
    let candidates: Vec<_> = kinds.iter().map(living).collect();
    let usable = candidates.iter().find(|series| is_enough(series));
    let any = candidates.iter().find(|series| !series.is_empty());
    match (usable.or(any), kinds.first()) {
        (Some(series), _) => series.clone(),
        (None, Some(kind)) => of_kind(probes, *kind),
        (None, None) => Vec::new(),
    }
}

/// The series of this kind to the test's server; to other servers only if there is none to it, as in tests with several servers.
pub(crate) fn of_kind(probes: &[ProbeSeries], kind: ProbeKind) -> Vec<&ProbeSeries> {
    let all = || probes.iter().filter(|series| series.kind == kind);
    let has_server = all().any(|series| series.peer.is_none());
    all()
        .filter(|series| series.peer.is_none() || !has_server)
        .collect()
}

/// How long before the end of the load the last probe of a series that ended early was sent, milliseconds. `None` if the series
/// goes on to the end.
pub(crate) fn ended_early(series: &ProbeSeries, phases: &[Phase]) -> Option<f64> {
    let mut loads = phases.iter().filter(|phase| !phase.is_idle());
    let first = loads.next()?;
    let end = loads.next_back().unwrap_or(first).to_ms;
    let last = series.samples.iter().map(|probe| probe.t_ms).reduce(f64::max)?;
    let missing = end - last;
    (missing > SILENT * (end - first.from_ms)).then_some(missing)
}

/// The number of answered probes in the steady parts of the load.
pub(crate) fn answered_under_load(series: &[&ProbeSeries], phases: &[Phase], settle_ms: u64) -> usize {
    let loads = phases.iter().filter(|phase| !phase.is_idle());
    let windows: Vec<_> = loads.map(|phase| phase.steady(settle_ms)).collect();
    let is_inside = |probe: &&Probe| {
        windows
            .iter()
            .any(|(from, to)| probe.t_ms >= *from && probe.t_ms < *to)
    };
    let samples = series.iter().flat_map(|series| &series.samples);
    samples
        .filter(is_inside)
        .filter(|probe| probe.rtt_ms.is_some())
        .count()
}

fn answered_before(series: &[&ProbeSeries], phases: &[Phase]) -> bool {
    let begin = phases.iter().find(|phase| !phase.is_idle());
    let begin = begin.map_or(f64::INFINITY, |phase| phase.from_ms);
    let mut samples = series.iter().flat_map(|series| &series.samples);
    samples.any(|probe| probe.t_ms < begin && probe.rtt_ms.is_some())
}

//! The round trip that each load of a test adds. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sqm_core::direction::Direction;

use super::direction_word;
use super::probe::{Probe, ProbeSeries};
use super::settings::Phase;
use super::summary::round;
use crate::stats;

/// The round trip under one load less the round trip of the idle line.
///
/// Each probe is compared with the idle median of its own server, so that servers at different distances can be pooled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AddedLatency {
    /// The directions that were loaded.
    #[serde(with = "direction_word::list")]
    pub loaded: Vec<Direction>,
    /// Probes sent in the steady part of this load.
    pub sent: u64,
    /// Probes without an answer.
    pub lost: u64,
    /// Median.
    pub median_ms: Option<f64>,
    /// The fastest of the slowest 5 %.
    pub p95_ms: Option<f64>,
    /// The fastest of the slowest 1 %, at least of one probe. Interpolation would hide a slow hundredth of the probes behind
    /// the fast probe next to it.
    pub p99_ms: Option<f64>,
}

impl AddedLatency {
    /// The figures for each load of the phases, in order of time.
    pub(super) fn of_each_load(
        series: &[&ProbeSeries],
        phases: &[Phase],
        settle_ms: u64,
        bases: &Bases<'_>,
    ) -> Vec<Self> {
        let mut loads: Vec<&[Direction]> = Vec::new();
        for phase in phases.iter().filter(|phase| !phase.is_idle()) {
            if !loads.contains(&&*phase.loaded) {
                loads.push(&phase.loaded);
            }
        }
        loads
            .into_iter()
            .map(|loaded| {
                let windows: Vec<_> = phases
                    .iter()
                    .filter(|phase| phase.loaded == loaded)
                    .map(|phase| phase.steady(settle_ms))
                    .collect();
                Self::within(series, &windows, bases, loaded)
            })
            .collect()
    }

    /// The figures of one load, from round trips less the idle median, milliseconds, and the number of lost probes.
    pub(crate) fn of(loaded: Vec<Direction>, added_ms: &[f64], lost: u64) -> Self {
        Self {
            loaded,
            sent: added_ms.len() as u64 + lost,
            lost,
            median_ms: stats::median(added_ms).map(round),
            p95_ms: stats::fastest_of_slowest(added_ms, 5).map(round),
            p99_ms: stats::fastest_of_slowest(added_ms, 1).map(round),
        }
    }

    fn within(
        series: &[&ProbeSeries],
        windows: &[(f64, f64)],
        bases: &Bases<'_>,
        loaded: &[Direction],
    ) -> Self {
        let is_inside = |probe: &&Probe| {
            windows
                .iter()
                .any(|(from, to)| probe.t_ms >= *from && probe.t_ms < *to)
        };
        let (mut sent, mut lost, mut added) = (0, 0, Vec::new());
        for one in series {
            let base = bases.of(one);
            for probe in one.samples.iter().filter(is_inside) {
                sent += 1;
                match probe.rtt_ms {
                    Some(rtt) => added.extend(base.map(|base| rtt - base)),
                    None => lost += 1,
                }
            }
        }
        Self {
            loaded: loaded.to_vec(),
            sent,
            lost,
            median_ms: stats::median(&added).map(round),
            p95_ms: stats::fastest_of_slowest(&added, 5).map(round),
            p99_ms: stats::fastest_of_slowest(&added, 1).map(round),
        }
    }
}

/// The median delay of the idle line to each server.
pub(super) struct Bases<'a>(BTreeMap<Option<&'a str>, f64>);

impl<'a> Bases<'a> {
    /// The medians of `delay` over the probes in the idle windows.
    pub(super) fn new(
        series: &[&'a ProbeSeries],
        idle: &[(f64, f64)],
        delay: impl Fn(&Probe) -> Option<f64>,
    ) -> Self {
        let mut delays: BTreeMap<Option<&str>, Vec<f64>> = BTreeMap::new();
        for one in series {
            let is_inside = |probe: &&Probe| {
                idle.iter()
                    .any(|(from, to)| probe.t_ms >= *from && probe.t_ms < *to)
            };
            let found = one.samples.iter().filter(is_inside).filter_map(&delay);
            delays.entry(one.peer.as_deref()).or_default().extend(found);
        }
        let medians = delays
            .into_iter()
            .filter_map(|(peer, delays)| Some((peer, stats::median(&delays)?)));
        Self(medians.collect())
    }

    /// The idle median of the series' server.
    pub(super) fn of(&self, series: &ProbeSeries) -> Option<f64> {
        self.0.get(&series.peer.as_deref()).copied()
    }

    /// The idle median of the nearest server.
    pub(super) fn nearest(&self) -> Option<f64> {
        self.0.values().copied().reduce(f64::min)
    }
}

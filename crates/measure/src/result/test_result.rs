//! One test, with its figures.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sqm_core::direction::Direction;

use super::finding::Finding;
use super::flow::Flow;
use super::headline::headline;
use super::meta::Meta;
use super::probe::ProbeSeries;
use super::settings::Phase;
use super::summary::{self, Summary};
use crate::room;

/// Version of the file format. A reader refuses any other.
pub const VERSION: u32 = 2;
/// The `format` field of a result file.
pub(crate) const FORMAT: &str = "sqm-test";

/// One test, complete or cut short.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TestResult {
    /// Always `sqm-test`.
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// The circumstances of the test.
    pub meta: Meta,
    /// The figures to quote.
    pub summary: Summary,
    /// The phases of the test, in order of time.
    #[serde(deserialize_with = "room::few")]
    pub phases: Vec<Phase>,
    /// Every flow of the load: downloads first, then uploads, each in order.
    #[serde(deserialize_with = "room::few")]
    pub flows: Vec<Flow>,
    /// Every series of probes.
    #[serde(deserialize_with = "room::few")]
    pub probes: Vec<ProbeSeries>,
    /// Other values over time: processor load, counters of interfaces and queues. With Flent's name where it
    /// has one (`cpu_stats_router::load`), and its unit.
    #[serde(
        default,
        deserialize_with = "room::few",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub evidence: Vec<Series>,
    /// Texts recorded before, during or after the test, by name: `qdisc before`, `qdisc after`.
    #[serde(
        default,
        deserialize_with = "room::few_names",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub snapshots: BTreeMap<String, String>,
    /// Remarks of the client that ran the test.
    #[serde(
        default,
        deserialize_with = "room::few",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub findings: Vec<Finding>,
}

/// A value over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The quantity: `interface eth0::rx`.
    pub name: String,
    /// Unit of the values: `ms`, `Mbits/s`, `bytes`. Empty for a share from 0 to 1.
    pub unit: String,
    /// Time in milliseconds, and value. Null where no value was read.
    pub samples: Vec<(f64, Option<f64>)>,
}

impl TestResult {
    /// A result with figures computed from its samples. With empty `phases`, those of the settings apply.
    pub fn new(meta: Meta, phases: Vec<Phase>, flows: Vec<Flow>, probes: Vec<ProbeSeries>) -> Self {
        let phases = if phases.is_empty() {
            meta.settings.phases()
        } else {
            phases
        };
        let mut result = Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            meta,
            summary: Summary::default(),
            phases,
            flows,
            probes,
            evidence: Vec::new(),
            snapshots: BTreeMap::new(),
            findings: Vec::new(),
        };
        result.redraw();
        result
    }

    /// The series from which the headline figures are computed, all of one kind: UDP echoes if they lasted through the test.
    pub fn headline_probes(&self) -> Vec<&ProbeSeries> {
        headline(&self.probes, &self.phases, self.meta.settings.settle_ms)
    }

    /// The steady windows of the load, each from its first to its last millisecond.
    pub fn steady(&self) -> impl Iterator<Item = (f64, f64)> {
        let settle_ms = self.meta.settings.settle_ms;
        self.phases
            .iter()
            .filter(|p| !p.is_idle())
            .map(move |p| p.steady(settle_ms))
    }

    /// The windows that the rate of a direction comes from: the steady parts of the phases that load it alone, or of those that load
    /// both if it was never alone.
    pub fn rate_windows(&self, direction: Direction) -> Vec<(f64, f64)> {
        summary::rate_windows(direction, &self.phases, self.meta.settings.settle_ms)
    }

    /// True if a direction was loaded while the other was idle.
    pub fn was_alone(&self, direction: Direction) -> bool {
        self.phases.iter().any(|phase| phase.loaded == [direction])
    }

    /// The rate that the line carried in a direction, in Mbit/s of TCP payload. It is taken from the segments that the senders' kernels
    /// count as delivered, which a gap at the receiver does not delay, or else from the bytes that arrived. `None` without flows.
    pub fn carried_mbit(&self, direction: Direction) -> Option<f64> {
        let flows: Vec<&Flow> = self.flows(direction).collect();
        let delivered = |(from, to): (f64, f64)| -> Option<f64> {
            let rates: Option<Vec<f64>> = flows.iter().map(|f| f.delivered_mbit_between(from, to)).collect();
            Some(rates?.iter().sum())
        };
        let windows = self.rate_windows(direction);
        let arrived: f64 = flows.iter().map(|flow| flow.mbit).sum();
        let counted = match windows.as_slice() {
            [window] => delivered(*window),
            _ => None,
        };
        (!flows.is_empty()).then(|| counted.unwrap_or(arrived))
    }

    /// The flows of one direction.
    pub fn flows(&self, direction: Direction) -> impl Iterator<Item = &Flow> {
        self.flows.iter().filter(move |flow| flow.direction == direction)
    }

    /// Computes the figures from the samples. The figures in a file may be wrong.
    pub(super) fn redraw(&mut self) {
        let settle_ms = self.meta.settings.settle_ms;
        for flow in &mut self.flows {
            flow.mbit = summary::goodput(flow, &self.phases, settle_ms);
        }
        self.summary = Summary::new(&self.flows, &self.probes, &self.phases, settle_ms);
    }

    /// Memory that the samples take, in bytes.
    pub(crate) fn size(&self) -> usize {
        let flows = self.flows.iter();
        let flows = flows.map(|flow| {
            size_of_val(&*flow.samples) + size_of_val(&*flow.sender) + size_of_val(&*flow.receiver)
        });
        let probes = self.probes.iter().map(|series| size_of_val(&*series.samples));
        let evidence = self.evidence.iter().map(|series| size_of_val(&*series.samples));
        flows.chain(probes).chain(evidence).sum()
    }
}

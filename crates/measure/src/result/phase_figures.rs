//! The figures of each phase of a test. Pure.

use serde::{Deserialize, Serialize};
use sqm_core::direction::Direction;

use super::direction_word;
use super::flow::Flow;
use super::probe::{Probe, ProbeSeries};
use super::settings::Phase;
use super::summary::{round, total};
use crate::stats;

/// The figures of a phase, from its steady part. An idle phase is steady as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseFigures {
    /// The directions that carried load. Empty on an idle line.
    #[serde(with = "direction_word::list")]
    pub loaded: Vec<Direction>,
    /// Beginning of the steady part, milliseconds since the load began.
    pub from_ms: f64,
    /// Its end.
    pub to_ms: f64,
    /// Sum of the download flows in Mbit/s. `None` if the phase has no downloads.
    pub download_mbit: Option<f64>,
    /// Sum of the upload flows in Mbit/s. `None` if the phase has no uploads.
    pub upload_mbit: Option<f64>,
    /// Probes sent.
    pub sent: u64,
    /// The round trips. Its lost probes include those whose direction is unknown.
    pub round_trip: Delay,
    /// The delays from the server to this machine. Without figures if the clocks could not be compared.
    pub down: Delay,
    /// The delays from this machine to the server.
    pub up: Delay,
}

/// A distribution of delays in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delay {
    /// Median.
    pub median_ms: Option<f64>,
    /// 95th percentile.
    pub p95_ms: Option<f64>,
    /// Jitter: the mean difference between the delays of two consecutive probes of a series, regardless of sign (the delay variation
    /// of RFC 3393).
    pub jitter_ms: Option<f64>,
    /// Probes, or answers, that were lost on this way.
    pub lost: u64,
}

impl PhaseFigures {
    /// The figures of `phase`. `main` are the series of the headline figures.
    pub(super) fn new(phase: &Phase, flows: &[Flow], main: &[&ProbeSeries], settle_ms: u64) -> Self {
        let (from_ms, to_ms) = match phase.is_idle() {
            true => (phase.from_ms, phase.to_ms),
            false => phase.steady(settle_ms),
        };
        let rate = |direction| {
            let flows = flows.iter().filter(|flow| flow.direction == direction);
            let rates: Vec<f64> = flows.map(|flow| flow.mbit_between(from_ms, to_ms)).collect();
            let is_loaded = phase.loaded.contains(&direction);
            total(&rates).filter(|_| is_loaded && from_ms < to_ms).map(round)
        };
        let inside = |probe: &&Probe| probe.t_ms >= from_ms && probe.t_ms < to_ms;
        let series: Vec<Vec<&Probe>> = main
            .iter()
            .map(|series| series.samples.iter().filter(inside).collect())
            .collect();
        let lost = |direction| {
            let all = series.iter().flatten();
            all.filter(|p| p.rtt_ms.is_none() && p.lost == Some(direction))
                .count() as u64
        };
        let all_lost = series.iter().flatten().filter(|p| p.rtt_ms.is_none()).count() as u64;
        Self {
            loaded: phase.loaded.clone(),
            from_ms,
            to_ms,
            download_mbit: rate(Direction::Download),
            upload_mbit: rate(Direction::Upload),
            sent: series.iter().map(Vec::len).sum::<usize>() as u64,
            round_trip: Delay::of(&series, |p| p.rtt_ms, all_lost),
            down: Delay::of(&series, |p| p.down_ms, lost(Direction::Download)),
            up: Delay::of(&series, |p| p.up_ms, lost(Direction::Upload)),
        }
    }

    /// The phase in one word; see [`Phase::name`].
    pub fn name(&self) -> &'static str {
        super::settings::phase_name(&self.loaded)
    }
}

impl Delay {
    fn of(series: &[Vec<&Probe>], delay: impl Fn(&Probe) -> Option<f64>, lost: u64) -> Self {
        let all: Vec<f64> = series.iter().flatten().filter_map(|p| delay(p)).collect();
        let differences: Vec<f64> = series
            .iter()
            .flat_map(|probes| probes.windows(2))
            .filter_map(|pair| Some((delay(pair[1])? - delay(pair[0])?).abs()))
            .collect();
        let at = |p| stats::percentile(&all, p).map(round);
        Self {
            median_ms: at(50.0),
            p95_ms: at(95.0),
            jitter_ms: stats::mean(&differences).map(round),
            lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::in_turn;

    #[test]
    fn each_phase_has_its_own_rates_delays_jitter_and_losses() {
        let result = in_turn();
        let phases = &result.summary.phases;
        let names: Vec<_> = phases.iter().map(PhaseFigures::name).collect();
        assert_eq!(names, ["idle", "download", "upload", "both"]);
        let rates: Vec<_> = phases.iter().map(|p| (p.download_mbit, p.upload_mbit)).collect();
        assert_eq!(
            rates,
            [
                (None, None),
                (Some(80.0), None),
                (None, Some(20.0)),
                (Some(60.0), Some(10.0))
            ]
        );
        let medians: Vec<_> = phases
            .iter()
            .map(|p| [p.round_trip.median_ms, p.down.median_ms, p.up.median_ms].map(Option::unwrap))
            .collect();
        assert_eq!(
            medians,
            [
                [20.0, 10.0, 10.0],
                [120.0, 110.0, 10.0],
                [220.0, 10.0, 210.0],
                [320.0, 110.0, 210.0]
            ]
        );
        // Every second answer of the download phase is 4 ms later.
        assert_eq!(phases[1].down.jitter_ms, Some(4.0));
        assert_eq!(phases[2].down.jitter_ms, Some(0.0));
        let lost: Vec<_> = phases
            .iter()
            .map(|p| (p.round_trip.lost, p.down.lost, p.up.lost))
            .collect();
        assert_eq!(lost, [(0, 0, 0), (0, 0, 0), (1, 0, 1), (2, 1, 0)]);
    }

    #[test]
    fn rates_come_from_the_phases_that_load_one_direction() {
        let summary = in_turn().summary;
        assert_eq!(
            (summary.download_mbit, summary.upload_mbit),
            (Some(80.0), Some(20.0))
        );
        let added = |direction: &Option<crate::result::DirectionFigures>| {
            let figures = direction.clone().unwrap();
            (figures.added_median_ms.unwrap(), figures.one_way)
        };
        assert_eq!(added(&summary.down), (100.0, false));
        assert_eq!(added(&summary.up), (200.0, false));
    }
}

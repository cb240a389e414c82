//! The judgement of a configuration by the round trips of the users under load, before and after the change.
//!
//! Only seconds under load count, because a queue shows at no other time. Without enough of them there is no verdict: the configuration
//! is then *unjudged*, which counts neither for nor against it.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::{Nanos, Rate};

use crate::quiet_test::QuietTest;

/// The rules of a judgement, which the operator may set in each document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// Seconds under load that a configuration is observed for before it is kept.
    pub observe_s: u32,
    /// Seconds under load that a verdict needs, before the change and after it.
    pub minimum_s: u32,
    /// The longest observation, seconds of real time. A configuration without a verdict is kept then.
    pub longest_s: u32,
    /// The configuration is worse if the added round trip has grown by more than this, milliseconds, …
    pub tolerance_ms: f64,
    /// … and by more than this factor.
    pub factor: f64,
    /// A test for a configuration that would end as unjudged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quiet_test: Option<QuietTest>,
}

impl Default for Rules {
    /// Choices: a minute of load is a large download; an hour has one in most homes' evenings. A growth below 15 ms is not noticed in a
    /// call, and 1.5 is more than the 95th percentiles of two minutes on the same line differ.
    fn default() -> Self {
        Self {
            observe_s: 60,
            minimum_s: 20,
            longest_s: 3600,
            tolerance_ms: 15.0,
            factor: 1.5,
            quiet_test: None,
        }
    }
}

impl Rules {
    /// Returns what is wrong with these rules.
    ///
    /// # Errors
    /// A sentence.
    pub fn check(&self) -> Result<(), String> {
        let is_wrong = |name: &str, form: &str| Err(format!("judgement.{name} must be {form}"));
        match self {
            Self { minimum_s: 0, .. } => is_wrong("minimum_s", "1 or more seconds"),
            Self {
                observe_s, minimum_s, ..
            } if observe_s < minimum_s => is_wrong("observe_s", "minimum_s or more"),
            Self {
                longest_s, observe_s, ..
            } if longest_s < observe_s => is_wrong("longest_s", "observe_s or more"),
            Self {
                longest_s: 86_401.., ..
            } => is_wrong("longest_s", "86400 (a day) or less"),
            Self { tolerance_ms, .. } if !(0.0..=10_000.0).contains(tolerance_ms) => {
                is_wrong("tolerance_ms", "0 to 10000")
            }
            Self { factor, .. } if !(1.0..=100.0).contains(factor) => is_wrong("factor", "1 to 100"),
            Self {
                quiet_test: Some(test),
                minimum_s,
                ..
            } => test
                .check(*minimum_s)
                .map_err(|error| format!("judgement.quiet_test.{error}")),
            _ => Ok(()),
        }
    }
}

/// The router's observations of one second.
#[derive(Clone, Debug)]
pub struct Second {
    /// Throughput of each direction.
    pub throughput: PerDirection<Rate>,
    /// For each sample of the users' connections, how much longer its round trip was than the shortest one of that connection.
    pub added: Vec<Nanos>,
    /// Packets that the queues dropped.
    pub dropped: u64,
}

/// The throughput from which a direction counts as loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load(PerDirection<Rate>);

impl Load {
    /// A direction is loaded from half of the lower of the rates that were and are configured. A rate of 0 (the direction is not shaped)
    /// says nothing about the line, so that direction never counts.
    pub fn of(before: PerDirection<Rate>, after: PerDirection<Rate>) -> Self {
        Self(PerDirection::from_fn(|direction| {
            let known = [before[direction], after[direction]].map(Rate::bits_per_sec);
            let lower = known.into_iter().filter(|&rate| rate > 0).min();
            Rate::from_bits_per_sec(lower.map_or(u64::MAX, |rate| rate / 2))
        }))
    }

    /// True if no direction carries more than [`IDLE_SHARE`] of the throughput from which it counts as loaded.
    pub(crate) fn is_idle(&self, throughput: PerDirection<Rate>) -> bool {
        Direction::BOTH.into_iter().all(|direction| {
            throughput[direction].bits_per_sec() <= self.0[direction].bits_per_sec() / IDLE_SHARE
        })
    }

    fn is_reached(&self, throughput: PerDirection<Rate>) -> bool {
        Direction::BOTH
            .into_iter()
            .any(|direction| throughput[direction].bits_per_sec() >= self.0[direction].bits_per_sec().max(1))
    }
}

/// A line is idle up to this part of the throughput from which it counts as loaded. A choice: a twentieth of the rate is less than a film.
const IDLE_SHARE: u64 = 10;

/// The last seconds under load.
#[derive(Clone, Debug, Default)]
pub struct Window {
    seconds: VecDeque<Loaded>,
}

#[derive(Clone, Debug)]
struct Loaded {
    throughput: PerDirection<Rate>,
    /// At most [`SAMPLES`].
    added: Vec<Nanos>,
    dropped: u64,
}

/// The seconds under load that a window holds. A choice: ten minutes.
const SECONDS: usize = 600;
/// The samples that a window holds of each second, so that its size is bounded; a choice.
const SAMPLES: usize = 20;

/// The figures of a window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Seconds under load.
    pub loaded_s: u32,
    /// Samples of the users' connections in these.
    pub samples: u32,
    /// Median of the added round trip, milliseconds.
    pub p50_ms: f64,
    /// 95th percentile of the added round trip, milliseconds.
    pub p95_ms: f64,
    /// The highest throughput of a second of the download, kbit/s.
    pub download_kbit: u64,
    /// The highest throughput of a second of the upload, kbit/s.
    pub upload_kbit: u64,
    /// Packets dropped per second under load.
    pub dropped_per_s: f64,
}

impl Window {
    /// Adds a second, if it was under load and has samples.
    pub fn add(&mut self, second: &Second, load: Load) {
        if second.added.is_empty() || !load.is_reached(second.throughput) {
            return;
        }
        if self.seconds.len() == SECONDS {
            self.seconds.pop_front();
        }
        // Evenly spaced: the first samples of a second would be those of one connection.
        let step = second.added.len().div_ceil(SAMPLES);
        self.seconds.push_back(Loaded {
            throughput: second.throughput,
            added: second.added.iter().copied().step_by(step).collect(),
            dropped: second.dropped,
        });
    }

    /// Seconds under load in this window.
    pub fn loaded_s(&self) -> u32 {
        self.seconds.len() as u32
    }

    /// The figures; `None` without a second under load.
    pub fn measured(&self) -> Option<Measured> {
        let mut added: Vec<Nanos> = self
            .seconds
            .iter()
            .flat_map(|second| second.added.iter().copied())
            .collect();
        added.sort_unstable();
        let percentile = |share: usize| {
            let rank = (added.len() * share).div_ceil(100).max(1);
            Some(added.get(rank - 1)?.0 as f64 / 1e6)
        };
        let highest = |direction: Direction| {
            let rates = self
                .seconds
                .iter()
                .map(|second| second.throughput[direction].bits_per_sec() / 1000);
            rates.max().unwrap_or(0)
        };
        let dropped: u64 = self.seconds.iter().map(|second| second.dropped).sum();
        Some(Measured {
            loaded_s: self.loaded_s(),
            samples: added.len() as u32,
            p50_ms: percentile(50)?,
            p95_ms: percentile(95)?,
            download_kbit: highest(Direction::Download),
            upload_kbit: highest(Direction::Upload),
            dropped_per_s: dropped as f64 / self.seconds.len() as f64,
        })
    }
}

/// The outcome of a judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Round trips are as short as before, or shorter.
    Good,
    /// Round trips have become longer.
    Worse,
    /// There was too little load to tell.
    Unjudged,
}

/// Judges a configuration. `observed_s` is the time since the change, seconds. `None` means: observe longer.
///
/// A configuration that is worse is found as soon as there are enough seconds under load; a good one is observed to the end.
pub fn judge(
    rules: &Rules,
    before: Option<&Measured>,
    after: Option<&Measured>,
    observed_s: u64,
) -> Option<(Verdict, String)> {
    let is_over = observed_s >= u64::from(rules.longest_s);
    let enough = |measured: &&Measured| measured.loaded_s >= rules.minimum_s;
    let (Some(old), Some(new)) = (before.filter(enough), after.filter(enough)) else {
        return is_over.then(|| unjudged(rules, before, after));
    };
    let has_grown = |old: f64, new: f64| new > old + rules.tolerance_ms && new > old * rules.factor;
    let figures = |what: &str, old: f64, new: f64| {
        format!("under load the {what} of the added round trip went from {old:.1} ms to {new:.1} ms")
    };
    if has_grown(old.p95_ms, new.p95_ms) {
        return Some((Verdict::Worse, figures("95th percentile", old.p95_ms, new.p95_ms)));
    }
    if has_grown(old.p50_ms, new.p50_ms) {
        return Some((Verdict::Worse, figures("median", old.p50_ms, new.p50_ms)));
    }
    let is_observed = new.loaded_s >= rules.observe_s || is_over;
    is_observed.then(|| (Verdict::Good, figures("95th percentile", old.p95_ms, new.p95_ms)))
}

fn unjudged(rules: &Rules, before: Option<&Measured>, after: Option<&Measured>) -> (Verdict, String) {
    let seconds = |measured: Option<&Measured>| measured.map_or(0, |measured| measured.loaded_s);
    let reason = format!(
        "too little load for a verdict: {} s under load before the change and {} s after it, where {} s are needed",
        seconds(before),
        seconds(after),
        rules.minimum_s
    );
    (Verdict::Unjudged, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daily::Daily;

    const LINE: PerDirection<Rate> = PerDirection {
        download: Rate::from_bits_per_sec(50_000_000),
        upload: Rate::from_bits_per_sec(10_000_000),
    };

    fn second(download_mbit: u64, added_ms: &[u64]) -> Second {
        Second {
            throughput: PerDirection {
                download: Rate::from_bits_per_sec(download_mbit * 1_000_000),
                upload: Rate::from_bits_per_sec(100_000),
            },
            added: added_ms.iter().map(|&ms| Nanos::from_millis(ms)).collect(),
            dropped: 2,
        }
    }

    fn window(seconds: usize, download_mbit: u64, added_ms: &[u64]) -> Window {
        let mut window = Window::default();
        for _ in 0..seconds {
            window.add(&second(download_mbit, added_ms), Load::of(LINE, LINE));
        }
        window
    }

    fn judged(before: &Window, after: &Window, observed_s: u64) -> Option<(Verdict, String)> {
        let (before, after) = (before.measured(), after.measured());
        judge(&Rules::default(), before.as_ref(), after.as_ref(), observed_s)
    }

    fn verdict(before: &Window, after: &Window, observed_s: u64) -> Option<Verdict> {
        judged(before, after, observed_s).map(|(verdict, _)| verdict)
    }

    #[test]
    fn a_longer_queue_is_found_after_the_minimum_and_a_short_one_is_observed_to_the_end() {
        let before = window(100, 48, &[2, 3, 8]);
        assert_eq!(verdict(&before, &window(19, 48, &[200]), 19), None);
        let (found, reason) = judged(&before, &window(20, 48, &[200]), 20).expect("a verdict");
        assert_eq!(found, Verdict::Worse);
        assert!(reason.contains("from 8.0 ms to 200.0 ms"), "{reason}");
        assert_eq!(verdict(&before, &window(59, 48, &[2, 3, 9]), 600), None);
        assert_eq!(
            verdict(&before, &window(60, 48, &[2, 3, 9]), 600),
            Some(Verdict::Good)
        );
    }

    #[test]
    fn a_long_median_is_worse_even_if_the_tail_was_long_before() {
        let before = window(100, 48, &[2, 2, 2, 300]);
        assert_eq!(verdict(&before, &window(30, 48, &[80]), 30), Some(Verdict::Worse));
    }

    #[test]
    fn a_growth_within_tolerance_or_factor_is_none() {
        // By less than 15 ms, and by less than half of what was there.
        assert_eq!(
            verdict(&window(100, 48, &[1]), &window(60, 48, &[15]), 60),
            Some(Verdict::Good)
        );
        assert_eq!(
            verdict(&window(100, 48, &[100]), &window(60, 48, &[149]), 60),
            Some(Verdict::Good)
        );
        assert_eq!(
            verdict(&window(100, 48, &[100]), &window(60, 48, &[151]), 60),
            Some(Verdict::Worse)
        );
    }

    #[test]
    fn without_load_there_is_no_verdict() {
        let loaded = window(100, 48, &[2]);
        let idle = window(1000, 24, &[2]);
        assert_eq!(idle.loaded_s(), 0, "24 Mbit/s are less than half of 50");
        for (before, after) in [(&loaded, &idle), (&idle, &loaded), (&idle, &idle)] {
            assert_eq!(verdict(before, after, 3599), None);
            assert_eq!(verdict(before, after, 3600), Some(Verdict::Unjudged));
        }
        let (_, reason) = judged(&loaded, &window(5, 48, &[900]), 3600).expect("a verdict");
        assert!(
            reason.contains("100 s under load before the change and 5 s after it"),
            "{reason}"
        );
    }

    #[test]
    fn a_rate_far_above_the_line_does_not_hide_the_load() {
        // The line gives 50 Mbit/s, the document says 500.
        let high = PerDirection {
            download: Rate::from_bits_per_sec(500_000_000),
            ..LINE
        };
        assert!(Load::of(LINE, high).is_reached(second(48, &[]).throughput));
        let off = PerDirection {
            download: Rate::from_bits_per_sec(0),
            ..LINE
        };
        assert!(Load::of(off, LINE).is_reached(second(48, &[]).throughput));
        assert!(!Load::of(off, off).is_reached(second(48, &[]).throughput));
    }

    #[test]
    fn a_window_forgets_old_seconds_and_stays_small() {
        let mut long = window(600, 48, &[500]);
        for _ in 0..600 {
            long.add(&second(48, &[1; 5000]), Load::of(LINE, LINE));
        }
        let measured = long.measured().expect("600 seconds under load");
        assert_eq!((measured.loaded_s, measured.samples), (600, 600 * 20));
        assert_eq!((measured.p50_ms, measured.p95_ms), (1.0, 1.0));
        assert_eq!((measured.download_kbit, measured.upload_kbit), (48_000, 100));
    }

    #[test]
    fn rules_that_cannot_work_are_named() {
        let wrong = |rules: Rules| rules.check().expect_err("wrong");
        let rules = Rules::default();
        assert!(rules.check().is_ok());
        assert!(
            wrong(Rules {
                minimum_s: 0,
                ..rules.clone()
            })
            .contains("minimum_s")
        );
        assert!(
            wrong(Rules {
                observe_s: 19,
                ..rules.clone()
            })
            .contains("observe_s")
        );
        assert!(
            wrong(Rules {
                longest_s: 59,
                ..rules.clone()
            })
            .contains("longest_s")
        );
        assert!(
            wrong(Rules {
                longest_s: u32::MAX,
                ..rules.clone()
            })
            .contains("longest_s")
        );
        assert!(
            wrong(Rules {
                tolerance_ms: f64::NAN,
                ..rules.clone()
            })
            .contains("tolerance_ms")
        );
        assert!(
            wrong(Rules {
                factor: 0.9,
                ..rules.clone()
            })
            .contains("factor")
        );
        let quiet_test = Some(QuietTest {
            server: "hub".into(),
            daily: Daily { from_s: 0, to_s: 1 },
            load_s: 30,
            most_mbyte: 1,
        });
        assert!(wrong(Rules { quiet_test, ..rules }).starts_with("judgement.quiet_test.server must be"));
    }
}

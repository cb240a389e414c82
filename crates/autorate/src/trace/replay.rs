//! A controller that receives the samples of a [log](super) again.
//!
//! The samples show the line under the rates of that time. If a replay decides differently, the line would have responded differently
//! from there on: a replay shows decisions on recorded samples, not how the line would have behaved.

use super::{ControllerConfig, Entry};
use crate::{Bounds, Controller, Decision};
use sqm_core::direction::Direction;

use sqm_core::units::Instant;

/// Replays a log. It makes a new controller wherever one starts in the log.
#[derive(Debug)]
pub struct Replay<C, F> {
    make: F,
    controller: Option<C>,
    last: Instant,
    is_exact: bool,
}

/// The outcome of one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayStep {
    /// The decision of the replayed controller at the last step of the line.
    pub decision: Decision,
    /// A new controller has started with this line.
    pub is_new: bool,
    /// The controller knows all that the one in the log knew. Without the beginning of the log it does not: it starts at the rates of
    /// that time and must learn the rest again.
    pub is_exact: bool,
}

impl<C: Controller, F: FnMut(Instant, &ControllerConfig) -> C> Replay<C, F> {
    /// A replay whose controllers are made by `make`.
    pub const fn new(make: F) -> Self {
        Self {
            make,
            controller: None,
            last: Instant(0),
            is_exact: false,
        }
    }

    /// Replays the next line.
    pub fn play(&mut self, row: &Entry) -> ReplayStep {
        let is_known = self.controller.is_some();
        let new = match &row.start {
            Some(start) if start.resumes.is_none() => Some((start.at, (*start.config).clone(), true)),
            // The log was rotated, and the file before this one has been replayed.
            Some(start) if is_known && start.resumes == Some(self.last) => None,
            Some(start) => Some((start.at, mid_log_start(&start.config, row), false)),
            // If time has run backward, this is another start of the machine.
            None if is_known && row.at >= self.last => None,
            None => {
                let at = row.steps.first().map_or(row.at, |step| step.at);
                Some((at, mid_log_start(&ControllerConfig::default(), row), false))
            }
        };
        let is_new = new.is_some();
        if let Some((at, config, is_exact)) = new {
            self.controller = Some((self.make)(at, &config));
            self.is_exact = is_exact;
        }
        self.last = row.at;
        let mut decision = row.decision;
        if let Some(controller) = &mut self.controller {
            for step in &row.steps {
                decision = controller.step(step.at, &step.samples);
            }
        }
        ReplayStep {
            decision,
            is_new,
            is_exact: self.is_exact,
        }
    }
}

/// The configuration of a controller that starts in the middle of a log: it begins with the rates of the entry.
fn mid_log_start(config: &ControllerConfig, row: &Entry) -> ControllerConfig {
    let mut config = config.clone();
    for direction in Direction::BOTH {
        let bounds = &mut config.bounds[direction];
        *bounds = Bounds {
            base: Some(row.decision.rates[direction].rate),
            ..*bounds
        };
        // With learned capacities the hour would set the rate.
        config.learned[direction] = Default::default();
    }
    config
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;
    use alloc::string::ToString;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::super::{Start, Step};
    use super::*;
    use crate::{Autorate, CapacityByHour, Sample, Signal};
    use sqm_core::direction::PerDirection;
    use sqm_core::rng::Xorshift;
    use sqm_core::units::{Bytes, Nanos, Rate};

    fn make(now: Instant, config: &ControllerConfig) -> Autorate {
        Autorate::new(now, config.bounds, config.learned)
    }

    fn config() -> ControllerConfig {
        let bounds = |kbit| Bounds {
            base: Some(Rate::from_kbits_per_sec(kbit)),
            ..Bounds::default()
        };
        let mut learned = PerDirection::<CapacityByHour>::default();
        learned.download.hours[7] = Some(Rate::from_kbits_per_sec(17_000));
        ControllerConfig {
            program: "test".to_string(),
            bounds: PerDirection {
                download: bounds(20_000),
                upload: bounds(4000),
            },
            learned,
        }
    }

    /// The log of a minute of a made-up line with noise, queues and losses. Each entry was written as text and parsed.
    fn record(seed: u64) -> Vec<Entry> {
        let mut rng = Xorshift::new(seed);
        let mut random = |below: u64| (rng.next_u64() >> 32) % below;
        let config = config();
        let began = Instant(12_345_000);
        let mut controller = make(began, &config);
        let mut start = Some(Start {
            at: began,
            resumes: None,
            config: Box::new(config),
        });
        let (mut rows, mut steps, mut now) = (Vec::new(), Vec::new(), began);
        for n in 0..1200_u64 {
            now = now + Nanos(40_000_000 + random(20_000_000));
            let mut samples = Vec::new();
            let mut put = |at, signal| samples.push(Sample { at, signal });
            let queue = if n / 100 % 3 == 1 {
                random(90_000_000)
            } else {
                random(2_000_000)
            };
            let rtt = Nanos(20_000_000 + queue);
            let (sent, reflector) = (Instant(now.0 - rtt.0), random(5) as u16);
            match random(8) {
                0 => put(now, Signal::Lost { reflector }),
                1 => put(now, Signal::Waiting { reflector, sent }),
                2..5 => put(now, Signal::Echo { reflector, sent, rtt }),
                _ => put(
                    now,
                    Signal::OneWay {
                        reflector,
                        sent,
                        download: 10_000_000 + queue as i64 - 77,
                        upload: 10_000_000 + 77,
                    },
                ),
            }
            for (direction, most) in [(Direction::Download, 140_000), (Direction::Upload, 30_000)] {
                let (bytes, span) = (Bytes(random(most)), Nanos::from_millis(50));
                put(
                    now,
                    Signal::Traffic {
                        direction,
                        bytes,
                        span,
                    },
                );
            }
            if n == 3 {
                put(now, Signal::Hour(7));
            }
            let decision = controller.step(now, &samples);
            steps.push(Step { at: now, samples });
            if random(3) == 0 {
                let row = Entry {
                    unix_ms: n,
                    at: now,
                    decision,
                    throughput: PerDirection {
                        download: Rate::from_bits_per_sec(0),
                        upload: Rate::from_bits_per_sec(0),
                    },
                    start: start.take(),
                    steps: core::mem::take(&mut steps),
                };
                rows.push(Entry::parse(&row.to_string()).expect("a line"));
            }
        }
        rows
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_same_samples_lead_to_the_same_decisions(seed: u64) {
            let rows = record(seed);
            let mut replay = Replay::new(make);
            for (index, row) in rows.iter().enumerate() {
                let played = replay.play(row);
                prop_assert_eq!(played, ReplayStep { decision: row.decision, is_new: index == 0, is_exact: true });
            }
        }
    }

    /// The recordings that these tests replay have decisions to compare. How many depends on the seed.
    #[test]
    fn a_recording_has_many_rates() {
        let mut rates: Vec<_> = record(1)
            .iter()
            .map(|row| row.decision.rates.download.rate)
            .collect();
        rates.dedup();
        assert!(rates.len() > 20, "{}", rates.len());
    }

    /// The log from line `from` on, as the newer file of a rotation.
    fn rotated(rows: &[Entry], from: usize) -> Vec<Entry> {
        let mut rows = rows[from - 1..].to_vec();
        let last = rows.remove(0).at;
        rows[0].start = Some(Start {
            at: last,
            resumes: Some(last),
            config: Box::new(config()),
        });
        rows
    }

    #[test]
    fn a_rotated_log_continues_the_older_file() {
        let rows = record(1);
        let (old, new) = (&rows[..150], rotated(&rows, 150));
        let mut replay = Replay::new(make);
        for row in old.iter().chain(&new) {
            let played = replay.play(row);
            assert!(played.is_exact && played.decision == row.decision);
        }
    }

    #[test]
    fn a_replay_from_the_middle_starts_at_the_recorded_rates() {
        let rows = record(1);
        let without_any = &rows[150..];
        for new in [&rotated(&rows, 150)[..], without_any] {
            let mut replay = Replay::new(make);
            let first = replay.play(&new[0]);
            assert!(first.is_new && !first.is_exact);
            let [now, then] =
                [first.decision, new[0].decision].map(|one| one.rates.download.rate.bits_per_sec());
            assert!(now.abs_diff(then) < then / 2, "{now} {then}");
            assert!(new[1..].iter().all(|row| !replay.play(row).is_new));
        }
        // The file before this one is missing.
        let mut replay = Replay::new(make);
        replay.play(&rows[0]);
        assert!(replay.play(&rotated(&rows, 150)[0]).is_new);
        // Time runs backward: another start of the machine.
        let mut replay = Replay::new(make);
        assert!([150, 20].map(|index: usize| replay.play(&rows[index]).is_new) == [true, true]);
    }
}

//! The proof: all directions that can be loaded full at the rates that were found, which are lowered until the target holds.

use std::sync::atomic::AtomicBool;

use serde::Serialize;
use sqm_measure::client::Hooks;
use sqm_measure::result::{Direction, Settings, TestResult};

use super::server::Server;
use super::{Log, Trouble};

/// Length of a test, and of its beginning that does not count, in milliseconds.
const LOAD_MS: u64 = 13_000;
const SETTLE_MS: u64 = 7000;
/// The last one takes what time there is, up to this: a slow line has few packets in so short a time.
const LONGEST_LOAD_MS: u64 = 20_000;
/// Idle time before it. The idle line is known.
const IDLE_MS: u64 = 500;
/// What a lowered rate keeps.
const STEP: f64 = 0.98;
/// The rates are lowered so often, and not when a further test would end after so many seconds.
const MOST_STEPS: u32 = 3;
const LONGEST_S: f64 = 89.0;
/// What a test takes besides its load.
const AROUND_S: f64 = IDLE_MS as f64 / 1000.0 + 1.5;
const TEST_S: f64 = LOAD_MS as f64 / 1000.0 + AROUND_S;

/// Rates of both directions, Mbit/s gross; none leaves a direction unshaped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    pub(crate) down: Option<f64>,
    pub(crate) up: Option<f64>,
}

impl Rates {
    pub(crate) fn of(self, direction: Direction) -> Option<f64> {
        match direction {
            Direction::Down => self.down,
            Direction::Up => self.up,
        }
    }
}

/// One test with both directions full, or the one that can be loaded.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Verified {
    pub(crate) idle_ms: f64,
    /// 95th percentile of what the load adds, ms.
    pub(crate) added_p95_ms: f64,
    pub(crate) download_mbit: f64,
    pub(crate) upload_mbit: f64,
}

/// What the tests came to.
pub(crate) struct Proof {
    /// The rates of the last test.
    pub(crate) rates: Rates,
    /// The last test, and all of it.
    pub(crate) verified: Verified,
    pub(crate) result: TestResult,
    /// Why the target does not hold, if it does not.
    pub(crate) warning: Option<String>,
}

/// How to verify.
pub(crate) struct Verification<'a> {
    pub(crate) server: &'a Server,
    /// With the flows of the directions that can be loaded.
    pub(crate) settings: &'a Settings,
    /// What no queue on this line can stay below with these directions full, ms.
    pub(crate) floor_ms: f64,
    /// Round trip of the idle line, ms.
    pub(crate) idle_ms: f64,
    /// Time between two probes, ms.
    pub(crate) probe_interval_ms: u64,
    /// Added latency that is asked for, 95th percentile, ms.
    pub(crate) allowed_ms: f64,
    pub(crate) stop: &'a AtomicBool,
}

impl Verification<'_> {
    /// Tests `rates`, which are set, and lowers them by `shape` as long as the target does not hold.
    pub(crate) fn run(
        &self,
        rates: Rates,
        shape: &mut dyn FnMut(Rates) -> anyhow::Result<()>,
        log: &mut Log,
    ) -> Result<Proof, Trouble> {
        self.lower(rates, &mut |load_ms| self.test(load_ms), shape, log)
    }

    /// `test` is told how long to load the line.
    fn lower(
        &self,
        mut rates: Rates,
        test: &mut dyn FnMut(u64) -> Result<(Verified, TestResult), Trouble>,
        shape: &mut dyn FnMut(Rates) -> anyhow::Result<()>,
        log: &mut Log,
    ) -> Result<Proof, Trouble> {
        let limit_ms = self.allowed_ms.max(self.floor_ms);
        let (whom, full) = match (self.settings.down, self.settings.up) {
            (_, 0) => (Some(Direction::Down), "with downloads alone"),
            (0, _) => (Some(Direction::Up), "with uploads alone"),
            _ => (None, "with both directions full"),
        };
        if self.floor_ms > self.allowed_ms {
            log.say(
                whom,
                format!(
                    "full packets alone add up to {:.1} ms at these rates: that is the target here, not {:.1} ms",
                    self.floor_ms, self.allowed_ms
                ),
            );
        }
        for step in 0.. {
            let left_s = LONGEST_S - log.elapsed_s();
            let is_last = step == MOST_STEPS || !self.can_fall(rates) || left_s < 2.0 * TEST_S;
            let longest_ms = ((left_s - AROUND_S) * 1000.0).max(0.0) as u64;
            let (verified, result) = test(if is_last {
                longest_ms.clamp(LOAD_MS, LONGEST_LOAD_MS)
            } else {
                LOAD_MS
            })?;
            let added_ms = verified.added_p95_ms;
            let is_within = added_ms <= limit_ms;
            let then = match (is_within, is_last) {
                (true, _) => "",
                (false, false) => ", too much: a step lower",
                (false, true) => ", too much",
            };
            log.say(whom, format!("{full}, load adds {added_ms:.1} ms{then}"));
            if is_within || is_last {
                let warning = (!is_within).then(|| {
                    format!(
                        "{full}, load adds {added_ms:.1} ms where {limit_ms:.1} ms were to hold; \
                         run it again, or set lower rates"
                    )
                });
                return Ok(Proof {
                    rates,
                    verified,
                    result,
                    warning,
                });
            }
            rates = Rates {
                down: rates.down.map(|mbit| mbit * STEP),
                up: rates.up.map(|mbit| mbit * STEP),
            };
            shape(rates).map_err(Trouble::Shaping)?;
        }
        unreachable!("the last step answers")
    }

    /// Whether lower rates could help: not where a direction is loaded that has none because none helped.
    fn can_fall(&self, rates: Rates) -> bool {
        (rates.down.is_some() || self.settings.down == 0) && (rates.up.is_some() || self.settings.up == 0)
    }

    fn test(&self, load_ms: u64) -> Result<(Verified, TestResult), Trouble> {
        let settings = Settings {
            idle_ms: IDLE_MS,
            load_ms,
            after_ms: 0,
            settle_ms: SETTLE_MS,
            probe_interval_ms: self.probe_interval_ms,
            ..self.settings.clone()
        };
        let hooks = Hooks {
            progress: &mut |_| {},
            stop: self.stop,
            readings: None,
        };
        let outcome = self.server.load(settings, Some("as tuned"), hooks);
        let outcome = outcome.map_err(Trouble::Measuring)?;
        if let Some(trouble) = outcome.trouble {
            return Err(Trouble::Measuring(trouble));
        }
        let summary = &outcome.result.summary;
        let verified = Verified {
            idle_ms: self.idle_ms,
            added_p95_ms: summary.latency_p95_ms.unwrap_or(f64::INFINITY) - self.idle_ms,
            download_mbit: summary.download_mbit,
            upload_mbit: summary.upload_mbit,
        };
        Ok((verified, outcome.result))
    }
}

#[cfg(test)]
mod tests {
    use sqm_measure::client::web::Site;
    use sqm_measure::result::Meta;

    use super::*;

    /// Lowers 20 and 4 Mbit/s on a line that is flat below `limit` down; the proof, and how often was tested.
    fn lower(limit: f64, floor_ms: f64) -> (Proof, u32) {
        let server = Server::Url(Site::default());
        let (settings, stop) = (Settings::default(), AtomicBool::new(false));
        let verification = Verification {
            server: &server,
            settings: &settings,
            floor_ms,
            idle_ms: 20.0,
            probe_interval_ms: 40,
            allowed_ms: 5.0,
            stop: &stop,
        };
        let rates = Rates {
            down: Some(20.0),
            up: Some(4.0),
        };
        let (set, mut tests) = (std::cell::Cell::new(rates), 0);
        let mut test = |_| {
            tests += 1;
            let is_flat = set.get().down.is_some_and(|down| down <= limit);
            let verified = Verified {
                idle_ms: 20.0,
                added_p95_ms: if is_flat { 4.0 } else { 6.0 },
                download_mbit: 0.0,
                upload_mbit: 0.0,
            };
            let result = TestResult::new(Meta::default(), Vec::new(), Vec::new(), Vec::new());
            Ok((verified, result))
        };
        let mut shape = |rates| {
            set.set(rates);
            Ok(())
        };
        let proof = verification.lower(rates, &mut test, &mut shape, &mut Log::new());
        (proof.expect("nothing fails here"), tests)
    }

    #[test]
    fn rates_fall_until_the_target_holds() {
        let (proof, tests) = lower(19.5, 1.0);
        assert!(proof.warning.is_none());
        assert_eq!(tests, 3);
        assert!(proof.rates.down <= Some(19.5) && proof.rates.up < Some(4.0));
    }

    #[test]
    fn what_does_not_hold_is_said() {
        let (proof, tests) = lower(1.0, 1.0);
        assert_eq!(tests, MOST_STEPS + 1);
        assert!(
            proof
                .warning
                .is_some_and(|text| text.contains("6.0 ms where 5.0 ms"))
        );
    }

    #[test]
    fn a_target_below_what_packets_take_is_no_reason_to_fall() {
        let (proof, tests) = lower(1.0, 6.5);
        assert!(proof.warning.is_none() && tests == 1);
    }
}

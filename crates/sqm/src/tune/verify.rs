//! The proof: both directions full at the rates that were found, which are lowered until the target holds.

use std::sync::atomic::AtomicBool;

use serde::Serialize;
use sqm_measure::client::{self, Hooks, Target, Test};
use sqm_measure::result::{Settings, TestResult};
use sqm_measure::scenario::Scenario;

use super::framing::PROBE_INTERVAL_MS;
use super::{Log, Trouble};

/// Length of the test, and of its beginning that does not count, in milliseconds.
const LOAD_MS: u64 = 13_000;
const SETTLE_MS: u64 = 7000;
/// Idle time before the first test; the later ones know the idle line.
const IDLE_MS: u64 = 2000;
const LATER_IDLE_MS: u64 = 250;
/// What a lowered rate keeps.
const STEP: f64 = 0.98;
/// The rates are lowered so often, and not when a further test would end after so many seconds.
const MOST_STEPS: u32 = 3;
const LONGEST_S: f64 = 90.0;
const TEST_S: f64 = (LATER_IDLE_MS + LOAD_MS) as f64 / 1000.0 + 1.0;

/// Rates of both directions, Mbit/s gross; none leaves a direction unshaped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    pub(crate) down: Option<f64>,
    pub(crate) up: Option<f64>,
}

impl Rates {
    /// Whether lower rates could help: not where a direction has none because none helped.
    fn can_fall(self) -> bool {
        self.down.is_some() && self.up.is_some()
    }
}

/// One test with both directions full.
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
    pub(crate) target: &'a Target,
    pub(crate) settings: &'a Settings,
    /// What no queue on this line can stay below with both directions full, ms.
    pub(crate) floor_ms: f64,
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
        self.lower(rates, &mut |idle_ms| self.test(idle_ms), shape, log)
    }

    /// `test` is told the round trip of the idle line once it is known.
    fn lower(
        &self,
        mut rates: Rates,
        test: &mut dyn FnMut(Option<f64>) -> Result<(Verified, TestResult), Trouble>,
        shape: &mut dyn FnMut(Rates) -> anyhow::Result<()>,
        log: &mut Log,
    ) -> Result<Proof, Trouble> {
        let limit_ms = self.allowed_ms.max(self.floor_ms);
        if self.floor_ms > self.allowed_ms {
            log.say(
                None,
                format!(
                    "full packets alone add up to {:.1} ms at these rates: that is the target here, not {:.1} ms",
                    self.floor_ms, self.allowed_ms
                ),
            );
        }
        let mut idle_ms = None;
        for step in 0.. {
            let (verified, result) = test(idle_ms)?;
            let added_ms = verified.added_p95_ms;
            idle_ms = Some(verified.idle_ms);
            let is_within = added_ms <= limit_ms;
            let is_last = step == MOST_STEPS || !rates.can_fall() || log.elapsed_s() + TEST_S > LONGEST_S;
            let then = match (is_within, is_last) {
                (true, _) => "",
                (false, false) => ", too much: both rates a step lower",
                (false, true) => ", too much",
            };
            log.say(None, format!("load adds {added_ms:.1} ms{then}"));
            if is_within || is_last {
                let warning = (!is_within).then(|| {
                    format!(
                        "with both directions full, load adds {added_ms:.1} ms where {limit_ms:.1} ms were to hold; \
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

    fn test(&self, known_idle_ms: Option<f64>) -> Result<(Verified, TestResult), Trouble> {
        let test = Test {
            targets: vec![self.target.clone()],
            scenario: Scenario::of_flows(self.settings.down, self.settings.up, &[0]),
            settings: Settings {
                idle_ms: known_idle_ms.map_or(IDLE_MS, |_| LATER_IDLE_MS),
                load_ms: LOAD_MS,
                after_ms: 0,
                settle_ms: SETTLE_MS,
                probe_interval_ms: PROBE_INTERVAL_MS,
                ..self.settings.clone()
            },
            title: Some("as tuned".to_owned()),
        };
        let hooks = Hooks {
            progress: &mut |_| {},
            stop: self.stop,
            readings: None,
        };
        let outcome = client::run(&test, hooks).map_err(Trouble::Measuring)?;
        if let Some(trouble) = outcome.trouble {
            return Err(Trouble::Measuring(trouble));
        }
        let summary = &outcome.result.summary;
        let idle_ms = known_idle_ms.or(summary.idle_ms).unwrap_or_default();
        let verified = Verified {
            idle_ms,
            added_p95_ms: summary.latency_p95_ms.unwrap_or(f64::INFINITY) - idle_ms,
            download_mbit: summary.download_mbit,
            upload_mbit: summary.upload_mbit,
        };
        Ok((verified, outcome.result))
    }
}

#[cfg(test)]
mod tests {
    use sqm_measure::result::Meta;

    use super::*;

    /// Lowers 20 and 4 Mbit/s on a line that is flat below `limit` down; the proof, and how often was tested.
    fn lower(limit: f64, floor_ms: f64) -> (Proof, u32) {
        let target = Target {
            host: String::new(),
            port: 0,
            family: None,
            secret: None,
        };
        let (settings, stop) = (Settings::default(), AtomicBool::new(false));
        let verification = Verification {
            target: &target,
            settings: &settings,
            floor_ms,
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

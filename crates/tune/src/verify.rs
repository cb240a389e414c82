//! The proof: all directions that can be loaded full at the rates that were found, which are lowered under that load until the
//! target holds.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Serialize;
use sqm_measure::Error;
use sqm_measure::result::{Direction, Settings, TAIL_MS, TestResult};

use super::framing::Framing;
use super::line::Found;
use super::load::{Load, Loading, Seen, View};
use super::lowering::{self, CLOSE_CALL, Lowering, Shares};
use super::server::Server;
use crate::log::{Log, Trouble};
use crate::search;

/// Idle time before the load, in milliseconds. The idle line is known.
const IDLE_MS: u64 = 500;
/// Flows begin at this share of the rates for so long: what their beginning leaves in the modem drains with the rest, which the
/// little that is left over later would take long for.
const BEGINNING: Duration = Duration::from_secs(4);
const BEGINNING_SHARES: Shares = Shares { down: 0.8, up: 0.8 };
/// After a change of the rates.
const SETTLE: Duration = Duration::from_secs(2);
/// A try is looked at for so long, and for longer where few probes come back in that time, or where it is a close call.
const LOOK: Duration = Duration::from_secs(6);
const LONGER_LOOK: Duration = Duration::from_secs(9);
const LONGEST_LOOK: Duration = Duration::from_secs(12);
const ENOUGH: usize = 80;
/// What the beginning of the flows left may still drain in the first look, which is then repeated unless it is this far off.
const FAR: f64 = 1.6;
/// What the final rates are judged by: so many round trips, and for so long where they are not far below what load may add, as queues
/// come and go for seconds; or what time there is up to the longest.
const PROOF: usize = 300;
const CLEAR: f64 = 0.8;
const LONG_PROOF: Duration = Duration::from_secs(15);
const LONGEST_PROOF: Duration = Duration::from_secs(20);
/// It is certain below this share of what load may add: the test's own figure is of other round trips as well.
const CERTAIN: f64 = 0.95;
/// The load is over after so many seconds of the whole: what the server has to tell of it takes a moment. Only a look of so long
/// goes on after that.
const END_S: f64 = 87.5;
const SHORTEST_LOOK: Duration = Duration::from_secs(3);

/// Rates of both directions, Mbit/s gross; none leaves a direction unshaped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    pub(crate) down: Option<f64>,
    pub(crate) up: Option<f64>,
}

impl Rates {
    /// Those that were found for each direction alone. Acknowledgements wait while a full packet goes up, and what they let loose
    /// then comes down in one burst: the download leaves room for it to drain.
    pub(crate) fn together(down: Option<&Found>, up: Option<&Found>, packet_mbit: f64) -> Self {
        let burst_s = up.map_or(0.0, |up| packet_mbit / up.carried_mbit);
        let rate = |down: &Found| {
            let most = down.carried_mbit * search::beside_bursts(burst_s);
            Some(down.rate_mbit?.min(most))
        };
        Self {
            down: down.and_then(rate),
            up: up.and_then(|up| up.rate_mbit),
        }
    }

    pub(crate) fn of(self, direction: Direction) -> Option<f64> {
        match direction {
            Direction::Down => self.down,
            Direction::Up => self.up,
        }
    }

    /// What the line carried.
    pub(crate) fn carried(down: Option<&Found>, up: Option<&Found>) -> Self {
        let carried = |found: &Found| found.carried_mbit;
        Self {
            down: down.map(carried),
            up: up.map(carried),
        }
    }

    fn times(self, shares: Shares) -> Self {
        Self {
            down: self.down.map(|mbit| mbit * shares.down),
            up: self.up.map(|mbit| mbit * shares.up),
        }
    }
}

/// One look with both directions full, or the one that can be loaded.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Verified {
    pub(crate) idle_ms: f64,
    /// 95th percentile of what the load adds, ms.
    pub(crate) added_p95_ms: f64,
    pub(crate) download_mbit: f64,
    pub(crate) upload_mbit: f64,
}

/// What it came to.
pub(crate) struct Proof {
    /// The rates that were settled for.
    pub(crate) rates: Rates,
    /// What was seen at them, and the whole load.
    pub(crate) verified: Verified,
    pub(crate) result: TestResult,
    /// Why the target does not hold, if it does not.
    pub(crate) warning: Option<String>,
}

/// How to verify.
pub(crate) struct Verification<'a> {
    pub(crate) server: &'a Server,
    /// The device that leads to the line.
    pub(crate) interface: &'a str,
    pub(crate) framing: Framing,
    /// With the flows of the directions that can be loaded.
    pub(crate) settings: &'a Settings,
    /// What the line carried in each direction that was searched.
    pub(crate) carried: Rates,
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

/// Where it ended.
#[derive(Clone, Copy)]
struct Settled {
    shares: Shares,
    /// Of the load.
    from: Duration,
    to: Duration,
}

impl Verification<'_> {
    /// Sets `rates` by `shape` and lowers them as long as the target does not hold.
    pub(crate) fn run(
        &self,
        rates: Rates,
        shape: &mut dyn FnMut(Rates) -> anyhow::Result<()>,
        log: &mut Log,
    ) -> Result<Proof, Trouble> {
        let (whom, full) = self.full();
        if self.floor_ms > self.allowed_ms {
            log.say(
                whom,
                format!(
                    "full packets alone add up to {:.1} ms at these rates: that is the target here, not {:.1} ms",
                    self.floor_ms, self.allowed_ms
                ),
            );
        }
        let loading = Loading {
            server: self.server,
            settings: Settings {
                idle_ms: IDLE_MS,
                settle_ms: BEGINNING.as_millis() as u64,
                probe_interval_ms: self.probe_interval_ms,
                ..self.settings.clone()
            },
            title: None,
            interface: self.interface,
            framing: self.framing,
            stop: self.stop,
        };
        let (settled, load) = loading.run(|view| self.settle(view, rates, shape, log))?;
        let result = part(load, &settled).ok_or_else(|| {
            Trouble::Measuring(Error::Settings(
                "the test of both directions left no result".to_owned(),
            ))
        })?;
        let summary = &result.summary;
        let verified = Verified {
            idle_ms: self.idle_ms,
            added_p95_ms: summary.latency_p95_ms.unwrap_or(f64::INFINITY) - self.idle_ms,
            download_mbit: summary.download_mbit,
            upload_mbit: summary.upload_mbit,
        };
        let (added_ms, limit_ms) = (verified.added_p95_ms, self.limit_ms());
        let is_within = added_ms <= limit_ms;
        let then = if is_within { "" } else { ", too much" };
        log.say(whom, format!("{full}, load adds {added_ms:.1} ms{then}"));
        Ok(Proof {
            rates: rates.times(settled.shares),
            warning: (!is_within).then(|| {
                format!(
                    "{full}, load adds {added_ms:.1} ms where {limit_ms:.1} ms were to hold; \
                     run it again, or set lower rates"
                )
            }),
            verified,
            result,
        })
    }

    fn limit_ms(&self) -> f64 {
        self.allowed_ms.max(self.floor_ms)
    }

    fn full(&self) -> (Option<Direction>, &'static str) {
        match (self.settings.down, self.settings.up) {
            (_, 0) => (Some(Direction::Down), "with downloads alone"),
            (0, _) => (Some(Direction::Up), "with uploads alone"),
            _ => (None, "with both directions full"),
        }
    }

    fn settle(
        &self,
        view: &View<'_>,
        rates: Rates,
        shape: &mut dyn FnMut(Rates) -> anyhow::Result<()>,
        log: &mut Log,
    ) -> Result<Settled, Trouble> {
        let (whom, full) = self.full();
        let mut lowering = self.lowering(rates);
        let mut held = None::<Settled>;
        shape(rates.times(BEGINNING_SHARES)).map_err(Trouble::Shaping)?;
        view.until_load()?;
        view.look(BEGINNING)?;
        shape(rates.times(lowering.shares())).map_err(Trouble::Shaping)?;
        view.look(SETTLE)?;
        let (mut from, mut seen) = self.try_out(view, log)?;
        if (1.0..FAR).contains(&self.excess(&seen)) && seen.falls(self.idle_ms) && self.tries(log) > 0 {
            (from, seen) = self.try_out(view, log)?;
        }
        loop {
            self.decide(view, &mut seen, log)?;
            let before = lowering.shares();
            let mut is_to_go_on = self.judge(&mut lowering, &seen, rates, log);
            if !is_to_go_on {
                view.look_on(&mut seen, |seen| self.is_proof(seen, log))?;
                is_to_go_on = self.judge(&mut lowering, &seen, rates, log);
            }
            let added_ms = seen.p95_ms() - self.idle_ms;
            let settled = Settled {
                shares: before,
                from,
                to: view.elapsed(),
            };
            if !is_to_go_on {
                // What was tried above rates that had held, until there was no time to look at those again.
                let lower = held.filter(|_| lowering.is_above_what_held());
                if lower.is_some() {
                    log.say(
                        whom,
                        format!("{full}, load adds {added_ms:.1} ms: too much: what held before"),
                    );
                }
                return Ok(lower.unwrap_or(settled));
            }
            if self.excess(&seen) <= 1.0 {
                held = Some(settled);
            }
            let shares = lowering.shares();
            let then = next_try(before, shares);
            log.say(whom, format!("{full}, load adds {added_ms:.1} ms: {then}"));
            shape(rates.times(shares)).map_err(Trouble::Shaping)?;
            view.look(SETTLE)?;
            (from, seen) = self.try_out(view, log)?;
        }
    }

    fn lowering(&self, rates: Rates) -> Lowering {
        let lowering = Lowering::new(self.settings.down > 0, self.settings.up > 0);
        let (Some(rate), Some(down), Some(up)) = (rates.down, self.carried.down, self.carried.up) else {
            return lowering;
        };
        let packet_ms = |mbit| self.framing.packet_mbit() / mbit * 1000.0;
        let at_first = lowering::left_over_at_first(packet_ms(down), packet_ms(up), self.limit_ms());
        lowering.beginning(1.0 - rate / down, at_first)
    }

    /// Looks at the rates that are set; and when that began.
    fn try_out(&self, view: &View<'_>, log: &Log) -> Result<(Duration, Seen), Trouble> {
        let from = view.elapsed();
        let mut seen = view.look(Duration::ZERO)?;
        view.look_on(&mut seen, |seen| {
            let is_short = seen.heard() < ENOUGH && seen.length() < LONGER_LOOK;
            let is_late = seen.length() >= SHORTEST_LOOK && log.elapsed_s() >= END_S;
            seen.length() >= LOOK && !is_short || is_late
        })?;
        Ok((from, seen))
    }

    /// Goes on as long as it is a close call.
    fn decide(&self, view: &View<'_>, seen: &mut Seen, log: &Log) -> Result<(), Trouble> {
        view.look_on(seen, |seen| {
            let is_decided = !(1.0..CLOSE_CALL).contains(&self.excess(seen));
            is_decided || seen.length() >= LONGEST_LOOK || log.elapsed_s() >= END_S
        })
    }

    /// Whether this is known to hold, or not to hold while something else can be tried, or there is no more time.
    fn is_proof(&self, seen: &Seen, log: &Log) -> bool {
        let excess = self.excess(seen);
        let is_long = excess <= CLEAR || seen.length() >= LONG_PROOF;
        let is_enough = seen.heard() >= PROOF && is_long || seen.length() >= LONGEST_PROOF;
        let is_certain = excess <= CERTAIN || excess > 1.0 && self.tries(log) > 0;
        is_enough && is_certain || log.elapsed_s() >= END_S
    }

    /// How many more there is time for.
    fn tries(&self, log: &Log) -> u32 {
        ((END_S - log.elapsed_s()).max(0.0) / (SETTLE + LOOK).as_secs_f64()) as u32
    }

    fn excess(&self, seen: &Seen) -> f64 {
        (seen.p95_ms() - self.idle_ms) / self.limit_ms()
    }

    fn judge(&self, lowering: &mut Lowering, seen: &Seen, rates: Rates, log: &Log) -> bool {
        // Not where a direction is loaded that has no rate because none helped.
        let can_fall = (rates.down.is_some() || self.settings.down == 0)
            && (rates.up.is_some() || self.settings.up == 0);
        let tries = if can_fall { self.tries(log) } else { 0 };
        lowering.judge(self.excess(seen), tries)
    }
}

/// What is tried next, in words.
fn next_try(before: Shares, next: Shares) -> &'static str {
    match (next.down < before.down, next.up < before.up) {
        (true, false) => "too much: the download lower",
        (false, true) => "too much: the upload lower",
        (true, true) => "too much: both lower",
        (false, false) => "once more, between this and what was too much",
    }
}

/// The load as a test whose figures are of what was settled for.
fn part(load: Load, settled: &Settled) -> Option<TestResult> {
    // Figures leave out the end of a load, in which flows end; this one was cut off.
    load.part(
        settled.from,
        settled.to + Duration::from_millis(TAIL_MS),
        "as tuned",
    )
}

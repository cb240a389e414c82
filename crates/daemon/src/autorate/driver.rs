//! Runs one controller: feeds it with samples, and passes its decisions to the main loop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use sqm_autorate::{Autorate, Choice, Controller, Decision, Probes, Reason, Sample, Signal};
use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::{Instant, Nanos, Rate};

use super::capacity_store::CapacityStore;
use super::log::Log;
use super::packet_sampler::Need;
use super::passive_rtt::PassiveRtt;
use super::prober::Prober;
use super::throughput::ThroughputReader;
use super::{Context, LineConfig};
use crate::clock::monotonic;
use sqm_api::journal::LogKind;
use sqm_api::status::{AutorateDirection, AutorateStatus, special_treatment};
use sqm_configuration::rate_override::RateOverride;
use tracing::{info, warn};

/// How often the device's counters are read under load; a choice.
const TICK: Nanos = Nanos::from_millis(50);
/// How often they are read on an idle line, where the thread does nothing else; a choice.
const IDLE_TICK: Nanos = Nanos::from_millis(500);
/// The shortest time between two changes of the rates; a choice.
const MIN_WRITE_INTERVAL: Nanos = Nanos::from_millis(50);
/// A smaller change of a rate, thousandths, is delayed by [`SMALL_CHANGE_DELAY`]; a choice.
const SMALL_CHANGE: u64 = 10;
/// How long a small change waits for a larger one; a choice.
const SMALL_CHANGE_DELAY: Nanos = Nanos::from_millis(1000);
/// The shortest time between two log entries about cuts; a choice.
const CUT_LOG_INTERVAL: Nanos = Nanos::from_millis(1000);
/// The shortest round trip is that of the path if none has been shorter for this long; a choice. The first answers take twice as long
/// where the address of the next hop has to be resolved over the same path.
const PATH_IS_KNOWN_AFTER: Nanos = Nanos::from_millis(5000);
/// How often the status for the API is renewed; a choice.
const STATUS_INTERVAL: Nanos = Nanos::from_millis(500);

/// The controller of one interface.
pub(super) struct Driver {
    line: LineConfig,
    context: Context,
    controller: Autorate,
    prober: Prober,
    throughput: ThroughputReader,
    passive: PassiveRtt,
    store: CapacityStore,
    log: Log,
    /// The rates that were passed to the main loop last, and when.
    written: PerDirection<Rate>,
    written_at: Instant,
    reasons: PerDirection<Option<Reason>>,
    cuts: PerDirection<u64>,
    /// When a log entry about a rate was written last.
    logged_at: Instant,
    status_at: Instant,
    /// Why samples are missing, as logged last.
    sampling_error: Option<String>,
    /// The kinds of probes that bypass the queue, as logged last.
    specially_treated: Vec<String>,
    /// The recommended `cake_rtt` or interval, if paths are longer than the queues are set up for.
    advice: Option<String>,
    /// A round trip of 300 ms or more, and since when it has been the shortest one.
    high_rtt: Option<(Nanos, Instant)>,
    /// The hour of day (UTC) that the controller received last.
    hour: Option<u8>,
}

impl Driver {
    pub(super) fn new(line: LineConfig, context: Context) -> Self {
        let now = monotonic();
        // The configured rates are in force.
        let base = |direction: Direction| line.bounds[direction].base.unwrap_or(Rate::from_bits_per_sec(0));
        let device = (!line.faces_lan).then(|| line.interface.clone());
        let (store, error) = CapacityStore::open(&context.state_dir, &line.interface, now);
        if let Some(error) = error {
            context
                .journal
                .record(LogKind::Autorate, Some(&line.interface), error);
        }
        Self {
            controller: Autorate::new(now, line.bounds, store.learned()),
            log: Log::new(line.log.clone(), now, line.bounds, &store.learned()),
            store,
            passive: PassiveRtt::new(device.clone()),
            prober: Prober::new(&line.reflectors, device),
            throughput: ThroughputReader::new(&line.interface, line.framing, line.faces_lan),
            written: PerDirection {
                download: base(Direction::Download),
                upload: base(Direction::Upload),
            },
            written_at: now,
            reasons: PerDirection::default(),
            cuts: PerDirection::default(),
            logged_at: now,
            status_at: now,
            sampling_error: None,
            specially_treated: Vec::new(),
            advice: None,
            high_rtt: None,
            hour: None,
            line,
            context,
        }
    }

    /// Runs until `stop` is set.
    pub(super) fn run(mut self, stop: &AtomicBool) {
        let mut samples = Vec::new();
        let (mut tick, mut probe) = (monotonic(), monotonic());
        let mut probes = Probes::Off;
        while !stop.load(Ordering::Acquire) {
            let now = monotonic();
            let next = match probes {
                Probes::Off => tick,
                Probes::Every(_) => tick.min(probe),
            };
            let has_answers = next > now && self.prober.wait(next.since(now));
            let now = monotonic();
            let mut is_tick = now >= tick;
            if let Probes::Every(gap) = probes
                && now >= probe
            {
                self.prober.send(now);
                probe = now + jittered(gap, now);
                // Read the counters now if they are nearly due, instead of waking up again.
                is_tick |= now + Nanos(TICK.0 / 2) >= tick;
            }
            if has_answers {
                self.prober.receive(&mut samples);
            }
            if is_tick {
                self.prober.overdue(now, &mut samples);
                self.throughput.read(now, &mut samples);
                self.report_hour(now, &mut samples);
                if probes == Probes::Off {
                    self.passive.pause();
                } else {
                    let need = self.need_for_connections(now);
                    self.passive
                        .poll(now, self.throughput.loads(), need, &mut samples);
                }
            }
            if !is_tick && samples.is_empty() {
                continue;
            }
            let decision = self.controller.step(now, &samples);
            let loads = self.throughput.loads();
            self.log
                .step(now, &samples, &decision, loads, self.controller.learned());
            samples.clear();
            if probes == Probes::Off {
                probe = now;
            }
            probes = decision.probes;
            // If this thread hung above, it may have been abandoned: then its rates must not be used.
            if stop.load(Ordering::Acquire) {
                break;
            }
            self.follow(now, &decision);
            if !is_tick {
                continue;
            }
            self.store.write_if_due(now, self.controller.learned());
            tick = now
                + match probes {
                    Probes::Off => IDLE_TICK,
                    Probes::Every(_) => TICK,
                };
        }
    }

    /// Each sampled packet costs processor time, so connections are only a check where reflectors show one-way delays.
    fn need_for_connections(&self, now: Instant) -> Need {
        let is_bypassed = self.controller.bypassing().next().is_some();
        match self.prober.has_one_way_delays(now) && !is_bypassed {
            true => Need::Check,
            false => Need::Measure,
        }
    }

    /// Sends the hour of day to the controller when it changes. The zone does not matter, as long as it stays the same.
    fn report_hour(&mut self, now: Instant, samples: &mut Vec<Sample>) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let hour = (since.as_secs() / 3600 % 24) as u8;
        if self.hour.replace(hour) != Some(hour) {
            let signal = Signal::Hour(hour);
            samples.push(Sample { at: now, signal });
        }
    }

    /// Passes a decision to the main loop if the rates are to be written now, and renews the status.
    fn follow(&mut self, now: Instant, decision: &Decision) {
        for direction in Direction::BOTH {
            if self.line.is_shaped[direction] {
                self.log_change(now, direction, decision.rates[direction]);
            }
        }
        let wanted = self.is_write_due(now, decision).then(|| {
            let rate = |direction: Direction| {
                self.line.is_shaped[direction].then_some(decision.rates[direction].rate)
            };
            RateOverride {
                download: rate(Direction::Download),
                upload: rate(Direction::Upload),
            }
        });
        if wanted.is_none() && now.since(self.status_at) < STATUS_INTERVAL {
            return;
        }
        self.status_at = now;
        self.log_sampling_error();
        self.log_special_treatment(now);
        self.log_advice(now);
        for message in [self.log.take_message(), self.store.take_message()]
            .into_iter()
            .flatten()
        {
            self.record(message);
        }
        self.context
            .rates
            .put(&self.line.interface, self.status(decision), wanted);
        if wanted.is_some() {
            self.written_at = now;
            for direction in Direction::BOTH {
                self.written[direction] = decision.rates[direction].rate;
            }
            self.context.waker.wake();
        }
    }

    /// Adds a log entry for this interface.
    fn record(&self, text: String) {
        self.context
            .journal
            .record(LogKind::Autorate, Some(&self.line.interface), text);
    }

    /// `true` if the rates of `decision` are to be written now: at once after a large change, later after a small one.
    fn is_write_due(&self, now: Instant, decision: &Decision) -> bool {
        let since = now.since(self.written_at);
        let change = |direction: Direction| {
            let [new, old] =
                [decision.rates[direction].rate, self.written[direction]].map(Rate::bits_per_sec);
            match (self.line.is_shaped[direction], new == old) {
                (true, false) => Some(new.abs_diff(old).saturating_mul(1000) / old.max(1)),
                _ => None,
            }
        };
        let largest = Direction::BOTH.into_iter().filter_map(change).max();
        largest.is_some_and(|permille| {
            since >= MIN_WRITE_INTERVAL && (permille >= SMALL_CHANGE || since >= SMALL_CHANGE_DELAY)
        })
    }

    /// Counts cuts, and logs a rate whose reason is new and of interest to a person.
    fn log_change(&mut self, now: Instant, direction: Direction, choice: Choice) {
        let before = self.reasons[direction].replace(choice.reason);
        let kind = std::mem::discriminant::<Reason>;
        if before.as_ref().map(kind) == Some(kind(&choice.reason)) {
            return;
        }
        let was_blind = matches!(before, Some(Reason::SignalsLost | Reason::Decay));
        let is_logged = match choice.reason {
            reason if reason.is_cut() => {
                self.cuts[direction] += 1;
                now.since(self.logged_at) >= CUT_LOG_INTERVAL
            }
            Reason::PathChanged { .. } | Reason::SignalsLost | Reason::Decay | Reason::Learned => true,
            _ => was_blind,
        };
        if is_logged {
            self.logged_at = now;
            let name = direction.name();
            let kbits = choice.rate.bits_per_sec() / 1000;
            let again = if was_blind { ", signals are back" } else { "" };
            let text = format!("{name} {kbits} kbit/s: {}{again}", choice.reason);
            self.record(text);
        }
    }

    /// Logs why samples are missing, if that has changed.
    fn log_sampling_error(&mut self) {
        let probing = self
            .prober
            .error()
            .map(|why| format!("reflectors cannot be probed {why}"));
        let sampling = self.passive.error().map(|why| {
            format!("packets of connections cannot be sampled, and only reflectors are probed: {why}")
        });
        let error = probing.or(sampling);
        if error == self.sampling_error {
            return;
        }
        if let Some(error) = &error {
            self.record(error.clone());
        }
        self.sampling_error = error;
    }

    /// Logs which kinds of probes bypass the queue, if that has changed. Unlike a rate it is of interest after weeks, too.
    fn log_special_treatment(&mut self, now: Instant) {
        let kinds = self.prober.kinds_of(self.controller.bypassing(), now);
        if kinds == self.specially_treated {
            return;
        }
        let sentence = special_treatment(&kinds).unwrap_or_else(|| {
            "probes show the queue of this line again: the rates follow reflectors".to_owned()
        });
        let (kind, interface) = (LogKind::Autorate.name(), &self.line.interface);
        info!(kind, interface, "{interface}: {sentence}");
        self.record(sentence);
        self.specially_treated = kinds;
    }

    /// Logs the advice on a longer interval, once.
    fn log_advice(&mut self, now: Instant) {
        if self.advice.is_some() {
            return;
        }
        let shortest = self.controller.high_rtt();
        if self.high_rtt.map(|(path, _)| path) != shortest {
            self.high_rtt = shortest.map(|path| (path, now));
        }
        let known = self
            .high_rtt
            .filter(|(_, since)| now.since(*since) >= PATH_IS_KNOWN_AFTER);
        self.advice = advice_on_interval(known.map(|(path, _)| path), self.line.interval);
        if let Some(advice) = &self.advice {
            self.record(advice.clone());
        }
    }

    fn status(&self, decision: &Decision) -> AutorateStatus {
        let of = |direction: Direction| AutorateDirection {
            rate_bits_per_sec: decision.rates[direction].rate.bits_per_sec(),
            reason: decision.rates[direction].reason.to_string(),
            load_bits_per_sec: self.throughput.loads()[direction].bits_per_sec(),
            cuts: self.cuts[direction],
        };
        AutorateStatus {
            download: of(Direction::Download),
            upload: of(Direction::Upload),
            is_probing: decision.probes != Probes::Off,
            probes_sent: self.prober.sent(),
            reflectors: self.prober.reflectors(),
            tcp_samples: self.passive.samples(),
            specially_treated: self.specially_treated.clone(),
            advice: self.advice.clone(),
            trouble: None,
        }
    }
}

/// The recommended interval if the path is longer than the interval of the queues: a flow over such a path receives congestion
/// signals too early to fill the line.
fn advice_on_interval(path: Option<Nanos>, interval: Option<Nanos>) -> Option<String> {
    const MILLI: u64 = 1_000_000;
    /// The recommendation is a multiple of this, nanoseconds; a choice.
    const STEP: u64 = 50 * MILLI;
    let (path, interval) = (path?, interval?);
    (interval < path).then(|| {
        // A tenth more, because most hosts are farther away than the nearest reflector.
        let enough = Nanos((path.0 / 10 * 11 / STEP + 1) * STEP);
        let path = path.0 / MILLI;
        format!(
            "the nearest reflector is {path} ms away, but the queues signal congestion to a flow again after {interval}, before \
             it can have reacted: set option cake_rtt '{enough}' (without CAKE: 'interval {enough}' in iqdisc_opts and \
             eqdisc_opts) so that flows fill more of the line"
        )
    })
}

/// Varies the gap between probes by up to a tenth either way, so that the probes of many lines are not synchronised.
fn jittered(gap: Nanos, now: Instant) -> Nanos {
    // The low digits of the wake-up time are random enough.
    Nanos(gap.0 / 10 * 9 + now.0 % (gap.0 / 5).max(1))
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.log.write(self.controller.learned());
        self.store.write(self.controller.learned());
        if let Some(message) = self.store.take_message() {
            warn!(
                interface = self.line.interface,
                "{}: {message}", self.line.interface
            );
        }
        self.context.rates.remove(&self.line.interface);
    }
}

#[cfg(test)]
mod tests {
    use sqm_autorate::Bounds;
    use sqm_core::units::Rate;
    use sqm_plan::settings::Limits;

    use super::*;

    #[test]
    fn the_bounds_that_a_plan_shows_are_those_of_the_controller() {
        for kbit in [1, 500, 8191, 8193, 85_000, 20_000_000] {
            let rate = Rate::from_kbits_per_sec(kbit);
            let shown = Limits::default().around(rate);
            let least = (rate.bits_per_sec() / 64).max(Bounds::DEFAULT_MIN.bits_per_sec());
            assert_eq!(shown.min.bits_per_sec(), least);
            assert_eq!(shown.max, Bounds::DEFAULT_MAX.max(rate));
        }
    }

    #[test]
    fn a_path_longer_than_the_interval_leads_to_advice_with_a_value() {
        let millis = |n| Some(Nanos::from_millis(n));
        let advice = advice_on_interval(millis(612), millis(100)).expect("there is one");
        assert!(
            advice.contains("612 ms away") && advice.contains("after 100ms"),
            "{advice}"
        );
        assert!(advice.contains("option cake_rtt '700ms'"), "{advice}");
        for (path, interval) in [
            (None, millis(100)),
            (millis(612), None),
            (millis(612), millis(1000)),
            (millis(612), millis(612)),
        ] {
            assert_eq!(advice_on_interval(path, interval), None);
        }
    }
}

//! Brings one controller its samples, and its decisions to the board.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use sqm_autorate::{Autorate, Choice, Controller, Decision, Probes, Reason, Sample, Signal};
use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::{Instant, Nanos, Rate};

use super::kept::Kept;
use super::log::Log;
use super::passive::Passive;
use super::prober::Prober;
use super::traffic::Traffic;
use super::{Line, Status};
use crate::clock::monotonic;
use crate::shared::Shared;
use sqm_configuration::rates::Rates;

/// Traffic is read so often under load, and so often on an idle line, where nothing else is done.
const TICK: Nanos = Nanos::from_millis(50);
const IDLE_TICK: Nanos = Nanos::from_millis(500);
/// Rates are written at most 20 times a second.
const WRITES: Nanos = Nanos::from_millis(50);
/// A change of less, in thousandths, is not worth a write, unless nothing follows it.
const WORTH: u64 = 10;
const NOTHING_FOLLOWS: Nanos = Nanos::from_millis(1000);
/// Cuts are told at most so often.
const TELLS: Nanos = Nanos::from_millis(1000);
/// The status that others read is renewed so often.
const STATUS: Nanos = Nanos::from_millis(500);

/// The controller of one interface.
pub(super) struct Driver {
    line: Line,
    shared: Arc<Shared>,
    controller: Autorate,
    prober: Prober,
    traffic: Traffic,
    passive: Passive,
    kept: Kept,
    log: Log,
    /// The rates that were asked for last, and when.
    written: PerDirection<Rate>,
    written_at: Instant,
    reasons: PerDirection<Option<Reason>>,
    cuts: PerDirection<u64>,
    told_at: Instant,
    status_at: Instant,
    /// Why something cannot be asked or seen, as told.
    trouble: Option<String>,
    /// What to write where paths are longer than the queues take them for, as told.
    advice: Option<String>,
    hour: Option<u8>,
}

impl Driver {
    pub(super) fn new(line: Line, shared: Arc<Shared>) -> Self {
        let now = monotonic();
        // What the file says is in force.
        let base = |direction: Direction| line.bounds[direction].base.unwrap_or(Rate::from_bits_per_sec(0));
        let device = (!line.faces_lan).then(|| line.interface.clone());
        let (kept, trouble) = Kept::open(&shared.state_dir, &line.interface, now);
        if let Some(trouble) = trouble {
            shared.journal.tell("autorate", Some(&line.interface), trouble);
        }
        Self {
            controller: Autorate::new(now, line.bounds, kept.learned()),
            log: Log::new(line.log.clone(), now, line.bounds, &kept.learned()),
            kept,
            passive: Passive::new(device.clone()),
            prober: Prober::new(&line.reflectors, device),
            traffic: Traffic::new(&line.interface, line.framing, line.faces_lan),
            written: PerDirection {
                download: base(Direction::Download),
                upload: base(Direction::Upload),
            },
            written_at: now,
            reasons: PerDirection::default(),
            cuts: PerDirection::default(),
            told_at: now,
            status_at: now,
            trouble: None,
            advice: None,
            hour: None,
            line,
            shared,
        }
    }

    /// Works until it is told to stop.
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
                // Awake already: not once more for the counters.
                is_tick |= now + Nanos(TICK.0 / 2) >= tick;
            }
            if has_answers {
                self.prober.receive(&mut samples);
            }
            if is_tick {
                self.prober.overdue(now, &mut samples);
                self.traffic.read(now, &mut samples);
                self.tell_hour(now, &mut samples);
                // Each packet that is looked at costs.
                if probes == Probes::Off || self.prober.tells_directions_apart(now) {
                    self.passive.rest();
                } else {
                    self.passive.look(now, self.traffic.loads(), &mut samples);
                }
            }
            if !is_tick && samples.is_empty() {
                continue;
            }
            let decision = self.controller.step(now, &samples);
            let loads = self.traffic.loads();
            self.log
                .step(now, &samples, &decision, loads, self.controller.learned());
            samples.clear();
            if probes == Probes::Off {
                probe = now;
            }
            probes = decision.probes;
            // It may have hung somewhere above, and have been left behind.
            if stop.load(Ordering::Acquire) {
                break;
            }
            self.follow(now, &decision);
            if !is_tick {
                continue;
            }
            self.kept.keep(now, self.controller.learned());
            tick = now
                + match probes {
                    Probes::Off => IDLE_TICK,
                    Probes::Every(_) => TICK,
                };
        }
    }

    /// What is usual depends on the hour; of which zone, only has to stay the same.
    fn tell_hour(&mut self, now: Instant, samples: &mut Vec<Sample>) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let hour = (since.as_secs() / 3600 % 24) as u8;
        if self.hour.replace(hour) != Some(hour) {
            let signal = Signal::Hour(hour);
            samples.push(Sample { at: now, signal });
        }
    }

    fn follow(&mut self, now: Instant, decision: &Decision) {
        for direction in Direction::BOTH {
            if self.line.is_shaped[direction] {
                self.note(now, direction, decision.rates[direction]);
            }
        }
        let wanted = self.is_worth(now, decision).then(|| {
            let rate = |direction: Direction| {
                self.line.is_shaped[direction].then_some(decision.rates[direction].rate)
            };
            Rates {
                download: rate(Direction::Download),
                upload: rate(Direction::Upload),
            }
        });
        if wanted.is_none() && now.since(self.status_at) < STATUS {
            return;
        }
        self.status_at = now;
        self.tell_trouble();
        self.tell_long_path();
        for news in [self.log.news(), self.kept.news()].into_iter().flatten() {
            self.shared
                .journal
                .tell("autorate", Some(&self.line.interface), news);
        }
        self.shared
            .autorate
            .tell(&self.line.interface, self.status(decision), wanted);
        if wanted.is_some() {
            self.written_at = now;
            for direction in Direction::BOTH {
                self.written[direction] = decision.rates[direction].rate;
            }
            self.shared.wake();
        }
    }

    /// Whether the rates are to be written now.
    fn is_worth(&self, now: Instant, decision: &Decision) -> bool {
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
        largest.is_some_and(|permille| since >= WRITES && (permille >= WORTH || since >= NOTHING_FOLLOWS))
    }

    /// Counts cuts, and tells what a person may want to know.
    fn note(&mut self, now: Instant, direction: Direction, choice: Choice) {
        let before = self.reasons[direction].replace(choice.reason);
        let kind = std::mem::discriminant::<Reason>;
        if before.as_ref().map(kind) == Some(kind(&choice.reason)) {
            return;
        }
        let was_blind = matches!(before, Some(Reason::SignalsLost | Reason::Decay));
        let is_news = match choice.reason {
            reason if reason.is_cut() => {
                self.cuts[direction] += 1;
                now.since(self.told_at) >= TELLS
            }
            Reason::PathChanged { .. } | Reason::SignalsLost | Reason::Decay | Reason::Learned => true,
            _ => was_blind,
        };
        if is_news {
            self.told_at = now;
            let way = match direction {
                Direction::Download => "download",
                Direction::Upload => "upload",
            };
            let kbits = choice.rate.bits_per_sec() / 1000;
            let again = if was_blind { ", signals are back" } else { "" };
            let text = format!("{way} {kbits} kbit/s: {}{again}", choice.reason);
            self.shared
                .journal
                .tell("autorate", Some(&self.line.interface), text);
        }
    }

    fn tell_trouble(&mut self) {
        let asking = self
            .prober
            .trouble()
            .map(|why| format!("reflectors cannot be asked {why}"));
        let seeing = self
            .passive
            .trouble()
            .map(|why| format!("connections cannot be seen to pass, only reflectors are asked: {why}"));
        let trouble = asking.or(seeing);
        if trouble == self.trouble {
            return;
        }
        if let Some(trouble) = &trouble {
            self.shared
                .journal
                .tell("autorate", Some(&self.line.interface), trouble.clone());
        }
        self.trouble = trouble;
    }

    fn tell_long_path(&mut self) {
        if self.advice.is_some() {
            return;
        }
        self.advice = advice_on_interval(self.controller.high_rtt(), self.line.interval);
        if let Some(advice) = &self.advice {
            self.shared
                .journal
                .tell("autorate", Some(&self.line.interface), advice.clone());
        }
    }

    fn status(&self, decision: &Decision) -> Status {
        let of = |direction: Direction| super::Direction {
            rate_bits_per_sec: decision.rates[direction].rate.bits_per_sec(),
            reason: decision.rates[direction].reason.to_string(),
            load_bits_per_sec: self.traffic.loads()[direction].bits_per_sec(),
            cuts: self.cuts[direction],
        };
        Status {
            download: of(Direction::Download),
            upload: of(Direction::Upload),
            is_probing: decision.probes != Probes::Off,
            probes_sent: self.prober.sent(),
            reflectors: self.prober.reflectors(),
            tcp_samples: self.passive.samples(),
            advice: self.advice.clone(),
            trouble: None,
        }
    }
}

/// What to write so that flows over such a path may fill the line.
fn advice_on_interval(path: Option<Nanos>, interval: Option<Nanos>) -> Option<String> {
    const MILLI: u64 = 1_000_000;
    const STEP: u64 = 50 * MILLI;
    let (path, interval) = (path?, interval?);
    (interval < path).then(|| {
        // Most hosts are a little farther away than the nearest.
        let enough = Nanos((path.0 / 10 * 11 / STEP + 1) * STEP);
        let path = path.0 / MILLI;
        format!(
            "the nearest reflector is {path} ms away, and a flow is told to give way again after {interval}, before it can have \
             answered: with option cake_rtt '{enough}' (without CAKE 'interval {enough}' in iqdisc_opts and eqdisc_opts) it fills \
             more of the line"
        )
    })
}

/// Between nine tenths and eleven tenths of it: the probes of many lines shall not march in step.
fn jittered(gap: Nanos, now: Instant) -> Nanos {
    // The low digits of the time of waking are noise enough.
    Nanos(gap.0 / 10 * 9 + now.0 % (gap.0 / 5).max(1))
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.log.write(self.controller.learned());
        self.kept.write(self.controller.learned());
        if let Some(news) = self.kept.news() {
            errln!("{}: {news}", self.line.interface);
        }
        self.shared.autorate.forget(&self.line.interface);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_longer_than_the_queues_think_is_told_with_what_to_write() {
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

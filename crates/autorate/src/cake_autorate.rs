//! The rate controller of cake-autorate, for comparison on the same samples.
//!
//! Written from its published behaviour and defaults (as of August 2026). Its default pinger measures round trips only
//! and attributes one half to each direction; with ICMP timestamps it measures both directions. It uses reflectors only,
//! never the user's own connections.
//!
//! Reproduced: baselines, thresholds with the compensation for the serialization delay of a packet, the window of six
//! samples, factors, refractory times, decay to base, the 200 ms of the rate monitor, sleep. Left out: replacing
//! reflectors, and restarting pingers after ten seconds of silence; neither changes a rate.
//!
//! All constants are its defaults.

use alloc::vec::Vec;

use crate::{Bounds, Choice, Controller, Decision, Probes, Reason, Sample, Signal};
use sqm_core::direction::{Direction, PerDirection};

use sqm_core::units::{Instant, Nanos, Rate};

/// Six reflectors, each probed every 300 ms.
const PROBES: Nanos = Nanos::from_millis(50);
/// A delay above the baseline that counts as delayed, microseconds; 30 ms.
const DELAYED: i64 = 30_000;
/// Average delay up to which growth is fastest; 10 ms.
const FULL_GROWTH: i64 = 10_000;
/// Average delay from which a cut is deepest; 60 ms.
const FULL_CUT: i64 = 60_000;
/// Size of the window, and how many of its samples must be delayed to count as bufferbloat.
const WINDOW: usize = 6;
const DELAYED_OF_WINDOW: usize = 3;
/// Baseline before the first sample, microseconds; 100 ms.
const BASELINE_START: i64 = 100_000;
/// Weight of a sample above and of one below the baseline, millionths.
const ALPHA_UP: i64 = 1000;
const ALPHA_DOWN: i64 = 900_000;
/// A timestamp that jumps by this much has passed midnight, microseconds; 3000 s.
const ROLLOVER: i64 = 3_000_000_000;
/// Factors of the rate, thousandths.
const GENTLEST_CUT: u64 = 990;
const DEEPEST_CUT: u64 = 750;
const FASTEST_GROWTH: u64 = 1040;
const DECAY_DOWN: u64 = 990;
const DECAY_UP: u64 = 1010;
/// Load that counts as high, in percent of the rate.
const HIGH_LOAD: u64 = 75;
/// With less traffic a direction is idle, bits per second.
const ACTIVE: u64 = 2_000_000;
const BLOAT_REFRACTORY: Nanos = Nanos::from_millis(300);
const DECAY_REFRACTORY: Nanos = Nanos::from_millis(1000);
const MONITOR: Nanos = Nanos::from_millis(200);
const SLEEP_AFTER: Nanos = Nanos::from_millis(60_000);
const TOO_OLD: Nanos = Nanos::from_millis(500);
/// A full-size packet, for the compensation of thresholds, bits.
const MTU_BITS: i64 = 1500 * 8;
/// Defaults of min, base and max, kbit/s.
const DEFAULT_DOWNLOAD: [u64; 3] = [5000, 20_000, 80_000];
const DEFAULT_UPLOAD: [u64; 3] = [5000, 20_000, 35_000];

/// The controller.
#[derive(Clone, Debug)]
pub struct CakeAutorate {
    now: Instant,
    reflectors: Vec<Reflector>,
    /// The last samples of all reflectors, newest last: delay above the baselines in microseconds.
    window: [PerDirection<i64>; WINDOW],
    directions: PerDirection<State>,
    active_at: Instant,
}

impl CakeAutorate {
    /// A controller that starts at `now`.
    pub fn new(now: Instant, bounds: PerDirection<Bounds>) -> Self {
        Self {
            now,
            reflectors: Vec::new(),
            window: [PerDirection::default(); WINDOW],
            directions: PerDirection {
                download: State::new(now, bounds.download, DEFAULT_DOWNLOAD),
                upload: State::new(now, bounds.upload, DEFAULT_UPLOAD),
            },
            active_at: now,
        }
    }

    fn on_answer(&mut self, sample: &Sample, reflector: u16, delays: PerDirection<i64>) {
        let reflector = match self.reflectors.iter_mut().position(|known| known.id == reflector) {
            Some(index) => &mut self.reflectors[index],
            None => {
                self.reflectors.push(Reflector::new(reflector));
                self.reflectors.last_mut().expect("one was pushed")
            }
        };
        let above = reflector.add(delays);
        if self.now.since(sample.at) > TOO_OLD {
            return;
        }
        self.window.rotate_left(1);
        self.window[WINDOW - 1] = above;
        for direction in Direction::BOTH {
            let samples = self.window.map(|sample| sample[direction]);
            self.directions[direction].on_answer(self.now, samples);
        }
    }
}

impl Controller for CakeAutorate {
    fn step(&mut self, now: Instant, samples: &[Sample]) -> Decision {
        self.now = self.now.max(now);
        for sample in samples {
            match sample.signal {
                Signal::Echo { reflector, rtt, .. } => {
                    let half = i64::try_from(rtt.as_micros() / 2).unwrap_or(i64::MAX / 4);
                    let halves = PerDirection {
                        download: half,
                        upload: half,
                    };
                    self.on_answer(sample, reflector, halves);
                }
                Signal::OneWay {
                    reflector,
                    download,
                    upload,
                    ..
                } => {
                    let delays = PerDirection {
                        download: download / 1000,
                        upload: upload / 1000,
                    };
                    self.on_answer(sample, reflector, delays);
                }
                Signal::Traffic {
                    direction,
                    bytes,
                    span,
                } => {
                    self.directions[direction].on_traffic(bytes.0, span.0);
                    if self.directions[direction].achieved > ACTIVE {
                        self.active_at = self.now;
                    }
                }
                Signal::Waiting { .. } | Signal::Lost { .. } | Signal::Flow { .. } | Signal::Hour(_) => {}
            }
        }
        let asleep = self.now.since(self.active_at) > SLEEP_AFTER;
        Decision {
            rates: PerDirection {
                download: self.directions.download.choice(),
                upload: self.directions.upload.choice(),
            },
            probes: if asleep {
                Probes::Off
            } else {
                Probes::Every(PROBES)
            },
        }
    }
}

#[derive(Clone, Debug)]
struct Reflector {
    id: u16,
    baselines: PerDirection<i64>,
}

impl Reflector {
    const fn new(id: u16) -> Self {
        Self {
            id,
            baselines: PerDirection {
                download: BASELINE_START,
                upload: BASELINE_START,
            },
        }
    }

    /// Moves the baselines. Returns the delays above them.
    fn add(&mut self, delays: PerDirection<i64>) -> PerDirection<i64> {
        let moved = |direction| (delays[direction] - self.baselines[direction]).saturating_abs();
        if moved(Direction::Download).saturating_add(moved(Direction::Upload)) >= ROLLOVER {
            self.baselines = delays;
        }
        let mut above = PerDirection::default();
        for direction in Direction::BOTH {
            let baseline = &mut self.baselines[direction];
            let difference = delays[direction].saturating_sub(*baseline);
            let alpha = if difference >= 0 { ALPHA_UP } else { ALPHA_DOWN };
            *baseline = baseline.saturating_add(difference.saturating_mul(alpha) / 1_000_000);
            above[direction] = delays[direction].saturating_sub(*baseline);
        }
        above
    }
}

#[derive(Clone, Debug)]
struct State {
    min: u64,
    base: u64,
    max: u64,
    rate: u64,
    reason: Reason,
    bloat_at: Instant,
    decay_at: Instant,
    /// Bits and nanoseconds since the rate monitor last updated.
    seen: (u64, u64),
    achieved: u64,
    is_new: bool,
}

impl State {
    fn new(now: Instant, bounds: Bounds, defaults: [u64; 3]) -> Self {
        let [min, base, max] = [
            (bounds.min, defaults[0]),
            (bounds.base, defaults[1]),
            (bounds.max, defaults[2]),
        ]
        .map(|(given, default)| {
            given
                .unwrap_or_else(|| Rate::from_kbits_per_sec(default))
                .bits_per_sec()
        });
        let max = max.max(min);
        Self {
            min,
            base,
            max,
            rate: base.clamp(min, max),
            reason: Reason::Start,
            bloat_at: now,
            decay_at: now,
            seen: (0, 0),
            achieved: 0,
            is_new: false,
        }
    }

    fn on_traffic(&mut self, bytes: u64, span: u64) {
        let (bits, nanos) = &mut self.seen;
        *bits = bits.saturating_add(bytes.saturating_mul(8));
        *nanos = nanos.saturating_add(span);
        if *nanos >= MONITOR.0 {
            self.achieved = scale(*bits, 1_000_000_000, *nanos);
            self.is_new = true;
            self.seen = (0, 0);
        }
    }

    fn on_answer(&mut self, now: Instant, above: [i64; WINDOW]) {
        // The serialization delay of a packet does not count as bufferbloat.
        let serialization_delay = MTU_BITS * 1_000_000 / i64::try_from(self.rate.max(1)).unwrap_or(i64::MAX);
        let [full_growth, delayed, full_cut] =
            [FULL_GROWTH, DELAYED, FULL_CUT].map(|threshold| threshold + serialization_delay);
        let is_bloat = above.iter().filter(|above| **above > delayed).count() >= DELAYED_OF_WINDOW;
        let average = above.iter().fold(0i64, |sum, above| sum.saturating_add(*above)) / 6;
        let refractory = now.since(self.bloat_at) < BLOAT_REFRACTORY;
        let high_load = self.achieved > scale(self.rate, HIGH_LOAD, 100);

        if is_bloat {
            if !refractory {
                let depth = share(average - delayed, full_cut - delayed);
                self.multiply(GENTLEST_CUT * 1000 - depth * (GENTLEST_CUT - DEEPEST_CUT));
                self.reason = Reason::Bufferbloat {
                    delay: Nanos::from_micros(u64::try_from(average).unwrap_or(0)),
                };
                self.bloat_at = now;
                self.decay_at = now;
            }
        } else if high_load {
            if self.is_new && !refractory {
                let strength = share(delayed - average, delayed - full_growth);
                self.multiply(1_000_000 + strength * (FASTEST_GROWTH - 1000));
                self.reason = Reason::Grow;
                self.is_new = false;
                self.decay_at = now;
            }
        } else if now.since(self.decay_at) >= DECAY_REFRACTORY {
            if self.rate > self.base {
                self.multiply(DECAY_DOWN * 1000);
                self.rate = self.rate.max(self.base);
            } else {
                self.multiply(DECAY_UP * 1000);
                self.rate = self.rate.min(self.base);
            }
            self.reason = Reason::Decay;
            self.decay_at = now;
        }
        self.rate = self.rate.clamp(self.min, self.max);
    }

    /// Multiplies the rate by a factor in millionths.
    fn multiply(&mut self, factor: u64) {
        self.rate = scale(self.rate, factor, 1_000_000);
    }

    const fn choice(&self) -> Choice {
        Choice {
            rate: Rate::from_bits_per_sec(self.rate),
            reason: self.reason,
        }
    }
}

/// `part` by `whole` in thousandths, limited to 0 to 1000.
fn share(part: i64, whole: i64) -> u64 {
    let share = i128::from(part) * 1000 / i128::from(whole.max(1));
    u64::try_from(share.clamp(0, 1000)).unwrap_or(0)
}

/// `value * numerator / denominator`, rounded down and saturating. A denominator of zero counts as one.
fn scale(value: u64, numerator: u64, denominator: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(numerator) / u128::from(denominator.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqm_core::units::Bytes;

    const MS: Nanos = Nanos::from_millis(1);

    fn echo(at: Instant, reflector: u16, rtt: Nanos) -> Sample {
        let signal = Signal::Echo {
            reflector,
            sent: Instant(at.0 - rtt.0),
            rtt,
        };
        Sample { at, signal }
    }

    fn traffic(at: Instant, direction: Direction, rate: Rate) -> Sample {
        let signal = Signal::Traffic {
            direction,
            bytes: Bytes(rate.bytes_per_sec() / 5),
            span: Nanos::from_millis(200),
        };
        Sample { at, signal }
    }

    /// Steps of 50 ms at a constant round trip. The load is in percent of the download's present rate.
    fn run(
        controller: &mut CakeAutorate,
        start: Instant,
        seconds: u64,
        rtt_ms: u64,
        load_percent: u64,
    ) -> Instant {
        let mut now = start;
        for step in 0..seconds * 20 {
            now = now + Nanos::from_millis(50);
            let rate = controller.directions.download.rate * load_percent / 100;
            let mut samples = alloc::vec![echo(now, (step % 6) as u16, Nanos(MS.0 * rtt_ms))];
            if step % 4 == 0 {
                samples.insert(
                    0,
                    traffic(now, Direction::Download, Rate::from_bits_per_sec(rate)),
                );
            }
            controller.step(now, &samples);
        }
        now
    }

    fn started() -> (CakeAutorate, Instant) {
        let now = Instant(1_000_000_000);
        (CakeAutorate::new(now, PerDirection::default()), now)
    }

    #[test]
    fn doubles_in_three_and_a_half_seconds_and_stops_at_max() {
        let (mut controller, now) = started();
        let now = run(&mut controller, now, 4, 20, 95);
        let rate = controller.directions.download.rate;
        assert!((38_000_000..44_000_000).contains(&rate), "{rate}");
        run(&mut controller, now, 4, 20, 95);
        assert_eq!(controller.directions.download.rate, 80_000_000);
    }

    #[test]
    fn is_cut_from_80_to_5_mbit_in_three_seconds() {
        let (mut controller, now) = started();
        let now = run(&mut controller, now, 8, 20, 95);
        let half = run(&mut controller, now, 1, 400, 95);
        assert!(controller.directions.download.rate > 5_000_000);
        run(&mut controller, half, 3, 400, 95);
        assert_eq!(controller.directions.download.rate, 5_000_000);
    }

    #[test]
    fn decays_from_a_good_rate_to_base_while_idle() {
        let (mut controller, now) = started();
        let now = run(&mut controller, now, 8, 20, 95);
        run(&mut controller, now, 140, 20, 0);
        assert_eq!(controller.directions.download.rate, 20_000_000);
    }

    /// A satellite path of 600 ms is far above the baseline, which starts at 100 ms and climbs by a thousandth of the difference.
    #[test]
    fn mistakes_a_satellite_path_for_bufferbloat_for_minutes() {
        let (mut controller, now) = started();
        let now = run(&mut controller, now, 300, 600, 95);
        assert_eq!(controller.directions.download.rate, 5_000_000);
        run(&mut controller, now, 500, 600, 95);
        assert!(controller.directions.download.rate > 5_000_000);
    }
}

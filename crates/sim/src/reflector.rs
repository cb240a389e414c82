//! Far hosts that answer probes, with the noise of real ones: a few milliseconds of heavy-tailed jitter each way, now
//! and then a slow answer, now and then none.

use sqm_core::rng::Xorshift;
use sqm_core::units::{Instant, Nanos};

/// How a reflector behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// As one hopes.
    Good,
    /// Never answers from this time on.
    DeadFrom(Instant),
    /// Answers after a random time of up to this much.
    Lying(Nanos),
    /// Answers once in this time at most.
    Limited(Nanos),
}

/// One of them.
#[derive(Clone, Debug)]
pub struct Reflector {
    behaviour: Behaviour,
    /// From the line's far end to it and back.
    distance: Nanos,
    /// Its clock less ours.
    clock_offset: i64,
    jitter: Nanos,
    random: Xorshift,
    answered_at: Option<Instant>,
}

/// How a probe fared at the reflector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reflection {
    /// From the line's far end to the reflector.
    pub there: Nanos,
    /// And back.
    pub back: Nanos,
    /// Its clock less ours.
    pub clock_offset: i64,
}

/// One answer of so many is lost, and as many are slow, because reflectors answer when they have time.
const ONE_OF: u64 = 200;
const SLOW_MOST: Nanos = Nanos::from_millis(120);

impl Reflector {
    /// A reflector at `distance`, with half of `jitter` as the median of either way's jitter or so.
    pub fn new(behaviour: Behaviour, distance: Nanos, jitter: Nanos, seed: u64) -> Self {
        let mut random = seeded(seed);
        // Hosts that know the time, within 20 ms.
        let clock_offset = (random.next_u64() >> 16) as i64 % 40_000_000 - 20_000_000;
        Self {
            behaviour,
            distance,
            clock_offset,
            jitter,
            random,
            answered_at: None,
        }
    }

    /// What becomes of a probe that the line's far end forwards at `now`.
    pub fn answer(&mut self, now: Instant) -> Option<Reflection> {
        // The same draws in every case, so that one case does not change the next.
        let [there, back] = [
            jitter(&mut self.random, self.jitter),
            jitter(&mut self.random, self.jitter),
        ];
        let chance = (self.random.next_u64() >> 16) % ONE_OF;
        let amount = self.random.next_u64() >> 32;
        if chance == 0 {
            return None;
        }
        let slow = if chance == 1 {
            fraction(SLOW_MOST, amount)
        } else {
            Nanos(0)
        };
        let mut back = Nanos(self.distance.0 / 2 + back.0 + slow.0);
        match self.behaviour {
            Behaviour::Good => {}
            Behaviour::DeadFrom(time) if now >= time => return None,
            Behaviour::DeadFrom(_) => {}
            Behaviour::Lying(most) => back.0 += fraction(most, amount).0,
            Behaviour::Limited(gap) => {
                if self.answered_at.is_some_and(|last| now.since(last) < gap) {
                    return None;
                }
                self.answered_at = Some(now);
            }
        }
        Some(Reflection {
            there: Nanos(self.distance.0 / 2 + there.0),
            back,
            clock_offset: self.clock_offset,
        })
    }
}

/// A source whose first numbers do not resemble those of the neighbouring seed.
pub fn seeded(seed: u64) -> Xorshift {
    let mut random = Xorshift::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xd1b5_4a32_d192_ed03);
    for _ in 0..8 {
        random.next_u64();
    }
    random
}

/// Heavy-tailed: median 0.9, mean 2.2, 95th percentile 9.5, most 20 times `scale`.
pub fn jitter(random: &mut Xorshift, scale: Nanos) -> Nanos {
    const ONE: u64 = 1 << 20;
    let u = random.next_u64() >> 44;
    Nanos(u128::from(scale.0).saturating_mul(u128::from(u)) as u64 / (ONE + ONE / 20 - u))
}

fn fraction(most: Nanos, of_u32: u64) -> Nanos {
    Nanos(((u128::from(most.0) * u128::from(of_u32)) >> 32) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_is_as_documented() {
        let mut random = seeded(1);
        let mut drawn: Vec<u64> = (0..100_000).map(|_| jitter(&mut random, Nanos(1000)).0).collect();
        drawn.sort_unstable();
        let mean = drawn.iter().sum::<u64>() / 100_000;
        assert!((850..1000).contains(&drawn[50_000]), "median {}", drawn[50_000]);
        assert!((2000..2400).contains(&mean), "mean {mean}");
        assert!((9000..10_000).contains(&drawn[95_000]), "95th {}", drawn[95_000]);
        assert!(drawn[99_999] <= 20_000);
    }

    #[test]
    fn faults_are_what_they_say() {
        let answers = |behaviour| {
            let mut reflector = Reflector::new(behaviour, Nanos::from_millis(10), Nanos(0), 7);
            (0..1000u64)
                .filter(|n| reflector.answer(Instant(n * 100_000_000)).is_some())
                .count()
        };
        assert!((980..1000).contains(&answers(Behaviour::Good)));
        assert!((490..500).contains(&answers(Behaviour::DeadFrom(Instant(50_000_000_000)))));
        assert!((95..=100).contains(&answers(Behaviour::Limited(Nanos::from_millis(1000)))));
    }
}

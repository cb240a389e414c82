//! Far hosts that answer probes, with the noise of real ones: a few milliseconds of heavy-tailed jitter in each direction,
//! occasional slow answers, and occasional loss.

use sqm_core::rng::Xorshift;
use sqm_core::units::{Instant, Nanos};

/// The behaviour of a reflector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// No fault.
    Good,
    /// Does not answer from this time on.
    DeadFrom(Instant),
    /// Delays each answer by a random time of up to this.
    Lying(Nanos),
    /// Answers at most once in this time.
    Limited(Nanos),
}

/// A reflector.
#[derive(Clone, Debug)]
pub struct Reflector {
    behaviour: Behaviour,
    /// Round trip between the line's far end and the reflector.
    distance: Nanos,
    /// Offset of its clock from ours.
    clock_offset: i64,
    jitter: Nanos,
    random: Xorshift,
    answered_at: Option<Instant>,
}

/// The way of a probe beyond the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reflection {
    /// Delay from the line's far end to the reflector.
    pub there: Nanos,
    /// Delay back.
    pub back: Nanos,
    /// Offset of its clock from ours.
    pub clock_offset: i64,
}

/// One answer in this many is lost, and one in this many is slow, because answering has low priority on most hosts. A choice.
const ONE_OF: u64 = 200;
const SLOW_MOST: Nanos = Nanos::from_millis(120);

impl Reflector {
    /// A reflector at `distance`. The median of its jitter in each direction is about half of `jitter`.
    pub fn new(behaviour: Behaviour, distance: Nanos, jitter: Nanos, seed: u64) -> Self {
        let mut random = seeded(seed);
        // The clocks are synchronised to within 20 ms.
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

    /// The way of a probe that leaves the line's far end at `now`.
    pub fn answer(&mut self, now: Instant) -> Option<Reflection> {
        // The number of random draws is the same in every case, so that one probe does not change the noise of the next.
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

/// A random source whose first numbers differ from those of neighbouring seeds.
pub fn seeded(seed: u64) -> Xorshift {
    let mut random = Xorshift::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xd1b5_4a32_d192_ed03);
    for _ in 0..8 {
        random.next_u64();
    }
    random
}

/// Heavy-tailed jitter: median 0.9, mean 2.2, 95th percentile 9.5, maximum 20 times `scale`.
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
    fn jitter_has_the_documented_distribution() {
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
    fn each_fault_behaves_as_documented() {
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

//! Times of the day, each day again.

use serde::{Deserialize, Serialize};

/// Seconds of a day.
pub(crate) const DAY_S: u32 = 86_400;

/// Times of the day, seconds since midnight (UTC). If `to_s` is the smaller one, midnight is between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Daily {
    /// The first second.
    pub from_s: u32,
    /// The first second behind it.
    pub to_s: u32,
}

impl Daily {
    /// Returns what is wrong with these times.
    ///
    /// # Errors
    /// A sentence.
    pub fn check(self) -> Result<(), String> {
        if self.from_s >= DAY_S || self.to_s > DAY_S || self.from_s == self.to_s {
            return Err("the times of the day must be two different times from 00:00 to 24:00".into());
        }
        Ok(())
    }

    /// The first second within these times, from `at` on; seconds since 1970 (UTC).
    pub fn opens_at(self, at: u64) -> u64 {
        let time = since_midnight(at);
        let is_open = if self.from_s < self.to_s {
            (self.from_s..self.to_s).contains(&time)
        } else {
            time >= self.from_s || time < self.to_s
        };
        if is_open {
            at
        } else {
            at.saturating_add(u64::from((self.from_s + DAY_S - time) % DAY_S))
        }
    }

    /// The first second behind these times, from `at` on; seconds since 1970 (UTC).
    pub fn closes_at(self, at: u64) -> u64 {
        let opens_at = self.opens_at(at);
        let left = (self.to_s + DAY_S - since_midnight(opens_at)) % DAY_S;
        // All day long, it is midnight again.
        let left = if left == 0 { DAY_S } else { left };
        opens_at.saturating_add(u64::from(left))
    }
}

fn since_midnight(at: u64) -> u32 {
    (at % u64::from(DAY_S)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Midnight (UTC).
    const MIDNIGHT: u64 = 1_800_057_600;
    const HOUR: u32 = 3600;

    fn at(hour: u32) -> u64 {
        MIDNIGHT + u64::from(hour * HOUR)
    }

    #[test]
    fn times_open_and_close_each_day_also_around_midnight() {
        let daily = |from: u32, to: u32| Daily {
            from_s: from * HOUR,
            to_s: to * HOUR,
        };
        for (times, now, opens, closes) in [
            (daily(1, 5), 0, 1, 5),
            (daily(1, 5), 1, 1, 5),
            (daily(1, 5), 4, 4, 5),
            (daily(1, 5), 5, 25, 29),
            (daily(22, 4), 21, 22, 28),
            (daily(22, 4), 23, 23, 28),
            (daily(22, 4), 3, 3, 4),
            (daily(22, 4), 4, 22, 28),
            (daily(20, 24), 12, 20, 24),
            (daily(0, 24), 0, 0, 24),
            (daily(0, 24), 23, 23, 24),
        ] {
            assert_eq!(
                (times.opens_at(at(now)), times.closes_at(at(now))),
                (at(opens), at(closes)),
                "{times:?} at {now}"
            );
        }
    }

    #[test]
    fn times_without_a_length_or_beyond_the_day_are_refused() {
        for (from_s, to_s) in [(1, 1), (0, 0), (0, DAY_S + 1), (DAY_S, 0)] {
            assert!(Daily { from_s, to_s }.check().is_err(), "{from_s} {to_s}");
        }
        let night = Daily { from_s: 1, to_s: 0 };
        assert_eq!(night.check(), Ok(()));
    }
}

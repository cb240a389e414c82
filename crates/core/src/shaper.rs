//! CAKE's shaper: a virtual clock that every packet advances by what it takes on the line, without a burst after idle.
//!
//! Two clocks run for the whole link. Packets that were dropped after they had crossed the line (`ingress`) advance only
//! the first; the second, the failsafe, lets real deliveries go on at two thirds of the rate, however many are dropped.
//! Each tin has a clock of its own at its share of the rate, which decides only which tin comes first.

/// Fraction bits of a [`Pace`] that fits.
const FRACTION_BITS: u32 = 34;

/// The least rate that is computed with, bytes per second.
const LEAST_RATE: u64 = 64;

/// How long a byte takes at some rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Nanoseconds per byte, times 2 to the power of `shift`. 0: no time at all.
    per_byte: u64,
    shift: u32,
}

impl Pace {
    /// At `rate` bytes per second; 0 is unlimited.
    pub(crate) const fn of(rate: u64) -> Self {
        if rate == 0 {
            return Self {
                per_byte: 0,
                shift: 0,
            };
        }
        let rate = if rate < LEAST_RATE { LEAST_RATE } else { rate };
        let mut per_byte = (1_000_000_000 << FRACTION_BITS) / rate;
        let mut shift = FRACTION_BITS;
        while per_byte >> FRACTION_BITS > 0 {
            per_byte >>= 1;
            shift -= 1;
        }
        Self { per_byte, shift }
    }

    pub(crate) const fn is_unlimited(self) -> bool {
        self.per_byte == 0
    }

    /// The time that `bytes` take, nanoseconds.
    #[inline]
    pub(crate) const fn duration(self, bytes: u32) -> u64 {
        (bytes as u64).wrapping_mul(self.per_byte) >> self.shift
    }
}

/// The clocks of the whole link, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shaper {
    pub(crate) pace: Pace,
    next: u64,
    failsafe: u64,
}

impl Shaper {
    /// True if no packet may leave yet.
    #[inline]
    pub(crate) const fn is_ahead(&self, now: u64) -> bool {
        self.next > now && self.failsafe > now
    }

    /// When one may, if none may now.
    pub(crate) fn catches_up_at(&self) -> u64 {
        self.next.min(self.failsafe)
    }

    /// A packet of `line_len` bytes went out.
    #[inline]
    pub(crate) const fn sent(&mut self, line_len: u32) {
        let takes = self.pace.duration(line_len);
        self.next += takes;
        self.failsafe += takes + (takes >> 1);
    }

    /// A packet of `line_len` bytes had crossed the line and was dropped here.
    pub(crate) const fn dropped(&mut self, line_len: u32) {
        self.next += self.pace.duration(line_len);
    }

    /// The queue was empty: idle time gives no credit. Whether the clocks are ahead, and a packet must wait.
    #[inline]
    pub(crate) const fn wake(&mut self, now: u64) -> bool {
        if self.next < now {
            self.next = now;
            self.failsafe = now;
            return false;
        }
        self.is_ahead(now)
    }
}

/// A tin's clock, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TinClock {
    pub(crate) pace: Pace,
    next: u64,
}

impl TinClock {
    /// How far ahead of `now` the tin is; zero or less is within its share.
    #[inline]
    pub(crate) const fn ahead(&self, now: u64) -> i64 {
        self.next.wrapping_sub(now).cast_signed()
    }

    /// A packet of `line_len` bytes left the tin. Credit is kept, debt is at most this packet.
    #[inline]
    pub(crate) const fn charge(&mut self, line_len: u32, now: u64) {
        let takes = self.pace.duration(line_len);
        let at_most = now + takes;
        if self.next < now {
            self.next += takes;
        } else if self.next < at_most {
            self.next = at_most;
        }
    }

    /// The tin was empty: idle time gives no credit.
    #[inline]
    pub(crate) const fn wake(&mut self, now: u64) {
        if self.next < now {
            self.next = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    /// 10 Mbit/s in bytes per second.
    const RATE: u64 = 1_250_000;

    #[test]
    fn paces_are_the_kernels() {
        for (rate, per_byte, shift) in [
            (1_250_000, 13_421_772_800, 24),
            (12_500_000, 10_737_418_240, 27),
            (125_000, 16_777_216_000, 21),
        ] {
            assert_eq!(Pace::of(rate), Pace { per_byte, shift });
        }
        assert_eq!(Pace::of(1_250_000).duration(1514), 1_211_200);
        assert_eq!(Pace::of(12_500_000).duration(1538), 123_040);
        assert_eq!(Pace::of(0).duration(1514), 0);
        assert!(
            Pace::of(0).is_unlimited() && !Pace::of(u64::MAX).is_unlimited()
                || Pace::of(u64::MAX).duration(1514) == 0
        );
    }

    #[test]
    fn the_global_clock_runs_at_the_rate_and_the_failsafe_at_two_thirds() {
        let start = 1000 * MILLISECOND;
        let mut shaper = Shaper {
            pace: Pace::of(RATE),
            ..Shaper::default()
        };
        shaper.wake(start);
        shaper.sent(1250);
        assert_eq!(
            (shaper.next, shaper.failsafe),
            (start + MILLISECOND, start + MILLISECOND * 3 / 2)
        );
        assert!(shaper.is_ahead(start) && !shaper.is_ahead(start + MILLISECOND));
        assert_eq!(shaper.catches_up_at(), start + MILLISECOND);
        shaper.dropped(1250);
        assert_eq!(
            (shaper.next, shaper.failsafe),
            (start + 2 * MILLISECOND, start + MILLISECOND * 3 / 2)
        );
        assert_eq!(shaper.catches_up_at(), start + MILLISECOND * 3 / 2);
    }

    #[test]
    fn drops_alone_never_block() {
        let now = 1000 * MILLISECOND;
        let shaper = Shaper {
            pace: Pace::of(RATE),
            next: now + 50 * MILLISECOND,
            failsafe: now,
        };
        assert!(!shaper.is_ahead(now));
    }

    #[test]
    fn a_tin_keeps_credit_and_owes_one_packet_at_most() {
        for (before, after) in [(995, 999), (1000, 1004), (1003, 1004), (1010, 1010)] {
            let mut clock = TinClock {
                pace: Pace::of(RATE / 4),
                next: before * MILLISECOND,
            };
            clock.charge(1250, 1000 * MILLISECOND);
            assert_eq!(clock.next, after * MILLISECOND);
        }
    }
}

//! COBALT, the AQM of each of CAKE's queues: CoDel (RFC 8289) that remembers its signalling rate, and BLUE (Feng et al.
//! 2002) for flows that do not react.
//!
//! CoDel's count does not fall to zero when the queue is good again but unwinds step by step, as fast as it grew. BLUE
//! raises a drop probability when the queue's buffer overflows and lowers it when the queue runs empty.
//!
//! Quirks of Linux 6.12 that are kept on purpose: the packet that empties a queue is delivered even if it was to be
//! dropped, though `count` has advanced; a packet that was just marked may still be dropped by BLUE; a packet that
//! arrives with Congestion Experienced counts as marked.

use crate::narrow::fits_u64;
use crate::profile::Profile;
use crate::rng::Random;

/// The amount that BLUE adds to the drop probability at an overflow: 1/256, in units of 2⁻³².
const BLUE_INCREMENT: u32 = 1 << 24;

/// The amount that BLUE subtracts when the queue was empty: 1/4096.
const BLUE_DECREMENT: u32 = 1 << 20;

/// 2³² / √count for small counts, where Newton's method from the neighbour is poor. 0 and 1 alike.
const INVERSE_SQRT: [u32; 16] = [
    4_294_967_295,
    4_294_967_295,
    3_037_000_500,
    2_479_700_525,
    2_147_483_647,
    1_920_767_767,
    1_753_413_056,
    1_623_345_051,
    1_518_500_250,
    1_431_655_765,
    1_358_187_914,
    1_294_981_364,
    1_239_850_263,
    1_191_209_601,
    1_147_878_294,
    1_108_955_788,
];

/// Parameters that the queues of one tin share. Times in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Params {
    /// Sojourn time that is good enough.
    pub(crate) target: u64,
    /// How long it may be worse before a signal.
    pub(crate) interval: u64,
    /// The time of a full packet at the tin's rate; 0 without a rate.
    pub(crate) mtu_time: u64,
    /// The interval as the control law sees it.
    law_interval: u64,
    /// A queue that was idle is taken to lag behind.
    idle_lags: bool,
}

impl Params {
    pub(crate) const fn new(target: u64, interval: u64, mtu_time: u64, profile: Profile) -> Self {
        let law_interval = if profile.cobalt_interval_32_bits {
            interval & 0xffff_ffff
        } else {
            interval
        };
        Self {
            target,
            interval,
            mtu_time,
            law_interval,
            idle_lags: profile.cobalt_first_episode,
        }
    }
}

/// The state of one queue. Times are in nanoseconds of the caller's clock; 0 is long ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cobalt {
    drop_next: u64,
    blue_timer: u64,
    count: u32,
    inverse_sqrt: u32,
    drop_probability: u32,
    dropping: bool,
}

/// The decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// It waited too long, or BLUE chose it.
    pub(crate) drop: bool,
    /// It carries Congestion Experienced in place of a drop by CoDel.
    pub(crate) marked: bool,
}

/// A change of BLUE's probability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blue {
    /// It was above zero before and after, or zero.
    Unchanged,
    /// It left zero: the queue's flow is taken for unresponsive.
    Awoke,
    /// It came back to zero.
    Rested,
}

impl Cobalt {
    pub(crate) const fn new(profile: Profile) -> Self {
        Self {
            drop_next: 0,
            blue_timer: 0,
            count: 0,
            inverse_sqrt: if profile.cobalt_first_episode { 0 } else { u32::MAX },
            drop_probability: 0,
            dropping: false,
        }
    }

    /// Judges a packet that leaves the queue after `sojourn`. `mark` sets Congestion Experienced if it can.
    ///
    /// `bulk_flows` raises the threshold for the flows of a download: two full packets for each of them; 0 otherwise.
    #[inline]
    pub(crate) fn judge(
        &mut self,
        params: &Params,
        now: u64,
        sojourn: u64,
        bulk_flows: u32,
        mark: impl FnOnce() -> bool,
        random: &mut impl Random,
    ) -> Verdict {
        let over = sojourn > params.target
            && sojourn > params.mtu_time.saturating_mul(u64::from(bulk_flows) * 2)
            && sojourn > params.mtu_time.saturating_mul(4);
        let mut due = self.is_due(now);
        let mut lags = self.drop_next < now;
        if over {
            if !self.dropping {
                self.dropping = true;
                self.drop_next = self.control_law(params, now);
                self.count = self.count.max(1);
                lags &= params.idle_lags;
            }
        } else {
            self.dropping = false;
        }
        let mut verdict = Verdict {
            drop: false,
            marked: false,
        };
        if due && self.dropping {
            verdict.marked = mark();
            verdict.drop = !verdict.marked;
            self.count = self.count.saturating_add(1);
            self.update_inverse_sqrt();
            self.drop_next = self.control_law(params, self.drop_next);
            lags = self.drop_next < now;
        } else {
            while due {
                self.unwind(params);
                due = self.is_due(now);
                lags = self.drop_next < now;
            }
        }
        if self.drop_probability > 0 && random.r32() < self.drop_probability {
            verdict.drop = true;
        }
        if self.count == 0 {
            self.drop_next = now + params.interval;
        } else if lags && !verdict.drop {
            self.drop_next = now;
        }
        verdict
    }

    /// A packet of this queue was dropped because the buffer was full.
    pub(crate) fn on_overflow(&mut self, params: &Params, now: u64) -> Blue {
        let mut blue = Blue::Unchanged;
        if now - self.blue_timer > params.target {
            if self.drop_probability == 0 {
                blue = Blue::Awoke;
            }
            self.drop_probability = self.drop_probability.saturating_add(BLUE_INCREMENT);
            self.blue_timer = now;
        }
        self.dropping = true;
        self.drop_next = now;
        self.count = self.count.max(1);
        blue
    }

    /// The queue was found empty.
    #[inline]
    pub(crate) fn on_empty(&mut self, params: &Params, now: u64) -> Blue {
        let mut blue = Blue::Unchanged;
        if self.drop_probability > 0 && now - self.blue_timer > params.target {
            self.drop_probability = self.drop_probability.saturating_sub(BLUE_DECREMENT);
            self.blue_timer = now;
            if self.drop_probability == 0 {
                blue = Blue::Rested;
            }
        }
        self.dropping = false;
        if self.is_due(now) {
            self.unwind(params);
        }
        blue
    }

    /// True if nothing is left to remember.
    #[inline]
    pub(crate) const fn is_at_rest(&self, now: u64) -> bool {
        self.drop_probability == 0 && self.count == 0 && now >= self.drop_next
    }

    /// Signals of the present episode, and those not yet unwound of earlier ones.
    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    /// When the next signal is due, if the queue is being signalled.
    pub(crate) const fn drop_next(&self) -> Option<u64> {
        if self.dropping { Some(self.drop_next) } else { None }
    }

    /// BLUE's probability in units of 2⁻³².
    pub(crate) const fn drop_probability(&self) -> u32 {
        self.drop_probability
    }

    /// When BLUE's probability last changed.
    pub(crate) const fn blue_timer(&self) -> u64 {
        self.blue_timer
    }

    #[inline]
    const fn is_due(&self, now: u64) -> bool {
        self.count > 0 && now >= self.drop_next
    }

    fn unwind(&mut self, params: &Params) {
        self.count -= 1;
        self.update_inverse_sqrt();
        self.drop_next = self.control_law(params, self.drop_next);
    }

    /// RFC 8289 §5.3: the next signal comes an interval over √count later.
    #[inline]
    const fn control_law(&self, params: &Params, from: u64) -> u64 {
        let step = (params.law_interval as u128 * self.inverse_sqrt as u128) >> 32;
        from + fits_u64(step)
    }

    /// From the table, or by one step of Newton's method from the neighbouring count.
    fn update_inverse_sqrt(&mut self) {
        if let Some(&exact) = INVERSE_SQRT.get(self.count as usize) {
            self.inverse_sqrt = exact;
            return;
        }
        let root = u64::from(self.inverse_sqrt);
        let square = (root * root) >> 32;
        let correction = (3_u64 << 32).wrapping_sub(u64::from(self.count).wrapping_mul(square)) >> 2;
        self.inverse_sqrt = (correction.wrapping_mul(root) >> 31) as u32;
    }
}

#[cfg(test)]
mod tests;

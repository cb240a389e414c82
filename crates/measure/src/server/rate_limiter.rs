//! A rate limiter.

use std::time::{Duration, Instant};

/// A token bucket. It fills at a rate per second and holds the tokens of one second.
#[derive(Clone, Copy, Debug)]
pub(super) struct TokenBucket {
    tokens: f64,
    refilled: Instant,
}

impl TokenBucket {
    /// A full bucket.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            tokens: 0.0,
            // A clock that has run for less than a second has no earlier moment; the bucket is then empty.
            refilled: now.checked_sub(Duration::from_secs(1)).unwrap_or(now),
        }
    }

    /// Takes a token if there is one at `now`. The bucket fills with `per_second` tokens a second.
    pub(super) fn try_take(&mut self, now: Instant, per_second: u32) -> bool {
        let rate = f64::from(per_second);
        let grown = now.saturating_duration_since(self.refilled).as_secs_f64() * rate;
        self.tokens = (self.tokens + grown).min(rate);
        self.refilled = self.refilled.max(now);
        let is_allowed = self.tokens >= 1.0;
        if is_allowed {
            self.tokens -= 1.0;
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_above_the_rate_are_refused() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(start);
        let now = start + Duration::from_secs(10);
        let allowed = (0..30).filter(|_| bucket.try_take(now, 20)).count();
        assert_eq!(allowed, 20);
        assert!(!bucket.try_take(now + Duration::from_millis(40), 20));
        assert!(bucket.try_take(now + Duration::from_millis(60), 20));
    }

    #[test]
    fn a_rate_of_zero_refuses_everything() {
        let start = Instant::now();
        assert!(!TokenBucket::new(start).try_take(start + Duration::from_secs(10), 0));
    }
}

//! So many in a second, and no more.

use std::time::{Duration, Instant};

/// What may be done now; grows with time up to a second's worth.
#[derive(Clone, Copy, Debug)]
pub(super) struct TokenBucket {
    left: f64,
    refilled: Instant,
}

impl TokenBucket {
    /// A whole second's worth.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            left: 0.0,
            // A clock that has just begun has no second before it.
            refilled: now.checked_sub(Duration::from_secs(1)).unwrap_or(now),
        }
    }

    /// Whether it may be done once more at `now`.
    pub(super) fn try_take(&mut self, now: Instant, per_second: u32) -> bool {
        let rate = f64::from(per_second);
        let grown = now.saturating_duration_since(self.refilled).as_secs_f64() * rate;
        self.left = (self.left + grown).min(rate);
        self.refilled = self.refilled.max(now);
        let is_allowed = self.left >= 1.0;
        if is_allowed {
            self.left -= 1.0;
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_allowed_is_refused() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(start);
        let now = start + Duration::from_secs(10);
        let allowed = (0..30).filter(|_| bucket.try_take(now, 20)).count();
        assert_eq!(allowed, 20);
        assert!(!bucket.try_take(now + Duration::from_millis(40), 20));
        assert!(bucket.try_take(now + Duration::from_millis(60), 20));
    }

    #[test]
    fn nothing_is_allowed_where_it_is_none() {
        let start = Instant::now();
        assert!(!TokenBucket::new(start).try_take(start + Duration::from_secs(10), 0));
    }
}

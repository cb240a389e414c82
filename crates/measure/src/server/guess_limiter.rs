//! Limits how often a network may guess the secret.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::reflect::network;

/// Wrong proofs in a row that the server checks for one network. A choice: room for typing errors.
const AT_ONCE: f64 = 8.0;
/// After that, the server checks one more proof in this time. A choice.
const EACH: Duration = Duration::from_secs(15);
/// Size of the table. Networks whose hashes collide share an entry.
const NETWORKS: usize = 1024;

/// The number of proofs that each network (an IPv4 address, or a /64 of IPv6) may still have checked.
pub(super) struct GuessLimiter {
    left: Mutex<Vec<(f64, Instant)>>,
    places: RandomState,
}

impl GuessLimiter {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            left: Mutex::new(vec![(AT_ONCE, now); NETWORKS]),
            places: RandomState::new(),
        }
    }

    /// True if the server may check a proof of this client. The proof counts as wrong until [`give_back`](Self::give_back), so that
    /// guessing on many connections at once gains nothing.
    pub(super) fn try_take(&self, client: IpAddr, now: Instant) -> bool {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, at) = &mut left[self.place(client)];
        let grown = now.saturating_duration_since(*at).as_secs_f64() / EACH.as_secs_f64();
        *left = (*left + grown).min(AT_ONCE);
        *at = now.max(*at);
        let is_allowed = *left >= 1.0;
        if is_allowed {
            *left -= 1.0;
        }
        is_allowed
    }

    /// The proof was right and does not count.
    pub(super) fn give_back(&self, client: IpAddr) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, _) = &mut left[self.place(client)];
        *left = (*left + 1.0).min(AT_ONCE);
    }

    fn place(&self, client: IpAddr) -> usize {
        self.places.hash_one(network(client)) as usize % NETWORKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_proofs_are_limited_and_right_ones_are_not() {
        let start = Instant::now();
        let guess_limiter = GuessLimiter::new(start);
        let client: IpAddr = "192.0.2.1".parse().unwrap();
        for _ in 0..100 {
            assert!(guess_limiter.try_take(client, start));
            guess_limiter.give_back(client);
        }
        let allowed = (0..100).filter(|_| guess_limiter.try_take(client, start)).count();
        assert_eq!(allowed, 8);
        let later = start + Duration::from_secs(31);
        let allowed = (0..100).filter(|_| guess_limiter.try_take(client, later)).count();
        assert_eq!(allowed, 2);
    }
}

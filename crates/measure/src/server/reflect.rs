//! Answers to probes of no test.
//!
//! A stranger is given a token in a datagram no larger than its own, and the time only when it comes back with it: it has the
//! address that it says. In the name of others a sender gets no more than the few answers a second that are for all strangers
//! together. Nothing is remembered of anybody but how much was answered lately, in a table that does not grow.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::rate_limiter::TokenBucket;
use crate::datagram::Arrival;
use crate::protocol::{Echo, Probe, Token};

/// Tokens given in a second, to all strangers.
const STRANGERS: u32 = 100;
/// A token is good in the hour in which it was given, and in the next.
const EPOCH_S: u64 = 3600;
/// Networks whose answers are counted on their own, unless two happen to meet.
const NETWORKS: usize = 4096;

pub(super) struct Reflector {
    origin: Instant,
    key: Hmac<Sha256>,
    strangers: TokenBucket,
    networks: Vec<TokenBucket>,
    places: RandomState,
}

impl Reflector {
    pub(super) fn new(key: [u8; 32], origin: Instant) -> Self {
        Self {
            origin,
            key: Hmac::new_from_slice(&key).expect("HMAC takes keys of every length"),
            strangers: TokenBucket::new(origin),
            networks: vec![TokenBucket::new(origin); NETWORKS],
            places: RandomState::new(),
        }
    }

    /// The answer, unless too much was answered lately.
    pub(super) fn reply(&mut self, probe: Probe, arrival: &Arrival, per_second: u32) -> Option<Probe> {
        if per_second == 0 {
            return None;
        }
        let from = SocketAddr::new(arrival.from.ip().to_canonical(), arrival.from.port());
        let epoch = arrival.at.saturating_duration_since(self.origin).as_secs() / EPOCH_S;
        let good = [Some(epoch), epoch.checked_sub(1)];
        let is_known = good
            .into_iter()
            .flatten()
            .any(|epoch| self.is_token(probe.token, from, epoch));
        let place = self.places.hash_one(network(from.ip())) as usize % NETWORKS;
        let is_allowed = match is_known {
            true => self.networks[place].try_take(arrival.at, per_second),
            false => self.strangers.try_take(arrival.at, STRANGERS),
        };
        is_allowed.then(|| Probe {
            token: self.token(from, epoch),
            echo: Echo {
                window: u64::from(is_known),
                ..Echo::default()
            },
            ..probe
        })
    }

    fn token(&self, from: SocketAddr, epoch: u64) -> Token {
        let mac = self.mac(from, epoch).finalize().into_bytes();
        Token(*mac.first_chunk().expect("SHA-256 has 32 bytes"))
    }

    fn is_token(&self, token: Token, from: SocketAddr, epoch: u64) -> bool {
        self.mac(from, epoch).verify_truncated_left(&token.0).is_ok()
    }

    fn mac(&self, from: SocketAddr, epoch: u64) -> Hmac<Sha256> {
        let address = match from.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let mut mac = self.key.clone();
        mac.update(&address.octets());
        mac.update(&from.port().to_be_bytes());
        mac.update(&epoch.to_be_bytes());
        mac
    }
}

/// Whom one subscriber has: an address of IPv4, or a /64 of IPv6.
pub(super) fn network(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(v4) => u64::from(v4.to_bits()),
        IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const STRANGER: Probe = Probe {
        token: Probe::STRANGER,
        series: Probe::NO_TEST,
        mark: 0,
        sequence: 7,
        echo: Echo {
            mark_arrived: 0,
            arrived_ns: 0,
            held_ns: 0,
            window: 0,
        },
    };

    fn reflector() -> (Reflector, Instant) {
        let origin = Instant::now();
        (Reflector::new([5; 32], origin), origin)
    }

    fn arrival(from: &str, at: Instant) -> Arrival {
        Arrival {
            length: Probe::LENGTH,
            from: from.parse().unwrap(),
            to: None,
            at,
            mark: None,
        }
    }

    fn with(token: Token) -> Probe {
        Probe { token, ..STRANGER }
    }

    #[test]
    fn only_who_comes_back_with_its_token_from_its_address_is_told_the_time() {
        let (mut reflector, now) = reflector();
        let mut told = |probe, from, minutes: u64| {
            let at = now + Duration::from_secs(60 * minutes);
            reflector.reply(probe, &arrival(from, at), 100).unwrap()
        };
        let given = told(STRANGER, "192.0.2.1:5", 0);
        assert_eq!((given.echo.window, given.sequence), (0, 7));
        let knows = |reply: Probe| reply.echo.window == 1;
        assert!(knows(told(with(given.token), "192.0.2.1:5", 59)));
        // A socket of both protocols writes it so.
        assert!(knows(told(with(given.token), "[::ffff:192.0.2.1]:5", 59)));
        assert!(!knows(told(with(given.token), "192.0.2.1:6", 59)));
        assert!(!knows(told(with(given.token), "192.0.2.2:5", 59)));
        let renewed = told(with(given.token), "192.0.2.1:5", 119);
        assert!(knows(renewed));
        assert!(!knows(told(with(given.token), "192.0.2.1:5", 120)));
        assert!(knows(told(with(renewed.token), "192.0.2.1:5", 120)));
        let v6 = told(STRANGER, "[2001:db8::1]:5", 0);
        assert!(knows(told(with(v6.token), "[2001:db8::1]:5", 0)));
    }

    #[test]
    fn forged_addresses_are_answered_seldom_all_together() {
        let (mut reflector, now) = reflector();
        let answered = (0..1000).filter(|n| {
            let from = format!("198.51.100.{}:{}", n % 250, 1000 + n);
            reflector.reply(STRANGER, &arrival(&from, now), 50).is_some()
        });
        assert_eq!(answered.count(), STRANGERS as usize);
    }

    #[test]
    fn each_network_has_its_own_share() {
        let (mut reflector, now) = reflector();
        let mut tokens = Vec::new();
        for from in ["192.0.2.1:5", "[2001:db8::1]:5", "[2001:db8::2]:5"] {
            let given = reflector.reply(STRANGER, &arrival(from, now), 20).unwrap();
            tokens.push((from, given.token));
        }
        let answered: Vec<usize> = tokens
            .iter()
            .map(|&(from, token)| {
                (0..30)
                    .filter(|_| reflector.reply(with(token), &arrival(from, now), 20).is_some())
                    .count()
            })
            .collect();
        assert_eq!(answered, [20, 20, 0], "the last two share a /64");
        let (from, token) = tokens[0];
        assert!(
            reflector.reply(with(token), &arrival(from, now), 0).is_none(),
            "switched off"
        );
    }
}

//! Answers probes outside a test.
//!
//! A client without a token first receives one, in a datagram that is no larger than its own. It receives the time only when it sends
//! that token back, which proves its address. A sender with a forged address can therefore trigger only the token answers, and all
//! clients without a token share a small rate of these. The only state is a table of fixed size with rate limiters.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::rate_limiter::TokenBucket;
use crate::datagram::Arrival;
use crate::protocol::{Echo, Probe, Token};

/// Token answers per second, for all clients without a token together. A choice.
const TOKENS_PER_S: u32 = 100;
/// Length of an epoch in seconds. A token is valid in the epoch in which it was issued and in the next.
const EPOCH_S: u64 = 3600;
/// Size of the table of rate limiters. Networks whose hashes collide share one.
const NETWORKS: usize = 4096;

/// Answers probes outside a test.
pub(super) struct Reflector {
    origin: Instant,
    key: Hmac<Sha256>,
    without_token: TokenBucket,
    networks: Vec<TokenBucket>,
    /// Hashes networks to places in the table.
    places: RandomState,
}

impl Reflector {
    pub(super) fn new(key: [u8; 32], origin: Instant) -> Self {
        Self {
            origin,
            key: Hmac::new_from_slice(&key).expect("HMAC takes keys of every length"),
            without_token: TokenBucket::new(origin),
            networks: vec![TokenBucket::new(origin); NETWORKS],
            places: RandomState::new(),
        }
    }

    /// The answer to a probe, unless a rate limit is reached. `per_second` is the limit of each network.
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
            false => self.without_token.try_take(arrival.at, TOKENS_PER_S),
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

/// The network of one subscriber: an IPv4 address, or a /64 of IPv6.
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

    const WITHOUT_TOKEN: Probe = Probe {
        token: Probe::NO_TOKEN,
        series: Probe::NO_TEST,
        tos: 0,
        sequence: 7,
        echo: Echo {
            tos_arrived: 0,
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
            tos: None,
        }
    }

    fn with(token: Token) -> Probe {
        Probe {
            token,
            ..WITHOUT_TOKEN
        }
    }

    #[test]
    fn only_a_client_that_returns_its_token_from_its_address_receives_the_time() {
        let (mut reflector, now) = reflector();
        let mut told = |probe, from, minutes: u64| {
            let at = now + Duration::from_secs(60 * minutes);
            reflector.reply(probe, &arrival(from, at), 100).unwrap()
        };
        let given = told(WITHOUT_TOKEN, "192.0.2.1:5", 0);
        assert_eq!((given.echo.window, given.sequence), (0, 7));
        let knows = |reply: Probe| reply.echo.window == 1;
        assert!(knows(told(with(given.token), "192.0.2.1:5", 59)));
        // A dual-stack socket reports the IPv4 address in this form.
        assert!(knows(told(with(given.token), "[::ffff:192.0.2.1]:5", 59)));
        assert!(!knows(told(with(given.token), "192.0.2.1:6", 59)));
        assert!(!knows(told(with(given.token), "192.0.2.2:5", 59)));
        let renewed = told(with(given.token), "192.0.2.1:5", 119);
        assert!(knows(renewed));
        assert!(!knows(told(with(given.token), "192.0.2.1:5", 120)));
        assert!(knows(told(with(renewed.token), "192.0.2.1:5", 120)));
        let v6 = told(WITHOUT_TOKEN, "[2001:db8::1]:5", 0);
        assert!(knows(told(with(v6.token), "[2001:db8::1]:5", 0)));
    }

    #[test]
    fn forged_addresses_share_one_small_rate_of_answers() {
        let (mut reflector, now) = reflector();
        let answered = (0..1000).filter(|n| {
            let from = format!("198.51.100.{}:{}", n % 250, 1000 + n);
            reflector.reply(WITHOUT_TOKEN, &arrival(&from, now), 50).is_some()
        });
        assert_eq!(answered.count(), TOKENS_PER_S as usize);
    }

    #[test]
    fn each_network_has_its_own_rate_limit() {
        let (mut reflector, now) = reflector();
        let mut tokens = Vec::new();
        for from in ["192.0.2.1:5", "[2001:db8::1]:5", "[2001:db8::2]:5"] {
            let given = reflector.reply(WITHOUT_TOKEN, &arrival(from, now), 20).unwrap();
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

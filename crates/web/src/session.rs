//! Sessions of users who have logged in, and the limit on wrong passwords.

use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;

use anyhow::Context;
use rustix::rand::{GetRandomFlags, getrandom};

use super::network::Network;

/// Sessions at once. A further one ends the least recently used. Our choice.
const MOST_SESSIONS: usize = 16;
/// A session ends after this long without a request. Our choice.
const IDLE: Duration = Duration::from_secs(3600);
/// A session ends at this age. Our choice.
const LONGEST: Duration = Duration::from_secs(12 * 3600);
/// Wrong passwords from one network before it must wait. Our choice.
const FREE_TRIES: u32 = 5;
/// The first wait; each further wrong password doubles it. Our choice.
const FIRST_WAIT: Duration = Duration::from_secs(10);
/// The longest wait. Our choice.
const LONGEST_WAIT: Duration = Duration::from_secs(900);
/// A network is forgotten after this long without a wrong password. Our choice.
const FORGET: Duration = Duration::from_secs(3600);
/// Wrong passwords from all networks together within [`FORGET`] before all must wait: one attacker may have many addresses. Our
/// choice.
const MOST_TRIES: u32 = 200;

/// All sessions.
pub(super) struct Sessions {
    inner: Mutex<Inner>,
    /// The token of users without a session.
    token: String,
}

#[derive(Default)]
struct Inner {
    sessions: Vec<Session>,
    /// The hash of the password that the sessions logged in with. A changed password ends them.
    hash: Option<String>,
    attempts: Vec<Attempts>,
}

struct Session {
    /// The value of the cookie.
    id: String,
    /// The token that a request must have to change something.
    token: String,
    begun: Instant,
    used: Instant,
}

/// The wrong passwords from a network.
struct Attempts {
    network: Network,
    wrong: u32,
    last: Instant,
    locked_until: Option<Instant>,
}

impl Sessions {
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            inner: Mutex::default(),
            token: secret()?,
        })
    }

    /// The token of users without a session.
    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// The token of a session, which counts as used; `None` if there is no such session. `hash` is the hash of the current password.
    pub(super) fn find(&self, id: &str, hash: Option<&str>, now: Instant) -> Option<String> {
        let mut inner = self.lock();
        inner.expire(hash, now);
        let session = inner
            .sessions
            .iter_mut()
            .find(|session| is_same(&session.id, id))?;
        session.used = now;
        Some(session.token.clone())
    }

    /// Begins a session. Returns its id, for the cookie, and its token.
    pub(super) fn begin(&self, hash: &str, now: Instant) -> anyhow::Result<(String, String)> {
        let (id, token) = (secret()?, secret()?);
        let mut inner = self.lock();
        inner.expire(Some(hash), now);
        inner.hash = Some(hash.to_owned());
        if inner.sessions.len() == MOST_SESSIONS {
            let oldest = (0..MOST_SESSIONS).min_by_key(|at| inner.sessions[*at].used);
            if let Some(oldest) = oldest {
                inner.sessions.swap_remove(oldest);
            }
        }
        inner.sessions.push(Session {
            id: id.clone(),
            token: token.clone(),
            begun: now,
            used: now,
        });
        Ok((id, token))
    }

    /// Ends a session.
    pub(super) fn end(&self, id: &str) {
        self.lock().sessions.retain(|session| !is_same(&session.id, id));
    }

    /// The time that a client must wait before it may try a password; zero if it may now. The attempt counts as wrong until
    /// [`succeeded`](Self::succeeded) is called, so that simultaneous attempts count as well.
    pub(super) fn try_password(&self, from: IpAddr, now: Instant) -> Duration {
        let mut inner = self.lock();
        inner
            .attempts
            .retain(|entry| now.duration_since(entry.last) < FORGET);
        let network = Network::of(from);
        let all: u32 = inner.attempts.iter().map(|entry| entry.wrong).sum();
        let at = inner.attempts.iter().position(|entry| entry.network == network);
        let mut entry = at.map(|at| inner.attempts.swap_remove(at)).unwrap_or(Attempts {
            network,
            wrong: 0,
            last: now,
            locked_until: None,
        });
        let wait = entry
            .locked_until
            .map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        let wait = if all >= MOST_TRIES && wait.is_zero() {
            FIRST_WAIT
        } else {
            wait
        };
        if wait.is_zero() {
            entry.wrong += 1;
            entry.last = now;
            if let Some(more) = entry.wrong.checked_sub(FREE_TRIES) {
                let wait = FIRST_WAIT.saturating_mul(1 << more.min(10)).min(LONGEST_WAIT);
                entry.locked_until = Some(now + wait);
            }
        }
        // The list is bounded: it has at most one entry for each wrong password, and those are limited.
        if entry.wrong > 0 {
            inner.attempts.push(entry);
        }
        wait
    }

    /// Forgets the wrong passwords from a network, from which the right one has come.
    pub(super) fn succeeded(&self, from: IpAddr) {
        let network = Network::of(from);
        self.lock().attempts.retain(|entry| entry.network != network);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().expect("no holder of this lock panics")
    }
}

impl Inner {
    fn expire(&mut self, hash: Option<&str>, now: Instant) {
        if self.hash.as_deref() != hash {
            self.sessions.clear();
        }
        self.sessions.retain(|session| {
            now.duration_since(session.used) < IDLE && now.duration_since(session.begun) < LONGEST
        });
    }
}

/// True if two secrets are equal. The comparison takes the same time wherever they differ.
pub(super) fn is_same(ours: &str, theirs: &str) -> bool {
    ours.as_bytes().ct_eq(theirs.as_bytes()).into()
}

/// 256 random bits, in hexadecimal.
fn secret() -> anyhow::Result<String> {
    Ok(hex::encode(random::<32>()?))
}

/// Random bytes from the kernel.
pub(super) fn random<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    let got =
        getrandom(&mut bytes[..], GetRandomFlags::empty()).context("the system gives no random numbers")?;
    anyhow::ensure!(got == N, "the system gives no random numbers");
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wrong_password_doubles_the_wait_of_its_network_only() {
        let sessions = Sessions::new().unwrap();
        let (guesser, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut now = Instant::now();
        for _ in 0..FREE_TRIES {
            assert_eq!(sessions.try_password(guesser, now), Duration::ZERO);
        }
        let mut waits = Vec::new();
        for _ in 0..9 {
            let wait = sessions.try_password(guesser, now);
            assert!(!wait.is_zero());
            assert!(
                !sessions.try_password(guesser, now + wait / 2).is_zero(),
                "half of the wait is not enough"
            );
            waits.push(wait.as_secs());
            now += wait;
            assert_eq!(sessions.try_password(guesser, now), Duration::ZERO);
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 640, 900, 900]);
        assert_eq!(sessions.try_password(other, now), Duration::ZERO);
        sessions.succeeded(guesser);
        assert_eq!(sessions.try_password(guesser, now), Duration::ZERO);
    }

    #[test]
    fn attempts_from_many_addresses_are_limited_together() {
        let sessions = Sessions::new().unwrap();
        let now = Instant::now();
        let tried = (0..=255_u8)
            .flat_map(|a| (0..=20_u8).map(move |b| IpAddr::from([10, 0, b, a])))
            .filter(|from| sessions.try_password(*from, now).is_zero())
            .count();
        assert_eq!(tried, MOST_TRIES as usize);
        assert_eq!(sessions.lock().attempts.len(), tried);
        // All addresses of an IPv6 /64 are one network.
        let sessions = Sessions::new().unwrap();
        let tried = (0..100_u16)
            .filter(|n| {
                sessions
                    .try_password(IpAddr::from([0xfd00, 0, 0, 0, *n, 0, 0, 1]), now)
                    .is_zero()
            })
            .count();
        assert_eq!(tried, FREE_TRIES as usize);
    }

    #[test]
    fn sessions_expire_and_end_with_a_new_password_or_too_many_sessions() {
        let sessions = Sessions::new().unwrap();
        let now = Instant::now();
        let (id, token) = sessions.begin("hash", now).unwrap();
        assert_eq!(sessions.find(&id, Some("hash"), now + IDLE / 2), Some(token));
        assert_eq!(sessions.find("", Some("hash"), now), None);
        assert_eq!(sessions.find(&id, Some("hash"), now + IDLE * 2), None);
        let (id, _) = sessions.begin("hash", now).unwrap();
        assert_eq!(sessions.find(&id, Some("another"), now), None);
        let (first, _) = sessions.begin("hash", now).unwrap();
        for n in 0..MOST_SESSIONS as u32 {
            sessions
                .begin("hash", now + Duration::from_millis(n.into()))
                .unwrap();
        }
        assert_eq!(sessions.find(&first, Some("hash"), now), None);
        assert_eq!(sessions.lock().sessions.len(), MOST_SESSIONS);
        let (id, _) = sessions.begin("hash", now).unwrap();
        sessions.end(&id);
        assert_eq!(sessions.find(&id, Some("hash"), now), None);
    }
}

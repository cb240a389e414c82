//! Who has logged in, and how often somebody tried in vain.

use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::rand::{GetRandomFlags, getrandom};

use super::network::Network;

/// More sessions than this push out the one that was used least lately.
const MOST_SESSIONS: usize = 16;
/// A session that nobody used for so long has ended.
const IDLE: Duration = Duration::from_secs(3600);
/// So has one as old as this.
const LONGEST: Duration = Duration::from_secs(12 * 3600);
/// Wrong passwords from one place before it must wait.
const FREE_TRIES: u32 = 5;
/// The first wait; doubled by each further wrong password.
const FIRST_WAIT: Duration = Duration::from_secs(10);
const LONGEST_WAIT: Duration = Duration::from_secs(900);
/// A place is forgotten after this long without a wrong password.
const FORGET: Duration = Duration::from_secs(3600);
/// Wrong passwords from all places together within [`FORGET`], before everybody must wait: a house full of addresses is
/// still one guesser.
const MOST_TRIES: u32 = 200;

/// Everybody who is logged in.
pub(super) struct Sessions {
    inner: Mutex<Inner>,
    /// Of those who are not.
    token: String,
}

#[derive(Default)]
struct Inner {
    sessions: Vec<Session>,
    /// The password that they know; another one ends them.
    hash: Option<String>,
    places: Vec<Place>,
}

struct Session {
    /// What the cookie says.
    id: String,
    /// What a page must know to change something.
    token: String,
    begun: Instant,
    used: Instant,
}

struct Place {
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

    /// The token of whoever is not logged in.
    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// The token of a session, if it is one; it counts as used. `hash` is the password that holds now.
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

    /// A new session: its name for the cookie, and its token.
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

    pub(super) fn end(&self, id: &str) {
        self.lock().sessions.retain(|session| !is_same(&session.id, id));
    }

    /// How long somebody there must wait before he may try a password; he may not if it is not zero. Counts as a wrong one
    /// until [`right`](Self::right) says otherwise, so that guesses at the same time are counted, too.
    pub(super) fn tries(&self, from: IpAddr, now: Instant) -> Duration {
        let mut inner = self.lock();
        inner
            .places
            .retain(|place| now.duration_since(place.last) < FORGET);
        let network = Network::of(from);
        let all: u32 = inner.places.iter().map(|place| place.wrong).sum();
        let at = inner.places.iter().position(|place| place.network == network);
        let mut place = at.map(|at| inner.places.swap_remove(at)).unwrap_or(Place {
            network,
            wrong: 0,
            last: now,
            locked_until: None,
        });
        let wait = place
            .locked_until
            .map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        let wait = if all >= MOST_TRIES && wait.is_zero() {
            FIRST_WAIT
        } else {
            wait
        };
        if wait.is_zero() {
            place.wrong += 1;
            place.last = now;
            if let Some(more) = place.wrong.checked_sub(FREE_TRIES) {
                let wait = FIRST_WAIT.saturating_mul(1 << more.min(10)).min(LONGEST_WAIT);
                place.locked_until = Some(now + wait);
            }
        }
        // At most one for each wrong password, which are counted.
        if place.wrong > 0 {
            inner.places.push(place);
        }
        wait
    }

    /// Somebody there knew the password.
    pub(super) fn right(&self, from: IpAddr) {
        let network = Network::of(from);
        self.lock().places.retain(|place| place.network != network);
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

/// Whether two secrets are the same; how long it takes does not tell where they differ.
pub(super) fn is_same(ours: &str, theirs: &str) -> bool {
    let differences = ours
        .bytes()
        .zip(theirs.bytes())
        .fold(0, |differences, (a, b)| differences | (a ^ b));
    ours.len() == theirs.len() && std::hint::black_box(differences) == 0
}

/// 256 bits that nobody guesses, in hexadecimal.
fn secret() -> anyhow::Result<String> {
    Ok(random::<32>()?.iter().map(|byte| format!("{byte:02x}")).collect())
}

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
    fn a_guesser_waits_longer_each_time_and_others_do_not() {
        let sessions = Sessions::new().unwrap();
        let (guesser, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut now = Instant::now();
        for _ in 0..FREE_TRIES {
            assert_eq!(sessions.tries(guesser, now), Duration::ZERO);
        }
        let mut waits = Vec::new();
        for _ in 0..9 {
            let wait = sessions.tries(guesser, now);
            assert!(!wait.is_zero());
            assert!(
                !sessions.tries(guesser, now + wait / 2).is_zero(),
                "half of the wait is not enough"
            );
            waits.push(wait.as_secs());
            now += wait;
            assert_eq!(sessions.tries(guesser, now), Duration::ZERO);
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 640, 900, 900]);
        assert_eq!(sessions.tries(other, now), Duration::ZERO);
        sessions.right(guesser);
        assert_eq!(sessions.tries(guesser, now), Duration::ZERO);
    }

    #[test]
    fn many_addresses_are_one_guesser_and_memory_is_bounded() {
        let sessions = Sessions::new().unwrap();
        let now = Instant::now();
        let tried = (0..=255_u8)
            .flat_map(|a| (0..=20_u8).map(move |b| IpAddr::from([10, 0, b, a])))
            .filter(|from| sessions.tries(*from, now).is_zero())
            .count();
        assert_eq!(tried, MOST_TRIES as usize);
        assert_eq!(sessions.lock().places.len(), tried);
        // One home of IPv6.
        let sessions = Sessions::new().unwrap();
        let tried = (0..100_u16)
            .filter(|n| {
                sessions
                    .tries(IpAddr::from([0xfd00, 0, 0, 0, *n, 0, 0, 1]), now)
                    .is_zero()
            })
            .count();
        assert_eq!(tried, FREE_TRIES as usize);
    }

    #[test]
    fn sessions_end_with_time_with_another_password_and_when_there_are_too_many() {
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

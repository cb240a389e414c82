//! Places for connections: how many one owner may hold, and whose idle connection makes room for a newcomer.
//!
//! A newcomer always gets a place. When there is none left, the connection that has been idle longest is ended, among those
//! of the owner who holds most. A connection is idle unless a request of it is being worked on or a stream is sent over it: one
//! that waits for the client, whether for a request, for its body, or for the client to take an answer, is idle. The number of
//! requests at work is limited as well, so that there are always idle connections.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// How much there is, in all and for each owner.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once. More than requests at work and streams together, so that some are idle.
    pub places: usize,
    /// Connections of one owner at once.
    pub places_each: usize,
    /// Requests at work at once; others wait for their turn.
    pub turns: usize,
    /// Requests of one owner at work at once.
    pub turns_each: usize,
}

/// All places. `K` tells owners apart.
pub struct Places<K> {
    limits: Limits,
    turns: Arc<Semaphore>,
    all: Mutex<Vec<Entry<K>>>,
}

struct Entry<K> {
    owner: Arc<Owner<K>>,
    activity: Arc<Activity>,
    makes_room: Arc<Notify>,
}

/// Whoever holds places.
struct Owner<K> {
    key: K,
    held: AtomicUsize,
    turns: Arc<Semaphore>,
}

/// What one connection is doing.
struct Activity {
    /// Requests that are worked on, and streams.
    at_work: AtomicUsize,
    /// When it began, or was last at work.
    idle_since: Mutex<Instant>,
}

impl<K: PartialEq> Places<K> {
    /// No connection yet.
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            turns: Arc::new(Semaphore::new(limits.turns)),
            all: Mutex::default(),
        })
    }

    /// A place for a connection, which is to end when `makes_room` is notified. `None` if all connections that could make
    /// room are at work.
    pub fn enter(self: &Arc<Self>, key: K, makes_room: &Arc<Notify>) -> Option<Place<K>> {
        let mut all = self.lock();
        let owner = all
            .iter()
            .map(|entry| &entry.owner)
            .find(|owner| owner.key == key);
        let owner = owner.map_or_else(|| Arc::new(Owner::new(key, self.limits.turns_each)), Arc::clone);
        let is_full = all.len() >= self.limits.places;
        let has_enough = owner.held() >= self.limits.places_each;
        if is_full || has_enough {
            make_room(&mut all, |entry| !has_enough || Arc::ptr_eq(&entry.owner, &owner))?;
        }
        owner.held.fetch_add(1, Ordering::Relaxed);
        let activity = Arc::new(Activity {
            at_work: AtomicUsize::new(0),
            idle_since: Mutex::new(Instant::now()),
        });
        all.push(Entry {
            owner: Arc::clone(&owner),
            activity: Arc::clone(&activity),
            makes_room: Arc::clone(makes_room),
        });
        drop(all);
        Some(Place {
            places: Arc::clone(self),
            owner,
            activity,
            has_pushed_out: is_full || has_enough,
        })
    }

    /// Ends an idle connection, if there is one: the process is out of descriptors.
    pub fn make_room(&self) {
        // Without an idle connection there is nothing to end.
        let _ = make_room(&mut self.lock(), |_| true);
    }
}

impl<K> Places<K> {
    fn lock(&self) -> MutexGuard<'_, Vec<Entry<K>>> {
        self.all.lock().expect("no holder of this lock panics")
    }
}

/// Ends the connection that has been idle longest, among those of the owner who holds most and whom `may` allows.
fn make_room<K>(all: &mut Vec<Entry<K>>, may: impl Fn(&Entry<K>) -> bool) -> Option<()> {
    let idle = (0..all.len()).filter(|at| may(&all[*at]) && all[*at].activity.is_idle());
    let longest = idle.max_by_key(|at| (all[*at].owner.held(), Reverse(all[*at].activity.idle_since())))?;
    let entry = all.swap_remove(longest);
    entry.owner.held.fetch_sub(1, Ordering::Relaxed);
    entry.makes_room.notify_one();
    Some(())
}

impl<K> Owner<K> {
    fn new(key: K, turns: usize) -> Self {
        Self {
            key,
            held: AtomicUsize::new(0),
            turns: Arc::new(Semaphore::new(turns)),
        }
    }

    fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

impl Activity {
    fn is_idle(&self) -> bool {
        self.at_work.load(Ordering::Relaxed) == 0
    }

    fn idle_since(&self) -> Instant {
        *self.idle_since.lock().expect("no holder of this lock panics")
    }
}

/// One connection's place, which is free again when this is dropped.
pub struct Place<K> {
    places: Arc<Places<K>>,
    owner: Arc<Owner<K>>,
    activity: Arc<Activity>,
    has_pushed_out: bool,
}

impl<K> Place<K> {
    /// Whether another connection had to make room for this one.
    pub fn has_pushed_out(&self) -> bool {
        self.has_pushed_out
    }

    /// The owner of the connection.
    pub fn owner(&self) -> &K {
        &self.owner.key
    }

    /// Waits until a request of this owner may be worked on. Meanwhile the connection is idle.
    pub async fn turn(&self) -> Turn {
        let turns = (Arc::clone(&self.owner.turns), Arc::clone(&self.places.turns));
        let activity = Arc::clone(&self.activity);
        // Other connections come first, however fast this one's requests arrive.
        tokio::task::yield_now().await;
        let (own, of_all) = turns;
        let permits = [acquire(own).await, acquire(of_all).await];
        Turn {
            _permits: permits,
            _work: Work::begin(activity),
        }
    }

    /// At work until this is dropped, without taking a turn of others: a stream.
    pub fn work(&self) -> Work {
        Work::begin(Arc::clone(&self.activity))
    }
}

impl<K> Drop for Place<K> {
    fn drop(&mut self) {
        let mut all = self.places.lock();
        let at = all
            .iter()
            .position(|entry| Arc::ptr_eq(&entry.activity, &self.activity));
        // One that made room is gone already.
        if let Some(at) = at {
            all.swap_remove(at);
            self.owner.held.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

async fn acquire(turns: Arc<Semaphore>) -> OwnedSemaphorePermit {
    turns.acquire_owned().await.expect("nobody closes the semaphore")
}

/// A request that is worked on.
pub struct Turn {
    _permits: [OwnedSemaphorePermit; 2],
    _work: Work,
}

/// Keeps a connection from being idle.
pub struct Work(Arc<Activity>);

impl Work {
    fn begin(activity: Arc<Activity>) -> Self {
        activity.at_work.fetch_add(1, Ordering::Relaxed);
        Self(activity)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.0.at_work.fetch_sub(1, Ordering::Relaxed);
        *self.0.idle_since.lock().expect("no holder of this lock panics") = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        places: 6,
        places_each: 4,
        turns: 3,
        turns_each: 1,
    };

    struct Connection {
        place: Place<u32>,
        makes_room: Arc<Notify>,
    }

    fn connect(places: &Arc<Places<u32>>, owner: u32) -> Connection {
        let makes_room = Arc::default();
        Connection {
            place: places.enter(owner, &makes_room).expect("there is room"),
            makes_room,
        }
    }

    /// The numbers of the connections that have been told to end.
    fn ended(connections: &[Connection]) -> Vec<usize> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let is_ended = |connection: &Connection| {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    () = connection.makes_room.notified() => true,
                    () = std::future::ready(()) => false,
                }
            })
        };
        (0..connections.len())
            .filter(|at| is_ended(&connections[*at]))
            .collect()
    }

    #[test]
    fn the_idlest_of_whoever_holds_most_makes_room() {
        let places = Places::new(LIMITS);
        let mut all: Vec<Connection> = [1, 2, 2, 2, 3, 1].map(|owner| connect(&places, owner)).into();
        all.push(connect(&places, 4));
        assert_eq!(ended(&all), [1], "the oldest one of 2");
        // 2 holds two now, as does 1, whose first is older than both; then 2 holds most alone.
        all.push(connect(&places, 4));
        assert_eq!(ended(&all), [0]);
        let work = all[2].place.work();
        all.push(connect(&places, 4));
        assert_eq!(ended(&all), [3], "one at work is passed over");
        drop(work);
        assert_eq!(places.lock().len(), LIMITS.places);
    }

    #[test]
    fn one_owner_takes_no_more_than_a_share_and_pushes_out_nobody_else() {
        let places = Places::new(LIMITS);
        let first = connect(&places, 1);
        let flood: Vec<Connection> = (0..1000).map(|_| connect(&places, 2)).collect();
        assert_eq!(ended(&flood).len(), 1000 - LIMITS.places_each);
        assert!(ended(&[first]).is_empty());
        drop(flood);
        assert!(places.lock().is_empty());
    }

    #[test]
    fn without_an_idle_connection_a_newcomer_is_refused() {
        let places = Places::new(LIMITS);
        let all: Vec<Connection> = (0..4).map(|_| connect(&places, 1)).collect();
        let at_work: Vec<Work> = all.iter().map(|one| one.place.work()).collect();
        assert!(places.enter(1, &Arc::default()).is_none());
        assert!(places.enter(2, &Arc::default()).is_some());
        drop(at_work);
        assert!(places.enter(1, &Arc::default()).is_some());
    }

    #[test]
    fn requests_of_one_owner_take_turns_and_wait_idly() {
        let places = Places::new(LIMITS);
        let (first, second, other) = (connect(&places, 1), connect(&places, 1), connect(&places, 2));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let turn = first.place.turn().await;
            assert!(!first.place.activity.is_idle());
            let waiting = second.place.turn();
            tokio::pin!(waiting);
            tokio::select! {
                biased;
                _ = &mut waiting => panic!("two at once"),
                _ = other.place.turn() => {}
            }
            assert!(second.place.activity.is_idle());
            drop(turn);
            let _turn = waiting.await;
            assert!(first.place.activity.is_idle() && !second.place.activity.is_idle());
        });
    }
}

//! Which queue a packet joins, and which hosts it is counted at: 1024 of each per tin, in sets of eight.
//!
//! A tag that meets its own entry, or a free one in its set, shares its queue with no other flow; only a ninth flow in one set collides.
//! A set takes no memory until a packet needs it. Tags are never cleared, so that a flow that was idle finds its old queue.

use alloc::vec::Vec;

use super::flow_lists::{FlowId, FlowSched, NO_FLOW, State};
use crate::narrow::{fits_u8, fits_u16};

/// Queues per tin, and hosts per tin and direction.
pub(super) const ENTRIES: usize = 1024;

const WAYS: usize = 8;

const SETS: usize = ENTRIES / WAYS;

/// The sets that are in use.
#[derive(Clone, Debug)]
struct Sets<S> {
    /// Where each stands.
    place: [u8; SETS],
    used: Vec<S>,
}

impl<S> Sets<S> {
    /// No set is there yet.
    const MISSING: u8 = u8::MAX;

    const fn new() -> Self {
        Self {
            place: [Self::MISSING; SETS],
            used: Vec::new(),
        }
    }

    /// The set that `hash` belongs to, with its place.
    #[inline]
    fn get_mut(&mut self, hash: u32, new: impl FnOnce() -> S) -> (usize, &mut S) {
        let set = hash as usize % ENTRIES / WAYS;
        if self.place[set] == Self::MISSING {
            self.place[set] = fits_u8(self.used.len() as u64);
            self.used.push(new());
        }
        let place = usize::from(self.place[set]);
        (place, &mut self.used[place])
    }
}

/// The queues of one tin.
#[derive(Clone, Debug)]
pub(super) struct Queues {
    sets: Sets<QueueSet>,
}

#[derive(Clone, Debug)]
struct QueueSet {
    tags: [u32; WAYS],
    flows: [FlowId; WAYS],
}

/// A queue that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Its flow in the slab; [`NO_FLOW`] if it was never used, and [`Queues::settle`] must be called with it.
    pub(super) flow: FlowId,
    /// Its number, 0 to 1023.
    pub(super) queue: u16,
    pub(super) how: How,
}

/// How a queue was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// At its own place, and in use by the same flow.
    Direct,
    /// By its tag; in another place than its own if `moved`.
    Tag {
        /// Not in the first place that was tried.
        moved: bool,
    },
    /// It was free.
    Free,
    /// None was free: it is shared from now on.
    Shared,
}

impl Queues {
    pub(super) const fn new() -> Self {
        Self { sets: Sets::new() }
    }

    /// The queue for a flow, which is tagged as its own from now on.
    #[inline]
    pub(super) fn find(&mut self, hash: u32, scheds: &[FlowSched]) -> Found {
        let queue = fits_u16((hash as usize % ENTRIES) as u64);
        let first = hash as usize % WAYS;
        let (_, set) = self.sets.get_mut(hash, || QueueSet {
            tags: [0; WAYS],
            flows: [NO_FLOW; WAYS],
        });
        let listed = |flow: FlowId| {
            scheds
                .get(usize::from(flow))
                .is_some_and(|sched| sched.state != State::Idle)
        };
        let found = |way: usize, set: &QueueSet, how| Found {
            flow: set.flows[way],
            queue: queue - fits_u16(first as u64) + fits_u16(way as u64),
            how,
        };
        if set.tags[first] == hash && listed(set.flows[first]) {
            return found(first, set, How::Direct);
        }
        let mut ways = (0..WAYS).map(|step| (first + step) % WAYS);
        let (way, how) = if let Some(way) = ways.clone().find(|&way| set.tags[way] == hash) {
            (way, How::Tag { moved: way != first })
        } else if let Some(way) = ways.find(|&way| !listed(set.flows[way])) {
            (way, How::Free)
        } else {
            (first, How::Shared)
        };
        set.tags[way] = hash;
        found(way, set, how)
    }

    /// The queue that everything goes to when flows are not told apart.
    pub(super) fn only(&mut self) -> Found {
        let (_, set) = self.sets.get_mut(0, || QueueSet {
            tags: [0; WAYS],
            flows: [NO_FLOW; WAYS],
        });
        Found {
            flow: set.flows[0],
            queue: 0,
            how: How::Direct,
        }
    }

    /// Gives a queue that was never used its place in the slab.
    pub(super) fn settle(&mut self, queue: u16, flow: FlowId) {
        let set = usize::from(self.sets.place[usize::from(queue) / WAYS]);
        self.sets.used[set].flows[usize::from(queue) % WAYS] = flow;
    }

    /// The flow of a queue; [`NO_FLOW`] if it was never used.
    pub(super) fn flow_of(&self, queue: usize) -> FlowId {
        let set = usize::from(self.sets.place[queue / WAYS]);
        self.sets
            .used
            .get(set)
            .map_or(NO_FLOW, |set| set.flows[queue % WAYS])
    }
}

/// The hosts on one side of one tin, and how many bulk flows each has.
#[derive(Clone, Debug)]
pub(super) struct Hosts {
    sets: Sets<HostSet>,
}

#[derive(Clone, Debug)]
struct HostSet {
    tags: [u32; WAYS],
    bulk: [u16; WAYS],
    /// The part of a quantum that each flow of the host gets, in units of 1/65535.
    share: [u16; WAYS],
}

impl HostSet {
    const NEW: Self = Self {
        tags: [0; WAYS],
        bulk: [0; WAYS],
        share: [u16::MAX; WAYS],
    };
}

impl Hosts {
    /// Host 0 is always there: flows that were never assigned to a host stand with it.
    pub(super) fn new() -> Self {
        let mut sets = Sets::new();
        sets.get_mut(0, || HostSet::NEW);
        Self { sets }
    }

    /// The number of the host with this hash. If its set is full of other hosts with bulk flows it takes the place of one.
    #[inline]
    pub(super) fn find(&mut self, hash: u32) -> u16 {
        let first = hash as usize % WAYS;
        let (place, set) = self.sets.get_mut(hash, || HostSet::NEW);
        let way = if set.tags[first] == hash {
            first
        } else {
            let mut ways = (0..WAYS).map(|step| (first + step) % WAYS);
            let way = ways
                .clone()
                .find(|&way| set.tags[way] == hash)
                .or_else(|| ways.find(|&way| set.bulk[way] == 0))
                .unwrap_or(first);
            set.tags[way] = hash;
            way
        };
        fits_u16((place * WAYS + way) as u64)
    }

    /// The part of a quantum that a flow of `host` gets, in units of 1/65535.
    #[inline]
    pub(super) fn share(&self, host: u16) -> u16 {
        self.sets.used[usize::from(host) / WAYS].share[usize::from(host) % WAYS]
    }

    /// One of the host's flows became bulk.
    pub(super) fn add_bulk(&mut self, host: u16) {
        self.set_bulk(host, |bulk| (bulk + 1).min(fits_u16(ENTRIES as u64)));
    }

    /// One of the host's flows is no longer bulk.
    pub(super) fn remove_bulk(&mut self, host: u16) {
        self.set_bulk(host, |bulk| bulk.saturating_sub(1));
    }

    #[inline]
    fn set_bulk(&mut self, host: u16, change: impl FnOnce(u16) -> u16) {
        let set = &mut self.sets.used[usize::from(host) / WAYS];
        let way = usize::from(host) % WAYS;
        set.bulk[way] = change(set.bulk[way]);
        set.share[way] = u16::MAX / set.bulk[way].max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finds the queue for `hash` and keeps it in use.
    fn find(queues: &mut Queues, scheds: &mut alloc::vec::Vec<FlowSched>, hash: u32) -> (u16, How) {
        let found = queues.find(hash, scheds);
        if found.flow == NO_FLOW {
            queues.settle(found.queue, scheds.len() as FlowId);
            let mut sched = FlowSched::IDLE;
            sched.state = State::Sparse;
            scheds.push(sched);
        }
        (found.queue, found.how)
    }

    #[test]
    fn a_set_holds_eight_flows_before_two_share() {
        let (mut queues, mut scheds) = (Queues::new(), alloc::vec::Vec::new());
        let mut find = |hash| find(&mut queues, &mut scheds, hash);
        for k in 0..8 {
            assert_eq!(find(8 + 1024 * u32::from(k)), (8 + k, How::Free));
        }
        assert_eq!(find(8 + 1024 * 8), (8, How::Shared));
        assert_eq!(find(3080), (11, How::Tag { moved: true }));
        // The first flow lost its tag to the ninth, and takes it back.
        assert_eq!(find(8), (8, How::Shared));
        assert_eq!(find(8), (8, How::Direct));
    }

    #[test]
    fn the_search_wraps_within_its_set() {
        let (mut queues, mut scheds) = (Queues::new(), alloc::vec::Vec::new());
        let mut find = |hash| find(&mut queues, &mut scheds, hash).0;
        let places = [0, 1, 2, 3, 4].map(|k| find(13 + 1024 * k));
        assert_eq!(places, [13, 14, 15, 8, 9]);
    }

    #[test]
    fn an_idle_flow_finds_its_queue_again() {
        let (mut queues, mut scheds) = (Queues::new(), alloc::vec::Vec::new());
        assert_eq!(find(&mut queues, &mut scheds, 40), (40, How::Free));
        scheds[0].state = State::Idle;
        assert_eq!(
            find(&mut queues, &mut scheds, 40),
            (40, How::Tag { moved: false })
        );
    }

    #[test]
    fn a_busy_host_divides_its_share() {
        let mut hosts = Hosts::new();
        let host = hosts.find(7);
        assert_eq!(hosts.share(host), 65535);
        for bulk in 1..=4 {
            hosts.add_bulk(host);
            assert_eq!(hosts.share(host), 65535 / bulk);
        }
        assert_eq!(hosts.find(7), host);
        assert_ne!(hosts.find(7 + 1024), host);
        hosts.remove_bulk(host);
        assert_eq!(hosts.share(host), 65535 / 3);
    }
}

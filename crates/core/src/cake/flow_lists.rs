//! The lists of flows from which the scheduler takes the next one: DRR++ (MacGregor and Shi 2000), with the quantum divided
//! among a host's flows.
//!
//! The scheduler's own state is here, 16 bytes per flow, apart from the queues, so that looking for a flow touches little memory.
//!
//! **Rounds.** Where a host has many bulk flows each gets a small part of a quantum per round, so that a full packet needs
//! many rounds. Linux visits the flow in each of them. Here a flow that needs k rounds is credited for all of them at
//! once, and joins the bucket that the scheduler reaches in k rounds: buckets form a ring, one per round. The rates are the same, a
//! flow's place within a round may differ. With [`round_by_round`](crate::profile::Profile::round_by_round) there is one
//! bucket, a list that turns as Linux's does.

use crate::narrow::{fits_u8, fits_u32};

/// A flow's number in the slab.
pub(super) type FlowId = u16;

/// No flow.
pub(super) const NO_FLOW: FlowId = FlowId::MAX;

/// Most rounds that a flow sits out before its share is computed anew.
pub(super) const MOST_ROUNDS: u32 = fits_u32(BUCKETS as u64) - 1;

const BUCKETS: usize = 64;

/// The state of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// On no list.
    Idle,
    /// On the list of new flows.
    Sparse,
    /// Used up its first quantum, and was empty then. Among the old flows.
    SparseWait,
    /// Among the old flows, and counted at its hosts.
    Bulk,
    /// Empty, and COBALT has something to forget. On the list of decaying flows, or still among the old ones.
    Decaying,
}

/// The scheduler's state of one flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowSched {
    /// Bytes it may send, as counted on the line.
    pub(super) deficit: i32,
    next: FlowId,
    previous: FlowId,
    /// The number of its source host in the tin's tables.
    pub(super) source: u16,
    /// The number of its destination host.
    pub(super) destination: u16,
    pub(super) state: State,
    list: ListId,
}

impl FlowSched {
    pub(super) const IDLE: Self = Self {
        deficit: 0,
        next: NO_FLOW,
        previous: NO_FLOW,
        source: 0,
        destination: 0,
        state: State::Idle,
        list: ListId::NONE,
    };
}

/// Which list a flow is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ListId(u8);

impl ListId {
    const NONE: Self = Self(u8::MAX);
    const NEW: Self = Self(fits_u8(BUCKETS as u64));
    const DECAYING: Self = Self(fits_u8(BUCKETS as u64 + 1));
}

/// The lists of one tin.
#[derive(Clone, Debug)]
pub(super) struct Lists {
    /// The first flow of each list; the lists are rings, so that the last one stands before it.
    heads: [FlowId; BUCKETS + 2],
    /// Buckets with flows.
    occupied: u64,
    /// The bucket of the present round.
    round: u32,
}

impl Lists {
    pub(super) const fn new() -> Self {
        Self {
            heads: [NO_FLOW; BUCKETS + 2],
            occupied: 0,
            round: 0,
        }
    }

    /// The flow to look at: decaying ones come first once per call, to be aged.
    #[inline]
    pub(super) fn front(&mut self, decaying_first: bool) -> Option<FlowId> {
        let decaying = self.heads[ListId::DECAYING.0 as usize];
        if decaying_first && decaying != NO_FLOW {
            return Some(decaying);
        }
        let new = self.heads[ListId::NEW.0 as usize];
        if new != NO_FLOW {
            return Some(new);
        }
        if self.occupied != 0 {
            let ahead = self.occupied.rotate_right(self.round).trailing_zeros();
            self.round = (self.round + ahead) % (MOST_ROUNDS + 1);
            return Some(self.heads[self.round as usize]);
        }
        (decaying != NO_FLOW).then_some(decaying)
    }

    /// Puts a flow that is on no list at the end of the new ones.
    #[inline]
    pub(super) fn push_new(&mut self, scheds: &mut [FlowSched], flow: FlowId) {
        self.push_back(scheds, flow, ListId::NEW);
    }

    /// Moves a flow to the end of the decaying ones.
    #[inline]
    pub(super) fn move_to_decaying(&mut self, scheds: &mut [FlowSched], flow: FlowId) {
        if scheds[usize::from(flow)].list == ListId::DECAYING {
            // It is the head, which is looked at.
            self.heads[ListId::DECAYING.0 as usize] = scheds[usize::from(flow)].next;
        } else {
            self.leave(scheds, flow);
            self.push_back(scheds, flow, ListId::DECAYING);
        }
    }

    /// Moves the flow that is looked at to the end of the one list of old flows.
    #[inline]
    pub(super) fn rotate(&mut self, scheds: &mut [FlowSched], flow: FlowId) {
        if scheds[usize::from(flow)].list == ListId(0) {
            self.heads[0] = scheds[usize::from(flow)].next;
        } else {
            self.leave(scheds, flow);
            self.push_back(scheds, flow, ListId(0));
        }
    }

    /// Moves a flow to the end of those whose turn is in `rounds`, 1 to [`MOST_ROUNDS`].
    #[inline]
    pub(super) fn defer(&mut self, scheds: &mut [FlowSched], flow: FlowId, rounds: u32) {
        self.leave(scheds, flow);
        let bucket = (self.round + rounds) % (MOST_ROUNDS + 1);
        self.push_back(scheds, flow, ListId(fits_u8(bucket.into())));
    }

    /// Takes a flow off its list.
    #[inline]
    pub(super) fn leave(&mut self, scheds: &mut [FlowSched], flow: FlowId) {
        let FlowSched {
            next, previous, list, ..
        } = scheds[usize::from(flow)];
        let head = &mut self.heads[usize::from(list.0)];
        if next == flow {
            *head = NO_FLOW;
            if usize::from(list.0) < BUCKETS {
                self.occupied &= !(1 << list.0);
            }
        } else {
            if *head == flow {
                *head = next;
            }
            scheds[usize::from(previous)].next = next;
            scheds[usize::from(next)].previous = previous;
        }
        scheds[usize::from(flow)].list = ListId::NONE;
    }

    #[inline]
    fn push_back(&mut self, scheds: &mut [FlowSched], flow: FlowId, list: ListId) {
        let head = self.heads[usize::from(list.0)];
        let (next, previous) = if head == NO_FLOW {
            self.heads[usize::from(list.0)] = flow;
            if usize::from(list.0) < BUCKETS {
                self.occupied |= 1 << list.0;
            }
            (flow, flow)
        } else {
            let last = scheds[usize::from(head)].previous;
            scheds[usize::from(last)].next = flow;
            scheds[usize::from(head)].previous = flow;
            (head, last)
        };
        let sched = &mut scheds[usize::from(flow)];
        sched.next = next;
        sched.previous = previous;
        sched.list = list;
    }

    /// Every flow on a list, and whether it is on the list of its state.
    pub(super) fn listed(&self, scheds: &[FlowSched]) -> impl Iterator<Item = (FlowId, bool)> {
        let mut list = 0;
        let mut flow = self.heads[0];
        core::iter::from_fn(move || {
            while flow == NO_FLOW {
                list += 1;
                flow = *self.heads.get(list)?;
            }
            let sched = &scheds[usize::from(flow)];
            let fits = usize::from(sched.list.0) == list
                && match sched.state {
                    State::Idle => false,
                    State::Sparse => list == usize::from(ListId::NEW.0),
                    State::SparseWait | State::Bulk => list < BUCKETS,
                    State::Decaying => list != usize::from(ListId::NEW.0),
                };
            let here = flow;
            flow = if sched.next == self.heads[list] {
                NO_FLOW
            } else {
                sched.next
            };
            Some((here, fits))
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn order(
        lists: &mut Lists,
        scheds: &mut [FlowSched],
        visits: usize,
        mut act: impl FnMut(&mut Lists, &mut [FlowSched], FlowId),
    ) -> Vec<FlowId> {
        (0..visits)
            .map(|_| {
                let flow = lists.front(false).unwrap();
                act(lists, scheds, flow);
                flow
            })
            .collect()
    }

    #[test]
    fn rounds_serve_flows_in_the_order_of_a_rotating_list() {
        for defer in [false, true] {
            let mut scheds = [FlowSched::IDLE; 4];
            let mut lists = Lists::new();
            for flow in 0..4 {
                lists.push_new(&mut scheds, flow);
            }
            let visited = order(&mut lists, &mut scheds, 12, |lists, scheds, flow| {
                if defer {
                    lists.defer(scheds, flow, 1);
                } else {
                    lists.rotate(scheds, flow);
                }
            });
            assert_eq!(visited, [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]);
        }
    }

    #[test]
    fn a_flow_that_skips_rounds_is_served_less_often() {
        let mut scheds = [FlowSched::IDLE; 3];
        let mut lists = Lists::new();
        for flow in 0..3 {
            lists.push_new(&mut scheds, flow);
        }
        let visited = order(&mut lists, &mut scheds, 120, |lists, scheds, flow| {
            lists.defer(scheds, flow, [1, 2, 63][usize::from(flow)]);
        });
        let visits = [0, 1, 2].map(|flow| visited.iter().filter(|seen| **seen == flow).count());
        assert_eq!(visits, [78, 40, 2]);
    }

    #[test]
    fn a_flow_can_be_removed_from_the_middle() {
        let mut scheds = [FlowSched::IDLE; 4];
        let mut lists = Lists::new();
        for flow in 0..4 {
            lists.push_new(&mut scheds, flow);
        }
        lists.leave(&mut scheds, 2);
        lists.move_to_decaying(&mut scheds, 1);
        assert_eq!(lists.front(true), Some(1));
        lists.leave(&mut scheds, 1);
        lists.push_new(&mut scheds, 1);
        let left = order(&mut lists, &mut scheds, 3, |lists, scheds, flow| {
            lists.leave(scheds, flow)
        });
        assert_eq!(left, [0, 3, 1]);
        assert_eq!(lists.front(true), None);
    }
}

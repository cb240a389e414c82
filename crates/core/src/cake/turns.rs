//! Who is next: DRR++ (MacGregor and Shi 2000) with the quantum divided among a host's flows.
//!
//! What the scheduler looks at while it looks for a flow lies here, 16 bytes per flow, apart from the queues.
//!
//! **Rounds.** Where a host has many bulk flows each gets a small part of a quantum per round, so that a full packet needs
//! many rounds. Linux visits the flow in each of them. Here a flow that needs k rounds is credited for all of them at
//! once and put where the scheduler comes by in k rounds: a ring of buckets, one per round. The rates are the same, a
//! flow's place within a round may differ. With [`round_by_round`](crate::profile::Profile::round_by_round) there is one
//! bucket, a list that turns as Linux's does.

/// A flow's number in the slab.
pub(super) type FlowId = u16;

/// No flow.
pub(super) const NOBODY: FlowId = FlowId::MAX;

/// Most rounds that a flow sits out before its share is computed anew.
pub(super) const MOST_ROUNDS: u32 = BUCKETS as u32 - 1;

const BUCKETS: usize = 64;

/// Where a flow stands.
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

/// What the scheduler knows of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// Bytes it may send, as counted on the line.
    pub(super) deficit: i32,
    next: FlowId,
    previous: FlowId,
    /// Its hosts' numbers in the tin's tables.
    pub(super) source: u16,
    /// As `source`.
    pub(super) destination: u16,
    pub(super) state: State,
    list: ListId,
}

impl Turn {
    pub(super) const IDLE: Self = Self {
        deficit: 0,
        next: NOBODY,
        previous: NOBODY,
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
    const NEW: Self = Self(BUCKETS as u8);
    const DECAYING: Self = Self(BUCKETS as u8 + 1);
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
            heads: [NOBODY; BUCKETS + 2],
            occupied: 0,
            round: 0,
        }
    }

    /// The flow to look at: decaying ones come first once per call, to be aged.
    #[inline]
    pub(super) fn front(&mut self, decaying_first: bool) -> Option<FlowId> {
        let decaying = self.heads[ListId::DECAYING.0 as usize];
        if decaying_first && decaying != NOBODY {
            return Some(decaying);
        }
        let new = self.heads[ListId::NEW.0 as usize];
        if new != NOBODY {
            return Some(new);
        }
        if self.occupied != 0 {
            let ahead = self.occupied.rotate_right(self.round).trailing_zeros();
            self.round = (self.round + ahead) % BUCKETS as u32;
            return Some(self.heads[self.round as usize]);
        }
        (decaying != NOBODY).then_some(decaying)
    }

    /// Puts a flow that is on no list at the end of the new ones.
    #[inline]
    pub(super) fn join_new(&mut self, turns: &mut [Turn], flow: FlowId) {
        self.push_back(turns, flow, ListId::NEW);
    }

    /// Moves a flow to the end of the decaying ones.
    #[inline]
    pub(super) fn move_to_decaying(&mut self, turns: &mut [Turn], flow: FlowId) {
        if turns[usize::from(flow)].list == ListId::DECAYING {
            // It is the head, which is looked at.
            self.heads[ListId::DECAYING.0 as usize] = turns[usize::from(flow)].next;
        } else {
            self.leave(turns, flow);
            self.push_back(turns, flow, ListId::DECAYING);
        }
    }

    /// Moves the flow that is looked at to the end of the one list of old flows.
    #[inline]
    pub(super) fn rotate(&mut self, turns: &mut [Turn], flow: FlowId) {
        if turns[usize::from(flow)].list == ListId(0) {
            self.heads[0] = turns[usize::from(flow)].next;
        } else {
            self.leave(turns, flow);
            self.push_back(turns, flow, ListId(0));
        }
    }

    /// Moves a flow to the end of those whose turn is in `rounds`, 1 to [`MOST_ROUNDS`].
    #[inline]
    pub(super) fn defer(&mut self, turns: &mut [Turn], flow: FlowId, rounds: u32) {
        self.leave(turns, flow);
        let bucket = (self.round + rounds) % BUCKETS as u32;
        self.push_back(turns, flow, ListId(bucket as u8));
    }

    /// Takes a flow off its list.
    #[inline]
    pub(super) fn leave(&mut self, turns: &mut [Turn], flow: FlowId) {
        let Turn {
            next, previous, list, ..
        } = turns[usize::from(flow)];
        let head = &mut self.heads[usize::from(list.0)];
        if next == flow {
            *head = NOBODY;
            if usize::from(list.0) < BUCKETS {
                self.occupied &= !(1 << list.0);
            }
        } else {
            if *head == flow {
                *head = next;
            }
            turns[usize::from(previous)].next = next;
            turns[usize::from(next)].previous = previous;
        }
        turns[usize::from(flow)].list = ListId::NONE;
    }

    #[inline]
    fn push_back(&mut self, turns: &mut [Turn], flow: FlowId, list: ListId) {
        let head = self.heads[usize::from(list.0)];
        let (next, previous) = if head == NOBODY {
            self.heads[usize::from(list.0)] = flow;
            if usize::from(list.0) < BUCKETS {
                self.occupied |= 1 << list.0;
            }
            (flow, flow)
        } else {
            let last = turns[usize::from(head)].previous;
            turns[usize::from(last)].next = flow;
            turns[usize::from(head)].previous = flow;
            (head, last)
        };
        let turn = &mut turns[usize::from(flow)];
        turn.next = next;
        turn.previous = previous;
        turn.list = list;
    }

    /// Every flow on a list, and whether it is on the list of its state.
    pub(super) fn listed(&self, turns: &[Turn]) -> impl Iterator<Item = (FlowId, bool)> {
        let mut list = 0;
        let mut flow = self.heads[0];
        core::iter::from_fn(move || {
            while flow == NOBODY {
                list += 1;
                flow = *self.heads.get(list)?;
            }
            let turn = &turns[usize::from(flow)];
            let fits = usize::from(turn.list.0) == list
                && match turn.state {
                    State::Idle => false,
                    State::Sparse => list == usize::from(ListId::NEW.0),
                    State::SparseWait | State::Bulk => list < BUCKETS,
                    State::Decaying => list != usize::from(ListId::NEW.0),
                };
            let here = flow;
            flow = if turn.next == self.heads[list] {
                NOBODY
            } else {
                turn.next
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
        turns: &mut [Turn],
        visits: usize,
        mut act: impl FnMut(&mut Lists, &mut [Turn], FlowId),
    ) -> Vec<FlowId> {
        (0..visits)
            .map(|_| {
                let flow = lists.front(false).unwrap();
                act(lists, turns, flow);
                flow
            })
            .collect()
    }

    #[test]
    fn one_round_after_another_is_the_order_of_a_turning_list() {
        for defer in [false, true] {
            let mut turns = [Turn::IDLE; 4];
            let mut lists = Lists::new();
            for flow in 0..4 {
                lists.join_new(&mut turns, flow);
            }
            let visited = order(&mut lists, &mut turns, 12, |lists, turns, flow| {
                if defer {
                    lists.defer(turns, flow, 1);
                } else {
                    lists.rotate(turns, flow);
                }
            });
            assert_eq!(visited, [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]);
        }
    }

    #[test]
    fn a_flow_that_sits_out_comes_by_less_often() {
        let mut turns = [Turn::IDLE; 3];
        let mut lists = Lists::new();
        for flow in 0..3 {
            lists.join_new(&mut turns, flow);
        }
        let visited = order(&mut lists, &mut turns, 120, |lists, turns, flow| {
            lists.defer(turns, flow, [1, 2, 63][usize::from(flow)]);
        });
        let visits = [0, 1, 2].map(|flow| visited.iter().filter(|seen| **seen == flow).count());
        assert_eq!(visits, [78, 40, 2]);
    }

    #[test]
    fn a_flow_may_leave_from_the_middle() {
        let mut turns = [Turn::IDLE; 4];
        let mut lists = Lists::new();
        for flow in 0..4 {
            lists.join_new(&mut turns, flow);
        }
        lists.leave(&mut turns, 2);
        lists.move_to_decaying(&mut turns, 1);
        assert_eq!(lists.front(true), Some(1));
        lists.leave(&mut turns, 1);
        lists.join_new(&mut turns, 1);
        let left = order(&mut lists, &mut turns, 3, |lists, turns, flow| {
            lists.leave(turns, flow)
        });
        assert_eq!(left, [0, 3, 1]);
        assert_eq!(lists.front(true), None);
    }
}

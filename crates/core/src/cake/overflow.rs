//! Which queue gives up a packet when the buffer is full: the one with the most bytes.
//!
//! The heap is built at the first overflow and kept up to date while overflows are recent; without overflow it costs
//! nothing.

use alloc::vec;
use alloc::vec::Vec;

use super::flow_lists::FlowId;
use super::tables::ENTRIES;
use crate::diffserv::MAX_TINS;
use crate::narrow::fits_u16;

/// Deliveries after the last overflow for which the heap is kept up to date.
const KEPT_FOR: u16 = u16::MAX;

/// The order of queues by length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rank {
    /// Bytes queued.
    pub(super) backlog: u32,
    /// The queue's number in its tin.
    pub(super) queue: u16,
    pub(super) tin: u8,
}

impl Rank {
    /// True if packets are dropped from this queue rather than from `other`: it has more bytes, or as many and a lower number.
    const fn precedes(self, other: Self) -> bool {
        if self.backlog == other.backlog {
            return self.place() < other.place();
        }
        self.backlog > other.backlog
    }

    /// Where Linux puts it at first.
    const fn place(self) -> usize {
        self.queue as usize * MAX_TINS + self.tin as usize
    }
}

/// The search for the fattest queue.
#[derive(Clone, Debug)]
pub(super) struct Overflow {
    heap: Heap,
    /// Deliveries until it is no longer kept up to date.
    kept_for: u16,
}

#[derive(Clone, Debug)]
enum Heap {
    Unbuilt,
    Exact(Exact),
    Shallow(Shallow),
}

impl Overflow {
    pub(super) const fn new() -> Self {
        Self {
            heap: Heap::Unbuilt,
            kept_for: 0,
        }
    }

    /// True while every change of a queue's length must be reported.
    #[inline]
    pub(super) const fn is_live(&self) -> bool {
        self.kept_for > 0
    }

    /// A packet was delivered.
    #[inline]
    pub(super) const fn delivered(&mut self) {
        if self.kept_for > 0 {
            self.kept_for -= 1;
        }
    }

    /// The queue that must give up a packet. `ranks` are those of all flows in order of their number.
    ///
    /// None if Linux's heap points to an empty one; it is built anew at the next call.
    #[cold]
    pub(super) fn victim(
        &mut self,
        shallow: bool,
        ranks: impl ExactSizeIterator<Item = Rank> + Clone,
    ) -> Option<FlowId> {
        let flow = if shallow {
            if !matches!(self.heap, Heap::Shallow(_)) {
                self.heap = Heap::Shallow(Shallow::new());
            }
            let Heap::Shallow(heap) = &mut self.heap else {
                return None;
            };
            if self.kept_for == 0 {
                heap.rebuild(ranks);
            }
            heap.fattest()
        } else {
            if !matches!(self.heap, Heap::Exact(_)) {
                self.heap = Heap::Exact(Exact::default());
            }
            let Heap::Exact(heap) = &mut self.heap else {
                return None;
            };
            if self.kept_for == 0 {
                heap.rebuild(ranks);
            }
            heap.fattest()
        };
        self.kept_for = if flow.is_some() { KEPT_FOR } else { 0 };
        flow
    }

    /// A queue grew by an arrival.
    pub(super) fn grew(&mut self, flow: FlowId, rank: Rank) {
        match &mut self.heap {
            Heap::Unbuilt => {}
            Heap::Exact(heap) => heap.update(flow, rank),
            Heap::Shallow(heap) => heap.grew(flow, rank),
        }
    }

    /// A queue gave away a packet.
    pub(super) fn shrank(&mut self, flow: FlowId, rank: Rank) {
        match &mut self.heap {
            Heap::Unbuilt => {}
            Heap::Exact(heap) => heap.update(flow, rank),
            Heap::Shallow(heap) => heap.shrank(rank),
        }
    }

    /// A victim gave up a packet.
    pub(super) fn dropped(&mut self, flow: FlowId, rank: Rank) {
        match &mut self.heap {
            Heap::Unbuilt => {}
            Heap::Exact(heap) => heap.update(flow, rank),
            Heap::Shallow(heap) => heap.dropped(rank),
        }
    }
}

/// A binary heap whose root is always the fattest queue.
#[derive(Clone, Debug, Default)]
struct Exact {
    order: Vec<(Rank, FlowId)>,
    /// Where each flow stands in `order`.
    place: Vec<u16>,
}

impl Exact {
    fn rebuild(&mut self, ranks: impl ExactSizeIterator<Item = Rank>) {
        self.order.clear();
        self.place.clear();
        for (flow, rank) in ranks.enumerate() {
            self.update(fits_u16(flow as u64), rank);
        }
    }

    fn fattest(&self) -> Option<FlowId> {
        let (rank, flow) = self.order.first()?;
        (rank.backlog > 0).then_some(*flow)
    }

    fn update(&mut self, flow: FlowId, rank: Rank) {
        if usize::from(flow) == self.place.len() {
            self.place.push(fits_u16(self.order.len() as u64));
            self.order.push((rank, flow));
        }
        let place = usize::from(self.place[usize::from(flow)]);
        self.order[place].0 = rank;
        let place = self.sift_up(place);
        self.sift_down(place);
    }

    fn sift_up(&mut self, mut place: usize) -> usize {
        while place > 0 {
            let parent = (place - 1) / 2;
            if !self.order[place].0.precedes(self.order[parent].0) {
                break;
            }
            self.swap(place, parent);
            place = parent;
        }
        place
    }

    fn sift_down(&mut self, mut place: usize) {
        loop {
            let mut first = place;
            for child in [2 * place + 1, 2 * place + 2] {
                let precedes = |(rank, _): &(Rank, FlowId)| rank.precedes(self.order[first].0);
                if self.order.get(child).is_some_and(precedes) {
                    first = child;
                }
            }
            if first == place {
                break;
            }
            self.swap(place, first);
            place = first;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.order.swap(a, b);
        for place in [a, b] {
            self.place[usize::from(self.order[place].1)] = fits_u16(place as u64);
        }
    }
}

/// Linux's heap of all queues of all tins. When it sinks an entry it compares the next level with the child that just
/// rose, not with the entry, so that an entry sinks by one level and the order decays.
#[derive(Clone, Debug)]
struct Shallow {
    /// Entries in heap order, each named by its first place.
    order: Vec<u16>,
    /// Where each entry stands.
    place: Vec<u16>,
    backlog: Vec<u32>,
    flow: Vec<FlowId>,
}

impl Shallow {
    const SIZE: usize = ENTRIES * MAX_TINS;

    fn new() -> Self {
        Self {
            order: (0..fits_u16(Self::SIZE as u64)).collect(),
            place: (0..fits_u16(Self::SIZE as u64)).collect(),
            backlog: vec![0; Self::SIZE],
            flow: vec![super::flow_lists::NO_FLOW; Self::SIZE],
        }
    }

    fn rebuild(&mut self, ranks: impl Iterator<Item = Rank>) {
        for (flow, rank) in ranks.enumerate() {
            self.note(fits_u16(flow as u64), rank);
        }
        for place in (0..Self::SIZE / 2).rev() {
            self.sink(place);
        }
    }

    fn fattest(&self) -> Option<FlowId> {
        let entry = usize::from(self.order[0]);
        (self.backlog[entry] > 0).then(|| self.flow[entry])
    }

    fn grew(&mut self, flow: FlowId, rank: Rank) {
        self.note(flow, rank);
        let mut place = usize::from(self.place[rank.place()]);
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.key(place) <= self.key(parent) {
                break;
            }
            self.swap(place, parent);
            place = parent;
        }
    }

    fn shrank(&mut self, rank: Rank) {
        self.backlog[rank.place()] = rank.backlog;
        self.sink(usize::from(self.place[rank.place()]));
    }

    fn dropped(&mut self, rank: Rank) {
        self.backlog[rank.place()] = rank.backlog;
        self.sink(0);
    }

    fn note(&mut self, flow: FlowId, rank: Rank) {
        self.backlog[rank.place()] = rank.backlog;
        self.flow[rank.place()] = flow;
    }

    fn sink(&mut self, mut place: usize) {
        let mut best = self.key(place);
        loop {
            let mut largest = place;
            for child in [2 * place + 1, 2 * place + 2] {
                if child < Self::SIZE && self.key(child) > best {
                    largest = child;
                    best = self.key(child);
                }
            }
            if largest == place {
                break;
            }
            self.swap(place, largest);
            place = largest;
        }
    }

    fn key(&self, place: usize) -> u32 {
        self.backlog[usize::from(self.order[place])]
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.order.swap(a, b);
        for place in [a, b] {
            self.place[usize::from(self.order[place])] = fits_u16(place as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_victim_is_the_fattest_queue(
            changes in prop::collection::vec((0..20u16, 0..2000u32), 1..60)
        ) {
            let mut backlogs = [0; 20];
            let rank = |backlogs: &[u32; 20], flow: u16| Rank {
                backlog: backlogs[usize::from(flow)],
                queue: flow * 7 % 20,
                tin: 0,
            };
            let mut overflow = Overflow::new();
            for (flow, backlog) in changes {
                backlogs[usize::from(flow)] = backlog;
                overflow.grew(flow, rank(&backlogs, flow));
                let victim = overflow.victim(false, (0..20).map(|flow| rank(&backlogs, flow)));
                let fattest = (0..20u16)
                    .filter(|flow| backlogs[usize::from(*flow)] > 0)
                    .max_by_key(|flow| (backlogs[usize::from(*flow)], core::cmp::Reverse(flow * 7 % 20)));
                prop_assert_eq!(victim, fattest);
            }
        }
    }
}

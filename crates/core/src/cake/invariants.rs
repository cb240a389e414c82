//! Invariants of CAKE that hold after every call.

use super::flow_lists::{FlowSched, State};
use super::{Cake, Queue};
use crate::packet::Packet;
use crate::qdisc::Backlog;
use crate::rng::Random;

impl<P: Packet, R: Random> Cake<P, R> {
    /// Checks that what is counted twice agrees, and panics if not.
    pub fn check_invariants(&self) {
        let mut sums = Backlog {
            packets: u32::from(self.peeked.is_some()),
            bytes: self.peeked.as_ref().map_or(0, |packet| packet.len().into()),
        };
        let mut memory = 0;
        for queue in &self.queues {
            let mut bytes = 0;
            for (_, entry) in self.store.iter(queue.packets) {
                sums.packets += 1;
                bytes += entry.packet.len();
                memory += u64::from(entry.truesize);
            }
            assert_eq!(bytes, queue.backlog, "a queue's bytes");
            sums.bytes += u64::from(bytes);
        }
        assert_eq!(sums, self.backlog, "all queues' packets");
        assert_eq!(memory, self.memory.used, "memory");
        for (number, tin) in self.tins.iter().enumerate() {
            let queues = self
                .queues
                .iter()
                .filter(|queue| usize::from(queue.tin) == number);
            let bytes: u64 = queues.clone().map(|queue| u64::from(queue.backlog)).sum();
            assert_eq!(bytes, tin.backlog, "a tin's bytes");
            let awake = queues.filter(|queue| queue.cobalt.drop_probability() > 0).count();
            assert_eq!(awake, usize::from(tin.unresponsive), "unresponsive flows");
            assert_eq!(self.busy & 1 << number != 0, tin.has_flows(), "busy tins");
            let Some(tables) = &tin.tables else { continue };
            let mut counts = [0_u16; 3];
            for (flow, fits) in tables.lists.listed(&self.scheds) {
                assert!(fits, "flow {flow} is on the list of its state");
                counts[match self.scheds[usize::from(flow)].state {
                    State::Bulk => 1,
                    State::Decaying => 2,
                    _ => 0,
                }] += 1;
            }
            assert_eq!(counts, [tin.sparse, tin.bulk, tin.decaying], "flows by state");
            let listed = counts.into_iter().map(usize::from).sum::<usize>();
            let busy = |(flow, queue): &(usize, &Queue)| {
                usize::from(queue.tin) == number && self.scheds[*flow].state != State::Idle
            };
            assert_eq!(
                self.queues.iter().enumerate().filter(busy).count(),
                listed,
                "listed flows"
            );
        }
        let idle_with_packets = |(queue, sched): (&Queue, &FlowSched)| {
            !queue.packets.is_empty() && !matches!(sched.state, State::Sparse | State::Bulk)
        };
        assert!(
            !self.queues.iter().zip(&self.scheds).any(idle_with_packets),
            "packets wait in flows that are served"
        );
    }

    #[inline]
    pub(super) fn debug_check(&self) {
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
    }
}

//! Enqueueing a packet: its tin, its queue, the clocks, the ACK filter, and drops from another queue if the buffer is full.

use super::flow_lists::{FlowId, FlowSched, NO_FLOW, State};
use super::tables::{Found, How};
use super::tin::Tables;
use super::{Cake, Entry, NatResolver, Queue, forget, rank};
use crate::ack_filter::{self, Summary};
use crate::flow_hash::HashKey;
use crate::narrow::{fits_u8, fits_u16};
use crate::packet::{FlowKey, Hashed, Hashes, Packet};
use crate::qdisc::{DropReason, Drops};
use crate::rng::Random;
use crate::spec::cake::{AckFilter, Isolation};

/// Where a packet belongs.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) tin: usize,
    pub(super) flow: FlowId,
    /// Where its network header begins.
    pub(super) offset: u16,
    /// A hash of its connection.
    pub(super) connection: u32,
}

/// In the order in which a packet meets these.
impl<P: Packet, R: Random> Cake<P, R> {
    #[inline]
    pub(super) fn choose_tin(&self, packet: &P, hashed: &Hashed) -> usize {
        if self.tin_count == 1 {
            return 0;
        }
        let layout = self.layout;
        if self.spec.fwmark != 0 {
            let place = (packet.mark() & self.spec.fwmark) >> self.spec.fwmark.trailing_zeros();
            if let Some(tin) = layout.displayed(place) {
                return usize::from(tin);
            }
        }
        let handle = u32::from(self.environment.handle);
        let priority = packet.priority();
        if handle != 0
            && priority >> 16 == handle
            && let Some(tin) = layout.displayed(priority & 0xffff)
        {
            return usize::from(tin);
        }
        usize::from(layout.tin_of(hashed.network, hashed.ds_field))
    }

    /// The packet's view with its hashes, which are those of the addresses before NAT where these are known.
    #[inline]
    pub(super) fn hashed(&mut self, packet: &P) -> Hashed {
        let key = &self.environment.hash_key;
        match &mut self.nat {
            Some(resolve) if self.spec.nat => before_nat(packet, key, resolve),
            _ => packet.hashed(key),
        }
    }

    #[inline]
    pub(super) fn choose_queue(&mut self, tin: usize, hashes: &Hashes) -> FlowId {
        let number = fits_u8(tin as u64);
        let tin = &mut self.tins[tin];
        let tables = tin.tables.get_or_insert_with(Tables::new);
        let hash = match self.spec.isolation {
            Isolation::Flowblind => None,
            Isolation::Srchost => Some(hashes.source),
            Isolation::Dsthost => Some(hashes.destination),
            Isolation::Hosts => Some(hashes.source ^ hashes.destination),
            Isolation::Flows | Isolation::DualSrchost | Isolation::DualDsthost | Isolation::TripleIsolate => {
                Some(hashes.flow)
            }
        };
        let Found { mut flow, queue, how } = match hash {
            Some(hash) => tables.queues.find(hash, &self.scheds),
            None => tables.queues.only(),
        };
        if flow == NO_FLOW {
            flow = fits_u16(self.scheds.len() as u64);
            tables.queues.settle(queue, flow);
            self.scheds.push(FlowSched::IDLE);
            self.queues
                .push(Queue::new(queue, number, self.environment.profile));
        }
        let sched = &mut self.scheds[usize::from(flow)];
        let assign = match how {
            How::Direct => return flow,
            How::Tag { moved } => {
                tin.counters.hits += u64::from(moved);
                sched.state == State::Idle
            }
            How::Free => {
                tin.counters.misses += 1;
                true
            }
            How::Shared => {
                tin.counters.collisions += 1;
                true
            }
        };
        if assign {
            tables.assign(sched, hashes, self.fair);
        }
        flow
    }

    /// After idle time the clocks begin anew.
    #[inline]
    pub(super) fn wake(&mut self, tin: usize, now: u64) {
        let tin = &mut self.tins[tin];
        if tin.backlog == 0 {
            tin.clock.wake(now);
            if self.backlog.packets == 0 && self.shaper.wake(now) {
                self.counters.overlimits += 1;
            }
        }
    }

    /// Appends a packet, which the ACK filter may have summarised.
    #[inline]
    pub(super) fn append(&mut self, place: Place, packet: P, ack: Summary, now: u64) {
        let len = packet.len();
        let framing = &self.spec.framing;
        let counted = framing.counted_len(len, place.offset);
        let line_len = match packet.aggregate() {
            Some(aggregate) => framing.aggregate_line_len(len, place.offset, aggregate),
            None => framing.line_len(counted),
        };
        self.sizes.note(counted, line_len, place.offset);
        let truesize = packet.truesize();
        self.memory.used += u64::from(truesize);
        self.backlog.packets += 1;
        self.backlog.bytes += u64::from(len);
        let tin = &mut self.tins[place.tin];
        tin.backlog += u64::from(len);
        tin.counters.packets += 1;
        tin.counters.bytes += u64::from(len);
        let queue = &mut self.queues[usize::from(place.flow)];
        queue.backlog += len;
        let entry = Entry {
            packet,
            since: now,
            line_len,
            truesize,
            ack,
        };
        self.store.push_back(&mut queue.packets, entry);
    }

    /// Appends a packet in place of one that it makes redundant. Apart, so that arrivals without a filter stay lean.
    #[inline(never)]
    pub(super) fn append_filtered(&mut self, place: Place, packet: P, now: u64, drops: &mut dyn Drops<P>) {
        let fragments = self.environment.profile.ack_filter_fragments;
        let summary = Summary::of(&packet, place.connection, fragments);
        let queue = &mut self.queues[usize::from(place.flow)];
        let waiting = self
            .store
            .iter(queue.packets)
            .map(|(place, entry)| (place, &entry.packet, &entry.ack));
        let aggressive = self.spec.ack_filter == AckFilter::Aggressive;
        let redundant = ack_filter::redundant(waiting, (&packet, &summary), aggressive, fragments);
        if let Some(entry) = redundant.and_then(|place| self.store.remove_at(&mut queue.packets, place)) {
            let tin = &mut self.tins[place.tin];
            forget(&entry, queue, tin, &mut self.backlog, &mut self.memory);
            tin.counters.ack_drops += 1;
            self.counters.dropped += 1;
            if self.spec.ingress {
                self.charge_dropped(place.tin, entry.line_len, now);
            }
            drops.dropped(entry.packet, DropReason::Ack);
        }
        self.append(place, packet, summary, now);
    }

    #[inline]
    pub(super) fn follow_arrivals(&mut self, len: u32, now: u64) {
        if !self.spec.autorate_ingress {
            self.autorate.idle(now);
            return;
        }
        let guarded = !self.environment.profile.autorate_unguarded;
        if let Some(rate) = self.autorate.arrived(len, now, guarded) {
            self.rate = rate;
            self.configure();
        }
    }

    /// Drops the head of the fattest queue.
    #[cold]
    pub(super) fn drop_fattest(&mut self, now: u64, drops: &mut dyn Drops<P>) {
        let shallow = self.environment.profile.overflow_heap_shallow;
        let Some(flow) = self.overflow.victim(shallow, self.queues.iter().map(rank)) else {
            return;
        };
        let queue = &mut self.queues[usize::from(flow)];
        let Some(entry) = self.store.pop_front(&mut queue.packets) else {
            return;
        };
        let number = usize::from(queue.tin);
        let tin = &mut self.tins[number];
        forget(&entry, queue, tin, &mut self.backlog, &mut self.memory);
        queue.drops += 1;
        tin.note(queue.cobalt.on_overflow(&tin.params, now));
        tin.counters.drops += 1;
        self.counters.dropped += 1;
        if self.spec.ingress {
            self.charge_dropped(number, entry.line_len, now);
        }
        self.overflow.dropped(flow, rank(&self.queues[usize::from(flow)]));
        drops.dropped(entry.packet, DropReason::Overflow);
    }
}

#[inline(never)]
fn before_nat<P: Packet>(packet: &P, key: &HashKey, resolve: &mut NatResolver) -> Hashed {
    let mut view = packet.view();
    if let FlowKey::Tuple(tuple) = &mut view.key
        && let Some(before) = resolve(tuple)
    {
        *tuple = before;
    }
    view.hashed(key)
}

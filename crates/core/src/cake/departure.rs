//! A packet's way out: when, from which tin, from which flow, and whether COBALT lets it go.

use super::{Cake, forget, rank};
use crate::diffserv::MAX_TINS;
use crate::packet::Packet;
use crate::qdisc::{Dequeued, DropReason, Drops};
use crate::rng::Random;
use crate::units::Instant;

impl<P: Packet, R: Random> Cake<P, R> {
    /// The next packet, taken out.
    #[inline]
    pub(super) fn decide(&mut self, now: Instant, drops: &mut dyn Drops<P>) -> Dequeued<P> {
        let now = self.advance(now);
        let mut decaying_first = true;
        loop {
            if self.backlog.packets == 0 {
                return Dequeued::Empty;
            }
            if self.shaper.is_ahead(now) {
                self.counters.overlimits += 1;
                return Dequeued::NotBefore(Instant(self.shaper.catches_up_at()));
            }
            let Some(tin) = self.next_tin(now) else {
                return Dequeued::Empty;
            };
            if let Some(packet) = self.serve(tin, now, &mut decaying_first, drops) {
                self.counters.sent(packet.len());
                return Dequeued::Packet(packet);
            }
        }
    }

    /// The packet that was peeked at.
    #[cold]
    pub(super) fn release(&mut self) -> Dequeued<P> {
        let Some(packet) = self.peeked.take() else {
            return Dequeued::Empty;
        };
        self.backlog.packets -= 1;
        self.backlog.bytes -= u64::from(packet.len());
        self.counters.sent(packet.len());
        self.debug_check();
        Dequeued::Packet(packet)
    }

    /// The tin that gives the next packet.
    #[inline]
    fn next_tin(&mut self, now: u64) -> Option<usize> {
        if !self.shaper.pace.is_unlimited() {
            self.current_tin = self.most_urgent_tin(now)?;
            return Some(self.current_tin);
        }
        let count = self.tin_count;
        let mut found_flows = false;
        let mut wrapped = false;
        loop {
            let tin = &mut self.tins[self.current_tin];
            if tin.deficit >= 0 && tin.has_flows() {
                return Some(self.current_tin);
            }
            if tin.deficit <= 0 {
                tin.deficit += i64::from(tin.weight);
            }
            found_flows |= tin.has_flows();
            self.current_tin += 1;
            if self.current_tin >= count {
                self.current_tin = 0;
                if wrapped && !found_flows {
                    return None;
                }
                wrapped = true;
            }
        }
    }

    /// The last tin within its share of the rate, or else the one that will be first.
    #[inline]
    fn most_urgent_tin(&self, now: u64) -> Option<usize> {
        if self.tin_count == 1 {
            return Some(0);
        }
        let mut best = None;
        let mut least_ahead = i64::MAX;
        let mut left = self.busy & (u8::MAX >> (MAX_TINS - self.tin_count));
        while left != 0 {
            let number = left.ilog2() as usize;
            left ^= 1 << number;
            let ahead = self.tins[number].clock.ahead(now);
            if ahead <= 0 {
                return Some(number);
            }
            if ahead < least_ahead {
                least_ahead = ahead;
                best = Some(number);
            }
        }
        best
    }

    /// A packet of the flow whose turn it is. None if that flow was empty, or dropped all it had.
    #[inline]
    fn serve(
        &mut self,
        number: usize,
        now: u64,
        decaying_first: &mut bool,
        drops: &mut dyn Drops<P>,
    ) -> Option<P> {
        let ingress = self.spec.ingress;
        let tin = &mut self.tins[number];
        loop {
            let lists = &mut tin.tables.as_deref_mut()?.lists;
            let flow = lists.front(core::mem::take(decaying_first))?;
            let sched = &mut self.scheds[usize::from(flow)];
            let queue = &mut self.queues[usize::from(flow)];
            if sched.deficit <= 0 {
                let round_by_round = self.environment.profile.round_by_round;
                let is_empty = queue.packets.is_empty();
                tin.refill(
                    &mut self.scheds,
                    flow,
                    is_empty,
                    self.fair,
                    round_by_round,
                    &mut self.random,
                );
                continue;
            }
            loop {
                let Some(mut entry) = self.store.pop_front(&mut queue.packets) else {
                    tin.note(queue.cobalt.on_empty(&tin.params, now));
                    let rests = queue.cobalt.is_at_rest(now);
                    tin.retire(&mut self.scheds, flow, rests, self.fair);
                    if !tin.has_flows() {
                        self.busy &= !(1 << number);
                    }
                    return None;
                };
                forget(&entry, queue, tin, &mut self.backlog, &mut self.memory);
                if self.overflow.is_live() {
                    self.overflow.shrank(flow, rank(queue));
                }
                let sojourn = now - entry.since;
                let bulk_flows = if ingress { u32::from(tin.bulk) } else { 0 };
                let mark = || entry.packet.set_ce();
                let verdict =
                    queue
                        .cobalt
                        .judge(&tin.params, now, sojourn, bulk_flows, mark, &mut self.random);
                if !verdict.drop || queue.packets.is_empty() {
                    tin.counters.marks += u64::from(verdict.marked);
                    tin.delivered(sojourn);
                    if !self.shaper.pace.is_unlimited() {
                        tin.clock.charge(entry.line_len, now);
                        self.shaper.sent(entry.line_len);
                    }
                    sched.deficit -= entry.line_len.cast_signed();
                    tin.deficit -= i64::from(entry.line_len);
                    self.overflow.delivered();
                    return Some(entry.packet);
                }
                queue.drops += 1;
                tin.counters.drops += 1;
                self.counters.dropped += 1;
                drops.dropped(entry.packet, DropReason::Aqm);
                if ingress {
                    if !self.shaper.pace.is_unlimited() {
                        tin.clock.charge(entry.line_len, now);
                        self.shaper.dropped(entry.line_len);
                    }
                    sched.deficit -= entry.line_len.cast_signed();
                    tin.deficit -= i64::from(entry.line_len);
                    break;
                }
            }
        }
    }
}

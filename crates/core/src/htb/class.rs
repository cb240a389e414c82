//! A class of HTB: its buckets, its queue or its children, and what it may do.

use alloc::boxed::Box;

use super::ring::Ring;
use super::{ClassSpec, LEVELS, Mode, PRIORITIES};
use crate::narrow::{fits_u8, fits_u32};
use crate::qdisc::Counters;
use crate::rate_cost::{RateCost, burst_time};
use crate::spec;
use crate::units::{Bytes, Instant, Nanos, Rate};

/// Most idle time that counts, and most debt (`mbuffer`), nanoseconds.
const MEMORY: i64 = 60_000_000_000;

/// Bounds of a quantum that follows from the rate, bytes.
const QUANTUM: core::ops::RangeInclusive<u64> = 1000..=200_000;

#[derive(Debug)]
pub(super) struct Class<Q> {
    pub(super) minor: u16,
    pub(super) level: u8,
    pub(super) mode: Mode,
    /// A bit for each priority at which it is active: a leaf's own if it has packets, an inner class's if children
    /// borrow from it there.
    pub(super) activity: u8,
    pub(super) parent: u32,
    pub(super) quantum: u32,
    pub(super) rate: Bucket,
    pub(super) ceil: Bucket,
    pub(super) checked: Instant,
    /// When its mode is looked at again, if it cannot send on its own.
    pub(super) event: Instant,
    pub(super) node: Node<Q>,
    pub(super) counters: Counters,
    pub(super) lends: u64,
    pub(super) borrows: u64,
}

#[derive(Debug)]
pub(super) enum Node<Q> {
    Leaf(Leaf<Q>),
    /// Children that borrow, by priority.
    Inner(Box<[Ring; PRIORITIES]>),
}

#[derive(Debug)]
pub(super) struct Leaf<Q> {
    pub(super) queue: Q,
    pub(super) priority: u8,
    /// Bytes left of the quantum, by the level that pays.
    pub(super) deficit: [i32; LEVELS],
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    pub(super) cost: RateCost,
    pub(super) depth: i64,
    pub(super) tokens: i64,
}

impl<Q> Class<Q> {
    pub(super) fn new(class: ClassSpec<Q>, parent: u32, level: u8, r2q: u32, now: Instant) -> Self {
        let ClassSpec {
            minor, spec, leaf, ..
        } = class;
        assert_eq!(
            leaf.is_some(),
            level == 0,
            "leaves have queues, other classes have none"
        );
        let node = match leaf {
            Some(queue) => Node::Leaf(Leaf {
                queue,
                priority: priority(&spec),
                deficit: [0; LEVELS],
            }),
            None => Node::Inner(Box::new([const { Ring::new() }; PRIORITIES])),
        };
        Self {
            minor,
            level,
            mode: Mode::CanSend,
            activity: 0,
            parent,
            quantum: quantum(&spec, r2q),
            rate: Bucket::full(spec.rate, spec.burst, &spec),
            ceil: Bucket::full(spec.ceil, spec.cburst, &spec),
            checked: now,
            event: now,
            node,
            counters: Counters::NONE,
            lends: 0,
            borrows: 0,
        }
    }

    /// Time since its tokens were last brought up to date.
    pub(super) fn idle(&self, now: Instant) -> i64 {
        now.since(self.checked)
            .0
            .min(MEMORY.cast_unsigned())
            .cast_signed()
    }

    /// The mode once `idle` has passed, and how long until the next one if it cannot send on its own.
    pub(super) fn mode_after(&self, idle: i64) -> (Mode, Nanos) {
        let (tokens, ctokens) = (self.rate.tokens + idle, self.ceil.tokens + idle);
        if ctokens < 0 {
            (Mode::CantSend, Nanos(ctokens.unsigned_abs()))
        } else if tokens < 0 {
            (Mode::MayBorrow, Nanos(tokens.unsigned_abs()))
        } else {
            (Mode::CanSend, Nanos(0))
        }
    }
}

impl Bucket {
    pub(super) fn full(rate: Rate, burst: Bytes, spec: &spec::HtbClass) -> Self {
        let depth = burst_time(burst, rate).0.cast_signed();
        Self {
            cost: RateCost::new(rate, spec.framing),
            depth,
            tokens: depth,
        }
    }

    /// Another rate and burst; the tokens stay.
    pub(super) fn set(&mut self, rate: Rate, burst: Bytes, spec: &spec::HtbClass) {
        let tokens = self.tokens;
        *self = Self {
            tokens,
            ..Self::full(rate, burst, spec)
        };
    }

    #[inline]
    pub(super) fn fill(&mut self, idle: i64) {
        self.tokens = (self.tokens + idle).min(self.depth);
    }

    #[inline]
    pub(super) fn pay(&mut self, length: u32) {
        self.tokens = (self.tokens - self.cost.of(length).0.cast_signed()).max(1 - MEMORY);
    }
}

pub(super) fn priority(spec: &spec::HtbClass) -> u8 {
    fits_u8(u64::from(spec.prio).min(PRIORITIES as u64 - 1))
}

pub(super) fn quantum(spec: &spec::HtbClass, r2q: u32) -> u32 {
    let (least, most) = QUANTUM.into_inner();
    let computed = || (spec.rate.bytes_per_sec() / u64::from(r2q.max(1))).clamp(least, most);
    spec.quantum.unwrap_or_else(|| fits_u32(computed()))
}

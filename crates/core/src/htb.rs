//! HTB, the hierarchical token bucket (Devera; Linux `sch_htb`).
//!
//! Classes form a tree. Every class has a `rate` of its own, which it may always use, and a `ceil` up to which it may
//! borrow what its ancestors do not use. Leaves hold the queues.
//!
//! Tokens are time: a packet costs the time it takes at the rate, and is charged to the leaf and all its ancestors after
//! it was sent, so that a class can be in debt by one packet. By its tokens a class is in one of three [modes](Mode).
//!
//! Classes within their own rate are served first, whatever their priority; then those that borrow from their parents,
//! and so on upwards. Priority and round robin (by `quantum`) order those that draw on the same level.
//!
//! Kernel behaviour that surprises, kept as it is: while a class borrows, its tokens grow beyond its burst; a packet that no
//! class takes is not shaped at all, which is why building such a tree gives a warning.

mod class;
mod ring;

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::fifo::{Fifo, Limit};
use crate::filter::Filters;
use crate::handle::Handle;
use crate::narrow::{fits_u8, fits_u32};
use crate::packet::Packet;
use crate::qdisc::{Backlog, Counted, Counters, Dequeued, Drops, Environment, Qdisc};
use crate::sorted::Sorted;
use crate::spec;
use crate::units::{Instant, Nanos};

use class::{Bucket, Class, Leaf, Node, priority, quantum};
use ring::{NONE, Ring};

/// Levels of the hierarchy: leaves are 0, a root class with children 7.
pub const LEVELS: usize = 8;

/// Priorities, 0 first.
const PRIORITIES: usize = 8;

/// One HTB over leaves `Q`.
#[derive(Debug)]
pub struct Htb<P, Q> {
    /// In order of their numbers.
    classes: Vec<Class<Q>>,
    levels: Box<[Level; LEVELS]>,
    default: u32,
    filters: Filters,
    handle: u16,
    direct: Fifo<P>,
    direct_packets: u64,
    backlog: Backlog,
    counters: Counters,
    r2q: u32,
    /// The latest time that any call brought: the clock never goes back.
    now: Instant,
}

/// The mode of a class: whether it may send now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Above its ceiling: nothing.
    CantSend,
    /// Above its rate: send on its parent's account.
    MayBorrow,
    /// Within its rate.
    CanSend,
}

/// A class to be built.
#[derive(Clone, Debug)]
pub struct ClassSpec<Q> {
    /// Its number, the minor part of its handle.
    pub minor: u16,
    /// The class above; `None` is the top.
    pub parent: Option<u16>,
    /// Its parameters.
    pub spec: spec::HtbClass,
    /// The queue of a leaf; `None` for a class that has children.
    pub leaf: Option<Q>,
}

/// The state of one level of the hierarchy.
#[derive(Debug)]
struct Level {
    /// Active classes that can send on their own, by priority.
    rows: [Ring; PRIORITIES],
    /// When to look again at the classes that cannot.
    events: Sorted<Instant>,
}

/// Where a ring is.
#[derive(Clone, Copy)]
enum Place {
    Row,
    Feed(u32),
}

/// One class as it stands now (`tc -s class`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassStats {
    /// Its number, the minor part of its handle.
    pub minor: u16,
    /// The class above; `None` is the discipline itself.
    pub parent: Option<u16>,
    /// 0 for a leaf.
    pub level: u8,
    /// Bytes a round, for a leaf; else what it would be.
    pub quantum: u32,
    /// Time it may still send at its rate, nanoseconds, as of its last packet; negative is debt.
    pub tokens: i64,
    /// Time it may still send at its ceiling.
    pub ctokens: i64,
    /// Its mode.
    pub mode: Mode,
    /// Packets that descendants sent on its account, or a leaf on its own.
    pub lends: u64,
    /// Packets sent on an ancestor's account.
    pub borrows: u64,
    /// Packets sent, dropped, and how often it came to its ceiling.
    pub counters: Counters,
}

impl<P: Packet, Q: Qdisc<P>> Htb<P, Q> {
    /// Full buckets and empty queues. The classes may come in any order, but each parent must be among them, none of them
    /// below itself or more than [`LEVELS`] deep.
    ///
    /// # Panics
    ///
    /// If a class has children and a leaf's queue, or neither.
    pub fn new(
        spec: &spec::Htb,
        mut classes: Vec<ClassSpec<Q>>,
        filters: Filters,
        environment: &Environment,
    ) -> Self {
        classes.sort_by_key(|class| class.minor);
        let minors: Vec<u16> = classes.iter().map(|class| class.minor).collect();
        let index = |minor: u16| {
            minors
                .binary_search(&minor)
                .map_or(NONE, |index| fits_u32(index as u64))
        };
        let parents: Vec<u32> = classes
            .iter()
            .map(|class| class.parent.map_or(NONE, index))
            .collect();
        let levels: Vec<u8> = (0..classes.len())
            .map(|class| level_of(&parents, class))
            .collect();
        let classes = classes
            .into_iter()
            .zip(parents.iter().zip(levels))
            .map(|(class, (&parent, level))| Class::new(class, parent, level, spec.r2q, environment.now))
            .collect();
        let direct_qlen = spec.direct_qlen.unwrap_or(environment.tx_queue_len);
        let mut htb = Self {
            classes,
            levels: Box::new(core::array::from_fn(|_| Level::new())),
            default: u16::try_from(spec.default).map_or(NONE, index),
            filters,
            handle: environment.handle,
            direct: Fifo::new(Limit::Packets(direct_qlen)),
            direct_packets: 0,
            backlog: Backlog::default(),
            counters: Counters::NONE,
            r2q: spec.r2q,
            now: environment.now,
        };
        htb.make_room();
        htb
    }

    /// Room for every class on every list that it may be on, so that packets allocate nothing.
    fn make_room(&mut self) {
        let priorities = self.classes.iter().filter_map(|class| match &class.node {
            Node::Leaf(leaf) => Some(usize::from(leaf.priority)),
            Node::Inner(_) => None,
        });
        let priorities: BTreeSet<usize> = priorities.collect();
        for (number, level) in self.levels.iter_mut().enumerate() {
            let classes = self.classes.iter();
            let classes = classes.filter(|class| usize::from(class.level) == number).count();
            level.events.expect(classes);
            for &priority in &priorities {
                level.rows[priority].expect(classes);
            }
        }
        for parent in 0..self.classes.len() {
            let children = self.classes.iter();
            let children = children.filter(|class| class.parent as usize == parent).count();
            if let Node::Inner(feeds) = &mut self.classes[parent].node {
                for &priority in &priorities {
                    feeds[priority].expect(children);
                }
            }
        }
    }

    /// Changes a class while packets wait. Its tokens stay. False if there is no such class.
    pub fn change(&mut self, minor: u16, spec: &spec::HtbClass) -> bool {
        let Some(index) = self.index(minor) else {
            return false;
        };
        let activity = self.classes[index as usize].activity;
        if activity != 0 {
            self.deactivate(index);
        }
        let r2q = self.r2q;
        let class = &mut self.classes[index as usize];
        class.rate.set(spec.rate, spec.burst, spec);
        class.ceil.set(spec.ceil, spec.cburst, spec);
        class.quantum = quantum(spec, r2q);
        if let Node::Leaf(leaf) = &mut class.node {
            leaf.priority = priority(spec);
        }
        if activity != 0 {
            self.activate(index);
        }
        true
    }

    /// Packets that no class took, and that were not shaped.
    pub const fn direct_packets(&self) -> u64 {
        self.direct_packets
    }

    /// The counters that every discipline has; drops of the queues below included.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The queue of a leaf.
    pub fn leaf(&self, minor: u16) -> Option<&Q> {
        match &self.classes[self.index(minor)? as usize].node {
            Node::Leaf(leaf) => Some(&leaf.queue),
            Node::Inner(_) => None,
        }
    }

    /// One class.
    pub fn class(&self, minor: u16) -> Option<ClassStats> {
        Some(self.stats_of(&self.classes[self.index(minor)? as usize]))
    }

    /// All classes in order of their numbers.
    pub fn classes(&self) -> impl Iterator<Item = ClassStats> {
        self.classes.iter().map(|class| self.stats_of(class))
    }

    fn stats_of(&self, class: &Class<Q>) -> ClassStats {
        ClassStats {
            minor: class.minor,
            parent: self.classes.get(class.parent as usize).map(|parent| parent.minor),
            level: class.level,
            quantum: class.quantum,
            tokens: class.rate.tokens,
            ctokens: class.ceil.tokens,
            mode: class.mode,
            lends: class.lends,
            borrows: class.borrows,
            counters: class.counters,
        }
    }

    fn index(&self, minor: u16) -> Option<u32> {
        let found = self.classes.binary_search_by_key(&minor, |class| class.minor);
        found.ok().map(|index| fits_u32(index as u64))
    }

    /// The leaf that takes a packet; `None` is the direct queue.
    fn classify(&self, packet: &P) -> Option<u32> {
        let chosen = Handle::from_bits(packet.priority());
        if chosen.major == self.handle && self.handle != 0 {
            if chosen.minor == 0 {
                return None;
            }
            if let Some(leaf) = self.index(chosen.minor).filter(|&index| self.is_leaf(index)) {
                return Some(leaf);
            }
        }
        let mut place = Handle::new(self.handle, 0);
        // A filter may choose an inner class, whose own filters go on.
        for _ in 0..LEVELS {
            let Some(class) = self.filters.class_of(packet, place) else {
                break;
            };
            if class == Handle::new(self.handle, 0) {
                return None;
            }
            match self.index(class.minor).filter(|_| class.major == self.handle) {
                Some(index) if self.is_leaf(index) => return Some(index),
                Some(_) => place = class,
                None => break,
            }
        }
        Some(self.default).filter(|&index| index != NONE && self.is_leaf(index))
    }

    fn is_leaf(&self, index: u32) -> bool {
        matches!(self.classes[index as usize].node, Node::Leaf(_))
    }

    fn leaf_mut(&mut self, index: u32) -> &mut Leaf<Q> {
        match &mut self.classes[index as usize].node {
            Node::Leaf(leaf) => leaf,
            Node::Inner(_) => unreachable!("an inner class has no queue"),
        }
    }

    fn feed_mut(&mut self, index: u32, priority: usize) -> &mut Ring {
        match &mut self.classes[index as usize].node {
            Node::Inner(feeds) => &mut feeds[priority],
            Node::Leaf(_) => unreachable!("a leaf has no children"),
        }
    }

    /// A leaf has packets again.
    fn activate(&mut self, leaf: u32) {
        self.classes[leaf as usize].activity = 1 << self.leaf_mut(leaf).priority;
        self.link(leaf);
    }

    /// A leaf has no packets any more.
    fn deactivate(&mut self, leaf: u32) {
        self.unlink(leaf);
        self.classes[leaf as usize].activity = 0;
    }

    /// An active class takes its place: in its level's rows, or at the parent it borrows from. A parent that becomes
    /// active by that takes its own.
    fn link(&mut self, index: u32) {
        let mut index = index;
        let mut activity = self.classes[index as usize].activity;
        while self.classes[index as usize].mode == Mode::MayBorrow && activity != 0 {
            let parent = self.classes[index as usize].parent;
            if parent == NONE {
                return;
            }
            let mut news = 0;
            for priority in bits(activity) {
                let feed = self.feed_mut(parent, priority);
                if feed.is_empty() {
                    news |= 1 << priority;
                }
                feed.insert(index);
            }
            self.classes[parent as usize].activity |= news;
            (index, activity) = (parent, news);
        }
        if self.classes[index as usize].mode == Mode::CanSend {
            let level = usize::from(self.classes[index as usize].level);
            for priority in bits(activity) {
                self.levels[level].rows[priority].insert(index);
            }
        }
    }

    /// Undoes [`link`](Self::link).
    fn unlink(&mut self, index: u32) {
        let mut index = index;
        let mut activity = self.classes[index as usize].activity;
        while self.classes[index as usize].mode == Mode::MayBorrow && activity != 0 {
            let parent = self.classes[index as usize].parent;
            if parent == NONE {
                return;
            }
            let mut ends = 0;
            for priority in bits(activity) {
                let feed = self.feed_mut(parent, priority);
                feed.remove_from_feed(index);
                if feed.is_empty() {
                    ends |= 1 << priority;
                }
            }
            self.classes[parent as usize].activity &= !ends;
            (index, activity) = (parent, ends);
        }
        if self.classes[index as usize].mode == Mode::CanSend {
            let level = usize::from(self.classes[index as usize].level);
            for priority in bits(activity) {
                self.levels[level].rows[priority].remove_from_row(index);
            }
        }
    }

    /// Brings a class's mode up to date, and the place where it is served. Answers with the time to the next change.
    fn update_mode(&mut self, index: u32, idle: i64) -> Nanos {
        let class = &mut self.classes[index as usize];
        let (mode, change) = class.mode_after(idle);
        if mode == class.mode {
            return change;
        }
        if mode == Mode::CantSend {
            class.counters.overlimits += 1;
        }
        if class.activity == 0 {
            class.mode = mode;
            return change;
        }
        self.unlink(index);
        self.classes[index as usize].mode = mode;
        self.link(index);
        change
    }

    /// Classes of a level whose time has come.
    fn run_events(&mut self, level: usize, now: Instant) {
        while let Some((time, index)) = self.levels[level].events.first() {
            if time > now {
                return;
            }
            self.levels[level].events.remove(time, index);
            let idle = self.classes[index as usize].idle(now);
            let change = self.update_mode(index, idle);
            if self.classes[index as usize].mode != Mode::CanSend {
                self.await_change(index, now, change);
            }
        }
    }

    fn await_change(&mut self, index: u32, now: Instant, change: Nanos) {
        let class = &mut self.classes[index as usize];
        class.event = now + change.max(Nanos(1));
        self.levels[usize::from(class.level)]
            .events
            .insert(class.event, index);
    }

    /// The next leaf at a level and priority where a class can send.
    fn select(&mut self, level: usize, priority: usize) -> u32 {
        let mut path = [Place::Row; LEVELS + 1];
        let mut depth = 0;
        // Each round goes down a stage, or up one and past a class.
        loop {
            let ring = self.ring(path[depth], level, priority);
            let current = ring.current();
            if current == NONE {
                ring.rewind();
                if depth > 0 {
                    depth -= 1;
                    self.ring(path[depth], level, priority).advance();
                }
            } else if self.is_leaf(current) {
                return current;
            } else {
                depth += 1;
                path[depth] = Place::Feed(current);
            }
        }
    }

    fn ring(&mut self, place: Place, level: usize, priority: usize) -> &mut Ring {
        match place {
            Place::Row => &mut self.levels[level].rows[priority],
            Place::Feed(class) => self.feed_mut(class, priority),
        }
    }

    /// Where a leaf that is served at `level` takes its turn.
    fn turn(&mut self, leaf: u32, level: usize, priority: usize) -> &mut Ring {
        match level {
            0 => &mut self.levels[0].rows[priority],
            _ => {
                let parent = self.classes[leaf as usize].parent;
                self.feed_mut(parent, priority)
            }
        }
    }

    /// A packet from one of the leaves that may send at a level and priority, if one of their queues gives one.
    fn serve(
        &mut self,
        level: usize,
        priority: usize,
        now: Instant,
        wake: &mut Option<Instant>,
        drops: &mut dyn Drops<P>,
    ) -> Option<P> {
        let mut leaf = self.select(level, priority);
        let mut first = leaf;
        // Every leaf is asked once; one that is struck off on the way may move the first.
        for _ in 0..=self.classes.len() {
            while self.leaf_mut(leaf).queue.backlog().packets == 0 {
                self.deactivate(leaf);
                if self.levels[level].rows[priority].is_empty() {
                    return None;
                }
                let next = self.select(level, priority);
                if leaf == first {
                    first = next;
                }
                leaf = next;
            }
            match self.take(leaf, now, drops) {
                Dequeued::Packet(packet) => {
                    self.account(leaf, level, priority, packet.len(), now);
                    return Some(packet);
                }
                Dequeued::NotBefore(time) => *wake = Some(wake.map_or(time, |wake| wake.min(time))),
                Dequeued::Empty => {}
            }
            self.turn(leaf, level, priority).advance();
            leaf = self.select(level, priority);
            if leaf == first {
                return None;
            }
        }
        None
    }

    /// Asks a leaf's queue.
    fn take(&mut self, index: u32, now: Instant, drops: &mut dyn Drops<P>) -> Dequeued<P> {
        let mut drops = Counted::new(drops);
        let queue = &mut self.leaf_mut(index).queue;
        let before = queue.backlog();
        let answer = queue.dequeue(now, &mut drops);
        let after = queue.backlog();
        self.backlog.packets -= before.packets - after.packets;
        self.backlog.bytes -= before.bytes - after.bytes;
        let class = &mut self.classes[index as usize];
        class.counters.dropped += drops.count();
        self.counters.dropped += drops.count();
        answer
    }

    fn active_leaves(&self) -> impl Iterator<Item = u32> {
        let is_active = |class: &Class<Q>| class.activity != 0 && class.level == 0;
        (0..)
            .zip(&self.classes)
            .filter(move |(_, class)| is_active(class))
            .map(|(index, _)| index)
    }

    /// When a leaf's class may send: once it is within its ceiling, and either within its rate or its parent may send. The
    /// kernel looks again at every event on the way; this is the one at which something leaves, unless the leaf's queue is
    /// a shaper too and not ready then.
    fn ready(&self, index: u32) -> Option<Instant> {
        let class = self.classes.get(index as usize)?;
        let positive = |bucket: &Bucket| class.checked + Nanos((-bucket.tokens).max(0).cast_unsigned());
        let own = positive(&class.rate);
        let paid = self.ready(class.parent).map_or(own, |parent| parent.min(own));
        Some(paid.max(positive(&class.ceil)))
    }

    /// A packet was taken from a leaf: whose turn is next, and who pays.
    fn account(&mut self, index: u32, level: usize, priority: usize, length: u32, now: Instant) {
        let quantum = self.classes[index as usize].quantum;
        let leaf = self.leaf_mut(index);
        let deficit = &mut leaf.deficit[level];
        *deficit = deficit.wrapping_sub(length.cast_signed());
        let is_over = *deficit < 0;
        if is_over {
            *deficit = deficit.wrapping_add(quantum.cast_signed());
        }
        let is_empty = leaf.queue.backlog().packets == 0;
        if is_over {
            self.turn(index, level, priority).advance();
        }
        if is_empty {
            self.deactivate(index);
        }
        self.charge(index, level, length, now);
        self.counters.sent(length);
    }

    fn charge(&mut self, leaf: u32, level: usize, length: u32, now: Instant) {
        let mut index = leaf;
        while index != NONE {
            let class = &mut self.classes[index as usize];
            let idle = class.idle(now);
            let own = usize::from(class.level);
            if own >= level {
                class.lends += u64::from(own == level);
                class.rate.fill(idle);
                class.rate.pay(length);
            } else {
                // Other classes pay for a borrowing class; its own tokens grow beyond its burst, as in Linux.
                class.borrows += 1;
                class.rate.tokens += idle;
            }
            class.ceil.fill(idle);
            class.ceil.pay(length);
            class.checked = class.checked.max(now);
            class.counters.sent(length);
            let (mode, event, parent) = (class.mode, class.event, class.parent);
            let change = self.update_mode(index, 0);
            let after = self.classes[index as usize].mode;
            if after != mode {
                if mode != Mode::CanSend {
                    self.levels[own].events.remove(event, index);
                }
                if after != Mode::CanSend {
                    self.await_change(index, now, change);
                }
            }
            index = parent;
        }
    }

    fn check_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let mut sum = self.direct.backlog();
        for class in &self.classes {
            if let Node::Leaf(leaf) = &class.node {
                let backlog = leaf.queue.backlog();
                sum.packets += backlog.packets;
                sum.bytes += backlog.bytes;
                assert!(
                    class.activity != 0 || backlog.packets == 0,
                    "a backlogged queue that is not scheduled"
                );
            }
        }
        assert_eq!(sum, self.backlog);
        for (level, of_level) in self.levels.iter().enumerate() {
            let waiting = self
                .classes
                .iter()
                .filter(|class| usize::from(class.level) == level && class.mode != Mode::CanSend);
            assert_eq!(waiting.count(), of_level.events.iter().count());
        }
    }
}

impl<P: Packet, Q: Qdisc<P>> Qdisc<P> for Htb<P, Q> {
    fn enqueue(&mut self, packet: P, now: Instant, drops: &mut dyn Drops<P>) {
        let mut drops = Counted::new(drops);
        if let Some(index) = self.classify(&packet) {
            let queue = &mut self.leaf_mut(index).queue;
            let before = queue.backlog();
            queue.enqueue(packet, now, &mut drops);
            let after = queue.backlog();
            self.backlog.packets = self.backlog.packets + after.packets - before.packets;
            self.backlog.bytes = self.backlog.bytes + after.bytes - before.bytes;
            let class = &mut self.classes[index as usize];
            class.counters.dropped += drops.count();
            match (class.activity != 0, after.packets > 0) {
                (false, true) => self.activate(index),
                (true, false) => self.deactivate(index),
                _ => {}
            }
        } else {
            let before = self.direct.backlog();
            self.direct.enqueue(packet, now, &mut drops);
            let after = self.direct.backlog();
            self.direct_packets += u64::from(after.packets - before.packets);
            self.backlog.packets += after.packets - before.packets;
            self.backlog.bytes += after.bytes - before.bytes;
        }
        self.counters.dropped += drops.count();
        self.check_invariants();
    }

    fn dequeue(&mut self, now: Instant, drops: &mut dyn Drops<P>) -> Dequeued<P> {
        if let Dequeued::Packet(packet) = self.direct.dequeue(now, drops) {
            self.backlog.packets -= 1;
            self.backlog.bytes -= u64::from(packet.len());
            self.counters.sent(packet.len());
            return Dequeued::Packet(packet);
        }
        if self.backlog.packets == 0 {
            return Dequeued::Empty;
        }
        self.now = self.now.max(now);
        let now = self.now;
        let mut wake = None;
        for level in 0..LEVELS {
            self.run_events(level, now);
            for priority in 0..PRIORITIES {
                if self.levels[level].rows[priority].is_empty() {
                    continue;
                }
                if let Some(packet) = self.serve(level, priority, now, &mut wake, drops) {
                    self.check_invariants();
                    return Dequeued::Packet(packet);
                }
            }
        }
        self.check_invariants();
        if self.backlog.packets == 0 {
            return Dequeued::Empty;
        }
        self.counters.overlimits += 1;
        // A class that may not send yet has an event, which lies ahead and is handled by then.
        let leaves = self.active_leaves().filter_map(|leaf| self.ready(leaf));
        let wake = leaves.filter(|&time| time > now).chain(wake).min();
        debug_assert!(wake.is_some(), "packets that nothing will release");
        Dequeued::NotBefore(wake.unwrap_or(now + Nanos(1)))
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }
}

impl Level {
    const fn new() -> Self {
        Self {
            rows: [const { Ring::new() }; PRIORITIES],
            events: Sorted::new(),
        }
    }
}

/// 0 for a leaf; else as far below 7 as there are classes above.
fn level_of(parents: &[u32], class: usize) -> u8 {
    if parents.iter().all(|&parent| parent as usize != class) {
        return 0;
    }
    let above = core::iter::successors(Some(class), |&class| match parents[class] {
        NONE => None,
        parent => Some(parent as usize),
    });
    let depth = above.take(LEVELS + 1).count();
    assert!(depth < LEVELS, "classes nest too deep");
    fits_u8((LEVELS - depth) as u64)
}

/// The numbers of the bits that are set.
fn bits(mask: u8) -> impl Iterator<Item = usize> {
    (0..PRIORITIES).filter(move |bit| mask & 1 << bit != 0)
}

#[cfg(test)]
mod tests;

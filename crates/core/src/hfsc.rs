//! HFSC, the hierarchical fair service curve (Stoica, Zhang and Ng 1997; Linux `sch_hfsc`).
//!
//! Classes form a tree; leaves hold the queues. A class has up to three curves of service over time:
//!
//! * real time (`rt`): a leaf is promised an amount of service by a deadline, and gets it whatever the classes above it allow;
//! * link share (`ls`): what is left is divided by virtual times, siblings against siblings, from the top down;
//! * upper limit (`ul`): link sharing passes over a class until its *fit time*.
//!
//! A curve's first piece may differ from the rest, so that delay is promised apart from rate.
//!
//! Kernel behaviour that surprises, kept as it is: real time ignores every upper limit; a packet that no class takes is
//! dropped; the upper limit's curve begins anew only when a class becomes active, so that after a late call a
//! class catches up in a burst; a class with `rt` alone that is given children shares by its `rt` curve.

mod curve;

use alloc::vec::Vec;

use crate::filter::Filters;
use crate::handle::Handle;
use crate::narrow::fits_u32;
use crate::packet::Packet;
use crate::qdisc::{Backlog, Counted, Counters, Dequeued, DropReason, Drops, Environment, Peek, Qdisc};
use crate::sorted::Sorted;
use crate::spec;
use crate::units::{Bytes, Instant};

use curve::{Curve, Shape};

/// A tick is 2^6 ns.
const TICK_SHIFT: u32 = 6;

/// The place of the discipline itself, above all classes.
const ROOT: u32 = 0;

/// No class.
const NONE: u32 = u32::MAX;

/// One HFSC over leaves `Q`.
#[derive(Debug)]
pub struct Hfsc<P, Q> {
    /// The discipline itself, then classes in order of their numbers.
    classes: Vec<Class<Q>>,
    /// Leaves with a promise to keep, by the time from which they may be served.
    eligible: Sorted<u64>,
    default: u32,
    filters: Filters,
    handle: u16,
    backlog: Backlog,
    counters: Counters,
    clock: u64,
    packets: core::marker::PhantomData<P>,
}

/// A class to be built.
#[derive(Clone, Debug)]
pub struct ClassSpec<Q> {
    /// Its number, the minor part of its handle.
    pub minor: u16,
    /// The class above; `None` is the top.
    pub parent: Option<u16>,
    /// Its parameters.
    pub spec: spec::HfscClass,
    /// The queue of a leaf; `None` for a class that has children.
    pub leaf: Option<Q>,
}

#[derive(Debug)]
struct Class<Q> {
    minor: u16,
    level: u8,
    parent: u32,
    queue: Option<Q>,
    counters: Counters,
    /// Bytes served.
    total: u64,
    /// Bytes of them served in real time.
    cumul: u64,
    promise: Option<Promise>,
    share: Option<Share>,
    cap: Option<Cap>,
    /// Earliest time at which a packet fits here and in some child.
    fit: u64,
    children: Children,
    /// Children with packets; of a leaf, whether it has any.
    active: u32,
}

/// The state of the real-time curve.
#[derive(Debug)]
struct Promise {
    shape: Shape,
    deadline_curve: Curve,
    eligible_curve: Curve,
    /// The time from which the next packet may be served.
    eligible: u64,
    /// The time by which it must be served.
    deadline: u64,
    is_listed: bool,
}

/// The state of the link-share curve.
#[derive(Debug)]
struct Share {
    shape: Shape,
    curve: Curve,
    virtual_time: u64,
    /// Added because the class was passed over while it did not fit.
    adjustment: u64,
    /// The parent's period in which it became active.
    parent_period: u32,
    is_listed: bool,
}

/// The state of the upper-limit curve.
#[derive(Debug)]
struct Cap {
    shape: Shape,
    curve: Curve,
    /// When the next packet fits.
    fit: u64,
}

/// The children of a class that have packets.
#[derive(Debug)]
struct Children {
    by_virtual_time: Sorted<u64>,
    by_fit: Sorted<u64>,
    /// Smallest fit time; 0 if there are none.
    least_fit: u64,
    /// Virtual time of the child that was served last: no child may fall behind it.
    least_virtual_time: u64,
    /// Largest virtual time of a child that became idle.
    last_virtual_time: u64,
    /// Times that the class became active.
    period: u32,
}

/// One class as it stands now (`tc -s class`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassStats {
    /// Its number, the minor part of its handle.
    pub minor: u16,
    /// The class above; `None` is the discipline itself.
    pub parent: Option<u16>,
    /// 0 for a leaf, else one more than the highest child's.
    pub level: u8,
    /// Times that it became active.
    pub period: u32,
    /// Bytes served in all.
    pub work: Bytes,
    /// Bytes served by the real-time curve.
    pub rt_work: Bytes,
    /// Packets sent and dropped.
    pub counters: Counters,
}

impl<P: Packet, Q: Peek<P>> Hfsc<P, Q> {
    /// Empty queues. The classes may come in any order, but each parent must be among them, and none below itself.
    ///
    /// # Panics
    ///
    /// If a class has children and a leaf's queue, or neither.
    pub fn new(
        spec: &spec::Hfsc,
        mut classes: Vec<ClassSpec<Q>>,
        filters: Filters,
        environment: &Environment,
    ) -> Self {
        classes.sort_by_key(|class| class.minor);
        let minors: Vec<u16> = classes.iter().map(|class| class.minor).collect();
        let index = |minor: u16| {
            minors
                .binary_search(&minor)
                .map_or(NONE, |index| fits_u32(index as u64) + 1)
        };
        let mut built = Vec::with_capacity(classes.len() + 1);
        built.push(Class::root());
        built.extend(classes.into_iter().map(|class| {
            let parent = class.parent.map_or(ROOT, index);
            Class::new(class, parent)
        }));
        set_levels(&mut built);
        // Room for every class on every list that it may be on, so that packets allocate nothing.
        for parent in 0..built.len() {
            let children = built.iter().skip(1);
            let children = children.filter(|class| class.parent as usize == parent).count();
            built[parent].children.by_virtual_time.expect(children);
            built[parent].children.by_fit.expect(children);
        }
        let mut eligible = Sorted::new();
        eligible.expect(built.len());
        Self {
            classes: built,
            eligible,
            default: u16::try_from(spec.default).map_or(NONE, index),
            filters,
            handle: environment.handle,
            backlog: Backlog::default(),
            counters: Counters::NONE,
            clock: 0,
            packets: core::marker::PhantomData,
        }
    }

    /// Another class for the packets that no class claims.
    pub fn set_default(&mut self, spec: &spec::Hfsc) {
        let minor = u16::try_from(spec.default).ok();
        let class =
            minor.and_then(|minor| self.classes.iter().skip(1).position(|class| class.minor == minor));
        self.default = class.map_or(NONE, |index| fits_u32(index as u64) + 1);
    }

    /// The counters that every discipline has; drops of the queues below included.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The queue of a leaf.
    pub fn leaf(&self, minor: u16) -> Option<&Q> {
        self.classes[self.index(minor)? as usize].queue.as_ref()
    }

    /// All classes in order of their numbers.
    pub fn classes(&self) -> impl Iterator<Item = ClassStats> {
        self.classes.iter().skip(1).map(|class| ClassStats {
            minor: class.minor,
            parent: Some(self.classes[class.parent as usize].minor).filter(|&minor| minor != 0),
            level: class.level,
            period: class.children.period,
            work: Bytes(class.total),
            rt_work: Bytes(class.cumul),
            counters: class.counters,
        })
    }

    fn index(&self, minor: u16) -> Option<u32> {
        let found = self.classes.binary_search_by_key(&minor, |class| class.minor);
        found
            .ok()
            .map(|index| fits_u32(index as u64))
            .filter(|&index| index != ROOT)
    }

    /// The leaf that takes a packet.
    fn classify(&self, packet: &P) -> Option<u32> {
        let is_leaf = |index: &u32| self.classes[*index as usize].queue.is_some();
        let chosen = Handle::from_bits(packet.priority());
        if chosen.major == self.handle
            && self.handle != 0
            && let Some(leaf) = self.index(chosen.minor).filter(is_leaf)
        {
            return Some(leaf);
        }
        let mut place = Handle::new(self.handle, 0);
        // A filter may choose an inner class, whose own filters go on.
        while let Some(class) = self.filters.class_of(packet, place) {
            match self.index(class.minor).filter(|_| class.major == self.handle) {
                Some(index) if is_leaf(&index) => return Some(index),
                // Only downwards, or two of them could send a packet in a circle.
                Some(index) if self.is_below(index, place) => place = class,
                _ => break,
            }
        }
        Some(self.default).filter(|&index| index != NONE).filter(is_leaf)
    }

    fn is_below(&self, index: u32, place: Handle) -> bool {
        let above = |&index: &u32| Some(self.classes[index as usize].parent).filter(|&parent| parent != NONE);
        core::iter::successors(Some(index), above)
            .skip(1)
            .any(|index| self.classes[index as usize].minor == place.minor)
    }

    /// The clock in ticks, which never goes back.
    fn advance(&mut self, now: Instant) -> u64 {
        self.clock = self.clock.max(now.0 >> TICK_SHIFT);
        self.clock
    }

    /// A leaf has packets again, the first of `length` bytes.
    fn activate(&mut self, index: u32, length: u32, now: u64) {
        let class = &mut self.classes[index as usize];
        if let Some(promise) = &mut class.promise {
            promise.deadline_curve.limit(&promise.shape, now, class.cumul);
            promise.eligible_curve = promise.deadline_curve.without_convex_start(&promise.shape);
            promise.eligible = promise.eligible_curve.time_of(class.cumul);
            promise.deadline = promise.deadline_curve.time_of(class.cumul + u64::from(length));
            promise.is_listed = true;
            self.eligible.insert(promise.eligible, index);
        }
        if class.share.is_some() {
            self.begin_sharing(index, now);
        }
    }

    /// Walks up from a leaf that became active: each class that becomes active by that joins its siblings.
    fn begin_sharing(&mut self, leaf: u32, now: u64) {
        let mut index = leaf;
        let mut becomes_active = true;
        while index != ROOT {
            let parent = self.classes[index as usize].parent;
            if becomes_active {
                let class = &mut self.classes[index as usize];
                becomes_active = class.active == 0;
                class.active += 1;
            }
            if becomes_active {
                self.join_siblings(index, parent, now);
            }
            self.refresh_fit(index, parent);
            index = parent;
        }
    }

    fn join_siblings(&mut self, index: u32, parent: u32, now: u64) {
        let (class, above) = pair(&mut self.classes, index, parent);
        let Some(share) = &mut class.share else { return };
        match above.children.by_virtual_time.last() {
            Some((largest, _)) => {
                let middle = match above.children.least_virtual_time {
                    0 => largest,
                    least => least.wrapping_add(largest) / 2,
                };
                // Within one period of the parent no virtual time goes back.
                if above.children.period != share.parent_period || middle > share.virtual_time {
                    share.virtual_time = middle;
                }
            }
            None => {
                share.virtual_time = above.children.last_virtual_time;
                above.children.least_virtual_time = 0;
            }
        }
        share.curve.limit(&share.shape, share.virtual_time, class.total);
        share.adjustment = 0;
        class.children.period = class.children.period.wrapping_add(1);
        share.parent_period = above.children.period;
        // The parent's own period begins after its child's.
        if above.active == 0 {
            share.parent_period = share.parent_period.wrapping_add(1);
        }
        class.fit = 0;
        share.is_listed = true;
        above.children.by_virtual_time.insert(share.virtual_time, index);
        above.children.by_fit.insert(class.fit, index);
        if let Some(cap) = &mut class.cap {
            cap.curve.limit(&cap.shape, now, class.total);
            cap.fit = cap.curve.time_of(class.total);
        }
    }

    /// A class fits when its own limit allows, and that of one of its children.
    fn refresh_fit(&mut self, index: u32, parent: u32) {
        let (class, above) = pair(&mut self.classes, index, parent);
        let own = class.cap.as_ref().map_or(0, |cap| cap.fit);
        let fit = own.max(class.children.least_fit);
        if fit != class.fit && class.share.as_ref().is_some_and(|share| share.is_listed) {
            above.children.by_fit.remove(class.fit, index);
            above.children.by_fit.insert(fit, index);
        }
        class.fit = fit;
        above.children.refresh_least_fit();
    }

    /// A leaf was served `length` bytes: everybody's virtual time from there upwards. An empty leaf goes to rest.
    fn charge(&mut self, leaf: u32, length: u32) {
        let mut rests = self.is_empty(leaf) && self.classes[leaf as usize].share.is_some();
        let mut index = leaf;
        while index != ROOT {
            let parent = self.classes[index as usize].parent;
            let (class, above) = pair(&mut self.classes, index, parent);
            class.total += u64::from(length);
            let at = index;
            index = parent;
            let Some(share) = &mut class.share else { continue };
            if class.active == 0 {
                continue;
            }
            if rests {
                class.active -= 1;
                rests = class.active == 0;
            }
            let before = share.virtual_time;
            share.virtual_time = share.curve.time_of(class.total).wrapping_add(share.adjustment);
            // It was passed over while it did not fit, and shall not make up for that.
            let least = above.children.least_virtual_time;
            if share.virtual_time < least {
                share.adjustment = share.adjustment.wrapping_add(least - share.virtual_time);
                share.virtual_time = least;
            }
            above.children.by_virtual_time.remove(before, at);
            if rests {
                let last = &mut above.children.last_virtual_time;
                *last = (*last).max(share.virtual_time);
                share.is_listed = false;
                above.children.by_fit.remove(class.fit, at);
                above.children.refresh_least_fit();
                continue;
            }
            above.children.by_virtual_time.insert(share.virtual_time, at);
            if let Some(cap) = &mut class.cap {
                cap.fit = cap.curve.time_of(class.total);
            }
            self.refresh_fit(at, parent);
        }
    }

    /// The leaf whose deadline is nearest, of those that may be served.
    fn most_urgent(&self, now: u64) -> Option<u32> {
        let deadline = |index: u32| {
            self.classes[index as usize]
                .promise
                .as_ref()
                .map(|promise| promise.deadline)
        };
        let eligible = self.eligible.iter().take_while(|&(time, _)| time <= now);
        eligible
            .map(|(_, index)| index)
            .min_by_key(|&index| deadline(index))
    }

    /// The leaf whose turn it is by virtual times.
    fn next_in_line(&mut self, now: u64) -> Option<u32> {
        let mut index = ROOT;
        if self.classes[ROOT as usize].children.least_fit > now {
            return None;
        }
        while self.classes[index as usize].queue.is_none() {
            let children = &self.classes[index as usize].children;
            let fits = |&(_, child): &(u64, u32)| self.classes[child as usize].fit <= now;
            let (virtual_time, child) = children.by_virtual_time.iter().find(fits)?;
            let children = &mut self.classes[index as usize].children;
            children.least_virtual_time = children.least_virtual_time.max(virtual_time);
            index = child;
        }
        Some(index)
    }

    /// A packet of a leaf's queue, and what follows from it.
    fn serve(
        &mut self,
        index: u32,
        in_real_time: bool,
        now: Instant,
        drops: &mut dyn Drops<P>,
    ) -> Dequeued<P> {
        let answer = self.ask(index, drops, |queue, drops| queue.dequeue(now, drops));
        let length = match &answer {
            Dequeued::Packet(packet) => packet.len(),
            Dequeued::NotBefore(_) => return answer,
            // Its AQM dropped the rest.
            Dequeued::Empty => 0,
        };
        let class = &mut self.classes[index as usize];
        if length > 0 {
            class.counters.sent(length);
            self.counters.sent(length);
        }
        self.charge(index, length);
        let class = &mut self.classes[index as usize];
        if in_real_time {
            class.cumul += u64::from(length);
        }
        if class.promise.is_some() {
            self.promise_next(index, in_real_time, now, drops);
        }
        answer
    }

    /// The promise for the packet that is first now.
    fn promise_next(&mut self, index: u32, in_real_time: bool, now: Instant, drops: &mut dyn Drops<P>) {
        let next = self.ask(index, drops, |queue, drops| queue.peek(now, drops));
        let class = &mut self.classes[index as usize];
        let Some(promise) = &mut class.promise else { return };
        let length = match next {
            Dequeued::Packet(length) => length,
            Dequeued::NotBefore(_) => 0,
            Dequeued::Empty => return self.rest(index),
        };
        promise.deadline = promise.deadline_curve.time_of(class.cumul + u64::from(length));
        if in_real_time {
            self.eligible.remove(promise.eligible, index);
            promise.eligible = promise.eligible_curve.time_of(class.cumul);
            self.eligible.insert(promise.eligible, index);
        }
    }

    /// A leaf's queue dropped its last packet on its own.
    fn rest(&mut self, index: u32) {
        let class = &mut self.classes[index as usize];
        if let Some(promise) = class.promise.as_mut().filter(|promise| promise.is_listed) {
            promise.is_listed = false;
            self.eligible.remove(promise.eligible, index);
        }
        if class.active > 0 {
            self.charge(index, 0);
        }
    }

    fn is_empty(&self, index: u32) -> bool {
        let queue = self.classes[index as usize].queue.as_ref();
        queue.is_none_or(|queue| queue.backlog().packets == 0)
    }

    /// Something is done with a leaf's queue, whose backlog and drops are counted.
    fn ask<T>(
        &mut self,
        index: u32,
        drops: &mut dyn Drops<P>,
        ask: impl FnOnce(&mut Q, &mut dyn Drops<P>) -> T,
    ) -> T {
        let class = &mut self.classes[index as usize];
        let Some(queue) = &mut class.queue else {
            unreachable!("an inner class has no queue");
        };
        let mut drops = Counted::new(drops);
        let before = queue.backlog();
        let answer = ask(queue, &mut drops);
        let after = queue.backlog();
        self.backlog.packets = self.backlog.packets + after.packets - before.packets;
        self.backlog.bytes = self.backlog.bytes + after.bytes - before.bytes;
        class.counters.dropped += drops.count();
        self.counters.dropped += drops.count();
        answer
    }

    fn check_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let mut sum = Backlog::default();
        for class in &self.classes {
            let Some(queue) = &class.queue else { continue };
            let backlog = queue.backlog();
            sum.packets += backlog.packets;
            sum.bytes += backlog.bytes;
            let is_listed = class.promise.as_ref().is_some_and(|promise| promise.is_listed)
                || class.share.as_ref().is_some_and(|share| share.is_listed);
            assert_eq!(is_listed, backlog.packets > 0, "class {:x}", class.minor);
        }
        assert_eq!(sum, self.backlog);
    }
}

impl<P: Packet, Q: Peek<P>> Qdisc<P> for Hfsc<P, Q> {
    fn enqueue(&mut self, packet: P, now: Instant, drops: &mut dyn Drops<P>) {
        let ticks = self.advance(now);
        let Some(index) = self.classify(&packet) else {
            self.counters.dropped += 1;
            return drops.dropped(packet, DropReason::Unclassified);
        };
        let length = packet.len();
        let was_empty = self.is_empty(index);
        self.ask(index, drops, |queue, drops| queue.enqueue(packet, now, drops));
        match (was_empty, self.is_empty(index)) {
            (true, false) => {
                self.activate(index, length, ticks);
                if self.classes[index as usize].promise.is_some() {
                    // The promise is for this very packet, whatever an AQM would drop later.
                    self.ask(index, drops, |queue, drops| queue.peek(now, drops));
                }
            }
            (false, true) => self.rest(index),
            _ => {}
        }
        self.check_invariants();
    }

    fn dequeue(&mut self, now: Instant, drops: &mut dyn Drops<P>) -> Dequeued<P> {
        let ticks = self.advance(now);
        // A queue whose AQM drops all it has gives the turn to another.
        while self.backlog.packets > 0 {
            let urgent = self.most_urgent(ticks);
            let Some(index) = urgent.or_else(|| self.next_in_line(ticks)) else {
                break;
            };
            let answer = self.serve(index, urgent.is_some(), now, drops);
            self.check_invariants();
            if !matches!(answer, Dequeued::Empty) {
                return answer;
            }
        }
        if self.backlog.packets == 0 {
            return Dequeued::Empty;
        }
        self.counters.overlimits += 1;
        let least_fit = self.classes[ROOT as usize].children.least_fit;
        let eligible = self.eligible.first().map(|(time, _)| time);
        let wake = eligible
            .into_iter()
            .chain(Some(least_fit).filter(|&fit| fit != 0))
            .min();
        debug_assert!(wake.is_some_and(|wake| wake > ticks), "{wake:?} at {ticks}");
        Dequeued::NotBefore(Instant(wake.unwrap_or(ticks + 1).saturating_mul(1 << TICK_SHIFT)))
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }
}

impl<Q> Class<Q> {
    /// The discipline itself.
    const fn root() -> Self {
        Self {
            minor: 0,
            level: 0,
            parent: NONE,
            queue: None,
            counters: Counters::NONE,
            total: 0,
            cumul: 0,
            promise: None,
            share: None,
            cap: None,
            fit: 0,
            children: Children::NONE,
            active: 0,
        }
    }

    fn new(class: ClassSpec<Q>, parent: u32) -> Self {
        let ClassSpec {
            minor, spec, leaf, ..
        } = class;
        let is_leaf = leaf.is_some();
        let promise = spec.rt.as_ref().filter(|_| is_leaf).map(|curve| {
            let shape = Shape::new(curve);
            let deadline_curve = Curve::new(shape);
            Promise {
                shape,
                deadline_curve,
                eligible_curve: deadline_curve.without_convex_start(&shape),
                eligible: 0,
                deadline: 0,
                is_listed: false,
            }
        });
        // A class above others cannot keep a promise, so the curve becomes its share.
        let share = spec.ls.as_ref().or_else(|| spec.rt.as_ref().filter(|_| !is_leaf));
        let share = share.map(|curve| {
            let shape = Shape::new(curve);
            Share {
                shape,
                curve: Curve::new(shape),
                virtual_time: 0,
                adjustment: 0,
                parent_period: 0,
                is_listed: false,
            }
        });
        let cap = spec.ul.as_ref().map(|curve| {
            let shape = Shape::new(curve);
            Cap {
                shape,
                curve: Curve::new(shape),
                fit: 0,
            }
        });
        Self {
            minor,
            parent,
            queue: leaf,
            promise,
            share,
            cap,
            ..Self::root()
        }
    }
}

impl Children {
    const NONE: Self = Self {
        by_virtual_time: Sorted::new(),
        by_fit: Sorted::new(),
        least_fit: 0,
        least_virtual_time: 0,
        last_virtual_time: 0,
        period: 0,
    };

    fn refresh_least_fit(&mut self) {
        self.least_fit = self.by_fit.first().map_or(0, |(fit, _)| fit);
    }
}

/// A class and its parent.
fn pair<Q>(classes: &mut [Class<Q>], index: u32, parent: u32) -> (&mut Class<Q>, &mut Class<Q>) {
    match classes.get_disjoint_mut([index as usize, parent as usize]) {
        Ok([class, parent]) => (class, parent),
        Err(_) => unreachable!("a class is not its own parent"),
    }
}

/// Leaves are at 0, every other class one above its highest child.
fn set_levels<Q>(classes: &mut [Class<Q>]) {
    for leaf in 1..classes.len() {
        let is_parent = classes.iter().any(|class| class.parent as usize == leaf);
        assert_eq!(
            classes[leaf].queue.is_some(),
            !is_parent,
            "leaves have queues, other classes have none"
        );
        if is_parent {
            continue;
        }
        let mut level = 0;
        let mut index = leaf;
        while classes[index].parent != NONE {
            index = classes[index].parent as usize;
            level += 1;
            classes[index].level = classes[index].level.max(level);
        }
    }
}

#[cfg(test)]
mod tests;

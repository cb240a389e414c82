//! Any discipline, chosen at run time.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::marker::PhantomData;

use super::description::{Below, BuildError, Description, Planned, PlannedClass};
use super::stats::{Details, NodeStats};
use crate::cake::Cake;
use crate::codel::Codel;
use crate::fifo::{Fifo, Limit};
use crate::flow_hash::HashKey;
use crate::fq_codel::FqCodel;
use crate::handle::Handle;
use crate::hfsc::{self, Hfsc};
use crate::htb::{self, Htb};
use crate::packet::Packet;
use crate::peekable::Peekable;
use crate::qdisc::{Backlog, Counters, Dequeued, Drops, Environment, Peek, Qdisc};
use crate::rng::{Random, Xorshift};
use crate::spec;
use crate::tbf::Tbf;
use crate::units::Instant;

/// A discipline with its handle.
#[derive(Debug)]
pub struct Node<P, R = Xorshift> {
    handle: Handle,
    queue: AnyQdisc<P, R>,
    random: PhantomData<R>,
}

/// `tbf` over any discipline.
pub type AnyTbf<P, R> = Peekable<P, Tbf<P, Node<P, R>>>;

/// `htb` over any disciplines.
pub type AnyHtb<P, R> = Peekable<P, Htb<P, Node<P, R>>>;

/// `hfsc` over any disciplines.
pub type AnyHfsc<P, R> = Peekable<P, Hfsc<P, Node<P, R>>>;

/// Any discipline.
#[derive(Debug)]
pub enum AnyQdisc<P, R = Xorshift> {
    /// `pfifo`, `bfifo` or `pfifo_head_drop`.
    Fifo(Box<Fifo<P>>),
    /// `codel`.
    Codel(Box<Codel<P>>),
    /// `fq_codel`.
    FqCodel(Box<FqCodel<P>>),
    /// `cake`.
    Cake(Box<Cake<P, R>>),
    /// `tbf`.
    Tbf(Box<AnyTbf<P, R>>),
    /// `htb`.
    Htb(Box<AnyHtb<P, R>>),
    /// `hfsc`.
    Hfsc(Box<AnyHfsc<P, R>>),
}

impl<P: Packet, R: Random> Node<P, R> {
    pub(super) fn build(
        planned: &Planned,
        environment: &Environment,
        random: &mut impl FnMut() -> R,
    ) -> Self {
        let environment = Environment {
            handle: planned.handle.major,
            ..*environment
        };
        let queue = AnyQdisc::build(planned, &environment, random);
        Self {
            handle: planned.handle,
            queue,
            random: PhantomData,
        }
    }

    /// The queue of a class or a shaper in which nothing hangs.
    fn own(limit: Limit) -> Self {
        Self {
            handle: Handle::new(0, 0),
            queue: AnyQdisc::Fifo(Box::new(Fifo::new(limit))),
            random: PhantomData,
        }
    }

    /// Its handle; `0:` where the queue is a class's own.
    pub const fn handle(&self) -> Handle {
        self.handle
    }

    /// The discipline.
    pub const fn queue(&self) -> &AnyQdisc<P, R> {
        &self.queue
    }

    pub(super) const fn queue_mut(&mut self) -> &mut AnyQdisc<P, R> {
        &mut self.queue
    }

    pub(super) fn collect(&self, parent: Option<Handle>, stats: &mut Vec<NodeStats>) {
        stats.push(NodeStats {
            handle: self.handle,
            parent,
            kind: self.queue.kind(),
            counters: *self.queue.counters(),
            backlog: self.queue.backlog(),
            details: self.queue.details(),
        });
        match &self.queue {
            AnyQdisc::Tbf(tbf) => tbf.queue().child().collect(Some(self.handle), stats),
            AnyQdisc::Htb(htb) => {
                for class in htb.queue().classes() {
                    let place = (class.minor, class.parent);
                    let leaf = htb.queue().leaf(class.minor);
                    self.collect_class(place, class.counters, Details::HtbClass(class), leaf, stats);
                }
            }
            AnyQdisc::Hfsc(hfsc) => {
                for class in hfsc.queue().classes() {
                    let place = (class.minor, class.parent);
                    let leaf = hfsc.queue().leaf(class.minor);
                    self.collect_class(place, class.counters, Details::HfscClass(class), leaf, stats);
                }
            }
            _ => {}
        }
    }
}

impl<P: Packet, R: Random> Node<P, R> {
    /// A class of this discipline, and what hangs in it.
    fn collect_class(
        &self,
        (minor, parent): (u16, Option<u16>),
        counters: Counters,
        details: Details,
        leaf: Option<&Self>,
        stats: &mut Vec<NodeStats>,
    ) {
        let handle = |minor| Handle::new(self.handle.major, minor);
        stats.push(NodeStats {
            handle: handle(minor),
            parent: Some(handle(parent.unwrap_or(0))),
            kind: self.queue.kind(),
            counters,
            backlog: leaf.map_or_else(Backlog::default, Qdisc::backlog),
            details,
        });
        if let Some(leaf) = leaf {
            leaf.collect(Some(handle(minor)), stats);
        }
    }
}

impl<P: Packet> AnyQdisc<P> {
    /// One discipline alone, which has no classes. The hash key seeds its randomness.
    pub fn new(spec: &spec::Qdisc, environment: &Environment) -> Result<Self, BuildError> {
        let plan = Description::single(spec.clone()).plan()?;
        let HashKey(one, other) = environment.hash_key;
        let random = &mut || Xorshift::new(one ^ other.rotate_left(32));
        Ok(Self::build(&plan.root, environment, random))
    }
}

impl<P: Packet, R: Random> AnyQdisc<P, R> {
    fn build(planned: &Planned, environment: &Environment, random: &mut impl FnMut() -> R) -> Self {
        let fifo = |limit| Self::Fifo(Box::new(Fifo::new(limit)));
        match (&planned.qdisc, &planned.below) {
            (spec::Qdisc::Pfifo(spec), _) => fifo(Limit::packets(*spec, environment)),
            (spec::Qdisc::Bfifo(spec), _) => fifo(Limit::bytes(*spec, environment)),
            (spec::Qdisc::PfifoHeadDrop(spec), _) => fifo(Limit::packets_head_drop(*spec, environment)),
            (spec::Qdisc::Codel(spec), _) => Self::Codel(Box::new(Codel::new(spec, environment))),
            (spec::Qdisc::FqCodel(spec), _) => Self::FqCodel(Box::new(FqCodel::new(spec, environment))),
            (spec::Qdisc::Cake(spec), _) => Self::Cake(Box::new(Cake::new(spec, environment, random()))),
            (spec::Qdisc::Tbf(spec), below) => {
                let child = match below {
                    Below::Queue(child) => Node::build(child, environment, random),
                    _ => Node::own(Limit::of_tbf(spec)),
                };
                Self::Tbf(Box::new(Peekable::new(Tbf::new(spec, child, environment))))
            }
            (spec::Qdisc::Htb(spec), Below::Classes(classes, filters)) => {
                let leaf = |class: &PlannedClass| leaf(class, environment, random);
                let classes = htb_classes(classes, leaf);
                let htb = Htb::new(spec, classes, filters.clone(), environment);
                Self::Htb(Box::new(Peekable::new(htb)))
            }
            (spec::Qdisc::Hfsc(spec), Below::Classes(classes, filters)) => {
                let leaf = |class: &PlannedClass| leaf(class, environment, random);
                let classes = hfsc_classes(classes, leaf);
                let hfsc = Hfsc::new(spec, classes, filters.clone(), environment);
                Self::Hfsc(Box::new(Peekable::new(hfsc)))
            }
            (other, _) => unreachable!("{} was refused", other.kind()),
        }
    }

    /// The name of its kind.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Fifo(fifo) => match fifo.limit() {
                Limit::Packets(_) => spec::fifo::PFIFO,
                Limit::Bytes(_) => spec::fifo::BFIFO,
                Limit::PacketsHeadDrop(_) => spec::fifo::PFIFO_HEAD_DROP,
            },
            Self::Codel(_) => spec::codel::KIND,
            Self::FqCodel(_) => spec::fq_codel::KIND,
            Self::Cake(_) => spec::cake::KIND,
            Self::Tbf(_) => spec::tbf::KIND,
            Self::Htb(_) => spec::htb::KIND,
            Self::Hfsc(_) => spec::hfsc::KIND,
        }
    }

    /// The counters that every discipline has.
    pub const fn counters(&self) -> &Counters {
        match self {
            Self::Fifo(fifo) => fifo.counters(),
            Self::Codel(codel) => codel.counters(),
            Self::FqCodel(fq_codel) => fq_codel.counters(),
            Self::Cake(cake) => cake.counters(),
            Self::Tbf(tbf) => tbf.queue().counters(),
            Self::Htb(htb) => htb.queue().counters(),
            Self::Hfsc(hfsc) => hfsc.queue().counters(),
        }
    }

    fn details(&self) -> Details {
        match self {
            Self::Fifo(_) => Details::Fifo,
            Self::Codel(codel) => Details::Codel {
                params: *codel.params(),
                state: *codel.state(),
                stats: *codel.stats(),
                drop_overlimit: codel.drop_overlimit(),
            },
            Self::FqCodel(fq_codel) => Details::FqCodel {
                params: *fq_codel.params(),
                stats: fq_codel.stats(),
                flows: fq_codel.flows().collect(),
            },
            Self::Cake(cake) => Details::Cake {
                stats: cake.stats(),
                queues: cake.queue_stats(),
            },
            Self::Tbf(tbf) => Details::Tbf(tbf.queue().stats()),
            Self::Htb(htb) => Details::Htb {
                direct_packets: htb.queue().direct_packets(),
            },
            Self::Hfsc(_) => Details::Hfsc,
        }
    }
}

/// The queue in a leaf class: what hangs there, or the kernel's own.
fn leaf<P: Packet, R: Random>(
    class: &PlannedClass,
    environment: &Environment,
    random: &mut impl FnMut() -> R,
) -> Option<Node<P, R>> {
    class.is_leaf.then(|| match &class.queue {
        Some(queue) => Node::build(queue, environment, random),
        None => Node::own(Limit::Packets(environment.tx_queue_len)),
    })
}

fn htb_classes<Q>(
    classes: &[PlannedClass],
    mut leaf: impl FnMut(&PlannedClass) -> Option<Q>,
) -> Vec<htb::ClassSpec<Q>> {
    let class = |class: &PlannedClass| htb::ClassSpec {
        minor: class.minor,
        parent: class.parent,
        spec: class.htb().clone(),
        leaf: leaf(class),
    };
    classes.iter().map(class).collect()
}

fn hfsc_classes<Q>(
    classes: &[PlannedClass],
    mut leaf: impl FnMut(&PlannedClass) -> Option<Q>,
) -> Vec<hfsc::ClassSpec<Q>> {
    let class = |class: &PlannedClass| hfsc::ClassSpec {
        minor: class.minor,
        parent: class.parent,
        spec: class.hfsc().clone(),
        leaf: leaf(class),
    };
    classes.iter().map(class).collect()
}

macro_rules! each {
    ($self:ident, $queue:ident => $call:expr) => {
        match $self {
            Self::Fifo($queue) => $call,
            Self::Codel($queue) => $call,
            Self::FqCodel($queue) => $call,
            Self::Cake($queue) => $call,
            Self::Tbf($queue) => $call,
            Self::Htb($queue) => $call,
            Self::Hfsc($queue) => $call,
        }
    };
}

impl<P: Packet, R: Random> Qdisc<P> for AnyQdisc<P, R> {
    #[inline]
    fn enqueue(&mut self, packet: P, now: Instant, drops: &mut dyn Drops<P>) {
        each!(self, queue => queue.enqueue(packet, now, drops));
    }

    #[inline]
    fn dequeue(&mut self, now: Instant, drops: &mut dyn Drops<P>) -> Dequeued<P> {
        each!(self, queue => queue.dequeue(now, drops))
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        each!(self, queue => queue.backlog())
    }
}

impl<P: Packet, R: Random> Peek<P> for AnyQdisc<P, R> {
    #[inline]
    fn peek(&mut self, now: Instant, drops: &mut dyn Drops<P>) -> Dequeued<u32> {
        each!(self, queue => queue.peek(now, drops))
    }
}

impl<P: Packet, R: Random> Qdisc<P> for Node<P, R> {
    #[inline]
    fn enqueue(&mut self, packet: P, now: Instant, drops: &mut dyn Drops<P>) {
        self.queue.enqueue(packet, now, drops);
    }

    #[inline]
    fn dequeue(&mut self, now: Instant, drops: &mut dyn Drops<P>) -> Dequeued<P> {
        self.queue.dequeue(now, drops)
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }
}

impl<P: Packet, R: Random> Peek<P> for Node<P, R> {
    #[inline]
    fn peek(&mut self, now: Instant, drops: &mut dyn Drops<P>) -> Dequeued<u32> {
        self.queue.peek(now, drops)
    }
}

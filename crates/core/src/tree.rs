//! Trees of queueing disciplines: from a description, which may be a list of `tc` commands, to a running [`Tree`].

use alloc::boxed::Box;

use crate::codel::Codel;
use crate::fifo::{Fifo, Limit};
use crate::fq_codel::FqCodel;
use crate::packet::Packet;
use crate::qdisc::{Backlog, Dequeued, Drops, Environment, Peek, Qdisc};
use crate::spec;
use crate::units::Instant;

/// Any discipline, chosen at run time.
#[derive(Debug)]
pub enum AnyQdisc<P> {
    /// `pfifo`, `bfifo` or `pfifo_head_drop`.
    Fifo(Box<Fifo<P>>),
    /// `codel`.
    Codel(Box<Codel<P>>),
    /// `fq_codel`.
    FqCodel(Box<FqCodel<P>>),
}

/// What cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// There is no such discipline here.
    NotBuilt(&'static str),
}

impl core::fmt::Display for BuildError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NotBuilt(kind) => write!(f, "{kind} is not one of the queues built in here"),
        }
    }
}

impl core::error::Error for BuildError {}

impl<P: Packet> AnyQdisc<P> {
    /// One discipline that has no classes.
    pub fn new(spec: &spec::Qdisc, environment: &Environment) -> Result<Self, BuildError> {
        let fifo = |limit| Self::Fifo(Box::new(Fifo::new(limit)));
        Ok(match spec {
            spec::Qdisc::Pfifo(spec) => fifo(Limit::packets(*spec, environment)),
            spec::Qdisc::Bfifo(spec) => fifo(Limit::bytes(*spec, environment)),
            spec::Qdisc::PfifoHeadDrop(spec) => fifo(Limit::packets_head_drop(*spec, environment)),
            spec::Qdisc::Codel(spec) => Self::Codel(Box::new(Codel::new(spec, environment))),
            spec::Qdisc::FqCodel(spec) => Self::FqCodel(Box::new(FqCodel::new(spec, environment))),
            other => return Err(BuildError::NotBuilt(other.kind())),
        })
    }
}

macro_rules! each {
    ($self:ident, $queue:ident => $call:expr) => {
        match $self {
            Self::Fifo($queue) => $call,
            Self::Codel($queue) => $call,
            Self::FqCodel($queue) => $call,
        }
    };
}

impl<P: Packet> Qdisc<P> for AnyQdisc<P> {
    fn enqueue(&mut self, packet: P, now: Instant, drops: &mut dyn Drops<P>) {
        each!(self, queue => queue.enqueue(packet, now, drops));
    }

    fn dequeue(&mut self, now: Instant, drops: &mut dyn Drops<P>) -> Dequeued<P> {
        each!(self, queue => queue.dequeue(now, drops))
    }

    fn backlog(&self) -> Backlog {
        each!(self, queue => queue.backlog())
    }
}

impl<P: Packet> Peek<P> for AnyQdisc<P> {
    fn peek(&mut self, now: Instant, drops: &mut dyn Drops<P>) -> Dequeued<u32> {
        each!(self, queue => queue.peek(now, drops))
    }
}

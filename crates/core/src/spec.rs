//! Specifications of queueing disciplines as typed data, with the `tc` words for them.
//!
//! A specification holds every parameter with its effective value: what `tc` leaves unsaid is filled with the
//! kernel's default here, so that two specifications can be compared field by field and the kernel's answer can
//! be compared with the plan. Words come in through `parse`, in `tc`'s order semantics (a later word wins), and go
//! out through `Display` in a canonical order that parses back to the same value.
//!
//! The grammar is iproute2's (`tc/q_cake.c`, `tc/q_fq_codel.c`, `tc/q_htb.c` and their neighbours), stricter in one
//! respect: a value that the kernel would refuse, bend or quietly leave out is an error here. What the kernel takes
//! from the device (its MTU, its queue length) stays `None`.

pub mod cake;
pub mod codel;
pub mod command;
pub mod fifo;
pub mod fq_codel;
pub mod hfsc;
pub mod htb;
pub mod pie;
pub mod sfq;
pub mod size_table;
pub mod tbf;
mod words;

use core::fmt;
use core::str::FromStr;

pub use hfsc::{Hfsc, HfscClass};
pub use htb::{Htb, HtbClass};
pub use size_table::{LinkLayer, Stab};
use words::Words;
pub use words::{ParseError, ParseErrorKind};

/// One queueing discipline with all its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Qdisc {
    /// Common Applications Kept Enhanced.
    Cake(cake::Cake),
    /// One CAKE for each transmit queue of the device, with one rate for all of them (Linux 7.0).
    CakeMq(cake::Cake),
    /// Flow Queue CoDel (RFC 8290).
    FqCodel(fq_codel::FqCodel),
    /// Controlled Delay on one queue (RFC 8289).
    Codel(codel::Codel),
    /// Proportional Integral controller Enhanced (RFC 8033).
    Pie(pie::Pie),
    /// Stochastic Fairness Queueing.
    Sfq(sfq::Sfq),
    /// First in, first out, limited in packets.
    Pfifo(fifo::Fifo),
    /// First in, first out, limited in bytes.
    Bfifo(fifo::Fifo),
    /// First in, first out, limited in packets; a full queue drops its oldest.
    PfifoHeadDrop(fifo::Fifo),
    /// Token bucket filter: a shaper without classes.
    Tbf(tbf::Tbf),
    /// Hierarchical token bucket: the root that carries [`HtbClass`]es.
    Htb(Htb),
    /// Hierarchical fair service curve: the root that carries [`HfscClass`]es.
    Hfsc(Hfsc),
}

/// Every kind, for suggestions.
const KINDS: [&str; 12] = [
    cake::KIND,
    cake::KIND_MQ,
    fq_codel::KIND,
    codel::KIND,
    pie::KIND,
    sfq::KIND,
    fifo::PFIFO,
    fifo::BFIFO,
    fifo::PFIFO_HEAD_DROP,
    tbf::KIND,
    htb::KIND,
    hfsc::KIND,
];

impl Qdisc {
    /// Reads a whole specification, its kind first: `cake bandwidth 20mbit nat`.
    ///
    /// ```
    /// use sqm_core::spec::Qdisc;
    ///
    /// let qdisc = Qdisc::parse("cake bandwidth 20mbit nat").unwrap();
    /// assert!(qdisc.to_string().starts_with("cake bandwidth 20mbit diffserv3 triple-isolate nat"));
    ///
    /// let error = Qdisc::parse("cake besteffrot").unwrap_err();
    /// assert_eq!(error.position, 5);
    /// assert_eq!(error.to_string(), "unknown cake keyword 'besteffrot'; did you mean 'besteffort'?");
    /// ```
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Self::read(Words::of(text))
    }

    fn read(mut words: Words<'_>) -> Result<Self, ParseError> {
        let Some(kind) = words.next() else {
            return Err(words.at_end(ParseErrorKind::UnknownQdisc));
        };
        Ok(match kind.text {
            cake::KIND => {
                let mut cake = cake::Cake::default();
                cake.read(words.within(cake::KIND))?;
                Self::Cake(cake)
            }
            cake::KIND_MQ => {
                let mut cake = cake::Cake::default();
                cake.read(words.within(cake::KIND_MQ))?;
                Self::CakeMq(cake)
            }
            fq_codel::KIND => {
                let mut fq_codel = fq_codel::FqCodel::default();
                fq_codel.read(words.within(fq_codel::KIND))?;
                Self::FqCodel(fq_codel)
            }
            codel::KIND => {
                let mut codel = codel::Codel::default();
                codel.read(words.within(codel::KIND))?;
                Self::Codel(codel)
            }
            pie::KIND => {
                let mut pie = pie::Pie::default();
                pie.read(words.within(pie::KIND))?;
                Self::Pie(pie)
            }
            sfq::KIND => {
                let mut sfq = sfq::Sfq::default();
                sfq.read(words.within(sfq::KIND))?;
                Self::Sfq(sfq)
            }
            fifo::PFIFO => Self::Pfifo(fifo::Fifo::read(words.within(fifo::PFIFO))?),
            fifo::BFIFO => Self::Bfifo(fifo::Fifo::read_bytes(words.within(fifo::BFIFO))?),
            fifo::PFIFO_HEAD_DROP => {
                Self::PfifoHeadDrop(fifo::Fifo::read(words.within(fifo::PFIFO_HEAD_DROP))?)
            }
            tbf::KIND => Self::Tbf(tbf::Tbf::read(words.within(tbf::KIND))?),
            htb::KIND => Self::Htb(Htb::read(words.within(htb::KIND))?),
            hfsc::KIND => Self::Hfsc(Hfsc::read(words.within(hfsc::KIND))?),
            _ => return Err(words.unknown(kind, ParseErrorKind::UnknownQdisc, KINDS.into_iter())),
        })
    }

    /// Lets the words of `text` change the parameters, as if they stood at the end of the same command. Shapers with
    /// classes, and TBF, take none: their numbers belong together.
    ///
    /// On an error the parameters are as they were.
    pub fn apply(&mut self, text: &str) -> Result<(), ParseError> {
        match self {
            Self::Cake(cake) | Self::CakeMq(cake) => cake.apply(text),
            Self::FqCodel(fq_codel) => fq_codel.apply(text),
            Self::Codel(codel) => codel.apply(text),
            Self::Pie(pie) => pie.apply(text),
            Self::Sfq(sfq) => sfq.apply(text),
            Self::Pfifo(fifo) => fifo.apply(Words::of(text).within(fifo::PFIFO)),
            Self::PfifoHeadDrop(fifo) => fifo.apply(Words::of(text).within(fifo::PFIFO_HEAD_DROP)),
            Self::Bfifo(fifo) => fifo.apply_bytes(Words::of(text).within(fifo::BFIFO)),
            Self::Tbf(_) | Self::Htb(_) | Self::Hfsc(_) => {
                let kind = self.kind();
                let mut words = Words::of(text).within(kind);
                words.next().map_or(Ok(()), |word| {
                    Err(words.unknown(word, ParseErrorKind::UnknownWord, core::iter::empty()))
                })
            }
        }
    }

    /// The name by which the kernel knows the kind: `cake`, `fq_codel`, `htb`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Cake(_) => cake::KIND,
            Self::CakeMq(_) => cake::KIND_MQ,
            Self::FqCodel(_) => fq_codel::KIND,
            Self::Codel(_) => codel::KIND,
            Self::Pie(_) => pie::KIND,
            Self::Sfq(_) => sfq::KIND,
            Self::Pfifo(_) => fifo::PFIFO,
            Self::Bfifo(_) => fifo::BFIFO,
            Self::PfifoHeadDrop(_) => fifo::PFIFO_HEAD_DROP,
            Self::Tbf(_) => tbf::KIND,
            Self::Htb(_) => htb::KIND,
            Self::Hfsc(_) => hfsc::KIND,
        }
    }
}

impl FromStr for Qdisc {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::parse(text)
    }
}

impl fmt::Display for Qdisc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cake(cake) | Self::CakeMq(cake) => cake.print(f, self.kind()),
            Self::FqCodel(fq_codel) => fq_codel.fmt(f),
            Self::Codel(codel) => codel.fmt(f),
            Self::Pie(pie) => pie.fmt(f),
            Self::Sfq(sfq) => sfq.fmt(f),
            Self::Pfifo(fifo) | Self::PfifoHeadDrop(fifo) => fifo.print(f, self.kind(), ""),
            Self::Bfifo(fifo) => fifo.print(f, self.kind(), "b"),
            Self::Tbf(tbf) => tbf.fmt(f),
            Self::Htb(htb) => htb.fmt(f),
            Self::Hfsc(hfsc) => hfsc.fmt(f),
        }
    }
}

/// One class, of whichever hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Class {
    /// Below [`Htb`].
    Htb(HtbClass),
    /// Below [`Hfsc`].
    Hfsc(HfscClass),
}

impl Class {
    /// The name of its qdisc's kind.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Htb(_) => htb::KIND,
            Self::Hfsc(_) => hfsc::KIND,
        }
    }
}

/// Prints the kind, then the words after it.
impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind())?;
        match self {
            Self::Htb(class) => class.fmt(f),
            Self::Hfsc(class) => class.fmt(f),
        }
    }
}

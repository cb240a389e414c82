//! What a queueing discipline is asked to be, as typed data, with the `tc` words for it.
//!
//! A specification holds every parameter with its effective value: what `tc` leaves unsaid is filled with the
//! kernel's default here, so that two specifications can be compared field by field and the kernel's answer can
//! be compared with the plan. Words come in through `parse`, in `tc`'s order semantics (a later word wins), and go
//! out through `Display` in a canonical order that parses back to the same value.
//!
//! The grammar is iproute2's (`tc/q_cake.c`, `tc/q_fq_codel.c`, `tc/q_htb.c`), stricter in one respect: a value
//! that the kernel would refuse, bend or quietly leave out is an error here.

pub mod cake;
pub mod fq_codel;
mod words;

use core::fmt;
use core::str::FromStr;

use words::Words;
pub use words::{ParseError, ParseErrorKind};

/// One queueing discipline with all its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Qdisc {
    /// Common Applications Kept Enhanced.
    Cake(cake::Cake),
    /// Flow Queue CoDel (RFC 8290).
    FqCodel(fq_codel::FqCodel),
    /// Hierarchical token bucket: the root that carries [`HtbClass`]es.
    Htb(Htb),
}

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
        let mut words = Words::of(text);
        let Some(kind) = words.next() else {
            return Err(words.nothing());
        };
        match kind.text {
            cake::KIND => {
                let mut cake = cake::Cake::default();
                cake.read(words.within(cake::KIND))?;
                Ok(Self::Cake(cake))
            }
            fq_codel::KIND => {
                let mut fq_codel = fq_codel::FqCodel::default();
                fq_codel.read(words.within(fq_codel::KIND))?;
                Ok(Self::FqCodel(fq_codel))
            }
            Htb::KIND => Ok(Self::Htb(Htb::read(words.within(Htb::KIND))?)),
            _ => {
                let known = [cake::KIND, fq_codel::KIND, Htb::KIND];
                Err(words.unknown(kind, ParseErrorKind::UnknownQdisc, known.into_iter()))
            }
        }
    }

    /// The name by which the kernel knows the kind: `cake`, `fq_codel`, `htb`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Cake(_) => cake::KIND,
            Self::FqCodel(_) => fq_codel::KIND,
            Self::Htb(_) => Htb::KIND,
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
            Self::Cake(cake) => cake.fmt(f),
            Self::FqCodel(fq_codel) => fq_codel.fmt(f),
            Self::Htb(htb) => htb.fmt(f),
        }
    }
}

/// The root of an HTB hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Htb {
    /// Minor number of the class that takes unclassified packets (`default 10` is class `1:10`, hexadecimal).
    pub default: u32,
}

impl Htb {
    const KIND: &str = "htb";

    fn read(mut words: Words<'_>) -> Result<Self, ParseError> {
        const EXPECTED: &str = "a class's minor number in hexadecimal, such as 10";
        let mut htb = Self { default: 0 };
        while let Some(word) = words.next() {
            if word.text != "default" {
                return Err(words.unknown(word, ParseErrorKind::UnknownWord, ["default"].into_iter()));
            }
            let value = words.value(word, EXPECTED)?;
            let digits = value.text.strip_prefix("0x").unwrap_or(value.text);
            // Minor numbers have 16 bits; a sign, which the standard library would take, is no digit.
            let number = u16::from_str_radix(digits, 16)
                .ok()
                .filter(|_| !digits.starts_with('+'));
            htb.default = number.map(u32::from).ok_or_else(|| {
                words.error(
                    value,
                    ParseErrorKind::BadValue {
                        keyword: "default",
                        expected: EXPECTED,
                    },
                )
            })?;
        }
        Ok(htb)
    }
}

impl fmt::Display for Htb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} default {:x}", Self::KIND, self.default)
    }
}

/// One HTB class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HtbClass {
    /// Guaranteed rate.
    pub rate: crate::units::Rate,
    /// Rate up to which it may borrow.
    pub ceil: crate::units::Rate,
    /// Priority among siblings that borrow; lower goes first.
    pub prio: u32,
    /// Bytes served per round when borrowing.
    pub quantum: u32,
    /// Bytes that may leave at once at `rate`.
    pub burst: crate::units::Bytes,
    /// Bytes that may leave at once at `ceil`.
    pub cburst: crate::units::Bytes,
}

/// A size table on a root qdisc (`tc-stab`): how many bytes a packet really costs on the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stab {
    /// Largest packet the table covers, bytes.
    pub mtu: u32,
    /// Entries in the table.
    pub tsize: u32,
    /// Least size a packet is counted with, bytes.
    pub mpu: u32,
    /// Bytes added to each packet, on top of the length the kernel knows.
    pub overhead: i32,
    /// Cell framing of the line.
    pub linklayer: LinkLayer,
}

/// The cell framing that a size table or an HTB class can express.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// Whole packets.
    Ethernet,
    /// 48 bytes of payload in 53-byte cells.
    Atm,
}

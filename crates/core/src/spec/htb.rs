//! HTB's parameters and their `tc` words (`sch_htb.c`; iproute2 `tc/q_htb.c`).

use core::fmt;

use super::size_table::RateFraming;
use super::words::{ParseError, ParseErrorKind, Words};
use crate::units::{Bytes, Rate};

/// The kernel's name for it.
pub(crate) const KIND: &str = "htb";

/// The bytes that `tc` adds to a burst that is not given.
const MTU: u64 = 1600;

/// The root of an HTB hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Htb {
    /// Minor number of the class that takes unclassified packets (`default 10` is class `1:10`, hexadecimal). With 0,
    /// or a class that is not there, they pass unshaped.
    pub default: u32,
    /// Divisor of a class's rate for a quantum that is not given.
    pub r2q: u32,
    /// Packets held of those that pass unshaped; `None` is the device's queue length.
    pub direct_qlen: Option<u32>,
}

impl Default for Htb {
    fn default() -> Self {
        Self {
            default: 0,
            r2q: 10,
            direct_qlen: None,
        }
    }
}

impl Htb {
    /// An HTB whose unclassified packets go to this class.
    pub fn with_default(minor: u16) -> Self {
        Self {
            default: minor.into(),
            ..Self::default()
        }
    }

    pub(super) fn read(mut words: Words<'_>) -> Result<Self, ParseError> {
        const KEYWORDS: [&str; 3] = ["default", "r2q", "direct_qlen"];
        let mut htb = Self::default();
        while let Some(word) = words.next() {
            match word.text {
                "default" => htb.default = words.minor(word, "default")?,
                "r2q" => htb.r2q = words.number(word, "r2q", 1..=u32::MAX.into())?,
                "direct_qlen" => {
                    htb.direct_qlen = Some(words.number(word, "direct_qlen", 0..=u32::MAX.into())?);
                }
                _ => return Err(words.unknown(word, ParseErrorKind::UnknownWord, KEYWORDS.into_iter())),
            }
        }
        Ok(htb)
    }
}

impl fmt::Display for Htb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{KIND} default {:x}", self.default)?;
        if self.r2q != Self::default().r2q {
            write!(f, " r2q {}", self.r2q)?;
        }
        match self.direct_qlen {
            Some(limit) => write!(f, " direct_qlen {limit}"),
            None => Ok(()),
        }
    }
}

/// One HTB class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HtbClass {
    /// Guaranteed rate.
    pub rate: Rate,
    /// Rate up to which it may borrow.
    pub ceil: Rate,
    /// Priority among siblings that borrow, 0 to 7; lower goes first.
    pub prio: u32,
    /// Bytes served per round when borrowing; `None` is what the rate passes in a second divided by the root's
    /// `r2q`, within 1000 and 200000.
    pub quantum: Option<u32>,
    /// Bytes that may leave at once at `rate`.
    pub burst: Bytes,
    /// Bytes that may leave at once at `ceil`.
    pub cburst: Bytes,
    /// The framing of a packet.
    pub framing: RateFraming,
}

impl HtbClass {
    /// Reads the words after `htb` of a `tc class add` command.
    ///
    /// ```
    /// use sqm_core::spec::HtbClass;
    ///
    /// let class = HtbClass::parse("rate 1mbit ceil 2mbit prio 1").unwrap();
    /// assert_eq!(class.to_string(), "rate 1mbit ceil 2mbit prio 1 burst 1600b cburst 1600b");
    /// ```
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Self::read(Words::of(text))
    }

    pub(super) fn read(words: Words<'_>) -> Result<Self, ParseError> {
        let mut words = words.within(KIND);
        let (mut rate, mut ceil, mut quantum, mut prio) = (None, None, None, 0);
        let (mut burst, mut cburst, mut mtu) = (None, None, MTU);
        let mut framing = RateFraming::default();
        while let Some(word) = words.next() {
            match word.text {
                "rate" => {
                    words.once(rate.as_ref(), word)?;
                    rate = Some(words.shaped_rate(word, "rate")?);
                }
                "ceil" => {
                    words.once(ceil.as_ref(), word)?;
                    ceil = Some(words.shaped_rate(word, "ceil")?);
                }
                "burst" | "buffer" | "maxburst" => burst = Some(words.size(word, "burst")?),
                "cburst" | "cbuffer" | "cmaxburst" => cburst = Some(words.size(word, "cburst")?),
                // The kernel lowers more to 7 without a word.
                "prio" => prio = words.number(word, "prio", 0..=7)?,
                "quantum" => quantum = Some(words.number(word, "quantum", 1..=u32::MAX.into())?),
                "mtu" => mtu = words.number(word, "mtu", 0..=u32::MAX.into())?,
                _ if framing.read(&mut words, word)? => {}
                _ => {
                    let known = KEYWORDS.into_iter().chain(RateFraming::KEYWORDS);
                    return Err(words.unknown(word, ParseErrorKind::UnknownWord, known));
                }
            }
        }
        let missing = "'rate'";
        let rate = rate.ok_or_else(|| words.at_end(ParseErrorKind::Incomplete { missing }))?;
        let ceil = ceil.unwrap_or(rate);
        // With high-resolution timers the kernel's clock ticks every nanosecond, and what a rate passes in a tick is
        // less than a byte up to 8 Gbit/s.
        let default = |rate: Rate| Bytes(rate.bytes_per_sec() / 1_000_000_000 + mtu);
        Ok(Self {
            rate,
            ceil,
            prio,
            quantum,
            burst: burst.unwrap_or_else(|| default(rate)),
            cburst: cburst.unwrap_or_else(|| default(ceil)),
            framing,
        })
    }
}

/// Prints the words after `htb`.
impl fmt::Display for HtbClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rate,
            ceil,
            prio,
            quantum,
            burst,
            cburst,
            framing,
        } = self;
        write!(f, "rate {rate} ceil {ceil} prio {prio} ")?;
        if let Some(quantum) = quantum {
            write!(f, "quantum {quantum} ")?;
        }
        write!(f, "burst {burst} cburst {cburst}{framing}")
    }
}

/// Every keyword of a class, for suggestions.
const KEYWORDS: [&str; 11] = [
    "rate",
    "ceil",
    "burst",
    "buffer",
    "maxburst",
    "cburst",
    "cbuffer",
    "cmaxburst",
    "prio",
    "quantum",
    "mtu",
];

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use proptest::prelude::*;

    use super::*;
    use crate::spec::{LinkLayer, Qdisc};

    #[test]
    fn a_class_has_its_defaults() {
        let class = HtbClass::parse("rate 8mbit").unwrap();
        let rate = Rate::from_kbits_per_sec(8000);
        let expected = HtbClass {
            rate,
            ceil: rate,
            prio: 0,
            quantum: None,
            burst: Bytes(1600),
            cburst: Bytes(1600),
            framing: RateFraming::default(),
        };
        assert_eq!(class, expected);
        let words = "rate 24gbit ceil 40gbit burst 15k mtu 9000 overhead 40 mpu 64 linklayer atm";
        let class = HtbClass::parse(words).unwrap();
        assert_eq!((class.burst, class.cburst), (Bytes(15 << 10), Bytes(9005)));
        let framing = RateFraming {
            overhead: 40,
            mpu: 64,
            linklayer: LinkLayer::Atm,
        };
        assert_eq!(class.framing, framing);
    }

    #[test]
    fn errors_name_the_word() {
        for (text, message) in [
            ("", "htb needs 'rate'"),
            ("ceil 1mbit", "htb needs 'rate'"),
            ("rate 1mbit rate 2mbit", "htb: the word stands twice"),
            ("rate 1mbit ceil 2mbit ceil 3mbit", "htb: the word stands twice"),
            ("rate 0", "htb keyword 'rate' takes 8bit and more, not '0'"),
            ("rate 1mbit prio 8", "htb keyword 'prio' takes 0 to 7, not '8'"),
            (
                "rate 1mbit overhead -4",
                "htb keyword 'overhead' takes 0 to 65535, not '-4'",
            ),
            (
                "rate 1mbit ciel 1mbit",
                "unknown htb keyword 'ciel'; did you mean 'ceil'?",
            ),
        ] {
            assert_eq!(HtbClass::parse(text).unwrap_err().to_string(), message);
        }
        for (text, message) in [
            (
                "htb default",
                "htb keyword 'default' needs a class's minor number in hexadecimal, such as 10",
            ),
            ("htb r2q 0", "htb keyword 'r2q' takes 1 to 4294967295, not '0'"),
        ] {
            assert_eq!(Qdisc::parse(text).unwrap_err().to_string(), message);
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(
            (rate, ceil) in (8..u64::MAX, 8..u64::MAX),
            (prio, quantum) in (0..8u32, proptest::option::of(1..=u32::MAX)),
            (burst, cburst) in any::<(u32, u32)>(),
            (overhead, mpu, atm) in any::<(u16, u16, bool)>(),
        ) {
            let class = HtbClass {
                rate: Rate::from_bits_per_sec(rate),
                ceil: Rate::from_bits_per_sec(ceil),
                prio, quantum,
                burst: Bytes(burst.into()),
                cburst: Bytes(cburst.into()),
                framing: RateFraming {
                    overhead, mpu,
                    linklayer: if atm { LinkLayer::Atm } else { LinkLayer::Ethernet },
                },
            };
            prop_assert_eq!(HtbClass::parse(&class.to_string()), Ok(class));
        }

        #[test]
        fn a_root_is_read_back(default: u16, r2q in 1..=u32::MAX, direct_qlen: Option<u32>) {
            let htb = Htb { default: default.into(), r2q, direct_qlen };
            prop_assert_eq!(Qdisc::parse(&htb.to_string()), Ok(Qdisc::Htb(htb)));
        }
    }
}

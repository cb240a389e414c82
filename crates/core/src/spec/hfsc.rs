//! HFSC's parameters and their `tc` words (`sch_hfsc.c`; iproute2 `tc/q_hfsc.c`).

use core::fmt;

use super::words::{ParseError, ParseErrorKind, Word, Words};
use crate::units::{Nanos, Rate};

/// The kernel's name for it.
pub(crate) const KIND: &str = "hfsc";

/// The kernel keeps a slope in 32 bits of bytes per second.
const SLOPE_MAX: u64 = u32::MAX as u64;

/// The root of an HFSC hierarchy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hfsc {
    /// Minor number of the class that takes unclassified packets. With 0, or a class that is not there, they are
    /// dropped.
    pub default: u32,
}

impl Hfsc {
    /// Reads the words after `hfsc`.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Self::read(Words::of(text).within(KIND))
    }

    pub(super) fn read(mut words: Words<'_>) -> Result<Self, ParseError> {
        let mut hfsc = Self::default();
        while let Some(word) = words.next() {
            match word.text {
                "default" => hfsc.default = words.minor(word, "default")?,
                _ => return Err(words.unknown(word, ParseErrorKind::UnknownWord, ["default"].into_iter())),
            }
        }
        Ok(hfsc)
    }
}

impl fmt::Display for Hfsc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{KIND} default {:x}", self.default)
    }
}

/// One HFSC class: up to three service curves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HfscClass {
    /// `rt`: what it is guaranteed, whatever the classes above allow.
    pub rt: Option<Curve>,
    /// `ls`: its share of what is left.
    pub ls: Option<Curve>,
    /// `ul`: what it never exceeds by its share.
    pub ul: Option<Curve>,
}

/// A service curve of two pieces: slope `m1` for the first `d`, `m2` from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Curve {
    /// First slope; 0 in a curve of one piece.
    pub m1: Rate,
    /// How long the first slope lasts; 0 in a curve of one piece.
    pub d: Nanos,
    /// Last slope.
    pub m2: Rate,
}

impl Curve {
    /// A curve of one piece.
    pub const fn linear(rate: Rate) -> Self {
        Self {
            m1: Rate::from_bits_per_sec(0),
            d: Nanos(0),
            m2: rate,
        }
    }
}

impl HfscClass {
    /// Reads the words after `hfsc` of a `tc class add` command. `sc` is `rt` and `ls` at once. A curve is `m1 RATE d
    /// TIME m2 RATE`, where all but the last may be left out, or `umax SIZE dmax TIME rate RATE`: a packet of `umax`
    /// leaves within `dmax`.
    ///
    /// ```
    /// use sqm_core::spec::HfscClass;
    ///
    /// let class = HfscClass::parse("sc rate 1mbit ul m2 2mbit").unwrap();
    /// assert_eq!(class.to_string(), "rt m2 1mbit ls m2 1mbit ul m2 2mbit");
    /// ```
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Self::read(Words::of(text))
    }

    pub(super) fn read(words: Words<'_>) -> Result<Self, ParseError> {
        let mut words = words.within(KIND);
        let (mut rt, mut ls, mut ul) = (None, None, None);
        while let Some(word) = words.next() {
            match word.text {
                "rt" => rt = Some(curve(&mut words, word)?),
                "ls" => ls = Some(curve(&mut words, word)?),
                "ul" => ul = Some(curve(&mut words, word)?),
                "sc" => {
                    rt = Some(curve(&mut words, word)?);
                    ls = rt;
                }
                _ => {
                    let known = ["rt", "ls", "sc", "ul", "m1", "d", "m2", "umax", "dmax", "rate"];
                    return Err(words.unknown(word, ParseErrorKind::UnknownWord, known.into_iter()));
                }
            }
        }
        if rt.is_none() && ls.is_none() {
            let missing = "'rt', 'ls' or 'sc'";
            return Err(words.at_end(ParseErrorKind::Incomplete { missing }));
        }
        if ul.is_some() && ls.is_none() {
            let reason = "'ul' limits a link share, but there is no 'ls' or 'sc'";
            return Err(words.at_end(ParseErrorKind::Contradiction { reason }));
        }
        Ok(Self { rt, ls, ul })
    }
}

/// Prints the words after `hfsc`.
impl fmt::Display for HfscClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let curves = [("rt", self.rt), ("ls", self.ls), ("ul", self.ul)];
        let mut blank = "";
        for (name, curve) in curves.iter().filter_map(|(name, c)| c.map(|c| (name, c))) {
            write!(f, "{blank}{name} {curve}")?;
            blank = " ";
        }
        Ok(())
    }
}

impl fmt::Display for Curve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self != Self::linear(self.m2) {
            write!(f, "m1 {} d {} ", self.m1, self.d)?;
        }
        write!(f, "m2 {}", self.m2)
    }
}

fn curve(words: &mut Words<'_>, name: Word<'_>) -> Result<Curve, ParseError> {
    const EXPECTED: &str = "a curve, such as m1 2mbit d 10ms m2 1mbit, or rate 1mbit";
    let missing = |words: &Words<'_>| words.error(name, ParseErrorKind::MissingValue { expected: EXPECTED });
    let curve = if let Some(word) = words.take("umax") {
        let umax = words.size(word, "umax")?.0;
        let dmax = words.take("dmax").ok_or_else(|| missing(words))?;
        delayed(words, umax, dmax)?
    } else if let Some(dmax) = words.take("dmax") {
        delayed(words, 0, dmax)?
    } else if let Some(word) = words.take("rate") {
        Curve::linear(slope(words, word, "rate")?)
    } else {
        let mut curve = Curve::linear(Rate::from_bits_per_sec(0));
        if let Some(word) = words.take("m1") {
            curve.m1 = slope(words, word, "m1")?;
        }
        if let Some(word) = words.take("d") {
            curve.d = words.time(word, "d", 0)?;
        }
        let word = words.take("m2").ok_or_else(|| missing(words))?;
        curve.m2 = slope(words, word, "m2")?;
        curve
    };
    if curve.m1.bytes_per_sec() == 0 && curve.m2.bytes_per_sec() == 0 {
        let reason = "a curve needs a slope above 0";
        return Err(words.error(name, ParseErrorKind::Contradiction { reason }));
    }
    Ok(curve)
}

/// `umax`, `dmax` and `rate` as a curve of two pieces (`hfsc_get_sc2` of iproute2): the first piece passes the packet
/// in time if the rate alone would not, or waits as long as the rate leaves time to.
fn delayed(words: &mut Words<'_>, umax: u64, dmax: Word<'_>) -> Result<Curve, ParseError> {
    const EXPECTED: &str = "a rate, such as 'rate 1mbit', after umax and dmax";
    const MICROS_PER_SEC: u64 = 1_000_000;
    let limit = words.time(dmax, "dmax", 0)?.as_micros();
    let word = words.take("rate").ok_or_else(|| {
        let expected = EXPECTED;
        words.error(dmax, ParseErrorKind::MissingValue { expected })
    })?;
    let m2 = slope(words, word, "rate")?;
    if umax > 0 && limit == 0 {
        let reason = "no packet leaves within a 'dmax' of 0";
        return Err(words.error(dmax, ParseErrorKind::Contradiction { reason }));
    }
    let work = umax.saturating_mul(MICROS_PER_SEC);
    let needed = work.div_ceil(limit.max(1));
    let rate = m2.bytes_per_sec();
    if limit > 0 && needed > rate {
        if needed > SLOPE_MAX {
            let range = "up to 4294967295 bytes in a second".into();
            let keyword = "umax";
            return Err(words.error(dmax, ParseErrorKind::OutOfRange { keyword, range }));
        }
        return Ok(Curve {
            m1: Rate::from_bits_per_sec(needed * 8),
            d: Nanos::from_micros(limit),
            m2,
        });
    }
    // ceil(dmax - umax / rate), never negative because the rate is enough.
    Ok(Curve {
        m1: Rate::from_bits_per_sec(0),
        d: Nanos::from_micros(limit.saturating_sub(work / rate.max(1))),
        m2,
    })
}

fn slope(words: &mut Words<'_>, word: Word<'_>, keyword: &'static str) -> Result<Rate, ParseError> {
    let value = words.clone().next();
    let rate = words.rate(word, keyword)?;
    if rate.bytes_per_sec() > SLOPE_MAX {
        let range = "up to 34359738360bit".into();
        return Err(words.error(
            value.unwrap_or(word),
            ParseErrorKind::OutOfRange { keyword, range },
        ));
    }
    Ok(rate)
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use proptest::prelude::*;

    use super::*;
    use crate::spec::Qdisc;

    fn curve(m1_bytes: u64, d_micros: u64, m2_bytes: u64) -> Option<Curve> {
        Some(Curve {
            m1: Rate::from_bits_per_sec(m1_bytes * 8),
            d: Nanos::from_micros(d_micros),
            m2: Rate::from_bits_per_sec(m2_bytes * 8),
        })
    }

    #[test]
    fn curves_are_read_in_all_their_forms() {
        for (text, rt, ls, ul) in [
            ("rt m2 250kbit", curve(0, 0, 31_250), None, None),
            ("sc rate 8kbit", curve(0, 0, 1000), curve(0, 0, 1000), None),
            (
                "sc m1 10204kbit d 1s m2 10000kbit ul rate 10204kbit",
                curve(1_275_500, 1_000_000, 1_250_000),
                curve(1_275_500, 1_000_000, 1_250_000),
                curve(0, 0, 1_275_500),
            ),
            // 1514 bytes in 10 ms are 151400 bytes a second, more than the rate.
            (
                "rt umax 1514b dmax 10ms rate 166kbit",
                curve(151_400, 10_000, 20_750),
                None,
                None,
            ),
            // 1514 bytes take 4844.8 us at the rate: 5155.2 us are left to wait.
            (
                "ls umax 1514b dmax 10ms rate 2500kbit",
                None,
                curve(0, 5156, 312_500),
                None,
            ),
            ("ls dmax 10ms rate 8kbit", None, curve(0, 10_000, 1000), None),
        ] {
            let expected = HfscClass { rt, ls, ul };
            assert_eq!(HfscClass::parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn errors_name_the_word() {
        for (text, message) in [
            ("", "hfsc needs 'rt', 'ls' or 'sc'"),
            (
                "rt m2 1mbit ul m2 1mbit",
                "hfsc: 'ul' limits a link share, but there is no 'ls' or 'sc'",
            ),
            ("sc m2 0", "hfsc: a curve needs a slope above 0"),
            (
                "ls m1 1mbit",
                "hfsc keyword 'ls' needs a curve, such as m1 2mbit d 10ms m2 1mbit, or rate 1mbit",
            ),
            (
                "ls m2 40gbit",
                "hfsc keyword 'm2' takes up to 34359738360bit, not '40gbit'",
            ),
            (
                "ls rate 1mbit up rate 1mbit",
                "unknown hfsc keyword 'up'; did you mean 'ul'?",
            ),
        ] {
            assert_eq!(HfscClass::parse(text).unwrap_err().to_string(), message);
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(
            rt in proptest::option::of((0..u32::MAX, any::<u32>(), 1..u32::MAX)),
            ls in (0..u32::MAX, any::<u32>(), 1..u32::MAX),
            ul in proptest::option::of((0..u32::MAX, any::<u32>(), 1..u32::MAX)),
        ) {
            let of = |(m1, d, m2): (u32, u32, u32)| curve(m1.into(), d.into(), m2.into());
            let class = HfscClass { rt: rt.and_then(of), ls: of(ls), ul: ul.and_then(of) };
            prop_assert_eq!(HfscClass::parse(&class.to_string()), Ok(class));
        }

        #[test]
        fn a_root_is_read_back(default: u16) {
            let hfsc = Hfsc { default: default.into() };
            prop_assert_eq!(Qdisc::parse(&hfsc.to_string()), Ok(Qdisc::Hfsc(hfsc)));
        }
    }
}

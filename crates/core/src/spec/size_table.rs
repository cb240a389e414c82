//! The size of a packet on the line, for qdiscs that cannot compute it themselves: size tables (`tc-stab`), and the
//! accounting that HTB and TBF have built in.

use core::fmt;

use super::words::{ParseError, ParseErrorKind, Word, Words};

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

/// The cell framing that a size table, an HTB class or a TBF can express.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkLayer {
    /// Whole packets.
    #[default]
    Ethernet,
    /// 48 bytes of payload in 53-byte cells.
    Atm,
}

/// The values that `tc` takes for 0 and for a table whose measures are not given (`tc_calc_size_table`).
const MTU: u32 = 2047;
const TSIZE: u32 = 512;

const KEYWORDS: [&str; 5] = ["mtu", "tsize", "mpu", "overhead", "linklayer"];

impl Default for Stab {
    fn default() -> Self {
        Self {
            mtu: MTU,
            tsize: TSIZE,
            mpu: 0,
            overhead: 0,
            linklayer: LinkLayer::Ethernet,
        }
    }
}

impl Stab {
    /// Reads the words after `stab`: `mtu 2047 tsize 512 mpu 64 overhead 30 linklayer ethernet`.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut words = Words::of(text);
        let stab = Self::read(&mut words)?;
        match words.next() {
            Some(word) => {
                let words = words.within("stab");
                Err(words.unknown(word, ParseErrorKind::UnknownWord, KEYWORDS.into_iter()))
            }
            None => Ok(stab),
        }
    }

    /// Reads as many words as are a size table's.
    pub(super) fn read(words: &mut Words<'_>) -> Result<Self, ParseError> {
        let mut stab = Self::default();
        let or = |n: u32, default| if n == 0 { default } else { n };
        let mut ahead = words.clone().within("stab");
        while let Some(word) = ahead.next() {
            match word.text {
                "mtu" => stab.mtu = or(ahead.number(word, "mtu", 0..=u32::MAX.into())?, MTU),
                // The table travels in one netlink attribute, two bytes an entry.
                "tsize" => stab.tsize = or(ahead.number(word, "tsize", 0..=32_000)?, TSIZE),
                "mpu" => stab.mpu = ahead.number(word, "mpu", 0..=u32::MAX.into())?,
                "overhead" => {
                    stab.overhead = ahead.number(word, "overhead", i32::MIN.into()..=i32::MAX.into())?;
                }
                "linklayer" => stab.linklayer = LinkLayer::read(&mut ahead, word)?,
                _ => break,
            }
            words.advance_to(&ahead);
        }
        Ok(stab)
    }
}

/// Prints the words after `stab`.
impl fmt::Display for Stab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            mtu,
            tsize,
            mpu,
            overhead,
            linklayer,
        } = self;
        write!(
            f,
            "mtu {mtu} tsize {tsize} mpu {mpu} overhead {overhead} linklayer {linklayer}"
        )
    }
}

impl LinkLayer {
    fn read(words: &mut Words<'_>, keyword: Word<'_>) -> Result<Self, ParseError> {
        const EXPECTED: &str = "ethernet or atm";
        let value = words.value(keyword, EXPECTED)?;
        match value.text {
            "ethernet" => Ok(Self::Ethernet),
            "atm" | "adsl" => Ok(Self::Atm),
            _ => Err(words.error(
                value,
                ParseErrorKind::BadValue {
                    keyword: "linklayer",
                    expected: EXPECTED,
                },
            )),
        }
    }
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ethernet => "ethernet",
            Self::Atm => "atm",
        })
    }
}

/// The accounting inside an HTB class or a TBF: `overhead`, `mpu`, `linklayer`. Unlike a size table it cannot
/// take bytes away, and it serves one class only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateFraming {
    /// Bytes added to each packet, on top of the length the kernel knows.
    pub overhead: u16,
    /// Least size a packet is counted with, bytes.
    pub mpu: u16,
    /// Cell framing of the line.
    pub linklayer: LinkLayer,
}

impl RateFraming {
    /// Its keywords, for suggestions.
    pub(super) const KEYWORDS: [&str; 3] = ["overhead", "mpu", "linklayer"];

    /// Reads the value of one of its keywords. False if the word is another one.
    pub(super) fn read(&mut self, words: &mut Words<'_>, word: Word<'_>) -> Result<bool, ParseError> {
        match word.text {
            "overhead" => self.overhead = words.number(word, "overhead", 0..=u16::MAX.into())?,
            "mpu" => self.mpu = words.number(word, "mpu", 0..=u16::MAX.into())?,
            "linklayer" => self.linklayer = LinkLayer::read(words, word)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Prints what is not the default, each with a blank before it.
impl fmt::Display for RateFraming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.overhead != 0 {
            write!(f, " overhead {}", self.overhead)?;
        }
        if self.mpu != 0 {
            write!(f, " mpu {}", self.mpu)?;
        }
        match self.linklayer {
            LinkLayer::Ethernet => Ok(()),
            LinkLayer::Atm => f.write_str(" linklayer atm"),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn zero_is_the_default_and_errors_name_the_word() {
        let stab = Stab::parse("mtu 0 tsize 0 overhead -4 linklayer adsl").unwrap();
        let expected = Stab {
            overhead: -4,
            linklayer: LinkLayer::Atm,
            ..Stab::default()
        };
        assert_eq!(stab, expected);
        for (text, message) in [
            (
                "linklayer ptm",
                "stab keyword 'linklayer': 'ptm' is not ethernet or atm",
            ),
            (
                "overhed 4",
                "unknown stab keyword 'overhed'; did you mean 'overhead'?",
            ),
            (
                "tsize 70000",
                "stab keyword 'tsize' takes 0 to 32000, not '70000'",
            ),
            ("mpu", "stab keyword 'mpu' needs a whole number"),
        ] {
            assert_eq!(Stab::parse(text).unwrap_err().to_string(), message);
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(mtu in 1..=u32::MAX, tsize in 1..=32_000u32, mpu: u32, overhead: i32, atm: bool) {
            let linklayer = if atm { LinkLayer::Atm } else { LinkLayer::Ethernet };
            let stab = Stab { mtu, tsize, mpu, overhead, linklayer };
            prop_assert_eq!(Stab::parse(&stab.to_string()), Ok(stab));
        }
    }
}

//! The words of a specification, one after another, and what can be wrong with one.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use core::fmt;
use core::ops::RangeInclusive;

use super::cake;
use crate::nearest::nearest;
use crate::units::{Bytes, Nanos, Rate, UnitError, shortened};

/// An error in a specification, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The kind of queueing discipline whose grammar was expected; empty while that was still being read.
    pub qdisc: &'static str,
    /// Where the word begins: bytes from the start of the text that was given.
    pub position: usize,
    /// Which word it is, counted from 0.
    pub index: usize,
    /// The word, shortened if it was very long.
    pub word: Box<str>,
    /// The error.
    pub kind: ParseErrorKind,
    /// The word that was probably meant.
    pub suggestion: Option<Box<str>>,
}

/// An error in a word of a specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseErrorKind {
    /// Not a queueing discipline known here.
    UnknownQdisc,
    /// Not a keyword of this discipline.
    UnknownWord,
    /// The text ends where this keyword's value should stand.
    MissingValue {
        /// Such a value in words, such as `a rate such as 20mbit`.
        expected: &'static str,
    },
    /// The value of this keyword is not a quantity of the right kind.
    BadQuantity {
        /// The keyword before it.
        keyword: &'static str,
        /// The error in words, as [`UnitError::reason`] says it.
        reason: String,
    },
    /// The value of this keyword is not what it should be.
    BadValue {
        /// The keyword before it.
        keyword: &'static str,
        /// Such a value in words.
        expected: &'static str,
    },
    /// A good value that the kernel would refuse or bend.
    OutOfRange {
        /// The keyword before it.
        keyword: &'static str,
        /// The range in words, such as `-64 to 256`.
        range: String,
    },
    /// The overhead that this link layer adds to the rest is more than the kernel takes.
    TooMuchOverhead,
    /// `tc` takes only one round-trip preset.
    SecondPreset {
        /// The one that came first.
        first: &'static str,
    },
    /// The text ends and this was never said.
    Incomplete {
        /// The missing part, such as `'rate'`.
        missing: &'static str,
    },
    /// The words are good one by one and contradict each other.
    Contradiction {
        /// The contradiction in words.
        reason: &'static str,
    },
}

impl ParseError {
    /// The error in words, without the suggestion.
    pub fn reason(&self) -> String {
        let Self { qdisc, word, .. } = self;
        match &self.kind {
            ParseErrorKind::UnknownQdisc if word.is_empty() => {
                "the name of a queueing discipline is missing".into()
            }
            ParseErrorKind::UnknownQdisc => format!("unknown queueing discipline '{word}'"),
            ParseErrorKind::UnknownWord => format!("unknown {qdisc} keyword '{word}'"),
            ParseErrorKind::MissingValue { expected } => format!("{qdisc} keyword '{word}' needs {expected}"),
            ParseErrorKind::BadQuantity { keyword, reason } => {
                format!("{qdisc} keyword '{keyword}': {reason}")
            }
            ParseErrorKind::BadValue { keyword, expected } => {
                format!("{qdisc} keyword '{keyword}': '{word}' is not {expected}")
            }
            ParseErrorKind::OutOfRange { keyword, range } => {
                format!("{qdisc} keyword '{keyword}' takes {range}, not '{word}'")
            }
            ParseErrorKind::TooMuchOverhead => {
                format!(
                    "{qdisc} keyword '{word}' raises the overhead above {} bytes",
                    cake::OVERHEAD.end()
                )
            }
            ParseErrorKind::SecondPreset { first } => {
                format!("{qdisc} takes one round-trip preset, but '{word}' follows '{first}'")
            }
            ParseErrorKind::Incomplete { missing } => format!("{qdisc} needs {missing}"),
            ParseErrorKind::Contradiction { reason } => format!("{qdisc}: {reason}"),
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason())?;
        match &self.suggestion {
            Some(suggestion) => write!(f, "; did you mean '{suggestion}'?"),
            None => Ok(()),
        }
    }
}

impl core::error::Error for ParseError {}

/// One word of a text and its place there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word<'a> {
    pub(super) text: &'a str,
    position: usize,
    index: usize,
}

/// Hands out the words of a text and reads their values.
#[derive(Clone, Debug)]
pub(super) struct Words<'a> {
    qdisc: &'static str,
    text: &'a str,
    position: usize,
    index: usize,
}

impl<'a> Iterator for Words<'a> {
    type Item = Word<'a>;

    fn next(&mut self) -> Option<Word<'a>> {
        let rest = &self.text[self.position..];
        let start = self.position + rest.find(|c: char| !c.is_whitespace())?;
        let rest = &self.text[start..];
        let length = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let word = Word {
            text: &rest[..length],
            position: start,
            index: self.index,
        };
        self.position = start + length;
        self.index += 1;
        Some(word)
    }
}

impl<'a> Words<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        Self {
            qdisc: "",
            text,
            position: 0,
            index: 0,
        }
    }

    /// The rest of the words, read by the grammar of `qdisc`.
    pub(super) fn within(self, qdisc: &'static str) -> Self {
        Self { qdisc, ..self }
    }

    pub(super) fn error(&self, word: Word<'_>, kind: ParseErrorKind) -> ParseError {
        ParseError {
            qdisc: self.qdisc,
            position: word.position,
            index: word.index,
            word: shortened(word.text).into(),
            kind,
            suggestion: None,
        }
    }

    /// `word` is none of `known`.
    pub(super) fn unknown(
        &self,
        word: Word<'_>,
        kind: ParseErrorKind,
        known: impl Iterator<Item = &'static str>,
    ) -> ParseError {
        let suggestion = nearest(word.text, known).map(Box::from);
        ParseError {
            suggestion,
            ..self.error(word, kind)
        }
    }

    /// An error if the value of `word` was read before, where `tc` takes only one.
    pub(super) fn once<T>(&self, before: Option<&T>, word: Word<'_>) -> Result<(), ParseError> {
        let reason = "the word stands twice";
        match before {
            None => Ok(()),
            Some(_) => Err(self.error(word, ParseErrorKind::Contradiction { reason })),
        }
    }

    /// The error that the text ends too early, or does not fit together as a whole.
    pub(super) fn at_end(&self, kind: ParseErrorKind) -> ParseError {
        let end = Word {
            text: "",
            position: self.position,
            index: self.index,
        };
        self.error(end, kind)
    }

    /// The next word, if it is this one.
    pub(super) fn take(&mut self, text: &str) -> Option<Word<'a>> {
        let mut ahead = self.clone();
        let word = ahead.next().filter(|word| word.text == text)?;
        *self = ahead;
        Some(word)
    }

    /// Goes on where `ahead` has come to in the same text.
    pub(super) const fn advance_to(&mut self, ahead: &Self) {
        (self.position, self.index) = (ahead.position, ahead.index);
    }

    /// The word after `keyword`.
    pub(super) fn value(
        &mut self,
        keyword: Word<'_>,
        expected: &'static str,
    ) -> Result<Word<'a>, ParseError> {
        self.next()
            .ok_or_else(|| self.error(keyword, ParseErrorKind::MissingValue { expected }))
    }

    pub(super) fn rate(&mut self, word: Word<'_>, keyword: &'static str) -> Result<Rate, ParseError> {
        let value = self.value(word, "a rate, such as 20mbit")?;
        let rate = self.quantity(value, keyword, Rate::parse_tc(value.text))?;
        // The kernel counts bytes; less than one in a second would become its 0, which means unlimited.
        if (1..8).contains(&rate.bits_per_sec()) {
            let range = "8bit and more, or 0 for unlimited".into();
            return Err(self.error(value, ParseErrorKind::OutOfRange { keyword, range }));
        }
        Ok(rate)
    }

    /// A rate above 0.
    pub(super) fn shaped_rate(&mut self, word: Word<'_>, keyword: &'static str) -> Result<Rate, ParseError> {
        let ahead = self.clone().next();
        let rate = self.rate(word, keyword)?;
        if rate.bits_per_sec() == 0 {
            let range = "8bit and more".into();
            return Err(self.error(
                ahead.unwrap_or(word),
                ParseErrorKind::OutOfRange { keyword, range },
            ));
        }
        Ok(rate)
    }

    /// A class's minor number: up to 16 bits in hexadecimal.
    pub(super) fn minor(&mut self, word: Word<'_>, keyword: &'static str) -> Result<u32, ParseError> {
        const EXPECTED: &str = "a class's minor number in hexadecimal, such as 10";
        let value = self.value(word, EXPECTED)?;
        let digits = value.text.strip_prefix("0x").unwrap_or(value.text);
        // A sign, which the standard library would take, is no digit.
        let number = u16::from_str_radix(digits, 16)
            .ok()
            .filter(|_| !digits.starts_with('+'));
        number.map(u32::from).ok_or_else(|| {
            self.error(
                value,
                ParseErrorKind::BadValue {
                    keyword,
                    expected: EXPECTED,
                },
            )
        })
    }

    /// A time that fits the 32-bit count of microseconds in which `tc` sends it.
    pub(super) fn time(
        &mut self,
        word: Word<'_>,
        keyword: &'static str,
        least_micros: u64,
    ) -> Result<Nanos, ParseError> {
        let value = self.value(word, "a time, such as 100ms")?;
        let time = self.quantity(value, keyword, Nanos::parse_tc(value.text))?;
        if time.as_micros() < least_micros || time.as_micros() > u64::from(u32::MAX) {
            let range = format!("{least_micros}us to {}s", u32::MAX / 1_000_000);
            return Err(self.error(value, ParseErrorKind::OutOfRange { keyword, range }));
        }
        Ok(time)
    }

    /// A size that fits the 32 bits in which `tc` sends it.
    pub(super) fn size(&mut self, word: Word<'_>, keyword: &'static str) -> Result<Bytes, ParseError> {
        let value = self.value(word, "a size, such as 4mb")?;
        let size = self.quantity(value, keyword, Bytes::parse_tc(value.text))?;
        if size.0 > u64::from(u32::MAX) {
            let range = "less than 4gb".into();
            return Err(self.error(value, ParseErrorKind::OutOfRange { keyword, range }));
        }
        Ok(size)
    }

    /// A whole number in decimal, within `range`.
    pub(super) fn number<N>(
        &mut self,
        word: Word<'_>,
        keyword: &'static str,
        range: RangeInclusive<i64>,
    ) -> Result<N, ParseError>
    where
        N: TryFrom<i64>,
    {
        const EXPECTED: &str = "a whole number";
        let value = self.value(word, EXPECTED)?;
        let digits = value.text.strip_prefix(['-', '+']).unwrap_or(value.text);
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(self.error(
                value,
                ParseErrorKind::BadValue {
                    keyword,
                    expected: EXPECTED,
                },
            ));
        }
        let number = value
            .text
            .parse()
            .ok()
            .filter(|n| range.contains(n))
            .and_then(|n| N::try_from(n).ok());
        number.ok_or_else(|| {
            let range = format!("{} to {}", range.start(), range.end());
            self.error(value, ParseErrorKind::OutOfRange { keyword, range })
        })
    }

    fn quantity<T>(
        &self,
        value: Word<'_>,
        keyword: &'static str,
        read: Result<T, UnitError>,
    ) -> Result<T, ParseError> {
        read.map_err(|error| {
            let kind = ParseErrorKind::BadQuantity {
                keyword,
                reason: error.reason(),
            };
            ParseError {
                suggestion: error.suggestion.map(String::into_boxed_str),
                ..self.error(value, kind)
            }
        })
    }
}

//! Quantities that must never be confused, each with its own type, and the text `tc` reads and prints for them.
//!
//! A rate is kept in bits per second and never called `bps`, because `tc` uses that word for bytes per second.
//!
//! Text is read as iproute2 reads it (`lib/utils.c`, `tc/tc_util.c`): a decimal number, then a unit in any case.
//! The arithmetic is exact and rounds down once, at the end.

use alloc::string::String;
use core::fmt;

use crate::nearest::nearest;

/// A data rate in bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// Exactly `n` bits per second.
    pub const fn from_bits_per_sec(n: u64) -> Self {
        Self(n)
    }

    /// `n` thousand bits per second; saturates at the largest rate.
    pub const fn from_kbits_per_sec(n: u64) -> Self {
        Self(n.saturating_mul(1000))
    }

    /// Bits per second.
    pub const fn bits_per_sec(self) -> u64 {
        self.0
    }

    /// Whole bytes per second, rounded down: the unit in which the kernel keeps rates.
    pub const fn bytes_per_sec(self) -> u64 {
        self.0 / 8
    }

    /// Whole kilobits per second, rounded down.
    pub const fn kbits_per_sec(self) -> u64 {
        self.0 / 1000
    }

    /// Reads a rate as `tc` does: `20mbit`, `2.5Mbit`, `1gibit` (powers of 1024); the units in `bps` are *bytes*
    /// per second (`1kbps` is 8000 bits per second); a bare number is bits per second. Fractions of a bit per
    /// second are cut off.
    pub fn parse_tc(text: &str) -> Result<Self, UnitError> {
        parse("rate", text, &RATE_UNITS).map(Self)
    }
}

/// Prints as `tc` would read it back exactly: the largest decimal unit that loses nothing (`85mbit`, `4400kbit`).
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (divisor, unit) = match self.0 {
            0 => (1, "bit"),
            n if n % 1_000_000_000 == 0 => (1_000_000_000, "gbit"),
            n if n % 1_000_000 == 0 => (1_000_000, "mbit"),
            n if n % 1000 == 0 => (1000, "kbit"),
            _ => (1, "bit"),
        };
        write!(f, "{}{unit}", self.0 / divisor)
    }
}

/// A size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Reads a size as `tc` does: `1514`, `32mb`, `4k`; `k`, `m` and `g` are powers of 1024, and so are the units
    /// in `bit`, which count eight to the byte (`1mbit` is 131072 bytes). Fractions of a byte are cut off.
    pub fn parse_tc(text: &str) -> Result<Self, UnitError> {
        parse("size", text, &SIZE_UNITS).map(Self)
    }
}

/// Prints as `tc` would read it back exactly: `32mb`, `4kb`, `1749b`.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shift, unit) = match self.0.trailing_zeros() {
            64 => (0, "b"),
            30.. => (30, "gb"),
            20.. => (20, "mb"),
            10.. => (10, "kb"),
            _ => (0, "b"),
        };
        write!(f, "{}{unit}", self.0 >> shift)
    }
}

/// A span of time in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// `n` microseconds; saturates.
    pub const fn from_micros(n: u64) -> Self {
        Self(n.saturating_mul(1000))
    }

    /// `n` milliseconds; saturates.
    pub const fn from_millis(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000))
    }

    /// Whole microseconds, rounded down: the unit of time on the `tc` command line.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1000
    }

    /// Reads a time as `tc` does: `100ms`, `0.1s`, `5000us`; a bare number is microseconds. Fractions of a
    /// microsecond are cut off.
    pub fn parse_tc(text: &str) -> Result<Self, UnitError> {
        parse("time", text, &TIME_UNITS).map(Self::from_micros)
    }
}

/// Prints as `tc` would read it back exactly, as far as whole microseconds go: `100ms`, `4999us`, `1s`.
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("0us"),
            n if n % 1_000_000_000 == 0 => write!(f, "{}s", n / 1_000_000_000),
            n if n % 1_000_000 == 0 => write!(f, "{}ms", n / 1_000_000),
            n if n % 1000 == 0 => write!(f, "{}us", n / 1000),
            n => write!(f, "{}.{:03}us", n / 1000, n % 1000),
        }
    }
}

/// A moment, in nanoseconds of whatever clock the caller keeps. The algorithms never read a clock.
///
/// Zero is the far past: kernel timers that were never set hold it, so a simulated clock begins at a second or later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// Time from `earlier` to here; none if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Saturates at the end of time.
impl core::ops::Add<Nanos> for Instant {
    type Output = Self;

    fn add(self, span: Nanos) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

/// Why a text is not the quantity that was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitError {
    /// The expected quantity: `rate`, `size` or `time`.
    pub quantity: &'static str,
    /// The text, shortened if it was very long.
    pub text: String,
    /// The error.
    pub kind: UnitErrorKind,
    /// The whole text as it was probably meant.
    pub suggestion: Option<String>,
}

/// An error in a quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitErrorKind {
    /// It does not begin with a decimal number that is zero or more.
    NotANumber,
    /// The number is good; what follows is no unit of this quantity.
    UnknownUnit(String),
    /// More than 64 bits hold.
    TooLarge,
}

impl UnitError {
    /// The error in words, without the suggestion.
    pub fn reason(&self) -> String {
        let Self { quantity, text, .. } = self;
        match &self.kind {
            UnitErrorKind::NotANumber => alloc::format!("'{text}' is not a {quantity}"),
            UnitErrorKind::UnknownUnit(unit) => {
                alloc::format!("'{text}' is not a {quantity}: unknown unit '{unit}'")
            }
            UnitErrorKind::TooLarge => alloc::format!("'{text}' is too large for a {quantity}"),
        }
    }
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason())?;
        match &self.suggestion {
            Some(suggestion) => write!(f, "; did you mean '{suggestion}'?"),
            None => Ok(()),
        }
    }
}

impl core::error::Error for UnitError {}

/// `text` for an error message: one line, no control characters, and short even when a whole file was
/// mistaken for a word.
pub fn shortened(text: &str) -> String {
    const LONGEST_CHARS: usize = 60;
    let mut short: String = text
        .chars()
        .take(LONGEST_CHARS)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if short.len() < text.len() && text.chars().nth(LONGEST_CHARS).is_some() {
        short.push('…');
    }
    short
}

/// Units of a rate, in bits per second.
const RATE_UNITS: [(&str, u64); 19] = [
    ("", 1),
    ("bit", 1),
    ("kbit", 1000),
    ("mbit", 1_000_000),
    ("gbit", 1_000_000_000),
    ("tbit", 1_000_000_000_000),
    ("kibit", 1 << 10),
    ("mibit", 1 << 20),
    ("gibit", 1 << 30),
    ("tibit", 1 << 40),
    ("bps", 8),
    ("kbps", 8000),
    ("mbps", 8_000_000),
    ("gbps", 8_000_000_000),
    ("tbps", 8_000_000_000_000),
    ("kibps", 8 << 10),
    ("mibps", 8 << 20),
    ("gibps", 8 << 30),
    ("tibps", 8 << 40),
];

/// Units of a size, in bytes.
const SIZE_UNITS: [(&str, u64); 11] = [
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("kb", 1 << 10),
    ("m", 1 << 20),
    ("mb", 1 << 20),
    ("g", 1 << 30),
    ("gb", 1 << 30),
    ("kbit", (1 << 10) / 8),
    ("mbit", (1 << 20) / 8),
    ("gbit", (1 << 30) / 8),
];

/// Units of time, in microseconds.
const TIME_UNITS: [(&str, u64); 10] = [
    ("", 1),
    ("us", 1),
    ("usec", 1),
    ("usecs", 1),
    ("ms", 1000),
    ("msec", 1000),
    ("msecs", 1000),
    ("s", 1_000_000),
    ("sec", 1_000_000),
    ("secs", 1_000_000),
];

/// A number and its unit, as a whole count of the units table's base unit.
fn parse(quantity: &'static str, text: &str, units: &[(&str, u64)]) -> Result<u64, UnitError> {
    /// Digits kept after the point: enough to tell single bits in a terabit.
    const DECIMALS: u32 = 12;

    let error = |kind, suggestion| UnitError {
        quantity,
        text: shortened(text),
        kind,
        suggestion,
    };
    let number_ends = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(number_ends);
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && decimals.is_empty()) || decimals.contains('.') {
        return Err(error(UnitErrorKind::NotANumber, None));
    }
    let Some((_, scale)) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) else {
        // Anything but letters belongs to the number: `12,5mbit`, `0x4000`.
        let word = unit.trim();
        let names = units
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| !name.is_empty());
        let suggestion = match word.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            true => nearest(word, names).map(|unit| alloc::format!("{number}{unit}")),
            false => None,
        };
        return Err(error(UnitErrorKind::UnknownUnit(shortened(unit)), suggestion));
    };

    let mut scaled: u128 = 0;
    let decimals = decimals
        .bytes()
        .chain(core::iter::repeat(b'0'))
        .take(DECIMALS as usize);
    for digit in whole.bytes().chain(decimals) {
        scaled = scaled.saturating_mul(10).saturating_add(u128::from(digit - b'0'));
    }
    let value = scaled.saturating_mul(u128::from(*scale)) / 10u128.pow(DECIMALS);
    u64::try_from(value).map_err(|_| error(UnitErrorKind::TooLarge, None))
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_rates_as_tc_does() {
        for (text, bits) in [
            ("1mbit", 1_000_000),
            ("1Mibit", 1 << 20),
            ("1kbps", 8000),
            ("1000", 1000),
            ("20MBIT", 20_000_000),
            ("2.5mbit", 2_500_000),
            (".5kbit", 500),
            ("1.mbit", 1_000_000),
            ("0.0000015mbit", 1),
            ("3gibps", 3 * (8 << 30)),
            ("0", 0),
        ] {
            assert_eq!(Rate::parse_tc(text), Ok(Rate::from_bits_per_sec(bits)), "{text}");
        }
    }

    #[test]
    fn reads_sizes_and_times_as_tc_does() {
        for (text, bytes) in [
            ("1k", 1024),
            ("1mbit", 131_072),
            ("1514", 1514),
            ("32Mb", 32 << 20),
            ("1.5kb", 1536),
        ] {
            assert_eq!(Bytes::parse_tc(text), Ok(Bytes(bytes)), "{text}");
        }
        for (text, micros) in [
            ("5", 5),
            ("0.1s", 100_000),
            ("100ms", 100_000),
            ("2.5msec", 2500),
            ("1.9us", 1),
        ] {
            assert_eq!(Nanos::parse_tc(text), Ok(Nanos::from_micros(micros)), "{text}");
        }
    }

    #[test]
    fn errors_name_the_fault_and_suggest_a_correction() {
        for (text, message) in [
            (
                "10mbits",
                "'10mbits' is not a rate: unknown unit 'mbits'; did you mean '10mbit'?",
            ),
            ("fast", "'fast' is not a rate"),
            ("", "'' is not a rate"),
            ("-5mbit", "'-5mbit' is not a rate"),
            ("1.2.3mbit", "'1.2.3mbit' is not a rate"),
            (
                "10 mbit",
                "'10 mbit' is not a rate: unknown unit ' mbit'; did you mean '10mbit'?",
            ),
            ("12,5mbit", "'12,5mbit' is not a rate: unknown unit ',5mbit'"),
            ("100MB/s", "'100MB/s' is not a rate: unknown unit 'MB/s'"),
            ("99999999tbit", "'99999999tbit' is too large for a rate"),
            ("10parsecs", "'10parsecs' is not a rate: unknown unit 'parsecs'"),
        ] {
            assert_eq!(Rate::parse_tc(text).unwrap_err().to_string(), message);
        }
        let endless = "9".repeat(1 << 20);
        assert!(Rate::parse_tc(&endless).unwrap_err().to_string().len() < 300);
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(n in prop_oneof![any::<u64>(), 0..100_000u64, (0..1000u64).prop_map(|n| n << 20)]) {
            prop_assert_eq!(Rate::parse_tc(&Rate(n).to_string()), Ok(Rate(n)));
            prop_assert_eq!(Bytes::parse_tc(&Bytes(n).to_string()), Ok(Bytes(n)));
            let time = Nanos::from_micros(n / 1000);
            prop_assert_eq!(Nanos::parse_tc(&time.to_string()), Ok(time));
        }

        #[test]
        fn arbitrary_text_does_not_panic(text in any::<String>()) {
            let _ = (Rate::parse_tc(&text), Bytes::parse_tc(&text), Nanos::parse_tc(&text));
        }
    }
}

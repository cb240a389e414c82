//! The rate of a line, as contracts, routers and speed tests write it: `80 Mbit/s`, `80mbps`, `80M`, `2,5 megabits per second`.
//!
//! All of them mean bits. `tc` reads `mbps` as megabytes per second, so that its notation does not fit a line. A text that could
//! mean two rates is an error that names both.

use std::fmt;

use sqm_core::units::Rate;

use crate::respelled::respelled;

/// The fastest line that is sold to homes in 2026. A reading of a text that would be faster is not meant.
pub const FASTEST_LINE: Rate = Rate::from_bits_per_sec(25_000_000_000);

/// Prefixes of units, with their factor.
const PREFIXES: [(&str, &str, u64); 4] = [
    ("k", "kilo", 1000),
    ("m", "mega", 1_000_000),
    ("g", "giga", 1_000_000_000),
    ("t", "tera", 1_000_000_000_000),
];
/// Units of 1024: of bits, as in `tc`, and the ending of those of bytes.
const BINARY: [(&str, &str, u64); 4] = [
    ("kibit", "kib", 1 << 10),
    ("mibit", "mib", 1 << 20),
    ("gibit", "gib", 1 << 30),
    ("tibit", "tib", 1 << 40),
];
/// Decimals that are read: single bits of a terabit.
const DECIMALS: usize = 12;

/// A text that is not one rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineRateError {
    /// There is no text.
    Empty,
    /// The text does not begin with a number, or its unit is unknown.
    NotARate(String),
    /// The text is the second one in a form that is not read.
    Respelled(String, String),
    /// A number without a unit.
    NoUnit(String),
    /// The text could mean either of these rates.
    Ambiguous(String, Rate, Rate),
    /// Two rates, such as `100/40`.
    Two(String),
    /// The rate is 0, or above 1000 Tbit/s.
    OutOfRange(String),
    /// The rate is below the slowest one of a shaper.
    TooSlow(String),
}

impl std::error::Error for LineRateError {}

impl fmt::Display for LineRateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "no rate is given: type one with its unit, such as 80mbit"),
            Self::NotARate(text) => write!(
                f,
                "'{text}' is not a rate: type a number and a unit, such as 80mbit"
            ),
            Self::Respelled(text, meant) => write!(f, "'{text}' is not a rate; did you mean '{meant}'?"),
            Self::NoUnit(number) => write!(f, "'{number}' needs a unit: {number}mbit, or {number}kbit"),
            Self::Ambiguous(text, one, other) => write!(
                f,
                "'{text}' could mean {one} or {other}: type the one that you mean"
            ),
            Self::Two(text) => write!(f, "'{text}' is two rates: give download and upload one by one"),
            Self::OutOfRange(text) => write!(f, "'{text}' is not between 1bit and 1000tbit"),
            Self::TooSlow(text) => write!(f, "'{text}' is too slow to be shaped: the least rate is 1kbit"),
        }
    }
}

/// Reads a rate with its unit.
///
/// # Errors
///
/// If the text is no rate, lacks a unit, or could mean two rates: bytes or bits (`80 MB/s`), a thousands separator or a decimal
/// point (`85.000 kbit`).
pub fn parse(text: &str) -> Result<Rate, LineRateError> {
    let text = text.trim();
    match parse_plain(text) {
        Err(LineRateError::NotARate(shown)) => Err(match respelled(text) {
            Some(meant) if is_meant(&meant) => LineRateError::Respelled(shown, meant),
            _ => LineRateError::NotARate(shown),
        }),
        found => found,
    }
}

/// True if this is the rate of a line, whose unit may be missing.
fn is_meant(text: &str) -> bool {
    match parse_plain(text) {
        Ok(rate) => rate <= FASTEST_LINE,
        Err(error) => matches!(error, LineRateError::NoUnit(_)),
    }
}

fn parse_plain(text: &str) -> Result<Rate, LineRateError> {
    let shown = || text.chars().take(40).collect::<String>();
    if text.is_empty() {
        return Err(LineRateError::Empty);
    }
    let number_ends = text
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(number_ends);
    let unit = unit.trim();
    let number = Number::parse(number).ok_or_else(|| LineRateError::NotARate(shown()))?;
    if unit.is_empty() {
        return Err(LineRateError::NoUnit(shown()));
    }
    if unit
        .strip_prefix('/')
        .is_some_and(|rest| rest.trim_start().starts_with(|c: char| c.is_ascii_digit()))
    {
        return Err(LineRateError::Two(shown()));
    }
    let unit = Unit::parse(unit).ok_or_else(|| LineRateError::NotARate(shown()))?;
    let of = |factor: u64| {
        number
            .times(factor)
            .ok_or_else(|| LineRateError::OutOfRange(shown()))
    };
    let (rate, other) = match unit {
        Unit::Bits(factor) => {
            let separated = number.without_separator().and_then(|number| number.times(factor));
            (of(factor)?, separated.filter(|rate| *rate <= FASTEST_LINE))
        }
        Unit::Bytes(factor) => (of(factor)?, Some(of(factor * 8)?)),
    };
    match other {
        Some(other) => Err(LineRateError::Ambiguous(shown(), rate, other)),
        None => Ok(rate),
    }
}

/// Reads the rate of a line that is to be shaped, at least 1 kbit/s. A whole number without a unit is kbit/s, as in the
/// configuration, if no line is so fast that it could be Mbit/s. Other numbers without a unit have `unit`.
///
/// # Errors
///
/// Those of [`parse`], and rates below 1 kbit/s. Without `unit`, a number that needs a unit is an error.
pub fn parse_to_shape(text: &str, unit: Option<&str>) -> Result<Rate, LineRateError> {
    let text = text.trim();
    let is_bare = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.' || b == b',');
    let unit = match text.parse::<u64>() {
        Ok(number) if number > FASTEST_LINE.kbits_per_sec() / 1000 => "kbit",
        _ if is_bare => unit.unwrap_or_default(),
        _ => "",
    };
    let rate = parse(&format!("{text}{unit}"))?;
    match rate.kbits_per_sec() {
        0 => Err(LineRateError::TooSlow(text.to_owned())),
        _ => Ok(rate),
    }
}

/// A number as it is written.
struct Number {
    whole: String,
    decimals: String,
}

impl Number {
    fn parse(text: &str) -> Option<Self> {
        let (whole, decimals) = text.split_once(['.', ',']).unwrap_or((text, ""));
        let is_number = (!whole.is_empty() || !decimals.is_empty()) && !decimals.contains(['.', ',']);
        is_number.then(|| Self {
            whole: whole.to_owned(),
            decimals: decimals.to_owned(),
        })
    }

    /// The number without its point, if that may separate thousands: exactly three digits follow it (`85.000`, `2,500`).
    fn without_separator(&self) -> Option<Self> {
        let may_separate =
            self.decimals.len() == 3 && (1..=3).contains(&self.whole.len()) && !self.whole.starts_with('0');
        may_separate.then(|| Self {
            whole: format!("{}{}", self.whole, self.decimals),
            decimals: String::new(),
        })
    }

    /// This many times `factor` bit/s. `None` if that is 0 or more than 1000 Tbit/s.
    fn times(&self, factor: u64) -> Option<Rate> {
        let digits = self
            .decimals
            .bytes()
            .chain(std::iter::repeat(b'0'))
            .take(DECIMALS);
        let mut scaled: u128 = 0;
        for digit in self.whole.bytes().chain(digits) {
            scaled = scaled.checked_mul(10)?.checked_add(u128::from(digit - b'0'))?;
        }
        let bits = scaled.checked_mul(u128::from(factor))? / 10_u128.pow(DECIMALS as u32);
        let bits = u64::try_from(bits).ok()?;
        (1..=1_000_000_000_000_000)
            .contains(&bits)
            .then(|| Rate::from_bits_per_sec(bits))
    }
}

/// A unit: this many bits, or bytes, per second.
#[derive(Clone, Copy)]
enum Unit {
    Bits(u64),
    Bytes(u64),
}

impl Unit {
    /// Reads a unit with or without "per second".
    fn parse(text: &str) -> Option<Self> {
        let amount = without_time(text);
        let is_bytes_letter = amount.ends_with('B');
        let lower = amount.to_ascii_lowercase();
        for (bits, bytes, factor) in BINARY {
            if lower == bits {
                return Some(Self::Bits(factor));
            }
            if lower == bytes {
                return Some(Self::Bytes(factor));
            }
        }
        for (letter, word, factor) in PREFIXES {
            let Some(rest) = lower.strip_prefix(word).or_else(|| lower.strip_prefix(letter)) else {
                continue;
            };
            return match rest.trim_start_matches('-').trim_start() {
                // "20k" is a rate, "20k/s" is what programs show that count bytes.
                "" if amount.len() < text.len() => Some(Self::Bytes(factor)),
                "" | "bit" | "bits" => Some(Self::Bits(factor)),
                "b" if is_bytes_letter => Some(Self::Bytes(factor)),
                "b" => Some(Self::Bits(factor)),
                "byte" | "bytes" => Some(Self::Bytes(factor)),
                _ => None,
            };
        }
        match lower.as_str() {
            "bit" | "bits" => Some(Self::Bits(1)),
            "b" => Some(if is_bytes_letter {
                Self::Bytes(1)
            } else {
                Self::Bits(1)
            }),
            "byte" | "bytes" => Some(Self::Bytes(1)),
            _ => None,
        }
    }
}

/// The unit without "per second" in any of its forms.
fn without_time(text: &str) -> &str {
    const ENDS: [&str; 7] = ["per second", "per sec", "/second", "/sec", "/ s", "/s", "ps"];
    let lower = text.to_ascii_lowercase();
    let end = ENDS.iter().find(|end| lower.ends_with(*end));
    let amount = &text[..text.len() - end.map_or(0, |end| end.len())];
    amount.trim_end_matches([' ', '/'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn contracts_and_routers_mean_bits() {
        for text in [
            "80mbit",
            "80Mbit",
            "80MBIT",
            "80 mbit",
            "80 Mbit/s",
            "80Mbit/s",
            "80 MBit/s",
            "80 Mbits/s",
            "80 Mbits",
            "80mbps",
            "80 Mbps",
            "80Mbps",
            "80 Mb/s",
            "80Mb/s",
            "80mb/s",
            "80 Mb",
            "80mb",
            "80M",
            "80m",
            "80 M",
            "80 megabit",
            "80 Megabits",
            "80 megabits per second",
            "80 Mbit per second",
            "80 Mbit/sec",
            "80 mbit/second",
            "80.0 Mbit/s",
            "80,0 Mbit/s",
            "80.5 Mbit/s",
            "  80 Mbit/s ",
            "80000 kbit/s",
            "80000kbps",
            "80000k",
            "80000 kb/s",
            "80000 Kbit",
            "0.08 Gbit/s",
            "0,08gbit",
            ".08 gbps",
            "80000000 bit/s",
            "80000000bps",
            "80000 kilobits",
            "80 Mbit / s",
            "80 mega-bit",
        ] {
            let bits = if text.contains("80.5") {
                80_500_000
            } else {
                80_000_000
            };
            assert_eq!(parse(text), Ok(Rate::from_bits_per_sec(bits)), "{text}");
        }
        // The other reading would be a line of 93 Gbit/s.
        assert_eq!(parse("93.385mbit"), Ok(Rate::from_bits_per_sec(93_385_000)));
        assert_eq!(parse("1.000 Gbit/s"), Ok(Rate::from_bits_per_sec(1_000_000_000)));
        assert_eq!(parse("1mibit"), Ok(Rate::from_bits_per_sec(1 << 20)));
    }

    #[test]
    fn a_number_without_a_unit_is_kbit_if_it_can_be_nothing_else() {
        let kbit = |n| Ok(Rate::from_kbits_per_sec(n));
        for unit in [None, Some("mbit")] {
            assert_eq!(parse_to_shape("85000", unit), kbit(85_000));
            assert_eq!(parse_to_shape("512kbit", unit), kbit(512));
            assert!(matches!(
                parse_to_shape("300bit", unit),
                Err(LineRateError::TooSlow(_))
            ));
        }
        for text in ["50", "1000", "25000"] {
            let error = parse_to_shape(text, None).unwrap_err().to_string();
            assert!(error.contains(&format!("{text}mbit, or {text}kbit")), "{error}");
            assert_eq!(parse_to_shape(text, Some("mbit")), parse(&format!("{text}mbit")));
        }
        assert_eq!(parse_to_shape("2,5", Some("mbit")), kbit(2500));
        assert!(
            parse_to_shape("2.500", Some("mbit"))
                .unwrap_err()
                .to_string()
                .contains("could mean")
        );
        assert_eq!(parse_to_shape("", Some("mbit")), Err(LineRateError::Empty));
    }

    #[test]
    fn a_text_that_could_mean_two_rates_is_a_question() {
        for (text, one, other) in [
            ("80MB/s", "80mbit", "640mbit"),
            ("80 MBps", "80mbit", "640mbit"),
            ("80 MBPS", "80mbit", "640mbit"),
            ("10 megabytes per second", "10mbit", "80mbit"),
            ("85.000 kbit", "85kbit", "85mbit"),
            ("16,384 kbit/s", "16384bit", "16384kbit"),
            ("1.000 Mbit/s", "1mbit", "1gbit"),
            ("2.500 Mbit/s", "2500kbit", "2500mbit"),
            ("25.000 Mbit/s", "25mbit", "25gbit"),
            ("1,000Mbps", "1mbit", "1gbit"),
            ("100MB", "100mbit", "800mbit"),
            ("20k/s", "20kbit", "160kbit"),
            ("100 MByte/s", "100mbit", "800mbit"),
            ("1MiB/s", "1048576bit", "8388608bit"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert_eq!(
                message,
                format!("'{text}' could mean {one} or {other}: type the one that you mean")
            );
        }
    }

    #[test]
    fn other_texts_are_answered_with_an_example() {
        for (text, message) in [
            ("", "no rate is given: type one with its unit, such as 80mbit"),
            ("  ", "no rate is given: type one with its unit, such as 80mbit"),
            ("80", "'80' needs a unit: 80mbit, or 80kbit"),
            (
                "100/40",
                "'100/40' is two rates: give download and upload one by one",
            ),
            (
                "fast",
                "'fast' is not a rate: type a number and a unit, such as 80mbit",
            ),
            (
                "80 parsecs",
                "'80 parsecs' is not a rate: type a number and a unit, such as 80mbit",
            ),
            (
                "-5mbit",
                "'-5mbit' is not a rate: type a number and a unit, such as 80mbit",
            ),
            (
                "1.2.3mbit",
                "'1.2.3mbit' is not a rate: type a number and a unit, such as 80mbit",
            ),
            (
                "85'000 kbit",
                "'85'000 kbit' is not a rate; did you mean '85000 kbit'?",
            ),
            ("0x4000", "'0x4000' is not a rate; did you mean '16384'?"),
            ("2e4 kbit", "'2e4 kbit' is not a rate; did you mean '20000 kbit'?"),
            ("1_000", "'1_000' is not a rate; did you mean '1000'?"),
            ("20 000", "'20 000' is not a rate; did you mean '20000'?"),
            ("+80mbit", "'+80mbit' is not a rate; did you mean '80mbit'?"),
            // Two speeds: no line has 500200 Mbit/s.
            (
                "500 200 Mbit/s",
                "'500 200 Mbit/s' is not a rate: type a number and a unit, such as 80mbit",
            ),
            ("0mbit", "'0mbit' is not between 1bit and 1000tbit"),
            ("5000tbit", "'5000tbit' is not between 1bit and 1000tbit"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), message);
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(bits in 1000_u64..1_000_000_000_000) {
            let rate = Rate::from_bits_per_sec(bits);
            prop_assert_eq!(parse(&rate.to_string()), Ok(rate));
        }

        #[test]
        fn any_text_has_an_answer(text in ".{0,60}") {
            let _ = parse(&text);
        }
    }
}

//! What was learned of a line as text, to be kept in a file while nothing runs: a head with the version, then for each direction
//! and hour of which something is known a line `download 20 12500000` with the rate in bits per second.

use alloc::format;
use alloc::string::String;
use core::fmt;

use super::{Both, Direction, Learned};
use sqm_core::units::Rate;

const HEAD: &str = "sqm autorate learned 1";
const WORDS: [(&str, Direction); 2] = [("download", Direction::Ingress), ("upload", Direction::Egress)];
/// More than a whole memory has.
pub const MOST_BYTES: usize = 4096;
/// As the controller's own: what is beyond is not a rate of a line.
const HIGHEST: u64 = 400_000_000_000;

/// Why a text is no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It is longer than [`MOST_BYTES`].
    TooLong,
    /// It does not begin as one of this version.
    Version,
    /// That line, counted from one, says nothing that could have been written.
    Line(usize),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "longer than {MOST_BYTES} bytes"),
            Self::Version => write!(f, "does not begin with \"{HEAD}\""),
            Self::Line(line) => write!(
                f,
                "line {line} is not a direction, an hour below 24 and a rate in bits per second"
            ),
        }
    }
}

/// The text of what was learned.
pub fn write(learned: &Both<Learned>) -> String {
    let mut text = format!("{HEAD}\n");
    for (word, direction) in WORDS {
        for (hour, rate) in learned[direction].hours.iter().enumerate() {
            if let Some(rate) = rate {
                text += &format!("{word} {hour} {}\n", rate.bits_per_sec());
            }
        }
    }
    text
}

/// What a text says. Of anything that [`write()`] would not have written, nothing is taken.
pub fn read(text: &str) -> Result<Both<Learned>, Trouble> {
    if text.len() > MOST_BYTES {
        return Err(Trouble::TooLong);
    }
    let mut lines = text.lines();
    if lines.next() != Some(HEAD) {
        return Err(Trouble::Version);
    }
    let mut learned = Both::<Learned>::default();
    for (index, line) in lines.enumerate() {
        // The head is the first.
        let (direction, hour, rate) = entry(line).ok_or(Trouble::Line(index + 2))?;
        let place = &mut learned[direction].hours[hour];
        if place.replace(rate).is_some() {
            return Err(Trouble::Line(index + 2));
        }
    }
    Ok(learned)
}

fn entry(line: &str) -> Option<(Direction, usize, Rate)> {
    let mut words = line.split(' ');
    let word = words.next()?;
    let (_, direction) = WORDS.into_iter().find(|(known, _)| *known == word)?;
    let hour = words.next()?.parse().ok().filter(|hour| *hour < 24)?;
    let rate = words
        .next()?
        .parse()
        .ok()
        .filter(|rate| (1..=HIGHEST).contains(rate))?;
    let is_over = words.next().is_none();
    is_over.then_some((direction, hour, Rate::from_bits_per_sec(rate)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(hours in proptest::collection::vec(proptest::option::of(1..=HIGHEST), 48)) {
            let mut learned = Both::<Learned>::default();
            for (index, rate) in hours.into_iter().enumerate() {
                let direction = Direction::BOTH[index / 24];
                learned[direction].hours[index % 24] = rate.map(Rate::from_bits_per_sec);
            }
            let text = write(&learned);
            prop_assert!(text.len() <= MOST_BYTES);
            prop_assert_eq!(read(&text), Ok(learned));
        }
    }

    #[test]
    fn a_broken_text_is_refused_as_a_whole() {
        let with = |line: &str| read(&format!("{HEAD}\ndownload 3 8000\n{line}\n"));
        for line in [
            "",
            "download 24 8000",
            "download 3 8000",
            "upload 3 0",
            "upload 3",
            "upload 3 8000 1",
            "upload  3 8000",
            "both 3 8000",
            "upload 3 400000000001",
        ] {
            assert_eq!(with(line), Err(Trouble::Line(3)), "{line}");
        }
        assert_eq!(read(""), Err(Trouble::Version));
        assert_eq!(read("sqm autorate learned 2\n"), Err(Trouble::Version));
        assert_eq!(read(&"x".repeat(MOST_BYTES + 1)), Err(Trouble::TooLong));
    }
}

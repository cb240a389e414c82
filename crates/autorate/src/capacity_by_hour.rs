//! The usual capacity of a line at each hour of the day, and its text form for a file.
//!
//! The text has a header line with the version, then a line `download 20 12500000` for each direction and hour for which a
//! capacity is known: direction, hour of the day, bits per second.

use alloc::format;
use alloc::string::String;
use core::fmt;

use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::Rate;

const HOURS: usize = 24;
const HEADER: &str = "sqm autorate learned 1";
/// More bytes than [`write()`] ever returns. A reader can stop here.
pub const MAX_BYTES: usize = 4096;
/// The highest rate that [`read`] accepts, bits per second. It is a choice, far above any access line, which keeps a damaged
/// file from producing an absurd rate.
const MAX_RATE: u64 = 400_000_000_000;
/// Each new measurement counts for one part in this many. It is a choice: a fade of seconds must not overrule days.
const WEIGHT_OF_NEW: u64 = 8;

/// The capacity that was found in each hour of the day, as a moving average.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapacityByHour {
    /// One capacity for each hour; `None` where no capacity has been found yet.
    pub hours: [Option<Rate>; HOURS],
}

impl CapacityByHour {
    /// The usual capacity at `hour`, or that of the nearest hour for which one is known.
    pub fn at(&self, hour: u8) -> Option<Rate> {
        let hour = usize::from(hour) % HOURS;
        (0..=HOURS / 2).find_map(|distance| {
            self.hours[(hour + distance) % HOURS].or(self.hours[(hour + HOURS - distance) % HOURS])
        })
    }

    /// Adds a measurement: in this hour the line carried `capacity` and no more.
    pub(crate) fn learn(&mut self, hour: u8, capacity: Rate) {
        let usual = &mut self.hours[usize::from(hour) % HOURS];
        let capacity = capacity.bits_per_sec();
        let mean = usual.map_or(capacity, |usual| {
            let usual = usual.bits_per_sec();
            usual - usual / WEIGHT_OF_NEW + capacity / WEIGHT_OF_NEW
        });
        *usual = Some(Rate::from_bits_per_sec(mean));
    }
}

/// Why a text was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// The text is longer than [`MAX_BYTES`].
    TooLong,
    /// The header line is missing or of another version.
    Version,
    /// This line, counted from one, is malformed, out of range or a repetition.
    Line(usize),
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "longer than {MAX_BYTES} bytes"),
            Self::Version => write!(f, "does not begin with \"{HEADER}\""),
            Self::Line(line) => write!(
                f,
                "line {line} is not a direction, an hour below 24 and a rate in bits per second"
            ),
        }
    }
}

/// The text form of both directions.
pub fn write(capacities: &PerDirection<CapacityByHour>) -> String {
    let mut text = format!("{HEADER}\n");
    for (direction, capacity) in capacities.iter() {
        for (hour, rate) in capacity.hours.iter().enumerate() {
            if let Some(rate) = rate {
                text += &format!("{} {hour} {}\n", direction.name(), rate.bits_per_sec());
            }
        }
    }
    text
}

/// Parses a text. A text that [`write()`] could not have written is refused as a whole.
pub fn read(text: &str) -> Result<PerDirection<CapacityByHour>, ParseError> {
    if text.len() > MAX_BYTES {
        return Err(ParseError::TooLong);
    }
    let mut lines = text.lines();
    if lines.next() != Some(HEADER) {
        return Err(ParseError::Version);
    }
    let mut capacities = PerDirection::<CapacityByHour>::default();
    for (index, line) in lines.enumerate() {
        // Lines are counted from one, and the header is the first.
        let error = ParseError::Line(index + 2);
        let (direction, hour, rate) = entry(line).ok_or(error)?;
        let place = &mut capacities[direction].hours[hour];
        if place.replace(rate).is_some() {
            return Err(error);
        }
    }
    Ok(capacities)
}

fn entry(line: &str) -> Option<(Direction, usize, Rate)> {
    let mut words = line.split(' ');
    let name = words.next()?;
    let direction = Direction::BOTH
        .into_iter()
        .find(|direction| direction.name() == name)?;
    let hour = words.next()?.parse().ok().filter(|hour| *hour < HOURS)?;
    let rate = words
        .next()?
        .parse()
        .ok()
        .filter(|rate| (1..=MAX_RATE).contains(rate))?;
    let is_complete = words.next().is_none();
    is_complete.then_some((direction, hour, Rate::from_bits_per_sec(rate)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_hour_without_a_measurement_uses_the_nearest_hour_that_has_one() {
        let mut capacity = CapacityByHour::default();
        assert_eq!(capacity.at(3), None);
        capacity.learn(23, Rate::from_kbits_per_sec(8000));
        assert_eq!(capacity.at(1), Some(Rate::from_kbits_per_sec(8000)));
        capacity.learn(1, Rate::from_kbits_per_sec(16_000));
        capacity.learn(1, Rate::from_kbits_per_sec(8_000));
        assert_eq!(capacity.at(1), Some(Rate::from_kbits_per_sec(15_000)));
        assert_eq!(capacity.at(22), Some(Rate::from_kbits_per_sec(8000)));
    }

    proptest! {
        #[test]
        fn a_written_text_reads_back(hours in proptest::collection::vec(proptest::option::of(1..=MAX_RATE), 2 * HOURS)) {
            let mut capacities = PerDirection::<CapacityByHour>::default();
            for (index, rate) in hours.into_iter().enumerate() {
                let direction = Direction::BOTH[index / HOURS];
                capacities[direction].hours[index % HOURS] = rate.map(Rate::from_bits_per_sec);
            }
            let text = write(&capacities);
            prop_assert!(text.len() <= MAX_BYTES);
            prop_assert_eq!(read(&text), Ok(capacities));
        }
    }

    #[test]
    fn a_damaged_text_is_refused_as_a_whole() {
        let with = |line: &str| read(&format!("{HEADER}\ndownload 3 8000\n{line}\n"));
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
            assert_eq!(with(line), Err(ParseError::Line(3)), "{line}");
        }
        assert_eq!(read(""), Err(ParseError::Version));
        assert_eq!(read("sqm autorate learned 2\n"), Err(ParseError::Version));
        assert_eq!(read(&"x".repeat(MAX_BYTES + 1)), Err(ParseError::TooLong));
    }
}

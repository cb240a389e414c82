//! What a line usually carries, by hour of the day.

use sqm_core::units::Rate;

/// The capacity found in each hour, slowly averaged over days. Plain data, so that the caller can keep it in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Learned {
    /// One for each hour; none where nothing was found yet.
    pub hours: [Option<Rate>; 24],
}

impl Learned {
    /// What is usual in `hour`; else in the nearest hour of which something is known.
    pub fn at(&self, hour: u8) -> Option<Rate> {
        let hour = usize::from(hour) % 24;
        (0..=12).find_map(|distance| {
            self.hours[(hour + distance) % 24].or(self.hours[(hour + 24 - distance) % 24])
        })
    }

    /// Takes in that the line carried `capacity` and no more.
    pub(super) fn learn(&mut self, hour: u8, capacity: Rate) {
        let usual = &mut self.hours[usize::from(hour) % 24];
        let capacity = capacity.bits_per_sec();
        // An eighth at a time: a fade of seconds does not overrule days.
        let mean = usual.map_or(capacity, |usual| {
            let usual = usual.bits_per_sec();
            usual - usual / 8 + capacity / 8
        });
        *usual = Some(Rate::from_bits_per_sec(mean));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_hour_stands_in() {
        let mut learned = Learned::default();
        assert_eq!(learned.at(3), None);
        learned.learn(23, Rate::from_kbits_per_sec(8000));
        assert_eq!(learned.at(1), Some(Rate::from_kbits_per_sec(8000)));
        learned.learn(1, Rate::from_kbits_per_sec(16_000));
        learned.learn(1, Rate::from_kbits_per_sec(8_000));
        assert_eq!(learned.at(1), Some(Rate::from_kbits_per_sec(15_000)));
        assert_eq!(learned.at(22), Some(Rate::from_kbits_per_sec(8000)));
    }
}

//! Packet-delivery files of mahimahi (Netravali et al., USENIX ATC 2015): a line for each opportunity to send a packet of 1500
//! bytes, with its time in milliseconds. A file is for one direction.

use sqm_core::direction::PerDirection;
use sqm_core::units::{Nanos, Rate};

use super::{LONGEST, Recorded, Refused};

/// Opportunities are counted in periods of this length, milliseconds. A choice: shorter ones would show single packets.
const PERIOD: u64 = 40;
/// Bits of an opportunity.
const OPPORTUNITY: u64 = 1500 * 8;

/// One direction: the number of opportunities in each period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opportunities(Vec<u64>);

impl Opportunities {
    /// Reads a file. The last period counts only if the file covers it to its end.
    ///
    /// # Errors
    ///
    /// The first line that is not valid.
    pub fn parse(text: &str) -> Result<Self, Refused> {
        let mut counts: Vec<u64> = Vec::new();
        let mut last = 0;
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let refuse = |reason| Refused::line(index, reason);
            let millis: u64 = line
                .parse()
                .map_err(|_| refuse("not a time in whole milliseconds"))?;
            if millis > LONGEST.0 / 1_000_000 {
                return Err(refuse("the time is above 86400000 ms, a day"));
            }
            if millis < last {
                return Err(refuse("the time is before that of the line before"));
            }
            last = millis;
            let period = usize::try_from(millis / PERIOD).expect("a day has few periods");
            counts.resize(period + 1, 0);
            counts[period] += 1;
        }
        if (last + 1) % PERIOD != 0 {
            counts.pop();
        }
        Ok(Self(counts))
    }

    /// The rate in each of the first `count` periods.
    fn rates(&self, count: usize) -> Vec<(Nanos, Rate)> {
        let rate = |count: u64| {
            let bits = count.saturating_mul(OPPORTUNITY).saturating_mul(1000);
            Rate::from_bits_per_sec(bits / PERIOD)
        };
        let periods = (0..).zip(&self.0).take(count);
        periods
            .map(|(period, count)| (Nanos::from_millis(period * PERIOD), rate(*count)))
            .collect()
    }
}

impl Recorded {
    /// A line of two packet-delivery files. The shorter one decides the length.
    ///
    /// # Errors
    ///
    /// The recording is too short, too long or too slow.
    pub fn from_mahimahi(files: &PerDirection<Opportunities>) -> Result<Self, Refused> {
        let count = files.download.0.len().min(files.upload.0.len());
        let steps = PerDirection {
            download: files.download.rates(count),
            upload: files.upload.rates(count),
        };
        Self::new(steps, Nanos::from_millis(PERIOD * count as u64))
    }
}

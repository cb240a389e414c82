//! Recordings as lines of `time_s,download_kbit,upload_kbit`. `#` begins a comment, and one line may name the columns.

use sqm_core::direction::PerDirection;
use sqm_core::units::{Nanos, Rate};

use super::{LONGEST, Recorded, Refused};

/// No line is faster, kbit/s. A choice: 100 Gbit/s.
const FASTEST: f64 = 100_000_000.0;
const COLUMNS: &str = "time_s,download_kbit,upload_kbit";

impl Recorded {
    /// Reads a CSV file. Each rate holds until the next line, and the last one for as long as the one before it.
    ///
    /// # Errors
    ///
    /// The first line that is not valid, or why the whole is not.
    pub fn from_csv(text: &str) -> Result<Self, Refused> {
        let mut steps = PerDirection::<Vec<(Nanos, Rate)>>::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') || line == COLUMNS {
                continue;
            }
            let (time, rates) = row(line).map_err(|reason| Refused::line(index, reason))?;
            if steps.download.last().is_some_and(|(last, _)| time <= *last) {
                return Err(Refused::line(
                    index,
                    "the time is not after that of the line before",
                ));
            }
            steps.download.push((time, rates.download));
            steps.upload.push((time, rates.upload));
        }
        let [.., before, last] = steps.download[..] else {
            return Err(Refused::whole(format!("fewer than two lines of {COLUMNS}")));
        };
        Self::new(steps, Nanos(last.0.0 + (last.0.0 - before.0.0)))
    }
}

fn row(line: &str) -> Result<(Nanos, PerDirection<Rate>), String> {
    let fields: Vec<_> = line.split(',').map(|field| field.trim().parse::<f64>()).collect();
    let [Ok(time), Ok(download), Ok(upload)] = fields[..] else {
        return Err(format!("not three numbers {COLUMNS}"));
    };
    let longest = LONGEST.0 as f64 / 1e9;
    if !(0.0..=longest).contains(&time) {
        return Err("the time is not from 0 to 86400 seconds since the recording began".to_owned());
    }
    if ![download, upload]
        .iter()
        .all(|rate| (0.0..=FASTEST).contains(rate))
    {
        return Err("a rate is below 0 or above 100 Gbit/s".to_owned());
    }
    let rate = |kbits: f64| Rate::from_bits_per_sec((kbits * 1000.0).round() as u64);
    let rates = PerDirection {
        download: rate(download),
        upload: rate(upload),
    };
    Ok((Nanos::from_micros((time * 1e6).round() as u64), rates))
}

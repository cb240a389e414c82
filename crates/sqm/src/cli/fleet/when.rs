//! Times of the operator's commands.

use std::time::{SystemTime, UNIX_EPOCH};

use sqm_fleet::daily::Daily;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The present time, seconds since 1970 (UTC).
pub(super) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Parses a time such as `2026-12-24T00:00:00Z`.
pub(super) fn parse(text: &str) -> Result<u64, String> {
    let time = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| {
        format!("'{text}' is no time such as 2026-12-24T18:00:00Z or 2026-12-24T19:00:00+01:00")
    })?;
    u64::try_from(time.unix_timestamp()).map_err(|_| format!("'{text}' is before 1970"))
}

/// Parses times of the day such as `01:00-05:00` (UTC).
pub(super) fn daily(text: &str) -> Result<Daily, String> {
    let wrong = || format!("'{text}' is not two times of the day such as 01:00-05:00");
    let time = |text: &str| {
        let (hours, minutes) = text.trim().split_once(':')?;
        let (hours, minutes): (u32, u32) = (hours.parse().ok()?, minutes.parse().ok()?);
        (hours < 24 && minutes < 60).then_some(hours * 3600 + minutes * 60)
    };
    let (from, to) = text.split_once('-').ok_or_else(wrong)?;
    Ok(Daily {
        from_s: time(from).ok_or_else(wrong)?,
        to_s: time(to).ok_or_else(wrong)?,
    })
}

/// A time as text.
pub(super) fn text(unix_s: u64) -> String {
    let time = i64::try_from(unix_s)
        .ok()
        .and_then(|unix| OffsetDateTime::from_unix_timestamp(unix).ok());
    time.and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_else(|| format!("{unix_s} s after 1970"))
}

/// How long ago, in words.
pub(super) fn ago(then: u64, now: u64) -> String {
    match now.saturating_sub(then) {
        seconds @ 0..=119 => format!("{seconds} s ago"),
        seconds @ 120..=7199 => format!("{} min ago", seconds / 60),
        seconds @ 7200..=172_799 => format!("{} h ago", seconds / 3600),
        seconds => format!("{} days ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_zone() {
        assert_eq!(parse("2027-01-15T09:00:00+01:00"), Ok(1_800_000_000));
        assert_eq!(text(1_800_000_000), "2027-01-15T08:00:00Z");
        for wrong in [
            "",
            "tomorrow",
            "2027-01-15",
            "2027-01-15T08:00:00",
            "1960-01-01T00:00:00Z",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_of_the_day_are_two() {
        assert_eq!(
            daily("22:30-04:00"),
            Ok(Daily {
                from_s: 81_000,
                to_s: 14_400
            })
        );
        assert!(daily("24:00-04:00").is_err() && daily("1-2").is_err());
    }
}

//! Dates and times as text and as seconds since 1970, in UTC. Pure.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY: i64 = 86_400;
/// The end of the year 9999 in seconds since 1970: later years have more than four digits.
const LAST: f64 = 253_402_300_799.0;

/// A time by RFC 3339, to the second.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    format!("{}Z", seconds_text(since.as_secs() as i64))
}

/// Seconds since 1970 by RFC 3339, to the second.
pub(crate) fn iso_seconds(unix: f64) -> String {
    format!("{}Z", seconds_text(unix.clamp(0.0, LAST) as i64))
}

/// Seconds since 1970 as Flent writes them: ISO 8601 to the microsecond, with `mark` behind, the suffix for UTC.
pub(crate) fn iso_microseconds(unix: f64, mark: &str) -> String {
    let unix = unix.clamp(0.0, LAST);
    let micros = (unix * 1e6).round() as i64;
    let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
    format!("{}.{micros:06}{mark}", seconds_text(seconds))
}

/// Parses an ISO 8601 date and time. Returns seconds since 1970, and whether the text says that it is UTC.
pub(crate) fn parse(text: &str) -> Option<(f64, bool)> {
    let (text, utc) = match text.strip_suffix('Z') {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let (date, time) = text.split_once(['T', ' '])?;
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time, ':')?;
    let whole = |n: f64, range: std::ops::RangeInclusive<f64>| {
        (range.contains(&n) && n.fract() == 0.0).then_some(n as i64)
    };
    let day = days_from_civil(
        whole(year, 1.0..=9999.0)?,
        whole(month, 1.0..=12.0)?,
        whole(day, 1.0..=31.0)?,
    );
    let minutes = whole(hour, 0.0..=23.0)? * 60 + whole(minute, 0.0..=59.0)?;
    let second = (0.0..61.0).contains(&second).then_some(second)?;
    Some(((day * DAY + minutes * 60) as f64 + second, utc))
}

fn numbers(text: &str, separator: char) -> Option<[f64; 3]> {
    let mut parts = text.split(separator);
    let mut next = || {
        let part = parts.next()?;
        let digits = part.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        digits.then(|| part.parse::<f64>().ok()).flatten()
    };
    let found = [next()?, next()?, next()?];
    parts.next().is_none().then_some(found)
}

fn seconds_text(unix: i64) -> String {
    let (days, second) = (unix.div_euclid(DAY), unix.rem_euclid(DAY));
    let (year, month, day) = civil_from_days(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// Gregorian calendar from a day count, in years that begin in March so that the leap day comes last
/// (Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`).
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// The day count of a date (`days_from_civil` in the same source).
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let march_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * march_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        let at = |seconds| rfc3339(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(at(1_767_225_599), "2025-12-31T23:59:59Z");
        assert_eq!(
            iso_microseconds(951_827_696.25, "Z"),
            "2000-02-29T12:34:56.250000Z"
        );
    }

    #[test]
    fn times_are_read_back() {
        assert_eq!(parse("2000-02-29T12:34:56.250000Z"), Some((951_827_696.25, true)));
        assert_eq!(parse("2025-12-31T23:59:59"), Some((1_767_225_599.0, false)));
        assert_eq!(parse("1970-01-01T00:00:00Z"), Some((0.0, true)));
        for wrong in [
            "",
            "2025-12-31",
            "2025-13-01T00:00:00",
            "2025-1-1T-1:0:0",
            "2025-01-01T00:00:nan",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}

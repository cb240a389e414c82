//! Lengths of time on the command line.

use std::time::Duration;

use sqm_core::units::Nanos;

/// The longest time, a choice: far more than any command takes.
const LONGEST: Duration = Duration::from_secs(1_000_000_000);

/// Parses a time such as `25s`, `100ms` or `2m`. A bare number is seconds.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    parse_in(text, "s")
}

/// [`parse`], in milliseconds.
#[cfg(feature = "router")]
pub(super) fn parse_ms(text: &str) -> Result<u64, String> {
    let time = parse(text)?;
    u64::try_from(time.as_millis()).map_err(|_| format!("'{text}' is too long"))
}

/// [`parse`], in whole seconds from `least` to `most`.
pub(super) fn parse_seconds(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let time = parse(text)?;
    let seconds = time.as_secs();
    if time.subsec_nanos() > 0 {
        return Err(format!("'{text}' is not a whole number of seconds"));
    }
    match (least..=most).contains(&seconds) {
        true => Ok(seconds),
        false => Err(format!("the time must be from {least} to {most} s")),
    }
}

/// Parses how long a command watches queues and processors, in seconds.
pub(super) fn parse_watch(text: &str) -> Result<u64, String> {
    parse_seconds(text, 0, 3600)
}

/// Parses an added latency or a target, such as `30ms`. A bare number is milliseconds.
#[cfg(feature = "full")]
pub(super) fn parse_target(text: &str) -> Result<Duration, String> {
    parse_in(text, "ms")
}

/// Parses a delay or a round trip. It needs its unit: a bare number could be milliseconds as well as seconds.
#[cfg(feature = "full")]
pub fn parse_delay(text: &str) -> Result<Nanos, String> {
    if text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(format!("'{text}' needs a unit: {text}ms or {text}s"));
    }
    let time = parse_in(text, "ms")?;
    u64::try_from(time.as_nanos())
        .map(Nanos)
        .map_err(|_| format!("'{text}' is too long"))
}

/// Parses a time. `bare` is the unit of a bare number.
fn parse_in(text: &str, bare: &str) -> Result<Duration, String> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let (unit, factor) = match unit.trim() {
        "" => (bare, 1),
        "us" | "usec" | "usecs" | "µs" => ("us", 1),
        "ms" | "msec" | "msecs" => ("ms", 1),
        "s" | "sec" | "secs" => ("s", 1),
        "m" | "min" => ("s", 60),
        "h" => ("s", 3600),
        unit => return Err(format!("unknown unit of time '{unit}': write 100ms, 25s or 2m")),
    };
    // Without floating-point numbers, whose parser has tables of 10 kB.
    let time = Nanos::parse_tc(&format!("{number}{unit}")).ok();
    let time = time
        .and_then(|time| time.0.checked_mul(factor))
        .map(Duration::from_nanos);
    time.filter(|time| *time <= LONGEST)
        .ok_or_else(|| format!("'{text}' is not a length of time: write 100ms, 25s or 2m"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_bare_numbers_are_seconds() {
        for (text, ms) in [
            ("30", 30_000),
            ("30s", 30_000),
            ("0.5", 500),
            ("100ms", 100),
            ("2m", 120_000),
            ("1.5 min", 90_000),
            ("1h", 3_600_000),
            ("0", 0),
        ] {
            assert_eq!(parse_ms(text), Ok(ms), "{text}");
        }
        for text in [
            "",
            "s",
            "-1",
            "1e3",
            "5 parsecs",
            "1:30",
            "1s2",
            "99999999999999",
            "٣",
        ] {
            assert!(parse_ms(text).is_err(), "{text}");
        }
        assert!(parse("5d").unwrap_err().contains("write 100ms, 25s or 2m"));
    }

    #[test]
    fn a_target_without_unit_is_milliseconds_and_a_delay_needs_its_unit() {
        let ms = Duration::from_millis;
        assert_eq!(
            (parse_target("30"), parse_target("30ms")),
            (Ok(ms(30)), Ok(ms(30)))
        );
        assert_eq!(parse_target("0.5"), Ok(Duration::from_micros(500)));
        assert_eq!(parse_delay("1.2s"), Ok(Nanos(1_200_000_000)));
        assert_eq!(parse_delay("250us"), Ok(Nanos(250_000)));
        assert!(parse_delay("250").unwrap_err().contains("250ms or 250s"));
    }

    #[test]
    fn seconds_have_bounds_and_no_fraction() {
        assert_eq!(parse_seconds("2m", 1, 3600), Ok(120));
        assert!(
            parse_seconds("500ms", 0, 3600)
                .unwrap_err()
                .contains("whole number")
        );
        assert!(
            parse_seconds("2h", 1, 3600)
                .unwrap_err()
                .contains("from 1 to 3600 s")
        );
    }
}

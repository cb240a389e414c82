//! The rates of a line: from a person, or from results of `sqm test`.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use sqm_core::direction::Direction;
use sqm_core::units::Rate;
use sqm_measure::result::TestResult;
use sqm_plan::arithmetic::{self, Headers, Known};
use sqm_plan::line_rate::{self, LineRateError};
use sqm_process::failure::Failure;

use super::counting::Counting;

/// Shaper rates, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rates {
    pub(super) download: Option<Rate>,
    pub(super) upload: Option<Rate>,
}

impl Rates {
    pub(super) fn of(&self, direction: Direction) -> Option<Rate> {
        match direction {
            Direction::Download => self.download,
            Direction::Upload => self.upload,
        }
    }

    /// These rates, and the other ones where these are unknown.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            download: self.download.or(other.download),
            upload: self.upload.or(other.upload),
        }
    }
}

/// Shaper rates for a line with these rates.
pub(super) fn shaped(rates: &[Rate], known: Known) -> Rates {
    let at = |index: usize| rates.get(index).map(|rate| arithmetic::shaped(*rate, known));
    Rates {
        download: at(0),
        upload: at(1),
    }
}

#[cfg(feature = "full")]
fn loaded(file: &Path) -> Result<TestResult, Failure> {
    TestResult::load(file)
        .map_err(|error| Failure::Usage(anyhow!("{} is not a result of sqm test: {error}", file.display())))
}

#[cfg(not(feature = "full"))]
fn loaded(_: &Path) -> Result<TestResult, Failure> {
    Err(Failure::Usage(anyhow!(
        "--test is not in this program, which was built for routers: give --server, or the rates of the test by --measured"
    )))
}

/// Shaper rates from files of `sqm test`. Each file may have one direction or both. A warning is printed for a file with both
/// directions at once only.
pub(super) fn of_files(files: &[PathBuf], counting: &Counting) -> Result<Rates, Failure> {
    let mut results = Vec::new();
    for file in files {
        results.push((file.as_path(), loaded(file)?));
    }
    let mut rates = Rates::default();
    for direction in Direction::BOTH {
        let found = results
            .iter()
            .filter_map(|(file, result)| Some((*file, result, carried(result, direction)?)));
        let best = found.max_by(|(_, one, a), (_, other, b)| {
            let alone = |result: &TestResult| result.was_alone(direction);
            alone(one).cmp(&alone(other)).then(a.total_cmp(b))
        });
        let Some((file, result, _)) = best else { continue };
        if !result.was_alone(direction) {
            warn_of_both(file, direction);
        }
        let rate = of_result(result, direction, counting);
        match direction {
            Direction::Download => rates.download = rate,
            Direction::Upload => rates.upload = rate,
        }
    }
    if rates == Rates::default() {
        let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        return Err(Failure::Usage(anyhow!(
            "no data arrived in {}: run 'sqm test HOST --json FILE' without SQM, and give that file",
            names.join(", ")
        )));
    }
    Ok(rates)
}

fn warn_of_both(file: &Path, direction: Direction) {
    errln!(
        "warning: {} has the {} only with both directions at once, which understates what the line carries: run 'sqm test \
         HOST --json FILE' without SQM, which also loads each direction alone, and give that file",
        file.display(),
        direction.name()
    );
}

fn carried(result: &TestResult, direction: Direction) -> Option<f64> {
    result.carried_mbit(direction).filter(|mbit| *mbit > 0.0)
}

/// The shaper rate from a result: what the line carried as TCP payload is converted to its gross rate first.
pub(super) fn of_result(result: &TestResult, direction: Direction, counting: &Counting) -> Option<Rate> {
    of_goodput(carried(result, direction)?, result.was_alone(direction), counting)
}

/// The shaper rate for this goodput of TCP, Mbit/s. `was_alone` is true if the other direction was idle.
pub(super) fn of_goodput(mbit: f64, was_alone: bool, counting: &Counting) -> Option<Rate> {
    let goodput = Rate::from_bits_per_sec((mbit * 1e6) as u64);
    let headers = Headers::IPV4.timestamps();
    let gross = arithmetic::gross(goodput, counting.packet, headers, &counting.framing)?;
    let known = match was_alone {
        true => Known::MeasuredAlone,
        false => Known::Measured,
    };
    (gross.bits_per_sec() > 0).then(|| arithmetic::shaped(gross, known))
}

/// Reads the speeds of a line as people type them: `80/20 Mbit/s`, `80 Mbit/s 20 Mbit/s`, or the download alone. With `measured`
/// before them they are those of a speed test, otherwise those of the contract.
pub(super) fn parse_speeds(text: &str) -> Result<Rates, String> {
    if text.trim().is_empty() {
        return Err("type the speeds with their unit, such as 80/20 Mbit/s".to_owned());
    }
    let lower = text.trim().to_lowercase();
    let (known, text) = match lower.strip_prefix("measured") {
        Some(_) => (Known::Measured, text.trim()["measured".len()..].trim()),
        None => (Known::Advertised, text.trim()),
    };
    let rates = match (parse_rate(text), two(text)) {
        (Ok(download), _) => vec![download],
        (Err(LineRateError::Respelled(_, one)), Some((down, up))) => {
            return Err(format!(
                "'{text}' could be one speed or two: type {one}, or {down} / {up}"
            ));
        }
        (Err(_), Some((download, upload))) => vec![download, upload],
        (Err(error), None) => {
            let is_bare = |c: char| c.is_ascii_digit() || c.is_whitespace() || matches!(c, '/' | '.' | ',');
            return Err(match text.contains('/') && text.chars().all(is_bare) {
                true => format!("'{text}' needs a unit: type {text} Mbit/s"),
                false => error.to_string(),
            });
        }
    };
    Ok(shaped(&rates, known))
}

/// Two rates in one text. The first one may leave its unit to the second.
fn two(text: &str) -> Option<(Rate, Rate)> {
    let is_between = |c: char| c == '/' || c.is_whitespace();
    text.match_indices(is_between).find_map(|(at, found)| {
        let (one, other) = (text[..at].trim(), text[at + found.len()..].trim());
        let other = other.trim_start_matches(['/', ' ']);
        let upload = parse_rate(other).ok()?;
        let unit = other.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.' || c == ',');
        let with_unit = format!("{one}{unit}");
        let is_bare = one.chars().all(|c| c.is_ascii_digit() || c == '.' || c == ',');
        let one = if is_bare { with_unit.as_str() } else { one };
        Some((parse_rate(one).ok()?, upload))
    })
}

/// Parses a rate that a person has typed. A bare number that could be Mbit/s or kbit/s is an error.
pub(in crate::cli) fn parse_rate(text: &str) -> Result<Rate, LineRateError> {
    line_rate::parse_to_shape(text, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_speeds_are_typed_in_one_answer_or_only_the_download() {
        let rates = |down: u64, up: Option<u64>| {
            Ok(Rates {
                download: Some(Rate::from_kbits_per_sec(down)),
                upload: up.map(Rate::from_kbits_per_sec),
            })
        };
        for text in [
            "80/20 Mbit/s",
            "80 / 20 Mbit/s",
            "80 Mbit/s / 20 Mbit/s",
            "80 Mbit/s 20 Mbit/s",
            "80mbit 20mbit",
            "80 20 mbps",
            "80 Mbps/20 Mbps",
            "80000 kbit/20000 kbit",
        ] {
            assert_eq!(parse_speeds(text), rates(68_000, Some(17_000)), "{text}");
        }
        assert_eq!(parse_speeds("80 Mbit/s"), rates(68_000, None));
        assert_eq!(parse_speeds("500 200 Mbit/s"), rates(425_000, Some(170_000)));
        assert_eq!(parse_speeds("measured 80/20 Mbit/s"), rates(76_000, Some(19_000)));
        assert_eq!(parse_speeds("100000/40000"), rates(85_000, Some(34_000)));
        for text in ["", "  "] {
            let error = parse_speeds(text).unwrap_err();
            assert!(
                error.contains("80/20 Mbit/s") && !error.contains("kbit'"),
                "{error}"
            );
        }
        for (text, question) in [
            ("1 500 Mbit/s", "type 1500 Mbit/s, or 1mbit / 500mbit"),
            ("20 500 kbit", "type 20500 kbit, or 20kbit / 500kbit"),
            ("20 000", "did you mean '20000'?"),
        ] {
            let error = parse_speeds(text).unwrap_err();
            assert!(error.contains(question), "{text}: {error}");
        }
        assert!(parse_speeds("28").unwrap_err().contains("28mbit"));
        for text in ["80/20", "28/4.8", "28,5 / 4,8"] {
            let said = parse_speeds(text).unwrap_err();
            assert_eq!(said, format!("'{text}' needs a unit: type {text} Mbit/s"));
        }
        assert!(parse_speeds("80/20 apples").is_err() && parse_speeds("fast").is_err());
    }
}

//! `POST /config/rates`: the speeds of a line, as a person types them, and the rates to shape it at.

use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use sqm_core::units::Rate;
use sqm_http::json;
use sqm_plan::arithmetic::{self, Known};
use sqm_plan::line_rate;

use super::problem::ApiResult;

/// The longest text of a speed that is read, characters. Our choice.
const MOST_TEXT: usize = 100;

/// The body of the request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Speeds {
    download: String,
    upload: String,
    source: Source,
}

/// Where the speeds come from.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Source {
    /// The contract.
    Advertised,
    /// A test without shaping.
    Measured,
}

#[derive(Serialize)]
struct Rates {
    download: LineRate,
    upload: LineRate,
}

/// The rates of a direction, or the error in its text.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct LineRate {
    line_kbit: Option<u64>,
    shaper_kbit: Option<u64>,
    error: Option<String>,
}

/// The line rate and the shaper rate of each direction.
pub(super) fn read(speeds: &Speeds) -> ApiResult {
    let rates = Rates {
        download: LineRate::of(&speeds.download, speeds.source),
        upload: LineRate::of(&speeds.upload, speeds.source),
    };
    Ok(json(StatusCode::OK, &rates))
}

impl LineRate {
    fn of(text: &str, source: Source) -> Self {
        let known = match source {
            Source::Advertised => Known::Advertised,
            Source::Measured => Known::Measured,
        };
        match parse(text) {
            Ok(line) => Self {
                line_kbit: Some(line.kbits_per_sec()),
                shaper_kbit: Some(arithmetic::shaped(line, known).kbits_per_sec()),
                error: None,
            },
            Err(error) => Self {
                error: Some(error),
                ..Self::default()
            },
        }
    }
}

/// Reads a speed. A number without a unit is Mbit/s, the unit of the page.
fn parse(text: &str) -> Result<Rate, String> {
    if text.chars().count() > MOST_TEXT {
        return Err(format!("a speed has at most {MOST_TEXT} characters"));
    }
    line_rate::parse_to_shape(text, Some("mbit")).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_speed_is_read_and_a_plain_number_is_in_mbit() {
        for (text, kbit) in [
            ("80 Mbit/s", 80_000),
            ("80mbps", 80_000),
            ("80", 80_000),
            ("2,5", 2_500),
            ("2.5 Gbit/s", 2_500_000),
            ("40000", 40_000),
            ("512kbit", 512),
        ] {
            let rate = LineRate::of(text, Source::Advertised);
            assert_eq!((rate.line_kbit, rate.error), (Some(kbit), None), "{text}");
        }
        for text in ["", "fast", "0", "80 MB/s", "100/40", &"9".repeat(101)] {
            let rate = LineRate::of(text, Source::Advertised);
            assert!(
                rate.error.is_some() && rate.line_kbit.is_none(),
                "{text}: {rate:?}"
            );
        }
    }

    #[test]
    fn the_shaper_gets_less_of_an_advertised_speed_than_of_a_measured_one() {
        let shaper = |source| LineRate::of("100 Mbit/s", source).shaper_kbit;
        assert_eq!(shaper(Source::Advertised), Some(85_000));
        assert_eq!(shaper(Source::Measured), Some(95_000));
    }
}

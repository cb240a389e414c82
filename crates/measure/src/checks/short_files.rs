//! Files that are too short to fill the line.

use crate::result::{Finding, Severity};

/// Largest share of the load that a flow may spend waiting for answers to its requests. A choice.
const PAUSES: f64 = 0.05;

/// The finding for a file so short that a flow with `requests` requests spent too much of the load waiting for answers.
pub(crate) fn short_files(url: &str, requests: u32, round_trip_ms: f64, load_ms: f64) -> Option<Finding> {
    let pauses = f64::from(requests.saturating_sub(1)) * round_trip_ms / load_ms;
    (pauses > PAUSES).then(|| {
        Finding::new(
            Severity::Warning,
            "short_files",
            format!(
                "one flow needed {requests} requests to {url} in {:.0} s and waited a round trip or more for each: goodput is \
                 too low; use a larger file, or more flows",
                load_ms / 1e3
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_spent_waiting_for_answers_is_a_finding() {
        let url = "http://192.0.2.1/small";
        assert_eq!(short_files(url, 26, 20.0, 10_000.0), None);
        let told = short_files(url, 27, 20.0, 10_000.0).expect("27 requests take 5.2 % of ten seconds");
        assert!(
            told.text.contains(url) && told.text.contains("27 requests"),
            "{told:?}"
        );
        assert_eq!(
            short_files(url, 1, 9000.0, 10_000.0),
            None,
            "the first is no pause"
        );
    }
}

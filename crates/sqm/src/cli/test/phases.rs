//! Prints the figures of each phase of a test.

use std::fmt::Write as _;

use sqm_measure::result::{Delay, PhaseFigures, TestResult};

/// A table with a row for each phase: rates, round trips, and the delays, the jitter and the losses of each way. Empty if the line was
/// never loaded.
pub(super) fn table(result: &TestResult) -> String {
    let phases = &result.summary.phases;
    // The idle phase after the load shows the queue that drains: it is no figure of the line.
    let last = phases.iter().rposition(|phase| !phase.loaded.is_empty());
    let Some(last) = last else {
        return String::new();
    };
    let mut text = format!(
        "\n{:<10}{:>8}{:>8} {:>10}{:>9}{:>8} {:>16}{:>10}\n{:<10}{:>8}{:>8} {:>10}{:>9}{:>8} {:>8}{:>8}{:>10}\n",
        "phase",
        "down",
        "up",
        "round trip",
        "95 %",
        "jitter",
        "one way: down",
        "up",
        "",
        "Mbit/s",
        "Mbit/s",
        "ms",
        "ms",
        "ms",
        "ms",
        "ms",
        "lost"
    );
    for phase in &phases[..=last] {
        text += &row(phase);
    }
    text
}

fn row(phase: &PhaseFigures) -> String {
    let ms = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"));
    let mut text = String::new();
    let Delay {
        median_ms,
        p95_ms,
        jitter_ms,
        ..
    } = phase.round_trip;
    writeln!(
        text,
        "{:<10}{:>8}{:>8} {:>10}{:>9}{:>8} {:>8}{:>8}  {}",
        phase.name(),
        rate(phase.download_mbit),
        rate(phase.upload_mbit),
        ms(median_ms),
        ms(p95_ms),
        ms(jitter_ms),
        ms(phase.down.median_ms),
        ms(phase.up.median_ms),
        lost(phase)
    )
    .expect("a string grows");
    text
}

/// A rate in Mbit/s. Two decimals of a gigabit and more would fill the column.
fn rate(mbit: Option<f64>) -> String {
    match mbit {
        None => "-".to_owned(),
        Some(mbit) if mbit < 1000.0 => format!("{mbit:.2}"),
        Some(mbit) => format!("{mbit:.0}"),
    }
}

/// The lost probes, and in which direction they were lost as far as that is known.
fn lost(phase: &PhaseFigures) -> String {
    let (all, down, up) = (phase.round_trip.lost, phase.down.lost, phase.up.lost);
    let unknown = all.saturating_sub(down + up);
    let known = [(down, "down"), (up, "up"), (unknown, "somewhere")];
    let parts: Vec<String> = known
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, way)| format!("{count} {way}"))
        .collect();
    match parts.is_empty() {
        true => format!("0 of {}", phase.sent),
        false => format!("{} of {}", parts.join(", "), phase.sent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_leaves_room_between_the_columns() {
        let rates = [None, Some(0.04), Some(93.456), Some(9412.34), Some(400_000.0)].map(rate);
        assert_eq!(rates, ["-", "0.04", "93.46", "9412", "400000"]);
    }
}

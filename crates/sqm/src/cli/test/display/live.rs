//! The live view on a terminal.

use std::collections::VecDeque;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use sqm_measure::client::{Progress, Stage};
use sqm_measure::result::{Phase, Settings};

use super::{figures, latency, named_phases, phase_label};

/// Most round trips in the sparkline: the last ten seconds.
const SPARKS: usize = 40;
/// Cells of the progress bar. The bar keeps its length while the text beside it grows. A choice: with the figures of a fast line it leaves
/// a sparkline of some seconds on 80 columns.
const CELLS: usize = 10;
/// Columns of a terminal that does not tell them.
const USUAL_COLUMNS: u16 = 80;

/// A progress bar with the current figures, and the latency of the last seconds as a sparkline.
pub(in crate::cli::test) struct Live {
    bar: ProgressBar,
    idle: Duration,
    phases: Vec<Phase>,
    round_trips: VecDeque<f64>,
}

impl Live {
    pub(super) fn new(settings: &Settings) -> Self {
        let bar = ProgressBar::new(settings.idle_ms + settings.load_ms + settings.after_ms);
        let style = ProgressStyle::with_template(&format!("{{bar:{CELLS}}} {{wide_msg}}"))
            .expect("only the length varies");
        bar.set_style(style);
        Self {
            bar,
            idle: Duration::from_millis(settings.idle_ms),
            phases: named_phases(settings),
            round_trips: VecDeque::new(),
        }
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    pub(super) fn show(&mut self, progress: &Progress) {
        if let Some(rtt) = progress.rtt {
            if self.round_trips.len() == SPARKS {
                self.round_trips.pop_front();
            }
            self.round_trips.push_back(rtt.as_secs_f64() * 1000.0);
        }
        self.bar.set_position(progress.elapsed.as_millis() as u64);
        let what = match progress.stage {
            Stage::Idle => "idle".to_owned(),
            Stage::Load => {
                let loaded = progress.elapsed.saturating_sub(self.idle);
                format!("{}{}", phase_label(&self.phases, loaded), figures(progress))
            }
            Stage::After => "idle again".to_owned(),
            Stage::Collect => "late packets".to_owned(),
        };
        let left = progress.left.as_secs();
        let text = match progress.stage {
            Stage::Load => format!("{left:2} s left  {what}"),
            _ => format!("{left:2} s left  {what}, {}", latency(progress)),
        };
        let round_trips = self.round_trips.make_contiguous();
        self.bar.set_message(with_sparkline(text, round_trips, columns()));
    }
}

/// Columns of the terminal that shows the progress.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    let columns = size.map_or(USUAL_COLUMNS, |size| size.ws_col);
    usize::from(if columns > 0 { columns } else { USUAL_COLUMNS })
}

/// The text and a sparkline of the latest round trips, as many as there is room for beside the bar.
fn with_sparkline(text: String, round_trips: &[f64], columns: usize) -> String {
    // A blank follows the bar, two follow the text, and a full last column would wrap on some terminals.
    let used = CELLS + 1 + text.chars().count() + 2 + 1;
    let room = columns.saturating_sub(used).min(round_trips.len());
    match room {
        0 => text,
        _ => format!("{text}  {}", sparkline(&round_trips[round_trips.len() - room..])),
    }
}

/// Draws one character for each value, on a logarithmic scale from the smallest to the largest. Both 20 ms and 2 s
/// stay readable.
fn sparkline(values: &[f64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let logs: Vec<f64> = values.iter().map(|v| v.max(0.001).ln()).collect();
    let least = logs.iter().copied().fold(f64::INFINITY, f64::min);
    let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // An idle line varies by fractions of a millisecond. The scale spans at least a factor of two, so that such noise
    // does not fill it.
    let span = (most - least).max(std::f64::consts::LN_2);
    logs.iter()
        .map(|v| BARS[(((v - least) / span * 7.0).round() as usize).min(7)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sparkline_has_the_latest_round_trips_that_fit_beside_the_bar() {
        let text = "12 s left  download: down 80.0 Mbit/s, up 20.0 Mbit/s, 20.3 ms".to_owned();
        let mut round_trips = vec![20.0; 39];
        round_trips.push(200.0);
        for columns in [20, 60, 80, 100, 200] {
            let line = with_sparkline(text.clone(), &round_trips, columns);
            let drawn = line.chars().count() - text.chars().count();
            assert!(drawn == 0 || CELLS + 1 + line.chars().count() < columns, "{line}");
            assert_eq!(drawn > 0, columns >= 80, "{columns}: {line}");
            assert!(
                drawn == 0 || line.ends_with('█'),
                "the latest is the last: {line}"
            );
        }
        assert_eq!(with_sparkline("x".to_owned(), &[20.0], 80), "x  ▁");
    }

    #[test]
    fn a_sparkline_spans_its_values() {
        assert_eq!(sparkline(&[]), "");
        assert_eq!(sparkline(&[20.0, 20.0]), "▁▁");
        assert_eq!(sparkline(&[20.0, 250.0, 2000.0]), "▁▅█");
        assert_eq!(sparkline(&[20.0, 22.0]), "▁▂");
    }
}

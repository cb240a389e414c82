//! Progress of a test on standard error: a live view on a terminal, plain lines elsewhere.

use std::collections::VecDeque;
use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use sqm_measure::client::{Progress, Stage};
use sqm_measure::result::{Phase, Settings};

/// Most round trips in the sparkline: the last ten seconds.
const SPARKS: usize = 40;
/// Cells of the progress bar. The bar keeps its length while the text beside it grows. A choice: with the figures of a fast line it leaves
/// a sparkline of some seconds on 80 columns.
const CELLS: usize = 10;
/// Columns of a terminal that does not tell them.
const USUAL_COLUMNS: u16 = 80;

/// A form for programs.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(super) enum Form {
    /// {"stage", "phase", "elapsed_s", "left_s", "download_mbit", "upload_mbit", "rtt_ms"}
    Json,
}

/// The form in which progress is shown.
pub(super) enum Display {
    Quiet,
    Json(Json),
    Lines(Lines),
    Live(Live),
}

impl Display {
    pub(super) fn new(settings: &Settings, quiet: bool, form: Option<Form>) -> Self {
        let idle = Duration::from_millis(settings.idle_ms);
        if form.is_some() {
            return Self::Json(Json {
                idle,
                phases: named_phases(settings),
            });
        }
        if quiet {
            return Self::Quiet;
        }
        if !std::io::stderr().is_terminal() {
            return Self::Lines(Lines {
                idle,
                load_s: settings.load_ms as f64 / 1000.0,
                phases: named_phases(settings),
                said: None,
            });
        }
        let bar = ProgressBar::new(settings.idle_ms + settings.load_ms + settings.after_ms);
        let style = ProgressStyle::with_template(&format!("{{bar:{CELLS}}} {{wide_msg}}"))
            .expect("only the length varies");
        bar.set_style(style);
        Self::Live(Live {
            bar,
            idle: Duration::from_millis(settings.idle_ms),
            phases: named_phases(settings),
            round_trips: VecDeque::new(),
        })
    }

    pub(super) fn show(&mut self, progress: &Progress) {
        match self {
            Self::Quiet => {}
            Self::Json(json) => json.show(progress),
            Self::Lines(lines) => lines.show(progress),
            Self::Live(live) => live.show(progress),
        }
    }

    pub(super) fn finish(&self) {
        if let Self::Live(live) = self {
            live.bar.finish_and_clear();
        }
    }
}

/// Prints lines of JSON.
pub(super) struct Json {
    idle: Duration,
    phases: Vec<Phase>,
}

impl Json {
    fn show(&self, progress: &Progress) {
        let loaded = progress.elapsed.saturating_sub(self.idle);
        let phase = match progress.stage {
            Stage::Load => phase_at(&self.phases, loaded).map(Phase::name),
            Stage::Idle | Stage::After | Stage::Collect => None,
        };
        show_json(progress, phase);
    }
}

/// Prints the progress as a line of JSON. `phase` is the load of this moment, in a test with several phases.
pub(super) fn show_json(progress: &Progress, phase: Option<&'static str>) {
    #[derive(serde::Serialize)]
    struct Line {
        stage: &'static str,
        phase: Option<&'static str>,
        elapsed_s: f64,
        left_s: f64,
        download_mbit: f64,
        upload_mbit: f64,
        rtt_ms: Option<f64>,
    }
    let line = Line {
        stage: match progress.stage {
            Stage::Idle => "idle",
            Stage::Load => "load",
            Stage::After => "after",
            Stage::Collect => "collect",
        },
        phase,
        elapsed_s: progress.elapsed.as_secs_f64(),
        left_s: progress.left.as_secs_f64(),
        download_mbit: progress.download_mbit,
        upload_mbit: progress.upload_mbit,
        rtt_ms: progress.rtt.map(|rtt| rtt.as_secs_f64() * 1000.0),
    };
    errln!("{}", serde_json::to_string(&line).unwrap_or_default());
}

/// Prints a line for each stage, and one a second under load.
pub(super) struct Lines {
    idle: Duration,
    load_s: f64,
    phases: Vec<Phase>,
    /// Stage and second of the last line.
    said: Option<(Stage, u64)>,
}

impl Lines {
    fn show(&mut self, progress: &Progress) {
        let loaded = progress.elapsed.saturating_sub(self.idle);
        // Reports arrive a little late, never early. Rounding down therefore gives the right second.
        let now = match progress.stage {
            Stage::Load => (Stage::Load, loaded.as_secs()),
            stage => (stage, 0),
        };
        if self.said == Some(now) || now == (Stage::Load, 0) {
            return;
        }
        self.said = Some(now);
        match progress.stage {
            Stage::Idle => errln!("idle line"),
            Stage::Load => errln!(
                "{:3} of {:.0} s  {}{}",
                now.1,
                self.load_s,
                phase_label(&self.phases, loaded),
                figures(progress)
            ),
            Stage::After => errln!("idle line again"),
            Stage::Collect => errln!("waiting for late packets"),
        }
    }
}

/// A progress bar with the current figures, and the latency of the last seconds as a sparkline.
pub(super) struct Live {
    bar: ProgressBar,
    idle: Duration,
    phases: Vec<Phase>,
    round_trips: VecDeque<f64>,
}

impl Live {
    fn show(&mut self, progress: &Progress) {
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

/// The loaded phases of a test that has several.
fn named_phases(settings: &Settings) -> Vec<Phase> {
    match settings.is_in_turn() {
        true => settings.phases().into_iter().filter(|p| !p.is_idle()).collect(),
        false => Vec::new(),
    }
}

/// The phase at this time of the load. `None` if the phases have no names.
fn phase_at(phases: &[Phase], loaded: Duration) -> Option<&Phase> {
    let t_ms = loaded.as_secs_f64() * 1000.0;
    phases.iter().rev().find(|phase| phase.from_ms <= t_ms)
}

/// The name of the phase at this time of the load, followed by a colon. Empty if the phases have no names.
fn phase_label(phases: &[Phase], loaded: Duration) -> String {
    phase_at(phases, loaded)
        .map(|phase| format!("{}: ", phase.name()))
        .unwrap_or_default()
}

fn figures(progress: &Progress) -> String {
    format!(
        "down {:.1} Mbit/s, up {:.1} Mbit/s, {}",
        progress.download_mbit,
        progress.upload_mbit,
        latency(progress)
    )
}

fn latency(progress: &Progress) -> String {
    match progress.rtt {
        Some(rtt) => format!("{:.1} ms", rtt.as_secs_f64() * 1000.0),
        None => "no reply yet".to_owned(),
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

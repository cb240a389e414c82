//! Progress of a test on standard error: a live view on a terminal, plain lines elsewhere.

#[cfg(feature = "full")]
use std::io::IsTerminal as _;
use std::time::Duration;

use sqm_measure::client::{Progress, Stage};
use sqm_measure::result::{Phase, Settings};

#[cfg(feature = "full")]
mod live;
#[cfg(feature = "full")]
use live::Live;

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
    #[cfg(feature = "full")]
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
        #[cfg(feature = "full")]
        if std::io::stderr().is_terminal() {
            return Self::Live(Live::new(settings));
        }
        Self::Lines(Lines {
            idle,
            load_s: settings.load_ms as f64 / 1000.0,
            phases: named_phases(settings),
            said: None,
        })
    }

    pub(super) fn show(&mut self, progress: &Progress) {
        match self {
            Self::Quiet => {}
            Self::Json(json) => json.show(progress),
            Self::Lines(lines) => lines.show(progress),
            #[cfg(feature = "full")]
            Self::Live(live) => live.show(progress),
        }
    }

    pub(super) fn finish(&self) {
        #[cfg(feature = "full")]
        if let Self::Live(live) = self {
            live.finish();
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

/// Half of the time between two reports, whose figures are of the time between them.
const HALF_A_REPORT: Duration = Duration::from_millis(125);

/// The name of the phase that the figures of a report at this time of the load are of, followed by a colon. Empty if the phases have no
/// names.
fn phase_label(phases: &[Phase], loaded: Duration) -> String {
    phase_at(phases, loaded.saturating_sub(HALF_A_REPORT))
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

#[cfg(test)]
mod tests {
    use super::*;
    use sqm_measure::result::LoadOrder;

    #[test]
    fn figures_at_the_end_of_a_phase_have_its_name() {
        let settings = Settings {
            load_ms: 30_000,
            load_order: LoadOrder::InTurn,
            ..Settings::default()
        };
        let phases = named_phases(&settings);
        let label = |ms: u64| phase_label(&phases, Duration::from_millis(ms));
        assert_eq!(
            ["download: ", "upload: ", "both: "],
            [1, 11_000, 29_000].map(label)
        );
        // A report arrives a little late.
        assert_eq!(
            ["download: ", "upload: ", "both: "],
            [10_004, 20_004, 30_004].map(label)
        );
        assert_eq!("upload: ", label(10_254));
        let together = Settings::default();
        assert_eq!("", phase_label(&named_phases(&together), Duration::from_secs(1)));
    }
}

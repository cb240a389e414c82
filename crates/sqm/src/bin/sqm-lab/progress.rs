//! The steps of a demonstration, on standard error.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use sqm_process::failure::Failure;

/// Runs `work` and reports the step on standard error; on a terminal with a spinner and the elapsed time.
pub(super) fn step<T>(text: &str, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    if !std::io::stderr().is_terminal() {
        errln!("{text}");
        return work();
    }
    let style =
        ProgressStyle::with_template("{spinner} {msg} ({elapsed})").expect("a template that is tested");
    let spinner = ProgressBar::new_spinner()
        .with_style(style)
        .with_message(text.to_owned());
    spinner.enable_steady_tick(Duration::from_millis(100));
    let outcome = work();
    spinner.abandon();
    outcome
}

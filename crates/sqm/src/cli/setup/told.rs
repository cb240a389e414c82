//! The stream on which setup tells what it does.

use std::fmt::Display;

/// Standard output, or standard error if standard output is kept for the document of `--json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Output,
    Error,
}

impl Told {
    /// Prints a line.
    pub(super) fn line(self, text: impl Display) {
        match self {
            Self::Output => outln!("{text}"),
            Self::Error => errln!("{text}"),
        }
    }
}

//! Colours on a terminal, for the few words that decide: the grade of a test, and the beginning of an error.
//!
//! Files and pipes get none, nor does a terminal if `NO_COLOR` is set (<https://no-color.org>) or `TERM` is `dumb`.

use std::env;
use std::io::IsTerminal;

/// A colour of the terminal's palette, in bold. Yellow is behind black letters, because yellow ones cannot be read on a white terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Good.
    Green,
    /// Acceptable.
    Yellow,
    /// Bad, or an error.
    Red,
}

impl Colour {
    /// The control sequence that begins it: SGR of ECMA-48.
    pub(crate) const fn begin(self) -> &'static str {
        match self {
            Self::Green => "\x1b[1;32m",
            Self::Yellow => "\x1b[1;30;43m",
            Self::Red => "\x1b[1;31m",
        }
    }
}

/// The control sequence that ends every colour.
pub(crate) const END: &str = "\x1b[0m";

/// True if this stream shows colours, and its user wants them.
pub(crate) fn shows(stream: &impl IsTerminal) -> bool {
    let is_unwanted = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let terminal = env::var_os("TERM").unwrap_or_default();
    stream.is_terminal() && !is_unwanted && !terminal.is_empty() && terminal != "dumb"
}

//! The errors of a replay.

use std::fmt;

/// An error of a replay; its kind decides the exit code.
#[derive(Debug)]
pub enum Error {
    /// The request or one of its files is wrong.
    Input(anyhow::Error),
    /// Only the kernel has this queue, or this change of it.
    Unsupported(anyhow::Error),
    /// Something could not be read or written.
    Failed(anyhow::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Input(error) | Self::Unsupported(error) | Self::Failed(error)) = self;
        write!(f, "{error:#}")
    }
}

impl<E: Into<anyhow::Error>> From<E> for Error {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

//! The errors of the lab. Each names its file, package or command.

use std::path::PathBuf;

/// The lab could not start, or a command in it failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A kernel or a program of the host is missing.
    #[error("{what} is missing: {remedy}")]
    Missing {
        /// The file or program.
        what: String,
        /// The package or command that provides it.
        remedy: String,
    },
    /// A system call on the host failed.
    #[error("{what} {path}: {source}")]
    Host {
        /// The failed operation: `cannot read`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The guest kernel ended or does not answer.
    #[error("the lab's kernel {what}; the end of its console:\n{console}")]
    Guest {
        /// The event: `ended`.
        what: String,
        /// The last lines that it printed.
        console: String,
    },
    /// A command inside the guest ended with an exit code other than 0.
    #[error("in the lab, on {host}: '{command}' ended with code {code}: {stderr}")]
    Command {
        /// The virtual host.
        host: String,
        /// The command line.
        command: String,
        /// Its exit code.
        code: i32,
        /// Its standard error.
        stderr: String,
    },
    /// No lab is running, or one is already.
    #[error("{0}")]
    State(String),
}

impl Error {
    pub(crate) fn host(what: &'static str, path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Host {
            what,
            path: path.into(),
            source,
        }
    }
}

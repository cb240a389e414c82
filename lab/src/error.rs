//! What can go wrong in the lab, always with the file, package or command it concerns.

use std::path::PathBuf;

/// A lab that could not start, or a command in it that could not be carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A kernel or a program of the host is missing.
    #[error("{what} is missing: {remedy}")]
    Missing {
        /// The file or program.
        what: String,
        /// The package or command that brings it.
        remedy: String,
    },
    /// The operating system refused something on the host's side.
    #[error("{what} {path}: {source}")]
    Host {
        /// What was tried, as a verb.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// Its answer.
        source: std::io::Error,
    },
    /// The guest kernel ended or fell silent.
    #[error("the lab's kernel {what}; the end of its console:\n{console}")]
    Guest {
        /// What it did instead of answering.
        what: String,
        /// The last lines it printed.
        console: String,
    },
    /// A command inside the guest ended with another code than 0.
    #[error("in the lab, on {host}: `{command}` ended with code {code}: {stderr}")]
    Command {
        /// The virtual host.
        host: String,
        /// The words of the command.
        command: String,
        /// Its exit code.
        code: i32,
        /// What it said.
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

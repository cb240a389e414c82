//! The error of this crate.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

/// Why a file could not be read or written. Each variant names the path.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A symbolic link that belongs neither to root nor to the user of this process.
    #[error("{path}: is a symbolic link of user {owner}, which is not followed", path = path.display())]
    ForeignLink {
        /// The link.
        path: PathBuf,
        /// The user ID of its owner.
        owner: u32,
    },
    /// A symbolic link to a missing file, or a loop of links.
    #[error("{path}: is a symbolic link that leads nowhere", path = path.display())]
    DanglingLink {
        /// The path as the caller gave it.
        path: PathBuf,
    },
    /// A directory, a FIFO, a socket or a device.
    #[error("{path}: is {kind}, not a regular file", path = path.display())]
    NotRegular {
        /// The path as the caller gave it.
        path: PathBuf,
        /// Its kind, with an article.
        kind: &'static str,
    },
    /// The file is longer than the reader accepts.
    #[error("{path}: is {size} bytes long, and no more than {limit} are read", path = path.display())]
    TooLong {
        /// The path as the caller gave it.
        path: PathBuf,
        /// Its length in bytes.
        size: u64,
        /// The largest accepted length in bytes.
        limit: u64,
    },
    /// The file does not hold what the writer expected: another program has written it.
    #[error("{path}: was changed by another program in the meantime; nothing was written", path = path.display())]
    Changed {
        /// The path as the caller gave it.
        path: PathBuf,
    },
    /// Another process held the lock for too long.
    #[error("{path}: another program holds this lock", path = path.display())]
    Locked {
        /// The lock.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("{path}: cannot {operation}: {reason}", path = path.display())]
    System {
        /// The path as the caller gave it.
        path: PathBuf,
        /// The operation as a verb: `read`.
        operation: &'static str,
        /// The system's error.
        reason: io::Error,
    },
}

impl Error {
    /// True if there is no such file. False if the file may exist but cannot be accessed.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::System { reason, .. } if reason.kind() == io::ErrorKind::NotFound)
    }

    /// True if the file system is read-only.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self, Self::System { reason, .. } if reason.kind() == io::ErrorKind::ReadOnlyFilesystem)
    }

    pub(crate) fn system(path: &Path, operation: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| Self::System {
            path: path.to_owned(),
            operation,
            reason: errno.into(),
        }
    }
}

/// The message without the path, for callers that name the path themselves.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::System { reason, .. } => reason,
            Error::ForeignLink { path, .. }
            | Error::DanglingLink { path }
            | Error::NotRegular { path, .. }
            | Error::TooLong { path, .. }
            | Error::Changed { path }
            | Error::Locked { path } => {
                let named = format!("{}: ", path.display());
                Self::other(text.strip_prefix(&named).unwrap_or(&text).to_owned())
            }
        }
    }
}

/// Refuses anything but a regular file. `mode` is `st_mode`.
pub(crate) fn require_regular(path: &Path, mode: u32) -> Result<(), Error> {
    let kind = match FileType::from_raw_mode(mode) {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => "a directory",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::Symlink => "a symbolic link",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "something unknown",
    };
    Err(Error::NotRegular {
        path: path.to_owned(),
        kind,
    })
}

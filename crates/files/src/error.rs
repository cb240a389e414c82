//! Why a file could not be read or written.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

/// Why a file could not be read or written. Each variant names the path.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A link that neither root nor the user of this process made.
    #[error("{path}: is a symbolic link that user {owner} made, which is not followed", path = path.display())]
    ForeignLink {
        /// The link.
        path: PathBuf,
        /// Who made it.
        owner: u32,
    },
    /// A link to a file that is not there, or one of a circle of links.
    #[error("{path}: is a symbolic link that leads nowhere", path = path.display())]
    DanglingLink {
        /// The path as it was given.
        path: PathBuf,
    },
    /// A directory, a FIFO, a socket or a device.
    #[error("{path}: is {kind}, not a regular file", path = path.display())]
    NotRegular {
        /// The path as it was given.
        path: PathBuf,
        /// What it is, with its article.
        kind: &'static str,
    },
    /// The file has more bytes than the reader takes.
    #[error("{path}: is {size} bytes long, and no more than {limit} are read", path = path.display())]
    TooLong {
        /// The path as it was given.
        path: PathBuf,
        /// How long it is.
        size: u64,
        /// The most bytes that are read.
        limit: u64,
    },
    /// The file is not what the writer read before: another program wrote it.
    #[error("{path}: was changed by another program in the meantime; nothing was written", path = path.display())]
    Changed {
        /// The path as it was given.
        path: PathBuf,
    },
    /// Another process held the lock for too long.
    #[error("{path}: another program holds this lock", path = path.display())]
    Locked {
        /// The lock.
        path: PathBuf,
    },
    /// The system refused.
    #[error("{path}: cannot {operation}: {reason}", path = path.display())]
    System {
        /// The path as it was given.
        path: PathBuf,
        /// A verb, such as `read`.
        operation: &'static str,
        /// The system's reason.
        reason: io::Error,
    },
}

impl Error {
    /// Whether there is no such file, as opposed to one that cannot be looked at.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::System { reason, .. } if reason.kind() == io::ErrorKind::NotFound)
    }

    /// Whether the file system takes no writes.
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

/// The reason without the path, for those who name the path themselves.
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

/// Refuses what is no regular file.
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

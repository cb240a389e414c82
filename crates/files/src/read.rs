//! Reads a whole file, up to a limit.

use std::io::Read;
use std::path::Path;

use rustix::fs::OFlags;

use crate::error::Error;
use crate::place::Place;

/// The bytes of a regular file of at most `limit` bytes.
///
/// # Errors
///
/// Those of [`Place::find`]; also if it is not a regular file, is longer, or cannot be read. [`Error::is_not_found`] is true for a
/// missing file.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>, Error> {
    Place::find(path)?.read(limit)
}

/// Like [`read`], but `None` if there is no such file. A dangling symbolic link is an error.
///
/// # Errors
///
/// As [`read`].
pub fn read_if_there(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, Error> {
    match read(path, limit) {
        Err(error) if error.is_not_found() => Ok(None),
        bytes => bytes.map(Some),
    }
}

impl Place {
    pub(crate) fn read(&self, limit: u64) -> Result<Vec<u8>, Error> {
        let file = self.open(OFlags::RDONLY, 0)?;
        let size = file.metadata().map_or(0, |found| found.len());
        let mut bytes = Vec::new();
        // One byte beyond the limit shows that the file is longer.
        let read = file.take(limit.saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(|reason| Error::System {
            path: self.path.clone(),
            operation: "read",
            reason,
        })?;
        if bytes.len() as u64 > limit {
            return Err(Error::TooLong {
                path: self.path.clone(),
                size: size.max(limit + 1),
                limit,
            });
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn only_regular_files_within_the_limit_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "12345").unwrap();
        assert_eq!(read(&at("file"), 5).unwrap(), b"12345");
        let error = read(&at("file"), 4).unwrap_err();
        assert!(
            matches!(
                error,
                Error::TooLong {
                    limit: 4,
                    size: 5,
                    ..
                }
            ),
            "{error}"
        );
        assert_eq!(read_if_there(&at("none"), 5).unwrap(), None);
        assert!(read_if_there(&at("none/file"), 5).unwrap().is_none());

        fs::create_dir(at("folder")).unwrap();
        mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        symlink("none", at("dangling")).unwrap();
        for (name, word) in [
            ("folder", "a directory"),
            ("fifo", "a FIFO"),
            ("dangling", "leads nowhere"),
        ] {
            let error = read_if_there(&at(name), 5).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains(name), "{error}");
        }
        let error = read(Path::new("/dev/zero"), 5).unwrap_err().to_string();
        assert_eq!(error, "/dev/zero: is a device, not a regular file");
    }
}

//! Opens a file to append to it.

use std::fs::File;
use std::path::Path;

use rustix::fs::OFlags;

use crate::error::Error;
use crate::place::Place;

/// Opens a regular file to read it and to append to it. A new file has `mode`. A symbolic link at the end of the path is never
/// followed.
///
/// # Errors
///
/// If the path is not a regular file, or if a system call fails.
pub fn append(path: &Path, mode: u32) -> Result<File, Error> {
    let place = Place::entry(path)?;
    match place.open(FLAGS, 0) {
        Err(error) if error.is_not_found() => create(&place, mode),
        file => file,
    }
}

const FLAGS: OFlags = OFlags::RDWR.union(OFlags::APPEND);

/// Creates the file. Fails if another process has created it meanwhile: it may belong to another user.
fn create(place: &Place, mode: u32) -> Result<File, Error> {
    place.open(FLAGS | OFlags::CREATE | OFlags::EXCL, mode)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn only_a_regular_file_is_opened_for_appending() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for text in ["one ", "two"] {
            append(&at("log"), 0o600)
                .unwrap()
                .write_all(text.as_bytes())
                .unwrap();
        }
        assert_eq!(fs::read(at("log")).unwrap(), b"one two");
        assert_eq!(fs::metadata(at("log")).unwrap().mode() & 0o777, 0o600);
        symlink("log", at("link")).unwrap();
        symlink("none", at("dangling")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        for (name, word) in [
            ("link", "a symbolic link"),
            ("dangling", "a symbolic link"),
            ("folder", "a directory"),
            ("fifo", "a FIFO"),
        ] {
            let error = append(&at(name), 0o600).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        assert!(!at("none").exists());
    }

    #[test]
    fn a_file_that_another_process_has_created_meanwhile_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let place = Place::entry(&path).unwrap();
        fs::write(&path, "theirs").unwrap();
        let error = create(&place, 0o600).unwrap_err().to_string();
        assert!(error.contains("File exists"), "{error}");
    }
}

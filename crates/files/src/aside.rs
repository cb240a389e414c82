//! Moves an unusable file, or whatever is in its place, out of the way.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, RenameFlags, renameat, renameat_with, statat};
use rustix::io::Errno;

use crate::error::Error;
use crate::fresh::random_hexadecimal;
use crate::place::Place;

/// Renames the entry at `path` to `NAME.damaged` and returns the new path. Replaces an earlier `NAME.damaged`. A symbolic link
/// itself is renamed.
///
/// # Errors
///
/// If there is no such entry, or if a system call fails.
pub fn set_aside(path: &Path) -> Result<PathBuf, Error> {
    let place = Place::entry(path)?;
    let fail = Error::system(path, "put aside");
    let mut name = place.name.clone();
    name.push(".damaged");
    let moved = match renameat(&place.folder, &place.name, &place.folder, &name) {
        // A directory cannot replace a file, and a file cannot replace a directory: take another name.
        Err(Errno::NOTDIR | Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST) => {
            name.push(format!(
                "-{}",
                random_hexadecimal().map_err(Error::system(path, "put aside"))?
            ));
            renameat_with(
                &place.folder,
                &place.name,
                &place.folder,
                &name,
                RenameFlags::NOREPLACE,
            )
        }
        moved => moved,
    };
    moved.map_err(fail)?;
    place.sync_folder();
    Ok(path.with_file_name(name))
}

/// Like [`set_aside`], but only if the entry is not a regular file: a directory, a FIFO, a device, or a symbolic link to anything.
/// `None` if there is a regular file or no entry.
///
/// # Errors
///
/// If a system call fails.
pub fn set_aside_irregular(path: &Path) -> Result<Option<PathBuf>, Error> {
    let place = match Place::entry(path) {
        Err(error) if error.is_not_found() => return Ok(None),
        place => place?,
    };
    match statat(&place.folder, &place.name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(Error::system(path, "look at")(errno)),
        Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile => Ok(None),
        Ok(_) => set_aside(path).map(Some),
    }
}

/// Renames a file within its folder. Replaces an entry that already has the new name.
///
/// # Errors
///
/// If a system call fails.
pub fn rename(path: &Path, name: &str) -> Result<(), Error> {
    let place = Place::entry(path)?;
    let name = OsString::from(name);
    renameat(&place.folder, &place.name, &place.folder, &name).map_err(Error::system(path, "rename"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn any_kind_of_entry_can_be_set_aside_repeatedly() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("kept"), "kept").unwrap();
        for round in 0..3 {
            fs::write(at("file"), "damaged").unwrap();
            assert_eq!(set_aside_irregular(&at("file")).unwrap(), None, "{round}");
            let aside = set_aside(&at("file")).unwrap();
            assert_eq!(fs::read(&aside).unwrap(), b"damaged");
            fs::create_dir(at("file")).unwrap();
            fs::write(at("file/inside"), "").unwrap();
            let aside = set_aside_irregular(&at("file")).unwrap().unwrap();
            assert!(aside.join("inside").exists());
            symlink("kept", at("file")).unwrap();
            set_aside_irregular(&at("file")).unwrap().unwrap();
            assert!(fs::symlink_metadata(at("file")).is_err());
        }
        assert_eq!(fs::read(at("kept")).unwrap(), b"kept");
        assert_eq!(set_aside_irregular(&at("none")).unwrap(), None);
        assert_eq!(set_aside_irregular(&at("none/file")).unwrap(), None);
        assert!(set_aside(&at("none")).unwrap_err().is_not_found());
    }
}

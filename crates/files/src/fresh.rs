//! A new file that replaces the old one only when it is complete.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, fchmod, fchown, fstat, openat, renameat, unlinkat};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::{Error, require_regular};
use crate::place::Place;

/// The permission bits that a new file takes from the file that it replaces: no set-user-ID.
const PERMISSIONS: u32 = 0o777;

/// A temporary file in the folder of the file that it is to replace. It is removed unless [`Fresh::commit`] is called. A process
/// that is killed leaves it behind, under a name that begins with a dot.
#[derive(Debug)]
pub struct Fresh {
    place: Place,
    name: OsString,
    file: File,
    is_there: bool,
}

impl Fresh {
    /// Creates the temporary file for `path`. It gets the permissions and the owner of the existing file, else `mode` less the umask.
    ///
    /// # Errors
    ///
    /// Those of [`Place::find`]; also if the path is not a regular file, or if a system call fails.
    pub fn begin(path: &Path, mode: u32) -> Result<Self, Error> {
        Self::at(Place::find(path)?, mode)
    }

    pub(crate) fn at(place: Place, mode: u32) -> Result<Self, Error> {
        let name = random_name(&place).map_err(Error::system(&place.path, "write"))?;
        Self::named(place, name, mode)
    }

    /// Creates the temporary file with this name. It is an error if anything has that name already.
    fn named(place: Place, name: OsString, mode: u32) -> Result<Self, Error> {
        let old = place.stat()?;
        if let Some(old) = &old {
            require_regular(&place.path, old.st_mode)?;
        }
        let fail = Error::system;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Until the permissions of the old file are set, no other user may read the new one.
        let first = if old.is_some() { 0o600 } else { mode & PERMISSIONS };
        let file = openat(&place.folder, &name, flags, Mode::from_raw_mode(first))
            .map_err(fail(&place.path, "write"))?;
        let fresh = Self {
            file: file.into(),
            is_there: true,
            place,
            name,
        };
        let path = &fresh.place.path;
        if let Some(old) = &old {
            let new = fstat(&fresh.file).map_err(fail(path, "look at"))?;
            // A sandbox may forbid `fchown` even if it would change nothing.
            if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid) {
                let owner = (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid));
                fchown(&fresh.file, Some(owner.0), Some(owner.1)).map_err(fail(path, "keep the owner of"))?;
            }
            let mode = Mode::from_raw_mode(old.st_mode & PERMISSIONS);
            fchmod(&fresh.file, mode).map_err(fail(path, "set the permissions of"))?;
        }
        Ok(fresh)
    }

    /// Makes the owner of the folder the owner of the file: a service may have to read a file that root writes for it.
    ///
    /// # Errors
    ///
    /// If a system call fails.
    pub fn give_to_owner_of_folder(&self) -> Result<(), Error> {
        let fail = Error::system;
        let path = &self.place.path;
        let folder = fstat(&self.place.folder).map_err(fail(path, "look at the folder of"))?;
        let file = fstat(&self.file).map_err(fail(path, "look at"))?;
        if file.st_uid == folder.st_uid {
            return Ok(());
        }
        let owner = (Uid::from_raw(folder.st_uid), Gid::from_raw(folder.st_gid));
        fchown(&self.file, Some(owner.0), Some(owner.1)).map_err(fail(path, "change the owner of"))
    }

    /// Writes the whole content and syncs it to disk.
    pub(crate) fn write_whole(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = self.file.write_all(bytes).and_then(|()| self.file.sync_all());
        written.map_err(|reason| self.failed(reason))
    }

    /// Renames the file to its final name, atomically. The change is on the disk when this returns.
    ///
    /// # Errors
    ///
    /// If a system call fails. The old file, if there was one, is then unchanged.
    pub fn commit(mut self) -> Result<(), Error> {
        self.file.sync_all().map_err(|reason| self.failed(reason))?;
        let (folder, path) = (&self.place.folder, &self.place.path);
        renameat(folder, &self.name, folder, &self.place.name).map_err(Error::system(path, "write"))?;
        self.is_there = false;
        self.place.sync_folder();
        Ok(())
    }

    pub(crate) const fn place(&self) -> &Place {
        &self.place
    }

    pub(crate) const fn name(&self) -> &OsString {
        &self.name
    }

    /// Records that there is no temporary file to remove any more.
    pub(crate) const fn is_gone(&mut self) {
        self.is_there = false;
    }

    fn failed(&self, reason: io::Error) -> Error {
        Error::System {
            path: self.place.path.clone(),
            operation: "write",
            reason,
        }
    }
}

impl Write for Fresh {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if self.is_there {
            let _ = unlinkat(&self.place.folder, &self.name, AtFlags::empty());
        }
    }
}

/// A random name for a temporary file, which another user cannot predict.
pub(crate) fn random_name(place: &Place) -> Result<OsString, rustix::io::Errno> {
    /// Longest part of the name that is kept, bytes: the 255 of most file systems, less the random part.
    const MAX_KEPT: usize = 255 - 22;
    let mut name = OsString::from(".");
    let kept = place.name.as_bytes();
    name.push(std::ffi::OsStr::from_bytes(&kept[..kept.len().min(MAX_KEPT)]));
    name.push(format!(".{}.tmp", random_hexadecimal()?));
    Ok(name)
}

/// Sixteen random hexadecimal digits.
pub(crate) fn random_hexadecimal() -> Result<String, rustix::io::Errno> {
    let mut random = [0; 8];
    getrandom(&mut random, GetRandomFlags::empty())?;
    Ok(format!("{:016x}", u64::from_ne_bytes(random)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// The name is random, so that no other program can plant a file. If one could, the planted file would not be written to.
    #[test]
    fn an_existing_temporary_file_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "theirs").unwrap();
        fs::hard_link(at("file"), at("hard")).unwrap();
        symlink("file", at("link")).unwrap();
        symlink("none", at("dangling")).unwrap();
        for name in ["file", "hard", "link", "dangling"] {
            let place = Place::find(&at("sqm")).unwrap();
            let error = Fresh::named(place, name.into(), 0o600).unwrap_err();
            assert!(error.to_string().contains("File exists"), "{name}: {error}");
        }
        assert_eq!(fs::read(at("file")).unwrap(), b"theirs");
        assert!(!at("none").exists());
    }
}

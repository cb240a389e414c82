//! A new file that takes its place only when it is whole.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, fchmod, fchown, fstat, openat, renameat, unlinkat};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::{Error, require_regular};
use crate::place::Place;

/// Permissions that are taken over from the file that is replaced; no set-user-ID.
const PERMISSIONS: u32 = 0o777;

/// A temporary file in the folder of the one that it is to replace. It disappears unless [`Fresh::commit`] is called; a process
/// that is killed leaves it behind under its name that begins with a dot.
#[derive(Debug)]
pub struct Fresh {
    place: Place,
    name: OsString,
    file: File,
    is_there: bool,
}

impl Fresh {
    /// Begins a file that is to stand at `path`. It has the permissions and the owner of the file that is there, else `mode` less the umask.
    ///
    /// # Errors
    ///
    /// Those of [`Place::find`]; if something other than a regular file is there; if the system refuses.
    pub fn begin(path: &Path, mode: u32) -> Result<Self, Error> {
        Self::at(Place::find(path)?, mode)
    }

    pub(crate) fn at(place: Place, mode: u32) -> Result<Self, Error> {
        let old = place.stat()?;
        if let Some(old) = &old {
            require_regular(&place.path, old.st_mode)?;
        }
        let fail = Error::system;
        let name = random_name(&place).map_err(fail(&place.path, "write"))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Nobody may read more of it meanwhile than of the file that it replaces.
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
            // A sandbox may forbid the call even if it would change nothing.
            if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid) {
                let owner = (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid));
                fchown(&fresh.file, Some(owner.0), Some(owner.1)).map_err(fail(path, "keep the owner of"))?;
            }
            let mode = Mode::from_raw_mode(old.st_mode & PERMISSIONS);
            fchmod(&fresh.file, mode).map_err(fail(path, "set the permissions of"))?;
        }
        Ok(fresh)
    }

    /// Gives the file to whom its folder belongs, who may be a service that has to read what root writes for it.
    ///
    /// # Errors
    ///
    /// If the system refuses.
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

    pub(crate) fn write_whole(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = self.file.write_all(bytes).and_then(|()| self.file.sync_all());
        written.map_err(|reason| self.failed(reason))
    }

    /// Puts the file in its place, in one step; on the disk before this returns.
    ///
    /// # Errors
    ///
    /// If the system refuses: then the old file, or none, is still there.
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

    /// The temporary name is no longer there to be removed.
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

/// A name that nobody can have prepared, in the folder of the file that it is for.
pub(crate) fn random_name(place: &Place) -> Result<OsString, rustix::io::Errno> {
    /// The longest name that file systems take, less our own part of it.
    const MAX_KEPT: usize = 255 - 22;
    let mut name = OsString::from(".");
    let kept = place.name.as_bytes();
    name.push(std::ffi::OsStr::from_bytes(&kept[..kept.len().min(MAX_KEPT)]));
    name.push(format!(".{}.tmp", random_hexadecimal()?));
    Ok(name)
}

/// Sixteen digits.
pub(crate) fn random_hexadecimal() -> Result<String, rustix::io::Errno> {
    let mut random = [0; 8];
    getrandom(&mut random, GetRandomFlags::empty())?;
    Ok(format!("{:016x}", u64::from_ne_bytes(random)))
}

//! Resolves a path to an open folder and a name in it.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use rustix::io::Errno;

use crate::error::{Error, require_regular};

/// Largest number of symbolic links in a path: the kernel's own limit (`MAXSYMLINKS`).
const MAX_LINKS: usize = 40;

/// An open folder, and the name of a file in it, which may not exist yet.
///
/// All operations are relative to the open folder: renaming or replacing a folder of the path later has no effect.
#[derive(Debug)]
pub struct Place {
    pub(crate) folder: OwnedFd,
    pub(crate) name: OsString,
    /// The path as the caller gave it, for messages.
    pub(crate) path: PathBuf,
}

impl Place {
    /// Resolves a path. A symbolic link in it is followed only if it belongs to root or to the effective user.
    ///
    /// # Errors
    ///
    /// If a folder of the path is missing or not accessible, if a link belongs to another user, or if a link is dangling.
    pub fn find(path: &Path) -> Result<Self, Error> {
        let system = |errno| Error::system(path, "find")(errno);
        let mut folder = start(path.as_os_str()).map_err(system)?;
        // Each name with whether it comes from the target of a link: then the link is dangling if there is no such entry.
        let mut rest: VecDeque<(OsString, bool)> =
            components(path.as_os_str()).map(|name| (name, false)).collect();
        let mut links = 0;
        while let Some((name, is_of_link)) = rest.pop_front() {
            if name == ".." {
                folder = enter(&folder, &name).map_err(system)?;
                continue;
            }
            let found = match statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) if is_of_link => {
                    return Err(Error::DanglingLink {
                        path: path.to_owned(),
                    });
                }
                Err(Errno::NOENT) if rest.is_empty() => None,
                found => Some(found.map_err(system)?),
            };
            match found {
                Some(found) if FileType::from_raw_mode(found.st_mode) == FileType::Symlink => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Error::DanglingLink {
                            path: path.to_owned(),
                        });
                    }
                    require_trusted(&found, path)?;
                    let target = readlinkat(&folder, &name, Vec::new()).map_err(system)?;
                    let target = OsString::from_vec(target.into_bytes());
                    if target.as_bytes().starts_with(b"/") {
                        folder = start(&target).map_err(system)?;
                    }
                    for component in components(&target).rev() {
                        rest.push_front((component, true));
                    }
                }
                _ if rest.is_empty() => {
                    return Ok(Self {
                        folder,
                        name,
                        path: path.to_owned(),
                    });
                }
                _ => folder = enter(&folder, &name).map_err(system)?,
            }
        }
        Err(Error::NotRegular {
            path: path.to_owned(),
            kind: "a directory",
        })
    }

    /// Resolves all of a path but its last name. A symbolic link at the end of the path is never followed: the place is that of the link
    /// itself.
    ///
    /// # Errors
    ///
    /// If the path does not end in a name, or if the folder is missing or not accessible.
    pub fn entry(path: &Path) -> Result<Self, Error> {
        let name = path.file_name().ok_or_else(|| Error::NotRegular {
            path: path.to_owned(),
            kind: "a directory",
        })?;
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        // "-" stands for any name in that folder.
        let found = Self::find(&folder.join("-"))?;
        Ok(Self {
            folder: found.folder,
            name: name.to_owned(),
            path: path.to_owned(),
        })
    }

    /// Opens the file. Never follows a symbolic link, and never waits for the other end of a FIFO.
    ///
    /// # Errors
    ///
    /// If it is not a regular file, or if a system call fails.
    pub fn open(&self, flags: OFlags, mode: u32) -> Result<File, Error> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        // Opening a FIFO or a device can have side effects, so that its kind is also checked before.
        if let Some(found) = self.stat()? {
            require_regular(&self.path, found.st_mode)?;
        }
        let file = openat(&self.folder, &self.name, flags, Mode::from_raw_mode(mode))
            .map_err(Error::system(&self.path, "open"))?;
        let found = fstat(&file).map_err(Error::system(&self.path, "look at"))?;
        require_regular(&self.path, found.st_mode)?;
        Ok(File::from(file))
    }

    /// The metadata of the entry. `None` if there is none.
    pub(crate) fn stat(&self) -> Result<Option<Stat>, Error> {
        match statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(Error::system(&self.path, "look at")(errno)),
        }
    }

    /// Syncs the folder to disk. Ignores errors: the change itself has been made.
    pub(crate) fn sync_folder(&self) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if let Ok(folder) = openat(&self.folder, ".", flags, Mode::empty()) {
            let _ = rustix::fs::fsync(folder);
        }
    }
}

/// Refuses a symbolic link of another user. A link of root or of our own user gives no other user access.
fn require_trusted(link: &Stat, path: &Path) -> Result<(), Error> {
    if link.st_uid == 0 || link.st_uid == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    Err(Error::ForeignLink {
        path: path.to_owned(),
        owner: link.st_uid,
    })
}

fn start(path: &OsStr) -> Result<OwnedFd, Errno> {
    let start = if path.as_bytes().starts_with(b"/") {
        "/"
    } else {
        "."
    };
    openat(CWD, start, FOLDER, Mode::empty())
}

fn enter(folder: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    openat(folder, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())
}

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn components(path: &OsStr) -> impl DoubleEndedIterator<Item = OsString> {
    path.as_bytes()
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
        .map(|name| OsStr::from_bytes(name).to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    #[test]
    fn our_own_links_are_followed_and_dangling_links_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("real")).unwrap();
        fs::write(at("real/file"), "").unwrap();
        symlink("real", at("folder")).unwrap();
        symlink("../folder/./file", at("real/link")).unwrap();
        let place = Place::find(&at("folder/link")).unwrap();
        assert_eq!(place.name, "file");
        assert!(place.stat().unwrap().is_some());
        symlink(at("real/none"), at("dangling")).unwrap();
        symlink("circle", at("circle")).unwrap();
        for name in ["dangling", "circle"] {
            let error = Place::find(&at(name)).unwrap_err();
            assert!(matches!(error, Error::DanglingLink { .. }), "{name}: {error}");
        }
        assert!(Place::find(&at("none/file")).unwrap_err().is_not_found());
        assert!(Place::find(&at("none")).unwrap().stat().unwrap().is_none());
        assert!(Place::find(Path::new("/")).is_err());
    }

    /// As /var/run is a link to /run.
    #[test]
    fn a_file_that_does_not_exist_yet_may_be_behind_a_link_to_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("run/sqm")).unwrap();
        symlink(at("run"), at("absolute")).unwrap();
        symlink("run", at("relative")).unwrap();
        symlink("none", at("dangling")).unwrap();
        for link in ["absolute", "relative"] {
            let at = |name: &str| at(link).join(name);
            for new in ["sqm/new", "new", "sqm/../new"] {
                assert!(
                    Place::find(&at(new)).unwrap().stat().unwrap().is_none(),
                    "{link} {new}"
                );
            }
            assert!(Place::entry(&at("sqm/new")).is_ok(), "{link}");
            assert!(Place::find(&at("none/new")).unwrap_err().is_not_found(), "{link}");
        }
        let error = Place::find(&at("dangling/new")).unwrap_err();
        assert!(matches!(error, Error::DanglingLink { .. }), "{error}");
    }

    #[test]
    fn a_link_of_another_user_is_not_followed() {
        if !rustix::process::geteuid().is_root() {
            // Only root can give a file to another user.
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("real")).unwrap();
        fs::write(at("real/file"), "").unwrap();
        symlink("real/file", at("link")).unwrap();
        symlink("real", at("folder")).unwrap();
        for (link, path) in [("link", "link"), ("folder", "folder/file")] {
            lchown(at(link), Some(65534), Some(65534)).unwrap();
            let error = Place::find(&at(path)).unwrap_err();
            assert!(
                matches!(error, Error::ForeignLink { owner: 65534, .. }),
                "{error}"
            );
        }
    }
}

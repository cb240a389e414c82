//! A lock that only the same user can hold.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, flock, fstat};
use rustix::io::Errno;

use crate::error::Error;
use crate::place::Place;

/// Whoever may open a lock's file may hold it for ever, so that nobody else may.
const PRIVATE: u32 = 0o600;
/// Between two tries for a lock that another process holds.
const PAUSE: Duration = Duration::from_millis(5);

/// Held until it is dropped, or the process ends.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock, or answers `None` while another process holds it. The file is made if it is missing, for its owner alone.
    ///
    /// # Errors
    ///
    /// If the file cannot be made or opened, or is no regular file.
    pub fn try_take(path: &Path) -> Result<Option<Self>, Error> {
        Self::take_within(&Place::find(path)?, Some(Duration::ZERO))
    }

    /// Waits for the lock for at most so long; `None`: however long it takes.
    ///
    /// # Errors
    ///
    /// As [`Lock::try_take`], and [`Error::Locked`] if another process holds it all the time.
    pub fn take(path: &Path, patience: Option<Duration>) -> Result<Self, Error> {
        let lock = Self::take_within(&Place::find(path)?, patience)?;
        lock.ok_or_else(|| Error::Locked {
            path: path.to_owned(),
        })
    }

    /// Says in the file who holds it, for people who look.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn sign(&mut self, text: &str) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.write_all(text.as_bytes())
    }

    /// Whether a process holds the lock at this moment. One that cannot be looked at is held by nobody.
    pub fn is_held(path: &Path) -> bool {
        let opened = Place::find(path).and_then(|place| place.open(OFlags::RDONLY, 0));
        opened.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK))
    }

    /// The same lock for a process that is started: it is held until that one ends, too.
    ///
    /// # Errors
    ///
    /// If there are too many open files.
    pub fn share(&self) -> io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }

    pub(crate) fn take_within(place: &Place, patience: Option<Duration>) -> Result<Option<Self>, Error> {
        let (file, is_read_only) = match place.open(OFlags::RDWR | OFlags::CREATE, PRIVATE) {
            // A lock that is there can be held on a file system that is read-only, too.
            Err(error) if error.is_read_only() => (place.open(OFlags::RDONLY, 0).map_err(|_| error)?, true),
            file => (file?, false),
        };
        let fail = Error::system;
        let found = fstat(&file).map_err(fail(&place.path, "look at"))?;
        // A file that has another name, too, may be anything: its mode is its owner's affair.
        let is_link = std::fs::symlink_metadata(&place.path).is_ok_and(|entry| entry.is_symlink());
        let is_only_lock = found.st_nlink == 1 && !is_link;
        if found.st_mode & 0o077 != 0 && is_only_lock && !is_read_only {
            fchmod(&file, Mode::from_raw_mode(PRIVATE)).map_err(fail(&place.path, "make private"))?;
        }
        let Some(patience) = patience else {
            flock(&file, FlockOperation::LockExclusive).map_err(fail(&place.path, "lock"))?;
            return Ok(Some(Self { file }));
        };
        let began = Instant::now();
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(Self { file })),
                Err(Errno::WOULDBLOCK) if began.elapsed() >= patience => return Ok(None),
                Err(Errno::WOULDBLOCK) => std::thread::sleep(PAUSE),
                Err(errno) => return Err(fail(&place.path, "lock")(errno)),
            }
        }
    }
}

/// What another process shared.
impl From<OwnedFd> for Lock {
    fn from(shared: OwnedFd) -> Self {
        Self { file: shared.into() }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn one_holds_it_and_nobody_else_may_open_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(!Lock::is_held(&path));
        let mut lock = Lock::try_take(&path).unwrap().expect("nobody holds it");
        assert!(Lock::is_held(&path));
        lock.sign("me").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"me");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(Lock::try_take(&path).unwrap().is_none());
        let error = Lock::take(&path, Some(Duration::from_millis(10))).unwrap_err();
        assert!(matches!(error, Error::Locked { .. }));
        drop(lock);
        assert!(Lock::take(&path, None).is_ok());
    }

    #[test]
    fn a_file_with_another_name_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("other");
        fs::write(&other, "theirs").unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::symlink(&other, folder.path().join("link")).unwrap();
        for name in ["link", "hard"] {
            if name == "hard" {
                fs::hard_link(&other, folder.path().join(name)).unwrap();
            }
            drop(Lock::try_take(&folder.path().join(name)).unwrap());
            assert_eq!(
                fs::metadata(&other).unwrap().permissions().mode() & 0o777,
                0o644,
                "{name}"
            );
            assert_eq!(fs::read(&other).unwrap(), b"theirs");
        }
    }
}

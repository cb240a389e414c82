//! A lock file that only its owner can lock.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, flock, fstat};
use rustix::io::Errno;

use crate::error::Error;
use crate::place::Place;

/// Permissions of a lock file. A process that may open the file could hold the lock for ever, so that other users must not open it.
const PRIVATE: u32 = 0o600;
/// The pause between two attempts to take a lock. A choice.
const PAUSE: Duration = Duration::from_millis(5);

/// A lock. It is held until it is dropped or the process ends.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock. `None` if another process holds it. Creates the file if it is missing, accessible to its owner only.
    ///
    /// # Errors
    ///
    /// If the file cannot be created or opened, or is not a regular file.
    pub fn try_take(path: &Path) -> Result<Option<Self>, Error> {
        Self::take_within(&Place::find(path)?, Some(Duration::ZERO))
    }

    /// Waits for the lock, for at most `patience`. With `None` it waits without limit.
    ///
    /// # Errors
    ///
    /// As [`Lock::try_take`]; [`Error::Locked`] if another process holds the lock all the time.
    pub fn take(path: &Path, patience: Option<Duration>) -> Result<Self, Error> {
        let lock = Self::take_within(&Place::find(path)?, patience)?;
        lock.ok_or_else(|| Error::Locked {
            path: path.to_owned(),
        })
    }

    /// Writes a text into the lock file, for people who want to know the holder.
    ///
    /// # Errors
    ///
    /// If a system call fails.
    pub fn sign(&mut self, text: &str) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.write_all(text.as_bytes())
    }

    /// True if a process holds the lock now. A lock file that cannot be opened counts as not held.
    pub fn is_held(path: &Path) -> bool {
        let opened = Place::find(path).and_then(|place| place.open(OFlags::RDONLY, 0));
        opened.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK))
    }

    /// A descriptor of the lock for a child process. The lock is then held until both processes have released it.
    ///
    /// # Errors
    ///
    /// If there are too many open files.
    pub fn share(&self) -> io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }

    pub(crate) fn take_within(place: &Place, patience: Option<Duration>) -> Result<Option<Self>, Error> {
        let (file, is_read_only) = match place.open(OFlags::RDWR | OFlags::CREATE, PRIVATE) {
            // An existing lock file can be locked on a read-only file system, too.
            Err(error) if error.is_read_only() => (place.open(OFlags::RDONLY, 0).map_err(|_| error)?, true),
            file => (file?, false),
        };
        let fail = Error::system;
        let found = fstat(&file).map_err(fail(&place.path, "look at"))?;
        // A file with a second name may belong to another program: do not change its mode.
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

/// A lock that another process shared.
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
    fn a_lock_has_one_holder_and_its_file_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(!Lock::is_held(&path));
        let mut lock = Lock::try_take(&path).unwrap().expect("no process holds it");
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
    fn a_file_with_a_second_name_keeps_its_mode() {
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

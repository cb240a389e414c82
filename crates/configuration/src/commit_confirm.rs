//! The lock files of `sqm start --confirm`. While one of them is locked, a change waits for `sqm confirm` or is being rolled
//! back, and the daemon does not touch the interface.

use std::path::{Path, PathBuf};

use sqm_files::{Error, Lock};

/// The name of the file while an unconfirmed change is rolled back.
const UNDOING: &str = "undoing";

/// `true` while a change waits for its confirmation or is being rolled back.
pub fn is_pending(directory: &Path) -> bool {
    // If the process that made the change is killed, its watchdog holds the lock until the change is rolled back.
    [unconfirmed(directory), undoing(directory)]
        .iter()
        .any(|file| Lock::is_held(file))
}

/// The file that exists while a change waits; `sqm confirm` removes it.
pub fn unconfirmed(directory: &Path) -> PathBuf {
    directory.join("unconfirmed")
}

/// Ends the wait for a confirmation, so that `sqm confirm` no longer finds the file. The new name tells other processes that the
/// change is not settled until it has been rolled back. `false` if it was confirmed before.
pub fn begin_rollback(directory: &Path) -> Result<bool, Error> {
    match sqm_files::rename(&unconfirmed(directory), UNDOING) {
        // A process that was killed during the rollback has renamed the file already.
        Err(error) if error.is_not_found() => Ok(undoing(directory).exists()),
        renamed => renamed.map(|()| true),
    }
}

/// Removes the file of a change that has been rolled back.
pub fn end_rollback(directory: &Path) -> Result<(), Error> {
    sqm_files::remove(&undoing(directory)).map(|_| ())
}

/// Removes a file that a killed process has left during a rollback.
pub fn remove_stale_rollback(directory: &Path) -> Result<(), Error> {
    match Lock::is_held(&undoing(directory)) {
        true => Ok(()),
        false => end_rollback(directory),
    }
}

/// The file to which [`unconfirmed`] is renamed while the change is rolled back.
fn undoing(directory: &Path) -> PathBuf {
    directory.join(UNDOING)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_rollback_begins_unless_the_change_was_confirmed() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path();
        assert!(!begin_rollback(directory).unwrap(), "no change waits");
        fs::write(unconfirmed(directory), "").unwrap();
        assert!(begin_rollback(directory).unwrap());
        assert!(!unconfirmed(directory).exists());
        assert!(
            begin_rollback(directory).unwrap(),
            "it was begun by a process that was killed"
        );
        end_rollback(directory).unwrap();
        assert!(!begin_rollback(directory).unwrap());
    }

    #[test]
    fn a_file_of_a_rollback_is_stale_unless_a_process_holds_it() {
        let folder = tempfile::tempdir().unwrap();
        let lock = Lock::try_take(&undoing(folder.path())).unwrap();
        remove_stale_rollback(folder.path()).unwrap();
        assert!(is_pending(folder.path()));
        drop(lock);
        remove_stale_rollback(folder.path()).unwrap();
        assert!(!undoing(folder.path()).exists());
        remove_stale_rollback(folder.path()).unwrap();
    }
}

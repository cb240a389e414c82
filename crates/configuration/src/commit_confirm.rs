//! The lock files of `sqm start --confirm`. While one of them is locked, a change waits for `sqm confirm` or is being rolled
//! back, and the daemon does not touch the interface.

use std::path::{Path, PathBuf};

use sqm_files::Lock;

/// The name of the file while an unconfirmed change is rolled back.
pub const UNDOING: &str = "undoing";

/// `true` while a change waits for its confirmation or is being rolled back.
pub fn is_pending(directory: &Path) -> bool {
    // If the process that made the change was killed, its lock is gone and the change stays in force.
    [unconfirmed(directory), undoing(directory)]
        .iter()
        .any(|file| Lock::is_held(file))
}

/// The file that exists while a change waits; `sqm confirm` removes it.
pub fn unconfirmed(directory: &Path) -> PathBuf {
    directory.join("unconfirmed")
}

/// The file to which [`unconfirmed`] is renamed while the change is rolled back.
pub fn undoing(directory: &Path) -> PathBuf {
    directory.join(UNDOING)
}

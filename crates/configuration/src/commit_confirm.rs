//! The state of a change made by `sqm start --confirm`: while its files are locked, the change waits for `sqm confirm` or is
//! being rolled back, and the daemon leaves the interface alone.

use std::path::{Path, PathBuf};

use sqm_files::Lock;

/// Name of the file while what was not confirmed is rolled back.
pub const UNDOING: &str = "undoing";

/// Whether a change waits for its confirmation, or is being rolled back, at this moment.
pub fn is_pending(directory: &Path) -> bool {
    // A process that was killed holds no lock: its change waits no longer.
    [unconfirmed(directory), undoing(directory)]
        .iter()
        .any(|file| Lock::is_held(file))
}

/// The file that `sqm confirm` removes.
pub fn unconfirmed(directory: &Path) -> PathBuf {
    directory.join("unconfirmed")
}

/// The same file while the change is rolled back.
pub fn undoing(directory: &Path) -> PathBuf {
    directory.join(UNDOING)
}

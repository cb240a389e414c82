//! The configuration file that a daemon waits for: at the start there was none, or none that can be used.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sqm_core::units::{Instant, Nanos};

/// The time between two looks at the file. A choice: the user who writes or corrects it waits for that.
const INTERVAL: Nanos = Nanos::from_millis(1000);

/// A file, and when to look at it again.
pub(super) struct AwaitedFile {
    pub(super) due: Instant,
    /// The file that was read last; `None` if there was none.
    read: Option<Identity>,
}

/// Differs between a file and the same file after a change, or another one in its place: device, inode, size, and the times of
/// the last change of content and status.
type Identity = [i64; 7];

impl AwaitedFile {
    /// The file that is about to be read.
    pub(super) fn of(file: &Path, now: Instant) -> Self {
        Self {
            due: now + INTERVAL,
            read: identity(file),
        }
    }

    /// Looks at the file if that is due. `true` if it must be read again.
    pub(super) fn has_changed(&mut self, file: &Path, now: Instant) -> bool {
        if self.due > now {
            return false;
        }
        let before = self.read;
        *self = Self::of(file, now);
        self.read.is_some() && self.read != before
    }
}

fn identity(file: &Path) -> Option<Identity> {
    let found = fs::metadata(file).ok()?;
    let [device, inode, size] = [found.dev(), found.ino(), found.size()].map(|number| number as i64);
    let modified = [found.mtime(), found.mtime_nsec()];
    let changed = [found.ctime(), found.ctime_nsec()];
    Some([
        device,
        inode,
        size,
        modified[0],
        modified[1],
        changed[0],
        changed[1],
    ])
}

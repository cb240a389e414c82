//! The state file that sqm-scripts keeps for each device that it shapes.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Folders of the state files, below the root: of generic Linux and of OpenWrt.
const FOLDERS: [&str; 2] = ["run/sqm", "var/run/sqm"];

/// The state file of sqm-scripts for a device at one moment: inode and time of its last change. Empty if there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptsState(String);

impl ScriptsState {
    /// The state file of a device now.
    pub fn read(interface: &str) -> Self {
        Self::read_below(Path::new("/"), interface)
    }

    fn read_below(root: &Path, interface: &str) -> Self {
        let identity = |file: Metadata| format!("{}:{}.{:09}", file.ino(), file.mtime(), file.mtime_nsec());
        let metadata = path(root, interface).and_then(|path| path.metadata().ok());
        Self(metadata.map(identity).unwrap_or_default())
    }

    /// True if sqm-scripts has written its state file since `recorded`. Without a recorded state that is not known.
    pub fn is_newer_than(&self, recorded: Option<&Self>) -> bool {
        !self.0.is_empty() && recorded.is_some_and(|recorded| recorded != self)
    }
}

/// The state file of a device, if there is one. `root` is `/`, except in tests.
pub(crate) fn path(root: &Path, interface: &str) -> Option<PathBuf> {
    // A name of a device has no slash; another name must not lead out of the folder.
    let file = format!("{}.state", interface.replace('/', "_"));
    let mut paths = FOLDERS.iter().map(|folder| root.join(folder).join(&file));
    paths.find(|path| path.exists() && !is_of_sqm(path))
}

/// A line of the state files that sqm's OpenWrt package writes for other programs (packaging/openwrt/lib/state-files).
const MARK: &str = "SQM_PROGRAM=\"sqm\"";

fn is_of_sqm(path: &Path) -> bool {
    let text = fs::read(path).unwrap_or_default();
    text.split(|byte| *byte == b'\n')
        .any(|line| line == MARK.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_file_that_is_written_again_is_newer() {
        let folder = tempfile::tempdir().unwrap();
        let read = || ScriptsState::read_below(folder.path(), "eth0");
        let absent = read();
        assert!(!absent.is_newer_than(None) && !absent.is_newer_than(Some(&absent)));
        fs::create_dir_all(folder.path().join("run/sqm")).unwrap();
        let file = folder.path().join("run/sqm/eth0.state");
        fs::write(&file, "SQM_ENABLED=1").unwrap();
        let first = read();
        assert!(first.is_newer_than(Some(&absent)));
        // A record of an older version does not say which file there was.
        assert!(!first.is_newer_than(None) && !first.is_newer_than(Some(&first)));
        // sqm-scripts removes the file when it stops, and makes a new one when it starts.
        fs::rename(&file, folder.path().join("kept")).unwrap();
        assert!(!read().is_newer_than(Some(&first)));
        fs::write(&file, "SQM_ENABLED=1").unwrap();
        assert!(read().is_newer_than(Some(&first)));
    }

    #[test]
    fn a_state_file_of_sqms_own_package_is_not_one_of_sqm_scripts() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("var/run/sqm")).unwrap();
        let file = folder.path().join("var/run/sqm/eth0.state");
        fs::write(&file, "SQM_PROGRAM=\"sqm\"\nIFACE=\"eth0\"\n").unwrap();
        assert_eq!(path(folder.path(), "eth0"), None);
        fs::write(&file, "IFACE=\"eth0\"\n").unwrap();
        assert_eq!(path(folder.path(), "eth0"), Some(file));
    }
}

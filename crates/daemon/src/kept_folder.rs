//! The folder for what must survive a restart of the machine.

use std::path::{Path, PathBuf};

/// OpenWrt has this file. Its /var is in memory.
const OPENWRT: &str = "/etc/openwrt_release";
/// The folder in OpenWrt's flash memory.
const FLASH: &str = "/etc/sqm";

/// A folder, and what kind of memory it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeptFolder {
    pub(super) path: PathBuf,
    /// Each write wears it.
    pub(super) is_flash: bool,
}

impl KeptFolder {
    /// The folder of the service (systemd's `StateDirectory=`), else OpenWrt's, else the state folder.
    pub(super) fn find(state_dir: &Path) -> Self {
        let of_service = std::env::var_os("STATE_DIRECTORY").map(PathBuf::from);
        Self::of(of_service, Path::new(OPENWRT).exists(), state_dir)
    }

    fn of(of_service: Option<PathBuf>, is_openwrt: bool, state_dir: &Path) -> Self {
        let (path, is_flash) = match of_service {
            Some(folder) => (folder, false),
            None if is_openwrt => (PathBuf::from(FLASH), true),
            None => (state_dir.to_owned(), false),
        };
        Self { path, is_flash }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_openwrt_the_folder_is_in_flash_memory() {
        let of = |of_service: Option<&str>, is_openwrt| {
            let found = KeptFolder::of(
                of_service.map(PathBuf::from),
                is_openwrt,
                Path::new("/var/run/sqm"),
            );
            (found.path.display().to_string(), found.is_flash)
        };
        assert_eq!(of(Some("/var/lib/sqm"), true), ("/var/lib/sqm".into(), false));
        assert_eq!(of(None, false), ("/var/run/sqm".into(), false));
        assert_eq!(of(None, true), ("/etc/sqm".into(), true));
    }
}

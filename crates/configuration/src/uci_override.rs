//! The file that takes the place of `/etc/config/sqm` on OpenWrt: libuci of 2025 and later reads and writes `/var/run/uci/sqm`
//! (`UCI_CONF2DIR`) instead if there is one. Management systems put files there so that those in flash memory stay as they are.

use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file that `uci` reads otherwise.
pub(crate) const CONFIG: &str = "/etc/config/sqm";
/// The folder in which it looks first (libuci, `UCI_CONF2DIR`).
const FOLDER: &str = "/var/run/uci";
/// The file that it reads instead.
pub(crate) const OVERRIDE: &str = "/var/run/uci/sqm";
/// Without this program, no program on the machine reads that file.
const UCI: &str = "/sbin/uci";
/// Write permission of other users, who must not change the configuration.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// The file that holds the configuration which is named `config`.
pub fn of(config: &Path) -> PathBuf {
    let is_overridden = config == Path::new(CONFIG)
        && has_uci()
        && Path::new(OVERRIDE).exists()
        && is_ours(Path::new(FOLDER));
    match is_overridden {
        true => PathBuf::from(OVERRIDE),
        false => config.to_owned(),
    }
}

/// Reads `--config` of a command.
///
/// # Errors
/// None: any text is a path.
pub fn parse(config: &str) -> Result<PathBuf, Infallible> {
    Ok(of(Path::new(config)))
}

/// A message that another file than `/etc/config/sqm` is read, if it is.
pub(crate) fn report(config: &Path) -> Option<String> {
    (config == Path::new(OVERRIDE) && has_uci()).then(|| {
        format!(
            "{OVERRIDE} is read and changed in place of {CONFIG}, as OpenWrt's uci does; it is in memory and ends with a restart of \
             the machine"
        )
    })
}

/// True if `uci` manages the file.
pub(crate) fn is_of_uci(config: &Path) -> bool {
    (config == Path::new(CONFIG) || config == Path::new(OVERRIDE)) && has_uci()
}

fn has_uci() -> bool {
    Path::new(UCI).exists()
}

/// True if no other user can change what is in this folder.
pub(crate) fn is_ours(folder: &Path) -> bool {
    let found = fs::symlink_metadata(folder);
    match (found, fs::metadata("/proc/self")) {
        (Ok(found), Ok(own)) => {
            found.is_dir() && found.uid() == own.uid() && found.mode() & WRITABLE_BY_OTHERS == 0
        }
        _ => false,
    }
}

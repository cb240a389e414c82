//! Hands a configuration that a command has applied to the daemon, by a file in the state folder. The daemon cannot read
//! it from the configuration file: by the time the daemon checks the queues, that file may hold a different text.
//!
//! The command and the daemon hold the store's lock.

use std::path::{Path, PathBuf};

use sqm_files::Error;
use sqm_kernel::state::Store;

/// Only root may read the file: it holds the configuration, whose own file may be readable by root alone.
const MODE: u32 = 0o600;
/// The longest path in bytes (`PATH_MAX`). The first line of the file is the path of the configuration.
const MAX_PATH: u64 = 4096;

/// Stores `text`, which was read from `config` and has been applied.
pub fn store(_lock: &Store, state_dir: &Path, config: &Path, text: &[u8]) -> Result<(), Error> {
    let name = name(config);
    sqm_files::replace(&file(state_dir), MODE, &[name.as_slice(), b"\n", text].concat())
}

/// Removes the stored text and returns it, if it was read from `config`.
pub fn take(_lock: &Store, state_dir: &Path, config: &Path) -> Option<Vec<u8>> {
    let file = file(state_dir);
    let stored = sqm_files::read_if_there(&file, crate::MAX_BYTES + MAX_PATH).ok()??;
    // A text that cannot be removed must not be returned: it would be returned again by every later call.
    sqm_files::remove(&file).ok()?;
    let text = stored
        .strip_prefix(name(config).as_slice())?
        .strip_prefix(b"\n")?;
    Some(text.to_vec())
}

fn file(state_dir: &Path) -> PathBuf {
    state_dir.join("applied")
}

fn name(config: &Path) -> Vec<u8> {
    let whole = config.canonicalize().unwrap_or_else(|_| config.to_owned());
    whole.into_os_string().into_encoded_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_text_is_taken_once_and_only_for_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let (state, config) = (folder.path().join("state"), folder.path().join("sqm"));
        std::fs::write(&config, "changed since").unwrap();
        let store = Store::open(&state).unwrap();
        let put = |text: &[u8]| super::store(&store, &state, &config, text).unwrap();
        assert_eq!(take(&store, &state, &config), None);
        put(b"one");
        put(b"two\nlines");
        assert_eq!(take(&store, &state, &config), Some(b"two\nlines".to_vec()));
        assert_eq!(take(&store, &state, &config), None);
        put(b"three");
        assert_eq!(take(&store, &state, &folder.path().join("sq")), None);
        assert_eq!(take(&store, &state, &config), None, "it is gone");
    }
}

//! The configuration that a command has brought into force, left in the state folder for the daemon. By the time the daemon looks
//! at the queues, the file may hold yet another text.
//!
//! Both sides hold the store's lock.

use std::path::{Path, PathBuf};

use sqm_files::Error;
use sqm_kernel::state::Store;

/// It holds the text of the configuration, which only root may be able to read.
const MODE: u32 = 0o600;
/// The longest name of a file in bytes (`PATH_MAX`), which stands in the first line.
const MAX_NAME: u64 = 4096;

/// Leaves the text that was read from `config`.
pub fn leave(_lock: &Store, state_dir: &Path, config: &Path, text: &[u8]) -> Result<(), Error> {
    let name = name(config);
    sqm_files::replace(&file(state_dir), MODE, &[name.as_slice(), b"\n", text].concat())
}

/// Takes what was left last, if it is of that file.
pub fn take(_lock: &Store, state_dir: &Path, config: &Path) -> Option<Vec<u8>> {
    let file = file(state_dir);
    let left = sqm_files::read_if_there(&file, crate::MAX_BYTES + MAX_NAME).ok()??;
    // What cannot be removed would be taken again and again.
    sqm_files::remove(&file).ok()?;
    let text = left.strip_prefix(name(config).as_slice())?.strip_prefix(b"\n")?;
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
    fn what_was_left_is_taken_once_and_only_for_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let (state, config) = (folder.path().join("state"), folder.path().join("sqm"));
        std::fs::write(&config, "changed since").unwrap();
        let store = Store::open(&state).unwrap();
        let leave = |text: &[u8]| leave(&store, &state, &config, text).unwrap();
        assert_eq!(take(&store, &state, &config), None);
        leave(b"one");
        leave(b"two\nlines");
        assert_eq!(take(&store, &state, &config), Some(b"two\nlines".to_vec()));
        assert_eq!(take(&store, &state, &config), None);
        leave(b"three");
        assert_eq!(take(&store, &state, &folder.path().join("sq")), None);
        assert_eq!(take(&store, &state, &config), None, "it is gone");
    }
}

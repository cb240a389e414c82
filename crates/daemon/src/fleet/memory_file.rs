//! The agent's memory, in a file that survives a restart.

use std::path::PathBuf;

use sqm_api::journal::LogKind;
use sqm_fleet::agent::Memory;

use crate::journal::Journal;
use crate::kept_folder::KeptFolder;

/// The longest file, bytes. A choice: a document has at most 256 KiB, and is longer as a text in JSON.
const MAX: u64 = 1024 * 1024;
/// Only root may read it, like the credentials.
const MODE: u32 = 0o600;

/// The file.
pub(super) struct MemoryFile(PathBuf);

impl MemoryFile {
    /// Reads the file. One that cannot be understood is put aside and reported; the router then takes the document that the store holds
    /// for a new one.
    pub(super) fn open(folder: &KeptFolder, journal: &Journal) -> (Self, Memory) {
        let path = folder.path.join("fleet.json");
        let read = sqm_files::read_if_there(&path, MAX).map_err(|error| error.to_string());
        let memory = read.and_then(|bytes| match bytes {
            None => Ok(Memory::default()),
            Some(bytes) => serde_json::from_slice(&bytes).map_err(|error| error.to_string()),
        });
        let memory = memory.unwrap_or_else(|error| {
            let aside = match sqm_files::set_aside(&path) {
                Ok(aside) => format!("; it was renamed to {}", aside.display()),
                Err(_) => String::new(),
            };
            let text = format!("{} cannot be used: {error}{aside}", path.display());
            journal.record(LogKind::Fleet, None, text);
            Memory::default()
        });
        (Self(path), memory)
    }

    /// Replaces the file in one step.
    pub(super) fn write(&self, memory: &Memory) -> Result<(), String> {
        let bytes = serde_json::to_vec(memory).expect("a memory is plain data");
        sqm_files::replace(&self.0, MODE, &bytes)
            .map_err(|error| format!("{} cannot be written: {error}", self.0.display()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_memory_survives_and_a_damaged_file_is_put_aside() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = KeptFolder {
            path: root.path().to_owned(),
            is_flash: false,
        };
        let (file, memory) = MemoryFile::open(&folder, &Journal::default());
        assert_eq!(memory, Memory::default());
        let known = Memory {
            revision: 7,
            ..Memory::default()
        };
        file.write(&known).expect("written");
        assert_eq!(MemoryFile::open(&folder, &Journal::default()).1, known);
        fs::write(root.path().join("fleet.json"), "{").expect("a file");
        assert_eq!(
            MemoryFile::open(&folder, &Journal::default()).1,
            Memory::default()
        );
        assert!(root.path().join("fleet.json.damaged").exists());
        file.write(&known).expect("written");
        assert_eq!(MemoryFile::open(&folder, &Journal::default()).1, known);
    }
}

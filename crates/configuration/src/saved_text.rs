//! The text from before a change that waits for its confirmation, in a file beside the configuration. It outlives its program and a
//! restart of the machine: a user who has lost access to the router can restart it and has the previous configuration again.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sqm_files::Error;

use crate::{MAX_BYTES, read_if_there, replace, revision};

/// Only root may read the file: it holds the configuration, whose own file may be readable by root alone.
const MODE: u32 = 0o600;
/// The longest first line of the file, bytes; a choice. A head takes 30 bytes.
const MAX_HEAD: u64 = 4096;

/// The previous text of a configuration that is being changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedText {
    config: PathBuf,
    /// The revision of the new text.
    revision: String,
    /// The previous text.
    text: Vec<u8>,
}

/// Why a saved text cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Damaged {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] Error),
    /// The file has another form.
    #[error("{0} has no valid first line")]
    Form(String),
}

/// The first line of the file, as JSON. The text follows it.
#[derive(Serialize, Deserialize)]
struct Head {
    /// The revision of the new text.
    tried: String,
}

impl SavedText {
    /// Saves the previous `text` beside the configuration. The caller then writes the text with `revision`.
    pub fn save(config: &Path, text: Vec<u8>, revision: String) -> Result<Self, Error> {
        let head = Head {
            tried: revision.clone(),
        };
        let mut saved = serde_json::to_vec(&head).expect("a text becomes JSON");
        saved.push(b'\n');
        saved.extend_from_slice(&text);
        sqm_files::replace(&path(config), MODE, &saved)?;
        Ok(Self {
            config: config.to_owned(),
            revision,
            text,
        })
    }

    /// The text that a program has saved and that is still there; `None` if no change is unconfirmed.
    pub fn read(config: &Path) -> Result<Option<Self>, Damaged> {
        let path = path(config);
        let Some(mut saved) = sqm_files::read_if_there(&path, MAX_BYTES + MAX_HEAD)? else {
            return Ok(None);
        };
        let damaged = || Damaged::Form(path.display().to_string());
        let end = saved.iter().position(|b| *b == b'\n').ok_or_else(damaged)?;
        let head: Head = serde_json::from_slice(&saved[..end]).map_err(|_| damaged())?;
        saved.drain(..=end);
        Ok(Some(Self {
            config: config.to_owned(),
            revision: head.tried,
            text: saved,
        }))
    }

    /// Renames a file that cannot be read, and returns its new name.
    pub fn set_aside(config: &Path) -> Result<PathBuf, Error> {
        sqm_files::set_aside(&path(config))
    }

    /// The revision of the new text.
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// The previous text.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Removes the saved text, which makes the change permanent.
    pub fn discard(&self) -> Result<(), Error> {
        sqm_files::remove(&path(&self.config)).map(|_| ())
    }

    /// Restores the configuration. Returns `false` if another program has written it in the meantime; that text is left unchanged.
    /// After an error it can be called again.
    pub fn restore(&self) -> Result<bool, Error> {
        let now = read_if_there(&self.config)?;
        let holds_new_text = now.as_ref().is_none_or(|now| revision::of(now) == self.revision);
        let is_restored = if holds_new_text {
            match replace(&self.config, now.as_deref(), &self.text) {
                Err(Error::Changed { .. }) => false,
                replaced => replaced.map(|()| true)?,
            }
        } else {
            // The new text was never written: the file still holds the previous one.
            now.as_ref() == Some(&self.text)
        };
        self.discard()?;
        Ok(is_restored)
    }

    /// `true` if the configuration holds the new text, is missing, or cannot be read.
    pub fn is_new_text_in_file(&self) -> bool {
        read_if_there(&self.config).map_or(true, |now| {
            now.is_none_or(|now| revision::of(&now) == self.revision)
        })
    }
}

/// The file with the previous text.
fn path(config: &Path) -> PathBuf {
    let mut name = config.as_os_str().to_owned();
    name.push(".before-trial");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn change(config: &Path) -> SavedText {
        let text = fs::read(config).unwrap();
        let saved = SavedText::save(config, text.clone(), revision::of(b"new")).unwrap();
        replace(config, Some(&text), b"new").unwrap();
        saved
    }

    #[test]
    fn the_previous_text_is_restored_byte_for_byte_unless_another_program_wrote_in_between() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("sqm");
        let before = b"# mine\n\xff\xfe\0\nconfig queue";
        fs::write(&config, before).unwrap();
        let saved = change(&config);
        assert_eq!(SavedText::read(&config).unwrap(), Some(saved.clone()));
        assert!(saved.restore().unwrap());
        assert_eq!(fs::read(&config).unwrap(), before);
        assert_eq!(SavedText::read(&config).unwrap(), None);

        let unwritten = change(&config);
        fs::write(&config, before).unwrap();
        assert!(unwritten.restore().unwrap());

        let written = change(&config);
        fs::write(&config, "theirs").unwrap();
        assert!(!written.restore().unwrap());
        assert_eq!(fs::read(&config).unwrap(), b"theirs");
        assert!(!path(&config).exists());

        // A missing file is restored, too.
        let removed = change(&config);
        fs::remove_file(&config).unwrap();
        assert!(removed.restore().unwrap());
        assert_eq!(fs::read(&config).unwrap(), b"theirs");
    }

    #[test]
    fn a_discarded_text_leaves_the_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("sqm");
        fs::write(&config, "old").unwrap();
        let saved = change(&config);
        assert!(saved.is_new_text_in_file());
        saved.discard().unwrap();
        assert_eq!(SavedText::read(&config).unwrap(), None);
        assert_eq!(fs::read(&config).unwrap(), b"new");
    }
}

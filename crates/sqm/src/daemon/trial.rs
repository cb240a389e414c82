//! A changed configuration that is put back unless somebody confirms it: file and queues.
//!
//! What was before is kept in a file beside the configuration, which outlives the daemon and a restart of the machine: who has
//! locked himself out and turns the router off and on again finds it as it was.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use serde::{Deserialize, Serialize};
use sqm_core::units::Instant;

use super::shape::Configuration;
use crate::replace::replace;
use crate::revision;

/// A change that waits.
pub(super) struct Trial {
    config: PathBuf,
    /// Of the text that is tried.
    pub(super) revision: String,
    pub(super) until: Instant,
    /// What was in force; not the file's text if that had errors.
    pub(super) in_force: Configuration,
    text: Vec<u8>,
}

/// Begins the file that keeps the text from before; that text follows it.
#[derive(Serialize, Deserialize)]
struct Head {
    tried: String,
}

impl Trial {
    /// Keeps `text` before `revision` takes its place.
    pub(super) fn begin(
        config: &Path,
        text: Vec<u8>,
        in_force: Configuration,
        revision: String,
        until: Instant,
    ) -> anyhow::Result<Self> {
        let head = Head {
            tried: revision.clone(),
        };
        let mut kept = serde_json::to_vec(&head)?;
        kept.push(b'\n');
        kept.extend_from_slice(&text);
        let path = beside(config);
        replace(&path, &kept)?;
        Ok(Self {
            config: config.to_owned(),
            revision,
            until,
            in_force,
            text,
        })
    }

    /// It stays.
    pub(super) fn keep(&self) -> anyhow::Result<()> {
        let path = beside(&self.config);
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))
    }

    /// Puts the file back. False if somebody has written another one meanwhile, which stays.
    pub(super) fn undo(&self) -> anyhow::Result<bool> {
        let now = fs::read(&self.config).unwrap_or_default();
        let is_tried = revision::of(&now) == self.revision;
        if is_tried {
            replace(&self.config, &self.text)?;
        }
        self.keep()?;
        // What could not even be written is not somebody else's.
        Ok(is_tried || now == self.text)
    }
}

/// Puts back what a daemon that died did not. Answers what there is to tell.
pub(super) fn recover(config: &Path) -> anyhow::Result<Option<&'static str>> {
    let path = beside(config);
    let Ok(kept) = fs::read(&path) else {
        return Ok(None);
    };
    let end = kept.iter().position(|b| *b == b'\n');
    let (head, text) = kept.split_at(end.ok_or_else(|| anyhow!("{} is damaged", path.display()))?);
    let head: Head =
        serde_json::from_slice(head).with_context(|| format!("{} is damaged", path.display()))?;
    let now = fs::read(config).unwrap_or_default();
    let is_tried = revision::of(&now) == head.tried;
    if is_tried {
        replace(config, &text[1..])?;
    }
    fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    Ok(is_tried.then_some("a change that nobody had confirmed was put back"))
}

/// How long it still waits.
pub(super) fn left(until: Instant, now: Instant) -> Duration {
    Duration::from_nanos(until.since(now).0)
}

fn beside(config: &Path) -> PathBuf {
    let mut name = config.as_os_str().to_owned();
    name.push(".before-trial");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(config: &Path) -> Trial {
        let text = fs::read(config).unwrap();
        let revision = revision::of(b"new");
        let trial = Trial::begin(config, text, Configuration::default(), revision, Instant(1)).unwrap();
        replace(config, "new").unwrap();
        trial
    }

    #[test]
    fn what_was_before_comes_back_byte_for_byte_unless_somebody_wrote_in_between() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("sqm");
        let before = b"# mine\n\xff\xfe\0\nconfig queue";
        fs::write(&config, before).unwrap();
        assert!(trial(&config).undo().unwrap());
        assert_eq!(fs::read(&config).unwrap(), before);

        let unwritten = trial(&config);
        fs::write(&config, before).unwrap();
        assert!(unwritten.undo().unwrap());

        let tried = trial(&config);
        fs::write(&config, "theirs").unwrap();
        assert!(!tried.undo().unwrap());
        assert_eq!(fs::read(&config).unwrap(), b"theirs");
        assert!(!beside(&config).exists());
    }

    #[test]
    fn a_daemon_that_died_leaves_the_way_back_to_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("sqm");
        fs::write(&config, "old").unwrap();
        assert_eq!(recover(&config).unwrap(), None);
        drop(trial(&config));
        assert!(recover(&config).unwrap().is_some());
        assert_eq!(fs::read(&config).unwrap(), b"old");
        assert_eq!(recover(&config).unwrap(), None);

        let kept = trial(&config);
        kept.keep().unwrap();
        assert_eq!(recover(&config).unwrap(), None);
        assert_eq!(fs::read(&config).unwrap(), b"new");
    }
}

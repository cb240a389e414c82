//! Commit-confirm for the configuration: a change is rolled back, in the file and in the kernel, unless a client of the API
//! confirms it in time.
//!
//! The previous text is kept in a file beside the configuration, which outlives the daemon and a restart of the machine. A
//! user who has lost access to the router can restart it and has the previous configuration again. If the file system refuses
//! writes, the queues are rolled back all the same, and the daemon retries the file ([`PendingFileRollback`]).

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use serde::{Deserialize, Serialize};
use sqm_core::units::{Instant, Nanos};
use sqm_files::Error;

use super::shape::Configuration;
use sqm_configuration::revision;

/// Only root may read the file: it holds the configuration, whose own file may be readable by root alone.
const MODE: u32 = 0o600;
/// The longest first line of that file, bytes; a choice. A head takes 30 bytes.
const MAX_HEAD: u64 = 4096;
/// The wait before the file is tried again; each failure doubles it. A choice.
const FIRST_RETRY: Nanos = Nanos::from_millis(1000);
/// The longest wait between two tries. A choice.
const MAX_RETRY: Nanos = Nanos::from_millis(60_000);

/// A change that waits for its confirmation.
pub(super) struct UnconfirmedChange {
    config: PathBuf,
    /// The revision of the new text.
    pub(super) revision: String,
    /// When the change is rolled back.
    pub(super) until: Instant,
    /// The configuration that was in force before. It is not the previous text if that had errors.
    pub(super) in_force: Configuration,
    /// The previous text of the file.
    pub(super) text: Vec<u8>,
    /// Interfaces that were stopped by hand before the change. They are in no file.
    pub(super) stopped: Vec<String>,
}

/// A change that was rolled back in the kernel, while its file could not be restored yet.
pub(super) struct PendingFileRollback {
    pub(super) change: UnconfirmedChange,
    /// Why the file could not be restored.
    pub(super) why: String,
    /// When the file is tried again.
    pub(super) due: Instant,
    pause: Nanos,
    /// `true` if the configuration file held the new text at the last try. Otherwise only the copy of the previous text is left
    /// to be removed.
    holds_new_text: bool,
}

/// The first line of the file with the previous text, as JSON. The text follows it.
#[derive(Serialize, Deserialize)]
struct Head {
    /// The revision of the new text.
    tried: String,
}

impl UnconfirmedChange {
    /// Saves the previous `text` beside the configuration. The caller then writes the text with `revision`.
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
        let mut saved = serde_json::to_vec(&head)?;
        saved.push(b'\n');
        saved.extend_from_slice(&text);
        sqm_files::replace(&saved_file(config), MODE, &saved)
            .context("the previous configuration cannot be saved")?;
        Ok(Self {
            config: config.to_owned(),
            revision,
            until,
            in_force,
            text,
            stopped: Vec::new(),
        })
    }

    /// Makes the change permanent: removes the saved text.
    pub(super) fn confirm(&self) -> Result<(), Error> {
        sqm_files::remove(&saved_file(&self.config)).map(|_| ())
    }

    /// Restores the file. Returns `false` if another program has written the file in the meantime; its text is left unchanged.
    /// After an error it can be called again.
    pub(super) fn restore_file(&self) -> Result<bool, Error> {
        let now = sqm_configuration::read_if_there(&self.config)?;
        let holds_new_text = now.as_ref().is_none_or(|now| revision::of(now) == self.revision);
        let is_restored = if holds_new_text {
            match sqm_configuration::replace(&self.config, now.as_deref(), &self.text) {
                Err(Error::Changed { .. }) => false,
                replaced => replaced.map(|()| true)?,
            }
        } else {
            // The new text was never written: the file still holds the previous one.
            now.as_ref() == Some(&self.text)
        };
        self.confirm()?;
        Ok(is_restored)
    }

    /// `true` if the file holds the new text, is missing, or cannot be read.
    fn is_in_file(&self) -> bool {
        let now = sqm_configuration::read_if_there(&self.config);
        now.map_or(true, |now| {
            now.is_none_or(|now| revision::of(&now) == self.revision)
        })
    }
}

impl PendingFileRollback {
    pub(super) fn new(change: UnconfirmedChange, why: String, now: Instant) -> Self {
        Self {
            holds_new_text: change.is_in_file(),
            // The queues are rolled back now. An interface that is started after that stays started.
            change: UnconfirmedChange {
                stopped: Vec::new(),
                ..change
            },
            why,
            due: now + FIRST_RETRY,
            pause: FIRST_RETRY,
        }
    }

    /// Schedules the next try after the file could not be restored again.
    pub(super) fn failed_again(self, why: String, now: Instant) -> Self {
        let pause = Nanos((self.pause.0 * 2).min(MAX_RETRY.0));
        Self {
            holds_new_text: self.change.is_in_file(),
            why,
            due: now + pause,
            pause,
            ..self
        }
    }

    /// `true` if reading the file would apply the change that was rolled back.
    pub(super) fn is_in_file(&self) -> bool {
        self.change.is_in_file()
    }

    /// The text for the daemon's status.
    pub(super) fn message(&self) -> String {
        if !self.holds_new_text {
            return format!(
                "the saved copy of the previous configuration cannot be removed; the daemon keeps trying: {}",
                self.why
            );
        }
        format!(
            "the configuration file holds a change that was not confirmed. The queues were rolled back; the file could not be \
             restored, and the daemon keeps trying: {}",
            self.why
        )
    }
}

/// The result of [`recover`].
#[derive(Default)]
pub(super) struct Recovered {
    /// Messages for the log.
    pub(super) messages: Vec<String>,
    /// A change whose file could not be restored.
    pub(super) pending: Option<PendingFileRollback>,
}

/// Restores the file after a daemon ended while a change was unconfirmed. An error is a message and does not end the new
/// daemon.
pub(super) fn recover(config: &Path, now: Instant) -> Recovered {
    let change = match read(config) {
        Ok(None) => return Recovered::default(),
        Ok(Some(change)) => change,
        Err(error) => {
            let path = saved_file(config);
            let aside = match sqm_files::set_aside(&path) {
                Ok(aside) => format!("it was renamed to {}", aside.display()),
                Err(error) => format!("it cannot be renamed: {error}"),
            };
            let message = format!(
                "the saved copy of the previous configuration is damaged ({error:#}; {aside}); the configuration file is left \
                 unchanged"
            );
            return Recovered {
                messages: vec![message],
                pending: None,
            };
        }
    };
    match change.restore_file() {
        Ok(true) => Recovered {
            messages: vec!["a change that was not confirmed has been rolled back".to_owned()],
            pending: None,
        },
        Ok(false) => Recovered::default(),
        Err(error) if !change.is_in_file() => Recovered {
            messages: vec![format!(
                "the saved copy of the previous configuration cannot be removed: {error}"
            )],
            pending: None,
        },
        Err(error) => {
            let pending = PendingFileRollback::new(change, error.to_string(), now);
            Recovered {
                messages: vec![pending.message()],
                pending: Some(pending),
            }
        }
    }
}

/// The unconfirmed change of an earlier daemon. Which configuration was in force is not known; [`crate::main_loop::run`] takes
/// the previous text for it.
fn read(config: &Path) -> anyhow::Result<Option<UnconfirmedChange>> {
    let path = saved_file(config);
    let Some(mut saved) = sqm_files::read_if_there(&path, sqm_configuration::MAX_BYTES + MAX_HEAD)? else {
        return Ok(None);
    };
    let damaged = || anyhow!("{} has no valid first line", path.display());
    let end = saved.iter().position(|b| *b == b'\n').ok_or_else(damaged)?;
    let head: Head = serde_json::from_slice(&saved[..end]).map_err(|_| damaged())?;
    saved.drain(..=end);
    Ok(Some(UnconfirmedChange {
        config: config.to_owned(),
        revision: head.tried,
        until: Instant(0),
        in_force: Configuration::default(),
        text: saved,
        stopped: Vec::new(),
    }))
}

/// The time until `until`; zero if that has passed.
pub(super) fn time_left(until: Instant, now: Instant) -> Duration {
    Duration::from_nanos(until.since(now).0)
}

/// The file with the previous text, beside the configuration.
fn saved_file(config: &Path) -> PathBuf {
    let mut name = config.as_os_str().to_owned();
    name.push(".before-trial");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn change(config: &Path) -> UnconfirmedChange {
        let text = fs::read(config).unwrap();
        let revision = revision::of(b"new");
        let change = UnconfirmedChange::begin(
            config,
            text.clone(),
            Configuration::default(),
            revision,
            Instant(1),
        )
        .unwrap();
        sqm_configuration::replace(config, Some(&text), b"new").unwrap();
        change
    }

    fn recover(config: &Path) -> Recovered {
        super::recover(config, Instant(0))
    }

    #[test]
    fn the_previous_text_is_restored_byte_for_byte_unless_another_program_wrote_in_between() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("sqm");
        let before = b"# mine\n\xff\xfe\0\nconfig queue";
        fs::write(&config, before).unwrap();
        assert!(change(&config).restore_file().unwrap());
        assert_eq!(fs::read(&config).unwrap(), before);

        let unwritten = change(&config);
        fs::write(&config, before).unwrap();
        assert!(unwritten.restore_file().unwrap());

        let written = change(&config);
        fs::write(&config, "theirs").unwrap();
        assert!(!written.restore_file().unwrap());
        assert_eq!(fs::read(&config).unwrap(), b"theirs");
        assert!(!saved_file(&config).exists());

        // A missing file is restored, too.
        let removed = change(&config);
        fs::remove_file(&config).unwrap();
        assert!(removed.restore_file().unwrap());
        assert_eq!(fs::read(&config).unwrap(), b"theirs");
    }

    #[test]
    fn the_next_daemon_restores_an_unconfirmed_change() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("sqm");
        fs::write(&config, "old").unwrap();
        assert!(recover(&config).messages.is_empty());
        drop(change(&config));
        assert!(recover(&config).messages[0].contains("has been rolled back"));
        assert_eq!(fs::read(&config).unwrap(), b"old");
        assert!(recover(&config).messages.is_empty());

        let confirmed = change(&config);
        confirmed.confirm().unwrap();
        assert!(recover(&config).messages.is_empty());
        assert_eq!(fs::read(&config).unwrap(), b"new");
    }

    #[test]
    fn a_file_that_cannot_be_restored_stays_pending_until_it_can() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("sqm");
        fs::write(&config, "old").unwrap();
        drop(change(&config));
        // A directory in place of the lock file cannot be locked.
        let lock = folder.path().join(".sqm.lock");
        fs::remove_file(&lock).unwrap();
        fs::create_dir(&lock).unwrap();
        let recovered = recover(&config);
        let pending = recovered.pending.expect("it cannot be restored");
        assert!(
            recovered.messages[0].contains(".sqm.lock: is a directory"),
            "{}",
            recovered.messages[0]
        );
        assert_eq!(pending.change.text, b"old");
        assert!(pending.is_in_file() && pending.change.restore_file().is_err());
        fs::remove_dir(&lock).unwrap();
        assert!(pending.change.restore_file().unwrap() && !pending.is_in_file());
        assert_eq!(fs::read(&config).unwrap(), b"old");
        assert!(!saved_file(&config).exists());
    }

    #[test]
    fn a_damaged_copy_is_reported_and_renamed() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("sqm");
        let damages: [fn(&Path); 6] = [
            |path| fs::write(path, "").unwrap(),
            |path| fs::write(path, [0xff; 3000]).unwrap(),
            |path| fs::write(path, "{}\nold").unwrap(),
            |path| fs::create_dir(path).unwrap(),
            |path| std::os::unix::fs::symlink("nowhere", path).unwrap(),
            |path| {
                use rustix::fs::{CWD, FileType, Mode, mknodat};
                mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();
            },
        ];
        for damage in damages {
            fs::write(&config, "text").unwrap();
            damage(&saved_file(&config));
            let recovered = recover(&config);
            assert!(recovered.pending.is_none());
            assert!(
                recovered.messages[0].contains("sqm.before-trial.damaged"),
                "{}",
                recovered.messages[0]
            );
            assert_eq!(fs::read(&config).unwrap(), b"text");
            assert!(recover(&config).messages.is_empty());
            change(&config).confirm().unwrap();
        }
    }
}

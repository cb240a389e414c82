//! Commit-confirm for the configuration: a change is rolled back, in the file and in the kernel, unless a client of the API
//! confirms it in time.
//!
//! The previous text of the file is a [`SavedText`], which outlives the daemon. If the file system refuses writes, the queues are
//! rolled back all the same, and the daemon retries the file ([`PendingFileRollback`]).

use std::path::Path;
use std::time::Duration;

use sqm_core::units::{Instant, Nanos};

use super::shape::Configuration;
use sqm_configuration::SavedText;

/// The wait before the file is tried again; each failure doubles it. A choice.
const FIRST_RETRY: Nanos = Nanos::from_millis(1000);
/// The longest wait between two tries. A choice.
const MAX_RETRY: Nanos = Nanos::from_millis(60_000);

/// A change that waits for its confirmation.
pub(super) struct UnconfirmedChange {
    /// The previous text of the file.
    pub(super) saved: SavedText,
    /// When the change is rolled back.
    pub(super) until: Instant,
    /// The configuration that was in force before. It is not the previous text if that had errors.
    pub(super) in_force: Configuration,
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

impl PendingFileRollback {
    pub(super) fn new(change: UnconfirmedChange, why: String, now: Instant) -> Self {
        Self {
            holds_new_text: change.saved.is_new_text_in_file(),
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
            holds_new_text: self.change.saved.is_new_text_in_file(),
            why,
            due: now + pause,
            pause,
            ..self
        }
    }

    /// `true` if reading the file would apply the change that was rolled back.
    pub(super) fn is_in_file(&self) -> bool {
        self.change.saved.is_new_text_in_file()
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
    let saved = match SavedText::read(config) {
        Ok(None) => return Recovered::default(),
        Ok(Some(saved)) => saved,
        Err(error) => {
            let aside = match SavedText::set_aside(config) {
                Ok(aside) => format!("it was renamed to {}", aside.display()),
                Err(error) => format!("it cannot be renamed: {error}"),
            };
            let message = format!(
                "the saved copy of the previous configuration is damaged ({error}; {aside}); the configuration file is left \
                 unchanged"
            );
            return Recovered {
                messages: vec![message],
                pending: None,
            };
        }
    };
    match saved.restore() {
        Ok(true) => Recovered {
            messages: vec!["a change that was not confirmed has been rolled back".to_owned()],
            pending: None,
        },
        Ok(false) => Recovered::default(),
        Err(error) if !saved.is_new_text_in_file() => Recovered {
            messages: vec![format!(
                "the saved copy of the previous configuration cannot be removed: {error}"
            )],
            pending: None,
        },
        Err(error) => {
            // Which configuration was in force is not known; `main_loop::run` takes the previous text for it.
            let change = UnconfirmedChange {
                saved,
                until: Instant(0),
                in_force: Configuration::default(),
                stopped: Vec::new(),
            };
            let pending = PendingFileRollback::new(change, error.to_string(), now);
            Recovered {
                messages: vec![pending.message()],
                pending: Some(pending),
            }
        }
    }
}

/// The time until `until`; zero if that has passed.
pub(super) fn time_left(until: Instant, now: Instant) -> Duration {
    Duration::from_nanos(until.since(now).0)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use sqm_configuration::revision;

    use super::*;

    fn change(config: &Path) -> SavedText {
        let text = fs::read(config).unwrap();
        let saved = SavedText::save(config, text.clone(), revision::of(b"new")).unwrap();
        sqm_configuration::replace(config, Some(&text), b"new").unwrap();
        saved
    }

    fn saved_file(config: &Path) -> PathBuf {
        config.with_file_name("sqm.before-trial")
    }

    fn recover(config: &Path) -> Recovered {
        super::recover(config, Instant(0))
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
        confirmed.discard().unwrap();
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
        assert_eq!(pending.change.saved.text(), b"old");
        assert!(pending.is_in_file() && pending.change.saved.restore().is_err());
        fs::remove_dir(&lock).unwrap();
        assert!(pending.change.saved.restore().unwrap() && !pending.is_in_file());
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
            change(&config).discard().unwrap();
        }
    }
}

//! A changed configuration that is put back unless somebody confirms it: file and queues.
//!
//! What was before is kept in a file beside the configuration, which outlives the daemon and a restart of the machine: who has
//! locked himself out and turns the router off and on again finds it as it was. A file system that takes no writes keeps
//! only the file from being put back: the queues need no disk, and the file is tried again ([`Overdue`]).

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use serde::{Deserialize, Serialize};
use sqm_core::units::{Instant, Nanos};
use sqm_files::Error;

use super::shape::Configuration;
use sqm_configuration::revision;

/// It holds the text of the configuration, which only root may be able to read.
const MODE: u32 = 0o600;
/// The longest head of that file, in bytes.
const MAX_HEAD: u64 = 4096;
/// Until the file is tried again; doubled by each failure.
const RETRY: Nanos = Nanos::from_millis(1000);
/// The longest wait between two tries.
const MAX_RETRY: Nanos = Nanos::from_millis(60_000);

/// A change that waits.
pub(super) struct Trial {
    config: PathBuf,
    /// Of the text that is tried.
    pub(super) revision: String,
    pub(super) until: Instant,
    /// What was in force; not the file's text if that had errors.
    pub(super) in_force: Configuration,
    /// What was in the file.
    pub(super) text: Vec<u8>,
    /// Interfaces that were stopped by hand. Only this daemon knows of them.
    pub(super) stopped: Vec<String>,
}

/// A trial that has ended while the file could not be put back.
pub(super) struct Overdue {
    pub(super) trial: Trial,
    /// Why the file could not be put back.
    pub(super) why: String,
    /// When it is tried again.
    pub(super) due: Instant,
    pause: Nanos,
    /// Whether the file held what is tried when it was looked at last; else only the text from before is left to be removed.
    is_tried: bool,
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
        sqm_files::replace(&beside(config), MODE, &kept).context("what is to be put back cannot be kept")?;
        Ok(Self {
            config: config.to_owned(),
            revision,
            until,
            in_force,
            text,
            stopped: Vec::new(),
        })
    }

    /// It stays.
    pub(super) fn keep(&self) -> Result<(), Error> {
        sqm_files::remove(&beside(&self.config)).map(|_| ())
    }

    /// Puts the file back. False if somebody has written another one meanwhile, which stays. After a failure it can be tried
    /// again.
    pub(super) fn undo(&self) -> Result<bool, Error> {
        let now = sqm_configuration::read_if_there(&self.config)?;
        let is_tried = now.as_ref().is_none_or(|now| revision::of(now) == self.revision);
        let is_undone = if is_tried {
            match sqm_configuration::replace(&self.config, now.as_deref(), &self.text) {
                Err(Error::Changed { .. }) => false,
                replaced => replaced.map(|()| true)?,
            }
        } else {
            // What could not even be written is not somebody else's.
            now.as_ref() == Some(&self.text)
        };
        self.keep()?;
        Ok(is_undone)
    }

    /// Whether the file holds what is tried, as far as it can be read.
    fn is_in_file(&self) -> bool {
        let now = sqm_configuration::read_if_there(&self.config);
        now.map_or(true, |now| {
            now.is_none_or(|now| revision::of(&now) == self.revision)
        })
    }
}

impl Overdue {
    pub(super) fn new(trial: Trial, why: String, now: Instant) -> Self {
        Self {
            is_tried: trial.is_in_file(),
            // The queues are rolled back now. Who starts an interface after that means it.
            trial: Trial {
                stopped: Vec::new(),
                ..trial
            },
            why,
            due: now + RETRY,
            pause: RETRY,
        }
    }

    /// The file could not be put back this time either.
    pub(super) fn failed(self, why: String, now: Instant) -> Self {
        let pause = Nanos((self.pause.0 * 2).min(MAX_RETRY.0));
        Self {
            is_tried: self.trial.is_in_file(),
            why,
            due: now + pause,
            pause,
            ..self
        }
    }

    /// Whether reading the file would bring into force what nobody has confirmed.
    pub(super) fn is_in_file(&self) -> bool {
        self.trial.is_in_file()
    }

    /// For the status.
    pub(super) fn told(&self) -> String {
        if !self.is_tried {
            return format!(
                "the text from before a change cannot be removed, which is tried again: {}",
                self.why
            );
        }
        format!(
            "nobody has confirmed the change that the file holds; the queues are as they were before it, and the file could not \
             be put back, which is tried again: {}",
            self.why
        )
    }
}

/// What a daemon that died has left.
#[derive(Default)]
pub(super) struct Recovered {
    /// What there is to tell.
    pub(super) told: Vec<String>,
    /// A change whose file could not be put back.
    pub(super) overdue: Option<Overdue>,
}

/// Puts back what a daemon that died did not. Nothing that stands in the way ends the new daemon.
pub(super) fn recover(config: &Path, now: Instant) -> Recovered {
    let trial = match read(config) {
        Ok(None) => return Recovered::default(),
        Ok(Some(trial)) => trial,
        Err(error) => {
            let path = beside(config);
            let aside = match sqm_files::set_aside(&path) {
                Ok(aside) => format!("it is {} now", aside.display()),
                Err(error) => format!("it cannot be put aside: {error}"),
            };
            let told = format!(
                "what was kept to put back a change that nobody confirmed is damaged ({error:#}; {aside}): the configuration \
                 holds as it is"
            );
            return Recovered {
                told: vec![told],
                overdue: None,
            };
        }
    };
    match trial.undo() {
        Ok(true) => Recovered {
            told: vec!["a change that nobody had confirmed was put back".to_owned()],
            overdue: None,
        },
        Ok(false) => Recovered::default(),
        Err(error) if !trial.is_in_file() => Recovered {
            told: vec![format!("what was kept of a change cannot be removed: {error}")],
            overdue: None,
        },
        Err(error) => {
            let overdue = Overdue::new(trial, error.to_string(), now);
            Recovered {
                told: vec![overdue.told()],
                overdue: Some(overdue),
            }
        }
    }
}

/// The change that a daemon left unconfirmed. What was in force is not known: it is what the text says.
fn read(config: &Path) -> anyhow::Result<Option<Trial>> {
    let path = beside(config);
    let Some(mut kept) = sqm_files::read_if_there(&path, sqm_configuration::MAX_BYTES + MAX_HEAD)? else {
        return Ok(None);
    };
    let damaged = || anyhow!("{} does not begin as it should", path.display());
    let end = kept.iter().position(|b| *b == b'\n').ok_or_else(damaged)?;
    let head: Head = serde_json::from_slice(&kept[..end]).map_err(|_| damaged())?;
    kept.drain(..=end);
    Ok(Some(Trial {
        config: config.to_owned(),
        revision: head.tried,
        until: Instant(0),
        in_force: Configuration::default(),
        text: kept,
        stopped: Vec::new(),
    }))
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
    use std::fs;

    use super::*;

    fn trial(config: &Path) -> Trial {
        let text = fs::read(config).unwrap();
        let revision = revision::of(b"new");
        let trial = Trial::begin(
            config,
            text.clone(),
            Configuration::default(),
            revision,
            Instant(1),
        )
        .unwrap();
        sqm_configuration::replace(config, Some(&text), b"new").unwrap();
        trial
    }

    fn recover(config: &Path) -> Recovered {
        super::recover(config, Instant(0))
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

        // Nobody's text is lost where there is none.
        let removed = trial(&config);
        fs::remove_file(&config).unwrap();
        assert!(removed.undo().unwrap());
        assert_eq!(fs::read(&config).unwrap(), b"theirs");
    }

    #[test]
    fn a_daemon_that_died_leaves_the_way_back_to_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("sqm");
        fs::write(&config, "old").unwrap();
        assert!(recover(&config).told.is_empty());
        drop(trial(&config));
        assert!(recover(&config).told[0].contains("was put back"));
        assert_eq!(fs::read(&config).unwrap(), b"old");
        assert!(recover(&config).told.is_empty());

        let kept = trial(&config);
        kept.keep().unwrap();
        assert!(recover(&config).told.is_empty());
        assert_eq!(fs::read(&config).unwrap(), b"new");
    }

    #[test]
    fn a_file_that_cannot_be_put_back_is_overdue_until_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("sqm");
        fs::write(&config, "old").unwrap();
        drop(trial(&config));
        // Nobody can lock what is a directory.
        let lock = folder.path().join(".sqm.lock");
        fs::remove_file(&lock).unwrap();
        fs::create_dir(&lock).unwrap();
        let recovered = recover(&config);
        let overdue = recovered.overdue.expect("it cannot be put back");
        assert!(
            recovered.told[0].contains(".sqm.lock: is a directory"),
            "{}",
            recovered.told[0]
        );
        assert_eq!(overdue.trial.text, b"old");
        assert!(overdue.is_in_file() && overdue.trial.undo().is_err());
        fs::remove_dir(&lock).unwrap();
        assert!(overdue.trial.undo().unwrap() && !overdue.is_in_file());
        assert_eq!(fs::read(&config).unwrap(), b"old");
        assert!(!beside(&config).exists());
    }

    #[test]
    fn what_is_damaged_is_told_and_put_aside() {
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
            damage(&beside(&config));
            let recovered = recover(&config);
            assert!(recovered.overdue.is_none());
            assert!(
                recovered.told[0].contains("sqm.before-trial.damaged"),
                "{}",
                recovered.told[0]
            );
            assert_eq!(fs::read(&config).unwrap(), b"text");
            assert!(recover(&config).told.is_empty());
            trial(&config).keep().unwrap();
        }
    }
}

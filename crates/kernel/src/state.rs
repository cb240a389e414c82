//! Records of what `stop` must restore, in a file for each interface.
//!
//! A record is written before the first change of the kernel, so that it is there if the process is killed half-way. The
//! directory is on a file system that a restart empties, as it empties the kernel's queues.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sqm_files::Lock;
use sqm_plan::plan::{Firewall, Plan};

use crate::error::Error;
use crate::observe::RootId;
use crate::scripts_state::ScriptsState;
use crate::snapshot::{IngressState, QdiscTree, Snapshot};

/// The default directory of the records.
pub const DIRECTORY: &str = "/var/run/sqm";

/// Largest record that is read, bytes. A choice: the record of a tree with hundreds of classes has a tenth of it.
const MAX_RECORD: u64 = 16 << 20;
/// Any user may read a record, because `sqm status` works for any user.
const RECORD_MODE: u32 = 0o644;
/// The names of the files that note a pause end with this.
const PAUSE_SUFFIX: &str = ".paused";

/// The records, locked for this process.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    /// Held until the store is dropped, because two processes must not change the same queues at once. `None` if no process can
    /// hold the lock, such as on a read-only file system.
    lock: Option<Lock>,
    /// Takes records that cannot be written, unless the store is strict.
    unwritten: UnwrittenRecords,
    is_strict: bool,
}

/// The records of a process that goes on shaping although it cannot write them. They last as long as the process, and are
/// written as soon as that is possible.
#[derive(Clone, Debug, Default)]
pub struct UnwrittenRecords(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    /// By interface; `None` for a record that could not be removed.
    records: BTreeMap<String, Option<Record>>,
    /// Why the last of them could not be written or removed.
    last_error: Option<String>,
    /// Messages for the user.
    notes: Vec<String>,
}

/// The record of an interface that is shaped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The shaped device.
    pub interface: String,
    /// Its index. A device of this name with another index is a new one, without our queues.
    pub index: u32,
    /// The device that carries the ingress queues.
    pub ifb: String,
    /// Our root qdisc, if egress is shaped.
    pub egress: Option<RootId>,
    /// Our root from before a change that is not complete: until then, both roots are ours.
    #[serde(default)]
    pub replaces: Option<RootId>,
    /// True if ingress is shaped.
    pub ingress: bool,
    /// Index of the IFB. One of this name with another index was made by another program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ifb_index: Option<u32>,
    /// Our root qdisc on the IFB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ifb_root: Option<RootId>,
    /// The state file of sqm-scripts for this device, as it was when the record was written. A file that has changed since
    /// shows that sqm-scripts has set its own queues up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scripts_state: Option<ScriptsState>,
    /// True while a change is under way. If the process is killed, the device may hold only a part of our queues.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_changing: bool,
    /// Our firewall table.
    #[serde(default)]
    pub firewall: Option<Firewall>,
    /// The state from before our first start, which `stop` restores.
    pub previous: Snapshot,
    /// True if it replaces a record that was damaged, so that only the interface is known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_lost: bool,
}

impl Record {
    /// Replaces a record that was damaged. The kernel's default queues are assumed as the previous state.
    fn lost(interface: &str) -> Self {
        Self {
            interface: interface.to_owned(),
            index: 0,
            ifb: Plan::ifb_of(interface),
            egress: None,
            replaces: None,
            ingress: true,
            ifb_index: None,
            ifb_root: None,
            scripts_state: None,
            is_changing: false,
            firewall: None,
            previous: Snapshot {
                egress: Some(QdiscTree::default()),
                ingress: Some(IngressState::default()),
            },
            is_lost: true,
        }
    }
}

impl Store {
    /// Opens the directory, and makes it if it is missing. Waits while another process holds the lock.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        let unwritten = UnwrittenRecords::default();
        let lock = take(directory, None, &mut unwritten.lock().notes)?;
        Ok(Self {
            directory: directory.to_owned(),
            lock,
            unwritten,
            is_strict: true,
        })
    }

    /// Takes the messages for the user since the last call: damaged files that were moved aside.
    pub fn take_notes(&self) -> Vec<String> {
        self.unwritten.take_notes()
    }

    /// A descriptor of the lock for another process: the lock is released when both processes have closed it, so that the
    /// other process holds it if this one is killed. `None` if no process can hold the lock.
    pub fn share_lock(&self) -> io::Result<Option<OwnedFd>> {
        self.lock.as_ref().map(Lock::share).transpose()
    }

    /// Opens the directory with a lock that [`Store::share_lock`] of another process has given.
    pub fn with_lock(directory: &Path, lock: OwnedFd) -> Self {
        Self {
            directory: directory.to_owned(),
            lock: Some(Lock::from(lock)),
            unwritten: UnwrittenRecords::default(),
            is_strict: true,
        }
    }

    /// True if there is a record of an interface, even a damaged one.
    pub fn has(&self, interface: &str) -> bool {
        match self.unwritten.get(interface) {
            Some(record) => record.is_some(),
            None => path(&self.directory, interface).symlink_metadata().is_ok(),
        }
    }

    /// The record of an interface, if there is one. A damaged one is moved aside and replaced by one that is marked as lost.
    pub fn read(&self, interface: &str) -> Result<Option<Record>, Error> {
        if let Some(record) = self.unwritten.get(interface) {
            return Ok(record);
        }
        let path = path(&self.directory, interface);
        let damage = match sqm_files::read_if_there(&path, MAX_RECORD) {
            Ok(None) => return Ok(None),
            Ok(Some(text)) => match serde_json::from_slice::<Record>(&text) {
                Ok(record) if record.interface == interface => return Ok(Some(record)),
                Ok(record) => format!("it is the record of {}", record.interface),
                Err(error) => error.to_string(),
            },
            Err(error) => error.to_string(),
        };
        let aside = match sqm_files::set_aside(&path) {
            Ok(aside) => format!("it was renamed to {}", aside.display()),
            Err(error) => format!("it cannot be renamed: {error}"),
        };
        self.unwritten.lock().notes.push(format!(
            "{interface}: the record {} is damaged ({damage}; {aside}): the previous queues are not known, and stop will \
             restore the kernel's default ones",
            path.display()
        ));
        let lost = Record::lost(interface);
        // It is stored for the next process. If that fails, the start or stop that follows reports it when it writes.
        let _ = self.write(&lost);
        Ok(Some(lost))
    }

    /// Replaces the record atomically; it is on disk when this returns.
    pub fn write(&self, record: &Record) -> Result<(), Error> {
        let written = write(&self.directory, record);
        self.remember(&record.interface, Some(record), written)
    }

    /// Removes the record of an interface.
    pub fn remove(&self, interface: &str) -> Result<(), Error> {
        let removed = remove(&self.directory, interface);
        self.remember(interface, None, removed)
    }

    fn remember(
        &self,
        interface: &str,
        record: Option<&Record>,
        outcome: Result<(), Error>,
    ) -> Result<(), Error> {
        if self.is_strict {
            return outcome;
        }
        let mut unwritten = self.unwritten.lock();
        match outcome {
            Ok(()) => {
                unwritten.records.remove(interface);
            }
            Err(error) => {
                unwritten.records.insert(interface.to_owned(), record.cloned());
                unwritten.last_error = Some(error.to_string());
            }
        }
        Ok(())
    }

    /// Notes that the daemon has paused an interface, for `sqm stop`: a paused interface has no record.
    pub fn note_pause(&self, interface: &str) -> Result<(), Error> {
        sqm_files::replace(&pause_path(&self.directory, interface), RECORD_MODE, b"").map_err(|source| {
            Error::StateFile {
                operation: "note the pause",
                source,
            }
        })
    }

    /// True if there is a note of a pause.
    pub fn has_pause(&self, interface: &str) -> bool {
        pause_path(&self.directory, interface).symlink_metadata().is_ok()
    }

    /// Removes the note of a pause. True if there was one.
    pub fn remove_pause(&self, interface: &str) -> Result<bool, Error> {
        sqm_files::remove(&pause_path(&self.directory, interface)).map_err(|source| Error::StateFile {
            operation: "remove the note of a pause",
            source,
        })
    }

    /// The interfaces that have a note of a pause, sorted.
    pub fn paused_interfaces(&self) -> Result<Vec<String>, Error> {
        self.names_with(PAUSE_SUFFIX)
    }

    /// The interfaces that have a record on disk, sorted.
    pub fn interfaces(&self) -> Result<Vec<String>, Error> {
        self.names_with(".json")
    }

    fn names_with(&self, suffix: &str) -> Result<Vec<String>, Error> {
        let fail = |source| Error::State {
            path: self.directory.clone(),
            operation: "look for",
            source,
        };
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(fail)? {
            let name = entry.map_err(fail)?.file_name();
            names.extend(
                name.to_str()
                    .and_then(|n| n.strip_suffix(suffix))
                    .map(str::to_owned),
            );
        }
        names.sort();
        Ok(names)
    }
}

impl UnwrittenRecords {
    /// Like [`Store::open`], but records that cannot be written are kept here. If the lock cannot be made, the store is opened
    /// without it: no other process can hold it then either.
    pub fn open(&self, directory: &Path) -> Result<Store, Error> {
        let store = self.take(directory, None)?;
        Ok(store.expect("it waits for the lock without a limit"))
    }

    /// Like [`Self::open`], but `None` while another process holds the lock.
    pub fn try_open(&self, directory: &Path) -> Result<Option<Store>, Error> {
        self.take(directory, Some(Duration::ZERO))
    }

    fn take(&self, directory: &Path, patience: Option<Duration>) -> Result<Option<Store>, Error> {
        let mut notes = Vec::new();
        let taken = take(directory, patience, &mut notes);
        self.lock().notes.append(&mut notes);
        let lock = match taken {
            Ok(None) => return Ok(None),
            Ok(lock) => lock,
            Err(error) => {
                self.lock().last_error = Some(error.to_string());
                None
            }
        };
        if lock.is_some() {
            self.write(directory);
        }
        Ok(Some(Store {
            directory: directory.to_owned(),
            lock,
            unwritten: self.clone(),
            is_strict: false,
        }))
    }

    /// Like [`Store::take_notes`].
    pub fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().notes)
    }

    /// Why a record could not be written or the lock not be taken, as long as that is so.
    pub fn last_error(&self) -> Option<String> {
        self.lock().last_error.clone()
    }

    fn get(&self, interface: &str) -> Option<Option<Record>> {
        self.lock().records.get(interface).cloned()
    }

    /// Tries again to write the records that could not be written.
    fn write(&self, directory: &Path) {
        let mut unwritten = self.lock();
        let mut last_error = None;
        unwritten.records.retain(|interface, record| {
            let written = match record {
                Some(record) => write(directory, record),
                None => remove(directory, interface),
            };
            let Err(error) = written else { return false };
            last_error = Some(error.to_string());
            true
        });
        unwritten.last_error = last_error;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("no holder of this lock panics")
    }
}

/// Takes the lock of the directory, which is made if it is missing. Something in the lock's place that is not a regular file is
/// moved aside. `None` if another process holds the lock and `patience` is given.
fn take(
    directory: &Path,
    patience: Option<Duration>,
    notes: &mut Vec<String>,
) -> Result<Option<Lock>, Error> {
    let path = directory.join("lock");
    let fail = |error: sqm_files::Error| Error::StateFile {
        operation: "take the lock",
        source: error,
    };
    let try_take = || match patience {
        None => Lock::take(&path, None).map(Some),
        Some(_) => Lock::try_take(&path),
    };
    match try_take() {
        // The directory is missing only the first time.
        Err(error) if error.is_not_found() => {
            fs::create_dir_all(directory).map_err(|source| Error::State {
                path: directory.to_owned(),
                operation: "make",
                source,
            })?;
        }
        Err(_) => {
            let aside = sqm_files::set_aside_irregular(&path).map_err(fail)?;
            let note = |aside: PathBuf| {
                format!(
                    "{} was not a regular file and has been renamed to {}",
                    path.display(),
                    aside.display()
                )
            };
            notes.extend(aside.map(note));
        }
        taken => return taken.map_err(fail),
    }
    try_take().map_err(fail)
}

/// Reads the record of an interface without the lock, for display only. Any user may.
pub fn peek(directory: &Path, interface: &str) -> Option<Record> {
    let text = sqm_files::read(&path(directory, interface), MAX_RECORD).ok()?;
    serde_json::from_slice(&text).ok()
}

fn write(directory: &Path, record: &Record) -> Result<(), Error> {
    let path = path(directory, &record.interface);
    let text = serde_json::to_vec(record).map_err(|error| Error::State {
        path: path.clone(),
        operation: "write",
        source: io::Error::from(error),
    })?;
    sqm_files::replace(&path, RECORD_MODE, &text).map_err(|source| Error::StateFile {
        operation: "write the record",
        source,
    })
}

fn remove(directory: &Path, interface: &str) -> Result<(), Error> {
    let removed = sqm_files::remove(&path(directory, interface));
    removed.map(|_| ()).map_err(|source| Error::StateFile {
        operation: "remove the record",
        source,
    })
}

/// The file that notes a pause.
fn pause_path(directory: &Path, interface: &str) -> PathBuf {
    directory.join(format!("{}{PAUSE_SUFFIX}", interface.replace('/', "_")))
}

/// The file of a record. Names of devices have no slash, and one in an argument cannot lead out of the directory.
fn path(directory: &Path, interface: &str) -> PathBuf {
    directory.join(format!("{}.json", interface.replace('/', "_")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_replaced_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("sqm")).unwrap();
        let mut record = Record {
            interface: "eth0".to_owned(),
            index: 2,
            ifb: "ifb4eth0".to_owned(),
            egress: None,
            replaces: None,
            ingress: true,
            ifb_index: None,
            ifb_root: None,
            scripts_state: None,
            is_changing: false,
            firewall: None,
            previous: Snapshot::default(),
            is_lost: false,
        };
        assert_eq!(store.read("eth0").unwrap(), None);
        store.write(&record).unwrap();
        record.egress = Some(RootId::from(("cake".to_owned(), 0x1_0000)));
        store.write(&record).unwrap();
        assert_eq!(store.read("eth0").unwrap(), Some(record));
        assert_eq!(store.interfaces().unwrap(), ["eth0"]);
        store.note_pause("eth1").unwrap();
        assert_eq!(store.interfaces().unwrap(), ["eth0"]);
        assert_eq!(store.paused_interfaces().unwrap(), ["eth1"]);
        assert!(store.has_pause("eth1") && !store.has_pause("eth0"));
        assert!(store.remove_pause("eth1").unwrap() && !store.remove_pause("eth1").unwrap());
        store.remove("eth0").unwrap();
        store.remove("eth0").unwrap();
        assert_eq!(store.read("eth0").unwrap(), None);
    }

    #[test]
    fn the_stored_form_stays_the_same() {
        let text = concat!(
            r#"{"interface":"eth0","index":2,"ifb":"ifb4eth0","egress":["cake",65536],"replaces":null,"#,
            r#""ingress":true,"firewall":null,"previous":{"egress":null,"ingress":null}}"#
        );
        let record: Record = serde_json::from_str(text).unwrap();
        let ours = record.egress.clone().expect("a root");
        assert_eq!(
            (ours.kind.as_str(), ours.handle.to_string().as_str()),
            ("cake", "1:")
        );
        assert_eq!(serde_json::to_string(&record).unwrap(), text);
    }

    #[test]
    fn a_damaged_record_is_renamed_and_the_previous_queues_are_unknown() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let damages: [fn(&Path); 4] = [
            |path| fs::write(path, "{").unwrap(),
            |path| fs::write(path, [0xff; 100]).unwrap(),
            |path| fs::create_dir(path).unwrap(),
            |path| std::os::unix::fs::symlink("nowhere", path).unwrap(),
        ];
        for damage in damages {
            damage(&at("eth0.json"));
            let store = Store::open(directory.path()).unwrap();
            let record = store.read("eth0").unwrap().unwrap();
            assert!(record.is_lost);
            let notes = store.take_notes().join("\n");
            assert!(
                notes.contains("eth0.json is damaged") && notes.contains("eth0.json.damaged"),
                "{notes}"
            );
            // The next process finds it marked as lost, and has no message.
            drop(store);
            let store = Store::open(directory.path()).unwrap();
            assert_eq!(store.read("eth0").unwrap(), Some(record));
            assert_eq!(store.take_notes(), Vec::<String>::new());
            store.remove("eth0").unwrap();
            assert_eq!(store.read("eth0").unwrap(), None);
        }
    }

    #[test]
    fn a_directory_in_place_of_the_lock_is_renamed() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("lock")).unwrap();
        let store = Store::open(directory.path()).unwrap();
        assert!(store.take_notes()[0].contains("lock.damaged"));
        assert!(
            UnwrittenRecords::default()
                .try_open(directory.path())
                .unwrap()
                .is_none(),
            "it is held"
        );
    }

    #[test]
    fn a_record_that_cannot_be_written_is_kept_in_memory_and_written_later() {
        let directory = tempfile::tempdir().unwrap();
        let records = directory.path().join("gone");
        fs::write(&records, "a file in the place of the directory").unwrap();
        assert!(Store::open(&records).is_err());
        let unwritten = UnwrittenRecords::default();
        let record = Record::lost("eth0");
        {
            let store = unwritten.open(&records).unwrap();
            store.write(&record).unwrap();
            assert_eq!(store.read("eth0").unwrap(), Some(record.clone()));
            assert!(unwritten.last_error().unwrap().contains("gone"));
        }
        fs::remove_file(&records).unwrap();
        let store = unwritten.open(&records).unwrap();
        assert_eq!(unwritten.last_error(), None);
        assert_eq!(peek(&records, "eth0"), Some(record));
        assert_eq!(store.interfaces().unwrap(), ["eth0"]);
    }
}

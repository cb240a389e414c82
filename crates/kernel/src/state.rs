//! What `stop` must put back, kept in a file per interface.
//!
//! The file is written before the kernel is touched, so that a machine that loses power, or a process that is
//! killed, half-way leaves the way back on record. The directory is on a file system that a restart empties, as it
//! empties the kernel's queues.

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
use crate::snapshot::{IngressState, QdiscTree, Snapshot};

/// Where the files are unless the user says otherwise.
pub const DIRECTORY: &str = "/run/sqm";

/// The longest record that is read, in bytes; one of hundreds of classes has a tenth of it.
const MAX_RECORD: u64 = 16 << 20;
/// Everybody may read what `status` tells of a record.
const RECORD_MODE: u32 = 0o644;

/// The state files, locked for this process.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    /// Held until the store is dropped: two programs must not change the same queues at once. None where no process can hold it.
    lock: Option<Lock>,
    /// Where a record goes that cannot be written, unless that is an error.
    memory: Memory,
    is_strict: bool,
}

/// The records of a process that shapes although it cannot write them. They last as long as the process, and are written as
/// soon as that is possible.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Mutex<Unwritten>>);

#[derive(Debug, Default)]
struct Unwritten {
    /// By interface; none for a record that could not be removed.
    records: BTreeMap<String, Option<Record>>,
    /// Why the last of them could not be written.
    trouble: Option<String>,
    /// What there is to tell.
    notes: Vec<String>,
}

/// One interface that is shaped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The shaped device.
    pub interface: String,
    /// Its number; another one under the same name is a new device without our queues.
    pub index: u32,
    /// The device that carries the ingress queues.
    pub ifb: String,
    /// Kind and handle of our root qdisc, if egress is shaped.
    pub egress: Option<RootId>,
    /// Kind and handle of our root before a change that has not ended yet: until then either is ours.
    #[serde(default)]
    pub replaces: Option<RootId>,
    /// Whether ingress is shaped.
    pub ingress: bool,
    /// Our firewall table.
    #[serde(default)]
    pub firewall: Option<Firewall>,
    /// What was there before.
    pub previous: Snapshot,
    /// Whether it stands for one that was damaged, so that nothing but the interface is known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_lost: bool,
}

impl Record {
    /// Stands for a record that was damaged. What was there before is taken for the kernel's defaults.
    fn lost(interface: &str) -> Self {
        Self {
            interface: interface.to_owned(),
            index: 0,
            ifb: Plan::ifb_of(interface),
            egress: None,
            replaces: None,
            ingress: true,
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
    /// Opens the directory, making it if needed, and waits for another process that holds it.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        let memory = Memory::default();
        let lock = take(directory, None, &mut memory.lock().notes)?;
        Ok(Self {
            directory: directory.to_owned(),
            lock,
            memory,
            is_strict: true,
        })
    }

    /// What there is to tell since the last call: damaged files that were put aside.
    pub fn take_notes(&self) -> Vec<String> {
        self.memory.take_notes()
    }

    /// The lock for another process: nobody else holds these files until that process ends, too. It takes over if this one is
    /// killed. None where no process can hold the lock.
    pub fn share_lock(&self) -> io::Result<Option<OwnedFd>> {
        self.lock.as_ref().map(Lock::share).transpose()
    }

    /// The state files in the hands of a process that was given [`Store::share_lock`].
    pub fn with_lock(directory: &Path, lock: OwnedFd) -> Self {
        Self {
            directory: directory.to_owned(),
            lock: Some(Lock::from(lock)),
            memory: Memory::default(),
            is_strict: true,
        }
    }

    /// Whether there is a record of an interface, though it may be damaged.
    pub fn has(&self, interface: &str) -> bool {
        match self.memory.get(interface) {
            Some(record) => record.is_some(),
            None => path(&self.directory, interface).symlink_metadata().is_ok(),
        }
    }

    /// The record of an interface, if it is shaped. A damaged one is put aside; one that knows nothing stands for it.
    pub fn read(&self, interface: &str) -> Result<Option<Record>, Error> {
        if let Some(record) = self.memory.get(interface) {
            return Ok(record);
        }
        let path = path(&self.directory, interface);
        let trouble = match sqm_files::read_if_there(&path, MAX_RECORD) {
            Ok(None) => return Ok(None),
            Ok(Some(text)) => match serde_json::from_slice::<Record>(&text) {
                Ok(record) if record.interface == interface => return Ok(Some(record)),
                Ok(record) => format!("it is of {}", record.interface),
                Err(error) => error.to_string(),
            },
            Err(error) => error.to_string(),
        };
        let aside = match sqm_files::set_aside(&path) {
            Ok(aside) => format!("it is {} now", aside.display()),
            Err(error) => format!("it cannot be put aside: {error}"),
        };
        self.memory.lock().notes.push(format!(
            "{interface}: the record {} is damaged ({trouble}; {aside}): what was there before is not known, and stop will leave \
             the kernel's defaults",
            path.display()
        ));
        let lost = Record::lost(interface);
        // It is kept so that the next process knows it too; whoever starts or stops is told of a failure then.
        let _ = self.write(&lost);
        Ok(Some(lost))
    }

    /// Replaces the record in one step; on disk before this returns.
    pub fn write(&self, record: &Record) -> Result<(), Error> {
        let written = write(&self.directory, record);
        self.remember(&record.interface, Some(record), written)
    }

    /// Forgets an interface.
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
        let mut unwritten = self.memory.lock();
        match outcome {
            Ok(()) => {
                unwritten.records.remove(interface);
            }
            Err(error) => {
                unwritten.records.insert(interface.to_owned(), record.cloned());
                unwritten.trouble = Some(error.to_string());
            }
        }
        Ok(())
    }

    /// The interfaces that have a record, sorted.
    pub fn interfaces(&self) -> Result<Vec<String>, Error> {
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
                    .and_then(|n| n.strip_suffix(".json"))
                    .map(str::to_owned),
            );
        }
        names.sort();
        Ok(names)
    }
}

impl Memory {
    /// As [`Store::open`], with this memory. Where the directory takes no lock it is opened without: no process can hold it then.
    pub fn open(&self, directory: &Path) -> Result<Store, Error> {
        let store = self.take(directory, None)?;
        Ok(store.expect("it waits however long it takes"))
    }

    /// The same without waiting: `None` while another process holds it.
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
                self.lock().trouble = Some(error.to_string());
                None
            }
        };
        if lock.is_some() {
            self.write(directory);
        }
        Ok(Some(Store {
            directory: directory.to_owned(),
            lock,
            memory: self.clone(),
            is_strict: false,
        }))
    }

    /// As [`Store::take_notes`].
    pub fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().notes)
    }

    /// Why something of the state could not be written, as long as that is so.
    pub fn trouble(&self) -> Option<String> {
        self.lock().trouble.clone()
    }

    fn get(&self, interface: &str) -> Option<Option<Record>> {
        self.lock().records.get(interface).cloned()
    }

    /// Writes what could not be written before.
    fn write(&self, directory: &Path) {
        let mut unwritten = self.lock();
        let mut trouble = None;
        unwritten.records.retain(|interface, record| {
            let written = match record {
                Some(record) => write(directory, record),
                None => remove(directory, interface),
            };
            let Err(error) = written else { return false };
            trouble = Some(error.to_string());
            true
        });
        unwritten.trouble = trouble;
    }

    fn lock(&self) -> MutexGuard<'_, Unwritten> {
        self.0.lock().expect("no holder of this lock panics")
    }
}

/// The lock of the directory, which is made if it is missing. What stands in the lock's place and is no file is put aside.
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
        // The directory is there but the first time.
        Err(error) if error.is_not_found() => {
            fs::create_dir_all(directory).map_err(|source| Error::State {
                path: directory.to_owned(),
                operation: "make",
                source,
            })?;
        }
        Err(_) => {
            let aside = sqm_files::set_aside_irregular(&path).map_err(fail)?;
            let told =
                |aside: PathBuf| format!("{} was no file, and is {} now", path.display(), aside.display());
            notes.extend(aside.map(told));
        }
        taken => return taken.map_err(fail),
    }
    try_take().map_err(fail)
}

/// The record of an interface as anybody may read it, without the lock: for looking only.
pub fn peek(directory: &Path, interface: &str) -> Option<Record> {
    let text = sqm_files::read(&path(directory, interface), MAX_RECORD).ok()?;
    serde_json::from_slice(&text).ok()
}

fn write(directory: &Path, record: &Record) -> Result<(), Error> {
    let path = path(directory, &record.interface);
    let text = serde_json::to_vec_pretty(record).map_err(|error| Error::State {
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

/// No device has a slash in its name, so no name leads out of the directory.
fn path(directory: &Path, interface: &str) -> PathBuf {
    directory.join(format!("{}.json", interface.replace('/', "_")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_replaced_and_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("sqm")).unwrap();
        let mut record = Record {
            interface: "eth0".to_owned(),
            index: 2,
            ifb: "ifb4eth0".to_owned(),
            egress: None,
            replaces: None,
            ingress: true,
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
        store.remove("eth0").unwrap();
        store.remove("eth0").unwrap();
        assert_eq!(store.read("eth0").unwrap(), None);
    }

    #[test]
    fn a_damaged_record_is_put_aside_and_stands_for_nothing_known() {
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
            // The next process knows that it is lost, and has nothing to tell.
            drop(store);
            let store = Store::open(directory.path()).unwrap();
            assert_eq!(store.read("eth0").unwrap(), Some(record));
            assert_eq!(store.take_notes(), Vec::<String>::new());
            store.remove("eth0").unwrap();
            assert_eq!(store.read("eth0").unwrap(), None);
        }
    }

    #[test]
    fn a_directory_in_the_place_of_the_lock_is_put_aside() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("lock")).unwrap();
        let store = Store::open(directory.path()).unwrap();
        assert!(store.take_notes()[0].contains("lock.damaged"));
        assert!(
            Memory::default().try_open(directory.path()).unwrap().is_none(),
            "it is held"
        );
    }

    #[test]
    fn what_cannot_be_written_is_remembered_and_written_later() {
        let directory = tempfile::tempdir().unwrap();
        let records = directory.path().join("gone");
        fs::write(&records, "a file in the place of the directory").unwrap();
        assert!(Store::open(&records).is_err());
        let memory = Memory::default();
        let record = Record::lost("eth0");
        {
            let store = memory.open(&records).unwrap();
            store.write(&record).unwrap();
            assert_eq!(store.read("eth0").unwrap(), Some(record.clone()));
            assert!(memory.trouble().unwrap().contains("gone"));
        }
        fs::remove_file(&records).unwrap();
        let store = memory.open(&records).unwrap();
        assert_eq!(memory.trouble(), None);
        assert_eq!(peek(&records, "eth0"), Some(record));
        assert_eq!(store.interfaces().unwrap(), ["eth0"]);
    }
}

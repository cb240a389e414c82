//! What `stop` must put back, kept in a file per interface.
//!
//! The file is written before the kernel is touched, so that a machine that loses power, or a process that is
//! killed, half-way leaves the way back on record. The directory is on a file system that a restart empties, as it
//! empties the kernel's queues.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use sqm_plan::plan::Firewall;

use crate::error::Error;
use crate::snapshot::Snapshot;

/// Where the files are unless the user says otherwise.
pub const DIRECTORY: &str = "/run/sqm";

/// The state files, locked for this process.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    /// Held until the store is dropped: two programs must not change the same queues at once.
    _lock: File,
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
    pub egress: Option<(String, u32)>,
    /// Kind and handle of our root before a change that has not ended yet: until then either is ours.
    #[serde(default)]
    pub replaces: Option<(String, u32)>,
    /// Whether ingress is shaped.
    pub ingress: bool,
    /// Our firewall table.
    #[serde(default)]
    pub firewall: Option<Firewall>,
    /// What was there before.
    pub previous: Snapshot,
}

impl Record {
    /// Whether this IFB was made for shaping, and was not there before.
    pub(crate) fn made(&self, ifb: &str) -> bool {
        let arrivals = self.previous.ingress.as_ref();
        self.ifb == ifb && arrivals.is_some_and(|arrivals| arrivals.has_no_ifb())
    }

    /// Whether a root of that kind and handle is ours.
    pub(crate) fn owns(&self, root: &(String, u32)) -> bool {
        // A plain CAKE stands in for one for many queues where the kernel has none.
        let is = |ours: &(String, u32)| {
            ours == root || (ours.1 == root.1 && ours.0 == "cake_mq" && root.0 == "cake")
        };
        self.egress.as_ref().is_some_and(is) || self.replaces.as_ref().is_some_and(is)
    }

    /// Whether a root of that kind and handle is neither ours nor the one that we put back, perhaps half-way.
    pub(crate) fn is_foreign(&self, root: &(String, u32)) -> bool {
        let previous = self.previous.egress.as_ref();
        !self.owns(root) && !previous.is_some_and(|queues| queues.has_root(&root.0, root.1))
    }
}

impl Store {
    /// Opens the directory, making it if needed, and waits for another process that holds it.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        let (path, lock) = Self::lock_file(directory)?;
        let locked = flock(&lock, FlockOperation::LockExclusive).map_err(io::Error::from);
        locked.map_err(|source| Error::State {
            path,
            operation: "lock",
            source,
        })?;
        Ok(Self {
            directory: directory.to_owned(),
            _lock: lock,
        })
    }

    /// The same without waiting: `None` while another process holds it.
    pub fn try_open(directory: &Path) -> Result<Option<Self>, Error> {
        let (path, lock) = Self::lock_file(directory)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self {
                directory: directory.to_owned(),
                _lock: lock,
            })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(Error::State {
                path,
                operation: "lock",
                source: error.into(),
            }),
        }
    }

    fn lock_file(directory: &Path) -> Result<(PathBuf, File), Error> {
        let at = |operation, path: &Path| {
            let path = path.to_owned();
            move |source| Error::State {
                path,
                operation,
                source,
            }
        };
        let path = directory.join("lock");
        // Not truncated: that would be a write to the disk, each time that rates change.
        let open = || {
            File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
        };
        let lock = match open() {
            // It is there but the first time.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                fs::create_dir_all(directory).map_err(at("make the directory of", directory))?;
                open()
            }
            other => other,
        };
        let lock = lock.map_err(at("lock", &path))?;
        Ok((path, lock))
    }

    /// The record of an interface, if it is shaped.
    pub fn read(&self, interface: &str) -> Result<Option<Record>, Error> {
        let path = path(&self.directory, interface);
        let fail = |source| Error::State {
            path: path.clone(),
            operation: "read",
            source,
        };
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .map(Some)
                .map_err(|e| fail(e.into())),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(fail(e)),
        }
    }

    /// Replaces the record in one step; on disk before this returns.
    pub fn write(&self, record: &Record) -> Result<(), Error> {
        let path = path(&self.directory, &record.interface);
        let fresh = path.with_extension("json.new");
        let write = || {
            let mut file = File::create(&fresh)?;
            file.write_all(&serde_json::to_vec_pretty(record)?)?;
            file.sync_all()?;
            fs::rename(&fresh, &path)
        };
        write().map_err(|source| Error::State {
            path: path.clone(),
            operation: "write",
            source,
        })
    }

    /// Forgets an interface.
    pub fn remove(&self, interface: &str) -> Result<(), Error> {
        let path = path(&self.directory, interface);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::State {
                path,
                operation: "remove",
                source: e,
            }),
            _ => Ok(()),
        }
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

/// The record of an interface as anybody may read it, without the lock: for looking only.
pub fn peek(directory: &Path, interface: &str) -> Option<Record> {
    serde_json::from_slice(&fs::read(path(directory, interface)).ok()?).ok()
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
        };
        assert_eq!(store.read("eth0").unwrap(), None);
        store.write(&record).unwrap();
        record.egress = Some(("cake".to_owned(), 0x1_0000));
        store.write(&record).unwrap();
        assert_eq!(store.read("eth0").unwrap(), Some(record));
        assert_eq!(store.interfaces().unwrap(), ["eth0"]);
        store.remove("eth0").unwrap();
        store.remove("eth0").unwrap();
        assert_eq!(store.read("eth0").unwrap(), None);
    }

    #[test]
    fn a_broken_file_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        fs::write(directory.path().join("eth0.json"), "{").unwrap();
        let message = store.read("eth0").unwrap_err().to_string();
        assert!(
            message.contains("eth0.json: cannot read the state file"),
            "{message}"
        );
    }
}

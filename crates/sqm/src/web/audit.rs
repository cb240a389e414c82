//! Who changed what: a line of JSON for each change, tried or done, in a file that only its owner reads.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A file as large as this becomes the older one, of which there is one.
const MOST_BYTES: u64 = 1 << 20;

pub(super) struct Audit {
    file: PathBuf,
    /// One at a time writes.
    turn: Mutex<()>,
}

/// One change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) unix_ms: u64,
    /// `admin` or `reader`.
    pub(super) who: String,
    /// Address of the browser.
    pub(super) from: String,
    pub(super) what: String,
    /// `done`, or why not.
    pub(super) outcome: String,
    /// Revisions of the configuration.
    pub(super) before: Option<String>,
    pub(super) after: Option<String>,
}

impl Entry {
    pub(super) fn new(is_admin: bool, from: IpAddr, what: &str, outcome: &str) -> Self {
        Self {
            unix_ms: unix_ms(),
            who: if is_admin { "admin" } else { "reader" }.to_owned(),
            from: from.to_canonical().to_string(),
            what: what.to_owned(),
            outcome: outcome.to_owned(),
            before: None,
            after: None,
        }
    }
}

impl Audit {
    pub(super) fn at(dir: &Path) -> Self {
        Self {
            file: dir.join("audit.jsonl"),
            turn: Mutex::default(),
        }
    }

    /// Writes an entry. One that cannot be written is told on standard error: what was done is done.
    pub(super) fn write(&self, entry: &Entry) {
        let _turn = self.turn.lock().expect("no holder of this lock panics");
        let write = || -> std::io::Result<()> {
            if fs::metadata(&self.file).is_ok_and(|file| file.len() >= MOST_BYTES) {
                fs::rename(&self.file, self.older())?;
            }
            let mut line = serde_json::to_vec(entry)?;
            line.push(b'\n');
            let mut to = fs::OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o600)
                .open(&self.file)?;
            to.write_all(&line)
        };
        if let Err(error) = write() {
            errln!("sqm: cannot write to {}: {error}", self.file.display());
        }
    }

    /// The newest entries, the newest first.
    pub(super) fn last(&self, most: usize) -> Vec<Entry> {
        let read = |file: &Path| -> Vec<Entry> {
            let lines = File::open(file).map(|file| BufReader::new(file).lines());
            let lines = lines.into_iter().flatten().map_while(Result::ok);
            lines
                .filter_map(|line| serde_json::from_str(&line).ok())
                .collect()
        };
        let mut entries = read(&self.file);
        if entries.len() < most {
            let mut all = read(&self.older());
            all.append(&mut entries);
            entries = all;
        }
        entries.into_iter().rev().take(most).collect()
    }

    fn older(&self) -> PathBuf {
        self.file.with_extension("older.jsonl")
    }
}

pub(super) fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_newest_come_first_the_file_is_private_and_does_not_grow_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::at(folder.path());
        let long = "x".repeat(1000);
        for n in 0..3000 {
            let what = format!("{n} {long}");
            audit.write(&Entry::new(true, IpAddr::from([127, 0, 0, 1]), &what, "done"));
        }
        let last = audit.last(2);
        assert!(last[0].what.starts_with("2999 ") && last[1].what.starts_with("2998 "));
        assert_eq!(audit.last(1100).len(), 1100, "the older file is read, too");
        let mode = fs::metadata(&audit.file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let bytes: u64 = fs::read_dir(folder.path())
            .unwrap()
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum();
        assert!(bytes < 2 * MOST_BYTES + 10_000, "{bytes}");
    }
}

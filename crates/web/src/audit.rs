//! The audit log: a line of JSON for each change, done or refused, in files that only their owner can read.
//!
//! Changes, wrong passwords and other refusals have a file each, so that users who are not logged in cannot fill the first.
//! `Sessions::try_password` limits wrong passwords; other refusals are limited here.

use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::network::Network;
use tracing::warn;

/// A file of this size, in bytes, replaces the older one, and a new file begins. Our choice.
const MOST_BYTES: u64 = 1 << 20;
/// The largest file that is read, in bytes. Earlier versions wrote longer entries.
const MOST_READ: u64 = 4 << 20;
/// The longest field, in characters: requests may contain texts of any length. Our choice.
const MOST_LETTERS: usize = 300;
/// Only the owner can read the files.
const MODE: u32 = 0o600;
/// Refusals that are written within [`MINUTE`], of one network and of all; further ones are only counted. Our choices.
const MOST_REFUSALS_EACH: usize = 10;
const MOST_REFUSALS: usize = 60;
const MINUTE: Duration = Duration::from_secs(60);

pub(super) struct Audit {
    done: Log,
    wrong_passwords: Log,
    refused: Log,
    limit: Mutex<Limit>,
}

/// A change, as the log has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) unix_ms: u64,
    /// `admin` or `reader`.
    pub(super) who: String,
    /// The address of the browser.
    pub(super) from: String,
    pub(super) what: String,
    /// `done`, or the reason for the refusal.
    pub(super) outcome: String,
    /// The revisions of the configuration before and after.
    pub(super) before: Option<String>,
    pub(super) after: Option<String>,
}

impl Entry {
    pub(super) fn new(is_admin: bool, from: IpAddr, what: &str) -> Self {
        Self {
            unix_ms: unix_ms(),
            who: if is_admin { "admin" } else { "reader" }.to_owned(),
            from: from.to_canonical().to_string(),
            what: what.to_owned(),
            outcome: "done".to_owned(),
            before: None,
            after: None,
        }
    }

    /// An entry for the refusals that were only counted.
    fn of_many(count: u64) -> Self {
        Self {
            unix_ms: unix_ms(),
            who: "reader".to_owned(),
            from: "several".to_owned(),
            what: "refused".to_owned(),
            outcome: format!("{count} further refusals are not listed"),
            before: None,
            after: None,
        }
    }

    fn clean(mut self) -> Self {
        let fields = [&mut self.who, &mut self.from, &mut self.what, &mut self.outcome];
        let revisions = [&mut self.before, &mut self.after].into_iter().flatten();
        for field in fields.into_iter().chain(revisions) {
            *field = clean(field);
        }
        self
    }
}

impl Audit {
    pub(super) fn at(dir: &Path) -> Self {
        Self {
            done: Log(dir.join("audit.jsonl")),
            wrong_passwords: Log(dir.join("audit-passwords.jsonl")),
            refused: Log(dir.join("audit-refused.jsonl")),
            limit: Mutex::default(),
        }
    }

    pub(super) fn done(&self, entry: Entry) {
        self.done.write(entry);
    }

    pub(super) fn wrong_password(&self, mut entry: Entry, why: &str) {
        why.clone_into(&mut entry.outcome);
        self.wrong_passwords.write(entry);
    }

    pub(super) fn refused(&self, mut entry: Entry, from: Network, why: &str) {
        let mut limit = self.limit.lock().expect("no holder of this lock panics");
        let (is_written, unwritten) = limit.admits(from, Instant::now());
        if let Some(count) = unwritten {
            self.refused.write(Entry::of_many(count));
        }
        if is_written {
            why.clone_into(&mut entry.outcome);
            self.refused.write(entry);
        }
    }

    /// The newest entries, in reverse order. Refusals and wrong passwords are at most a quarter each, so that they never hide changes.
    pub(super) fn last(&self, most: usize) -> Vec<Entry> {
        let mut entries = self.refused.last(most / 4);
        entries.extend(self.wrong_passwords.last(most / 4));
        entries.extend(self.done.last(most - entries.len()));
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.unix_ms));
        entries
    }
}

/// Limits the refusals that are written.
#[derive(Default)]
struct Limit {
    /// The start of the current minute.
    since: Option<Instant>,
    written: Vec<Network>,
    unwritten: u64,
}

impl Limit {
    /// Returns true if a refusal is to be written, and the number of refusals of the previous minute that were only counted.
    fn admits(&mut self, from: Network, now: Instant) -> (bool, Option<u64>) {
        let mut unwritten = None;
        if self.since.is_none_or(|since| now.duration_since(since) >= MINUTE) {
            unwritten = Some(self.unwritten).filter(|count| *count > 0);
            *self = Self {
                since: Some(now),
                ..Self::default()
            };
        }
        let own = self.written.iter().filter(|other| **other == from).count();
        let is_written = own < MOST_REFUSALS_EACH && self.written.len() < MOST_REFUSALS;
        if is_written {
            self.written.push(from);
        } else {
            self.unwritten += 1;
        }
        (is_written, unwritten)
    }
}

/// A file of entries, and its predecessor.
struct Log(PathBuf);

impl Log {
    /// Writes an entry. A failure is reported on standard error only, because the change has already been made.
    fn write(&self, entry: Entry) {
        if let Err(error) = self.append(&entry.clean()) {
            warn!("cannot write to the log of changes: {error:#}");
        }
    }

    fn append(&self, entry: &Entry) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        let mut file = sqm_files::append(&self.0, MODE)?;
        file.write_all(&line)?;
        if file.metadata()?.len() >= MOST_BYTES {
            sqm_files::rename(&self.0, &format!("{}.older.jsonl", self.name()))?;
        }
        Ok(())
    }

    fn name(&self) -> std::borrow::Cow<'_, str> {
        self.0.file_stem().unwrap_or_default().to_string_lossy()
    }

    /// The newest entries, in reverse order.
    fn last(&self, most: usize) -> Vec<Entry> {
        let mut entries = read(&self.0);
        if entries.len() < most {
            let mut all = read(&self.older());
            all.append(&mut entries);
            entries = all;
        }
        entries.into_iter().rev().take(most).collect()
    }

    fn older(&self) -> PathBuf {
        self.0.with_extension("older.jsonl")
    }
}

fn read(file: &Path) -> Vec<Entry> {
    let bytes = match sqm_files::read_if_there(file, MOST_READ) {
        Ok(bytes) => bytes.unwrap_or_default(),
        Err(error) => {
            warn!("cannot read the log of changes: {error}");
            Vec::new()
        }
    };
    bytes
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect()
}

/// The text with bounded length, without control characters and bidirectional formatting characters.
fn clean(text: &str) -> String {
    let is_plain = |letter: char| {
        let turns =
            matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        !letter.is_control() && !turns
    };
    let mut clean: String = text
        .chars()
        .take(MOST_LETTERS)
        .map(|letter| if is_plain(letter) { letter } else { '\u{fffd}' })
        .collect();
    if text.chars().nth(MOST_LETTERS).is_some() {
        clean.push('…');
    }
    clean
}

pub(super) fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn entry(what: &str) -> Entry {
        Entry::new(true, IpAddr::from([127, 0, 0, 1]), what)
    }

    fn network(n: u8) -> Network {
        Network::of(IpAddr::from([192, 0, 2, n]))
    }

    #[test]
    fn entries_are_newest_first_and_the_file_is_private_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::at(folder.path());
        let long = "x".repeat(1000);
        for n in 0..9000 {
            audit.done(entry(&format!("{n} {long}")));
        }
        let last = audit.last(2);
        assert!(last[0].what.starts_with("8999 ") && last[1].what.starts_with("8998 "));
        assert_eq!(audit.last(3000).len(), 3000, "the older file is read, too");
        let mode = fs::metadata(&audit.done.0).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        let bytes: u64 = fs::read_dir(folder.path())
            .unwrap()
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum();
        assert!(bytes < 2 * MOST_BYTES + 10_000, "{bytes}");
    }

    #[test]
    fn refusals_displace_neither_changes_nor_wrong_passwords() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::at(folder.path());
        audit.done(entry("config"));
        audit.wrong_password(entry("log-in"), "wrong password");
        for n in 0..20_000_u32 {
            audit.refused(entry("revert"), network(n as u8), "log in first");
        }
        let last = audit.last(100);
        let count = |what: &str| last.iter().filter(|entry| entry.what == what).count();
        assert_eq!((count("config"), count("log-in"), count("revert")), (1, 1, 25));
        assert!(fs::metadata(&audit.refused.0).unwrap().len() < 60 * 400);
    }

    #[test]
    fn refusals_that_were_not_written_are_counted() {
        let mut limit = Limit::default();
        let now = Instant::now();
        let written = |limit: &mut Limit, from| (0..1000).filter(|_| limit.admits(from, now).0).count();
        assert_eq!(written(&mut limit, network(1)), MOST_REFUSALS_EACH);
        assert_eq!(written(&mut limit, network(2)), MOST_REFUSALS_EACH);
        let others: usize = (3..100).map(|n| written(&mut limit, network(n))).sum();
        assert_eq!(others, MOST_REFUSALS - 2 * MOST_REFUSALS_EACH);
        let unwritten = 99 * 1000 - MOST_REFUSALS as u64;
        assert_eq!(limit.admits(network(1), now + MINUTE), (true, Some(unwritten)));
        assert_eq!(limit.admits(network(1), now + MINUTE), (true, None));
    }

    #[test]
    fn text_from_a_request_is_shortened_and_cleaned() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::at(folder.path());
        let mut long = entry("config");
        long.before = Some("r".repeat(256 * 1024));
        audit.refused(long, network(1), "\u{1b}[2J\u{202e}no\u{7}");
        let line = fs::read_to_string(&audit.refused.0).unwrap();
        assert!(line.len() < 1000, "{} bytes", line.len());
        let read = &audit.last(4)[0];
        assert_eq!(read.outcome, "\u{fffd}[2J\u{fffd}no\u{fffd}");
    }
}

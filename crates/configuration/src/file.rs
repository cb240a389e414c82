//! The configuration file: read with a limit, and replaced only if it still holds the text that the writer has read.

use std::fs;
use std::path::Path;

use anyhow::{Context, anyhow};
use sqm_files::Error;

/// The longest configuration, bytes. A choice: a configuration with a thousand sections takes a fifth of it.
pub const MAX_BYTES: u64 = 1 << 20;
/// The permissions of a new configuration file: every user may read it, as on OpenWrt.
const MODE: u32 = 0o644;

/// Reads the configuration file.
pub fn read(file: &Path) -> Result<Vec<u8>, Error> {
    sqm_files::read(file, MAX_BYTES)
}

/// Reads the configuration file; `None` if there is no such file.
pub fn read_if_there(file: &Path) -> Result<Option<Vec<u8>>, Error> {
    sqm_files::read_if_there(file, MAX_BYTES)
}

/// Replaces the file if it still holds the text `read`, or if it still does not exist and `read` is `None`.
pub fn replace(file: &Path, read: Option<&[u8]>, text: &[u8]) -> Result<(), Error> {
    sqm_files::replace_if(file, MODE, read, text)
}

/// Like [`replace`], for a command: it creates the folder as well, and its errors say what to do.
pub fn write(file: &Path, read: Option<&[u8]>, text: &[u8]) -> anyhow::Result<()> {
    if let (Some(folder), None) = (file.parent(), read) {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    replace(file, read, text).map_err(|error| match error {
        Error::Changed { .. } => anyhow!(
            "{} was changed by another program while this one worked; nothing was written: run it again",
            file.display()
        ),
        error => anyhow!(error).context("the configuration cannot be written"),
    })
}

/// Undoes a [`write()`] of `text`: restores the text `before`, or removes the file if there was none. If another program has
/// written the file in the meantime, it is left unchanged.
pub fn put_back(file: &Path, before: Option<&[u8]>, text: &[u8]) -> anyhow::Result<()> {
    let put_back = match before {
        Some(before) => replace(file, Some(text), before),
        None => sqm_files::remove_if(file, text),
    };
    match put_back {
        Err(Error::Changed { .. }) => {
            errln!(
                "sqm: {} was written by another program in the meantime and is left unchanged",
                file.display()
            );
            Ok(())
        }
        put_back => put_back.with_context(|| format!("{} could not be restored", file.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;
    use std::sync::Barrier;

    use super::*;

    /// A folder in memory, if possible: ten thousand syncs to a disk take long.
    fn folder() -> tempfile::TempDir {
        let memory = Path::new("/dev/shm");
        tempfile::tempdir_in(memory).unwrap_or_else(|_| tempfile::tempdir().unwrap())
    }

    /// A pseudo-random number below `below`; the sequence is the same in every run.
    fn chance(seed: &mut u64, below: u64) -> u64 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (*seed >> 33) % below
    }

    fn wait(turns: u64) {
        (0..turns).for_each(|_| std::thread::yield_now());
    }

    /// One of our writers: reads the file, waits, and writes a new text. Returns the new text and the one that it replaced, or
    /// `None` if the write was refused.
    fn ours(file: &Path, name: &str, waits: [u64; 2], is_daemon: bool) -> Option<(String, String)> {
        wait(waits[0]);
        let before = String::from_utf8(read(file).unwrap()).unwrap();
        wait(waits[1]);
        let text = format!("{name} after {before}");
        if is_daemon {
            match replace(file, Some(before.as_bytes()), text.as_bytes()) {
                Ok(()) => Some((text, before)),
                Err(Error::Changed { .. }) => None,
                Err(error) => panic!("{error}"),
            }
        } else {
            match write(file, Some(before.as_bytes()), text.as_bytes()) {
                Ok(()) => Some((text, before)),
                Err(error) => {
                    assert!(
                        error.to_string().contains("changed by another program"),
                        "{error:#}"
                    );
                    None
                }
            }
        }
    }

    /// The daemon and two commands write while another program renames its own text into place without any lock. Each text is
    /// the last one, or was read by the writer that replaced it, or was replaced by the other program.
    fn no_text_is_lost(rounds: u64) {
        let folder = folder();
        let file: PathBuf = folder.path().join("sqm");
        let (mut seed, mut written, mut refused) = (20, 0, 0);
        for round in 0..rounds {
            fs::write(&file, "begin").unwrap();
            let mut waits = || [chance(&mut seed, 12), chance(&mut seed, 12)];
            let (daemon, setup, tune, [theirs_waits, _]) = (waits(), waits(), waits(), waits());
            let has_another = round % 4 != 0;
            let barrier = Barrier::new(4);
            let successes = std::thread::scope(|scope| {
                let begin = |name: &'static str, waits, is_daemon| {
                    let (file, barrier) = (&file, &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        ours(file, name, waits, is_daemon)
                    })
                };
                let threads = [
                    begin("daemon", daemon, true),
                    begin("setup", setup, false),
                    begin("tune", tune, false),
                ];
                barrier.wait();
                if has_another {
                    wait(theirs_waits);
                    let fresh = folder.path().join("theirs.new");
                    fs::write(&fresh, "theirs").unwrap();
                    fs::rename(&fresh, &file).unwrap();
                }
                threads.map(|thread| thread.join().unwrap())
            });
            refused += successes.iter().filter(|success| success.is_none()).count();
            let known: BTreeMap<String, String> = successes.into_iter().flatten().collect();
            written += known.len();
            let mut parents: Vec<&String> = known.values().collect();
            parents.sort();
            parents.dedup();
            assert_eq!(
                parents.len(),
                known.len(),
                "round {round}: two replaced the same text: {known:?}"
            );
            let last = String::from_utf8(fs::read(&file).unwrap()).unwrap();
            let (mut kept, mut text) = (vec![&last], &last);
            while let Some(before) = known.get(text) {
                kept.push(before);
                text = before;
            }
            if has_another {
                assert!(
                    kept.iter().any(|text| *text == "theirs"),
                    "round {round}: theirs is lost: {kept:?}"
                );
            } else {
                assert!(
                    known.keys().all(|text| kept.contains(&text)),
                    "round {round}: {known:?}, {last}"
                );
            }
            let left: Vec<_> = fs::read_dir(folder.path())
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect();
            assert_eq!(left.len(), 2, "the file and its lock, not {left:?}");
        }
        outln!("{rounds} rounds: {written} written, {refused} refused");
        assert!(written > 0 && refused > 0);
    }

    /// `SQM_NIGHTLY` makes it ten thousand (`make nightly`).
    #[test]
    fn a_thousand_interleavings_of_writers_lose_no_text() {
        let is_nightly = std::env::var_os("SQM_NIGHTLY").is_some();
        no_text_is_lost(if is_nightly { 10_000 } else { 1000 });
    }

    #[test]
    fn a_command_undoes_only_its_own_write() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("etc/sqm");
        write(&file, None, b"ours").unwrap();
        put_back(&file, None, b"ours").unwrap();
        assert!(!file.exists());
        fs::write(&file, "before").unwrap();
        write(&file, Some(b"before"), b"ours").unwrap();
        put_back(&file, Some(b"before"), b"ours").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"before");
        for before in [None, Some(&b"before"[..])] {
            fs::write(&file, "theirs").unwrap();
            put_back(&file, before, b"ours").unwrap();
            assert_eq!(fs::read(&file).unwrap(), b"theirs");
        }
    }
}

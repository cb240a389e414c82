//! The password: argon2id (RFC 9106), in a file that only its owner reads.

use std::fs;
use std::io::{BufRead, IsTerminal, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, anyhow};
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, Salt};
use argon2::{Algorithm, Argon2, Params, Version};

use crate::failure::Failure;

/// OWASP's least for argon2id (Password Storage Cheat Sheet): 12 MiB, three passes, one lane. More memory would matter on a
/// router.
const MEMORY_KIB: u32 = 12 * 1024;
const PASSES: u32 = 3;
/// NIST SP 800-63B, 5.1.1.1.
const LEAST: usize = 8;
const MOST: usize = 1024;

/// The password that is set, if there is one; changes of the file are seen at once.
pub(super) struct Password {
    file: PathBuf,
    seen: Mutex<Seen>,
}

#[derive(Clone, Default, PartialEq, Eq)]
struct Seen {
    /// Number and time of the file, which is another one after each change.
    of: Option<(u64, i64, i64)>,
    hash: Option<String>,
}

impl Password {
    pub(super) fn at(dir: &Path) -> Self {
        Self {
            file: file(dir),
            seen: Mutex::default(),
        }
    }

    /// Of what is on the disk now; none if no password is set.
    pub(super) fn hash(&self) -> Option<String> {
        let mut seen = self.seen.lock().expect("no holder of this lock panics");
        let of = fs::metadata(&self.file)
            .ok()
            .map(|file| (file.ino(), file.mtime(), file.mtime_nsec()));
        if seen.of != of || of.is_none() {
            *seen = Seen {
                of,
                // A file that is there and cannot be read is no reason to let everybody in: nothing verifies against it.
                hash: of.map(|_| {
                    fs::read_to_string(&self.file)
                        .unwrap_or_default()
                        .trim()
                        .to_owned()
                }),
            };
        }
        seen.hash.clone()
    }

    pub(super) fn is_set(&self) -> bool {
        self.hash().is_some()
    }
}

/// Whether this is the password; takes as long either way, and much memory for a moment.
pub(super) fn is_right(hash: &str, password: &str) -> bool {
    PasswordHash::new(hash).is_ok_and(|hash| argon2().verify_password(password.as_bytes(), &hash).is_ok())
}

/// Reads one from the terminal, without showing it, or from standard input, and keeps it.
pub(super) fn set(dir: &Path) -> Result<(), Failure> {
    let password = ask()?;
    if !(LEAST..=MOST).contains(&password.len()) {
        return Err(Failure::Usage(anyhow!(
            "a password has {LEAST} to {MOST} bytes, this one {}",
            password.len()
        )));
    }
    let hash = hash(&password)?;
    let path = file(dir);
    let fresh = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        let _ = fs::remove_file(&fresh);
        let mut to = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&fresh)?;
        writeln!(to, "{hash}")?;
        to.sync_all()?;
        fs::rename(&fresh, &path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

fn hash(password: &str) -> anyhow::Result<String> {
    let salt = super::session::random::<16>()?;
    let salt = base64(&salt);
    let salt = Salt::from_b64(&salt).map_err(|error| anyhow!("{error}"))?;
    argon2()
        .hash_password(password.as_bytes(), salt)
        .map(|hash| hash.to_string())
        .map_err(|error| anyhow!("cannot hash the password: {error}"))
}

fn argon2() -> Argon2<'static> {
    let params = Params::new(MEMORY_KIB, PASSES, 1, None).expect("the parameters are constants");
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

fn file(dir: &Path) -> PathBuf {
    dir.join("password")
}

fn ask() -> Result<String, Failure> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return line();
    }
    let first = unseen("Password: ")?;
    if unseen("Again: ")? != first {
        return Err(Failure::Usage(anyhow!(
            "these are two different passwords; nothing was changed"
        )));
    }
    Ok(first)
}

fn line() -> Result<String, Failure> {
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .context("cannot read the password")?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

/// A line that the terminal does not show while it is typed.
fn unseen(prompt: &str) -> Result<String, Failure> {
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
    let stdin = std::io::stdin();
    err!("{prompt}");
    let before = tcgetattr(&stdin).context("cannot ask the terminal")?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &hidden).context("cannot ask the terminal")?;
    let typed = line();
    let shown = tcsetattr(&stdin, OptionalActions::Flush, &before);
    errln!();
    shown.context("the terminal does not show what is typed any more: 'stty echo' helps")?;
    typed
}

/// RFC 4648 without padding, as PHC strings have it.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let number = three.iter().enumerate().fold(0_u32, |number, (n, byte)| {
            number | u32::from(*byte) << (16 - 8 * n)
        });
        for n in 0..=three.len() {
            text.push(char::from(DIGITS[(number >> (18 - 6 * n)) as usize & 63]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_knows_its_password_and_no_other() {
        let hash = hash("correct horse").unwrap();
        assert!(hash.starts_with("$argon2id$v=19$m=12288,t=3,p=1$"), "{hash}");
        assert!(is_right(&hash, "correct horse"));
        for wrong in ["correct horse ", "", "Correct horse"] {
            assert!(!is_right(&hash, wrong), "{wrong}");
        }
        assert_ne!(hash, super::hash("correct horse").unwrap());
        assert!(!is_right("", ""));
    }

    #[test]
    fn a_changed_file_is_seen_and_one_that_cannot_be_read_lets_nobody_in() {
        let folder = tempfile::tempdir().unwrap();
        let password = Password::at(folder.path());
        assert!(!password.is_set());
        fs::write(file(folder.path()), "x\n").unwrap();
        assert_eq!(password.hash().as_deref(), Some("x"));
        fs::remove_file(file(folder.path())).unwrap();
        fs::write(file(folder.path()), "longer").unwrap();
        assert_eq!(password.hash().as_deref(), Some("longer"));
        fs::remove_file(file(folder.path())).unwrap();
        fs::create_dir(file(folder.path())).unwrap();
        assert_eq!(password.hash().as_deref(), Some(""));
    }
}

//! The password: argon2id (RFC 9106), in a file that only its owner reads.

use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use anyhow::{Context, anyhow};
use argon2::password_hash::{Output, PasswordHash, PasswordHasher, Salt};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use data_encoding::BASE64_NOPAD;
use sqm_files::Fresh;
use tokio::sync::oneshot;

use sqm_process::failure::Failure;

/// OWASP's minimum for argon2id (Password Storage Cheat Sheet): 12 MiB, three passes, one lane. Routers have little memory for more.
const MEMORY_KIB: u32 = 12 * 1024;
const PASSES: u32 = 3;
/// NIST SP 800-63B, 5.1.1.1.
const LEAST: usize = 8;
const MOST: usize = 1024;

/// The largest file that is read, in bytes.
const MOST_BYTES: u64 = 4096;

/// The password file. It is read for each request, so that a change takes effect at once.
pub(super) struct Password {
    dir: PathBuf,
}

impl Password {
    pub(super) fn at(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// The hash of the password; `None` if no password is set, which only a missing file means.
    ///
    /// # Errors
    ///
    /// The folder or the file cannot be read, or the file contains no hash. Then nobody may be logged in.
    pub(super) fn hash(&self) -> anyhow::Result<Option<String>> {
        fs::metadata(&self.dir).context("its folder does not exist")?;
        let Some(bytes) = sqm_files::read_if_there(&file(&self.dir), MOST_BYTES)? else {
            return Ok(None);
        };
        let hash = String::from_utf8_lossy(&bytes).trim().to_owned();
        if let Err(error) = PasswordHash::new(&hash) {
            return Err(anyhow!(
                "the file contains no password ({error}): set one with 'sqm web --set-password'"
            ));
        }
        Ok(Some(hash))
    }
}

/// Checks passwords one at a time, in a thread and memory of its own. If each check allocated its [`MEMORY_KIB`], the allocator would keep
/// several times that for a while.
pub(super) struct Checker(Sender<Check>);

struct Check {
    hash: String,
    password: String,
    answer: oneshot::Sender<bool>,
}

impl Checker {
    pub(super) fn start() -> io::Result<Self> {
        let (sender, checks) = channel::<Check>();
        thread::Builder::new()
            .name("password".to_owned())
            .spawn(move || {
                let mut memory = Vec::new();
                for check in checks {
                    // No answer is needed if the client has disconnected.
                    if !check.answer.is_closed() {
                        let is_right = is_right(&check.hash, &check.password, &mut memory);
                        let _ = check.answer.send(is_right);
                    }
                }
            })?;
        Ok(Self(sender))
    }

    /// True if the password matches the hash.
    pub(super) async fn is_right(&self, hash: String, password: String) -> bool {
        let (answer, answered) = oneshot::channel();
        let check = Check {
            hash,
            password,
            answer,
        };
        self.0.send(check).is_ok() && answered.await.unwrap_or(false)
    }
}

/// True if the password matches the hash. Takes the same time in both cases.
fn is_right(hash: &str, password: &str, memory: &mut Vec<Block>) -> bool {
    let compare = |hash: PasswordHash<'_>| {
        let (salt, expected) = (hash.salt?, hash.hash?);
        let mut bytes = [0; Salt::MAX_LENGTH];
        let salt = salt.decode_b64(&mut bytes).ok()?;
        let params = Params::try_from(&hash).ok()?;
        memory.resize(params.block_count(), Block::default());
        let algorithm = Algorithm::try_from(hash.algorithm).ok()?;
        let version = Version::try_from(hash.version?).ok()?;
        let found = Output::init_with(expected.len(), |found| {
            let argon2 = Argon2::new(algorithm, version, params);
            Ok(argon2.hash_password_into_with_memory(password.as_bytes(), salt, found, memory)?)
        });
        // `Output` compares in constant time.
        Some(found.ok()? == expected)
    };
    PasswordHash::new(hash).ok().and_then(compare).unwrap_or(false)
}

/// How often a person may type a password that cannot be taken. A choice, as `passwd` has it.
const ATTEMPTS: usize = 3;

/// A password that is long enough, and not saved yet.
pub struct NewPassword(String);

impl NewPassword {
    /// Asks for a password at the terminal, twice and without echo, and again if one cannot be taken; or reads the first line of standard
    /// input.
    pub fn ask() -> Result<Self, Failure> {
        if std::io::stdin().is_terminal() {
            Self::ask_with(read_without_echo)
        } else {
            Self::checked(line()?)
        }
    }

    fn ask_with(mut read: impl FnMut(&str) -> Result<String, Failure>) -> Result<Self, Failure> {
        let mut once = || {
            let password = Self::checked(read("Password: ")?)?;
            match read("Again: ")? == password.0 {
                true => Ok(password),
                false => Err(Failure::Usage(anyhow!("the passwords differ"))),
            }
        };
        for _ in 1..ATTEMPTS {
            match once() {
                Err(Failure::Usage(error)) => errln!("{error}"),
                other => return other,
            }
        }
        once()
    }

    /// Reads the first line of a file.
    pub fn from_file(file: &Path) -> Result<Self, Failure> {
        let bytes = sqm_files::read(file, MOST_BYTES)
            .with_context(|| format!("cannot read the password in {}", file.display()))
            .map_err(Failure::Usage)?;
        let text = String::from_utf8(bytes)
            .map_err(|_| Failure::Usage(anyhow!("the password in {} is not UTF-8", file.display())))?;
        Self::checked(text.lines().next().unwrap_or_default().to_owned())
    }

    fn checked(password: String) -> Result<Self, Failure> {
        if !(LEAST..=MOST).contains(&password.len()) {
            return Err(Failure::Usage(anyhow!(
                "a password has {LEAST} to {MOST} bytes, this one {}",
                password.len()
            )));
        }
        Ok(Self(password))
    }

    /// Saves the password in the server's folder, which is created if it does not exist. All sessions end.
    pub fn save(&self, dir: &Path) -> anyhow::Result<()> {
        super::make_private(dir)?;
        let hash = hash(&self.0)?;
        keep(&file(dir), &hash).with_context(|| format!("cannot write the password into {}", dir.display()))
    }
}

fn keep(file: &Path, hash: &str) -> anyhow::Result<()> {
    let mut fresh = Fresh::begin(file, 0o600)?;
    // The server, which may run as another user, has to read the file.
    fresh.give_to_owner_of_folder()?;
    writeln!(fresh, "{hash}")?;
    fresh.commit()?;
    Ok(())
}

fn hash(password: &str) -> anyhow::Result<String> {
    let salt = super::session::random::<16>()?;
    let salt = BASE64_NOPAD.encode(&salt);
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

fn line() -> Result<String, Failure> {
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .context("cannot read the password")?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

/// Reads a line without echo.
fn read_without_echo(prompt: &str) -> Result<String, Failure> {
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
    shown.context("cannot turn the terminal's echo on again: run 'stty echo'")?;
    typed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_matches_its_password_only() {
        let hash = hash("correct horse").unwrap();
        assert!(hash.starts_with("$argon2id$v=19$m=12288,t=3,p=1$"), "{hash}");
        let mut memory = Vec::new();
        assert!(is_right(&hash, "correct horse", &mut memory));
        for wrong in ["correct horse ", "", "Correct horse"] {
            assert!(!is_right(&hash, wrong, &mut memory), "{wrong}");
        }
        assert_ne!(hash, super::hash("correct horse").unwrap());
        assert!(!is_right("", "", &mut memory));
    }

    #[test]
    fn a_person_who_mistypes_a_password_is_asked_again() {
        let ask = |answers: &[&str]| {
            let mut answers = answers.iter();
            let mut asked = String::new();
            let password = NewPassword::ask_with(|prompt| {
                asked += prompt;
                Ok((*answers.next().expect("no more questions")).to_owned())
            });
            (
                asked,
                password
                    .map(|password| password.0)
                    .map_err(|error| error.to_string()),
            )
        };
        let (asked, password) = ask(&[
            "short",
            "long enough",
            "lomg enough",
            "long enough",
            "long enough",
        ]);
        assert_eq!(asked, "Password: Password: Again: Password: Again: ");
        assert_eq!(password, Ok("long enough".to_owned()));
        let (asked, password) = ask(&["", "short", "long enough", "other"]);
        assert_eq!(asked, "Password: Password: Password: Again: ");
        assert_eq!(password, Err("the passwords differ".to_owned()));
    }

    #[test]
    fn a_changed_file_takes_effect_and_an_unreadable_one_is_an_error() {
        use std::os::unix::fs::symlink;

        let folder = tempfile::tempdir().unwrap();
        let (password, file) = (Password::at(folder.path()), file(folder.path()));
        assert_eq!(password.hash().unwrap(), None);
        let hashes = ["first password", "second password"].map(|word| hash(word).unwrap());
        for hash in &hashes {
            fs::write(&file, format!("{hash}\n")).unwrap();
            assert_eq!(password.hash().unwrap().as_ref(), Some(hash));
        }
        for text in ["", "x", "plain text"] {
            fs::write(&file, text).unwrap();
            assert!(password.hash().is_err(), "{text}");
        }
        fs::remove_file(&file).unwrap();
        for target in ["nowhere", "password", "/etc", "/dev/zero"] {
            symlink(target, &file).unwrap();
            assert!(password.hash().is_err(), "{target}");
            fs::remove_file(&file).unwrap();
        }
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &file, fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        assert!(password.hash().is_err(), "a FIFO");
        drop(folder);
        assert!(password.hash().is_err(), "no folder");
    }
}

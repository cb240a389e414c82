//! Writes whole files: creates them, replaces them, and replaces them only if no other program has changed them.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, RenameFlags, renameat, renameat_with, unlinkat};
use rustix::io::Errno;

use crate::error::Error;
use crate::fresh::{Fresh, random_name};
use crate::lock::Lock;
use crate::place::Place;

/// Longest wait for the lock of a file. A choice: the lock is held only while the file is written.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// Largest number of exchanges to put the text of another writer back. A choice: each beyond the second needs yet another writer.
const MAX_EXCHANGES: usize = 100;
/// Bytes to read beyond the expected length: one byte more shows that the text differs.
const BEYOND: u64 = 1;
/// Largest length of a file that is compared, bytes. A choice.
const WHOLE: u64 = 256 << 20;

/// Replaces a file atomically: a reader finds either the old content or the new one. A new file has `mode` less the umask. An existing
/// file keeps its owner and permissions, and a symbolic link to it stays a link.
///
/// # Errors
///
/// Those of [`Fresh::begin`] and [`Fresh::commit`]. The old file is then unchanged.
pub fn replace(path: &Path, mode: u32, bytes: &[u8]) -> Result<(), Error> {
    let mut fresh = Fresh::begin(path, mode)?;
    fresh.write_whole(bytes)?;
    fresh.commit()
}

/// Replaces a file if it still has the content that its writer `expected`. `None` expects no file. The text of another writer is never
/// lost: programs that use this function exclude each other by a lock, `.NAME.lock` beside the file, and the text that any other
/// program has written meanwhile is put back.
///
/// # Errors
///
/// As [`replace`]; [`Error::Changed`] if the file has another content; [`Error::Locked`] if the lock is held for five seconds.
pub fn replace_if(path: &Path, mode: u32, expected: Option<&[u8]>, bytes: &[u8]) -> Result<(), Error> {
    let place = Place::find(path)?;
    let _lock = lock(&place)?;
    let limit = expected.map_or(0, <[u8]>::len) as u64 + BEYOND;
    require_expected(&place, limit, expected)?;
    let mut fresh = Fresh::at(place, mode)?;
    fresh.write_whole(bytes)?;
    let moved = match expected {
        None => rename_if_missing(&mut fresh)?,
        Some(expected) => exchange_for(&mut fresh, expected, bytes)?,
    };
    finish(fresh, moved, limit, expected)
}

/// Creates a file that must not exist yet.
///
/// # Errors
///
/// If it exists, or if a system call fails. No file is left behind then.
pub fn create(path: &Path, mode: u32, bytes: &[u8]) -> Result<(), Error> {
    let mut fresh = Fresh::begin(path, mode)?;
    fresh.write_whole(bytes)?;
    let moved = rename_if_missing(&mut fresh)?;
    finish(fresh, moved, BEYOND, None)
}

/// Removes a file and syncs the folder. False if there was no such file. A symbolic link itself is removed.
///
/// # Errors
///
/// If a system call fails.
pub fn remove(path: &Path) -> Result<bool, Error> {
    let place = match Place::entry(path) {
        Err(error) if error.is_not_found() => return Ok(false),
        place => place?,
    };
    match unlinkat(&place.folder, &place.name, AtFlags::empty()) {
        Ok(()) => {
            place.sync_folder();
            Ok(true)
        }
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(Error::system(path, "remove")(errno)),
    }
}

/// Removes a file if it still has the content that its writer `expected`. The text of another writer is never lost: see [`replace_if`].
///
/// # Errors
///
/// [`Error::Changed`] if the file has another content or does not exist; also if a system call fails.
pub fn remove_if(path: &Path, expected: &[u8]) -> Result<(), Error> {
    let place = Place::find(path)?;
    let _lock = lock(&place)?;
    require_expected(&place, expected.len() as u64 + BEYOND, Some(expected))?;
    let away = Place {
        name: random_name(&place).map_err(Error::system(path, "remove"))?,
        folder: duplicate(&place)?,
        path: place.path.clone(),
    };
    renameat(&place.folder, &place.name, &place.folder, &away.name).map_err(Error::system(path, "remove"))?;
    if away.read(WHOLE).ok().as_deref() == Some(expected) {
        unlinkat(&away.folder, &away.name, AtFlags::empty()).map_err(Error::system(path, "remove"))?;
        place.sync_folder();
        return Ok(());
    }
    // Another program wrote the file after the check. Put it back, unless that program has written again meanwhile.
    let back = renameat_with(
        &away.folder,
        &away.name,
        &place.folder,
        &place.name,
        RenameFlags::NOREPLACE,
    );
    match back {
        Ok(()) | Err(Errno::EXIST) => Err(changed(&place)),
        Err(errno) => Err(Error::system(path, "restore the text of another program in")(
            errno,
        )),
    }
}

/// The outcome of a rename.
enum Moved {
    Done,
    /// The file system does not support this kind of rename.
    NotSupported,
}

fn finish(fresh: Fresh, moved: Moved, limit: u64, expected: Option<&[u8]>) -> Result<(), Error> {
    match moved {
        Moved::Done => {
            fresh.place().sync_folder();
            Ok(())
        }
        Moved::NotSupported => {
            require_expected(fresh.place(), limit, expected)?;
            fresh.commit()
        }
    }
}

/// Renames the new file to its final name if there is no file of that name.
fn rename_if_missing(fresh: &mut Fresh) -> Result<Moved, Error> {
    match rename(fresh, RenameFlags::NOREPLACE) {
        Ok(()) => {
            fresh.is_gone();
            Ok(Moved::Done)
        }
        Err(Errno::INVAL | Errno::NOSYS) => Ok(Moved::NotSupported),
        Err(Errno::EXIST) => Err(changed(fresh.place())),
        Err(errno) => Err(Error::system(&fresh.place().path, "write")(errno)),
    }
}

/// Exchanges the new file and the old one, and reads the old one. This shows for certain whether another program wrote in between.
fn exchange_for(fresh: &mut Fresh, expected: &[u8], bytes: &[u8]) -> Result<Moved, Error> {
    match rename(fresh, RenameFlags::EXCHANGE) {
        Ok(()) => {}
        Err(Errno::INVAL | Errno::NOSYS) => return Ok(Moved::NotSupported),
        Err(Errno::NOENT) => return Err(changed(fresh.place())),
        Err(errno) => return Err(Error::system(&fresh.place().path, "write")(errno)),
    }
    let came_out = content(fresh);
    if came_out.as_deref() == Some(expected) {
        // The old file now has the temporary name, and is removed with it.
        return Ok(Moved::Done);
    }
    put_back(fresh, came_out, bytes.to_vec())?;
    Err(changed(fresh.place()))
}

/// Puts the text of another program back: it has the temporary name, and `put_in` is in its place. If the exchange brings out yet
/// another text, that one is newer and is put back instead.
fn put_back(fresh: &mut Fresh, mut newest: Option<Vec<u8>>, put_in: Vec<u8>) -> Result<(), Error> {
    let mut put_in = Some(put_in);
    for _ in 0..MAX_EXCHANGES {
        if let Err(errno) = rename(fresh, RenameFlags::EXCHANGE) {
            // Keep the other program's text under the temporary name.
            fresh.is_gone();
            return Err(Error::system(
                &fresh.place().path,
                "restore the text of another program in",
            )(errno));
        }
        let came_out = content(fresh);
        if came_out == put_in {
            break;
        }
        put_in = newest;
        newest = came_out;
    }
    Ok(())
}

fn rename(fresh: &Fresh, flags: RenameFlags) -> Result<(), Errno> {
    let place = fresh.place();
    renameat_with(&place.folder, fresh.name(), &place.folder, &place.name, flags)
}

/// The content of the file with the temporary name. `None` if it cannot be read.
fn content(fresh: &Fresh) -> Option<Vec<u8>> {
    let place = Place {
        folder: fresh.place().folder.try_clone().ok()?,
        name: fresh.name().clone(),
        path: fresh.place().path.clone(),
    };
    place.read(WHOLE).ok()
}

fn require_expected(place: &Place, limit: u64, expected: Option<&[u8]>) -> Result<(), Error> {
    let now = match place.read(limit) {
        Err(error) if error.is_not_found() => None,
        Err(Error::TooLong { .. }) => return Err(changed(place)),
        bytes => Some(bytes?),
    };
    if now.as_deref() == expected {
        Ok(())
    } else {
        Err(changed(place))
    }
}

fn lock(place: &Place) -> Result<Lock, Error> {
    let mut name = OsString::from(".");
    name.push(&place.name);
    name.push(".lock");
    let lock = Place {
        folder: duplicate(place)?,
        path: place.path.with_file_name(&name),
        name,
    };
    let taken = Lock::take_within(&lock, Some(LOCK_PATIENCE))?;
    taken.ok_or(Error::Locked { path: lock.path })
}

fn duplicate(place: &Place) -> Result<OwnedFd, Error> {
    place.folder.try_clone().map_err(|reason| Error::System {
        path: place.path.clone(),
        operation: "find",
        reason,
    })
}

fn changed(place: &Place) -> Error {
    Error::Changed {
        path: place.path.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn names(folder: &Path) -> BTreeSet<String> {
        let names = fs::read_dir(folder).unwrap();
        names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn replacing_keeps_permissions_owner_and_links() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("sqm"), folder.path().join("link"));
        replace(&file, 0o640, b"before").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o640);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o604)).unwrap();
        if rustix::process::geteuid().is_root() {
            chown(&file, Some(65534), Some(65534)).unwrap();
        }
        let owner = fs::metadata(&file).unwrap().uid();
        symlink("sqm", &link).unwrap();
        replace(&link, 0o600, b"after").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"after");
        let now = fs::metadata(&file).unwrap();
        assert_eq!((now.mode() & 0o777, now.uid()), (0o604, owner));
        assert_eq!(names(folder.path()).len(), 2, "nothing is left behind");
    }

    #[test]
    fn a_failure_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sqm")).unwrap();
        replace(&folder.path().join("sqm"), 0o600, b"text").unwrap_err();
        drop(Fresh::begin(&folder.path().join("other"), 0o600).unwrap());
        assert_eq!(names(folder.path()).len(), 1);
        let error = replace(Path::new("/nowhere/sqm"), 0o600, b"").unwrap_err();
        assert!(error.to_string().contains("/nowhere/sqm"), "{error}");
    }

    #[test]
    fn a_planted_temporary_file_is_not_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("secret"), "secret").unwrap();
        for name in ["sqm.sqm-new", "sqm.new", ".sqm.tmp", "sqm.part"] {
            symlink("secret", at(name)).unwrap();
        }
        replace(&at("sqm"), 0o600, b"text").unwrap();
        assert_eq!(fs::read(at("secret")).unwrap(), b"secret");
        assert_eq!(fs::read(at("sqm")).unwrap(), b"text");
    }

    #[test]
    fn only_the_expected_content_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sqm");
        replace_if(&file, 0o600, None, b"one").unwrap();
        for wrong in [None, Some(&b"on"[..]), Some(b"two"), Some(b"one and more")] {
            let error = replace_if(&file, 0o600, wrong, b"two").unwrap_err();
            assert!(matches!(error, Error::Changed { .. }), "{error}");
        }
        replace_if(&file, 0o600, Some(b"one"), b"two").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"two");
        assert!(create(&file, 0o600, b"three").is_err());
        assert_eq!(fs::read(&file).unwrap(), b"two");
        assert_eq!(
            names(folder.path()),
            BTreeSet::from([".sqm.lock".into(), "sqm".into()])
        );
        let error = remove_if(&file, b"one").unwrap_err();
        assert!(matches!(error, Error::Changed { .. }), "{error}");
        remove_if(&file, b"two").unwrap();
        assert!(!file.exists());
        create(&file, 0o600, b"three").unwrap();
        assert!(remove(&file).unwrap() && !remove(&file).unwrap());
        assert!(!remove(&folder.path().join("none/sqm")).unwrap());
    }

    #[test]
    fn a_text_written_after_the_check_is_restored() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sqm");
        replace(&file, 0o600, b"theirs").unwrap();
        let mut fresh = Fresh::begin(&file, 0o600).unwrap();
        fresh.write_whole(b"ours").unwrap();
        let exchanged = exchange_for(&mut fresh, b"what we saw", b"ours");
        assert!(matches!(exchanged, Err(Error::Changed { .. })));
        drop(fresh);
        assert_eq!(fs::read(&file).unwrap(), b"theirs");
        assert_eq!(names(folder.path()).len(), 1);
    }

    /// Another program renames one text after the other into place, while ours replaces texts that it has read. At the end the file
    /// has the last text of the other program, or ours has replaced that text after reading it.
    #[test]
    fn no_text_of_another_program_is_lost() {
        const TEXTS: usize = 300;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sqm");
        fs::write(&file, "begin").unwrap();
        let is_over = AtomicBool::new(false);
        let mut replaced = BTreeSet::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..TEXTS {
                    let fresh = folder.path().join("theirs.new");
                    fs::write(&fresh, format!("theirs {number}")).unwrap();
                    fs::rename(&fresh, &file).unwrap();
                    std::thread::yield_now();
                }
                is_over.store(true, Ordering::Relaxed);
            });
            while !is_over.load(Ordering::Relaxed) {
                let before = fs::read(&file).unwrap();
                let text = format!("ours {}", replaced.len());
                match replace_if(&file, 0o600, Some(&before), text.as_bytes()) {
                    Ok(()) => replaced.insert(before),
                    Err(Error::Changed { .. }) => continue,
                    Err(error) => panic!("{error}"),
                };
            }
        });
        let last = format!("theirs {}", TEXTS - 1).into_bytes();
        let end = fs::read(&file).unwrap();
        assert!(
            end == last || replaced.contains(&last),
            "{}",
            String::from_utf8_lossy(&end)
        );
    }

    #[test]
    fn a_planted_lock_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sqm");
        fs::create_dir(folder.path().join(".sqm.lock")).unwrap();
        let error = replace_if(&file, 0o600, None, b"").unwrap_err();
        assert!(error.to_string().contains(".sqm.lock: is a directory"), "{error}");
    }
}

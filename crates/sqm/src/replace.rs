//! A file replaced by another, as programs do that write what a person keeps.

use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;

use anyhow::Context;

/// Replaces a file in one step, with its permissions and owner: whoever reads it finds the old one or the new one, and after a
/// failure the old one and nothing else. A link to a file stays a link.
pub(crate) fn replace(file: &Path, text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let real = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let fresh = real.with_extension("sqm-new");
    let written =
        write(&fresh, fs::metadata(&real).ok(), text.as_ref()).and_then(|()| fs::rename(&fresh, &real));
    if written.is_err() {
        // There may be none.
        let _ = fs::remove_file(&fresh);
    }
    written.with_context(|| format!("cannot write {}", real.display()))
}

fn write(fresh: &Path, old: Option<Metadata>, text: &[u8]) -> io::Result<()> {
    let mut to = File::create(fresh)?;
    if let Some(old) = old {
        to.set_permissions(old.permissions())?;
        let now = to.metadata()?;
        // The daemon's sandbox forbids the call, even if it would change nothing.
        if (now.uid(), now.gid()) != (old.uid(), old.gid()) {
            fchown(&to, Some(old.uid()), Some(old.gid()))?;
        }
    }
    to.write_all(text)?;
    to.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn permissions_stay_and_a_link_stays_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("sqm"), directory.path().join("link"));
        fs::write(&file, "before").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        symlink(&file, &link).unwrap();
        replace(&link, "after").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "after");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(
            fs::read_dir(directory.path()).unwrap().count(),
            2,
            "nothing is left behind"
        );
    }

    #[test]
    fn a_failure_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("sqm")).unwrap();
        replace(&directory.path().join("sqm"), "text").unwrap_err();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let error = replace(Path::new("/nowhere/sqm"), "").unwrap_err();
        assert!(error.to_string().contains("/nowhere/sqm"), "{error}");
    }
}

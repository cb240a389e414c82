//! The texts of `tc` commands that `option script 'mine.tc'` names: where they are, and who may have written them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use sqm_files::Place;
use sqm_plan::own::{ENDING, FOLDERS, MAX_BYTES, OwnFile};

use crate::Draft;

/// The folder of the configuration on OpenWrt, whose other files are none of ours.
const UCI: &str = "/etc/config";

/// Reads each text that a configuration names, also if the configuration or the text has errors. The error is in words.
pub fn all_named(text: &[u8], config: &Path) -> Vec<(String, Result<OwnFile, String>)> {
    const OPTIONS: [&str; 3] = ["script", "egress_script", "ingress_script"];
    let Ok(draft) = Draft::of(text) else {
        return Vec::new();
    };
    let sections = draft.sections();
    let settings = sections.iter().flat_map(|section| &section.settings);
    let names = settings
        .filter(|setting| OPTIONS.contains(&setting.name))
        .map(|setting| setting.value);
    // A name with a folder is refused wherever a text is used.
    let names: BTreeSet<&str> = names
        .filter(|name| name.ends_with(ENDING) && !name.contains('/'))
        .collect();
    names
        .into_iter()
        .map(|name| (name.to_owned(), read(name, config)))
        .collect()
}

/// Reads the text of this name for the configuration `config`.
///
/// A configuration elsewhere than in `/etc/config` may have its texts beside it. Then come the folders of sqm-scripts. The first
/// folder that has the file decides.
///
/// # Errors
/// In words. The file must be a regular one, within the limit, and belong to root, to the owner of the configuration, or to the
/// user who runs the program: a text decides what the kernel does with every packet of the machine.
pub(crate) fn read(name: &str, config: &Path) -> Result<OwnFile, String> {
    let folders = folders(config);
    for folder in &folders {
        let file = folder.join(name);
        match read_from(&file, config) {
            Ok(Some(bytes)) => {
                return Ok(OwnFile {
                    path: file.display().to_string(),
                    bytes,
                });
            }
            Ok(None) => {}
            Err(message) => return Err(message),
        }
    }
    let folders: Vec<String> = folders
        .iter()
        .map(|folder| folder.display().to_string())
        .collect();
    Err(format!("there is no file {name} in {}", folders.join(" or ")))
}

fn folders(config: &Path) -> Vec<PathBuf> {
    let beside = match config.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Some(Path::new(".")),
        folder => folder,
    };
    // A pipe, such as /dev/fd/63, has no files beside it.
    let has_none = |folder: &&Path| ["/dev", "/proc"].iter().any(|other| folder.starts_with(other));
    let beside = beside.filter(|folder| *folder != Path::new(UCI) && !has_none(folder));
    beside
        .into_iter()
        .chain(FOLDERS.iter().map(Path::new))
        .map(Path::to_owned)
        .collect()
}

/// The bytes of the file; `None` if there is no such file.
fn read_from(path: &Path, config: &Path) -> Result<Option<Vec<u8>>, String> {
    let file = match Place::find(path).and_then(|place| place.open(OFlags::RDONLY, 0)) {
        Ok(file) => file,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let shown = path.display();
    let owner = file
        .metadata()
        .map_err(|error| format!("{shown}: {error}"))?
        .uid();
    let owner_of_config = std::fs::metadata(config).ok().map(|found| found.uid());
    let ours = rustix::process::geteuid().as_raw();
    if owner != 0 && owner != ours && Some(owner) != owner_of_config {
        return Err(format!(
            "{shown} belongs to user {owner}, who is neither root nor the owner of the configuration: change its owner with \
             'chown root {shown}', if you trust it"
        ));
    }
    whole(&file)
        .map(Some)
        .map_err(|message| format!("{shown}: {message}"))
}

fn whole(file: &File) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    // One byte beyond the limit shows that the file is longer.
    let read = file.take(MAX_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!(
            "it has more than {MAX_BYTES} bytes, the limit for a setup script"
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_text_is_a_regular_file_within_the_limit_beside_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let config = at("sqm");
        fs::write(&config, "").unwrap();
        fs::write(at("mine.tc"), "tc").unwrap();
        symlink("mine.tc", at("link.tc")).unwrap();
        fs::write(at("long.tc"), vec![b'#'; MAX_BYTES as usize + 1]).unwrap();
        fs::create_dir(at("folder.tc")).unwrap();
        symlink("none", at("dangling.tc")).unwrap();
        for name in ["mine.tc", "link.tc"] {
            let read = read(name, &config).unwrap();
            assert_eq!(
                (read.bytes.as_slice(), read.path.contains(name)),
                (&b"tc"[..], true)
            );
        }
        for (name, word) in [
            ("none.tc", "/etc/sqm or /usr/lib/sqm"),
            ("long.tc", "more than 32768 bytes"),
            ("folder.tc", "a directory"),
            ("dangling.tc", "leads nowhere"),
        ] {
            let error = read(name, &config).unwrap_err();
            assert!(error.contains(name) && error.contains(word), "{error}");
        }
    }

    #[test]
    fn the_folder_of_uci_and_pipes_have_no_texts_beside_them() {
        for config in ["/etc/config/sqm", "/dev/stdin", "/proc/self/fd/3"] {
            assert_eq!(folders(Path::new(config)), FOLDERS.map(PathBuf::from));
        }
        assert_eq!(folders(Path::new("sqm"))[0], Path::new("."));
    }
}

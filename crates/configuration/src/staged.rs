//! Changes that `uci set` has staged and `uci commit` has not written yet. OpenWrt's services count them when they start.
//!
//! `uci` keeps them in a file of lines such as `sqm.wan.download='50000'`, `-sqm.wan.link` or `+sqm.cfg0113ab='queue'`. A section
//! without a name has one there that consists of its number and a hash of its type.

use std::path::Path;

use sqm_plan::OptionValue;

use crate::{Draft, MAX_BYTES, uci_override};

/// The folder of staged changes (libuci, `UCI_SAVEDIR`).
const FOLDER: &str = "/tmp/.uci";

/// The text of a configuration with its staged changes, and a line for each of them, and for a file that takes the place of
/// `/etc/config/sqm`. On a machine without `uci`, and for any other file, the text as it is.
pub fn counted(config: &Path, text: Vec<u8>) -> (Vec<u8>, Vec<String>) {
    if !uci_override::is_of_uci(config) {
        return (text, Vec::new());
    }
    let (text, staged) = counted_in(Path::new(FOLDER), text);
    (
        text,
        uci_override::report(config).into_iter().chain(staged).collect(),
    )
}

/// The text that counts for this configuration, with its staged changes: of the file that takes the place of `/etc/config/sqm`, if there is
/// one. `None` if there is no file, or it cannot be read.
pub fn text_in_force(config: &Path) -> Option<Vec<u8>> {
    let file = uci_override::of(config);
    let text = crate::read_if_there(&file).ok()??;
    Some(counted(&file, text).0)
}

/// Why a program must not change the configuration now: `uci` has staged changes, which would override what it writes. `None` if
/// there are none.
pub fn obstacle(config: &Path) -> Option<String> {
    (uci_override::is_of_uci(config) && found_in(Path::new(FOLDER)).is_some()).then(|| {
        "changes are staged and not committed ('uci changes sqm' shows them), which would override what is written: run 'uci \
         commit sqm' to keep them, or 'uci revert sqm' to drop them; nothing was changed"
            .to_owned()
    })
}

fn counted_in(folder: &Path, text: Vec<u8>) -> (Vec<u8>, Vec<String>) {
    match found_in(folder) {
        Some(staged) => with_changes(text, &String::from_utf8_lossy(&staged)),
        None => (text, Vec::new()),
    }
}

/// The file of staged changes, unless it is empty or another user could have written it.
fn found_in(folder: &Path) -> Option<Vec<u8>> {
    if !uci_override::is_ours(folder) {
        return None;
    }
    let staged = sqm_files::read_if_there(&folder.join("sqm"), MAX_BYTES).ok()??;
    (!staged.is_empty()).then_some(staged)
}

/// The text with these changes, and a line for each of them.
fn with_changes(text: Vec<u8>, staged: &str) -> (Vec<u8>, Vec<String>) {
    let Ok(mut draft) = Draft::of(&text) else {
        return (text, Vec::new());
    };
    let mut names = names(&draft);
    let mut report = Vec::new();
    for line in lines(staged) {
        report.push(match apply(&mut draft, &mut names, &line) {
            Some(()) => format!("staged, not committed: {line}"),
            None => format!("staged, not committed, and not in force: {line}: run 'uci commit sqm'"),
        });
    }
    (draft.finish(), report)
}

/// Applies a change; `None` if it is of a kind that needs a commit first, or is about a section that does not exist.
fn apply(draft: &mut Draft, names: &mut Vec<String>, line: &str) -> Option<()> {
    let (command, rest) = match line.chars().next()? {
        command @ ('+' | '-' | '@' | '^' | '|' | '~') => (Some(command), &line[1..]),
        _ => (None, line),
    };
    let (path, value) = match rest.split_once('=') {
        Some((path, value)) => (path, Some(value)),
        None => (rest, None),
    };
    let path = path.strip_prefix("sqm.")?;
    let (section, option) = match path.split_once('.') {
        Some((section, option)) => (section, Some(option)),
        None => (path, None),
    };
    let known = names.iter().position(|name| name == section);
    match (command, known, option, value) {
        (None, Some(at), Some(option), Some("")) | (Some('-'), Some(at), Some(option), None) => {
            draft.unset(at, option).ok()
        }
        (None, Some(at), Some(option), Some(value)) => {
            let (name, value) = (option.to_owned(), value.to_owned());
            draft.set(at, &OptionValue::Text { name, value }).ok()
        }
        (Some('-'), Some(at), None, None) => draft.remove_section(at).ok(),
        (None | Some('+'), None, None, Some("queue")) => {
            draft.add_section().ok()?;
            names.push(section.to_owned());
            Some(())
        }
        _ => None,
    }
}

/// The name that `uci` has for each section.
fn names(draft: &Draft) -> Vec<String> {
    let sections = draft.sections().into_iter();
    let named = sections.map(|section| match section.name {
        Some(name) => name.to_owned(),
        None => {
            let hash = section.kind.bytes().fold(5381_u32, |hash, byte| {
                hash.wrapping_mul(33).wrapping_add(byte.into())
            });
            format!("cfg{:02x}{:04x}", section.index + 1, hash % (1 << 16))
        }
    });
    named.collect()
}

/// The lines of a file of staged changes, without their quotes.
fn lines(staged: &str) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    let (mut is_quoted, mut characters) = (false, staged.chars());
    while let Some(character) = characters.next() {
        match character {
            '\'' => is_quoted = !is_quoted,
            '\n' if !is_quoted => lines.push(std::mem::take(&mut line)),
            '\\' if !is_quoted => line.extend(characters.next()),
            other => line.push(other),
        }
    }
    lines.push(line);
    lines.retain(|line| !line.is_empty());
    lines
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const TEXT: &str = "config queue 'wan'\n\toption download '85000'\n\toption link 'docsis'\n\nconfig queue\n\toption upload '1'\n";

    fn changed(staged: &str) -> (String, Vec<String>) {
        let (text, report) = with_changes(TEXT.as_bytes().to_vec(), staged);
        (String::from_utf8(text).unwrap(), report)
    }

    #[test]
    fn staged_changes_are_applied_and_each_is_reported() {
        let (text, report) = changed(
            "sqm.wan.download='50000'\n-sqm.wan.link\nsqm.cfg02ANON.upload='7'\n"
                .replace("cfg02ANON", &names(&Draft::of(TEXT.as_bytes()).unwrap())[1])
                .as_str(),
        );
        let expected = TEXT
            .replace("85000", "50000")
            .replace("\toption link 'docsis'\n", "")
            .replace("upload '1'", "upload '7'");
        assert_eq!(text, expected);
        assert_eq!(report[0], "staged, not committed: sqm.wan.download=50000");
        assert_eq!(report.len(), 3);
        let (text, _) = changed("+sqm.cfg03abcd='queue'\nsqm.cfg03abcd.note='it'\\''s\nlong'\n-sqm.wan\n");
        assert_eq!(
            text,
            "config queue\n\toption upload '1'\n\nconfig queue\n\toption note 'it'\\''s\nlong'\n"
        );
    }

    #[test]
    fn a_change_that_needs_a_commit_is_named() {
        for staged in [
            "@sqm.wan='lan'\n",
            "|sqm.wan.note='1'\n",
            "sqm.none.upload='1'\n",
            "oops\n",
        ] {
            let (text, report) = changed(staged);
            assert_eq!(text, TEXT);
            assert!(
                report.len() == 1 && report[0].contains("not in force"),
                "{report:?}"
            );
        }
    }

    #[test]
    fn the_name_of_a_section_without_one_is_that_of_uci() {
        assert_eq!(names(&Draft::of(b"config queue\n").unwrap()), ["cfg01b68a"]);
    }

    #[test]
    fn a_folder_that_other_users_can_write_is_not_read() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("sqm"), "sqm.wan.download='50000'\n").unwrap();
        let counted = || counted_in(folder.path(), TEXT.as_bytes().to_vec()).1.len();
        assert_eq!(counted(), 1);
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(counted(), 0);
        // Another configuration has no staged changes.
        let other = super::counted(Path::new("/etc/sqm/sqm"), TEXT.as_bytes().to_vec());
        assert_eq!(other, (TEXT.as_bytes().to_vec(), Vec::new()));
    }
}

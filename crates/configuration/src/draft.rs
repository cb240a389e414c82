//! Edits a configuration: sets options of a section, adds and removes sections. Everything that is not edited stays byte for
//! byte: comments, blank lines, quotes, options of other programs.

use std::collections::BTreeSet;

use sqm_plan::OptionValue;
use sqm_plan::uci::{self, Document, Section};

/// The kind of the sections that describe interfaces.
const QUEUE: &str = "queue";

/// A configuration's text while it is edited. Sections are numbered from 0 in the order of the text. A new section comes last, and
/// the numbers of the others do not change before [`Draft::finish`].
#[derive(Clone, Debug)]
pub struct Draft {
    document: Document,
    /// Sections that [`Draft::finish`] removes.
    removed: BTreeSet<usize>,
}

/// Why a text cannot be edited.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// There is no section with this number.
    #[error("the configuration has no section number {0}")]
    NoSection(usize),
    /// The name is no name of an option, the value holds a zero byte, or the text would be too long.
    #[error("option {0} cannot be set: its name or its value is not one that a configuration can hold")]
    NotAnOption(String),
    /// The text would be too long.
    #[error("a section cannot be added: the configuration would be too long")]
    TooLong,
}

impl Draft {
    /// Begins with this text.
    ///
    /// # Errors
    /// All places where the text is not in UCI's format.
    pub fn of(text: &[u8]) -> Result<Self, Vec<uci::Error>> {
        Ok(Self {
            document: Document::parse_bytes(text)?,
            removed: BTreeSet::new(),
        })
    }

    /// The sections of the text, of every kind.
    pub fn sections(&self) -> Vec<Section<'_>> {
        self.document.sections()
    }

    /// A message for each section that is no queue, for texts that may hold nothing else.
    pub fn other_sections(&self) -> Vec<String> {
        let sections = self.document.sections();
        let others = sections.iter().filter(|section| section.kind != QUEUE);
        let message = |section: &Section<'_>| {
            let (line, kind) = (section.line, section.kind);
            format!(
                "line {line}: only 'config {QUEUE}' sections are allowed here, and this is 'config {kind}'"
            )
        };
        others.map(message).collect()
    }

    /// The number of sections.
    pub fn section_count(&self) -> usize {
        self.document.section_count()
    }

    /// The first section for an interface, enabled or not.
    pub fn section_of(&self, interface: &str) -> Option<usize> {
        let sections = self.document.sections();
        let section = sections.iter().find(|section| {
            let mut settings = section.settings.iter();
            section.kind == QUEUE
                && settings.any(|setting| setting.name == "interface" && setting.value == interface)
        })?;
        Some(section.index)
    }

    /// The typed value of an option that a section gives; `None` if it gives none, or one in error.
    pub fn value(&self, section: usize, option: &str) -> Option<OptionValue> {
        OptionValue::parse(option, self.document.value(section, option)?)
    }

    /// True if a section gives this option.
    pub fn gives(&self, section: usize, option: &str) -> bool {
        self.document.value(section, option).is_some()
    }

    /// Sets an option of a section: on the line where it is given, or on a new line at the end of the section. An option that has
    /// this value already stays as it is written.
    ///
    /// # Errors
    /// There is no such section, or the option cannot be set. Nothing was changed.
    pub fn set(&mut self, section: usize, option: &OptionValue) -> Result<(), EditError> {
        let (name, text) = (option.name(), option.text());
        let written = self.document.value(section, name);
        if written.is_some_and(|written| option.is_written_as(written)) {
            return Ok(());
        }
        let is_text = !text.contains('\0');
        self.edit(section, name, |document| {
            is_text && document.set(section, name, &text)
        })
    }

    /// Removes an option from a section, if it is there.
    ///
    /// # Errors
    /// There is no such section.
    pub fn unset(&mut self, section: usize, option: &str) -> Result<(), EditError> {
        self.edit(section, option, |document| document.unset(section, option))
    }

    fn edit(
        &mut self,
        section: usize,
        option: &str,
        edit: impl FnOnce(&mut Document) -> bool,
    ) -> Result<(), EditError> {
        if section >= self.section_count() {
            return Err(EditError::NoSection(section));
        }
        match edit(&mut self.document) {
            true => Ok(()),
            false => Err(EditError::NotAnOption(option.to_owned())),
        }
    }

    /// Adds an empty section for an interface at the end, and returns its number.
    ///
    /// # Errors
    /// The text would be too long.
    pub fn add_section(&mut self) -> Result<usize, EditError> {
        match self.document.add(QUEUE) {
            true => Ok(self.section_count() - 1),
            false => Err(EditError::TooLong),
        }
    }

    /// Removes a section with its comments.
    ///
    /// # Errors
    /// There is no such section.
    pub fn remove_section(&mut self, section: usize) -> Result<(), EditError> {
        if section >= self.section_count() {
            return Err(EditError::NoSection(section));
        }
        self.removed.insert(section);
        Ok(())
    }

    /// The edited text, of which bytes that are not UTF-8 stay as they are.
    pub fn finish(self) -> Vec<u8> {
        let Self {
            mut document,
            removed,
        } = self;
        // From the last to the first: a removal moves the sections behind it.
        for section in removed.into_iter().rev() {
            let is_removed = document.remove(section);
            debug_assert!(is_removed, "the number was checked");
        }
        document.to_bytes()
    }

    /// The edited text, for a draft that began with UTF-8.
    pub fn finish_text(self) -> String {
        String::from_utf8_lossy(&self.finish()).into_owned()
    }

    /// The text with the edits so far, before sections are removed.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.document.to_bytes()
    }
}

#[cfg(test)]
mod tests {
    use sqm_core::direction::Direction;
    use sqm_core::units::Rate;

    use super::*;

    const TEXT: &str = "# mine\nconfig queue 'a' # the line\n\toption interface 'eth0'\n\toption upload 5mbit   # fast\n\
                        \toption script \"x\"\n\nconfig queue\n\toption interface eth1";

    fn upload(kbit: u64) -> OptionValue {
        OptionValue::Rate(Direction::Upload, Rate::from_kbits_per_sec(kbit))
    }

    fn edited(edit: impl FnOnce(&mut Draft) -> Result<(), EditError>) -> String {
        let mut draft = Draft::of(TEXT.as_bytes()).unwrap();
        edit(&mut draft).unwrap();
        draft.finish_text()
    }

    #[test]
    fn an_edit_changes_only_the_value_that_it_names() {
        let expected = TEXT.replace("5mbit  ", "'7000'  ");
        assert_eq!(edited(|draft| draft.set(0, &upload(7000))), expected);
        assert_eq!(
            edited(|draft| draft.set(1, &upload(7000))),
            format!("{TEXT}\n\toption upload '7000'\n")
        );
        assert_eq!(
            edited(|draft| draft.unset(0, "script")),
            TEXT.replace("\toption script \"x\"\n", "")
        );
    }

    #[test]
    fn an_option_that_has_the_value_already_stays_as_it_is_written() {
        assert_eq!(edited(|draft| draft.set(0, &upload(5000))), TEXT);
        let interface = OptionValue::Interface("eth1".to_owned());
        assert_eq!(edited(|draft| draft.set(1, &interface)), TEXT);
        assert_eq!(edited(|_| Ok(())), TEXT);
    }

    #[test]
    fn sections_keep_their_numbers_until_the_draft_is_finished() {
        let text = edited(|draft| {
            draft.remove_section(0)?;
            draft.set(1, &upload(2))?;
            let new = draft.add_section()?;
            assert_eq!(new, 2);
            draft.set(new, &upload(1))?;
            draft.remove_section(0)
        });
        assert_eq!(
            text,
            "# mine\nconfig queue\n\toption interface eth1\n\toption upload '2'\n\nconfig queue\n\toption upload '1'\n"
        );
    }

    #[test]
    fn sections_and_values_are_found_by_interface_and_name() {
        let draft = Draft::of(TEXT.as_bytes()).unwrap();
        assert_eq!(draft.section_of("eth1"), Some(1));
        assert_eq!(draft.section_of("eth2"), None);
        assert_eq!(draft.value(0, "upload"), Some(upload(5000)));
        // There is no script of this name.
        assert!(draft.gives(0, "script") && draft.value(0, "script").is_none());
        assert!(!draft.gives(0, "download"));
    }

    #[test]
    fn an_edit_that_is_refused_changes_nothing() {
        let mut draft = Draft::of(TEXT.as_bytes()).unwrap();
        let text = |name: &str, value: &str| OptionValue::from((name.to_owned(), value.to_owned()));
        assert_eq!(draft.set(2, &upload(1)), Err(EditError::NoSection(2)));
        assert_eq!(draft.unset(2, "upload"), Err(EditError::NoSection(2)));
        assert_eq!(draft.remove_section(2), Err(EditError::NoSection(2)));
        for (name, value) in [("a b", "1"), ("upload", "a\0b"), ("", "1")] {
            assert_eq!(
                draft.set(0, &text(name, value)),
                Err(EditError::NotAnOption(name.to_owned()))
            );
        }
        assert_eq!(draft.finish(), TEXT.as_bytes());
        assert_eq!(Draft::of(b"option x").unwrap_err()[0].line, 1);
    }
}

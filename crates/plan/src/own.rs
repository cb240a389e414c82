//! Setup scripts of one's own: texts of `tc` commands with variables, as `option script 'mine.tc'` names them.
//!
//! ```text
//! # Upload: one CAKE. Download: HTB with one class.
//! tc qdisc add dev $IFACE root cake bandwidth $UPLINK $CAKE_FRAMING $OPTIONS
//! tc qdisc add dev $IFB root handle 1: $STAB htb default 10
//! tc class add dev $IFB parent 1: classid 1:10 htb rate $DOWNLINK ceil $DOWNLINK $HTB_BURST $HTB_FRAMING
//! tc qdisc add dev $IFB parent 1:10 handle 110: $QDISC $LIMIT $TARGET $ECN $OPTIONS
//! ```
//!
//! This is the form of a text: its file, its lines and its words. [`crate::recipes`] makes plans of it.

pub(crate) mod text;

use std::collections::BTreeSet;
use std::sync::Arc;

use sqm_core::nearest::nearest;

use text::Line;

/// The ending of the name of such a text.
pub const ENDING: &str = ".tc";
/// The folders that hold the texts, first the one that is searched first. They are those of sqm-scripts.
pub const FOLDERS: [&str; 2] = ["/etc/sqm", "/usr/lib/sqm"];
/// The longest text, bytes. A choice: `simple.qos` of sqm-scripts takes 6 KiB in this form.
pub const MAX_BYTES: u64 = 1 << 15;
/// Most errors of a text that are reported.
pub(crate) const MOST_ERRORS: usize = 20;

/// A text as its file holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnFile {
    /// The file, for messages.
    pub path: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Reads the text of a name, which has no folder. The error is in words.
pub type Source<'a> = &'a dyn Fn(&str) -> Result<OwnFile, String>;

/// The source of a program that has no files.
///
/// # Errors
/// Always.
pub fn none(name: &str) -> Result<OwnFile, String> {
    Err(format!("there is no file {name} here"))
}

/// An error of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// Line of the text, from 1.
    pub line: usize,
    /// The word and the error.
    pub message: String,
    /// The word that was probably meant.
    pub suggestion: Option<String>,
}

impl TextError {
    pub(crate) fn at(line: usize, message: impl Into<String>) -> Self {
        Self {
            line,
            message: message.into(),
            suggestion: None,
        }
    }

    pub(crate) fn suggest(self, suggestion: Option<impl Into<String>>) -> Self {
        Self {
            suggestion: suggestion.map(Into::into),
            ..self
        }
    }
}

/// A text that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnText {
    /// Its name, such as `mine.tc`.
    pub name: String,
    /// The file that held it.
    pub file: OwnFile,
    pub(crate) lines: Vec<Line>,
}

/// A text as the setup script of one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnScript {
    /// The text.
    pub text: Arc<OwnText>,
    /// The variables that the commands of this direction use, and the options that their headings ask for.
    pub(crate) uses: BTreeSet<String>,
}

impl OwnScript {
    /// Reads a text. Variables are not replaced yet.
    pub(crate) fn parse(name: &str, file: OwnFile) -> Result<Self, Vec<TextError>> {
        let lines = text::lines(&file.bytes)?;
        let text = OwnText {
            name: name.to_owned(),
            file,
            lines,
        };
        Ok(Self {
            text: Arc::new(text),
            uses: BTreeSet::new(),
        })
    }

    /// True if the commands of this direction use this variable, or are under a heading that asks for this option.
    pub(crate) fn uses(&self, name: &str) -> bool {
        self.uses.contains(name)
    }
}

/// The known word nearest to an unknown one.
pub(crate) fn near(word: &str, known: &[&'static str]) -> Option<&'static str> {
    nearest(word, known.iter().copied()).and_then(|found| known.iter().copied().find(|word| *word == found))
}

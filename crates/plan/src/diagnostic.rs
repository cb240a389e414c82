//! Errors and warnings about a configuration file, each with its place: one finding per value, all findings of a file together.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::Location;

use sqm_core::units::shortened;

use crate::uci::bytes::shown;

/// One finding, printed as `file:line: option 'name': message; did you mean 'suggestion'?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The file's name as it was given.
    pub file: String,
    /// Line in that file, from 1.
    pub line: usize,
    /// The index of the file's section in which that line is, from 0; `None` if it is in none.
    pub section: Option<usize>,
    /// The option it is about; `None` if it is about a section or the file's form.
    pub option: Option<String>,
    /// The error, and the remedy where that is not plain.
    pub message: String,
    /// The value (or name) that was probably meant in place of the one found.
    pub suggestion: Option<String>,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file, self.line)?;
        if let Some(option) = &self.option {
            write!(f, "option '{option}': ")?;
        }
        f.write_str(&self.message)?;
        match &self.suggestion {
            Some(suggestion) => write!(f, "; did you mean '{suggestion}'?"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Diagnostic {}

/// A finding that is not yet known to be an error or a warning.
#[derive(Debug)]
pub(crate) struct Finding {
    line: usize,
    option: Option<String>,
    message: String,
    suggestion: Option<String>,
    kind: Kind,
}

/// Findings of one kind come from the same check of the same option. The place in our source tells checks apart.
type Kind = (&'static Location<'static>, Option<String>);

/// Most findings of one kind that are reported one by one, a choice: more of them add nothing.
pub const MOST_OF_A_KIND: usize = 20;
/// Most characters of a message, a choice. A longer one repeats text of the file, and is cut.
const MOST_CHARS: usize = 400;

impl Finding {
    #[track_caller]
    pub(crate) fn at(line: usize, message: impl Into<String>) -> Self {
        Self {
            line,
            option: None,
            message: cut(message.into()),
            suggestion: None,
            kind: (Location::caller(), None),
        }
    }

    /// A finding about a value whose line and option are not known yet.
    #[track_caller]
    pub(crate) fn of_value(message: impl Into<String>) -> Self {
        Self::at(0, message)
    }

    /// Sets the line.
    pub(crate) fn on_line(self, line: usize) -> Self {
        Self { line, ..self }
    }

    /// About one of our options.
    pub(crate) fn option(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        self.kind.1 = Some(name.clone());
        self.option = Some(name);
        self
    }

    /// About an option that is none of ours: all of them are of one kind.
    pub(crate) fn foreign_option(self, name: &str) -> Self {
        Self {
            option: Some(shortened(name)),
            ..self
        }
    }

    pub(crate) fn suggest(self, suggestion: Option<impl Into<String>>) -> Self {
        let suggestion = suggestion.map(Into::into);
        Self {
            suggestion: suggestion.filter(|suggestion| suggestion.chars().nth(MOST_CHARS).is_none()),
            ..self
        }
    }
}

fn cut(message: String) -> String {
    let mut message = shown(&message);
    if let Some((at, _)) = message.char_indices().nth(MOST_CHARS) {
        message.truncate(at);
        message.push('…');
    }
    message
}

/// Collects the findings of one file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    file: String,
    /// The lines of the file's `config` statements, each with the number of its section.
    pub(crate) section_lines: Vec<(usize, usize)>,
    /// True while a disabled section is checked: its errors are reported as warnings, and its warnings are left out.
    pub(crate) disabled: bool,
    errors: Findings,
    warnings: Findings,
}

impl Report {
    pub(crate) fn new(file: &str) -> Self {
        Self {
            file: file.to_owned(),
            ..Self::default()
        }
    }

    /// Said once, however often a reader comes by: an option for both directions is read for each.
    pub(crate) fn error(&mut self, mut finding: Finding) {
        if self.disabled {
            finding.message.push_str(" (the section is disabled)");
            self.warnings.add(&self.file, finding);
        } else {
            self.errors.add(&self.file, finding);
        }
    }

    pub(crate) fn warning(&mut self, finding: Finding) {
        if !self.disabled {
            self.warnings.add(&self.file, finding);
        }
    }

    /// Errors and warnings, in the order of their lines. Of each kind there are at most [`MOST_OF_A_KIND`], and one more that
    /// says how many are left out.
    pub(crate) fn finish(self) -> (Vec<Diagnostic>, Vec<Diagnostic>) {
        let Self {
            file, section_lines, ..
        } = self;
        let in_sections = |findings: Findings| {
            let mut diagnostics = findings.into_diagnostics(&file);
            for diagnostic in &mut diagnostics {
                let begun = section_lines.partition_point(|(line, _)| *line <= diagnostic.line);
                diagnostic.section = begun.checked_sub(1).map(|at| section_lines[at].1);
            }
            diagnostics
        };
        (in_sections(self.errors), in_sections(self.warnings))
    }
}

#[derive(Clone, Debug, Default)]
struct Findings {
    reported: Vec<Diagnostic>,
    kinds: BTreeMap<Kind, FindingsOfKind>,
}

/// The findings of one kind so far.
#[derive(Clone, Debug, Default)]
struct FindingsOfKind {
    /// Hashes of all different ones, reported or not.
    seen: HashSet<u64>,
    /// The first one that was left out: its line and message.
    left_out: Option<(usize, String)>,
}

impl Findings {
    fn add(&mut self, file: &str, finding: Finding) {
        let Finding {
            line,
            option,
            message,
            suggestion,
            kind,
        } = finding;
        let of_kind = self.kinds.entry(kind).or_default();
        let mut hasher = DefaultHasher::new();
        (line, &option, &message, &suggestion).hash(&mut hasher);
        if !of_kind.seen.insert(hasher.finish()) {
            return;
        }
        if of_kind.seen.len() > MOST_OF_A_KIND {
            of_kind.left_out.get_or_insert((line, message));
            return;
        }
        self.reported.push(Diagnostic {
            file: file.to_owned(),
            line,
            section: None,
            option,
            message,
            suggestion,
        });
    }

    fn into_diagnostics(self, file: &str) -> Vec<Diagnostic> {
        let mut all = self.reported;
        for ((_, option), of_kind) in self.kinds {
            let Some((line, message)) = of_kind.left_out else {
                continue;
            };
            let more = of_kind.seen.len() - MOST_OF_A_KIND;
            all.push(Diagnostic {
                file: file.to_owned(),
                line,
                section: None,
                option,
                message: format!("and {more} more of this kind, here: {message}"),
                suggestion: None,
            });
        }
        all.sort_by_key(|diagnostic| diagnostic.line);
        all
    }
}

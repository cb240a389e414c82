//! The Unified Configuration Interface's file format, read and written without loss.
//!
//! A file is a row of statements, `config`, `option`, `list` and `package`, usually one a line. A [`Document`]
//! keeps the text of each, with its comments and blank lines: what is not changed is written back byte for byte, also bytes
//! that are not UTF-8 ([`bytes`]).
//!
//! The grammar is that of OpenWrt's libuci (`file.c`): words are parted by blanks; `'…'` is literal; in `"…"` and
//! outside quotes a backslash takes the next character as it is; quoted text may go on over several lines;
//! neighbouring pieces join (`'it'\''s'`); `#` begins a comment outside quotes. A `;` ends a statement if a blank or a quote is
//! in front of it; directly behind a word without quotes it ends the line, and the rest of the line is lost.
//!
//! Sections of one name are one section: later options replace earlier ones, and the section has the place of the first.
//!
//! Reading takes time and memory in proportion to the text, whatever it contains: the text is kept once, and statements are
//! places in it.

pub mod bytes;
mod lexer;
mod parse;

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::{to_bytes, to_text};
pub use parse::without_errors;

/// A file, statement by statement.
#[derive(Clone, Debug)]
pub struct Document {
    /// The text that was read, and behind it what changes have put in. Nothing is ever taken out.
    text: String,
    statements: Vec<Statement>,
    /// Findings about statements without effect, and about names that libuci refuses.
    remarks: Vec<Error>,
}

/// A section and its options: one `config` statement, or several with the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section<'a> {
    /// Its place among the sections of the file, from 0; for [`Document::set`].
    pub index: usize,
    /// Line of its first `config` statement, from 1.
    pub line: usize,
    /// Lines of further `config` statements with its name.
    pub more_lines: Vec<usize>,
    /// Its type, such as `queue`.
    pub kind: &'a str,
    /// Its name; many have none.
    pub name: Option<&'a str>,
    /// `option` and `list` statements in the order of the file.
    pub settings: Vec<Setting<'a>>,
}

impl<'a> Section<'a> {
    /// The value of an option: of several, the last that is not empty.
    pub fn value(&self, option: &str) -> Option<&'a str> {
        let mut settings = self.settings.iter().rev();
        let setting = settings
            .find(|setting| setting.name == option && !setting.is_list && !setting.value.is_empty())?;
        Some(setting.value)
    }
}

/// One `option` or `list` statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting<'a> {
    /// Line on which it begins, from 1.
    pub line: usize,
    /// Its name.
    pub name: &'a str,
    /// Its value, without the quotes.
    pub value: &'a str,
    /// A `list` statement: it adds a value and replaces none.
    pub is_list: bool,
}

/// A place where the text is not UCI.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct Error {
    /// From 1.
    pub line: usize,
    /// The error in words.
    pub message: String,
    /// The keyword that was probably meant.
    pub suggestion: Option<String>,
}

/// A longer text, or one that changes have made longer, is no configuration.
const MOST_BYTES: usize = 256 << 20;

impl Document {
    /// Reads a file's bytes. All errors are answered together, up to twenty.
    pub fn parse_bytes(bytes: &[u8]) -> Result<Self, Vec<Error>> {
        parse::document(bytes)
    }

    /// Reads a file's text, like [`Document::parse_bytes`].
    pub fn parse(text: &str) -> Result<Self, Vec<Error>> {
        Self::parse_bytes(text.as_bytes())
    }

    /// The bytes that were read, with the changes made since.
    pub fn to_bytes(&self) -> Vec<u8> {
        let pieces = self
            .statements
            .iter()
            .flat_map(|statement| self.pieces(statement));
        pieces.flat_map(to_bytes).collect()
    }

    /// Remarks on statements that have no effect, and on names that libuci refuses, in the order of the text that was read.
    pub fn remarks(&self) -> &[Error] {
        &self.remarks
    }

    /// The sections in the order of the file.
    pub fn sections(&self) -> Vec<Section<'_>> {
        let mut sections: Vec<Section<'_>> = Vec::new();
        let mut named: BTreeMap<&str, usize> = BTreeMap::new();
        let (mut next_line, mut current) = (1, None);
        for statement in &self.statements {
            let line = next_line + statement.lead as usize;
            next_line += self.line_ends(statement);
            match statement.content {
                Content::Blank | Content::Package => {}
                Content::Config { kind, name } => {
                    let name = name.map(|name| self.get(name));
                    let index = number(name, sections.len(), &mut named);
                    current = Some(index);
                    match sections.get_mut(index) {
                        Some(section) => section.more_lines.push(line),
                        None => sections.push(Section {
                            index,
                            line,
                            more_lines: Vec::new(),
                            kind: self.get(kind),
                            name,
                            settings: Vec::new(),
                        }),
                    }
                }
                Content::Setting {
                    name, value, is_list, ..
                } => {
                    if let Some(section) = current.and_then(|index| sections.get_mut(index)) {
                        section.settings.push(Setting {
                            line,
                            name: self.get(name),
                            value: self.get(value),
                            is_list,
                        });
                    }
                }
            }
        }
        sections
    }

    /// The value of an option of a section: of several, the last that is not empty. `None` if there is no such section or option.
    pub fn value(&self, section: usize, option: &str) -> Option<&str> {
        let bodies = self.bodies(section);
        let statements = bodies.into_iter().rev().flat_map(Range::rev);
        statements
            .map(|at| &self.statements[at])
            .find_map(|statement| match statement.content {
                Content::Setting {
                    name,
                    value,
                    is_list: false,
                    ..
                } if self.get(name) == option => Some(self.get(value)).filter(|value| !value.is_empty()),
                _ => None,
            })
    }

    /// How many sections there are.
    pub fn section_count(&self) -> usize {
        self.numbers().map(|(_, number)| number + 1).max().unwrap_or(0)
    }

    /// Where `config` statements are, and the number of each one's section.
    fn numbers(&self) -> impl Iterator<Item = (usize, usize)> {
        let (mut named, mut count) = (BTreeMap::new(), 0);
        let statements = self.statements.iter().enumerate();
        statements.filter_map(move |(at, statement)| {
            let Content::Config { name, .. } = statement.content else {
                return None;
            };
            let number = number(name.map(|name| self.get(name)), count, &mut named);
            count = count.max(number + 1);
            Some((at, number))
        })
    }

    /// Gives an option of a section a value, touching only the line where it stands (the last, if there are
    /// several) or adding one at the section's end. Answers false, and does nothing, if there is no such section
    /// or the name is not one.
    #[must_use]
    pub fn set(&mut self, section: usize, option: &str, value: &str) -> bool {
        let value = &*to_text(value.as_bytes());
        let quoted = quote(value);
        let has_room = self.text.len() + option.len() + 2 * quoted.len() + 16 < MOST_BYTES;
        if self.bodies(section).is_empty() || !is_option_name(option) || !has_room {
            return false;
        }
        let is_it = |at: &usize| match self.statements[*at].content {
            Content::Setting { name, is_list, .. } => !is_list && self.get(name) == option,
            _ => false,
        };
        let standing = self.bodies(section).into_iter().flatten().rev().find(is_it);
        if value.is_empty() {
            // An empty value leaves an earlier one in force.
            self.remove_settings(section, option, standing);
        }
        let bodies = self.bodies(section);
        let is_it = |at: &usize| match self.statements[*at].content {
            Content::Setting { name, is_list, .. } => !is_list && self.get(name) == option,
            _ => false,
        };
        if let Some(standing) = bodies.iter().cloned().flatten().rev().find(is_it) {
            let ends_line = matches!(
                self.statements[standing].content,
                Content::Setting { ends_line: true, .. }
            );
            // Behind a quote, a ';' would not end the line any more, and what is lost today would be read.
            let comment = if ends_line { " #" } else { "" };
            let (new_value, new_quoted) =
                (self.add_text(value), self.add_text(&format!("{quoted}{comment}")));
            if let Content::Setting {
                value,
                instead,
                ends_line,
                ..
            } = &mut self.statements[standing].content
            {
                (*value, *instead, *ends_line) = (new_value, Some(new_quoted), false);
            }
            return true;
        }

        let Some(body) = bodies.last() else {
            return false;
        };
        let is_blank = |at: &usize| self.statements[*at].content == Content::Blank;
        let last = body.clone().rev().find(|at| !is_blank(at)).unwrap_or(body.start);
        let line_end = self.end_line(last);
        let before = format!("{line_end}\toption {option} ");
        let raw = self.add_text(&format!("{before}{quoted}\n"));
        let name_end = raw.start + before.len() as u32 - 1;
        let content = Content::Setting {
            name: Span {
                start: name_end - option.len() as u32,
                end: name_end,
            },
            value: self.add_text(value),
            is_list: false,
            place: Span::of(before.len()..before.len() + quoted.len()),
            instead: None,
            ends_line: false,
        };
        let lead = line_end.matches('\n').count() as u32;
        self.statements
            .insert(last + 1, Statement::new(raw, lead, content));
        true
    }

    /// Removes an option from a section. Returns false and changes nothing if there is no such section.
    #[must_use]
    pub fn unset(&mut self, section: usize, option: &str) -> bool {
        if self.bodies(section).is_empty() {
            return false;
        }
        self.remove_settings(section, option, None);
        true
    }

    /// Takes a section away, its comments included. Those on the lines directly above the next section are that one's, and stay. Answers
    /// false, and does nothing, if there is no such section.
    #[must_use]
    pub fn remove(&mut self, section: usize) -> bool {
        let bodies = self.bodies(section);
        let mut kept = Vec::new();
        for body in &bodies {
            if let Some(raw) = self.comments_above(body.end) {
                self.statements[body.end - 1].raw = raw;
                kept.push(body.end - 1);
            }
        }
        self.remove_statements(&bodies, |_, at| !kept.contains(&at));
        !bodies.is_empty()
    }

    /// The lines of comments directly above the statement at this place, if there is such a statement.
    fn comments_above(&self, at: usize) -> Option<Span> {
        self.statements.get(at)?;
        let above = self.statements[at - 1];
        let raw = self.get(above.raw);
        // A comment behind a statement is none of these lines.
        let is_behind = above.raw.start > 0 && self.text.as_bytes()[above.raw.start as usize - 1] != b'\n';
        if above.content != Content::Blank || !raw.ends_with('\n') || is_behind {
            return None;
        }
        let lines = raw.split_inclusive('\n').rev();
        let comments = lines.take_while(|line| line.trim_start().starts_with('#'));
        let length: usize = comments.map(str::len).sum();
        (length > 0).then(|| Span {
            start: above.raw.end - length as u32,
            end: above.raw.end,
        })
    }

    /// Removes the settings of an option from a section, but not that at `kept`.
    fn remove_settings(&mut self, section: usize, option: &str, kept: Option<usize>) {
        let bodies = self.bodies(section);
        self.remove_statements(&bodies, |document, at| {
            let content = document.statements[at].content;
            Some(at) != kept
                && matches!(content, Content::Setting { name, .. } if document.get(name) == option)
        });
    }

    /// Removes statements of some places.
    fn remove_statements(&mut self, places: &[Range<usize>], is_gone: impl Fn(&Self, usize) -> bool) {
        let mut gone = places
            .iter()
            .cloned()
            .flatten()
            .filter(|at| is_gone(self, *at))
            .collect::<Vec<_>>();
        gone.reverse();
        let before = std::mem::take(&mut self.statements);
        for (at, statement) in before.into_iter().enumerate() {
            if gone.pop_if(|gone| *gone == at).is_none() {
                self.statements.push(statement);
            } else if let Some(last) = self.statements.len().checked_sub(1)
                && self.statements[last].terminator > 0
                && statement.terminator == 0
            {
                let line_end = self.end_line(last);
                let raw = self.add_text(line_end);
                self.push(Statement::new(raw, 0, Content::Blank));
            }
        }
    }

    /// Adds an empty section of this kind at the end. Answers false, and does nothing, if that is no name.
    #[must_use]
    pub fn add(&mut self, kind: &str) -> bool {
        if !is_kind(kind) || self.text.len() + kind.len() + 16 > MOST_BYTES {
            return false;
        }
        if let Some(last) = self.statements.len().checked_sub(1) {
            let blank = format!("{}\n", self.end_line(last));
            let blank = self.add_text(&blank);
            self.push(Statement::new(blank, 0, Content::Blank));
        }
        let raw = self.add_text(&format!("config {kind}\n"));
        let kind = Span {
            start: raw.end - 1 - kind.len() as u32,
            end: raw.end - 1,
        };
        self.push(Statement::new(raw, 0, Content::Config { kind, name: None }));
        true
    }

    /// Where a section's statements are, each `config` statement included; nowhere if there is no such section.
    fn bodies(&self, section: usize) -> Vec<Range<usize>> {
        let mut bodies: Vec<Range<usize>> = Vec::new();
        let mut open = None;
        for (at, number) in self.numbers() {
            if let Some(start) = open.take() {
                bodies.push(start..at);
            }
            open = (number == section).then_some(at);
        }
        bodies.extend(open.map(|start| start..self.statements.len()));
        bodies
    }

    /// Adds a statement at the end. Blank ones that follow each other are one: nothing is ever put between them.
    fn push(&mut self, statement: Statement) {
        if statement.content == Content::Blank
            && let Some(last) = self.statements.last_mut()
            && last.content == Content::Blank
            && last.terminator == 0
            && last.raw.end == statement.raw.start
        {
            last.raw.end = statement.raw.end;
            last.terminator = statement.terminator;
            return;
        }
        self.statements.push(statement);
    }

    fn add_text(&mut self, text: &str) -> Span {
        let start = self.text.len();
        self.text.push_str(text);
        Span::of(start..self.text.len())
    }

    fn get(&self, span: Span) -> &str {
        &self.text[span.range()]
    }

    /// The text of a statement, in pieces.
    fn pieces(&self, statement: &Statement) -> [&str; 3] {
        let raw = self.get(statement.raw);
        match statement.content {
            Content::Setting {
                place,
                instead: Some(instead),
                ..
            } => {
                let Range { start, end } = place.range();
                [&raw[..start], self.get(instead), &raw[end..]]
            }
            _ => [raw, "", ""],
        }
    }

    fn line_ends(&self, statement: &Statement) -> usize {
        let count = |text: &str| text.bytes().filter(|b| *b == b'\n').count();
        self.pieces(statement).into_iter().map(count).sum()
    }

    /// Makes a statement the last one of its line, and returns the text to add after it so that the next one is on a line of its
    /// own.
    fn end_line(&mut self, statement: usize) -> &'static str {
        let terminator = std::mem::take(&mut self.statements[statement].terminator);
        if terminator > 0 {
            self.statements[statement].raw.end -= terminator;
            return "\n";
        }
        let pieces = self.pieces(&self.statements[statement]);
        let last = pieces.into_iter().rev().find(|piece| !piece.is_empty());
        let last = last.unwrap_or_default();
        // A backslash before the end of the file would join the next line to this one.
        if last.ends_with("\\\n") || last.ends_with("\\\r\n") {
            "\n"
        } else if last.ends_with('\n') {
            ""
        } else if last.ends_with("\\\r") {
            " \n"
        } else if last.ends_with('\\') {
            "\n\n"
        } else {
            "\n"
        }
    }
}

/// The number of a section: of a name that is in `named` already, that one, and else `next`.
fn number<'a>(name: Option<&'a str>, next: usize, named: &mut BTreeMap<&'a str, usize>) -> usize {
    name.map_or(next, |name| *named.entry(name).or_insert(next))
}

impl Error {
    fn at(line: usize, message: String) -> Self {
        Self {
            line,
            message,
            suggestion: None,
        }
    }
}

/// A place in the text. Half the size of a range, of which a file has many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// A span of a text of at most [`MOST_BYTES`].
    const fn of(range: Range<usize>) -> Self {
        Self {
            start: range.start as u32,
            end: range.end as u32,
        }
    }

    const fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

#[derive(Clone, Copy, Debug)]
struct Statement {
    /// Its text in the file, with everything up to the next statement.
    raw: Span,
    /// Line ends in that text before its first word.
    lead: u32,
    /// Bytes at the end of `raw` that let another statement follow on the same line, such as a `;`.
    terminator: u32,
    content: Content,
}

impl Statement {
    const fn new(raw: Span, lead: u32, content: Content) -> Self {
        Self {
            raw,
            lead,
            terminator: 0,
            content,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// A blank line or a comment.
    Blank,
    /// Names the file's package; says nothing that matters here.
    Package,
    Config {
        kind: Span,
        name: Option<Span>,
    },
    Setting {
        name: Span,
        value: Span,
        is_list: bool,
        /** Of the value in `raw`, from its start, quotes included. */
        place: Span,
        /** What a change has put in that place. */
        instead: Option<Span>,
        /** A `;` directly behind the value ends the line, whatever follows. */
        ends_line: bool,
    },
}

/// A name that an option may be given: letters, digits and `_`, as in libuci, and `-`, which libuci refuses.
fn is_option_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// A section's type: printable ASCII without blanks, as in libuci.
fn is_kind(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic())
}

/// The value in single quotes, the way `uci export` writes it.
pub(crate) fn quote(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests;

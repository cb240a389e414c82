//! The Unified Configuration Interface's file format, read and written without loss.
//!
//! A file is a row of statements, `config`, `option`, `list` and `package`, usually one a line. A [`Document`]
//! keeps the text of each, with its comments and blank lines: what is not changed is written back byte for byte.
//!
//! The grammar is that of OpenWrt's libuci (`file.c`): words are parted by blanks; `'…'` is literal; in `"…"` and
//! outside quotes a backslash takes the next character as it is; quoted text may go on over several lines;
//! neighbouring pieces join (`'it'\''s'`); `#` begins a comment and `;` ends a statement outside quotes.
//!
//! Reading takes time and memory in proportion to the text, whatever it contains: the text is kept once, and statements are
//! places in it.

mod lexer;

use std::fmt;
use std::ops::Range;

use sqm_core::nearest::nearest;
use sqm_core::units::shortened;

use lexer::{Lexer, Word};

/// A file, statement by statement.
#[derive(Clone, Debug)]
pub struct Document {
    /// The text that was read, and behind it what changes have put in. Nothing is ever taken out.
    text: String,
    statements: Vec<Statement>,
}

/// One `config` section and its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section<'a> {
    /// Its place among the sections of the file, from 0; for [`Document::set`].
    pub index: usize,
    /// Line of its `config` statement, from 1.
    pub line: usize,
    /// Its type, such as `queue`.
    pub kind: &'a str,
    /// Its name; many have none.
    pub name: Option<&'a str>,
    /// `option` and `list` statements in the order of the file.
    pub settings: Vec<Setting<'a>>,
}

impl<'a> Section<'a> {
    /// The value of an option: of several, the last, which holds.
    pub fn value(&self, option: &str) -> Option<&'a str> {
        let mut settings = self.settings.iter().rev();
        let setting = settings.find(|setting| setting.name == option && !setting.is_list)?;
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

/// More errors than this in one file are not reported: it is probably no UCI file at all.
const MOST_ERRORS: usize = 20;
/// A longer text, or one that changes have made longer, is no configuration.
const MOST_BYTES: usize = 256 << 20;

impl Document {
    /// Reads a file's text. All errors are answered together, up to twenty.
    pub fn parse(text: &str) -> Result<Self, Vec<Error>> {
        if text.len() > MOST_BYTES {
            let message = format!("the file has more than {MOST_BYTES} bytes");
            return Err(vec![Error::at(1, message)]);
        }
        let mut errors = Vec::new();
        let mut document = Self {
            text: text.to_owned(),
            statements: Vec::new(),
        };
        let mut in_section = false;
        if let Some(line) = shown_by_uci(text) {
            let message =
                "this is the output of 'uci show': use that of 'uci export sqm', which has the file's format";
            return Err(vec![Error::at(line, message.to_owned())]);
        }
        let mut lexer = Lexer::of(text);
        while lexer.at < text.len() && errors.len() < MOST_ERRORS {
            let (start, first_line) = (lexer.at, lexer.line);
            let words = match lexer.statement() {
                Ok(words) => words,
                Err(error) => {
                    errors.push(error);
                    break;
                }
            };
            let line = words.first().map_or(first_line, |word| word.line);
            match document.content(&words, start, in_section) {
                Ok(content) => {
                    in_section |= matches!(content, Content::Config { .. });
                    let lead = (line - first_line) as u32;
                    document.push(Span::of(start..lexer.at), lead, content);
                }
                Err((message, suggestion)) => errors.push(Error {
                    line,
                    message,
                    suggestion,
                }),
            }
        }
        if errors.is_empty() {
            document.statements.shrink_to_fit();
            Ok(document)
        } else {
            Err(errors)
        }
    }

    /// Reads a file's bytes, which must be UTF-8 without zero bytes.
    pub fn parse_bytes(bytes: &[u8]) -> Result<Self, Vec<Error>> {
        let stray = |at: usize, what: &str| {
            let line = 1 + bytes[..at].iter().filter(|b| **b == b'\n').count();
            let message = format!("{what} at byte {at}: this is not a text file");
            Err(vec![Error::at(line, message)])
        };
        if let Some(at) = bytes.iter().position(|b| *b == 0) {
            return stray(at, "zero byte");
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::parse(text),
            Err(error) => stray(error.valid_up_to(), "invalid UTF-8"),
        }
    }

    /// The sections in the order of the file.
    pub fn sections(&self) -> Vec<Section<'_>> {
        let mut sections: Vec<Section<'_>> = Vec::with_capacity(self.section_count());
        let mut next_line = 1;
        for statement in &self.statements {
            let line = next_line + statement.lead as usize;
            next_line += self.line_ends(statement);
            match statement.content {
                Content::Blank | Content::Package => {}
                Content::Config { kind, name } => sections.push(Section {
                    index: sections.len(),
                    line,
                    kind: self.get(kind),
                    name: name.map(|name| self.get(name)),
                    settings: Vec::new(),
                }),
                Content::Setting {
                    name, value, is_list, ..
                } => {
                    if let Some(section) = sections.last_mut() {
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

    /// The value of an option of a section: of several, the last, which holds. `None` if there is no such section or option.
    pub fn value(&self, section: usize, option: &str) -> Option<&str> {
        let body = self.body(section)?;
        self.statements[body]
            .iter()
            .rev()
            .find_map(|statement| match statement.content {
                Content::Setting {
                    name,
                    value,
                    is_list: false,
                    ..
                } if self.get(name) == option => Some(self.get(value)),
                _ => None,
            })
    }

    /// How many sections there are.
    pub fn section_count(&self) -> usize {
        self.statements
            .iter()
            .filter(|statement| statement.is_config())
            .count()
    }

    /// Gives an option of a section a value, touching only the line where it stands (the last, if there are
    /// several) or adding one at the section's end. Answers false, and does nothing, if there is no such section
    /// or the name is not one.
    #[must_use]
    pub fn set(&mut self, section: usize, option: &str, value: &str) -> bool {
        let quoted = quote(value);
        let has_room = self.text.len() + option.len() + 2 * quoted.len() + 16 < MOST_BYTES;
        let Some(body) = self.body(section).filter(|_| is_name(option) && has_room) else {
            return false;
        };
        let is_it = |at: &usize| match self.statements[*at].content {
            Content::Setting { name, is_list, .. } => !is_list && self.get(name) == option,
            _ => false,
        };
        if let Some(standing) = body.clone().rev().find(is_it) {
            let (new_value, new_quoted) = (self.add_text(value), self.add_text(&quoted));
            if let Content::Setting { value, instead, .. } = &mut self.statements[standing].content {
                (*value, *instead) = (new_value, Some(new_quoted));
            }
            return true;
        }

        let is_blank = |at: &usize| self.statements[*at].content == Content::Blank;
        let last = body.clone().rev().find(|at| !is_blank(at)).unwrap_or(body.start);
        let line_end = self.missing_line_end(last);
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
        };
        let statement = Statement {
            raw,
            lead: line_end.len() as u32,
            content,
        };
        self.statements.insert(last + 1, statement);
        true
    }

    /// Removes an option from a section. Returns false and changes nothing if there is no such section.
    #[must_use]
    pub fn unset(&mut self, section: usize, option: &str) -> bool {
        let Some(body) = self.body(section) else {
            return false;
        };
        let (text, mut at) = (&self.text, 0);
        self.statements.retain(|statement| {
            let inside = body.contains(&at);
            at += 1;
            !(inside
                && matches!(statement.content, Content::Setting { name, .. } if text[name.range()] == *option))
        });
        true
    }

    /// Takes a section away, its comments included. Answers false, and does nothing, if there is no such section.
    #[must_use]
    pub fn remove(&mut self, section: usize) -> bool {
        let Some(body) = self.body(section) else {
            return false;
        };
        self.statements.drain(body);
        true
    }

    /// Adds an empty section of this kind at the end. Answers false, and does nothing, if that is no name.
    #[must_use]
    pub fn add(&mut self, kind: &str) -> bool {
        if !is_name(kind) || self.text.len() + kind.len() + 16 > MOST_BYTES {
            return false;
        }
        if let Some(last) = self.statements.len().checked_sub(1) {
            let blank = format!("{}\n", self.missing_line_end(last));
            let blank = self.add_text(&blank);
            self.push(blank, 0, Content::Blank);
        }
        let raw = self.add_text(&format!("config {kind}\n"));
        let kind = Span {
            start: raw.end - 1 - kind.len() as u32,
            end: raw.end - 1,
        };
        self.push(raw, 0, Content::Config { kind, name: None });
        true
    }

    /// Where a section's statements are, its first line included.
    fn body(&self, section: usize) -> Option<Range<usize>> {
        let mut configs = (0..self.statements.len()).filter(|at| self.statements[*at].is_config());
        let start = configs.nth(section)?;
        Some(start..configs.next().unwrap_or(self.statements.len()))
    }

    /// Adds a statement at the end. Blank ones that follow each other are one: nothing is ever put between them.
    fn push(&mut self, raw: Span, lead: u32, content: Content) {
        if content == Content::Blank
            && let Some(last) = self.statements.last_mut()
            && last.content == Content::Blank
            && last.raw.end == raw.start
        {
            last.raw.end = raw.end;
            return;
        }
        self.statements.push(Statement { raw, lead, content });
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

    /// The text to add after a statement so that the next one is on a line of its own.
    fn missing_line_end(&self, statement: usize) -> &'static str {
        let pieces = self.pieces(&self.statements[statement]);
        let last = pieces.into_iter().rev().find(|piece| !piece.is_empty());
        if last.is_some_and(|last| last.ends_with('\n')) {
            ""
        } else {
            "\n"
        }
    }

    /// A word's text without its quotes.
    fn word(&mut self, word: &Word) -> Span {
        match &word.joined {
            Some(text) => self.add_text(text),
            None => Span::of(word.plain.clone()),
        }
    }

    /// A word that must be a name.
    fn name(&mut self, word: &Word) -> Result<Span, (String, Option<String>)> {
        let span = self.word(word);
        let text = self.get(span);
        if is_name(text) {
            return Ok(span);
        }
        let text = shortened(text);
        let message = format!("'{text}' is not a name: a name has only letters, digits, '_' and '-'");
        Err((message, None))
    }

    /// The meaning of the words of one statement, or an error with a better keyword.
    fn content(
        &mut self,
        words: &[Word],
        start: usize,
        in_section: bool,
    ) -> Result<Content, (String, Option<String>)> {
        let Some((first, words)) = words.split_first() else {
            return Ok(Content::Blank);
        };
        // libuci takes each keyword's first letter for the whole.
        let keyword = match first.text(&self.text) {
            "p" | "package" => "package",
            "c" | "config" => "config",
            "o" | "option" => "option",
            "l" | "list" => "list",
            other => {
                let suggestion = nearest(other, ["config", "option", "list", "package"]).map(str::to_owned);
                return Err((format!("unknown keyword '{}'", shortened(other)), suggestion));
            }
        };
        let wrong = |message: String| Err((message, None));
        match (keyword, words) {
            ("package", [_]) => Ok(Content::Package),
            ("config", [kind]) => Ok(Content::Config {
                kind: self.name(kind)?,
                name: None,
            }),
            ("config", [kind, name]) if name.text(&self.text).is_empty() => Ok(Content::Config {
                kind: self.name(kind)?,
                name: None,
            }),
            ("config", [kind, name]) => Ok(Content::Config {
                kind: self.name(kind)?,
                name: Some(self.name(name)?),
            }),
            ("option" | "list", _) if !in_section => {
                wrong(format!("'{keyword}' comes before the first 'config' line"))
            }
            ("option" | "list", [name, value]) => Ok(Content::Setting {
                name: self.name(name)?,
                value: self.word(value),
                is_list: keyword == "list",
                place: Span::of(value.place.start - start..value.place.end - start),
                instead: None,
            }),
            ("option" | "list", [name, _, _, ..]) => {
                let name = shortened(name.text(&self.text));
                wrong(format!(
                    "'{keyword} {name}' has several values; put quotes around a value with blanks"
                ))
            }
            ("option" | "list", [name]) => {
                let name = shortened(name.text(&self.text));
                wrong(format!("'{keyword} {name}' has no value"))
            }
            (keyword, []) => wrong(format!("'{keyword}' has no name: write one after it")),
            (keyword, _) => wrong(format!("too many words after '{keyword}'")),
        }
    }
}

/// The first line that is not blank or a comment, if it is one of `uci show`, such as `sqm.@queue[0].enabled='1'`.
fn shown_by_uci(text: &str) -> Option<usize> {
    let lines = text.trim_start_matches('\u{feff}').lines().enumerate();
    let mut lines = lines.map(|(at, line)| (at + 1, line.trim()));
    let (number, line) = lines.find(|(_, line)| !line.is_empty() && !line.starts_with('#'))?;
    let (path, _) = line.split_once('=')?;
    let (package, section) = path.split_once('.')?;
    let is_section = |byte: u8| byte.is_ascii_alphanumeric() || b"_-@[].".contains(&byte);
    (is_name(package) && !section.is_empty() && section.bytes().all(is_section)).then_some(number)
}

/// The text that was read, with the changes made since.
impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pieces = self
            .statements
            .iter()
            .flat_map(|statement| self.pieces(statement));
        pieces.into_iter().try_for_each(|piece| f.write_str(piece))
    }
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
    content: Content,
}

impl Statement {
    const fn is_config(&self) -> bool {
        matches!(self.content, Content::Config { .. })
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
    },
}

/// Letters, digits and `_`, as libuci has it, and the `-` of its later versions.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// The value in single quotes, the way `uci export` writes it.
pub(crate) fn quote(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests;

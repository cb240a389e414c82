//! The Unified Configuration Interface's file format, read and written without loss.
//!
//! A file is a row of statements, `config`, `option`, `list` and `package`, usually one a line. A [`Document`]
//! keeps the text of each, with its comments and blank lines: what is not changed is written back byte for byte.
//!
//! The grammar is that of OpenWrt's libuci (`file.c`): words are parted by blanks; `'…'` is literal; in `"…"` and
//! outside quotes a backslash takes the next character as it is; quoted text may go on over several lines;
//! neighbouring pieces join (`'it'\''s'`); `#` begins a comment and `;` ends a statement outside quotes.
//!
//! Reading takes time and memory in proportion to the text, whatever it contains.

use std::fmt;
use std::ops::Range;

use sqm_core::nearest::nearest;
use sqm_core::units::shortened;

/// A file, statement by statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
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
    /// What is wrong.
    pub message: String,
    /// The keyword that was probably meant.
    pub suggestion: Option<String>,
}

/// More errors than this in one file are not reported: it is probably no UCI file at all.
const MOST_ERRORS: usize = 20;

impl Document {
    /// Reads a file's text. All errors are answered together, up to twenty.
    pub fn parse(text: &str) -> Result<Self, Vec<Error>> {
        let mut errors = Vec::new();
        let mut statements = Vec::new();
        let mut in_section = false;
        let mut lexer = Lexer { text, at: 0, line: 1 };
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
            match Content::of(words, start, in_section) {
                Ok(content) => {
                    in_section |= matches!(content, Content::Config { .. });
                    statements.push(Statement {
                        raw: text[start..lexer.at].to_owned(),
                        lead: line - first_line,
                        line,
                        content,
                    });
                }
                Err((message, suggestion)) => errors.push(Error {
                    line,
                    message,
                    suggestion,
                }),
            }
        }
        if errors.is_empty() {
            Ok(Self { statements })
        } else {
            Err(errors)
        }
    }

    /// Reads a file's bytes, which must be UTF-8 without zero bytes.
    pub fn parse_bytes(bytes: &[u8]) -> Result<Self, Vec<Error>> {
        let stray = |at: usize, what: &str| {
            let line = 1 + bytes[..at].iter().filter(|b| **b == b'\n').count();
            let message = format!("{what} at byte {at}: this is not a text file");
            Err(vec![Error {
                line,
                message,
                suggestion: None,
            }])
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
        let mut sections: Vec<Section<'_>> = Vec::new();
        for Statement { line, content, .. } in &self.statements {
            match content {
                Content::Blank | Content::Package => {}
                Content::Config { kind, name } => sections.push(Section {
                    index: sections.len(),
                    line: *line,
                    kind,
                    name: name.as_deref(),
                    settings: Vec::new(),
                }),
                Content::Setting {
                    name, value, is_list, ..
                } => {
                    if let Some(section) = sections.last_mut() {
                        section.settings.push(Setting {
                            line: *line,
                            name,
                            value,
                            is_list: *is_list,
                        });
                    }
                }
            }
        }
        sections
    }

    /// Gives an option of a section a value, touching only the line where it stands (the last, if there are
    /// several) or adding one at the section's end. Answers false, and does nothing, if there is no such section
    /// or the name is not one.
    #[must_use]
    pub fn set(&mut self, section: usize, option: &str, value: &str) -> bool {
        let Some(place) = self.body(section).filter(|_| is_name(option)) else {
            return false;
        };
        let start = place.start;
        let body = &mut self.statements[place];
        let standing = body
            .iter_mut()
            .rev()
            .find_map(|Statement { raw, content, .. }| match content {
                Content::Setting {
                    name,
                    value,
                    is_list: false,
                    place,
                } if name == option => Some((raw, value, place)),
                _ => None,
            });
        let quoted = quote(value);
        if let Some((raw, old, place)) = standing {
            raw.replace_range(place.clone(), &quoted);
            place.end = place.start + quoted.len();
            value.clone_into(old);
            self.number_lines();
            return true;
        }

        let last = body
            .iter()
            .rposition(|s| s.content != Content::Blank)
            .unwrap_or(0);
        if !body[last].raw.ends_with('\n') {
            body[last].raw.push('\n');
        }
        let before = format!("\toption {option} ");
        let content = Content::Setting {
            name: option.to_owned(),
            value: value.to_owned(),
            is_list: false,
            place: before.len()..before.len() + quoted.len(),
        };
        self.statements.insert(
            start + last + 1,
            Statement {
                raw: format!("{before}{quoted}\n"),
                lead: 0,
                line: 0,
                content,
            },
        );
        self.number_lines();
        true
    }

    /// Takes an option away from a section, wherever it stands in it. Answers false, and does nothing, if there is no such
    /// section.
    #[must_use]
    pub fn unset(&mut self, section: usize, option: &str) -> bool {
        let Some(body) = self.body(section) else {
            return false;
        };
        let mut at = 0;
        self.statements.retain(|statement| {
            let inside = body.contains(&at);
            at += 1;
            !(inside && matches!(&statement.content, Content::Setting { name, .. } if name == option))
        });
        self.number_lines();
        true
    }

    /// Takes a section away, its comments included. Answers false, and does nothing, if there is no such section.
    #[must_use]
    pub fn remove(&mut self, section: usize) -> bool {
        let Some(body) = self.body(section) else {
            return false;
        };
        self.statements.drain(body);
        self.number_lines();
        true
    }

    /// Adds an empty section of this kind at the end. Answers false, and does nothing, if that is no name.
    #[must_use]
    pub fn add(&mut self, kind: &str) -> bool {
        if !is_name(kind) {
            return false;
        }
        if let Some(last) = self.statements.last_mut()
            && !last.raw.ends_with('\n')
        {
            last.raw.push('\n');
        }
        let content = Content::Config {
            kind: kind.to_owned(),
            name: None,
        };
        let blank = (!self.statements.is_empty()).then(|| ("\n".to_owned(), Content::Blank));
        let statements = blank.into_iter().chain([(format!("config {kind}\n"), content)]);
        self.statements.extend(statements.map(|(raw, content)| Statement {
            raw,
            lead: 0,
            line: 0,
            content,
        }));
        self.number_lines();
        true
    }

    /// Where a section's statements are, its first line included.
    fn body(&self, section: usize) -> Option<Range<usize>> {
        let is_config = |s: &Statement| matches!(s.content, Content::Config { .. });
        let mut configs = (0..self.statements.len()).filter(|at| is_config(&self.statements[*at]));
        let start = configs.nth(section)?;
        Some(start..configs.next().unwrap_or(self.statements.len()))
    }

    /// Counts the lines anew after a change.
    fn number_lines(&mut self) {
        let mut line = 1;
        for statement in &mut self.statements {
            statement.line = line + statement.lead;
            line += statement.raw.bytes().filter(|b| *b == b'\n').count();
        }
    }
}

/// The text that was read, with the changes made since.
impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.statements
            .iter()
            .try_for_each(|statement| f.write_str(&statement.raw))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Statement {
    /// Its text in the file, with everything up to the next statement.
    raw: String,
    /// Escaped line ends in that text before its first word.
    lead: usize,
    line: usize,
    content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    /// A blank line or a comment.
    Blank,
    /// Names the file's package; says nothing that matters here.
    Package,
    Config {
        kind: String,
        name: Option<String>,
    },
    Setting {
        name: String,
        value: String,
        is_list: bool,
        /** Of the value in `raw`, quotes included. */
        place: Range<usize>,
    },
}

impl Content {
    /// What the words of one statement mean; or what is wrong, with a better keyword.
    fn of(words: Vec<Word>, start: usize, in_section: bool) -> Result<Self, (String, Option<String>)> {
        let Some(first) = words.first() else {
            return Ok(Self::Blank);
        };
        // libuci takes each keyword's first letter for the whole.
        let keyword = match first.text.as_str() {
            "p" | "package" => "package",
            "c" | "config" => "config",
            "o" | "option" => "option",
            "l" | "list" => "list",
            other => {
                let suggestion = nearest(other, ["config", "option", "list", "package"]).map(str::to_owned);
                return Err((format!("unknown keyword '{}'", shortened(other)), suggestion));
            }
        };
        let named = |word: &Word| {
            if is_name(&word.text) {
                Ok(word.text.clone())
            } else {
                let text = shortened(&word.text);
                Err((
                    format!("'{text}' is not a name: only letters, digits, '_' and '-' may stand in one"),
                    None,
                ))
            }
        };
        match (keyword, &words[1..]) {
            ("package", [_]) => Ok(Self::Package),
            ("config", [kind]) => Ok(Self::Config {
                kind: named(kind)?,
                name: None,
            }),
            ("config", [kind, name]) if name.text.is_empty() => Ok(Self::Config {
                kind: named(kind)?,
                name: None,
            }),
            ("config", [kind, name]) => Ok(Self::Config {
                kind: named(kind)?,
                name: Some(named(name)?),
            }),
            ("option" | "list", _) if !in_section => {
                Err((format!("'{keyword}' stands before the first 'config' line"), None))
            }
            ("option" | "list", [name, value]) => Ok(Self::Setting {
                name: named(name)?,
                value: value.text.clone(),
                is_list: keyword == "list",
                place: value.place.start - start..value.place.end - start,
            }),
            ("option" | "list", [name, _, _, ..]) => {
                let name = shortened(&name.text);
                Err((
                    format!("'{keyword} {name}' has several values; put quotes around a value with blanks"),
                    None,
                ))
            }
            ("option" | "list", [name]) => Err((
                format!("'{keyword} {}' has no value", shortened(&name.text)),
                None,
            )),
            (keyword, []) => Err((format!("'{keyword}' stands alone: a name must follow"), None)),
            (keyword, _) => Err((format!("too many words after '{keyword}'"), None)),
        }
    }
}

struct Word {
    text: String,
    line: usize,
    place: Range<usize>,
}

/// Cuts a text into statements of words. The text's special characters are all ASCII, so that bytes may be looked
/// at and slices still fall between characters.
struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl Lexer<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Takes one byte, counting lines.
    fn advance(&mut self) {
        if self.peek() == Some(b'\n') {
            self.line += 1;
        }
        self.at += 1;
    }

    /// The words up to the end of a statement, and moves past that end.
    fn statement(&mut self) -> Result<Vec<Word>, Error> {
        let mut words = Vec::new();
        while let Some(byte) = self.peek() {
            match byte {
                b'\n' | b';' => {
                    self.advance();
                    break;
                }
                b'#' => {
                    while self.peek().is_some_and(|b| b != b'\n') {
                        self.advance();
                    }
                }
                _ if is_blank(byte) => self.advance(),
                b'\\' if self.text[self.at..].starts_with("\\\n") => self.escaped(&mut String::new())?,
                _ => words.push(self.word()?),
            }
        }
        Ok(words)
    }

    fn word(&mut self) -> Result<Word, Error> {
        let (start, line) = (self.at, self.line);
        let mut text = String::new();
        while let Some(byte) = self.peek() {
            match byte {
                b'\'' | b'"' => self.quoted(byte, &mut text)?,
                b'\\' => self.escaped(&mut text)?,
                b'\n' | b';' | b'#' => break,
                _ if is_blank(byte) => break,
                _ => self.plain(&mut text, |b| is_blank(b) || b"'\"\\\n;#".contains(&b)),
            }
        }
        Ok(Word {
            text,
            line,
            place: start..self.at,
        })
    }

    fn quoted(&mut self, quote: u8, text: &mut String) -> Result<(), Error> {
        let line = self.line;
        self.advance();
        while let Some(byte) = self.peek() {
            match byte {
                _ if byte == quote => {
                    self.advance();
                    return Ok(());
                }
                b'\\' if quote == b'"' => self.escaped(text)?,
                _ => self.plain(text, |b| b == quote || (b == b'\\' && quote == b'"')),
            }
        }
        let message = format!("the quote {} that begins here never ends", char::from(quote));
        Err(Error {
            line,
            message,
            suggestion: None,
        })
    }

    /// Text up to a byte at which to `stop`, as it stands.
    fn plain(&mut self, text: &mut String, stop: impl Fn(u8) -> bool) {
        let start = self.at;
        while self.peek().is_some_and(|b| !stop(b)) {
            self.advance();
        }
        text.push_str(&self.text[start..self.at]);
    }

    /// A backslash and what it protects; one before a line end joins the lines.
    fn escaped(&mut self, text: &mut String) -> Result<(), Error> {
        self.advance();
        let rest = &self.text[self.at..];
        let Some(next) = rest.chars().next().filter(|_| rest != "\n") else {
            let message = "the file ends in a backslash".to_owned();
            return Err(Error {
                line: self.line,
                message,
                suggestion: None,
            });
        };
        if next != '\n' {
            text.push(next);
        }
        for _ in 0..next.len_utf8() {
            self.advance();
        }
        Ok(())
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | 0x0b | 0x0c)
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

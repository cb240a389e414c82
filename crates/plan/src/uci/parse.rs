//! A text read into a [`Document`]: which statements there are, and what libuci refuses or loses.

use std::collections::BTreeMap;

use sqm_core::nearest::nearest;
use sqm_core::units::shortened;

use super::bytes::{to_bytes, to_text};
use super::lexer::{Lexer, Word};
use super::{Content, Document, Error, MOST_BYTES, Span, Statement, is_kind};

const KEYWORDS: [&str; 4] = ["config", "option", "list", "package"];
/// More errors than this in one file are not reported: it is probably no UCI file at all.
const MOST_ERRORS: usize = 20;

/// Reads a file's bytes. All errors are answered together, up to twenty.
pub(super) fn document(bytes: &[u8]) -> Result<Document, Vec<Error>> {
    let text = readable(bytes)?;
    let mut parser = Parser::of(&text);
    parser.read();
    match parser.errors.is_empty() {
        true => Ok(parser.document),
        false => Err(parser.errors),
    }
}

/// The file's bytes with each line in error as a comment, and the errors; no error if there is none. A section whose `config` line is
/// in error becomes a comment as a whole, because its options would belong to the section before it.
///
/// # Errors
/// The file is not UCI at all: all errors.
pub fn without_errors(bytes: &[u8]) -> Result<(Vec<u8>, Vec<Error>), Vec<Error>> {
    let text = readable(bytes)?;
    let mut parser = Parser::of(&text);
    parser.read();
    if parser.errors.len() >= MOST_ERRORS {
        return Err(parser.errors);
    }
    let mut rest = String::with_capacity(text.len() + 2 * parser.bad.len());
    let mut end = 0;
    for bad in parser.bad {
        rest += &text[end..bad.range().start];
        for line in text[bad.range()].split_inclusive('\n') {
            rest.push('#');
            rest += line;
        }
        end = bad.range().end;
    }
    rest += &text[end..];
    Ok((to_bytes(&rest), parser.errors))
}

/// The text of a file that may be UCI.
fn readable(bytes: &[u8]) -> Result<std::borrow::Cow<'_, str>, Vec<Error>> {
    if bytes.len() > MOST_BYTES / 4 {
        let message = format!("the file has more than {} bytes", MOST_BYTES / 4);
        return Err(vec![Error::at(1, message)]);
    }
    if let Some(at) = bytes.iter().position(|b| *b == 0) {
        let line = 1 + bytes[..at].iter().filter(|b| **b == b'\n').count();
        let message = format!("zero byte at byte {at}: this is not a text file");
        return Err(vec![Error::at(line, message)]);
    }
    let text = to_text(bytes);
    match shown_by_uci(&text) {
        Some(line) => {
            let message =
                "this is the output of 'uci show': use that of 'uci export sqm', which has the file's format";
            Err(vec![Error::at(line, message.to_owned())])
        }
        None => Ok(text),
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
    (is_package(package) && !section.is_empty() && section.bytes().all(is_section)).then_some(number)
}

struct Parser<'a> {
    text: &'a str,
    lexer: Lexer<'a>,
    document: Document,
    /// The start of the statement that is being read.
    start: usize,
    errors: Vec<Error>,
    /// Statements in error, and those of a section whose `config` line is in error.
    bad: Vec<Span>,
    in_section: bool,
    /// The last `config` line was in error.
    in_bad_section: bool,
    /// Type and line of each named section.
    named: BTreeMap<String, (Span, usize)>,
}

/// A statement that was read, and where its last argument ends.
type Read = (Content, usize);

impl<'a> Parser<'a> {
    fn of(text: &'a str) -> Self {
        Self {
            text,
            lexer: Lexer::of(text),
            document: Document {
                text: text.to_owned(),
                statements: Vec::new(),
                remarks: Vec::new(),
            },
            start: 0,
            errors: Vec::new(),
            bad: Vec::new(),
            in_section: false,
            in_bad_section: false,
            named: BTreeMap::new(),
        }
    }

    fn read(&mut self) {
        while self.lexer.at < self.text.len() && self.errors.len() < MOST_ERRORS {
            let start = self.lexer.at;
            self.start = start;
            if self.lexer.is_at_end() && self.lexer.begin_line() {
                let message = "the file begins with a byte order mark (U+FEFF), with which OpenWrt's libuci refuses it: save it \
                               without one";
                self.remark(1, message.to_owned());
            }
            let Some(keyword) = self.lexer.keyword() else {
                self.push(start, start, Content::Blank);
                continue;
            };
            match self.statement(&keyword) {
                Ok((Content::Setting { .. } | Content::Blank, _)) if self.in_bad_section => {
                    self.lexer.skip_line();
                    self.bad.push(Span::of(start..self.lexer.at));
                }
                Ok((content, end)) => {
                    if self.lexer.is_rest_blank() {
                        self.lexer.skip_line();
                    }
                    if matches!(content, Content::Config { .. }) {
                        (self.in_section, self.in_bad_section) = (true, false);
                    }
                    self.push(start, end, content);
                }
                Err(error) => {
                    let keyword = keyword.text(self.text).trim_end();
                    if is_config(keyword) || error.suggestion.as_deref() == Some("config") {
                        (self.in_section, self.in_bad_section) = (true, true);
                    }
                    self.errors.push(error);
                    self.lexer.skip_line();
                    self.bad.push(Span::of(start..self.lexer.at));
                }
            }
        }
        self.document.statements.shrink_to_fit();
    }

    /// Keeps a statement from `start` to where the lexer is. Behind `end` is what lets another statement follow on its line.
    fn push(&mut self, start: usize, end: usize, content: Content) {
        let raw = Span::of(start..self.lexer.at);
        let mut statement = Statement::new(raw, 0, content);
        if end > start {
            statement.terminator = (self.lexer.at - end) as u32;
        }
        self.document.push(statement);
    }

    fn remark(&mut self, line: usize, message: String) {
        self.document.remarks.push(Error::at(line, message));
    }

    /// The statement of a keyword that was read. The end of its last argument is 0 if nothing but a line end or a comment is behind it.
    fn statement(&mut self, first: &Word) -> Result<Read, Error> {
        let keyword = keyword(first.text(self.text)).map_err(|error| Error {
            line: first.line,
            ..error
        })?;
        let wrong = |message: String| Err(Error::at(first.line, message));
        if self.lexer.is_at_end() {
            return wrong(format!("'{keyword}' has no name: write one after it"));
        }
        let name = self.lexer.argument()?;
        let second = match keyword {
            "package" => None,
            _ => Some(self.lexer.argument()?),
        };
        let end = self.lexer.at;
        let rest = self.lexer.argument()?;
        let arguments = [Some(&name), second.as_ref(), Some(&rest)];
        if !rest.is_empty() {
            let has_semicolon = arguments.into_iter().flatten().any(|word| word.is_semicolon);
            return wrong(match (keyword, has_semicolon) {
                (_, true) => format!(
                    "libuci takes the ';' for an argument of '{keyword}': write each statement on a line of its own"
                ),
                ("option" | "list", false) => {
                    let name = shortened(name.text(self.text));
                    format!("'{keyword} {name}' has several values; put quotes around a value with blanks")
                }
                (_, false) => format!("too many words after '{keyword}'"),
            });
        }
        if name.is_empty() {
            return wrong(format!("'{keyword}' has no name: write one after it"));
        }
        let content = match (keyword, &second) {
            ("config", Some(second)) => self.config(&name, second)?,
            ("option" | "list", Some(second)) => self.setting(keyword, &name, second, first)?,
            _ if is_package(name.text(self.text)) => Content::Package,
            _ => {
                let name = shortened(name.text(self.text));
                return wrong(format!("'{name}' is not a name of a package"));
            }
        };
        for word in arguments.into_iter().flatten() {
            self.report_lost(word);
        }
        Ok((content, if rest.is_written() { end } else { 0 }))
    }

    fn config(&mut self, kind: &Word, name: &Word) -> Result<Content, Error> {
        if !is_kind(kind.text(self.text)) {
            let shown = shortened(kind.text(self.text));
            let message =
                format!("'{shown}' is not a section type: a type has no blanks, and only ASCII characters");
            return Err(Error::at(kind.line, message));
        }
        if name.is_empty() {
            let kind = self.word(kind);
            return Ok(Content::Config { kind, name: None });
        }
        self.check_name(name, "section")?;
        let (text, line) = (name.text(self.text).to_owned(), kind.line);
        if let Some((earlier, earlier_line)) = self.named.get(&text)
            && self.document.get(*earlier) != kind.text(self.text)
        {
            let message = format!(
                "section '{}' has the type '{}' on line {earlier_line} and '{}' here: give this one another name",
                shortened(&text),
                shortened(self.document.get(*earlier)),
                shortened(kind.text(self.text)),
            );
            return Err(Error::at(line, message));
        }
        let (kind, name) = (self.word(kind), self.word(name));
        self.named.entry(text).or_insert((kind, line));
        Ok(Content::Config {
            kind,
            name: Some(name),
        })
    }

    fn setting(&mut self, keyword: &str, name: &Word, value: &Word, first: &Word) -> Result<Content, Error> {
        if !self.in_section {
            let message = format!("'{keyword}' comes before the first 'config' line");
            return Err(Error::at(first.line, message));
        }
        self.check_name(name, "option")?;
        if value.is_empty() && (value.is_semicolon || !value.is_quoted(self.text)) {
            let shown = shortened(name.text(self.text));
            let message =
                format!("'{keyword} {shown}' has no value and no effect: give it one, or remove it");
            self.remark(first.line, message);
            return Ok(Content::Blank);
        }
        let start = self.start;
        Ok(Content::Setting {
            name: self.word(name),
            value: self.word(value),
            is_list: keyword == "list",
            place: Span::of(value.place.start - start..value.place.end - start),
            instead: None,
            ends_line: value.lost.is_some(),
        })
    }

    /// Reports what a `;` makes libuci lose, unless it is a comment.
    fn report_lost(&mut self, word: &Word) {
        let Some(lost) = &word.lost else { return };
        let lost = self.text[lost.clone()].trim();
        if !lost.is_empty() && !lost.starts_with('#') {
            let (lost, before) = (shortened(lost), shortened(word.text(self.text)));
            let message = format!(
                "ignored: '{lost}': a ';' directly behind a word without quotes ('{before}') ends the line. Write each \
                 statement on a line of its own, or put quotes around a value with a ';'"
            );
            self.remark(word.line, message);
        }
    }

    /// Checks a name, and reports one that libuci refuses and that is read here.
    fn check_name(&mut self, word: &Word, what: &str) -> Result<(), Error> {
        let text = word.text(self.text);
        let is_part = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        let shown = shortened(text);
        if !text.bytes().all(is_part) {
            let message = format!("'{shown}' is not a name: a name has only letters, digits and '_'");
            return Err(Error::at(word.line, message));
        }
        if text.contains('-') {
            let better = shown.replace('-', "_");
            let message = format!(
                "OpenWrt refuses the '-' in the {what} name '{shown}', and its programs do not see this {what}: name it \
                 '{better}'"
            );
            self.remark(word.line, message);
        }
        Ok(())
    }

    /// A word's text without its quotes.
    fn word(&mut self, word: &Word) -> Span {
        match &word.joined {
            Some(text) => self.document.add_text(text),
            None => Span::of(word.plain.clone()),
        }
    }
}

/// libuci takes each keyword's first letter for the whole.
fn known(word: &str) -> Option<&'static str> {
    let mut keywords = KEYWORDS.into_iter();
    keywords.find(|keyword| word == *keyword || (word.len() == 1 && keyword.starts_with(word)))
}

fn is_config(word: &str) -> bool {
    known(word) == Some("config")
}

/// The keyword that a word is, or an error without a line.
fn keyword(word: &str) -> Result<&'static str, Error> {
    if let Some(keyword) = known(word) {
        return Ok(keyword);
    }
    let bare = word.trim_end();
    let unquoted = bare.replace(['\'', '"', '\\'], "");
    let mut suggestion = None;
    let message = if let Some(keyword) = known(bare) {
        format!("'{keyword}' has no name: write one after it")
    } else if bare.is_empty() {
        "there is a ';' at the end of the line: remove it".to_owned()
    } else if bare.starts_with(';') {
        "there is no statement in front of the ';': write each statement on a line of its own, without a ';'"
            .to_owned()
    } else if let Some(keyword) = known(&unquoted) {
        format!("a keyword must not have quotes: write {keyword} without them")
    } else {
        suggestion = nearest(bare, KEYWORDS).map(str::to_owned);
        format!("unknown keyword '{}'", shortened(bare))
    };
    Err(Error {
        line: 0,
        message,
        suggestion,
    })
}

/// A package's name, of which libuci allows a '-'.
fn is_package(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

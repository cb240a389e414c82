//! A text cut into keywords and arguments, by the rules of libuci.
//!
//! libuci reads a line, and takes up another one when a quote is still open at its end or a backslash joins the two. Where a line
//! ends decides what a `;`, a comment or an error affects, so this lexer keeps the end of the lines that it has taken up.

use std::ops::Range;

use super::Error;

const BYTE_ORDER_MARK: char = '\u{feff}';

/// A word, its place and its text.
pub(super) struct Word {
    /// The place of its text without the quotes; empty if there is none.
    pub(super) plain: Range<usize>,
    /// Its text, if that stands nowhere in one piece.
    pub(super) joined: Option<String>,
    pub(super) line: usize,
    /// Its place with its quotes.
    pub(super) place: Range<usize>,
    /// The rest of the line, which is lost because a `;` follows the word directly and the word has no quotes.
    pub(super) lost: Option<Range<usize>>,
    /// The word is a `;` that stands where an argument is expected: libuci takes it for an empty argument.
    pub(super) is_semicolon: bool,
}

impl Word {
    /// Its text; `source` begins with the text that it was cut from.
    pub(super) fn text<'a>(&'a self, source: &'a str) -> &'a str {
        match &self.joined {
            Some(joined) => joined,
            None => &source[self.plain.clone()],
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.joined.is_none() && self.plain.is_empty()
    }

    /// True if the word has quotes.
    pub(super) fn is_quoted(&self, source: &str) -> bool {
        source[self.place.clone()].contains(['\'', '"'])
    }

    /// True if the argument takes up any of the text, a comment aside.
    pub(super) fn is_written(&self) -> bool {
        self.is_semicolon || !self.place.is_empty()
    }

    fn join(&mut self, piece: Range<usize>, source: &str) {
        if let Some(joined) = &mut self.joined {
            joined.push_str(&source[piece]);
        } else if self.plain.is_empty() {
            self.plain = piece;
        } else if self.plain.end == piece.start {
            self.plain.end = piece.end;
        } else if !piece.is_empty() {
            self.joined = Some([&source[self.plain.clone()], &source[piece]].concat());
        }
    }
}

/// The text's special characters are all ASCII, so that bytes may be looked at and slices still fall between characters.
pub(super) struct Lexer<'a> {
    text: &'a str,
    pub(super) at: usize,
    pub(super) line: usize,
    /// The end of the lines that were taken up.
    end: usize,
}

impl<'a> Lexer<'a> {
    pub(super) const fn of(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            line: 1,
            end: 0,
        }
    }

    /// True at the end of the lines that were taken up: behind a line, or behind a keyword that is the last word of the text.
    pub(super) const fn is_at_end(&self) -> bool {
        self.at == self.end
    }

    /// True if no statement follows on this line.
    pub(super) fn is_rest_blank(&self) -> bool {
        self.text.as_bytes()[self.at..self.end]
            .iter()
            .copied()
            .all(is_blank)
    }

    /// Takes up a line and skips the white space at its start. A mark with which some editors begin a file (U+FEFF) is no text;
    /// returns true if there is one.
    pub(super) fn begin_line(&mut self) -> bool {
        self.take_line();
        let has_mark = self.at == 0 && self.text.starts_with(BYTE_ORDER_MARK);
        if has_mark {
            self.at = BYTE_ORDER_MARK.len_utf8();
        }
        self.skip(is_space);
        has_mark
    }

    /// The keyword of the next statement on this line, with all that stands before the next blank; `None` if the line ends or the
    /// rest of it is a comment.
    pub(super) fn keyword(&mut self) -> Option<Word> {
        self.skip(is_blank);
        if matches!(self.peek(), None | Some(b'#')) {
            self.skip_line();
            return None;
        }
        let mut word = self.nothing();
        self.plain(&mut word, is_blank);
        word.place.end = self.at;
        Some(word)
    }

    /// Skips the rest of the lines that were taken up.
    pub(super) fn skip_line(&mut self) {
        self.skip(|_| true);
    }

    /// The next argument of a statement. An argument that is not there is empty.
    pub(super) fn argument(&mut self) -> Result<Word, Error> {
        self.skip(is_space);
        let mut word = self.nothing();
        if self.peek() == Some(b';') {
            self.advance();
            word.is_semicolon = true;
            return Ok(word);
        }
        loop {
            match self.peek() {
                None | Some(b';' | b'#') => break,
                Some(quote @ (b'\'' | b'"')) => self.quoted(quote, &mut word)?,
                Some(b'\\') => self.escaped(&mut word),
                Some(_) => self.plain(&mut word, |b| is_space(b) || b"'\"\\;#".contains(&b)),
            }
            if self.peek().is_none_or(is_space) {
                break;
            }
        }
        word.place.end = self.at;
        match self.peek() {
            // libuci ends a word with a zero byte. Behind a word that is as long as what it was read from, that byte replaces
            // the ';', and libuci takes it for the end of the line.
            Some(b';') if word.text(self.text).len() == word.place.len() => {
                let behind = self.at + 1;
                self.skip_line();
                word.lost = Some(behind..self.at);
            }
            Some(b'#') => self.skip_line(),
            Some(byte) if is_space(byte) => self.advance(),
            _ => {}
        }
        Ok(word)
    }

    fn peek(&self) -> Option<u8> {
        let byte = self.text.as_bytes().get(self.at).copied();
        byte.filter(|_| self.at < self.end)
    }

    /// Takes one byte, counting lines.
    fn advance(&mut self) {
        if self.peek() == Some(b'\n') {
            self.line += 1;
        }
        self.at += 1;
    }

    fn skip(&mut self, skipped: impl Fn(u8) -> bool) {
        while self.peek().is_some_and(&skipped) {
            self.advance();
        }
    }

    /// Takes up another line. Returns false at the end of the text.
    fn take_line(&mut self) -> bool {
        let rest = &self.text.as_bytes()[self.end..];
        self.end += rest
            .iter()
            .position(|b| *b == b'\n')
            .map_or(rest.len(), |at| at + 1);
        !rest.is_empty()
    }

    /// A word before its first letter.
    const fn nothing(&self) -> Word {
        Word {
            plain: 0..0,
            joined: None,
            line: self.line,
            place: self.at..self.at,
            lost: None,
            is_semicolon: false,
        }
    }

    fn quoted(&mut self, quote: u8, word: &mut Word) -> Result<(), Error> {
        let line = self.line;
        self.advance();
        loop {
            match self.peek() {
                None => {
                    if !self.take_line() {
                        let message =
                            format!("the quote {} that begins here is not closed", char::from(quote));
                        return Err(Error::at(line, message));
                    }
                }
                Some(byte) if byte == quote => {
                    self.advance();
                    return Ok(());
                }
                Some(b'\\') if quote == b'"' => self.escaped(word),
                Some(_) => self.plain(word, |b| b == quote || (b == b'\\' && quote == b'"')),
            }
        }
    }

    /// Text up to a byte at which to `stop`, as it stands.
    fn plain(&mut self, word: &mut Word, stop: impl Fn(u8) -> bool) {
        let start = self.at;
        self.skip(|b| !stop(b));
        word.join(start..self.at, self.text);
    }

    /// A backslash and what it protects; one before a line end joins the lines.
    fn escaped(&mut self, word: &mut Word) {
        self.advance();
        let rest = &self.text[self.at..self.end];
        if matches!(rest, "" | "\n" | "\r\n") {
            self.skip_line();
            self.take_line();
            return;
        }
        let start = self.at;
        for _ in 0..rest.chars().next().map_or(0, char::len_utf8) {
            self.advance();
        }
        word.join(start..self.at, self.text);
    }
}

/// True for a byte between arguments. Line ends are among them: the lines that were taken up end at the first one outside quotes.
fn is_space(byte: u8) -> bool {
    is_blank(byte) || matches!(byte, b'\n' | b'\r' | 0x0b | 0x0c)
}

/// True for a byte that ends a keyword.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

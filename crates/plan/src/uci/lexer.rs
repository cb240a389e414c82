//! A text cut into statements of words.

use std::ops::Range;

use super::Error;

/// Words of one statement that are kept: more than any statement has, so that one with too many is known.
const MOST_WORDS: usize = 4;
const BYTE_ORDER_MARK: char = '\u{feff}';

/// A word, where it stands and what it says.
pub(super) struct Word {
    /// Where its text stands without its quotes; empty if there is none.
    pub(super) plain: Range<usize>,
    /// Its text, if it stands nowhere in one piece.
    pub(super) joined: Option<String>,
    pub(super) line: usize,
    /// Where it stands with its quotes.
    pub(super) place: Range<usize>,
}

impl Word {
    /// Its text; `source` begins with the text that it was cut from.
    pub(super) fn text<'a>(&'a self, source: &'a str) -> &'a str {
        match &self.joined {
            Some(joined) => joined,
            None => &source[self.plain.clone()],
        }
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
}

impl<'a> Lexer<'a> {
    pub(super) const fn of(text: &'a str) -> Self {
        Self { text, at: 0, line: 1 }
    }

    /// True at the mark with which some editors begin a file (U+FEFF). It is no text.
    fn is_at_byte_order_mark(&self) -> bool {
        self.at == 0 && self.text.starts_with(BYTE_ORDER_MARK)
    }

    /// The first words up to the end of a statement, and moves past that end.
    pub(super) fn statement(&mut self) -> Result<Vec<Word>, Error> {
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
                _ if self.is_at_byte_order_mark() => self.at += BYTE_ORDER_MARK.len_utf8(),
                b'\\' if self.text[self.at..].starts_with("\\\n") => self.escaped(&mut self.nothing())?,
                _ => {
                    let word = self.word()?;
                    if words.len() < MOST_WORDS {
                        words.push(word);
                    }
                }
            }
        }
        Ok(words)
    }

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

    /// A word before its first letter.
    const fn nothing(&self) -> Word {
        Word {
            plain: 0..0,
            joined: None,
            line: self.line,
            place: self.at..self.at,
        }
    }

    fn word(&mut self) -> Result<Word, Error> {
        let mut word = self.nothing();
        while let Some(byte) = self.peek() {
            match byte {
                b'\'' | b'"' => self.quoted(byte, &mut word)?,
                b'\\' => self.escaped(&mut word)?,
                b'\n' | b';' | b'#' => break,
                _ if is_blank(byte) => break,
                _ => self.plain(&mut word, |b| is_blank(b) || b"'\"\\\n;#".contains(&b)),
            }
        }
        word.place.end = self.at;
        Ok(word)
    }

    fn quoted(&mut self, quote: u8, word: &mut Word) -> Result<(), Error> {
        let line = self.line;
        self.advance();
        while let Some(byte) = self.peek() {
            match byte {
                _ if byte == quote => {
                    self.advance();
                    return Ok(());
                }
                b'\\' if quote == b'"' => self.escaped(word)?,
                _ => self.plain(word, |b| b == quote || (b == b'\\' && quote == b'"')),
            }
        }
        let message = format!("the quote {} that begins here is not closed", char::from(quote));
        Err(Error::at(line, message))
    }

    /// Text up to a byte at which to `stop`, as it stands.
    fn plain(&mut self, word: &mut Word, stop: impl Fn(u8) -> bool) {
        let start = self.at;
        while self.peek().is_some_and(|b| !stop(b)) {
            self.advance();
        }
        word.join(start..self.at, self.text);
    }

    /// A backslash and what it protects; one before a line end joins the lines.
    fn escaped(&mut self, word: &mut Word) -> Result<(), Error> {
        self.advance();
        let rest = &self.text[self.at..];
        let Some(next) = rest.chars().next().filter(|_| rest != "\n") else {
            let message = "the file ends in a backslash".to_owned();
            return Err(Error::at(self.line, message));
        };
        let start = self.at;
        for _ in 0..next.len_utf8() {
            self.advance();
        }
        if next != '\n' {
            word.join(start..self.at, self.text);
        }
        Ok(())
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | 0x0b | 0x0c)
}

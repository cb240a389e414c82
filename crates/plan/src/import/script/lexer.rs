//! The words and operators of a shell script. Words keep their quotes and their `$`.

use sqm_core::units::shortened;

/// A word or an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Word(String),
    /// The end of a line, or `;`.
    End,
    /// `;;`
    EndOfArm,
    And,
    Or,
    /// `|`, which may stand between the patterns of `case`.
    Pipe,
    Open,
    Close,
}

/// A word or an operator, and its line.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) line: usize,
}

/// An error, and its line.
pub(super) type Wrong = (usize, String);

/// Targets of an output redirection that keep nothing. The last two are what functions.sh sends to the log, or nowhere.
const DISCARDED: [&str; 5] = [
    "/dev/null",
    "/dev/stdout",
    "/dev/stderr",
    "$OUTPUT_TARGET",
    "${OUTPUT_TARGET}",
];

/// Splits a script. Output that goes nowhere is left out: no command that is carried over has an output.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, Wrong> {
    let mut lexer = Lexer {
        chars: text.chars().collect(),
        at: 0,
        line: 1,
    };
    let mut tokens = Vec::new();
    while let Some(token) = lexer.token()? {
        tokens.push(token);
    }
    Ok(tokens)
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    line: usize,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn take(&mut self) -> Option<char> {
        let c = self.peek(0)?;
        self.at += 1;
        self.line += usize::from(c == '\n');
        Some(c)
    }

    fn token(&mut self) -> Result<Option<Token>, Wrong> {
        loop {
            match self.peek(0) {
                Some(' ' | '\t' | '\r') => _ = self.take(),
                Some('\\') if self.peek(1) == Some('\n') => {
                    self.take();
                    self.take();
                }
                Some('#') => {
                    while self.peek(0).is_some_and(|c| c != '\n') {
                        self.take();
                    }
                }
                Some('>') => self.redirection()?,
                Some(c) if c.is_ascii_digit() && self.peek(1) == Some('>') => {
                    self.take();
                    self.redirection()?;
                }
                _ => break,
            }
        }
        let line = self.line;
        let Some(c) = self.peek(0) else { return Ok(None) };
        let doubled = self.peek(1) == Some(c);
        let (kind, length) = match c {
            '\n' => (Kind::End, 1),
            ';' if doubled => (Kind::EndOfArm, 2),
            ';' => (Kind::End, 1),
            '&' if doubled => (Kind::And, 2),
            '|' if doubled => (Kind::Or, 2),
            '(' => (Kind::Open, 1),
            ')' => (Kind::Close, 1),
            '|' => (Kind::Pipe, 1),
            '&' | '<' => {
                return Err((
                    line,
                    format!("'{c}': a text of tc commands has no jobs or redirections"),
                ));
            }
            _ => {
                let word = self.word()?;
                return Ok(Some(Token {
                    kind: Kind::Word(word),
                    line,
                }));
            }
        };
        for _ in 0..length {
            self.take();
        }
        Ok(Some(Token { kind, line }))
    }

    /// Skips `>/dev/null`, `>>/dev/null` and `>&1`. What is written to another file may have an effect, such as a setting in `/sys`.
    fn redirection(&mut self) -> Result<(), Wrong> {
        let line = self.line;
        while self.peek(0) == Some('>') {
            self.take();
        }
        let is_descriptor = self.peek(0) == Some('&');
        while matches!(self.peek(0), Some('&' | ' ' | '\t')) {
            self.take();
        }
        let target = self.word()?;
        match is_descriptor || DISCARDED.contains(&target.trim_matches('"')) {
            true => Ok(()),
            false => Err((
                line,
                format!(
                    "'>{}' is not carried over: a text of tc commands writes no files. Remove it, or write the file elsewhere",
                    shortened(&target)
                ),
            )),
        }
    }

    fn word(&mut self) -> Result<String, Wrong> {
        let mut word = String::new();
        while let Some(c) = self.peek(0) {
            match c {
                '\\' if self.peek(1) == Some('\n') => {
                    self.take();
                    self.take();
                    break;
                }
                '\'' => self.quoted(&mut word, '\'')?,
                '`' => self.quoted(&mut word, '`')?,
                '"' => self.double_quoted(&mut word)?,
                '$' if self.peek(1) == Some('(') => self.balanced(&mut word, '(', ')')?,
                '$' if self.peek(1) == Some('{') => self.balanced(&mut word, '{', '}')?,
                c if c.is_whitespace() || ";&|()<>".contains(c) => break,
                c => {
                    word.push(c);
                    self.take();
                    if c == '\\' {
                        word.extend(self.take());
                    }
                }
            }
        }
        Ok(word)
    }

    /// A text up to the same mark.
    fn quoted(&mut self, word: &mut String, mark: char) -> Result<(), Wrong> {
        let line = self.line;
        word.extend(self.take());
        loop {
            let c = self
                .take()
                .ok_or_else(|| (line, format!("{mark} is not closed")))?;
            word.push(c);
            if c == mark {
                return Ok(());
            }
        }
    }

    fn double_quoted(&mut self, word: &mut String) -> Result<(), Wrong> {
        let line = self.line;
        word.extend(self.take());
        loop {
            match self.peek(0) {
                None => return Err((line, "\" is not closed".to_owned())),
                Some('`') => self.quoted(word, '`')?,
                Some('$') if self.peek(1) == Some('(') => self.balanced(word, '(', ')')?,
                Some(c) => {
                    word.push(c);
                    self.take();
                    match c {
                        '"' => return Ok(()),
                        '\\' => word.extend(self.take()),
                        _ => {}
                    }
                }
            }
        }
    }

    /// `$(…)` or `${…}`.
    fn balanced(&mut self, word: &mut String, open: char, close: char) -> Result<(), Wrong> {
        let line = self.line;
        word.extend(self.take());
        let mut depth = 0usize;
        loop {
            let c = self
                .take()
                .ok_or_else(|| (line, format!("'${open}' is not closed")))?;
            word.push(c);
            if c == open {
                depth += 1;
            } else if c == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(());
                }
            }
        }
    }
}

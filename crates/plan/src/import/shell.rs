//! The part of shell that is only assignments.

use std::str::Chars;

use sqm_core::units::shortened;

/// An assignment, or an error, and its first line.
pub(super) struct Statement {
    pub(super) line: usize,
    pub(super) assignment: Result<Assignment, String>,
}

/// `NAME=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Assignment {
    pub(super) name: String,
    pub(super) value: String,
}

/// Each line that is not empty or a comment, with its number.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> + '_ {
    let lines = text
        .trim_start_matches('\u{feff}')
        .lines()
        .enumerate()
        .map(|(at, line)| (at + 1, line.trim()));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

/// The statements of a file for bash: assignments of one line, and arrays (`NAME=(…)`), whose value here is its words with blanks
/// between.
pub(super) fn statements(text: &str) -> impl Iterator<Item = Statement> + '_ {
    let mut lines = lines(text);
    std::iter::from_fn(move || {
        let (line, first) = lines.next()?;
        let array = first.split_once("=(").filter(|(name, _)| is_name(name));
        let Some((name, mut rest)) = array else {
            let assignment = assignment(first, |_| None);
            return Some(Statement { line, assignment });
        };
        let mut words = Words::default();
        while !words.take(rest) {
            let Some((_, next)) = lines.next() else {
                let assignment = Err("the array that begins here is not closed".to_owned());
                return Some(Statement { line, assignment });
            };
            rest = next;
        }
        let assignment = words.value().map(|value| Assignment {
            name: name.to_owned(),
            value,
        });
        Some(Statement { line, assignment })
    })
}

/// The words of an array so far.
#[derive(Default)]
struct Words {
    words: String,
    error: Option<String>,
}

impl Words {
    /// Takes the words of a line. Answers true at the end of the array.
    fn take(&mut self, line: &str) -> bool {
        let line = line.split_once('#').map_or(line, |(words, _)| words);
        let (words, is_closed) = match line.split_once(')') {
            Some((words, _)) => (words, true),
            None => (line, false),
        };
        for word in words.split_whitespace() {
            match value(word, &|_| None) {
                Ok(word) => self.words.extend([word.as_str(), " "]),
                Err(error) => self.error = Some(error),
            }
        }
        is_closed
    }

    fn value(self) -> Result<String, String> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.words.trim_end().to_owned()),
        }
    }
}

/// Reads a line, or says why it is no assignment. `known` answers what a variable is, where the shell would put that in.
pub(super) fn assignment(text: &str, known: impl Fn(&str) -> Option<String>) -> Result<Assignment, String> {
    let text = text.strip_prefix("export ").map_or(text, str::trim_start);
    let (name, rest) = text
        .split_once('=')
        .filter(|(name, _)| is_name(name))
        .ok_or("this line is not a plain NAME=value: replace it with the value that it gives")?;
    Ok(Assignment {
        name: name.to_owned(),
        value: value(rest, &known)?,
    })
}

fn is_name(name: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(is_of_name)
}

/// Pieces with and without quotes join, as in shell; a comment may follow.
fn value(text: &str, known: &impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut value = String::new();
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        require_short(&value)?;
        match char {
            '\'' => loop {
                match chars.next().ok_or("a quote is not closed on the same line")? {
                    '\'' => break,
                    char => value.push(char),
                }
            },
            '"' => loop {
                require_short(&value)?;
                match chars.next().ok_or("a quote is not closed on the same line")? {
                    '"' => break,
                    '\\' => match chars.next().ok_or("a quote is not closed on the same line")? {
                        char @ ('"' | '\\' | '$' | '`') => value.push(char),
                        char => value.extend(['\\', char]),
                    },
                    '$' => value += &expanded(&mut chars, known)?,
                    '`' => return Err(expansion('`')),
                    char => value.push(char),
                }
            },
            '\\' => value.push(
                chars
                    .next()
                    .ok_or("a line that continues on the next one is not supported")?,
            ),
            ' ' | '\t' => {
                let rest = chars.as_str().trim_start();
                return if rest.is_empty() || rest.starts_with('#') {
                    Ok(value)
                } else {
                    Err(format!(
                        "the value has more than one word: put quotes around '{}'",
                        shortened(text)
                    ))
                };
            }
            '$' => value += &expanded(&mut chars, known)?,
            '`' => return Err(expansion('`')),
            char @ (';' | '&' | '|' | '<' | '>' | '(' | ')') => {
                return Err(format!("'{char}' is a command of the shell, not part of a value"));
            }
            char => value.push(char),
        }
    }
    require_short(&value)?;
    Ok(value)
}

/// Each `$NAME` can make a value many times as long as its text.
fn require_short(value: &str) -> Result<(), String> {
    /// Longer than any option is.
    const MOST_BYTES: usize = 4096;
    if value.len() > MOST_BYTES {
        return Err(format!("the value has more than {MOST_BYTES} bytes"));
    }
    Ok(())
}

/// `NAME` or `{NAME}` behind a `$`.
fn expanded(chars: &mut Chars<'_>, known: &impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let rest = chars.as_str();
    let (name, after) = match rest.strip_prefix('{') {
        Some(braced) => braced.split_once('}').ok_or_else(|| expansion('$'))?,
        None => {
            let end = rest.find(|char: char| !(char.is_ascii_alphanumeric() || char == '_'));
            rest.split_at(end.unwrap_or(rest.len()))
        }
    };
    *chars = after.chars();
    let value = Some(name).filter(|name| is_name(name)).and_then(known);
    value.ok_or_else(|| expansion('$'))
}

fn expansion(char: char) -> String {
    format!("the shell would expand '{char}': write the expanded value instead")
}

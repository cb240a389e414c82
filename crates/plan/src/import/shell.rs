//! The part of shell that is only assignments.

/// `NAME=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Assignment {
    pub(super) line: usize,
    pub(super) name: String,
    pub(super) value: String,
}

/// Each line that is not empty or a comment: an assignment, or why it is none.
pub(super) fn assignments(text: &str) -> impl Iterator<Item = Result<Assignment, (usize, String)>> + '_ {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(at, line)| assignment(at, line).map_err(|message| (at, message)))
}

fn assignment(line: usize, text: &str) -> Result<Assignment, String> {
    let text = text.strip_prefix("export ").map_or(text, str::trim_start);
    let is_name = |name: &str| {
        !name.is_empty()
            && !name.starts_with(|first: char| first.is_ascii_digit())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let (name, rest) = text
        .split_once('=')
        .filter(|(name, _)| is_name(name))
        .ok_or("this is no plain NAME=value: work out by hand what it comes to")?;
    Ok(Assignment {
        line,
        name: name.to_owned(),
        value: value(rest)?,
    })
}

/// Pieces with and without quotes join, as in shell; a comment may follow.
fn value(text: &str) -> Result<String, String> {
    let mut value = String::new();
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            '\'' => loop {
                match chars.next().ok_or("a quote is not closed on its line")? {
                    '\'' => break,
                    char => value.push(char),
                }
            },
            '"' => loop {
                match chars.next().ok_or("a quote is not closed on its line")? {
                    '"' => break,
                    '\\' => match chars.next().ok_or("a quote is not closed on its line")? {
                        char @ ('"' | '\\' | '$' | '`') => value.push(char),
                        char => value.extend(['\\', char]),
                    },
                    char @ ('$' | '`') => return Err(expansion(char)),
                    char => value.push(char),
                }
            },
            '\\' => value.push(
                chars
                    .next()
                    .ok_or("a line that goes on in the next is not read")?,
            ),
            ' ' | '\t' => {
                let rest = chars.as_str().trim_start();
                return if rest.is_empty() || rest.starts_with('#') {
                    Ok(value)
                } else {
                    Err(format!("more than one word: put quotes around '{text}'"))
                };
            }
            char @ ('$' | '`') => return Err(expansion(char)),
            char @ (';' | '&' | '|' | '<' | '>' | '(' | ')') => {
                return Err(format!("'{char}' is a command of the shell, not part of a value"));
            }
            char => value.push(char),
        }
    }
    Ok(value)
}

fn expansion(char: char) -> String {
    format!("'{char}' makes the shell put something else here: write what it comes to")
}

//! The form of a text: lines, words, headings. Variables stay as they are written.

use sqm_core::units::shortened;

use super::{MOST_ERRORS, TextError, near};

/// Most words of a line, a choice that keeps the work for a text in proportion: the longest command of `tc` that sqm reads has 60.
const MOST_WORDS: usize = 400;

/// One command, which may have gone over several lines of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Line of its first word, from 1.
    pub(crate) number: usize,
    /// The conditions of the heading above it, all of which must hold.
    pub(crate) when: Vec<Condition>,
    /// The program that it is for.
    pub(crate) program: Program,
    /// All words, the program's name first.
    pub(crate) words: Vec<Word>,
}

/// A word as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) text: String,
    /// Its line, from 1.
    pub(crate) line: usize,
}

/// The first word of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// `tc qdisc add …`
    Tc,
    /// `ip link …`: accepted for the IFB, which sqm makes itself.
    Ip,
    /// `firewall mark` and `firewall erase-dscp`.
    Firewall,
    /// `nft add …`, as `sqm plan` prints the same rules. The whole command is one word.
    Nft,
}

/// The beginning of a command of nft, which has quotes.
const NFT: &str = "nft ";

/// The words of `option qdisc`. A test compares them with the settings.
pub(crate) const LEAVES: [&str; 7] = ["fq_codel", "cake", "codel", "pie", "sfq", "pfifo", "bfifo"];

const PROGRAMS: [(&str, Program); 4] = [
    ("nft", Program::Nft),
    ("tc", Program::Tc),
    ("ip", Program::Ip),
    ("firewall", Program::Firewall),
];

/// A condition of a heading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Condition {
    pub(crate) asks: Asked,
    /// True if the condition must hold, false after `not`.
    pub(crate) is: bool,
}

/// The option that a heading asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Asked {
    /// `qdisc cake`: the name of the leaf.
    Qdisc(&'static str),
    /// `squash_dscp`.
    SquashDscp,
    /// `squash_ingress`.
    SquashIngress,
}

impl Asked {
    /// The name of the option.
    pub(crate) const fn option(self) -> &'static str {
        match self {
            Self::Qdisc(_) => "qdisc",
            Self::SquashDscp => "squash_dscp",
            Self::SquashIngress => "squash_ingress",
        }
    }
}

/// Reads all lines, or all errors of their form.
pub(crate) fn lines(bytes: &[u8]) -> Result<Vec<Line>, Vec<TextError>> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        vec![TextError::at(line, "these bytes are not text in UTF-8")]
    })?;
    // Editors on Windows write a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (mut lines, mut errors, mut when) = (Vec::new(), Vec::new(), Vec::new());
    let mut numbered = (1..).zip(text.lines());
    while let Some((number, first)) = numbered.next() {
        let mut words = Vec::new();
        let mut part = (number, first);
        if first.starts_with(NFT) {
            let text = first.trim_end().to_owned();
            let words = vec![Word { text, line: number }];
            lines.extend(line(number, when.clone(), words).ok());
            continue;
        }
        let read = loop {
            let (stripped, goes_on) = match part.1.trim_end().strip_suffix('\\') {
                Some(stripped) if !is_comment(stripped) => (stripped, true),
                _ => (part.1, false),
            };
            if let Err(error) = split(stripped, part.0, &mut words) {
                break Err(error);
            }
            if !goes_on {
                break Ok(());
            }
            match numbered.next() {
                Some(next) => part = next,
                None => {
                    break Err(TextError::at(
                        part.0,
                        "word '\\': the text ends after it, where the command goes on",
                    ));
                }
            }
        };
        let read = read.and_then(|()| {
            let Some(word) = words.first() else { return Ok(()) };
            if word.text.starts_with('[') {
                when = heading(&words)?;
                return Ok(());
            }
            lines.push(line(number, when.clone(), std::mem::take(&mut words))?);
            Ok(())
        });
        if let Err(error) = read {
            errors.push(error);
            if errors.len() == MOST_ERRORS {
                break;
            }
        }
    }
    match errors.is_empty() {
        true => Ok(lines),
        false => Err(errors),
    }
}

fn is_comment(text: &str) -> bool {
    text.trim_start().starts_with('#')
}

fn line(number: usize, when: Vec<Condition>, words: Vec<Word>) -> Result<Line, TextError> {
    let first = &words[0];
    let name = match first.text.starts_with(NFT) {
        true => "nft",
        false => &first.text,
    };
    let Some((_, program)) = PROGRAMS.iter().find(|(known, _)| *known == name) else {
        return Err(unknown_program(first));
    };
    Ok(Line {
        number,
        when,
        program: *program,
        words,
    })
}

fn unknown_program(word: &Word) -> TextError {
    let shown = shortened(&word.text);
    if ["$TC", "${TC}"].contains(&word.text.as_str()) {
        return TextError::at(
            word.line,
            format!("word '{shown}': a text names the program itself"),
        )
        .suggest(Some("tc"));
    }
    if word.text.starts_with("ipt") {
        let message = format!(
            "word '{shown}': a text has no firewall rules of its own; 'firewall mark' sets the marks of simple.qos, and \
             'firewall erase-dscp' erases the DSCP of arriving packets"
        );
        return TextError::at(word.line, message);
    }
    let message = format!(
        "word '{shown}': a line begins with tc, ip, firewall, a heading in brackets, or # for a comment. A text is no shell \
         script: 'sqm import' brings one over"
    );
    TextError::at(word.line, message).suggest(near(&word.text, &["tc", "ip", "firewall"]))
}

/// Adds the words of one line of the text. Blanks within the parentheses of a variable belong to its word.
fn split(text: &str, line: usize, words: &mut Vec<Word>) -> Result<(), TextError> {
    let mut word = String::new();
    let mut depth = 0usize;
    let mut finish = |word: &mut String| {
        if !word.is_empty() {
            let text = std::mem::take(word);
            words.push(Word { text, line });
        }
        words.len() <= MOST_WORDS
    };
    for c in text.chars() {
        match c {
            '#' if word.is_empty() => break,
            c if c.is_whitespace() && depth == 0 => {
                if !finish(&mut word) {
                    let message = format!("a command has more than {MOST_WORDS} words, the limit");
                    return Err(TextError::at(line, message));
                }
            }
            c if c.is_control() && !c.is_whitespace() => {
                word.extend(c.escape_default());
                let message = format!("word '{}': it contains a control character", shortened(&word));
                return Err(TextError::at(line, message));
            }
            '\'' | '"' | '`' | ';' | '|' | '&' | '<' | '>' | '\\' => {
                word.push(c);
                let message = format!(
                    "word '{}': '{c}' belongs to a shell, and a text has none: write one command a line, without quotes",
                    shortened(&word)
                );
                return Err(TextError::at(line, message));
            }
            c => {
                match c {
                    '(' if word.contains('$') => depth += 1,
                    ')' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                word.push(c);
            }
        }
    }
    let is_open = depth > 0;
    let last = shortened(&word);
    finish(&mut word);
    if is_open {
        return Err(TextError::at(
            line,
            format!("word '{last}': a parenthesis is not closed in this line"),
        ));
    }
    Ok(())
}

/// `[always]`, or `[when not qdisc cake and squash_ingress]`.
fn heading(words: &[Word]) -> Result<Vec<Condition>, TextError> {
    let line = words[0].line;
    let written = words
        .iter()
        .map(|word| word.text.as_str())
        .collect::<Vec<_>>()
        .join(" ");
    let wrong =
        |word: &str, reason: &str| TextError::at(line, format!("word '{}': {reason}", shortened(word)));
    let Some(inner) = written.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        return Err(wrong(
            &written,
            "a heading ends with ']', such as [when qdisc cake]",
        ));
    };
    let mut words = inner.split_whitespace().peekable();
    match words.next() {
        Some("always") => {
            return match words.next() {
                Some(word) => Err(wrong(word, "nothing follows 'always'")),
                None => Ok(Vec::new()),
            };
        }
        Some("when") => {}
        other => {
            let other = other.unwrap_or("[]");
            let error = wrong(
                other,
                "a heading is [always], or [when …] with options, such as [when not qdisc cake]",
            );
            return Err(error.suggest(near(other, &["always", "when"])));
        }
    }
    let mut conditions = Vec::new();
    loop {
        let mut is = true;
        while words.next_if_eq(&"not").is_some() {
            is = !is;
        }
        let Some(option) = words.next() else {
            return Err(wrong(
                &written,
                "an option is missing, such as [when not qdisc cake]",
            ));
        };
        let asks = match option {
            "squash_dscp" => Asked::SquashDscp,
            "squash_ingress" => Asked::SquashIngress,
            "qdisc" => {
                let Some(value) = words.next() else {
                    let reason = format!("after it stands one of {}", LEAVES.join(", "));
                    return Err(wrong(option, &reason));
                };
                let Some(leaf) = LEAVES.iter().find(|name| **name == value) else {
                    let reason = format!("after 'qdisc' stands one of {}", LEAVES.join(", "));
                    return Err(wrong(value, &reason).suggest(near(value, &LEAVES)));
                };
                Asked::Qdisc(leaf)
            }
            other => {
                let known = ["qdisc", "squash_dscp", "squash_ingress"];
                let error = wrong(other, "a heading asks for qdisc, squash_dscp or squash_ingress");
                return Err(error.suggest(near(other, &known)));
            }
        };
        conditions.push(Condition { asks, is });
        match words.next() {
            None => return Ok(conditions),
            Some("and") => {}
            Some(word) => return Err(wrong(word, "between two conditions stands 'and'")),
        }
    }
}

//! Makes text from elsewhere safe for a terminal.
//!
//! Titles in result files, messages of a server, file names and values of options may contain control characters. A terminal
//! obeys them: they can change its title, hide lines or send input to the shell. Everything that the program prints goes
//! through [`printable`], which shows control characters as escapes.

use std::borrow::Cow;
use std::fmt;
use std::io;

use sqm_measure::foreign::is_control;

/// Replaces each control character by an escape such as `\u001b`. JSON text stays valid and keeps its meaning, because JSON has
/// the same escapes.
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_printable) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_printable(c) {
            clean.push(c);
        } else {
            clean += &format!("\\u{:04x}", u32::from(c));
        }
    }
    Cow::Owned(clean)
}

/// `true` for a character that may be printed as it is. Line ends and tabs may: the program itself prints them.
fn is_printable(c: char) -> bool {
    matches!(c, '\n' | '\t') || !is_control(c)
}

/// A writer that passes all text through [`printable`].
pub struct Printable<W>(pub W);

impl<W: io::Write> fmt::Write for Printable<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0
            .write_all(printable(text).as_bytes())
            .map_err(|_| fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn control_characters_are_shown_as_escapes() {
        for (text, shown) in [
            ("a\x1b[31mred\x07", "a\\u001b[31mred\\u0007"),
            ("c1 \u{9b}31m \u{85} \u{7f}", "c1 \\u009b31m \\u0085 \\u007f"),
            ("back\rover\x08", "back\\u000dover\\u0008"),
            ("evil\u{202e}txt.exe\u{2069}", "evil\\u202etxt.exe\\u2069"),
            ("line\u{2028}line", "line\\u2028line"),
        ] {
            assert_eq!(printable(text), shown);
        }
        let plain = "Grüße\n\tשלום 日本 ▁▅█ é";
        assert!(matches!(printable(plain), Cow::Borrowed(same) if same == plain));
    }

    #[test]
    fn json_keeps_its_meaning() {
        let value = serde_json::json!("\u{9b}31m \u{7f} \u{202e} \x1b \r\n");
        let text = value.to_string();
        let shown = printable(&text);
        assert!(shown.is_ascii(), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }

    #[test]
    fn the_writer_shows_control_characters_as_escapes() {
        let mut bytes = Vec::new();
        writeln!(Printable(&mut bytes), "{}: b", "a\x1b".to_owned()).unwrap();
        assert_eq!(bytes, b"a\\u001b: b\n");
    }
}

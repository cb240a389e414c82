//! Text of others on its way to a terminal.
//!
//! Titles in result files, a server's refusals, names of files and values of options may hold control characters, which a
//! terminal would obey: it would change its title, hide lines or answer as if somebody typed. All that is printed goes through
//! [`printable`], which shows them instead.

use std::borrow::Cow;
use std::fmt;
use std::io;

use sqm_measure::foreign::is_control;

/// The text with each control character as `\u001b`. In JSON that is the same character: the text stays valid and means the same.
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

/// Ends of lines and tabs are ours.
fn is_printable(c: char) -> bool {
    matches!(c, '\n' | '\t') || !is_control(c)
}

/// Writes text so that it is [`printable`].
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
    fn what_a_terminal_would_obey_is_shown() {
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
    fn json_means_the_same() {
        let value = serde_json::json!("\u{9b}31m \u{7f} \u{202e} \x1b \r\n");
        let text = value.to_string();
        let shown = printable(&text);
        assert!(shown.is_ascii(), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }

    #[test]
    fn a_writer_shows_them_too() {
        let mut bytes = Vec::new();
        writeln!(Printable(&mut bytes), "{}: b", "a\x1b".to_owned()).unwrap();
        assert_eq!(bytes, b"a\\u001b: b\n");
    }
}

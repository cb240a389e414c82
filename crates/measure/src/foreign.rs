//! Makes text from other programs (a server, a file, a kernel) safe to print. Pure.
//!
//! A terminal obeys control characters in the text that it prints, and some Unicode characters reverse the order of the text
//! around them. Foreign text is therefore cleaned where it enters the program, so that no code that prints it has to care.

use std::borrow::Cow;
use std::fmt::Write as _;

/// A reason that another program gave is shown with at most this many characters. A choice.
pub(crate) const MAX_REASON: usize = 300;

/// The text with every control character written out: `\n`, `\t`, or `\u001b` for an escape.
///
/// Control characters are C0, DEL and C1, the line and paragraph separators, and the marks that change the direction of writing.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => clean.push_str("\\n"),
            '\r' => clean.push_str("\\r"),
            '\t' => clean.push_str("\\t"),
            c if is_control(c) => {
                let _ = write!(clean, "\\u{:04x}", u32::from(c));
            }
            c => clean.push(c),
        }
    }
    Cow::Owned(clean)
}

/// [`printable`] text of at most `most` characters. `…` stands for the rest.
pub fn brief(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => printable(text).into_owned(),
        Some((end, _)) => printable(&text[..end]).into_owned() + "…",
    }
}

/// [`printable`] text of several lines, such as the output of a program. Line ends and tabs stay.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| !is_control(c) || c == '\n' || c == '\t';
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let pieces = text.split_inclusive(['\n', '\t']);
    let clean = pieces.map(|piece| {
        let (words, end) = piece.split_at(piece.trim_end_matches(['\n', '\t']).len());
        printable(words).into_owned() + end
    });
    Cow::Owned(clean.collect())
}

/// True if a terminal would obey the character, or would show the text around it in another order.
pub fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn control_characters_are_written_out() {
        assert_eq!(printable("Gerät 1 ✓ שלום"), "Gerät 1 ✓ שלום");
        assert_eq!(printable("\x1b[31mred\x07"), "\\u001b[31mred\\u0007");
        assert_eq!(printable("a\r\nb\t\u{7f}\u{9b}"), "a\\r\\nb\\t\\u007f\\u009b");
        assert_eq!(
            printable("\u{202e}txt\u{2066}\u{2028}"),
            "\\u202etxt\\u2066\\u2028"
        );
        assert_eq!(printable_lines("a\n\tb\x1b\n"), "a\n\tb\\u001b\n");
    }

    #[test]
    fn long_text_is_cut() {
        assert_eq!(brief("éàü", 3), "éàü");
        assert_eq!(brief("éàüö", 3), "éàü…");
        assert_eq!(brief("a\x1bb", 2), "a\\u001b…");
    }

    proptest! {
        #[test]
        fn no_control_character_is_left(text: String) {
            prop_assert!(!printable(&text).contains(is_control));
            prop_assert!(!brief(&text, 5).contains(is_control));
            prop_assert!(!printable_lines(&text).contains(|c| is_control(c) && c != '\n' && c != '\t'));
        }
    }
}

//! Bytes as text and back, so that a byte that is not UTF-8 survives an edit.
//!
//! Files from other systems have comments in Latin-1. Each byte that is not part of valid UTF-8 becomes one character of the end of
//! Unicode's last plane for private use, U+10FF80 to U+10FFFF, and the same byte again when the text is written. These
//! characters themselves, should a file have any, are taken byte by byte, so that no two files have the same text.

use std::borrow::Cow;

/// The character for byte 0 would be this one; only those of 0x80 to 0xFF are used.
const FIRST: u32 = 0x10_FF00;

/// The text of these bytes.
pub fn to_text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(is_byte) => Cow::Borrowed(text),
        _ => Cow::Owned(mapped(bytes)),
    }
}

fn mapped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() + bytes.len() / 4);
    for chunk in bytes.utf8_chunks() {
        for valid in chunk.valid().chars() {
            if is_byte(valid) {
                let mut utf8 = [0; 4];
                valid.encode_utf8(&mut utf8);
                text.extend(utf8.map(of_byte));
            } else {
                text.push(valid);
            }
        }
        text.extend(chunk.invalid().iter().copied().map(of_byte));
    }
    text
}

/// The bytes of a text that [`to_text`] has made, or that was made from one.
pub fn to_bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for character in text.chars() {
        if is_byte(character) {
            bytes.push((character as u32 - FIRST) as u8);
        } else {
            bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    bytes
}

/// The text for people: each byte that is not UTF-8 is U+FFFD.
pub(crate) fn shown(text: &str) -> String {
    text.replace(is_byte, "\u{fffd}")
}

fn is_byte(character: char) -> bool {
    character as u32 >= FIRST + 0x80
}

fn of_byte(byte: u8) -> char {
    char::from_u32(FIRST + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_byte_that_is_not_utf_8_is_one_character() {
        assert_eq!(to_text(b"Gr\xfc\xdfe"), "Gr\u{10fffc}\u{10ffdf}e");
        assert_eq!(shown(&to_text(b"Gr\xfc\xdfe \xc3\xbc")), "Gr\u{fffd}\u{fffd}e ü");
        let private = "\u{10fffc}";
        assert_eq!(to_text(private.as_bytes()).chars().count(), 4);
        assert!(matches!(to_text("Grüße".as_bytes()), Cow::Borrowed("Grüße")));
    }

    proptest! {
        #[test]
        fn bytes_survive(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(to_bytes(&to_text(&bytes)), bytes);
        }

        #[test]
        fn text_survives(text in "(\u{10ff80}|\u{10ffff}|\u{10ff7f}|é|a){0,9}") {
            let bytes = text.as_bytes();
            prop_assert_eq!(&to_bytes(&to_text(bytes)), bytes);
        }
    }
}

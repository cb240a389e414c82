//! Which text of the configuration somebody saw: who writes says which one he knew, so that nobody undoes what another wrote.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// Of a file's bytes: the beginning of their SHA-256, in hexadecimal.
pub fn of(text: &[u8]) -> String {
    let mut hex = String::new();
    for byte in &Sha256::digest(text)[..8] {
        // Text grows.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// Whether this could be one.
pub fn is_one(text: &str) -> bool {
    text.len() == 16
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    #[test]
    fn another_text_has_another_one_of_sixteen_digits() {
        assert_eq!(super::of(b""), "e3b0c44298fc1c14");
        assert_ne!(super::of(b"option upload '1'"), super::of(b"option upload '2'"));
    }
}

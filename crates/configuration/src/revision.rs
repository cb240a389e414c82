//! The revision of a configuration text, as an ETag: a writer names the revision that it has read, and its write is refused if
//! the file has changed since.

use sha2::{Digest, Sha256};

/// The revision of a text: the first 8 bytes of its SHA-256, in hexadecimal.
pub fn of(text: &[u8]) -> String {
    hex::encode(&Sha256::digest(text)[..8])
}

/// `true` if `text` has the form of a revision.
pub fn is_well_formed(text: &str) -> bool {
    text.len() == 16
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    #[test]
    fn texts_have_revisions_of_sixteen_digits_that_differ() {
        assert_eq!(super::of(b""), "e3b0c44298fc1c14");
        assert_ne!(super::of(b"option upload '1'"), super::of(b"option upload '2'"));
    }
}

//! Names of routers and groups. They are parts of NATS subjects, so the characters with a meaning there are not allowed.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest name, characters. A choice: as long as a label of a DNS name.
const LONGEST: usize = 63;

/// The name of a router or of a group: 1 to 63 letters, digits, `-` and `_` of ASCII, beginning with a letter or a digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// A text that is no name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{}' is no name of a router or group: 1 to {LONGEST} letters, digits, '-' and '_', beginning with a letter or digit", .0.escape_debug())]
pub struct NotAName(String);

impl Name {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<Self, NotAName> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if begins && text.len() <= LONGEST && text.chars().all(is_allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NotAName(text.chars().take(LONGEST + 1).collect()))
        }
    }
}

impl TryFrom<String> for Name {
    type Error = NotAName;

    fn try_from(text: String) -> Result<Self, NotAName> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_change_the_meaning_of_a_subject() {
        for wrong in [
            "",
            "a.b",
            "*",
            ">",
            "a b",
            "-a",
            "_a",
            "ü",
            "a\n",
            &"a".repeat(64),
        ] {
            assert!(wrong.parse::<Name>().is_err(), "{wrong}");
        }
        for right in ["r1", "7", "Berlin-Mitte_2", &"a".repeat(63)] {
            assert_eq!(right.parse::<Name>().expect(right).as_str(), right);
        }
    }
}

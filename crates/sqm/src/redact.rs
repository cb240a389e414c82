//! Removes private data from a text: hardware addresses, public addresses, names of people, passwords, keys.
//!
//! Private, loopback, link-local and shared addresses stay. They describe a network and identify no user. A doubtful
//! word is removed: the reader can ask for it, but a published secret cannot be withdrawn.

mod addresses;
mod secrets;

use secrets::Secrets;

/// The text without secrets, processed line by line. Each replacement names the kind of secret that it stands for.
pub(crate) fn redact(text: &str) -> String {
    let mut secrets = Secrets::default();
    let clean = |line: &str| addresses::without(&secrets.without(line));
    let lines: Vec<String> = text.split('\n').map(clean).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests;

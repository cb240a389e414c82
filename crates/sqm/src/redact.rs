//! Takes out of a text what is nobody's business: hardware addresses, public addresses, names of people, passwords, keys.
//!
//! Private, loopback, link-local and shared addresses stay: they tell what a network is like and lead to nobody. In doubt a word goes:
//! a helper can ask, and what was sent cannot be taken back.

mod addresses;
mod secrets;

use secrets::Secrets;

/// The text without secrets, line by line. What replaces one says what it was.
pub(crate) fn redact(text: &str) -> String {
    let mut secrets = Secrets::default();
    let clean = |line: &str| addresses::without(&secrets.without(line));
    let lines: Vec<String> = text.split('\n').map(clean).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests;

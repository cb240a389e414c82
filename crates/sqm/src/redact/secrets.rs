//! Finds passwords, keys, tokens, and names of people and of wireless networks.

/// A word that contains one of these is followed by a secret.
const PARTS: [&str; 14] = [
    "password",
    "passwd",
    "passwort",
    "passphrase",
    "passcode",
    "kennwort",
    "secret",
    "credential",
    "username",
    "apikey",
    "authorization",
    "sshpass",
    "cookie",
    "ssid",
];

/// A word is followed by a secret if one of its parts is one of these, as in `wpa_psk`, `apiKey2` or `PPP-USER`.
const WORDS: [&str; 31] = [
    "pass", "pw", "pwd", "psw", "passw", "pin", "puk", "psk", "psk2", "sae", "wpa", "wep", "key", "token",
    "user", "usr", "uid", "login", "logon", "account", "auth", "bearer", "serial", "sn", "imei", "imsi",
    "iccid", "cred", "email", "mail", "session",
];

/// Authentication schemes of HTTP. A secret follows, unless the next word is an ordinary one.
const SCHEMES: [&str; 4] = ["basic", "bearer", "digest", "ntlm"];

/// Text of at least this length with upper case, lower case and digits is a key.
const LEAST_KEY: usize = 20;

const REMOVED: &str = "<removed>";

/// Remembers, from line to line, whether the text is inside a key or about to show a value.
#[derive(Default)]
pub(super) struct Secrets {
    is_in_key: bool,
    is_value_awaited: bool,
}

impl Secrets {
    pub(super) fn without(&mut self, line: &str) -> String {
        if self.is_in_private_key(line) {
            return REMOVED.to_owned();
        }
        if std::mem::take(&mut self.is_value_awaited) && line.contains(char::is_alphanumeric) {
            return REMOVED.to_owned();
        }
        let line = without_login_of_urls(line);
        let Some(end) = end_of_name(&line) else {
            return without_keys_and_names(&line);
        };
        let (name, value) = line.split_at(end);
        if !value.contains(char::is_alphanumeric) {
            self.is_value_awaited = value.trim_end().ends_with([':', '=']);
            return line;
        }
        format!("{} {REMOVED}", without_keys_and_names(name))
    }

    /// True within a private key: PEM (RFC 7468) or PuTTY's format.
    fn is_in_private_key(&mut self, line: &str) -> bool {
        let begins = line.contains("-----BEGIN") && line.contains("PRIVATE KEY");
        let was_in = self.is_in_key;
        self.is_in_key = (was_in || begins) && !line.contains("-----END");
        was_in || begins
    }
}

/// Removes the login from `scheme://name:password@host`.
fn without_login_of_urls(line: &str) -> String {
    let mut clean = String::new();
    let mut rest = line;
    while let Some(at) = rest.find("://") {
        let (before, place) = rest.split_at(at + 3);
        clean += before;
        let end = place
            .find(|c: char| c.is_whitespace() || "'\"<>`".contains(c))
            .unwrap_or(place.len());
        // The last @ ends the login: a password may contain a slash or another @.
        rest = match place[..end].rfind('@') {
            Some(login) => {
                clean += REMOVED;
                &place[login..]
            }
            None => place,
        };
    }
    clean + rest
}

/// End of the first word that is followed by a secret.
fn end_of_name(line: &str) -> Option<usize> {
    let mut words = words(line).peekable();
    while let Some((start, word)) = words.next() {
        let end = start + word.len();
        let next = words.peek().map_or("", |(_, next)| *next);
        if names_a_secret(word)
            || SCHEMES.contains(&word.to_ascii_lowercase().as_str()) && !is_ordinary(next)
            // `-u name:password` of curl and wget.
            || word == "-u" && line[end..].contains(':')
        {
            return Some(end);
        }
    }
    None
}

/// Splits a line into names and values, which consist of letters, digits, `_` and `-`.
fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-')
        .filter(|word| !word.is_empty())
        .map(|word| (word.as_ptr() as usize - line.as_ptr() as usize, word))
}

fn names_a_secret(word: &str) -> bool {
    let lower = word.to_ascii_lowercase();
    PARTS.iter().any(|part| lower.contains(part)) || parts(word).any(|part| WORDS.contains(&part.as_str()))
}

/// Splits a name into its parts: `wpa_psk2`, `wpaPsk` and `WPA-PSK` are `wpa` and `psk`.
fn parts(word: &str) -> impl Iterator<Item = String> {
    let mut spread = String::new();
    let mut was_lower = false;
    for c in word.chars() {
        if c.is_uppercase() && was_lower {
            spread.push('_');
        }
        was_lower = c.is_lowercase();
        spread.extend(c.to_lowercase());
    }
    let parts: Vec<String> = spread
        .split(['_', '-'])
        .map(|part| part.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned())
        .collect();
    parts.into_iter()
}

/// True for a word in lower case.
fn is_ordinary(word: &str) -> bool {
    word.chars().all(|c| c.is_lowercase())
}

/// Removes words that look like a secret themselves, whatever precedes them.
fn without_keys_and_names(line: &str) -> String {
    let is_end = |c: char| c.is_whitespace() || "'\"<>`,;()[]{}|".contains(c);
    line.split_inclusive(is_end)
        .map(|piece| {
            let word = piece.strip_suffix(is_end).unwrap_or(piece);
            let rest = &piece[word.len()..];
            // Text before a `=` is a name, but a key may end in `=` as well.
            let (name, value) = match word.split_once('=') {
                Some((name, value)) if value.contains(char::is_alphanumeric) => word.split_at(name.len() + 1),
                _ => ("", word),
            };
            if is_person(value) {
                format!("{name}<name>{rest}")
            } else if is_key(value) || is_hash(value) {
                format!("{name}<key>{rest}")
            } else {
                piece.to_owned()
            }
        })
        .collect()
}

/// True for `name@provider`, but not for devices such as `eth0.2@eth0` or `veth@if7`.
fn is_person(word: &str) -> bool {
    let Some((name, place)) = word.split_once('@') else {
        return false;
    };
    let place = place.trim_end_matches([':', '.']);
    let is_device = || {
        name.strip_prefix(place).is_some_and(|rest| rest.starts_with('.'))
            || place
                .strip_prefix("if")
                .is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let has_word = |text: &str| text.contains(char::is_alphanumeric);
    has_word(name) && has_word(place) && !word.contains("://") && !is_device()
}

/// True for Base64 and similar text, such as keys of WireGuard and tokens.
fn is_key(word: &str) -> bool {
    let has = |kind: fn(&char) -> bool| word.chars().any(|c| kind(&c));
    word.len() >= LEAST_KEY
        && !word.starts_with(['/', '.'])
        && !word.contains("://")
        && word
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+/_=.-".contains(c))
        && has(char::is_ascii_digit)
        && has(char::is_ascii_uppercase)
        && has(char::is_ascii_lowercase)
}

/// True for a password hash in the format of crypt(5): `$6$salt$...`.
fn is_hash(word: &str) -> bool {
    word.split_once('$')
        .is_some_and(|(_, rest)| rest.matches('$').count() >= 2 && rest.len() > 8)
}

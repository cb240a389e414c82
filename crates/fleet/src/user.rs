//! The user of a credentials file.

use data_encoding::BASE64URL_NOPAD;
use serde::Deserialize;

use crate::name::Name;

/// The name of the user in a credentials file: of the router, for the agent. `None` if the text is no credentials file.
pub fn name_in(credentials: &str) -> Option<Name> {
    #[derive(Deserialize)]
    struct Claims {
        name: Name,
    }
    let token = token_in(credentials)?;
    let claims = BASE64URL_NOPAD.decode(token.split('.').nth(1)?.as_bytes()).ok()?;
    let Claims { name } = serde_json::from_slice(&claims).ok()?;
    Some(name)
}

/// The user's token. The client's own reader of these files needs regular expressions, which would be 0.4 MB of a router's program.
pub(crate) fn token_in(credentials: &str) -> Option<&str> {
    line_behind(credentials, "-----BEGIN NATS USER JWT-----")
}

/// The seed of the user's key, which is secret.
pub(crate) fn seed_in(credentials: &str) -> Option<&str> {
    line_behind(credentials, "-----BEGIN USER NKEY SEED-----")
}

fn line_behind<'a>(text: &'a str, head: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(head)?;
    let line = rest.trim_start().lines().next()?.trim();
    Some(line).filter(|line| !line.is_empty() && !line.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_and_seed_are_read_as_other_programs_write_them() {
        let text = "-----BEGIN NATS USER JWT-----\nabc.def.ghi\n------END NATS USER JWT------\n\n*** IMPORTANT ***\n\n\
                    -----BEGIN USER NKEY SEED-----\nSUABC\n------END USER NKEY SEED------\n";
        for text in [text.to_owned(), text.replace('\n', "\r\n")] {
            assert_eq!(token_in(&text), Some("abc.def.ghi"));
            assert_eq!(seed_in(&text), Some("SUABC"));
        }
        for wrong in ["", "SUABC", &text.replace("SUABC\n", ""), &text[..text.len() / 2]] {
            assert_eq!(seed_in(wrong), None, "{wrong}");
        }
    }
}

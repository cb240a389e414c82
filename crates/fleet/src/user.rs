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
    let (_, rest) = credentials.split_once("-----BEGIN NATS USER JWT-----")?;
    let token = rest.trim_start().lines().next()?.trim();
    let claims = BASE64URL_NOPAD.decode(token.split('.').nth(1)?.as_bytes()).ok()?;
    let Claims { name } = serde_json::from_slice(&claims).ok()?;
    Some(name)
}

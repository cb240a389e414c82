//! Keys and tokens for the servers, as `nsc` makes them: an operator who vouches for an account, an account with a signing key for each
//! role, and a user for each router and each operator's program.
//!
//! The permissions of a role are in the account's token, as a template that the server fills with the user's name. So a router's credentials are
//! made without the server, its configuration does not grow with the fleet, and a role changes in one place. The forms are those of NATS
//! (its documentation, "Decentralized JWT Authentication/Authorization"; version 2 of the tokens).

use std::collections::BTreeMap;

use data_encoding::{BASE32_NOPAD, BASE64URL_NOPAD};
use nkeys::{KeyPair, KeyPairType};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha512_256};

use crate::name::Name;

/// The longest login, seconds. A choice: with the server's 2 s, a fleet that comes back all at once after an outage is turned away and
/// tries again, which lasts longer.
const LOGIN_S: u32 = 30;

/// The port at which servers of a cluster reach each other, as in NATS' documentation.
const CLUSTER_PORT: u16 = 6222;

/// The secret keys of a fleet. Whoever has them can make credentials for it. They sign no documents.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    /// Seed of the operator, `SO…`: signs the accounts.
    operator: String,
    /// Seed of the account of the fleet, `SA…`.
    account: String,
    /// Seed of the account in which the servers talk to each other, `SA…`.
    system: String,
    /// Seed of the key that signs routers, `SA…`.
    routers: String,
    /// Seed of the key that signs operators' programs, `SA…`.
    operators: String,
}

/// A role of the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Reads its own document, writes its own reports.
    Router,
    /// Everything in the fleet's account.
    Operator,
}

/// Why a text does not hold the keys of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotKeys {
    /// It is no JSON, or not in the form of [`Keys`].
    #[error("it does not hold the keys of a fleet: {0}")]
    Malformed(String),
    /// A seed is wrong.
    #[error("the seed '{0}' in it is wrong: it was altered")]
    Seed(&'static str),
}

/// The credentials of a user.
#[derive(Clone)]
pub struct Credentials {
    /// The user's public key, `U…`, which [`Keys::server_part`] can revoke.
    pub user: String,
    /// The text of the credentials file, which must be kept secret.
    pub text: String,
}

impl Keys {
    /// New keys.
    pub fn generate() -> Self {
        let seed = |key: KeyPair| key.seed().expect("a new key has its seed");
        Self {
            operator: seed(KeyPair::new_operator()),
            account: seed(KeyPair::new_account()),
            system: seed(KeyPair::new_account()),
            routers: seed(KeyPair::new_account()),
            operators: seed(KeyPair::new_account()),
        }
    }

    /// Reads keys from their text.
    ///
    /// # Errors
    /// [`NotKeys`]. No seed is in the message.
    pub fn parse(text: &str) -> Result<Self, NotKeys> {
        // An error of the JSON parser could cite a seed.
        let keys: Self = serde_json::from_str(text).map_err(|error| {
            NotKeys::Malformed(format!("line {}, column {}", error.line(), error.column()))
        })?;
        let seeds = [
            ("operator", &keys.operator, KeyPairType::Operator),
            ("account", &keys.account, KeyPairType::Account),
            ("system", &keys.system, KeyPairType::Account),
            ("routers", &keys.routers, KeyPairType::Account),
            ("operators", &keys.operators, KeyPairType::Account),
        ];
        for (name, seed, kind) in seeds {
            let key = KeyPair::from_seed(seed).map_err(|_| NotKeys::Seed(name))?;
            if key.key_pair_type() != kind {
                return Err(NotKeys::Seed(name));
            }
        }
        Ok(keys)
    }

    /// The text of the keys, which must be kept secret.
    pub fn text(&self) -> String {
        serde_json::to_string_pretty(self).expect("keys are plain data")
    }

    /// The part of a server's configuration that makes it accept this fleet. `revoked` has the public keys of users whose credentials do
    /// not count any more if they were made before the time beside them, seconds since 1970 (UTC).
    pub fn server_part(&self, now: u64, revoked: &BTreeMap<String, u64>) -> String {
        let [operator, account, system] = [&self.operator, &self.account, &self.system].map(|seed| key(seed));
        let operator_token = token(
            &operator,
            &operator.public_key(),
            "sqm fleet",
            now,
            json!({ "type": "operator", "version": 2 }),
        );
        let fleet = json!({
            "limits": unlimited(true),
            "signing_keys": [self.scope(Role::Router), self.scope(Role::Operator)],
            "revocations": revoked,
            "default_permissions": { "pub": {}, "sub": {} },
            "type": "account",
            "version": 2,
        });
        let servers = json!({
            "limits": unlimited(false),
            "default_permissions": { "pub": {}, "sub": {} },
            "type": "account",
            "version": 2,
        });
        let account_token = token(&operator, &account.public_key(), "fleet", now, fleet);
        let system_token = token(&operator, &system.public_key(), "servers", now, servers);
        let (account, system) = (account.public_key(), system.public_key());
        format!(
            "authorization {{ timeout: {LOGIN_S} }}\noperator: {operator_token}\nsystem_account: {system}\nresolver: MEMORY\nresolver_preload: {{\n  \
             {account}: {account_token}\n  {system}: {system_token}\n}}\n"
        )
    }

    /// The part of a server's configuration that joins it with the servers on these hosts to a cluster. They accept each other by a password
    /// that is drawn from the keys. `tls` has the files of the encryption between them.
    pub fn cluster_part(&self, hosts: &[String], tls: Option<&str>) -> String {
        let password = Sha512_256::digest(["sqm-fleet-cluster\n", &self.system].concat());
        let password = BASE32_NOPAD.encode(&password);
        let tls = tls.map_or_else(String::new, |tls| format!("  tls {{\n{tls}  }}\n"));
        let routes: String = hosts
            .iter()
            .map(|host| format!("    \"nats://servers:{password}@{host}:{CLUSTER_PORT}\"\n"))
            .collect();
        // Routers have the addresses of all servers already. Those that the servers find out may not be reachable for them.
        format!(
            "cluster {{\n  name: fleet\n  listen: \"0.0.0.0:{CLUSTER_PORT}\"\n  no_advertise: true\n  authorization {{ user: servers, password: \
             \"{password}\", timeout: {LOGIN_S} }}\n{tls}  routes: [\n{routes}  ]\n}}\n"
        )
    }

    /// The signing key of a role, with what its users may do.
    fn scope(&self, role: Role) -> Value {
        let (name, seed, publish, subscribe) = match role {
            // The server replaces `{{name()}}` only where it is all between two dots.
            Role::Router => (
                "router",
                &self.routers,
                vec![
                    "$JS.API.DIRECT.GET.KV_fleet.$KV.fleet.cfg.{{name()}}",
                    "$KV.fleet.state.{{name()}}",
                    "$KV.fleet_alive.alive.{{name()}}",
                ],
                vec!["$KV.fleet.cfg.{{name()}}", "_INBOX.{{name()}}.>"],
            ),
            Role::Operator => ("operator", &self.operators, vec![">"], vec![">"]),
        };
        json!({
            "kind": "user_scope",
            "key": key(seed).public_key(),
            "role": name,
            "template": {
                "pub": { "allow": publish },
                "sub": { "allow": subscribe },
                "subs": -1,
                "data": -1,
                "payload": -1,
            },
        })
    }

    /// Makes credentials for a router, or for an operator's program.
    pub fn enroll(&self, name: &Name, role: Role, now: u64) -> Credentials {
        let user = KeyPair::new_user();
        let signer = key(match role {
            Role::Router => &self.routers,
            Role::Operator => &self.operators,
        });
        let claims = json!({
            "issuer_account": key(&self.account).public_key(),
            "pub": {},
            "sub": {},
            "type": "user",
            "version": 2,
        });
        let token = token(&signer, &user.public_key(), name.as_str(), now, claims);
        let seed = user.seed().expect("a new key has its seed");
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
             Whoever has this file can connect as {name}. Keep it secret.\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        Credentials {
            user: user.public_key(),
            text,
        }
    }
}

/// No limits, with JetStream or without it.
fn unlimited(has_jetstream: bool) -> Value {
    let storage = if has_jetstream { -1 } else { 0 };
    json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
        "mem_storage": storage, "disk_storage": storage, "streams": storage, "consumer": storage,
    })
}

/// A key whose seed was checked when it was read.
fn key(seed: &str) -> KeyPair {
    KeyPair::from_seed(seed).expect("seeds are checked when they are read")
}

/// A signed token.
fn token(signer: &KeyPair, subject: &str, name: &str, now: u64, nats: Value) -> String {
    let mut claims = json!({
        "iat": now,
        "iss": signer.public_key(),
        "name": name,
        "nats": nats,
        "sub": subject,
    });
    let hash = Sha512_256::digest(claims.to_string());
    claims["jti"] = BASE32_NOPAD.encode(&hash).into();
    let encoded = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    let body = format!(
        "{}.{}",
        encoded(&json!({ "typ": "JWT", "alg": "ed25519-nkey" })),
        encoded(&claims)
    );
    let signature = signer.sign(body.as_bytes()).expect("the key has its seed");
    format!("{body}.{}", BASE64URL_NOPAD.encode(&signature))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user::name_in;

    #[test]
    fn credentials_tell_whose_they_are() {
        let keys = Keys::generate();
        let name: Name = "r1".parse().expect("a name");
        let credentials = keys.enroll(&name, Role::Router, 1_800_000_000);
        assert_eq!(name_in(&credentials.text), Some(name));
        assert!(credentials.user.starts_with('U'));
        for wrong in [
            "",
            "-----BEGIN NATS USER JWT-----",
            "-----BEGIN NATS USER JWT-----\na.b.c\n",
        ] {
            assert_eq!(name_in(wrong), None);
        }
    }

    #[test]
    fn keys_survive_their_text_and_damage_is_found_without_a_secret_in_the_message() {
        let keys = Keys::generate();
        let text = keys.text();
        let again = Keys::parse(&text).expect("its own text");
        assert_eq!(again.text(), text);
        let swapped = text.replace(&keys.operator, &keys.account);
        assert_eq!(Keys::parse(&swapped).err(), Some(NotKeys::Seed("operator")));
        let typed = text.replace(&keys.routers[10..20], "AAAAAAAAAA");
        assert_eq!(Keys::parse(&typed).err(), Some(NotKeys::Seed("routers")));
        let cut = Keys::parse(&text[..text.len() - 20])
            .err()
            .expect("refused")
            .to_string();
        assert!(!cut.contains("SA") && !cut.contains("SO"), "{cut}");
    }
}

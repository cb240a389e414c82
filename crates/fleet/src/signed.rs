//! A document with its signature, as it lies in the store.
//!
//! The signature is Ed25519 over the bytes of the document behind a prefix of its own, so a signature for another purpose does not fit.
//! The document is carried as text: what was signed is what is read, whatever a JSON library would make of it.
//!
//! Keys have the text form of NATS' nkeys: a seed `SU…`, a public key `U…`, each with a checksum, so that a typing error is found.

use std::fmt;

use data_encoding::BASE64;
use nkeys::{KeyPair, KeyPairType};
use serde::{Deserialize, Serialize};

/// The schema of the envelopes that this version writes and reads.
pub const SCHEMA: &str = "sqm-fleet-signed/1";

/// The longest envelope, bytes. NATS refuses messages above 1 MiB unless its server is told otherwise, and the largest configuration
/// (1 MiB) of a provider's router is not one of a fleet: 256 KiB hold more than a thousand sections.
pub const LONGEST: usize = 256 * 1024;

/// A document and its signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope {
    schema: String,
    /// The public key that verifies the signature.
    key: String,
    /// Base64.
    signature: String,
    document: String,
}

/// A key that signs documents. It belongs to the operator and need not be on any server.
pub struct SigningKey(KeyPair);

/// The public half of a [`SigningKey`], which routers have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey(String);

/// Why a text is no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAKey {
    /// It is not in the form of an nkey, or its checksum is wrong.
    #[error("'{}' is no public key: it begins with U and has 56 letters and digits; check for a typing error", .0.escape_debug())]
    Public(String),
    /// The secret key is not printed.
    #[error("it is no seed of a signing key: it begins with SU and has 58 letters and digits")]
    Seed,
}

/// Why an envelope is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is longer than [`LONGEST`].
    #[error("it has {0} bytes, and {LONGEST} are allowed")]
    TooLong(usize),
    /// It is no JSON, or not in the schema.
    #[error("it is no signed document: {0}")]
    Malformed(String),
    /// It has another schema.
    #[error("its schema is '{0}', and this version of sqm reads '{SCHEMA}'")]
    OtherSchema(String),
    /// Another key has signed it.
    #[error("the key {found} has signed it, and this router accepts {pinned} only (option fleet_key)")]
    OtherKey {
        /// The key that the envelope names.
        found: String,
        /// The router's key.
        pinned: String,
    },
    /// The signature does not fit.
    #[error("its signature is wrong: it was altered after it was signed")]
    WrongSignature,
}

impl SigningKey {
    /// A new key.
    pub fn generate() -> Self {
        Self(KeyPair::new_user())
    }

    /// The key of a seed, `SU…`.
    ///
    /// # Errors
    /// [`NotAKey::Seed`].
    pub fn from_seed(seed: &str) -> Result<Self, NotAKey> {
        let key = KeyPair::from_seed(seed.trim()).map_err(|_| NotAKey::Seed)?;
        match key.key_pair_type() {
            KeyPairType::User => Ok(Self(key)),
            _ => Err(NotAKey::Seed),
        }
    }

    /// The seed, which must be kept secret.
    pub fn seed(&self) -> String {
        self.0.seed().expect("a signing key has its seed")
    }

    /// The public key.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.public_key())
    }

    /// The envelope of a document.
    pub fn sign(&self, document: &str) -> String {
        let signature = self
            .0
            .sign(&signed_bytes(document))
            .expect("a signing key has its seed");
        let envelope = Envelope {
            schema: SCHEMA.into(),
            key: self.0.public_key(),
            signature: BASE64.encode(&signature),
            document: document.into(),
        };
        serde_json::to_string(&envelope).expect("an envelope is plain data")
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.0.public_key())
    }
}

impl PublicKey {
    /// Reads a public key, `U…`.
    ///
    /// # Errors
    /// [`NotAKey::Public`].
    pub fn parse(text: &str) -> Result<Self, NotAKey> {
        let not_a_key = || NotAKey::Public(text.chars().take(64).collect());
        let key = KeyPair::from_public_key(text.trim()).map_err(|_| not_a_key())?;
        match key.key_pair_type() {
            KeyPairType::User => Ok(Self(key.public_key())),
            _ => Err(not_a_key()),
        }
    }

    /// Opens an envelope: returns the document, if this key has signed it.
    ///
    /// # Errors
    /// The reason of the refusal. Nothing of the document has been looked at then.
    pub fn open(&self, envelope: &[u8]) -> Result<String, Refusal> {
        let envelope = Envelope::parse(envelope)?;
        if envelope.key != self.0 {
            return Err(Refusal::OtherKey {
                found: envelope.key.chars().take(64).collect(),
                pinned: self.0.clone(),
            });
        }
        let signature = BASE64
            .decode(envelope.signature.as_bytes())
            .map_err(|_| Refusal::WrongSignature)?;
        let key = KeyPair::from_public_key(&self.0).expect("checked by `parse`");
        key.verify(&signed_bytes(&envelope.document), &signature)
            .map_err(|_| Refusal::WrongSignature)?;
        Ok(envelope.document)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Envelope {
    fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        #[derive(Deserialize)]
        struct Schema {
            schema: String,
        }
        if bytes.len() > LONGEST {
            return Err(Refusal::TooLong(bytes.len()));
        }
        let malformed = |error: serde_json::Error| Refusal::Malformed(error.to_string());
        let Schema { schema } = serde_json::from_slice(bytes).map_err(malformed)?;
        if schema != SCHEMA {
            return Err(Refusal::OtherSchema(schema.chars().take(64).collect()));
        }
        serde_json::from_slice(bytes).map_err(malformed)
    }
}

/// Reads the document of an envelope without a look at its signature, for the operator's commands.
///
/// # Errors
/// [`Refusal::TooLong`], [`Refusal::Malformed`] and [`Refusal::OtherSchema`].
pub fn document_of(envelope: &[u8]) -> Result<String, Refusal> {
    Ok(Envelope::parse(envelope)?.document)
}

fn signed_bytes(document: &str) -> Vec<u8> {
    [SCHEMA, "\n", document].concat().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_key_has_signed_is_opened() {
        let (key, other) = (SigningKey::generate(), SigningKey::generate());
        let envelope = key.sign("{\"a\": \"ü\\n\"}");
        assert_eq!(
            key.public().open(envelope.as_bytes()).as_deref(),
            Ok("{\"a\": \"ü\\n\"}")
        );
        let refused = other.public().open(envelope.as_bytes());
        assert!(matches!(refused, Err(Refusal::OtherKey { .. })), "{refused:?}");
        // A forger names the right key, but cannot sign with it.
        let forged = other.sign("{}").replace(&other.public().0, &key.public().0);
        assert_eq!(key.public().open(forged.as_bytes()), Err(Refusal::WrongSignature));
    }

    #[test]
    fn any_altered_byte_is_refused() {
        let key = SigningKey::generate();
        let envelope = key.sign("{\"revision\": 7}");
        for at in 0..envelope.len() {
            let mut altered = envelope.clone().into_bytes();
            altered[at] ^= 1;
            assert!(key.public().open(&altered).is_err(), "byte {at}");
            assert!(
                key.public().open(&envelope.as_bytes()[..at]).is_err(),
                "cut at {at}"
            );
        }
    }

    #[test]
    fn a_long_envelope_is_refused_before_it_is_read() {
        let key = SigningKey::generate();
        let refused = key.public().open(&vec![b'{'; 10 << 20]);
        assert_eq!(refused, Err(Refusal::TooLong(10 << 20)));
    }

    #[test]
    fn keys_survive_their_text_and_typing_errors_are_found() {
        let key = SigningKey::generate();
        let again = SigningKey::from_seed(&format!("{}\n", key.seed())).expect("its own seed");
        assert_eq!(again.public(), key.public());
        let text = key.public().to_string();
        assert_eq!(PublicKey::parse(&text), Ok(key.public()));
        let typed = text.replace(&text[20..21], if &text[20..21] == "A" { "B" } else { "A" });
        let account = KeyPair::new_account();
        for wrong in ["", "U", &typed, &account.public_key(), &key.seed()] {
            assert!(PublicKey::parse(wrong).is_err(), "{wrong}");
        }
        assert!(SigningKey::from_seed(&text).is_err());
        assert!(!format!("{key:?}").contains(&key.seed()));
    }
}

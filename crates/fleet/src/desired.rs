//! The desired document: what a router should have.

use serde::{Deserialize, Serialize};

use crate::judgement::Rules;
use crate::name::Name;

/// The schema of the documents that this version writes and reads.
pub const SCHEMA: &str = "sqm-fleet-desired/1";

/// The configuration that a router should have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Desired {
    /// [`SCHEMA`].
    pub schema: String,
    /// The router that the document is for.
    pub router: Name,
    /// The group that the router belongs to, for people and for selections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Name>,
    /// Counts up. A router takes only a document with a higher revision than the last one that it took.
    pub revision: u64,
    /// When the document was written, seconds since 1970 (UTC).
    pub issued_unix_s: u64,
    /// The router waits until this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before_unix_s: Option<u64>,
    /// From this time on the document is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_unix_s: Option<u64>,
    /// The `config queue` sections of `/etc/config/sqm`. The router keeps its own sections of other kinds, so no document can cut it off
    /// from the fleet.
    pub configuration: String,
    /// How the router judges the configuration.
    #[serde(default)]
    pub judgement: Rules,
}

/// The router's side when a document arrives.
#[derive(Clone, Debug)]
pub struct Receiver {
    /// The router's name.
    pub router: Name,
    /// The revision of the last document that it took; 0 if there was none.
    pub revision: u64,
    /// The router's clock, seconds since 1970 (UTC).
    pub now_unix_s: u64,
}

/// Why a document is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is no JSON, or not in the schema.
    #[error("it is no desired document: {0}")]
    Malformed(String),
    /// It has another schema.
    #[error("its schema is '{0}', and this version of sqm reads '{SCHEMA}'")]
    OtherSchema(String),
    /// It is for another router.
    #[error("it is for the router {found}, and this is the router {receiver}")]
    OtherRouter {
        /// The router that it is for.
        found: Name,
        /// This router.
        receiver: Name,
    },
    /// It is not newer than the last one.
    #[error("its revision {found} is not above {known}, the last one that this router took")]
    OldRevision {
        /// The document's revision.
        found: u64,
        /// The last revision taken.
        known: u64,
    },
    /// Its time is over.
    #[error("it expired at {0} s after 1970 (UTC)")]
    Expired(u64),
    /// Its rules of judgement cannot work.
    #[error("its {0}")]
    Rules(String),
}

/// The router's decision on a document that it does not refuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is tried now.
    Now,
    /// It is looked at again at this time, seconds since 1970 (UTC).
    Later(u64),
    /// The router's clock is earlier than the document: it has not been set since the router started. The document is looked at again
    /// when it has.
    ClockNotSet,
}

/// How far a router's clock may be behind the operator's, seconds. A choice: clocks that are set by NTP differ by less than a second,
/// and those that are set by hand by minutes.
const CLOCK_TOLERANCE_S: u64 = 3600;

impl Desired {
    /// Reads a document.
    ///
    /// # Errors
    /// [`Refusal::Malformed`] and [`Refusal::OtherSchema`].
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        #[derive(Deserialize)]
        struct Schema {
            schema: String,
        }
        // A newer schema may have other fields: it is named before they are looked at.
        let malformed = |error: serde_json::Error| Refusal::Malformed(error.to_string());
        let Schema { schema } = serde_json::from_str(text).map_err(malformed)?;
        if schema != SCHEMA {
            return Err(Refusal::OtherSchema(schema.chars().take(64).collect()));
        }
        serde_json::from_str(text).map_err(malformed)
    }

    /// Decides whether a router may try this document, and when.
    ///
    /// # Errors
    /// The reason of the refusal. It is final: the same document is refused again.
    pub fn admit(&self, receiver: &Receiver) -> Result<Admission, Refusal> {
        if self.router != receiver.router {
            return Err(Refusal::OtherRouter {
                found: self.router.clone(),
                receiver: receiver.router.clone(),
            });
        }
        if self.revision <= receiver.revision {
            return Err(Refusal::OldRevision {
                found: self.revision,
                known: receiver.revision,
            });
        }
        self.judgement.check().map_err(Refusal::Rules)?;
        let now = receiver.now_unix_s;
        if now.saturating_add(CLOCK_TOLERANCE_S) < self.issued_unix_s {
            return Ok(Admission::ClockNotSet);
        }
        if let Some(expires) = self.expires_unix_s.filter(|&at| at <= now) {
            return Err(Refusal::Expired(expires));
        }
        Ok(match self.not_before_unix_s {
            Some(at) if at > now => Admission::Later(at),
            _ => Admission::Now,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    fn document() -> Desired {
        Desired {
            schema: SCHEMA.into(),
            router: name("r1"),
            group: Some(name("berlin")),
            revision: 7,
            issued_unix_s: 1_800_000_000,
            not_before_unix_s: None,
            expires_unix_s: None,
            configuration: "config queue\n".into(),
            judgement: Rules::default(),
        }
    }

    fn receiver() -> Receiver {
        Receiver {
            router: name("r1"),
            revision: 6,
            now_unix_s: 1_800_000_100,
        }
    }

    #[test]
    fn a_document_for_this_router_is_tried() {
        assert_eq!(document().admit(&receiver()), Ok(Admission::Now));
    }

    #[test]
    fn each_refusal_names_its_reason() {
        let refused = |document: Desired| document.admit(&receiver()).expect_err("refused").to_string();
        let router = name("r2");
        assert_eq!(
            refused(Desired { router, ..document() }),
            "it is for the router r2, and this is the router r1"
        );
        let judgement = Rules {
            factor: 0.0,
            ..Rules::default()
        };
        assert_eq!(
            refused(Desired {
                judgement,
                ..document()
            }),
            "its judgement.factor must be 1 to 100"
        );
        for revision in [0, 5, 6] {
            let said = refused(Desired {
                revision,
                ..document()
            });
            assert_eq!(
                said,
                format!("its revision {revision} is not above 6, the last one that this router took")
            );
        }
        let expires_unix_s = Some(1_800_000_100);
        assert!(
            refused(Desired {
                expires_unix_s,
                ..document()
            })
            .starts_with("it expired at 1800000100")
        );
    }

    #[test]
    fn a_document_waits_for_its_time_and_for_a_clock_that_is_set() {
        let not_before_unix_s = Some(1_800_000_101);
        let early = Desired {
            not_before_unix_s,
            ..document()
        };
        assert_eq!(early.admit(&receiver()), Ok(Admission::Later(1_800_000_101)));
        // A router without a clock of its own starts in the past. An expired document is not refused and not tried then.
        let started = Receiver {
            now_unix_s: 1_700_000_000,
            ..receiver()
        };
        assert_eq!(document().admit(&started), Ok(Admission::ClockNotSet));
    }

    #[test]
    fn another_schema_is_named_whatever_its_fields_are() {
        let said = Desired::parse(r#"{"schema":"sqm-fleet-desired/2","new":1}"#).expect_err("refused");
        assert_eq!(said, Refusal::OtherSchema("sqm-fleet-desired/2".into()));
        let text = serde_json::to_string(&document()).expect("plain data");
        assert_eq!(Desired::parse(&text), Ok(document()));
        for text in [
            "",
            "{}",
            "[]",
            &text[..text.len() - 1],
            &text.replace("revision", "version"),
        ] {
            assert!(
                matches!(Desired::parse(text), Err(Refusal::Malformed(_))),
                "{text}"
            );
        }
    }
}

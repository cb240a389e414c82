//! Reads a reply without serde's own way for tagged enums: that first keeps a whole frame, megabytes of samples, as a tree of values, and
//! takes about 20 kB of code on a router.

use serde::Deserialize;
use sqm_core::direction::Direction;

use super::{Reply, Seen, Token};
use crate::result::direction_word;

/// The fields of all replies.
#[derive(Deserialize)]
pub(super) struct Fields {
    reply: Kind,
    nonce: Option<Token>,
    version: Option<u32>,
    token: Option<Token>,
    program: Option<String>,
    kernel: Option<String>,
    max_probes_per_s: Option<u32>,
    #[serde(default)]
    windows: bool,
    congestion: Option<String>,
    dscp_arrived: Option<u8>,
    elapsed_ms: Option<u64>,
    received: Option<Vec<u64>>,
    #[serde(default, with = "direction_word::optional")]
    direction: Option<Direction>,
    flow: Option<u32>,
    seen: Option<Seen>,
    busiest_cpu: Option<f64>,
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Challenge,
    Welcome,
    Attached,
    Progress,
    Flow,
    Done,
    Error,
}

impl TryFrom<Fields> for Reply {
    type Error = String;

    fn try_from(fields: Fields) -> Result<Self, String> {
        Ok(match fields.reply {
            Kind::Challenge => Self::Challenge {
                nonce: required(fields.nonce, "nonce")?,
            },
            Kind::Welcome => Self::Welcome {
                version: required(fields.version, "version")?,
                token: required(fields.token, "token")?,
                program: required(fields.program, "program")?,
                kernel: required(fields.kernel, "kernel")?,
                max_probes_per_s: required(fields.max_probes_per_s, "max_probes_per_s")?,
                windows: fields.windows,
            },
            Kind::Attached => Self::Attached {
                congestion: required(fields.congestion, "congestion")?,
                dscp_arrived: fields.dscp_arrived,
            },
            Kind::Progress => Self::Progress {
                elapsed_ms: required(fields.elapsed_ms, "elapsed_ms")?,
                received: required(fields.received, "received")?,
            },
            Kind::Flow => Self::Flow {
                direction: required(fields.direction, "direction")?,
                flow: required(fields.flow, "flow")?,
                seen: required(fields.seen, "seen")?,
            },
            Kind::Done => Self::Done {
                busiest_cpu: fields.busiest_cpu,
            },
            Kind::Error => Self::Error {
                reason: required(fields.reason, "reason")?,
            },
        })
    }
}

fn required<T>(field: Option<T>, name: &str) -> Result<T, String> {
    field.ok_or_else(|| format!("missing field `{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_read_as_they_were_written() {
        let token = Token([7; 16]);
        let replies = [
            Reply::Challenge { nonce: token },
            Reply::Welcome {
                version: 2,
                token,
                program: "0.1.0".into(),
                kernel: "6.12".into(),
                max_probes_per_s: 100,
                windows: true,
            },
            Reply::Attached {
                congestion: "cubic".into(),
                dscp_arrived: Some(46),
            },
            Reply::Progress {
                elapsed_ms: 1000,
                received: vec![1, 2],
            },
            Reply::Flow {
                direction: Direction::Upload,
                flow: 3,
                seen: Seen {
                    mss: Some(1448),
                    ..Seen::default()
                },
            },
            Reply::Done {
                busiest_cpu: Some(0.5),
            },
            Reply::Error {
                reason: "full".into(),
            },
        ];
        for reply in replies {
            let text = serde_json::to_string(&reply).unwrap();
            assert_eq!(serde_json::from_str::<Reply>(&text).unwrap(), reply, "{text}");
        }
    }

    #[test]
    fn a_reply_without_a_field_that_it_needs_is_refused() {
        for (text, field) in [
            (r#"{"reply": "challenge"}"#, "nonce"),
            (r#"{"reply": "progress", "elapsed_ms": 1}"#, "received"),
            (r#"{"reply": "flow", "flow": 1, "seen": {}}"#, "direction"),
            (r#"{"direction": "up"}"#, "reply"),
        ] {
            let error = serde_json::from_str::<Reply>(text).unwrap_err().to_string();
            assert!(error.contains(&format!("missing field `{field}`")), "{error}");
        }
    }

    #[test]
    fn a_server_of_an_earlier_version_says_nothing_of_windows() {
        let token = String::from(Token([7; 16]));
        let text = format!(
            r#"{{"reply":"welcome","version":2,"token":"{token}","program":"0","kernel":"6","max_probes_per_s":1}}"#
        );
        let reply = serde_json::from_str::<Reply>(&text).unwrap();
        assert!(
            matches!(reply, Reply::Welcome { windows: false, .. }),
            "{reply:?}"
        );
    }
}

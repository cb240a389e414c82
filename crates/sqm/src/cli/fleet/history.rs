//! The history of a router and of a roll-out: each value that the store still has of their keys.

use anyhow::Context as _;
use serde::Serialize;
use sqm_fleet::Name;
use sqm_fleet::desired::Desired;
use sqm_fleet::nats::Nats;
use sqm_fleet::report::Report;
use sqm_fleet::rollout::RollOut;
use sqm_fleet::signed::PublicKey;
use sqm_fleet::transport::{self, Key};
use sqm_process::Failure;

use super::{overview, roll_out, when};

/// One value that a key has had.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Entry {
    /// When, by the server's clock.
    pub(super) at: String,
    pub(super) kind: Kind,
    /// The writer: the server lets nobody else write these keys.
    by: Writer,
    /// The key that has signed it, if that is the fleet's.
    key: Option<String>,
    /// The document's revision.
    revision: Option<u64>,
    pub(super) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Document,
    Report,
    RollOut,
}

impl Kind {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Document => "document",
            Self::Report => "report",
            Self::RollOut => "roll-out",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Writer {
    Operator,
    Router,
}

/// The documents and reports of a router, oldest first.
pub(super) async fn of_router(store: &Nats, key: &PublicKey, name: &Name) -> Result<Vec<Entry>, Failure> {
    let documents = read(store, &Key::Desired(name.clone())).await?;
    let reports = read(store, &Key::Report(name.clone())).await?;
    let documents = documents
        .into_iter()
        .map(|found| (found.revision, document(found, key)));
    let reports = reports.into_iter().map(|found| (found.revision, report(found)));
    let mut entries: Vec<(u64, Entry)> = documents.chain(reports).collect();
    entries.sort_by_key(|(number, _)| *number);
    Ok(entries.into_iter().map(|(_, entry)| entry).collect())
}

/// The states of a roll-out, oldest first.
pub(super) async fn of_roll_out(store: &Nats, name: &Name) -> Result<Vec<Entry>, Failure> {
    let entries = read(store, &Key::RollOut(name.clone())).await?;
    let mut entries: Vec<Entry> = entries.into_iter().map(state_of_roll_out).collect();
    // Two states with one text differ in details that the text leaves out.
    entries.dedup_by(|later, earlier| later.text == earlier.text);
    Ok(entries)
}

async fn read(store: &Nats, key: &Key) -> Result<Vec<transport::Entry>, Failure> {
    Ok(store.history(key).await.context("cannot read the history")?)
}

fn document(found: transport::Entry, key: &PublicKey) -> Entry {
    let opened = key.open(&found.value).map_err(|refusal| refusal.to_string());
    let document = opened.and_then(|text| Desired::parse(&text).map_err(|refusal| refusal.to_string()));
    Entry {
        at: found.written,
        kind: Kind::Document,
        by: Writer::Operator,
        key: document.is_ok().then(|| key.to_string()),
        revision: document.as_ref().ok().map(|document| document.revision),
        text: match document {
            Ok(document) => format!("revision {}", document.revision),
            Err(refusal) => format!("routers refuse it: {refusal}"),
        },
    }
}

fn report(found: transport::Entry) -> Entry {
    let report = Report::parse(&found.value);
    Entry {
        at: found.written,
        kind: Kind::Report,
        by: Writer::Router,
        key: None,
        revision: report.as_ref().ok().map(|report| report.revision),
        text: report.map_or_else(|error| error, |report| words(&report)),
    }
}

fn words(report: &Report) -> String {
    let (state, reason) = overview::reported(report);
    let revision = (report.revision > 0).then(|| format!("revision {}", report.revision));
    let parts = [revision, Some(state.to_owned()), Some(reason)];
    let parts = parts.into_iter().flatten().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(": ")
}

fn state_of_roll_out(found: transport::Entry) -> Entry {
    let state = RollOut::parse(&found.value);
    let now = when::parse(&found.written).unwrap_or(0);
    Entry {
        at: found.written,
        kind: Kind::RollOut,
        by: Writer::Operator,
        key: None,
        revision: state.as_ref().ok().map(|state| state.revision),
        text: state.map_or_else(|error| error, |state| roll_out::describe(&state, None, now)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(value: impl Serialize) -> transport::Entry {
        transport::Entry {
            value: serde_json::to_vec(&value).expect("plain data"),
            revision: 7,
            written: "2026-11-28T08:00:00Z".into(),
        }
    }

    fn first_report() -> Report {
        Report {
            schema: sqm_fleet::report::SCHEMA.into(),
            router: "r1".parse().expect("a name"),
            at_unix_s: 0,
            sqm_version: "0.1.0".into(),
            hardware: "x86_64".into(),
            revision: 0,
            in_force: 0,
            outcome: None,
            refused: None,
            differences: Vec::new(),
        }
    }

    #[test]
    fn a_report_is_said_without_empty_parts() {
        let text = |report: Report| super::report(stored(report)).text;
        assert_eq!(text(first_report()), "no document");
        let differences = vec!["eth0: is missing".to_owned()];
        let report = Report {
            differences,
            ..first_report()
        };
        assert_eq!(text(report), "no document: eth0: is missing");
        let report = Report {
            revision: 3,
            outcome: Some(sqm_fleet::report::Outcome::Observed {
                quiet_test_unix_s: None,
            }),
            ..first_report()
        };
        assert_eq!(text(report), "revision 3: observed: its round trips are observed");
    }

    #[test]
    fn a_document_names_the_key_only_if_it_has_signed_it() {
        let (ours, other) = (
            sqm_fleet::signed::SigningKey::generate(),
            sqm_fleet::signed::SigningKey::generate(),
        );
        let document = Desired {
            schema: sqm_fleet::desired::SCHEMA.into(),
            router: "r1".parse().expect("a name"),
            group: None,
            revision: 5,
            issued_unix_s: 0,
            not_before_unix_s: None,
            expires_unix_s: None,
            configuration: String::new(),
            judgement: sqm_fleet::judgement::Rules::default(),
        };
        let text = serde_json::to_string(&document).expect("plain data");
        let signed = |by: &sqm_fleet::signed::SigningKey| {
            let value = by.sign(&text).into_bytes();
            super::document(transport::Entry { value, ..stored(()) }, &ours.public())
        };
        let entry = signed(&ours);
        assert_eq!(entry.key, Some(ours.public().to_string()));
        assert_eq!((entry.revision, entry.text.as_str()), (Some(5), "revision 5"));
        let entry = signed(&other);
        assert_eq!((entry.key, entry.revision), (None, None));
        assert!(entry.text.contains(&other.public().to_string()), "{}", entry.text);
    }
}

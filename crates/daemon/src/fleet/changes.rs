//! Changes of the configuration, which the main loop carries out.

use std::time::Duration;

use sqm_api::configuration::ConfigurationFile;
use sqm_configuration::Draft;
use sqm_fleet::agent::{Applied, Ended};
use tokio::sync::oneshot;

use crate::shared::{Command, Refused, Shared};

/// The type of the sections that a document may hold.
const QUEUE: &str = "queue";
/// The longest wait for the main loop. A choice: it waits for locks of other programs for up to half a minute.
const PATIENCE: Duration = Duration::from_secs(120);

/// A change that waits for its confirmation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// The revision of the configuration's text.
    revision: String,
}

/// Applies the sections of a document in place of the router's own, to be confirmed within this time.
pub(super) async fn apply(shared: &Shared, sections: &str, confirm: Duration) -> (Applied, Option<Change>) {
    let Some(file) = read(shared).await else {
        return (Applied::Busy, None);
    };
    let text = match with_sections(&file.text, sections) {
        Ok(text) => text,
        Err(errors) => return (Applied::Invalid(errors), None),
    };
    if text == file.text {
        let applied = if file.unconfirmed.is_some() {
            Applied::Busy
        } else {
            Applied::Already
        };
        return (applied, None);
    }
    let revision = file.revision;
    let sent = send(shared, |reply| Command::Configure {
        text,
        revision,
        confirm,
        reply,
    });
    match sent.await {
        Some(Ok(configured)) => (
            Applied::Yes,
            Some(Change {
                revision: configured.revision,
            }),
        ),
        Some(Err(Refused::Wrong(errors) | Refused::Failed(errors))) => (Applied::Invalid(errors), None),
        Some(Err(Refused::Conflict(_) | Refused::Unconfirmed | Refused::NothingWaits)) | None => {
            (Applied::Busy, None)
        }
    }
}

/// Confirms the change.
pub(super) async fn confirm(shared: &Shared, change: &Change) -> Option<Ended> {
    match send(shared, |reply| Command::Confirm { reply }).await {
        Some(Ok(_)) => Some(Ended::Kept),
        // It failed, or somebody else has decided already.
        _ => how_it_ended(shared, change).await,
    }
}

/// Rolls the change back.
pub(super) async fn revert(shared: &Shared, change: &Change) -> Option<Ended> {
    match send(shared, |reply| Command::Revert { reply }).await {
        Some(Ok(_)) => Some(Ended::RolledBack),
        _ => how_it_ended(shared, change).await,
    }
}

/// How the change has ended, by whomever; `None` while it waits.
pub(super) async fn how_it_ended(shared: &Shared, change: &Change) -> Option<Ended> {
    let file = read(shared).await?;
    match file.unconfirmed {
        Some(unconfirmed) if unconfirmed.revision == change.revision => None,
        _ if file.revision == change.revision => Some(Ended::Kept),
        _ => Some(Ended::RolledBack),
    }
}

async fn read(shared: &Shared) -> Option<ConfigurationFile> {
    send(shared, |reply| Command::Read { reply }).await?.ok()
}

/// Sends a command to the main loop. `None` if it does not answer.
async fn send<T>(shared: &Shared, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
    let (reply, answer) = oneshot::channel();
    shared.command(command(reply));
    tokio::time::timeout(PATIENCE, answer).await.ok()?.ok()
}

/// The router's configuration with the document's `queue` sections in place of its own. Its other sections stay byte for byte: they say
/// how the router itself is reached.
fn with_sections(own: &str, sections: &str) -> Result<String, Vec<String>> {
    let in_document = |error: &dyn std::fmt::Display| format!("the document's configuration: {error}");
    let draft = Draft::of(sections.as_bytes());
    let draft = draft.map_err(|errors| errors.iter().map(|error| in_document(error)).collect::<Vec<_>>())?;
    let foreign: Vec<String> = draft
        .other_sections()
        .iter()
        .map(|error| in_document(error))
        .collect();
    if !foreign.is_empty() {
        return Err(foreign);
    }
    let mut own = Draft::of(own.as_bytes()).map_err(|errors| {
        errors
            .iter()
            .map(|error| format!("the router's configuration: {error}"))
            .collect::<Vec<_>>()
    })?;
    let replaced: Vec<usize> = own
        .sections()
        .iter()
        .filter(|section| section.kind == QUEUE)
        .map(|section| section.index)
        .collect();
    for section in replaced {
        own.remove_section(section)
            .map_err(|error| vec![error.to_string()])?;
    }
    let mut text = own.finish_text();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(sections);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAEMON: &str =
        "# our hub\nconfig daemon\n\t# how the hub is reached\n\toption fleet_url 'tls://hub'\n";

    #[test]
    fn only_queues_are_replaced() {
        let own = format!(
            "config queue a\n\toption interface 'wan'\n{DAEMON}config queue b\n\toption interface 'lte'\n"
        );
        let sections = "config queue\n\toption interface 'eth1'\n";
        let text = with_sections(&own, sections).expect("no errors");
        assert_eq!(text, format!("{DAEMON}{sections}"));
        assert_eq!(with_sections(&text, sections), Ok(text.clone()), "applied twice");
        assert_eq!(with_sections("", sections).as_deref(), Ok(sections));
    }

    #[test]
    fn a_document_cannot_change_how_the_router_is_reached() {
        let errors = with_sections(
            DAEMON,
            "config queue\nconfig daemon\n\toption fleet_url 'tls://evil'\n",
        )
        .expect_err("refused");
        assert_eq!(
            errors,
            [
                "the document's configuration: line 2: only 'config queue' sections are allowed here, and this is 'config daemon'"
            ]
        );
        // Not behind a quote that is never closed, either.
        let errors = with_sections(DAEMON, "config queue\n\toption interface 'eth1\n").expect_err("refused");
        assert!(
            errors[0].starts_with("the document's configuration: "),
            "{errors:?}"
        );
    }
}

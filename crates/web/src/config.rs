//! The configuration: read, validated and written. The daemon reads and writes the file; this server validates it.

use std::path::Path;
use std::sync::Arc;

use hyper::StatusCode;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use sqm_api::configuration::{ConfigurationFile, Configure, Configured, Unconfirmed};
use sqm_api::status::State;
use sqm_kernel::netlink::link::Link;
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::observe::Observed;
use sqm_kernel::{diff, observe, render};
use sqm_plan::OptionValue;
use sqm_plan::plan::Plan;

use super::compute::compute;
use super::difference::differences;
use super::finding::{Finding, findings};
use super::problem::{ApiResult, Problem};
use crate::app_state::AppState;
use sqm_configuration::{Draft, EditError, parse_and_plan, revision};
use sqm_http::{json, non_null};

/// The largest configuration, in bytes.
const MOST_TEXT: usize = 128 * 1024;
/// The largest number of changes in a request. Our choice.
const MOST_CHANGES: usize = 1000;
/// The longest name of an option, in characters. Our choice.
const MOST_NAME: usize = 64;
/// The longest value of an option, in characters. Our choice.
const MOST_VALUE: usize = 4096;
/// Plans whose commands a check returns. Our choice; a file may have more.
const MOST_PLANS: usize = 64;

/// A change of one option or section, as a client of the API asks for it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    section: usize,
    #[serde(default, deserialize_with = "non_null")]
    option: Option<String>,
    #[serde(default)]
    value: Option<String>,
    #[serde(default)]
    remove: bool,
}

/// The body of `POST /config/check`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Candidate {
    #[serde(default, deserialize_with = "non_null")]
    text: Option<String>,
    #[serde(default, deserialize_with = "objects")]
    changes: Option<Vec<Change>>,
}

/// The body of `PUT /config`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Put {
    revision: String,
    #[serde(default, deserialize_with = "non_null")]
    text: Option<String>,
    #[serde(default, deserialize_with = "objects")]
    changes: Option<Vec<Change>>,
    #[serde(default = "minute")]
    confirm_seconds: u32,
}

/// Decodes changes from objects only: serde would also accept lists of values for them.
fn objects<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Vec<Change>>, D::Error> {
    let objects: Vec<Map<String, Value>> = Vec::deserialize(value)?;
    let changes = objects
        .into_iter()
        .map(|object| serde_json::from_value(Value::Object(object)));
    changes
        .collect::<Result<_, _>>()
        .map(Some)
        .map_err(D::Error::custom)
}

impl Put {
    /// The revision of the configuration that the change is based on.
    pub(super) fn revision(&self) -> &str {
        &self.revision
    }
}

const fn minute() -> u32 {
    60
}

#[derive(Serialize)]
struct Config {
    file: String,
    text: String,
    revision: String,
    sections: Vec<Section>,
    unconfirmed: Option<Unconfirmed>,
}

#[derive(Serialize)]
struct Section {
    index: usize,
    line: usize,
    r#type: String,
    name: Option<String>,
    options: Vec<Setting>,
}

#[derive(Serialize)]
struct Setting {
    name: String,
    value: String,
    line: usize,
    list: bool,
}

#[derive(Serialize)]
struct Check {
    ok: bool,
    revision: String,
    text: String,
    errors: Vec<Finding>,
    warnings: Vec<Finding>,
    plans: Vec<Planned>,
    text_diff: Vec<String>,
}

#[derive(Serialize)]
struct Planned {
    interface: String,
    script: String,
    commands: Vec<String>,
    notes: Vec<String>,
    steps: Option<Vec<String>>,
    steps_error: Option<String>,
}

/// The answer to a change.
#[derive(Debug, Serialize)]
pub(super) struct Applied {
    pub(super) revision: String,
    unconfirmed: Option<Unconfirmed>,
    interfaces: Vec<AppliedInterface>,
}

#[derive(Debug, Serialize)]
struct AppliedInterface {
    interface: String,
    state: State,
    why: Option<String>,
}

impl From<Configured> for Applied {
    fn from(configured: Configured) -> Self {
        let interfaces = configured.interfaces.into_iter();
        Self {
            revision: configured.revision,
            unconfirmed: configured.unconfirmed,
            interfaces: interfaces
                .map(|interface| AppliedInterface {
                    interface: interface.interface,
                    state: interface.state,
                    why: interface.why,
                })
                .collect(),
        }
    }
}

pub(super) async fn get(state: &Arc<AppState>) -> ApiResult {
    let file = read(state).await?;
    compute(move || {
        let sections = Draft::of(file.text.as_bytes()).map_or_else(|_| Vec::new(), |draft| sections(&draft));
        let config = Config {
            file: file.file,
            text: file.text,
            revision: file.revision,
            sections,
            unconfirmed: file.unconfirmed,
        };
        Ok(json(StatusCode::OK, &config))
    })
    .await
}

pub(super) async fn read(state: &Arc<AppState>) -> Result<ConfigurationFile, Problem> {
    Ok(state.daemon.configuration().await?)
}

fn sections(draft: &Draft) -> Vec<Section> {
    let sections = draft.sections().into_iter();
    sections
        .map(|section| Section {
            index: section.index,
            line: section.line,
            r#type: section.kind.to_owned(),
            name: section.name.map(str::to_owned),
            options: section
                .settings
                .iter()
                .map(|setting| Setting {
                    name: setting.name.to_owned(),
                    value: setting.value.to_owned(),
                    line: setting.line,
                    list: setting.is_list,
                })
                .collect(),
        })
        .collect()
}

/// Validates a candidate configuration and returns its plans. Changes nothing.
pub(super) async fn check(state: &Arc<AppState>, candidate: Candidate) -> ApiResult {
    let file = read(state).await?;
    compute(move || {
        let text = text_of(&file.text, candidate.text, candidate.changes)?;
        Ok(json(StatusCode::OK, &Check::of(file, text)?))
    })
    .await
}

impl Check {
    fn of(file: ConfigurationFile, text: String) -> Result<Self, Problem> {
        let mut socket = Socket::open().map_err(|error| {
            Problem::unavailable(format!("cannot read the devices from the kernel: {error}"))
        })?;
        let links = observe::links(&mut socket).unwrap_or_default();
        let planned = parse_and_plan(text.clone().into_bytes(), Path::new(&file.file), &links);
        let (errors, warnings, plans) = match planned {
            Ok((_, loaded)) => {
                let plans = loaded.plans.iter().take(MOST_PLANS);
                let plans = plans.map(|plan| Planned::of(&mut socket, plan)).collect();
                (Vec::new(), findings(loaded.warnings), plans)
            }
            Err(invalid) => (findings(invalid.0), Vec::new(), Vec::new()),
        };
        Ok(Self {
            ok: errors.is_empty(),
            revision: file.revision,
            text_diff: differences(&file.text, &text),
            text,
            errors,
            warnings,
            plans,
        })
    }
}

/// Writes and applies a configuration.
pub(super) async fn put(state: &Arc<AppState>, put: Put) -> Result<Applied, Problem> {
    if put.text.is_none() && put.changes.is_none() {
        return Err(Problem::bad_request("text or changes are missing"));
    }
    let (text, changes) = (put.text, put.changes);
    let edit = move |file: &str| text_of(file, text, changes);
    write(state, &put.revision, edit, put.confirm_seconds).await
}

/// Makes a new text of the present one with `edit`, checks it, and hands it to the daemon.
pub(super) async fn write(
    state: &Arc<AppState>,
    known: &str,
    edit: impl FnOnce(&str) -> Result<String, Problem> + Send + 'static,
    confirm_seconds: u32,
) -> Result<Applied, Problem> {
    if !revision::is_well_formed(known) {
        return Err(Problem::bad_request(
            "revision is not one; GET /config answers the current one",
        ));
    }
    if confirm_seconds > 600 {
        return Err(Problem::bad_request("confirm_seconds is at most 600"));
    }
    let file = read(state).await?;
    if file.revision != known {
        let message = "the configuration has been changed since it was read; nothing was written";
        return Err(Problem::conflict("conflict", message).with_revision(Some(file.revision)));
    }
    let text = compute(move || {
        let text = edit(&file.text)?;
        match parse_and_plan(text.clone().into_bytes(), Path::new(&file.file), &links()) {
            Ok(_) => Ok(text),
            Err(invalid) => Err(Problem::invalid(
                "the configuration has errors; nothing was changed",
                findings(invalid.0),
            )),
        }
    })
    .await?;
    let configure = Configure {
        text,
        revision: known.to_owned(),
        confirm_seconds,
    };
    Ok(state.daemon.configure(&configure).await?.into())
}

/// Confirms the unconfirmed change.
pub(super) async fn confirm(state: &Arc<AppState>) -> Result<Applied, Problem> {
    Ok(state.daemon.confirm().await?.into())
}

/// Rolls back the unconfirmed change.
pub(super) async fn revert(state: &Arc<AppState>) -> Result<Applied, Problem> {
    Ok(state.daemon.revert().await?.into())
}

fn links() -> Vec<Link> {
    Socket::open()
        .ok()
        .and_then(|mut socket| observe::links(&mut socket).ok())
        .unwrap_or_default()
}

/// For fuzzing: the text of a candidate configuration.
#[cfg(any(test, fuzzing))]
pub(super) fn fuzz(file: &str, candidate: Candidate) -> Result<String, Problem> {
    text_of(file, candidate.text, candidate.changes)
}

/// The given text, or the text of the file with changes.
fn text_of(file: &str, text: Option<String>, changes: Option<Vec<Change>>) -> Result<String, Problem> {
    if changes
        .as_ref()
        .is_some_and(|changes| changes.len() > MOST_CHANGES)
    {
        return Err(Problem::bad_request(format!(
            "at most {MOST_CHANGES} changes at once"
        )));
    }
    let text = match (text, changes) {
        (Some(_), Some(_)) => return Err(Problem::bad_request("give either text or changes, not both")),
        (Some(text), None) => text,
        (None, Some(changes)) => changed(file, &changes)?,
        (None, None) => file.to_owned(),
    };
    if text.len() > MOST_TEXT {
        return Err(Problem::bad_request(format!(
            "a configuration has at most {MOST_TEXT} bytes"
        )));
    }
    Ok(text)
}

fn changed(text: &str, changes: &[Change]) -> Result<String, Problem> {
    let mut draft = draft_of(text)?;
    for change in changes {
        if change.section == draft.section_count() && !change.remove {
            draft.add_section().map_err(refused)?;
        }
        change.apply_to(&mut draft)?;
    }
    Ok(draft.finish_text())
}

/// A draft of the configuration file.
pub(super) fn draft_of(text: &str) -> Result<Draft, Problem> {
    Draft::of(text.as_bytes()).map_err(|errors| {
        Problem::bad_request(format!(
            "the file cannot be parsed, so single options cannot be changed: {}",
            errors[0]
        ))
    })
}

/// The answer to a change that the configuration cannot hold.
pub(super) fn refused(error: EditError) -> Problem {
    Problem::bad_request(error.to_string())
}

impl Change {
    fn apply_to(&self, draft: &mut Draft) -> Result<(), Problem> {
        let is_long =
            |text: &Option<String>, most| text.as_ref().is_some_and(|text| text.chars().count() > most);
        if is_long(&self.option, MOST_NAME) || is_long(&self.value, MOST_VALUE) {
            return Err(Problem::bad_request(
                "a change has a name or value that is too long",
            ));
        }
        let edited = match (&self.option, &self.value, self.remove) {
            (None, None, true) => draft.remove_section(self.section),
            (Some(name), Some(value), false) => {
                let (name, value) = (name.clone(), value.clone());
                draft.set(self.section, &OptionValue::Text { name, value })
            }
            (Some(name), None, false) => draft.unset(self.section, name),
            _ => {
                return Err(Problem::bad_request("a change has either an option or 'remove'"));
            }
        };
        edited.map_err(refused)
    }
}

impl Planned {
    fn of(socket: &mut Socket, plan: &Plan) -> Self {
        let steps = Observed::read(socket, plan).map(|observed| {
            diff::steps(plan, &observed)
                .iter()
                .map(ToString::to_string)
                .collect()
        });
        let (steps, steps_error) = match steps {
            Ok(steps) => (Some(steps), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Self {
            interface: plan.interface.clone(),
            script: plan.script.clone(),
            commands: render::tc(plan),
            notes: plan.notes.clone(),
            steps,
            steps_error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_affect_only_the_options_that_they_name() {
        let text = "# mine\nconfig queue 'a'\n\toption upload '5'\n\toption script 'x'\n\nconfig queue\n\toption upload '6'\n";
        let changes: Vec<Change> = serde_json::from_str(
            r#"[{"section":0,"option":"upload","value":"7"},{"section":0,"option":"script","value":null},
                {"section":1,"remove":true},{"section":2,"option":"interface","value":"eth0"}]"#,
        )
        .unwrap();
        let expected =
            "# mine\nconfig queue 'a'\n\toption upload '7'\n\nconfig queue\n\toption interface 'eth0'\n";
        assert_eq!(changed(text, &changes).unwrap(), expected);
        for wrong in [
            r#"[{"section":3,"option":"upload","value":"7"}]"#,
            r#"[{"section":0}]"#,
            r#"[{"section":0,"option":"a b","value":"7"}]"#,
            r#"[{"section":2,"remove":true}]"#,
            r#"[{"section":0,"option":"upload","value":"a\u0000b"}]"#,
        ] {
            let changes: Vec<Change> = serde_json::from_str(wrong).unwrap();
            assert!(changed(text, &changes).is_err(), "{wrong}");
        }
    }
}

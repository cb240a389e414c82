//! The configuration: read, judged and written. The daemon holds the file; what a text means is worked out here.

use std::sync::Arc;

use hyper::{Method, StatusCode};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json as value};
use sqm_kernel::netlink::link::Link;
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::observe::Observed;
use sqm_kernel::{diff, observe, render, stack};
use sqm_plan::diagnostic::Diagnostic;
use sqm_plan::plan::Plan;
use sqm_plan::uci::Document;

use super::compute::compute;
use super::difference::differences;
use super::problem::{Handled, Problem};
use super::status::{File, Unconfirmed};
use crate::app_state::AppState;
use sqm_configuration::revision;
use sqm_http::{json, non_null};

/// Of a file, bytes.
const MOST_TEXT: usize = 128 * 1024;
const MOST_CHANGES: usize = 1000;
/// Letters of an option's name, and of its value.
const MOST_NAME: usize = 64;
const MOST_VALUE: usize = 4096;
/// Plans that a check tells with their commands; a file may ask for more.
const MOST_PLANS: usize = 64;

/// Something about the text, found by the validator.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Finding {
    line: usize,
    section: Option<usize>,
    option: Option<String>,
    message: String,
    suggestion: Option<String>,
}

/// A change of one option or section.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Change {
    section: usize,
    #[serde(default, deserialize_with = "non_null")]
    option: Option<String>,
    #[serde(default)]
    value: Option<String>,
    #[serde(default)]
    remove: bool,
}

impl Change {
    pub(super) fn set(section: usize, option: &str, value: String) -> Self {
        Self {
            section,
            option: Some(option.to_owned()),
            value: Some(value),
            remove: false,
        }
    }
}

/// What a text is made from.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Candidate {
    #[serde(default, deserialize_with = "non_null")]
    text: Option<String>,
    #[serde(default, deserialize_with = "objects")]
    changes: Option<Vec<Change>>,
}

/// What `PUT /config` takes.
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

/// Each change by the names of its fields; a list of values would say less than it seems.
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
    /// Of the text that it was made from.
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

/// What the daemon answers to a change.
#[derive(Debug, Deserialize)]
struct Applied {
    revision: String,
    unconfirmed: Option<Unconfirmed>,
    interfaces: Vec<Interface>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Interface {
    interface: String,
    state: String,
    why: Option<String>,
}

/// A change that is done: the answer, and the revision for the log.
pub(super) struct Done {
    pub(super) answer: Value,
    pub(super) revision: String,
}

impl From<Applied> for Done {
    fn from(
        Applied {
            revision,
            unconfirmed,
            interfaces,
        }: Applied,
    ) -> Self {
        Self {
            answer: value!({"revision": revision, "unconfirmed": unconfirmed, "interfaces": interfaces}),
            revision,
        }
    }
}

pub(super) async fn get(site: &Arc<AppState>) -> Handled {
    let file = read(site).await?;
    compute(move || {
        let sections =
            Document::parse(&file.text).map_or_else(|_| Vec::new(), |document| sections(&document));
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

pub(super) async fn read(site: &Arc<AppState>) -> Result<File, Problem> {
    site.daemon.get("/v1/configuration").await
}

fn sections(document: &Document) -> Vec<Section> {
    let sections = document.sections().into_iter();
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

/// What a text would mean; changes nothing.
pub(super) async fn check(site: &Arc<AppState>, candidate: Candidate) -> Handled {
    let file = read(site).await?;
    compute(move || {
        let text = text_of(&file.text, candidate.text, candidate.changes)?;
        Ok(json(StatusCode::OK, &Check::of(file, text)?))
    })
    .await
}

impl Check {
    fn of(file: File, text: String) -> Result<Self, Problem> {
        let mut socket = Socket::open()
            .map_err(|error| Problem::unavailable(format!("the kernel does not answer: {error}")))?;
        let links = observe::links(&mut socket).unwrap_or_default();
        let judged = sqm_plan::load(text.as_bytes(), &file.file, &|name| stack::device(&links, name));
        let (errors, warnings, plans) = match &judged {
            Ok(loaded) => {
                let plans = loaded.plans.iter().take(MOST_PLANS);
                let plans = plans.map(|plan| Planned::of(&mut socket, plan)).collect();
                (Vec::new(), findings(&text, &loaded.warnings), plans)
            }
            Err(errors) => (findings(&text, errors), Vec::new(), Vec::new()),
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

/// Writes it and brings it into force.
pub(super) async fn put(site: &Arc<AppState>, put: Put) -> Result<Done, Problem> {
    if put.text.is_none() && put.changes.is_none() {
        return Err(Problem::bad_request("give the whole text, or changes"));
    }
    write(site, &put.revision, put.text, put.changes, put.confirm_seconds).await
}

pub(super) async fn write(
    site: &Arc<AppState>,
    known: &str,
    text: Option<String>,
    changes: Option<Vec<Change>>,
    confirm_seconds: u32,
) -> Result<Done, Problem> {
    if !revision::is_well_formed(known) {
        return Err(Problem::bad_request("revision is none; GET /config tells it"));
    }
    if confirm_seconds > 600 {
        return Err(Problem::bad_request(
            "a confirmation is awaited for at most 600 seconds",
        ));
    }
    let file = read(site).await?;
    if file.revision != known {
        let message = "somebody else has written the configuration since it was read; nothing was changed";
        return Err(Problem::conflict("conflict", message).with_revision(Some(file.revision)));
    }
    let text = compute(move || {
        let text = text_of(&file.text, text, changes)?;
        let links = links();
        match sqm_plan::load(text.as_bytes(), &file.file, &|name| stack::device(&links, name)) {
            Ok(_) => Ok(text),
            Err(errors) => Err(Problem::invalid(
                "the configuration has errors; nothing was changed",
                findings(&text, &errors),
            )),
        }
    })
    .await?;
    let body = value!({"text": text, "revision": known, "confirm_seconds": confirm_seconds});
    let applied: Applied = site.daemon.send(Method::PUT, "/v1/configuration", &body).await?;
    Ok(applied.into())
}

/// The change that waits stays.
pub(super) async fn confirm(site: &Arc<AppState>) -> Result<Done, Problem> {
    let applied: Applied = site
        .daemon
        .send(Method::POST, "/v1/configuration/confirm", &())
        .await?;
    Ok(applied.into())
}

/// What was before the change that waits comes back.
pub(super) async fn revert(site: &Arc<AppState>) -> Result<Done, Problem> {
    let applied: Applied = site
        .daemon
        .send(Method::POST, "/v1/configuration/revert", &())
        .await?;
    Ok(applied.into())
}

fn links() -> Vec<Link> {
    Socket::open()
        .ok()
        .and_then(|mut socket| observe::links(&mut socket).ok())
        .unwrap_or_default()
}

/// The text that a body makes of a file's, without anything that is not pure.
#[cfg(any(test, fuzzing))]
pub(super) fn fuzz(file: &str, candidate: Candidate) -> Result<String, Problem> {
    text_of(file, candidate.text, candidate.changes)
}

/// The text that is given, or the file's with changes.
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
        (Some(_), Some(_)) => return Err(Problem::bad_request("give the whole text or changes, not both")),
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
    let mut document = Document::parse(text).map_err(|errors| {
        Problem::bad_request(format!(
            "the file cannot be read, so single options cannot be changed: {}",
            errors[0]
        ))
    })?;
    let mut removed = Vec::new();
    for change in changes {
        let count = document.section_count();
        if change.section == count && !change.remove {
            // A word that is always one.
            let _ = document.add("queue");
        }
        let is_long =
            |text: &Option<String>, most| text.as_ref().is_some_and(|text| text.chars().count() > most);
        if is_long(&change.option, MOST_NAME) || is_long(&change.value, MOST_VALUE) {
            return Err(Problem::bad_request(
                "a change is longer than any that makes sense",
            ));
        }
        let is_done = match change {
            Change {
                section,
                option: None,
                value: None,
                remove: true,
            } => {
                removed.push(*section);
                *section < count
            }
            Change {
                section,
                option: Some(option),
                value,
                remove: false,
            } => match value {
                Some(value) if value.contains('\0') => false,
                Some(value) => document.set(*section, option, value),
                None => document.unset(*section, option),
            },
            _ => false,
        };
        if !is_done {
            return Err(Problem::bad_request(
                "a change names a section that is not there, or neither an option nor 'remove', or a name that is none",
            ));
        }
    }
    removed.sort_unstable();
    removed.dedup();
    for section in removed.into_iter().rev() {
        let _ = document.remove(section);
    }
    Ok(document.to_string())
}

/// With the section that each is about.
fn findings(text: &str, found: &[Diagnostic]) -> Vec<Finding> {
    let document = Document::parse(text).ok();
    let sections = document.iter().flat_map(Document::sections);
    let lines: Vec<usize> = sections.map(|section| section.line).collect();
    let finding = |found: &Diagnostic| Finding {
        line: found.line,
        section: lines.partition_point(|line| *line <= found.line).checked_sub(1),
        option: found.option.clone(),
        message: found.message.clone(),
        suggestion: found.suggestion.clone(),
    };
    found.iter().map(finding).collect()
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
    fn changes_touch_what_they_name() {
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

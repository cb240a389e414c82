//! The search for the best rates, which the daemon runs.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqm_plan::uci::Document;
use tokio::sync::mpsc::{Receiver, channel};

use super::compare;
use super::compute::compute;
use super::config::{self, Change, Done};
use super::problem::{Handled, Problem};
use super::start::{check_host, check_port, check_secret};
use crate::app_state::AppState;
use sqm_http::{self, KEEP_ALIVE, KEEP_ALIVE_INTERVAL, event, json, non_null};

/// How often the daemon is asked for new steps.
const LOOK: Duration = Duration::from_millis(500);
/// Steps that wait for a browser: more than a search has.
const MOST_STEPS: usize = 600;

/// What `POST /tune` takes; the daemon takes the same.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Start {
    host: String,
    #[serde(default, deserialize_with = "non_null")]
    port: Option<u16>,
    #[serde(default, deserialize_with = "non_null")]
    interface: Option<String>,
    #[serde(default, deserialize_with = "non_null")]
    target_ms: Option<f64>,
    #[serde(default, deserialize_with = "non_null")]
    secret: Option<String>,
}

/// What `POST /tune/accept` takes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Accept {
    revision: String,
    #[serde(default, deserialize_with = "non_null")]
    confirm_seconds: Option<u32>,
}

pub(super) async fn get(site: &Arc<AppState>) -> Handled {
    let tune: Value = site.daemon.get("/v1/tune").await?;
    Ok(json(StatusCode::OK, &tune))
}

pub(super) async fn start(site: &Arc<AppState>, start: Start) -> Result<Value, Problem> {
    check_host(&start.host)?;
    check_secret(start.secret.as_deref())?;
    check_port(start.port)?;
    if let Some(interface) = &start.interface {
        let is_name = (1..=15).contains(&interface.len())
            && !interface.starts_with('-')
            && interface
                .bytes()
                .all(|b| b.is_ascii_graphic() && b != b'/' && b != b':');
        if !is_name {
            return Err(Problem::bad_request("interface is no name of a network device"));
        }
    }
    if start
        .target_ms
        .is_some_and(|target| !(0.5..=1000.0).contains(&target))
    {
        return Err(Problem::bad_request("target_ms is from 0.5 to 1000"));
    }
    if site.runs.running().is_some() {
        return Err(Problem::conflict(
            "busy",
            "a test is running: both would disturb each other",
        ));
    }
    site.daemon.send(Method::POST, "/v1/tune", &start).await
}

/// Whether a search is running; none if no daemon says so.
pub(super) async fn is_running(site: &Arc<AppState>) -> bool {
    let tune: Result<Value, Problem> = site.daemon.get("/v1/tune").await;
    tune.is_ok_and(|tune| tune["state"] == "running")
}

pub(super) async fn stop(site: &Arc<AppState>) -> Result<(), Problem> {
    let _: Value = site.daemon.send(Method::DELETE, "/v1/tune", &()).await?;
    Ok(())
}

/// Writes the rates that were found, and the options without which they are wrong.
pub(super) async fn accept(site: &Arc<AppState>, accept: Accept) -> Result<Done, Problem> {
    let tune: Value = site.daemon.get("/v1/tune").await?;
    let result = &tune["result"];
    let rates = [result["download_kbit"].as_u64(), result["upload_kbit"].as_u64()];
    let (Some(interface), [Some(download), Some(upload)]) = (result["interface"].as_str(), rates) else {
        return Err(Problem::conflict(
            "nothing-waits",
            "there are no rates to take: no search has found any",
        ));
    };
    let file = config::read(site).await?;
    let interface = interface.to_owned();
    let section = compute(move || {
        section_of(&file.text, &interface).ok_or_else(|| {
            Problem::conflict(
                "conflict",
                format!("the configuration has no section for {interface} any more"),
            )
        })
    })
    .await?;
    let changes = changes(section, [download, upload], result);
    let confirm_seconds = accept.confirm_seconds.unwrap_or(60);
    config::write(site, &accept.revision, None, Some(changes), confirm_seconds).await
}

/// The rates, and what `sqm tune` says that they need: cells that the file does not count make every rate wrong.
fn changes(section: usize, [download, upload]: [u64; 2], result: &Value) -> Vec<Change> {
    let needed = Vec::<(String, String)>::deserialize(&result["overhead"]["options"]).unwrap_or_default();
    [("download", download), ("upload", upload)]
        .map(|(option, rate)| (option.to_owned(), rate.to_string()))
        .into_iter()
        .chain(needed)
        .map(|(option, value)| Change::set(section, &option, value))
        .collect()
}

/// A picture of the last search.
pub(super) async fn plot(site: &Arc<AppState>, name: &str) -> Handled {
    // What is no name of a picture is not to become a path that the daemon is asked for.
    if !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-') {
        return Err(compare::no_picture());
    }
    let path = format!("/v1/tune/plots/{name}.svg");
    let picture = site.daemon.bytes(&path).await?;
    Ok(compare::picture_of(picture))
}

/// The enabled section of an interface: the search was made with it.
fn section_of(text: &str, interface: &str) -> Option<usize> {
    let loaded = sqm_plan::load(text.as_bytes(), "", &sqm_plan::device::Device::absent).ok()?;
    let line = loaded.lines.iter().find(|line| line.interface == interface)?.at;
    let document = Document::parse(text).ok()?;
    let sections = document.sections();
    sections
        .iter()
        .find(|section| section.line == line)
        .map(|section| section.index)
}

/// A running search from its beginning.
pub(super) async fn live(site: &Arc<AppState>) -> Handled {
    let tune: Value = site.daemon.get("/v1/tune").await?;
    if tune["state"] != "running" {
        return Err(Problem::conflict(
            "nothing-waits",
            "no search for rates is running",
        ));
    }
    Ok(sqm_http::events(stream(Arc::clone(site))))
}

fn stream(site: Arc<AppState>) -> Receiver<Bytes> {
    let (sender, receiver) = channel(MOST_STEPS);
    tokio::spawn(async move {
        let mut told = 0;
        let mut silent = Duration::ZERO;
        loop {
            // A daemon that is gone runs no search.
            let Ok(tune) = site.daemon.get::<Value>("/v1/tune").await else {
                return;
            };
            let steps = tune["steps"].as_array().map_or(&[][..], Vec::as_slice);
            for step in steps.get(told..).unwrap_or_default() {
                if sender.try_send(event("step", step)).is_err() {
                    return;
                }
                silent = Duration::ZERO;
            }
            told = steps.len();
            if tune["state"] != "running" {
                let _ = sender.try_send(event("end", &tune));
                return;
            }
            silent += LOOK;
            if silent >= KEEP_ALIVE_INTERVAL {
                silent = Duration::ZERO;
                if sender.try_send(KEEP_ALIVE).is_err() {
                    return;
                }
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = sender.closed() => return,
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rates_are_taken_with_what_they_need() {
        let told = |result: &Value| -> Vec<String> {
            let changes = changes(2, [91_200, 0], result);
            changes.iter().map(|change| format!("{change:?}")).collect()
        };
        let plain = told(&json!({"overhead": null}));
        assert_eq!(plain.len(), 2);
        assert!(
            plain[1].contains("upload") && plain[1].contains("\"0\""),
            "{plain:?}"
        );
        // As `sqm tune --json` prints it on a line that carries cells.
        let cells = told(&json!({"overhead": {"options": [["linklayer", "atm"], ["overhead", "40"]]}}));
        assert_eq!(cells[..2], plain);
        assert!(
            cells[2].contains("linklayer") && cells[2].contains("atm"),
            "{cells:?}"
        );
        assert!(
            cells[3].contains("overhead") && cells[3].contains("40"),
            "{cells:?}"
        );
    }
}

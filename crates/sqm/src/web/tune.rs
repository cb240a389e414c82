//! The search for the best rates, which the daemon runs.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqm_plan::uci::Document;
use tokio::sync::mpsc::{Receiver, channel};

use super::Site;
use super::config::{self, Change, Done};
use super::live::{COMMENT, SILENCE};
use super::problem::{Handled, Problem};
use super::runs::{check_host, check_secret};
use crate::http::{self, event, json, present};

/// How often the daemon is asked for new steps.
const LOOK: Duration = Duration::from_millis(500);
/// Steps that wait for a browser: more than a search has.
const MOST_STEPS: usize = 600;

/// What `POST /tune` takes; the daemon takes the same.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Start {
    host: String,
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    port: Option<u16>,
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    interface: Option<String>,
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    target_ms: Option<f64>,
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    secret: Option<String>,
}

/// What `POST /tune/accept` takes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Accept {
    revision: String,
    #[serde(default, deserialize_with = "present")]
    confirm_seconds: Option<u32>,
}

pub(super) async fn get(site: &Arc<Site>) -> Handled {
    let tune: Value = site.daemon.get("/v1/tune").await?;
    Ok(json(StatusCode::OK, &tune))
}

pub(super) async fn start(site: &Arc<Site>, start: Start) -> Result<Value, Problem> {
    check_host(&start.host)?;
    check_secret(start.secret.as_deref())?;
    if start.port == Some(0) {
        return Err(Problem::bad_request("a port is from 1 to 65535"));
    }
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
pub(super) async fn is_running(site: &Arc<Site>) -> bool {
    let tune: Result<Value, Problem> = site.daemon.get("/v1/tune").await;
    tune.is_ok_and(|tune| tune["state"] == "running")
}

pub(super) async fn stop(site: &Arc<Site>) -> Result<(), Problem> {
    let _: Value = site.daemon.send(Method::DELETE, "/v1/tune", &()).await?;
    Ok(())
}

/// Writes the rates that were found.
pub(super) async fn accept(site: &Arc<Site>, accept: Accept) -> Result<Done, Problem> {
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
    let section = section_of(&file.text, interface).ok_or_else(|| {
        Problem::conflict(
            "conflict",
            format!("the configuration has no section for {interface} any more"),
        )
    })?;
    let changes = vec![
        Change::set(section, "download", download.to_string()),
        Change::set(section, "upload", upload.to_string()),
    ];
    let confirm_seconds = accept.confirm_seconds.unwrap_or(60);
    config::write(site, &accept.revision, None, Some(changes), confirm_seconds).await
}

/// The enabled section of an interface: the search was made with it.
fn section_of(text: &str, interface: &str) -> Option<usize> {
    let loaded = sqm_plan::load(text.as_bytes(), "", &sqm_plan::recipes::Device::absent).ok()?;
    let line = loaded.lines.iter().find(|line| line.interface == interface)?.at;
    let document = Document::parse(text).ok()?;
    let sections = document.sections();
    sections
        .iter()
        .find(|section| section.line == line)
        .map(|section| section.index)
}

/// A running search from its beginning.
pub(super) async fn live(site: &Arc<Site>) -> Handled {
    let tune: Value = site.daemon.get("/v1/tune").await?;
    if tune["state"] != "running" {
        return Err(Problem::conflict(
            "nothing-waits",
            "no search for rates is running",
        ));
    }
    Ok(http::events(stream(Arc::clone(site))))
}

fn stream(site: Arc<Site>) -> Receiver<Bytes> {
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
            if silent >= SILENCE {
                silent = Duration::ZERO;
                if sender.try_send(COMMENT).is_err() {
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

//! The search for the best rates (`sqm tune`), which the daemon runs.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use serde::Deserialize;
use sqm_api::tune::{Search, SearchState, StartTune, TuneResult};
use sqm_plan::uci::Document;
use tokio::sync::mpsc::{Receiver, channel};

use super::answers;
use super::compute::compute;
use super::config::{self, Applied, Change};
use super::problem::{ApiResult, Problem};
use super::test_request::{check_host, check_port, check_secret};
use crate::app_state::AppState;
use sqm_http::{self, KEEP_ALIVE, KEEP_ALIVE_INTERVAL, event, json, non_null};

/// The interval at which the daemon is asked for new steps. Our choice.
const POLL: Duration = Duration::from_millis(500);
/// Steps that are queued for a browser: more than a search has.
const MOST_STEPS: usize = 600;

/// The body of `POST /tune/accept`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Accept {
    revision: String,
    #[serde(default, deserialize_with = "non_null")]
    confirm_seconds: Option<u32>,
}

pub(super) async fn get(state: &Arc<AppState>) -> ApiResult {
    Ok(json(StatusCode::OK, &state.daemon.tune().await?))
}

pub(super) async fn start(state: &Arc<AppState>, start: StartTune) -> Result<Search, Problem> {
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
            return Err(Problem::bad_request(
                "interface is not a valid name of a network device",
            ));
        }
    }
    if start
        .target_ms
        .is_some_and(|target| !(0.5..=1000.0).contains(&target))
    {
        return Err(Problem::bad_request("target_ms is from 0.5 to 1000"));
    }
    if state.test_jobs.running().is_some() {
        return Err(Problem::conflict(
            "busy",
            "a test is running, and the two would disturb each other",
        ));
    }
    Ok(state.daemon.start_tune(&start).await?)
}

pub(super) async fn stop(state: &Arc<AppState>) -> Result<(), Problem> {
    Ok(state.daemon.stop_tune().await?)
}

/// True if the daemon is searching for rates; false if it does not respond.
pub(super) async fn is_running(state: &AppState) -> bool {
    let tune = state.daemon.tune().await;
    tune.is_ok_and(|tune| tune.state == SearchState::Running)
}

/// Writes the rates that were found to the configuration, with the options that they require.
pub(super) async fn accept(state: &Arc<AppState>, accept: Accept) -> Result<Applied, Problem> {
    let Some(result) = state.daemon.tune().await?.result else {
        return Err(Problem::conflict(
            "nothing-waits",
            "no search has found rates that could be accepted",
        ));
    };
    let file = config::read(state).await?;
    let interface = result.interface.clone();
    let section = compute(move || {
        section_of(&file.text, &interface).ok_or_else(|| {
            Problem::conflict(
                "conflict",
                format!("the configuration no longer has a section for {interface}"),
            )
        })
    })
    .await?;
    let changes = changes(section, &result);
    let confirm_seconds = accept.confirm_seconds.unwrap_or(60);
    config::write(state, &accept.revision, None, Some(changes), confirm_seconds).await
}

/// The changes of the configuration: the rates, and the options that `sqm tune` found to be necessary. If the configuration does not
/// count ATM cells, no rate is right.
fn changes(section: usize, result: &TuneResult) -> Vec<Change> {
    let needed = result
        .overhead
        .iter()
        .flat_map(|overhead| overhead.options.clone());
    [("download", result.download_kbit), ("upload", result.upload_kbit)]
        .map(|(option, rate)| (option.to_owned(), rate.to_string()))
        .into_iter()
        .chain(needed)
        .map(|(option, value)| Change::set(section, &option, value))
        .collect()
}

/// A picture of the last search.
pub(super) async fn plot(state: &Arc<AppState>, name: &str) -> ApiResult {
    // Only plain names become part of a path at the daemon.
    if !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-') {
        return Err(answers::no_picture());
    }
    Ok(answers::svg(state.daemon.tune_plot(name).await?))
}

/// The index of the enabled section of an interface, which the search used.
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

/// The events of a running search, from its start.
pub(super) async fn live(state: &Arc<AppState>) -> ApiResult {
    if state.daemon.tune().await?.state != SearchState::Running {
        return Err(Problem::conflict(
            "nothing-waits",
            "no search for rates is running",
        ));
    }
    Ok(sqm_http::events(stream(Arc::clone(state))))
}

fn stream(state: Arc<AppState>) -> Receiver<Bytes> {
    let (sender, receiver) = channel(MOST_STEPS);
    tokio::spawn(async move {
        let mut sent = 0;
        let mut silent = Duration::ZERO;
        loop {
            // If the daemon has ended, the search has ended with it.
            let Ok(tune) = state.daemon.tune().await else {
                return;
            };
            for step in tune.steps.get(sent..).unwrap_or_default() {
                if sender.try_send(event("step", step)).is_err() {
                    return;
                }
                silent = Duration::ZERO;
            }
            sent = tune.steps.len();
            if tune.state != SearchState::Running {
                let _ = sender.try_send(event("end", &tune));
                return;
            }
            silent += POLL;
            if silent >= KEEP_ALIVE_INTERVAL {
                silent = Duration::ZERO;
                if sender.try_send(KEEP_ALIVE).is_err() {
                    return;
                }
            }
            tokio::select! {
                () = tokio::time::sleep(POLL) => {}
                () = sender.closed() => return,
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn rates_are_accepted_with_the_options_that_they_require() {
        let described = |overhead: Value| -> Vec<String> {
            let result =
                json!({"interface": "wan0", "download_kbit": 91_200, "upload_kbit": 0, "overhead": overhead});
            let changes = changes(2, &serde_json::from_value(result).unwrap());
            changes.iter().map(|change| format!("{change:?}")).collect()
        };
        let plain = described(Value::Null);
        assert_eq!(plain.len(), 2);
        assert!(
            plain[1].contains("upload") && plain[1].contains("\"0\""),
            "{plain:?}"
        );
        // The output of `sqm tune --json` on a line with ATM cells.
        let cells = described(json!({"options": [["linklayer", "atm"], ["overhead", "40"]]}));
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

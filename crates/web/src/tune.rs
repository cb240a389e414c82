//! The search for the best rates (`sqm tune`), which the daemon runs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use serde::Deserialize;
use sqm_api::tune::{Search, SearchState, StartTune, TuneResult};
use sqm_configuration::Parsed;
use sqm_core::direction::Direction;
use sqm_core::units::Rate;
use sqm_plan::OptionValue;
use tokio::sync::mpsc::{Receiver, channel};

use super::answers;
use super::compare::Sheet;
use super::config::{self, Applied};
use super::problem::{ApiResult, Problem};
use super::query::Query;
use super::test_request::{check_host, check_port, check_secret, check_url};
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
    check_server(&start)?;
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

/// Checks the server and the fields that belong to its kind.
fn check_server(start: &StartTune) -> Result<(), Problem> {
    let is_url = start.host.contains("://");
    if is_url {
        check_url(&start.host)?;
    } else {
        check_host(&start.host)?;
    }
    start.upload_url.as_deref().map_or(Ok(()), check_url)?;
    let is_web = is_url || start.rpm;
    for (name, is_given, fits) in [
        ("rpm", start.rpm, !is_url),
        ("upload_url", start.upload_url.is_some(), is_url),
        ("insecure", start.insecure, is_web),
        ("port", start.port.is_some(), !is_url),
        ("secret", start.secret.is_some(), !is_web),
    ] {
        if is_given && !fits {
            return Err(Problem::bad_request(format!(
                "a server of this kind has no {name}"
            )));
        }
    }
    Ok(())
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
    let interface = result.interface.clone();
    let options = options(&result);
    let edit = move |file: &str| tuned(file, &interface, &options);
    let confirm_seconds = accept.confirm_seconds.unwrap_or(60);
    config::write(state, &accept.revision, edit, confirm_seconds).await
}

/// The options to be set: the rates, in kbit/s, and those that `sqm tune` found to be necessary. If the configuration does not count
/// ATM cells, no rate is right.
fn options(result: &TuneResult) -> Vec<OptionValue> {
    let rate = |direction, kbit| OptionValue::Rate(direction, Rate::from_kbits_per_sec(kbit));
    let mut options = vec![
        rate(Direction::Download, result.download_kbit),
        rate(Direction::Upload, result.upload_kbit),
    ];
    options.extend(
        result
            .overhead
            .iter()
            .flat_map(|overhead| overhead.options.clone()),
    );
    options
}

/// The configuration's text with these options in the section of the interface.
fn tuned(text: &str, interface: &str, options: &[OptionValue]) -> Result<String, Problem> {
    let section = section_of(text, interface).ok_or_else(|| {
        let message = format!("the configuration no longer has a section for {interface}");
        Problem::conflict("conflict", message)
    })?;
    let mut draft = config::draft_of(text)?;
    for option in options {
        draft.set(section, option).map_err(config::refused)?;
    }
    Ok(draft.finish_text())
}

/// A picture of the last search.
pub(super) async fn plot(state: &Arc<AppState>, name: &str, query: &Query<'_>) -> ApiResult {
    // Only plain names become part of a path at the daemon.
    if !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-') {
        return Err(answers::no_picture());
    }
    let picture = match Sheet::of(query)? {
        Sheet::Wide => name.to_owned(),
        Sheet::Narrow => format!("{name}-narrow"),
    };
    Ok(answers::svg(state.daemon.tune_plot(&picture).await?))
}

/// The index of the enabled section of an interface, which the search used.
fn section_of(text: &str, interface: &str) -> Option<usize> {
    let parsed = Parsed::of(text.as_bytes().to_owned(), Path::new("")).ok()?;
    let mut sections = parsed.sections().iter();
    let section = sections.find(|section| section.enabled && section.interface == interface)?;
    Some(section.section)
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
    fn a_search_takes_a_host_or_a_url_and_only_the_fields_of_its_kind() {
        for (body, is_good) in [
            (
                json!({"host": "sqm.example.net", "port": 35353, "secret": "s"}),
                true,
            ),
            (
                json!({"host": "https://a.example/1GB.bin", "upload_url": "https://a.example/up"}),
                true,
            ),
            (
                json!({"host": "rpm.example", "rpm": true, "insecure": true, "port": 443}),
                true,
            ),
            (json!({"host": "--write"}), false),
            (json!({"host": "file:///etc/passwd"}), false),
            (json!({"host": "https://a.example/ b"}), false),
            (json!({"host": "https://a.example/", "rpm": true}), false),
            (
                json!({"host": "a.example", "upload_url": "https://a.example/up"}),
                false,
            ),
            (json!({"host": "a.example", "insecure": true}), false),
            (json!({"host": "rpm.example", "rpm": true, "secret": "s"}), false),
        ] {
            let start: StartTune = serde_json::from_value(body.clone()).unwrap();
            assert_eq!(check_server(&start).is_ok(), is_good, "{body}");
        }
    }

    #[test]
    fn rates_are_accepted_with_the_options_that_they_require() {
        let text = "config queue\n\toption interface 'eth1'\n\nconfig queue\n\toption enabled '1'\n\toption interface 'eth1'\n\
                    \toption download '50mbit'\n\toption upload '5mbit'\n\toption script 'best_of_cake.qos'\n";
        let accepted = |overhead: Value| {
            let result =
                json!({"interface": "eth1", "download_kbit": 91_200, "upload_kbit": 0, "overhead": overhead});
            let result: TuneResult = serde_json::from_value(result).unwrap();
            tuned(text, &result.interface, &options(&result)).unwrap()
        };
        let plain = text.replace("50mbit", "91200").replace("5mbit", "0");
        assert_eq!(accepted(Value::Null), plain);
        // The output of `sqm tune --json` on a line with ATM cells.
        let cells = json!({"options": [["linklayer", "atm"], ["overhead", "40"]]});
        let expected = format!("{plain}\toption linklayer 'atm'\n\toption overhead '40'\n");
        assert_eq!(accepted(cells), expected);
        assert!(tuned(text, "eth2", &[]).is_err());
    }
}

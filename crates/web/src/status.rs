//! `GET /status`: the daemon's report on each interface, and what its queues do.

use std::sync::Arc;

use hyper::StatusCode;
use serde::Serialize;
use sqm_api::configuration::Unconfirmed;
use sqm_api::status::{self as daemon, AutorateStatus, Health};

use super::audit::unix_ms;
use super::interfaces::interfaces_of;
use super::live::{Direction, RateMeter};
use super::problem::ApiResult;
use super::tune;
use crate::app_state::AppState;
use sqm_http::json;

#[derive(Serialize)]
struct Answer {
    unix_ms: u64,
    daemon: DaemonState,
    interfaces: Vec<InterfaceState>,
    unconfirmed: Option<Unconfirmed>,
    running_test: Option<String>,
    tuning: bool,
}

#[derive(Default, Serialize)]
struct DaemonState {
    running: bool,
    health: PageHealth,
    error: Option<String>,
    program: Option<String>,
    file: Option<String>,
    errors: Vec<String>,
    warnings: Vec<String>,
}

/// The daemon's health, or its absence.
#[derive(Default, Serialize)]
#[serde(rename_all = "lowercase")]
enum PageHealth {
    #[default]
    Absent,
    #[serde(untagged)]
    Reported(Health),
}

#[derive(Serialize)]
struct InterfaceState {
    /// As the daemon reports it, except for the queues, which this server reads itself.
    #[serde(flatten)]
    reported: daemon::Interface,
    /// `None` is answered as null here, and left out by the daemon.
    autorate: Option<AutorateStatus>,
    owner: Option<String>,
    download: Option<Direction>,
    upload: Option<Direction>,
}

pub(super) async fn get(state: &Arc<AppState>) -> ApiResult {
    let status = match state.daemon.status().await {
        Ok(status) => status,
        Err(error) => {
            let daemon = DaemonState {
                error: Some(error.to_string()),
                ..DaemonState::default()
            };
            return Ok(answer(state, daemon, Vec::new(), None, false));
        }
    };
    let file = state.daemon.configuration().await.ok();
    let tuning = tune::is_running(state).await;
    let known = interfaces_of(&status, file.as_ref());
    let sample = RateMeter::default().sample(&state.counters.read(&known));
    let interfaces = status
        .interfaces
        .into_iter()
        .map(|mut reported| {
            let mut sampled = sample.interfaces.iter();
            let sampled = sampled.find(|sampled| sampled.interface == reported.interface);
            InterfaceState {
                owner: reported.queues.take().and_then(|queues| queues.owner),
                autorate: reported.autorate.take(),
                download: sampled.and_then(|sampled| sampled.download.clone()),
                upload: sampled.and_then(|sampled| sampled.upload.clone()),
                reported,
            }
        })
        .collect();
    let daemon = DaemonState {
        running: true,
        health: PageHealth::Reported(status.health),
        error: None,
        program: Some(status.program),
        file: Some(status.configuration.file),
        errors: status.configuration.errors,
        warnings: status.configuration.warnings,
    };
    Ok(answer(
        state,
        daemon,
        interfaces,
        file.and_then(|file| file.unconfirmed),
        tuning,
    ))
}

fn answer(
    state: &AppState,
    daemon: DaemonState,
    interfaces: Vec<InterfaceState>,
    unconfirmed: Option<Unconfirmed>,
    tuning: bool,
) -> hyper::Response<sqm_http::ResponseBody> {
    let answer = Answer {
        unix_ms: unix_ms(),
        daemon,
        interfaces,
        unconfirmed,
        running_test: state.test_jobs.running(),
        tuning,
    };
    json(StatusCode::OK, &answer)
}

//! `GET /status`: the daemon's report on each interface, and what its queues do.

use std::sync::Arc;

use hyper::StatusCode;
use serde::Serialize;

use super::audit::unix_ms;
use super::daemon_types::{ConfigurationFile, DaemonInterface, DaemonStatus, Unconfirmed};
use super::interfaces::interfaces_of;
use super::live::{Direction, RateMeter};
use super::problem::{ApiResult, Problem};
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
    health: String,
    error: Option<String>,
    program: Option<String>,
    file: Option<String>,
    errors: Vec<String>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct InterfaceState {
    #[serde(flatten)]
    reported: DaemonInterface,
    owner: Option<String>,
    download: Option<Direction>,
    upload: Option<Direction>,
}

pub(super) async fn get(state: &Arc<AppState>) -> ApiResult {
    let status: Result<DaemonStatus, Problem> = state.daemon.get("/v1/status").await;
    let status = match status {
        Ok(status) => status,
        Err(problem) => {
            let daemon = DaemonState {
                health: "absent".to_owned(),
                error: Some(problem.message().to_owned()),
                ..DaemonState::default()
            };
            return Ok(answer(state, daemon, Vec::new(), None, false));
        }
    };
    let file: Option<ConfigurationFile> = state.daemon.get("/v1/configuration").await.ok();
    let tuning = state.daemon.is_tuning().await;
    let known = interfaces_of(&status, file.as_ref());
    let sample = RateMeter::default().sample(&state.counters.read(&known));
    let interfaces = status
        .interfaces
        .into_iter()
        .map(|reported| {
            let mut sampled = sample.interfaces.iter();
            let sampled = sampled.find(|sampled| sampled.interface == reported.interface);
            InterfaceState {
                owner: reported.queues.as_ref().and_then(|queues| queues.owner.clone()),
                download: sampled.and_then(|sampled| sampled.download.clone()),
                upload: sampled.and_then(|sampled| sampled.upload.clone()),
                reported,
            }
        })
        .collect();
    let daemon = DaemonState {
        running: true,
        health: status.health,
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

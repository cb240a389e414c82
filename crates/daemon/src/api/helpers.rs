//! Requests that run for seconds, as children: the doctor and the report. They need the daemon's privileges to read
//! everything.

use std::ffi::OsString;
use std::time::Duration;

use hyper::{Response, StatusCode};

use super::routes::refusal;
use crate::shared::Shared;
use sqm_http::{ResponseBody, full};
use sqm_process::child::{self, Ended};

/// A choice: the doctor takes a second and the report a few; a busy machine gets more.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long the report watches the queues, seconds; a choice.
const WATCH: &str = "3";

/// The output of `sqm doctor --json`.
pub(super) async fn doctor(shared: &Shared, fix: bool) -> Response<ResponseBody> {
    let mut arguments: Vec<OsString> = vec!["doctor".into(), "--json".into()];
    arguments.extend(fix.then(|| "--fix".into()));
    response(run(shared, arguments).await, "application/json")
}

/// The output of `sqm bugreport`.
pub(super) async fn report(shared: &Shared) -> Response<ResponseBody> {
    let arguments = ["bugreport", "--out", "-", "--duration", WATCH];
    response(
        run(shared, arguments.map(Into::into).to_vec()).await,
        "text/plain; charset=utf-8",
    )
}

async fn run(shared: &Shared, mut arguments: Vec<OsString>) -> anyhow::Result<Ended> {
    arguments.extend(["--config".into(), shared.config.clone().into()]);
    arguments.extend(["--state-dir".into(), shared.state_dir.clone().into()]);
    child::run(child::command(&arguments), TIMEOUT).await
}

/// The child's output as a response. The exit code does not matter if there is output: the doctor ends with 1 if it has found
/// something.
fn response(ended: anyhow::Result<Ended>, kind: &'static str) -> Response<ResponseBody> {
    match ended {
        Ok(ended) if !ended.output.is_empty() => full(StatusCode::OK, kind, ended.output),
        Ok(ended) => refusal(StatusCode::UNPROCESSABLE_ENTITY, &ended.reason()),
        Err(error) => refusal(StatusCode::SERVICE_UNAVAILABLE, &format!("{error:#}")),
    }
}

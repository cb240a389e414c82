//! What looks around for seconds, as children: the doctor and the report, which need the daemon's privilege to see all.

use std::ffi::OsString;
use std::time::Duration;

use hyper::{Response, StatusCode};

use super::routes::refusal;
use crate::shared::Shared;
use sqm_http::{Answer, whole};
use sqm_process::child::{self, Ended};

/// A look takes a second, a report some; a busy machine gets more.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the report watches, seconds.
const WATCH: &str = "3";

/// What `sqm doctor --json` says.
pub(super) async fn doctor(shared: &Shared, fix: bool) -> Response<Answer> {
    let mut arguments: Vec<OsString> = vec!["doctor".into(), "--json".into()];
    arguments.extend(fix.then(|| "--fix".into()));
    answer(run(shared, arguments).await, "application/json")
}

/// What `sqm bugreport` says.
pub(super) async fn report(shared: &Shared) -> Response<Answer> {
    let arguments = ["bugreport", "--out", "-", "--seconds", WATCH];
    answer(
        run(shared, arguments.map(Into::into).to_vec()).await,
        "text/plain; charset=utf-8",
    )
}

async fn run(shared: &Shared, mut arguments: Vec<OsString>) -> anyhow::Result<Ended> {
    arguments.extend(["--config".into(), shared.config.clone().into()]);
    arguments.extend(["--state-dir".into(), shared.state_dir.clone().into()]);
    child::run(child::command(&arguments), PATIENCE).await
}

/// What it printed, though it may have ended with a code that says that something was found.
fn answer(ended: anyhow::Result<Ended>, kind: &'static str) -> Response<Answer> {
    match ended {
        Ok(ended) if !ended.output.is_empty() => whole(StatusCode::OK, kind, ended.output),
        Ok(ended) => refusal(StatusCode::UNPROCESSABLE_ENTITY, &ended.reason()),
        Err(error) => refusal(StatusCode::SERVICE_UNAVAILABLE, &format!("{error:#}")),
    }
}

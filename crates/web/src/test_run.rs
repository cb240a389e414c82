//! Runs a test: `sqm test` as a child process, and the evaluation of its result.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json as value};
use sqm_measure::rpm::client::Report;

use super::audit::unix_ms;
use super::compare;
use super::problem::Problem;
use super::test_jobs::{State, Test, new_id};
use super::test_request::{Start, Way};
use super::tune;
use crate::app_state::AppState;
use sqm_http::event;
use sqm_process::child::{self, Limits, Stop};

/// Time for connecting and for the results, beyond the length of the test. A test that takes longer is stopped. Our choice.
const LATEST: Duration = Duration::from_secs(7);
/// A test that is stopped gets this long to save its result; then it is killed. Our choice.
const GRACE: Duration = Duration::from_secs(3);

/// Starts a test as a child process. Refused while another test or a search for rates is running.
pub(super) async fn start(state: &Arc<AppState>, start: Start) -> Result<Test, Problem> {
    let wanted = start.check()?;
    if tune::is_running(state).await {
        return Err(Problem::conflict(
            "busy",
            "a search for rates is running, and the two would disturb each other",
        ));
    }
    let id = new_id().map_err(|error| Problem::unavailable(format!("{error:#}")))?;
    let jobs = &state.test_jobs;
    if jobs.running().is_some() {
        return Err(Problem::conflict("busy", "a test is running"));
    }
    let secret = wanted
        .secret
        .as_deref()
        .map(|secret| jobs.keep_secret(&id, secret))
        .transpose()?;
    let result = match wanted.way {
        Way::Server | Way::Url => ["--save".into(), jobs.file(&id).into()],
        Way::Rpm => ["--json".into(), "-".into()],
    };
    let secret_option = secret.iter().flat_map(|file| ["--secret".into(), file.into()]);
    let arguments = wanted.arguments(result.into_iter().chain(secret_option));
    let limits = Limits {
        longest: wanted.longest() + LATEST,
        grace: GRACE,
    };
    let test = Test {
        id,
        state: State::Running,
        kind: wanted.kind,
        host: wanted.host,
        title: wanted.title,
        started_unix_ms: unix_ms(),
        duration_s: wanted.duration_s,
        error: None,
        bytes: None,
        plots: Vec::new(),
        summary: None,
        verdict: None,
        responsiveness: None,
    };
    let stop = Arc::new(Stop::default());
    jobs.begin(&test, Arc::clone(&stop));
    let child = Child {
        arguments,
        secret,
        limits,
        stop,
    };
    tokio::spawn(run(Arc::clone(state), test.clone(), child));
    Ok(test)
}

/// The child process of a test.
struct Child {
    arguments: Vec<OsString>,
    /// The file with the secret, which is removed when the child has ended.
    secret: Option<PathBuf>,
    limits: Limits,
    stop: Arc<Stop>,
}

async fn run(state: Arc<AppState>, mut test: Test, child: Child) {
    let jobs = &state.test_jobs;
    let mut last = String::new();
    let command = child::command(&child.arguments);
    let ended = child::watch(
        command,
        child.limits,
        &child.stop,
        |line| match serde_json::from_str::<Value>(line) {
            Ok(progress) if progress.is_object() => jobs.publish(&event("progress", &progress)),
            _ => line.clone_into(&mut last),
        },
    )
    .await;
    if let Some(secret) = child.secret {
        // The secret is no longer needed. A file that is already gone is no error.
        let _ = sqm_files::remove(&secret);
    }
    let is_stopped = jobs.is_stopped();
    let reason = last.strip_prefix("sqm: ").unwrap_or(&last).to_owned();
    test.responsiveness = ended.as_ref().ok().and_then(|(_, output)| responsiveness(output));
    (test.state, test.error) = match ended {
        _ if is_stopped => (State::Stopped, None),
        Ok((status, _)) if status.success() => (State::Done, None),
        Ok((status, _)) if reason.is_empty() => (State::Failed, Some(status.to_string())),
        Ok(_) => (State::Failed, Some(reason)),
        Err(error) => (State::Failed, Some(format!("{error:#}"))),
    };
    let file = jobs.file(&test.id);
    if let Ok(result) = fs::metadata(&file) {
        test.bytes = Some(result.len());
        match compare::judge(&state, &file).await {
            Ok((run, plots)) => {
                test.verdict = Some(run.verdict);
                test.summary = Some(run.summary);
                test.plots = plots;
            }
            Err(problem) => test.error = test.error.or_else(|| Some(problem.message().to_owned())),
        }
    }
    jobs.finish(test);
}

/// The output of `sqm test --rpm --json`, with the protocol's word for each figure.
fn responsiveness(output: &[u8]) -> Option<Value> {
    let report: Report = serde_json::from_slice(output).ok()?;
    let mut answer = value!(report);
    for (name, found) in [("download", &report.download), ("upload", &report.upload)] {
        if let Some(found) = found {
            answer[name]["word"] = found.word().into();
        }
    }
    Some(answer)
}

//! Runs a test: `sqm test` as a child process, and the evaluation of its result.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json as value};
use sqm_api::client::Paused;
use sqm_api::pause::Pause;
use sqm_measure::rpm::client::Report;

use super::audit::unix_ms;
use super::compare;
use super::problem::Problem;
use super::test_jobs::{Pair, State, Test, new_id};
use super::test_request::{Start, Wanted, Way};
use super::tune;
use crate::app_state::AppState;
use sqm_http::event;
use sqm_process::child::{self, Limits, Stop};

/// Time for connecting and for the results, beyond the length of the test. A test that takes longer is stopped. Our choice.
const LATEST: Duration = Duration::from_secs(7);
/// A test that is stopped gets this long to save its result; then it is killed. Our choice.
const GRACE: Duration = Duration::from_secs(3);

/// Starts a test as a child process, or two of them for a pair without and with SQM. Refused while another test or a search for
/// rates is running.
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
    let paused = match &wanted.without_and_with {
        Some(interface) => match pause(state, interface, &wanted).await {
            Ok(paused) => Some(paused),
            Err(problem) => {
                discard(secret);
                return Err(problem);
            }
        },
        None => None,
    };
    let pair = wanted.without_and_with.clone().map(|interface| Pair {
        interface,
        is_shaped: false,
        other: None,
    });
    let test = new_test(&wanted, id, pair);
    let stop = Arc::new(Stop::default());
    jobs.begin(&test, Arc::clone(&stop));
    let job = Job {
        wanted,
        secret,
        stop,
        paused,
    };
    tokio::spawn(job.run(Arc::clone(state), test.clone()));
    Ok(test)
}

/// Pauses the shaping for the first test of a pair.
async fn pause(state: &AppState, interface: &str, wanted: &Wanted) -> Result<Paused, Problem> {
    let longest = wanted.longest + LATEST + GRACE;
    let pause = Pause {
        interface: interface.to_owned(),
        seconds: longest.as_secs() as u32,
    };
    Ok(state.daemon.pause(&pause).await?)
}

fn new_test(wanted: &Wanted, id: String, pair: Option<Pair>) -> Test {
    Test {
        id,
        state: State::Running,
        kind: wanted.kind.clone(),
        host: wanted.host.clone(),
        title: wanted.title.clone(),
        started_unix_ms: unix_ms(),
        duration_s: wanted.duration_s,
        error: None,
        bytes: None,
        plots: Vec::new(),
        summary: None,
        verdict: None,
        responsiveness: None,
        pair,
    }
}

/// A test that runs, or two of them.
struct Job {
    wanted: Wanted,
    /// The file with the secret, which is removed at the end.
    secret: Option<PathBuf>,
    /// Ends the child process.
    stop: Arc<Stop>,
    /// The pause of the shaping during the first test of a pair. Dropping it ends the pause, also if this program is killed.
    paused: Option<Paused>,
}

impl Job {
    async fn run(mut self, state: Arc<AppState>, test: Test) {
        let first = self.run_one(&state, test).await;
        let last = match first.pair.clone() {
            Some(pair) => self.run_second(&state, first, pair).await,
            None => first,
        };
        discard(self.secret);
        state.test_jobs.finish(last);
    }

    /// Ends the pause, and runs the second test of a pair if the first one is complete. Returns the test that ran last.
    async fn run_second(&mut self, state: &Arc<AppState>, mut first: Test, pair: Pair) -> Test {
        let resumed = self.resume(state, &pair.interface).await;
        if first.state != State::Done {
            first.error = first.error.or_else(|| resumed.err());
            return first;
        }
        let id = resumed.and_then(|()| new_id().map_err(|error| format!("{error:#}")));
        let second = match id {
            Ok(id) => {
                let pair = Pair {
                    is_shaped: true,
                    other: Some(first.id.clone()),
                    ..pair
                };
                new_test(&self.wanted, id, Some(pair))
            }
            Err(error) => {
                (first.state, first.error) = (State::Failed, Some(error));
                return first;
            }
        };
        if let Some(pair) = &mut first.pair {
            pair.other = Some(second.id.clone());
        }
        self.stop = Arc::default();
        let jobs = &state.test_jobs;
        jobs.finish(first);
        jobs.begin(&second, Arc::clone(&self.stop));
        self.run_one(state, second).await
    }

    /// Ends the pause, and waits until the interface is shaped. An error if it was over before the first test.
    async fn resume(&mut self, state: &AppState, interface: &str) -> Result<(), String> {
        let Some(paused) = self.paused.take() else {
            return Ok(());
        };
        let resumed = state.daemon.resume(paused, interface).await;
        resumed.map_err(|error| error.to_string())
    }

    /// Runs `sqm test` once, and evaluates its result.
    async fn run_one(&self, state: &Arc<AppState>, mut test: Test) -> Test {
        let jobs = &state.test_jobs;
        let file = jobs.file(&test.id);
        let result = match self.wanted.way {
            Way::Server | Way::Url => ["--save".into(), file.clone().into()],
            Way::Rpm => ["--json".into(), "-".into()],
        };
        let secret = self
            .secret
            .iter()
            .flat_map(|file| ["--secret".into(), file.into()]);
        let title = test.name().map(|name| format!("--title={name}").into());
        let arguments = self
            .wanted
            .arguments(result.into_iter().chain(secret).chain(title));
        let limits = Limits {
            longest: self.wanted.longest + LATEST,
            grace: GRACE,
        };
        let mut last = String::new();
        let command = child::command(&arguments);
        let ended = child::watch(command, limits, &self.stop, |line| {
            match serde_json::from_str::<Value>(line) {
                Ok(progress) if progress.is_object() => jobs.publish(&event("progress", &progress)),
                _ => line.clone_into(&mut last),
            }
        })
        .await;
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
        if let Ok(result) = fs::metadata(&file) {
            test.bytes = Some(result.len());
            match compare::judge(state, &file).await {
                Ok((run, plots)) => {
                    test.verdict = Some(run.verdict);
                    test.summary = Some(run.summary);
                    test.plots = plots;
                }
                Err(problem) => test.error = test.error.or_else(|| Some(problem.message().to_owned())),
            }
        }
        test
    }
}

/// Removes the file with the secret, which is no longer needed. A file that is already gone is no error.
fn discard(secret: Option<PathBuf>) {
    if let Some(secret) = secret {
        let _ = sqm_files::remove(&secret);
    }
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

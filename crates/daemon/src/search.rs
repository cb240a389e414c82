//! The search for the best rates (`sqm tune`) as a child of the daemon: whoever may ask for it need not have the privilege to
//! change queues.
//!
//! The child puts the shaping from before back when it is interrupted. If it does not end, it is killed, and its guard
//! (`tune/guard.rs`) puts the shaping back. A search counts as running until both have ended.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::shared::Shared;
use sqm_process::child::{self, Limits, Stop};

/// More steps than this, no search has.
const MOST_STEPS: usize = 500;
/// The longest picture that is read, in bytes.
const MAX_PICTURE: u64 = 16 << 20;
/// `sqm tune` itself ends before that.
const LIMITS: Limits = Limits {
    longest: Duration::from_secs(110),
    grace: Duration::from_secs(3),
};
/// Interrupted, killed, and its guard at an end: all of that takes no longer.
const END: Duration = Duration::from_secs(8);
/// In the folder of the state: what `sqm tune --out` keeps of the last search.
const KEPT: &str = "tune";
/// The pictures among it.
const PICTURES: [&str; 4] = ["latency", "before-download", "before-upload", "after"];

/// What a search is to do.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    host: String,
    port: Option<u16>,
    interface: Option<String>,
    target_ms: Option<f64>,
    secret: Option<String>,
}

/// A search, running or ended.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Search {
    pub(super) state: State,
    interface: Option<String>,
    host: Option<String>,
    /// None leaves it to `sqm tune`.
    target_ms: Option<f64>,
    started_unix_ms: Option<u64>,
    steps: Vec<Step>,
    /// What `sqm tune --json` answers.
    result: Option<Value>,
    /// The pictures that there are of it.
    plots: Vec<&'static str>,
    error: Option<String>,
    /// Ends the child.
    #[serde(skip)]
    stop: Arc<Stop>,
    #[serde(skip)]
    is_stopped: bool,
    /// The daemon ends: no other search begins.
    #[serde(skip)]
    is_last: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    #[default]
    None,
    Running,
    Done,
    Failed,
    Stopped,
}

#[derive(Clone, Debug, Serialize)]
struct Step {
    unix_ms: u64,
    text: String,
}

/// Begins a search; `None` if one is running.
pub(super) fn start(shared: &Arc<Shared>, wanted: Wanted) -> anyhow::Result<Option<Search>> {
    let mut search = lock(shared);
    if search.state == State::Running || search.is_last {
        return Ok(None);
    }
    let secret = wanted
        .secret
        .as_deref()
        .map(|secret| keep_secret(shared, secret))
        .transpose()?;
    let kept = shared.state_dir.join(KEPT);
    // Of a search before this one; often there was none.
    if fs::remove_dir_all(&kept).is_err() {
        // Nor is anything else of use in its place.
        let _ = sqm_files::remove(&kept);
    }
    let mut arguments: Vec<OsString> = vec!["tune".into(), "--json".into()];
    let mut option = |name: &str, value: OsString| arguments.extend([name.into(), value]);
    option("--out", kept.into());
    option("--config", shared.config.clone().into());
    option("--state-dir", shared.state_dir.clone().into());
    if let Some(port) = wanted.port {
        option("--port", port.to_string().into());
    }
    if let Some(target) = wanted.target_ms {
        option("--target", target.to_string().into());
    }
    if let Some(secret) = &secret {
        option("--secret", secret.clone().into());
    }
    // Nothing behind this is taken for an option.
    arguments.extend(["--".into(), wanted.host.clone().into()]);
    arguments.extend(wanted.interface.clone().map(Into::into));
    *search = Search {
        state: State::Running,
        interface: wanted.interface,
        host: Some(wanted.host),
        target_ms: wanted.target_ms,
        started_unix_ms: Some(unix_ms()),
        ..Search::default()
    };
    shared
        .journal
        .tell("state", None, "searching for the best rates".to_owned());
    tokio::spawn(run(
        Arc::clone(shared),
        arguments,
        secret,
        Arc::clone(&search.stop),
    ));
    Ok(Some(search.clone()))
}

/// Asks the search to end, which it does within seconds, if need be by force; false if none is running.
pub(super) fn stop(shared: &Shared) -> bool {
    stop_one(&mut lock(shared))
}

/// Ends the search for good, and waits until the shaping from before it is back. False if it could not be ended in time.
pub(super) fn end(shared: &Shared) -> bool {
    let mut search = lock(shared);
    search.is_last = true;
    stop_one(&mut search);
    let is_running = |search: &mut Search| search.state == State::Running;
    let waited = shared.search_ended.wait_timeout_while(search, END, is_running);
    let (search, _) = waited.expect("no holder of this lock panics");
    search.state != State::Running
}

fn stop_one(search: &mut Search) -> bool {
    let is_running = search.state == State::Running;
    if is_running {
        search.is_stopped = true;
        search.stop.ask();
    }
    is_running
}

/// A picture of the last search, as SVG.
pub(super) fn picture(shared: &Shared, name: &str) -> Option<Vec<u8>> {
    let known = PICTURES.iter().find(|known| **known == name)?;
    sqm_files::read(&file_of(shared, known), MAX_PICTURE).ok()
}

fn file_of(shared: &Shared, picture: &str) -> PathBuf {
    shared.state_dir.join(KEPT).join(format!("{picture}.svg"))
}

async fn run(shared: Arc<Shared>, arguments: Vec<OsString>, secret: Option<PathBuf>, stop: Arc<Stop>) {
    let mut last = String::new();
    let ended = child::watch(child::command(&arguments), LIMITS, &stop, |line| {
        line.clone_into(&mut last);
        let mut search = lock(&shared);
        // Its last word is the error, if there is one.
        if !line.starts_with("sqm: ") && search.steps.len() < MOST_STEPS {
            search.steps.push(Step {
                unix_ms: unix_ms(),
                text: line.to_owned(),
            });
        }
    })
    .await;
    if let Some(secret) = secret {
        // It is of no use to anybody now.
        let _ = sqm_files::remove(&secret);
    }
    let mut search = lock(&shared);
    let (state, result, error) = match ended {
        Ok((_, output)) if !output.is_empty() => match serde_json::from_slice::<Value>(&output) {
            Ok(result) => (State::Done, Some(result), None),
            Err(error) => (
                State::Failed,
                None,
                Some(format!("its result cannot be read: {error}")),
            ),
        },
        Ok((status, _)) => {
            let reason = last.strip_prefix("sqm: ").unwrap_or(&last);
            let reason = if reason.is_empty() {
                status.to_string()
            } else {
                reason.to_owned()
            };
            (State::Failed, None, Some(reason))
        }
        Err(error) => (State::Failed, None, Some(format!("{error:#}"))),
    };
    search.state = if search.is_stopped { State::Stopped } else { state };
    if let Some(interface) = result.as_ref().and_then(|result| result["interface"].as_str()) {
        search.interface = Some(interface.to_owned());
    }
    search.result = result;
    search.plots = PICTURES.to_vec();
    search.plots.retain(|picture| file_of(&shared, picture).exists());
    search.error = error;
    shared.search_ended.notify_all();
    shared.journal.tell(
        "state",
        None,
        "the search for the best rates has ended".to_owned(),
    );
}

/// For the child alone to read.
fn keep_secret(shared: &Shared, secret: &str) -> anyhow::Result<PathBuf> {
    let path = shared.state_dir.join("tune-secret");
    // Of a search that a killed daemon did not see the end of.
    sqm_files::remove(&path)?;
    sqm_files::create(&path, 0o600, secret.as_bytes())?;
    Ok(path)
}

fn lock(shared: &Shared) -> MutexGuard<'_, Search> {
    shared.search.lock().expect("no holder of this lock panics")
}

fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

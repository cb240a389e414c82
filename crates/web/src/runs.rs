//! Tests: one at a time as a child, and the results of the last ones in a folder.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CONTENT_DISPOSITION, HeaderValue};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json as value};
use sqm_measure::rpm::client::Report;
use tokio::sync::mpsc::{Sender, channel};

use super::audit::unix_ms;
use super::problem::{Handled, Problem};
use super::start::{Start, Way, kinds};
use super::tune;
use crate::app_state::AppState;
use sqm_http::{self, KEEP_ALIVE, KEEP_ALIVE_INTERVAL, event, full, json};
use sqm_process::child::{self, Limits, Stop};

/// So many results are kept, and so many bytes of them.
const MOST_TESTS: usize = 50;
const MOST_BYTES: u64 = 64 << 20;
/// The longest files that are read, in bytes: a result, and what is kept beside it.
const MAX_RESULT: u64 = MOST_BYTES;
const MAX_TEST: u64 = 1 << 20;
/// Events of one test that are remembered for who comes late: the longest test's.
const MOST_EVENTS: usize = 4000;
/// For connecting and for the results, beyond the length of a test. A test that takes longer is stopped.
const LATEST: Duration = Duration::from_secs(7);
/// A test that is stopped gets so long to keep what it has; then it is killed.
const GRACE: Duration = Duration::from_secs(3);

pub(super) struct Runs {
    dir: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// The newest last.
    tests: Vec<Test>,
    running: Option<Running>,
}

/// One test, as docs/openapi.yaml has it, and as it is kept beside its result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Test {
    id: String,
    state: State,
    kind: String,
    host: String,
    title: Option<String>,
    started_unix_ms: u64,
    duration_s: u32,
    error: Option<String>,
    bytes: Option<u64>,
    #[serde(default)]
    plots: Vec<String>,
    summary: Option<Value>,
    verdict: Option<Value>,
    /// What `sqm test --rpm` found.
    #[serde(default)]
    responsiveness: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Running,
    Done,
    Failed,
    Stopped,
}

struct Running {
    id: String,
    /// Ends the child.
    stop: Arc<Stop>,
    is_stopped: bool,
    /// Everything from the beginning on, and who listens.
    told: Vec<Bytes>,
    listeners: Vec<Sender<Bytes>>,
}

impl Runs {
    /// With what is kept there. What ran when the server ended has failed.
    pub(super) fn at(dir: &Path) -> anyhow::Result<Self> {
        let dir = dir.to_owned();
        let context = || format!("cannot keep results of tests in {}", dir.display());
        fs::create_dir_all(&dir).with_context(context)?;
        let mut tests = Vec::new();
        for entry in fs::read_dir(&dir).with_context(context)?.flatten() {
            let path = entry.path();
            if path.extension().is_none_or(|kind| kind != "json") {
                continue;
            }
            let test = sqm_files::read(&path, MAX_TEST)
                .ok()
                .and_then(|text| serde_json::from_slice::<Test>(&text).ok());
            if let Some(mut test) = test.filter(|test| is_id(&test.id)) {
                if test.state == State::Running {
                    test.state = State::Failed;
                    test.error = Some("the server ended while it ran".to_owned());
                }
                tests.push(test);
            }
        }
        tests.sort_by(|a, b| a.id.cmp(&b.id));
        let runs = Self {
            dir,
            inner: Mutex::default(),
        };
        runs.lock().tests = tests;
        Ok(runs)
    }

    /// The test that runs.
    pub(super) fn running(&self) -> Option<String> {
        self.lock().running.as_ref().map(|running| running.id.clone())
    }

    pub(super) fn list(&self) -> Handled {
        let inner = self.lock();
        let kinds: Vec<Value> = kinds()
            .map(|(name, about)| value!({"name": name, "about": about}))
            .collect();
        let tests: Vec<&Test> = inner.tests.iter().rev().collect();
        let running = inner.running.as_ref().map(|running| &running.id);
        let answer = value!({"tests": tests, "running": running, "most": MOST_TESTS, "kinds": kinds});
        Ok(json(StatusCode::OK, &answer))
    }

    pub(super) fn get(&self, id: &str) -> Result<Value, Problem> {
        let inner = self.lock();
        let test = inner.tests.iter().find(|test| test.id == id);
        test.map(|test| value!(test)).ok_or_else(unknown)
    }

    pub(super) fn delete(&self, id: &str) -> Result<(), Problem> {
        let mut inner = self.lock();
        let at = inner
            .tests
            .iter()
            .position(|test| test.id == id)
            .ok_or_else(unknown)?;
        if inner.tests[at].state == State::Running {
            return Err(Problem::conflict("busy", "it is running: stop it first"));
        }
        inner.tests.remove(at);
        self.forget(id);
        Ok(())
    }

    pub(super) fn stop(&self, id: &str) -> Result<(), Problem> {
        let mut inner = self.lock();
        if inner.tests.iter().all(|test| test.id != id) {
            return Err(unknown());
        }
        let Some(running) = inner.running.as_mut().filter(|running| running.id == id) else {
            return Err(Problem::conflict("nothing-waits", "it has ended"));
        };
        running.is_stopped = true;
        running.stop.ask();
        Ok(())
    }

    pub(super) fn live(&self, id: &str) -> Handled {
        let mut inner = self.lock();
        if inner.tests.iter().all(|test| test.id != id) {
            return Err(unknown());
        }
        let Some(running) = inner.running.as_mut().filter(|running| running.id == id) else {
            return Err(Problem::conflict("nothing-waits", "it has ended"));
        };
        let (sender, receiver) = channel(MOST_EVENTS + 64);
        for told in &running.told {
            // There is room for all of them.
            let _ = sender.try_send(told.clone());
        }
        running.listeners.push(sender.clone());
        keep_alive(sender);
        Ok(sqm_http::events(receiver))
    }

    /// The file that Flent opens.
    pub(super) fn download(&self, id: &str) -> Handled {
        let path = self.result(id)?;
        let bytes = sqm_files::read(&path, MAX_RESULT);
        let bytes = bytes.map_err(|_| Problem::not_found("this test has no result"))?;
        let mut answer = full(StatusCode::OK, "application/gzip", bytes);
        let name = format!("attachment; filename=\"{id}.flent.gz\"");
        if let Ok(name) = HeaderValue::try_from(name) {
            answer.headers_mut().insert(CONTENT_DISPOSITION, name);
        }
        Ok(answer)
    }

    /// Where the result of a test is.
    pub(super) fn result(&self, id: &str) -> Result<PathBuf, Problem> {
        let inner = self.lock();
        let test = inner
            .tests
            .iter()
            .find(|test| test.id == id)
            .ok_or_else(unknown)?;
        if test.bytes.is_none() {
            return Err(Problem::not_found("this test has no result"));
        }
        Ok(self.file(id))
    }

    /// A name for tables and pictures.
    pub(super) fn name(&self, id: &str) -> String {
        let inner = self.lock();
        let test = inner.tests.iter().find(|test| test.id == id);
        test.and_then(|test| test.title.clone())
            .unwrap_or_else(|| id.to_owned())
    }

    /// A folder for pictures.
    pub(super) fn scratch(&self) -> anyhow::Result<Scratch> {
        let path = self.dir.join(format!("drawing-{}", new_id()?));
        fs::create_dir(&path)?;
        Ok(Scratch { path })
    }

    fn file(&self, id: &str) -> PathBuf {
        self.dir.join(format!("{id}.flent.gz"))
    }

    fn forget(&self, id: &str) {
        // What is gone already needs no forgetting.
        let _ = sqm_files::remove(&self.file(id));
        let _ = sqm_files::remove(&self.dir.join(format!("{id}.json")));
    }

    fn keep(&self, test: &Test) {
        let path = self.dir.join(format!("{}.json", test.id));
        let written = serde_json::to_vec(test)
            .map_err(anyhow::Error::from)
            .and_then(|text| Ok(sqm_files::replace(&path, 0o600, &text)?));
        if let Err(error) = written {
            errln!("sqm: {error:#}");
        }
    }

    /// Makes room for another result.
    fn prune(&self) {
        let mut inner = self.lock();
        loop {
            let bytes: u64 = inner.tests.iter().filter_map(|test| test.bytes).sum();
            if inner.tests.len() < MOST_TESTS && bytes < MOST_BYTES || inner.tests.is_empty() {
                return;
            }
            let oldest = inner.tests.remove(0);
            self.forget(&oldest.id);
        }
    }

    fn tell(&self, message: &Bytes) {
        let mut inner = self.lock();
        if let Some(running) = &mut inner.running {
            if running.told.len() < MOST_EVENTS {
                running.told.push(message.clone());
            }
            running
                .listeners
                .retain(|listener| listener.try_send(message.clone()).is_ok());
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().expect("no holder of this lock panics")
    }
}

/// A folder that goes when it is no longer needed.
pub(super) struct Scratch {
    pub(super) path: PathBuf,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now is in nobody's way.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Begins a test.
pub(super) async fn start(site: &Arc<AppState>, start: Start) -> Result<Value, Problem> {
    let wanted = start.check()?;
    if tune::is_running(site).await {
        return Err(Problem::conflict(
            "busy",
            "a search for rates is running: both would disturb each other",
        ));
    }
    let id = new_id().map_err(|error| Problem::unavailable(format!("{error:#}")))?;
    let runs = &site.runs;
    if runs.running().is_some() {
        return Err(Problem::conflict("busy", "a test is running"));
    }
    let secret = wanted
        .secret
        .as_deref()
        .map(|secret| keep_secret(runs, &id, secret))
        .transpose()?;
    let result = match wanted.way {
        Way::Server | Way::Url => ["--save".into(), runs.file(&id).into()],
        Way::Rpm => ["--json".into(), "-".into()],
    };
    let secret_option = secret.iter().flat_map(|file| ["--secret".into(), file.into()]);
    let arguments = wanted.arguments(result.into_iter().chain(secret_option));
    let limits = Limits {
        longest: wanted.longest() + LATEST,
        grace: GRACE,
    };
    runs.prune();
    let test = Test {
        id: id.clone(),
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
    {
        let mut inner = runs.lock();
        inner.tests.push(test.clone());
        inner.running = Some(Running {
            id,
            stop: Arc::clone(&stop),
            is_stopped: false,
            told: Vec::new(),
            listeners: Vec::new(),
        });
    }
    runs.keep(&test);
    let child = Child {
        arguments,
        secret,
        limits,
        stop,
    };
    tokio::spawn(run(Arc::clone(site), test.clone(), child));
    Ok(value!(test))
}

/// `sqm test` as it is to be run.
struct Child {
    arguments: Vec<OsString>,
    /// A file, to be removed in the end.
    secret: Option<PathBuf>,
    limits: Limits,
    stop: Arc<Stop>,
}

async fn run(site: Arc<AppState>, mut test: Test, child: Child) {
    let runs = &site.runs;
    let mut last = String::new();
    let command = child::command(&child.arguments);
    let ended = child::watch(
        command,
        child.limits,
        &child.stop,
        |line| match serde_json::from_str::<Value>(line) {
            Ok(progress) if progress.is_object() => runs.tell(&event("progress", &progress)),
            _ => line.clone_into(&mut last),
        },
    )
    .await;
    if let Some(secret) = child.secret {
        // It is of no use to anybody now.
        let _ = sqm_files::remove(&secret);
    }
    let is_stopped = runs
        .lock()
        .running
        .as_ref()
        .is_some_and(|running| running.is_stopped);
    let reason = last.strip_prefix("sqm: ").unwrap_or(&last).to_owned();
    test.responsiveness = ended.as_ref().ok().and_then(|(_, output)| responsiveness(output));
    (test.state, test.error) = match ended {
        _ if is_stopped => (State::Stopped, None),
        Ok((status, _)) if status.success() => (State::Done, None),
        Ok((status, _)) if reason.is_empty() => (State::Failed, Some(status.to_string())),
        Ok(_) => (State::Failed, Some(reason)),
        Err(error) => (State::Failed, Some(format!("{error:#}"))),
    };
    let file = runs.file(&test.id);
    if let Ok(result) = fs::metadata(&file) {
        test.bytes = Some(result.len());
        match super::compare::judge(&site, &file).await {
            Ok((run, plots)) => {
                test.verdict = Some(run.verdict());
                test.summary = Some(run.summary);
                test.plots = plots;
            }
            Err(problem) => test.error = test.error.or_else(|| Some(problem.message().to_owned())),
        }
    }
    runs.keep(&test);
    let message = event("end", &test);
    let mut inner = runs.lock();
    if let Some(kept) = inner.tests.iter_mut().find(|kept| kept.id == test.id) {
        *kept = test;
    }
    if let Some(running) = inner.running.take() {
        for listener in running.listeners {
            let _ = listener.try_send(message.clone());
        }
    }
}

/// What `sqm test --rpm --json` printed, with the protocol's word for each figure.
fn responsiveness(output: &[u8]) -> Option<Value> {
    let report: Report = serde_json::from_slice(output).ok()?;
    let mut told = value!(report);
    for (name, found) in [("download", &report.download), ("upload", &report.upload)] {
        if let Some(found) = found {
            told[name]["word"] = found.word().into();
        }
    }
    Some(told)
}

/// Says a word now and then to whoever listens, for as long as he does.
fn keep_alive(sender: Sender<Bytes>) {
    let sender = sender.downgrade();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(KEEP_ALIVE_INTERVAL).await;
            // The last strong one is gone when the test has ended.
            let Some(sender) = sender.upgrade() else { return };
            if sender.try_send(KEEP_ALIVE).is_err() {
                return;
            }
        }
    });
}

/// For the child alone to read.
fn keep_secret(runs: &Runs, id: &str, secret: &str) -> Result<PathBuf, Problem> {
    let path = runs.dir.join(format!("{id}.secret"));
    let written = sqm_files::create(&path, 0o600, secret.as_bytes());
    written.map_err(|error| Problem::unavailable(error.to_string()))?;
    Ok(path)
}

/// Time, and what makes it unique: `20260131T235959-0123abcd`.
fn new_id() -> anyhow::Result<String> {
    let now = clock_gettime(ClockId::Realtime).tv_sec;
    let random: String = super::session::random::<4>()?
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let (day, second) = (now.div_euclid(86_400), now.rem_euclid(86_400));
    let (year, month, date) = civil(day);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    Ok(format!(
        "{year:04}{month:02}{date:02}T{hour:02}{minute:02}{second:02}-{random}"
    ))
}

pub(super) fn is_id(id: &str) -> bool {
    let shape = |(n, byte): (usize, u8)| match n {
        8 => byte == b'T',
        15 => byte == b'-',
        0..=14 => byte.is_ascii_digit(),
        _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
    };
    id.len() == 24 && id.bytes().enumerate().all(shape)
}

/// The date of a day since 1970, by the Gregorian calendar: its cycle of 400 years has 146,097 days.
const fn civil(day: i64) -> (i64, i64, i64) {
    // Years begin in March here, so that the leap day comes last.
    let day = day + 719_468;
    let cycle = day.div_euclid(146_097);
    let of_cycle = day.rem_euclid(146_097);
    let year = (of_cycle - of_cycle / 1460 + of_cycle / 36_524 - of_cycle / 146_096) / 365;
    let of_year = of_cycle - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + cycle * 400 + (month <= 2) as i64;
    (year, month, date)
}

fn unknown() -> Problem {
    Problem::not_found("there is no such test")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_dates_and_nothing_else_is_one() {
        assert!(is_id(&new_id().unwrap()));
        for wrong in [
            "",
            "../../etc/passwd",
            "20260131T235959-0123abcg",
            "20260131T235959-0123abc",
            "20260131-235959-0123abcd",
            "20260131T235959-0123abcd/",
        ] {
            assert!(!is_id(wrong), "{wrong}");
        }
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(20_513), (2026, 3, 1));
        assert_eq!(civil(19_782), (2024, 2, 29));
    }
}

//! The tests: the one that is running, and the results of the last ones in a folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anyhow::Context;
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CONTENT_DISPOSITION, HeaderValue};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc::{Sender, channel};

use super::problem::{ApiResult, Problem};
use super::test_request::kinds;
use sqm_http::{self, KEEP_ALIVE, KEEP_ALIVE_INTERVAL, event, full, json};
use sqm_process::child::Stop;
use tracing::warn;

/// Results that are kept, and their total size in bytes. Our choices, for the flash of a router.
const MOST_TESTS: usize = 50;
const MOST_BYTES: u64 = 64 << 20;
/// The largest result that is read, in bytes.
const MAX_RESULT: u64 = MOST_BYTES;
/// The largest description of a test that is read, in bytes.
const MAX_TEST: u64 = 1 << 20;
/// Events of a test that are kept for browsers that connect later. The longest test has fewer.
const MOST_EVENTS: usize = 4000;

/// All tests of this server.
pub(super) struct TestJobs {
    dir: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// In the order of their start.
    tests: Vec<Test>,
    running: Option<Running>,
    /// Tests whose grade an older version gave. They are without a verdict until they are judged again.
    to_judge: Vec<String>,
}

/// A test, as docs/openapi.yaml has it and as the file beside its result has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Test {
    pub(super) id: String,
    pub(super) state: State,
    pub(super) kind: String,
    pub(super) host: String,
    pub(super) title: Option<String>,
    pub(super) started_unix_ms: u64,
    pub(super) duration_s: u32,
    pub(super) error: Option<String>,
    pub(super) bytes: Option<u64>,
    #[serde(default)]
    pub(super) plots: Vec<String>,
    pub(super) summary: Option<Value>,
    pub(super) verdict: Option<Verdict>,
    /// The result of `sqm test --rpm`.
    #[serde(default)]
    pub(super) responsiveness: Option<Value>,
    /// The place in a pair of tests, without and with SQM.
    #[serde(default)]
    pub(super) pair: Option<Pair>,
}

/// A test's place in a pair of tests, without and with SQM.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Pair {
    pub(super) interface: String,
    /// False for the first test, during which the shaping is paused.
    pub(super) is_shaped: bool,
    /// The id of the other test; none if there was no second one.
    pub(super) other: Option<String>,
}

impl Test {
    /// The name for tables, pictures and the result's file, if the user has given one or the test is one of a pair.
    pub(super) fn name(&self) -> Option<String> {
        let words = self.pair.as_ref().map(|pair| match pair.is_shaped {
            false => "without SQM",
            true => "with SQM",
        });
        match (&self.title, words) {
            (Some(title), Some(words)) => Some(format!("{title}, {words}")),
            (title, words) => title.clone().or_else(|| words.map(str::to_owned)),
        }
    }

    /// True if an older version gave the grade: it has no sentence.
    fn has_old_grade(&self) -> bool {
        let grade = self.verdict.as_ref().map(|verdict| &verdict.grade);
        grade.is_some_and(|grade| grade.is_object() && grade.get("sentence").is_none())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Running,
    Done,
    Failed,
    Stopped,
}

/// The grade of a test, and the findings that limit it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Verdict {
    findings: Value,
    grade: Value,
}

/// The answer to `GET /tests`.
#[derive(Serialize)]
struct Tests<'a> {
    tests: Vec<&'a Test>,
    running: Option<&'a str>,
    most: usize,
    kinds: Vec<TestKind<'a>>,
}

#[derive(Serialize)]
struct TestKind<'a> {
    name: &'a str,
    about: &'a str,
}

struct Running {
    id: String,
    /// Ends the child process.
    stop: Arc<Stop>,
    /// True once a user has stopped the test.
    is_stopped: bool,
    /// All events since the start.
    event_log: Vec<Bytes>,
    /// The browsers that follow the test.
    listeners: Vec<Sender<Bytes>>,
}

impl TestJobs {
    /// Reads the tests that are kept in a folder. One that was running when the server ended has failed.
    pub(super) fn at(dir: &Path) -> anyhow::Result<Self> {
        let dir = dir.to_owned();
        let context = || format!("cannot keep results of tests in {}", dir.display());
        fs::create_dir_all(&dir).with_context(context)?;
        let (mut tests, mut to_judge) = (Vec::new(), Vec::new());
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
                    test.error = Some("the server ended while the test was running".to_owned());
                }
                if test.has_old_grade() {
                    test.verdict = None;
                    to_judge.push(test.id.clone());
                }
                tests.push(test);
            }
        }
        tests.sort_by(|a, b| a.id.cmp(&b.id));
        let jobs = Self {
            dir,
            inner: Mutex::default(),
        };
        {
            let mut inner = jobs.lock();
            (inner.tests, inner.to_judge) = (tests, to_judge);
        }
        Ok(jobs)
    }

    /// The id of the running test.
    pub(super) fn running(&self) -> Option<String> {
        self.lock().running.as_ref().map(|running| running.id.clone())
    }

    pub(super) fn list(&self) -> ApiResult {
        let inner = self.lock();
        let answer = Tests {
            tests: inner.tests.iter().rev().collect(),
            running: inner.running.as_ref().map(|running| running.id.as_str()),
            most: MOST_TESTS,
            kinds: kinds().map(|(name, about)| TestKind { name, about }).collect(),
        };
        Ok(json(StatusCode::OK, &answer))
    }

    pub(super) fn get(&self, id: &str) -> Result<Test, Problem> {
        let inner = self.lock();
        let test = inner.tests.iter().find(|test| test.id == id);
        test.cloned().ok_or_else(unknown)
    }

    pub(super) fn delete(&self, id: &str) -> Result<(), Problem> {
        let mut inner = self.lock();
        let at = inner
            .tests
            .iter()
            .position(|test| test.id == id)
            .ok_or_else(unknown)?;
        if inner.tests[at].state == State::Running {
            return Err(Problem::conflict("busy", "the test is running: stop it first"));
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
            return Err(Problem::conflict("nothing-waits", "the test has ended"));
        };
        running.is_stopped = true;
        running.stop.ask();
        Ok(())
    }

    pub(super) fn live(&self, id: &str) -> ApiResult {
        let mut inner = self.lock();
        if inner.tests.iter().all(|test| test.id != id) {
            return Err(unknown());
        }
        let Some(running) = inner.running.as_mut().filter(|running| running.id == id) else {
            return Err(Problem::conflict("nothing-waits", "the test has ended"));
        };
        let (sender, receiver) = channel(MOST_EVENTS + 64);
        for event in &running.event_log {
            // The channel has room for all of them.
            let _ = sender.try_send(event.clone());
        }
        running.listeners.push(sender.clone());
        keep_alive(sender);
        Ok(sqm_http::events(receiver))
    }

    /// The result in Flent's format, as a download.
    pub(super) fn download(&self, id: &str) -> ApiResult {
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

    /// Takes the tests that are to be judged again.
    pub(super) fn take_to_judge(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().to_judge)
    }

    /// Replaces the figures and the verdict of a test, unless it is gone.
    pub(super) fn change_verdict(&self, id: &str, summary: Value, verdict: Verdict) {
        let mut inner = self.lock();
        let Some(test) = inner.tests.iter_mut().find(|test| test.id == id) else {
            return;
        };
        (test.summary, test.verdict) = (Some(summary), Some(verdict));
        self.keep(test);
    }

    /// The path of a test's result.
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

    /// The name of a test for tables and pictures: its title, or else its id.
    pub(super) fn name(&self, id: &str) -> String {
        let inner = self.lock();
        let test = inner.tests.iter().find(|test| test.id == id);
        test.and_then(Test::name).unwrap_or_else(|| id.to_owned())
    }

    /// A new folder for pictures.
    pub(super) fn scratch(&self) -> anyhow::Result<Scratch> {
        let path = self.dir.join(format!("drawing-{}", new_id()?));
        fs::create_dir(&path)?;
        Ok(Scratch { path })
    }

    /// The path at which a test's result is saved.
    pub(super) fn file(&self, id: &str) -> PathBuf {
        self.dir.join(format!("{id}.flent.gz"))
    }

    fn forget(&self, id: &str) {
        // A file that is already gone is no error.
        let _ = sqm_files::remove(&self.file(id));
        let _ = sqm_files::remove(&self.dir.join(format!("{id}.json")));
    }

    /// Writes the description of a test to its file.
    fn keep(&self, test: &Test) {
        let path = self.dir.join(format!("{}.json", test.id));
        let written = serde_json::to_vec(test)
            .map_err(anyhow::Error::from)
            .and_then(|text| Ok(sqm_files::replace(&path, 0o600, &text)?));
        if let Err(error) = written {
            warn!("{error:#}");
        }
    }

    /// Deletes the oldest tests, until there is room for another one.
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

    /// Adds a test, which is running from now on; `stop` ends its child process.
    pub(super) fn begin(&self, test: &Test, stop: Arc<Stop>) {
        self.prune();
        {
            let mut inner = self.lock();
            inner.tests.push(test.clone());
            inner.running = Some(Running {
                id: test.id.clone(),
                stop,
                is_stopped: false,
                event_log: Vec::new(),
                listeners: Vec::new(),
            });
        }
        self.keep(test);
    }

    /// True if a user has stopped the running test.
    pub(super) fn is_stopped(&self) -> bool {
        let inner = self.lock();
        inner.running.as_ref().is_some_and(|running| running.is_stopped)
    }

    /// Sends an event of the running test to all browsers that follow it.
    pub(super) fn publish(&self, event: &Bytes) {
        let mut inner = self.lock();
        if let Some(running) = &mut inner.running {
            if running.event_log.len() < MOST_EVENTS {
                running.event_log.push(event.clone());
            }
            running
                .listeners
                .retain(|listener| listener.try_send(event.clone()).is_ok());
        }
    }

    /// Keeps the outcome of the running test, which has ended, and sends it to the browsers that follow it.
    pub(super) fn finish(&self, test: Test) {
        self.keep(&test);
        let message = event("end", &test);
        let mut inner = self.lock();
        if let Some(kept) = inner.tests.iter_mut().find(|kept| kept.id == test.id) {
            *kept = test;
        }
        if let Some(running) = inner.running.take() {
            for listener in running.listeners {
                let _ = listener.try_send(message.clone());
            }
        }
    }

    /// Writes a secret to a file that only the child process is to read.
    pub(super) fn keep_secret(&self, id: &str, secret: &str) -> Result<PathBuf, Problem> {
        let path = self.dir.join(format!("{id}.secret"));
        let written = sqm_files::create(&path, 0o600, secret.as_bytes());
        written.map_err(|error| Problem::unavailable(error.to_string()))?;
        Ok(path)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().expect("no holder of this lock panics")
    }
}

/// A folder that is removed when this value is dropped.
pub(super) struct Scratch {
    pub(super) path: PathBuf,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A folder that cannot be removed does no harm.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Sends comments while there are no events, so that connections stay open; ends with the test or the listener.
fn keep_alive(sender: Sender<Bytes>) {
    let sender = sender.downgrade();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(KEEP_ALIVE_INTERVAL).await;
            // The test has ended once its own sender is gone.
            let Some(sender) = sender.upgrade() else { return };
            if sender.try_send(KEEP_ALIVE).is_err() {
                return;
            }
        }
    });
}

/// A new id: the time in UTC and a random suffix, such as `20260131T235959-0123abcd`.
pub(super) fn new_id() -> anyhow::Result<String> {
    let now = clock_gettime(ClockId::Realtime).tv_sec;
    let random = hex::encode(super::session::random::<4>()?);
    let (day, second) = (now.div_euclid(86_400), now.rem_euclid(86_400));
    let (year, month, date) = civil(day);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    Ok(format!(
        "{year:04}{month:02}{date:02}T{hour:02}{minute:02}{second:02}-{random}"
    ))
}

/// True if a text has the form of an id.
pub(super) fn is_id(id: &str) -> bool {
    let shape = |(n, byte): (usize, u8)| match n {
        8 => byte == b'T',
        15 => byte == b'-',
        0..=14 => byte.is_ascii_digit(),
        _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
    };
    id.len() == 24 && id.bytes().enumerate().all(shape)
}

/// Year, month and day of a day since 1970 in the Gregorian calendar, whose cycle of 400 years has 146,097 days.
const fn civil(day: i64) -> (i64, i64, i64) {
    // Years begin in March in this computation, so that the leap day is the last of a year.
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
    fn an_id_is_a_time_and_a_suffix() {
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

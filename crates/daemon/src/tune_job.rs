//! Runs the search for rates (`sqm tune`) as a child of the daemon, for clients of the API that have no privilege to change
//! queues.
//!
//! The child rolls its changes back when it is interrupted. If it does not end, it is killed, and its watchdog process rolls
//! them back. A search counts as running until both processes have ended.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sqm_api::journal::LogKind;
use sqm_api::tune::{Search, SearchState as State, StartTune, TuneResult, TuneStep};

use super::journal::Journal;
use sqm_process::child::{self, Limits, Stop};

/// The number of steps that are kept; a choice, above what any search takes.
const MAX_STEPS: usize = 500;
/// The longest picture that is read, bytes; a choice.
const MAX_PICTURE: u64 = 16 << 20;
/// A choice: `sqm tune` ends by itself before that.
const LIMITS: Limits = Limits {
    longest: Duration::from_secs(110),
    grace: Duration::from_secs(3),
};
/// The time for an interrupt, a kill and the watchdog's rollback together; a choice, above the limits of `sqm_process::child`.
const END_TIMEOUT: Duration = Duration::from_secs(8);
/// The folder in the state folder for `sqm tune --out` of the last search.
const OUTPUT: &str = "tune";
/// The names of the pictures in [`OUTPUT`], without `.svg`.
const PICTURES: [&str; 4] = ["latency", "before-download", "before-upload", "after"];

/// A search, and what the daemon needs to end it.
#[derive(Default)]
struct Job {
    search: Search,
    /// Interrupts the child.
    stop: Arc<Stop>,
    is_stopped: bool,
    /// The daemon is ending: no other search may start.
    is_last: bool,
}

/// The search that runs, or the last one. There is at most one at a time.
pub(super) struct TuneJob {
    job: Mutex<Job>,
    /// Notified when the search has ended.
    ended: Condvar,
    state_dir: PathBuf,
    config: PathBuf,
    journal: Arc<Journal>,
}

impl TuneJob {
    pub(super) fn new(state_dir: PathBuf, config: PathBuf, journal: Arc<Journal>) -> Self {
        Self {
            job: Mutex::default(),
            ended: Condvar::new(),
            state_dir,
            config,
            journal,
        }
    }

    /// The search that runs, or the last one.
    pub(super) fn search(&self) -> Search {
        self.lock().search.clone()
    }

    /// Starts a search; `None` if one is running or the daemon is ending.
    pub(super) fn start(self: &Arc<Self>, wanted: StartTune) -> anyhow::Result<Option<Search>> {
        let mut job = self.lock();
        if job.search.state == State::Running || job.is_last {
            return Ok(None);
        }
        let secret = wanted
            .secret
            .as_deref()
            .map(|secret| self.write_secret(secret))
            .transpose()?;
        let output = self.state_dir.join(OUTPUT);
        // Remove the output of an earlier search. This fails if there is none, or if the path is not a folder.
        if fs::remove_dir_all(&output).is_err() {
            let _ = sqm_files::remove(&output);
        }
        let mut arguments: Vec<OsString> = vec!["tune".into(), "--json".into()];
        let mut option = |name: &str, value: OsString| arguments.extend([name.into(), value]);
        option("--out", output.into());
        option("--config", self.config.clone().into());
        option("--state-dir", self.state_dir.clone().into());
        if let Some(port) = wanted.port {
            option("--port", port.to_string().into());
        }
        if let Some(target) = wanted.target_ms {
            option("--target", target.to_string().into());
        }
        if let Some(secret) = &secret {
            option("--secret", secret.clone().into());
        }
        if let Some(url) = &wanted.upload_url {
            option("--upload-url", url.into());
        }
        for (name, is_given) in [("--rpm", wanted.rpm), ("--insecure", wanted.insecure)] {
            arguments.extend(is_given.then(|| name.into()));
        }
        // Arguments after `--` are not parsed as options.
        arguments.extend(["--".into(), wanted.host.clone().into()]);
        arguments.extend(wanted.interface.clone().map(Into::into));
        *job = Job {
            search: Search {
                state: State::Running,
                interface: wanted.interface,
                host: Some(wanted.host),
                target_ms: wanted.target_ms,
                started_unix_ms: Some(unix_ms()),
                ..Search::default()
            },
            ..Job::default()
        };
        self.journal.record(
            LogKind::State,
            None,
            "the search for rates (sqm tune) has started".to_owned(),
        );
        let stop = Arc::clone(&job.stop);
        tokio::spawn(Arc::clone(self).run(arguments, secret, stop));
        Ok(Some(job.search.clone()))
    }

    /// Interrupts the search, and kills it if it does not end within seconds. Returns `false` if none is running.
    pub(super) fn stop(&self) -> bool {
        self.lock().interrupt()
    }

    /// Stops the search and prevents another one. Waits until the search has ended and its changes are rolled back. Returns
    /// `false` if that takes too long.
    pub(super) fn shut_down(&self) -> bool {
        let mut job = self.lock();
        job.is_last = true;
        job.interrupt();
        let is_running = |job: &mut Job| job.search.state == State::Running;
        let waited = self.ended.wait_timeout_while(job, END_TIMEOUT, is_running);
        let (job, _) = waited.expect("no holder of this lock panics");
        job.search.state != State::Running
    }

    /// A picture of the last search, as SVG. `-narrow` behind its name is the one for a phone.
    pub(super) fn picture(&self, name: &str) -> Option<Vec<u8>> {
        let kind = name.strip_suffix("-narrow").unwrap_or(name);
        let is_known = PICTURES.contains(&kind);
        is_known.then(|| sqm_files::read(&self.picture_file(name), MAX_PICTURE).ok())?
    }

    fn picture_file(&self, picture: &str) -> PathBuf {
        self.state_dir.join(OUTPUT).join(format!("{picture}.svg"))
    }

    async fn run(self: Arc<Self>, arguments: Vec<OsString>, secret: Option<PathBuf>, stop: Arc<Stop>) {
        let mut last = String::new();
        let ended = child::watch(child::command(&arguments), LIMITS, &stop, |line| {
            line.clone_into(&mut last);
            let search = &mut self.lock().search;
            // A line with the program's name is the error, not a step.
            if !line.starts_with("sqm: ") && search.steps.len() < MAX_STEPS {
                search.steps.push(TuneStep {
                    unix_ms: unix_ms(),
                    text: line.to_owned(),
                });
            }
        })
        .await;
        if let Some(secret) = secret {
            // The child has read it. If it cannot be removed, the next search replaces it.
            let _ = sqm_files::remove(&secret);
        }
        let mut job = self.lock();
        let (state, result, error) = match ended {
            Ok((_, output)) if !output.is_empty() => match serde_json::from_slice::<TuneResult>(&output) {
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
        let is_stopped = job.is_stopped;
        let search = &mut job.search;
        search.state = if is_stopped { State::Stopped } else { state };
        if let Some(result) = &result {
            search.interface = Some(result.interface.clone());
        }
        search.result = result;
        search.plots = PICTURES.map(str::to_owned).to_vec();
        search.plots.retain(|picture| self.picture_file(picture).exists());
        search.error = error;
        self.ended.notify_all();
        self.journal.record(
            LogKind::State,
            None,
            "the search for rates (sqm tune) has ended".to_owned(),
        );
    }

    /// Writes the server's secret to a file that only root can read, because arguments are visible to all users.
    fn write_secret(&self, secret: &str) -> anyhow::Result<PathBuf> {
        let path = self.state_dir.join("tune-secret");
        // A daemon that was killed during a search may have left one.
        sqm_files::remove(&path)?;
        sqm_files::create(&path, 0o600, secret.as_bytes())?;
        Ok(path)
    }

    fn lock(&self) -> MutexGuard<'_, Job> {
        self.job.lock().expect("no holder of this lock panics")
    }
}

impl Job {
    fn interrupt(&mut self) -> bool {
        let is_running = self.search.state == State::Running;
        if is_running {
            self.is_stopped = true;
            self.stop.ask();
        }
        is_running
    }
}

fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

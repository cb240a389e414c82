//! The threads of the rate controllers. One that panics is started again, some times; one that hangs is left behind: the keeper
//! waits for none of them without a limit.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use sqm_core::units::{Instant, Nanos};

use super::Line;
use super::driver::Driver;
use crate::shared::Shared;

/// How long after its end a thread is started again: the first time, the second, the last.
const RESTARTS: [Nanos; 3] = [
    Nanos::from_millis(1000),
    Nanos::from_millis(10_000),
    Nanos::from_millis(60_000),
];
/// A thread looks at least twice a second whether it is to end.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a thread does until it is told to stop.
type Work = fn(Line, Arc<Shared>, &AtomicBool);

/// The threads at work.
pub(crate) struct Fleet {
    threads: Vec<Running>,
    work: Work,
}

/// What has become of the threads since the last look.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Interfaces whose rates are no longer followed, or not as before: the file's hold.
    pub(crate) ended: Vec<String>,
    /// What there is to tell, by interface.
    pub(crate) news: Vec<(String, String)>,
}

struct Running {
    line: Line,
    stop: Arc<AtomicBool>,
    /// Hears why the thread has ended.
    end: Receiver<String>,
    /// How often it has been started again.
    restarts: usize,
    /// It has ended, and starts again then; never if there is no time.
    ended: Option<Option<Instant>>,
}

impl Default for Fleet {
    fn default() -> Self {
        Self {
            threads: Vec::new(),
            work: |line, shared, stop| Driver::new(line, shared).run(stop),
        }
    }
}

impl Fleet {
    /// Has a controller for each of these lines and for no other. One whose line is the same as before goes on.
    pub(crate) fn configure(&mut self, lines: &[Line], shared: &Arc<Shared>, now: Instant) -> Changes {
        let mut changes = Changes::default();
        self.look(shared, now, &mut changes);
        if self.threads.iter().map(|running| &running.line).eq(lines) {
            return changes;
        }
        let (stay, end) = std::mem::take(&mut self.threads)
            .into_iter()
            .partition(|running| lines.contains(&running.line));
        self.threads = stay;
        changes.ended.extend(names(&end));
        changes.news.extend(left_behind(end));
        for interface in &changes.ended {
            shared.autorate.forget(interface);
        }
        for line in lines {
            if self.threads.iter().all(|running| running.line != *line) {
                let running = self.start(line.clone(), shared, 0, now, &mut changes);
                self.threads.push(running);
            }
        }
        changes
    }

    /// When a thread is to be started again.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.threads.iter().filter_map(|running| running.ended?).min()
    }

    /// Ends all of them. Answers what there is to tell.
    pub(crate) fn end(&mut self) -> Vec<(String, String)> {
        left_behind(std::mem::take(&mut self.threads))
    }

    /// Notices threads that have ended, and starts them again in time.
    fn look(&mut self, shared: &Arc<Shared>, now: Instant, changes: &mut Changes) {
        for place in 0..self.threads.len() {
            let running = &mut self.threads[place];
            let interface = running.line.interface.clone();
            match running.ended {
                None => {
                    let Ok(reason) = running.end.try_recv() else {
                        continue;
                    };
                    running.fails(&reason, shared, now, changes);
                    changes.ended.push(interface);
                }
                Some(Some(due)) if due <= now => {
                    let (line, restarts) = (running.line.clone(), running.restarts + 1);
                    self.threads[place] = self.start(line, shared, restarts, now, changes);
                }
                Some(_) => {}
            }
        }
    }

    fn start(
        &self,
        line: Line,
        shared: &Arc<Shared>,
        restarts: usize,
        now: Instant,
        changes: &mut Changes,
    ) -> Running {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, end) = channel();
        let mut running = Running {
            line: line.clone(),
            stop: Arc::clone(&stop),
            end,
            restarts,
            ended: None,
        };
        let (work, theirs) = (self.work, Arc::clone(shared));
        let spawned = thread::Builder::new().name("autorate".to_owned()).spawn(move || {
            let its = Arc::clone(&theirs);
            let ended = catch_unwind(AssertUnwindSafe(|| work(line, its, &stop)));
            let reason = ended.map_or_else(|panic| words(&*panic), |()| "it ended by itself".to_owned());
            // Nobody hears it once it is left behind.
            let _ = sender.send(reason);
            theirs.wake();
        });
        if let Err(error) = spawned {
            running.fails(&format!("cannot start a thread: {error}"), shared, now, changes);
        }
        running
    }
}

impl Running {
    fn fails(&mut self, reason: &str, shared: &Shared, now: Instant, changes: &mut Changes) {
        let wait = RESTARTS.get(self.restarts);
        let next = wait.map_or_else(
            || "it is not started again until the configuration changes".to_owned(),
            |wait| format!("it is started again in {} s", wait.0 / 1_000_000_000),
        );
        let text = format!("the rates do not follow the line, and are those of the file: {reason}; {next}");
        self.ended = Some(wait.map(|wait| now + *wait));
        shared.autorate.fail(&self.line.interface, text.clone());
        changes.news.push((self.line.interface.clone(), text));
    }
}

fn names(threads: &[Running]) -> Vec<String> {
    threads
        .iter()
        .map(|running| running.line.interface.clone())
        .collect()
}

/// Ends these threads, and tells of those that do not end in time.
fn left_behind(threads: Vec<Running>) -> Vec<(String, String)> {
    for running in &threads {
        running.stop.store(true, Ordering::Release);
    }
    let begun = std::time::Instant::now();
    let hangs = |running: &Running| {
        let left = PATIENCE.saturating_sub(begun.elapsed());
        running.ended.is_none() && running.end.recv_timeout(left) == Err(RecvTimeoutError::Timeout)
    };
    threads
        .into_iter()
        .filter(hangs)
        .map(|running| {
            let text =
                "the thread that followed the line hangs and is left behind; it changes nothing any more";
            (running.line.interface, text.to_owned())
        })
        .collect()
}

/// What a panic said.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    format!(
        "a fault of this program: {}",
        text.unwrap_or("a panic without words")
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::status::{self, Status};

    fn shared() -> (tempfile::TempDir, Arc<Shared>) {
        let folder = tempfile::tempdir().unwrap();
        let (wake, _) = UnixStream::pair().unwrap();
        let status = Status::of(&[], status::File::default(), Instant(0));
        let (shared, _) = Shared::new(status, folder.path().to_owned(), folder.path().join("sqm"), wake);
        (folder, Arc::new(shared))
    }

    fn line() -> Line {
        let text = "config queue\n\toption enabled 1\n\toption interface wan0\n\toption download 20000\n\toption upload 4000\n\
                    \toption script piece_of_cake.qos\n\toption autorate 1\n";
        let loaded = sqm_plan::load(text.as_bytes(), "test", &sqm_plan::device::Device::absent).unwrap();
        Line::of(&loaded.lines[0]).unwrap()
    }

    /// Looks until something has changed.
    fn until_changed(fleet: &mut Fleet, lines: &[Line], shared: &Arc<Shared>, now: Instant) -> Changes {
        loop {
            let changes = fleet.configure(lines, shared, now);
            if changes != Changes::default() {
                return changes;
            }
            thread::yield_now();
        }
    }

    #[test]
    fn a_thread_that_panics_is_told_and_started_again_some_times() {
        let (_folder, shared) = shared();
        let mut fleet = Fleet {
            work: |_, _, _| panic!("seven is not eight"),
            ..Fleet::default()
        };
        let lines = [line()];
        let mut now = Instant(0);
        for wait in RESTARTS {
            let changes = until_changed(&mut fleet, &lines, &shared, now);
            assert_eq!(changes.ended, ["wan0"]);
            let (_, text) = &changes.news[0];
            assert!(text.contains("seven is not eight"), "{text}");
            let trouble = shared.autorate.status("wan0").unwrap().trouble;
            assert_eq!(trouble.as_ref(), Some(text));
            assert_eq!(fleet.due(), Some(now + wait));
            now = now + wait;
        }
        let changes = until_changed(&mut fleet, &lines, &shared, now);
        assert!(changes.news[0].1.contains("not started again"), "{changes:?}");
        assert_eq!(fleet.due(), None);
        // Another configuration is another chance.
        let other = [Line {
            faces_lan: true,
            ..line()
        }];
        let changes = until_changed(&mut fleet, &other, &shared, now);
        assert_eq!(changes.ended, ["wan0"]);
    }

    #[test]
    fn a_thread_that_hangs_is_left_behind() {
        let (_folder, shared) = shared();
        let mut fleet = Fleet {
            work: |_, _, _| {
                loop {
                    thread::park();
                }
            },
            ..Fleet::default()
        };
        assert_eq!(
            fleet.configure(&[line()], &shared, Instant(0)),
            Changes::default()
        );
        let changes = fleet.configure(&[], &shared, Instant(0));
        assert_eq!(changes.ended, ["wan0"]);
        assert!(changes.news[0].1.contains("left behind"), "{changes:?}");
    }

    #[test]
    fn a_thread_that_heeds_its_end_is_waited_for() {
        let (_folder, shared) = shared();
        let mut fleet = Fleet {
            work: |_, _, stop| {
                while !stop.load(Ordering::Acquire) {
                    thread::yield_now();
                }
            },
            ..Fleet::default()
        };
        let _ = fleet.configure(&[line()], &shared, Instant(0));
        assert_eq!(fleet.end(), []);
    }
}

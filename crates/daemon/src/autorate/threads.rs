//! The threads of the rate controllers. A thread that panics is restarted a few times. A thread that hangs is abandoned: the main
//! loop waits for a thread only for a limited time.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use sqm_core::units::{Instant, Nanos};

use super::driver::Driver;
use super::{Context, LineConfig};

/// The waits before the first, the second and the last restart of a thread. A choice.
const RESTARTS: [Nanos; 3] = [
    Nanos::from_millis(1000),
    Nanos::from_millis(10_000),
    Nanos::from_millis(60_000),
];
/// How long to wait until threads end. A choice: a thread checks at least twice a second whether it must end.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// The body of a thread, which returns when the flag is set.
type Body = fn(LineConfig, Context, &AtomicBool);

/// The threads of all interfaces with `option autorate`.
pub(crate) struct AutorateThreads {
    threads: Vec<AutorateThread>,
    body: Body,
}

/// Events of the threads since the last call of [`AutorateThreads::configure`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Interfaces whose controller has ended: their configured rates must be restored.
    pub(crate) ended: Vec<String>,
    /// Messages for the log: interface and text.
    pub(crate) messages: Vec<(String, String)>,
}

/// The thread of one interface.
struct AutorateThread {
    line: LineConfig,
    /// Set to end the thread.
    stop: Arc<AtomicBool>,
    /// Receives why the thread has ended.
    end: Receiver<String>,
    /// How often it has been restarted.
    restarts: usize,
    /// If the thread has ended: when it is restarted, or `None` if it is not.
    ended: Option<Option<Instant>>,
}

impl Default for AutorateThreads {
    fn default() -> Self {
        Self {
            threads: Vec::new(),
            body: |line, context, stop| Driver::new(line, context).run(stop),
        }
    }
}

impl AutorateThreads {
    /// Starts and ends threads so that each of these lines has one. A thread whose line is unchanged keeps running.
    pub(crate) fn configure(&mut self, lines: &[LineConfig], context: &Context, now: Instant) -> Changes {
        let mut changes = Changes::default();
        self.supervise(context, now, &mut changes);
        if self.threads.iter().map(|thread| &thread.line).eq(lines) {
            return changes;
        }
        let (stay, end) = std::mem::take(&mut self.threads)
            .into_iter()
            .partition(|thread: &AutorateThread| lines.contains(&thread.line));
        self.threads = stay;
        changes.ended.extend(names(&end));
        changes.messages.extend(stop(end));
        for interface in &changes.ended {
            context.rates.remove(interface);
        }
        for line in lines {
            if self.threads.iter().all(|thread| thread.line != *line) {
                let thread = self.start(line.clone(), context, 0, now, &mut changes);
                self.threads.push(thread);
            }
        }
        changes
    }

    /// When the next thread is restarted.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.threads.iter().filter_map(|thread| thread.ended?).min()
    }

    /// Ends all threads. Returns messages for the log: interface and text.
    pub(crate) fn stop_all(&mut self) -> Vec<(String, String)> {
        stop(std::mem::take(&mut self.threads))
    }

    /// Notices threads that have ended, and restarts them when that is due.
    fn supervise(&mut self, context: &Context, now: Instant, changes: &mut Changes) {
        for place in 0..self.threads.len() {
            let thread = &mut self.threads[place];
            let interface = thread.line.interface.clone();
            match thread.ended {
                None => {
                    let Ok(reason) = thread.end.try_recv() else {
                        continue;
                    };
                    thread.failed(&reason, context, now, changes);
                    changes.ended.push(interface);
                }
                Some(Some(due)) if due <= now => {
                    let (line, restarts) = (thread.line.clone(), thread.restarts + 1);
                    self.threads[place] = self.start(line, context, restarts, now, changes);
                }
                Some(_) => {}
            }
        }
    }

    fn start(
        &self,
        line: LineConfig,
        context: &Context,
        restarts: usize,
        now: Instant,
        changes: &mut Changes,
    ) -> AutorateThread {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, end) = channel();
        let mut started = AutorateThread {
            line: line.clone(),
            stop: Arc::clone(&stop),
            end,
            restarts,
            ended: None,
        };
        let (body, its) = (self.body, context.clone());
        let spawned = thread::Builder::new().name("autorate".to_owned()).spawn(move || {
            let waker = its.waker.clone();
            let ended = catch_unwind(AssertUnwindSafe(|| body(line, its, &stop)));
            let reason = ended.map_or_else(
                |panic| panic_message(&*panic),
                |()| "the thread ended by itself".to_owned(),
            );
            // Fails if the thread was abandoned.
            let _ = sender.send(reason);
            waker.wake();
        });
        if let Err(error) = spawned {
            started.failed(&format!("cannot start a thread: {error}"), context, now, changes);
        }
        started
    }
}

impl AutorateThread {
    /// Records that the thread has ended, and when it is restarted.
    fn failed(&mut self, reason: &str, context: &Context, now: Instant, changes: &mut Changes) {
        let wait = RESTARTS.get(self.restarts);
        let next = wait.map_or_else(
            || "it is not restarted until the configuration changes".to_owned(),
            |wait| format!("it is restarted in {} s", wait.0 / 1_000_000_000),
        );
        let text = format!("autorate has stopped, and the configured rates are in force: {reason}; {next}");
        self.ended = Some(wait.map(|wait| now + *wait));
        context.rates.put_error(&self.line.interface, text.clone());
        changes.messages.push((self.line.interface.clone(), text));
    }
}

fn names(threads: &[AutorateThread]) -> Vec<String> {
    threads
        .iter()
        .map(|thread| thread.line.interface.clone())
        .collect()
}

/// Ends these threads. Abandons threads that do not end in time, and returns a message about each.
fn stop(threads: Vec<AutorateThread>) -> Vec<(String, String)> {
    for thread in &threads {
        thread.stop.store(true, Ordering::Release);
    }
    let begun = std::time::Instant::now();
    let hangs = |thread: &AutorateThread| {
        let left = STOP_TIMEOUT.saturating_sub(begun.elapsed());
        thread.ended.is_none() && thread.end.recv_timeout(left) == Err(RecvTimeoutError::Timeout)
    };
    threads
        .into_iter()
        .filter(hangs)
        .map(|thread| {
            let text = "the autorate thread hangs and was abandoned; its rates are no longer used";
            (thread.line.interface, text.to_owned())
        })
        .collect()
}

/// The message of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    format!("internal error: {}", text.unwrap_or("a panic without a message"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waker::Waker;

    fn context() -> (tempfile::TempDir, Context) {
        let folder = tempfile::tempdir().unwrap();
        let (waker, _) = Waker::pair().unwrap();
        let context = Context {
            state_dir: folder.path().to_owned(),
            journal: Arc::default(),
            rates: Arc::default(),
            waker,
        };
        (folder, context)
    }

    fn line() -> LineConfig {
        let text = "config queue\n\toption enabled 1\n\toption interface wan0\n\toption download 20000\n\toption upload 4000\n\
                    \toption script piece_of_cake.qos\n\toption autorate 1\n";
        let loaded = sqm_plan::load(text.as_bytes(), "test", &sqm_plan::device::Device::absent).unwrap();
        LineConfig::new(&loaded.lines[0]).unwrap()
    }

    /// Polls the threads until there is a change.
    fn until_changed(
        threads: &mut AutorateThreads,
        lines: &[LineConfig],
        context: &Context,
        now: Instant,
    ) -> Changes {
        loop {
            let changes = threads.configure(lines, context, now);
            if changes != Changes::default() {
                return changes;
            }
            thread::yield_now();
        }
    }

    #[test]
    fn a_thread_that_panics_is_reported_and_restarted_a_few_times() {
        let (_folder, context) = context();
        let mut threads = AutorateThreads {
            body: |_, _, _| panic!("seven is not eight"),
            ..AutorateThreads::default()
        };
        let lines = [line()];
        let mut now = Instant(0);
        for wait in RESTARTS {
            let changes = until_changed(&mut threads, &lines, &context, now);
            assert_eq!(changes.ended, ["wan0"]);
            let (_, text) = &changes.messages[0];
            assert!(text.contains("seven is not eight"), "{text}");
            let error = context.rates.status("wan0").unwrap().trouble;
            assert_eq!(error.as_ref(), Some(text));
            assert_eq!(threads.due(), Some(now + wait));
            now = now + wait;
        }
        let changes = until_changed(&mut threads, &lines, &context, now);
        assert!(changes.messages[0].1.contains("not restarted"), "{changes:?}");
        assert_eq!(threads.due(), None);
        // A changed configuration starts the thread again.
        let other = [LineConfig {
            faces_lan: true,
            ..line()
        }];
        let changes = until_changed(&mut threads, &other, &context, now);
        assert_eq!(changes.ended, ["wan0"]);
    }

    #[test]
    fn a_thread_that_hangs_is_abandoned() {
        let (_folder, context) = context();
        let mut threads = AutorateThreads {
            body: |_, _, _| {
                loop {
                    thread::park();
                }
            },
            ..AutorateThreads::default()
        };
        assert_eq!(
            threads.configure(&[line()], &context, Instant(0)),
            Changes::default()
        );
        let changes = threads.configure(&[], &context, Instant(0));
        assert_eq!(changes.ended, ["wan0"]);
        assert!(changes.messages[0].1.contains("abandoned"), "{changes:?}");
    }

    #[test]
    fn a_thread_that_ends_in_time_is_not_reported() {
        let (_folder, context) = context();
        let mut threads = AutorateThreads {
            body: |_, _, stop| {
                while !stop.load(Ordering::Acquire) {
                    thread::yield_now();
                }
            },
            ..AutorateThreads::default()
        };
        let _ = threads.configure(&[line()], &context, Instant(0));
        assert_eq!(threads.stop_all(), []);
    }
}

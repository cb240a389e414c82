//! Runs this program as a child process, for work that takes long or needs much memory. No shell is involved.
//!
//! The time and the output of a child are limited. A child that exceeds its time is interrupted, and killed if it does not end
//! within a grace period.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// Leads to the running program even if its file has been replaced, as an upgrade does.
pub const PROGRAM: &str = "/proc/self/exe";
/// The longest standard output, bytes; a choice. More is an error.
const MAX_OUTPUT: u64 = 8 << 20;
/// The longest line of standard error, bytes; a choice. A longer line is split.
const MAX_LINE: u64 = 4 << 10;
/// Standard error that [`run`] keeps, bytes; a choice.
const MAX_STDERR: usize = 64 << 10;
/// The time after a kill for other processes that hold the child's standard error to end, such as the watchdog of `sqm tune`,
/// which rolls changes back; a choice.
const AFTER_KILL: Duration = Duration::from_secs(3);
/// The child's `oom_score_adj` (0 to 1000): when memory runs out, the kernel kills the child before the service that started it.
/// A choice.
const OOM_SCORE: &str = "500";

/// How long a child may run.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// From its start until it is interrupted.
    pub longest: Duration,
    /// From the interrupt until it is killed.
    pub grace: Duration,
}

/// Ends a child early: [`watch`] interrupts the child when another thread calls [`Stop::ask`].
#[derive(Debug, Default)]
pub struct Stop(Notify);

impl Stop {
    /// Asks the child to end. It may be called more than once, and before the child starts.
    pub fn ask(&self) {
        self.0.notify_one();
    }
}

/// A child that has ended.
pub struct Ended {
    /// How it ended.
    pub status: ExitStatus,
    /// The bytes of its standard output.
    pub output: Vec<u8>,
    /// The first lines of its standard error.
    pub stderr: String,
}

impl Ended {
    /// Why the child failed: its last line on standard error, without the program's name.
    pub fn reason(&self) -> String {
        let last = self.stderr.lines().rev().find(|line| !line.trim().is_empty());
        let last = last.map(|line| line.strip_prefix("sqm: ").unwrap_or(line));
        last.map_or_else(|| format!("it ended with {}", self.status), str::to_owned)
    }
}

/// A command that runs this program with `arguments`. The child is killed when its handle is dropped.
pub fn command<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Runs a program in the foreground of the terminal: it reads the same input, and its standard error is not redirected. Returns its exit
/// status and its standard output.
///
/// # Errors
///
/// If the program cannot be started.
pub fn foreground<S: AsRef<OsStr>>(
    program: &str,
    arguments: impl IntoIterator<Item = S>,
) -> io::Result<(ExitStatus, Vec<u8>)> {
    let ended = std::process::Command::new(program)
        .args(arguments)
        .stdin(Stdio::inherit())
        .stderr(Stdio::inherit())
        .output()?;
    Ok((ended.status, ended.stdout))
}

/// Runs a child to its end, and collects its output.
///
/// # Errors
///
/// If the child cannot be started, prints too much, or does not end within `timeout`; then it is killed.
pub async fn run(command: Command, timeout: Duration) -> anyhow::Result<Ended> {
    let limits = Limits {
        longest: timeout,
        grace: Duration::ZERO,
    };
    let mut stderr = String::new();
    let (status, output) = watch(command, limits, &Stop::default(), |line| {
        if stderr.len() < MAX_STDERR {
            stderr.push_str(line);
            stderr.push('\n');
        }
    })
    .await?;
    Ok(Ended {
        status,
        output,
        stderr,
    })
}

/// Runs a child and calls `line` with each line of its standard error. Returns its exit status and its standard output.
///
/// The child ends by itself or is interrupted by `stop`. This function returns only after the child has ended, or was killed.
/// It waits for all processes that share the child's standard error; after a kill it waits a few seconds for them.
///
/// # Errors
///
/// If the child cannot be started, runs longer than `limits` allow or prints too much, or if a process that it started
/// survives its kill.
pub async fn watch(
    mut command: Command,
    limits: Limits,
    stop: &Stop,
    line: impl FnMut(&str),
) -> anyhow::Result<(ExitStatus, Vec<u8>)> {
    let mut child = command.spawn().context("cannot start the program again")?;
    raise_oom_score(&child);
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let pipes = async { tokio::join!(read_output(output), read_lines(errors, line)) };
    tokio::pin!(pipes);
    let mut is_late = false;
    let closed = tokio::select! {
        closed = &mut pipes => Some(closed),
        () = stop.0.notified() => None,
        () = sleep(limits.longest) => {
            is_late = true;
            None
        }
    };
    let closed = match closed {
        Some(closed) => Some(closed),
        None => {
            interrupt(&child);
            match timeout(limits.grace, &mut pipes).await {
                Ok(closed) => Some(closed),
                Err(_) => {
                    let _ = child.start_kill();
                    timeout(AFTER_KILL, &mut pipes).await.ok()
                }
            }
        }
    };
    // A child may close its pipes and go on running.
    let status = match timeout(limits.grace.max(AFTER_KILL), child.wait()).await {
        Ok(status) => status?,
        Err(_) => {
            let _ = child.start_kill();
            child.wait().await?
        }
    };
    if is_late {
        bail!(
            "it took longer than {} s and was stopped",
            limits.longest.as_secs()
        );
    }
    let (output, ()) =
        closed.ok_or_else(|| anyhow!("it was killed, but a process that it started is still running"))?;
    Ok((status, output?))
}

/// Reads the child's standard output. If it is too long, reads and discards the rest, so that the child is not blocked, and
/// returns an error.
async fn read_output(output: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let Some(mut output) = output else {
        return Ok(bytes);
    };
    (&mut output).take(MAX_OUTPUT + 1).read_to_end(&mut bytes).await?;
    if bytes.len() as u64 > MAX_OUTPUT {
        drop(bytes);
        tokio::io::copy(&mut output, &mut tokio::io::sink()).await?;
        return Err(io::Error::other(format!(
            "it printed more than {} MiB",
            MAX_OUTPUT >> 20
        )));
    }
    Ok(bytes)
}

async fn read_lines(errors: Option<impl AsyncRead + Unpin>, mut line: impl FnMut(&str)) {
    let Some(errors) = errors else { return };
    let mut errors = BufReader::new(errors);
    while let Some(text) = next_line(&mut errors).await {
        line(&text);
    }
}

async fn next_line(from: &mut (impl AsyncBufReadExt + Unpin)) -> Option<String> {
    let mut bytes = Vec::new();
    let read = from.take(MAX_LINE).read_until(b'\n', &mut bytes).await.ok()?;
    if read == 0 {
        return None;
    }
    Some(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

/// Sends SIGINT, as Ctrl-C does, so that the child can roll back its changes and save its result.
fn interrupt(child: &Child) {
    // The process ID is the child's until we wait for it, which has not happened yet.
    let number = child.id().and_then(|number| i32::try_from(number).ok());
    if let Some(number) = number.and_then(Pid::from_raw) {
        let _ = kill_process(number, Signal::INT);
    }
}

fn raise_oom_score(child: &Child) {
    if let Some(number) = child.id() {
        // If this fails, the kernel most likely chooses the child all the same, as the largest process.
        let _ = fs::write(format!("/proc/{number}/oom_score_adj"), OOM_SCORE);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::time::Instant;

    use super::*;

    /// A shell as the child. A shell cannot trap a signal that is ignored when it starts, and SIGINT is ignored in all processes
    /// of a background job (`make test &`): `env` restores the default.
    fn shell(script: &str) -> Command {
        let mut command = Command::new("env");
        command
            .args(["--default-signal=INT", "sh", "-c", script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    const LIMITS: Limits = Limits {
        longest: Duration::from_secs(60),
        grace: Duration::from_millis(200),
    };
    /// A test fails if its child has not ended by then. Long, because the machine may be busy.
    const SOON: Duration = Duration::from_secs(30);

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let begun = Instant::now();
        let answer = runtime.expect("a runtime").block_on(future);
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        answer
    }

    #[test]
    fn a_child_that_ignores_the_interrupt_is_killed() {
        let deaf = "trap '' INT TERM; echo ready >&2; while :; do sleep 1; done";
        let stop = Stop::default();
        let (status, output) = block_on(watch(shell(deaf), LIMITS, &stop, |line| {
            assert_eq!(line, "ready");
            stop.ask();
        }))
        .expect("it was stopped");
        assert_eq!((status.signal(), output.len()), (Some(9), 0));
    }

    #[test]
    fn a_child_that_handles_the_interrupt_ends_by_itself() {
        let polite = "trap 'echo kept; exit 3' INT; echo ready >&2; while :; do sleep 0.05; done";
        let stop = Stop::default();
        let limits = Limits {
            grace: SOON,
            ..LIMITS
        };
        let ended = block_on(watch(shell(polite), limits, &stop, |_| stop.ask()));
        let (status, output) = ended.expect("it was stopped");
        assert_eq!((status.code(), output), (Some(3), b"kept\n".to_vec()));
    }

    #[test]
    fn a_child_that_takes_too_long_is_stopped_and_the_error_says_so() {
        let limits = Limits {
            longest: Duration::from_millis(100),
            ..LIMITS
        };
        for script in [
            "trap '' INT; while :; do echo word >&2; sleep 0.01; done",
            "while :; do echo flood >&2; done",
        ] {
            let ended = block_on(watch(shell(script), limits, &Stop::default(), |_| {}));
            let error = ended.expect_err(script).to_string();
            assert!(error.contains("took longer than"), "{error}");
        }
    }

    #[test]
    fn a_child_that_closes_its_output_and_stays_is_killed_before_its_time_is_up() {
        let script = "exec >/dev/null 2>&1; trap '' INT; while :; do sleep 0.1; done";
        let ended = block_on(watch(shell(script), LIMITS, &Stop::default(), |_| {}));
        assert_eq!(ended.expect(script).0.signal(), Some(9));
    }

    #[test]
    fn output_is_limited_and_long_lines_are_split() {
        let ended = block_on(watch(
            shell("head -c 9000000 /dev/zero"),
            LIMITS,
            &Stop::default(),
            |_| {},
        ));
        let error = format!("{:#}", ended.expect_err("too much"));
        assert!(error.contains("more than 8 MiB"), "{error}");
        let mut longest = 0;
        let ended = block_on(watch(
            shell("head -c 100000 /dev/zero | tr '\\0' x >&2"),
            LIMITS,
            &Stop::default(),
            |line| longest = longest.max(line.len()),
        ));
        assert!(ended.is_ok() && longest as u64 <= MAX_LINE, "{longest}");
    }
}

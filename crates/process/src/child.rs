//! Our own program as a child, for work that takes long or needs much memory: typed arguments, never a shell.
//!
//! The child need not be well-behaved. It may take so long, and print so much; past that it is interrupted, and killed if it has
//! not ended some seconds later.

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

/// Finds this program even if its file was replaced meanwhile.
pub const PROGRAM: &str = "/proc/self/exe";
/// A child that prints more is not believed.
const MOST_OUTPUT: u64 = 8 << 20;
/// A longer line of standard error is taken as several.
const MOST_LINE: u64 = 4 << 10;
/// Lines of standard error that [`run`] keeps, bytes.
const MOST_COMPLAINT: usize = 64 << 10;
/// After a child was killed its guard (`tune/guard.rs`), which holds the same standard error, gets so long to finish.
const AFTER_KILL: Duration = Duration::from_secs(3);
/// When memory runs out, the kernel ends the child first and not the service that started it.
const OOM_SCORE: &str = "500";

/// The time that a child may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// From its start.
    pub longest: Duration,
    /// Between the interrupt and the kill.
    pub grace: Duration,
}

/// Asks a child to end. Whoever may ask holds the same one as [`watch`].
#[derive(Debug, Default)]
pub struct Stop(Notify);

impl Stop {
    /// May come before the child starts, and again.
    pub fn ask(&self) {
        self.0.notify_one();
    }
}

/// A child that has ended.
pub struct Ended {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub output: Vec<u8>,
    /// The first lines of standard error.
    pub complaint: String,
}

impl Ended {
    /// Its last words without the program's name, for somebody who did not call it.
    pub fn reason(&self) -> String {
        let last = self.complaint.lines().rev().find(|line| !line.trim().is_empty());
        let last = last.map(|line| line.strip_prefix("sqm: ").unwrap_or(line));
        last.map_or_else(|| format!("it ended with {}", self.status), str::to_owned)
    }
}

/// The program with these arguments; it ends with whoever drops it.
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

/// Runs it to its end. After `patience` it is killed.
pub async fn run(command: Command, patience: Duration) -> anyhow::Result<Ended> {
    let limits = Limits {
        longest: patience,
        grace: Duration::ZERO,
    };
    let mut complaint = String::new();
    let (status, output) = watch(command, limits, &Stop::default(), |line| {
        if complaint.len() < MOST_COMPLAINT {
            complaint.push_str(line);
            complaint.push('\n');
        }
    })
    .await?;
    Ok(Ended {
        status,
        output,
        complaint,
    })
}

/// Runs it and tells each line of its standard error. It ends by itself, or as it is asked to by `stop`; if it takes too long,
/// that is the error. Answers only when the child and everything that shares its standard error have ended, or were killed.
pub async fn watch(
    mut command: Command,
    limits: Limits,
    stop: &Stop,
    line: impl FnMut(&str),
) -> anyhow::Result<(ExitStatus, Vec<u8>)> {
    let mut child = command.spawn().context("cannot start the program again")?;
    prefer_when_memory_is_short(&child);
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let talk = async { tokio::join!(read_output(output), hear(errors, line)) };
    tokio::pin!(talk);
    let mut is_late = false;
    let talked = tokio::select! {
        talked = &mut talk => Some(talked),
        () = stop.0.notified() => None,
        () = sleep(limits.longest) => {
            is_late = true;
            None
        }
    };
    let talked = match talked {
        Some(talked) => Some(talked),
        None => {
            interrupt(&child);
            match timeout(limits.grace, &mut talk).await {
                Ok(talked) => Some(talked),
                Err(_) => {
                    let _ = child.start_kill();
                    timeout(AFTER_KILL, &mut talk).await.ok()
                }
            }
        }
    };
    // A child that has closed its pipes and goes on is killed, too.
    let status = match timeout(limits.grace.max(AFTER_KILL), child.wait()).await {
        Ok(status) => status?,
        Err(_) => {
            let _ = child.start_kill();
            child.wait().await?
        }
    };
    if is_late {
        bail!("it took longer than {} s and was ended", limits.longest.as_secs());
    }
    let (output, ()) = talked.ok_or_else(|| anyhow!("it was killed, but what it started goes on"))?;
    Ok((status, output?))
}

/// All that it prints, or the error that it is too much; then the rest is thrown away, so that the child need not wait.
async fn read_output(output: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let Some(mut output) = output else {
        return Ok(bytes);
    };
    (&mut output)
        .take(MOST_OUTPUT + 1)
        .read_to_end(&mut bytes)
        .await?;
    if bytes.len() as u64 > MOST_OUTPUT {
        drop(bytes);
        tokio::io::copy(&mut output, &mut tokio::io::sink()).await?;
        return Err(io::Error::other(format!(
            "it printed more than {} MiB",
            MOST_OUTPUT >> 20
        )));
    }
    Ok(bytes)
}

async fn hear(errors: Option<impl AsyncRead + Unpin>, mut line: impl FnMut(&str)) {
    let Some(errors) = errors else { return };
    let mut errors = BufReader::new(errors);
    while let Some(text) = next_line(&mut errors).await {
        line(&text);
    }
}

async fn next_line(from: &mut (impl AsyncBufReadExt + Unpin)) -> Option<String> {
    let mut bytes = Vec::new();
    let read = from.take(MOST_LINE).read_until(b'\n', &mut bytes).await.ok()?;
    if read == 0 {
        return None;
    }
    Some(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

/// As Ctrl-C does: the child puts back what is to be put back and keeps what it has.
fn interrupt(child: &Child) {
    // It has a number until somebody waits for its end, which nobody has yet.
    let number = child.id().and_then(|number| i32::try_from(number).ok());
    if let Some(number) = number.and_then(Pid::from_raw) {
        let _ = kill_process(number, Signal::INT);
    }
}

fn prefer_when_memory_is_short(child: &Child) {
    if let Some(number) = child.id() {
        // Without it the kernel most likely chooses the child all the same: it is the largest.
        let _ = fs::write(format!("/proc/{number}/oom_score_adj"), OOM_SCORE);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::time::Instant;

    use super::*;

    /// What a shell does, as the child. A shell cannot trap a signal that is ignored when it starts, as SIGINT is for everything
    /// that was itself started in the background (`make test &`): `env` undoes that.
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
    /// That it does end; a machine that is busy gets the time it needs.
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
    fn a_child_that_heeds_the_interrupt_ends_by_itself() {
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
    fn a_child_that_takes_too_long_is_ended_and_that_is_said() {
        let limits = Limits {
            longest: Duration::from_millis(100),
            ..LIMITS
        };
        for script in [
            "trap '' INT; while :; do echo word >&2; sleep 0.01; done",
            "exec >/dev/null 2>&1; trap '' INT; while :; do sleep 0.1; done",
            "while :; do echo flood >&2; done",
        ] {
            let ended = block_on(watch(shell(script), limits, &Stop::default(), |_| {}));
            if script.starts_with("exec") {
                // It closed its pipes: nothing more is heard of it, and it is killed.
                assert_eq!(ended.expect(script).0.signal(), Some(9));
                continue;
            }
            let error = ended.expect_err(script).to_string();
            assert!(error.contains("took longer than"), "{error}");
        }
    }

    #[test]
    fn a_child_that_prints_without_end_is_not_believed() {
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
        assert!(ended.is_ok() && longest as u64 <= MOST_LINE, "{longest}");
    }
}

//! Our own program as a child, for work that takes long or needs much memory: typed arguments, never a shell.

use std::ffi::OsStr;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, anyhow};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

/// Whatever program this is, it is found though its file was replaced meanwhile.
pub(crate) const PROGRAM: &str = "/proc/self/exe";
/// More output than this is not ours.
const MOST_OUTPUT: u64 = 8 << 20;
/// A longer line of progress is cut.
const MOST_LINE: u64 = 64 << 10;

/// What a child that has ended said.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) output: Vec<u8>,
    /// The last lines of standard error.
    pub(crate) complaint: String,
}

impl Ended {
    /// Its last words without the program's name, for somebody who did not call it.
    pub(crate) fn reason(&self) -> String {
        let last = self.complaint.lines().rev().find(|line| !line.trim().is_empty());
        let last = last.map(|line| line.strip_prefix("sqm: ").unwrap_or(line));
        last.map_or_else(|| format!("it ended with {}", self.status), str::to_owned)
    }
}

/// The program with these arguments; it ends with whoever drops it.
pub(crate) fn command<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Runs it to its end.
pub(crate) async fn run(command: Command, patience: Duration) -> anyhow::Result<Ended> {
    let mut complaint = String::new();
    let watched = watch(
        command,
        |_| {},
        |line| {
            complaint.push_str(line);
            complaint.push('\n');
            complaint.len() < MOST_LINE as usize
        },
    );
    let (status, output) = tokio::time::timeout(patience, watched)
        .await
        .map_err(|_| anyhow!("it takes longer than {} s", patience.as_secs()))??;
    Ok(Ended {
        status,
        output,
        complaint,
    })
}

/// Runs it and tells each line of its standard error, until that answers that it has heard enough; `started` gets its
/// number, for [`interrupt`].
pub(crate) async fn watch(
    mut command: Command,
    started: impl FnOnce(u32),
    mut line: impl FnMut(&str) -> bool,
) -> anyhow::Result<(ExitStatus, Vec<u8>)> {
    let mut child: Child = command.spawn().context("cannot start the program again")?;
    started(child.id().unwrap_or_default());
    let output = child.stdout.take();
    let errors = child.stderr.take();
    let reading = async {
        let mut bytes = Vec::new();
        if let Some(output) = output {
            output.take(MOST_OUTPUT).read_to_end(&mut bytes).await?;
        }
        std::io::Result::Ok(bytes)
    };
    let hearing = async {
        let Some(errors) = errors else { return };
        let mut errors = BufReader::new(errors);
        let mut is_heard = true;
        while let Some(text) = next_line(&mut errors).await {
            is_heard = is_heard && line(&text);
        }
    };
    let (bytes, ()) = tokio::join!(reading, hearing);
    Ok((child.wait().await?, bytes?))
}

async fn next_line(from: &mut (impl AsyncRead + Unpin + AsyncBufReadExt)) -> Option<String> {
    let mut bytes = Vec::new();
    let read = from.take(MOST_LINE).read_until(b'\n', &mut bytes).await.ok()?;
    if read == 0 {
        return None;
    }
    Some(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

/// Asks it to end, as Ctrl-C does; it puts back what is to be put back and keeps what it has.
pub(crate) fn interrupt(child: u32) {
    if let Some(child) = i32::try_from(child).ok().and_then(Pid::from_raw) {
        // It may have ended by itself.
        let _ = kill_process(child, Signal::INT);
    }
}

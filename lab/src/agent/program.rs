//! A program whose output the host reads while the program runs.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use super::{command, exit_code};
use crate::forward::CHUNK;

/// A running program. If the host drops it, the program receives SIGPIPE when it writes more.
pub(super) struct Program {
    group: Pid,
    output: Mutex<Receiver<Piece>>,
    /// Receives the exit code.
    ended: Mutex<Receiver<i32>>,
}

/// A part of the program's output.
pub(super) enum Piece {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
}

/// The answer of [`Program::read`].
pub(super) enum Progress {
    Nothing,
    Output(Piece),
    Ended(i32),
}

impl Program {
    pub(super) fn start(host: &str, argv: &[String]) -> io::Result<Self> {
        let mut child = command(Some(host), argv)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own, for `interrupt`.
            .process_group(0)
            .spawn()?;
        // One piece waits at most: a program that writes faster than the host reads is held up, as by a pipe.
        let (sender, output) = sync_channel(1);
        let stdout = child.stdout.take().expect("standard output is piped");
        let stderr = child.stderr.take().expect("standard error is piped");
        follow(stdout, sender.clone(), Piece::Stdout);
        follow(stderr, sender, Piece::Stderr);
        let group = Pid::from_child(&child);
        let (end, ended) = channel();
        // A thread of its own waits for the child: one that the host has forgotten must not stay as a zombie.
        std::thread::spawn(move || {
            let status = child.wait();
            // Fails if the host has forgotten the program.
            let _ = end.send(status.map_or(1, exit_code));
        });
        Ok(Self {
            group,
            output: Mutex::new(output),
            ended: Mutex::new(ended),
        })
    }

    /// Waits for output, or for the end of the program.
    pub(super) fn read(&self, wait: Duration) -> Progress {
        let output = self.output.lock().expect("no holder of this lock panics");
        match output.recv_timeout(wait) {
            Ok(piece) => Progress::Output(piece),
            Err(RecvTimeoutError::Timeout) => Progress::Nothing,
            // The program has closed both outputs. It may still run.
            Err(RecvTimeoutError::Disconnected) => {
                let ended = self.ended.lock().expect("no holder of this lock panics");
                match ended.recv_timeout(wait) {
                    Ok(code) => Progress::Ended(code),
                    Err(RecvTimeoutError::Timeout) => Progress::Nothing,
                    Err(RecvTimeoutError::Disconnected) => Progress::Ended(1),
                }
            }
        }
    }

    /// Sends SIGINT to the program and its children, as a terminal does at Ctrl-C.
    pub(super) fn interrupt(&self) -> io::Result<()> {
        Ok(kill_process_group(self.group, Signal::INT)?)
    }
}

/// Reads to the end in a thread of its own, which ends early if no one receives.
fn follow(
    mut pipe: impl Read + Send + 'static,
    sender: SyncSender<Piece>,
    piece: impl Fn(Vec<u8>) -> Piece + Send + 'static,
) {
    std::thread::spawn(move || {
        let mut buffer = [0; CHUNK];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            if sender.send(piece(buffer[..count].to_vec())).is_err() {
                return;
            }
        }
    });
}

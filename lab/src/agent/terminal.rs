//! A shell at a terminal of its own. `script` of util-linux makes the terminal; its standard input and output are the keys and the screen.

use std::io::{self, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{STATE_FOLDER, command, state_folder};

/// A shell and its terminal.
pub(super) struct Terminal {
    child: Mutex<Child>,
    keys: Mutex<ChildStdin>,
    screen: Mutex<ChildStdout>,
    /// File in which the shell's process notes the name of its terminal.
    name: String,
}

impl Terminal {
    pub(super) fn open(
        host: &str,
        stream: u64,
        (lines, columns): (u16, u16),
        kind: &str,
    ) -> io::Result<Self> {
        let name = format!("/run/terminal-{stream}");
        let shell = format!(
            "tty >{name}; stty rows {lines} cols {columns}; exec ip netns exec {host} bash --norc -i"
        );
        let words = [
            "script",
            "--quiet",
            "--return",
            "--flush",
            "--command",
            &shell,
            "/dev/null",
        ];
        let mut child = command(None, &words.map(String::from))
            .env("TERM", kind)
            .env("LC_ALL", "C.UTF-8")
            .env("PS1", format!("{host}# "))
            .env("SHELL", "/bin/sh")
            .envs(state_folder(host).map(|folder| (STATE_FOLDER, folder)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (keys, screen) = (child.stdin.take(), child.stdout.take());
        Ok(Self {
            keys: Mutex::new(keys.expect("standard input is piped")),
            screen: Mutex::new(screen.expect("standard output is piped")),
            child: Mutex::new(child),
            name,
        })
    }

    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.keys
            .lock()
            .expect("no holder of this lock panics")
            .write_all(bytes)
    }

    /// Reads what appears. `None` if nothing does within the time, 0 at the end.
    pub(super) fn read(&self, buffer: &mut [u8], wait: Duration) -> io::Result<Option<usize>> {
        let mut screen = self.screen.lock().expect("no holder of this lock panics");
        let wait = Timespec {
            tv_sec: wait.as_secs().cast_signed(),
            tv_nsec: 0,
        };
        let ready = poll(&mut [PollFd::new(&*screen, PollFlags::IN)], Some(&wait))?;
        match ready {
            0 => Ok(None),
            _ => screen.read(buffer).map(Some),
        }
    }

    pub(super) fn resize(&self, (lines, columns): (u16, u16)) -> io::Result<()> {
        let terminal = std::fs::read_to_string(&self.name)?;
        let (lines, columns) = (lines.to_string(), columns.to_string());
        let words = ["stty", "-F", terminal.trim(), "rows", &lines, "cols", &columns];
        command(None, &words.map(String::from)).status().map(|_| ())
    }

    /// The exit code of the shell, which has ended.
    pub(super) fn exit_code(&self) -> i32 {
        let _ = std::fs::remove_file(&self.name);
        let status = self.child.lock().expect("no holder of this lock panics").wait();
        status.ok().and_then(|status| status.code()).unwrap_or(1)
    }
}

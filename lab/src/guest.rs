//! A booted kernel, which on the host is a child process with a console.

use std::collections::HashMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::processor::Processor;
use crate::protocol::{Act, LAST, MARK, MORE, PIECE, RECEIVED, Reply, Request};
use crate::{Clock, Error, launch};

/// A running guest. Dropping it ends the kernel. If this process ends in any other way, a watcher process ends the kernel, and the guest
/// itself powers off when its console closes.
#[derive(Debug)]
pub struct Guest {
    kernel: Child,
    watcher: Child,
    input: Mutex<ChildStdin>,
    console: Arc<Console>,
    next_id: AtomicU64,
    /// Held until the guest has ended.
    _processor: Option<Processor>,
    /// The guest reads its programs from it.
    _folder: tempfile::TempDir,
}

/// The output of a program inside the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Exit code; 128 + n for signal n.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Longest wait for an answer of the guest, by the host's clock. A choice: several times the length of a measurement, and short enough
/// to find a guest that hangs.
const PATIENCE: Duration = Duration::from_secs(600);

/// Longest wait for the boot. A choice: it usually takes two seconds, but the machine may be busy.
const BOOT_PATIENCE: Duration = Duration::from_secs(120);

/// User and group `nobody` of Debian. If root starts the guest, it runs as this user, so that it is never privileged.
const NOBODY: u32 = 65534;

impl Guest {
    /// Boots a kernel. `agent_file` is the `sqm-lab` program, which becomes the first process of the guest; the hosts of the guest run
    /// the `sqm` that lies beside it.
    pub fn boot(clock: Clock, agent_file: &Path) -> Result<Self, Error> {
        let kernel_file = clock.kernel()?;
        let folder = private_folder()?;
        let kernel_file = staged(&kernel_file, "linux", folder.path())?;
        let agent = staged(agent_file, "sqm-lab", folder.path())?;
        staged(&agent_file.with_file_name("sqm"), "sqm", folder.path())?;
        let mut command = Command::new(&kernel_file);
        command
            .args([
                "mem=768M",
                "root=/dev/root",
                "rootfstype=hostfs",
                "rootflags=/",
                "ro",
                "quiet",
            ])
            .args(["con=null", "con0=fd:0,fd:1", "umid=sqm-lab"])
            .arg(format!("uml_dir={}", folder.path().display()))
            .arg(format!("init={}", agent.display()));
        if clock == Clock::Virtual {
            command.arg("time-travel=inf-cpu");
        }
        command.args(launch::guest_tunables(clock));
        // The kernel passes unknown words to its first process as arguments.
        command.arg("agent");
        command
            .env_clear()
            .env("HOME", folder.path())
            .env("TMPDIR", memory_folder(folder.path()))
            .env("PATH", "/usr/bin:/bin")
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // In its own process group, Ctrl-C in the terminal does not reach the kernel before the program.
            .process_group(0);
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        let processor = Processor::with_fewest_guests();
        let mut kernel = launch::spawn(command, clock, processor.as_ref())
            .map_err(|e| Error::host("cannot start the lab's kernel", &kernel_file, e))?;
        let watcher = watch(kernel.id(), folder.path()).map_err(|e| {
            let _ = kernel.kill();
            Error::host("cannot start", "sh", e)
        })?;
        let input = kernel.stdin.take().expect("standard input is piped");
        let output = kernel.stdout.take().expect("standard output is piped");
        let console = Arc::new(Console::default());
        let greeting = console.expect(0);
        std::thread::spawn({
            let console = Arc::clone(&console);
            move || console.follow(output)
        });
        let guest = Self {
            kernel,
            watcher,
            input: Mutex::new(input),
            console,
            next_id: AtomicU64::new(1),
            _processor: processor,
            _folder: folder,
        };
        guest.wait_for(&greeting, BOOT_PATIENCE)?;
        Ok(guest)
    }

    /// Boots a guest for a network: only if the programs that build the network are there.
    pub(crate) fn boot_network(clock: Clock, agent_file: &Path) -> Result<Self, Error> {
        for (program, package) in [
            ("/sbin/ip", "iproute2"),
            ("/sbin/tc", "iproute2"),
            ("/usr/sbin/ethtool", "ethtool"),
            ("/usr/sbin/iptables-legacy", "iptables"),
        ] {
            if !Path::new(program).exists() {
                let remedy = format!("install the Debian package {package}");
                return Err(Error::Missing {
                    what: format!("the program {program}"),
                    remedy,
                });
            }
        }
        Self::boot(clock, agent_file)
    }

    /// Runs a program to its end on a virtual host (a network namespace). Any exit code is a success.
    pub fn run(&self, host: &str, argv: &[&str]) -> Result<Output, Error> {
        let (host, argv) = (Some(host.into()), owned(argv));
        self.ask(Act::Run {
            host,
            argv,
            stdin: String::new(),
        })
    }

    /// Like [`Guest::run`], but an exit code other than 0 is an error. Returns standard output.
    pub fn run_ok(&self, host: &str, argv: &[&str]) -> Result<String, Error> {
        let output = self.run(host, argv)?;
        succeeded(host, &argv.join(" "), output)
    }

    /// Runs a shell script in the guest's own namespace.
    pub fn script(&self, text: &str) -> Result<String, Error> {
        self.shell(None, text)
    }

    /// Runs a shell script on a virtual host. This is faster than entering the namespace for each command.
    pub fn script_on(&self, host: &str, text: &str) -> Result<String, Error> {
        self.shell(Some(host), text)
    }

    fn shell(&self, host: Option<&str>, text: &str) -> Result<String, Error> {
        let output = self.ask(Act::Run {
            host: host.map(str::to_owned),
            argv: owned(&["sh", "-eu"]),
            stdin: text.into(),
        })?;
        succeeded(host.unwrap_or("the guest"), "sh -eu", output)
    }

    /// Starts a program and leaves it running until the guest ends.
    pub fn spawn(&self, host: &str, argv: &[&str]) -> Result<(), Error> {
        let output = self.ask(Act::Spawn {
            host: Some(host.into()),
            argv: owned(argv),
        })?;
        succeeded(host, &argv.join(" "), output).map(drop)
    }

    /// Starts a program and waits until a process on that host listens on a TCP port.
    pub fn spawn_server(&self, host: &str, argv: &[&str], port: u16) -> Result<(), Error> {
        self.spawn(host, argv)?;
        // State 0A is LISTEN.
        self.script(&format!(
            "for _ in $(seq 600); do
                 ip netns exec {host} grep -qs ':{port:04X} 0*:0000 0A' /proc/net/tcp /proc/net/tcp6 && exit 0
                 sleep 0.1
             done
             echo 'nothing listens on port {port} of {host} after a minute: {}' >&2
             exit 1",
            argv.join(" ")
        ))
        .map(drop)
    }

    /// Writes a file inside the guest. All virtual hosts share one file system, which is separate from the host's.
    pub fn write(&self, path: &str, bytes: &[u8]) -> Result<(), Error> {
        let output = self.ask(Act::Write {
            path: path.into(),
            bytes: bytes.into(),
        })?;
        succeeded("the guest", &format!("write {path}"), output).map(drop)
    }

    /// Carries out one request of the protocol.
    pub fn ask(&self, act: Act) -> Result<Output, Error> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let answer = self.console.expect(id);
        self.send(&Request { id, act })?;
        let reply = self.wait_for(&answer, PATIENCE)?;
        Ok(Output {
            code: reply.code,
            stdout: reply.stdout,
            stderr: reply.stderr,
        })
    }

    fn send(&self, request: &Request) -> Result<(), Error> {
        let json = serde_json::to_vec(request).expect("a request is plain data");
        let mut input = self.input.lock().expect("no holder of this lock panics");
        let mut pieces = json.chunks(PIECE).peekable();
        while let Some(piece) = pieces.next() {
            let received = self.console.expect(RECEIVED);
            let kind = if pieces.peek().is_some() { MORE } else { LAST };
            let line = [&[MARK, kind], piece, b"\n"].concat();
            input.write_all(&line).map_err(|_| self.silent("ended"))?;
            self.wait_for(&received, BOOT_PATIENCE)?;
        }
        Ok(())
    }

    /// Ends the kernel at once, with everything in it.
    pub fn end(&self) {
        // The guest's processes are in the kernel's process group. The guest has no state that needs a clean shutdown.
        if let Some(group) = rustix::process::Pid::from_raw(self.kernel.id() as i32) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }

    fn wait_for(&self, answer: &Receiver<Reply>, patience: Duration) -> Result<Reply, Error> {
        answer.recv_timeout(patience).map_err(|why| match why {
            RecvTimeoutError::Disconnected => self.silent("ended"),
            RecvTimeoutError::Timeout => self.silent(&format!("did not answer for {} s", patience.as_secs())),
        })
    }

    fn silent(&self, what: &str) -> Error {
        Error::Guest {
            what: what.into(),
            console: self.console.tail(),
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
        // The watcher must end before the process ID of the kernel can be reused.
        let _ = self.watcher.kill();
        let _ = self.watcher.wait();
        let _ = self.kernel.wait();
    }
}

/// Starts a watcher: a process that kills the kernel's process group and removes the guest's folder when a pipe from this process
/// closes. Without it, a guest that hangs, or a kernel that misses the end of its console, would stay for ever.
fn watch(group: u32, folder: &Path) -> io::Result<Child> {
    Command::new("sh")
        .args(["-c", "read -r _; kill -s KILL -- \"-$0\"; rm -rf -- \"$1\""])
        .arg(group.to_string())
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // In its own process group, signals from the terminal do not end the watcher first.
        .process_group(0)
        .spawn()
}

/// The output of the guest. Replies go to the threads that wait for them. The other lines are kept for error messages.
#[derive(Debug, Default)]
struct Console {
    waiting: Mutex<Waiting>,
    log: Mutex<Vec<String>>,
}

#[derive(Debug, Default)]
struct Waiting {
    closed: bool,
    by_id: HashMap<u64, Sender<Reply>>,
}

impl Console {
    fn expect(&self, id: u64) -> Receiver<Reply> {
        let (sender, receiver) = channel();
        let mut waiting = self.waiting.lock().expect("no holder of this lock panics");
        if !waiting.closed {
            waiting.by_id.insert(id, sender);
        }
        receiver
    }

    fn follow(&self, output: ChildStdout) {
        let mut reader = BufReader::new(output);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            self.on_line(&line);
            line.clear();
        }
        let mut waiting = self.waiting.lock().expect("no holder of this lock panics");
        waiting.closed = true;
        waiting.by_id.clear();
    }

    fn on_line(&self, line: &[u8]) {
        // A kernel message may precede the mark on the same line.
        let mark = line.iter().position(|&byte| byte == MARK);
        let reply = mark.and_then(|at| serde_json::from_slice::<Reply>(&line[at + 1..]).ok());
        match reply {
            Some(reply) => {
                let waiting = self
                    .waiting
                    .lock()
                    .expect("no holder of this lock panics")
                    .by_id
                    .remove(&reply.id);
                if let Some(sender) = waiting {
                    // Fails if the receiver has given up waiting.
                    let _ = sender.send(reply);
                }
            }
            None => {
                let text = String::from_utf8_lossy(line).trim_end().to_owned();
                self.log.lock().expect("no holder of this lock panics").push(text);
            }
        }
    }

    fn tail(&self) -> String {
        let log = self.log.lock().expect("no holder of this lock panics");
        // The reason of a panic comes before it; behind it there is a stack dump.
        let end = log
            .iter()
            .position(|line| line.contains("Kernel panic"))
            .map_or(log.len(), |at| at + 1);
        log[end.saturating_sub(12)..end].join("\n")
    }
}

/// Creates a folder for the boot. Its name has the ID of this process, for [`remove_orphans`].
fn private_folder() -> Result<tempfile::TempDir, Error> {
    let parent = temporary_folder();
    remove_orphans(&parent);
    tempfile::Builder::new()
        .prefix(&format!("{FOLDER}{}-", std::process::id()))
        .tempdir_in(&parent)
        .map_err(|e| Error::host("cannot make a folder in", parent, e))
}

const FOLDER: &str = "sqm-lab-";

/// Removes the folders of processes that were killed while they had a guest.
fn remove_orphans(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name
            .to_str()
            .and_then(|name| name.strip_prefix(FOLDER)?.split_once('-'));
        if owner.is_some_and(|(pid, _)| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists())
        {
            // Fails for a folder of another user, which stays.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The folder for temporary files. As root it is `/tmp` if the usual one is closed to the user that the guest runs as.
fn temporary_folder() -> PathBuf {
    let usual = std::env::temp_dir();
    let is_open = |folder: &Path| fs::metadata(folder).is_ok_and(|m| m.permissions().mode() & 0o001 != 0);
    if rustix::process::geteuid().is_root() && !usual.ancestors().all(is_open) {
        return "/tmp".into();
    }
    usual
}

/// Makes a program available under a path that the guest's user can read and that has no spaces, for the kernel's command line. It is a
/// symbolic link or, for root, a hard link or a copy: root's build and cache folders may be closed to `nobody`.
fn staged(program: &Path, name: &str, folder: &Path) -> Result<PathBuf, Error> {
    let staged = folder.join(name);
    let program = fs::canonicalize(program).map_err(|e| Error::host("cannot find", program, e))?;
    if !rustix::process::geteuid().is_root() {
        symlink(&program, &staged).map_err(|e| Error::host("cannot link to", &program, e))?;
        return Ok(staged);
    }
    // A debug build has a hundred megabytes, which a link does not copy.
    if fs::hard_link(&program, &staged).is_err() {
        fs::copy(&program, &staged).map_err(|e| Error::host("cannot copy", &program, e))?;
    }
    fs::set_permissions(&staged, fs::Permissions::from_mode(0o755))
        .map_err(|e| Error::host("cannot set the permissions of", &staged, e))?;
    chown(folder, Some(NOBODY), Some(NOBODY))
        .map_err(|e| Error::host("cannot set the owner of", folder, e))?;
    Ok(staged)
}

/// The folder for the file that holds the guest's memory. A memory file system avoids disk traffic.
fn memory_folder(fallback: &Path) -> &Path {
    let shm = Path::new("/dev/shm");
    if rustix::fs::access(shm, rustix::fs::Access::WRITE_OK).is_ok() {
        shm
    } else {
        fallback
    }
}

fn owned(argv: &[&str]) -> Vec<String> {
    argv.iter().map(|&word| word.into()).collect()
}

fn succeeded(host: &str, command: &str, output: Output) -> Result<String, Error> {
    if output.code == 0 {
        return Ok(output.stdout);
    }
    let stderr = output.stderr.trim().to_owned();
    Err(Error::Command {
        host: host.into(),
        command: command.into(),
        code: output.code,
        stderr,
    })
}

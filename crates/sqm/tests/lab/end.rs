//! However `sqm-lab` ends, its guest ends as well and leaves nothing on the host.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStderr, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use tempfile::TempDir;

/// `sqm-lab` with its own folder for temporary files, which must be empty in the end.
struct Program {
    child: Ending,
    temporary: TempDir,
    heard: Option<Lines<BufReader<ChildStderr>>>,
}

/// A child process that is killed if its test fails.
struct Ending(Child);

/// Starts a process that lives ten minutes at most, in real time: then it is killed, whatever the test waits for ends, and the test
/// fails. A choice: several times as long as the longest test takes on a busy machine.
fn start(command: &mut Command) -> Child {
    const PATIENCE: Timespec = Timespec {
        tv_sec: 600,
        tv_nsec: 0,
    };
    let child = command.spawn().unwrap();
    // The descriptor stands for this process even when its ID is used again.
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
    std::thread::spawn(move || {
        if poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&PATIENCE)) == Ok(0) {
            let _ = pidfd_send_signal(&process, Signal::KILL);
        }
    });
    child
}

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Program {
    fn start(words: &[&str], temporary: TempDir) -> Self {
        // If the test runs as root, the guest runs as another user, who must be able to enter the folder.
        fs::set_permissions(temporary.path(), fs::Permissions::from_mode(0o755)).unwrap();
        // A shell starts background processes with SIGINT ignored, and all processes below would inherit that. `env`
        // restores the default.
        let mut command = Command::new("env");
        command
            .args(["--default-signal=INT", env!("CARGO_BIN_EXE_sqm-lab")])
            .args(words)
            .current_dir(temporary.path())
            .env("TMPDIR", temporary.path())
            .env("XDG_RUNTIME_DIR", temporary.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = start(&mut command);
        Self {
            child: Ending(child),
            temporary,
            heard: None,
        }
    }

    /// Waits for this text on standard error.
    fn says(&mut self, words: &str) {
        let mut lines = BufReader::new(self.child.0.stderr.take().unwrap()).lines();
        let mut said = Vec::new();
        let found = lines.by_ref().map(Result::unwrap).any(|line| {
            let is_it = line.contains(words);
            said.push(line);
            is_it
        });
        assert!(found, "`{words}` was never said: {said:?}");
        // Keep the pipe open: the program writes more, and would end early if the pipe had no reader.
        self.heard = Some(lines);
    }

    /// Waits until the keeper has set up its network.
    fn waits_until_ready(&mut self) {
        let mut ready = String::new();
        BufReader::new(self.child.0.stdout.take().unwrap())
            .read_line(&mut ready)
            .unwrap();
        assert_eq!(ready, "ready\n");
    }

    /// Sends the signal, and waits for the end of the program and of all processes of its guest.
    fn end_by(mut self, signal: Signal) -> TempDir {
        let guest = processes_of_guest(self.child.0.id());
        assert!(!guest.is_empty(), "the guest runs");
        kill_process(Pid::from_child(&self.child.0), signal).unwrap();
        let status = self.child.0.wait().unwrap();
        assert_eq!(status.signal(), Some(signal.as_raw()));
        for process in &guest {
            wait_for_end(process);
        }
        self.temporary
    }
}

fn files(folder: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect()
}

/// A process according to `/proc/PID/stat`.
struct Process {
    pid: i32,
    name: String,
    parent: u32,
    group: i32,
}

fn processes() -> Vec<Process> {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<i32>().ok())
        .filter_map(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            // The name in parentheses may contain any character. Behind it are state, parent and process group.
            let (start, rest) = stat.rsplit_once(')')?;
            let mut fields = rest.split_whitespace().skip(1);
            Some(Process {
                pid,
                name: start.split_once('(')?.1.to_owned(),
                parent: fields.next()?.parse().ok()?,
                group: fields.next()?.parse().ok()?,
            })
        })
        .collect()
}

/// The guest's kernel and its watcher, both started by this process, and all processes in their process groups.
fn processes_of_guest(parent: u32) -> Vec<OwnedFd> {
    let processes = processes();
    let started: Vec<_> = processes.iter().filter(|p| p.parent == parent).collect();
    let in_guest = processes
        .iter()
        .filter(|p| started.iter().any(|leader| leader.pid == p.group));
    in_guest
        // A process that has ended since is left out.
        .filter_map(|p| pidfd_open(Pid::from_raw(p.pid)?, PidfdFlags::empty()).ok())
        .collect()
}

fn wait_for_end(process: &OwnedFd) {
    let patience = Timespec {
        tv_sec: 120,
        tv_nsec: 0,
    };
    let ended = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&patience)).unwrap();
    assert_eq!(ended, 1, "a process of the guest outlives the program");
}

#[test]
fn a_killed_demo_ends_its_guest() {
    for (clock, moment) in [
        ("wall", "measuring the bloated line"),
        ("virtual", "measuring again"),
    ] {
        let mut demo = Program::start(&["demo", "--clock", clock], tempfile::tempdir().unwrap());
        demo.says(moment);
        let left = files(&demo.end_by(Signal::KILL));
        assert!(left.iter().all(|file| file == "demo-out"), "{left:?}");
    }
}

#[test]
fn an_interrupted_demo_leaves_no_results() {
    let mut demo = Program::start(&["demo", "--clock", "virtual"], tempfile::tempdir().unwrap());
    demo.says("measuring");
    let temporary = demo.end_by(Signal::INT);
    assert_eq!(
        fs::read_dir(temporary.path().join("demo-out")).unwrap().count(),
        0
    );
}

#[test]
fn a_killed_keeper_ends_its_guest_and_does_not_block_the_next_lab() {
    let keep = ["keep", "--clock", "virtual"];
    let mut keeper = Program::start(&keep, tempfile::tempdir().unwrap());
    keeper.waits_until_ready();
    let temporary = keeper.end_by(Signal::KILL);
    assert_eq!(files(&temporary), ["sqm-lab"]);
    let mut keeper = Program::start(&keep, temporary);
    keeper.waits_until_ready();

    let lab = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sqm-lab"));
        command
            .args(words)
            .env("XDG_RUNTIME_DIR", keeper.temporary.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        start(&mut command).wait_with_output().unwrap()
    };
    output_appears_while_the_command_runs(&keeper);
    // Output that is no text arrives byte for byte, and process substitution has its /dev/fd.
    let output = lab(&["run", "h1", "bash", "-c", r"cat <(printf '\377\000x')"]);
    assert_eq!(
        output.stdout,
        b"\xff\0x",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    a_shell_passes_keys_on(&keeper);
    // The next lab can start as soon as `down` has returned.
    assert!(lab(&["down"]).status.success());
    let output = lab(&["run", "h1", "true"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("no lab is running"), "{stderr}");
    assert!(keeper.child.0.wait().unwrap().success());
}

/// Both outputs of `run` appear before the command ends, Ctrl-C interrupts the command, and a reader that goes away ends it.
fn output_appears_while_the_command_runs(keeper: &Program) {
    let run = |script: &str| {
        let mut command = Command::new("env");
        command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_sqm-lab")]);
        command.args(["run", "h1", "--", "sh", "-c", script]);
        command.env("XDG_RUNTIME_DIR", keeper.temporary.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Ending(start(&mut command))
    };
    let mut running =
        run("echo out; echo error >&2; trap 'exit 5' INT; echo trapped; while :; do sleep 1; done");
    let mut outputs = (running.0.stdout.take().unwrap(), running.0.stderr.take().unwrap());
    appears(&mut outputs.0, "out\ntrapped\n");
    appears(&mut outputs.1, "error\n");
    kill_process(Pid::from_child(&running.0), Signal::INT).unwrap();
    assert_eq!(running.0.wait().unwrap().code(), Some(5));

    let mut running = run("exec yes");
    let mut output = running.0.stdout.take().unwrap();
    appears(&mut output, "y\n");
    drop(output);
    assert!(running.0.wait().unwrap().success());
    let ended = run("for _ in $(seq 100); do pgrep -x yes >/dev/null || exit 0; sleep 0.1; done; exit 1")
        .0
        .wait();
    assert!(ended.unwrap().success(), "the command outlives its reader");
}

/// Waits until this text has been written to a pipe of a process that still runs.
fn appears(mut pipe: impl Read + AsFd, text: &str) {
    let patience = Timespec {
        tv_sec: 60,
        tv_nsec: 0,
    };
    let mut seen = String::new();
    let mut buffer = [0; 64];
    while !seen.starts_with(text) {
        let ready = poll(&mut [PollFd::new(&pipe, PollFlags::IN)], Some(&patience)).unwrap();
        assert_eq!(ready, 1, "'{text}' did not appear, but '{seen}'");
        let count = pipe.read(&mut buffer).unwrap();
        assert!(count > 0, "the command ended before '{text}': '{seen}'");
        seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
}

/// Ctrl-C ends the program in the guest and not the shell, which keeps its folder and knows the size of the terminal.
fn a_shell_passes_keys_on(keeper: &Program) {
    let shell = format!(
        "stty rows 33 cols 101; exec {} shell h1",
        env!("CARGO_BIN_EXE_sqm-lab")
    );
    let mut terminal = Command::new("script");
    terminal
        .args(["--quiet", "--return", "--flush", "--command", &shell, "/dev/null"])
        .env("XDG_RUNTIME_DIR", keeper.temporary.path())
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut terminal = start(&mut terminal);
    let mut keys = terminal.stdin.take().unwrap();
    let mut screen = terminal.stdout.take().unwrap();
    let mut terminal = Ending(terminal);
    let mut seen = String::new();
    // The text must appear after what was typed before.
    let mut wait_for = |text: &str| {
        let mut buffer = [0; 1024];
        while !seen.contains(text) {
            let count = screen.read(&mut buffer).unwrap();
            assert!(count > 0, "the shell ended before '{text}': {seen}");
            seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        seen.clear();
    };
    let mut type_in = |text: &str| keys.write_all(text.as_bytes()).unwrap();
    wait_for("h1# ");
    type_in("cd /run; stty size\r");
    wait_for("33 101");
    // One process prints the mark and does not end by itself. A shell that prints it and then starts another process would not do: dash
    // loses a SIGINT that arrives in between, and waits for the other process.
    type_in("echo run$((6*7)) >/run/mark; tail -f /run/mark\r");
    wait_for("run42");
    type_in("\u{3}");
    wait_for("^C");
    type_in("echo in $PWD, $?\r");
    wait_for("in /run, 130");
    type_in("exit 7\r");
    assert_eq!(terminal.0.wait().unwrap().code(), Some(7));
}

#[test]
fn a_guest_that_misses_the_end_of_its_console_ends_with_the_program() {
    let mut keeper = Program::start(&["keep", "--clock", "virtual"], tempfile::tempdir().unwrap());
    keeper.waits_until_ready();
    let program = keeper.child.0.id();
    let kernel = processes()
        .into_iter()
        .find(|p| p.parent == program && p.name == "linux")
        .unwrap();
    // The console stays open while a process can write to it.
    let console = fs::OpenOptions::new()
        .write(true)
        .open(format!("/proc/{}/fd/0", kernel.pid))
        .unwrap();
    keeper.end_by(Signal::KILL);
    drop(console);
}

#[test]
fn the_next_lab_removes_the_remains_of_one_killed_while_booting() {
    let temporary = tempfile::tempdir().unwrap();
    // No process can have this id: it is above the kernel's maximum.
    fs::create_dir(temporary.path().join("sqm-lab-4194305-abcdef")).unwrap();
    let living = format!("sqm-lab-{}-abcdef", std::process::id());
    fs::create_dir(temporary.path().join(&living)).unwrap();
    let mut keeper = Program::start(&["keep", "--clock", "virtual"], temporary);
    keeper.waits_until_ready();
    let mut left = files(&keeper.end_by(Signal::TERM));
    left.sort();
    assert_eq!(left, ["sqm-lab", living.as_str()]);
}

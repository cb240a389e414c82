//! Every command with an output that has no reader, is full, or was never open: it ends without a panic and with the
//! exit code that README documents, and leaves no incomplete files.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use sqm_core::units::Instant as Time;
use sqm_replay::pcap::{Format, LinkNumber, Writer};

/// Time limit of a command. It is generous: it only tells a command that ends from one that does not.
const PATIENCE: Duration = Duration::from_secs(120);
const FULL: &str = "cannot write to standard output: No space left on device";

/// A command. `is_product` is true if its only purpose is its output.
struct Case {
    words: Vec<String>,
    is_product: bool,
}

/// A folder with one file of each kind that commands read.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files = Self(folder);
        let queue = "config queue\n\toption enabled '1'\n\toption interface 'lo'\n\toption download '85000'\n\
                     \toption upload '10000'\n\toption script 'piece_of_cake.qos'\n";
        files.write("config", queue);
        files.write("warned", &format!("{queue}\toption linklayre 'atm'\n"));
        files.write(
            "broken",
            "config queue\n\toption enabled '1'\n\toption interface 'lo'\n",
        );
        files.write("eth0.iface.conf", "UPLINK=1000\nDOWNLINK=85000\n");
        files.write("facts", FACTS);
        files.write("tree", "qdisc add dev x root handle 1: fq_codel\n");
        fs::write(files.path("capture"), capture(200)).unwrap();
        files
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs `sqm`, or `sqm-lab` if that is the first word, in this folder.
    fn sqm(&self, words: &[String]) -> Command {
        let (program, words) = match words.split_first() {
            Some((first, rest)) if first == "sqm-lab" => (env!("CARGO_BIN_EXE_sqm-lab"), rest),
            _ => (env!("CARGO_BIN_EXE_sqm"), words),
        };
        let mut command = Command::new(program);
        command
            .args(words)
            .current_dir(self.0.path())
            .env("SQM_STATE_DIR", self.path("state"))
            .stdin(Stdio::null());
        command
    }
}

const FACTS: &str = r#"{"sections": [{"interface": "lo", "upload_kbit": 10000, "download_kbit": 85000,
    "cells": "none", "differences": ["lo: planned cake, found noqueue"], "root": "noqueue 0:"}],
    "devices": [{"name": "lo", "up": true}]}"#;

/// A capture of this many packets of 1000 bytes, a millisecond apart.
fn capture(packets: u64) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), Format::Pcap).unwrap();
    (0..packets).for_each(|number| packet(&mut writer, number));
    writer.finish().unwrap()
}

fn packet(writer: &mut Writer<impl Write>, number: u64) {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    bytes.extend(986_u16.to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, 17, 0, 0, 192, 168, 1, 2, 203, 0, 113, 3]);
    bytes.extend([0, 7, 0, 53, 0, 0, 0, 0]);
    let time = Time(1_700_000_000_000_000_000 + number * 1_000_000);
    writer.packet(time, LinkNumber::ETHERNET, 1000, &bytes).unwrap();
}

fn cases(lines: &str, is_product: bool) -> Vec<Case> {
    let one = |line: &str| Case {
        words: shell_words(line),
        is_product,
    };
    lines
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(one)
        .collect()
}

/// Splits a line into words at blanks; `'` quotes.
fn shell_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (place, part) in line.split('\'').enumerate() {
        if place % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    let measured = Path::new(env!("CARGO_MANIFEST_DIR")).join("../measure/tests/flent");
    let log = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/autorate_log/log");
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/testdata/vectors");
    for word in &mut words {
        *word = word
            .replace("FLENT", measured.to_str().unwrap())
            .replace("VECTORS", vectors.to_str().unwrap())
            .replace("AUTORATE_LOG", log.to_str().unwrap());
    }
    words
}

/// The outcome of a command.
#[derive(Debug)]
struct Ended {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

/// Waits for the end of the command, and reads those outputs that are pipes.
fn wait(mut child: Child, words: &[String]) -> Ended {
    let read = |pipe: Option<Box<dyn Read + Send>>| {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut pipe) = pipe {
                pipe.read_to_end(&mut bytes).unwrap();
            }
            String::from_utf8(bytes).unwrap()
        })
    };
    let stdout = read(child.stdout.take().map(|pipe| Box::new(pipe) as _));
    let stderr = read(child.stderr.take().map(|pipe| Box::new(pipe) as _));
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("{words:?} goes on and on");
        }
        thread::sleep(Duration::from_millis(2));
    };
    Ended {
        status,
        stdout: stdout.join().unwrap(),
        stderr: stderr.join().unwrap(),
    }
}

/// A pipe whose reader has closed it.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn full() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").unwrap().into()
}

impl Case {
    /// Runs the command with every state of its outputs.
    fn check(&self, files: &Files) {
        let run = |change: &dyn Fn(&mut Command)| {
            let mut command = files.sqm(&self.words);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            change(&mut command);
            let mut child = command.spawn().unwrap();
            drop(command);
            let first = child.stdin.take();
            drop(first);
            let ended = wait(child, &self.words);
            assert!(
                !ended.stderr.contains("panicked"),
                "{:?}: {}",
                self.words,
                ended.stderr
            );
            ended
        };
        let code = |ended: &Ended| {
            let code = ended.status.code();
            code.unwrap_or_else(|| panic!("{:?} ended by a signal: {ended:?}", self.words))
        };
        let usual = run(&|_| {});
        let own = code(&usual);
        assert!(own <= 4, "{:?}: {usual:?}", self.words);

        let ended = run(&|command| _ = command.stdout(closed()));
        assert_eq!(code(&ended), own, "{:?} without a reader: {ended:?}", self.words);
        assert_eq!(ended.stderr, usual.stderr, "{:?} is quiet about it", self.words);

        let ended = run(&|command| _ = command.stdout(full()));
        let says_something = !usual.stdout.is_empty();
        let expected = if says_something && self.is_product && own == 0 {
            1
        } else {
            own
        };
        assert_eq!(
            code(&ended),
            expected,
            "{:?} with a full disk: {ended:?}",
            self.words
        );
        let told = ended.stderr.matches(FULL).count();
        assert_eq!(told, usize::from(says_something), "{:?}: {ended:?}", self.words);

        for change in [closed as fn() -> Stdio, full] {
            let ended = run(&|command| _ = command.stderr(change()));
            assert_eq!(code(&ended), own, "{:?} without standard error", self.words);
            assert_eq!(
                ended.stdout.is_empty(),
                usual.stdout.is_empty(),
                "{:?}",
                self.words
            );
        }
        self.read_one_line(files, own);
        self.without_descriptors(files, own);
    }

    /// The reader closes the pipe after one line.
    fn read_one_line(&self, files: &Files, own: i32) {
        let mut command = files.sqm(&self.words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::with_capacity(16, child.stdout.take().unwrap());
        output.read_line(&mut String::new()).unwrap();
        drop(output);
        let ended = wait(child, &self.words);
        assert!(
            !ended.stderr.contains("panicked"),
            "{:?}: {}",
            self.words,
            ended.stderr
        );
        assert_eq!(ended.status.code(), Some(own), "{:?}: {ended:?}", self.words);
    }

    /// The command starts with all three standard descriptors closed.
    fn without_descriptors(&self, files: &Files, own: i32) {
        let sqm = files.sqm(&self.words);
        let mut command = Command::new("sh");
        command
            .args(["-c", "exec \"$@\" <&- >&- 2>&-", "sh"])
            .arg(sqm.get_program())
            .args(sqm.get_args())
            .current_dir(files.0.path())
            .env("SQM_STATE_DIR", files.path("state"));
        let ended = wait(command.spawn().unwrap(), &self.words);
        assert_eq!(ended.status.code(), Some(own), "{:?}", self.words);
    }
}

fn check(lines: &str, is_product: bool, least: usize) {
    let files = Files::new();
    let cases = cases(lines, is_product);
    assert!(cases.len() >= least);
    cases.iter().for_each(|case| case.check(&files));
}

#[test]
fn help_and_usage_errors_work_with_any_output() {
    let commands = "autorate bugreport calc confirm compare completions daemon doctor import manual plan reload replay \
                    serve setup start status stop test tune verify web";
    let mut lines: Vec<String> = commands.split(' ').map(|name| format!("{name} --help")).collect();
    let more = "--help\n--version\nhelp plan\nautorate replay --help\nsqm-lab --help\nsqm-lab bench --help\nsqm-lab up --help\nsqm-lab demo --help\ncalc tin --help\n\
                \nnonsense\nplan --format x\nsqm-lab run\nsqm-lab up --line nowhere\nsqm-lab run nobody true\ntune\nreplay x\n\
                completions nonsense\ndaemon --config\nserve --nonsense\nweb --listen x\nsetup --link nonsense";
    lines.extend(more.lines().map(str::to_owned));
    check(&lines.join("\n"), true, 40);
}

#[test]
fn calculations_work_with_any_output() {
    let lines = "calc links
        calc links --json
        calc goodput 100mbit --link docsis
        calc goodput 100mbit --link docsis --json
        calc gross 93.39mbit --link ethernet-vlan-pppoe --timestamps
        calc shape --advertised 7000kbit 768kbit
        calc packet --link adsl-pppoe-llc
        calc fifo 1mbit --packets 250
        calc latency 1mbit
        calc tin ef
        calc tin ef --json
        sqm-lab lines
        test --list
        sqm-lab bench --list
        sqm-lab bench --qdisc fq_codel --turns 1
        sqm-lab bench --qdisc fq_codel --turns 1 --json
        completions bash
        completions fish
        completions zsh
        sqm-lab autorate bench --list";
    check(lines, true, 20);
}

#[test]
fn commands_that_read_a_configuration_work_with_any_output() {
    let lines = "plan --config config
        plan --config config --format tc
        plan --config config --format json
        plan --config config --diff
        plan --config config --diff --format json
        plan --config warned
        plan --config broken
        plan --config missing
        status lo
        status lo --json
        status --config config
        status --daemon
        verify --config config
        verify --config config --json
        doctor --config config --seconds 0
        doctor --config config --seconds 0 --json
        doctor --config config --seconds 0 --facts
        doctor --judge facts
        doctor --judge facts --json
        doctor --judge missing
        bugreport --config config --seconds 0 --out -
        import eth0.iface.conf
        import eth0.iface.conf --json
        import missing.iface.conf";
    check(lines, true, 24);
    // Output on the terminal is not the purpose of these.
    let lines = "bugreport --config config --seconds 0 --out report.txt
        manual .";
    check(lines, false, 2);
}

#[test]
fn commands_that_read_results_and_captures_work_with_any_output() {
    let lines = "compare FLENT/ping.flent.gz FLENT/rrul-deep.flent.gz
        compare FLENT/ping.flent.gz --json
        compare FLENT/ping.flent.gz --html page.html
        compare AUTORATE_LOG
        compare missing
        autorate replay AUTORATE_LOG
        autorate replay AUTORATE_LOG --json
        replay --qdisc 'cake bandwidth 4mbit' capture
        replay --qdisc 'cake bandwidth 4mbit' --json capture
        replay --qdisc 'cake bandwidth 4mbit' --events capture
        replay --qdisc fq_codel --link 4mbit capture
        replay --qdisc 'htb' --link 4mbit capture
        replay --qdisc 'pfifo limit 10' --link 4mbit --out out.pcap capture
        replay --qdisc 'tbf rate 4mbit burst 3000 limit 9000' --svg delay.svg capture
        replay --tree tree --link 4mbit capture
        replay --qdisc fq_codel --link 4mbit config
        replay --vector VECTORS/cake-a000.json VECTORS/cake-a001.json
        replay --vector VECTORS/cake-a000.json --events
        setup --dry-run --interface nothing
        test 127.0.0.1 --port 9
        confirm";
    check(lines, true, 21);
}

/// Commands that would run for many minutes end once their reader is gone.
#[test]
fn commands_end_when_their_reader_is_gone() {
    let files = Files::new();
    let endless = [
        ("sqm-lab bench --turns 100000", closed as fn() -> Stdio, 0),
        ("sqm-lab bench --turns 100000", full, 1),
        ("sqm-lab bench --turns 100000 --json", closed, 0),
        ("sqm-lab autorate bench --seed 1-500", closed, 0),
        ("sqm-lab autorate bench --seed 1-500 --json", closed, 0),
    ];
    for (line, output, code) in endless {
        let words = shell_words(line);
        let child = files.sqm(&words).stdout(output()).stderr(Stdio::null()).spawn();
        let ended = wait(child.unwrap(), &words);
        assert_eq!(ended.status.code(), Some(code), "{line}");
    }
}

/// The capture never ends, like the output of tcpdump.
#[test]
fn a_replay_ends_with_its_reader() {
    let files = Files::new();
    for words in [
        "replay --qdisc fq_codel --link 100mbit -",
        "replay --qdisc fq_codel --link 100mbit --events -",
    ] {
        let words = shell_words(words);
        let mut command = files.sqm(&words);
        let mut child = command.stdin(Stdio::piped()).stdout(closed()).spawn().unwrap();
        drop(command);
        let input: ChildStdin = child.stdin.take().unwrap();
        let feeder = thread::spawn(move || {
            let mut writer = Writer::new(Until(input), Format::Pcap).unwrap();
            (0..u64::MAX)
                .take_while(|number| {
                    packet(&mut writer, *number);
                    !writer_is_done()
                })
                .count()
        });
        assert_eq!(wait(child, &words).status.code(), Some(0), "{words:?}");
        feeder.join().unwrap();
    }
}

thread_local! {
    static IS_DONE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

fn writer_is_done() -> bool {
    IS_DONE.get()
}

/// Accepts all bytes, and records when the pipe no longer takes them.
struct Until(ChildStdin);

impl Write for Until {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        IS_DONE.set(self.0.write_all(bytes).is_err());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The named output file is a device that is full.
#[test]
fn an_unwritable_file_is_an_error_that_names_it() {
    let files = Files::new();
    for line in [
        "bugreport --config config --seconds 0 --out /dev/full",
        "compare FLENT/ping.flent.gz --html /dev/full",
        "autorate replay AUTORATE_LOG --plot /dev/full",
        "replay --qdisc fq_codel --link 4mbit --out /dev/full capture",
        "replay --qdisc fq_codel --link 4mbit --svg /dev/full capture",
    ] {
        let words = shell_words(line);
        let mut command = files.sqm(&words);
        let ended = wait(
            command
                .stderr(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .unwrap(),
            &words,
        );
        assert_eq!(ended.status.code(), Some(1), "{line}: {ended:?}");
        assert!(ended.stderr.contains("/dev/full"), "{line}: {ended:?}");
        assert!(ended.stderr.contains("No space left"), "{line}: {ended:?}");
    }
}

/// The disk is full: the old file stays, and no other file is left.
#[test]
fn a_full_disk_leaves_the_old_file_unchanged() {
    let files = Files::new();
    fs::create_dir(files.path("disk")).unwrap();
    for line in [
        "bugreport --config config --seconds 0 --out disk/old",
        "compare FLENT/rrul-deep.flent.gz --html disk/old",
        "compare FLENT/rrul-deep.flent.gz --plot all_scaled --out disk",
        "replay --qdisc fq_codel --link 4mbit --out disk/old capture",
        "replay --qdisc fq_codel --link 4mbit --svg disk/old capture",
        "manual disk",
    ] {
        let words = shell_words(line);
        let sqm = files.sqm(&words);
        let mut command = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            command.arg("--map-root-user");
        }
        let script = "mount -t tmpfs -o size=16k none disk && echo old >disk/old && cat /dev/zero >disk/fill 2>/dev/null; \
                      \"$@\" >/dev/null; code=$?; ls -A disk; cat disk/old; exit $code";
        command
            .args(["--mount", "sh", "-c", script, "sh"])
            .arg(sqm.get_program())
            .args(sqm.get_args())
            .current_dir(files.0.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let ended = wait(command.spawn().unwrap(), &words);
        assert_eq!(ended.status.code(), Some(1), "{line}: {ended:?}");
        assert_eq!(ended.stdout, "fill\nold\nold\n", "{line}: {ended:?}");
        assert!(ended.stderr.contains("No space left"), "{line}: {ended:?}");
    }
}

/// `/dev/stdout` is standard output, whether a pipe or a file.
#[test]
fn standard_output_may_be_named_as_a_file() {
    let files = Files::new();
    for line in [
        "bugreport --config config --seconds 0 --out /dev/stdout",
        "compare FLENT/ping.flent.gz --html /dev/stdout",
        "replay --qdisc fq_codel --link 4mbit --svg /dev/stdout capture",
    ] {
        let words = shell_words(line);
        let to_pipe = wait(files.sqm(&words).stdout(Stdio::piped()).spawn().unwrap(), &words);
        assert_eq!(to_pipe.status.code(), Some(0), "{line}");
        let file = File::create(files.path("output")).unwrap();
        let to_file = wait(files.sqm(&words).stdout(file).spawn().unwrap(), &words);
        assert_eq!(to_file.status.code(), Some(0), "{line}");
        let written = fs::read_to_string(files.path("output")).unwrap();
        assert!(!to_pipe.stdout.is_empty() && !written.is_empty(), "{line}");
    }
}

/// `/dev/stdout` is treated like standard output: its reader may close it.
#[test]
fn standard_output_that_is_named_as_a_file_may_lose_its_reader() {
    let files = Files::new();
    for line in [
        "bugreport --config config --seconds 0 --out /dev/stdout",
        "compare FLENT/rrul-deep.flent.gz --html /dev/stdout",
        "replay --qdisc fq_codel --link 4mbit --svg /dev/stdout capture",
        "replay --qdisc fq_codel --link 4mbit --out /dev/stdout capture",
    ] {
        let words = shell_words(line);
        let mut command = files.sqm(&words);
        command.stdout(closed()).stderr(Stdio::piped());
        let ended = wait(command.spawn().unwrap(), &words);
        assert_eq!(ended.status.code(), Some(0), "{line}: {ended:?}");
        assert!(!ended.stderr.contains("roken pipe"), "{line}: {ended:?}");
    }
}

/// Files that sqm opens must not get a closed descriptor of standard output, or its text would be written to them.
#[test]
fn files_are_not_opened_in_place_of_closed_standard_streams() {
    let files = Files::new();
    let words = shell_words("replay --qdisc fq_codel --link 4mbit --out out.pcap capture");
    let sqm = files.sqm(&words);
    let mut command = Command::new("sh");
    command
        .args(["-c", "exec \"$@\" <&- >&- 2>&-", "sh"])
        .arg(sqm.get_program())
        .args(sqm.get_args())
        .current_dir(files.0.path());
    assert_eq!(wait(command.spawn().unwrap(), &words).status.code(), Some(0));
    assert_eq!(fs::read(files.path("out.pcap")).unwrap().len(), {
        let mut usual = files.sqm(&words);
        wait(usual.stdout(Stdio::null()).spawn().unwrap(), &words);
        fs::read(files.path("out.pcap")).unwrap().len()
    });
}

/// A change that was made is a success even if it cannot be reported.
#[test]
fn a_change_succeeds_even_if_it_cannot_be_reported() {
    let files = Files::new();
    let words = shell_words("import eth1.iface.conf --write --config new");
    files.write(
        "eth1.iface.conf",
        "UPLINK=1000\nDOWNLINK=85000\nSCRIPT=simple.qos\n",
    );
    let ended = wait(
        files
            .sqm(&words)
            .stdout(full())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
        &words,
    );
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(ended.stderr.contains(FULL), "{ended:?}");
    assert!(fs::read_to_string(files.path("new")).unwrap().contains("eth1"));
}

/// Text from files, such as names, option values and titles, must not control the terminal.
#[test]
fn control_characters_in_foreign_text_are_shown_as_escapes() {
    let files = Files::new();
    let evil = "x\u{1b}]0;title\u{7}\u{9b}31m\u{202e}\u{7f}\r";
    files.write(
        "evil",
        &format!(
            "config queue\n\toption enabled '1'\n\toption interface 'lo'\n\toption download '1{evil}'\n\
                                  \toption upload '10000'\n\toption link '{evil}'\n\toption {evil} 'x'\n"
        ),
    );
    files.write(
        "evil.facts",
        &FACTS.replace("noqueue 0:", "x\\u001b]0;title\\u0007\\u009b31m\\u202e\\u007f\\r"),
    );
    files.write(
        "evil.iface.conf",
        &format!("UPLINK=1000\nDOWNLINK=85000\nEQDISC_OPTS=\"{evil}\"\n{evil}=1\n"),
    );
    files.write(evil, "nothing");
    let commands: [&[&str]; 14] = [
        &["plan", "--config", "evil"],
        &["plan", "--config", evil],
        &["status", evil],
        &["bugreport", "--config", "evil", "--seconds", "0", "--out", "-"],
        &["doctor", "--judge", "evil.facts"],
        &["doctor", "--judge", "evil.facts", "--json"],
        &["doctor", "--judge", evil],
        &["import", "evil.iface.conf"],
        &["import", evil],
        &["replay", "--qdisc", evil, "capture"],
        &["replay", "--qdisc", "fq_codel", "--link", "4mbit", evil],
        &["compare", evil],
        &["autorate", "replay", evil],
        &[evil],
    ];
    for words in commands {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let mut command = files.sqm(&words);
        let ended = wait(
            command
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap(),
            &words,
        );
        let is_raw = |c: char| c.is_control() && c != '\n' && c != '\t' || c == '\u{202e}';
        for said in [&ended.stdout, &ended.stderr] {
            assert!(!said.contains(is_raw), "{words:?}: {said:?}");
        }
        assert!(!ended.stdout.is_empty() || !ended.stderr.is_empty(), "{words:?}");
    }
}

//! Helpers for the tests of the commands, the daemon and the web server.
#![allow(dead_code, reason = "each test file uses its part of this module")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// `make nightly` sets `SQM_NIGHTLY`: some tests then try many more cases.
pub(crate) fn is_nightly() -> bool {
    std::env::var_os("SQM_NIGHTLY").is_some()
}

/// A command that runs its arguments in a new network namespace, which any user may create.
pub(crate) fn in_own_network() -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.arg("--net");
    command
}

/// A command that runs `program` without `CAP_NET_ADMIN`, so that a fault in it cannot change this machine's queues.
pub(crate) fn without_net_admin(program: &str) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-net_admin", "--inh-caps=-net_admin", program]);
    command
}

/// A pseudo-random generator: Knuth's 64-bit linear congruential generator (MMIX). Runs with the same seed give the
/// same numbers.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    /// A number from 0 to `n` - 1.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// Number of hostile connections.
const CROWD: &str = "1000";

/// Hostile connections of one kind, made by `crowd.py`. Dropping it closes them.
pub(crate) struct Crowd(Child);

impl Crowd {
    /// Opens the connections, and returns when all are open. `command` runs the script, such as `env`, or `nsenter`
    /// with its options.
    pub(crate) fn gather(mut command: Command, kind: &str, server: &str, place: &str, header: &str) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/crowd.py");
        let mut process = command
            .args(["python3", script, kind, server, place, CROWD, header])
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs");
        let mut said = String::new();
        let mut output = BufReader::new(process.stdout.take().expect("its output"));
        output.read_line(&mut said).expect("a line");
        assert_eq!(said, "there\n", "{kind}");
        Self(process)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The kinds of crowds to try: every second one, and all of them with `SQM_NIGHTLY`.
pub(crate) fn some_kinds<'a>(all: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    let step = if is_nightly() { 1 } else { 2 };
    all.iter().copied().step_by(step)
}

/// Does `something` that waits for an answer. A client that is shut out waits for ever, or is refused, and `something` fails. With
/// `SQM_NIGHTLY`, on a machine that has nothing else to do, it is done three times and judged by the promised time, too.
pub(crate) fn answered(what: &str, promised: Duration, mut something: impl FnMut()) {
    let runs = if is_nightly() { 3 } else { 1 };
    for _ in 0..runs {
        let began = Instant::now();
        something();
        let taken = began.elapsed();
        println!("{what}: {taken:?}");
        assert!(!is_nightly() || taken < BUSY * promised, "{what}: {taken:?}");
    }
}

/// The promised times hold while nothing else runs. Nightly another test may run meanwhile.
const BUSY: u32 = 5;

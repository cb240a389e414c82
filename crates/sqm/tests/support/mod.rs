//! What tests of the daemon and of the page's server share.
#![allow(dead_code, reason = "each test file uses its part of this module")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A command in a network namespace of its own, which anybody may make: its program and arguments follow.
pub(crate) fn in_own_network() -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.arg("--net");
    command
}

/// The same numbers in every run (Knuth's linear congruential generator for 64 bits).
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    /// From 0 up to, but not, `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// How many connections mean no good.
const CROWD: &str = "1000";

/// Connections of one kind that mean no good, by `crowd.py`; they end with this.
pub(crate) struct Crowd(Child);

impl Crowd {
    /// All of them are there when this returns. `command` is what runs them, such as `env` or `nsenter` with its options.
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
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How long something takes at most, of a few times.
pub(crate) fn longest(mut something: impl FnMut()) -> Duration {
    let one = |_| {
        let began = Instant::now();
        something();
        began.elapsed()
    };
    (0..3).map(one).max().expect("some times")
}

/// What is promised must hold on an idle machine. A busy one has this many times as long; what is shut out waits for ever.
pub(crate) const BUSY: u32 = 5;

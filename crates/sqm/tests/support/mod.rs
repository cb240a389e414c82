//! What tests of the daemon and of the page's server share.
#![allow(dead_code, reason = "each test file uses its part of this module")]

use std::process::Command;

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

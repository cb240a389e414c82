//! The cost of a process, as Linux accounts for it.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Linux reports processor time to programs in hundredths of a second (`USER_HZ`), whatever the kernel's own tick is.
const TICKS_PER_S: f64 = 100.0;

/// A process by its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process(pub(crate) u32);

impl Process {
    /// This process.
    pub(crate) fn own() -> Self {
        Self(std::process::id())
    }

    /// The memory that it has now, bytes.
    pub(crate) fn memory(self) -> u64 {
        self.status("VmRSS:")
    }

    /// The most memory that it has had, bytes.
    pub(crate) fn peak_memory(self) -> u64 {
        self.status("VmHWM:")
    }

    fn status(self, field: &str) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.0)).expect("the process runs");
        let line = text.lines().find(|line| line.starts_with(field));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        kib.expect("a number of kB") * 1024
    }

    /// The processor time that it has taken, seconds.
    pub(crate) fn cpu_s(self) -> f64 {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.0)).expect("the process runs");
        // The name in parentheses may hold blanks. Behind it are the fields from the third on; user and system time are 14 and 15.
        let (_, fields) = text.rsplit_once(')').expect("a name in parentheses");
        let ticks = fields.split_whitespace().skip(11).take(2);
        ticks
            .map(|ticks| ticks.parse::<f64>().expect("ticks"))
            .sum::<f64>()
            / TICKS_PER_S
    }
}

/// Lets this process, and those that it starts, have as many open files as the system allows.
pub(crate) fn allow_many_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, all).expect("a limit up to the highest is always allowed");
}

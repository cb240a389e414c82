//! Injected faults, with which tests look at what an interrupted change leaves behind.
//!
//! `SQM_FAULT=error@3` makes this process's third change of the kernel fail with an I/O error before it is sent;
//! `SQM_FAULT=kill@3` kills the process there, as `kill -9` would. Only builds with debug assertions read the variable.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Signal, getpid, kill_process};

/// The environment variable that asks for a fault.
pub const VARIABLE: &str = "SQM_FAULT";

/// Changes of the kernel that this process has begun.
static CHANGES: AtomicU32 = AtomicU32::new(0);

/// Counts one change of the kernel; to be called before it is sent. Returns whether it must fail, or kills the process.
pub(crate) fn is_due() -> bool {
    if !cfg!(debug_assertions) {
        return false;
    }
    let number = CHANGES.fetch_add(1, Ordering::Relaxed) + 1;
    match std::env::var(VARIABLE).ok().as_deref().and_then(read) {
        Some((Fault::Error, at)) => at == number,
        Some((Fault::Kill, at)) if at == number => {
            // The process ends here. If the signal could not be sent, the change goes on as without a fault.
            let _ = kill_process(getpid(), Signal::KILL);
            false
        }
        _ => false,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Error,
    Kill,
}

/// Reads `error@3` or `kill@3`.
fn read(text: &str) -> Option<(Fault, u32)> {
    let (fault, at) = text.split_once('@')?;
    let fault = match fault {
        "error" => Fault::Error,
        "kill" => Fault::Kill,
        _ => return None,
    };
    Some((fault, at.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_names_a_fault_and_the_change_at_which_it_happens() {
        assert_eq!(read("error@3"), Some((Fault::Error, 3)));
        assert_eq!(read("kill@12"), Some((Fault::Kill, 12)));
        assert_eq!(read("kill"), None);
        assert_eq!(read("stop@1"), None);
    }
}

//! Faults on demand, so that tests can see what a half-done change leaves behind.
//!
//! `SQM_FAULT=error@3` makes the third change of the kernel fail with an I/O error before it is sent; `SQM_FAULT=kill@3`
//! ends the process there, as `kill -9` would. Only builds with debug assertions look at the variable.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};

use crate::netlink::socket::Refusal;

/// The variable.
pub const VARIABLE: &str = "SQM_FAULT";

/// Changes of the kernel so far, in this process.
static CHANGES: AtomicU32 = AtomicU32::new(0);

/// Called before every change of the kernel.
pub(crate) fn before_a_change() -> Result<(), Refusal> {
    if !cfg!(debug_assertions) {
        return Ok(());
    }
    let number = CHANGES.fetch_add(1, Ordering::Relaxed) + 1;
    match std::env::var(VARIABLE).ok().as_deref().and_then(read) {
        Some((fault, at)) if at == number => match fault {
            Fault::Error => Err(Refusal {
                errno: Errno::IO.raw_os_error(),
                message: Some(format!("{VARIABLE} asked for it")),
                offset: None,
            }),
            Fault::Kill => {
                // Nothing is done after this, not even if it fails.
                let _ = kill_process(getpid(), Signal::KILL);
                Ok(())
            }
        },
        _ => Ok(()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Error,
    Kill,
}

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
    fn the_variable_is_read() {
        assert_eq!(read("error@3"), Some((Fault::Error, 3)));
        assert_eq!(read("kill@12"), Some((Fault::Kill, 12)));
        assert_eq!(read("kill"), None);
        assert_eq!(read("stop@1"), None);
    }
}

//! Messages to the service manager (`sd_notify(3)`). Without one, or on an error, they are dropped.
//!
//! Written here because the crates for this protocol block for ever when the manager does not read, and the main loop with
//! them.

use std::env;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// How long to wait for a manager that does not read; a choice.
const WRITE_TIMEOUT: Duration = Duration::from_millis(200);

/// Sends lines such as `READY=1`.
pub(super) fn notify(lines: &str) {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let send = || {
        let address = match path.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(&path)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(WRITE_TIMEOUT))?;
        socket.send_to_addr(lines.as_bytes(), &address)
    };
    let _: std::io::Result<usize> = send();
}

/// The time within which the manager expects each `WATCHDOG=1`; `None` if it has no watchdog for this process.
pub(super) fn watchdog() -> Option<Duration> {
    let number = |name| env::var(name).ok()?.parse::<u64>().ok();
    // The variables may be inherited from a parent process.
    if number("WATCHDOG_PID").is_some_and(|process| process != u64::from(std::process::id())) {
        return None;
    }
    number("WATCHDOG_USEC").map(Duration::from_micros)
}

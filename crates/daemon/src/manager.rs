//! What a service manager is told (`sd_notify`(3)), if there is one. Without one there is nobody to complain to.
//!
//! Not by a crate: those that speak the protocol wait for ever when the manager does not read, and the keeper with them.

use std::env;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// A manager that does not read within this is not waited for.
const PATIENCE: Duration = Duration::from_millis(200);

/// Tells it lines such as `READY=1`.
pub(super) fn tell(lines: &str) {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let send = || {
        let address = match path.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(&path)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(PATIENCE))?;
        socket.send_to_addr(lines.as_bytes(), &address)
    };
    let _: std::io::Result<usize> = send();
}

/// How often it wants to hear `WATCHDOG=1`, if it does.
pub(super) fn watchdog() -> Option<Duration> {
    let number = |name| env::var(name).ok()?.parse::<u64>().ok();
    // It may have been meant for the process that started this one.
    if number("WATCHDOG_PID").is_some_and(|process| process != u64::from(std::process::id())) {
        return None;
    }
    number("WATCHDOG_USEC").map(Duration::from_micros)
}

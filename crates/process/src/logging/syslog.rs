//! The system log: a datagram for each event (RFC 3164).

use std::io;
use std::os::unix::net::UnixDatagram;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::Message;
use crate::errln;

/// The socket of the system log.
const SOCKET: &str = "/dev/log";
/// The facility `daemon` (RFC 3164, section 4.1.1).
const FACILITY: u8 = 3;

/// A connection to the system log.
pub(super) struct Syslog(UnixDatagram);

impl Syslog {
    pub(super) fn connect() -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(SOCKET)?;
        // A log that does not read must not stop the daemon: the event goes to standard error instead.
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }
}

impl<S: Subscriber> Layer<S> for Syslog {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        let level = *event.metadata().level();
        if self.0.send(datagram(level, &message.0).as_bytes()).is_err() {
            errln!("{}{}", super::prefix(level), message.0);
        }
    }
}

/// The priority, the program with its process, and the text. The log adds the time.
fn datagram(level: Level, text: &str) -> String {
    format!(
        "<{}>sqm[{}]: {text}",
        FACILITY * 8 + severity(level),
        std::process::id()
    )
}

/// The severities of RFC 3164, section 4.1.1.
const fn severity(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_the_facility_daemon_and_its_severity() {
        let pid = std::process::id();
        assert_eq!(datagram(Level::ERROR, "text"), format!("<27>sqm[{pid}]: text"));
        assert_eq!(datagram(Level::INFO, "text"), format!("<30>sqm[{pid}]: text"));
    }
}

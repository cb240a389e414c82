//! The errors of a measurement.

use std::io;
use std::path::PathBuf;

/// A failed measurement. The message says what happened and what to do next.
///
/// The message includes that of the operating system, so that there is no further source to print.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The settings contradict each other or leave the allowed range.
    #[error("{0}")]
    Settings(String),
    /// The name of the server has no address (of the wanted family).
    #[error("cannot find an address for '{host}'{wanted}: {reason}")]
    Resolve {
        /// The host as the user wrote it.
        host: String,
        /// " of IPv4" or " of IPv6" if the user asked for one of them, or nothing.
        wanted: &'static str,
        /// The resolver's message.
        reason: String,
    },
    /// The server cannot be reached.
    #[error(
        "cannot connect to {host} port {port}: {reason}; start 'sqm serve' there, or open the port (TCP and UDP)"
    )]
    Connect {
        /// The host as the user wrote it.
        host: String,
        /// TCP port.
        port: u16,
        /// The last attempt's error.
        reason: io::Error,
    },
    /// The host does not answer as a server of the responsiveness protocol.
    #[error(
        "cannot measure responsiveness against {host} port {port}: {reason}; is that a server of \
         draft-ietf-ippm-responsiveness? If only its certificate is refused, --insecure accepts it"
    )]
    Rpm {
        /// The host as the user wrote it.
        host: String,
        /// TCP port.
        port: u16,
        /// The last attempt's error.
        reason: io::Error,
    },
    /// A URL that cannot be used.
    #[error("cannot use {url}: {reason}")]
    Url {
        /// The host as the user wrote it.
        url: String,
        /// The cause.
        reason: io::Error,
    },
    /// The reflector answers no kind of probe.
    #[error(
        "{reflector} answers neither ICMP nor TCP nor DNS; name a host that answers with --reflector, for example your provider's name server"
    )]
    NoReflector {
        /// Address and port.
        reflector: String,
    },
    /// The server refuses the test.
    #[error("{host} refuses the test: {reason}")]
    Refused {
        /// The host as the user wrote it.
        host: String,
        /// The server's message.
        reason: String,
    },
    /// The connection to the server was lost.
    #[error("lost {host} while {during}: {reason}; check that 'sqm serve' still runs there")]
    Vanished {
        /// The host as the user wrote it.
        host: String,
        /// The phase of the test.
        during: &'static str,
        /// The cause.
        reason: String,
    },
    /// The server requires a secret, and the user gave none.
    #[error("{host} admits only clients that know its secret; give it with --secret FILE")]
    Secret {
        /// The host as the user wrote it.
        host: String,
    },
    /// The server reports figures that are impossible.
    #[error("{host} reports impossible values: {what}; its part of the result is left out")]
    Implausible {
        /// The host as the user wrote it.
        host: String,
        /// The contradiction.
        what: String,
    },
    /// The server stayed to the end of the test, but a part of its results is missing.
    #[error("the results of {host} are incomplete: {missing}")]
    Incomplete {
        /// The host as the user wrote it.
        host: String,
        /// The missing part.
        missing: String,
    },
    /// The user ended the test.
    #[error("interrupted {}", since_load(*at_s))]
    Interrupted {
        /// Seconds since the load began. Zero or less before the load.
        at_s: f64,
    },
    /// No UDP probe was answered, although TCP works.
    #[error(
        "no probe came back from {host} UDP port {port}; open this UDP port for 'sqm serve' in its firewall"
    )]
    NoProbes {
        /// The host as the user wrote it.
        host: String,
        /// UDP port.
        port: u16,
    },
    /// The kernel has no such congestion control, or reserves it for privileged processes.
    #[error(
        "congestion control '{name}' is not available on this machine; without privileges you can choose: {available}"
    )]
    Congestion {
        /// The host as the user wrote it.
        name: String,
        /// The kernel's list.
        available: String,
    },
    /// The operating system refused something.
    #[error("cannot {action}: {reason}")]
    System {
        /// The action that failed, with its object.
        action: String,
        /// The system's error.
        reason: io::Error,
    },
    /// A result file cannot be opened.
    #[error("cannot read {}: {reason}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        reason: io::Error,
    },
    /// A result file cannot be written.
    #[error("cannot write {}: {reason}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        reason: io::Error,
    },
    /// A file is not a log of `option autorate_log`, or a line of it is wrong.
    #[error("{}: line {line}: {reason}", path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// Counted from one.
        line: usize,
        /// The mistake in it.
        reason: String,
    },
    /// A file is not a test result that this program can read.
    #[error("{} is not a test result: {reason}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The mistake in it.
        reason: String,
    },
}

fn since_load(at_s: f64) -> String {
    match at_s > 0.0 {
        true => format!("{at_s:.0} s after the load began"),
        false => "before the load began".to_owned(),
    }
}

impl Error {
    pub(crate) fn system(action: impl Into<String>, reason: impl Into<io::Error>) -> Self {
        Self::System {
            action: action.into(),
            reason: reason.into(),
        }
    }
}

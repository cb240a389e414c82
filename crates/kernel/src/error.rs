//! Errors of this crate, and the differences between a plan and the kernel.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use crate::netlink::socket::NetlinkError;

/// Why an operation failed. After a failed start the network is as it was before, except with [`Error::NotRestored`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such device.
    #[error("{}", no_interface(name, nearest.as_deref(), existing))]
    NoInterface {
        /// The name asked for.
        name: String,
        /// The most similar name that exists.
        nearest: Option<String>,
        /// All names that exist.
        existing: Vec<String>,
    },
    /// The process may not change the network.
    #[error("{operation} needs CAP_NET_ADMIN: run it as root; nothing was changed")]
    Privileges {
        /// The operation that failed.
        operation: String,
    },
    /// The kernel lacks something that the plan needs.
    #[error("this kernel has no {feature}: it needs {option} (module {module}; {package})")]
    Unsupported {
        /// The feature that the plan needs.
        feature: &'static str,
        /// Kernel configuration option.
        option: &'static str,
        /// Kernel module.
        module: &'static str,
        /// Where the module comes from.
        package: &'static str,
    },
    /// Queues or a firewall table of another program are in the way, and could not be restored later.
    #[error(
        "{interface}: {what} exists already, and sqm could not restore it later; nothing was changed. {remedy}"
    )]
    InTheWay {
        /// The device.
        interface: String,
        /// The object that is there.
        what: String,
        /// Advice for the user.
        remedy: &'static str,
    },
    /// The kernel refused a request.
    #[error("{interface}: cannot {operation}: {error}")]
    Kernel {
        /// The device.
        interface: String,
        /// The operation that failed.
        operation: String,
        /// The kernel's answer.
        error: NetlinkError,
    },
    /// The kernel accepted every request, but what it reports differs from the plan.
    #[error(
        "{interface}: the kernel's state differs from the plan: {}",
        list(differences)
    )]
    Differs {
        /// The device.
        interface: String,
        /// Every difference.
        differences: Vec<Difference>,
    },
    /// The state directory, or a file in it, could not be read or written.
    #[error("{}: cannot {operation} the state file: {source}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// The operation that failed.
        operation: &'static str,
        /// The reason.
        source: std::io::Error,
    },
    /// A state file could not be read, written or locked; `source` names the file.
    #[error("cannot {operation}: {source}")]
    StateFile {
        /// The operation that failed.
        operation: &'static str,
        /// The reason.
        source: sqm_files::Error,
    },
    /// A change failed, and so did the rollback.
    #[error("{cause}; and the rollback failed: {restore}")]
    NotRestored {
        /// Why the change failed.
        cause: Box<Self>,
        /// Why the rollback failed.
        restore: Box<Self>,
    },
}

impl Error {
    /// For `map_err`: adds the device and the operation to the kernel's answer.
    pub(crate) fn kernel(interface: &str, operation: impl Into<String>) -> impl FnOnce(NetlinkError) -> Self {
        let (interface, operation) = (interface.to_owned(), operation.into());
        move |error| {
            if error.is(rustix::io::Errno::PERM) {
                return Self::Privileges {
                    operation: format!("{interface}: {operation}"),
                };
            }
            Self::Kernel {
                interface,
                operation,
                error,
            }
        }
    }

    /// Something on the device could not be restored later.
    pub(crate) fn queues_in_the_way(interface: &str, what: String) -> Self {
        Self::InTheWay {
            interface: interface.to_owned(),
            what,
            remedy: "Remove it with tc first, or leave this direction unshaped.",
        }
    }

    /// Like [`Self::kernel`] for requests to nftables, which a kernel may lack.
    pub(crate) fn firewall(
        interface: &str,
        operation: impl Into<String>,
    ) -> impl FnOnce(NetlinkError) -> Self {
        use rustix::io::Errno;

        let other = Self::kernel(interface, operation);
        move |error| {
            let lacks = [
                Errno::OPNOTSUPP,
                Errno::PROTONOSUPPORT,
                Errno::NOENT,
                Errno::AFNOSUPPORT,
            ];
            if lacks.iter().any(|errno| error.is(*errno)) {
                return Self::Unsupported {
                    feature: "nftables for IP",
                    option: "CONFIG_NF_TABLES and CONFIG_NF_TABLES_INET",
                    module: "nf_tables",
                    package: "OpenWrt: kmod-nft-core; Debian: the full linux-image, not -cloud",
                };
            }
            other(error)
        }
    }
}

fn no_interface(name: &str, nearest: Option<&str>, existing: &[String]) -> String {
    let hint = nearest.map(|n| format!(" Did you mean {n}?")).unwrap_or_default();
    format!(
        "there is no network device {name}.{hint} There are: {}",
        existing.join(", ")
    )
}

/// One parameter or object that the kernel holds otherwise than planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The object: device and handle.
    pub at: String,
    /// The planned value.
    pub planned: String,
    /// The kernel's value.
    pub found: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} planned {}, found {}", self.at, self.planned, self.found)
    }
}

fn list(differences: &[Difference]) -> String {
    differences
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

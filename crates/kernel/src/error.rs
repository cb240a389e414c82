//! What can go wrong between a plan and the kernel.

use std::path::PathBuf;

use crate::netlink::socket::Refusal;
use crate::verify::Difference;

/// Why something was not done. Unless it says otherwise, everything is as it was before.
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
        /// What was to be done.
        operation: String,
    },
    /// The kernel lacks something that the plan needs.
    #[error("this kernel has no {feature}: it needs {option} (module {module}; {package})")]
    Unsupported {
        /// What the plan needs.
        feature: &'static str,
        /// Kernel configuration option.
        option: &'static str,
        /// Kernel module.
        module: &'static str,
        /// Where the module comes from.
        package: &'static str,
    },
    /// Somebody else's set-up is in the way, and could not be put back.
    #[error(
        "{interface}: {what} is there already and could not be put back later; nothing was changed. {remedy}"
    )]
    InTheWay {
        /// The device.
        interface: String,
        /// What is there.
        what: String,
        /// What the user can do.
        remedy: &'static str,
    },
    /// The kernel refused a request.
    #[error("{interface}: cannot {operation}: {refusal}")]
    Kernel {
        /// The device.
        interface: String,
        /// What was asked.
        operation: String,
        /// The kernel's answer.
        refusal: Refusal,
    },
    /// The kernel accepted the plan and holds something else.
    #[error(
        "{interface}: the kernel does not hold what was planned: {}",
        list(differences)
    )]
    Differs {
        /// The device.
        interface: String,
        /// Every difference.
        differences: Vec<Difference>,
    },
    /// The state file cannot be used.
    #[error("{}: cannot {operation} the state file: {source}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What was to be done.
        operation: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// A file of the state cannot be used; the reason names it.
    #[error("cannot {operation}: {source}")]
    StateFile {
        /// What was to be done.
        operation: &'static str,
        /// Why not.
        source: sqm_files::Error,
    },
    /// A change failed, and so did putting things back.
    #[error("{cause}; and what was there before could not be put back: {restore}")]
    NotRestored {
        /// Why the change failed.
        cause: Box<Self>,
        /// Why putting things back failed.
        restore: Box<Self>,
    },
}

impl Error {
    /// Adds the device and the operation to a refusal.
    pub(crate) fn kernel(interface: &str, operation: impl Into<String>) -> impl FnOnce(Refusal) -> Self {
        let (interface, operation) = (interface.to_owned(), operation.into());
        move |refusal| {
            if refusal.is(rustix::io::Errno::PERM) {
                return Self::Privileges {
                    operation: format!("{interface}: {operation}"),
                };
            }
            Self::Kernel {
                interface,
                operation,
                refusal,
            }
        }
    }
}

impl Error {
    /// The same for a refusal of the firewall, which a kernel may lack.
    pub(crate) fn firewall(interface: &str, operation: impl Into<String>) -> impl FnOnce(Refusal) -> Self {
        use rustix::io::Errno;

        let other = Self::kernel(interface, operation);
        move |refusal| {
            let lacks = [
                Errno::OPNOTSUPP,
                Errno::PROTONOSUPPORT,
                Errno::NOENT,
                Errno::AFNOSUPPORT,
            ];
            if lacks.iter().any(|errno| refusal.is(*errno)) {
                return Self::Unsupported {
                    feature: "nftables for IP",
                    option: "CONFIG_NF_TABLES and CONFIG_NF_TABLES_INET",
                    module: "nf_tables",
                    package: "OpenWrt: kmod-nft-core; Debian: the full linux-image, not -cloud",
                };
            }
            other(refusal)
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

fn list(differences: &[Difference]) -> String {
    differences
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

//! Checks the privileges of this process and the features of this kernel that plans need.
//!
//! The kernel loads modules on demand, so a module that is not loaded yet is not missing.

use std::collections::BTreeSet;

use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::diff::Step;
use crate::error::Error;
use crate::netlink::socket::{NetlinkError, Socket};
use crate::netlink::{filter, tc};

/// A part of the kernel that a step may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Feature {
    Ifb,
    Qdisc(&'static str),
    /// A kind of filter on the root of HTB or HFSC.
    Filter(&'static str),
    Redirect,
}

impl Feature {
    /// The feature that a step needs, if any.
    fn of(step: &Step) -> Option<Self> {
        match step {
            Step::AddIfb { .. } => Some(Self::Ifb),
            Step::AddQdisc(_, planned) => Some(Self::Qdisc(match planned.qdisc.kind() {
                // On a kernel without cake_mq, a plain CAKE stands in for it.
                "cake_mq" => "cake",
                kind => kind,
            })),
            Step::AddFilter(_, _, planned) => Some(Self::Filter(filter::encode(planned).1)),
            Step::Redirect { .. } => Some(Self::Redirect),
            _ => None,
        }
    }

    fn missing(self) -> Error {
        let core = "OpenWrt: kmod-sched-core; Debian: the full linux-image, not -cloud";
        let more = "OpenWrt: kmod-sched; Debian: the full linux-image, not -cloud";
        let (feature, option, module, package) = match self {
            Self::Ifb => (
                "IFB devices",
                "CONFIG_IFB",
                "ifb",
                "OpenWrt: kmod-ifb; Debian: the full linux-image, not -cloud",
            ),
            Self::Qdisc("cake") => (
                "CAKE",
                "CONFIG_NET_SCH_CAKE",
                "sch_cake",
                "OpenWrt: kmod-sched-cake; Debian: the full linux-image, not -cloud",
            ),
            Self::Qdisc("fq_codel") => ("fq_codel", "CONFIG_NET_SCH_FQ_CODEL", "sch_fq_codel", core),
            Self::Qdisc("codel") => ("CoDel", "CONFIG_NET_SCH_CODEL", "sch_codel", more),
            Self::Qdisc("pie") => (
                "PIE",
                "CONFIG_NET_SCH_PIE",
                "sch_pie",
                "OpenWrt: kmod-sched-pie; Debian: the full linux-image, not -cloud",
            ),
            Self::Qdisc("sfq") => ("SFQ", "CONFIG_NET_SCH_SFQ", "sch_sfq", more),
            Self::Qdisc("tbf") => ("TBF", "CONFIG_NET_SCH_TBF", "sch_tbf", core),
            Self::Qdisc("hfsc") => ("HFSC", "CONFIG_NET_SCH_HFSC", "sch_hfsc", core),
            Self::Qdisc("htb") => ("HTB", "CONFIG_NET_SCH_HTB", "sch_htb", core),
            // The plain queues are part of every kernel with traffic control.
            Self::Qdisc(_) => ("traffic control", "CONFIG_NET_SCHED", "none", core),
            Self::Filter("fw") => ("filter by firewall mark", "CONFIG_NET_CLS_FW", "cls_fw", core),
            Self::Filter(_) => ("filter by packet content", "CONFIG_NET_CLS_U32", "cls_u32", core),
            Self::Redirect => (
                "redirect of arriving packets",
                "CONFIG_NET_SCH_INGRESS, CONFIG_NET_CLS_U32 and CONFIG_NET_ACT_MIRRED",
                "sch_ingress, cls_u32 or act_mirred",
                core,
            ),
        };
        Error::Unsupported {
            feature,
            option,
            module,
            package,
        }
    }
}

/// Fails unless this process has `CAP_NET_ADMIN`.
pub fn require_privileges(operation: &str) -> Result<(), Error> {
    let has = |sets: CapabilitySets| sets.effective.contains(CapabilitySet::NET_ADMIN);
    // If the capabilities cannot be read, the kernel's answer to the first change tells.
    if rustix::thread::capabilities(None).map_or(true, has) {
        return Ok(());
    }
    Err(Error::Privileges {
        operation: operation.to_owned(),
    })
}

/// Fails if the kernel lacks a kind of qdisc that the steps make. Changes nothing; if the steps make no qdisc, nothing is
/// requested either. Other features are not checked: if one is missing, the transaction fails and rolls back.
pub fn require_kernel(socket: &mut Socket, steps: &[Step]) -> Result<(), Error> {
    let needed: BTreeSet<Feature> = steps.iter().filter_map(Feature::of).collect();
    for feature in needed {
        if let Feature::Qdisc(kind) = feature
            && let Err(error) = tc::ask_for_kind(socket, kind)
            && is_unknown(&error)
        {
            return Err(feature.missing());
        }
    }
    Ok(())
}

/// The error for a feature that the kernel lacks, if that is why it refused the step. For a qdisc it is not: its kind was
/// checked before, and "not found" then means its parent.
pub(crate) fn missing(step: &Step, error: &NetlinkError) -> Option<Error> {
    match Feature::of(step) {
        Some(Feature::Qdisc(_)) | None => None,
        Some(feature) => is_unknown(error).then(|| feature.missing()),
    }
}

/// True if this is how the kernel refuses an unknown kind: `ENOENT` for qdiscs, filters and actions, `EOPNOTSUPP` for
/// devices.
fn is_unknown(error: &NetlinkError) -> bool {
    error.is(rustix::io::Errno::NOENT) || error.is(rustix::io::Errno::OPNOTSUPP)
}

//! Whether this process may, and this kernel can, do what plans need.
//!
//! The kernel is asked by trying on a device of our own that is down and carries no traffic; the kernel loads
//! modules by itself when asked, so a module that is only not loaded yet is no obstacle.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use sqm_core::spec::Qdisc;

use crate::diff::Step;
use crate::error::Error;
use crate::netlink::fq_codel::Purpose;
use crate::netlink::link;
use crate::netlink::redirect;
use crate::netlink::socket::{Refusal, Socket};
use crate::netlink::traffic::{self, INGRESS, INGRESS_HANDLE, NewFilter, NewQdisc, ROOT};
use crate::netlink::{filter, options};
use crate::observe;

/// Bit of `CAP_NET_ADMIN` in a capability set.
const CAP_NET_ADMIN: u32 = 12;

/// Something of the kernel that a change may need. Later ones build on earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Feature {
    Ifb,
    Qdisc(&'static str),
    /// Kind of a filter on HTB's or HFSC's root.
    Filter(&'static str),
    Ingress,
    Redirect,
}

impl Feature {
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
            // Part of every kernel with traffic control.
            Self::Qdisc(_) => ("traffic control", "CONFIG_NET_SCHED", "none", core),
            Self::Filter("fw") => ("filter by firewall mark", "CONFIG_NET_CLS_FW", "cls_fw", core),
            Self::Filter(_) => ("filter by packet content", "CONFIG_NET_CLS_U32", "cls_u32", core),
            Self::Ingress => ("ingress hook", "CONFIG_NET_SCH_INGRESS", "sch_ingress", core),
            Self::Redirect => (
                "redirect of arriving packets",
                "CONFIG_NET_CLS_U32 and CONFIG_NET_ACT_MIRRED",
                "cls_u32 or act_mirred",
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
    // Without /proc the kernel itself will refuse, and say so just as well.
    let Ok(status) = fs::read_to_string("/proc/self/status") else {
        return Ok(());
    };
    match effective_capabilities(&status) {
        Some(set) if set >> CAP_NET_ADMIN & 1 == 0 => Err(Error::Privileges {
            operation: operation.to_owned(),
        }),
        _ => Ok(()),
    }
}

/// The set after `CapEff:` in `/proc/self/status`.
fn effective_capabilities(status: &str) -> Option<u64> {
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(set.trim(), 16).ok()
}

/// Fails if the kernel lacks anything that the steps need. No device but a temporary one is touched, and none at all
/// where parameters only change.
pub fn require_kernel(socket: &mut Socket, steps: &[Step]) -> Result<(), Error> {
    let needed = needed(steps);
    if needed.is_empty() {
        return Ok(());
    }
    remove_leftovers(socket)?;
    let name = format!("{TEMPORARY}{:x}", std::process::id());
    let made = link::create(socket, &name, "ifb");
    match made {
        Err(refusal) if is_unknown(&refusal) => {
            if needed.contains(&Feature::Ifb) {
                return Err(Feature::Ifb.missing());
            }
            // Without a device to try on, the transaction itself will find out, and put everything back.
            return Ok(());
        }
        made => made.map_err(Error::kernel(&name, "add a temporary device"))?,
    }
    let links = observe::links(socket)?;
    let index = observe::find(&links, &name)?.index;
    let outcome = needed
        .iter()
        .try_for_each(|feature| probe(socket, &name, index, *feature));
    let removed = link::delete(socket, index).map_err(Error::kernel(&name, "remove the temporary device"));
    if removed.is_err() {
        // Once more, so that nothing is left; the failure is reported all the same.
        let _ = link::delete(socket, index);
    }
    outcome.and(removed)
}

/// How the name of a temporary device begins; the number of its process follows.
const TEMPORARY: &str = "sqm-";

/// Removes the temporary devices of processes that were killed while they tried.
fn remove_leftovers(socket: &mut Socket) -> Result<(), Error> {
    for link in observe::links(socket)? {
        let process = link
            .name
            .strip_prefix(TEMPORARY)
            .and_then(|n| u32::from_str_radix(n, 16).ok());
        let is_left = process.is_some_and(|n| !Path::new("/proc").join(n.to_string()).exists());
        if is_left && link.kind.as_deref() == Some("ifb") {
            link::delete(socket, link.index)
                .map_err(Error::kernel(&link.name, "remove the temporary device"))?;
        }
    }
    Ok(())
}

fn needed(steps: &[Step]) -> BTreeSet<Feature> {
    let mut needed = BTreeSet::new();
    for step in steps {
        match step {
            Step::AddIfb { .. } => needed.extend([Feature::Ifb]),
            Step::AddQdisc(_, planned) => {
                needed.extend([Feature::Qdisc(match planned.qdisc.kind() {
                    // A plain CAKE stands in for it.
                    "cake_mq" => "cake",
                    kind => kind,
                })]);
            }
            // A filter needs a root that takes one; HTB's and HFSC's come with their plan.
            Step::AddFilter(_, _, planned) => needed.extend([Feature::Filter(filter::encode(planned).1)]),
            Step::Redirect { .. } => needed.extend([Feature::Ingress, Feature::Redirect]),
            _ => {}
        }
    }
    needed
}

fn probe(socket: &mut Socket, name: &str, index: u32, feature: Feature) -> Result<(), Error> {
    const TRIED_ROOT: u32 = 0x1_0000;
    let filter = |socket: &mut Socket, parent, kind, options: &[u8]| {
        let new = NewFilter {
            device: index,
            parent,
            preference: redirect::PREFERENCE,
            protocol: traffic::PROTOCOL_ALL,
            handle: u32::from(kind == "fw"),
            kind,
            options,
        };
        new.create(socket)
    };
    let outcome = match feature {
        // The device that is tried on is one.
        Feature::Ifb => Ok(()),
        Feature::Qdisc(kind) => {
            // Roots of different numbers take each other's place.
            let number = TRIED_ROOT * (1 + NUMBERED.iter().position(|k| *k == kind).unwrap_or(0) as u32);
            sample(kind).map_or(Ok(()), |qdisc| try_root(socket, index, number, &qdisc))
        }
        Feature::Filter(kind) => {
            // A number of its own, because HTB cannot be changed into itself.
            let root = if kind == "fw" { 0x7e00_0000 } else { 0x7f00_0000 };
            let htb = try_root(socket, index, root, &Qdisc::Htb(Default::default()));
            let options = match kind {
                "fw" => Vec::new(),
                _ => filter::everything(),
            };
            htb.and_then(|()| filter(socket, root, kind, &options))
        }
        Feature::Ingress => {
            let (parent, handle) = (INGRESS, INGRESS_HANDLE);
            NewQdisc {
                device: index,
                parent,
                handle,
                kind: "ingress",
                options: &[],
                stab: None,
            }
            .create(socket)
        }
        Feature::Redirect => filter(socket, INGRESS_HANDLE, redirect::KIND, &redirect::encode(index)),
    };
    match outcome {
        Err(refusal) if is_unknown(&refusal) => Err(feature.missing()),
        outcome => outcome.map_err(Error::kernel(name, format!("try {feature:?}"))),
    }
}

/// The kinds that are tried.
const NUMBERED: [&str; 8] = ["cake", "fq_codel", "codel", "pie", "sfq", "tbf", "hfsc", "htb"];

/// Some qdisc of that kind; `None` for those of every kernel.
fn sample(kind: &str) -> Option<Qdisc> {
    let words = match kind {
        "tbf" => "tbf rate 1mbit burst 2000 limit 2000",
        kind if NUMBERED.contains(&kind) => kind,
        _ => return None,
    };
    Qdisc::parse(words).ok()
}

fn try_root(socket: &mut Socket, device: u32, handle: u32, qdisc: &Qdisc) -> Result<(), Refusal> {
    NewQdisc {
        device,
        parent: ROOT,
        handle,
        kind: qdisc.kind(),
        options: &options::encode(qdisc, Purpose::Create),
        stab: None,
    }
    .create(socket)
}

/// How the kernel says that it does not know a kind: of qdisc, filter and action, and of device.
fn is_unknown(refusal: &Refusal) -> bool {
    refusal.is(rustix::io::Errno::NOENT) || refusal.is(rustix::io::Errno::OPNOTSUPP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capability_set_is_read() {
        assert_eq!(
            effective_capabilities("Name:\tsqm\nCapEff:\t000001ffffffffff\n"),
            Some(0x1ff_ffff_ffff)
        );
        assert_eq!(effective_capabilities("Name:\tsqm\n"), None);
    }
}

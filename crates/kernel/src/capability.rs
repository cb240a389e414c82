//! Whether this process may, and this kernel can, do what plans need.
//!
//! The kernel is asked by trying on a device of our own that is down and carries no traffic; the kernel loads
//! modules by itself when asked, so a module that is only not loaded yet is no obstacle.

use std::collections::BTreeSet;
use std::fs;

use sqm_plan::plan::{Plan, Tree};

use crate::error::Error;
use crate::netlink::link;
use crate::netlink::redirect;
use crate::netlink::socket::{Refusal, Socket};
use crate::netlink::traffic::{self, INGRESS, INGRESS_HANDLE, NewQdisc, ROOT};
use crate::netlink::{cake, fq_codel, htb};
use crate::observe;

/// Bit of `CAP_NET_ADMIN` in a capability set.
const CAP_NET_ADMIN: u32 = 12;

/// Something of the kernel that a plan may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Feature {
    Ifb,
    Cake,
    FqCodel,
    Htb,
    Ingress,
    Redirect,
}

impl Feature {
    fn missing(self) -> Error {
        let core = "OpenWrt: kmod-sched-core; Debian: the full linux-image, not -cloud";
        let (feature, option, module, package) = match self {
            Self::Ifb => (
                "IFB devices",
                "CONFIG_IFB",
                "ifb",
                "OpenWrt: kmod-ifb; Debian: the full linux-image, not -cloud",
            ),
            Self::Cake => (
                "CAKE",
                "CONFIG_NET_SCH_CAKE",
                "sch_cake",
                "OpenWrt: kmod-sched-cake; Debian: the full linux-image, not -cloud",
            ),
            Self::FqCodel => ("fq_codel", "CONFIG_NET_SCH_FQ_CODEL", "sch_fq_codel", core),
            Self::Htb => ("HTB", "CONFIG_NET_SCH_HTB", "sch_htb", core),
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

/// Fails if the kernel lacks anything that one of the plans needs. No device but a temporary one is touched.
pub fn require_kernel(socket: &mut Socket, plans: &[&Plan]) -> Result<(), Error> {
    let needed = needed(plans);
    if needed.is_empty() {
        return Ok(());
    }
    let name = format!("sqm-{:x}", std::process::id());
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
    outcome.and(removed)
}

fn needed(plans: &[&Plan]) -> BTreeSet<Feature> {
    let mut needed = BTreeSet::new();
    for plan in plans {
        for Tree { qdiscs, .. } in plan.egress.iter().chain(&plan.ingress) {
            needed.extend(qdiscs.iter().map(|q| match q.qdisc.kind() {
                "cake" => Feature::Cake,
                "htb" => Feature::Htb,
                _ => Feature::FqCodel,
            }));
        }
        if plan.ingress.is_some() {
            needed.extend([Feature::Ifb, Feature::Ingress, Feature::Redirect]);
        }
    }
    needed
}

/// Later features build on earlier ones: the redirect hangs on the ingress hook.
fn probe(socket: &mut Socket, name: &str, index: u32, feature: Feature) -> Result<(), Error> {
    let root = |socket: &mut Socket, handle, kind, options: &[u8]| {
        NewQdisc {
            device: index,
            parent: ROOT,
            handle,
            kind,
            options,
            stab: None,
        }
        .create(socket)
    };
    let outcome = match feature {
        // The device that is tried on is one.
        Feature::Ifb => Ok(()),
        Feature::Cake => root(socket, 0x1_0000, "cake", &cake::encode(&Default::default())),
        Feature::FqCodel => root(
            socket,
            0x2_0000,
            "fq_codel",
            &fq_codel::encode(&Default::default(), fq_codel::Purpose::Create),
        ),
        Feature::Htb => root(socket, 0x3_0000, "htb", &htb::encode_root(&Default::default())),
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
        Feature::Redirect => {
            let options = redirect::encode(index);
            traffic::create_filter(
                socket,
                index,
                INGRESS_HANDLE,
                redirect::PREFERENCE,
                redirect::KIND,
                &options,
            )
        }
    };
    match outcome {
        Err(refusal) if is_unknown(&refusal) => Err(feature.missing()),
        outcome => outcome.map_err(Error::kernel(name, format!("try {feature:?}"))),
    }
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

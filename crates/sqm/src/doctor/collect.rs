//! Inspects the machine and records the facts that findings are based on. Changes nothing. Without privileges some
//! facts are missing, and so are the findings that need them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use sqm_api::client;
use sqm_api::status::{State, Status};
use sqm_configuration::Draft;
use sqm_core::spec::cake::{Cells, Framing};
use sqm_core::spec::{LinkLayer, Qdisc};
use sqm_kernel::netlink::link::Link;
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::netlink::{ethtool, flowtable};
use sqm_kernel::observe::{self, Observed, RootId};
use sqm_kernel::routes::Routes;
use sqm_kernel::uplink;
use sqm_kernel::verify::{Comparison, compare};
use sqm_kernel::{Difference, Error, capability, diff, foreign, stack};
use sqm_plan::plan::{Plan, Tree};
use sqm_plan::uci;

use super::facts::{Device, Facts, FlowOffload, Section};
use super::processors;
use crate::rate_controllers::RateControllers;
use sqm_kernel::status::{InterfaceStatus, rates};

/// Kinds of devices that pass packets on to the device below them.
const PASSING: [&str; 3] = ["vlan", "macvlan", "ipvlan"];

/// Collects the facts. Queues and processors are observed for the duration `look`.
pub(crate) fn collect(
    socket: &mut Socket,
    links: &[Link],
    plans: &[Plan],
    config: &[u8],
    records: &Path,
    look: Duration,
) -> Result<Facts, Error> {
    let before = Moment::now(socket, links, plans, records);
    std::thread::sleep(look);
    let after = Moment::now(socket, links, plans, records);
    let status = client::wait(client::in_folder(records).status_without_queues()).ok();
    let controllers = status.as_ref().map(RateControllers::of).unwrap_or_default();
    let draft = Draft::of(config).ok();
    let written_sections = draft.as_ref().map(Draft::sections);
    let mut sections = Vec::new();
    let mut missing = Vec::new();
    for plan in plans {
        let mut section = section(socket, links, plan, records, &controllers)?;
        if let Some(all) = &written_sections {
            (section.index, section.options) = written(all, &plan.interface);
        }
        section.observe(plan, &before, &after, look);
        sections.push(section);
        missing.extend(missing_for(socket, links, plan));
    }
    missing.sort();
    missing.dedup();
    if let Some(status) = &status {
        mark_stopped(&mut sections, status);
    }
    Ok(Facts {
        sections,
        devices: devices(socket, links),
        default_devices: Routes::read().default_devices(),
        missing,
        unread: unread(),
        flow_offload: flow_offload(),
        processors: after.processors.since(&before.processors),
    })
}

pub(super) fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Counters of queues and processors at one moment.
struct Moment {
    queues: Vec<Option<InterfaceStatus>>,
    processors: processors::Look,
}

impl Moment {
    fn now(socket: &mut Socket, links: &[Link], plans: &[Plan], records: &Path) -> Self {
        Self {
            queues: plans
                .iter()
                .map(|plan| InterfaceStatus::read(socket, links, &plan.interface, records).ok())
                .collect(),
            processors: processors::Look::now(),
        }
    }

    fn of(&self, interface: &str) -> Option<&InterfaceStatus> {
        self.queues
            .iter()
            .flatten()
            .find(|queues| queues.interface == interface)
    }
}

/// The index of the interface's section in the file, and its options.
fn written(sections: &[uci::Section<'_>], interface: &str) -> (usize, BTreeMap<String, String>) {
    const ON: [&str; 5] = ["1", "on", "true", "yes", "enabled"];
    let found = sections.iter().find(|section| {
        let has = |name: &str, values: &[&str]| {
            section
                .settings
                .iter()
                .any(|setting| setting.name == name && values.contains(&setting.value))
        };
        section.kind == "queue" && has("interface", &[interface]) && has("enabled", &ON)
    });
    found.map_or_else(Default::default, |section| {
        let options = section.settings.iter();
        let options = options.map(|setting| (setting.name.to_owned(), setting.value.to_owned()));
        (section.index, options.collect())
    })
}

fn section(
    socket: &mut Socket,
    links: &[Link],
    plan: &Plan,
    records: &Path,
    controllers: &RateControllers,
) -> Result<Section, Error> {
    let mut section = Section {
        interface: plan.interface.clone(),
        ..Section::default()
    };
    let device = stack::device(links, &plan.interface);
    section.stack = device.stack.iter().map(ToString::to_string).collect();
    let trees = [(&plan.interface, &plan.egress), (&plan.ifb(), &plan.ingress)];
    let header = device.header as i32;
    for (name, tree) in trees {
        let Some(tree) = tree else { continue };
        let counted = Counted::of(tree);
        (section.overhead_bytes, section.cells) = counted.above_ip(header);
        if counted.stab.is_some() {
            section.size_tables.push(name.clone());
        }
        if counted.twice() {
            section.counted_twice.push(format!(
                "the plan for {name} has a size table with overhead {}, and CAKE with an overhead of its own",
                counted.stab.unwrap_or_default()
            ));
        }
    }
    if !links.iter().any(|link| link.name == plan.interface) {
        section.differences = vec![format!("there is no network device {}", plan.interface)];
        section.root = "nothing".to_owned();
        return Ok(section);
    }
    let observed = match Observed::read(socket, plan) {
        // Only root may read the firewall.
        Err(Error::Privileges { .. }) => Observed::read(
            socket,
            &Plan {
                firewall: None,
                ..plan.clone()
            },
        )?,
        observed => observed?,
    };
    if plan.ingress.is_some() {
        section.ifb_shared_with =
            observe::others_redirecting_to(socket, links, &plan.ifb(), &plan.interface)?;
    }
    let found = Comparison {
        differences: compare(plan, &observed),
        observed,
    };
    let (differences, sentence) = controllers.set_apart(plan, &found);
    section.differences = differences.iter().map(Difference::to_string).collect();
    section.rate_controller = sentence;
    let root = found
        .observed
        .device
        .qdiscs
        .iter()
        .find(|qdisc| qdisc.parent.is_none());
    section.root = root.map_or_else(
        || "nothing".to_owned(),
        |root| format!("{} {}", root.kind, root.handle),
    );
    section.owner = plan.egress.as_ref().and_then(Tree::root).and_then(|planned| {
        let planned = RootId {
            kind: planned.qdisc.kind().to_owned(),
            handle: planned.handle,
        };
        foreign::other_owner(&found.observed.device, Some(&planned), records)
    });
    Ok(section)
}

/// The framing that the qdiscs of a tree add to a packet.
struct Counted {
    /// Overhead in the size table, on top of the bytes that the kernel counts.
    stab: Option<i32>,
    stab_is_atm: bool,
    cake: Option<Framing>,
}

impl Counted {
    fn of(tree: &Tree) -> Self {
        let stab = tree.root().and_then(|root| root.stab.as_ref());
        let cake = tree.qdiscs.iter().find_map(|planned| match &planned.qdisc {
            Qdisc::Cake(cake) | Qdisc::CakeMq(cake) => Some(cake.framing),
            _ => None,
        });
        Self {
            stab: stab.map(|stab| stab.overhead),
            stab_is_atm: stab.is_some_and(|stab| stab.linklayer == LinkLayer::Atm),
            cake,
        }
    }

    fn twice(&self) -> bool {
        let cake_counts =
            |framing: &Framing| framing.from_ip && framing.overhead != 0 || framing.cells != Cells::None;
        self.stab.is_some() && self.cake.as_ref().is_some_and(cake_counts)
    }

    /// Bytes above the IP packet, and the kind of cells. `header` is the link header that the kernel counts itself.
    fn above_ip(&self, header: i32) -> (i32, String) {
        match (self.stab, &self.cake) {
            (Some(overhead), _) => {
                let cells = if self.stab_is_atm { "atm" } else { "none" };
                (overhead.saturating_add(header), cells.to_owned())
            }
            (None, Some(framing)) => {
                let cells = match framing.cells {
                    Cells::None => "none",
                    Cells::Atm => "atm",
                    Cells::Ptm => "ptm",
                };
                let overhead = if framing.from_ip {
                    framing.overhead.into()
                } else {
                    header
                };
                (overhead, cells.to_owned())
            }
            // The tree adds nothing to the bytes that the kernel counts.
            (None, None) => (header, "none".to_owned()),
        }
    }
}

impl Section {
    /// Records the planned rates, and the throughput and backlog during the observation.
    fn observe(&mut self, plan: &Plan, before: &Moment, after: &Moment, look: Duration) {
        let faces_home = self.options.get("facing").is_some_and(|facing| facing == "lan");
        let (upload, download) = if faces_home {
            (&plan.ingress, &plan.egress)
        } else {
            (&plan.egress, &plan.ingress)
        };
        self.upload_kbit = upload.as_ref().and_then(planned_kbit);
        self.download_kbit = download.as_ref().and_then(planned_kbit);
        self.upload_marks = upload.as_ref().and_then(marks);
        let (Some(before), Some(after)) = (before.of(&plan.interface), after.of(&plan.interface)) else {
            return;
        };
        let kbit = |before: u64, after: u64| {
            let bits = after.saturating_sub(before) as f64 * 8.0;
            (bits / 1000.0 / look.as_secs_f64().max(0.001)) as u64
        };
        let sent = |queues: &sqm_kernel::status::DirectionStatus| {
            queues.qdiscs.first().map_or(0, |root| root.statistics.sent_bytes)
        };
        let egress = kbit(sent(&before.egress), sent(&after.egress));
        let ingress = match (&before.ingress, &after.ingress) {
            (Some(before), Some(after)) => kbit(sent(before), sent(after)),
            _ => 0,
        };
        (self.upload_now_kbit, self.download_now_kbit) = if faces_home {
            (ingress, egress)
        } else {
            (egress, ingress)
        };
        self.backlog_bytes = u64::from(after.egress.backlog_bytes)
            + after
                .ingress
                .as_ref()
                .map_or(0, |ingress| ingress.backlog_bytes.into());
    }
}

fn planned_kbit(tree: &Tree) -> Option<u64> {
    let rate = match tree.root().map(|root| &root.qdisc) {
        Some(Qdisc::Cake(cake) | Qdisc::CakeMq(cake)) => cake.bandwidth?.bits_per_sec(),
        Some(Qdisc::Tbf(tbf)) => tbf.rate.bits_per_sec(),
        _ => rates(&tree.classes.first()?.class).1,
    };
    Some(rate / 1000)
}

/// True if the leaves mark with ECN; none if their kind has no such option.
fn marks(tree: &Tree) -> Option<bool> {
    tree.leaves().find_map(|leaf| match &leaf.qdisc {
        Qdisc::FqCodel(codel) => Some(codel.ecn),
        Qdisc::Codel(codel) => Some(codel.ecn),
        Qdisc::Pie(pie) => Some(pie.ecn),
        _ => None,
    })
}

/// The facts that only root may read.
fn unread() -> Vec<String> {
    match capability::require_privileges("sqm doctor") {
        Ok(()) => Vec::new(),
        Err(_) => vec![
            "whether the kernel has all features that the configuration needs: run it as root".to_owned(),
            "whether the firewall has the rules of the configuration, and forwards packets past the queues: run it \
             as root"
                .to_owned(),
        ],
    }
}

/// The kernel feature that a plan needs and the kernel lacks. None without privileges as well, because features have
/// to be tried out.
fn missing_for(socket: &mut Socket, links: &[Link], plan: &Plan) -> Option<String> {
    capability::require_privileges("sqm doctor").ok()?;
    links.iter().find(|link| link.name == plan.interface)?;
    let steps = diff::steps(plan, &Observed::read(socket, plan).ok()?);
    match capability::require_kernel(socket, &steps) {
        Err(missing @ Error::Unsupported { .. }) => Some(missing.to_string()),
        _ => None,
    }
}

fn devices(socket: &mut Socket, links: &[Link]) -> Vec<Device> {
    let features = Socket::generic()
        .ok()
        .and_then(|mut socket| ethtool::features(&mut socket, links.iter().map(|link| link.index)).ok())
        .unwrap_or_default();
    let sessions = stack::pppoe_devices();
    let routes = Routes::read();
    let name_of = |index: u32| {
        links
            .iter()
            .find(|link| link.index == index)
            .map(|link| link.name.clone())
    };
    links
        .iter()
        .map(|link| {
            let kind = link.kind.clone().unwrap_or_default();
            let (lower, possible_lowers) = match kind.as_str() {
                "ppp" => below_ppp(&sessions),
                kind if PASSING.contains(&kind) => (link.lower.and_then(name_of), Vec::new()),
                kind if uplink::is_tunnel(Some(kind)) && link.up => {
                    one_or_several(uplink::carriers(socket, links, link))
                }
                _ => (None, Vec::new()),
            };
            Device {
                name: link.name.clone(),
                kind,
                up: link.up,
                lower,
                master: link.master.and_then(name_of),
                wireless: Path::new("/sys/class/net")
                    .join(&link.name)
                    .join("phy80211")
                    .exists(),
                leads_to_hosts_only: routes.leads_to_hosts_only(&link.name),
                possible_lowers,
                features: features.get(&link.name).cloned().unwrap_or_default(),
            }
        })
        .collect()
}

/// The device below a PPP device, or all devices of which one may be below it: the kernel does not say which session belongs to
/// which PPP device.
fn below_ppp(sessions: &BTreeSet<String>) -> (Option<String>, Vec<String>) {
    one_or_several(sessions.iter().cloned().collect())
}

/// The only device, or all devices of which one is meant.
fn one_or_several(mut devices: Vec<String>) -> (Option<String>, Vec<String>) {
    match devices.len() {
        0 | 1 => (devices.pop(), Vec::new()),
        _ => (None, devices),
    }
}

/// Marks the sections that were stopped by hand, which only a daemon knows.
fn mark_stopped(sections: &mut [Section], status: &Status) {
    let interfaces = status.interfaces.iter();
    let stopped: Vec<&str> = interfaces
        .filter(|interface| interface.state == State::Stopped)
        .map(|interface| interface.interface.as_str())
        .collect();
    for section in sections {
        section.stopped = stopped.contains(&section.interface.as_str());
    }
}

fn flow_offload() -> FlowOffload {
    let mut offload = FlowOffload {
        configured: offload_options(&fs::read(Path::new("/etc/config/firewall")).unwrap_or_default()),
        ..FlowOffload::default()
    };
    let tables = Socket::of_firewall()
        .ok()
        .and_then(|mut socket| flowtable::list(&mut socket).ok());
    for table in tables.unwrap_or_default() {
        let taken = if table.hardware {
            &mut offload.hardware
        } else {
            &mut offload.software
        };
        taken.extend(table.devices);
    }
    offload
}

/// Options of OpenWrt's firewall that enable flow offload.
fn offload_options(firewall: &[u8]) -> Vec<String> {
    let Ok(firewall) = Draft::of(firewall) else {
        return Vec::new();
    };
    firewall
        .sections()
        .iter()
        .filter(|section| section.kind == "defaults")
        .flat_map(|section| &section.settings)
        .filter(|setting| setting.name.starts_with("flow_offloading") && setting.value == "1")
        .map(|setting| setting.name.to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ppp_device_is_above_the_only_device_with_sessions() {
        let below = |devices: &[&str]| below_ppp(&devices.iter().map(ToString::to_string).collect());
        assert_eq!(below(&[]), (None, Vec::new()));
        assert_eq!(below(&["eth1"]), (Some("eth1".to_owned()), Vec::new()));
        let several = ["eth0.7", "eth1"];
        assert_eq!(below(&several), (None, several.map(str::to_owned).to_vec()));
    }

    #[test]
    fn flow_offload_is_read_from_the_firewalls_configuration() {
        let text = b"config defaults\n\toption flow_offloading '1'\n\toption flow_offloading_hw '0'\nconfig zone\n\toption flow_offloading '1'\n";
        assert_eq!(offload_options(text), ["flow_offloading"]);
        assert_eq!(offload_options(b"\0"), Vec::<String>::new());
    }
}

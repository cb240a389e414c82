//! Derives findings from facts, without side effects. Each rule is a function that returns its finding or none.

use sqm_api::doctor::{Finding, Fix};
use sqm_kernel::uplink::is_tunnel;
use sqm_plan::OptionValue;
use sqm_plan::settings::{Facing, Mechanism};
use sqm_plan::side::Side;

use super::facts::{Device, Facts, Section};

/// Upload rate, kbit/s, below which ECN is advised against: on so slow a line, dropping packets drains the queue
/// sooner than marking them. The value is a choice.
const SLOW_KBIT: u64 = 4000;
/// A processor with less idle time than this, in percent, is busy. The figure is an average, while a shaper needs the
/// processor within the time of one packet. The value is a choice.
const LEAST_IDLE_PERCENT: f64 = 10.0;
/// A busy processor that spends at least this share of its time on packets is the bottleneck, in percent. The
/// threshold is low because the programs that send and receive may share the processor. The value is a choice.
const MOST_PACKETS_PERCENT: f64 = 20.0;
/// Features that aggregate packets to up to 64 KiB.
const AGGREGATING: [(&str, &str); 5] = [
    ("rx-gro", "gro"),
    ("rx-gro-hw", "rx-gro-hw"),
    ("tx-generic-segmentation", "gso"),
    ("tx-tcp-segmentation", "tso"),
    ("rx-lro", "lro"),
];

/// Number of layers of devices that are looked at, so that a loop ends. A choice: PPPoE over a VLAN has three.
const DEEPEST: usize = 8;

/// A check of the machine.
type MachineCheck = fn(&Facts) -> Option<Finding>;
/// A check of a section.
type SectionCheck = fn(&Facts, &Section) -> Option<Finding>;

const MACHINE_CHECKS: [MachineCheck; 2] = [missing, flow_offload];
const SECTION_CHECKS: [SectionCheck; 10] = [
    |facts, section| {
        trunk(facts, section)
            .or_else(|| untagged_trunk(facts, section))
            .or_else(|| wrong_interface(facts, section))
    },
    faces_wrong_way,
    |_, section| swapped_rates(section),
    |facts, section| {
        no_device(facts, section)
            .or_else(|| stopped(section))
            .or_else(|| other_queue(section))
    },
    shared_ifb,
    |_, section| no_overhead(section),
    |_, section| counted_twice(section),
    aggregates,
    |_, section| marks_on_slow_line(section),
    processor_bound,
];

/// All findings of these facts.
pub(crate) fn diagnose(facts: &Facts) -> Vec<Finding> {
    let of_machine = MACHINE_CHECKS.iter().filter_map(|check| check(facts));
    let of_sections = facts
        .sections
        .iter()
        .flat_map(|section| SECTION_CHECKS.iter().filter_map(|check| check(facts, section)));
    of_machine.chain(of_sections).collect()
}

/// Number of checks that were made. Those of the machine need facts that only root may read.
pub(crate) fn checks(facts: &Facts) -> usize {
    let of_machine = if facts.unread.is_empty() {
        MACHINE_CHECKS.len()
    } else {
        0
    };
    match facts.sections.len() {
        0 => 0,
        sections => of_machine + sections * SECTION_CHECKS.len(),
    }
}

/// The fix that sets one option of a section.
fn set(section: &Section, option: OptionValue) -> Option<Fix> {
    let section = section.index;
    let options = vec![option];
    Some(Fix::SetOptions { section, options })
}

/// Differences from the configuration that are meant to be there.
pub(crate) fn notes(facts: &Facts) -> Vec<String> {
    facts
        .sections
        .iter()
        .filter_map(|section| section.rate_controller.clone())
        .collect()
}

/// Facts that the kernel does not tell, in sentences: no faults, but reasons why a finding may be missing.
pub(crate) fn unknown(facts: &Facts) -> Vec<String> {
    let of_devices = facts
        .devices
        .iter()
        .filter_map(|device| {
            let name = &device.name;
            let carries = match device.kind.as_str() {
                "ppp" => format!("carries the PPPoE session of {name}"),
                _ => format!("carries the packets of the tunnel {name}"),
            };
            if !device.possible_lowers.is_empty() {
                let all = device.possible_lowers.join(" and ");
                return Some(format!("the kernel does not say which of {all} {carries}"));
            }
            let is_hidden = device.is_tunnel() && device.lower.is_none();
            (is_hidden && facts.default_devices.contains(name)).then(|| {
                format!(
                    "the kernel does not say which device {carries}: if a section shapes another device, it cannot be \
                     checked whether that leads to the internet"
                )
            })
        });
    of_devices.chain(facts.unread.iter().cloned()).collect()
}

fn missing(facts: &Facts) -> Option<Finding> {
    (!facts.missing.is_empty()).then(|| Finding {
        id: "missing-module".to_owned(),
        interface: None,
        what: "the kernel lacks a feature that the configuration needs: the line cannot be shaped".to_owned(),
        evidence: facts.missing.clone(),
        remedy: "install the package named above, then run 'sqm start'".to_owned(),
        fix: None,
    })
}

fn flow_offload(facts: &Facts) -> Option<Finding> {
    let offload = &facts.flow_offload;
    let shaped = |name: &String| {
        facts
            .sections
            .iter()
            .any(|section| section.interface == *name || facts.is_below(name, &section.interface))
    };
    let hardware: Vec<&String> = offload.hardware.iter().filter(|name| shaped(name)).collect();
    let software: Vec<&String> = offload.software.iter().filter(|name| shaped(name)).collect();
    if facts.sections.is_empty()
        || (hardware.is_empty() && software.is_empty() && offload.configured.is_empty())
    {
        return None;
    }
    let mut evidence: Vec<String> = Vec::new();
    evidence.extend(
        hardware
            .iter()
            .map(|name| format!("a hardware flowtable forwards packets of {name}")),
    );
    evidence.extend(
        software
            .iter()
            .map(|name| format!("a flowtable forwards packets of {name}")),
    );
    evidence.extend(
        offload
            .configured
            .iter()
            .map(|option| format!("/etc/config/firewall: option {option} '1'")),
    );
    let in_hardware = !hardware.is_empty() || offload.configured.iter().any(|o| o == "flow_offloading_hw");
    Some(Finding {
        id: if in_hardware {
            "hardware-offload"
        } else {
            "software-offload"
        }
        .to_owned(),
        interface: None,
        what: if in_hardware {
            "flow offloading in hardware forwards packets past the queues: they are not shaped".to_owned()
        } else {
            "flow offloading in software may forward packets past the ingress queues: on some devices the \
             download is then not shaped"
                .to_owned()
        },
        evidence,
        remedy: "disable flow offloading (OpenWrt: uci set firewall.@defaults[0].flow_offloading=0; uci set \
                 firewall.@defaults[0].flow_offloading_hw=0; uci commit firewall; service firewall restart)"
            .to_owned(),
        fix: None,
    })
}

/// The shaped device is a trunk: a cable to a switch that carries the internet and the home network in separate
/// VLANs.
fn trunk(facts: &Facts, section: &Section) -> Option<Finding> {
    let wan = facts.wan()?;
    let name = &section.interface;
    let tagged = facts.device(wan).is_some_and(|device| device.kind == "vlan");
    if !tagged || !facts.is_below(name, wan) {
        return None;
    }
    let others: Vec<&str> = facts
        .devices
        .iter()
        .filter(|device| device.kind == "vlan" && device.lower.as_deref() == Some(name) && device.name != wan)
        .map(|device| device.name.as_str())
        .collect();
    (!others.is_empty()).then(|| Finding {
        id: "trunk".to_owned(),
        interface: Some(name.clone()),
        what: format!(
            "{name} carries the traffic of the internet and of the home network: downloads also leave through it, \
             so both directions are limited to the lower rate"
        ),
        evidence: vec![
            format!("{}; {wan} is a VLAN on {name}", facts.default_route()),
            format!("{} {} on {name}, too", others.join(" and "), if others.len() == 1 { "is" } else { "are" }),
        ],
        remedy: format!("set option interface '{wan}'"),
        fix: set(section, OptionValue::Interface(wan.to_owned())),
    })
}

/// The shaped device is a trunk that carries the internet without a VLAN tag, and the home network in VLANs.
fn untagged_trunk(facts: &Facts, section: &Section) -> Option<Finding> {
    let name = &section.interface;
    if facts.wan()? != name {
        return None;
    }
    let leads_home = |device: &Device| {
        let bridge = device.master.as_ref().and_then(|master| facts.device(master));
        device.leads_to_hosts_only || bridge.is_some_and(|bridge| bridge.leads_to_hosts_only)
    };
    let vlans: Vec<&str> = facts
        .devices
        .iter()
        .filter(|device| device.kind == "vlan" && device.up && device.lower.as_ref() == Some(name))
        .filter(|device| leads_home(device))
        .map(|device| device.name.as_str())
        .collect();
    (!vlans.is_empty()).then(|| Finding {
        id: "trunk".to_owned(),
        interface: Some(name.clone()),
        what: format!(
            "{name} carries the internet without a VLAN tag and a home network in a VLAN: its downloads also leave \
             through {name}, so both directions are limited to the lower rate"
        ),
        evidence: vec![
            format!("{}, which has no VLAN tag", facts.default_route()),
            format!("{} on {name} with a network of hosts: {}", plural(vlans.len(), "VLAN"), vlans.join(", ")),
        ],
        remedy: format!(
            "let the switch tag the internet as well, and shape that VLAN; or move the home network to another port \
             than {name}"
        ),
        fix: None,
    })
}

fn plural(count: usize, word: &str) -> String {
    match count {
        1 => format!("1 {word}"),
        n => format!("{n} {word}s"),
    }
}

/// The shaped device does not lead to the internet.
fn wrong_interface(facts: &Facts, section: &Section) -> Option<Finding> {
    let wan = facts.wan()?;
    let name = &section.interface;
    let leads_to_it =
        |wan: &String| wan == name || facts.may_be_below(name, wan) || facts.may_be_below(wan, name);
    // A missing device may appear later. If a PPP session is down and another line stands in, the configuration is
    // still right.
    let device = facts.device(name)?;
    let carries_wan_bridge = device.master.as_deref() == Some(wan);
    if section.faces_home() || carries_wan_bridge || facts.default_devices.iter().any(leads_to_it) {
        return None;
    }
    // A user who shapes two devices has a reason for the second one, such as a second line. It leads to the home network if it
    // is a bridge, a port of one, or an access point.
    if facts.sections.len() > 1 {
        let is_home = device.kind == "bridge" || device.master.is_some() || device.wireless;
        return is_home.then(|| faces_home_unsaid(facts, section));
    }
    Some(Finding {
        id: "wrong-interface".to_owned(),
        interface: Some(name.clone()),
        what: format!(
            "{name} does not lead to the internet: what is shaped there as upload is the download, or no traffic \
             of the line at all"
        ),
        evidence: vec![
            facts.default_route(),
            format!("no default route goes through {name}"),
        ],
        remedy: format!(
            "set option interface '{wan}'; or set option facing 'lan' if {name} leads to the home network"
        ),
        fix: set(section, OptionValue::Interface(wan.to_owned())),
    })
}

/// A further section for a device of the home network, without `facing 'lan'`.
fn faces_home_unsaid(facts: &Facts, section: &Section) -> Finding {
    let name = &section.interface;
    Finding {
        id: "wrong-interface".to_owned(),
        interface: Some(name.clone()),
        what: format!("{name} leads to the home network: upload and download are swapped there"),
        evidence: vec![
            facts.default_route(),
            format!(
                "{name} is a bridge, a port of a bridge, or an access point, and no default route goes through it"
            ),
            "the section has no option facing 'lan'".to_owned(),
        ],
        remedy: "set option facing 'lan'".to_owned(),
        fix: set(section, OptionValue::Facing(Facing::Lan)),
    }
}

/// `facing 'lan'` on the device that leads to the internet.
fn faces_wrong_way(facts: &Facts, section: &Section) -> Option<Finding> {
    let name = &section.interface;
    (section.faces_home() && facts.leads_out(name)).then(|| Finding {
        id: "wrong-direction".to_owned(),
        interface: Some(name.clone()),
        what: format!(
            "{name} leads to the internet but is configured to face the home network: upload and \
            download are swapped"
        ),
        evidence: vec!["option facing 'lan'".to_owned(), facts.default_route()],
        remedy: "set option facing 'internet'".to_owned(),
        fix: set(section, OptionValue::Facing(Facing::Internet)),
    })
}

/// The upload is at least twice as fast as the download, which hardly any line offers.
fn swapped_rates(section: &Section) -> Option<Finding> {
    let (up, down) = (section.upload_kbit?, section.download_kbit?);
    (up >= down.saturating_mul(2)).then(|| Finding {
        id: "swapped-rates".to_owned(),
        interface: Some(section.interface.clone()),
        what: "the upload is configured to be faster than the download: the two are probably swapped"
            .to_owned(),
        evidence: vec![format!("upload {up} kbit/s, download {down} kbit/s")],
        remedy: format!(
            "set option download '{up}' and option upload '{down}', unless the upload of this line is really the \
             faster direction"
        ),
        // The line may really be like that.
        fix: None,
    })
}

fn no_device(facts: &Facts, section: &Section) -> Option<Finding> {
    let name = &section.interface;
    if facts.device(name).is_some() {
        return None;
    }
    let wan = facts.wan();
    let meant = wan.map(|wan| format!("; if you mean {wan}, set option interface '{wan}'"));
    Some(Finding {
        id: "no-device".to_owned(),
        interface: Some(name.clone()),
        what: format!("there is no network device {name}: nothing is shaped there"),
        evidence: vec![facts.default_route()],
        remedy: format!(
            "check the name; if the device appears later, 'sqm daemon' shapes it then{}",
            meant.unwrap_or_default()
        ),
        fix: None,
    })
}

/// 'sqm stop' has stopped the shaping.
fn stopped(section: &Section) -> Option<Finding> {
    (section.stopped && !section.differences.is_empty()).then(|| Finding {
        id: "stopped".to_owned(),
        interface: Some(section.interface.clone()),
        what: "shaping was stopped by hand: the line is not shaped until it is started again".to_owned(),
        evidence: vec![
            "the daemon says that the interface was stopped, and leaves it so".to_owned(),
            format!("the root of {} is {}", section.interface, section.root),
        ],
        remedy: "'sqm start'".to_owned(),
        fix: Some(Fix::Start),
    })
}

/// Other queues are in place of ours.
fn other_queue(section: &Section) -> Option<Finding> {
    if section.differences.is_empty() {
        return None;
    }
    let by = section.owner.as_ref();
    let mut evidence = vec![format!("the root of {} is {}", section.interface, section.root)];
    evidence.extend(by.map(|owner| format!("set up by {owner}")));
    evidence.extend(section.differences.iter().take(5).cloned());
    Some(Finding {
        id: if by.is_some() { "other-queue" } else { "not-shaped" }.to_owned(),
        interface: Some(section.interface.clone()),
        what: match by {
            Some(_) => "another program has set up its own queues: the line is not shaped as configured",
            None => "the line is not shaped as configured",
        }
        .to_owned(),
        evidence,
        remedy: "stop any other program that shapes this device, then run 'sqm start'; 'sqm daemon' repairs later \
            changes".to_owned(),
        fix: Some(Fix::Start),
    })
}

fn no_overhead(section: &Section) -> Option<Finding> {
    let pppoe = section.stack.iter().any(|layer| layer == "PPPoE");
    // If neither direction is shaped, nothing counts overhead.
    section.upload_kbit.or(section.download_kbit)?;
    if section.overhead_bytes > 0 || (section.cells == "none" && !pppoe) {
        return None;
    }
    let evidence = [
        Some(format!(
            "packets are counted with {} bytes of overhead",
            section.overhead_bytes
        )),
        (section.cells != "none")
            .then(|| format!("the configured link layer is {}, as on DSL", section.cells)),
        pppoe.then(|| format!("{} is PPPoE", section.interface)),
    ];
    let (overhead, name) = match section.cells.as_str() {
        "atm" => (44, "adsl"),
        _ => (34, "vdsl2-vlan-pppoe"),
    };
    Some(Finding {
        id: "no-overhead".to_owned(),
        interface: Some(section.interface.clone()),
        what: "the shaper counts no overhead, but the line adds some: small packets fill the modem's buffer"
            .to_owned(),
        evidence: evidence.into_iter().flatten().collect(),
        remedy: format!(
            "set the kind of line, such as option link '{name}' ('sqm calc links' lists all), or set option \
             overhead '{overhead}'; a value slightly too high costs little"
        ),
        fix: set(section, OptionValue::Overhead(overhead)),
    })
}

fn counted_twice(section: &Section) -> Option<Finding> {
    (!section.counted_twice.is_empty()).then(|| Finding {
        id: "counted-twice".to_owned(),
        interface: Some(section.interface.clone()),
        what: "a size table and CAKE both add the overhead: part of the line stays unused".to_owned(),
        evidence: section.counted_twice.clone(),
        remedy: "count it once: set option linklayer_adaptation_mechanism 'default', and remove the overhead from \
            eqdisc_opts and iqdisc_opts"
            .to_owned(),
        fix: set(section, OptionValue::Mechanism(Mechanism::Default)),
    })
}

fn aggregates(facts: &Facts, section: &Section) -> Option<Finding> {
    if section.size_tables.is_empty() {
        return None;
    }
    let device = facts.device(&section.interface)?;
    let active: Vec<(&str, &str)> = AGGREGATING
        .into_iter()
        .filter(|(feature, _)| device.features.iter().any(|active| active == feature))
        .collect();
    if active.is_empty() {
        return None;
    }
    let words: Vec<String> = active.iter().map(|(_, word)| format!("{word} off")).collect();
    Some(Finding {
        id: "aggregates".to_owned(),
        interface: Some(section.interface.clone()),
        what:
            "the device joins packets to super-packets of up to 64 KiB, and a size table counts each as one \
            packet: overhead and cells of all packets but the first are not counted"
                .to_owned(),
        evidence: vec![
            format!("a size table on {}", section.size_tables.join(" and ")),
            format!(
                "{} has {}",
                section.interface,
                active
                    .iter()
                    .map(|(feature, _)| *feature)
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        ],
        remedy: format!(
            "run ethtool -K {} {}; or use a setup script with CAKE, which splits super-packets",
            section.interface,
            words.join(" ")
        ),
        fix: None,
    })
}

fn marks_on_slow_line(section: &Section) -> Option<Finding> {
    let rate = section.upload_kbit.filter(|rate| *rate < SLOW_KBIT)?;
    section.upload_marks.filter(|marks| *marks)?;
    let side = if section.faces_home() {
        Side::Ingress
    } else {
        Side::Egress
    };
    let no_ecn = OptionValue::Ecn(side, false);
    Some(Finding {
        id: "ecn-on-slow-upload".to_owned(),
        interface: Some(section.interface.clone()),
        what: "the upload's queue marks packets with ECN on a slow line, where dropping them would shorten the queue sooner".to_owned(),
        evidence: vec![format!(
            "the upload is {rate} kbit/s, and its queue marks with ECN"
        )],
        remedy: format!("set {no_ecn}"),
        fix: set(section, no_ecn),
    })
}

/// Another device feeds the IFB that shapes the arriving packets of this one.
fn shared_ifb(_: &Facts, section: &Section) -> Option<Finding> {
    let others = section.ifb_shared_with.join(", ");
    let name = &section.interface;
    (!others.is_empty()).then(|| Finding {
        id: "shared-ifb".to_owned(),
        interface: Some(name.clone()),
        what: format!(
            "packets that arrive on {others} go through the queues for {name} as well, and take a part of its rate"
        ),
        evidence: vec![format!("a filter on {others} redirects arriving packets to the IFB of {name}")],
        remedy: format!(
            "remove that filter (tc filter show dev {} ingress shows it); to shape that device, give it a section of \
             its own",
            section.ifb_shared_with[0]
        ),
        fix: None,
    })
}

fn processor_bound(facts: &Facts, section: &Section) -> Option<Finding> {
    let busy = facts.processors.iter().find(|processor| {
        processor.idle_percent < LEAST_IDLE_PERCENT && processor.packets_percent >= MOST_PACKETS_PERCENT
    })?;
    let now = section.upload_now_kbit.saturating_add(section.download_now_kbit);
    let wanted = section
        .upload_kbit
        .unwrap_or(0)
        .saturating_add(section.download_kbit.unwrap_or(0));
    // A backlog is not required: packets that a saturated processor cannot handle are dropped before they reach the
    // queues. Throughput is.
    if now == 0 {
        return None;
    }
    let governor = busy
        .governor
        .as_deref()
        .filter(|governor| *governor != "performance");
    let mut evidence = vec![
        format!(
            "processor {} was idle for {:.0} % of the time and handled packets for {:.0} %",
            busy.number, busy.idle_percent, busy.packets_percent
        ),
        format!("{now} kbit/s went through the queues; {wanted} kbit/s are configured"),
    ];
    evidence.extend(governor.map(|governor| {
        format!("its frequency governor is '{governor}', which may react too slowly to short bursts of work")
    }));
    evidence.extend((busy.squeezed > 0).then(|| {
        format!(
            "it used up its budget for received packets {} times",
            busy.squeezed
        )
    }));
    evidence.extend((busy.overrun > 0).then(|| {
        format!(
            "{} packets were dropped because its backlog was full",
            busy.overrun
        )
    }));
    // The throughput if the processor spent all of its time on packets.
    let holds = now as f64 * 100.0 / busy.packets_percent;
    Some(Finding {
        id: "processor-bound".to_owned(),
        interface: Some(section.interface.clone()),
        what: format!(
            "this machine is too slow for the configured rates: one processor is saturated, at about {holds:.0} kbit/s for both directions together"
        ),
        evidence,
        remedy: match governor {
            Some(_) => "first try the governor 'performance' (echo performance | tee \
                /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor); then enable packet steering, use \
                piece_of_cake.qos, or lower the rates"
                .to_owned(),
            None => {
                "enable packet steering over all processors, use piece_of_cake.qos instead of three classes, \
                or lower the rates"
                    .to_owned()
            }
        },
        fix: None,
    })
}

impl Facts {
    fn device(&self, name: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.name == name)
    }

    /// True if a device is anywhere below another one.
    fn is_below(&self, name: &str, above: &str) -> bool {
        let mut here = self.device(above);
        for _ in 0..DEEPEST {
            let lower = here.and_then(|device| device.lower.as_deref());
            match lower {
                Some(lower) if lower == name => return true,
                Some(lower) => here = self.device(lower),
                None => return false,
            }
        }
        false
    }

    /// True if a device is below another one, or if the kernel does not say and it may be.
    fn may_be_below(&self, name: &str, above: &str) -> bool {
        self.may_be_below_within(name, above, DEEPEST)
    }

    fn may_be_below_within(&self, name: &str, above: &str, layers: usize) -> bool {
        let Some(device) = self.device(above).filter(|_| layers > 0) else {
            return false;
        };
        let mut below = device.lower.iter().chain(&device.possible_lowers);
        below.any(|lower| lower == name || self.may_be_below_within(name, lower, layers - 1))
    }

    /// The device that leads to the internet: the one of the preferred default route or, if that is a tunnel, the one
    /// that carries its packets. None if that is not known.
    fn wan(&self) -> Option<&str> {
        self.without_tunnels(self.default_devices.first()?)
    }

    /// True if a device carries the packets of a default route, maybe inside a tunnel.
    fn leads_out(&self, name: &str) -> bool {
        let mut devices = self.default_devices.iter();
        devices.any(|device| device == name || self.without_tunnels(device) == Some(name))
    }

    /// The device below a tunnel and below all tunnels that it is in; the device itself if it is no tunnel.
    fn without_tunnels<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        let mut here = name;
        for _ in 0..DEEPEST {
            match self.device(here).filter(|device| device.is_tunnel()) {
                Some(tunnel) => here = tunnel.lower.as_deref()?,
                None => return Some(here),
            }
        }
        None
    }

    /// The way of the preferred default route, in words.
    fn default_route(&self) -> String {
        let Some(device) = self.default_devices.first() else {
            return "there is no default route".to_owned();
        };
        match self.wan() {
            Some(wan) if wan != device => {
                format!("the default route goes through the tunnel {device}, whose packets {wan} carries")
            }
            _ => format!("the default route goes through {device}"),
        }
    }
}

impl Device {
    fn is_tunnel(&self) -> bool {
        is_tunnel(Some(&self.kind))
    }
}

impl Section {
    fn faces_home(&self) -> bool {
        self.options.get("facing").is_some_and(|facing| facing == "lan")
    }
}

#[cfg(test)]
mod tests;

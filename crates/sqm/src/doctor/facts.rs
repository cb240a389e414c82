//! Facts about a machine that findings are based on. Plain data; `sqm doctor --facts` prints them.

use std::collections::BTreeMap;

use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};

/// All facts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Facts {
    /// One for each enabled section.
    pub(crate) sections: Vec<Section>,
    pub(crate) devices: Vec<Device>,
    /// Devices of the default routes, the preferred one first.
    pub(crate) default_devices: Vec<String>,
    /// Kernel features that the plans need and the kernel lacks, in words. Empty without privileges.
    pub(crate) missing: Vec<String>,
    /// Facts that this process may not read, in sentences.
    pub(crate) unread: Vec<String>,
    pub(crate) flow_offload: FlowOffload,
    pub(crate) processors: Vec<Processor>,
}

/// One enabled section, its plan, and the kernel's queues for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Section {
    pub(crate) interface: String,
    /// Index of the section in the file, and its options as written.
    pub(crate) index: usize,
    pub(crate) options: BTreeMap<String, String>,
    /// Planned shaper rates of the line, kbit/s; none if that direction is not shaped.
    pub(crate) upload_kbit: Option<u64>,
    pub(crate) download_kbit: Option<u64>,
    /// Overhead above the IP packet that the queues count, and the kind of cells: `none`, `atm`, `ptm`.
    pub(crate) overhead_bytes: i32,
    pub(crate) cells: String,
    /// Places, in the plan or in the kernel, where both a size table and CAKE add overhead.
    pub(crate) counted_twice: Vec<String>,
    /// Kinds of the queues with a size table.
    pub(crate) size_tables: Vec<String>,
    /// True if the upload's leaf marks with ECN; none if its kind has no such option.
    pub(crate) upload_marks: Option<bool>,
    /// Other devices whose arriving packets are redirected to the IFB of this section.
    pub(crate) ifb_shared_with: Vec<String>,
    /// Layers below the device from the top: PPPoE, VLAN tags, tunnels.
    pub(crate) stack: Vec<String>,
    /// Differences between the plan and the kernel.
    pub(crate) differences: Vec<String>,
    /// A sentence about the rates that a controller moves, if the daemon knows one; they are not among the differences.
    pub(crate) rate_controller: Option<String>,
    /// Root qdisc in the kernel, and the program that probably made it if it is not ours.
    pub(crate) root: String,
    pub(crate) owner: Option<String>,
    /// True if the daemon says that it was stopped by hand.
    pub(crate) stopped: bool,
    /// Throughput of the queues during the observation, kbit/s, and their backlog at its end, bytes.
    pub(crate) upload_now_kbit: u64,
    pub(crate) download_now_kbit: u64,
    pub(crate) backlog_bytes: u64,
}

/// A network device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Device {
    pub(crate) name: String,
    /// `vlan`, `bridge`, `ppp`, `sit`; empty for hardware.
    pub(crate) kind: String,
    pub(crate) up: bool,
    /// Name of the device below, if there is one. Below a tunnel is the device that carries its packets.
    pub(crate) lower: Option<String>,
    /// Name of the bridge of which it is a port.
    pub(crate) master: Option<String>,
    /// True for Wi-Fi.
    pub(crate) wireless: bool,
    /// True if it has a network of its own and no router beyond it.
    pub(crate) leads_to_hosts_only: bool,
    /// Devices of which one is below, if the kernel does not say which.
    pub(crate) possible_lowers: Vec<String>,
    /// Active features of the driver, as `ethtool -k` names them.
    pub(crate) features: Vec<String>,
}

/// Devices whose packets bypass the queues because of flow offload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct FlowOffload {
    /// Devices whose arriving packets bypass the queues in software.
    pub(crate) software: Vec<String>,
    /// Devices whose packets bypass the queues in hardware.
    pub(crate) hardware: Vec<String>,
    /// Options of OpenWrt's firewall that enable flow offload, by name.
    pub(crate) configured: Vec<String>,
}

/// A processor during the observation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Processor {
    pub(crate) number: usize,
    #[serde(deserialize_with = "percentage")]
    pub(crate) idle_percent: f64,
    /// Share of the time that it spent on packets, in soft interrupts or in the kernel's packet threads.
    #[serde(deserialize_with = "percentage")]
    pub(crate) packets_percent: f64,
    /// Its frequency governor, such as `performance` or `ondemand`; none if its frequency is fixed.
    pub(crate) governor: Option<String>,
    /// Number of times it stopped handling packets with some left (`/proc/net/softnet_stat`).
    pub(crate) squeezed: u64,
    /// Packets that were dropped because its backlog queue was full (`/proc/net/softnet_stat`).
    pub(crate) overrun: u64,
}

/// Accepts a share of the time, 0 to 100 percent. Facts may come from any source, and their numbers are printed.
fn percentage<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let number = f64::deserialize(deserializer)?;
    if (0.0..=100.0).contains(&number) {
        Ok(number)
    } else {
        Err(D::Error::invalid_value(
            Unexpected::Float(number),
            &"a percentage from 0 to 100",
        ))
    }
}

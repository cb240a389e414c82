//! What there is to know of a machine before one can say what is wrong. Plain data; `sqm doctor --facts` prints it.

use std::collections::BTreeMap;

use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};

/// The whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Facts {
    /// One for each enabled section.
    pub(crate) sections: Vec<Section>,
    pub(crate) devices: Vec<Device>,
    /// Devices of the default routes, the preferred one first.
    pub(crate) default_devices: Vec<String>,
    /// What the kernel lacks for the plans, in words; unknown without privileges.
    pub(crate) missing: Vec<String>,
    pub(crate) flow_offload: FlowOffload,
    pub(crate) processors: Vec<Processor>,
}

/// One enabled section with its plan and what the kernel holds for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Section {
    pub(crate) interface: String,
    /// Its place in the file, and its options as they are written.
    pub(crate) index: usize,
    pub(crate) options: BTreeMap<String, String>,
    /// Shaped rates of the line as planned, kbit/s; none if that direction is not shaped.
    pub(crate) upload_kbit: Option<u64>,
    pub(crate) download_kbit: Option<u64>,
    /// What a packet is counted to have above IP, and the cells: `none`, `atm`, `ptm`.
    pub(crate) overhead_bytes: i32,
    pub(crate) cells: String,
    /// Whether a size table and CAKE both add something, in the plan or in the kernel; where.
    pub(crate) counted_twice: Vec<String>,
    /// Kinds of the queues with a size table.
    pub(crate) size_tables: Vec<String>,
    /// Whether the upload's leaf marks with ECN, for kinds that leave the choice.
    pub(crate) upload_marks: Option<bool>,
    /// PPPoE and VLAN tags below the device, and tunnels, from the top.
    pub(crate) stack: Vec<String>,
    /// Differences between plan and kernel.
    pub(crate) differences: Vec<String>,
    /// Root qdisc in the kernel, and who probably made it if it is not ours.
    pub(crate) root: String,
    pub(crate) owner: Option<String>,
    /// During the look: what went through the queues, kbit/s, what waited at its end, bytes.
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
    /// Name of the device below.
    pub(crate) lower: Option<String>,
    /// Active features of the driver, as `ethtool -k` names them.
    pub(crate) features: Vec<String>,
}

/// Packets that the firewall lets pass by the queues.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct FlowOffload {
    /// Devices whose packets software takes past the ingress of the queues.
    pub(crate) software: Vec<String>,
    /// Devices whose packets the hardware takes.
    pub(crate) hardware: Vec<String>,
    /// Whether OpenWrt's firewall is told to; by its option's name.
    pub(crate) configured: Vec<String>,
}

/// A processor during the look.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Processor {
    pub(crate) number: usize,
    #[serde(deserialize_with = "percentage")]
    pub(crate) idle_percent: f64,
    /// Of the time: packets are handled there, in soft interrupts or in the kernel's threads for them.
    #[serde(deserialize_with = "percentage")]
    pub(crate) packets_percent: f64,
    /// `performance`, `ondemand`; none where the clock does not change.
    pub(crate) governor: Option<String>,
    /// Times it had to stop handling packets with some left (`/proc/net/softnet_stat`).
    pub(crate) squeezed: u64,
    /// Packets that were lost because too many waited for it (the same).
    pub(crate) overrun: u64,
}

/// A share of the time. Facts may come from anywhere, and what is judged by them is printed.
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

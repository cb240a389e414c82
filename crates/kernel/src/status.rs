//! The queues of an interface with their counters, as `sqm status` prints and the daemon's API answers them.

use std::path::Path;

use crate::netlink::link::Link;
use crate::netlink::socket::Socket;
use crate::netlink::statistics::{CakeStatistics, FqCodelStatistics, Statistics};
use crate::observe::{self, Detail, Device};
use crate::{Error, foreign};
use serde::{Deserialize, Serialize};
use sqm_core::spec::cake::Tins;
use sqm_core::spec::hfsc::Curve;
use sqm_core::spec::{Class, Qdisc};

/// The queues of an interface, both directions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InterfaceStatus {
    /// Its name.
    pub interface: String,
    /// The program that set up the egress queues: "sqm", or the kind of another one; absent for the kernel's default.
    pub owner: Option<String>,
    /// The queues of packets that leave through it.
    pub egress: DirectionStatus,
    /// The queues of packets that arrive; absent if these are not shaped.
    pub ingress: Option<DirectionStatus>,
}

/// The queues of one direction. A delay is that of the slowest tin; it is absent where the kernel measures none.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DirectionStatus {
    /// The device on which the queues are: the interface, or its IFB.
    pub device: String,
    /// The kind of the root qdisc, such as `cake`.
    pub kind: String,
    /// The shaper rate; absent if nothing shapes.
    pub rate_bits_per_sec: Option<u64>,
    /// Packets that the root qdisc dropped.
    pub drops: u64,
    /// Packets marked with Congestion Experienced.
    pub marks: u64,
    /// Bytes that wait now.
    pub backlog_bytes: u32,
    /// Packets that wait now.
    pub backlog_packets: u32,
    /// CAKE's average of queue delay that follows peaks, microseconds.
    pub delay_peak_us: Option<u32>,
    /// CAKE's average of queue delay, microseconds.
    pub delay_avg_us: Option<u32>,
    /// CAKE's average of queue delay that follows lows, microseconds.
    pub delay_base_us: Option<u32>,
    /// All qdiscs of the device, root first.
    pub qdiscs: Vec<QdiscStatus>,
    /// All classes of the device.
    pub classes: Vec<ClassStatus>,
}

/// One qdisc.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QdiscStatus {
    /// Its handle, such as `1:`.
    pub handle: String,
    /// The class or qdisc that it hangs in; absent for the root.
    pub parent: Option<String>,
    /// Its kind, such as `fq_codel`.
    pub kind: String,
    /// Its parameters in `tc`'s words; absent for a kind that no plan uses.
    pub spec: Option<String>,
    /// The counters that every kind has.
    pub statistics: Statistics,
    /// CAKE's own counters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cake: Option<CakeStatistics>,
    /// fq_codel's own counters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fq_codel: Option<FqCodelStatistics>,
}

/// One class of HTB or HFSC.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClassStatus {
    /// Its identifier, such as `1:10`.
    pub id: String,
    /// The class or qdisc that it is a child of.
    pub parent: String,
    /// The rate that it is guaranteed.
    pub rate_bits_per_sec: u64,
    /// The rate that it never exceeds.
    pub ceil_bits_per_sec: u64,
    /// The counters that every class has.
    pub statistics: Statistics,
}

impl DirectionStatus {
    fn of(device: &Device) -> Self {
        let root = device.qdiscs.iter().find(|q| q.parent.is_none());
        let statistics = root.map(|r| r.statistics.clone()).unwrap_or_default();
        let tins = || {
            device.qdiscs.iter().flat_map(|q| match &q.detail {
                Detail::Cake(cake) => cake.tins.as_slice(),
                _ => &[],
            })
        };
        let marks = device.qdiscs.iter().map(|q| match &q.detail {
            Detail::Cake(cake) => cake.tins.iter().map(|tin| u64::from(tin.marks)).sum(),
            Detail::FqCodel(codel) => u64::from(codel.marks),
            Detail::None => 0,
        });
        let top = device.classes.first().map(|class| rates(&class.class).1);
        Self {
            device: device.link.name.clone(),
            kind: root.map(|r| r.kind.clone()).unwrap_or_default(),
            rate_bits_per_sec: match root.and_then(|r| r.qdisc.as_ref()) {
                Some(Qdisc::Cake(cake) | Qdisc::CakeMq(cake)) => {
                    cake.bandwidth.map(|rate| rate.bits_per_sec())
                }
                Some(Qdisc::Tbf(tbf)) => Some(tbf.rate.bits_per_sec()),
                _ => top,
            },
            drops: statistics.drops.into(),
            marks: marks.sum(),
            backlog_bytes: statistics.backlog_bytes,
            backlog_packets: statistics.backlog_packets,
            delay_peak_us: tins().map(|tin| tin.delay_peak_us).max(),
            delay_avg_us: tins().map(|tin| tin.delay_avg_us).max(),
            delay_base_us: tins().map(|tin| tin.delay_base_us).max(),
            qdiscs: device.qdiscs.iter().map(QdiscStatus::of).collect(),
            classes: device
                .classes
                .iter()
                .map(|class| ClassStatus {
                    id: class.id.to_string(),
                    parent: class.parent.to_string(),
                    rate_bits_per_sec: rates(&class.class).0,
                    ceil_bits_per_sec: rates(&class.class).1,
                    statistics: class.statistics.clone(),
                })
                .collect(),
        }
    }
}

impl QdiscStatus {
    fn of(qdisc: &observe::ObservedQdisc) -> Self {
        let (cake, fq_codel) = match &qdisc.detail {
            Detail::Cake(statistics) => {
                let names = match &qdisc.qdisc {
                    Some(Qdisc::Cake(cake) | Qdisc::CakeMq(cake)) => {
                        tin_names(cake.tins, statistics.tins.len())
                    }
                    _ => Vec::new(),
                };
                let named = CakeStatistics {
                    tin_names: names,
                    ..statistics.clone()
                };
                (Some(named), None)
            }
            Detail::FqCodel(statistics) => (None, Some(statistics.clone())),
            Detail::None => (None, None),
        };
        Self {
            handle: qdisc.handle.to_string(),
            parent: qdisc.parent.map(|parent| parent.to_string()),
            kind: qdisc.kind.clone(),
            spec: qdisc.qdisc.as_ref().map(ToString::to_string),
            statistics: qdisc.statistics.clone(),
            cake,
            fq_codel,
        }
    }
}

/// The rate that a class is guaranteed and the one that it never exceeds, bits per second.
pub fn rates(class: &Class) -> (u64, u64) {
    match class {
        Class::Htb(class) => (class.rate.bits_per_sec(), class.ceil.bits_per_sec()),
        Class::Hfsc(class) => {
            let slope = |curve: Option<Curve>| curve.map_or(0, |curve| curve.m2.bits_per_sec());
            let share = slope(class.rt).max(slope(class.ls));
            (slope(class.rt), class.ul.map_or(share, |_| slope(class.ul)))
        }
    }
}

/// The names `tc` gives to tins, lowest priority first.
fn tin_names(tins: Tins, count: usize) -> Vec<String> {
    let named: &[&str] = match tins {
        Tins::Besteffort => &["Best Effort"],
        Tins::Diffserv3 => &["Bulk", "Best Effort", "Voice"],
        Tins::Diffserv4 => &["Bulk", "Best Effort", "Video", "Voice"],
        Tins::Precedence | Tins::Diffserv8 => &[],
    };
    (0..count)
        .map(|n| {
            named
                .get(n)
                .map_or_else(|| format!("Tin {n}"), |name| (*name).to_owned())
        })
        .collect()
}

impl InterfaceStatus {
    /// Asks the kernel, and the records in the folder `records` for the program that set the queues up.
    pub fn read(socket: &mut Socket, links: &[Link], interface: &str, records: &Path) -> Result<Self, Error> {
        let mut named = |name: &str| observe::device(socket, links, observe::find(links, name)?);
        let egress = named(interface)?;
        let ingress = egress.redirect.as_deref().map(&mut named).transpose()?;
        Ok(Self {
            interface: interface.to_owned(),
            owner: foreign::root_owner(&egress, records),
            egress: DirectionStatus::of(&egress),
            ingress: ingress.as_ref().map(DirectionStatus::of),
        })
    }
}

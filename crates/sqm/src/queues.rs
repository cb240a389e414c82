//! What the kernel's queues hold and have done, as `sqm status` prints it and the daemon tells it.

use std::path::Path;

use serde::Serialize;
use sqm_core::spec::cake::Tins;
use sqm_core::spec::hfsc::Curve;
use sqm_core::spec::{Class, Qdisc};
use sqm_kernel::netlink::link::Link;
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::netlink::statistics::{CakeStatistics, FqCodelStatistics, Statistics, TinStatistics};
use sqm_kernel::observe::{self, Detail, Device};
use sqm_kernel::{Error, owner};

#[derive(Clone, Debug, Serialize)]
pub(crate) struct InterfaceStatus {
    pub(crate) interface: String,
    /// Who set up the queues of what leaves: "sqm", or somebody else; absent for the kernel's default.
    pub(crate) owner: Option<String>,
    pub(crate) egress: Direction,
    /// Absent if arriving packets are not shaped.
    pub(crate) ingress: Option<Direction>,
}

/// The queues of one direction. Delays are the worst of all tins; absent where the kernel tells none.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Direction {
    pub(crate) device: String,
    pub(crate) kind: String,
    pub(crate) rate_bits_per_sec: Option<u64>,
    pub(crate) drops: u64,
    pub(crate) marks: u64,
    pub(crate) backlog_bytes: u32,
    pub(crate) backlog_packets: u32,
    pub(crate) delay_peak_us: Option<u32>,
    pub(crate) delay_avg_us: Option<u32>,
    pub(crate) delay_base_us: Option<u32>,
    pub(crate) qdiscs: Vec<QdiscStatus>,
    pub(crate) classes: Vec<ClassStatus>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct QdiscStatus {
    pub(crate) handle: String,
    pub(crate) parent: Option<String>,
    pub(crate) kind: String,
    /// In `tc`'s words; absent for a kind that plans do not use.
    pub(crate) spec: Option<String>,
    pub(crate) statistics: Statistics,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cake: Option<CakeStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fq_codel: Option<FqCodelStatistics>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct CakeStatus {
    pub(crate) tin_names: Vec<String>,
    #[serde(flatten)]
    pub(crate) statistics: CakeStatistics,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct ClassStatus {
    pub(crate) id: String,
    pub(crate) parent: String,
    pub(crate) rate_bits_per_sec: u64,
    pub(crate) ceil_bits_per_sec: u64,
    pub(crate) statistics: Statistics,
}

impl Direction {
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
                (
                    Some(CakeStatus {
                        tin_names: names,
                        statistics: statistics.clone(),
                    }),
                    None,
                )
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

/// What a class is guaranteed and what it never exceeds, bits per second.
pub(crate) fn rates(class: &Class) -> (u64, u64) {
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
    /// Asks the kernel, and the records in that folder.
    pub(crate) fn read(
        socket: &mut Socket,
        links: &[Link],
        interface: &str,
        records: &Path,
    ) -> Result<Self, Error> {
        let mut named = |name: &str| observe::device(socket, links, observe::find(links, name)?);
        let egress = named(interface)?;
        let ingress = egress.redirect.as_deref().map(&mut named).transpose()?;
        Ok(Self {
            interface: interface.to_owned(),
            owner: owner::of(&egress, records),
            egress: Direction::of(&egress),
            ingress: ingress.as_ref().map(Direction::of),
        })
    }

    pub(crate) fn print(&self) {
        match self.owner.as_deref() {
            None | Some("sqm") => outln!("{}", self.interface),
            Some(other) => outln!("{}: not set up by sqm ({other})", self.interface),
        }
        self.egress.print("egress");
        match &self.ingress {
            Some(ingress) => ingress.print("ingress"),
            None => outln!("  ingress: not shaped"),
        }
    }
}

impl Direction {
    fn print(&self, name: &str) {
        outln!("  {name} on {}", self.device);
        for QdiscStatus {
            handle,
            parent,
            kind,
            spec,
            statistics,
            cake,
            fq_codel,
        } in &self.qdiscs
        {
            let place = parent
                .as_ref()
                .map_or_else(|| "root".to_owned(), |p| format!("in {p}"));
            outln!("    {handle} {place} {}", spec.as_ref().unwrap_or(kind));
            let Statistics {
                sent_bytes,
                sent_packets,
                drops,
                backlog_bytes,
                backlog_packets,
                ..
            } = statistics;
            out!(
                "      sent {sent_bytes} bytes in {sent_packets} packets, dropped {drops}, \
                 holds {backlog_bytes} bytes in {backlog_packets} packets"
            );
            match fq_codel {
                Some(codel) => outln!(", marked {}", codel.marks),
                None => outln!(),
            }
            if let Some(cake) = cake {
                print_tins(cake);
            }
        }
        for ClassStatus {
            id,
            rate_bits_per_sec,
            statistics,
            ..
        } in &self.classes
        {
            outln!(
                "    class {id} {rate_bits_per_sec} bit/s: sent {} bytes",
                statistics.sent_bytes
            );
        }
    }
}

/// One row per tin; delays as CAKE follows them: its peaks, its average, its lows.
fn print_tins(cake: &CakeStatus) {
    outln!(
        "      {:<12}{:>14}{:>12}{:>12}{:>12}{:>12}{:>9}{:>9}{:>9}",
        "tin",
        "thresh bit/s",
        "packets",
        "peak us",
        "avg us",
        "base us",
        "drops",
        "marks",
        "acks"
    );
    for (name, tin) in cake.tin_names.iter().zip(&cake.statistics.tins) {
        let TinStatistics {
            threshold_bits_per_sec,
            sent_packets,
            delay_peak_us,
            delay_avg_us,
            delay_base_us,
            drops,
            marks,
            ack_drops,
            ..
        } = tin;
        outln!(
            "      {name:<12}{threshold_bits_per_sec:>14}{sent_packets:>12}{delay_peak_us:>12}{delay_avg_us:>12}\
             {delay_base_us:>12}{drops:>9}{marks:>9}{ack_drops:>9}"
        );
    }
}

//! Samples the kernel's queues on this machine during a test, as evidence in the result.

use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::observe::{self, Device};
use sqm_measure::client::{Gauge, Gauges};

/// Reads the queues of all devices with a shaping qdisc. None if there is no such device, or if the process may not
/// read them.
///
/// Names are `qdisc_stats_DEVICE::counter`, like those that Flent gives to the queues of a host.
pub(super) fn gauges() -> Option<Gauges> {
    let mut socket = Socket::open().ok()?;
    let links = observe::links(&mut socket).ok()?;
    let mut shaped = Vec::new();
    for link in &links {
        let device = observe::device(&mut socket, &links, link).ok()?;
        if is_shaped(&device) {
            shaped.push(link.clone());
        }
    }
    if shaped.is_empty() {
        return None;
    }
    Some(Box::new(move || {
        let devices = shaped
            .iter()
            .filter_map(|link| observe::device(&mut socket, &links, link).ok());
        devices.flat_map(|device| counters(&device)).collect()
    }))
}

fn is_shaped(device: &Device) -> bool {
    let root = device.qdiscs.first();
    root.is_some_and(|root| ["cake", "htb", "hfsc", "tbf"].contains(&root.kind.as_str()))
}

fn counters(device: &Device) -> Vec<Gauge> {
    let Some(root) = device.qdiscs.first() else {
        return Vec::new();
    };
    let statistics = &root.statistics;
    let name = &device.link.name;
    let values = [
        ("backlog_bytes", "bytes", f64::from(statistics.backlog_bytes)),
        ("backlog_pkts", "packets", f64::from(statistics.backlog_packets)),
        ("dropped", "packets", f64::from(statistics.drops)),
        ("sent_bytes", "bytes", statistics.sent_bytes as f64),
    ];
    let gauge = |(counter, unit, value)| Gauge {
        name: format!("qdisc_stats_{name}::{counter}"),
        unit,
        value,
    };
    values.into_iter().map(gauge).collect()
}

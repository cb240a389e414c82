//! Records the state of this machine during a test: processor load, interface counters, and gauges of the caller.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::socket::SockaddrStorage;

use crate::cpu::CpuTimes;
use crate::load::millis;
use crate::result::Series;
use crate::socket;

/// The time between two readings. A choice: the counters of processor time have a resolution of 10 ms.
const INTERVAL: Duration = Duration::from_millis(500);

/// A value at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Gauge {
    /// Name of its series.
    pub name: String,
    /// Unit of the value.
    pub unit: &'static str,
    /// The value.
    pub value: f64,
}

/// Reads the gauges of the caller. Called once for each reading.
pub type Gauges = Box<dyn FnMut() -> Vec<Gauge> + Send>;

/// The thread that takes the readings.
pub(super) struct Recorder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<SeriesBuilder>>,
    origin: Instant,
}

/// Series under construction, in milliseconds since the recorder's start.
#[derive(Default)]
struct SeriesBuilder {
    series: BTreeMap<String, Growing>,
}

/// A series so far: its unit, and moments with values.
type Growing = (&'static str, Vec<(f64, Option<f64>)>);

impl Recorder {
    /// Takes readings twice a second until [`finish`](Self::finish). Counters that this machine does not have give no series.
    pub(super) fn start(local: SocketAddr, gauges: Option<Gauges>) -> Self {
        let origin = Instant::now();
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = stop.clone();
        let thread = thread::Builder::new()
            .name("recorder".to_owned())
            .spawn(move || record(origin, interface_of(local.ip()), gauges, &theirs));
        Self {
            stop,
            thread: thread.ok(),
            origin,
        }
    }

    /// All series, with times since the load began.
    pub(super) fn finish(mut self, load_start: Instant) -> Vec<Series> {
        self.stop.store(true, Ordering::Release);
        let builder = self.thread.take().and_then(|thread| thread.join().ok());
        let offset_ms = millis(load_start.saturating_duration_since(self.origin));
        let series = builder.unwrap_or_default().series.into_iter();
        series
            .map(|(name, (unit, samples))| Series {
                name,
                unit: unit.to_owned(),
                samples: samples
                    .into_iter()
                    .map(|(t, value)| (((t - offset_ms) * 1000.0).round() / 1000.0, value))
                    .collect(),
            })
            .collect()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

impl SeriesBuilder {
    fn note(&mut self, t_ms: f64, name: String, unit: &'static str, value: Option<f64>) {
        let series = &mut self.series.entry(name).or_insert_with(|| (unit, Vec::new())).1;
        let rounded = value.map(|v| (v * 10_000.0).round() / 10_000.0);
        series.push((t_ms, rounded));
    }
}

fn record(
    origin: Instant,
    interface: Option<String>,
    mut gauges: Option<Gauges>,
    stop: &AtomicBool,
) -> SeriesBuilder {
    let host = socket::host_name();
    let mut builder = SeriesBuilder::default();
    let mut cpu = CpuTimes::read();
    let mut counters = interface.as_deref().and_then(counters);
    let (mut next, mut last) = (origin, origin);
    while !stop.load(Ordering::Acquire) {
        next += INTERVAL;
        socket::sleep_until(next);
        let now = Instant::now();
        let t_ms = millis(now - origin);
        if let Some((before, after)) = cpu.take().zip(CpuTimes::read()) {
            for (number, share) in after.since(&before).into_iter().enumerate() {
                builder.note(
                    t_ms,
                    format!("cpu_stats_{host}::cpu{number}"),
                    "",
                    share.map(|s| s.busy),
                );
                builder.note(
                    t_ms,
                    format!("softirq_stats_{host}::cpu{number}"),
                    "",
                    share.map(|s| s.softirq),
                );
            }
            cpu = Some(after);
        }
        if let Some(name) = &interface {
            let newest = self::counters(name);
            if let Some((before, after)) = counters.zip(newest) {
                let rate = |bytes: u64| bytes as f64 * 8.0 / 1e6 / (now - last).as_secs_f64();
                for (way, before, after) in [("rx", before.0, after.0), ("tx", before.1, after.1)] {
                    let rate = after.checked_sub(before).map(rate);
                    builder.note(t_ms, format!("interface {name}::{way}"), "Mbits/s", rate);
                }
            }
            counters = newest;
        }
        last = now;
        if let Some(gauges) = &mut gauges {
            for Gauge { name, unit, value } in gauges() {
                builder.note(t_ms, name, unit, Some(value));
            }
        }
    }
    builder
}

/// Bytes received and sent by an interface, headers included.
fn counters(interface: &str) -> Option<(u64, u64)> {
    let read = |name| -> Option<u64> {
        let path = format!("/sys/class/net/{interface}/statistics/{name}");
        fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    Some((read("rx_bytes")?, read("tx_bytes")?))
}

/// The interface of this machine with this address.
pub fn interface_of(address: IpAddr) -> Option<String> {
    let address = address.to_canonical();
    let all = nix::ifaddrs::getifaddrs().ok()?;
    let is_ours = |has: &SockaddrStorage| {
        let v4 = has.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
        v4.or_else(|| has.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip()))) == Some(address)
    };
    let mut found = all.filter(|entry| entry.address.as_ref().is_some_and(is_ours));
    found.next().map(|entry| entry.interface_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_of_an_address_is_found() {
        assert_eq!(interface_of("127.0.0.1".parse().unwrap()).as_deref(), Some("lo"));
        assert_eq!(interface_of("192.0.2.1".parse().unwrap()), None);
        assert!(counters("lo").is_some());
        assert_eq!(counters("no-such-interface"), None);
    }
}

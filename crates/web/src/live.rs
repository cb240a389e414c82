//! Live samples of the queues. All browsers share one reading of the kernel's counters.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::Serialize;
use sqm_api::status::State;
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::observe;

use super::audit::unix_ms;
use super::interfaces::InterfaceInfo;
use sqm_kernel::status::{DirectionStatus, InterfaceStatus};

/// A reading that is at most this old serves another browser. Our choice: less than the 200 ms between two samples.
const FRESH: Duration = Duration::from_millis(90);

/// Reads the kernel's counters, which needs no privilege.
pub(super) struct CounterReader(Mutex<Inner>);

struct Inner {
    socket: Socket,
    last: Option<Arc<Reading>>,
}

/// All counters at one moment.
pub(super) struct Reading {
    at: Instant,
    unix_ms: u64,
    /// Each interface, and its queues if they could be read.
    interfaces: Vec<(InterfaceInfo, Option<InterfaceStatus>)>,
}

impl CounterReader {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self(Mutex::new(Inner {
            socket: Socket::open()?,
            last: None,
        })))
    }

    /// The counters, at most [`FRESH`] old.
    pub(super) fn read(&self, known: &[InterfaceInfo]) -> Arc<Reading> {
        let mut inner = self.0.lock().expect("no holder of this lock panics");
        if let Some(last) = &inner.last
            && last.at.elapsed() < FRESH
        {
            return Arc::clone(last);
        }
        let at = Instant::now();
        let links = observe::links(&mut inner.socket).unwrap_or_default();
        let interfaces = known
            .iter()
            .map(|known| {
                // The daemon reports the owner of the queues. This process cannot read the records.
                let none = Path::new("/nonexistent");
                let queues = InterfaceStatus::read(&mut inner.socket, &links, &known.interface, none);
                let mut known = known.clone();
                if let Some(link) = links.iter().find(|link| link.name == known.interface) {
                    (known.up, known.carrier) = (link.up, link.carrier);
                } else {
                    (known.up, known.carrier) = (false, false);
                }
                (known, queues.ok())
            })
            .collect();
        let reading = Arc::new(Reading {
            at,
            unix_ms: unix_ms(),
            interfaces,
        });
        inner.last = Some(Arc::clone(&reading));
        reading
    }
}

/// Computes rates from the difference of two readings.
#[derive(Default)]
pub(super) struct RateMeter(Option<Arc<Reading>>);

#[derive(Clone, Debug, Serialize)]
pub(super) struct Sample {
    pub(super) unix_ms: u64,
    pub(super) interfaces: Vec<Interface>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Interface {
    pub(super) interface: String,
    pub(super) state: State,
    pub(super) up: bool,
    pub(super) carrier: bool,
    pub(super) download: Option<Direction>,
    pub(super) upload: Option<Direction>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Direction {
    way: &'static str,
    device: String,
    kind: String,
    spec: Option<String>,
    pub(super) shaped_bits_per_sec: Option<u64>,
    pub(super) rate_bits_per_sec: Option<f64>,
    packets_per_sec: Option<f64>,
    pub(super) delay_avg_us: Option<u32>,
    pub(super) delay_peak_us: Option<u32>,
    delay_base_us: Option<u32>,
    pub(super) backlog_bytes: u32,
    backlog_packets: u32,
    pub(super) drops: u64,
    pub(super) marks: u64,
    drops_per_sec: Option<f64>,
    marks_per_sec: Option<f64>,
    tins: Vec<Tin>,
}

#[derive(Clone, Debug, Serialize)]
struct Tin {
    name: String,
    threshold_bits_per_sec: u64,
    rate_bits_per_sec: Option<f64>,
    delay_avg_us: u32,
    delay_peak_us: u32,
    backlog_bytes: u32,
    drops: u32,
    marks: u32,
    ack_drops: u32,
    sparse_flows: u32,
    bulk_flows: u32,
    unresponsive_flows: u32,
}

impl RateMeter {
    /// The sample of a reading, with rates since the previous one.
    pub(super) fn sample(&mut self, reading: &Arc<Reading>) -> Sample {
        let before = self.0.replace(Arc::clone(reading));
        let seconds = before
            .as_ref()
            .map(|before| reading.at.duration_since(before.at).as_secs_f64())
            .filter(|seconds| *seconds > 0.0);
        let earlier: BTreeMap<&str, &InterfaceStatus> = before
            .iter()
            .flat_map(|before| &before.interfaces)
            .filter_map(|(known, queues)| Some((known.interface.as_str(), queues.as_ref()?)))
            .collect();
        let interfaces = reading
            .interfaces
            .iter()
            .map(|(known, queues)| {
                let before = earlier.get(known.interface.as_str());
                let egress = queues.as_ref().map(|queues| {
                    Direction::of(
                        "egress",
                        &queues.egress,
                        before.map(|before| &before.egress),
                        seconds,
                    )
                });
                let ingress = queues
                    .as_ref()
                    .and_then(|queues| queues.ingress.as_ref())
                    .map(|now| {
                        let before = before.and_then(|before| before.ingress.as_ref());
                        Direction::of("ingress", now, before, seconds)
                    });
                // An egress without a rate is the kernel's default queue, not a shaper.
                let egress = egress.filter(|egress| egress.shaped_bits_per_sec.is_some());
                let (download, upload) = if known.faces_lan {
                    (egress, ingress)
                } else {
                    (ingress, egress)
                };
                Interface {
                    interface: known.interface.clone(),
                    state: known.state,
                    up: known.up,
                    carrier: known.carrier,
                    download,
                    upload,
                }
            })
            .collect();
        Sample {
            unix_ms: reading.unix_ms,
            interfaces,
        }
    }
}

impl Direction {
    fn of(
        way: &'static str,
        now: &DirectionStatus,
        before: Option<&DirectionStatus>,
        seconds: Option<f64>,
    ) -> Self {
        let root = |queues: &DirectionStatus| queues.qdiscs.iter().position(|q| q.parent.is_none());
        let at = root(now);
        // The counters of a queue that has been replaced begin at zero.
        let before = before.filter(|before| before.device == now.device && root(before) == at);
        let per_sec = |now: u64, before: Option<u64>| {
            let more = now.checked_sub(before?)?;
            Some(more as f64 / seconds?)
        };
        let statistics = at.map(|at| &now.qdiscs[at].statistics);
        let earlier = before.and_then(|before| Some(&before.qdiscs.get(at?)?.statistics));
        let cake = |queues: &DirectionStatus| queues.qdiscs.iter().find_map(|q| q.cake.clone());
        let tins_before = before.and_then(cake);
        let tins = cake(now).map_or_else(Vec::new, |cake| {
            let named = cake.tin_names.iter().zip(&cake.tins).enumerate();
            named
                .map(|(n, (name, tin))| {
                    let before = tins_before.as_ref().and_then(|cake| cake.tins.get(n));
                    let rate = per_sec(tin.sent_bytes, before.map(|tin| tin.sent_bytes));
                    let delay = |us: u32| current(us, rate, tin.backlog_bytes);
                    Tin {
                        name: name.clone(),
                        threshold_bits_per_sec: tin.threshold_bits_per_sec,
                        rate_bits_per_sec: rate.map(|bytes| bytes * 8.0),
                        delay_avg_us: delay(tin.delay_avg_us),
                        delay_peak_us: delay(tin.delay_peak_us),
                        backlog_bytes: tin.backlog_bytes,
                        drops: tin.drops,
                        marks: tin.marks,
                        ack_drops: tin.ack_drops,
                        sparse_flows: tin.sparse_flows,
                        bulk_flows: tin.bulk_flows,
                        unresponsive_flows: tin.unresponsive_flows,
                    }
                })
                .collect()
        });
        let rate =
            statistics.and_then(|now| per_sec(now.sent_bytes, earlier.map(|before| before.sent_bytes)));
        let delay = |us: Option<u32>| us.map(|us| current(us, rate, now.backlog_bytes));
        Self {
            way,
            device: now.device.clone(),
            kind: now.kind.clone(),
            spec: at.and_then(|at| now.qdiscs[at].spec.clone()),
            shaped_bits_per_sec: now.rate_bits_per_sec,
            rate_bits_per_sec: rate.map(|bytes| bytes * 8.0),
            packets_per_sec: statistics
                .and_then(|now| per_sec(now.sent_packets, earlier.map(|before| before.sent_packets))),
            delay_avg_us: delay(now.delay_avg_us),
            delay_peak_us: delay(now.delay_peak_us),
            delay_base_us: now.delay_base_us,
            backlog_bytes: now.backlog_bytes,
            backlog_packets: now.backlog_packets,
            drops: now.drops,
            marks: now.marks,
            drops_per_sec: per_sec(now.drops, before.map(|before| before.drops)),
            marks_per_sec: per_sec(now.marks, before.map(|before| before.marks)),
            tins,
        }
    }
}

/// The current delay of a queue. The kernel averages over packets, so the average of an idle queue keeps its last value for hours. If
/// nothing was sent and nothing is queued, the delay is 0.
fn current(delay_us: u32, sent_per_sec: Option<f64>, backlog_bytes: u32) -> u32 {
    if sent_per_sec == Some(0.0) && backlog_bytes == 0 {
        0
    } else {
        delay_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_queue_has_no_delay() {
        assert_eq!(current(12_500, Some(0.0), 0), 0);
        assert_eq!(current(12_500, Some(80.0), 0), 12_500);
        assert_eq!(current(12_500, Some(0.0), 1514), 12_500, "a packet waits");
        assert_eq!(current(12_500, None, 0), 12_500, "the first sample has no rate");
    }
}

//! The lines as their users feel them: round trips of their own connections, throughput and drops, second by second.

use std::collections::HashMap;
use std::path::Path;

use sqm_autorate::{Sample, Signal};
use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::{Instant, Nanos, Rate};
use sqm_fleet::judgement::{Load, Second};
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::status::InterfaceStatus;
use sqm_plan::line::ConfiguredLine;

use crate::autorate::{Need, PassiveRtt, ThroughputReader};

/// The connections whose shortest round trips are stored for each line. A choice: the sampler follows eight at a time.
const MAX_FLOWS: usize = 64;

/// A line is busy from this part of its rate on. A choice: half of what makes a second count as loaded, so that none of these is missed.
const BUSY_SHARE: u64 = 4;

/// The lines that are observed.
#[derive(Default)]
pub(super) struct Observer {
    lines: Vec<Line>,
}

/// One line.
struct Line {
    interface: String,
    rates: PerDirection<Rate>,
    /// The rates before the change that is observed.
    rates_before: Option<PerDirection<Rate>>,
    throughput: ThroughputReader,
    passive: PassiveRtt,
    baselines: HashMap<u64, Baseline>,
    drops: Option<u64>,
    since: Option<Instant>,
    bytes: PerDirection<u64>,
    added: Vec<Nanos>,
    /// In the last second.
    is_busy: bool,
}

/// The shortest delays of a connection, with the unknown offset of the far host's clock.
#[derive(Clone, Copy)]
struct Baseline {
    download: i64,
    upload: Option<i64>,
    used: Instant,
}

impl Observer {
    /// Observes these lines from now on. A line that was observed before goes on.
    pub(super) fn follow(&mut self, lines: &[ConfiguredLine]) {
        let mut old = std::mem::take(&mut self.lines);
        for configured in lines {
            let found = old.iter().position(|line| line.interface == configured.interface);
            let mut line = match found {
                Some(at) => old.swap_remove(at),
                None => Line::new(configured),
            };
            line.rates = rates(configured);
            self.lines.push(line);
        }
    }

    /// A change has been applied: the rates that are followed now were not those before.
    pub(super) fn begin_trial(&mut self) {
        for line in &mut self.lines {
            line.rates_before = Some(line.rates);
        }
    }

    /// The change has been decided.
    pub(super) fn end_trial(&mut self) {
        for line in &mut self.lines {
            line.rates_before = None;
        }
    }

    /// True if a line carries so much that [`Observer::poll`] is to be called several times a second: the sampler's buffer is small.
    pub(super) fn is_busy(&self) -> bool {
        self.lines.iter().any(|line| line.is_busy)
    }

    /// Looks at the packets that have passed.
    pub(super) fn poll(&mut self, now: Instant) {
        for line in &mut self.lines {
            line.poll(now);
        }
    }

    /// Looks at the packets that have passed, and returns the last second of each line, with the throughput from which it counts as
    /// loaded.
    pub(super) fn seconds(&mut self, now: Instant, records: &Path) -> Vec<(Second, Load)> {
        self.poll(now);
        let mut kernel = None;
        let seconds = self.lines.iter_mut().filter_map(|line| {
            let (mut second, load) = line.second(now)?;
            // Only drops under load count, and to read them costs more than all else.
            let status = if line.is_busy {
                let (socket, links) =
                    kernel.get_or_insert_with(|| (Socket::open().ok(), sqm_configuration::load::links()));
                let socket = socket.as_mut();
                socket.and_then(|socket| InterfaceStatus::read(socket, links, &line.interface, records).ok())
            } else {
                None
            };
            second.dropped = line.dropped(status.as_ref().map(drops));
            Some((second, load))
        });
        seconds.collect()
    }
}

/// The packets that all queues of an interface have dropped.
fn drops(status: &InterfaceStatus) -> u64 {
    status.egress.drops + status.ingress.as_ref().map_or(0, |ingress| ingress.drops)
}

fn rates(line: &ConfiguredLine) -> PerDirection<Rate> {
    let rate = |rate: Option<Rate>| rate.unwrap_or(Rate::from_bits_per_sec(0));
    PerDirection {
        download: rate(line.download),
        upload: rate(line.upload),
    }
}

impl Line {
    fn new(line: &ConfiguredLine) -> Self {
        let device = (!line.faces_lan).then(|| line.interface.clone());
        Self {
            interface: line.interface.clone(),
            rates: rates(line),
            rates_before: None,
            throughput: ThroughputReader::new(&line.interface, line.framing, line.faces_lan),
            passive: PassiveRtt::new(device),
            baselines: HashMap::new(),
            drops: None,
            since: None,
            bytes: PerDirection::default(),
            added: Vec::new(),
            is_busy: false,
        }
    }

    fn poll(&mut self, now: Instant) {
        let mut samples = Vec::new();
        self.throughput.read(now, &mut samples);
        self.passive
            .poll(now, self.throughput.loads(), Need::Measure, &mut samples);
        for sample in samples {
            self.take(sample);
        }
    }

    fn take(&mut self, sample: Sample) {
        match sample.signal {
            Signal::Traffic { direction, bytes, .. } => self.bytes[direction] += bytes.0,
            Signal::Flow {
                flow,
                download,
                upload,
                ..
            } => {
                let added = self.added(sample.at, flow, download, upload);
                self.added.push(added);
            }
            _ => {}
        }
    }

    /// How much longer this sample's delays are than the shortest of its connection.
    fn added(&mut self, now: Instant, flow: u64, download: i64, upload: Option<i64>) -> Nanos {
        if self.baselines.len() >= MAX_FLOWS && !self.baselines.contains_key(&flow) {
            let oldest = self.baselines.iter().min_by_key(|(_, baseline)| baseline.used);
            if let Some(oldest) = oldest.map(|(&flow, _)| flow) {
                self.baselines.remove(&oldest);
            }
        }
        let baseline = self.baselines.entry(flow).or_insert(Baseline {
            download,
            upload,
            used: now,
        });
        baseline.used = now;
        baseline.download = baseline.download.min(download);
        baseline.upload = match (baseline.upload, upload) {
            (Some(known), Some(new)) => Some(known.min(new)),
            (known, new) => known.or(new),
        };
        let down = download.saturating_sub(baseline.download);
        let up = match (upload, baseline.upload) {
            (Some(new), Some(known)) => new.saturating_sub(known),
            _ => 0,
        };
        Nanos(u64::try_from(down.saturating_add(up)).unwrap_or(0))
    }

    /// The traffic and the samples since the last call; `None` the first time. The drops are left out.
    fn second(&mut self, now: Instant) -> Option<(Second, Load)> {
        let bytes = std::mem::take(&mut self.bytes);
        let added = std::mem::take(&mut self.added);
        let since = self.since.replace(now)?;
        let span = now.since(since).0.max(1);
        let rate = |bytes: u64| {
            let bits = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(span);
            Rate::from_bits_per_sec(u64::try_from(bits).unwrap_or(u64::MAX))
        };
        let throughput = bytes.map(rate);
        let rates_before = self.rates_before.unwrap_or(self.rates);
        self.is_busy = Direction::BOTH.into_iter().any(|direction| {
            let rates = [rates_before[direction], self.rates[direction]].map(Rate::bits_per_sec);
            let lower = rates.into_iter().filter(|&rate| rate > 0).min();
            lower.is_some_and(|rate| throughput[direction].bits_per_sec() >= rate / BUSY_SHARE)
        });
        let second = Second {
            throughput,
            added,
            dropped: 0,
        };
        Some((second, Load::of(rates_before, self.rates)))
    }

    /// The packets dropped since the last call; 0 if they are not known now or were not then.
    fn dropped(&mut self, drops: Option<u64>) -> u64 {
        let before = std::mem::replace(&mut self.drops, drops);
        // A change of the queues begins to count at 0.
        drops
            .zip(before)
            .map_or(0, |(now, before)| now.saturating_sub(before))
    }
}

#[cfg(test)]
mod tests {
    use sqm_core::spec::cake::{Cells, Framing};
    use sqm_core::units::Bytes;

    use super::*;

    #[test]
    fn a_line_is_looked_at_often_only_while_it_carries_something() {
        let rate = Rate::from_kbits_per_sec(8000);
        let configured = ConfiguredLine {
            interface: "no-such-device".into(),
            download: Some(rate),
            upload: None,
            framing: Framing {
                from_ip: true,
                overhead: 0,
                mpu: 0,
                cells: Cells::None,
            },
            section: 0,
            faces_lan: false,
            interval: None,
            autorate: None,
        };
        let mut observer = Observer::default();
        observer.follow(&[configured]);
        assert!(!observer.is_busy(), "nothing is known yet");
        let mut at = Instant(0);
        // Half of the rate makes a second under load, and the quarter comes before it.
        for (bytes, is_busy) in [
            (0, false),
            (249_000, false),
            (250_000, true),
            (500_000, true),
            (0, false),
        ] {
            observer.lines[0].take(Sample {
                at,
                signal: Signal::Traffic {
                    direction: Direction::Download,
                    bytes: Bytes(bytes),
                    span: Nanos::from_millis(1000),
                },
            });
            assert!(observer.seconds(at, Path::new("/no-such-folder")).len() < 2);
            if at > Instant(0) {
                assert_eq!(observer.is_busy(), is_busy, "{bytes} bytes");
            }
            at = at + Nanos::from_millis(1000);
        }
    }
}

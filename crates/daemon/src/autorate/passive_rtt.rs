//! Measures delays on the user's own TCP connections while there is traffic.

use sqm_autorate::Sample;
use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::{Instant, Nanos, Rate};

use super::packet_sampler::{Need, PacketSampler};
use super::tcp_timestamps::FlowTracker;

/// How often the sampler's masks follow the throughput, and how often a sampler that could not be opened is tried again. A
/// choice.
const ADAPT_INTERVAL: Nanos = Nanos::from_millis(1000);

/// How often packets are read that only check what reflectors say. A choice: each packet has its time, so later reading changes little.
const CHECK_INTERVAL: Nanos = Nanos::from_millis(200);

/// The packet sampler and the connections that it follows.
pub(crate) struct PassiveRtt {
    /// The device; `None` if it faces the home, where sampled delays would include the shaper's own queues.
    device: Option<String>,
    sampler: Option<PacketSampler>,
    /// Why the sampler could not be opened.
    error: Option<String>,
    flows: FlowTracker,
    adapted_at: Option<Instant>,
    read_at: Instant,
    samples: u64,
}

impl PassiveRtt {
    pub(crate) fn new(device: Option<String>) -> Self {
        Self {
            device,
            sampler: None,
            error: None,
            flows: FlowTracker::default(),
            adapted_at: None,
            read_at: Instant(0),
            samples: 0,
        }
    }

    /// Adds samples from the packets that have passed since the last call. `loads` is the present throughput.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        loads: PerDirection<Rate>,
        need: Need,
        samples: &mut Vec<Sample>,
    ) {
        if need == Need::Check && now.since(self.read_at) < CHECK_INTERVAL {
            return;
        }
        self.read_at = now;
        if self.adapted_at.is_none_or(|at| now.since(at) >= ADAPT_INTERVAL) {
            self.adapted_at = Some(now);
            self.adapt(loads, need);
        }
        let Some(sampler) = &mut self.sampler else { return };
        let before = samples.len();
        for (at, direction, segment) in sampler.read() {
            match direction {
                Direction::Upload => self.flows.on_upload(at, segment),
                Direction::Download => self.flows.on_download(at, segment, samples),
            }
        }
        self.samples += (samples.len() - before) as u64;
    }

    /// Closes the sampler and forgets all connections.
    pub(crate) fn pause(&mut self) {
        if self.sampler.is_some() {
            (self.sampler, self.flows, self.adapted_at) = (None, FlowTracker::default(), None);
        }
    }

    /// The number of samples so far.
    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    /// Why packets cannot be sampled.
    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Adapts the sampler to the throughput. Opens it, also again if its device was replaced.
    fn adapt(&mut self, loads: PerDirection<Rate>, need: Need) {
        let Some(device) = &self.device else { return };
        let index = std::fs::read_to_string(format!("/sys/class/net/{device}/ifindex"))
            .ok()
            .and_then(|text| text.trim().parse().ok());
        let is_current =
            |sampler: &PacketSampler| index.is_some_and(|index: u32| sampler.is_on_device(index));
        self.sampler = match (self.sampler.take().filter(is_current), index) {
            (None, Some(index)) => self.open(index),
            (sampler, _) => sampler,
        };
        if let Some(sampler) = &mut self.sampler
            && sampler.adapt(loads, need).is_err()
        {
            self.sampler = None;
        }
    }

    fn open(&mut self, index: u32) -> Option<PacketSampler> {
        let opened = PacketSampler::open(self.device.as_deref()?, index);
        self.error = opened.as_ref().err().map(ToString::to_string);
        opened.ok()
    }
}

/// Feeds arbitrary segments to a flow tracker. Each 96 bytes are one segment: a head of 4 bytes with its direction and time, and
/// the packet.
#[cfg(any(test, fuzzing))]
pub fn fuzz(bytes: &[u8]) {
    use super::tcp_timestamps::Segment;
    /// The bytes of a segment that the sampler captures, and the head.
    const PIECE: usize = 92 + 4;
    let (mut flows, mut samples) = (FlowTracker::default(), Vec::new());
    let mut now = Instant(0);
    for piece in bytes.chunks(PIECE) {
        let Some((head, packet)) = piece.split_first_chunk::<4>() else {
            break;
        };
        let [flags, more @ ..] = *head;
        let more = u64::from(more[0]) << 16 | u64::from(more[1]) << 8 | u64::from(more[2]);
        // Time advances by up to 17 s, or by up to 17 ms if a flag says so.
        now = Instant(now.0.saturating_add(more * if flags & 2 == 0 { 1000 } else { 1 }));
        let direction = match flags & 1 {
            0 => Direction::Upload,
            _ => Direction::Download,
        };
        let mut packet = packet.to_vec();
        match (Segment::parse(&mut packet, direction), direction) {
            (Some(segment), Direction::Upload) => flows.on_upload(now, segment),
            (Some(segment), Direction::Download) => flows.on_download(now, segment, &mut samples),
            (None, _) => {}
        }
    }
}

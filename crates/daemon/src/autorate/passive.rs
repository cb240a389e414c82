//! Looks at the user's own connections while there is traffic, and reflectors do not tell the directions apart.

use sqm_autorate::Sample;
use sqm_core::direction::PerDirection;
use sqm_core::units::{Instant, Nanos, Rate};

use super::flows::Flows;
use super::tap::{Tap, Way};

/// How much passes is looked at so often, and a tap that cannot be opened is tried again.
const EXPECT: Nanos = Nanos::from_millis(1000);

pub(super) struct Passive {
    /// None where the far side of the device is not the line.
    device: Option<String>,
    tap: Option<Tap>,
    /// Why nothing can be seen.
    trouble: Option<String>,
    flows: Flows,
    expected_at: Option<Instant>,
    samples: u64,
}

impl Passive {
    pub(super) fn new(device: Option<String>) -> Self {
        Self {
            device,
            tap: None,
            trouble: None,
            flows: Flows::default(),
            expected_at: None,
            samples: 0,
        }
    }

    /// Takes what connections tell of the line, where so much passes.
    pub(super) fn look(&mut self, now: Instant, loads: PerDirection<Rate>, samples: &mut Vec<Sample>) {
        if self.expected_at.is_none_or(|at| now.since(at) >= EXPECT) {
            self.expected_at = Some(now);
            self.expect(loads);
        }
        let Some(tap) = &mut self.tap else { return };
        let before = samples.len();
        for (at, way, segment) in tap.read() {
            match way {
                Way::Leaving => self.flows.leaves(at, segment),
                Way::Arriving => self.flows.arrives(at, segment, samples),
            }
        }
        self.samples += (samples.len() - before) as u64;
    }

    /// Looks at nothing.
    pub(super) fn rest(&mut self) {
        if self.tap.is_some() {
            (self.tap, self.flows, self.expected_at) = (None, Flows::default(), None);
        }
    }

    /// How many samples there were.
    pub(super) fn samples(&self) -> u64 {
        self.samples
    }

    /// Why nothing can be seen.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// A tap that fails (its device is gone) is opened anew.
    fn expect(&mut self, loads: PerDirection<Rate>) {
        let Some(device) = &self.device else { return };
        let index = std::fs::read_to_string(format!("/sys/class/net/{device}/ifindex"))
            .ok()
            .and_then(|text| text.trim().parse().ok());
        let same = |tap: &Tap| index.is_some_and(|index: u32| tap.is_of(index));
        self.tap = match (self.tap.take().filter(same), index) {
            (None, Some(index)) => self.open(index),
            (tap, _) => tap,
        };
        if let Some(tap) = &mut self.tap
            && tap.expect(loads).is_err()
        {
            self.tap = None;
        }
    }

    fn open(&mut self, index: u32) -> Option<Tap> {
        let opened = Tap::open(self.device.as_deref()?, index);
        self.trouble = opened.as_ref().err().map(ToString::to_string);
        opened.ok()
    }
}

/// Any segments at all: each 96 bytes are one, the first of them say when and which way it passed.
#[cfg(any(test, fuzzing))]
pub fn fuzz(bytes: &[u8]) {
    use super::flows::Segment;
    /// What the tap sees of a segment, and its head here.
    const PIECE: usize = 92 + 4;
    let (mut flows, mut samples) = (Flows::default(), Vec::new());
    let mut now = Instant(0);
    for piece in bytes.chunks(PIECE) {
        let Some((head, packet)) = piece.split_first_chunk::<4>() else {
            break;
        };
        let [way, more @ ..] = *head;
        let more = u64::from(more[0]) << 16 | u64::from(more[1]) << 8 | u64::from(more[2]);
        // Up to 17 s, or 17 ms where a bit says so; time may stand, but does not go back.
        now = Instant(now.0.saturating_add(more * if way & 2 == 0 { 1000 } else { 1 }));
        let way = if way & 1 == 0 { Way::Leaving } else { Way::Arriving };
        let mut packet = packet.to_vec();
        match (Segment::of(&mut packet, way), way) {
            (Some(segment), Way::Leaving) => flows.leaves(now, segment),
            (Some(segment), Way::Arriving) => flows.arrives(now, segment, &mut samples),
            (None, _) => {}
        }
    }
}

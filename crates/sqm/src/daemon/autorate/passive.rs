//! Looks at the user's own connections while there is load.

use sqm_core::units::{Instant, Nanos};

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
    round_trips: u64,
}

impl Passive {
    pub(super) fn new(device: Option<String>) -> Self {
        Self {
            device,
            tap: None,
            trouble: None,
            flows: Flows::default(),
            expected_at: None,
            round_trips: 0,
        }
    }

    /// Counts what has passed. The controller is not told: in the lab (`lab/autorate.rs`) it took what waits at a far end for a queue
    /// at times, after reflectors had died or the line had carried nothing, and stayed at its least rate.
    pub(super) fn look(&mut self, now: Instant, packets_per_sec: [u64; 2]) {
        if self.expected_at.is_none_or(|at| now.since(at) >= EXPECT) {
            self.expected_at = Some(now);
            self.expect(packets_per_sec);
        }
        let Some(tap) = &mut self.tap else { return };
        for (at, stamps) in tap.read(Way::Leaving) {
            self.flows.leaves(at, stamps);
        }
        let mut samples = Vec::new();
        for (at, stamps) in tap.read(Way::Arriving) {
            self.flows.arrives(at, stamps, &mut samples);
        }
        self.round_trips += samples.len() as u64;
    }

    /// Nothing is looked at without load: each packet would cost.
    pub(super) fn rest(&mut self) {
        if self.tap.is_some() {
            (self.tap, self.flows, self.expected_at) = (None, Flows::default(), None);
        }
    }

    pub(super) fn round_trips(&self) -> u64 {
        self.round_trips
    }

    /// Why nothing can be seen.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    fn open(&mut self, index: u32) -> Option<Tap> {
        let opened = Tap::open(index);
        self.trouble = opened.as_ref().err().map(ToString::to_string);
        opened.ok()
    }

    /// A tap that fails (its device is gone) is opened anew.
    fn expect(&mut self, packets_per_sec: [u64; 2]) {
        let Some(device) = &self.device else { return };
        let index = std::fs::read_to_string(format!("/sys/class/net/{device}/ifindex"))
            .ok()
            .and_then(|text| text.trim().parse::<u32>().ok());
        self.tap = match (self.tap.take(), index) {
            (Some(tap), Some(index)) if tap.is_of(index) => Some(tap),
            (_, Some(index)) => self.open(index),
            (_, None) => None,
        };
        if let Some(tap) = &mut self.tap
            && tap.expect(packets_per_sec).is_err()
        {
            self.tap = None;
        }
    }
}

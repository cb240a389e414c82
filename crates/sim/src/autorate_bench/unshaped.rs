//! What the line does by itself: what a controller's bytes and delay are to be measured by.

use sqm_autorate::{Choice, Controller, Decision, Probes, Reason, Sample};
use sqm_core::direction::PerDirection;
use sqm_core::units::{Instant, Rate};

/// Shapes nothing, and asks nobody.
#[derive(Debug)]
pub(super) struct Unshaped;

/// No line is as fast, so that no queue is ours.
const RATE: Rate = Rate::from_kbits_per_sec(10_000_000);

impl Controller for Unshaped {
    fn step(&mut self, _: Instant, _: &[Sample]) -> Decision {
        let choice = Choice {
            rate: RATE,
            reason: Reason::Start,
        };
        Decision {
            rates: PerDirection {
                download: choice,
                upload: choice,
            },
            probes: Probes::Off,
        }
    }
}

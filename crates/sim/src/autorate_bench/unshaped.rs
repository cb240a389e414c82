//! The line without a shaper, for comparison.

use sqm_autorate::{Choice, Controller, Decision, Probes, Reason, Sample};
use sqm_core::direction::PerDirection;
use sqm_core::units::{Instant, Rate};

/// Sets a rate that never limits, and sends no probes.
#[derive(Debug)]
pub(super) struct Unshaped;

/// Far above every modelled line, so that the shapers never have a queue.
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

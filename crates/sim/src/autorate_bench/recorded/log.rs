//! Logs of `option autorate_log`: the rates that the controller chose are taken for the capacity.

use sqm_autorate::trace::Entry;
use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::{Instant, Nanos, Rate};

use super::{Recorded, Refused};

/// The longest time between two entries. Even an idle line has one a minute: after a longer gap entries are missing, and only this
/// much of it counts.
const LONGEST_GAP: Nanos = Nanos::from_millis(90_000);

/// The rates of a log, collected entry by entry.
#[derive(Clone, Debug, Default)]
pub struct LogRates {
    steps: PerDirection<Vec<(Nanos, Rate)>>,
    /// Time from the first entry to the last, nanoseconds.
    elapsed: u64,
    last: Option<Instant>,
    /// True if some controller of the log did not shape the direction, so that its rate means nothing.
    is_unshaped: PerDirection<bool>,
}

impl LogRates {
    /// Adds the next entry.
    pub fn add(&mut self, entry: &Entry) {
        if let Some(last) = self.last {
            // The clock begins again when the machine does.
            self.elapsed += entry.at.since(last).min(LONGEST_GAP).0;
        }
        self.last = Some(entry.at);
        for direction in Direction::BOTH {
            if let Some(start) = &entry.start {
                self.is_unshaped[direction] |= start.config.bounds[direction].base.is_none();
            }
            let steps = &mut self.steps[direction];
            steps.push((Nanos(self.elapsed), entry.decision.rates[direction].rate));
        }
    }
}

impl Recorded {
    /// A line whose capacity is what the controller of a log chose.
    ///
    /// # Errors
    ///
    /// A direction is not shaped, or the log is too short, too long or too slow.
    pub fn from_log(log: LogRates) -> Result<Self, Refused> {
        if log.is_unshaped.download || log.is_unshaped.upload || log.last.is_none() {
            return Err(Refused::whole(
                "the log does not have the rates of both directions",
            ));
        }
        Self::new(log.steps, Nanos(log.elapsed))
    }
}

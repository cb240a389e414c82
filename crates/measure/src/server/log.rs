//! The log of the server, with a rate limit: a client that connects again and again must not fill the disk.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Lines in a burst, and lines per second after that. A choice.
const AT_ONCE: f64 = 50.0;
const PER_SECOND: f64 = 1.0;

/// A log with a rate limit.
pub(super) struct Log {
    write: Box<dyn Fn(&str) + Send + Sync>,
    budget: Mutex<Budget>,
}

struct Budget {
    left: f64,
    at: Instant,
    /// Lines left out since the last line.
    omitted: u64,
}

impl Log {
    pub(super) fn new(write: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self {
            write: Box::new(write),
            budget: Mutex::new(Budget {
                left: AT_ONCE,
                at: Instant::now(),
                omitted: 0,
            }),
        }
    }

    /// Writes a line unless the limit is reached. The next line that is written says how many were left out.
    pub(super) fn write(&self, line: &str) {
        let omitted = self
            .budget
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take(Instant::now());
        match omitted {
            None => {}
            Some(0) => (self.write)(line),
            Some(omitted) => (self.write)(&format!("{line} ({omitted} lines before it were left out)")),
        }
    }
}

impl Budget {
    /// The number of lines left out since the last one, if the limit allows another line.
    fn take(&mut self, now: Instant) -> Option<u64> {
        let grown = now.saturating_duration_since(self.at).as_secs_f64() * PER_SECOND;
        self.left = (self.left + grown).min(AT_ONCE);
        self.at = now;
        if self.left < 1.0 {
            self.omitted += 1;
            return None;
        }
        self.left -= 1.0;
        Some(std::mem::take(&mut self.omitted))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_next_line_has_the_number_of_omitted_lines() {
        let at = Instant::now();
        let mut budget = Budget {
            left: AT_ONCE,
            at,
            omitted: 0,
        };
        let written = (0..200).filter(|_| budget.take(at).is_some()).count();
        assert_eq!(written, 50);
        assert_eq!(budget.take(at + Duration::from_secs(1)), Some(150));
        assert_eq!(budget.take(at + Duration::from_secs(2)), Some(0));
    }
}

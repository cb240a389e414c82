//! The buffer in front of a line: first in, first out, with tail drop. It is the source of bufferbloat.

use std::collections::VecDeque;

use sqm_core::units::{Bytes, Instant, Nanos};

use crate::capacity::Capacity;

/// A line with its buffer. Because the future capacity is known, the departure of a packet is computed when it arrives.
#[derive(Clone, Debug)]
pub struct Fifo {
    line: Capacity,
    limit: Bytes,
    queued: VecDeque<(Instant, Bytes)>,
    bytes: Bytes,
    last_departure: Instant,
}

impl Fifo {
    /// An empty buffer of `limit` in front of `line`.
    pub fn new(line: Capacity, limit: Bytes) -> Self {
        Self {
            line,
            limit,
            queued: VecDeque::new(),
            bytes: Bytes(0),
            last_departure: Instant(0),
        }
    }

    /// Adds a packet. Returns when it leaves. If the buffer is full, the packet is dropped, and the error is the time when the packet
    /// before it leaves.
    pub fn offer(&mut self, now: Instant, size: Bytes) -> Result<Instant, Instant> {
        self.forget_departed(now);
        if self.bytes.0 + size.0 > self.limit.0 && !self.queued.is_empty() {
            return Err(self.last_departure);
        }
        self.last_departure = self.line.finish(self.last_departure.max(now), size);
        self.bytes.0 += size.0;
        self.queued.push_back((self.last_departure, size));
        Ok(self.last_departure)
    }

    /// The queue delay of a packet that arrives now.
    pub fn delay(&self, now: Instant) -> Nanos {
        self.last_departure.since(now)
    }

    /// The capacity of the line.
    pub const fn line(&self) -> &Capacity {
        &self.line
    }

    fn forget_departed(&mut self, now: Instant) {
        while let Some((_, size)) = self.queued.front().filter(|(departs, _)| *departs <= now) {
            self.bytes.0 -= size.0;
            self.queued.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqm_core::units::Rate;

    #[test]
    fn packets_leave_one_after_the_other_and_the_tail_is_dropped() {
        let line = Capacity::new(vec![(Instant(0), Rate::from_kbits_per_sec(12_000))]);
        let mut fifo = Fifo::new(line, Bytes(3000));
        let ms = |n: u64| Instant(n * 1_000_000);
        assert_eq!(fifo.offer(ms(10), Bytes(1500)), Ok(ms(11)));
        assert_eq!(fifo.offer(ms(10), Bytes(1500)), Ok(ms(12)));
        assert_eq!(fifo.offer(ms(10), Bytes(1500)), Err(ms(12)));
        assert_eq!(fifo.delay(ms(10)), Nanos::from_millis(2));
        assert_eq!(fifo.offer(ms(11), Bytes(1500)), Ok(ms(13)));
        assert_eq!(fifo.delay(ms(20)), Nanos(0));
    }
}

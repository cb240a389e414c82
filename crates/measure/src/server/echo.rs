//! Answers to probes.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use super::Shared;
use super::rate_limiter::TokenBucket;
use super::reflect::Reflector;
use crate::datagram::{Arrival, Datagrams};
use crate::protocol::{Echo, MAX_PROBES, Probe};

/// What the echo remembers of a test.
pub(super) struct Memory {
    bucket: TokenBucket,
    /// Of each series: the highest number, and which ones before it were here.
    series: [(u32, u64); MAX_PROBES as usize],
}

impl Memory {
    pub(super) fn new() -> Mutex<Self> {
        Mutex::new(Self {
            bucket: TokenBucket::new(Instant::now()),
            series: [(0, 0); MAX_PROBES as usize],
        })
    }

    /// Takes down that a probe was here; answers which of those before it were, itself included. None for a series that no test has.
    fn window(&mut self, series: u16, sequence: u32) -> Option<u64> {
        let (highest, window) = self.series.get_mut(series as usize)?;
        if *window == 0 || sequence > *highest {
            let ahead = sequence - if *window == 0 { sequence } else { *highest };
            *window = window.checked_shl(ahead).unwrap_or(0) | 1;
            *highest = sequence;
            return Some(*window);
        }
        // Overtaken on its way.
        let behind = *highest - sequence;
        *window |= 1u64.checked_shl(behind).unwrap_or(0);
        Some(window.checked_shr(behind).unwrap_or(0) | 1)
    }
}

/// Answers until the process ends. `key` is for the tokens of those who take part in no test, times are since `origin`.
pub(super) fn answer(mut datagrams: Datagrams, key: [u8; 32], origin: Instant, shared: &Shared) {
    let mut reflector = Reflector::new(key, origin);
    let mut buffer = [0; Probe::MAX_LENGTH + 1];
    loop {
        let Ok(arrival) = datagrams.receive(&mut buffer) else {
            // An ICMP message about an earlier reply, or a system out of memory: neither is worth spinning for.
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        let Some(probe) = Probe::decode(&buffer[..arrival.length]) else {
            continue;
        };
        let told = if probe.series == Probe::NO_TEST {
            reflector.reply(probe, &arrival, shared.config.max_reflections_per_s)
        } else {
            reply(probe, &arrival, shared)
        };
        if let Some(reply) = told {
            let reply = stamped(reply, &arrival, origin);
            buffer[..Probe::LENGTH].copy_from_slice(&reply.encode());
            // A reply that cannot be sent is a lost probe, which the client counts.
            let _ = datagrams.reply(&buffer[..arrival.length], &arrival, probe.mark);
        }
    }
}

/// The answer to a probe of a test that exists, to the address that the test was asked for from.
fn reply(probe: Probe, arrival: &Arrival, shared: &Shared) -> Option<Probe> {
    let session = shared
        .sessions
        .find(probe.token, arrival.from.ip().to_canonical())?;
    let mut memory = session.echo();
    let per_second = shared.config.max_probes_per_s;
    if !memory.bucket.try_take(arrival.at, per_second) {
        return None;
    }
    let window = memory.window(probe.series, probe.sequence)?;
    session.note_activity();
    let echo = Echo {
        window,
        ..Echo::default()
    };
    Some(Probe { echo, ..probe })
}

/// With what is told of every probe that counts.
fn stamped(reply: Probe, arrival: &Arrival, origin: Instant) -> Probe {
    if reply.echo.window == 0 {
        return reply;
    }
    Probe {
        echo: Echo {
            mark_arrived: arrival.mark.unwrap_or(0),
            arrived_ns: arrival.at.saturating_duration_since(origin).as_nanos() as u64,
            held_ns: u32::try_from(arrival.at.elapsed().as_nanos()).unwrap_or(u32::MAX),
            window: reply.echo.window,
        },
        ..reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_tells_who_was_here() {
        let memory = Memory::new();
        let mut memory = memory.lock().unwrap();
        assert_eq!(memory.window(0, 5), Some(0b1));
        assert_eq!(memory.window(0, 7), Some(0b101));
        assert_eq!(memory.window(0, 6), Some(0b11));
        assert_eq!(memory.window(0, 8), Some(0b1111));
        assert_eq!(memory.window(0, 200), Some(1));
        assert_eq!(memory.window(0, 3), Some(1));
        assert_eq!(memory.window(0, u32::MAX), Some(1));
        assert_eq!(memory.window(1, 0), Some(1));
        assert_eq!(memory.window(MAX_PROBES, 0), None);
    }
}

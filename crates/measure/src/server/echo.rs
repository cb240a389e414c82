//! Answers probes.

use std::thread;
use std::time::{Duration, Instant};

use super::config::Config;
use super::reflect::Reflector;
use super::session::Sessions;
use crate::datagram::{Arrival, Datagrams};
use crate::protocol::{Echo, Probe};

/// Answers probes until the process ends. `key` authenticates the tokens of clients outside a test. Times in the answers are since
/// `origin`.
pub(super) fn answer(
    mut datagrams: Datagrams,
    key: [u8; 32],
    origin: Instant,
    config: &Config,
    sessions: &Sessions,
) {
    let mut reflector = Reflector::new(key, origin);
    let mut buffer = [0; Probe::MAX_LENGTH + 1];
    loop {
        let Ok(arrival) = datagrams.receive(&mut buffer) else {
            // An ICMP error for an earlier answer, or no memory. The pause keeps this loop from spinning.
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        let Some(probe) = Probe::decode(&buffer[..arrival.length]) else {
            continue;
        };
        let answer = if probe.series == Probe::NO_TEST {
            reflector.reply(probe, &arrival, config.max_reflections_per_s)
        } else {
            reply(probe, &arrival, config, sessions)
        };
        if let Some(reply) = answer {
            let reply = stamped(reply, &arrival, origin);
            buffer[..Probe::LENGTH].copy_from_slice(&reply.encode());
            // The client counts a probe whose answer cannot be sent as lost.
            let _ = datagrams.reply(&buffer[..arrival.length], &arrival, probe.tos);
        }
    }
}

/// The answer to a probe of a test. `None` if there is no such test from this address, or if the rate limit is reached.
fn reply(probe: Probe, arrival: &Arrival, config: &Config, sessions: &Sessions) -> Option<Probe> {
    let session = sessions.find(probe.token, arrival.from.ip().to_canonical())?;
    let mut history = session.probe_history();
    let per_second = config.max_probes_per_s;
    if !history.bucket.try_take(arrival.at, per_second) {
        return None;
    }
    let window = history.window(probe.series, probe.sequence)?;
    session.note_activity();
    let echo = Echo {
        window,
        ..Echo::default()
    };
    Some(Probe { echo, ..probe })
}

/// Adds the times and the traffic class on arrival. An answer with an empty window does not get them.
fn stamped(reply: Probe, arrival: &Arrival, origin: Instant) -> Probe {
    if reply.echo.window == 0 {
        return reply;
    }
    Probe {
        echo: Echo {
            tos_arrived: arrival.tos.unwrap_or(0),
            arrived_ns: arrival.at.saturating_duration_since(origin).as_nanos() as u64,
            held_ns: u32::try_from(arrival.at.elapsed().as_nanos()).unwrap_or(u32::MAX),
            window: reply.echo.window,
        },
        ..reply
    }
}

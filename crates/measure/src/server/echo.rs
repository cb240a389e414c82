//! Answers to probes.

use std::thread;
use std::time::{Duration, Instant};

use super::config::Config;
use super::reflect::Reflector;
use super::session::Sessions;
use crate::datagram::{Arrival, Datagrams};
use crate::protocol::{Echo, Probe};

/// Answers until the process ends. `key` is for the tokens of those who take part in no test, times are since `origin`.
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
            // An ICMP message about an earlier reply, or a system out of memory: neither is worth spinning for.
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        let Some(probe) = Probe::decode(&buffer[..arrival.length]) else {
            continue;
        };
        let told = if probe.series == Probe::NO_TEST {
            reflector.reply(probe, &arrival, config.max_reflections_per_s)
        } else {
            reply(probe, &arrival, config, sessions)
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

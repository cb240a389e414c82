//! Any bytes that come back for a probe (ours, irtt's, or an ICMP message) are an answer or are ignored. Figures from answers are
//! finite, and no round trip is negative.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sqm_measure::icmp::{IcmpEcho, IcmpTimestamp};
use sqm_measure::irtt;
use sqm_measure::fuzz::answered_with;
use sqm_measure::protocol::{Echo, Probe, Token};
use sqm_measure::reflect::{Answer, Conversation, Protocol};

/// Largest accepted time of a clock, nanoseconds.
const LONGEST_NS: i64 = 1 << 60;

/// A well-formed answer made of any bytes, so that the fuzzer gets past the magic.
fn probe(bytes: &[u8]) -> Option<[u8; Probe::LENGTH]> {
    let bytes: &[u8; 22] = bytes.first_chunk()?;
    let long = |at: usize| u64::from_be_bytes(*bytes[at..].first_chunk().expect("it is within"));
    let probe = Probe {
        token: Token([bytes[0]; 16]),
        series: u16::from(bytes[1] & 1) * Probe::NO_TEST,
        tos: bytes[1],
        sequence: (long(2) >> 56) as u32,
        echo: Echo {
            tos_arrived: bytes[2],
            arrived_ns: long(3),
            held_ns: long(11) as u32,
            window: long(14),
        },
    };
    Some(probe.encode())
}

fuzz_target!(|bytes: &[u8]| {
    let messages: Vec<&[u8]> = bytes.chunks(22).collect();
    let made: Vec<_> = messages.iter().filter_map(|bytes| probe(bytes)).collect();
    let made: Vec<&[u8]> = made.iter().map(<[u8; Probe::LENGTH]>::as_slice).collect();
    answered_with(&made);
    let raw: Vec<&[u8]> = bytes.split(|byte| *byte == b'|').collect();
    answered_with(&raw);
    for protocol in [Protocol::Sqm, Protocol::Irtt] {
        let mut talk = Conversation::new(protocol);
        for message in raw.iter().chain(&made) {
            if let Some(Answer::Echo { times_ns: Some((arrived, left)), .. }) = talk.hear(message) {
                assert!(0 <= arrived && arrived <= left && left <= LONGEST_NS);
            }
            let _ = talk.ask(7);
        }
    }
    let _ = irtt::parse(bytes);
    let _ = IcmpTimestamp::parse_reply(bytes);
    for v6 in [false, true] {
        let _ = IcmpEcho::parse_reply(bytes, v6);
    }
});

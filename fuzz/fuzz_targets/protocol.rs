//! Any bytes that arrive at either end of a test, or from the kernel, are a message or are refused. Nothing panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sqm_measure::cpu::CpuTimes;
use sqm_measure::icmp::IcmpEcho;
use sqm_measure::protocol::{self, Hello, MAX_REPLY, MAX_REQUEST, Probe, Reply, Request};
use sqm_measure::reflect::{Conversation, Protocol};
use sqm_measure::tcp_info::TcpInfo;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some((hello, length))) = protocol::decode::<Hello>(bytes, MAX_REQUEST) {
        assert!(length <= bytes.len() && length <= MAX_REQUEST + 4);
        let again = protocol::encode(&hello);
        assert_eq!(protocol::decode(&again, MAX_REQUEST), Ok(Some((hello, again.len()))));
    }
    let _ = protocol::decode::<Request>(bytes, MAX_REQUEST);
    let _ = protocol::decode::<Reply>(bytes, MAX_REPLY);
    if let Some(probe) = Probe::decode(bytes) {
        assert_eq!(Probe::decode(&probe.encode()), Some(probe));
    }
    for v6 in [false, true] {
        let _ = IcmpEcho::parse_reply(bytes, v6);
    }
    for protocol in [Protocol::Sqm, Protocol::Irtt] {
        // The meaning of a message depends on the messages before it.
        let mut talk = Conversation::new(protocol);
        for message in bytes.split(|byte| *byte == b'|') {
            let _ = talk.hear(message);
            let _ = talk.ask(7);
        }
    }
    let _ = TcpInfo::decode(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = CpuTimes::parse(text).since(&CpuTimes::parse("cpu0 1 2 3 4\n"));
    }
});

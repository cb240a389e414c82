//! Any bytes are a frame: it is read, marked and washed without a panic, a mark changes nothing but the mark, and its
//! flow is hashed alike in both ways that lead there.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sqm_core::flow_hash::HashKey;
use sqm_core::frame::{EtherType, Frame, LinkType};
use sqm_core::packet::Packet;

const LINKS: [LinkType; 6] = [
    LinkType::Ethernet,
    LinkType::Raw,
    LinkType::LinuxSll,
    LinkType::LinuxSll2,
    LinkType::Ppp,
    LinkType::Null,
];

fuzz_target!(|input: (u8, u32, u16, Vec<u8>)| {
    let (link, length, protocol, bytes) = input;
    let mut frame = match LINKS.get(usize::from(link)) {
        Some(link) => Frame::new(*link, bytes.clone(), length),
        None => Frame::with_network_at(link.into(), EtherType(protocol), bytes.clone(), length),
    };
    let before = frame.view();
    let key = HashKey(1, 2);
    assert_eq!(frame.hashed(&key), before.hashed(&key));
    if let Some(tcp) = frame.tcp() {
        assert!(tcp.options.len() <= 40);
    }
    assert_eq!(frame.set_ce(), before.ds_field & 3 != 0);
    let changed = bytes.iter().zip(frame.bytes()).filter(|(a, b)| a != b).count();
    assert!(changed <= 3 && frame.bytes().len() == bytes.len());
    frame.clear_dscp();
    assert_eq!(frame.view().ds_field & 0xfc, 0);
});

//! Any bytes are a capture or are refused; what is read is written and read back as the same packets.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sqm_replay::pcap::{Format, LinkNumber, Reader, Writer};
use sqm_core::units::Instant;

type Packet = (Instant, LinkNumber, u32, Vec<u8>);

/// The packets before the end or the first error.
fn packets(file: &[u8]) -> Vec<Packet> {
    let mut packets = Vec::new();
    let Ok(mut reader) = Reader::new(file) else {
        return packets;
    };
    while let Ok(Some(record)) = reader.next_packet() {
        assert!(record.length as usize >= record.bytes.len());
        let time = record.time.unwrap_or_default();
        packets.push((time, record.link, record.length, record.bytes.to_vec()));
    }
    assert!(reader.position() <= file.len() as u64);
    packets
}

fuzz_target!(|file: &[u8]| {
    let found = packets(file);
    let mut writer = Writer::new(Vec::new(), Format::Pcapng).expect("memory takes all");
    for (time, link, length, bytes) in &found {
        writer.packet(*time, *link, *length, bytes).expect("memory takes all");
    }
    assert_eq!(packets(&writer.finish().expect("memory takes all")), found);
});

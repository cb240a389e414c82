//! Capture files made by hand, byte by byte, good and bad.

use proptest::prelude::*;
use sqm_core::units::Instant;
use sqm_replay::pcap::{Error, Format, LinkNumber, Reader, Writer};

/// A packet as a test compares it: time, interface, link, length, bytes.
type Packet = (Option<u64>, u32, u16, u32, Vec<u8>);

/// All packets, and how it ended.
fn read(file: &[u8]) -> (Vec<Packet>, Result<(), Error>) {
    let mut packets = Vec::new();
    let result = (|| {
        let mut reader = Reader::new(file)?;
        while let Some(record) = reader.next_packet()? {
            let time = record.time.map(|t| t.0);
            packets.push((
                time,
                record.interface,
                record.link.0,
                record.length,
                record.bytes.to_vec(),
            ));
        }
        Ok(())
    })();
    (packets, result)
}

fn good(file: &[u8]) -> Vec<Packet> {
    let (packets, result) = read(file);
    result.unwrap();
    packets
}

/// Numbers in the byte order of a file.
#[derive(Clone, Copy)]
struct Order {
    big: bool,
}

const ORDERS: [Order; 2] = [Order { big: false }, Order { big: true }];

impl Order {
    fn u32(self, n: u32) -> [u8; 4] {
        if self.big {
            n.to_be_bytes()
        } else {
            n.to_le_bytes()
        }
    }

    fn u16(self, n: u16) -> [u8; 2] {
        if self.big {
            n.to_be_bytes()
        } else {
            n.to_le_bytes()
        }
    }

    fn pcap(self, magic: u32, link: u32) -> Vec<u8> {
        let mut file = self.u32(magic).to_vec();
        file.extend(self.u16(2));
        file.extend(self.u16(4));
        file.extend([0; 8]);
        file.extend(self.u32(65535));
        file.extend(self.u32(link));
        file
    }

    fn record(self, seconds: u32, fraction: u32, length: u32, bytes: &[u8]) -> Vec<u8> {
        let numbers = [seconds, fraction, bytes.len() as u32, length].map(|n| self.u32(n));
        [&numbers.concat(), bytes].concat()
    }

    fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let mut body = body.to_vec();
        body.resize(body.len().next_multiple_of(4), 0);
        let length = self.u32(body.len() as u32 + 12);
        [&self.u32(kind)[..], &length, &body, &length].concat()
    }

    fn section(self) -> Vec<u8> {
        let body = [&self.u32(0x1a2b_3c4d)[..], &self.u16(1), &self.u16(0), &[0xff; 8]].concat();
        self.block(0x0a0d_0d0a, &body)
    }

    fn interface(self, link: u16, snap_length: u32, options: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = [&self.u16(link)[..], &[0; 2], &self.u32(snap_length)].concat();
        for (code, value) in options {
            body.extend(self.u16(*code));
            body.extend(self.u16(value.len() as u16));
            body.extend(*value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        self.block(1, &body)
    }

    fn enhanced(self, interface: u32, time: u64, length: u32, bytes: &[u8]) -> Vec<u8> {
        let numbers = [
            interface,
            (time >> 32) as u32,
            time as u32,
            bytes.len() as u32,
            length,
        ];
        self.block(6, &[&numbers.map(|n| self.u32(n)).concat(), bytes].concat())
    }
}

#[test]
fn pcap_in_both_byte_orders_and_both_resolutions() {
    for order in ORDERS {
        for (magic, nanos) in [
            (0xa1b2_c3d4, 1_700_000_000_123_456_000),
            (0xa1b2_3c4d, 1_700_000_000_000_123_456),
        ] {
            let file = [
                order.pcap(magic, 1),
                order.record(1_700_000_000, 123_456, 1514, &[7; 96]),
                order.record(1_700_000_000, 123_456, 0, &[]),
            ]
            .concat();
            let expected = [
                (Some(nanos), 0, 1, 1514, vec![7; 96]),
                (Some(nanos), 0, 1, 0, vec![]),
            ];
            assert_eq!(good(&file), expected);
        }
    }
}

#[test]
fn the_eight_extra_bytes_of_an_old_format_are_skipped() {
    let order = ORDERS[0];
    let mut record = order.record(1, 2, 4, &[1, 2, 3, 4]);
    record.splice(16..16, [0xee; 8]);
    let file = [order.pcap(0xa1b2_cd34, 101), record].concat();
    assert_eq!(good(&file), [(Some(1_000_002_000), 0, 101, 4, vec![1, 2, 3, 4])]);
}

#[test]
fn a_frame_check_sequence_is_no_part_of_a_frame() {
    let order = ORDERS[1];
    let file = [
        order.pcap(0xa1b2_c3d4, 0x2400_0001),
        order.record(0, 0, 64, &[9; 64]),
        order.record(0, 0, 1518, &[9; 64]),
    ]
    .concat();
    let sizes: Vec<_> = good(&file).iter().map(|p| (p.3, p.4.len())).collect();
    assert_eq!(sizes, [(60, 60), (1514, 64)]);
}

#[test]
fn pcapng_with_several_interfaces_and_clocks() {
    for order in ORDERS {
        let offset = if order.big {
            5_i64.to_be_bytes()
        } else {
            5_i64.to_le_bytes()
        };
        let file = [
            order.section(),
            order.interface(1, 0, &[]),
            order.interface(101, 0, &[(2, b"eth1"), (9, &[9])]),
            order.interface(113, 0, &[(9, &[0x80 | 10]), (14, &offset)]),
            order.interface(276, 0, &[(9, &[3]), (13, &[4])]),
            // Name resolution, statistics and a block of the future.
            order.block(4, &[0; 8]),
            order.block(5, &[0; 12]),
            order.block(0x4711, &[1, 2, 3, 4, 5]),
            order.enhanced(0, 1_000_001, 5, &[1, 2, 3, 4, 5]),
            order.enhanced(1, 1_000_000_001, 2000, &[1]),
            order.enhanced(2, 1024 + 512, 1, &[1]),
            order.enhanced(3, 1500, 8, &[1; 8]),
        ]
        .concat();
        let expected = [
            (Some(1_000_001_000), 0, 1, 5, vec![1, 2, 3, 4, 5]),
            (Some(1_000_000_001), 1, 101, 2000, vec![1]),
            (Some(6_500_000_000), 2, 113, 1, vec![1]),
            (Some(1_500_000_000), 3, 276, 4, vec![1; 4]),
        ];
        assert_eq!(good(&file), expected);
    }
}

#[test]
fn sections_of_either_byte_order_follow_one_another() {
    let [little, big] = ORDERS;
    let file = [
        little.section(),
        little.interface(1, 0, &[]),
        little.enhanced(0, 1, 1, &[1]),
        big.section(),
        big.interface(101, 0, &[]),
        big.enhanced(0, 2, 1, &[2]),
    ]
    .concat();
    let expected = [(Some(1000), 0, 1, 1, vec![1]), (Some(2000), 1, 101, 1, vec![2])];
    assert_eq!(good(&file), expected);
}

#[test]
fn simple_and_obsolete_packet_blocks() {
    let order = ORDERS[1];
    let simple = [&order.u32(1000)[..], &[3; 8]].concat();
    let obsolete = [
        &order.u16(0)[..],
        &order.u16(77),
        &[0, 7, 4, 8, 12].map(|n| order.u32(n))[1..2].concat(),
        &[0; 0],
    ]
    .concat();
    let obsolete = [obsolete, [8, 2, 2].map(|n| order.u32(n)).concat(), vec![5, 6]].concat();
    let file = [
        order.section(),
        order.interface(1, 8, &[]),
        order.block(3, &simple),
        order.block(2, &obsolete),
    ]
    .concat();
    let time = ((7_u64 << 32) + 8) * 1000;
    let expected = [(None, 0, 1, 1000, vec![3; 8]), (Some(time), 0, 1, 2, vec![5, 6])];
    assert_eq!(good(&file), expected);
}

#[test]
fn other_files_are_refused_as_no_capture() {
    let complaint = |file: &[u8]| read(file).1.unwrap_err().to_string();
    assert_eq!(
        complaint(b"<!DOCTYPE html>"),
        "not a capture: pcap and pcapng files do not begin with 3c 21 44 4f"
    );
    for (beginning, program) in [
        (&b"\x1f\x8b\x08\0rest"[..], "gzip"),
        (b"\xfd7zXZ\0", "xz"),
        (b"\x28\xb5\x2f\xfd\0", "zstd"),
        (b"BZh91AY", "bzip2"),
    ] {
        let expected = format!("compressed by {program}: decompress it first, with '{program} -dk FILE'");
        assert_eq!(complaint(beginning), expected);
    }
    assert_eq!(
        complaint(b""),
        "cut short: it ends at byte 0, in the middle of its magic number"
    );
    assert_eq!(
        complaint(&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0]),
        "cut short: it ends at byte 6, in the middle of the header of a pcap file"
    );
}

#[test]
fn a_truncated_file_gives_its_complete_packets_and_the_place_of_its_end() {
    let order = ORDERS[0];
    let pcap = [
        order.pcap(0xa1b2_c3d4, 1),
        order.record(1, 0, 60, &[1; 60]),
        order.record(2, 0, 60, &[2; 60]),
    ]
    .concat();
    let pcapng = [
        order.section(),
        order.interface(1, 0, &[]),
        order.enhanced(0, 1, 60, &[1; 60]),
        order.enhanced(0, 2, 60, &[2; 60]),
    ]
    .concat();
    for (file, ends) in [(pcap, vec![24, 100, 176]), (pcapng, vec![28, 48, 140, 232])] {
        assert_eq!(*ends.last().unwrap(), file.len());
        for end in 0..=file.len() {
            let (packets, result) = read(&file[..end]);
            assert_eq!(
                packets.len(),
                good(&file)
                    .iter()
                    .filter(|p| {
                        let place = ends.len() - 2 + usize::from(p.4[0] == 2);
                        end >= ends[place]
                    })
                    .count()
            );
            if ends.contains(&end) {
                result.unwrap();
            } else {
                assert!(matches!(result, Err(Error::Truncated { at, .. }) if at == end as u64));
            }
        }
    }
}

#[test]
fn wrong_lengths_are_detected() {
    let order = ORDERS[0];
    let after = |blocks: &[Vec<u8>]| [order.section(), order.interface(1, 0, &[]), blocks.concat()].concat();
    let mut endless = order.pcap(0xa1b2_c3d4, 1);
    endless.extend([0, 0, 0xffff_ffff, 60].map(|n| order.u32(n)).concat());
    let mut uneven = order.enhanced(0, 1, 4, &[1; 4]);
    uneven[4] += 1;
    let mut huge = uneven.clone();
    huge[4..8].copy_from_slice(&order.u32(0x7fff_fffc));
    let mut other_end = order.enhanced(0, 1, 4, &[1; 4]);
    *other_end.last_mut().unwrap() = 9;
    let mut long_packet = order.enhanced(0, 1, 4, &[1; 4]);
    long_packet[20] = 5;
    let no_order = order.block(0x0a0d_0d0a, &[0; 16]);
    let short_section = [
        &Order { big: false }.u32(0x0a0d_0d0a)[..],
        &order.u32(12),
        &order.u32(0x1a2b_3c4d),
    ]
    .concat();
    for (file, place, what) in [
        (endless, 24, "a packet of 4294967295 bytes"),
        (after(&[uneven]), 48, "a block of 37 bytes"),
        (after(&[huge]), 48, "a block of 2147483644 bytes"),
        (after(&[other_end]), 48, "two different lengths"),
        (after(&[long_packet]), 48, "a packet of 5 bytes in a block of 24"),
        (
            after(&[order.enhanced(1, 1, 1, &[1])]),
            48,
            "interface 1, which is not described",
        ),
        (
            after(&[order.block(6, &[0; 16])]),
            48,
            "a packet in a block of 16 bytes",
        ),
        (
            after(&[order.block(1, &[0; 4])]),
            48,
            "an interface's description in a block of 4",
        ),
        (
            after(&[order.interface(1, 0, &[(9, &[20])])]),
            48,
            "impossible time resolution",
        ),
        (no_order, 0, "a section without a byte order"),
        (short_section, 0, "a section's header of 12 bytes"),
    ] {
        match read(&file).1 {
            Err(Error::Damaged { at, what: said }) => {
                assert!(at == place && said.contains(what), "{at}: {said}");
            }
            other => panic!("{what}: {other:?}"),
        }
    }
}

#[test]
fn one_pcap_file_has_one_link() {
    let mut writer = Writer::new(Vec::new(), Format::Pcap).unwrap();
    writer.packet(Instant(1), LinkNumber::RAW, 1, &[1]).unwrap();
    let error = writer
        .packet(Instant(2), LinkNumber::ETHERNET, 1, &[1])
        .unwrap_err();
    assert!(
        error.to_string().contains("two link types (101 and 1):"),
        "{error}"
    );
    assert_eq!(good(&writer.finish().unwrap()).len(), 1);
}

#[test]
fn a_file_without_packets_is_a_file() {
    for format in [Format::Pcap, Format::Pcapng] {
        let file = Writer::new(Vec::new(), format).unwrap().finish().unwrap();
        assert_eq!(good(&file), []);
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        packets in prop::collection::vec(
            (0..u64::from(u32::MAX) * 1_000_000_000, 0..3_u16, prop::collection::vec(any::<u8>(), 0..50), 0..2000_u32),
            0..10,
        ),
        pcapng: bool,
    ) {
        let format = if pcapng { Format::Pcapng } else { Format::Pcap };
        let mut writer = Writer::new(Vec::new(), format).unwrap();
        let mut expected = Vec::new();
        let mut links = Vec::new();
        for (time, link, bytes, more) in packets {
            let link = if pcapng { link } else { 1 };
            let interface = links.iter().position(|known| *known == link).unwrap_or_else(|| {
                links.push(link);
                links.len() - 1
            });
            let length = bytes.len() as u32 + more;
            writer.packet(Instant(time), LinkNumber(link), length, &bytes).unwrap();
            expected.push((Some(time), interface as u32, link, length, bytes));
        }
        prop_assert_eq!(good(&writer.finish().unwrap()), expected);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(kind in 0..4_usize, bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let start = [
            vec![],
            ORDERS[0].pcap(0xa1b2_c3d4, 1),
            ORDERS[1].section(),
            [ORDERS[0].section(), ORDERS[0].interface(1, 0, &[])].concat(),
        ];
        let _ = read(&[start[kind].clone(), bytes].concat());
    }
}

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

/// An IPv4 header in front of `payload`, with a correct checksum.
fn ipv4(ds_field: u8, protocol: u8, fragment: u16, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let header_length = 20 + options.len();
    let total = (header_length + payload.len()) as u16;
    let mut packet = vec![0x40 | (header_length / 4) as u8, ds_field];
    packet.extend(total.to_be_bytes());
    packet.extend([0x12, 0x34]);
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0, 192, 168, 1, 2, 203, 0, 113, 3]);
    packet.extend(options);
    let sum = ones_complement_sum(&packet);
    packet[10..12].copy_from_slice(&(!sum).to_be_bytes());
    packet.extend(payload);
    packet
}

fn ipv6(traffic_class: u8, label: u32, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = (6 << 28 | u32::from(traffic_class) << 20 | label)
        .to_be_bytes()
        .to_vec();
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next_header, 64]);
    for host in [2, 3] {
        packet.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
    }
    packet.extend(payload);
    packet
}

/// A TCP header with ports 40000 and 443, then two bytes of data.
fn tcp(options: &[u8]) -> Vec<u8> {
    let mut segment = vec![0x9c, 0x40, 0x01, 0xbb];
    segment.extend([0, 0, 0, 1, 0xde, 0xad, 0xbe, 0xef]);
    segment.extend([0x51 + (options.len() / 4 * 16) as u8, 0x50, 0, 0, 0, 0, 0, 0]);
    segment.extend(options);
    segment.extend([0xda, 0x7a]);
    segment
}

fn ethernet(types_and_tags: &[u8], packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend(types_and_tags);
    frame.extend(packet);
    frame
}

/// RFC 1071: 0xffff over a header with a correct checksum.
fn ones_complement_sum(header: &[u8]) -> u16 {
    let mut sum: u32 = header
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn frame(link: LinkType, bytes: Vec<u8>) -> Frame<Vec<u8>> {
    let length = bytes.len() as u32;
    Frame::new(link, bytes, length)
}

fn tuple(view: &View) -> Tuple {
    match view.key {
        FlowKey::Tuple(tuple) => tuple,
        FlowKey::Hashes(_) => panic!("frames bring no hashes"),
    }
}

fn ports(view: &View) -> (u8, u16, u16) {
    let tuple = tuple(view);
    (tuple.protocol, tuple.source_port, tuple.destination_port)
}

const EVERY_LINK: [LinkType; 6] = [
    LinkType::Ethernet,
    LinkType::Raw,
    LinkType::LinuxSll,
    LinkType::LinuxSll2,
    LinkType::Ppp,
    LinkType::Null,
];

#[test]
fn every_link_header_is_skipped() {
    let packet = || ipv4(0xb8, 6, 0, &[], &tcp(&[]));
    let packet6 = || ipv6(0xb8, 0, 6, &tcp(&[]));
    let after = |header: &[u8], packet: Vec<u8>| [header, &packet].concat();
    let mut sll = vec![0; 14];
    let mut sll2 = vec![0x08, 0x00];
    sll.extend([0x86, 0xdd]);
    sll2.extend([0; 18]);
    for (link, bytes, offset, network) in [
        (
            LinkType::Ethernet,
            ethernet(&[0x08, 0], &packet()),
            14,
            Network::Ipv4,
        ),
        (
            LinkType::Ethernet,
            ethernet(&[0x86, 0xdd], &packet6()),
            14,
            Network::Ipv6,
        ),
        (
            LinkType::Ethernet,
            ethernet(&[0x88, 0xa8, 0, 7, 0x81, 0, 0, 8, 0x08, 0], &packet()),
            22,
            Network::Ipv4,
        ),
        (
            LinkType::Ethernet,
            ethernet(
                &[0x81, 0, 0, 7, 0x88, 0x64, 0x11, 0, 0, 1, 0, 44, 0x00, 0x57],
                &packet6(),
            ),
            26,
            Network::Ipv6,
        ),
        (
            LinkType::Ethernet,
            ethernet(&[0x88, 0x64, 0x11, 0, 0, 1, 0, 44, 0x21], &packet()),
            21,
            Network::Ipv4,
        ),
        (LinkType::Raw, packet(), 0, Network::Ipv4),
        (LinkType::Raw, packet6(), 0, Network::Ipv6),
        (LinkType::LinuxSll, after(&sll, packet6()), 16, Network::Ipv6),
        (LinkType::LinuxSll2, after(&sll2, packet()), 20, Network::Ipv4),
        (
            LinkType::Ppp,
            after(&[0xff, 3, 0, 0x21], packet()),
            4,
            Network::Ipv4,
        ),
        (LinkType::Ppp, after(&[0x57], packet6()), 1, Network::Ipv6),
        (LinkType::Null, after(&[2, 0, 0, 0], packet()), 4, Network::Ipv4),
        (LinkType::Null, after(&[0, 0, 0, 30], packet6()), 4, Network::Ipv6),
    ] {
        let view = frame(link, bytes).view();
        assert_eq!((view.network_offset, view.network), (offset, network), "{link:?}");
        assert_eq!(view.ds_field, 0xb8);
        assert_eq!(ports(&view), (6, 40000, 443), "{link:?}");
    }
}

#[test]
fn what_is_not_ip_has_no_flow() {
    let discovery = ethernet(&[0x88, 0x63, 0x11, 9, 0, 0, 0, 0], &[]);
    let tags: Vec<u8> = [0x81, 0, 0, 1].repeat(9);
    for (bytes, network) in [
        (ethernet(&[0x08, 0x06], &[0; 28]), Network::Arp),
        (ethernet(&[0x81, 0, 0, 7, 0x08, 0x06], &[0; 28]), Network::Arp),
        (ethernet(&[0x88, 0xcc], &[0; 40]), Network::Other),
        (discovery, Network::Other),
        (
            ethernet(&[0x08, 0], &ipv4(0, 6, 0, &[], &[])[..19]),
            Network::Other,
        ),
        (ethernet(&[0x08, 0], &[0x4f; 15]), Network::Other),
        (ethernet(&[0x08, 0], &[0x44; 30]), Network::Other),
        (ethernet(&[0x08, 0], &[0x65; 60]), Network::Other),
        (ethernet(&tags, &[0x08, 0, 0x45, 0]), Network::Other),
        (Vec::new(), Network::Other),
    ] {
        let mut frame = frame(LinkType::Ethernet, bytes.clone());
        let view = frame.view();
        assert_eq!(view.network, network);
        assert_eq!(tuple(&view).addresses, Addresses::None);
        assert!(!frame.set_ce());
        frame.clear_dscp();
        assert_eq!(frame.bytes(), bytes);
        assert!(frame.tcp().is_none());
    }
}

#[test]
fn extension_headers_are_followed_to_the_ports() {
    let hop_by_hop = [43, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let routing = [60, 0, 0, 0, 0, 0, 0, 0];
    let destination = [51, 0, 0, 0, 0, 0, 0, 0];
    let authentication = [
        44, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    let fragment = |offset: u8| [17, 0, offset, 1, 0, 0, 0, 9];
    let chain = |offset| {
        let headers = [
            &hop_by_hop[..],
            &routing,
            &destination,
            &authentication,
            &fragment(offset),
        ];
        ipv6(0, 0, 0, &[headers.concat(), tcp(&[])].concat())
    };
    let first = frame(LinkType::Raw, chain(0));
    assert_eq!(ports(&first.view()), (17, 40000, 443));
    assert!(
        first.tcp().is_none(),
        "the ACK filter looks behind no extension header"
    );
    assert_eq!(
        ports(&frame(LinkType::Raw, chain(0x20)).view()),
        (17, 0, 0),
        "a later fragment has no ports"
    );

    let endless: Vec<u8> = [60, 0, 0, 0, 0, 0, 0, 0].repeat(50);
    assert_eq!(
        ports(&frame(LinkType::Raw, ipv6(0, 0, 60, &endless)).view()),
        (60, 0, 0)
    );
}

#[test]
fn later_fragments_have_no_ports() {
    let with = |fragment| frame(LinkType::Raw, ipv4(0, 6, fragment, &[], &tcp(&[])));
    let (first, later) = (with(0x2000), with(0x2001));
    assert_eq!(ports(&first.view()), (6, 40000, 443));
    assert_eq!(ports(&later.view()), (6, 0, 0));
    assert!(!first.tcp().unwrap().later_fragment);
    assert!(later.tcp().unwrap().later_fragment);
}

#[test]
fn ip_options_and_protocols_without_ports() {
    let options = ipv4(0, 17, 0, &[1; 8], &[0x9c, 0x40, 0x01, 0xbb]);
    assert_eq!(ports(&frame(LinkType::Raw, options).view()), (17, 40000, 443));
    let echo = ipv4(0, 1, 0, &[], &[8, 0, 0xab, 0xcd, 0x12, 0x34, 0, 1]);
    assert_eq!(ports(&frame(LinkType::Raw, echo).view()), (1, 0, 0));
    let cut = ipv4(0, 17, 0, &[], &[0x9c, 0x40, 0x01]);
    assert_eq!(ports(&frame(LinkType::Raw, cut).view()), (17, 0, 0));
}

#[test]
fn tunnelled_flows_are_the_inner_packets() {
    let inner6 = ipv6(0b10, 0xabcde, 6, &tcp(&[]));
    let mut sixinfour = frame(LinkType::Raw, ipv4(0x01, 41, 0, &[], &inner6));
    let view = sixinfour.view();
    assert_eq!(ports(&view), (6, 40000, 443));
    assert_eq!(tuple(&view).flow_label, 0xabcde);
    assert_eq!((view.network, view.ds_field), (Network::Ipv4, 0x01));
    assert!(sixinfour.set_ce());
    assert_eq!(sixinfour.view().ds_field, 0x03);
    assert_eq!(
        &sixinfour.bytes()[20..],
        inner6,
        "only the outer header is marked"
    );
    let tcp_inside = sixinfour.tcp().unwrap();
    assert_eq!(
        (tcp_inside.payload, tcp_inside.tuple.addresses),
        (2, tuple(&view).addresses)
    );

    let dslite = frame(LinkType::Raw, ipv6(0, 0, 4, &ipv4(0, 17, 0, &[], &[1, 0, 2, 0])));
    assert_eq!(ports(&dslite.view()), (17, 256, 512));
    assert!(dslite.tcp().is_none());

    let mut nested = ipv4(0, 17, 0, &[], &[1, 0, 2, 0]);
    for _ in 0..1000 {
        nested = ipv4(0, 4, 0, &[], &nested);
    }
    assert_eq!(ports(&frame(LinkType::Raw, nested).view()), (4, 0, 0));
}

#[test]
fn tcp_headers_are_read_as_they_stand() {
    let options = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
    let bytes = ethernet(&[0x08, 0], &ipv4(0, 6, 0, &[], &tcp(&options)));
    let whole = frame(LinkType::Ethernet, bytes.clone());
    let segment = whole.tcp().unwrap();
    assert_eq!((segment.ack, segment.flags), (0xdead_beef, 0x150));
    assert_eq!((segment.payload, segment.options), (2, &options[..]));
    assert_eq!(segment.tuple, tuple(&whole.view()));

    let cut_to = |length| Frame::new(LinkType::Ethernet, bytes[..length].to_vec(), 68);
    let payload = cut_to(66).tcp().map(|segment| segment.payload);
    assert_eq!(payload, Some(2), "lengths are IP's, not the capture's");
    assert!(cut_to(60).tcp().is_none());
    assert_eq!(ports(&cut_to(60).view()), (6, 40000, 443));

    let mut no_header = bytes;
    no_header[14 + 20 + 12] = 0x40;
    assert!(frame(LinkType::Ethernet, no_header).tcp().is_none());
}

#[test]
fn only_ecn_capable_packets_are_marked() {
    for (ecn, marked) in [(0, false), (1, true), (2, true), (3, true)] {
        for packet in [ipv4(0xb8 | ecn, 6, 0, &[], &[]), ipv6(0xb8 | ecn, 7, 6, &[])] {
            let mut frame = frame(LinkType::Raw, packet.clone());
            assert_eq!(frame.set_ce(), marked);
            let expected = if marked { 0xb8 | 3 } else { 0xb8 };
            assert_eq!(frame.view().ds_field, expected);
            frame.clear_dscp();
            assert_eq!(frame.view().ds_field, expected & 3);
            let changed = packet.iter().zip(frame.bytes()).filter(|(a, b)| a != b).count();
            assert!(changed <= 3, "the field and the checksum, nothing else");
        }
    }
}

proptest! {
    #[test]
    fn a_correct_checksum_stays_correct(
        ds_field: u8, protocol: u8, fragment: u16,
        words in 0..=10usize, payload in prop::collection::vec(any::<u8>(), 0..40), tags in 0..3usize, wash: bool,
    ) {
        let options = vec![1; words * 4];
        let packet = ipv4(ds_field, protocol, fragment, &options, &payload);
        let below = [&[0x81, 0, 0, 1].repeat(tags)[..], &[0x88, 0x64, 0x11, 0, 0, 1, 0, 0, 0, 0x21]].concat();
        let offset = 12 + below.len();
        let mut frame = frame(LinkType::Ethernet, ethernet(&below, &packet));
        if wash {
            frame.clear_dscp();
        } else {
            prop_assert_eq!(frame.set_ce(), ds_field & 3 != 0);
        }
        let header = &frame.bytes()[offset..offset + 20 + options.len()];
        prop_assert_eq!(ones_complement_sum(header), 0xffff);
    }

    #[test]
    fn a_wrong_checksum_stays_wrong(ds_field: u8, checksum: u16) {
        let mut packet = ipv4(ds_field, 17, 0, &[], &[]);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        let wrong = ones_complement_sum(&packet) != 0xffff;
        let mut frame = frame(LinkType::Raw, packet);
        frame.set_ce();
        prop_assert_eq!(ones_complement_sum(frame.bytes()) != 0xffff, wrong);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), link in 0..6usize, length: u32) {
        let mut frame = Frame::new(EVERY_LINK[link], bytes.clone(), length);
        let before = frame.view();
        let _ = frame.tcp();
        let marked = frame.set_ce();
        prop_assert_eq!(marked, before.ds_field & 3 != 0);
        prop_assert_eq!(frame.view().ds_field, if marked { before.ds_field | 3 } else { before.ds_field });
        prop_assert_eq!(tuple(&frame.view()), tuple(&before));
        prop_assert_eq!(frame.bytes().len(), bytes.len());
    }

    /// Most packets are hashed without the long way over their view: the outcome is the same.
    #[test]
    fn hashes_are_those_of_the_view(
        is_v4: bool, protocol in prop::sample::select(&[0u8, 4, 6, 17, 41, 44, 60, 132, 255]), fragment in 0..2u16,
        options in 0..=10usize, label in 0..2u32, payload in prop::collection::vec(any::<u8>(), 0..60), cut in 0..150usize,
    ) {
        let mut bytes = match is_v4 {
            true => ipv4(2, protocol, fragment, &vec![1; 4 * options], &payload),
            false => ipv6(2, label, protocol, &payload),
        };
        bytes.truncate(cut);
        let frame = frame(LinkType::Raw, bytes);
        let key = HashKey(1, 2);
        prop_assert_eq!(frame.hashed(&key), frame.view().hashed(&key));
    }

    /// Cut anywhere, a good packet is still answered, and its flow is the whole packet's or less of it.
    #[test]
    fn a_truncated_packet_does_not_panic(cut in 0..150usize) {
        let bytes = ethernet(&[0x81, 0, 0, 1, 0x08, 0], &ipv4(2, 41, 0, &[], &ipv6(0, 0, 6, &tcp(&[1; 12]))));
        let mut whole = bytes.clone();
        whole.truncate(cut);
        let mut cut = Frame::new(LinkType::Ethernet, whole, bytes.len() as u32);
        let _ = cut.tcp();
        cut.set_ce();
        let view = cut.view();
        prop_assert!(tuple(&view).source_port == 0 || ports(&view) == (6, 40000, 443));
    }
}

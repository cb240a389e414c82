use super::*;
use crate::fifo::{Fifo, Limit};
use crate::profile::Profile;
use crate::test_packet::{TestPacket, at_micros, departures, ethernet};

type TestHfsc = Hfsc<TestPacket, Fifo<TestPacket>>;

/// Classes by number, parent and words; a parent of 0 is the top.
fn hfsc(default: u32, classes: &[(u16, u16, &str)]) -> TestHfsc {
    let is_parent = |minor| classes.iter().any(|&(_, parent, _)| parent == minor);
    let classes = classes
        .iter()
        .map(|&(minor, parent, words)| ClassSpec {
            minor,
            parent: Some(parent).filter(|&parent| parent != 0),
            spec: spec::HfscClass::parse(words).unwrap(),
            leaf: (!is_parent(minor)).then(|| Fifo::new(Limit::Packets(10_000))),
        })
        .collect();
    let environment = Environment {
        handle: 1,
        ..ethernet(Profile::KERNEL)
    };
    Hfsc::new(&spec::Hfsc { default }, classes, Filters::default(), &environment)
}

fn fill(hfsc: &mut TestHfsc, minor: u16, packets: u32, len: u32) {
    for _ in 0..packets {
        let packet = TestPacket::new(minor.into(), len).class(1, minor);
        hfsc.enqueue(packet, at_micros(0), &mut ());
    }
}

fn letters(departures: &[(u32, u64)]) -> alloc::string::String {
    let letter = |&(id, _): &(u32, u64)| char::from_digit(id, 16).unwrap_or('?').to_ascii_uppercase();
    departures.iter().map(letter).collect()
}

const TOP: (u16, u16, &str) = (1, 0, "ls m2 1mbit ul m2 1mbit");

#[test]
fn siblings_share_by_their_curves() {
    let mut hfsc = hfsc(0, &[TOP, (0xa, 1, "ls m2 600kbit"), (0xb, 1, "ls m2 400kbit")]);
    fill(&mut hfsc, 0xa, 20, 1000);
    fill(&mut hfsc, 0xb, 20, 1000);
    let sent = departures(&mut hfsc, 15);
    assert_eq!(&letters(&sent)[..14], "ABABABAABABAAB");
    for (place, (_, micros)) in sent.iter().enumerate() {
        assert!(micros.abs_diff(place as u64 * 8000) <= 1, "{sent:?}");
    }
}

#[test]
fn real_time_service_comes_before_link_sharing() {
    let a = "rt m1 500kbit d 20ms m2 100kbit ls m2 400kbit";
    let mut hfsc = hfsc(0, &[TOP, (0xa, 1, a), (0xb, 1, "ls m2 600kbit")]);
    fill(&mut hfsc, 0xa, 4, 500);
    fill(&mut hfsc, 0xb, 20, 1000);
    let sent = departures(&mut hfsc, 11);
    assert_eq!(letters(&sent), "ABAABBABBBB");
    let millis: Vec<u64> = sent.iter().map(|(_, micros)| (micros + 1) / 1000).collect();
    assert_eq!(millis, [0, 4, 8, 16, 20, 28, 36, 40, 48, 56, 64]);
}

/// The setup script hfsc_lite at 7000 kbit/s: real time comes every 8 ms and ignores the upper limit.
#[test]
fn the_tree_of_hfsc_lite_behaves_as_measured() {
    let lite = || {
        let top = (1, 0, "sc m1 7142kbit d 1s m2 7000kbit ul rate 7142kbit");
        let (a, b) = ("ls m2 2000kbit rt m2 1000kbit", "ls m2 3000kbit rt m2 1000kbit");
        hfsc(0x13, &[top, (0x11, 1, a), (0x12, 1, a), (0x13, 1, b)])
    };
    let mut all = lite();
    for minor in [0x11, 0x12, 0x13] {
        fill(&mut all, minor, 1000, 1000);
    }
    let sent = departures(&mut all, 700);
    let expected = [
        (0x11, 0),
        (0x12, 0),
        (0x13, 0),
        (0x13, 3360),
        (0x11, 4481),
        (0x12, 5601),
        (0x13, 6721),
        (0x11, 7841),
        (0x11, 8000),
        (0x12, 8000),
        (0x13, 8000),
    ];
    for (&(id, micros), (expected_id, expected)) in sent.iter().zip(expected) {
        assert_eq!(id, expected_id, "{sent:?}");
        assert!(micros.abs_diff(expected) <= 1, "{micros} {expected}");
    }
    let last = sent[699].1;
    assert!((782_000..=784_000).contains(&last), "{last}");
    let of = |minor| sent.iter().filter(|(id, _)| *id == minor).count();
    for (minor, expected) in [(0x11, 200), (0x12, 200), (0x13, 300)] {
        assert!(of(minor).abs_diff(expected) <= 2, "{minor:x}: {}", of(minor));
    }

    let mut one = lite();
    fill(&mut one, 0x11, 100, 1000);
    let sent = departures(&mut one, 50);
    let gap = (sent[49].1 - sent[10].1) / 39;
    assert!(gap.abs_diff(1120) <= 1, "{gap}");
}

#[test]
fn packets_that_no_class_takes_are_dropped() {
    let mut hfsc = hfsc(1, &[TOP, (0xa, 1, "ls m2 1mbit")]);
    let mut drops: Vec<(TestPacket, DropReason)> = Vec::new();
    hfsc.enqueue(TestPacket::new(7, 1000), at_micros(0), &mut drops);
    assert_eq!(drops, [(TestPacket::new(7, 1000), DropReason::Unclassified)]);
    assert_eq!(hfsc.counters().dropped, 1);
}

#[test]
fn levels_count_from_the_leaves() {
    let share = "ls m2 1mbit";
    let hfsc = hfsc(
        0,
        &[(1, 0, share), (2, 1, "rt m2 1mbit"), (3, 2, share), (4, 1, share)],
    );
    let levels: Vec<(u16, u8)> = hfsc.classes().map(|class| (class.minor, class.level)).collect();
    assert_eq!(levels, [(1, 2), (2, 1), (3, 0), (4, 0)]);
}

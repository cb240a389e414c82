use super::*;
use crate::profile::Profile;
use crate::test_packet::{TestPacket, at_micros, departures, ethernet};

type TestHtb = Htb<TestPacket, Fifo<TestPacket>>;

/// Classes by number, parent and words; a parent of 0 is the top.
fn htb(default: u32, classes: &[(u16, u16, &str)]) -> TestHtb {
    let spec = spec::Htb {
        default,
        ..spec::Htb::default()
    };
    let is_parent = |minor| classes.iter().any(|&(_, parent, _)| parent == minor);
    let classes = classes
        .iter()
        .map(|&(minor, parent, words)| ClassSpec {
            minor,
            parent: Some(parent).filter(|&parent| parent != 0),
            spec: spec::HtbClass::parse(words).unwrap(),
            leaf: (!is_parent(minor)).then(|| Fifo::new(Limit::Packets(100))),
        })
        .collect();
    let environment = Environment {
        handle: 1,
        ..ethernet(Profile::KERNEL)
    };
    Htb::new(&spec, classes, Filters::default(), &environment)
}

fn fill(htb: &mut TestHtb, minor: u16, packets: u32) {
    for _ in 0..packets {
        let packet = TestPacket::new(minor.into(), 1000).class(1, minor);
        htb.enqueue(packet, at_micros(0), &mut ());
    }
}

const BURST: &str = "burst 1600 cburst 1600";

fn words(rate: &str) -> alloc::string::String {
    alloc::format!("rate {rate} {BURST}")
}

#[test]
fn one_class_sends_its_burst_then_its_rate() {
    let mut htb = htb(0, &[(0x10, 0, &words("1mbit"))]);
    fill(&mut htb, 0x10, 5);
    let departures = departures(&mut htb, 5);
    let times: Vec<u64> = departures.iter().map(|&(_, micros)| micros).collect();
    assert_eq!(times, [0, 0, 3200, 11200, 19200]);
    let class = htb.class(0x10).unwrap();
    assert_eq!((class.tokens, class.quantum, class.level), (-8_000_000, 12500, 0));
}

#[test]
fn a_class_alone_borrows_all_of_its_parent() {
    let leaf = words("500kbit ceil 1mbit");
    let mut htb = htb(0, &[(1, 0, &words("1mbit")), (2, 1, &leaf), (3, 1, &leaf)]);
    fill(&mut htb, 2, 5);
    let departures = departures(&mut htb, 5);
    let times: Vec<u64> = departures.iter().map(|&(_, micros)| micros).collect();
    assert_eq!(times, [0, 0, 3200, 11200, 19200]);
    let classes: Vec<(u8, u32)> = htb.classes().map(|class| (class.level, class.quantum)).collect();
    assert_eq!(classes, [(7, 12500), (0, 6250), (0, 6250)]);
}

#[test]
fn classes_of_equal_priority_alternate() {
    let leaf = words("500kbit ceil 1mbit quantum 1500");
    let mut htb = htb(0, &[(1, 0, &words("1mbit")), (2, 1, &leaf), (3, 1, &leaf)]);
    fill(&mut htb, 2, 10);
    fill(&mut htb, 3, 10);
    let departures = departures(&mut htb, 12);
    let times: Vec<u64> = departures.iter().map(|&(_, micros)| micros / 100).collect();
    assert_eq!(times, [0, 0, 0, 0, 64, 64, 224, 224, 384, 384, 544, 544]);
    for pair in departures.chunks(2).skip(2) {
        assert_ne!(pair[0].0, pair[1].0);
    }
}

/// A class within its own rate is served before a borrower of higher priority, but gets no more than that rate.
#[test]
fn priority_orders_the_borrowing_classes() {
    let (a, b) = (
        words("100kbit ceil 1mbit prio 0"),
        words("100kbit ceil 1mbit prio 1"),
    );
    let mut htb = htb(0, &[(1, 0, &words("1mbit")), (0xa, 1, &a), (0xb, 1, &b)]);
    fill(&mut htb, 0xa, 50);
    fill(&mut htb, 0xb, 50);
    let sent: Vec<(u32, u64)> = departures(&mut htb, 19)
        .into_iter()
        .map(|(id, micros)| (id, micros / 100))
        .collect();
    assert_eq!(
        sent[..10],
        [
            (0xa, 0),
            (0xa, 0),
            (0xb, 0),
            (0xb, 0),
            (0xa, 192),
            (0xa, 272),
            (0xa, 320),
            (0xb, 320),
            (0xa, 512),
            (0xa, 592)
        ]
    );
    assert!(sent.contains(&(0xb, 1120)), "{sent:?}");
    let of_b = sent.iter().filter(|(id, _)| *id == 0xb).count();
    assert_eq!(of_b, 4, "{sent:?}");
}

/// As in Linux. Building such a tree gives a warning.
#[test]
fn packets_that_no_class_takes_are_not_shaped() {
    let mut htb = htb(0x20, &[(0x10, 0, &words("8kbit"))]);
    for _ in 0..3 {
        htb.enqueue(TestPacket::new(7, 1000), at_micros(0), &mut ());
    }
    fill(&mut htb, 0x10, 1);
    let first: Vec<u32> = departures(&mut htb, 4).iter().map(|&(id, _)| id).collect();
    assert_eq!(first, [7, 7, 7, 0x10]);
    assert_eq!(htb.direct_packets(), 3);
}

/// The idle time of a borrowing class counts without limit; that of a class within its rate counts up to its burst.
#[test]
fn a_borrowing_class_keeps_its_idle_time() {
    let leaf = words("100kbit ceil 1mbit");
    let mut htb = htb(0, &[(1, 0, &words("1mbit")), (2, 1, &leaf)]);
    let mut send = |at_ms: u64| {
        htb.enqueue(
            TestPacket::new(0, 1500).class(1, 2),
            at_micros(at_ms * 1000),
            &mut (),
        );
        assert!(matches!(
            htb.dequeue(at_micros(at_ms * 1000), &mut ()),
            Dequeued::Packet(_)
        ));
        htb.class(2).unwrap()
    };
    // The first two are its own, the third is paid by the parent.
    let borrowed = (0..40).map(|n| send(n * 20)).find(|class| class.borrows == 1);
    let before = borrowed.unwrap().tokens;
    let after = send(10_000).tokens;
    assert!(after < 128_000_000 && before < 0, "{before} {after}");
}

#[test]
fn a_change_of_rate_keeps_packets_and_tokens() {
    let mut htb = htb(0, &[(0x10, 0, &words("1mbit"))]);
    fill(&mut htb, 0x10, 4);
    departures(&mut htb, 2);
    let tokens = htb.class(0x10).unwrap().tokens;
    assert!(htb.change(0x10, &spec::HtbClass::parse(&words("2mbit prio 3")).unwrap()));
    assert_eq!(htb.class(0x10).unwrap().tokens, tokens);
    assert_eq!(htb.backlog().packets, 2);
    let times: Vec<u64> = departures(&mut htb, 2)
        .iter()
        .map(|&(_, micros)| micros)
        .collect();
    assert_eq!(times, [3200, 7200], "at the new rate");
    assert!(!htb.change(0x11, &spec::HtbClass::parse("rate 1mbit").unwrap()));
}

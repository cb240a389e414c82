use alloc::string::ToString;

use proptest::prelude::*;

use super::*;
use crate::spec::Qdisc;

fn cake(words: &str) -> Cake {
    let mut cake = Cake::default();
    cake.apply(words)
        .unwrap_or_else(|error| panic!("{words}: {error}"));
    cake
}

#[test]
fn every_word_sets_its_parameter() {
    let d = Cake::default;
    let rate = |n| Some(Rate::from_bits_per_sec(n));
    for (words, expected) in [
        ("", d()),
        (
            "bandwidth 20mbit",
            Cake {
                bandwidth: rate(20_000_000),
                ..d()
            },
        ),
        ("bandwidth 20mbit unlimited", d()),
        ("bandwidth 0", d()),
        (
            "bandwidth 1mbit autorate-ingress",
            Cake {
                bandwidth: rate(1_000_000),
                autorate_ingress: true,
                ..d()
            },
        ),
        (
            "autorate-ingress bandwidth 1mbit",
            Cake {
                bandwidth: rate(1_000_000),
                ..d()
            },
        ),
        ("autorate-ingress unlimited", d()),
        (
            "rtt 30ms",
            Cake {
                rtt: Nanos::from_millis(30),
                ..d()
            },
        ),
        (
            "datacentre",
            Cake {
                rtt: Nanos::from_micros(100),
                ..d()
            },
        ),
        (
            "lan",
            Cake {
                rtt: Nanos::from_millis(1),
                ..d()
            },
        ),
        (
            "metro",
            Cake {
                rtt: Nanos::from_millis(10),
                ..d()
            },
        ),
        (
            "regional",
            Cake {
                rtt: Nanos::from_millis(30),
                ..d()
            },
        ),
        ("internet", d()),
        (
            "oceanic",
            Cake {
                rtt: Nanos::from_millis(300),
                ..d()
            },
        ),
        (
            "satellite",
            Cake {
                rtt: Nanos::from_millis(1000),
                ..d()
            },
        ),
        (
            "interplanetary",
            Cake {
                rtt: Nanos::from_millis(1_000_000),
                ..d()
            },
        ),
        (
            "lan rtt 5ms",
            Cake {
                rtt: Nanos::from_millis(5),
                ..d()
            },
        ),
        (
            "diffserv3 besteffort",
            Cake {
                tins: Tins::Besteffort,
                ..d()
            },
        ),
        (
            "precedence",
            Cake {
                tins: Tins::Precedence,
                ..d()
            },
        ),
        (
            "diffserv",
            Cake {
                tins: Tins::Diffserv4,
                ..d()
            },
        ),
        (
            "diffserv4",
            Cake {
                tins: Tins::Diffserv4,
                ..d()
            },
        ),
        (
            "diffserv8",
            Cake {
                tins: Tins::Diffserv8,
                ..d()
            },
        ),
        (
            "flowblind",
            Cake {
                isolation: Isolation::Flowblind,
                ..d()
            },
        ),
        (
            "srchost",
            Cake {
                isolation: Isolation::Srchost,
                ..d()
            },
        ),
        (
            "dsthost",
            Cake {
                isolation: Isolation::Dsthost,
                ..d()
            },
        ),
        (
            "hosts",
            Cake {
                isolation: Isolation::Hosts,
                ..d()
            },
        ),
        (
            "flows",
            Cake {
                isolation: Isolation::Flows,
                ..d()
            },
        ),
        (
            "dual-srchost",
            Cake {
                isolation: Isolation::DualSrchost,
                ..d()
            },
        ),
        (
            "dual-dsthost",
            Cake {
                isolation: Isolation::DualDsthost,
                ..d()
            },
        ),
        ("flows triple-isolate", d()),
        ("nat", Cake { nat: true, ..d() }),
        ("nat nonat", d()),
        ("wash", Cake { wash: true, ..d() }),
        ("wash nowash", d()),
        (
            "ack-filter",
            Cake {
                ack_filter: AckFilter::Filter,
                ..d()
            },
        ),
        (
            "ack-filter-aggressive",
            Cake {
                ack_filter: AckFilter::Aggressive,
                ..d()
            },
        ),
        ("ack-filter no-ack-filter", d()),
        ("ingress", Cake { ingress: true, ..d() }),
        ("ingress egress", d()),
        (
            "no-split-gso",
            Cake {
                split_gso: false,
                ..d()
            },
        ),
        ("no-split-gso split-gso", d()),
        (
            "memlimit 4mb",
            Cake {
                memlimit: Some(Bytes(4 << 20)),
                ..d()
            },
        ),
        ("memlimit 4mb memlimit 0", d()),
        ("fwmark 0xff", Cake { fwmark: 255, ..d() }),
        ("fwmark 15", Cake { fwmark: 15, ..d() }),
    ] {
        assert_eq!(cake(words), expected, "{words}");
    }
}

/// Every row of the size compensation table, and what order does to it.
#[test]
fn framing_words_add_or_set() {
    use Cells::{Atm, None as Whole, Ptm};
    for (words, from_ip, overhead, cells, mpu) in [
        ("", false, 0, Whole, 0),
        ("raw", false, 0, Whole, 0),
        ("conservative", true, 48, Atm, 0),
        ("overhead 18", true, 18, Whole, 0),
        ("overhead -64", true, -64, Whole, 0),
        ("overhead 256 mpu 256", true, 256, Whole, 256),
        ("ipoa-vcmux", true, 8, Atm, 0),
        ("ipoa-llcsnap", true, 16, Atm, 0),
        ("bridged-vcmux", true, 24, Atm, 0),
        ("bridged-llcsnap", true, 32, Atm, 0),
        ("pppoa-vcmux", true, 10, Atm, 0),
        ("pppoa-llc", true, 14, Atm, 0),
        ("pppoe-vcmux", true, 32, Atm, 0),
        ("pppoe-llcsnap", true, 40, Atm, 0),
        ("pppoe-ptm", true, 30, Ptm, 0),
        ("bridged-ptm", true, 22, Ptm, 0),
        ("ethernet", true, 38, Whole, 84),
        ("atm ethernet", true, 38, Atm, 84),
        ("ethernet ether-vlan ether-vlan", true, 46, Whole, 84),
        ("docsis", true, 18, Whole, 64),
        ("atm docsis", true, 18, Whole, 64),
        ("via-ethernet", false, 0, Whole, 0),
        ("atm", false, 0, Atm, 0),
        ("ptm mpu 64", false, 0, Ptm, 64),
        ("ptm noatm", false, 0, Whole, 0),
        ("overhead 22 bridged-ptm", true, 44, Ptm, 0),
        ("bridged-ptm overhead 22", true, 22, Ptm, 0),
        ("overhead 18 raw", false, 0, Whole, 0),
        ("raw overhead 18", false, 18, Whole, 0),
        ("ethernet raw docsis", false, 18, Whole, 64),
        ("mpu 64 conservative", true, 48, Atm, 64),
    ] {
        assert_eq!(
            cake(words).framing,
            Framing {
                from_ip,
                overhead,
                mpu,
                cells
            },
            "{words}"
        );
    }
}

#[test]
fn later_words_build_on_earlier_ones() {
    let mut cake = cake("bandwidth 20mbit overhead 22 diffserv3 nat besteffort");
    cake.apply("bridged-ptm diffserv4").unwrap();
    assert_eq!(cake.framing.overhead, 44);
    assert_eq!(cake.tins, Tins::Diffserv4);
    assert!(cake.nat);
    cake.apply("raw").unwrap();
    assert!(!cake.framing.from_ip);
}

#[test]
fn errors_name_the_word_its_place_and_a_better_one() {
    for (words, position, index, message) in [
        (
            "besteffrot",
            0,
            0,
            "unknown cake keyword 'besteffrot'; did you mean 'besteffort'?",
        ),
        (
            "nat  dual-scrhost",
            5,
            1,
            "unknown cake keyword 'dual-scrhost'; did you mean 'dual-srchost'?",
        ),
        ("nat target 5ms", 4, 1, "unknown cake keyword 'target'"),
        (
            "bandwidth",
            0,
            0,
            "cake keyword 'bandwidth' needs a rate, such as 20mbit",
        ),
        (
            "bandwidth 10mbits",
            10,
            1,
            "cake keyword 'bandwidth': '10mbits' is not a rate: unknown unit 'mbits'; did you mean '10mbit'?",
        ),
        (
            "bandwidth nat",
            10,
            1,
            "cake keyword 'bandwidth': 'nat' is not a rate",
        ),
        (
            "overhead 257",
            9,
            1,
            "cake keyword 'overhead' takes -64 to 256, not '257'",
        ),
        (
            "overhead -65",
            9,
            1,
            "cake keyword 'overhead' takes -64 to 256, not '-65'",
        ),
        (
            "overhead 9999999999999999999999",
            9,
            1,
            "cake keyword 'overhead' takes -64 to 256, not '9999999999999999999999'",
        ),
        (
            "overhead 1.5",
            9,
            1,
            "cake keyword 'overhead': '1.5' is not a whole number",
        ),
        ("mpu -1", 4, 1, "cake keyword 'mpu' takes 0 to 256, not '-1'"),
        (
            "overhead 250 ethernet",
            13,
            2,
            "cake keyword 'ethernet' raises the overhead above 256 bytes",
        ),
        (
            "lan metro",
            4,
            1,
            "cake takes one round-trip preset, but 'metro' follows 'lan'",
        ),
        ("rtt 0", 4, 1, "cake keyword 'rtt' takes 1us to 4294s, not '0'"),
        (
            "memlimit 9gb",
            9,
            1,
            "cake keyword 'memlimit' takes less than 4gb, not '9gb'",
        ),
        (
            "fwmark 0xg",
            7,
            1,
            "cake keyword 'fwmark': '0xg' is not a mask, such as 0xff",
        ),
    ] {
        let error = Cake::default().apply(words).unwrap_err();
        assert_eq!(error.to_string(), message);
        assert_eq!((error.position, error.index), (position, index), "{words}");
    }
    assert_eq!(
        Qdisc::parse("").unwrap_err().to_string(),
        "the name of a queueing discipline is missing"
    );
    assert_eq!(
        Qdisc::parse("ckae nat").unwrap_err().to_string(),
        "unknown queueing discipline 'ckae'; did you mean 'cake'?"
    );
}

#[test]
fn prints_in_the_order_of_tc_qdisc_show() {
    assert_eq!(
        cake("overhead 44 mpu 64 wash ingress bandwidth 85000kbit nat besteffort memlimit 4mb fwmark 255")
            .to_string(),
        "cake bandwidth 85mbit besteffort triple-isolate nat wash ingress no-ack-filter split-gso rtt 100ms \
         noatm overhead 44 mpu 64 memlimit 4mb fwmark 0xff"
    );
    assert_eq!(
        Cake::default().to_string(),
        "cake unlimited diffserv3 triple-isolate nonat nowash no-ack-filter split-gso rtt 100ms raw overhead 0"
    );
}

fn any_cake() -> impl Strategy<Value = Cake> {
    let tins = prop::sample::select(TINS.map(|(_, tins)| tins).to_vec());
    let isolation = prop::sample::select(ISOLATION.map(|(_, isolation)| isolation).to_vec());
    let ack_filter = prop::sample::select(ACK_FILTER.map(|(_, filter)| filter).to_vec());
    let cells = prop::sample::select(alloc::vec![Cells::None, Cells::Atm, Cells::Ptm]);
    let framing =
        (any::<bool>(), -64..=256i16, 0..=256u16, cells).prop_map(|(from_ip, overhead, mpu, cells)| {
            Framing {
                from_ip,
                overhead,
                mpu,
                cells,
            }
        });
    let flags = any::<(bool, bool, bool, bool, bool)>();
    let quantities = (
        prop::option::of(8..u64::MAX),
        1..u32::MAX,
        prop::option::of(1..u32::MAX),
        any::<u32>(),
    );
    (tins, isolation, ack_filter, framing, flags, quantities).prop_map(
        |(tins, isolation, ack_filter, framing, flags, (rate, rtt, memlimit, fwmark))| {
            let (autorate_ingress, nat, wash, ingress, split_gso) = flags;
            Cake {
                bandwidth: rate.map(Rate::from_bits_per_sec),
                autorate_ingress,
                rtt: Nanos::from_micros(rtt.into()),
                tins,
                isolation,
                nat,
                wash,
                ack_filter,
                ingress,
                split_gso,
                memlimit: memlimit.map(|n| Bytes(n.into())),
                fwmark,
                framing,
            }
        },
    )
}

proptest! {
    #[test]
    fn what_is_printed_is_read_back(cake in any_cake()) {
        prop_assert_eq!(Qdisc::parse(&cake.to_string()), Ok(Qdisc::Cake(cake)));
    }

    #[test]
    fn arbitrary_words_do_not_panic(words in prop::collection::vec(
        prop_oneof![prop::sample::select(keywords().collect::<alloc::vec::Vec<_>>()).prop_map(str::to_string), ".{0,6}"], 0..20)
    ) {
        let _ = Cake::default().apply(&words.join(" "));
    }
}

//! The typed options of CAKE. Each exists for both directions, and with `egress_` or `ingress_` before its name for one.

use sqm_core::spec::cake::{AckFilter, Isolation, Tins};

use super::{Case, Choice, Ignored, Kind, Level, OptionInfo, PerSide, Tab, choice, words};
use crate::diagnostic::Finding;
use crate::settings::CakeValue;
use crate::side::Side;
use crate::value;

/// One parameter of CAKE as an option.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CakeOptions {
    /// For both directions.
    pub(crate) both: OptionInfo,
    /// For one direction, where it wins.
    pub(crate) own: PerSide,
    /// Reads a value.
    pub(crate) read: fn(&str) -> Result<CakeValue, Finding>,
}

macro_rules! cake {
    ($name:literal, $read:expr, $info:expr) => {
        CakeOptions {
            both: OptionInfo { name: $name, ..$info },
            own: PerSide::new(
                concat!("egress_", $name),
                concat!("ingress_", $name),
                OptionInfo {
                    level: Level::Expert,
                    ..$info
                },
            ),
            read: $read,
        }
    };
}

const fn info(level: Level, kind: Kind, title: &'static str, about: &'static str) -> OptionInfo {
    let info = OptionInfo::new("", Tab::Queue, level, kind, title, about).ignored(&[Ignored {
        when: "the direction has no cake",
        reason: "{script} with {qdisc} has no cake in this direction",
        applies: |case| is_in_force(case) && !case.is_cake(),
    }]);
    OptionInfo {
        is_of_cake: true,
        ..info
    }
    .otherwise("the setup script decides, or CAKE itself")
}

/// True if this option is in force in this direction. An option for both directions is judged once, with egress, and not at all if CAKE
/// on ingress uses it.
fn is_in_force(case: &Case<'_>) -> bool {
    let is_common = case.option.side.is_none();
    let is_taken = is_common && (case.side == Side::Ingress || case.settings.ingress.is_cake());
    let mut options = case.side.of(case.settings).cake.iter();
    !is_taken && options.any(|option| option.name == case.option.name)
}

/// All of them, in the order of a form.
pub(crate) static CAKE: [CakeOptions; 11] = [
    cake!(
        "cake_rtt",
        |text| {
            let is_preset = RTTS.iter().any(|(word, _)| *word == text);
            let cake = match is_preset {
                true => value::cake_words(text),
                false => value::cake_parameter("rtt", text),
            };
            Ok(CakeValue::Rtt(cake?.rtt))
        },
        info(
            Level::Advanced,
            Kind::Time,
            "Round trip",
            "The usual round-trip time of your traffic. A value that is too short costs throughput to distant \
             servers, one that is too long costs latency.",
        )
        .words(|| RTTS.to_vec())
    ),
    cake!(
        "cake_tins",
        |text| value::choice(text, &TINS).map(CakeValue::Tins),
        info(
            Level::Advanced,
            Kind::Choice,
            "Classes by DSCP",
            "The number of classes into which packets are sorted by DSCP. One is enough unless your programs mark \
             their packets.",
        )
        .words(|| words(&TINS))
    ),
    cake!(
        "cake_isolation",
        |text| value::choice(text, &ISOLATIONS).map(CakeValue::Isolation),
        info(
            Level::Advanced,
            Kind::Choice,
            "Fair between",
            "How the line is shared evenly. With dual-srchost on the upload and dual-dsthost on the download each \
             computer of the home network gets its share, however many connections it has.",
        )
        .words(|| words(&ISOLATIONS))
    ),
    cake!(
        "cake_nat",
        |text| value::switch(text).map(CakeValue::Nat),
        info(
            Level::Advanced,
            Kind::Switch,
            "Look behind NAT",
            "Distinguish the computers behind NAT, which share one address. Set it to on, on a router that does \
             NAT itself.",
        )
    ),
    cake!(
        "cake_wash",
        |text| value::switch(text).map(CakeValue::Wash),
        info(
            Level::Advanced,
            Kind::Switch,
            "Erase DSCP",
            "Remove the DSCP of packets that leave the queue.",
        )
    ),
    cake!(
        "cake_ack_filter",
        |text| value::choice(text, &ACK_FILTERS).map(CakeValue::AckFilter),
        info(
            Level::Advanced,
            Kind::Choice,
            "Thin out acknowledgements",
            "Drop TCP acknowledgements that a later one makes redundant: for the upload of lines whose download \
             is more than about 15 times faster.",
        )
        .words(|| words(&ACK_FILTERS))
    ),
    cake!(
        "cake_ingress",
        |text| value::switch(text).map(CakeValue::Ingress),
        info(
            Level::Expert,
            Kind::Switch,
            "Count dropped packets",
            "Count packets that the queue drops, too, because they have used the line already: on for arriving \
             packets, off for departing ones.",
        )
    ),
    cake!(
        "cake_split_gso",
        |text| value::switch(text).map(CakeValue::SplitGso),
        info(
            Level::Expert,
            Kind::Switch,
            "Split super-packets",
            "Split super-packets, which network cards build of many packets, for lower delay; off saves processor \
             time above about 1 Gbit/s.",
        )
    ),
    cake!(
        "cake_memlimit",
        |text| value::cake_parameter("memlimit", text).map(|cake| CakeValue::MemLimit(cake.memlimit)),
        info(
            Level::Expert,
            Kind::Size,
            "Memory",
            "Most memory of the queue; cake chooses it from the rate.",
        )
    ),
    cake!(
        "cake_fwmark",
        |text| value::cake_parameter("fwmark", text).map(|cake| CakeValue::FwMark(cake.fwmark)),
        info(
            Level::Expert,
            Kind::Mask,
            "Class by firewall mark",
            "The bits of the firewall mark that choose the class instead of the DSCP.",
        )
    ),
    cake!(
        "cake_autorate_ingress",
        |text| value::switch(text).map(CakeValue::AutorateIngress),
        info(
            Level::Expert,
            Kind::Switch,
            "Estimate the arrival rate",
            "cake estimates the rate at which packets arrive and shapes to it; meant for lines of unknown rate, \
             and often wrong.",
        )
    ),
];

/// The words of `tc` for round-trip times.
const RTTS: [super::Word; 8] = [
    ("datacentre", "0.1 ms"),
    ("lan", "1 ms"),
    ("metro", "10 ms"),
    ("regional", "30 ms"),
    ("internet", "100 ms: cake's default"),
    ("oceanic", "300 ms"),
    ("satellite", "1 s"),
    ("interplanetary", "an hour: no active queue management"),
];

pub(crate) const TINS: [Choice<Tins>; 5] = [
    choice("besteffort", Tins::Besteffort, "one: all packets alike"),
    choice("precedence", Tins::Precedence, "eight, by the old IP precedence"),
    choice("diffserv3", Tins::Diffserv3, "three: bulk, best effort, voice"),
    choice(
        "diffserv4",
        Tins::Diffserv4,
        "four: bulk, best effort, video, voice",
    ),
    choice("diffserv8", Tins::Diffserv8, "eight"),
];

pub(crate) const ISOLATIONS: [Choice<Isolation>; 8] = [
    choice("flowblind", Isolation::Flowblind, "none: one queue for all"),
    choice("srchost", Isolation::Srchost, "senders"),
    choice("dsthost", Isolation::Dsthost, "receivers"),
    choice("hosts", Isolation::Hosts, "pairs of sender and receiver"),
    choice("flows", Isolation::Flows, "connections"),
    choice(
        "dual-srchost",
        Isolation::DualSrchost,
        "senders, then their connections",
    ),
    choice(
        "dual-dsthost",
        Isolation::DualDsthost,
        "receivers, then their connections",
    ),
    choice(
        "triple-isolate",
        Isolation::TripleIsolate,
        "senders and receivers, then connections: cake's default",
    ),
];

const ACK_FILTERS: [Choice<AckFilter>; 5] = [
    choice("on", AckFilter::Filter, "yes"),
    choice("off", AckFilter::Off, "no"),
    Choice {
        word: "1",
        value: AckFilter::Filter,
        about: None,
    },
    Choice {
        word: "0",
        value: AckFilter::Off,
        about: None,
    },
    choice(
        "aggressive",
        AckFilter::Aggressive,
        "also those that TCP may need",
    ),
];

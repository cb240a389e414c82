//! The options of the queue in each class (the leaf) and of HTB's and TBF's token buckets.

use super::{Choice, Ignored, Kind, Level, OptionInfo, PerSide, Tab, choice, words};
use crate::settings::{Leaf, Script, Target};
use crate::side::Side;

const fn leaf(kind: Kind, title: &'static str, about: &'static str) -> OptionInfo {
    OptionInfo::new("", Tab::Queue, Level::Expert, kind, title, about)
}

/// All of them, in the order of a form.
pub(super) static ALL: &[&OptionInfo] = &[
    ECN.on(Side::Ingress),
    ECN.on(Side::Egress),
    LIMIT.on(Side::Ingress),
    LIMIT.on(Side::Egress),
    TARGET.on(Side::Ingress),
    TARGET.on(Side::Egress),
    WORDS.on(Side::Ingress),
    WORDS.on(Side::Egress),
    &AUTOFLOW,
    &BURST_OF_BOTH,
    BURST.on(Side::Egress),
    BURST.on(Side::Ingress),
    &QUANTUM_OF_BOTH,
    QUANTUM.on(Side::Egress),
    QUANTUM.on(Side::Ingress),
];

pub(crate) static ECN: PerSide = PerSide::new(
    "egress_ecn",
    "ingress_ecn",
    OptionInfo {
        level: Level::Advanced,
        ..leaf(
            Kind::Choice,
            "ECN",
            "Mark packets instead of dropping them, if both ends use ECN. Off for uploads below about 4 Mbit/s, \
             where a mark takes effect too late. cake always marks.",
        )
    }
    .default("ECN")
    .words(|| words(&ECN_CHOICES))
    .ignored(&[
        Ignored {
            when: "it is NOECN, with cake",
            reason: "cake always marks packets that allow it",
            applies: |case| case.is_cake() && !case.side.of(case.settings).ecn,
        },
        Ignored {
            when: "it is ECN, with a leaf that marks no packets",
            reason: "{qdisc} marks no packets",
            applies: |case| case.is_given() && is_without_aqm(case) && case.side.of(case.settings).ecn,
        },
    ]),
)
.variables(&["EECN"], &["IECN"]);

pub(crate) const ECN_CHOICES: [Choice<bool>; 2] =
    [choice("ECN", true, "mark"), choice("NOECN", false, "drop")];

pub(crate) static LIMIT: PerSide = PerSide::new(
    "elimit",
    "ilimit",
    leaf(
        Kind::Integer,
        "Longest queue",
        "The most packets in each leaf, or bytes for bfifo; if empty, the setup script decides. Not for cake.",
    )
    .range(1, u32::MAX as i64)
    .unit("packets")
    .otherwise("the setup script decides")
    .ignored(&[Ignored {
        when: "the queue is cake",
        reason: "cake limits its queue in bytes; write '{direction}_cake_memlimit 4mb'",
        applies: |case| case.is_cake() && case.side.of(case.settings).limit.is_some(),
    }]),
)
.variables(&["ELIMIT"], &["ILIMIT"]);

pub(crate) static TARGET: PerSide = PerSide::new(
    "etarget",
    "itarget",
    leaf(
        Kind::Time,
        "Target delay",
        "The standing queue delay that the leaf accepts. Not for cake, which has a round-trip time instead.",
    )
    .default("auto")
    .words(|| vec![("auto", "computed from the rate"), ("default", "the leaf's own")])
    .ignored(&[
        Ignored {
            when: "it is a time, with cake",
            reason: "cake derives its target from the round-trip time; write '{direction}_cake_rtt 100ms'",
            applies: |case| case.is_cake() && is_a_time(case),
        },
        Ignored {
            when: "it is a time, with a leaf that has no target",
            reason: "{qdisc} has no target",
            applies: |case| is_without_aqm(case) && is_a_time(case),
        },
    ]),
)
.variables(&["ETARGET"], &["ITARGET"]);

pub(crate) static WORDS: PerSide = PerSide::new(
    "eqdisc_opts",
    "iqdisc_opts",
    leaf(
        Kind::Text,
        "More options in tc's words",
        "Words for the leaf or for cake, as in a tc qdisc command; they are checked, and override the other options.",
    ),
)
.variables(&["EQDISC_OPTS"], &["IQDISC_OPTS"]);

pub(crate) static AUTOFLOW: OptionInfo = OptionInfo {
    name: "autoflow",
    ..leaf(
        Kind::Switch,
        "Fewer queues on slow lines",
        "A leaf with fewer queues where the line is slow. Not for cake.",
    )
}
.default("0")
.variables(&["AUTOFLOW"])
.ignored(&[Ignored {
    when: "both directions have cake",
    reason: "cake has its own number of queues",
    applies: |case| case.is_given() && case.cakes(2),
}]);

const fn micros(title: &'static str, about: &'static str) -> OptionInfo {
    // A second is far beyond any use, and keeps the numbers small.
    leaf(Kind::Integer, title, about).range(0, 1_000_000).unit("us")
}

const BURST_INFO: OptionInfo = micros(
    "Burst",
    "How much the token bucket may send at once, as time; more saves processor time and costs latency.",
);

pub(crate) static BURST_OF_BOTH: OptionInfo = OptionInfo {
    name: "shaper_burst_dur_us",
    ..BURST_INFO.default("1000").variables(&["SHAPER_BURST_DUR_US"])
};

pub(crate) static BURST: PerSide = PerSide::new(
    "eshaper_burst_dur_us",
    "ishaper_burst_dur_us",
    BURST_INFO.otherwise("`shaper_burst_dur_us`").ignored(&[Ignored {
        when: "the direction has no token bucket (cake and HFSC)",
        reason: NO_TOKEN_BUCKET,
        applies: |case| {
            let is_tbf = case.side.of(case.settings).script == Script::SimplestTbf;
            case.is_given() && !is_htb(case) && !is_tbf
        },
    }]),
)
.variables(&["ESHAPER_BURST_DUR_US"], &["ISHAPER_BURST_DUR_US"]);

const QUANTUM_INFO: OptionInfo = micros(
    "Quantum",
    "How much HTB sends from one class before it serves the next, as time.",
);

pub(crate) static QUANTUM_OF_BOTH: OptionInfo = OptionInfo {
    name: "shaper_quantum_dur_us",
    ..QUANTUM_INFO
        .otherwise("`shaper_burst_dur_us`")
        .variables(&["SHAPER_QUANTUM_DUR_US"])
};

pub(crate) static QUANTUM: PerSide = PerSide::new(
    "eshaper_quantum_dur_us",
    "ishaper_quantum_dur_us",
    QUANTUM_INFO
        .otherwise("`shaper_quantum_dur_us`")
        .ignored(&[Ignored {
            when: "the direction has no HTB",
            reason: NO_TOKEN_BUCKET,
            applies: |case| case.is_given() && !is_htb(case),
        }]),
)
.variables(&["ESHAPER_QUANTUM_DUR_US"], &["ISHAPER_QUANTUM_DUR_US"]);

const NO_TOKEN_BUCKET: &str = "{script} has no token bucket in this direction";

/// True if HTB shapes the direction.
fn is_htb(case: &super::Case<'_>) -> bool {
    let script = &case.side.of(case.settings).script;
    matches!(script, Script::Simple | Script::Simplest) && !case.is_cake()
}

/// True if the leaf has no active queue management.
fn is_without_aqm(case: &super::Case<'_>) -> bool {
    let leaf = case.side.of(case.settings).qdisc;
    !case.is_cake() && matches!(leaf, Leaf::Sfq | Leaf::Pfifo | Leaf::Bfifo)
}

fn is_a_time(case: &super::Case<'_>) -> bool {
    matches!(case.side.of(case.settings).target, Target::Is(_))
}

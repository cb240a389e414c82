//! The options that say how many bytes a packet takes on the line.

use super::{Case, Choice, Ignored, Kind, Level, OptionInfo, Tab, choice, words};
use crate::link::{self, LinkLayer};
use crate::settings::Mechanism;
use crate::side::{DirectionContext, Side};

const fn link_option(
    name: &'static str,
    level: Level,
    kind: Kind,
    title: &'static str,
    about: &'static str,
) -> OptionInfo {
    OptionInfo::new(name, Tab::Link, level, kind, title, about)
}

/// All of them, in the order of a form.
pub(super) static ALL: &[&OptionInfo] = &[
    &LINK,
    &LINK_LAYER,
    &OVERHEAD,
    &MPU,
    &MECHANISM,
    &TABLE_MTU,
    &TABLE_SIZE,
];

pub(crate) static LINK: OptionInfo = link_option(
    "link",
    Level::Basic,
    Kind::Choice,
    "Kind of line",
    "Sets the bytes that the line adds to each packet. Too many cost a little speed, too few cost latency: when \
     in doubt, 'unknown'.",
)
.words(|| {
    link::PRESETS
        .iter()
        .map(|preset| (preset.name, preset.about))
        .collect()
})
.ignored(&[Ignored {
    when: NO_LINK_LAYER.0,
    reason: "linklayer is 'none', which counts nothing of it; remove option linklayer to count what the line adds",
    applies: |case| case.settings.link.layer == LinkLayer::None && case.is_given(),
}]);

pub(crate) static LINK_LAYER: OptionInfo = link_option(
    "linklayer",
    Level::Advanced,
    Kind::Choice,
    "Link layer",
    "How the line carries packets, whole or in cells. The kind of line above sets it.",
)
.words(|| words(&LINK_LAYERS))
.otherwise(BY_LINK)
.variables(&["LINKLAYER"]);

pub(crate) const LINK_LAYERS: [Choice<LinkLayer>; 5] = [
    choice("none", LinkLayer::None, "count the kernel's packet length"),
    choice("ethernet", LinkLayer::Ethernet, "whole packets"),
    choice("atm", LinkLayer::Atm, "cells of 53 bytes: ADSL"),
    choice("adsl", LinkLayer::Atm, "another name for atm"),
    choice("ptm", LinkLayer::Ptm, "one byte in 65 is lost: VDSL2"),
];

pub(crate) static OVERHEAD: OptionInfo = link_option(
    "overhead",
    Level::Advanced,
    Kind::Integer,
    "Bytes added to each packet",
    "Bytes that the line adds to each IP packet. The kind of line above sets it; 'sqm test --sweep' measures it.",
)
.range(-1500, 1500)
.otherwise(BY_LINK)
.unit("bytes")
.variables(&["OVERHEAD"])
.ignored(&[Ignored {
    when: NO_LINK_LAYER.0,
    reason: NO_LINK_LAYER.1,
    applies: |case| has_no_link_layer(case) && case.settings.link.overhead != 0,
}]);

pub(crate) static MPU: OptionInfo = link_option(
    "tcMPU",
    Level::Advanced,
    Kind::Integer,
    "Smallest packet",
    "Smaller packets take as much of the line as one of this size, added bytes included. The kind of line above \
     sets it.",
)
.range(0, 65535)
.unit("bytes")
.otherwise(BY_LINK)
.variables(&["STAB_MPU"])
.ignored(&[Ignored {
    when: NO_LINK_LAYER.0,
    reason: NO_LINK_LAYER.1,
    applies: |case| has_no_link_layer(case) && case.settings.link.mpu != 0,
}]);

/// The default of an option that `link` sets.
const BY_LINK: &str = "`link` decides; without it nothing is added";

/// True if the section gives the option itself, rather than by the kind of line, while nothing is counted.
fn has_no_link_layer(case: &Case<'_>) -> bool {
    case.is_given() && case.settings.link.layer == LinkLayer::None
}

/// A condition, and a reason of two options.
const NO_LINK_LAYER: (&str, &str) = (
    "`linklayer` is 'none'",
    "linklayer is 'none'; choose 'ethernet', 'ptm' or 'atm' to count it",
);

pub(crate) static MECHANISM: OptionInfo = link_option(
    "linklayer_adaptation_mechanism",
    Level::Expert,
    Kind::Choice,
    "Counted by",
    "What computes the size on the line: cake where there is one, a size table otherwise.",
)
.default("default")
.words(|| words(&MECHANISMS))
.variables(&["LLAM"]);

pub(crate) const MECHANISMS: [Choice<Mechanism>; 4] = [
    choice(
        "default",
        Mechanism::Default,
        "cake where there is one, a size table otherwise",
    ),
    choice("cake", Mechanism::Cake, "cake"),
    choice("tc_stab", Mechanism::TcStab, "a size table"),
    choice("htb_private", Mechanism::HtbPrivate, "HTB or TBF"),
];

pub(crate) static TABLE_MTU: OptionInfo = link_option(
    "tcMTU",
    Level::Expert,
    Kind::Integer,
    "Largest packet of the size table",
    "Only for packets of more than 1500 bytes.",
)
.default("2047")
.range(0, 65535)
.unit("bytes")
.variables(&["STAB_MTU"])
.ignored(&[Ignored {
    when: NO_TABLE.0,
    reason: NO_TABLE.1,
    applies: |case| case.differs_from_default(case.settings.link.table_mtu) && has_no_table(case),
}]);

pub(crate) static TABLE_SIZE: OptionInfo = link_option(
    "tcTSIZE",
    Level::Expert,
    Kind::Integer,
    "Entries of the size table",
    "More entries make the table more exact.",
)
.default("512")
// The table travels in one netlink attribute, two bytes an entry.
.range(0, 32000)
.variables(&["STAB_TSIZE"])
.ignored(&[Ignored {
    when: NO_TABLE.0,
    reason: NO_TABLE.1,
    applies: |case| case.differs_from_default(case.settings.link.table_size) && has_no_table(case),
}]);

/// A condition and a reason of two options.
const NO_TABLE: (&str, &str) = (
    "no direction has a size table",
    "only the mechanism tc_stab has a size table",
);

/// True if no direction has a size table.
fn has_no_table(case: &Case<'_>) -> bool {
    let &Case { settings, device, .. } = case;
    settings.link.layer != LinkLayer::None
        && Side::ALL.into_iter().all(|side| {
            let context = DirectionContext {
                settings,
                side,
                device,
            };
            context.mechanism() != Some(Mechanism::TcStab)
        })
}

//! The options that say how many bytes a packet takes on the line.

use sqm_core::nearest::nearest;
use sqm_core::units::shortened;

use super::{Case, Choice, Ignored, Kind, Level, OptionInfo, Tab, choice, words};
use crate::diagnostic::Finding;
use crate::link::{self, LinkLayer, Preset};
use crate::settings::Mechanism;
use crate::side::{DirectionContext, Side};
use crate::value;

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
});

pub(crate) static LINK_LAYER: OptionInfo = link_option(
    "linklayer",
    Level::Advanced,
    Kind::Choice,
    "Link layer",
    "How the line carries packets, whole or in cells. The kind of line above sets it.",
)
.words(|| words(&LINK_LAYERS))
.ignored(&[Ignored {
    when: "`link` gives the same, or it is 'none' beside `link`",
    reason: "option link gives the link layer, and 'none', which OpenWrt's page adds when it saves a section, does not undo it",
    applies: |case| {
        let link = &case.settings.link;
        case.is_given() && link.preset.is_some_and(|preset| preset.layer == link.layer)
    },
}])
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

/// Words for lines that are not the name of a preset, and the preset that is nearest in meaning.
const OTHER_LINES: [(&str, &str); 12] = [
    ("vdsl", "vdsl2"),
    ("gfast", "vdsl2"),
    ("g.fast", "vdsl2"),
    ("cable", "docsis"),
    ("fiber", "gpon"),
    ("fibre", "gpon"),
    ("ftth", "gpon"),
    ("pon", "gpon"),
    ("4g", "lte"),
    ("5g", "lte"),
    ("mobile", "lte"),
    ("starlink", "satellite"),
];

/// The kind of line that was probably meant.
fn meant_line(text: &str) -> Option<&'static Preset> {
    let mut others = OTHER_LINES.iter();
    let other = others.find(|(other, _)| other.eq_ignore_ascii_case(text));
    let names = || link::PRESETS.iter().map(|preset| preset.name);
    let name = other.map(|(_, name)| *name).or_else(|| nearest(text, names()))?;
    link::PRESETS.iter().find(|preset| preset.name == name)
}

/// A kind of line.
pub(crate) fn preset(text: &str) -> Result<&'static Preset, Finding> {
    let mut presets = link::PRESETS.iter();
    if let Some(preset) = presets.find(|preset| preset.name.eq_ignore_ascii_case(text)) {
        return Ok(preset);
    }
    let names = link::PRESETS.map(|preset| preset.name).join(", ");
    let message = format!("'{}' is not one of {names}", shortened(text));
    Err(Finding::of_value(message).suggest(meant_line(text).map(|preset| preset.name)))
}

/// A link layer. A kind of line is often written here: the message then names the option for it.
pub(crate) fn link_layer(text: &str) -> Result<LinkLayer, Finding> {
    let layers = &LINK_LAYERS;
    let error = match value::choice(text, layers) {
        Ok(layer) => return Ok(layer),
        Err(error) => error,
    };
    let is_layer = |name: &str| layers.iter().any(|layer| layer.word == name);
    match meant_line(text).filter(|preset| !is_layer(preset.name)) {
        Some(preset) => {
            let layer = layers.iter().find(|layer| layer.value == preset.layer);
            let message = format!(
                "'{}' is a kind of line, not a link layer: write option link '{}', or linklayer '{}' with the \
                 overhead of your line",
                shortened(text),
                preset.name,
                layer.map_or("ethernet", |layer| layer.word)
            );
            Err(Finding::of_value(message))
        }
        None => Err(error),
    }
}

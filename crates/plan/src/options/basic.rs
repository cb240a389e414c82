//! The options of the form's first tab, and those that no form shows.

use super::{Choice, Ignored, Kind, Level, OptionInfo, Tab, choice, words};
use crate::settings::{Drift, Facing};

const fn basic(
    name: &'static str,
    level: Level,
    kind: Kind,
    title: &'static str,
    about: &'static str,
) -> OptionInfo {
    OptionInfo::new(name, Tab::Basic, level, kind, title, about)
}

/// The options of the tab, in the order of a form.
pub(super) static ALL: &[&OptionInfo] = &[
    &ENABLED,
    &INTERFACE,
    &DOWNLOAD,
    &UPLOAD,
    &FACING,
    &DRIFT,
    &DEBUG_LOGGING,
    &VERBOSITY,
];

pub(crate) static ENABLED: OptionInfo = basic(
    "enabled",
    Level::Basic,
    Kind::Switch,
    "Enable",
    "Shape this interface. If off, the section is kept but has no effect.",
)
.default("0")
.variables(&["ENABLED"]);

pub(crate) static INTERFACE: OptionInfo = basic(
    "interface",
    Level::Basic,
    Kind::Device,
    "Interface",
    "The network device that leads to the internet, such as eth0.2 or pppoe-wan; not the whole switch, and not \
     the logical network.",
)
.otherwise("none: it must be given");

pub(crate) static DOWNLOAD: OptionInfo = basic(
    "download",
    Level::Basic,
    Kind::Rate,
    "Download speed",
    "A little below the line's real speed: 85 % of the advertised speed, or 95 % of the speed measured with \
     shaping off. It includes headers and framing, so tests show a few percent less. 0 leaves this direction \
     unshaped.",
)
.unit("kbit/s")
.otherwise("none: it must be given")
.variables(&["DOWNLINK"]);

pub(crate) static UPLOAD: OptionInfo = basic(
    "upload",
    Level::Basic,
    Kind::Rate,
    "Upload speed",
    "As for the download. The upload is usually slower, and its full queue adds the most latency.",
)
.unit("kbit/s")
.otherwise("none: it must be given")
.variables(&["UPLINK"]);

pub(crate) static FACING: OptionInfo = basic(
    "facing",
    Level::Expert,
    Kind::Choice,
    "The interface faces",
    "Change it only if the device leads to the home network instead of the internet; download and upload then \
     change places.",
)
.default("internet")
.words(|| words(&FACINGS));

pub(crate) const FACINGS: [Choice<Facing>; 2] = [
    choice(
        "internet",
        Facing::Internet,
        "the upload leaves through the device",
    ),
    choice("lan", Facing::Lan, "the download leaves through the device"),
];

pub(crate) static DRIFT: OptionInfo = basic(
    "drift",
    Level::Expert,
    Kind::Choice,
    "If another program changes the queues",
    "How the daemon reacts. Rates that another program sets again and again, such as cake-autorate, are left alone in either \
     case.",
)
.otherwise("what `sqm daemon --drift` says, which is `repair` unless given")
.words(|| words(&DRIFTS));

pub(crate) const DRIFTS: [Choice<Drift>; 2] = [
    choice("repair", Drift::Repair, "set them up again as configured"),
    choice("report", Drift::Report, "leave them, and report the difference"),
];

pub(crate) static DEBUG_LOGGING: OptionInfo = basic(
    "debug_logging",
    Level::Expert,
    Kind::Switch,
    "Debug logging",
    "OpenWrt's package then writes the plan into /var/run/sqm/INTERFACE.start-sqm.log when its service starts. It has no other \
     effect, because every command reports what it did.",
)
.default("0")
.ignored(&[Ignored {
    when: "it is on",
    reason: "only OpenWrt's package writes a log file: every command prints what it did, and fails with the reason",
    applies: |case| case.settings.debug_logging,
}]);

pub(crate) static VERBOSITY: OptionInfo = basic(
    "verbosity",
    Level::Expert,
    Kind::Integer,
    "Log verbosity",
    "An option of sqm-scripts without effect here, because every command reports what it did.",
)
.default("5")
.range(0, 10)
.variables(&["SQM_VERBOSITY_MAX"])
.ignored(&[Ignored {
    when: "it is not 5",
    reason: "there is no log: every command prints what it did, and fails with the reason",
    applies: |case| case.differs_from_default(case.settings.verbosity),
}]);

/// Options that no form shows: one that has never had an effect, and check boxes of the form of OpenWrt's LuCI, which keeps
/// in the file which of its fields are to be seen.
pub(super) static HIDDEN: &[&OptionInfo] = &[
    &TARGET_WITHOUT_EFFECT,
    &QDISC_ADVANCED,
    &QDISC_REALLY_REALLY_ADVANCED,
    &LINK_LAYER_ADVANCED,
];

static TARGET_WITHOUT_EFFECT: OptionInfo = basic(
    "target",
    Level::Expert,
    Kind::Text,
    "Target delay",
    "An option that sqm-scripts reads but does not use.",
)
.hidden()
.ignored(&[Ignored {
    when: "always",
    reason: "no program uses it; set itarget and etarget",
    applies: |case| case.is_given(),
}]);

const fn check_box(name: &'static str) -> OptionInfo {
    basic(
        name,
        Level::Expert,
        Kind::Text,
        "Show more fields",
        "A check box of OpenWrt's own form, without effect on the queues: options that the form hides apply if the section has them, \
         with a warning. The form removes them when it saves the section.",
    )
    .hidden()
}

static QDISC_ADVANCED: OptionInfo = check_box("qdisc_advanced");
static QDISC_REALLY_REALLY_ADVANCED: OptionInfo = check_box("qdisc_really_really_advanced");
static LINK_LAYER_ADVANCED: OptionInfo = check_box("linklayer_advanced");

/// The check boxes of OpenWrt's form, each with the options that the form shows only if the box is ticked.
pub(crate) static CHECK_BOXES: [(&OptionInfo, &[&str]); 3] = [
    (
        &QDISC_ADVANCED,
        &["squash_dscp", "squash_ingress", "ingress_ecn", "egress_ecn"],
    ),
    (
        &QDISC_REALLY_REALLY_ADVANCED,
        &[
            "ilimit",
            "elimit",
            "itarget",
            "etarget",
            "iqdisc_opts",
            "eqdisc_opts",
        ],
    ),
    (
        &LINK_LAYER_ADVANCED,
        &["tcMTU", "tcTSIZE", "tcMPU", "linklayer_adaptation_mechanism"],
    ),
];

//! The options for lines whose rate varies.

use sqm_core::direction::Direction;

use super::{Ignored, Kind, Level, OptionInfo, Tab, choice, words};
use crate::settings::{Moving, Settings};
use crate::value::Choice;

/// All of them, in the order of a form.
pub(super) static ALL: &[&OptionInfo] = &[
    &AUTORATE,
    &MIN_DOWNLOAD,
    &MAX_DOWNLOAD,
    &MIN_UPLOAD,
    &MAX_UPLOAD,
    &AUTORATE_REFLECTORS,
    &AUTORATE_LOG,
];

pub(crate) static AUTORATE: OptionInfo = OptionInfo::new(
    "autorate",
    Tab::Basic,
    Level::Advanced,
    Kind::Choice,
    "Follow a line that varies",
    "The daemon adapts the rates to latency under load, for mobile, satellite and some cable lines; it starts \
     with the speeds above.",
)
.default("0")
.words(|| words(&MOVING));

pub(crate) const MOVING: [Choice<Moving>; 4] = [
    choice("0", Moving::Neither, "no, both rates stay"),
    choice("1", Moving::Both, "yes, both rates move"),
    choice(
        "download",
        Moving::Only(Direction::Download),
        "the download alone moves; the upload stays",
    ),
    choice(
        "upload",
        Moving::Only(Direction::Upload),
        "the upload alone moves; the download stays",
    ),
];

/// The rule for every option but `autorate` itself.
const OFF: Ignored = Ignored {
    when: "`autorate` is off",
    reason: "autorate is off",
    applies: |case| case.is_given() && case.settings.autorate.is_none(),
};

/// An option without effect unless `autorate` is on.
const fn part(
    name: &'static str,
    level: Level,
    kind: Kind,
    title: &'static str,
    about: &'static str,
) -> OptionInfo {
    OptionInfo::new(name, Tab::Basic, level, kind, title, about).ignored(&[OFF])
}

const fn limit(
    name: &'static str,
    title: &'static str,
    about: &'static str,
    ignored: &'static [Ignored],
) -> OptionInfo {
    OptionInfo::new(name, Tab::Basic, Level::Advanced, Kind::Rate, title, about)
        .unit("kbit/s")
        .ignored(ignored)
}

const OF_DOWNLOAD: &[Ignored] = &[
    OFF,
    Ignored {
        when: "`autorate` is `upload`",
        reason: "autorate moves the upload alone, and the download stays at its rate",
        applies: |case| case.is_given() && moves_only(case.settings, Direction::Upload),
    },
];

const OF_UPLOAD: &[Ignored] = &[
    OFF,
    Ignored {
        when: "`autorate` is `download`",
        reason: "autorate moves the download alone, and the upload stays at its rate",
        applies: |case| case.is_given() && moves_only(case.settings, Direction::Download),
    },
];

fn moves_only(settings: &Settings, direction: Direction) -> bool {
    let autorate = settings.autorate.as_ref();
    autorate.is_some_and(|autorate| autorate.only == Some(direction))
}

/// The limits of the daemon where none is given.
const LEAST: &str = "a 64th of the rate, at least 128 kbit/s";
const MOST: &str = "10 Gbit/s";

pub(crate) static MIN_DOWNLOAD: OptionInfo = limit(
    "min_download",
    "Lowest download speed",
    "The download is never shaped to less, even if latency is high.",
    OF_DOWNLOAD,
)
.otherwise(LEAST);

pub(crate) static MAX_DOWNLOAD: OptionInfo = limit(
    "max_download",
    "Highest download speed",
    "The download is never shaped to more.",
    OF_DOWNLOAD,
)
.otherwise(MOST);

pub(crate) static MIN_UPLOAD: OptionInfo = limit(
    "min_upload",
    "Lowest upload speed",
    "The upload is never shaped to less, even if latency is high.",
    OF_UPLOAD,
)
.otherwise(LEAST);

pub(crate) static MAX_UPLOAD: OptionInfo = limit(
    "max_upload",
    "Highest upload speed",
    "The upload is never shaped to more.",
    OF_UPLOAD,
)
.otherwise(MOST);

pub(crate) static AUTORATE_REFLECTORS: OptionInfo = part(
    "autorate_reflectors",
    Level::Expert,
    Kind::Text,
    "Reflectors",
    "Hosts that answer the daemon's probes: addresses that answer pings, sqm://ADDRESS of 'sqm serve', \
     irtt://ADDRESS of 'irtt server', separated by blanks or commas; empty means well-known resolvers.",
)
.otherwise("well-known resolvers");

pub(crate) static AUTORATE_LOG: OptionInfo = part(
    "autorate_log",
    Level::Expert,
    Kind::Text,
    "Log of decisions",
    "The name of a file in /var/log/sqm to which the daemon writes each decision, such as rates.csv.",
);

//! The registry of options: all that is known about each option of a `queue` section, in one place.
//!
//! It decides which names the parser knows and suggests, the range, default and words of a value, and why an option is
//! ignored. The forms of the page, `sqm import` and docs/reference/options.md are made from it.

mod autorate;
mod basic;
mod cake;
mod leaf;
mod link_layer;
mod names;
mod queue;
mod reference;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::device::Device;
use crate::settings::Settings;
use crate::side::Side;
use crate::value::Choice;

pub(crate) use autorate::{
    AUTORATE, AUTORATE_LOG, AUTORATE_REFLECTORS, MAX_DOWNLOAD, MAX_UPLOAD, MIN_DOWNLOAD, MIN_UPLOAD, MOVING,
};
pub(crate) use basic::{
    CHECK_BOXES, DEBUG_LOGGING, DOWNLOAD, DRIFT, DRIFTS, ENABLED, FACING, FACINGS, INTERFACE, UPLOAD,
    VERBOSITY,
};
pub(crate) use cake::{CAKE, ISOLATIONS, TINS};
pub(crate) use leaf::{
    AUTOFLOW, BURST, BURST_OF_BOTH, ECN, ECN_CHOICES, LIMIT, QUANTUM, QUANTUM_OF_BOTH, TARGET, WORDS,
};
pub(crate) use link_layer::{
    LINK, LINK_LAYER, LINK_LAYERS, MECHANISM, MECHANISMS, MPU, OVERHEAD, TABLE_MTU, TABLE_SIZE, link_layer,
    preset,
};
pub(crate) use names::meant;
pub(crate) use queue::{
    MARK_MASK, QDISC, QDISC_OF_BOTH, SCRIPT, SCRIPT_OF_BOTH, SQUASH_DSCP, SQUASH_INGRESS, USE_MQ,
};
pub use reference::page as reference;

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct OptionInfo {
    /// Its name in the file.
    pub name: &'static str,
    /// The tab of the form on which it stands; `None` for an option that no form shows.
    pub tab: Option<Tab>,
    /// The users who need it.
    pub level: Level,
    /// The form of its value.
    pub kind: Kind,
    /// A few words for a form.
    pub title: &'static str,
    /// Its effect, and when to change it.
    pub about: &'static str,
    /// Unit of a bare number.
    pub unit: Option<&'static str>,
    /// The value that holds if the option is not given; `None` if there is no such value.
    pub default: Option<&'static str>,
    /// The source of the value if the option is not given and has no default, in words.
    pub(crate) otherwise: &'static str,
    /// Least and greatest number.
    pub range: Option<(i64, i64)>,
    /// The direction, for an option that takes the place of a common one or exists for each direction alone.
    pub side: Option<Side>,
    /// True if the option sets a parameter of CAKE.
    pub(crate) is_of_cake: bool,
    /// Variables of sqm-scripts' files for generic Linux that mean the same. The later ones are older spellings.
    pub variables: &'static [&'static str],
    /// The words that it takes.
    words: fn() -> Vec<Word>,
    /// Rules by which the option has no effect.
    pub(crate) ignored: &'static [Ignored],
}

/// A word that an option takes, and its meaning.
pub type Word = (&'static str, &'static str);

/// The three tabs that users of OpenWrt know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tab {
    /// Basic Settings.
    Basic,
    /// Queue Discipline.
    Queue,
    /// Link Layer Adaptation.
    Link,
}

/// The users who need an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Everybody.
    Basic,
    /// Users who want more than the usual.
    Advanced,
    /// Users who know the queueing discipline.
    Expert,
}

/// The form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `1` or `0`.
    Switch,
    /// A network device.
    Device,
    /// `85mbit`; a whole number is kbit/s; `0` does not shape.
    Rate,
    /// One of its words.
    Choice,
    /// A whole number in its range.
    Integer,
    /// `5ms`, or one of its words.
    Time,
    /// `4mb`.
    Size,
    /// `0xff`.
    Mask,
    /// Free text, checked by the code that uses it.
    Text,
}

impl Tab {
    /// Its name in the API and in tables of options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Basic => "basic",
            Self::Queue => "queue",
            Self::Link => "link",
        }
    }
}

impl Level {
    /// Its name in the API and in tables of options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Basic => "basic",
            Self::Advanced => "advanced",
            Self::Expert => "expert",
        }
    }
}

impl Kind {
    /// Its name in the API and in tables of options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Switch => "switch",
            Self::Device => "device",
            Self::Rate => "rate",
            Self::Choice => "choice",
            Self::Integer => "integer",
            Self::Time => "time",
            Self::Size => "size",
            Self::Mask => "mask",
            Self::Text => "text",
        }
    }
}

/// A rule by which an option has no effect. The user is then told so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ignored {
    /// The condition in words, for the reference page.
    pub(crate) when: &'static str,
    /// The reason. `{script}`, `{qdisc}` and `{direction}` stand for those of the direction that is looked at.
    pub(crate) reason: &'static str,
    /// The condition.
    pub(crate) applies: fn(&Case<'_>) -> bool,
}

/// An option in one direction of one section, about which an [`Ignored`] decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case<'a> {
    pub(crate) option: &'static OptionInfo,
    pub(crate) side: Side,
    pub(crate) settings: &'a Settings,
    pub(crate) device: &'a Device,
}

impl Case<'_> {
    /// True if the section gives the option.
    fn is_given(&self) -> bool {
        self.settings.gives(self.option.name)
    }

    /// True if CAKE is the queue of this direction.
    fn is_cake(&self) -> bool {
        self.side.of(self.settings).is_cake()
    }

    /// True if CAKE is the queue of exactly this many directions.
    fn cakes(&self, number: usize) -> bool {
        let cakes = Side::ALL
            .into_iter()
            .filter(|side| side.of(self.settings).is_cake());
        cakes.count() == number
    }

    /// True if `value` differs from the option's default.
    fn differs_from_default(&self, value: impl std::fmt::Display) -> bool {
        self.option.default != Some(value.to_string().as_str())
    }

    /// The reason that a rule states, with the names of this direction.
    pub(crate) fn reason(&self, rule: &Ignored) -> String {
        let direction = self.side.of(self.settings);
        fill(
            rule.reason,
            direction.script.file_name(),
            direction.qdisc.name(),
            self.side.name(),
        )
    }
}

fn fill(reason: &str, script: &str, qdisc: &str, direction: &str) -> String {
    reason
        .replace("{script}", script)
        .replace("{qdisc}", qdisc)
        .replace("{direction}", direction)
}

const fn choice<T: Copy>(word: &'static str, value: T, about: &'static str) -> Choice<T> {
    Choice {
        word,
        value,
        about: Some(form_text(about)),
    }
}

/// A text that only a form or the reference shows: empty in a program without them, which saves about 10 kB on a router.
const fn form_text(text: &'static str) -> &'static str {
    if cfg!(feature = "form") { text } else { "" }
}

/// The words of a table, without second spellings.
fn words<T>(choices: &[Choice<T>]) -> Vec<Word> {
    choices
        .iter()
        .filter_map(|choice| Some((choice.word, choice.about?)))
        .collect()
}

/// The word of a value in its table.
pub(crate) fn word_of<T: Copy + PartialEq>(choices: &[Choice<T>], value: T) -> &'static str {
    let mut choices = choices.iter();
    choices
        .find(|choice| choice.value == value)
        .map_or("", |choice| choice.word)
}

/// An option that exists for each direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerSide {
    egress: OptionInfo,
    ingress: OptionInfo,
}

impl PerSide {
    const fn new(egress: &'static str, ingress: &'static str, info: OptionInfo) -> Self {
        Self {
            egress: OptionInfo {
                name: egress,
                side: Some(Side::Egress),
                ..info
            },
            ingress: OptionInfo {
                name: ingress,
                side: Some(Side::Ingress),
                ..info
            },
        }
    }

    /// The variables of sqm-scripts that mean the option of egress and of ingress.
    const fn variables(self, egress: &'static [&'static str], ingress: &'static [&'static str]) -> Self {
        Self {
            egress: self.egress.variables(egress),
            ingress: self.ingress.variables(ingress),
        }
    }

    /// The option of this direction.
    pub(crate) const fn on(&'static self, side: Side) -> &'static OptionInfo {
        match side {
            Side::Egress => &self.egress,
            Side::Ingress => &self.ingress,
        }
    }
}

impl OptionInfo {
    const fn new(
        name: &'static str,
        tab: Tab,
        level: Level,
        kind: Kind,
        title: &'static str,
        about: &'static str,
    ) -> Self {
        Self {
            name,
            tab: Some(tab),
            level,
            kind,
            title: form_text(title),
            about: form_text(about),
            unit: None,
            default: None,
            otherwise: "none",
            range: None,
            side: None,
            is_of_cake: false,
            variables: &[],
            words: Vec::new,
            ignored: &[],
        }
    }

    const fn hidden(self) -> Self {
        Self { tab: None, ..self }
    }

    const fn default(self, default: &'static str) -> Self {
        Self {
            default: Some(default),
            ..self
        }
    }

    const fn otherwise(self, otherwise: &'static str) -> Self {
        Self {
            otherwise: form_text(otherwise),
            ..self
        }
    }

    const fn unit(self, unit: &'static str) -> Self {
        Self {
            unit: Some(unit),
            ..self
        }
    }

    const fn range(self, least: i64, most: i64) -> Self {
        Self {
            range: Some((least, most)),
            ..self
        }
    }

    const fn words(self, words: fn() -> Vec<Word>) -> Self {
        Self { words, ..self }
    }

    const fn variables(self, variables: &'static [&'static str]) -> Self {
        Self { variables, ..self }
    }

    const fn ignored(self, ignored: &'static [Ignored]) -> Self {
        Self { ignored, ..self }
    }

    /// The words that it takes, with their meaning, in the order of a form.
    pub fn choices(&self) -> Vec<Word> {
        (self.words)()
    }
}

/// The options that sqm-scripts has on generic Linux as well, in its order. `sqm import` writes them so.
pub(crate) static OF_SQM_SCRIPTS: [&OptionInfo; 31] = [
    &ENABLED,
    &DOWNLOAD,
    &UPLOAD,
    &QDISC_OF_BOTH,
    &SCRIPT_OF_BOTH,
    &USE_MQ,
    &SQUASH_DSCP,
    &SQUASH_INGRESS,
    ECN.on(Side::Ingress),
    ECN.on(Side::Egress),
    LIMIT.on(Side::Ingress),
    LIMIT.on(Side::Egress),
    TARGET.on(Side::Ingress),
    TARGET.on(Side::Egress),
    WORDS.on(Side::Ingress),
    WORDS.on(Side::Egress),
    &LINK_LAYER,
    &OVERHEAD,
    &MECHANISM,
    &TABLE_MTU,
    &TABLE_SIZE,
    &MPU,
    &AUTOFLOW,
    &MARK_MASK,
    &BURST_OF_BOTH,
    BURST.on(Side::Ingress),
    BURST.on(Side::Egress),
    &QUANTUM_OF_BOTH,
    QUANTUM.on(Side::Ingress),
    QUANTUM.on(Side::Egress),
    &VERBOSITY,
];

/// All options, in the order of a form; then those that no form shows.
pub fn all() -> impl Iterator<Item = &'static OptionInfo> {
    let cake = CAKE
        .iter()
        .flat_map(|cake| [&cake.both, &cake.own.egress, &cake.own.ingress]);
    let tables = [basic::ALL, autorate::ALL, queue::ALL];
    let rest = [leaf::ALL, link_layer::ALL, basic::HIDDEN];
    let each = |tables: [&'static [&'static OptionInfo]; 3]| {
        tables.into_iter().flat_map(|table| table.iter().copied())
    };
    each(tables).chain(cake).chain(each(rest))
}

/// The option of this name.
pub(crate) fn find(name: &str) -> Option<&'static OptionInfo> {
    static BY_NAME: LazyLock<BTreeMap<&str, &OptionInfo>> =
        LazyLock::new(|| all().map(|option| (option.name, option)).collect());
    BY_NAME.get(name).copied()
}

#[cfg(test)]
mod tests;

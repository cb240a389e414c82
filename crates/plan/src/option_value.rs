//! Options with typed values, for programs that change a configuration.

use std::fmt;

use serde::{Deserialize, Serialize};
use sqm_core::direction::Direction;
use sqm_core::units::Rate;

use crate::link::{self, LinkLayer, Preset};
use crate::options::{self, OptionInfo};
use crate::settings::{Facing, Mechanism, Script};
use crate::side::Side;
use crate::uci::quote;
use crate::value::{self, Choice};

/// An option of a section and its value. As JSON it is the pair of its name and its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "(String, String)", from = "(String, String)")]
pub enum OptionValue {
    /// `enabled`.
    Enabled(bool),
    /// `interface`: the name of a network device.
    Interface(String),
    /// `facing`.
    Facing(Facing),
    /// `download` or `upload`. It is written in whole kilobits per second; 0 does not shape this direction.
    Rate(Direction, Rate),
    /// `script`.
    Script(Script),
    /// `link`.
    Link(&'static Preset),
    /// `linklayer`.
    LinkLayer(LinkLayer),
    /// `overhead`, in bytes.
    Overhead(i32),
    /// `linklayer_adaptation_mechanism`.
    Mechanism(Mechanism),
    /// `egress_ecn` or `ingress_ecn`: mark packets rather than drop them.
    Ecn(Side, bool),
    /// An option by its name, with the text of its value as a person or another program has given it.
    Text {
        /// The name of the option.
        name: String,
        /// The text of its value, without quotes.
        value: String,
    },
}

impl OptionValue {
    /// The name of the option.
    pub fn name(&self) -> &str {
        match self {
            Self::Enabled(_) => options::ENABLED.name,
            Self::Interface(_) => options::INTERFACE.name,
            Self::Facing(_) => options::FACING.name,
            Self::Rate(direction, _) => rate_option(*direction).name,
            Self::Script(_) => options::SCRIPT_OF_BOTH.name,
            Self::Link(_) => options::LINK.name,
            Self::LinkLayer(_) => options::LINK_LAYER.name,
            Self::Overhead(_) => options::OVERHEAD.name,
            Self::Mechanism(_) => options::MECHANISM.name,
            Self::Ecn(side, _) => options::ECN.on(*side).name,
            Self::Text { name, .. } => name,
        }
    }

    /// The text of its value, without quotes.
    pub fn text(&self) -> String {
        match self {
            Self::Enabled(is_on) => if *is_on { "1" } else { "0" }.to_owned(),
            Self::Interface(name) => name.clone(),
            Self::Facing(facing) => word(&options::FACINGS, *facing),
            Self::Rate(_, rate) => rate.kbits_per_sec().to_string(),
            Self::Script(script) => script.file_name().to_owned(),
            Self::Link(preset) => preset.name.to_owned(),
            Self::LinkLayer(layer) => word(&options::LINK_LAYERS, *layer),
            Self::Overhead(bytes) => bytes.to_string(),
            Self::Mechanism(mechanism) => word(&options::MECHANISMS, *mechanism),
            Self::Ecn(_, is_on) => word(&options::ECN_CHOICES, *is_on),
            Self::Text { value, .. } => value.clone(),
        }
    }

    /// Reads the text of an option; `None` if the option is not one of those that have a type here, or if the text is in error.
    pub fn parse(name: &str, text: &str) -> Option<Self> {
        let text = text.trim();
        let is = |option: &OptionInfo| option.name == name;
        if let Some(direction) = Direction::BOTH
            .into_iter()
            .find(|direction| is(rate_option(*direction)))
        {
            let rate = value::rate(text).ok()?;
            return Some(Self::Rate(direction, rate.unwrap_or(Rate::from_bits_per_sec(0))));
        }
        if let Some(side) = Side::ALL.into_iter().find(|side| is(options::ECN.on(*side))) {
            return Some(Self::Ecn(side, value::choice(text, &options::ECN_CHOICES).ok()?));
        }
        if is(&options::ENABLED) {
            value::switch(text).ok().map(Self::Enabled)
        } else if is(&options::INTERFACE) {
            value::device_name(text).ok().map(Self::Interface)
        } else if is(&options::FACING) {
            value::choice(text, &options::FACINGS).ok().map(Self::Facing)
        } else if is(&options::SCRIPT_OF_BOTH) {
            value::script(text).ok().map(Self::Script)
        } else if is(&options::LINK) {
            link::PRESETS
                .iter()
                .find(|preset| preset.name.eq_ignore_ascii_case(text))
                .map(Self::Link)
        } else if is(&options::LINK_LAYER) {
            value::choice(text, &options::LINK_LAYERS)
                .ok()
                .map(Self::LinkLayer)
        } else if is(&options::OVERHEAD) {
            let range = options::OVERHEAD.range?;
            value::number(text, range).ok().map(Self::Overhead)
        } else if is(&options::MECHANISM) {
            value::choice(text, &options::MECHANISMS)
                .ok()
                .map(Self::Mechanism)
        } else {
            None
        }
    }

    /// True if `text` has this value, in this or another notation.
    pub fn is_written_as(&self, text: &str) -> bool {
        match self {
            Self::Text { value, .. } => value == text,
            _ => Self::parse(self.name(), text).as_ref() == Some(self),
        }
    }
}

/// As a line of the configuration.
impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "option {} {}", self.name(), quote(&self.text()))
    }
}

impl From<OptionValue> for (String, String) {
    fn from(option: OptionValue) -> Self {
        (option.name().to_owned(), option.text())
    }
}

impl From<(String, String)> for OptionValue {
    fn from((name, value): (String, String)) -> Self {
        Self::parse(&name, &value).unwrap_or(Self::Text { name, value })
    }
}

const fn rate_option(direction: Direction) -> &'static OptionInfo {
    match direction {
        Direction::Download => &options::DOWNLOAD,
        Direction::Upload => &options::UPLOAD,
    }
}

/// The word that stands for a value, by the table from which the parser reads it.
fn word<T: Copy + PartialEq>(choices: &[Choice<T>], value: T) -> String {
    let choice = choices.iter().find(|choice| choice.value == value);
    choice
        .expect("the table has a word for each value")
        .word
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<OptionValue> {
        let mut samples: Vec<OptionValue> = vec![
            OptionValue::Enabled(true),
            OptionValue::Enabled(false),
            OptionValue::Interface("eth0.2".to_owned()),
            OptionValue::Facing(Facing::Internet),
            OptionValue::Facing(Facing::Lan),
            OptionValue::Overhead(-4),
        ];
        for direction in Direction::BOTH {
            let rates = [0, 1, 85_000].map(Rate::from_kbits_per_sec);
            samples.extend(rates.map(|rate| OptionValue::Rate(direction, rate)));
        }
        for side in Side::ALL {
            samples.extend([true, false].map(|is_on| OptionValue::Ecn(side, is_on)));
        }
        samples.extend(Script::built_in().cloned().map(OptionValue::Script));
        samples.extend(link::PRESETS.iter().map(OptionValue::Link));
        let layers = [
            LinkLayer::None,
            LinkLayer::Ethernet,
            LinkLayer::Atm,
            LinkLayer::Ptm,
        ];
        samples.extend(layers.map(OptionValue::LinkLayer));
        let mechanisms = [
            Mechanism::Default,
            Mechanism::Cake,
            Mechanism::TcStab,
            Mechanism::HtbPrivate,
        ];
        samples.extend(mechanisms.map(OptionValue::Mechanism));
        samples
    }

    #[test]
    fn a_typed_value_is_read_back_from_its_text() {
        for option in samples() {
            assert!(options::find(option.name()).is_some(), "{option}");
            assert_eq!(
                OptionValue::parse(option.name(), &option.text()),
                Some(option.clone())
            );
            assert_eq!(
                OptionValue::from(<(String, String)>::from(option.clone())),
                option
            );
        }
    }

    #[test]
    fn a_value_is_recognised_in_another_notation() {
        let rate = OptionValue::Rate(Direction::Download, Rate::from_kbits_per_sec(85_000));
        assert!(rate.is_written_as("85mbit") && rate.is_written_as(" 85000 "));
        assert!(!rate.is_written_as("85") && !rate.is_written_as("fast"));
        assert!(OptionValue::Enabled(true).is_written_as("yes"));
        assert!(OptionValue::LinkLayer(LinkLayer::Atm).is_written_as("ADSL"));
        let text = OptionValue::from(("foreign".to_owned(), "x".to_owned()));
        assert!(text.is_written_as("x") && !text.is_written_as("X"));
        assert_eq!(text.to_string(), "option foreign 'x'");
    }
}

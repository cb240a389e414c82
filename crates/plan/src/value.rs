//! The values of options: from text to typed values, each with its own errors.
//!
//! An error has no line and no option yet: the reader of the section adds them.

use sqm_core::nearest::nearest;
use sqm_core::spec::cake::Cake;
use sqm_core::units::{Bytes, Nanos, Rate, UnitError, shortened};

use crate::diagnostic::Finding;
use crate::line_rate::{self, LineRateError};
use crate::own::{ENDING, FOLDERS};
use crate::respelled::respelled;
use crate::settings::{LOG_FOLDER, Leaf, Script, Target};

/// A word that an option takes, with the value that it stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice<T> {
    pub(crate) word: &'static str,
    pub(crate) value: T,
    /// Its meaning; `None` for a second spelling, which forms do not offer.
    pub(crate) about: Option<&'static str>,
}

/// A UCI boolean.
pub(crate) fn switch(text: &str) -> Result<bool, Finding> {
    match text {
        "1" | "on" | "true" | "yes" | "enabled" => Ok(true),
        "0" | "off" | "false" | "no" | "disabled" => Ok(false),
        other => {
            let words = ["on", "off", "true", "false", "yes", "no", "enabled", "disabled"];
            let message = format!("'{}' is neither on (1) nor off (0)", shortened(other));
            Err(Finding::of_value(message).suggest(nearest(other, words)))
        }
    }
}

/// A whole number in a range, both ends included.
pub(crate) fn number<N: TryFrom<i64>>(text: &str, (least, most): (i64, i64)) -> Result<N, Finding> {
    text.parse()
        .ok()
        .filter(|n| (least..=most).contains(n))
        .and_then(|n| N::try_from(n).ok())
        .ok_or_else(|| {
            let message = format!(
                "'{}' is not a whole number from {least} to {most}",
                shortened(text)
            );
            Finding::of_value(message).suggest(
                whole(text)
                    .filter(|n| (least..=most).contains(n))
                    .map(|n| n.to_string()),
            )
        })
}

/// The whole number that a text means which is none: `0x16`, `1_000`, `22.0`, `22 bytes`.
fn whole(text: &str) -> Option<i64> {
    const UNITS: [&str; 4] = ["b", "byte", "bytes", "packets"];
    let plain = respelled(text).unwrap_or_else(|| text.to_owned());
    let (number, unit) = plain.split_at(plain.find(char::is_alphabetic).unwrap_or(plain.len()));
    let number = number.trim();
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    let is_whole = decimals.bytes().all(|digit| digit == b'0');
    let is_known = unit.is_empty() || UNITS.contains(&unit.to_ascii_lowercase().as_str());
    whole.parse().ok().filter(|_| is_whole && is_known)
}

/// A number of bytes in a range, as a whole number or with a unit of `tc` (`64kb`).
pub(crate) fn bytes<N: TryFrom<i64>>(text: &str, range: (i64, i64)) -> Result<N, Finding> {
    match Bytes::parse_tc(text) {
        Ok(Bytes(bytes)) if !is_bare_number(text) => number(&bytes.to_string(), range),
        _ => number(text, range),
    }
}

/// One of a few words, in upper or lower case.
pub(crate) fn choice<T: Copy>(text: &str, choices: &[Choice<T>]) -> Result<T, Finding> {
    let mut known = choices.iter();
    if let Some(choice) = known.find(|choice| choice.word.eq_ignore_ascii_case(text)) {
        return Ok(choice.value);
    }
    let words: Vec<&str> = choices.iter().map(|choice| choice.word).collect();
    let message = format!("'{}' is not one of {}", shortened(text), words.join(", "));
    Err(Finding::of_value(message).suggest(nearest(text, words)))
}

/// Setup scripts that came or come with other packages, and the one here that does the same.
const OTHER_SCRIPTS: [(&str, &str); 3] = [
    ("simple_pppoe", "simple.qos"),
    ("simplest_pppoe", "simplest.qos"),
    ("layer_cake_ct", "layer_cake.qos"),
];

/// The file name of a setup script.
pub(crate) fn script(text: &str) -> Result<Script, Finding> {
    let mut scripts = Script::built_in();
    let found = scripts.clone().find(|script| script.file_name() == text);
    found.cloned().ok_or_else(|| {
        let names = scripts.by_ref().map(Script::file_name);
        let names: Vec<&str> = names.collect();
        let list = names.join(", ");
        let shown = shortened(text);
        let name = text.rsplit('/').next().unwrap_or(text).trim_end_matches(".qos");
        let message = format!(
            "unknown script '{shown}': sqm runs no shell scripts; choose one of {list}, or a text of tc commands of your own, such as \
             'mine.tc', which 'sqm import mine.qos' makes of a script"
        );
        let mut others = OTHER_SCRIPTS.iter();
        let other = others.find(|(other, _)| *other == name);
        let meant = other.map(|(_, name)| *name).or_else(|| nearest(text, names));
        Finding::of_value(message).suggest(meant)
    })
}

/// The error in the name of a text of the user's own, if it has one.
pub(crate) fn own_name_fault(name: &str) -> Option<Finding> {
    /// Most bytes of a name, a choice: file systems take 255.
    const MAX_BYTES: usize = 100;
    let shown = shortened(name);
    if name.contains('/') {
        let [first, second] = FOLDERS;
        let message = format!(
            "'{shown}' has a folder: write the name alone, which is looked for in {first} and {second}"
        );
        let bare = name
            .rsplit('/')
            .next()
            .filter(|bare| own_name_fault(bare).is_none());
        return Some(Finding::of_value(message).suggest(bare));
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-+".contains(c);
    if name.starts_with('.') || name.len() > MAX_BYTES || !name.chars().all(is_plain) {
        let message =
            format!("'{shown}' is not the name of a file: letters, digits and . _ - +, such as 'mine.tc'");
        return Some(Finding::of_value(message));
    }
    let stem = name.strip_suffix(ENDING).unwrap_or(name);
    let mut scripts = Script::built_in().map(Script::file_name);
    let built_in = scripts.find(|script| script.strip_suffix(".qos") == Some(stem))?;
    let message =
        format!("'{shown}' has the name of the built-in {built_in}: give the file a name of its own");
    Some(Finding::of_value(message).suggest(Some(built_in)))
}

/// The name of a queueing discipline for the leaves.
pub(crate) fn leaf(text: &str) -> Result<Leaf, Finding> {
    named(text, Leaf::ALL.into_iter(), Leaf::name).map_err(|names| {
        let message = format!(
            "unknown queueing discipline '{}'; choose one of {}",
            shortened(text),
            names.join(", ")
        );
        Finding::of_value(message).suggest(nearest(text, names))
    })
}

/// The value of this name, or all names.
fn named<T: Copy>(
    text: &str,
    values: impl Iterator<Item = T> + Clone,
    name: fn(T) -> &'static str,
) -> Result<T, Vec<&'static str>> {
    let mut found = values.clone();
    found
        .find(|value| name(*value) == text)
        .ok_or_else(|| values.map(name).collect())
}

/// The bits of a firewall mark: decimal, or hexadecimal after `0x`. Three marks need the two lowest bits.
pub(crate) fn mark_mask(text: &str) -> Result<u32, Finding> {
    let mask = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    mask.ok().filter(|mask| mask & 3 == 3).ok_or_else(|| {
        let message = format!(
            "'{}' is not a mask that has its two lowest bits set, such as 0xff",
            shortened(text)
        );
        Finding::of_value(message)
    })
}

/// A rate: kilobits per second without a unit, as in sqm-scripts; with one, anything that `tc` understands. `None` is 0.
pub(crate) fn rate(text: &str) -> Result<Option<Rate>, Finding> {
    let bare = is_bare_number(text);
    match text.matches('.').count() {
        1 if bare => return Err(without_unit(text)),
        2.. if bare => {
            let message = format!("'{}' is not a rate", shortened(text));
            return Err(Finding::of_value(message).suggest(respelled(text)));
        }
        _ => {}
    }
    if ["auto", "autorate", "automatic"].contains(&text.to_ascii_lowercase().as_str()) {
        let message = format!(
            "'{text}' is not a rate: write the rate that the line usually has, and option autorate '1' to follow it"
        );
        return Err(Finding::of_value(message));
    }
    if ["unlimited", "none", "off"].contains(&text.to_ascii_lowercase().as_str()) {
        let message = format!("'{text}' is not a rate: write 0 not to shape this direction");
        return Err(Finding::of_value(message));
    }
    let with_unit = if bare {
        format!("{text}kbit")
    } else {
        text.to_owned()
    };
    let rate = Rate::parse_tc(&with_unit).map_err(|error| not_a_rate(text, &error))?;
    if (1..1000).contains(&rate.bits_per_sec()) {
        let message = format!("'{text}' is less than 1 kbit/s, the lowest rate");
        return Err(Finding::of_value(message));
    }
    Ok((rate.bits_per_sec() > 0).then_some(rate))
}

/// The error of a fraction without a unit, which sqm-scripts reads as kbit/s. Below this many kbit/s people rather mean Mbit/s: no
/// line is so slow, and many have as many Mbit/s.
fn without_unit(text: &str) -> Finding {
    const SLOWEST_LINE_KBIT: u64 = 1000;
    let number = shortened(text);
    let whole = text.split('.').next().unwrap_or_default();
    if whole.parse().is_ok_and(|kbit: u64| kbit >= SLOWEST_LINE_KBIT) {
        let message = format!("'{number}' needs a unit: only whole numbers are kbit/s");
        return Finding::of_value(message).suggest((text.len() < 20).then(|| format!("{text}kbit")));
    }
    Finding::of_value(format!(
        "'{number}' needs a unit, because only whole numbers are kbit/s: write '{number}mbit', or '{number}kbit'"
    ))
}

/// The error of a text that `tc` does not understand as a rate, with the rate that it means to people, such as `80 Mbit/s`, or the
/// question which of two.
fn not_a_rate(text: &str, error: &UnitError) -> Finding {
    let plain = || Finding::of_value(error.reason());
    match line_rate::parse(text) {
        Ok(rate) => plain().suggest(Some(rate.to_string())),
        Err(LineRateError::Respelled(_, meant)) => {
            plain().suggest(Some(meant.replace(char::is_whitespace, "")))
        }
        Err(question @ (LineRateError::Ambiguous(..) | LineRateError::Two(_))) => {
            Finding::of_value(question.to_string())
        }
        // Without a unit the number is kbit/s: the only comma separates thousands, or is a decimal one.
        Err(LineRateError::NoUnit(number)) => match number.split_once(',') {
            Some((whole, decimals)) if decimals.len() == 3 && (1..=3).contains(&whole.len()) => {
                plain().suggest(Some(number.replace(',', "")))
            }
            Some(_) => without_unit(&number.replacen(',', ".", 1)),
            None => plain(),
        },
        Err(_) => plain().suggest(error.suggestion.clone()),
    }
}

/// A target delay.
pub(crate) fn target(text: &str) -> Result<Target, Finding> {
    if text.eq_ignore_ascii_case("auto") {
        return Ok(Target::Auto);
    }
    if text.eq_ignore_ascii_case("default") {
        return Ok(Target::QdiscDefault);
    }
    if is_bare_number(text) {
        return Err(time_without_unit(text));
    }
    match Nanos::parse_tc(text) {
        Ok(time) if time.as_micros() <= u32::MAX.into() => Ok(Target::Is(time)),
        Ok(_) => {
            let message = format!("'{text}' is more than {} s", u32::MAX / 1_000_000);
            Err(Finding::of_value(message))
        }
        Err(error) => {
            let message = format!(
                "{}; it takes 'auto', 'default' or a time such as '5ms'",
                error.reason()
            );
            Err(Finding::of_value(message).suggest(error.suggestion))
        }
    }
}

/// The error of a time without a unit. Up to this many it is milliseconds; `tc` would take more of them for microseconds, and a
/// fraction may be of a second.
fn time_without_unit(text: &str) -> Finding {
    const MOST_MS: u64 = 1000;
    let shown = shortened(text);
    if text.parse().is_ok_and(|number: u64| number < MOST_MS) {
        return Finding::of_value(format!("'{shown}' needs a unit")).suggest(Some(format!("{text}ms")));
    }
    if text.matches('.').count() > 1 {
        return Finding::of_value(format!("'{shown}' is not a time"));
    }
    let other = if text.contains('.') { "s" } else { "us" };
    Finding::of_value(format!(
        "'{shown}' needs a unit: write '{shown}{other}', or '{shown}ms'"
    ))
}

fn is_bare_number(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit() || b == b'.')
}

/// A CAKE with this keyword and value, both as `tc` has them. A value with a blank in it is refused: it would be further words.
pub(crate) fn cake_parameter(keyword: &str, value: &str) -> Result<Cake, Finding> {
    if value.split_whitespace().count() == 1 {
        return cake_words(&format!("{keyword} {value}"));
    }
    let message = format!("'{}' is not one value", shortened(value));
    Err(Finding::of_value(message))
}

/// A CAKE with these words of `tc`.
pub(crate) fn cake_words(words: &str) -> Result<Cake, Finding> {
    let mut cake = Cake::default();
    cake.apply(words)
        .map_err(|error| Finding::of_value(error.reason()).suggest(error.suggestion))?;
    Ok(cake)
}

/// The name of a file in [`LOG_FOLDER`], alone or with the folder before it.
pub(crate) fn log_name(text: &str) -> Result<String, Finding> {
    /// Most bytes of a name, a choice: file systems take 255, and a log that is put aside gets a longer name.
    const MAX_BYTES: usize = 200;
    let in_folder = text
        .strip_prefix(LOG_FOLDER)
        .and_then(|rest| rest.strip_prefix('/'));
    let name = in_folder.unwrap_or(text);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-+@".contains(c);
    let is_name =
        !name.is_empty() && !name.starts_with('.') && name.len() <= MAX_BYTES && name.chars().all(is_plain);
    if is_name {
        return Ok(name.to_owned());
    }
    let message = format!("'{}' is not the name of a file in {LOG_FOLDER}", shortened(text));
    let advice = format!(
        "write a name such as rates.csv, of letters, digits and . _ - + @; the log is then {LOG_FOLDER}/rates.csv"
    );
    Err(Finding::of_value(message).suggest(Some(advice)))
}

/// A name that a network device can have.
pub(crate) fn device_name(text: &str) -> Result<String, Finding> {
    match name_fault(text) {
        None => Ok(text.to_owned()),
        Some(fault) => {
            let message = format!("'{}' cannot be a network device: {fault}", shortened(text));
            Err(Finding::of_value(message))
        }
    }
}

/// The warning for a name that the kernel allows and that a file has by mistake: an alias of OpenWrt's netifd, a line of `ip link`,
/// or a pattern. None of them is a device's name.
pub(crate) fn unlikely_device(name: &str) -> Option<Finding> {
    if let Some(alias) = name.strip_prefix('@') {
        let message = format!(
            "'{name}' is netifd's alias of the logical interface {alias}, and no network device: write the device \
             itself, such as 'eth1', which 'ifstatus {alias}' shows as l3_device"
        );
        return Some(Finding::of_value(message));
    }
    if let Some((device, _)) = name.split_once('@') {
        let message =
            format!("'{name}' is no network device: 'ip link' prints the device below after the '@'");
        return Some(Finding::of_value(message).suggest(Some(device)));
    }
    if let Some((stem, _)) = name.split_once(['*', '+', '?', '%', '[', '{']) {
        let example = match stem {
            "" => "eth0".to_owned(),
            stem => format!("{stem}0"),
        };
        let message = format!(
            "'{name}' is a pattern, and sqm knows devices by their whole names: write a section for each, such as \
             '{example}'"
        );
        return Some(Finding::of_value(message));
    }
    None
}

/// Why the kernel would not let a device have this name (`dev_valid_name`).
fn name_fault(name: &str) -> Option<&'static str> {
    match name {
        "." | ".." => Some("the kernel reserves this name"),
        _ if name.len() > 15 => Some("its name has more than 15 bytes"),
        _ if name.contains(['/', ':']) => Some("its name cannot contain '/' or ':'"),
        _ if name.contains(|c: char| c.is_whitespace() || c.is_control()) => Some("its name contains blanks"),
        _ => None,
    }
}

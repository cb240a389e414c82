//! The registry as a page of the documentation, in Markdown.

use std::fmt;

use super::{CAKE, Kind, OptionInfo, autorate, basic, fill, leaf, link_layer, queue};

/// The text of docs/reference/options.md. A test compares the file with it.
pub fn page() -> String {
    Page.to_string()
}

struct Page;

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(INTRODUCTION)?;
        let cake: Vec<&OptionInfo> = CAKE.iter().map(|parameter| &parameter.both).collect();
        let groups: [(&str, &str, &[&OptionInfo]); 7] = [
            ("Basic settings", "", basic::ALL),
            ("Lines that vary", LINES_THAT_VARY, autorate::ALL),
            ("Queues", "", queue::ALL),
            ("CAKE", OF_CAKE, &cake),
            ("Other leaves", "", leaf::ALL),
            ("Link layer", LINK_LAYER, link_layer::ALL),
            ("Options without effect", WITHOUT_EFFECT, basic::HIDDEN),
        ];
        for (title, introduction, options) in groups {
            write!(f, "\n## {title}\n{introduction}")?;
            for (n, option) in options.iter().enumerate() {
                if !options[..n].iter().any(|earlier| is_twin(earlier, option)) {
                    let twins = options.iter().copied().filter(|other| is_twin(other, option));
                    write!(f, "\n{}", Entry(twins.collect()))?;
                }
            }
        }
        Ok(())
    }
}

const INTRODUCTION: &str = "\
# Options of a section

`/etc/config/sqm` is the file of OpenWrt's sqm-scripts, and sqm reads every option of theirs. An option without effect is reported with its
reason, and so is one that sqm does not have: with the option that was probably meant, but not as an error, because it may be another program's.
An option with an empty value counts as not given.

This page is made from the registry of options in `crates/plan/src/options`. Change it there, then run
`SQM_UPDATE=1 cargo test -p sqm-plan --test reference`.

| Value | Written as |
| --- | --- |
| switch | `1` or `0`; also `on`, `true`, `yes`, `enabled` and their opposites |
| rate | `85mbit`, `500kbit`, `1gbit`; a bare number is kbit/s; `0` leaves this direction unshaped |
| time | `5ms`, `100us`, `1s` |
| size | `4mb` |
| mask | `0xff` |

*In sqm-scripts' files* names the variable of sqm-scripts on generic Linux that `sqm import` reads for the option; further names are older
spellings. The level says which users need an option; the page of `sqm web` shows only the basic ones at first.
";

const LINES_THAT_VARY: &str = "
The [guide](../guide/autorate.md) says when to use them. The log has a [format](autorate-log.md) of its own.
";

const OF_CAKE: &str = "
Each of these also exists for one direction, where it has precedence: `egress_cake_rtt`, `ingress_cake_rtt` and so on.
";

const LINK_LAYER: &str = "
`sqm calc links` prints the bytes of each kind of line, and their sources.
";

const WITHOUT_EFFECT: &str = "
sqm accepts them, so that a file that has them is not an error.
";

/// True if two options differ in their direction only, so that one entry is enough.
fn is_twin(one: &OptionInfo, other: &OptionInfo) -> bool {
    (one.title, one.about) == (other.title, other.about)
}

/// An option, and those that differ from it in their direction only, as a part of the page.
struct Entry<'a>(Vec<&'a OptionInfo>);

impl fmt::Display for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(&first) = self.0.first() else {
            return Ok(());
        };
        let names = self.0.iter().map(|option| option.name);
        writeln!(f, "### {}\n", code(names))?;
        writeln!(f, "**{}.** {}\n", first.title, first.about)?;
        if first.tab.is_some() {
            writeln!(f, "- Value: {}.", value(first))?;
            writeln!(f, "- Default: {}.", self.default())?;
            writeln!(f, "- Level: {}.", first.level.name())?;
        }
        let variables = self.0.iter().flat_map(|option| option.variables.iter().copied());
        if variables.clone().next().is_some() {
            writeln!(f, "- In sqm-scripts' files: {}.", code(variables))?;
        }
        let rules = self.0.iter().find(|option| !option.ignored.is_empty());
        for rule in rules.map_or(&[][..], |option| option.ignored) {
            let reason = fill(rule.reason, "SCRIPT", "QDISC", "DIRECTION");
            writeln!(f, "- Ignored if {}: \"{reason}\".", rule.when)?;
        }
        let words = first.choices();
        if !words.is_empty() {
            writeln!(f, "\n| Word | Meaning |\n| --- | --- |")?;
            for (word, about) in words {
                writeln!(f, "| `{word}` | {about} |")?;
            }
        }
        Ok(())
    }
}

impl Entry<'_> {
    /// The defaults, each once.
    fn default(&self) -> String {
        let mut defaults: Vec<String> = Vec::new();
        for option in &self.0 {
            let default = option.default.map(|default| format!("`{default}`"));
            let default = default.unwrap_or_else(|| option.otherwise.to_owned());
            let default = match option.side {
                Some(_) if self.0.len() == 3 => format!("for one direction {default}"),
                _ => default,
            };
            if !defaults.contains(&default) {
                defaults.push(default);
            }
        }
        defaults.join("; ")
    }
}

/// Names as code, with commas between.
fn code<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

/// The form of a value in words.
fn value(option: &OptionInfo) -> String {
    let kind = match option.kind {
        Kind::Switch => "a switch",
        Kind::Device => "the name of a network device",
        Kind::Rate => "a rate",
        Kind::Choice => "a word of the table",
        Kind::Integer => "a whole number",
        Kind::Time => "a time, or a word of the table",
        Kind::Size => "a size",
        Kind::Mask => "a mask",
        Kind::Text => "text",
    };
    let range = option
        .range
        .map_or_else(String::new, |(least, most)| format!(" from {least} to {most}"));
    let unit = option.unit.map_or_else(String::new, |unit| format!(", {unit}"));
    format!("{kind}{range}{unit}")
}

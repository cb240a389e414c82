//! The commands of a text, with the values of one direction for their variables.

use sqm_core::spec::ParseError;
use sqm_core::spec::command::Command;
use sqm_core::units::shortened;

use super::build::{Builder, INGRESS};
use super::expression::Wrong;
use super::variables::Scope;
use super::{active, effects};
use crate::own::text::{Line, Program, Word};
use crate::own::{MOST_ERRORS, OwnText, TextError, near};
use crate::plan::{Handle, Plan, Tree};
use crate::settings::Settings;
use crate::side::{DirectionContext, Side};

/// The queues of one direction; `None` if the text has no command for it.
pub(in crate::recipes) fn tree(
    text: &OwnText,
    context: DirectionContext<'_>,
) -> Result<Option<Tree>, Vec<TextError>> {
    let (mut commands, mut errors) = (Vec::new(), Vec::new());
    errors.extend(effects::printed_rules(text, context.settings, context.side).err());
    for line in active(text, context.settings, context.side) {
        match statement(line, context) {
            Ok(command) => commands.extend(command.map(|command| (command, line))),
            Err(error) => errors.push(error),
        }
    }
    if !errors.is_empty() {
        errors.truncate(MOST_ERRORS);
        return Err(errors);
    }
    let mut builder = Builder::default();
    for (command, line) in commands {
        // An error hides those that follow from it: a class that is not made is missing in later lines.
        builder.add(command, line).map_err(|error| vec![error])?;
    }
    builder.finish()
}

/// The variable of a direction's device.
pub(super) const fn device_variable(side: Side) -> &'static str {
    match side {
        Side::Egress => "$IFACE",
        Side::Ingress => "$IFB",
    }
}

/// The direction of the device that a word names; `None` if it is neither the interface nor its IFB.
pub(super) fn side_of(word: &str, settings: &Settings) -> Option<Side> {
    let interface = &settings.interface;
    if ["$IFACE", "${IFACE}"].contains(&word) || word == interface {
        Some(Side::Egress)
    } else if ["$IFB", "${IFB}"].contains(&word) || word == Plan::ifb_of(interface) {
        Some(Side::Ingress)
    } else {
        None
    }
}

/// The word after the first `dev`, which names the device of a command.
pub(super) fn device_word(line: &Line) -> Option<&Word> {
    let mut words = line.words.iter();
    words.find(|word| word.text == "dev")?;
    words.next()
}

/// A command of this direction.
fn statement(line: &Line, context: DirectionContext<'_>) -> Result<Option<Command>, TextError> {
    match line.program {
        Program::Ip => link(line, context.settings).map(|()| None),
        Program::Firewall => firewall(line).map(|_| None),
        // All commands of nft are looked at together.
        Program::Nft => Ok(None),
        Program::Tc => {
            let device = device_of(line)?;
            let Some(side) = side_of(&device.text, context.settings) else {
                return Err(unknown_device(device, context.settings));
            };
            if is_redirect(line) {
                redirect(line, side, context)?;
                return Ok(None);
            }
            if side != context.side {
                return Ok(None);
            }
            command(line, context).map(Some)
        }
    }
}

fn device_of(line: &Line) -> Result<&Word, TextError> {
    if let Some(verb) = line.words.get(2)
        && ["del", "delete"].contains(&verb.text.as_str())
    {
        let message = format!(
            "word 3 '{}': sqm removes the queues that it replaces itself: leave the line out",
            verb.text
        );
        return Err(TextError::at(verb.line, message));
    }
    device_word(line).ok_or_else(|| {
        let message = "word 'dev' is missing: the command names its device, 'dev $IFACE' or 'dev $IFB'";
        TextError::at(line.number, message)
    })
}

fn unknown_device(word: &Word, settings: &Settings) -> TextError {
    let message = format!(
        "word '{}' after 'dev' is neither $IFACE ({}) nor $IFB ({})",
        shortened(&word.text),
        settings.interface,
        Plan::ifb_of(&settings.interface)
    );
    let suggestion = match word.text.as_str() {
        "$DEV" | "${DEV}" => Some("$IFB"),
        other => near(other, &["$IFACE", "$IFB"]),
    };
    TextError::at(word.line, message).suggest(suggestion)
}

/// Accepts the commands that make the IFB, which sqm makes itself.
fn link(line: &Line, settings: &Settings) -> Result<(), TextError> {
    let words: Vec<&str> = line.words.iter().map(|word| word.text.as_str()).collect();
    let is_ifb = |word: &str| side_of(word, settings) == Some(Side::Ingress);
    let is_known = match words.as_slice() {
        ["ip", "link", "add", name, "type", "ifb"] => is_ifb(name),
        ["ip", "link", "set", name, "up"] | ["ip", "link", "set", "dev", name, "up"] => is_ifb(name),
        _ => false,
    };
    if is_known {
        return Ok(());
    }
    let message =
        "word 'ip': of ip, only 'ip link add $IFB type ifb' and 'ip link set $IFB up' may stand here";
    Err(TextError::at(line.number, message))
}

/// A rule set of sqm's own that a text asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirewallRules {
    /// Marks what leaves, as `simple.qos` does.
    Mark,
    /// Erases the DSCP of what arrives.
    EraseDscp,
}

/// Reads `firewall mark` or `firewall erase-dscp`.
pub(super) fn firewall(line: &Line) -> Result<FirewallRules, TextError> {
    let Some(word) = line.words.get(1) else {
        let message = "word 'firewall': after it stands 'mark' or 'erase-dscp'";
        return Err(TextError::at(line.number, message));
    };
    let rules = word.text.as_str();
    let read = match rules {
        "mark" => FirewallRules::Mark,
        "erase-dscp" => FirewallRules::EraseDscp,
        other => {
            let message = format!(
                "word '{}': after 'firewall' stands 'mark' or 'erase-dscp'",
                shortened(other)
            );
            return Err(TextError::at(line.number, message).suggest(near(other, &["mark", "erase-dscp"])));
        }
    };
    match line.words.get(2) {
        Some(word) => {
            let message = format!(
                "word '{}': nothing follows 'firewall {rules}'",
                shortened(&word.text)
            );
            Err(TextError::at(word.line, message))
        }
        None => Ok(read),
    }
}

/// True if the command makes the `ingress` qdisc, or a filter in it. The plan has both whenever something arrives.
fn is_redirect(line: &Line) -> bool {
    let has = |text: &str| line.words.iter().any(|word| word.text == text);
    has("ffff:")
        || has("mirred")
        || line.words.get(1).is_some_and(|word| word.text == "qdisc")
            && line
                .words
                .last()
                .is_some_and(|word| word.text == "ingress" && !has("cake") && !has("cake_mq"))
}

/// Accepts the two commands that lead arriving packets to the IFB, as `sqm plan` prints them.
fn redirect(line: &Line, side: Side, context: DirectionContext<'_>) -> Result<(), TextError> {
    const MEANT: &str =
        "sqm leads arriving packets to $IFB itself: leave the line out, or write it as 'sqm plan' prints it";
    let wrong = |word: &str| TextError::at(line.number, format!("word '{}': {MEANT}", shortened(word)));
    if side != Side::Egress {
        return Err(wrong("ffff:"));
    }
    let mut words: Vec<&str> = line.words.iter().map(|word| word.text.as_str()).collect();
    let Some(dev) = words.iter().position(|word| *word == "dev") else {
        return Err(wrong("dev"));
    };
    words.drain(dev..(dev + 2).min(words.len()));
    match words.as_slice() {
        ["tc", "qdisc", "add" | "replace", rest @ ..] => match rest {
            ["ingress"] | ["handle", "ffff:", "ingress"] | ["ingress", "handle", "ffff:"] => Ok(()),
            _ => Err(wrong("ffff:")),
        },
        [
            "tc",
            "filter",
            "add" | "replace",
            inner @ ..,
            "action",
            "mirred",
            "egress",
            "redirect",
            "dev",
            to,
        ] => {
            if side_of(to, context.settings) != Some(Side::Ingress) {
                return Err(wrong(to));
            }
            let mut text = format!("filter add {}", inner.join(" "));
            if inner.contains(&"matchall") {
                text.push_str(" classid 1:1");
            }
            let always = sqm_core::filter::Condition::default();
            match Command::parse(&text) {
                Ok(Command::Filter(node))
                    if node.parent == Some(Handle::new(INGRESS, 0))
                        && node.network.is_none()
                        && node.condition == always =>
                {
                    Ok(())
                }
                _ => Err(wrong("mirred")),
            }
        }
        _ => Err(wrong(
            words
                .iter()
                .find(|word| ["mirred", "ffff:"].contains(word))
                .unwrap_or(&"tc"),
        )),
    }
}

/// Replaces the variables and reads the command.
fn command(line: &Line, context: DirectionContext<'_>) -> Result<Command, TextError> {
    let mut scope = Scope::new(context);
    let mut text = String::new();
    // For each word that is read, its place among those that are written.
    let mut sources = Vec::new();
    for (at, word) in line.words.iter().enumerate() {
        let expanded = scope
            .expand(word)
            .map_err(|wrong| wrong_variable(word, at, wrong))?;
        for part in expanded.split_whitespace() {
            text.push_str(part);
            text.push(' ');
            sources.push(at);
        }
    }
    Command::parse(text.trim_end()).map_err(|error| refused(line, &sources, &error))
}

fn wrong_variable(word: &Word, at: usize, (message, meant): Wrong) -> TextError {
    let message = format!("word {} '{}': {message}", at + 1, shortened(&word.text));
    TextError::at(word.line, message).suggest(meant)
}

/// An error of the grammar, with the word of the text that it is about.
fn refused(line: &Line, sources: &[usize], error: &ParseError) -> TextError {
    let at = sources
        .get(error.index)
        .or_else(|| sources.last())
        .copied()
        .unwrap_or(0);
    let word = &line.words[at];
    let shown = shortened(&word.text);
    let place = match error.index < sources.len() {
        true => format!("word {} '{shown}'", at + 1),
        false => format!("after word {} '{shown}'", at + 1),
    };
    TextError::at(word.line, format!("{place}: {}", error.reason())).suggest(error.suggestion.as_deref())
}

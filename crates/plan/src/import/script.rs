//! From a setup script of one's own for sqm-scripts, which is shell, to a text of `tc` commands. The script is never run.
//!
//! It is followed once for each case that it tells apart (`QDISC`, `ZERO_DSCP_INGRESS`, `IGNORE_DSCP_INGRESS`) and for each
//! direction, with the variables of a text in place of values. What sqm-scripts' functions.sh offers is known here. Anything else is
//! an error with its line, and then there is no text. The text is read and planned before it is given out.

mod firewall;
mod lexer;
mod parser;
mod run;
mod words;

use std::collections::BTreeMap;

use super::{MOST_REMARKS, Remark, Source};
use crate::configuration::Configuration;
use crate::device::Device;
use crate::own::OwnFile;
use crate::own::text::Asked;
use crate::side::Side;
use parser::Script;
use run::{Done, Emitted, Part, Stop};

/// A text, and how it differs from the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    /// The text.
    pub text: String,
    /// Everything that is not carried over as it was, and why.
    pub differences: Vec<Remark>,
}

/// Carries a setup script over.
///
/// # Errors
/// Everything that is not carried over, each with its line.
pub fn carry_over(source: &Source<'_>) -> Result<Carried, Vec<Remark>> {
    let remark = |(line, message): (usize, String)| Remark {
        file: source.name.to_owned(),
        line,
        message,
    };
    let script = lexer::tokens(source.text).and_then(parser::parse);
    let script = script.map_err(|wrong| vec![remark(wrong)])?;
    let mut writer = Writer::default();
    for own in ["sqm_start", "sqm_stop"] {
        if let Some((line, _)) = script.functions.get(own) {
            writer.error(
                *line,
                format!("'{own}' replaces how sqm-scripts starts or stops, which sqm does itself: remove it"),
            );
        }
    }
    let name = source.name.rsplit('/').next().unwrap_or(source.name);
    writer.line(0, format!("# From {name} by 'sqm import'."));
    let rules = writer.firewall(&script);
    let has_marks = rules.iter().any(|(_, rule)| *rule == firewall::MARK);
    let mut directions = 0;
    for (side, function) in [(Side::Egress, "egress"), (Side::Ingress, "ingress")] {
        if script.functions.contains_key(function) {
            directions += 1;
            writer.direction(&script, side, has_marks);
        }
    }
    if directions == 0 {
        writer.error(
            1,
            "there is neither a function egress() nor ingress(), as a setup script of sqm-scripts has"
                .to_owned(),
        );
    }
    for (known, rule) in rules {
        writer.line(0, String::new());
        writer.line(0, heading(&known));
        writer.line(0, rule.to_owned());
    }
    if writer.errors.is_empty() {
        writer.check(&script);
    }
    let in_order = |found: BTreeMap<(usize, String), ()>| {
        let remarks = found.into_keys().map(remark);
        remarks.take(MOST_REMARKS).collect::<Vec<Remark>>()
    };
    match writer.errors.is_empty() {
        true => Ok(Carried {
            text: writer.text(),
            differences: in_order(writer.differences),
        }),
        false => Err(in_order(writer.errors)),
    }
}

/// One case, and what the script does in it.
struct Case {
    known: Vec<(Asked, bool)>,
    done: Done,
}

#[derive(Default)]
struct Writer {
    /// Lines of the text, each with the line of the script that it comes from.
    lines: Vec<(usize, String)>,
    errors: BTreeMap<(usize, String), ()>,
    differences: BTreeMap<(usize, String), ()>,
}

impl Writer {
    fn error(&mut self, line: usize, message: String) {
        self.errors.insert((line, message), ());
    }

    fn line(&mut self, source: usize, text: String) {
        self.lines.push((source, text));
    }

    fn text(&self) -> String {
        self.lines.iter().map(|(_, line)| format!("{line}\n")).collect()
    }

    /// The cases of a part of the script's work. Their errors are kept.
    fn cases(&mut self, script: &Script, part: Part) -> Vec<Case> {
        let Ok(cases) = cases(script, part, Vec::new()) else {
            let message = "the script has more cases or steps than a setup script needs";
            self.error(1, message.to_owned());
            return Vec::new();
        };
        for case in &cases {
            for (line, message) in &case.done.errors {
                self.error(*line, message.clone());
            }
        }
        cases
    }

    /// The queues of a direction.
    fn direction(&mut self, script: &Script, side: Side, has_marks: bool) {
        for Case { known, done } in self.cases(script, Part::Queues(side)) {
            let written = self.commands(&done.lines, has_marks);
            self.line(0, String::new());
            self.line(0, heading(&known));
            self.lines.extend(written);
        }
    }

    /// The rules of the firewall, each with the facts with which it holds.
    fn firewall(&mut self, script: &Script) -> Vec<(Vec<(Asked, bool)>, &'static str)> {
        let mut rules = Vec::new();
        for Case { known, done } in self.cases(script, Part::Firewall) {
            match firewall::rules(&done.ipt) {
                Ok(found) => {
                    self.differences
                        .extend(found.differences.into_iter().map(|difference| (difference, ())));
                    rules.extend(found.lines.into_iter().map(|line| (known.clone(), line)));
                }
                Err(errors) => self.errors.extend(errors.into_iter().map(|error| (error, ()))),
            }
        }
        rules
    }

    /// The commands of a case as lines of the text.
    fn commands(&mut self, lines: &[Emitted], has_marks: bool) -> Vec<(usize, String)> {
        let mut written = Vec::new();
        for Emitted { line, text } in lines {
            if let Some(message) = words::left_over(text) {
                self.error(*line, message);
                continue;
            }
            match redirect(text) {
                Redirect::No => {}
                Redirect::OfAll => continue,
                Redirect::Other => {
                    self.error(*line, OTHER_REDIRECT.to_owned());
                    continue;
                }
            }
            match firewall::filter(text, has_marks) {
                firewall::Filter::As(text) => written.push((*line, pretty(&text))),
                firewall::Filter::Changed(text, why) => {
                    self.differences.insert((*line, why.to_owned()), ());
                    written.push((*line, pretty(&text)));
                }
                firewall::Filter::LeftOut(why) => _ = self.differences.insert((*line, why.to_owned()), ()),
            }
        }
        written
    }

    /// Plans the text, so that one that would be refused is never given out.
    fn check(&mut self, script: &Script) {
        let text = self.text();
        let rate = |function: &str, rate: &'static str| match script.functions.contains_key(function) {
            true => rate,
            false => "0",
        };
        let (upload, download) = (rate("egress", "20mbit"), rate("ingress", "100mbit"));
        let section = format!(
            "config queue\n option enabled 1\n option interface eth0\n option upload {upload}\n option download {download}\n \
             option script import.tc\n"
        );
        let read = |_: &str| {
            Ok(OwnFile {
                path: String::new(),
                bytes: text.clone().into_bytes(),
            })
        };
        let configuration = Configuration::parse_with(section.as_bytes(), "", &read);
        let planned = configuration.and_then(|read| read.plan(&Device::absent, &BTreeMap::new()));
        for error in planned.err().unwrap_or_default() {
            // The message begins with the line of the text.
            let place = error
                .message
                .strip_prefix(':')
                .and_then(|rest| rest.split_once(": "));
            let number = place.and_then(|(number, _)| number.parse::<usize>().ok());
            let source = number.and_then(|number| self.lines.get(number.saturating_sub(1)));
            let (line, message) = match (source, place) {
                (Some((source, text)), Some((_, message))) if *source > 0 => {
                    (*source, format!("'{text}' is refused: {message}"))
                }
                // It is about a line that the script does not have, or about the whole.
                (_, Some((_, message))) => (1, message.to_owned()),
                _ => (1, error.message.clone()),
            };
            self.errors.insert((line, message), ());
        }
    }
}

/// Follows all cases of a part. A fact with which the script does the same as without it is left out.
fn cases(script: &Script, part: Part, known: Vec<(Asked, bool)>) -> Result<Vec<Case>, ()> {
    /// More facts than a script can ask for.
    const MOST_FACTS: usize = 6;
    let asked = match run::follow(script, part, &known) {
        Ok(done) => return Ok(vec![Case { known, done }]),
        Err(Stop::Ask(asked)) if known.len() < MOST_FACTS => asked,
        Err(_) => return Err(()),
    };
    let with = |is| {
        let more = [known.as_slice(), &[(asked, is)]].concat();
        cases(script, part, more)
    };
    let (mut yes, no) = (with(true)?, with(false)?);
    let without = |known: &[(Asked, bool)]| -> Vec<(Asked, bool)> {
        let others = known.iter().filter(|(other, _)| *other != asked);
        others.copied().collect()
    };
    let is_same = |(one, other): (&Case, &Case)| {
        without(&one.known) == without(&other.known)
            && one.done.lines == other.done.lines
            && one.done.ipt == other.done.ipt
            && one.done.errors == other.done.errors
    };
    if yes.len() == no.len() && yes.iter().zip(&no).all(is_same) {
        for case in &mut yes {
            case.known = without(&case.known);
        }
        return Ok(yes);
    }
    yes.extend(no);
    Ok(yes)
}

fn heading(known: &[(Asked, bool)]) -> String {
    let conditions: Vec<String> = known
        .iter()
        .map(|(asked, is)| {
            let option = match asked {
                Asked::Qdisc(leaf) => format!("qdisc {leaf}"),
                other => other.option().to_owned(),
            };
            if *is { option } else { format!("not {option}") }
        })
        .collect();
    match conditions.is_empty() {
        true => "[always]".to_owned(),
        false => format!("[when {}]", conditions.join(" and ")),
    }
}

/// The effect of a command on arriving packets.
enum Redirect {
    /// Nothing.
    No,
    /// It leads all of them to the IFB, or is needed for that. sqm does so itself.
    OfAll,
    /// Something else.
    Other,
}

const OTHER_REDIRECT: &str = "sqm leads all arriving packets to the IFB, without another condition or action: remove the line, and set \
     a filter such as ctinfo up elsewhere; sqm leaves it in place, in front of its own";

fn redirect(text: &str) -> Redirect {
    if text.starts_with("tc qdisc add dev ${IFACE}") && text.ends_with(" ingress") && !text.contains("cake") {
        return Redirect::OfAll;
    }
    let Some(filter) = text.strip_prefix("tc filter add dev ${IFACE} parent ffff: ") else {
        return Redirect::No;
    };
    let condition = filter.strip_suffix(" action mirred egress redirect dev ${IFB}");
    let mut words = condition.unwrap_or_default().split(' ').peekable();
    let mut left = Vec::new();
    while let Some(word) = words.next() {
        let is_of_any = word == "protocol" && words.peek() == Some(&"all");
        match is_of_any || ["prio", "pref", "flowid", "classid"].contains(&word) {
            true => _ = words.next(),
            false => left.push(word),
        }
    }
    match left.as_slice() {
        ["u32", "match", "u32", "0", "0"] | ["matchall"] => Redirect::OfAll,
        _ => Redirect::Other,
    }
}

/// A command in the form in which one would write it.
fn pretty(text: &str) -> String {
    let is_cake = text.split(' ').any(|word| word == "cake");
    let words = text.split(' ').map(|word| {
        let word = word
            .strip_suffix("}kbit")
            .map_or_else(|| word.to_owned(), |rate| format!("{rate}}}"));
        if is_cake && word == "${OPTIONS}" {
            return "$CAKE_OPTIONS $OPTIONS".to_owned();
        }
        match word.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')) {
            Some(name) if !name.contains(['$', '{', '}']) => format!("${name}"),
            _ => word,
        }
    });
    words.collect::<Vec<String>>().join(" ")
}

#[cfg(test)]
mod tests;

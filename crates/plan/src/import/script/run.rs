//! Follows one direction of a setup script, with variables of a text in place of the values that a shell would have.

use std::collections::BTreeMap;

use sqm_core::units::shortened;

use super::parser::{Node, Script};
use super::words;
use crate::own::text::Asked;
use crate::plan::MARKED_DSCP;
use crate::side::Side;

/// Most calls of functions within each other.
const DEEPEST_CALL: usize = 16;
/// Most steps of a script, a choice: a hundred times those of the longest one of sqm-scripts.
const MOST_STEPS: usize = 20_000;

/// The reason to stop before the end of a path.
pub(super) enum Stop {
    /// The script asks for an option whose value this path does not know yet.
    Ask(Asked),
    /// More steps than any setup script needs.
    TooLong,
}

/// A command of `tc` that the script runs, and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Emitted {
    pub(super) line: usize,
    pub(super) text: String,
}

/// The commands of one path of a script.
#[derive(Clone, Debug, Default)]
pub(super) struct Done {
    pub(super) lines: Vec<Emitted>,
    /// Commands for iptables, which `ipt` adds to both families.
    pub(super) ipt: Vec<Emitted>,
    /// Everything that is not carried over, each with its line.
    pub(super) errors: Vec<(usize, String)>,
}

/// The part of a script's work that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The queues of one direction.
    Queues(Side),
    /// The rules of iptables.
    Firewall,
}

/// Follows the script for one part of its work. `known` are the facts of this path.
pub(super) fn follow(script: &Script, part: Part, known: &[(Asked, bool)]) -> Result<Done, Stop> {
    const PREPARE: &str = "sqm_prepare_script";
    let (side, functions): (Side, &[&str]) = match part {
        Part::Queues(Side::Egress) => (Side::Egress, &[PREPARE, "egress"]),
        Part::Queues(Side::Ingress) => (Side::Ingress, &[PREPARE, "ingress"]),
        Part::Firewall => (Side::Egress, &[PREPARE, "egress", "ingress"]),
    };
    let mut run = Run {
        script,
        side,
        known,
        values: words::initial(side),
        done: Done::default(),
        steps: 0,
        calls: 0,
    };
    run.all(&script.statements)?;
    for function in functions {
        if let Some((_, body)) = script.functions.get(*function) {
            run.all(body)?;
        }
    }
    let mut done = run.done;
    match part {
        Part::Queues(_) => done.ipt.clear(),
        // The errors are those of the queues, or of the other direction's values.
        Part::Firewall => {
            done.lines.clear();
            done.errors.clear();
        }
    }
    Ok(done)
}

/// How a list of statements ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    GoesOn,
    Returns,
}

/// How a part of `first && then || other` ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// A test holds or not, or a command has succeeded.
    Is(bool),
    /// A test is not carried over, which is an error already.
    Unknown,
    Returns,
}

struct Run<'a> {
    script: &'a Script,
    side: Side,
    known: &'a [(Asked, bool)],
    values: BTreeMap<String, String>,
    done: Done,
    steps: usize,
    calls: usize,
}

impl Run<'_> {
    fn error(&mut self, line: usize, message: impl Into<String>) {
        self.done.errors.push((line, message.into()));
    }

    fn all(&mut self, nodes: &[Node]) -> Result<Flow, Stop> {
        for node in nodes {
            if self.node(node)? == Flow::Returns {
                return Ok(Flow::Returns);
            }
        }
        Ok(Flow::GoesOn)
    }

    fn node(&mut self, node: &Node) -> Result<Flow, Stop> {
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return Err(Stop::TooLong);
        }
        match node {
            Node::Command { line, words } => self.command(*line, words),
            Node::If {
                condition,
                then,
                otherwise,
                ..
            } => match self.condition(condition)? {
                Some(true) => self.all(then),
                Some(false) => self.all(otherwise),
                None => Ok(Flow::GoesOn),
            },
            Node::Case { line, word, arms } => self.case(*line, word, arms),
            Node::Group { nodes, .. } => self.all(nodes),
            Node::AndOr { .. } => Ok(match self.outcome(node)? {
                Outcome::Returns => Flow::Returns,
                Outcome::Is(_) | Outcome::Unknown => Flow::GoesOn,
            }),
        }
    }

    /// How a part of `first && then || other` ends. Commands are taken to succeed.
    fn outcome(&mut self, node: &Node) -> Result<Outcome, Stop> {
        if is_test(node) {
            return Ok(self.condition(node)?.map_or(Outcome::Unknown, Outcome::Is));
        }
        let Node::AndOr { first, is_and, then } = node else {
            return Ok(match self.node(node)? {
                Flow::Returns => Outcome::Returns,
                Flow::GoesOn => Outcome::Is(true),
            });
        };
        match self.outcome(first)? {
            Outcome::Is(holds) if holds == *is_and => self.outcome(then),
            other => Ok(other),
        }
    }

    /// A fact about the section.
    fn ask(&self, asked: Asked) -> Result<bool, Stop> {
        for (known, is) in self.known {
            match (known, asked) {
                _ if *known == asked => return Ok(*is),
                // Only one leaf is chosen.
                (Asked::Qdisc(_), Asked::Qdisc(_)) if *is => return Ok(false),
                _ => {}
            }
        }
        Err(Stop::Ask(asked))
    }

    /// Tests, with `&&` or `||` between them; `None` after an error.
    fn condition(&mut self, node: &Node) -> Result<Option<bool>, Stop> {
        if let Node::Command { line, words } = node
            && let Some((inner, is)) = test_of(words)
        {
            return Ok(self.test(*line, inner)?.map(|holds| holds == is));
        }
        match node {
            Node::AndOr { first, is_and, then } => match self.condition(first)? {
                Some(holds) if holds == *is_and => self.condition(then),
                other => Ok(other),
            },
            Node::Command { line, .. }
            | Node::Case { line, .. }
            | Node::If { line, .. }
            | Node::Group { line, .. } => {
                self.error(
                    *line,
                    "only tests such as [ \"$QDISC\" = \"cake\" ] decide what is carried over",
                );
                Ok(None)
            }
        }
    }

    /// The words between `[` and `]`; `None` after an error.
    fn test(&mut self, line: usize, inner: &[String]) -> Result<Option<bool>, Stop> {
        let expanded: Result<Vec<String>, String> = inner.iter().map(|word| self.expand(word)).collect();
        let expanded = match expanded {
            Ok(expanded) => expanded,
            Err(message) => {
                self.error(line, message);
                return Ok(None);
            }
        };
        let parts: Vec<&str> = expanded.iter().map(String::as_str).collect();
        let (left, right, is) = match parts.as_slice() {
            [left, "=" | "==" | "-eq", right] => (*left, *right, true),
            [left, "!=" | "-ne", right] => (*left, *right, false),
            ["-z", text] if words::is_plain(text) => return Ok(Some(text.is_empty())),
            ["-n", text] if words::is_plain(text) => return Ok(Some(!text.is_empty())),
            _ => {
                self.error(line, "this test is not carried over: a text asks for QDISC, ZERO_DSCP_INGRESS and IGNORE_DSCP_INGRESS");
                return Ok(None);
            }
        };
        let asked = match (left, right) {
            (words::ZERO_DSCP, "0" | "1") => Some((Asked::SquashDscp, right == "1")),
            (words::IGNORE_DSCP, "0" | "1") => Some((Asked::SquashIngress, right == "1")),
            (words::QDISC, leaf) => words::leaf(leaf).map(|leaf| (Asked::Qdisc(leaf), true)),
            _ => None,
        };
        if let Some((asked, wanted)) = asked {
            return Ok(Some((self.ask(asked)? == wanted) == is));
        }
        if words::is_plain(left) && words::is_plain(right) {
            return Ok(Some((left == right) == is));
        }
        self.error(
            line,
            "this test is not carried over: a text asks for QDISC, ZERO_DSCP_INGRESS and IGNORE_DSCP_INGRESS",
        );
        Ok(None)
    }

    fn case(&mut self, line: usize, word: &str, arms: &[(Vec<String>, Vec<Node>)]) -> Result<Flow, Stop> {
        let value = match self.expand(word) {
            Ok(value) if value == words::QDISC || words::is_plain(&value) => value,
            Ok(_) => {
                self.error(line, "only 'case $QDISC in' is carried over");
                return Ok(Flow::GoesOn);
            }
            Err(message) => {
                self.error(line, message);
                return Ok(Flow::GoesOn);
            }
        };
        for (patterns, body) in arms {
            for pattern in patterns {
                let plain = pattern.trim_matches('"').trim_end_matches('*');
                let fits = match (words::leaf(plain), pattern.as_str()) {
                    (_, "*") => true,
                    (Some(leaf), _) if value == words::QDISC => self.ask(Asked::Qdisc(leaf))?,
                    (Some(leaf), _) => value == leaf,
                    (None, _) => {
                        self.error(
                            line,
                            format!("the pattern '{}' is not the name of a leaf", shortened(pattern)),
                        );
                        return Ok(Flow::GoesOn);
                    }
                };
                if fits {
                    return self.all(body);
                }
            }
        }
        Ok(Flow::GoesOn)
    }

    /// A word as a text has it.
    fn expand(&self, word: &str) -> Result<String, String> {
        words::expand(word, &self.values, self.side)
    }

    fn command(&mut self, line: usize, raw: &[String]) -> Result<Flow, Stop> {
        let is_assignment = |word: &&String| assignment(word).is_some();
        let assigned = raw.iter().take_while(is_assignment).count();
        for word in &raw[..assigned] {
            let Some((name, value)) = assignment(word) else {
                continue;
            };
            if assigned < raw.len() {
                // SILENT=1 before a command only hides its errors.
                continue;
            }
            self.assign(line, name, value)?;
        }
        let Some(command) = raw.get(assigned) else {
            return Ok(Flow::GoesOn);
        };
        let arguments = &raw[assigned + 1..];
        if command == "." || command == "source" {
            return Ok(self.source(line, arguments));
        }
        if IGNORED.contains(&command.as_str()) || command.contains("INSMOD") {
            return Ok(Flow::GoesOn);
        }
        match command.as_str() {
            "return" | "exit" => return Ok(Flow::Returns),
            "local" | "export" | "readonly" => {
                for (name, value) in arguments.iter().filter_map(|word| assignment(word)) {
                    self.assign(line, name, value)?;
                }
                return Ok(Flow::GoesOn);
            }
            "diffserv" => {
                self.diffserv(line, arguments);
                return Ok(Flow::GoesOn);
            }
            name if self.script.functions.contains_key(name) => return self.call(line, name, arguments),
            _ => {}
        }
        let expanded: Result<Vec<String>, String> =
            raw[assigned..].iter().map(|word| self.expand(word)).collect();
        let text = match expanded {
            Ok(words) => words.join(" ").split_whitespace().collect::<Vec<_>>().join(" "),
            Err(message) => {
                self.error(line, message);
                return Ok(Flow::GoesOn);
            }
        };
        let text = text.replace(words::QDISC, self.leaf());
        let words: Vec<&str> = text.split(' ').collect();
        match words.as_slice() {
            ["tc", _, "del" | "delete", ..] => {}
            ["tc", ..] => self.done.lines.push(Emitted { line, text }),
            ["ip", "link", rest @ ..] if is_about_ifb(rest) => {}
            ["ipt", ..] => self.done.ipt.push(Emitted { line, text }),
            [first, ..] => {
                let message = format!(
                    "'{}' is not carried over: a text of tc commands runs no other program. Remove the line, or run it elsewhere",
                    shortened(first)
                );
                self.error(line, message);
            }
            [] => {}
        }
        Ok(Flow::GoesOn)
    }

    /// The leaf as a word of the text: the one that this path is about, or the variable.
    fn leaf(&self) -> &'static str {
        let mut known = self.known.iter();
        known
            .find_map(|fact| match fact {
                (Asked::Qdisc(leaf), true) => Some(*leaf),
                _ => None,
            })
            .unwrap_or(words::LEAF)
    }

    fn assign(&mut self, line: usize, name: &str, value: &str) -> Result<(), Stop> {
        if let Some((_, option)) = OPTIONS.iter().find(|(known, _)| *known == name) {
            let message = format!(
                "'{name}' changes what functions.sh counts as framing, or computes: set option {option} in the section instead, and \
                 remove the line"
            );
            self.error(line, message);
        }
        match self.expand(value) {
            // A script that shapes itself puts fq_codel in place of cake, as $QDISC does here.
            Ok(value)
                if name == "QDISC"
                    && value == "fq_codel"
                    && self.known.contains(&(Asked::Qdisc("cake"), true)) =>
            {
                self.values.insert(name.to_owned(), words::LEAF.to_owned());
            }
            Ok(value) => _ = self.values.insert(name.to_owned(), value),
            Err(message) => self.error(line, message),
        }
        Ok(())
    }

    /// `. /usr/lib/sqm/defaults.sh` and its like, whose effects are known here.
    fn source(&mut self, line: usize, arguments: &[String]) -> Flow {
        const KNOWN: [&str; 3] = ["defaults.sh", "functions.sh", "qdisc.sh"];
        let is_known = arguments.first().is_some_and(|file| {
            KNOWN
                .iter()
                .any(|known| file.trim_matches('"').ends_with(&format!("/{known}")))
        });
        if !is_known {
            self.error(
                line,
                "the file that is read here is not known: copy what it does into the script",
            );
        }
        Flow::GoesOn
    }

    /// Follows a function of the script with `$1` to `$9` for its arguments.
    fn call(&mut self, line: usize, name: &str, arguments: &[String]) -> Result<Flow, Stop> {
        let script = self.script;
        let Some((_, body)) = script.functions.get(name) else {
            return Ok(Flow::GoesOn);
        };
        let given = match self.arguments(arguments) {
            Ok(given) => given,
            Err(message) => {
                self.error(line, message);
                return Ok(Flow::GoesOn);
            }
        };
        self.calls += 1;
        if self.calls > DEEPEST_CALL {
            self.error(line, format!("'{}' calls itself", shortened(name)));
            return Ok(Flow::Returns);
        }
        let mut given = given.into_iter();
        let outside: Vec<(String, Option<String>)> = (1..=9)
            .map(|number| {
                let name = number.to_string();
                let old = match given.next() {
                    Some(value) => self.values.insert(name.clone(), value),
                    None => self.values.remove(&name),
                };
                (name, old)
            })
            .collect();
        self.all(body)?;
        for (name, old) in outside {
            match old {
                Some(old) => _ = self.values.insert(name, old),
                None => _ = self.values.remove(&name),
            }
        }
        self.calls -= 1;
        Ok(Flow::GoesOn)
    }

    /// The arguments of a function. A value without quotes is as many arguments as it has words.
    fn arguments(&self, words: &[String]) -> Result<Vec<String>, String> {
        let mut arguments = Vec::new();
        for word in words {
            let value = self.expand(word)?;
            match word.contains(['"', '\'']) {
                true => arguments.push(value),
                false => arguments.extend(words::split(&value)),
            }
        }
        Ok(arguments)
    }

    /// The filters by DSCP that functions.sh has, as the built-in `simple.qos` makes them.
    fn diffserv(&mut self, line: usize, arguments: &[String]) {
        let Some(Ok(device)) = arguments.first().map(|word| self.expand(word)) else {
            return self.error(line, "'diffserv' needs a device");
        };
        let mut prio = 0;
        let mut add = |filter: String| self.done.lines.push(Emitted { line, text: filter });
        for (dscp, mark) in std::iter::once((0, 2)).chain(MARKED_DSCP) {
            for (protocol, field) in [("ip", "ip dsfield"), ("ipv6", "ip6 priority")] {
                prio += 1;
                add(format!(
                    "tc filter add dev {device} parent 1: protocol {protocol} prio {prio} u32 match {field} {:#x} 0xfc flowid 1:1{mark}",
                    dscp << 2
                ));
            }
        }
        add(format!(
            "tc filter add dev {device} parent 1: protocol arp prio {} matchall classid 1:11",
            prio + 1
        ));
        add(format!(
            "tc filter add dev {device} parent 1: protocol all prio 999 matchall classid 1:12"
        ));
    }
}

/// Variables that the helpers of functions.sh read, and the option that sets each of them.
const OPTIONS: [(&str, &str); 7] = [
    ("LLAM", "linklayer_adaptation_mechanism"),
    ("LINKLAYER", "linklayer"),
    ("OVERHEAD", "overhead"),
    ("STAB_MPU", "tcMPU"),
    ("STAB_MTU", "tcMTU"),
    ("STAB_TSIZE", "tcTSIZE"),
    ("AUTOFLOW", "autoflow"),
];

/// Commands without effect on the queues: messages, and preparations that sqm makes itself.
const IGNORED: [&str; 14] = [
    "sqm_debug",
    "sqm_log",
    "sqm_warn",
    "sqm_error",
    "sqm_trace",
    "sqm_logger",
    "do_modules",
    "verify_qdisc",
    "verify_iptables",
    "modprobe",
    "insmod",
    "true",
    ":",
    "echo",
];

fn is_test(node: &Node) -> bool {
    matches!(node, Node::Command { words, .. } if test_of(words).is_some())
}

/// The words of `[ … ]`, and false if `!` stands before it.
fn test_of(words: &[String]) -> Option<(&[String], bool)> {
    let (words, is) = match words {
        [not, rest @ ..] if not == "!" => (rest, false),
        _ => (words, true),
    };
    match words {
        [open, inner @ .., close] if open == "[" && close == "]" && !inner.is_empty() => Some((inner, is)),
        _ => None,
    }
}

/// `NAME=value`.
fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    (begins && name.chars().all(is_name)).then_some((name, value))
}

/// True for the commands of `ip link` that only make the IFB, switch it on or off, or remove it.
fn is_about_ifb(words: &[&str]) -> bool {
    const KNOWN: [&str; 11] = [
        "add", "set", "del", "delete", "dev", "name", "type", "ifb", "up", "down", "${IFB}",
    ];
    words.contains(&"${IFB}") && words.iter().all(|word| KNOWN.contains(word))
}

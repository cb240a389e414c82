//! `tc` commands that put a tree of queues together: `qdisc add`, `class add`, `filter add`.
//!
//! The device (`dev eth0`) may be named and says nothing here. Filters may match by firewall mark (`fw`), by header fields
//! (`u32`, `flower`) or always (`matchall`); a `u32` match of raw words is understood where the words are fields that a
//! queue knows of: DSCP, protocol, addresses, ports.

mod filter;

use core::fmt;

use super::words::{ParseError, ParseErrorKind, Word, Words};
use super::{Class, HfscClass, HtbClass, Qdisc, Stab};
use crate::handle::Handle;
pub use filter::FilterNode;
use filter::filter;

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// `qdisc add`
    Qdisc(QdiscNode),
    /// `class add`
    Class(ClassNode),
    /// `filter add`
    Filter(FilterNode),
}

/// A queueing discipline and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QdiscNode {
    /// The class, or classless discipline, that it hangs in; `None` is the root.
    pub parent: Option<Handle>,
    /// Its own handle, minor number 0; `None` lets the builder choose.
    pub handle: Option<Handle>,
    /// Size table.
    pub stab: Option<Stab>,
    /// Kind and parameters.
    pub qdisc: Qdisc,
}

/// A class and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassNode {
    /// The discipline or class above.
    pub parent: Handle,
    /// Its own number.
    pub id: Handle,
    /// Kind and parameters.
    pub class: Class,
}

const OBJECTS: [&str; 3] = ["qdisc", "class", "filter"];
const HANDLE: &str = "a handle, such as 1:10";

impl Command {
    /// Reads a command, with or without the leading `tc`.
    ///
    /// ```
    /// use sqm_core::spec::command::Command;
    ///
    /// let command = Command::parse("tc class add dev eth0 parent 1: classid 1:1 htb rate 1mbit").unwrap();
    /// let line = "class add parent 1: classid 1:1 htb rate 1mbit ceil 1mbit prio 0 burst 1600b cburst 1600b";
    /// assert_eq!(command.to_string(), line);
    /// ```
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut words = Words::of(text).within("tc");
        Words::take(&mut words, "tc");
        let Some(object) = words.next() else {
            let missing = "'qdisc', 'class' or 'filter'";
            return Err(words.at_end(ParseErrorKind::Incomplete { missing }));
        };
        if !OBJECTS.contains(&object.text) {
            return Err(words.unknown(object, ParseErrorKind::UnknownWord, OBJECTS.into_iter()));
        }
        let missing = "'add'";
        match words.next() {
            Some(verb) if ["add", "replace"].contains(&verb.text) => {}
            Some(verb) => {
                let known = ["add", "replace"].into_iter();
                return Err(words.unknown(verb, ParseErrorKind::UnknownWord, known));
            }
            None => return Err(words.at_end(ParseErrorKind::Incomplete { missing })),
        }
        match object.text {
            "qdisc" => qdisc(words).map(Self::Qdisc),
            "class" => class(words).map(Self::Class),
            _ => filter(words).map(Self::Filter),
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Qdisc(node) => node.fmt(f),
            Self::Class(node) => node.fmt(f),
            Self::Filter(node) => node.fmt(f),
        }
    }
}

impl fmt::Display for QdiscNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            parent,
            handle,
            stab,
            qdisc,
        } = self;
        f.write_str("qdisc add")?;
        place(f, *parent)?;
        if let Some(handle) = handle {
            write!(f, " handle {handle}")?;
        }
        if let Some(stab) = stab {
            write!(f, " stab {stab}")?;
        }
        write!(f, " {qdisc}")
    }
}

impl fmt::Display for ClassNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { parent, id, class } = self;
        write!(f, "class add parent {parent} classid {id} {class}")
    }
}

fn place(f: &mut fmt::Formatter<'_>, parent: Option<Handle>) -> fmt::Result {
    match parent {
        Some(parent) => write!(f, " parent {parent}"),
        None => f.write_str(" root"),
    }
}

fn qdisc(mut words: Words<'_>) -> Result<QdiscNode, ParseError> {
    let (mut parent, mut handle, mut stab, mut is_root) = (None, None, None, false);
    let mut seen = Seen::default();
    loop {
        let before = words.clone();
        let Some(word) = words.next() else {
            return Err(words.at_end(ParseErrorKind::UnknownQdisc));
        };
        seen.once(&words, word)?;
        match word.text {
            "dev" => _ = words.value(word, "a device, such as eth0")?,
            "root" => is_root = true,
            "parent" => parent = Some(handle_of(&mut words, word, "parent")?),
            "handle" => handle = Some(handle_of(&mut words, word, "handle")?),
            "stab" => stab = Some(Stab::read(&mut words)?),
            _ => {
                if is_root == parent.is_some() {
                    let missing = "either 'root' or 'parent'";
                    return Err(before.at_end(ParseErrorKind::Incomplete { missing }));
                }
                let qdisc = Qdisc::read(before)?;
                return Ok(QdiscNode {
                    parent,
                    handle,
                    stab,
                    qdisc,
                });
            }
        }
    }
}

fn class(mut words: Words<'_>) -> Result<ClassNode, ParseError> {
    const KEYWORDS: [&str; 5] = ["dev", "parent", "classid", "htb", "hfsc"];
    let (mut parent, mut id) = (None, None);
    let mut seen = Seen::default();
    loop {
        let Some(word) = words.next() else {
            let missing = "'htb' or 'hfsc'";
            return Err(words.at_end(ParseErrorKind::Incomplete { missing }));
        };
        seen.once(&words, word)?;
        match word.text {
            "dev" => _ = words.value(word, "a device, such as eth0")?,
            "parent" => parent = Some(handle_of(&mut words, word, "parent")?),
            "classid" => id = Some(handle_of(&mut words, word, "classid")?),
            "htb" | "hfsc" => {
                let incomplete = |missing| words.at_end(ParseErrorKind::Incomplete { missing });
                let parent = parent.ok_or_else(|| incomplete("'parent'"))?;
                let id = id.ok_or_else(|| incomplete("'classid'"))?;
                let class = match word.text {
                    "htb" => Class::Htb(HtbClass::read(words)?),
                    _ => Class::Hfsc(HfscClass::read(words)?),
                };
                return Ok(ClassNode { parent, id, class });
            }
            _ => return Err(words.unknown(word, ParseErrorKind::UnknownWord, KEYWORDS.into_iter())),
        }
    }
}

/// The words of a command that were read already, so that none is accepted twice.
#[derive(Default)]
struct Seen(u16);

impl Seen {
    /// Words that give the place of a qdisc, a class or a filter.
    const WORDS: [&'static str; 11] = [
        "dev",
        "root",
        "parent",
        "handle",
        "classid",
        "stab",
        "protocol",
        "prio",
        "pref",
        "preference",
        "flowid",
    ];

    /// Notes a word. An error if the word was there before: `tc` refuses most of these, and takes the last of the others.
    fn once(&mut self, words: &Words<'_>, word: Word<'_>) -> Result<(), ParseError> {
        let Some(at) = Self::WORDS.iter().position(|known| *known == word.text) else {
            return Ok(());
        };
        let bit = 1 << at;
        if self.0 & bit != 0 {
            let reason = "the word stands twice";
            return Err(words.error(word, ParseErrorKind::Contradiction { reason }));
        }
        self.0 |= bit;
        Ok(())
    }
}

fn handle_of(words: &mut Words<'_>, keyword: Word<'_>, name: &'static str) -> Result<Handle, ParseError> {
    let value = words.value(keyword, HANDLE)?;
    Handle::parse(value.text).ok_or_else(|| bad(words, value, name, HANDLE))
}

fn bad(words: &Words<'_>, value: Word<'_>, keyword: &'static str, expected: &'static str) -> ParseError {
    words.error(value, ParseErrorKind::BadValue { keyword, expected })
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn what_is_printed_is_read_back() {
        for (line, printed) in [
            (
                "tc qdisc add dev eth0 root handle 1: stab overhead 40 linklayer atm htb default 10",
                "qdisc add root handle 1: stab mtu 2047 tsize 512 mpu 0 overhead 40 linklayer atm htb default 10",
            ),
            (
                "qdisc replace parent 1:10 pfifo limit 5",
                "qdisc add parent 1:10 pfifo limit 5",
            ),
            (
                "class add dev eth0 parent 1:1 classid 1:a hfsc sc rate 1mbit",
                "class add parent 1:1 classid 1:a hfsc rt m2 1mbit ls m2 1mbit",
            ),
            (
                "filter add dev eth0 parent 1:0 protocol ip prio 1 handle 0x1/0xff fw classid 1:11",
                "filter add parent 1: protocol ip prio 1 handle 0x1/0xff fw classid 1:11",
            ),
            (
                "filter add root protocol all prio 999 u32 match u32 0 0 flowid 1:12",
                "filter add root protocol all prio 999 matchall classid 1:12",
            ),
            (
                "filter add parent 1: protocol ipv6 u32 match u32 0xb800000 0xfc00000 at 0 flowid 1:11",
                "filter add parent 1: protocol ipv6 u32 match ip6 priority 0xb8 0xfc flowid 1:11",
            ),
            (
                "filter add parent 1: protocol ip u32 match u8 6 0xff at 9 match u16 0 fc00 at 22 flowid 1:11",
                "filter add parent 1: protocol ip u32 match ip protocol 6 0xff match ip dport 0 0xfc00 flowid 1:11",
            ),
            (
                "filter add parent 1: protocol ip flower ip_proto tcp dst_ip 10.1.2.3/8 src_ip 0.0.0.0/0 dst_port 80 classid 1:11",
                "filter add parent 1: protocol ip u32 match ip protocol 6 0xff match u32 0xa000000 0xff000000 at 16 match ip dport 80 0xffff flowid 1:11",
            ),
            (
                "filter add parent 1: protocol ipv6 flower src_ip 2001:db8::1 classid 1:11",
                "filter add parent 1: protocol ipv6 u32 match u32 0x20010db8 0xffffffff at 8 match u32 0x0 0xffffffff at 12 match u32 0x0 0xffffffff at 16 match u32 0x1 0xffffffff at 20 flowid 1:11",
            ),
        ] {
            let command = Command::parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_eq!(command.to_string(), printed);
            assert_eq!(Command::parse(printed), Ok(command), "{printed}");
        }
    }

    #[test]
    fn errors_name_the_word() {
        for (line, message) in [
            ("", "tc needs 'qdisc', 'class' or 'filter'"),
            ("qdisc delete root", "unknown tc keyword 'delete'"),
            ("qdisc add pfifo", "tc needs either 'root' or 'parent'"),
            ("qdisc add parent 1: parent 2: pfifo", "tc: the word stands twice"),
            (
                "filter add dev a dev b parent 1: matchall classid 1:1",
                "tc: the word stands twice",
            ),
            ("qdisc add root", "the name of a queueing discipline is missing"),
            ("class add parent 1: htb rate 1mbit", "tc needs 'classid'"),
            (
                "class add parent 1 classid 1:1 htb rate 1mbit",
                "tc keyword 'parent': '1' is not a handle, such as 1:10",
            ),
            (
                "filter add parent 1: fw classid 1:1",
                "tc needs a mark before 'fw': 'handle 0x1/0xff'",
            ),
            (
                "filter add parent 1: protocol ip u32 match u32 1 1 at 4 flowid 1:1",
                "tc: these bytes are not a header field that filters here support",
            ),
            (
                "filter add parent 1: protocol ip u32 match ip6 dport 80 0xffff flowid 1:1",
                "tc: the match is for another protocol than 'protocol'",
            ),
            (
                "filter add parent 1: matchall",
                "tc needs a class: 'classid 1:10'",
            ),
            (
                "filter add parent 1: flower dst_port 80 classid 1:1",
                "tc: a port needs 'ip_proto' before it",
            ),
        ] {
            assert_eq!(Command::parse(line).unwrap_err().to_string(), message, "{line}");
        }
    }
}

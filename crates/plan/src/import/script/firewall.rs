//! The iptables rules of `simple.qos`, which a text has as `firewall mark` and `firewall erase-dscp`, and the filters beside them.

use std::collections::BTreeSet;

use super::run::Emitted;

/// The lines of a text for the firewall rules of one case.
#[derive(Default)]
pub(super) struct Rules {
    /// Lines of the text.
    pub(super) lines: Vec<&'static str>,
    /// The differences, each with its line.
    pub(super) differences: Vec<(usize, String)>,
}

/// The line of a text for the marks of leaving packets.
pub(super) const MARK: &str = "firewall mark";

type Errors = Vec<(usize, String)>;

/// The marks that `simple.qos` sets by DSCP, as iptables names the DSCP, and its mark for all others.
const MARKS: [(&str, &str); 5] = [
    ("-m dscp --dscp-class CS1", "0x3"),
    ("-m dscp --dscp-class CS6", "0x1"),
    ("-m dscp --dscp-class EF", "0x1"),
    ("-m dscp --dscp-class AF42", "0x1"),
    ("-m tos --tos Minimize-Delay", "0x1"),
];

const CHAIN: &str = "QOS_MARK_${IFACE}";

/// The kind of an iptables rule that is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Sets a mark.
    Marks,
    /// Sends leaving packets to the chain of marks.
    Leaving,
    /// Erases the DSCP of arriving packets.
    Erases,
    /// No effect on the queues.
    Nothing(&'static str),
}

fn rule(text: &str) -> Option<Rule> {
    let rest = text.strip_prefix("ipt -t mangle ")?;
    let in_chain = rest.strip_prefix("-A ").and_then(|rest| rest.strip_prefix(CHAIN));
    if let Some(rest) = in_chain {
        let rest = rest.trim_start();
        let is = |dscp: &str, mark: &str| rest == format!("{dscp} -j MARK --set-mark {mark}/${{MARK_MASK}}");
        let is_default = rest == "-j MARK --set-mark 0x2/${MARK_MASK}";
        let is_known = is_default || MARKS.iter().any(|(dscp, mark)| is(dscp, mark));
        return is_known.then_some(Rule::Marks);
    }
    let to_chain = |packets: &str| rest == format!("{packets} -m mark --mark 0x00/${{MARK_MASK}} -g {CHAIN}");
    if rest == format!("-N {CHAIN}") {
        Some(Rule::Nothing(""))
    } else if to_chain("-A POSTROUTING -o ${IFACE}") {
        Some(Rule::Leaving)
    } else if rest == "-I PREROUTING -i ${IFACE} -m dscp ! --dscp 0 -j DSCP --set-dscp-class be" {
        Some(Rule::Erases)
    } else if to_chain("-A PREROUTING -i ${IFACE}") {
        Some(Rule::Nothing(
            "left out: arriving packets pass the queues before they get a mark",
        ))
    } else if rest.starts_with("-I PREROUTING -i vtun+") {
        Some(Rule::Nothing(
            "left out: tunnels named vtun… get no mark of their own",
        ))
    } else if rest == "-A OUTPUT -p udp -m multiport --ports 123,53 -j DSCP --set-dscp-class AF42" {
        Some(Rule::Nothing(
            "the router's own questions for names and time get a mark, in place of another DSCP",
        ))
    } else {
        None
    }
}

fn read(ipt: &[Emitted]) -> Result<Vec<(usize, Rule)>, Errors> {
    let (mut rules, mut errors) = (Vec::new(), Vec::new());
    for Emitted { line, text } in ipt {
        match rule(text) {
            Some(rule) => rules.push((*line, rule)),
            None => errors.push((
                *line,
                "this rule is not one of simple.qos, whose marks are all that a text can ask for: remove it, or set it elsewhere".to_owned(),
            )),
        }
    }
    if errors.is_empty() { Ok(rules) } else { Err(errors) }
}

/// The rules of one case.
pub(super) fn rules(ipt: &[Emitted]) -> Result<Rules, Errors> {
    let rules = read(ipt)?;
    let marks = ipt.iter().map(|command| command.text.as_str());
    let marks = marks.filter(|text| rule(text) == Some(Rule::Marks));
    let marks = marks.collect::<BTreeSet<&str>>().len();
    let has = |wanted| rules.iter().any(|(_, rule)| *rule == wanted);
    let mut answer = Rules::default();
    if marks > 0 && has(Rule::Leaving) {
        if marks != MARKS.len() + 1 {
            let line = rules.first().map_or(1, |(line, _)| *line);
            let message =
                "these marks are not all of those of simple.qos, which are all that a text can ask for"
                    .to_owned();
            return Err(vec![(line, message)]);
        }
        answer.lines.push(MARK);
    }
    if has(Rule::Erases) {
        answer.lines.push("firewall erase-dscp");
    }
    for (line, rule) in rules {
        if let Rule::Nothing(why) = rule
            && !why.is_empty()
        {
            answer.differences.push((line, why.to_owned()));
        }
    }
    Ok(answer)
}

/// A command of the script as a line of the text.
pub(super) enum Filter {
    As(String),
    Changed(String, &'static str),
    LeftOut(&'static str),
}

/// The filters of `simple.qos` that compare nothing, or the wrong bytes, and those that its marks replace.
pub(super) fn filter(text: &str, has_marks: bool) -> Filter {
    if !text.starts_with("tc filter ") {
        return Filter::As(text.to_owned());
    }
    let text = text.replace("match ip protocol 0 0x00", "match u32 0 0");
    if has_marks && text.contains("u32 match ip protocol 1 0xff") && text.ends_with("flowid 1:13") {
        return Filter::LeftOut(
            "left out: 'firewall mark' gives ICMP and ICMPv6 the mark of the background class",
        );
    }
    if let Some((before, after)) = text.split_once("protocol arp ")
        && let Some((handle, class)) = after.split_once(" fw ")
        && let Some((prio, _)) = handle.split_once(" handle ")
    {
        let class = class.replace("flowid", "classid");
        return Filter::Changed(
            format!("{before}protocol arp {prio} matchall {class}"),
            "ARP packets never have a firewall mark: the filter takes them without one",
        );
    }
    Filter::As(text)
}

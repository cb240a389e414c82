//! The words of a shell script as words of a text: variables of sqm-scripts, helpers of its functions.sh, and arithmetic.

use std::collections::BTreeMap;

use sqm_core::nearest::nearest;
use sqm_core::units::shortened;

use crate::settings::Leaf;
use crate::side::Side;

/// Values that only tests and helpers may use. The first character is in no script.
pub(super) const QDISC: &str = "\u{2}QDISC";
pub(super) const ZERO_DSCP: &str = "\u{2}ZERO_DSCP_INGRESS";
pub(super) const IGNORE_DSCP: &str = "\u{2}IGNORE_DSCP_INGRESS";
/// The leaf of the section, where the script means fq_codel in place of cake.
pub(super) const LEAF: &str = "${QDISC}";
/// The number of bytes after `quantum` of HTB, for which a text has a variable with both words.
const HTB_QUANTUM: &str = "\u{2}get_htb_quantum";

/// The variables of a setup script as it begins.
pub(super) fn initial(side: Side) -> BTreeMap<String, String> {
    let cake = "diffserv3 ${NAT}";
    let options = match side {
        Side::Egress => ["EQDISC_OPTS", "IQDISC_OPTS"],
        Side::Ingress => ["IQDISC_OPTS", "EQDISC_OPTS"],
    };
    let marked = |name: &str| (name.to_owned(), format!("\u{2}{name}"));
    let mut values: BTreeMap<String, String> = [
        ("IFACE", "${IFACE}"),
        ("DEV", "${IFB}"),
        ("UPLINK", "${UPLINK}"),
        ("DOWNLINK", "${DOWNLINK}"),
        ("TC", "tc"),
        ("TC_BINARY", "tc"),
        ("IP", "ip"),
        ("IP_BINARY", "ip"),
        ("IPT_MASK", "${MARK_MASK}"),
        ("OVERHEAD", "${OVERHEAD}"),
        ("STAB_MPU", "${MPU}"),
        ("EGRESS_CAKE_OPTS", cake),
        ("INGRESS_CAKE_OPTS", cake),
        (options[0], "${OPTIONS}"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    values.extend(
        [
            "QDISC",
            "ZERO_DSCP_INGRESS",
            "IGNORE_DSCP_INGRESS",
            "ELIMIT",
            "ILIMIT",
            "ETARGET",
            "ITARGET",
            "EECN",
            "IECN",
            "ESHAPER_BURST_DUR_US",
            "ISHAPER_BURST_DUR_US",
            "ESHAPER_QUANTUM_DUR_US",
            "ISHAPER_QUANTUM_DUR_US",
        ]
        .map(marked),
    );
    values.extend([marked(options[1])]);
    values
}

/// The leaf of this name.
pub(super) fn leaf(name: &str) -> Option<&'static str> {
    Leaf::ALL.into_iter().map(Leaf::name).find(|leaf| *leaf == name)
}

/// True for a text without variables.
pub(super) fn is_plain(text: &str) -> bool {
    !text.contains(['$', '\u{2}'])
}

type Values = BTreeMap<String, String>;

/// Longest value, bytes, a choice: a script may double it with each line.
const LONGEST: usize = 4096;
/// Deepest nesting of `$(…)` and `${…}`, a choice that keeps the stack small.
const DEEPEST: usize = 40;

/// A word of the script as words of a text.
pub(super) fn expand(word: &str, values: &Values, side: Side) -> Result<String, String> {
    if nesting(word) > DEEPEST {
        return Err(format!(
            "'{}': more than {DEEPEST} parentheses within each other",
            shortened(word)
        ));
    }
    let mut out = String::new();
    let mut rest = word;
    let mut is_quoted = false;
    while let Some(c) = rest.chars().next() {
        if out.len() > LONGEST {
            return Err(format!(
                "'{}': a value has more than {LONGEST} bytes",
                shortened(word)
            ));
        }
        match c {
            '\'' if !is_quoted => {
                let (inner, after) = rest[1..].split_once('\'').ok_or("' is not closed")?;
                out.push_str(inner);
                rest = after;
            }
            '"' => {
                is_quoted = !is_quoted;
                rest = &rest[1..];
            }
            '`' => {
                let (inner, after) = rest[1..].split_once('`').ok_or("` is not closed")?;
                out.push_str(&helper(inner, values, side)?);
                rest = after;
            }
            '$' => {
                let (value, after) = dollar(&rest[1..], values, side)?;
                out.push_str(&value);
                rest = after;
            }
            '\\' => {
                let escaped = rest[1..].chars().next();
                out.extend(escaped);
                rest = &rest[1 + escaped.map_or(0, char::len_utf8)..];
            }
            c => {
                out.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    // A text has one variable for both words.
    Ok(out.replace(&format!("quantum {HTB_QUANTUM}"), "${HTB_QUANTUM}"))
}

/// The deepest nesting of parentheses and braces.
fn nesting(word: &str) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    for byte in word.bytes() {
        match byte {
            b'(' | b'{' => depth += 1,
            b')' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// The error for a value that is left over in a command.
pub(super) fn left_over(text: &str) -> Option<String> {
    let (_, after) = text.split_once('\u{2}')?;
    let name: String = after
        .chars()
        .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
        .collect();
    Some(format!(
        "${name} is used without the helper of functions.sh that makes tc's words of it, such as get_limit, get_target or get_ecn"
    ))
}

/// The value of what follows a `$`, and the rest of the word.
fn dollar<'a>(after: &'a str, values: &Values, side: Side) -> Result<(String, &'a str), String> {
    if let Some(rest) = after.strip_prefix("((") {
        let (inner, rest) = rest.split_once("))").ok_or("'$((' is not closed")?;
        return Ok((format!("$(({}))", arithmetic(inner, values, side)?), rest));
    }
    if after.starts_with('(') {
        let end = closing(after, '(', ')').ok_or("'$(' is not closed")?;
        return Ok((helper(&after[1..end], values, side)?, &after[end + 1..]));
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (name, rest) = match after.starts_with('{') {
        true => {
            let end = closing(after, '{', '}').ok_or("'${' is not closed")?;
            (&after[1..end], &after[end + 1..])
        }
        false => after.split_at(after.find(|c| !is_name(c)).unwrap_or(after.len())),
    };
    let (name, default) = match name.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (name, None),
    };
    match (values.get(name), default) {
        (Some(value), _) if !value.is_empty() => Ok((value.clone(), rest)),
        (_, Some(default)) => Ok((expand(default, values, side)?, rest)),
        (Some(value), None) => Ok((value.clone(), rest)),
        (None, None) => {
            let known = values.keys().map(String::as_str);
            let meant =
                nearest(name, known).map_or_else(String::new, |meant| format!("; did you mean '${meant}'?"));
            Err(format!(
                "${} is not set in the script, and a text has no such variable{meant}",
                shortened(name)
            ))
        }
    }
}

/// The place of the mark that closes the one with which the text begins.
fn closing(text: &str, open: char, close: char) -> Option<usize> {
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        if c == open {
            depth += 1;
        } else if c == close {
            depth -= 1;
            if depth == 0 {
                return Some(at);
            }
        }
    }
    None
}

/// An expression with the names of a text.
fn arithmetic(text: &str, values: &Values, side: Side) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    while let Some(c) = rest.chars().next() {
        if c == '$' {
            let (value, after) = dollar(&rest[1..], values, side)?;
            out.push_str(&operand(&value)?);
            rest = after;
        } else if c.is_ascii_alphabetic() {
            let (name, after) = rest.split_at(rest.find(|c| !is_name(c)).unwrap_or(rest.len()));
            let (value, _) = dollar(name, values, side)?;
            out.push_str(&operand(&value)?);
            rest = after;
        } else if c.is_ascii_digit() || c.is_whitespace() || "+-*/()".contains(c) {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            return Err(format!(
                "'{c}' is not an operator of a text: it has + - * / and parentheses"
            ));
        }
    }
    Ok(out.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// A value as an operand of an expression.
fn operand(value: &str) -> Result<String, String> {
    if let Some(inner) = value.strip_prefix("$((").and_then(|rest| rest.strip_suffix("))")) {
        return Ok(format!("({inner})"));
    }
    let name = value.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    if let Some(name) = name.filter(|name| ["UPLINK", "DOWNLINK", "MTU", "OVERHEAD", "MPU"].contains(name)) {
        return Ok(name.to_owned());
    }
    match !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Ok(value.to_owned()),
        false => Err("an expression of a text takes numbers, rates and the MTU".to_owned()),
    }
}

/// The words that a helper of functions.sh prints.
fn helper(text: &str, values: &Values, side: Side) -> Result<String, String> {
    let mut words = split(text);
    if words.is_empty() {
        return Err("an empty command".to_owned());
    }
    let name = words.remove(0);
    let arguments = words
        .iter()
        .map(|word| expand(word, values, side))
        .collect::<Result<Vec<String>, String>>()?;
    let (letter, rate) = match side {
        Side::Egress => ('E', "${UPLINK}"),
        Side::Ingress => ('I', "${DOWNLINK}"),
    };
    let argument = |at: usize| arguments.get(at).map_or("", String::as_str);
    let own = |at: usize, option: &str| argument(at) == format!("\u{2}{letter}{option}");
    let other = || {
        Err(format!(
            "'{}' is used for something else than the rate and the options of this direction ({})",
            shortened(&name),
            shortened(text.trim())
        ))
    };
    let word = |is: bool, value: &str| if is { Ok(value.to_owned()) } else { other() };
    match name.as_str() {
        "get_stab_string" => Ok("${STAB}".to_owned()),
        "get_cake_lla_string" => Ok("${CAKE_FRAMING}".to_owned()),
        "get_htb_adsll_string" => Ok("${HTB_FRAMING}".to_owned()),
        "get_mtu" => word(argument(0) == "${IFACE}", "${MTU}"),
        "get_limit" if is_plain(argument(0)) => Ok(format!("limit {}", argument(0))),
        "get_limit" => word(own(0, "LIMIT"), "${LIMIT}"),
        "get_target" if is_plain(argument(0)) && !argument(0).is_empty() => {
            Ok(format!("target {}", argument(0)))
        }
        "get_target" => word(own(0, "TARGET") && argument(1) == rate, "${TARGET}"),
        "get_ecn" if is_plain(argument(0)) => Ok(argument(0).to_ascii_lowercase()),
        "get_ecn" => word(own(0, "ECN"), "${ECN}"),
        "get_quantum" => match operand(argument(0)) {
            Ok(bytes) => Ok(format!("$QUANTUM({bytes})")),
            Err(_) => other(),
        },
        "get_flows" if argument(0) == rate => Ok("${FLOWS}".to_owned()),
        "get_flows" => match operand(argument(0)) {
            Ok(kbit) => {
                let inner = kbit.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
                Ok(format!("$FLOWS({})", inner.unwrap_or(&kbit)))
            }
            Err(_) => other(),
        },
        "get_htb_quantum" => word(
            argument(1) == rate && own(2, "SHAPER_QUANTUM_DUR_US"),
            HTB_QUANTUM,
        ),
        "get_htb_burst" => word(
            argument(1) == rate && own(2, "SHAPER_BURST_DUR_US"),
            "${HTB_BURST}",
        ),
        "get_burst" => word(
            argument(0) == "${MTU}" && argument(1) == rate && own(2, "SHAPER_BURST_DUR_US"),
            "${BURST}",
        ),
        "expr" => {
            let parts: Result<Vec<String>, String> = arguments
                .iter()
                .map(|part| match ["+", "-", "*", "/"].contains(&part.as_str()) {
                    true => Ok(part.clone()),
                    false => operand(part),
                })
                .collect();
            Ok(format!("$(({}))", parts?.join(" ")))
        }
        _ => Err(format!(
            "'{}' is not a helper of functions.sh that a text can stand for: write its result into the script",
            shortened(&name)
        )),
    }
}

/// The words of a command between backquotes or in `$(…)`. A blank within parentheses divides no words.
pub(super) fn split(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut depth) = (Vec::new(), String::new(), None, 0usize);
    for c in text.chars() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => quote = Some(c),
            ('(' | '{', None) => {
                depth += 1;
                word.push(c);
                continue;
            }
            (')' | '}', None) => {
                depth = depth.saturating_sub(1);
                word.push(c);
                continue;
            }
            (c, None) if c.is_whitespace() && depth == 0 => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                continue;
            }
            _ => {}
        }
        word.push(c);
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

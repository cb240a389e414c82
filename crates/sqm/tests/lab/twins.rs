//! Sets up two devices alike, one by sqm and one by the real `tc`, and compares them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use sqm_lab::{Clock, Home, Line};

/// Boots a home network.
pub(crate) fn boot() -> Home {
    let line = Line::named("cable24").expect("a known line");
    let program = Path::new(env!("CARGO_BIN_EXE_sqm-lab"));
    Home::boot(Clock::Virtual, program, &line).unwrap_or_else(|e| panic!("the lab must start: {e}"))
}

/// A configuration section for a device.
pub(crate) fn section(device: &str, configuration: &str) -> String {
    let mut parts = configuration.split(';');
    let mut next = || parts.next().expect("rates and a setup script");
    let (download, upload, script) = (next(), next(), next());
    let mut text = format!(
        "config queue\n\toption enabled '1'\n\toption interface '{device}'\n\toption download '{download}'\n\
         \toption upload '{upload}'\n\toption script '{script}.qos'\n"
    );
    for option in parts {
        let (name, value) = option.split_once(' ').expect("a name and a value");
        writeln!(text, "\toption {name} '{value}'").expect("a String takes everything");
    }
    text
}

/// The output of `tc` for each device: its qdiscs, classes and filters.
pub(crate) fn seen(home: &Home, devices: &[String]) -> BTreeMap<String, Vec<String>> {
    // `tc -batch` does not separate the answers to its commands. A unique qdisc on a device of its own marks the
    // boundaries.
    const MARK: &str = "qdisc pfifo beef:";
    let mut look = String::new();
    for device in devices {
        look += "qdisc show dev mark\n";
        for question in ["qdisc show dev", "class show dev", "filter show dev"] {
            look += &format!("{question} {device}\n");
        }
        look += &format!("filter show dev {device} parent ffff:\n");
    }
    home.write("/tmp/look", look.as_bytes()).expect("a file");
    // A command for filters fails if the device has no such parent. That is fine here: the answer is empty.
    let text = home
        .script(
            "ip -n router link show mark >/dev/null 2>&1 || {
                 ip -n router link add mark type dummy
                 tc -n router qdisc add dev mark root handle beef: pfifo
             }
             tc -n router -d -force -batch /tmp/look 2>/dev/null || true",
        )
        .expect("tc looks");
    let answers: Vec<Vec<String>> = text
        .split(MARK)
        .skip(1)
        .map(|block| block.lines().skip(1).map(plain).collect())
        .collect();
    assert_eq!(answers.len(), devices.len(), "{text}");
    devices.iter().cloned().zip(answers).collect()
}

/// The line without the parts in which two devices differ even if they are set up alike.
fn plain(line: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    let mut skip = 0;
    for word in line.split_whitespace() {
        match word {
            _ if skip > 0 => skip -= 1,
            "refcnt" | "index" | "ref" | "bind" => skip = 1,
            _ => words.push(word),
        }
    }
    words.join(" ")
}

/// True if two lines are equal. `tc` stores the time of a burst in whole microseconds, and computes the bytes back from them: together
/// that may cost as many bytes as pass in two of them at the line's rate or ceiling.
fn same(a: &str, b: &str) -> bool {
    let (a, b): (Vec<_>, Vec<_>) = (a.split(' ').collect(), b.split(' ').collect());
    let size = |word: &str| -> Option<f64> {
        let word = word.split('/').next()?;
        let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match &word[digits.len()..] {
            "b" => 1.0,
            "Kb" => 1024.0,
            "Mb" => 1_048_576.0,
            _ => return None,
        };
        Some(digits.parse::<f64>().ok()? * unit)
    };
    let rates = a.windows(2).filter(|pair| matches!(pair[0], "rate" | "ceil"));
    let rates = rates.filter_map(|pair| {
        let digits = pair[1].trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let factor = match &pair[1][digits.len()..] {
            "bit" => 1.0,
            "Kbit" => 1e3,
            "Mbit" => 1e6,
            "Gbit" => 1e9,
            _ => return None,
        };
        Some(digits.parse::<f64>().ok()? * factor)
    });
    let rounded_bytes = 2.0 * rates.fold(0.0, f64::max) / 8e6;
    a.len() == b.len()
        && a.iter().zip(&b).enumerate().all(|(n, (x, y))| {
            x == y
                || (n > 0 && matches!(a[n - 1], "burst" | "cburst"))
                    && size(x)
                        .zip(size(y))
                        .is_some_and(|(x, y)| (x - y).abs() <= 2.0 + rounded_bytes.max(x.max(y) / 20.0))
        })
}

/// The difference as text.
pub(crate) fn difference(ours: &[String], theirs: &[String]) -> Option<String> {
    let equal = ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| same(a, b));
    (!equal).then(|| format!("sqm:\n  {}\ntc:\n  {}", ours.join("\n  "), theirs.join("\n  ")))
}

/// Writes the script `/tmp/look.sh` into the guest. It prints the whole state of the device `d0` in the current
/// namespace.
pub(crate) fn look_at_d0(home: &Home) {
    let look = LOOK.replace("$PLAIN", PLAIN);
    home.write("/tmp/look.sh", look.as_bytes()).expect("a file");
    home.write("/tmp/look", QUESTIONS.as_bytes()).expect("a file");
}

/// A `sed` script that removes counters and numbers chosen by the kernel from the output of `tc` and `ip`.
pub(crate) const PLAIN: &str =
    "s/refcnt [0-9]*//; s/index [0-9]* ref [0-9]* bind [0-9]*//; s/^[0-9]*: //; s/ qlen.*//";

/// Prints the state of the device, of all IFBs, and of the firewall.
const LOOK: &str = "
    set +e; { tc -d -force -batch /tmp/look 2>/dev/null; ip -o link show type ifb; nft list ruleset; } | sed \"$PLAIN\"
";
const QUESTIONS: &str =
    "qdisc show dev d0\nclass show dev d0\nfilter show dev d0\nfilter show dev d0 parent ffff:
qdisc show dev ifb4d0\nclass show dev ifb4d0\nfilter show dev ifb4d0\n";

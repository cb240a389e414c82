//! Compares an outcome with the recorded one.

use std::fmt;

use serde_json::{Map, Value};

use super::Outcome;
use super::file::{Expect, Sent};
use super::run::{Deed, What};

/// A difference from the recorded outcome.
pub struct Difference {
    /// The list or counter.
    place: String,
    expected: String,
    happened: String,
    /// The first difference in a list. One wrong packet usually makes all later ones wrong.
    pub is_first: bool,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            place,
            expected,
            happened,
            ..
        } = self;
        write!(f, "{place}: expected {expected}; our queue: {happened}")
    }
}

pub(super) fn differences(expect: &Expect, outcome: &Outcome) -> Vec<Difference> {
    let expected = expect.sent.iter().map(Line::of_sent);
    let with_ds_field = matches!(expect.sent.first(), Some(Sent::WithDsField(..)));
    let sent = outcome.deeds.iter().filter(|deed| deed.what == What::Sent);
    let mut all = in_list(
        "sent",
        expected,
        sent.map(|deed| Line::of_deed(deed, with_ds_field)),
    );

    let expected = expect.dropped.iter().map(|(id, t_ns, reason)| Line {
        id: *id,
        t_ns: *t_ns,
        rest: reason.clone(),
    });
    let dropped = outcome.deeds.iter().filter(|deed| deed.what != What::Sent);
    all.extend(in_list(
        "dropped",
        expected,
        dropped.map(|deed| Line::of_deed(deed, false)),
    ));

    in_counters("final", &expect.counters, &outcome.counters, &mut all);
    all.extend(outcome.complaints.iter().map(|complaint| Difference {
        place: "contract".to_owned(),
        expected: "it to be kept".to_owned(),
        happened: complaint.clone(),
        is_first: true,
    }));
    all
}

/// One packet in a list.
#[derive(PartialEq, Eq)]
struct Line {
    id: u64,
    t_ns: u64,
    rest: String,
}

impl Line {
    fn of_sent(sent: &Sent) -> Self {
        match *sent {
            Sent::Plain(id, t_ns, ce) => Self {
                id,
                t_ns,
                rest: format!("CE {ce}"),
            },
            Sent::WithDsField(id, t_ns, ce, ds_field) => Self {
                id,
                t_ns,
                rest: format!("CE {ce}, DS field {ds_field}"),
            },
        }
    }

    fn of_deed(deed: &Deed, with_ds_field: bool) -> Self {
        let rest = match deed.what {
            What::Sent if with_ds_field => format!("CE {}, DS field {}", deed.ce(), deed.ds_field),
            What::Sent => format!("CE {}", deed.ce()),
            What::Dropped(reason) => reason.name().to_owned(),
        };
        Self {
            id: deed.id,
            t_ns: deed.t_ns,
            rest,
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, t_ns, rest } = self;
        write!(f, "id {id} at {t_ns} ns, {rest}")
    }
}

fn in_list(
    name: &str,
    mut expected: impl Iterator<Item = Line>,
    mut happened: impl Iterator<Item = Line>,
) -> Vec<Difference> {
    let mut differences = Vec::new();
    for index in 0.. {
        let (expected, happened) = (expected.next(), happened.next());
        if expected.is_none() && happened.is_none() {
            break;
        }
        if expected != happened {
            let text =
                |line: Option<Line>| line.map_or_else(|| "nothing more".to_owned(), |line| line.to_string());
            differences.push(Difference {
                place: format!("{name}[{index}]"),
                expected: text(expected),
                happened: text(happened),
                is_first: differences.is_empty(),
            });
        }
    }
    differences
}

/// Compares every expected field. Further counters of ours are not compared.
fn in_counters(
    place: &str,
    expected: &Map<String, Value>,
    happened: &Map<String, Value>,
    all: &mut Vec<Difference>,
) {
    for (name, expected) in expected {
        let place = format!("{place}.{name}");
        in_values(&place, expected, happened.get(name).unwrap_or(&Value::Null), all);
    }
}

fn in_values(place: &str, expected: &Value, happened: &Value, all: &mut Vec<Difference>) {
    match (expected, happened) {
        (Value::Object(expected), Value::Object(happened)) => in_counters(place, expected, happened, all),
        (Value::Array(expected), Value::Array(happened)) => {
            for index in 0..expected.len().max(happened.len()) {
                let at = |list: &[Value]| list.get(index).cloned().unwrap_or(Value::Null);
                in_values(&format!("{place}[{index}]"), &at(expected), &at(happened), all);
            }
        }
        _ if expected == happened => {}
        _ => all.push(Difference {
            place: place.to_owned(),
            expected: expected.to_string(),
            happened: match happened {
                Value::Null => "no such counter".to_owned(),
                happened => happened.to_string(),
            },
            is_first: true,
        }),
    }
}

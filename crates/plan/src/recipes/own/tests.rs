//! Texts in, plans out: the built-in setup scripts as texts, damaged texts, and texts that a machine makes.

mod damaged;
mod equal;
mod printed;

use super::variables;
use crate::configuration::{Configuration, Loaded};
use crate::device::Device;
use crate::diagnostic::Diagnostic;
use crate::own::OwnFile;
use crate::settings::Leaf;
use crate::{RateOverrides, plan::Plan};

/// A section for a setup script with further options, each `name value`. A later one replaces an earlier one.
fn section(script: &str, options: &[&str]) -> String {
    let mut given = vec![
        ("enabled", "1"),
        ("interface", "eth0"),
        ("download", "85000"),
        ("upload", "10000"),
        ("script", script),
    ];
    for option in options {
        let (name, value) = option.split_once(' ').unwrap();
        given.retain(|(known, _)| *known != name);
        given.push((name, value));
    }
    let lines: String = given
        .iter()
        .map(|(name, value)| format!("\toption {name} '{value}'\n"))
        .collect();
    format!("config queue\n{lines}")
}

/// Plans a section whose script may be `mine.tc`, which holds `text`.
fn load(section: &str, text: &str, device: &dyn Fn(&str) -> Device) -> Result<Loaded, Vec<Diagnostic>> {
    let source = |name: &str| match name {
        "mine.tc" => Ok(OwnFile {
            path: "/etc/sqm/mine.tc".to_owned(),
            bytes: text.as_bytes().to_vec(),
        }),
        name => Err(format!("there is no {name}")),
    };
    Configuration::parse_with(section.as_bytes(), "sqm", &source)?.plan(device, &RateOverrides::new())
}

fn planned(text: &str, options: &[&str]) -> Result<Plan, String> {
    load(&section("mine.tc", options), text, &Device::absent)
        .map(|mut loaded| loaded.plans.remove(0))
        .map_err(|errors| errors.iter().map(|error| format!("{error}\n")).collect())
}

#[test]
fn the_reference_page_has_every_variable_and_its_example_is_a_good_text() {
    let page = include_str!("../../../../../docs/reference/own-scripts.md");
    for (name, about) in variables::VARIABLES {
        let row = format!("| `${name}` | {about} |");
        assert!(page.contains(&row), "docs/reference/own-scripts.md lacks: {row}");
    }
    let example = page
        .split("```text\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .unwrap();
    let plan = planned(example, &["linklayer atm", "overhead 40", "itarget 5ms"]).unwrap();
    assert_eq!(plan.egress.unwrap().filters.len(), 3);
}

#[test]
fn a_heading_may_ask_for_each_leaf() {
    assert_eq!(crate::own::text::LEAVES, Leaf::ALL.map(Leaf::name));
}

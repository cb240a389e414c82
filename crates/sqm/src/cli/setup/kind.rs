//! The kind of line, in the words that people and providers use. Pure.

use sqm_core::nearest::nearest;
use sqm_plan::link::{PRESETS, Preset};

/// The names of all link presets, for a shell to complete.
pub(in crate::cli) fn link_names() -> Vec<&'static str> {
    PRESETS.iter().map(|preset| preset.name).collect()
}

/// Words for a kind of line, with the preset that they stand for.
const WORDS: [(&str, &[&str]); 9] = [
    (
        "vdsl2",
        &[
            "vdsl",
            "vdsl2",
            "gfast",
            "fttc",
            "fttn",
            "cabinet",
            "node",
            "curb",
            "supervectoring",
            "vectoring",
        ],
    ),
    ("adsl", &["adsl", "adsl2"]),
    ("docsis", &["docsis", "cable", "coax", "catv", "hfc"]),
    (
        "gpon",
        &[
            "fibre", "fiber", "ftth", "fttp", "fttb", "gpon", "xgspon", "xgpon", "pon", "optical", "onu",
            "ont",
        ],
    ),
    ("epon", &["epon"]),
    ("lte", &["lte", "4g", "5g", "mobile", "cellular"]),
    ("satellite", &["satellite", "starlink", "sat"]),
    ("wisp", &["wisp", "wireless", "radio", "fwa"]),
    ("ethernet", &["ethernet", "lan"]),
];
/// Answers of a person who does not know.
const UNSURE: [&str; 10] = [
    "unknown", "unsure", "sure", "idea", "know", "dont", "none", "idk", "other", "?",
];
/// Words that deny what follows them.
const DENIALS: [&str; 5] = ["no", "not", "without", "neither", "nor"];

/// The meaning of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// One preset. Whether it has PPPoE or a VLAN was said, or does not matter.
    Exact(&'static Preset),
    /// This preset, of which others with PPPoE or a VLAN exist.
    Plain(&'static Preset),
    /// DSL of one kind or the other.
    Dsl,
}

/// Reads an answer: the name of a preset, or words such as `VDSL`, `Cable`, `fibre with PPPoE`, in any case.
pub(super) fn parse(text: &str) -> Result<Kind, String> {
    let text = text.trim().to_lowercase();
    // "G.fast", "XGS-PON" and "don't" are one word each.
    let joined = text.replace("g.fast", "gfast").replace("xgs-pon", "xgspon");
    let joined = joined.replace(['\'', '\u{2019}'], "");
    let words: Vec<&str> = joined
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '?')
        .filter(|word| !word.is_empty())
        .collect();
    let named = |name: &str| PRESETS.iter().find(|preset| preset.name == name);
    if let Some(preset) = named(&words.join("-")) {
        return Ok(with_layers(preset, false, false));
    }
    let has = |word: &str| words.contains(&word);
    let (vlan, pppoe) = (
        has("vlan") || has("both"),
        has("pppoe") || has("ppp") || has("both"),
    );
    if (vlan || pppoe) && is_denial(&words) {
        return Err(format!(
            "'{text}' names a layer that the line does not have: name only the layers that it has, such as 'VDSL' or 'VDSL PPPoE'"
        ));
    }
    let base = WORDS.iter().find(|(_, known)| known.iter().any(|word| has(word)));
    match base.and_then(|(name, _)| named(name)) {
        Some(preset) => Ok(with_layers(preset, vlan, pppoe)),
        None if has("dsl") || has("xdsl") => Ok(Kind::Dsl),
        None if words.iter().any(|word| UNSURE.contains(word)) => Ok(with_layers(
            named("unknown").ok_or("there is no such line")?,
            false,
            false,
        )),
        None => Err(match nearest(&text, PRESETS.iter().map(|preset| preset.name)) {
            Some(near) => format!("'{text}' is not a kind of line; did you mean '{near}'?"),
            None => format!(
                "'{text}' is not a kind of line: type DSL, cable, fibre, LTE, satellite, wireless or Ethernet, or a name of \
                 'sqm calc links'"
            ),
        }),
    }
}

fn is_denial(words: &[&str]) -> bool {
    words.iter().any(|word| DENIALS.contains(word))
}

/// The preset with these layers, if there is one.
fn with_layers(preset: &'static Preset, vlan: bool, pppoe: bool) -> Kind {
    let variant = |vlan: bool, pppoe: bool| {
        let name = [
            preset.name,
            if vlan { "-vlan" } else { "" },
            if pppoe { "-pppoe" } else { "" },
        ]
        .concat();
        PRESETS.iter().find(|other| other.name == name)
    };
    let is_base = !preset.vlan && !preset.pppoe && variant(true, true).is_some();
    match (vlan || pppoe, is_base) {
        (true, _) => Kind::Exact(variant(vlan, pppoe).unwrap_or(preset)),
        (false, true) => Kind::Plain(preset),
        (false, false) => Kind::Exact(preset),
    }
}

/// The preset of an answer to the question for PPPoE and a VLAN.
pub(super) fn layered(preset: &'static Preset, text: &str) -> Result<&'static Preset, String> {
    let text = text.to_lowercase();
    let has = |word: &str| text.contains(word);
    let both = has("both");
    let (vlan, pppoe) = (both || has("vlan"), both || has("ppp"));
    let words: Vec<&str> = text.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let is_denied = is_denial(&words);
    let is_no = ["", "n", "no", "none", "neither", "unsure"].contains(&text.trim());
    match with_layers(preset, vlan, pppoe) {
        Kind::Exact(found) if (vlan || pppoe) && !is_denied => Ok(found),
        _ if is_no => Ok(preset),
        _ => Err("type pppoe, vlan, both or no".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> &'static str {
        match parse(text) {
            Ok(Kind::Exact(preset) | Kind::Plain(preset)) => preset.name,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn a_line_is_known_by_its_usual_names_in_any_case() {
        for (text, expected) in [
            ("VDSL2", "vdsl2"),
            ("vdsl", "vdsl2"),
            ("G.fast", "vdsl2"),
            ("VDSL with PPPoE", "vdsl2-pppoe"),
            ("vdsl2 vlan pppoe", "vdsl2-vlan-pppoe"),
            ("VDSL2-VLAN", "vdsl2-vlan"),
            ("ADSL2+", "adsl"),
            ("ADSL PPPoE LLC", "adsl-pppoe-llc"),
            ("Cable", "docsis"),
            ("DOCSIS 3.1", "docsis"),
            ("Fibre (PPPoE)", "gpon-pppoe"),
            ("FTTH", "gpon"),
            ("XGS-PON", "gpon"),
            ("LTE", "lte"),
            ("5G", "lte"),
            ("Starlink", "satellite"),
            ("DS-Lite", "ds-lite"),
            ("Fibre to the cabinet", "vdsl2"),
            ("fibre to the node", "vdsl2"),
            ("fibre to the home", "gpon"),
            ("don't know", "unknown"),
            ("Not sure", "unknown"),
            ("no idea", "unknown"),
        ] {
            assert_eq!(name(text), expected, "{text}");
        }
        for text in ["DSL", "dsl", "xDSL"] {
            assert_eq!(parse(text), Ok(Kind::Dsl), "{text}");
        }
        assert!(parse("docsys").unwrap_err().contains("did you mean 'docsis'"));
        assert!(parse("banana").is_err() && parse("").is_err());
    }

    #[test]
    fn pppoe_and_a_vlan_are_asked_for_where_they_matter() {
        let plain = |text| matches!(parse(text), Ok(Kind::Plain(_)));
        assert!(plain("vdsl") && plain("fibre") && plain("ethernet"));
        assert!(!plain("cable") && !plain("vdsl pppoe") && !plain("adsl"));
        let Ok(Kind::Plain(vdsl)) = parse("vdsl") else {
            panic!("VDSL has variants")
        };
        for (answer, expected) in [
            ("", "vdsl2"),
            ("no", "vdsl2"),
            ("PPPoE", "vdsl2-pppoe"),
            ("VLAN 7", "vdsl2-vlan"),
            ("both", "vdsl2-vlan-pppoe"),
        ] {
            assert_eq!(
                layered(vdsl, answer).map(|preset| preset.name),
                Ok(expected),
                "{answer}"
            );
        }
        assert!(layered(vdsl, "maybe").is_err());
        // A layer that is denied is not taken for one that is there.
        for answer in ["no vlan", "PPPoE, but no VLAN", "without PPPoE", "not pppoe"] {
            assert!(layered(vdsl, answer).is_err(), "{answer}");
            assert!(parse(&format!("VDSL, {answer}")).is_err(), "{answer}");
        }
    }
}

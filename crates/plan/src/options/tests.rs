use super::*;
use crate::device::Device;
use crate::value;

/// The errors about this option in a section that is good but for it.
fn errors(name: &str, value: &str) -> Vec<String> {
    // A limit is held against the rate that it limits.
    let rate = match name.split('_').next() {
        Some("min") => "1gbit",
        Some("max") => "1kbit",
        _ => "50mbit",
    };
    // CAKE's own estimate excludes autorate.
    let autorate = if name.ends_with("autorate_ingress") {
        "0"
    } else {
        "1"
    };
    let mut options = vec![
        ("enabled", "1"),
        ("interface", "eth0"),
        ("autorate", autorate),
        ("download", rate),
        ("upload", rate),
        ("script", "best_of_cake.qos"),
    ];
    options.retain(|(other, _)| *other != name);
    options.push((name, value));
    let lines: String = options
        .iter()
        .map(|(name, value)| format!("\toption {name} '{value}'\n"))
        .collect();
    let text = format!("config queue\n{lines}");
    match crate::load(text.as_bytes(), "f", &Device::absent) {
        Ok(loaded) => {
            let unknown =
                |warning: &&crate::diagnostic::Diagnostic| warning.message.contains("no such option");
            loaded
                .warnings
                .iter()
                .filter(unknown)
                .map(ToString::to_string)
                .collect()
        }
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn each_name_belongs_to_one_option() {
    let names: Vec<&str> = all().map(|option| option.name).collect();
    for (n, name) in names.iter().enumerate() {
        assert!(!names[..n].contains(name), "{name} stands twice");
        assert!(!name.is_empty());
    }
}

#[test]
fn the_words_of_cake_are_those_of_tc() {
    for parameter in CAKE
        .iter()
        .filter(|parameter| parameter.both.kind == Kind::Choice)
    {
        for (word, _) in parameter.both.choices() {
            let of_tc = match word {
                "on" => "ack-filter",
                "off" => "no-ack-filter",
                "aggressive" => "ack-filter-aggressive",
                word => word,
            };
            let mut cake = sqm_core::spec::cake::Cake::default();
            (parameter.read)(word).unwrap().apply_to(&mut cake);
            assert_eq!(cake, value::cake_words(of_tc).unwrap(), "{word}");
        }
    }
}

#[test]
fn each_option_that_has_a_variable_of_sqm_scripts_is_imported() {
    for option in all() {
        let is_imported = OF_SQM_SCRIPTS.iter().any(|imported| imported.name == option.name);
        assert_eq!(is_imported, !option.variables.is_empty(), "{}", option.name);
    }
}

#[test]
fn a_reason_names_its_option() {
    let reason = fill(
        "{script} with {qdisc}: {direction}",
        "simple.qos",
        "sfq",
        "egress",
    );
    assert_eq!(reason, "simple.qos with sfq: egress");
    for rule in all().flat_map(|option| option.ignored) {
        let filled = fill(rule.reason, "", "", "");
        assert!(!filled.contains(['{', '}']), "{}", rule.reason);
    }
}

#[test]
fn values_that_forms_offer_are_accepted_and_values_beyond_are_not() {
    for option in all().filter(|option| option.tab.is_some()) {
        let name = option.name;
        let good = |value: &str| assert_eq!(errors(name, value), Vec::<String>::new(), "{name} {value}");
        let bad = |value: &str| assert!(!errors(name, value).is_empty(), "{name} takes {value}");
        for (choice, about) in option.choices() {
            good(choice);
            assert!(!about.is_empty(), "{name} {choice}");
        }
        if let Some((least, most)) = option.range {
            // The kernel's largest sizes are beyond what cake can count: another option's matter.
            if !["overhead", "tcMPU"].contains(&name) {
                good(&least.to_string());
                good(&most.to_string());
            }
            bad(&(least - 1).to_string());
            bad(&(most + 1).to_string());
        }
        match option.kind {
            Kind::Switch => {
                good("0");
                good("1");
                bad("perhaps");
            }
            Kind::Device => {
                good("eth0.2");
                bad("a name that is too long");
            }
            Kind::Rate => {
                good("0");
                good("85000");
                good("85mbit");
                bad("85mbits");
            }
            Kind::Time => {
                good("20ms");
                bad("20mss");
            }
            Kind::Size => {
                good("4mb");
                bad("4mbb");
            }
            Kind::Mask => {
                good("0xff");
                bad("0xfg");
            }
            // These sections use a setup script of CAKE, beside which any leaf is without effect.
            Kind::Choice if name.ends_with("qdisc") => good("no such word"),
            Kind::Choice => bad("no such word"),
            Kind::Integer => bad("1.5"),
            Kind::Text => good(""),
        }
        if let Some(default) = option.default {
            good(default);
        }
    }
}

#[test]
fn linklayer_none_is_ignored_beside_link_and_ignores_a_bare_overhead() {
    let warned = |more: &str| -> Vec<String> {
        let text = format!(
            "config queue\n option enabled 1\n option interface eth0\n option download 50mbit\n option upload 5mbit\n \
             option script best_of_cake.qos\n option linklayer none\n {more}"
        );
        let loaded = crate::load(text.as_bytes(), "sqm", &Device::absent).unwrap();
        let warnings = loaded.warnings.into_iter();
        warnings.filter_map(|warning| warning.option).collect()
    };
    assert_eq!(warned(""), Vec::<String>::new());
    assert_eq!(warned("option link docsis\n"), ["linklayer"]);
    assert_eq!(
        warned("option overhead 18\n option tcMPU 64\n"),
        ["overhead", "tcMPU"]
    );
    assert_eq!(
        warned("option link docsis\n option overhead 44\n"),
        ["linklayer", "overhead"]
    );
}

//! The LuCI application's table of options is made from the registry of options.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use sqm_plan::options::{self, OptionInfo, Tab};
use sqm_plan::side::Side;

const TABLE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../packaging/openwrt/luci-app-sqm/htdocs/luci-static/resources/sqm/options.js"
);

const BEGINNING: &str = "\
'use strict';
'require baseclass';

/* The options of a section. Made from the registry of options in crates/plan/src/options; do not change it here:
   SQM_UPDATE=1 cargo test -p sqm-plan --test luci */

return baseclass.extend({
\toptions: [
";

/// A string of JavaScript. The registry has no control characters.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// A string that is translated.
fn translated(text: &str) -> String {
    format!("_({})", quoted(text))
}

fn entry(option: &OptionInfo, tab: Tab) -> String {
    let mut text = format!(
        "\t\t{{\n\t\t\tname: {}, tab: {}, level: {}, kind: {},\n",
        quoted(option.name),
        quoted(tab.name()),
        quoted(option.level.name()),
        quoted(option.kind.name()),
    );
    let mut field = |name: &str, value: String| {
        writeln!(text, "\t\t\t{name}: {value},").expect("a string takes any text");
    };
    field("title", translated(option.title));
    field("about", translated(option.about));
    let words = [("unit", option.unit), ("standard", option.default)];
    for (name, word) in words {
        if let Some(word) = word {
            field(name, quoted(word));
        }
    }
    if let Some(side) = option.side {
        field("direction", quoted(Side::name(side)));
    }
    if let Some((least, most)) = option.range {
        field("range", format!("[ {least}, {most} ]"));
    }
    let choices: Vec<String> = option
        .choices()
        .iter()
        .map(|(word, about)| format!("\t\t\t\t[ {}, {} ]", quoted(word), translated(about)))
        .collect();
    if !choices.is_empty() {
        field("choices", format!("[\n{}\n\t\t\t]", choices.join(",\n")));
    }
    text + "\t\t},\n"
}

fn table() -> String {
    let entries = options::all().filter_map(|option| Some(entry(option, option.tab?)));
    let hidden = options::all().filter(|option| option.tab.is_none());
    let hidden: Vec<String> = hidden.map(|option| quoted(option.name)).collect();
    format!(
        "{BEGINNING}{}\t],\n\n\t/* Options that no form shows. */\n\thidden: [ {} ]\n}});\n",
        entries.collect::<String>(),
        hidden.join(", ")
    )
}

#[test]
fn the_options_of_the_luci_application_are_up_to_date() {
    let path = Path::new(TABLE);
    let table = table();
    if env::var_os("SQM_UPDATE").is_some() {
        fs::create_dir_all(path.parent().expect("it has a folder")).expect("the folder can be made");
        fs::write(path, &table).expect("the file can be written");
    }
    let file = fs::read_to_string(path).unwrap_or_default();
    assert!(
        file == table,
        "{TABLE} is out of date: SQM_UPDATE=1 cargo test -p sqm-plan --test luci"
    );
}

//! A file and the body of a request of the page, with a zero byte between: the body is refused, or the new text says what the
//! body asked for, can be read and changes nothing else that is not asked for.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use sqm_plan::uci::Document;
use sqm_plan::uci::bytes::to_bytes;

fuzz_target!(|bytes: &[u8]| {
    let Some(at) = bytes.iter().position(|byte| *byte == 0) else {
        return;
    };
    let (Ok(file), body) = (std::str::from_utf8(&bytes[..at]), &bytes[at + 1..]) else {
        return;
    };
    let Some(text) = sqm_web::fuzz_forms(file, body) else {
        return;
    };
    let body: Value = serde_json::from_slice(body).expect("what is taken is JSON");
    if let Some(given) = body["text"].as_str() {
        assert_eq!(text, given);
        return;
    }
    let Some(changes) = body["changes"].as_array() else {
        assert_eq!(text, file);
        return;
    };
    let document = Document::parse(&text).expect("changes keep a file readable");
    if changes.is_empty() {
        assert_eq!(text, file);
    }
    // Sections that go would change the numbers of those that stay.
    if changes.iter().any(|change| change["remove"] == true) {
        return;
    }
    let mut last: BTreeMap<(u64, &str), Option<&str>> = BTreeMap::new();
    for change in changes {
        let section = change["section"].as_f64().expect("a number") as u64;
        last.insert((section, change["option"].as_str().expect("a name")), change["value"].as_str());
    }
    let before = Document::parse(file).expect("it could be changed");
    let (before, after) = (before.sections(), document.sections());
    for section in &after {
        let is_changed = |name: &str| last.keys().any(|key| *key == (section.index as u64, name));
        for ((_, name), wanted) in last.range((section.index as u64, "")..(section.index as u64 + 1, "")) {
            let mut settings = section.settings.iter().rev();
            let found = settings.find(|setting| setting.name == *name && (wanted.is_none() || !setting.is_list));
            assert_eq!(found.map(|setting| to_bytes(setting.value)), wanted.map(|value| value.as_bytes().to_vec()));
        }
        let others = |settings: &[sqm_plan::uci::Setting<'_>]| -> Vec<(String, String)> {
            let others = settings.iter().filter(|setting| !is_changed(setting.name));
            others.map(|setting| (setting.name.to_owned(), setting.value.to_owned())).collect()
        };
        let was = before.get(section.index).map(|section| others(&section.settings));
        assert_eq!(others(&section.settings), was.unwrap_or_default());
    }
});

//! Any bytes are a configuration file or are refused; what is read is written back byte for byte, and a changed
//! option reads as what was written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sqm_plan::uci::Document;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut document) = Document::parse_bytes(bytes) else {
        return;
    };
    assert_eq!(document.to_bytes(), bytes);
    let value = "it's \"new\"\n# \\";
    if document.set(0, "option", value) {
        let again = Document::parse_bytes(&document.to_bytes()).expect("a change keeps the file readable");
        assert_eq!(again.sections(), document.sections());
        assert!(
            again.sections()[0]
                .settings
                .iter()
                .any(|s| s.name == "option" && s.value == value)
        );
    }
});

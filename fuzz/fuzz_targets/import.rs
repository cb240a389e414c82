//! Any text is a file of sqm-scripts or is refused; what is made of it reads as it was meant.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sqm_plan::import::{Reader, Source, import};
use sqm_plan::uci::Document;
use sqm_plan::uci::bytes::to_bytes;

fuzz_target!(|text: &str| {
    let source = |name, reader| Source { name, text, reader };
    let sources = [
        source("eth0.iface.conf", Reader::ShellOrSystemd),
        source("sqm.conf", Reader::Shell),
    ];
    // The reader for shell files accepts every file that the strict reader accepts.
    let [plain, shell] = sources.map(|source| import("eth0", &[source]));
    assert!(shell.is_ok() || plain.is_err());
    let Ok(imported) = shell else {
        return;
    };
    // A zero byte is no text in either format.
    if text.contains('\0') {
        return;
    }
    let section = imported.to_string();
    let document = Document::parse(&section).expect("what is written can be read");
    let sections = document.sections();
    let read: Vec<_> = sections[0].settings.iter().map(|setting| (setting.name, to_bytes(setting.value))).collect();
    let meant: Vec<_> = imported.options.iter().map(|(name, value)| (*name, value.as_bytes().to_vec())).collect();
    assert_eq!(read, meant);
});

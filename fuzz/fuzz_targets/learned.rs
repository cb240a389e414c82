//! Any text is read as what autorate has learned without a panic, and what was understood is written as it stood.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sqm_autorate::memory;

fuzz_target!(|text: &str| {
    if let Ok(learned) = memory::read(text) {
        assert_eq!(memory::read(&memory::write(&learned)), Ok(learned));
    }
});

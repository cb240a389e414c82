//! Any text is read as what autorate has learned without a panic, and what was understood is written as it stood.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sqm_autorate::capacity_by_hour;

fuzz_target!(|text: &str| {
    if let Ok(learned) = capacity_by_hour::read(text) {
        assert_eq!(capacity_by_hour::read(&capacity_by_hour::write(&learned)), Ok(learned));
    }
});

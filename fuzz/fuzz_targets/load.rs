//! Any bytes become plans or errors with lines that exist.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let lines = 1 + bytes.iter().filter(|b| **b == b'\n').count();
    let diagnostics = match sqm_plan::load(bytes, "sqm", &sqm_plan::device::Device::absent) {
        Ok(loaded) => loaded.warnings,
        Err(errors) => {
            assert!(!errors.is_empty());
            errors
        }
    };
    assert!(
        diagnostics
            .iter()
            .all(|diagnostic| (1..=lines).contains(&diagnostic.line))
    );
});

//! Any TCP segments that pass are looked at without a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| sqm_daemon::fuzz_segments(bytes));

//! Any bytes are facts from which the doctor makes findings, or are refused. Nothing panics, and the numbers in findings stay readable.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| sqm::fuzz::judge(bytes));

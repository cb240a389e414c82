//! Any bytes are facts that the doctor judges, or are refused; no number is made up that nobody can read.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| sqm::fuzz::judge(bytes));

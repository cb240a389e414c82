//! Our own result files, packed or not: an answer or words, and what is read can be judged and drawn.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sqm_measure::grade::Verdict;
use sqm_measure::plot::{Plot, Run};
use sqm_measure::result::TestResult;

fuzz_target!(|bytes: &[u8]| {
    let Ok(result) = TestResult::from_bytes(bytes) else { return };
    let _ = Verdict::of(&result).to_text();
    let runs = [Run { name: "fuzz", result: &result }];
    for plot in Plot::ALL {
        let _ = plot.draw(&runs);
    }
});

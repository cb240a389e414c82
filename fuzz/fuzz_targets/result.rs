//! Our own result files, compressed or not: the reader returns a result or an error. A result can be graded and plotted.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sqm_measure::grade::Verdict;
use sqm_measure::plot::{Plot, Run, Sheet};
use sqm_measure::result::TestResult;

fuzz_target!(|bytes: &[u8]| {
    let Ok(result) = TestResult::from_bytes(bytes) else { return };
    let _ = Verdict::of(&result).to_text();
    let runs = [Run { name: "fuzz", result: &result }];
    for plot in Plot::ALL {
        for sheet in [Sheet::Wide, Sheet::Narrow] {
            let _ = plot.draw(&runs, sheet);
        }
    }
});

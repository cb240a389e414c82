//! Flent's result files: for any text, the reader returns a result or an error. A result can be graded,
//! plotted, written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sqm_measure::flent;
use sqm_measure::grade::Verdict;
use sqm_measure::plot::{Plot, Run, Sheet};

fuzz_target!(|text: &str| {
    let Ok(result) = flent::from_json(text) else { return };
    let _ = Verdict::of(&result).to_text();
    let runs = [Run { name: "fuzz", result: &result }];
    for plot in Plot::ALL {
        for sheet in [Sheet::Wide, Sheet::Narrow] {
            if let Some(picture) = plot.draw(&runs, sheet) {
                assert!(!picture.contains("NaN"));
            }
        }
    }
    let again = flent::from_json(&flent::to_json(&result)).expect("what is written can be read");
    assert_eq!(again.flows.len(), result.flows.len());
});

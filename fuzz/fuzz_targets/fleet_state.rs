//! Any bytes are a report, a roll-out, credentials or keys, or are refused. What was understood is written as it stood, and a roll-out can be
//! followed whatever its numbers are. Nothing panics.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use sqm_fleet::credentials::Keys;
use sqm_fleet::report::Report;
use sqm_fleet::rollout::RollOut;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(report) = Report::parse(bytes) {
        let again = serde_json::to_vec(&report).expect("plain data");
        assert_eq!(Report::parse(&again), Ok(report));
    }
    if let Ok(mut roll_out) = RollOut::parse(bytes) {
        let again = serde_json::to_vec(&roll_out).expect("plain data");
        assert_eq!(RollOut::parse(&again).as_ref(), Ok(&roll_out));
        for now in [0, 1_800_000_000, u64::MAX] {
            roll_out.advance(&BTreeMap::new(), now);
            roll_out.handed_out(now);
            roll_out.standings(&BTreeMap::new(), now);
        }
        roll_out.halt(String::new());
        roll_out.resume();
        roll_out.advance(&BTreeMap::new(), u64::MAX);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = sqm_fleet::name_in(text);
        if let Ok(keys) = Keys::parse(text) {
            assert!(Keys::parse(&keys.text()).is_ok());
        }
    }
});

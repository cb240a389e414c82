//! Any text is a specification or is refused; what is printed is read back as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sqm_core::spec::Qdisc;

fuzz_target!(|text: &str| {
    match Qdisc::parse(text) {
        Ok(qdisc) => assert_eq!(Qdisc::parse(&qdisc.to_string()), Ok(qdisc)),
        Err(error) => assert!(error.position <= text.len() && error.to_string().len() < 1000),
    }
});

//! Any text is a specification, or a list of `tc` commands, or is refused; what is printed is read back as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sqm_core::spec::Qdisc;
use sqm_core::spec::command::Command;
use sqm_core::tree::Description;

fuzz_target!(|text: &str| {
    match Qdisc::parse(text) {
        Ok(qdisc) => assert_eq!(Qdisc::parse(&qdisc.to_string()), Ok(qdisc)),
        Err(error) => assert!(error.position <= text.len() && error.to_string().len() < 1000),
    }
    for line in text.lines() {
        if let Ok(command) = Command::parse(line) {
            assert_eq!(Command::parse(&command.to_string()), Ok(command));
        }
    }
    if let Ok(description) = Description::parse(text) {
        let _ = (description.warnings(), description.check());
    }
});

//! Any text of tc commands gives each shaped direction its queues or is refused; any shell script becomes a good text or is named.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sqm_plan::device::Device;
use sqm_plan::import::script::carry_over;
use sqm_plan::import::{Reader, Source};
use sqm_plan::own::OwnFile;
use sqm_plan::{Configuration, RateOverrides};

const SECTIONS: [&str; 3] = [
    "",
    " option qdisc cake\n option squash_ingress 0\n option squash_dscp 0\n option linklayer atm\n option overhead 40\n",
    " option qdisc sfq\n option autorate 1\n option linklayer ptm\n option linklayer_adaptation_mechanism htb_private\n",
];

fuzz_target!(|text: &str| {
    for options in SECTIONS {
        let section = format!(
            "config queue\n option enabled 1\n option interface eth0\n option upload 9mbit\n option download 80mbit\n \
             option script mine.tc\n{options}"
        );
        let source = |_: &str| Ok(OwnFile { path: "mine.tc".to_owned(), bytes: text.as_bytes().to_vec() });
        let read = Configuration::parse_with(section.as_bytes(), "sqm", &source);
        match read.and_then(|read| read.plan(&Device::absent, &RateOverrides::new())) {
            Ok(loaded) => {
                let plan = &loaded.plans[0];
                let trees = [&plan.egress, &plan.ingress];
                assert!(trees.iter().all(|tree| tree.as_ref().is_some_and(|tree| tree.root().is_some())));
            }
            Err(errors) => assert!(!errors.is_empty()),
        }
    }
    let source = Source { name: "mine.qos", text, reader: Reader::Shell };
    if let Err(errors) = carry_over(&source) {
        assert!(!errors.is_empty());
    }
});

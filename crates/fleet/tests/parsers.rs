//! Damaged texts of each kind are refused or understood, and never end the program. `fuzz/` looks longer.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::Index;
use sqm_fleet::agent::{Action, Agent, Applied, Identity, Memory};
use sqm_fleet::credentials::Keys;
use sqm_fleet::desired::Desired;
use sqm_fleet::report::Report;
use sqm_fleet::rollout::RollOut;
use sqm_fleet::signed::SigningKey;

const DOCUMENT: &str = include_str!("../../../fuzz/seeds/fleet_document/document");
const REPORT: &str = include_str!("../../../fuzz/seeds/fleet_state/report");
const ROLL_OUT: &str = include_str!("../../../fuzz/seeds/fleet_state/rollout");
const CREDENTIALS: &str = include_str!("../../../fuzz/seeds/fleet_state/credentials");
const NOW: u64 = 1_800_000_000;

/// A damage: a number in place of another, some bytes in place of others, or a text that ends early.
fn damaged(text: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let number = (any::<Index>(), any::<u64>()).prop_map(move |(at, number)| {
        let numbers: Vec<&str> = text
            .split(|c: char| !c.is_ascii_digit())
            .filter(|part| !part.is_empty())
            .collect();
        let old = if numbers.is_empty() { "" } else { at.get(&numbers) };
        text.replacen(old, &number.to_string(), 1).into_bytes()
    });
    let bytes = (any::<Index>(), proptest::collection::vec(any::<u8>(), 0..8)).prop_map(move |(at, new)| {
        let mut bytes = text.as_bytes().to_vec();
        let from = at.index(bytes.len());
        let to = bytes.len().min(from + new.len());
        bytes.splice(from..to, new);
        bytes
    });
    let cut = any::<Index>().prop_map(move |at| text.as_bytes()[..at.index(text.len())].to_vec());
    prop_oneof![number, bytes, cut, proptest::collection::vec(any::<u8>(), 0..200)]
}

#[test]
fn the_texts_from_which_damage_is_made_are_understood() {
    assert!(Desired::parse(DOCUMENT).is_ok());
    assert!(Report::parse(REPORT.as_bytes()).is_ok());
    assert!(RollOut::parse(ROLL_OUT.as_bytes()).is_ok());
    assert!(sqm_fleet::name_in(CREDENTIALS).is_some());
}

proptest! {
    #[test]
    fn a_damaged_document_is_refused_or_tried_as_it_stands(bytes in damaged(DOCUMENT)) {
        let key = SigningKey::generate();
        prop_assert!(key.public().open(&bytes).is_err(), "nobody has signed it");
        let text = String::from_utf8_lossy(&bytes);
        let identity = Identity { router: "r1".parse().expect("a name"), key: key.public() };
        let mut agent = Agent::new(identity, Memory::default());
        for action in agent.receive(key.sign(&text).as_bytes(), NOW) {
            if let Action::Apply { configuration, .. } = action {
                prop_assert_eq!(configuration, Desired::parse(&text).expect("understood").configuration);
                agent.applied(Applied::Yes, NOW);
            }
        }
        agent.look(u64::MAX);
    }

    #[test]
    fn a_damaged_report_is_refused_or_read_as_it_stands(bytes in damaged(REPORT)) {
        if let Ok(report) = Report::parse(&bytes) {
            let again = serde_json::to_vec(&report).expect("plain data");
            prop_assert_eq!(Report::parse(&again), Ok(report));
        }
    }

    #[test]
    fn a_damaged_roll_out_is_refused_or_can_be_followed(bytes in damaged(ROLL_OUT)) {
        if let Ok(mut roll_out) = RollOut::parse(&bytes) {
            for now in [0, NOW, u64::MAX] {
                roll_out.advance(&BTreeMap::new(), now);
                roll_out.handed_out(now);
                roll_out.standings(&BTreeMap::new(), now);
            }
            roll_out.halt(String::new());
            roll_out.resume();
            roll_out.advance(&BTreeMap::new(), u64::MAX);
        }
    }

    #[test]
    fn damaged_credentials_and_keys_are_refused_or_read(bytes in damaged(CREDENTIALS)) {
        let text = String::from_utf8_lossy(&bytes);
        let _ = sqm_fleet::name_in(&text);
        let _ = Keys::parse(&text);
    }
}

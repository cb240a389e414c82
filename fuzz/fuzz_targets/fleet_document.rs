//! Any bytes are refused as an envelope. Any text that the operator has signed is refused, waits, or is the configuration that the router
//! tries, word for word. Nothing panics.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use sqm_fleet::agent::{Action, Agent, Applied, Identity, Memory};
use sqm_fleet::desired::Desired;
use sqm_fleet::signed::SigningKey;

static KEY: LazyLock<SigningKey> = LazyLock::new(SigningKey::generate);
const NOW: u64 = 1_800_000_000;

fuzz_target!(|bytes: &[u8]| {
    let key = KEY.public();
    assert!(key.open(bytes).is_err(), "nobody has signed this");
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let envelope = KEY.sign(text);
    if envelope.len() <= sqm_fleet::signed::LONGEST {
        assert_eq!(key.open(envelope.as_bytes()).as_deref(), Ok(text));
    }
    let router = "r1".parse().expect("a name");
    let mut agent = Agent::new(Identity { router, key }, Memory::default());
    for action in agent.receive(envelope.as_bytes(), NOW) {
        if let Action::Apply { configuration, .. } = action {
            let desired = Desired::parse(text).expect("what is tried was understood");
            assert_eq!((configuration, desired.router.as_str()), (desired.configuration, "r1"));
            agent.applied(Applied::Yes, NOW);
            agent.look(u64::MAX);
        }
    }
});

//! Any bytes as answers of the kernel: devices, qdiscs, classes, filters, refusals. Nothing panics, and what was read as a
//! qdisc can be said in words and compared.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sqm_kernel::netlink::{ethtool, filter, flowtable, link, monitor, nftables, options, socket, tc};
use sqm_kernel::observe;

fuzz_target!(|bytes: &[u8]| {
    let _ = link::decode_link(bytes);
    let _ = socket::decode_acknowledgement(0x300, bytes);
    let _ = nftables::decode_rule(bytes);
    if let Some((kind, body)) = bytes.split_first() {
        let (kind, body) = (u16::from(*kind), body.to_vec());
        let message = socket::Message { kind, body };
        let _ = (
            monitor::decode(&message),
            ethtool::decode(&message),
            flowtable::decode(&message),
        );
    }
    let Some(entry) = tc::decode_entry(bytes) else {
        return;
    };
    let _ = filter::decode(&entry);
    if let Some(class) = observe::decode_class(&entry) {
        let _ = class.class.to_string();
    }
    if let Some(qdisc) = observe::decode_qdisc(&entry).qdisc {
        let _ = (options::normalized(&qdisc), qdisc.to_string());
    }
});

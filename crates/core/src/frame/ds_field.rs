//! Changes to the differentiated services field in place.

use super::network::{Ipv4, Ipv6};
use crate::narrow::low_u16;
use crate::packet::Network;

/// Puts what `new` answers for the field in its place; false, and nothing is changed, if it answers nothing or there is
/// no such field.
pub(super) fn change(network: Network, packet: &mut [u8], new: impl FnOnce(u8) -> Option<u8>) -> bool {
    match network {
        Network::Ipv4 if Ipv4::read(packet).is_some() => change_ipv4(packet, new),
        Network::Ipv6 if Ipv6::read(packet).is_some() => change_ipv6(packet, new),
        _ => false,
    }
}

fn change_ipv4(packet: &mut [u8], new: impl FnOnce(u8) -> Option<u8>) -> bool {
    let [version, ds_field, _, _, _, _, _, _, _, _, c0, c1, ..] = packet else {
        return false;
    };
    let Some(changed) = new(*ds_field) else {
        return false;
    };
    let before = u16::from_be_bytes([*version, *ds_field]);
    let after = u16::from_be_bytes([*version, changed]);
    let checksum = updated(u16::from_be_bytes([*c0, *c1]), before, after);
    *ds_field = changed;
    [*c0, *c1] = checksum.to_be_bytes();
    true
}

fn change_ipv6(packet: &mut [u8], new: impl FnOnce(u8) -> Option<u8>) -> bool {
    let [first, second, ..] = packet else {
        return false;
    };
    let Some(changed) = new(*first << 4 | *second >> 4) else {
        return false;
    };
    *first = *first & 0xf0 | changed >> 4;
    *second = *second & 0x0f | changed << 4;
    true
}

/// The checksum after one of the words that it covers changed (RFC 1624 equation 3).
const fn updated(checksum: u16, before: u16, after: u16) -> u16 {
    let sum = !checksum as u32 + !before as u32 + after as u32;
    let folded = (sum & 0xffff) + (sum >> 16);
    low_u16(!((folded & 0xffff) + (folded >> 16)) as u64)
}

//! Addresses of this machine's devices (`RTM_GETADDR`).

use std::net::IpAddr;

use super::attribute::{Attributes, u32_at};
use super::socket::{Message, NetlinkError, Socket};

const RTM_GETADDR: u16 = 22;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
/// `RT_SCOPE_UNIVERSE`: the address is valid beyond the device's own network.
const GLOBAL: u8 = 0;
/// Length of `struct ifaddrmsg`, bytes: family, length of the prefix, flags, scope, index of the device.
const HEADER: usize = 8;

/// An address of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceAddress {
    /// Index of the device.
    pub device: u32,
    /// This machine's address on it.
    pub address: IpAddr,
}

/// The addresses of all devices, without loopback and link-local ones.
pub fn list(socket: &mut Socket) -> Result<Vec<DeviceAddress>, NetlinkError> {
    let messages = socket.dump(RTM_GETADDR, &[0; HEADER])?;
    Ok(messages
        .iter()
        .filter_map(|Message { body, .. }| decode(body))
        .collect())
}

fn decode(body: &[u8]) -> Option<DeviceAddress> {
    let scope = *body.get(3)?;
    let attributes = Attributes(body.get(HEADER..)?);
    // On a point-to-point link IFA_ADDRESS is the other end's address. IPv6 has no IFA_LOCAL there.
    let bytes = attributes
        .get(IFA_LOCAL)
        .or_else(|| attributes.get(IFA_ADDRESS))?;
    let address = match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok()?.into(),
        16 => <[u8; 16]>::try_from(bytes).ok()?.into(),
        _ => return None,
    };
    (scope == GLOBAL).then_some(DeviceAddress {
        device: u32_at(body, 4)?,
        address,
    })
}

#[cfg(test)]
mod tests {
    use super::super::attribute::Builder;
    use super::*;

    #[test]
    fn the_own_end_of_a_link_is_read_and_addresses_of_one_network_only_are_left_out() {
        let message = |scope: u8, attributes: Builder| {
            let mut body = vec![2, 24, 0, scope, 7, 0, 0, 0];
            body.extend(attributes.finish());
            body
        };
        let ends = Builder::default()
            .bytes(IFA_ADDRESS, &[10, 0, 0, 2])
            .bytes(IFA_LOCAL, &[10, 0, 0, 1]);
        let expected = DeviceAddress {
            device: 7,
            address: [10, 0, 0, 1].into(),
        };
        assert_eq!(decode(&message(GLOBAL, ends)), Some(expected));
        let loopback = Builder::default().bytes(IFA_LOCAL, &[127, 0, 0, 1]);
        assert_eq!(decode(&message(254, loopback)), None);
        assert_eq!(decode(&[0; 5]), None);
    }

    #[test]
    fn the_kernel_lists_addresses() {
        let mut socket = Socket::open().unwrap();
        let found = list(&mut socket).unwrap();
        assert!(
            found.iter().all(|found| !found.address.is_loopback()),
            "{found:?}"
        );
    }
}

//! Look-ups in the routing tables (`RTM_GETROUTE`).

use std::net::IpAddr;

use super::attribute::{Attributes, Builder};
use super::socket::{NetlinkError, Socket};

const RTM_GETROUTE: u16 = 26;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
/// Length of `struct rtmsg`, bytes.
const HEADER: usize = 12;

/// Index of the device through which the kernel sends packets to an address.
pub fn device_to(socket: &mut Socket, address: IpAddr) -> Result<Option<u32>, NetlinkError> {
    let answer = socket.get(RTM_GETROUTE, &encode(address))?;
    Ok(decode(&answer.body))
}

/// `struct rtmsg` with the family and the length of the address in bits, then the address.
fn encode(address: IpAddr) -> Vec<u8> {
    const AF_INET: u8 = 2;
    const AF_INET6: u8 = 10;
    let (family, octets) = match address {
        IpAddr::V4(address) => (AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (AF_INET6, address.octets().to_vec()),
    };
    let mut body = vec![0; HEADER];
    body[0] = family;
    body[1] = 8 * octets.len() as u8;
    body.extend(Builder::default().bytes(RTA_DST, &octets).finish());
    body
}

fn decode(body: &[u8]) -> Option<u32> {
    Attributes(body.get(HEADER..)?).u32(RTA_OIF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_names_the_device_to_this_machine_itself() {
        let mut socket = Socket::open().unwrap();
        for address in ["127.0.0.1", "::1"] {
            let device = device_to(&mut socket, address.parse().unwrap()).unwrap();
            assert_eq!(device, Some(1), "{address}: the loopback device");
        }
        assert_eq!(decode(&[0; 5]), None);
    }
}

//! Network devices (`RTM_*LINK`).

use std::net::IpAddr;

use rustix::io::Errno;

use super::attribute::{Attributes, Builder, i32_at, u16_at, u32_at};
use super::socket::{Message, NLM_F_CREATE, NLM_F_EXCL, NetlinkError, Socket};

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const IFLA_BROADCAST: u16 = 2;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_INFO_KIND: u16 = 1;
/// Administratively up.
const IFF_UP: u32 = 1;
/// The link has a carrier.
const IFF_LOWER_UP: u32 = 1 << 16;

/// A network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its index in this network namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Largest packet without the link header, bytes.
    pub mtu: u32,
    /// Administratively up.
    pub up: bool,
    /// It has a carrier: a cable, or the other end of a pair.
    pub carrier: bool,
    /// Kind of a virtual device, such as `ifb`.
    pub kind: Option<String>,
    /// Its type (`ARPHRD_*`).
    pub hardware: u16,
    /// Index of the device below it.
    pub lower: Option<u32>,
    /// Index of the bridge, or another device, of which it is a port.
    pub master: Option<u32>,
    /// Address of the other end, if this is a tunnel of the kernel with a fixed other end.
    pub remote: Option<IpAddr>,
    /// Numbers of transmit queues and of receive queues.
    pub queues: (u32, u32),
}

/// `ARPHRD_LOOPBACK`.
const LOOPBACK: u16 = 772;

impl Link {
    /// True if packets have an Ethernet header here. The kernel then counts it in their length.
    pub const fn has_ethernet_header(&self) -> bool {
        const ETHERNET: u16 = 1;
        matches!(self.hardware, ETHERNET | LOOPBACK)
    }

    /// True if it can lead to another machine: all but the loopback device and IFBs.
    pub fn leads_out(&self) -> bool {
        self.hardware != LOOPBACK && self.kind.as_deref() != Some("ifb")
    }
}

/// All devices of the network namespace.
pub fn list(socket: &mut Socket) -> Result<Vec<Link>, NetlinkError> {
    let messages = socket.dump(RTM_GETLINK, &header(0, 0, 0))?;
    Ok(messages
        .iter()
        .filter_map(|Message { body, .. }| decode_link(body))
        .collect())
}

/// The device of this name. The kernel also accepts an alternative name; the device that is returned then has another name.
pub fn get(socket: &mut Socket, name: &str) -> Result<Link, NetlinkError> {
    let mut body = header(0, 0, 0);
    body.extend(Builder::default().text(IFLA_IFNAME, name).finish());
    get_by(socket, &body)
}

/// The device with this index.
pub fn get_by_index(socket: &mut Socket, index: u32) -> Result<Link, NetlinkError> {
    get_by(socket, &header(index, 0, 0))
}

fn get_by(socket: &mut Socket, request: &[u8]) -> Result<Link, NetlinkError> {
    let Message { body, .. } = socket.get(RTM_GETLINK, request)?;
    decode_link(&body).ok_or_else(|| Errno::NODEV.into())
}

/// Makes a virtual device, which is down at first.
pub fn create(socket: &mut Socket, name: &str, kind: &str) -> Result<(), NetlinkError> {
    create_with_queues(socket, name, kind, 1)
}

/// Makes a virtual device with this number of transmit queues, which is down at first.
pub fn create_with_queues(
    socket: &mut Socket,
    name: &str,
    kind: &str,
    queues: u32,
) -> Result<(), NetlinkError> {
    socket.request(
        RTM_NEWLINK,
        NLM_F_CREATE | NLM_F_EXCL,
        &encode_new(name, kind, queues),
    )
}

/// The body of the message that makes a device.
pub(super) fn encode_new(name: &str, kind: &str, queues: u32) -> Vec<u8> {
    let mut body = header(0, 0, 0);
    let info = Builder::default().text(IFLA_INFO_KIND, kind);
    let mut attributes = Builder::default()
        .text(IFLA_IFNAME, name)
        .nested(IFLA_LINKINFO, info);
    if queues > 1 {
        attributes = attributes.u32(IFLA_NUM_TX_QUEUES, queues);
    }
    body.extend(attributes.finish());
    body
}

/// Removes a virtual device.
pub fn delete(socket: &mut Socket, index: u32) -> Result<(), NetlinkError> {
    socket.request(RTM_DELLINK, 0, &header(index, 0, 0))
}

/// Sets a device up or down.
pub fn set_up(socket: &mut Socket, index: u32, up: bool) -> Result<(), NetlinkError> {
    socket.request(RTM_NEWLINK, 0, &encode_up(index, up))
}

/// The body of the message that sets a device up or down.
pub(super) fn encode_up(index: u32, up: bool) -> Vec<u8> {
    let flags = if up { IFF_UP } else { 0 };
    header(index, flags, IFF_UP)
}

/// `struct ifinfomsg`: family, padding, type, index, flags, mask of the flags to change.
fn header(index: u32, flags: u32, change: u32) -> Vec<u8> {
    let mut body = vec![0; 4];
    for word in [index, flags, change] {
        body.extend_from_slice(&word.to_ne_bytes());
    }
    body
}

/// Decodes the body of an `RTM_NEWLINK` message.
pub fn decode_link(body: &[u8]) -> Option<Link> {
    let attributes = Attributes(body.get(16..)?);
    Some(Link {
        index: u32::try_from(i32_at(body, 4)?).ok()?,
        name: attributes.text(IFLA_IFNAME)?,
        mtu: attributes.u32(IFLA_MTU).unwrap_or(0),
        up: u32_at(body, 8)? & IFF_UP != 0,
        carrier: u32_at(body, 8)? & IFF_LOWER_UP != 0,
        kind: attributes.nested(IFLA_LINKINFO).text(IFLA_INFO_KIND),
        hardware: u16_at(body, 2)?,
        lower: attributes.u32(IFLA_LINK),
        master: attributes.u32(IFLA_MASTER),
        remote: remote(u16_at(body, 2)?, attributes.get(IFLA_BROADCAST)),
        queues: (
            attributes.u32(IFLA_NUM_TX_QUEUES).unwrap_or(1),
            attributes.u32(IFLA_NUM_RX_QUEUES).unwrap_or(1),
        ),
    })
}

/// The other end of a tunnel. Its device has the outer addresses of its packets in place of hardware addresses: the
/// other end stands where other devices have their broadcast address. It is zero if packets go to several ends.
fn remote(hardware: u16, broadcast: Option<&[u8]>) -> Option<IpAddr> {
    /// `ARPHRD_TUNNEL`, `ARPHRD_SIT`, `ARPHRD_IPGRE`: the outer addresses are IPv4.
    const OVER_IPV4: [u16; 3] = [768, 776, 778];
    /// `ARPHRD_TUNNEL6`, `ARPHRD_IP6GRE`: the outer addresses are IPv6.
    const OVER_IPV6: [u16; 2] = [769, 823];
    let bytes = broadcast?;
    let address: IpAddr = if OVER_IPV4.contains(&hardware) {
        <[u8; 4]>::try_from(bytes).ok()?.into()
    } else if OVER_IPV6.contains(&hardware) {
        <[u8; 16]>::try_from(bytes).ok()?.into()
    } else {
        return None;
    };
    (!address.is_unspecified()).then_some(address)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_a_device() {
        let mut body = header(5, IFF_UP, 0);
        let info = Builder::default().text(IFLA_INFO_KIND, "veth");
        body.extend(
            Builder::default()
                .text(IFLA_IFNAME, "eth0")
                .u32(IFLA_MTU, 1500)
                .nested(IFLA_LINKINFO, info)
                .finish(),
        );
        let kind = Some("veth".to_owned());
        assert_eq!(
            decode_link(&body),
            Some(Link {
                index: 5,
                name: "eth0".to_owned(),
                mtu: 1500,
                up: true,
                carrier: false,
                kind,
                hardware: 0,
                lower: None,
                master: None,
                remote: None,
                queues: (1, 1),
            })
        );
    }

    #[test]
    fn the_other_end_of_a_tunnel_is_read() {
        let v6: [u8; 16] = "2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap().octets();
        assert_eq!(remote(776, Some(&[10, 66, 0, 2])), Some([10, 66, 0, 2].into()));
        assert_eq!(remote(769, Some(&v6)), Some(v6.into()));
        // A tunnel with several ends, an Ethernet device, and addresses of the wrong length.
        assert_eq!(remote(776, Some(&[0; 4])), None);
        assert_eq!(remote(1, Some(&[255; 6])), None);
        assert_eq!(remote(776, Some(&v6)), None);
        assert_eq!(remote(776, None), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..96)) {
            let _ = decode_link(&bytes);
        }
    }
}

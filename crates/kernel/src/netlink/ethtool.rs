//! Features of a device's driver, such as offloads, as `ethtool -k` lists them (`NETLINK_GENERIC`, family `ethtool`,
//! `linux/ethtool_netlink.h`).

use std::collections::BTreeMap;

use super::attribute::{Attributes, Builder, u16_at};
use super::socket::{Message, NetlinkError, Socket};

/// `GENL_ID_CTRL`: the family that reports the number of every other family.
const CONTROL: u16 = 0x10;
const GETFAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

const FEATURES_GET: u8 = 11;
const FEATURES_HEADER: u16 = 1;
const FEATURES_ACTIVE: u16 = 4;
const HEADER_DEVICE_INDEX: u16 = 1;
const HEADER_DEVICE_NAME: u16 = 2;
const BITSET_BITS: u16 = 3;
const BIT_NAME: u16 = 2;

/// `NLA_F_NESTED`, which this family requires on attributes that contain others.
const NESTED: u16 = 1 << 15;

/// Length of `struct genlmsghdr`: command, version, padding.
const HEADER: usize = 4;

/// The active features of these devices, by the kernel's names, such as `rx-gro`. A device that was removed meanwhile is
/// missing.
pub fn features(
    socket: &mut Socket,
    devices: impl Iterator<Item = u32>,
) -> Result<BTreeMap<String, Vec<String>>, NetlinkError> {
    let families = socket.dump(CONTROL, &[GETFAMILY, 1, 0, 0])?;
    let Some(family) = families.iter().find_map(|message| number(message, "ethtool")) else {
        return Ok(BTreeMap::new());
    };
    let mut features = BTreeMap::new();
    // One request for each device: a dump of all ends at the first answer that is longer than the kernel's buffer.
    for device in devices {
        let header = Builder::default().u32(HEADER_DEVICE_INDEX, device);
        let header = Builder::default().nested(FEATURES_HEADER | NESTED, header);
        let request = [&[FEATURES_GET, 1, 0, 0][..], &header.finish()].concat();
        let answer = socket.get(family, &request).ok();
        features.extend(answer.as_ref().and_then(decode));
    }
    Ok(features)
}

/// The number of the family `name`, if the message is about it.
fn number(message: &Message, name: &str) -> Option<u16> {
    let attributes = Attributes(message.body.get(HEADER..)?);
    (attributes.text(FAMILY_NAME)? == name).then(|| u16_at(attributes.get(FAMILY_ID)?, 0))?
}

/// Decodes the name of a device and its active features.
pub fn decode(message: &Message) -> Option<(String, Vec<String>)> {
    let attributes = Attributes(message.body.get(HEADER..)?);
    let device = attributes.nested(FEATURES_HEADER).text(HEADER_DEVICE_NAME)?;
    let bits = attributes.nested(FEATURES_ACTIVE).nested(BITSET_BITS);
    let features = bits.filter_map(|(_, bit)| Attributes(bit).text(BIT_NAME));
    Some((device, features.collect()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn active_features_are_read() {
        let bit = |name| Builder::default().nested(1, Builder::default().u32(1, 3).text(2, name));
        let bits = Builder::default().nested(BITSET_BITS, bit("rx-gro"));
        let body = Builder::default()
            .nested(FEATURES_HEADER, Builder::default().u32(1, 2).text(2, "eth0"))
            .nested(FEATURES_ACTIVE, bits);
        let message = Message {
            kind: 20,
            body: [vec![FEATURES_GET, 1, 0, 0], body.finish()].concat(),
        };
        assert_eq!(
            decode(&message),
            Some(("eth0".to_owned(), vec!["rx-gro".to_owned()]))
        );
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(body in proptest::collection::vec(any::<u8>(), 0..128)) {
            let message = Message { kind: 0, body };
            let _ = (decode(&message), number(&message, "ethtool"));
        }
    }
}

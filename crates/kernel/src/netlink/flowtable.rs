//! Flow offload by flowtables of nftables (`linux/netfilter/nf_tables.h`). Packets of an offloaded flow bypass the ingress
//! queues; if the hardware forwards them, they bypass all queues.

use super::attribute::Attributes;
use super::socket::{Message, NetlinkError, Socket};

/// `NFNL_SUBSYS_NFTABLES` in the upper byte, `NFT_MSG_GETFLOWTABLE` in the lower.
const GETFLOWTABLE: u16 = 10 << 8 | 23;
const NAME: u16 = 2;
const HOOK: u16 = 3;
const FLAGS: u16 = 7;
const HOOK_DEVICES: u16 = 3;
const DEVICE_NAME: u16 = 1;
/// `NFT_FLOWTABLE_HW_OFFLOAD`.
const HARDWARE: u32 = 1;
/// Length of `struct nfgenmsg`.
const HEADER: usize = 4;

/// A flowtable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flowtable {
    /// Its name.
    pub name: String,
    /// The devices whose packets it offloads.
    pub devices: Vec<String>,
    /// True if the hardware forwards them.
    pub hardware: bool,
}

/// All flowtables of the network namespace. Needs `CAP_NET_ADMIN`.
pub fn list(socket: &mut Socket) -> Result<Vec<Flowtable>, NetlinkError> {
    let messages = socket.dump(GETFLOWTABLE, &[0; HEADER])?;
    Ok(messages.iter().filter_map(decode).collect())
}

/// Decodes one message of that list.
pub fn decode(message: &Message) -> Option<Flowtable> {
    let attributes = Attributes(message.body.get(HEADER..)?);
    let text = |bytes: &[u8]| {
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    };
    let devices = attributes.nested(HOOK).nested(HOOK_DEVICES);
    let flags = attributes.get(FLAGS).and_then(|bytes| bytes.first_chunk());
    Some(Flowtable {
        name: attributes.text(NAME)?,
        devices: devices
            .filter(|(kind, _)| *kind == DEVICE_NAME)
            .map(|(_, name)| text(name))
            .collect(),
        hardware: flags.is_some_and(|flags| u32::from_be_bytes(*flags) & HARDWARE != 0),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::attribute::Builder;
    use super::*;

    #[test]
    fn a_flowtable_is_read() {
        let devices = Builder::default()
            .text(DEVICE_NAME, "eth0")
            .text(DEVICE_NAME, "eth1");
        let body = Builder::default()
            .text(1, "fw4")
            .text(NAME, "ft")
            .nested(HOOK, Builder::default().nested(HOOK_DEVICES, devices))
            .bytes(FLAGS, &1u32.to_be_bytes())
            .finish();
        let message = Message {
            kind: GETFLOWTABLE,
            body: [vec![1, 0, 0, 0], body].concat(),
        };
        let expected = Flowtable {
            name: "ft".to_owned(),
            devices: vec!["eth0".to_owned(), "eth1".to_owned()],
            hardware: true,
        };
        assert_eq!(decode(&message), Some(expected));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(body in proptest::collection::vec(any::<u8>(), 0..128)) {
            let _ = decode(&Message { kind: 0, body });
        }
    }
}

//! Traffic control: messages about qdiscs, classes and filters (`RTM_*QDISC`, `RTM_*TCLASS`, `RTM_*TFILTER`), which all have
//! the header `struct tcmsg`.

use super::attribute::{Attributes, Builder, u32_at};
use super::socket::{Message, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NetlinkError, Socket};

/// The parent of a root qdisc (`TC_H_ROOT`).
pub const ROOT: u32 = 0xffff_ffff;
/// The parent of the qdisc at the ingress hook (`TC_H_INGRESS`).
pub const INGRESS: u32 = 0xffff_fff1;
/// The handle of the qdisc at the ingress hook: `ffff:`.
pub const INGRESS_HANDLE: u32 = 0xffff_0000;

const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_GETQDISC: u16 = 38;
const RTM_NEWTCLASS: u16 = 40;
const RTM_GETTCLASS: u16 = 42;
const RTM_NEWTFILTER: u16 = 44;
const RTM_DELTFILTER: u16 = 45;
const RTM_GETTFILTER: u16 = 46;

const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const STATS2: u16 = 7;
const STAB: u16 = 8;
const INGRESS_BLOCK: u16 = 13;
const EGRESS_BLOCK: u16 = 14;

/// `ETH_P_ALL`: the filter matches packets of any protocol.
pub const PROTOCOL_ALL: u16 = 3;
/// Length of `struct tcmsg`, bytes.
const HEADER: usize = 20;

/// A qdisc, class or filter as the kernel lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Index of the device.
    pub device: u32,
    /// Its handle.
    pub handle: u32,
    /// Handle of its parent.
    pub parent: u32,
    /// For a filter, preference and protocol; for a class, the handle of the qdisc in it.
    pub info: u32,
    /// Its attributes.
    pub attributes: Vec<u8>,
}

impl Entry {
    /// Its kind, such as `htb`.
    pub fn kind(&self) -> String {
        Attributes(&self.attributes).text(KIND).unwrap_or_default()
    }

    /// Its options, in the encoding of its kind; empty if there are none.
    pub fn options(&self) -> &[u8] {
        Attributes(&self.attributes).get(OPTIONS).unwrap_or_default()
    }

    /// The content of its size table (`TCA_STAB`).
    pub fn stab(&self) -> Option<&[u8]> {
        Attributes(&self.attributes).get(STAB)
    }

    /// Its counters (`TCA_STATS2`).
    pub fn statistics(&self) -> &[u8] {
        Attributes(&self.attributes).get(STATS2).unwrap_or_default()
    }

    /// True if its filters are shared with other devices.
    pub fn has_shared_block(&self) -> bool {
        let attributes = Attributes(&self.attributes);
        [INGRESS_BLOCK, EGRESS_BLOCK]
            .iter()
            .any(|kind| attributes.u32(*kind).is_some_and(|block| block != 0))
    }

    /// The preference of a filter.
    pub fn preference(&self) -> u16 {
        (self.info >> 16) as u16
    }

    /// The protocol that a filter matches, `ETH_P_*`.
    pub fn protocol(&self) -> u16 {
        u16::from_be(self.info as u16)
    }
}

/// Decodes the body of a message about a qdisc, a class or a filter.
pub fn decode_entry(body: &[u8]) -> Option<Entry> {
    Some(Entry {
        device: u32_at(body, 4)?,
        handle: u32_at(body, 8)?,
        parent: u32_at(body, 12)?,
        info: u32_at(body, 16)?,
        attributes: body.get(HEADER..)?.to_vec(),
    })
}

/// The qdiscs of a device. The kernel does not list the default qdiscs inside classes.
pub fn qdiscs(socket: &mut Socket, device: u32) -> Result<Vec<Entry>, NetlinkError> {
    list(socket, RTM_GETQDISC, device, 0)
}

/// The classes of a device.
pub fn classes(socket: &mut Socket, device: u32) -> Result<Vec<Entry>, NetlinkError> {
    list(socket, RTM_GETTCLASS, device, 0)
}

/// The filters on a qdisc or class, and the hash tables that hold them.
pub fn filters(socket: &mut Socket, device: u32, parent: u32) -> Result<Vec<Entry>, NetlinkError> {
    list(socket, RTM_GETTFILTER, device, parent)
}

/// The qdiscs at the ingress hooks of all devices.
pub fn ingress_qdiscs(socket: &mut Socket) -> Result<Vec<Entry>, NetlinkError> {
    let mut all = list_all(socket, RTM_GETQDISC, 0, 0)?;
    all.retain(|entry| entry.parent == INGRESS);
    Ok(all)
}

fn list(socket: &mut Socket, kind: u16, device: u32, parent: u32) -> Result<Vec<Entry>, NetlinkError> {
    let mut entries = list_all(socket, kind, device, parent)?;
    // The kernel lists the qdiscs of all devices, even if the request names one.
    entries.retain(|entry| entry.device == device);
    Ok(entries)
}

fn list_all(socket: &mut Socket, kind: u16, device: u32, parent: u32) -> Result<Vec<Entry>, NetlinkError> {
    let messages = socket.dump(kind, &header(device, 0, parent, 0))?;
    let entries = messages.iter();
    Ok(entries
        .filter_map(|Message { body, .. }| decode_entry(body))
        .collect())
}

/// A request to make or change a qdisc.
#[derive(Clone, Debug)]
pub struct NewQdisc<'a> {
    /// Index of the device.
    pub device: u32,
    /// [`ROOT`], [`INGRESS`] or a class.
    pub parent: u32,
    /// Its handle; with 0 the kernel chooses one.
    pub handle: u32,
    /// Its kind.
    pub kind: &'a str,
    /// Its encoded options; if empty, none are sent.
    pub options: &'a [u8],
    /// Its encoded size table. A change without one removes the table.
    pub stab: Option<&'a [u8]>,
}

impl NewQdisc<'_> {
    /// Makes the qdisc. A root with another handle is replaced in one step; a qdisc with the same handle is an error.
    pub fn create(&self, socket: &mut Socket) -> Result<(), NetlinkError> {
        let flags = if self.parent == ROOT {
            NLM_F_CREATE | NLM_F_REPLACE
        } else {
            NLM_F_CREATE | NLM_F_EXCL
        };
        socket.request(RTM_NEWQDISC, flags, &self.encode())
    }

    /// Changes the qdisc with this handle and kind.
    pub fn change(&self, socket: &mut Socket) -> Result<(), NetlinkError> {
        socket.request(RTM_NEWQDISC, 0, &self.encode())
    }

    /// The body of the message.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut attributes = Builder::default().text(KIND, self.kind);
        if !self.options.is_empty() {
            attributes = attributes.bytes(OPTIONS, self.options);
        }
        if let Some(stab) = self.stab {
            attributes = attributes.bytes(STAB, stab);
        }
        let mut body = header(self.device, self.handle, self.parent, 0);
        body.extend(attributes.finish());
        body
    }
}

/// Finds out whether the kernel knows a kind of qdisc, by a request that always fails and changes nothing: a root for the
/// loopback device with an empty size table. The kernel refuses an unknown kind with `ENOENT`, and a known one because of
/// the size table.
pub fn ask_for_kind(socket: &mut Socket, kind: &str) -> Result<(), NetlinkError> {
    /// Index of the loopback device in every network namespace.
    const LOOPBACK: u32 = 1;
    const UNUSED: u32 = 0x7ffe_0000;
    let impossible = NewQdisc {
        device: LOOPBACK,
        parent: ROOT,
        handle: UNUSED,
        kind,
        options: &[],
        stab: Some(&[]),
    };
    socket.exchange(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, &impossible.encode())
}

/// Removes a qdisc with everything below it.
pub fn delete_qdisc(socket: &mut Socket, device: u32, handle: u32, parent: u32) -> Result<(), NetlinkError> {
    socket.request(RTM_DELQDISC, 0, &header(device, handle, parent, 0))
}

/// Makes a class, or changes it if it exists.
pub fn put_class(
    socket: &mut Socket,
    device: u32,
    parent: u32,
    id: u32,
    kind: &str,
    options: &[u8],
) -> Result<(), NetlinkError> {
    let mut body = header(device, id, parent, 0);
    body.extend(
        Builder::default()
            .text(KIND, kind)
            .bytes(OPTIONS, options)
            .finish(),
    );
    socket.request(RTM_NEWTCLASS, NLM_F_CREATE, &body)
}

/// A request to make a filter.
#[derive(Clone, Debug)]
pub struct NewFilter<'a> {
    /// Index of the device.
    pub device: u32,
    /// Handle of the qdisc or class that it is on.
    pub parent: u32,
    /// Filters with a lower preference are tried first.
    pub preference: u16,
    /// `ETH_P_*`.
    pub protocol: u16,
    /// Its handle; with 0 the kernel chooses one.
    pub handle: u32,
    /// Its kind.
    pub kind: &'a str,
    /// Its encoded options.
    pub options: &'a [u8],
}

impl NewFilter<'_> {
    /// Makes the filter; one with the same handle is an error.
    pub fn create(&self, socket: &mut Socket) -> Result<(), NetlinkError> {
        socket.request(RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_EXCL, &self.encode())
    }

    /// The body of the message.
    pub(super) fn encode(&self) -> Vec<u8> {
        let info = filter_info(self.preference, self.protocol);
        let mut body = header(self.device, self.handle, self.parent, info);
        body.extend(
            Builder::default()
                .text(KIND, self.kind)
                .bytes(OPTIONS, self.options)
                .finish(),
        );
        body
    }
}

/// Removes the filters with this preference.
pub fn delete_filters(
    socket: &mut Socket,
    device: u32,
    parent: u32,
    preference: u16,
    protocol: u16,
) -> Result<(), NetlinkError> {
    let info = filter_info(preference, protocol);
    socket.request(RTM_DELTFILTER, 0, &header(device, 0, parent, info))
}

/// Removes this one of the listed filters. Others with its preference stay; if there are none, the hash tables go with it.
pub fn delete_filter(socket: &mut Socket, filter: &Entry, listed: &[Entry]) -> Result<(), NetlinkError> {
    let others = listed.iter().filter(|other| other.info == filter.info).count();
    if others <= 1 {
        let (preference, protocol) = (filter.preference(), filter.protocol());
        return delete_filters(socket, filter.device, filter.parent, preference, protocol);
    }
    let mut body = header(filter.device, filter.handle, filter.parent, filter.info);
    body.extend(Builder::default().text(KIND, &filter.kind()).finish());
    socket.request(RTM_DELTFILTER, 0, &body)
}

/// Preference in the upper 16 bits, protocol in network byte order in the lower.
fn filter_info(preference: u16, protocol: u16) -> u32 {
    u32::from(preference) << 16 | u32::from(protocol.to_be())
}

/// `struct tcmsg`: family and padding, then device, handle, parent, info.
fn header(device: u32, handle: u32, parent: u32, info: u32) -> Vec<u8> {
    let mut body = vec![0; 4];
    for word in [device, handle, parent, info] {
        body.extend_from_slice(&word.to_ne_bytes());
    }
    body
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_qdisc_reads_back() {
        let new = NewQdisc {
            device: 3,
            parent: ROOT,
            handle: 0x1_0000,
            kind: "htb",
            options: &[8, 0, 2, 0, 1, 0, 0, 0],
            stab: Some(&[4, 0, 1, 0]),
        };
        let entry = decode_entry(&new.encode()).unwrap();
        assert_eq!((entry.device, entry.parent, entry.handle), (3, ROOT, 0x1_0000));
        assert_eq!(
            (entry.kind().as_str(), entry.options(), entry.stab()),
            ("htb", new.options, new.stab)
        );
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..96)) {
            if let Some(entry) = decode_entry(&bytes) {
                let _ = (entry.kind(), entry.options().len(), entry.statistics().len(), entry.has_shared_block());
            }
        }
    }
}

//! A netlink socket: one request at a time, each answered before the next is sent.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use netlink_sys::protocols::{NETLINK_GENERIC, NETLINK_NETFILTER, NETLINK_ROUTE};
use rustix::net::RecvFlags;

use super::attribute::{Attributes, i32_at, u16_at, u32_at};
use crate::fault;

/// Length of `struct nlmsghdr`, bytes.
const HEADER: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSGERR_ATTR_MSG: u16 = 1;
const NLMSGERR_ATTR_OFFS: u16 = 2;
/// Messages around a batch (`NFNL_MSG_BATCH_BEGIN`, `NFNL_MSG_BATCH_END`).
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;

/// The message is a request.
pub const NLM_F_REQUEST: u16 = 0x01;
/// The kernel shall acknowledge the request.
pub const NLM_F_ACK: u16 = 0x04;
/// The kernel shall list all objects.
pub const NLM_F_DUMP: u16 = 0x300;
/// In an answer: the list has changed while it was read.
pub const NLM_F_DUMP_INTR: u16 = 0x10;
/// Replace an existing object.
pub const NLM_F_REPLACE: u16 = 0x100;
/// Fail if the object exists.
pub const NLM_F_EXCL: u16 = 0x200;
/// Make the object if it does not exist.
pub const NLM_F_CREATE: u16 = 0x400;
/// Add the object at the end of the list.
pub const NLM_F_APPEND: u16 = 0x800;
/// In an acknowledgement: it does not repeat the request.
const NLM_F_CAPPED: u16 = 0x100;
/// In an acknowledgement: attributes with an explanation follow.
const NLM_F_ACK_TLVS: u16 = 0x200;

/// How often a list is read that keeps changing meanwhile; a choice.
const DUMP_ATTEMPTS: u32 = 8;

/// A message of a batch, which is one change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchMessage {
    /// Subsystem in the upper byte, message in the lower.
    pub kind: u16,
    /// `NLM_F_*`.
    pub flags: u16,
    /// Fixed header of the family, then attributes.
    pub body: Vec<u8>,
}

/// A netlink socket in the process's network namespace.
pub struct Socket {
    inner: netlink_sys::Socket,
    sequence: u32,
    /// Receives datagrams.
    buffer: Vec<u8>,
}

/// Room for a datagram, bytes. The kernel puts up to 32 KiB into a datagram of a list, and more only for a device with
/// hundreds of virtual functions. 1 MiB is a choice; memory that is not used is not touched.
const LONGEST: usize = 1 << 20;

/// Requests sent by this process.
static REQUESTS: AtomicU32 = AtomicU32::new(0);

/// Number of requests that this process has sent to the kernel; a batch counts as one.
pub fn requests() -> u32 {
    REQUESTS.load(Ordering::Relaxed)
}

/// The kernel's reason for refusing a request, or an error of the socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetlinkError {
    /// The positive error number.
    pub errno: i32,
    /// The kernel's explanation.
    pub message: Option<String>,
    /// Offset of the fault in the request, bytes.
    pub offset: Option<u32>,
}

/// A received message without its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// `RTM_*`.
    pub kind: u16,
    /// Fixed header of the family, then attributes.
    pub body: Vec<u8>,
}

impl Socket {
    /// Opens a socket for devices and queues (`NETLINK_ROUTE`); needs no privileges.
    pub fn open() -> io::Result<Self> {
        Self::of(NETLINK_ROUTE)
    }

    /// Opens a socket for the firewall (`NETLINK_NETFILTER`); needs no privileges.
    pub fn of_firewall() -> io::Result<Self> {
        Self::of(NETLINK_NETFILTER)
    }

    /// Opens a socket for driver features (`NETLINK_GENERIC`); needs no privileges.
    pub fn generic() -> io::Result<Self> {
        Self::of(NETLINK_GENERIC)
    }

    fn of(protocol: isize) -> io::Result<Self> {
        let mut inner = netlink_sys::Socket::new(protocol)?;
        inner.bind_auto()?;
        // Older kernels lack these options. Without them, the explanations of errors are shorter.
        let _ = inner.set_ext_ack(true);
        let _ = inner.set_cap_ack(true);
        let _ = inner.set_netlink_get_strict_chk(true);
        Ok(Self {
            inner,
            sequence: 0,
            buffer: Vec::with_capacity(LONGEST),
        })
    }

    /// Its port number. Events of what this socket has changed name it.
    pub fn port(&self) -> u32 {
        let mut address = netlink_sys::SocketAddr::new(0, 0);
        match self.inner.get_address(&mut address) {
            Ok(()) => address.port_number(),
            // The kernel's own port, which no event of a change names.
            Err(_) => 0,
        }
    }

    /// Sends a request that changes something, and waits for its acknowledgement.
    pub fn request(&mut self, kind: u16, flags: u16, body: &[u8]) -> Result<(), NetlinkError> {
        injected_fault()?;
        self.exchange(kind, flags, body)
    }

    /// Sends a request and waits for its acknowledgement.
    pub(crate) fn exchange(&mut self, kind: u16, flags: u16, body: &[u8]) -> Result<(), NetlinkError> {
        self.send(kind, flags | NLM_F_REQUEST | NLM_F_ACK, body)?;
        loop {
            for (header, body) in self.receive()? {
                if header.sequence == self.sequence && header.kind == NLMSG_ERROR {
                    return decode_acknowledgement(header.flags, &body);
                }
            }
        }
    }

    /// Sends messages to a subsystem of netfilter, which carries out all of them or none, and waits for the outcome.
    pub fn batch(&mut self, subsystem: u16, messages: &[BatchMessage]) -> Result<(), NetlinkError> {
        injected_fault()?;
        let first = self.sequence.wrapping_add(1);
        // struct nfgenmsg: no family, version 0, the subsystem in network byte order.
        let around = [&[0, 0], &subsystem.to_be_bytes()[..]].concat();
        let mut bytes = encode(BATCH_BEGIN, NLM_F_REQUEST, first, &around);
        for (n, BatchMessage { kind, flags, body }) in messages.iter().enumerate() {
            // Errors are always reported; the acknowledgement of the last message says that there was none.
            let acknowledge = if n + 1 == messages.len() { NLM_F_ACK } else { 0 };
            let sequence = first.wrapping_add(1 + n as u32);
            bytes.extend(encode(*kind, flags | NLM_F_REQUEST | acknowledge, sequence, body));
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        let last = first.wrapping_add(messages.len() as u32);
        self.sequence = last.wrapping_add(1);
        bytes.extend(encode(BATCH_END, NLM_F_REQUEST, self.sequence, &around));
        self.post(&bytes)?;
        loop {
            for (header, body) in self.receive()? {
                let ours = header.sequence.wrapping_sub(first) <= last.wrapping_sub(first);
                if !ours || header.kind != NLMSG_ERROR {
                    continue;
                }
                decode_acknowledgement(header.flags, &body)?;
                if header.sequence == last {
                    return Ok(());
                }
            }
        }
    }

    /// Reads the one object that the request names.
    pub fn get(&mut self, kind: u16, body: &[u8]) -> Result<Message, NetlinkError> {
        self.send(kind, NLM_F_REQUEST, body)?;
        loop {
            for (header, body) in self.receive()? {
                if header.sequence != self.sequence {
                    continue;
                }
                if header.kind == NLMSG_ERROR {
                    decode_acknowledgement(header.flags, &body)?;
                    continue;
                }
                return Ok(Message {
                    kind: header.kind,
                    body,
                });
            }
        }
    }

    /// Reads a list of objects. If it changes meanwhile, it is read again.
    pub fn dump(&mut self, kind: u16, body: &[u8]) -> Result<Vec<Message>, NetlinkError> {
        for _ in 0..DUMP_ATTEMPTS {
            if let Some(messages) = self.dump_once(kind, body)? {
                return Ok(messages);
            }
        }
        Err(NetlinkError {
            errno: rustix::io::Errno::BUSY.raw_os_error(),
            message: Some("the list kept changing while it was read".to_owned()),
            offset: None,
        })
    }

    /// `None` if the list has changed meanwhile.
    fn dump_once(&mut self, kind: u16, body: &[u8]) -> Result<Option<Vec<Message>>, NetlinkError> {
        self.send(kind, NLM_F_REQUEST | NLM_F_DUMP, body)?;
        let (mut messages, mut interrupted) = (Vec::new(), false);
        loop {
            for (header, body) in self.receive()? {
                if header.sequence != self.sequence {
                    continue;
                }
                interrupted |= header.flags & NLM_F_DUMP_INTR != 0;
                match header.kind {
                    NLMSG_ERROR => {
                        decode_acknowledgement(header.flags, &body)?;
                    }
                    NLMSG_DONE => {
                        // The payload is a negative error number if the list is incomplete.
                        return match i32_at(&body, 0).unwrap_or(0) {
                            0.. => Ok((!interrupted).then_some(messages)),
                            negative => Err(NetlinkError::from_errno(negative.saturating_neg())),
                        };
                    }
                    kind => messages.push(Message { kind, body }),
                }
            }
        }
    }

    fn send(&mut self, kind: u16, flags: u16, body: &[u8]) -> Result<(), NetlinkError> {
        self.sequence = self.sequence.wrapping_add(1);
        self.post(&encode(kind, flags, self.sequence, body))
    }

    fn post(&self, bytes: &[u8]) -> Result<(), NetlinkError> {
        REQUESTS.fetch_add(1, Ordering::Relaxed);
        self.inner.send(bytes, 0)?;
        Ok(())
    }

    fn receive(&mut self) -> Result<Vec<(Header, Vec<u8>)>, NetlinkError> {
        self.buffer.clear();
        let length = self
            .inner
            .recv(&mut self.buffer, RecvFlags::TRUNC.bits().cast_signed())?;
        if length > self.buffer.len() {
            return Err(rustix::io::Errno::MSGSIZE.into());
        }
        Ok(split(&self.buffer))
    }
}

impl NetlinkError {
    fn from_errno(errno: i32) -> Self {
        Self {
            errno,
            message: None,
            offset: None,
        }
    }

    /// True if the error number is this one.
    pub fn is(&self, errno: rustix::io::Errno) -> bool {
        self.errno == errno.raw_os_error()
    }
}

impl From<io::Error> for NetlinkError {
    fn from(error: io::Error) -> Self {
        Self::from_errno(error.raw_os_error().unwrap_or(0))
    }
}

impl From<rustix::io::Errno> for NetlinkError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::from_errno(errno.raw_os_error())
    }
}

impl fmt::Display for NetlinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", io::Error::from_raw_os_error(self.errno))?;
        if let Some(message) = &self.message {
            write!(f, ": {message}")?;
        }
        match self.offset {
            Some(offset) => write!(f, " (at byte {offset} of the request)"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for NetlinkError {}

/// Fields of `struct nlmsghdr`.
#[derive(Clone, Copy, Debug)]
struct Header {
    kind: u16,
    flags: u16,
    sequence: u32,
    port: u32,
}

/// The error that `SQM_FAULT` asks for at this change, if it does.
fn injected_fault() -> Result<(), NetlinkError> {
    if !fault::is_due() {
        return Ok(());
    }
    Err(NetlinkError {
        errno: rustix::io::Errno::IO.raw_os_error(),
        message: Some(format!("{} asked for it", fault::VARIABLE)),
        offset: None,
    })
}

fn encode(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&flags.to_ne_bytes());
    bytes.extend_from_slice(&sequence.to_ne_bytes());
    bytes.extend_from_slice(&0u32.to_ne_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// The messages of a datagram, each with the port of the socket that caused it.
pub(super) fn messages(bytes: &[u8]) -> Vec<(u32, Message)> {
    split(bytes)
        .into_iter()
        .map(|(Header { kind, port, .. }, body)| (port, Message { kind, body }))
        .collect()
}

/// The messages of a datagram, with their headers.
fn split(mut bytes: &[u8]) -> Vec<(Header, Vec<u8>)> {
    let mut messages = Vec::new();
    while let (Some(length), Some(kind), Some(flags), Some(sequence), Some(port)) = (
        u32_at(bytes, 0),
        u16_at(bytes, 4),
        u16_at(bytes, 6),
        u32_at(bytes, 8),
        u32_at(bytes, 12),
    ) {
        let length = length as usize;
        let Some(body) = bytes.get(HEADER..length) else {
            break;
        };
        messages.push((
            Header {
                kind,
                flags,
                sequence,
                port,
            },
            body.to_vec(),
        ));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    messages
}

/// Decodes the body of an `NLMSG_ERROR` message (`struct nlmsgerr`); error number 0 is success.
pub fn decode_acknowledgement(flags: u16, body: &[u8]) -> Result<(), NetlinkError> {
    let errno = i32_at(body, 0).unwrap_or(0).saturating_neg();
    if errno == 0 {
        return Ok(());
    }
    // The error number comes first, then the header of the request, then the rest of the request unless it is capped.
    let request = u32_at(body, 4).map_or(0, |length| length as usize);
    let skipped = 4 + if flags & NLM_F_CAPPED != 0 {
        HEADER
    } else {
        request.next_multiple_of(4)
    };
    let explanation = match body.get(skipped..) {
        Some(bytes) if flags & NLM_F_ACK_TLVS != 0 => Attributes(bytes),
        _ => Attributes(&[]),
    };
    Err(NetlinkError {
        errno,
        message: explanation.text(NLMSGERR_ATTR_MSG),
        offset: explanation.u32(NLMSGERR_ATTR_OFFS),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::attribute::Builder;
    use super::*;

    #[test]
    fn the_explanation_in_a_capped_acknowledgement_is_read() {
        let mut body = (-2i32).to_ne_bytes().to_vec();
        body.extend_from_slice(&[0; HEADER]);
        body.extend(
            Builder::default()
                .text(1, "Specified qdisc kind is unknown")
                .u32(2, 36)
                .finish(),
        );
        let error = decode_acknowledgement(NLM_F_CAPPED | NLM_F_ACK_TLVS, &body).unwrap_err();
        assert_eq!(
            error.to_string(),
            "No such file or directory (os error 2): Specified qdisc kind is unknown (at byte 36 of the request)"
        );
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(flags: u16, bytes in proptest::collection::vec(any::<u8>(), 0..96)) {
            let _ = decode_acknowledgement(flags, &bytes);
            split(&bytes);
        }

        #[test]
        fn a_message_is_split_as_it_was_encoded(kind: u16, flags: u16, body in proptest::collection::vec(any::<u8>(), 0..96)) {
            let read = split(&encode(kind, flags, 9, &body));
            prop_assert_eq!(read.len(), 1);
            prop_assert_eq!(read[0].0.kind, kind);
            prop_assert_eq!(&read[0].1, &body);
        }
    }
}

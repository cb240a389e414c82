//! Events that the kernel multicasts: devices, queues and firewall rules that appear, change and go.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE};

use super::attribute::i32_at;
use super::link::{Link, decode_link};
use super::socket::{Message, Socket, messages};

/// Multicast groups of `linux/rtnetlink.h` and `linux/netfilter/nfnetlink.h`.
const RTNLGRP_LINK: u32 = 1;
const RTNLGRP_TC: u32 = 4;
const NFNLGRP_NFTABLES: u32 = 7;

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
/// `RTM_NEWQDISC` to `RTM_GETTFILTER`: qdiscs, classes and filters.
const RTM_TC: std::ops::RangeInclusive<u16> = 36..=46;
/// Address family of messages about the device itself. Messages of other families are about a role of the device, such
/// as a bridge's port.
const AF_UNSPEC: u8 = 0;

/// Receive buffer of a socket, bytes. The kernel's default (212992, `net.core.rmem_default`) holds some hundred messages;
/// five times as much, a choice, holds a burst of events while the reader is busy with something else.
const BUFFER: u32 = 1 << 20;
/// Datagrams read at a time, so that a flood of events cannot keep the reader from its other work; a choice.
const MAX_READS: usize = 256;

/// Something that happened in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelEvent {
    /// A device was made or has changed.
    LinkChanged(Link),
    /// The device of this index was removed.
    LinkRemoved(u32),
    /// Qdiscs, classes or filters of the device of this index have changed.
    QdiscsChanged(u32),
    /// A firewall rule or table has changed.
    FirewallChanged,
    /// The kernel has dropped events: anything may have changed.
    EventsLost,
}

/// Receives the events of the process's network namespace.
pub struct KernelMonitor {
    route: netlink_sys::Socket,
    firewall: Option<netlink_sys::Socket>,
    /// Port of the socket whose changes of queues are not reported.
    ignored: Option<u32>,
}

impl KernelMonitor {
    /// Starts to listen. There are no firewall events if the process has no `CAP_NET_ADMIN`, or the kernel no nftables.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            route: listening(NETLINK_ROUTE, &[RTNLGRP_LINK, RTNLGRP_TC])?,
            firewall: listening(NETLINK_NETFILTER, &[NFNLGRP_NFTABLES]).ok(),
            ignored: None,
        })
    }

    /// From now on, reports no changes of queues that were made through this socket.
    pub fn ignore(&mut self, own: &Socket) {
        self.ignored = Some(own.port());
    }

    /// The descriptors that become readable when an event is there.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(&self.route)
            .chain(&self.firewall)
            .map(AsFd::as_fd)
    }

    /// Reads the events since the last call, in order; does not wait. In a flood of events, the rest is left for the next call.
    pub fn read(&self) -> io::Result<Vec<KernelEvent>> {
        let mut events = Vec::new();
        drain(&self.route, &mut events, |port, message| {
            let is_ignored = self.ignored == Some(port) && RTM_TC.contains(&message.kind);
            if is_ignored { None } else { decode(message) }
        })?;
        if let Some(firewall) = &self.firewall {
            drain(firewall, &mut events, |_, _| Some(KernelEvent::FirewallChanged))?;
        }
        // A firewall is loaded rule by rule: one event is enough.
        events.dedup();
        Ok(events)
    }
}

fn listening(protocol: isize, groups: &[u32]) -> io::Result<netlink_sys::Socket> {
    let mut socket = netlink_sys::Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.set_non_blocking(true)?;
    // With a smaller buffer events are lost sooner; `EventsLost` then reports it.
    let _ = socket.set_rx_buf_sz(BUFFER);
    groups
        .iter()
        .try_for_each(|group| socket.add_membership(*group))?;
    Ok(socket)
}

fn drain(
    socket: &netlink_sys::Socket,
    events: &mut Vec<KernelEvent>,
    decode: impl Fn(u32, &Message) -> Option<KernelEvent>,
) -> io::Result<()> {
    for _ in 0..MAX_READS {
        match socket.recv_from_full() {
            Ok((bytes, _)) => {
                let received = messages(&bytes);
                events.extend(
                    received
                        .iter()
                        .filter_map(|(port, message)| decode(*port, message)),
                );
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => {
                events.push(KernelEvent::EventsLost);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Decodes a message of `NETLINK_ROUTE`. `None` if it is about something else.
pub fn decode(message: &Message) -> Option<KernelEvent> {
    let Message { kind, body } = message;
    match *kind {
        RTM_NEWLINK => decode_link(body).map(KernelEvent::LinkChanged),
        // In another family it reports the end of a role, not of the device.
        RTM_DELLINK if body.first() == Some(&AF_UNSPEC) => index(body).map(KernelEvent::LinkRemoved),
        kind if RTM_TC.contains(&kind) => index(body).map(KernelEvent::QdiscsChanged),
        _ => None,
    }
}

/// The device's index, which `struct ifinfomsg` and `struct tcmsg` have at the same offset.
fn index(body: &[u8]) -> Option<u32> {
    u32::try_from(i32_at(body, 4)?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::attribute::Builder;
    use super::*;

    fn body(family: u8, index: i32) -> Vec<u8> {
        let mut body = vec![family, 0, 1, 0];
        body.extend(index.to_ne_bytes());
        body.extend([0; 8]);
        body
    }

    #[test]
    fn messages_become_events() {
        let event = |kind, body| decode(&Message { kind, body });
        let named = [body(0, 3), Builder::default().text(3, "eth0").finish()].concat();
        assert!(
            matches!(event(RTM_NEWLINK, named), Some(KernelEvent::LinkChanged(link)) if link.name == "eth0")
        );
        assert_eq!(event(RTM_DELLINK, body(0, 3)), Some(KernelEvent::LinkRemoved(3)));
        // A device that leaves a bridge.
        assert_eq!(event(RTM_DELLINK, body(7, 3)), None);
        assert_eq!(event(36, body(0, 4)), Some(KernelEvent::QdiscsChanged(4)));
        assert_eq!(event(20, body(0, 4)), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(kind in 0..64_u16, bytes in proptest::collection::vec(any::<u8>(), 0..96)) {
            let _ = decode(&Message { kind, body: bytes });
        }
    }
}

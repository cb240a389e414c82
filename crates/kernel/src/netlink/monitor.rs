//! What the kernel tells unasked: devices, queues and firewall rules that come, change and go.

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
const RTM_TRAFFIC: std::ops::RangeInclusive<u16> = 36..=46;
/// Messages of other families are about a role of the device (a bridge's port), not about the device.
const AF_UNSPEC: u8 = 0;

/// So many bytes of news may wait, so that a storm of them is read and not lost.
const BUFFER: u32 = 1 << 20;
/// So many messages are read at a time, so that a storm cannot keep the reader from everything else.
const MOST_READS: usize = 256;

/// One piece of news.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A device is new or has changed, or something else about it was told.
    Device(Link),
    /// The device of this number is gone.
    Gone(u32),
    /// Qdiscs, classes or filters of the device of this number.
    Queues(u32),
    /// Some rule or table of the firewall.
    Firewall,
    /// Some were lost: anything may have changed.
    Lost,
}

/// Listens in the process's network namespace.
pub struct Monitor {
    route: netlink_sys::Socket,
    firewall: Option<netlink_sys::Socket>,
    /// Changes of queues by the socket of this number are no news.
    own: Option<u32>,
}

impl Monitor {
    /// Begins to listen. Without the privilege, or the kernel's part, news of the firewall is missing.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            route: listening(NETLINK_ROUTE, &[RTNLGRP_LINK, RTNLGRP_TC])?,
            firewall: listening(NETLINK_NETFILTER, &[NFNLGRP_NFTABLES]).ok(),
            own: None,
        })
    }

    /// What this socket changes in queues is no news from now on: whoever has it knows.
    pub fn ignore(&mut self, own: &Socket) {
        self.own = Some(own.port());
    }

    /// What to wait on.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(&self.route)
            .chain(&self.firewall)
            .map(AsFd::as_fd)
    }

    /// All that has come since, in order, up to some hundreds; does not wait.
    pub fn read(&self) -> io::Result<Vec<News>> {
        let mut news = Vec::new();
        drain(&self.route, &mut news, |port, message| {
            let is_own = self.own == Some(port) && RTM_TRAFFIC.contains(&message.kind);
            if is_own { None } else { decode(message) }
        })?;
        if let Some(firewall) = &self.firewall {
            drain(firewall, &mut news, |_, _| Some(News::Firewall))?;
        }
        // Firewalls are loaded rule by rule.
        news.dedup();
        Ok(news)
    }
}

fn listening(protocol: isize, groups: &[u32]) -> io::Result<netlink_sys::Socket> {
    let mut socket = netlink_sys::Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.set_non_blocking(true)?;
    // The default holds some hundred messages; what is lost all the same is told.
    let _ = socket.set_rx_buf_sz(BUFFER);
    groups
        .iter()
        .try_for_each(|group| socket.add_membership(*group))?;
    Ok(socket)
}

fn drain(
    socket: &netlink_sys::Socket,
    news: &mut Vec<News>,
    decode: impl Fn(u32, &Message) -> Option<News>,
) -> io::Result<()> {
    for _ in 0..MOST_READS {
        match socket.recv_from_full() {
            Ok((bytes, _)) => {
                let told = messages(&bytes);
                news.extend(told.iter().filter_map(|(port, message)| decode(*port, message)));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => {
                news.push(News::Lost);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// One message of `NETLINK_ROUTE`.
pub fn decode(message: &Message) -> Option<News> {
    let Message { kind, body } = message;
    match *kind {
        RTM_NEWLINK => decode_link(body).map(News::Device),
        // A message of another family tells the end of the role.
        RTM_DELLINK if body.first() == Some(&AF_UNSPEC) => number(body, 4).map(News::Gone),
        // struct tcmsg has the device's number where struct ifinfomsg has it.
        kind if RTM_TRAFFIC.contains(&kind) => number(body, 4).map(News::Queues),
        _ => None,
    }
}

fn number(body: &[u8], at: usize) -> Option<u32> {
    u32::try_from(i32_at(body, at)?).ok()
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
    fn messages_become_news() {
        let told = |kind, body| decode(&Message { kind, body });
        let named = [body(0, 3), Builder::default().text(3, "eth0").finish()].concat();
        assert!(matches!(told(RTM_NEWLINK, named), Some(News::Device(link)) if link.name == "eth0"));
        assert_eq!(told(RTM_DELLINK, body(0, 3)), Some(News::Gone(3)));
        // A device that leaves a bridge.
        assert_eq!(told(RTM_DELLINK, body(7, 3)), None);
        assert_eq!(told(36, body(0, 4)), Some(News::Queues(4)));
        assert_eq!(told(20, body(0, 4)), None);
    }

    proptest! {
        #[test]
        fn any_bytes_end_without_a_panic(kind in 0..64_u16, bytes in proptest::collection::vec(any::<u8>(), 0..96)) {
            let _ = decode(&Message { kind, body: bytes });
        }
    }
}

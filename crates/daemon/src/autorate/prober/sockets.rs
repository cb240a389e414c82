//! A pair of sockets, one for each IP version, bound to one device.

use std::net::SocketAddr;

use rustix::event::{PollFd, PollFlags};
use rustix::net::{RecvFlags, recvfrom};
use socket2::{Domain, Protocol, Socket, Type};
use sqm_core::units::{Instant, Nanos};

/// The shortest time between two attempts to open the sockets; a choice.
const REOPEN_INTERVAL: Nanos = Nanos::from_millis(1000);

/// The sockets for one protocol.
pub(super) struct Sockets {
    kind: Kind,
    device: Option<String>,
    /// The socket for IPv4 and the one for IPv6.
    pair: [Option<Socket>; 2],
    /// Why neither could be opened.
    error: Option<String>,
    opened_at: Option<Instant>,
}

/// The protocol of a pair of sockets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Icmp,
    Udp,
}

impl Kind {
    /// Its name in the status.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Icmp => "icmp",
            Self::Udp => "udp",
        }
    }
}

impl Sockets {
    /// Opens no socket yet: [`Self::send`] does.
    pub(super) const fn new(kind: Kind, device: Option<String>) -> Self {
        Self {
            kind,
            device,
            pair: [None, None],
            error: None,
            opened_at: None,
        }
    }

    pub(super) const fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns `true` if the message was sent.
    pub(super) fn send(&mut self, to: SocketAddr, message: &[u8], now: Instant) -> bool {
        self.open(now);
        let Some(socket) = &self.pair[usize::from(to.is_ipv6())] else {
            return false;
        };
        let Err(error) = socket.send_to(message, &to.into()) else {
            return true;
        };
        // Most errors, such as no route, concern this destination alone. If the device is gone, the sockets must be opened again.
        if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) {
            self.pair = [None, None];
        }
        false
    }

    /// The open sockets, to be polled.
    pub(super) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let open = self.pair.iter().flatten();
        open.map(|socket| PollFd::new(socket, PollFlags::IN))
    }

    /// The next message that has arrived over one IP version: its length and its sender.
    pub(super) fn receive(&self, v6: bool, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
        let socket = self.pair[usize::from(v6)].as_ref()?;
        loop {
            let (length, _, from) = recvfrom(socket, &mut *buffer, RecvFlags::empty()).ok()?;
            if let Some(Ok(from)) = from.map(SocketAddr::try_from) {
                return Some((length, from));
            }
        }
    }

    /// Why no message can be sent.
    pub(super) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    fn open(&mut self, now: Instant) {
        let is_early = self.opened_at.is_some_and(|at| now.since(at) < REOPEN_INTERVAL);
        if is_early || self.pair.iter().any(Option::is_some) {
            return;
        }
        self.opened_at = Some(now);
        let opened = [Domain::IPV4, Domain::IPV6].map(|domain| self.opened(domain));
        // One IP version is enough.
        self.error = match &opened {
            [Err(error), Err(_)] => Some(error.to_string()),
            _ => None,
        };
        self.pair = opened.map(Result::ok);
    }

    fn opened(&self, domain: Domain) -> std::io::Result<Socket> {
        let (kind, protocol) = match (self.kind, domain) {
            (Kind::Udp, _) => (Type::DGRAM, Protocol::UDP),
            (Kind::Icmp, Domain::IPV6) => (Type::RAW, Protocol::ICMPV6),
            (Kind::Icmp, _) => (Type::RAW, Protocol::ICMPV4),
        };
        let socket = Socket::new(domain, kind, Some(protocol))?;
        socket.set_nonblocking(true)?;
        if let Some(device) = &self.device {
            socket.bind_device(Some(device.as_bytes()))?;
        }
        Ok(socket)
    }
}

//! ICMP echo requests as probes, where the system permits them.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use rustix::rand::{GetRandomFlags, getrandom};
use socket2::{Domain, Protocol, Socket, Type};

use super::socket::{Answer, ProbeSocket, Received};
use crate::icmp::IcmpEcho;
use crate::socket;

/// A series of ICMP echo requests.
pub(crate) struct Icmp {
    socket: Socket,
    v6: bool,
    /// Identifies our requests by their payload: on an unprivileged socket the kernel rewrites the identifier.
    cookie: [u8; 8],
    /// Length of a request without the IP header, bytes.
    length: usize,
}

impl Icmp {
    /// Sets the length of the packets, bytes with the IP header.
    pub(crate) fn of_size(mut self, bytes: usize) -> Self {
        self.length = bytes - if self.v6 { 40 } else { 20 };
        self
    }

    /// Fails if neither an unprivileged socket (`net.ipv4.ping_group_range`) nor a raw socket is permitted.
    pub(crate) fn open(host: IpAddr, dscp: u8) -> io::Result<Self> {
        let host = host.to_canonical();
        let (domain, protocol) = match host {
            IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
            IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
        };
        let socket = Socket::new(domain, Type::DGRAM, Some(protocol))
            .or_else(|_| Socket::new(domain, Type::RAW, Some(protocol)))?;
        socket.connect(&SocketAddr::new(host, 0).into())?;
        socket::set_dscp(&socket, SocketAddr::new(host, 0), dscp)?;
        let mut cookie = [0; 8];
        getrandom(&mut cookie, GetRandomFlags::empty())?;
        Ok(Self {
            socket,
            v6: host.is_ipv6(),
            cookie,
            length: IcmpEcho::USUAL,
        })
    }
}

impl ProbeSocket for Icmp {
    fn send(&mut self, sequence: u32) -> io::Result<()> {
        let echo = IcmpEcho {
            sequence: sequence as u16,
            cookie: self.cookie,
            number: sequence,
        };
        self.socket.send(&echo.request(self.v6, self.length)).map(drop)
    }

    fn receive(&mut self, deadline: Instant) -> Received {
        if !socket::wait_readable(&self.socket, deadline).unwrap_or(false) {
            return Received::TimedOut;
        }
        let mut buffer = [MaybeUninit::uninit(); 2048];
        let Ok((message, _)) =
            rustix::net::recv(&self.socket, &mut buffer[..], rustix::net::RecvFlags::empty())
        else {
            return Received::Ignored;
        };
        let at = Instant::now();
        match IcmpEcho::parse_reply(message.0, self.v6) {
            Some(echo) if echo.cookie == self.cookie => Received::Answer(Answer {
                sequence: echo.number,
                at,
                tos: None,
                echo: None,
            }),
            _ => Received::Ignored,
        }
    }
}

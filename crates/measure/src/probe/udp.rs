//! UDP probes that `sqm serve` echoes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Instant;

use super::socket::{Answer, ProbeSocket, Received};
use crate::datagram::Datagrams;
use crate::protocol::{Echo, Probe, Token};
use crate::socket;

/// One series of UDP probes.
pub(crate) struct Udp {
    datagrams: Datagrams,
    token: Token,
    series: u16,
    tos: u8,
    payload: Vec<u8>,
}

impl Udp {
    /// `length` is that of the payload in bytes. It is raised or lowered to what the protocol allows.
    pub(crate) fn open(
        server: SocketAddr,
        token: Token,
        series: u16,
        dscp: u8,
        length: usize,
    ) -> io::Result<Self> {
        let any: IpAddr = match server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(server)?;
        socket::set_dscp(&socket, socket.local_addr()?, dscp)?;
        Ok(Self {
            datagrams: Datagrams::new(socket)?,
            token,
            series,
            tos: dscp << 2,
            payload: vec![0; length.clamp(Probe::LENGTH, Probe::MAX_LENGTH)],
        })
    }
}

impl ProbeSocket for Udp {
    fn send(&mut self, sequence: u32) -> io::Result<()> {
        let probe = Probe {
            token: self.token,
            series: self.series,
            tos: self.tos,
            sequence,
            echo: Echo::default(),
        };
        self.payload[..Probe::LENGTH].copy_from_slice(&probe.encode());
        self.datagrams.send(&self.payload)
    }

    fn receive(&mut self, deadline: Instant) -> Received {
        if !socket::wait_readable(&self.datagrams, deadline).unwrap_or(false) {
            return Received::TimedOut;
        }
        let mut buffer = [0; Probe::MAX_LENGTH];
        // An error is an ICMP message about an earlier probe, which then counts as lost.
        let Ok(arrival) = self.datagrams.receive(&mut buffer) else {
            return Received::Ignored;
        };
        match Probe::decode(&buffer[..arrival.length]) {
            Some(probe) if probe.token == self.token && probe.series == self.series => {
                Received::Answer(Answer {
                    sequence: probe.sequence,
                    at: arrival.at,
                    tos: arrival.tos,
                    echo: Some(probe.echo),
                })
            }
            _ => Received::Ignored,
        }
    }
}

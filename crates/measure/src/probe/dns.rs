//! DNS queries as probes: almost every network has a name server nearby that answers UDP.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Instant;

use rustix::rand::{GetRandomFlags, getrandom};

use super::socket::{Answer, ProbeSocket, Received};
use crate::datagram::Datagrams;
use crate::socket;

/// Size of the receive buffer, bytes. Only the first bytes of an answer are used.
const BUFFER: usize = 512;
/// A query for the A record of the root (RFC 1035, section 4.1). The root has none, so that the answer is short.
const QUESTION: [u8; 17] = [0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1];
/// The QR bit in the third byte: set in an answer.
const RESPONSE: u8 = 0x80;

/// A series of queries. Any answer counts, also a refusal.
pub(crate) struct Dns {
    datagrams: Datagrams,
    /// Mixed into the identifiers, so that an answer cannot be forged without seeing the query.
    key: u16,
    newest: u32,
}

impl Dns {
    pub(crate) fn open(server: SocketAddr) -> io::Result<Self> {
        let any: IpAddr = match server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(server)?;
        let mut key = [0; 2];
        getrandom(&mut key, GetRandomFlags::empty())?;
        Ok(Self {
            datagrams: Datagrams::new(socket)?,
            key: u16::from_ne_bytes(key),
            newest: 0,
        })
    }

    /// The number of the newest probe with the identifier of this message.
    fn sequence(&self, message: &[u8]) -> Option<u32> {
        let (&[high, low, flags], _) = message.split_first_chunk()?;
        let low = u16::from_be_bytes([high, low]) ^ self.key;
        let back = (self.newest as u16).wrapping_sub(low);
        let sequence = self.newest.checked_sub(u32::from(back))?;
        (flags & RESPONSE != 0).then_some(sequence)
    }
}

impl ProbeSocket for Dns {
    fn send(&mut self, sequence: u32) -> io::Result<()> {
        self.newest = sequence;
        let mut question = QUESTION;
        question[..2].copy_from_slice(&(sequence as u16 ^ self.key).to_be_bytes());
        self.datagrams.send(&question)
    }

    fn receive(&mut self, deadline: Instant) -> Received {
        if !socket::wait_readable(&self.datagrams, deadline).unwrap_or(false) {
            return Received::TimedOut;
        }
        let mut buffer = [0; BUFFER];
        let Ok(arrival) = self.datagrams.receive(&mut buffer) else {
            return Received::Ignored;
        };
        match self.sequence(&buffer[..arrival.length]) {
            Some(sequence) => Received::Answer(Answer {
                sequence,
                at: arrival.at,
                tos: arrival.tos,
                echo: None,
            }),
            None => Received::Ignored,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_belongs_to_the_query_with_its_identifier() {
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut dns = Dns::open(server.local_addr().unwrap()).unwrap();
        for sequence in [0, 1, 65_535, 65_536, 70_000] {
            dns.send(sequence).unwrap();
            let mut message = [0; 64];
            let (length, _) = server.recv_from(&mut message).unwrap();
            assert_eq!(length, QUESTION.len());
            assert_eq!(dns.sequence(&message[..length]), None, "a query is not an answer");
            message[2] |= RESPONSE;
            assert_eq!(dns.sequence(&message[..length]), Some(sequence));
            assert_eq!(dns.sequence(&message[..2]), None);
        }
    }
}

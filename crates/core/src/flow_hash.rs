//! Keyed hashes of flows and hosts: SipHash-1-3 (Aumasson and Bernstein 2012, with the reduced rounds that Linux's
//! `hsiphash` uses for the same purpose), so that nobody outside can aim his packets at another's queue.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::packet::{Addresses, Hashes, Tuple};

/// The secret of one queue's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashKey(pub u64, pub u64);

impl HashKey {
    /// All three hashes of a tuple; none of them is 0 for an IP packet.
    #[inline]
    pub fn hashes(&self, tuple: &Tuple) -> Hashes {
        Hashes {
            flow: self.flow(tuple),
            source: self.source(&tuple.addresses),
            destination: self.destination(&tuple.addresses),
        }
    }

    /// Over the whole tuple; 0 if it is not IP. An IPv6 flow label stands for the ports where there is one.
    #[inline(always)]
    pub fn flow(&self, tuple: &Tuple) -> u32 {
        let ports = match tuple.flow_label {
            0 => u64::from(tuple.source_port) << 16 | u64::from(tuple.destination_port),
            _ => 0,
        };
        let transport = u64::from(tuple.protocol) << 52 | u64::from(tuple.flow_label) << 32 | ports;
        match tuple.addresses {
            Addresses::V4 { source, destination } => {
                let addresses = u64::from(u32::from(source)) << 32 | u64::from(u32::from(destination));
                self.sip(&[addresses, transport])
            }
            Addresses::V6 { source, destination } => {
                let (source, destination) = (u128::from(source), u128::from(destination));
                self.sip(&[
                    (source >> 64) as u64,
                    source as u64,
                    (destination >> 64) as u64,
                    destination as u64,
                    transport,
                ])
            }
            Addresses::None => 0,
        }
    }

    /// Over the source address; 0 without IP. One address hashes alike on both sides.
    #[inline(always)]
    pub fn source(&self, addresses: &Addresses) -> u32 {
        match *addresses {
            Addresses::V4 { source, .. } => self.host_v4(source),
            Addresses::V6 { source, .. } => self.host_v6(source),
            Addresses::None => 0,
        }
    }

    /// Over the destination address; 0 without IP.
    #[inline(always)]
    pub fn destination(&self, addresses: &Addresses) -> u32 {
        match *addresses {
            Addresses::V4 { destination, .. } => self.host_v4(destination),
            Addresses::V6 { destination, .. } => self.host_v6(destination),
            Addresses::None => 0,
        }
    }

    #[inline(always)]
    fn host_v4(&self, address: Ipv4Addr) -> u32 {
        self.sip(&[u64::from(u32::from(address))])
    }

    #[inline]
    fn host_v6(&self, address: Ipv6Addr) -> u32 {
        let bits = u128::from(address);
        self.sip(&[(bits >> 64) as u64, bits as u64])
    }

    /// SipHash-1-3 of whole words, folded to 32 bits that are never 0.
    ///
    /// SipHash's last block, the length, is left out: it tells inputs of different lengths apart, and every length here
    /// is of a kind of its own (one word: an IPv4 host; two: an IPv4 flow or an IPv6 host; five: an IPv6 flow) whose
    /// hashes need not differ from another kind's.
    #[inline(always)]
    fn sip<const WORDS: usize>(&self, words: &[u64; WORDS]) -> u32 {
        let mut state = [
            self.0 ^ 0x736f_6d65_7073_6575,
            self.1 ^ 0x646f_7261_6e64_6f6d,
            self.0 ^ 0x6c79_6765_6e65_7261,
            self.1 ^ 0x7465_6462_7974_6573,
        ];
        for word in words {
            state[3] ^= word;
            round(&mut state);
            state[0] ^= word;
        }
        state[2] ^= 0xff;
        for _ in 0..3 {
            round(&mut state);
        }
        let hash = state[0] ^ state[1] ^ state[2] ^ state[3];
        let folded = (hash >> 32) as u32 ^ hash as u32;
        folded.max(1)
    }
}

#[inline]
const fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(port: u16) -> Tuple {
        Tuple {
            addresses: Addresses::V4 {
                source: Ipv4Addr::new(10, 0, 0, 2),
                destination: Ipv4Addr::new(198, 18, 0, 1),
            },
            protocol: 6,
            source_port: port,
            destination_port: 443,
            flow_label: 0,
        }
    }

    #[test]
    fn one_port_makes_another_flow_and_the_same_hosts() {
        let key = HashKey(1, 2);
        let (a, b) = (key.hashes(&tuple(1024)), key.hashes(&tuple(1025)));
        assert_ne!(a.flow, b.flow);
        assert_eq!((a.source, a.destination), (b.source, b.destination));
        assert_ne!(a.source, a.destination);
    }

    #[test]
    fn a_flow_label_stands_for_the_ports() {
        let labelled = |port, flow_label| Tuple {
            flow_label,
            ..tuple(port)
        };
        let key = HashKey(1, 2);
        assert_eq!(key.flow(&labelled(1024, 7)), key.flow(&labelled(0, 7)));
        assert_ne!(key.flow(&labelled(1024, 7)), key.flow(&labelled(1024, 8)));
    }

    #[test]
    fn another_key_gives_other_hashes() {
        assert_ne!(HashKey(1, 2).flow(&tuple(1)), HashKey(1, 3).flow(&tuple(1)));
    }
}

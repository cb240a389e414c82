//! Keyed hashes of flows and hosts, so that a remote sender cannot aim its packets at another flow's queue.
//!
//! Folded multiplication, as in wyhash and foldhash: both factors are covered by secret words, and both halves of the
//! product count. It is no cryptographic function, and need not be one: a hash is never sent, so that a remote sender
//! learns no more of it than how long its packets wait. Within one pass the hosts come first and the flow is made of them, because
//! CAKE asks for all three.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::flow::{Addresses, Hashes, Tuple};
use crate::narrow::{low_u32, low_u64};

/// The secret of one queue's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashKey(pub u64, pub u64);

/// Fraction digits of π, so that no key leaves a factor uncovered.
const COVERS: [u64; 4] = [
    0x243f_6a88_85a3_08d3,
    0x1319_8a2e_0370_7344,
    0xa409_3822_299f_31d0,
    0x082e_fa98_ec4e_6c89,
];

impl HashKey {
    /// All three hashes of a tuple; none of them is 0 for an IP packet. An IPv6 flow label stands for the ports where
    /// there is one, and one address hashes alike on both sides.
    #[inline(always)]
    pub fn hashes(&self, tuple: &Tuple) -> Hashes {
        let Some((source, destination)) = self.hosts(&tuple.addresses) else {
            return Hashes::default();
        };
        Hashes {
            flow: folded(self.connection(source, destination, tuple)),
            source: folded(source),
            destination: folded(destination),
        }
    }

    /// Over the whole tuple; 0 if it is not IP.
    #[inline]
    pub fn flow(&self, tuple: &Tuple) -> u32 {
        self.hashes(tuple).flow
    }

    #[inline]
    fn hosts(&self, addresses: &Addresses) -> Option<(u64, u64)> {
        match *addresses {
            Addresses::V4 { source, destination } => Some((self.host_v4(source), self.host_v4(destination))),
            Addresses::V6 { source, destination } => Some((self.host_v6(source), self.host_v6(destination))),
            Addresses::None => None,
        }
    }

    #[inline]
    fn host_v4(&self, address: Ipv4Addr) -> u64 {
        self.host(u64::from(u32::from(address)), 0)
    }

    #[inline]
    fn host_v6(&self, address: Ipv6Addr) -> u64 {
        let bits = u128::from(address);
        self.host(low_u64(bits), low_u64(bits >> 64))
    }

    #[inline]
    const fn host(&self, low: u64, high: u64) -> u64 {
        self.stirred(multiplied(low ^ self.0 ^ COVERS[0], high ^ self.1 ^ COVERS[1]))
    }

    #[inline]
    fn connection(&self, source: u64, destination: u64, tuple: &Tuple) -> u64 {
        let ports = match tuple.flow_label {
            0 => u64::from(tuple.source_port) << 16 | u64::from(tuple.destination_port),
            _ => 0,
        };
        let transport = u64::from(tuple.protocol) << 52 | u64::from(tuple.flow_label) << 32 | ports;
        self.stirred(multiplied(source ^ transport, destination ^ self.1 ^ COVERS[2]))
    }

    /// Addresses and ports often are rows of neighbours, which one multiplication leaves in a row.
    #[inline]
    const fn stirred(&self, once: u64) -> u64 {
        multiplied(once, self.0 ^ COVERS[3])
    }
}

/// The product's halves, laid over each other.
#[inline]
const fn multiplied(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    low_u64(product >> 64) ^ low_u64(product)
}

/// 32 bits that are never 0.
#[inline]
const fn folded(hash: u64) -> u32 {
    let folded = low_u32(hash >> 32) ^ low_u32(hash);
    if folded == 0 { 1 } else { folded }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Xorshift;

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
    fn a_flow_label_replaces_the_ports() {
        let labelled = |port, flow_label| Tuple {
            flow_label,
            ..tuple(port)
        };
        let key = HashKey(1, 2);
        assert_eq!(key.flow(&labelled(1024, 7)), key.flow(&labelled(0, 7)));
        assert_ne!(key.flow(&labelled(1024, 7)), key.flow(&labelled(1024, 8)));
    }

    /// How many of 1024 queues 1024 flows of a row fall into, in the worst of many keys: chance gives 647, give or take
    /// ten, whichever bits choose the queue.
    #[test]
    fn neighbours_spread_like_chance() {
        let v6 = |high: u64, low: u64| Addresses::V6 {
            source: Ipv6Addr::from(u128::from(high) << 64 | u128::from(low)),
            destination: Ipv6Addr::LOCALHOST,
        };
        let v4 = |source: u32, destination: u32| Addresses::V4 {
            source: Ipv4Addr::from(source),
            destination: Ipv4Addr::from(destination),
        };
        let at = |addresses| Tuple {
            addresses,
            ..tuple(1024)
        };
        let row: [&dyn Fn(u32) -> Tuple; 8] = [
            &|n| tuple(n as u16),
            &|n| tuple((1024 + 7919 * n % 60_000) as u16),
            &|n| Tuple {
                destination_port: n as u16,
                ..tuple(9)
            },
            &|n| Tuple {
                flow_label: 1 + n,
                ..at(v6(1, 2))
            },
            &|n| at(v4(0x0a00_0000 + n, 7)),
            &|n| at(v4(7, 0xc612_0000 + 256 * n)),
            &|n| at(v6(0x2001_0db8 << 32, n.into())),
            &|n| at(v6(0x2001_0db8 << 32 | u64::from(n), 1)),
        ];
        let used = |row: &dyn Fn(u32) -> Tuple, key: HashKey, queue: &dyn Fn(&Hashes) -> u32| {
            let mut used = [false; 1024];
            for n in 0..1024 {
                used[queue(&key.hashes(&row(n))) as usize] = true;
            }
            used.into_iter().filter(|used| *used).count()
        };
        let mut random = Xorshift::new(1);
        for _ in 0..200 {
            let key = HashKey(random.next_u64(), random.next_u64());
            for (number, row) in row.into_iter().enumerate() {
                let low = used(row, key, &|hashes| hashes.flow % 1024);
                let high = used(row, key, &|hashes| hashes.flow >> 22);
                assert!(low.min(high) > 590, "row {number}, {key:?}: {low} {high}");
            }
            for row in [row[4], row[6], row[7]] {
                let hosts = used(row, key, &|hashes| hashes.source % 1024);
                assert!(hosts > 590, "hosts, {key:?}: {hosts}");
            }
        }
    }

    #[test]
    fn another_key_gives_other_hashes() {
        assert_ne!(HashKey(1, 2).flow(&tuple(1)), HashKey(1, 3).flow(&tuple(1)));
    }
}

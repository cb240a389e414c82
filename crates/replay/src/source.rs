//! Selects the packets of a capture that go into the queue, and counts those that do not.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::pcap::{Error, LinkNumber, Reader};
use serde::Serialize;
use sqm_core::frame::{Frame, LinkType};
use sqm_core::packet::{Addresses, FlowKey, Packet, View};
use sqm_core::units::Instant;

/// A packet that is at most this much earlier than the packet before it in the file counts as out of order, nanoseconds. Captures of several
/// hardware queues are slightly out of order. A larger step means that the clock was set back. Our choice.
const MOST_DISORDER_NANOS: u64 = 100_000_000;

/// The longest packet, in bytes: the kernel joins segments up to 512 KiB.
const MOST_LENGTH: u32 = 1 << 20;

/// The latest arrival, in the year 2079: 36 years before CAKE's clock stops, so that packets have time to leave.
const LATEST: Instant = Instant((1 << 62) - (1 << 60));

/// A packet at its arrival.
pub(super) struct Arrival {
    pub(super) number: u64,
    pub(super) time: Instant,
    pub(super) link: LinkNumber,
    pub(super) frame: Frame<Box<[u8]>>,
    pub(super) view: View,
}

/// The numbers of packets that did not go into the queue, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Skipped {
    /// Not selected by address.
    pub(super) other_direction: u64,
    /// With a length of 0.
    pub(super) zero_length: u64,
    /// Without a time in the file.
    pub(super) without_time: u64,
    /// Much earlier than the packet before it in the file.
    pub(super) backwards_in_time: u64,
    /// With an unsupported link type.
    pub(super) unknown_link_type: u64,
}

/// Reads the packets of a capture.
pub(super) struct Source<R> {
    reader: Reader<R>,
    direction: Direction,
    last: Option<Instant>,
    number: u64,
    pub(super) skipped: Skipped,
    /// The number of packets slightly earlier than the one before them, which arrive at the later time instead.
    pub(super) reordered: u64,
    /// A link type that was skipped.
    pub(super) unknown_link: Option<LinkNumber>,
}

impl<R: Read> Source<R> {
    pub(super) fn new(stream: R, direction: Direction) -> Result<Self, Error> {
        Ok(Self {
            reader: Reader::new(stream)?,
            direction,
            last: None,
            number: 0,
            skipped: Skipped::default(),
            reordered: 0,
            unknown_link: None,
        })
    }

    /// The number of packets that have been read.
    pub(super) const fn read(&self) -> u64 {
        self.number
    }

    /// The number of bytes that have been read.
    pub(super) const fn position(&self) -> u64 {
        self.reader.position()
    }

    /// The next packet for the queue; `None` at the end of the file.
    pub(super) fn next_arrival(&mut self) -> Result<Option<Arrival>, Error> {
        loop {
            let at = self.reader.position();
            let Some(record) = self.reader.next_packet()? else {
                return Ok(None);
            };
            self.number += 1;
            let (link, length) = (record.link, record.length);
            if length > MOST_LENGTH {
                let what = format!("a packet of {length} bytes, more than the limit of {MOST_LENGTH}");
                return Err(Error::Damaged { at, what });
            }
            if record.time.is_some_and(|time| time > LATEST) {
                let what = "a packet with a time after the year 2079".to_owned();
                return Err(Error::Damaged { at, what });
            }
            let Some(kind) = link.link() else {
                self.skipped.unknown_link_type += 1;
                self.unknown_link = Some(link);
                continue;
            };
            if length == 0 {
                self.skipped.zero_length += 1;
                continue;
            }
            let Some(mut time) = record.time else {
                self.skipped.without_time += 1;
                continue;
            };
            let frame = Frame::new(kind, Box::<[u8]>::from(record.bytes), length);
            let view = frame.view();
            if !self.direction.includes(&view) {
                self.skipped.other_direction += 1;
                continue;
            }
            if let Some(last) = self.last.filter(|last| time < *last) {
                if last.since(time).0 > MOST_DISORDER_NANOS {
                    self.skipped.backwards_in_time += 1;
                    continue;
                }
                self.reordered += 1;
                time = last;
            }
            self.last = Some(time);
            return Ok(Some(Arrival {
                number: self.number,
                time,
                link,
                frame,
                view,
            }));
        }
    }
}

/// The length of a link header, in bytes, which a device's MTU does not include.
pub(super) const fn header_length(link: LinkType) -> u32 {
    match link {
        LinkType::Ethernet => 14,
        LinkType::LinuxSll => 16,
        LinkType::LinuxSll2 => 20,
        LinkType::Raw | LinkType::Ppp | LinkType::Null => 0,
    }
}

/// Selects the packets of a capture by address.
#[derive(Clone, Debug, Default)]
pub struct Direction {
    /// If there are any, the source address must be in one of these blocks.
    pub from: Vec<Prefix>,
    /// If there are any, the destination address must be in one of these blocks.
    pub to: Vec<Prefix>,
}

impl Direction {
    pub(super) const fn is_open(&self) -> bool {
        self.from.is_empty() && self.to.is_empty()
    }

    fn includes(&self, view: &View) -> bool {
        let FlowKey::Tuple(tuple) = view.key else {
            return true;
        };
        let (source, destination): (IpAddr, IpAddr) = match tuple.addresses {
            Addresses::V4 { source, destination } => (source.into(), destination.into()),
            Addresses::V6 { source, destination } => (source.into(), destination.into()),
            Addresses::None => return self.is_open(),
        };
        let within = |prefixes: &[Prefix], address| {
            prefixes.is_empty() || prefixes.iter().any(|prefix| prefix.contains(address))
        };
        within(&self.from, source) && within(&self.to, destination)
    }
}

/// A block of addresses, `192.168.0.0/16` or `2001:db8::/32`; an address alone is a block of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    length: u32,
}

impl Prefix {
    fn contains(self, address: IpAddr) -> bool {
        let differs = |a: u128, b: u128, bits: u32| (a ^ b).checked_shr(bits - self.length).unwrap_or(0) != 0;
        match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => !differs(u32::from(a).into(), u32::from(b).into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => !differs(a.into(), b.into(), 128),
            _ => false,
        }
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, length) = text
            .split_once('/')
            .map_or((text, None), |(address, length)| (address, Some(length)));
        let address: IpAddr = address
            .parse()
            .map_err(|_| "not an address, such as 192.168.0.0/16 or 2001:db8::/32".to_owned())?;
        let most = match address {
            IpAddr::V4(_) => Ipv4Addr::BITS,
            IpAddr::V6(_) => Ipv6Addr::BITS,
        };
        let length = match length {
            None => most,
            Some(length) => length
                .parse()
                .ok()
                .filter(|length| *length <= most)
                .ok_or_else(|| format!("the prefix length of this address must be from 0 to {most}"))?,
        };
        Ok(Self { address, length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_hold_their_addresses() {
        for (prefix, inside, outside) in [
            ("192.168.0.0/16", "192.168.255.1", "192.169.0.1"),
            ("10.0.0.1", "10.0.0.1", "10.0.0.2"),
            ("0.0.0.0/0", "203.0.113.1", "2001:db8::1"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::1"),
            ("::/0", "::1", "10.0.0.1"),
        ] {
            let prefix: Prefix = prefix.parse().unwrap();
            assert!(prefix.contains(inside.parse().unwrap()), "{prefix:?}");
            assert!(!prefix.contains(outside.parse().unwrap()), "{prefix:?}");
        }
        for text in ["", "lan", "10.0.0.0/33", "::/129", "10.0.0.0/-1", "10.0.0.0/"] {
            assert!(Prefix::from_str(text).is_err(), "{text}");
        }
    }
}

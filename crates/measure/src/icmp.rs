//! ICMP echo messages. Pure.

/// An ICMP or ICMPv6 echo message (RFC 792, RFC 4443).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpEcho {
    /// The low 16 bits of the probe's number.
    pub sequence: u16,
    /// The first bytes of the payload, which identify the sender.
    pub cookie: [u8; 8],
    /// The probe's number, from the payload.
    pub number: u32,
}

impl IcmpEcho {
    const HEAD: usize = 8;
    /// The shortest message with cookie and number.
    const LEAST: usize = Self::HEAD + 12;
    /// The length that `ping` sends.
    pub const USUAL: usize = Self::HEAD + 56;

    /// An echo request of `length` bytes without the IP header. It is longer if cookie and number need more.
    pub fn request(&self, v6: bool, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length.max(Self::LEAST)];
        bytes[0] = if v6 { 128 } else { 8 };
        bytes[4..6].copy_from_slice(&self.cookie[..2]);
        bytes[6..8].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie);
        bytes[16..20].copy_from_slice(&self.number.to_be_bytes());
        // The kernel fills in the checksum of ICMPv6, and that of ICMP on an unprivileged socket.
        if !v6 {
            let sum = checksum(&bytes).to_be_bytes();
            bytes[2..4].copy_from_slice(&sum);
        }
        bytes
    }

    /// Parses an echo reply. On a raw IPv4 socket the IP header comes first. Never panics.
    pub fn parse_reply(bytes: &[u8], v6: bool) -> Option<Self> {
        let message = if v6 { bytes } else { without_header(bytes)? };
        let reply = if v6 { 129 } else { 0 };
        if message.get(..2)? != [reply, 0] {
            return None;
        }
        Some(Self {
            sequence: u16::from_be_bytes(*message.get(6..)?.first_chunk()?),
            cookie: *message.get(Self::HEAD..)?.first_chunk()?,
            number: u32::from_be_bytes(*message.get(Self::HEAD + 8..)?.first_chunk()?),
        })
    }
}

/// An ICMP timestamp reply (RFC 792): when the request arrived and when the reply left, by the other clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpTimestamp {
    /// Identifier of the request.
    pub identifier: u16,
    /// Sequence number of the request.
    pub sequence: u16,
    /// When the request arrived: milliseconds since midnight UT, or of another clock. Only differences are meaningful.
    pub received_ms: u32,
    /// When the reply left, by the same clock.
    pub sent_ms: u32,
}

impl IcmpTimestamp {
    const LENGTH: usize = 20;

    /// A timestamp request, without our own time.
    pub fn request(identifier: u16, sequence: u16) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[0] = 13;
        bytes[4..6].copy_from_slice(&identifier.to_be_bytes());
        bytes[6..8].copy_from_slice(&sequence.to_be_bytes());
        let sum = checksum(&bytes).to_be_bytes();
        bytes[2..4].copy_from_slice(&sum);
        bytes
    }

    /// Parses a timestamp reply. On a raw socket the IP header comes first. Never panics.
    pub fn parse_reply(bytes: &[u8]) -> Option<Self> {
        let message = without_header(bytes)?;
        if message.get(..2)? != [14, 0] {
            return None;
        }
        let half = |at: usize| Some(u16::from_be_bytes(*message.get(at..)?.first_chunk()?));
        let word = |at: usize| Some(u32::from_be_bytes(*message.get(at..)?.first_chunk()?));
        Some(Self {
            identifier: half(4)?,
            sequence: half(6)?,
            received_ms: word(12)?,
            sent_ms: word(16)?,
        })
    }
}

/// The message without the IPv4 header that a raw socket includes.
fn without_header(bytes: &[u8]) -> Option<&[u8]> {
    match bytes.first()? {
        first if first >> 4 == 4 => bytes.get(usize::from(first & 0xf) * 4..),
        _ => Some(bytes),
    }
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| {
        let low = pair.get(1).copied().unwrap_or(0);
        u32::from(u16::from_be_bytes([pair[0], low]))
    });
    let sum: u32 = words.sum();
    let folded = (sum >> 16) + (sum & 0xffff);
    !((folded >> 16) as u16).wrapping_add(folded as u16)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_timestamp_reply_parses_with_and_without_its_ip_header() {
        let mut reply = IcmpTimestamp::request(7, 9);
        assert_eq!(IcmpTimestamp::parse_reply(&reply), None);
        reply[0] = 14;
        reply[12..20].copy_from_slice(&[0, 0, 1, 0, 0, 0, 1, 1]);
        let expected = IcmpTimestamp {
            identifier: 7,
            sequence: 9,
            received_ms: 256,
            sent_ms: 257,
        };
        assert_eq!(IcmpTimestamp::parse_reply(&reply), Some(expected));
        let packet = [&[0x45; 20][..], &reply].concat();
        assert_eq!(IcmpTimestamp::parse_reply(&packet), Some(expected));
        assert_eq!(IcmpTimestamp::parse_reply(&packet[..30]), None);
    }

    #[test]
    fn an_echo_reply_parses_with_and_without_its_ip_header() {
        let echo = IcmpEcho {
            sequence: 7,
            cookie: *b"a cookie",
            number: 0x1_0007,
        };
        for v6 in [false, true] {
            let mut reply = echo.request(v6, IcmpEcho::USUAL);
            reply[0] = if v6 { 129 } else { 0 };
            assert_eq!(IcmpEcho::parse_reply(&reply, v6), Some(echo));
            assert_eq!(
                IcmpEcho::parse_reply(&echo.request(v6, IcmpEcho::USUAL), v6),
                None
            );
        }
        let mut reply = echo.request(false, IcmpEcho::USUAL);
        reply[0] = 0;
        let packet = [&[0x46; 24][..], &reply].concat();
        assert_eq!(IcmpEcho::parse_reply(&packet, false), Some(echo));
    }

    #[test]
    fn the_checksum_of_a_message_with_its_checksum_is_zero() {
        let echo = IcmpEcho {
            sequence: 0xffff,
            cookie: [0xff; 8],
            number: u32::MAX,
        };
        assert_eq!(checksum(&echo.request(false, IcmpEcho::USUAL)), 0);
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100), v6: bool) {
            let _ = IcmpEcho::parse_reply(&bytes, v6);
        }
    }
}

//! CAKE's ACK filter: an acknowledgement that a later one in the same queue makes redundant is dropped.
//!
//! It runs once per arrival, before the arrival is appended, and drops one packet at most. What it asks of a queued
//! packet again and again is read from its bytes once, at arrival.
//!
//! Kept from Linux: IPv6 extension headers hide a segment from the filter; the ECN field of the dropped packet's IP
//! header is not looked at. Repaired: later fragments of a datagram are no TCP headers
//! ([`ack_filter_fragments`](crate::profile::Profile::ack_filter_fragments)).

use crate::packet::{Packet, Tcp, Tuple};

const FIN: u16 = 0x001;
const SYN: u16 = 0x002;
const RST: u16 = 0x004;
const PSH: u16 = 0x008;
const ACK: u16 = 0x010;
const URG: u16 = 0x020;
const ECE: u16 = 0x040;
const CWR: u16 = 0x080;
const RESERVED: u16 = 0xf00;

/// Option kinds (IANA, "TCP Option Kind Numbers").
const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const SACK: u8 = 5;
const TIMESTAMP: u8 = 8;
const MD5: u8 = 19;

/// The facts that the filter keeps about a queued packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary {
    /// Both ports, to tell most other connections quickly.
    ports: u32,
    /// Keyed hash of the connection; 0 if it is not known.
    connection: u32,
    ack: u32,
    /// Zeros if there are none, which is how they are compared, too.
    stamps: Stamps,
    ecn: u8,
    /// A segment with ACK and without SYN, data or not: it may replace acknowledgements.
    acknowledges: bool,
    /// It has SACK blocks.
    sacks: bool,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Not yet read: it came while the filter was off.
    Unread,
    /// Not a TCP segment.
    Other,
    /// A segment that must stay.
    Stays,
    /// A pure acknowledgement that says no more than its number.
    Plain,
    /// As `Plain`, with time stamps.
    Stamped,
    /// As `Stamped`, with SACK blocks or several time stamps, which must be read again.
    Complex,
}

/// TSval and TSecr (RFC 7323).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stamps {
    value: u32,
    echo: u32,
}

impl Stamps {
    /// True if either is later than in `newer`.
    const fn exceed(self, newer: Self) -> bool {
        after(self.value, newer.value) || after(self.echo, newer.echo)
    }
}

impl Summary {
    /// The summary of a packet that the filter has not seen.
    pub(crate) const UNREAD: Self = Self {
        ports: 0,
        connection: 0,
        ack: 0,
        stamps: Stamps { value: 0, echo: 0 },
        ecn: 0,
        acknowledges: false,
        sacks: false,
        kind: Kind::Unread,
    };

    /// Reads a packet. `connection` is a keyed hash of its addresses and ports, 0 if there is none; `fragments`: later
    /// fragments count as headers.
    #[inline]
    pub(crate) fn of(packet: &impl Packet, connection: u32, fragments: bool) -> Self {
        let Some(tcp) = segment(packet, fragments) else {
            return Self {
                kind: Kind::Other,
                ..Self::UNREAD
            };
        };
        let options = Options::read(tcp.options);
        let kind = if tcp.payload > 0
            || tcp.flags & (ACK | RESERVED | URG | PSH | RST | SYN | FIN) != ACK
            || options.unknown
        {
            Kind::Stays
        } else if options.sack || options.stamps > 1 {
            Kind::Complex
        } else if options.stamps == 1 {
            Kind::Stamped
        } else {
            Kind::Plain
        };
        Self {
            ports: ports(&tcp.tuple),
            connection,
            sacks: options.sack,
            ack: tcp.ack,
            stamps: options.stamp,
            ecn: (tcp.flags & (ECE | CWR)) as u8,
            acknowledges: tcp.flags & (ACK | SYN) == ACK,
            kind,
        }
    }
}

/// The place of the packet in `queue`, from head to tail, that becomes redundant when `newest` joins it.
///
/// The filter leaves one redundant packet; if `aggressive`, it also removes the one directly before `newest`.
#[inline]
pub(crate) fn redundant<'q, P: Packet + 'q, C: Copy>(
    queue: impl Iterator<Item = (C, &'q P, &'q Summary)>,
    (newest_packet, newest): (&P, &Summary),
    aggressive: bool,
    fragments: bool,
) -> Option<C> {
    if !newest.acknowledges {
        return None;
    }
    let mut eligible: Option<(C, u8)> = None;
    let mut last_is_eligible = false;
    for (place, packet, summary) in queue {
        last_is_eligible = false;
        // Mostly data, which matters only to an acknowledgement already chosen.
        if eligible.is_none() && matches!(summary.kind, Kind::Other | Kind::Stays) {
            continue;
        }
        let read_now;
        let old = match summary.kind {
            Kind::Unread => {
                read_now = Summary::of(packet, 0, fragments);
                &read_now
            }
            _ => summary,
        };
        if old.kind == Kind::Other || old.ports != newest.ports {
            continue;
        }
        let other_signal = eligible.is_some_and(|(_, ecn)| ecn != old.ecn);
        let covered = is_covered(old, newest);
        if !other_signal && !covered {
            continue;
        }
        let bytes = || Some((segment(packet, fragments)?, segment(newest_packet, fragments)?));
        let known_alike = old.connection != 0 && old.connection == newest.connection;
        if !known_alike && !bytes().is_some_and(|(old, new)| old.tuple.addresses == new.tuple.addresses) {
            continue;
        }
        if other_signal {
            eligible = None;
        }
        if !covered {
            continue;
        }
        let redundant = if old.kind == Kind::Complex {
            bytes().is_some_and(|(old, new)| is_redundant(&old, &new))
        } else {
            newest.sacks || old.ack != newest.ack
        };
        if !redundant {
            continue;
        }
        match eligible {
            Some((place, _)) => return Some(place),
            None => eligible = Some((place, old.ecn)),
        }
        last_is_eligible = true;
    }
    let (place, ecn) = eligible?;
    (aggressive && last_is_eligible && ecn == newest.ecn).then_some(place)
}

/// Decides by the summaries alone: true if `old` is a bare acknowledgement of nothing that `newest` does not acknowledge.
const fn is_covered(old: &Summary, newest: &Summary) -> bool {
    match old.kind {
        Kind::Plain | Kind::Complex => !after(old.ack, newest.ack),
        Kind::Stamped => !after(old.ack, newest.ack) && !old.stamps.exceed(newest.stamps),
        Kind::Unread | Kind::Other | Kind::Stays => false,
    }
}

/// True if `new` says all that the SACK blocks and time stamps of `old` do. Duplicate acknowledgements stay, because they
/// count as such.
fn is_redundant(old: &Tcp<'_>, new: &Tcp<'_>) -> bool {
    let newest = Options::read(new.options).stamp;
    let late = |(kind, body): (u8, &[u8])| stamp_in(kind, body).is_some_and(|stamps| stamps.exceed(newest));
    if options(old.options).any(late) {
        return false;
    }
    match compare_sacks(old, new) {
        Sacks::OldSaysMore => false,
        Sacks::Equal => old.ack != new.ack,
        Sacks::NewSaysMore => true,
    }
}

enum Sacks {
    OldSaysMore,
    Equal,
    NewSaysMore,
}

/// True if `new` selectively acknowledges all that `old` does. A block below the acknowledgement number reports a
/// duplicate (RFC 2883), which nothing else says again.
fn compare_sacks(old: &Tcp<'_>, new: &Tcp<'_>) -> Sacks {
    let (old_body, new_body) = (sack_in(old.options), sack_in(new.options));
    let (old_body, new_body) = match (old_body, new_body) {
        (Some(_), None) => return Sacks::OldSaysMore,
        (None, Some(_)) => return Sacks::NewSaysMore,
        (None, None) => return Sacks::Equal,
        (Some(old), Some(new)) => (old, new),
    };
    let (mut old_bytes, mut new_bytes) = (0_u64, 0_u64);
    for (start, end) in blocks(new_body) {
        new_bytes += u64::from(end.wrapping_sub(start));
    }
    for (start, end) in blocks(old_body) {
        if after(old.ack, start) {
            return Sacks::OldSaysMore;
        }
        old_bytes += u64::from(end.wrapping_sub(start));
        let covers = |(new_start, new_end)| !after(new_start, start) && !after(end, new_end);
        if !blocks(new_body).any(covers) {
            return Sacks::OldSaysMore;
        }
    }
    if new_bytes > old_bytes {
        Sacks::NewSaysMore
    } else {
        Sacks::Equal
    }
}

/// The blocks of a SACK option (RFC 2018).
fn blocks(body: &[u8]) -> impl Iterator<Item = (u32, u32)> {
    body.chunks_exact(8)
        .map(|block| (word(&block[..4]), word(&block[4..])))
}

fn sack_in(bytes: &[u8]) -> Option<&[u8]> {
    options(bytes)
        .find(|(kind, body)| *kind == SACK && is_sack(body))
        .map(|(_, body)| body)
}

const fn is_sack(body: &[u8]) -> bool {
    body.len().is_multiple_of(8)
}

#[inline]
fn stamp_in(kind: u8, body: &[u8]) -> Option<Stamps> {
    (kind == TIMESTAMP && body.len() == 8).then(|| Stamps {
        value: word(&body[..4]),
        echo: word(&body[4..]),
    })
}

/// The result of one walk over the options.
struct Options {
    /// The first well-formed time stamps; zeros if there are none.
    stamp: Stamps,
    stamps: u32,
    sack: bool,
    /// One that the filter does not know, or not in this form.
    unknown: bool,
}

impl Options {
    #[inline]
    fn read(bytes: &[u8]) -> Self {
        // The layout that RFC 7323 (appendix A) recommends, and nearly all segments have.
        if let [NO_OPERATION, NO_OPERATION, TIMESTAMP, 10, body @ ..] = bytes
            && let Some(stamp) = stamp_in(TIMESTAMP, body)
        {
            return Self {
                stamp,
                stamps: 1,
                sack: false,
                unknown: false,
            };
        }
        Self::walk(bytes)
    }

    fn walk(bytes: &[u8]) -> Self {
        let mut read = Self {
            stamp: Stamps::default(),
            stamps: 0,
            sack: false,
            unknown: false,
        };
        for (kind, body) in options(bytes) {
            match kind {
                MD5 => {}
                SACK if is_sack(body) => read.sack = true,
                _ => match stamp_in(kind, body) {
                    Some(stamp) => {
                        if read.stamps == 0 {
                            read.stamp = stamp;
                        }
                        read.stamps += 1;
                    }
                    None => read.unknown = true,
                },
            }
        }
        read
    }
}

/// The options with a length: kind and body. Ends at the end-of-list option and where the bytes make no sense.
fn options(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    core::iter::from_fn(move || {
        loop {
            match *bytes.first()? {
                END => return None,
                NO_OPERATION => bytes = &bytes[1..],
                kind => {
                    let length = usize::from(*bytes.get(1)?);
                    let body = bytes.get(2..length)?;
                    bytes = &bytes[length..];
                    return Some((kind, body));
                }
            }
        }
    })
}

#[inline]
fn segment<P: Packet>(packet: &P, fragments: bool) -> Option<Tcp<'_>> {
    packet.tcp().filter(|tcp| fragments || !tcp.later_fragment)
}

const fn ports(tuple: &Tuple) -> u32 {
    (tuple.source_port as u32) << 16 | tuple.destination_port as u32
}

/// True if `a` comes after `b` in the circle of sequence numbers (RFC 9293 §3.4).
const fn after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

#[inline]
fn word(bytes: &[u8]) -> u32 {
    match *bytes {
        [a, b, c, d] => u32::from_be_bytes([a, b, c, d]),
        _ => 0,
    }
}

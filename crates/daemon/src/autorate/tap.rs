//! Sees a few of the TCP packets that pass the device on their way to the line and back: behind the shaper of what leaves,
//! before that of what arrives, so that nothing of our own queues is in what [`flows`](super::flows) makes of them.
//!
//! The kernel picks them by bits of what they are known by when they come back, so that of each round trip both ends are picked or
//! neither, and a fast line costs no more than a slow one. One's own connections and forwarded ones look the same here; `TCP_INFO`
//! of one's own would contain the wait in our queue.

use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{ControlMessageOwned, LinkAddr, MsgFlags, bind, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use sqm_core::direction::PerDirection;
use sqm_core::units::{Instant, Rate};

use super::flows::Segment;
use crate::clock::monotonic;

/// `ETH_P_ALL` of `linux/if_ether.h`.
const ALL: u16 = 3;
/// `PACKET_OUTGOING` of `linux/if_packet.h`: what leaves.
const OUTGOING: u32 = 4;
/// So many a second, of what tells a direction's round trips apart, are enough: five of each connection that is followed. Of each,
/// several segments pass.
const ENOUGH: u64 = 40;
/// Bytes of a download between two acknowledgements of ours, each with a stamp, and the length of what is told apart of an upload.
const BETWEEN_STAMPS: u64 = 3000;
const BETWEEN_ENDS: u64 = 1 << SEGMENT_BITS;
/// Segments are nearly as long, so that the bits below differ little between those of one connection.
const SEGMENT_BITS: u32 = 11;
/// Stamps with one value in so many at least: of a host that counts milliseconds that is as often as a connection tells.
const FEWEST_STAMPS: u64 = 64;
/// So many are read at a time. What does not fit into the socket is not seen.
const MOST_READS: usize = 128;
const BUFFER: usize = 128 * 1024;
/// IPv4 with all options, and TCP up to its time stamps.
const SNAP: u32 = 60 + 32;
/// A time stamp of the kernel further back is from before the clock was set.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Open while somebody looks.
pub(super) struct Tap {
    /// Number of the device.
    device: u32,
    socket: Socket,
    /// Bits that must be zero.
    masks: Masks,
    control: Vec<u8>,
}

/// One way or the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Leaving,
    Arriving,
}

impl Tap {
    /// Of the device of this name and number.
    pub(super) fn open(name: &str, device: u32) -> io::Result<Self> {
        // One for both ways: each sees every packet, which costs as much as all the rest.
        let protocol = Protocol::from(i32::from(ALL.to_be()));
        let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol))?;
        socket.set_nonblocking(true)?;
        socket.set_recv_buffer_size(BUFFER)?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        let tap = Self {
            device,
            socket,
            masks: Masks::default(),
            control: nix::cmsg_space!(TimeSpec),
        };
        tap.filter()?;
        // PPP has none: there the filter sees what passes elsewhere, too, and refuses it.
        if let Some(address) = address(name)? {
            bind(tap.socket.as_raw_fd(), &address)?;
        }
        // Until there was a filter it heard everything, of all devices.
        while tap.socket.recv(&mut []).is_ok() {}
        Ok(tap)
    }

    /// Whether it is of the device with this number.
    pub(super) fn is_of(&self, device: u32) -> bool {
        self.device == device
    }

    /// Picks fewer or more, where so much passes.
    pub(super) fn expect(&mut self, loads: PerDirection<Rate>) -> io::Result<()> {
        let masks = Masks::of(loads);
        // Not to and fro: another filter only for four times or a quarter as many.
        let is_near = |mask: u32, old: u32| mask / 2 <= old && old / 2 <= mask;
        if is_near(masks.stamps, self.masks.stamps) && is_near(masks.ends, self.masks.ends) {
            return Ok(());
        }
        self.masks = masks;
        self.filter()
    }

    fn filter(&self) -> io::Result<()> {
        let filter = on_device(self.device).into_iter().chain(program(self.masks));
        self.socket.attach_filter(&filter.collect::<Vec<_>>())
    }

    /// What has passed since, when, and which way.
    pub(super) fn read(&mut self) -> Vec<(Instant, Way, Segment)> {
        let (now, clock) = (monotonic(), SystemTime::now());
        let mut seen = Vec::new();
        let mut buffer = [0; SNAP as usize];
        for _ in 0..MOST_READS {
            let mut slices = [IoSliceMut::new(&mut buffer)];
            let control = Some(&mut self.control[..]);
            let (socket, flags) = (self.socket.as_raw_fd(), MsgFlags::empty());
            let Ok(message) = recvmsg::<LinkAddr>(socket, &mut slices, control, flags) else {
                break;
            };
            let is_leaving = message
                .address
                .is_some_and(|of| u32::from(of.pkttype()) == OUTGOING);
            let way = if is_leaving { Way::Leaving } else { Way::Arriving };
            let (length, mut waited) = (message.bytes, Duration::ZERO);
            for control in message.cmsgs().into_iter().flatten() {
                if let ControlMessageOwned::ScmTimestampns(stamp) = control {
                    let stamp = UNIX_EPOCH + Duration::from(stamp);
                    waited = clock.duration_since(stamp).unwrap_or_default();
                }
            }
            if waited > LONGEST_WAIT {
                waited = Duration::ZERO;
            }
            let at = Instant(now.0.saturating_sub(waited.as_nanos() as u64));
            seen.extend(Segment::of(&mut buffer[..length], way).map(|segment| (at, way, segment)));
        }
        seen
    }
}

/// Bits of what segments are known by ([`super::flows`]) that are zero of those that are picked.
#[derive(Clone, Copy, Default)]
struct Masks {
    stamps: u32,
    /// From [`SEGMENT_BITS`] on.
    ends: u32,
}

impl Masks {
    /// Where so much passes.
    fn of(loads: PerDirection<Rate>) -> Self {
        let mask = |load: Rate, between: u64, most: u64| {
            let passing = load.bits_per_sec() / 8 / between;
            let share = (passing / ENOUGH).clamp(1, most).next_power_of_two();
            u32::try_from(share - 1).unwrap_or(u32::MAX)
        };
        Self {
            stamps: mask(loads.download, BETWEEN_STAMPS, FEWEST_STAMPS),
            ends: mask(loads.upload, BETWEEN_ENDS, 1 << 16),
        }
    }
}

/// Where a socket is bound to hear this device alone; none for a device without addresses of its kind.
fn address(device: &str) -> io::Result<Option<LinkAddr>> {
    let of_device = getifaddrs()?.filter(|one| one.interface_name == device);
    let mut addresses = of_device.filter_map(|one| one.address?.as_link_addr().copied());
    Ok(addresses.next())
}

// Of linux/bpf_common.h: class, size, mode.
const LOAD_WORD: u16 = 0x20;
const IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
/// Of linux/filter.h: what is known besides the bytes.
const BESIDES: u32 = 0u32.wrapping_sub(0x1000);

/// Beginning of a socket filter: what passes another device is refused.
fn on_device(device: u32) -> [SockFilter; 3] {
    const DEVICE: u32 = BESIDES + 8;
    [
        SockFilter::new(LOAD_WORD, 0, 0, DEVICE),
        SockFilter::new(IF_EQUAL, 1, 0, device),
        SockFilter::new(RETURN, 0, 0, 0),
    ]
}

/// Socket filter (classic BPF): TCP over IPv4 or IPv6 with the usual time stamps at the start of its options; and of these the ones
/// that are picked.
fn program(masks: Masks) -> [SockFilter; 45] {
    const LOAD_HALF: u16 = 0x28;
    const LOAD_BYTE: u16 = 0x30;
    const LOAD_WORD_AT_X: u16 = 0x40;
    const LOAD_BYTE_AT_X: u16 = 0x50;
    const LOAD_KEPT: u16 = 0x60;
    const KEEP: u16 = 0x02;
    const KEEP_X: u16 = 0x03;
    const X_IS: u16 = 0x01;
    const X_IS_A: u16 = 0x07;
    const X_IS_KEPT: u16 = 0x61;
    const X_IS_IPV4_HEADER: u16 = 0xb1;
    const AND: u16 = 0x54;
    const SHIFT_RIGHT: u16 = 0x74;
    const ADD_X: u16 = 0x0c;
    const SUBTRACT_X: u16 = 0x1c;
    const IF_ANY_BIT: u16 = 0x45;
    const SKIP: u16 = 0x05;
    const PACKET_TYPE: u32 = BESIDES + 4;
    const TCP: u32 = 6;
    // In TCP's header.
    const SEQUENCE: u32 = 4;
    const ACKNOWLEDGED: u32 = 8;
    const VALUE: u32 = 24;
    const ECHO: u32 = 28;
    // What is kept.
    const LENGTH: u32 = 0;
    const BEGIN: u32 = 1;
    const PAYLOAD: u32 = 2;
    const PICK: u8 = 43;
    const LEAVE: u8 = 44;
    let no = |code, value, at: u8| SockFilter::new(code, 0, LEAVE - at - 1, value);
    let then = |code, value| SockFilter::new(code, 0, 0, value);
    let pick = |mask, at: u8| SockFilter::new(IF_ANY_BIT, LEAVE - at - 1, PICK - at - 1, mask);
    let ends = masks.ends << SEGMENT_BITS;
    [
        then(LOAD_BYTE, 0),
        then(AND, 0xf0),
        SockFilter::new(IF_EQUAL, 0, 8, 0x40),
        // IPv4: no later fragment.
        then(LOAD_BYTE, 9),
        no(IF_EQUAL, TCP, 4),
        then(LOAD_HALF, 6),
        SockFilter::new(IF_ANY_BIT, LEAVE - 7, 0, 0x1fff),
        then(X_IS_IPV4_HEADER, 0),
        then(LOAD_HALF, 2),
        then(SUBTRACT_X, 0),
        then(SKIP, 5),
        // IPv6 without extension headers.
        no(IF_EQUAL, 0x60, 11),
        then(LOAD_BYTE, 6),
        no(IF_EQUAL, TCP, 13),
        then(X_IS, 40),
        then(LOAD_HALF, 4),
        // Either way X is where TCP begins, and A how long it is.
        then(KEEP, LENGTH),
        then(LOAD_WORD_AT_X, 20),
        no(IF_EQUAL, super::flows::USUAL_OPTIONS, 18),
        then(LOAD_BYTE_AT_X, 12),
        then(SHIFT_RIGHT, 2),
        then(AND, 0x3c),
        then(KEEP_X, BEGIN),
        then(X_IS_A, 0),
        then(LOAD_KEPT, LENGTH),
        then(SUBTRACT_X, 0),
        then(KEEP, PAYLOAD),
        then(X_IS_KEPT, BEGIN),
        SockFilter::new(IF_EQUAL, 8, 0, 0),
        // With data: what leaves by its end, what arrives by its echo.
        then(LOAD_WORD, PACKET_TYPE),
        SockFilter::new(IF_EQUAL, 0, 4, OUTGOING),
        then(LOAD_WORD_AT_X, SEQUENCE),
        then(X_IS_KEPT, PAYLOAD),
        then(ADD_X, 0),
        pick(ends, 34),
        then(LOAD_WORD_AT_X, ECHO),
        pick(masks.stamps, 36),
        // Without: by its stamp, and by what it acknowledges.
        then(LOAD_WORD, PACKET_TYPE),
        SockFilter::new(IF_EQUAL, 0, 2, OUTGOING),
        then(LOAD_WORD_AT_X, VALUE),
        pick(masks.stamps, 40),
        then(LOAD_WORD_AT_X, ACKNOWLEDGED),
        pick(ends, 42),
        then(RETURN, SNAP),
        then(RETURN, 0),
    ]
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::super::flows::tests::{over_ipv6, packet};
    use super::*;

    /// Whether the kernel picks what arrives like this.
    fn picks(masks: Masks, packet: &[u8]) -> bool {
        let (far, near) = UnixDatagram::pair().expect("a pair of sockets");
        let near = Socket::from(std::os::fd::OwnedFd::from(near));
        near.set_nonblocking(true).expect("a socket");
        near.attach_filter(&program(masks)).expect("a filter");
        // What a filter refuses is the sender's error here.
        far.send(packet).is_ok()
            && near
                .recv(&mut [const { std::mem::MaybeUninit::uninit() }; 99])
                .is_ok()
    }

    /// The same segment with four bytes of IP options.
    fn with_options(packet: &[u8]) -> Vec<u8> {
        let length = u16::from_be_bytes([packet[2], packet[3]]) + 4;
        let mut bytes = packet.to_vec();
        bytes[0] = 0x46;
        bytes[2..4].copy_from_slice(&length.to_be_bytes());
        bytes.splice(20..20, [0; 4]);
        bytes
    }

    #[test]
    fn of_each_round_trip_both_ends_are_picked_or_neither() {
        let masks = Masks { stamps: 3, ends: 3 };
        for n in 0..16 {
            let data = packet(true, [1, 1, 9, n], 1448);
            let ack = packet(true, [1, n << SEGMENT_BITS, 9, 1], 0);
            for segment in [data, ack] {
                for segment in [over_ipv6(&segment), with_options(&segment), segment] {
                    assert_eq!(picks(masks, &segment), n % 4 == 0, "{n}: {segment:?}");
                    assert!(picks(Masks::default(), &segment));
                }
            }
        }
    }

    #[test]
    fn nothing_else_is_picked() {
        let good = packet(true, [1, 1, 9, 9], 1448);
        let but = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            bytes
        };
        let udp = but(9, 17);
        let later_fragment = but(7, 1);
        let other_options = but(41, 2);
        let other_version = but(0, 0x55);
        for wrong in [
            udp,
            later_fragment,
            other_options,
            other_version,
            good[..30].to_vec(),
        ] {
            assert!(!picks(Masks::default(), &wrong), "{wrong:?}");
        }
    }
}

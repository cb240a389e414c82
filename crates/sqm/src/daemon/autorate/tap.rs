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
use sqm_core::autorate::Both;
use sqm_core::units::{Instant, Rate};

use super::flows::Segment;
use crate::daemon::monotonic;

/// `ETH_P_ALL` of `linux/if_ether.h`.
const ALL: u16 = 3;
/// So many segments a second each way are enough: ten of each connection that is followed.
const ENOUGH: u64 = 80;
/// Bytes of a download between two acknowledgements of ours, each with a stamp, and the length of what is told apart of an upload.
const BETWEEN_STAMPS: u64 = 3000;
const BETWEEN_ENDS: u64 = 1 << SEGMENT_BITS;
/// Segments are nearly as long, so that the bits below differ little between those of one connection.
const SEGMENT_BITS: u32 = 11;
/// Stamps with one value in so many at least: of a host that counts milliseconds that is as often as a connection tells.
const FEWEST_STAMPS: u64 = 64;
/// So many are read at a time. What does not fit into the socket is not seen.
const MOST_READS: usize = 64;
const BUFFER: usize = 64 * 1024;
/// IPv4 with all options, and TCP up to its time stamps.
const SNAP: u32 = 60 + 32;
/// A time stamp of the kernel further back is from before the clock was set.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Open while somebody looks.
pub(super) struct Tap {
    /// Number of the device.
    device: usize,
    leaving: Socket,
    arriving: Socket,
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
    /// Of the device of this name.
    pub(super) fn open(device: &str) -> io::Result<Self> {
        let address = address(device)?;
        let open = || -> io::Result<Socket> {
            let protocol = Protocol::from(i32::from(ALL.to_be()));
            let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol))?;
            socket.set_nonblocking(true)?;
            socket.set_recv_buffer_size(BUFFER)?;
            setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
            Ok(socket)
        };
        let mut tap = Self {
            device: address.ifindex(),
            leaving: open()?,
            arriving: open()?,
            masks: Masks::default(),
            control: nix::cmsg_space!(TimeSpec),
        };
        tap.filter()?;
        bind(tap.leaving.as_raw_fd(), &address)?;
        bind(tap.arriving.as_raw_fd(), &address)?;
        // Until then such a socket hears everything.
        while !tap.read(Way::Leaving).is_empty() {}
        while !tap.read(Way::Arriving).is_empty() {}
        Ok(tap)
    }

    /// Whether it is of the device with this number.
    pub(super) fn is_of(&self, device: usize) -> bool {
        self.device == device
    }

    /// Picks fewer or more, where so much passes.
    pub(super) fn expect(&mut self, loads: Both<Rate>) -> io::Result<()> {
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
        self.leaving.attach_filter(&program(Way::Leaving, self.masks))?;
        self.arriving.attach_filter(&program(Way::Arriving, self.masks))
    }

    /// What has passed since, and when.
    pub(super) fn read(&mut self, way: Way) -> Vec<(Instant, Segment)> {
        let socket = match way {
            Way::Leaving => &self.leaving,
            Way::Arriving => &self.arriving,
        };
        let (now, clock) = (monotonic(), SystemTime::now());
        let mut seen = Vec::new();
        let mut buffer = [0; SNAP as usize];
        for _ in 0..MOST_READS {
            let mut slices = [IoSliceMut::new(&mut buffer)];
            let control = Some(&mut self.control[..]);
            let Ok(message) = recvmsg::<()>(socket.as_raw_fd(), &mut slices, control, MsgFlags::empty())
            else {
                break;
            };
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
            seen.extend(Segment::of(&mut buffer[..length], way).map(|segment| (at, segment)));
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
    fn of(loads: Both<Rate>) -> Self {
        let mask = |load: Rate, between: u64, most: u64| {
            let passing = load.bits_per_sec() / 8 / between;
            let share = (passing / ENOUGH).clamp(1, most).next_power_of_two();
            u32::try_from(share - 1).unwrap_or(u32::MAX)
        };
        Self {
            stamps: mask(loads.ingress, BETWEEN_STAMPS, FEWEST_STAMPS),
            ends: mask(loads.egress, BETWEEN_ENDS, 1 << 16),
        }
    }
}

/// Where a socket is bound to hear this device alone.
fn address(device: &str) -> io::Result<LinkAddr> {
    let of_device = getifaddrs()?.filter(|one| one.interface_name == device);
    let mut addresses = of_device.filter_map(|one| one.address?.as_link_addr().copied());
    addresses.next().ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Socket filter (classic BPF): TCP over IPv4 or IPv6 that passes this way, with the usual time stamps at the start of its options;
/// and of these the ones that are picked.
fn program(way: Way, masks: Masks) -> [SockFilter; 40] {
    // Of linux/bpf_common.h: class, size, mode.
    const LOAD_WORD: u16 = 0x20;
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
    const IF_EQUAL: u16 = 0x15;
    const IF_ANY_BIT: u16 = 0x45;
    const SKIP: u16 = 0x05;
    const RETURN: u16 = 0x06;
    // Of linux/filter.h: what is known besides the bytes.
    const BESIDES: u32 = 0u32.wrapping_sub(0x1000);
    const PACKET_TYPE: u32 = BESIDES + 4;
    // Of linux/if_packet.h.
    const OUTGOING: u32 = 4;
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
    const LAST: u8 = 39;
    let no = |code, value, at: u8| SockFilter::new(code, 0, LAST - at - 1, value);
    let then = |code, value| SockFilter::new(code, 0, 0, value);
    let ends = masks.ends << SEGMENT_BITS;
    let (way, [data, data_mask], plus, [none, none_mask]) = match way {
        Way::Leaving => (
            SockFilter::new(IF_EQUAL, 0, LAST - 2, OUTGOING),
            [SEQUENCE, ends],
            then(X_IS_KEPT, PAYLOAD),
            [VALUE, masks.stamps],
        ),
        Way::Arriving => (
            SockFilter::new(IF_EQUAL, LAST - 2, 0, OUTGOING),
            [ECHO, masks.stamps],
            then(X_IS, 0),
            [ACKNOWLEDGED, ends],
        ),
    };
    [
        then(LOAD_WORD, PACKET_TYPE),
        way,
        then(LOAD_BYTE, 0),
        then(AND, 0xf0),
        SockFilter::new(IF_EQUAL, 0, 8, 0x40),
        // IPv4: no later fragment.
        then(LOAD_BYTE, 9),
        no(IF_EQUAL, TCP, 6),
        then(LOAD_HALF, 6),
        SockFilter::new(IF_ANY_BIT, LAST - 9, 0, 0x1fff),
        then(X_IS_IPV4_HEADER, 0),
        then(LOAD_HALF, 2),
        then(SUBTRACT_X, 0),
        then(SKIP, 5),
        // IPv6 without extension headers.
        no(IF_EQUAL, 0x60, 13),
        then(LOAD_BYTE, 6),
        no(IF_EQUAL, TCP, 15),
        then(X_IS, 40),
        then(LOAD_HALF, 4),
        // Either way X is where TCP begins, and A how long it is.
        then(KEEP, LENGTH),
        then(LOAD_WORD_AT_X, 20),
        no(IF_EQUAL, super::flows::USUAL_OPTIONS, 20),
        then(LOAD_BYTE_AT_X, 12),
        then(SHIFT_RIGHT, 2),
        then(AND, 0x3c),
        then(KEEP_X, BEGIN),
        then(X_IS_A, 0),
        then(LOAD_KEPT, LENGTH),
        then(SUBTRACT_X, 0),
        then(X_IS_KEPT, BEGIN),
        SockFilter::new(IF_EQUAL, 6, 0, 0),
        // With data.
        then(KEEP, PAYLOAD),
        then(LOAD_WORD_AT_X, data),
        plus,
        then(ADD_X, 0),
        SockFilter::new(IF_ANY_BIT, LAST - 35, 0, data_mask),
        then(RETURN, SNAP),
        // Without.
        then(LOAD_WORD_AT_X, none),
        SockFilter::new(IF_ANY_BIT, LAST - 38, 0, none_mask),
        then(RETURN, SNAP),
        then(RETURN, 0),
    ]
}

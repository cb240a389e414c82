//! Sees a few of the TCP packets that pass the device on their way to the line and back: behind the shaper of what leaves,
//! before that of what arrives, so that nothing of our own queues is in what [`flows`](super::flows) makes of them.
//!
//! The kernel picks them (RFC 7323 time stamps whose low bits are zero, so that of each round trip both ends are picked or
//! neither), so that a fast line costs no more than a slow one. One's own connections and forwarded ones look the same here;
//! `TCP_INFO` of one's own would contain the wait in our queue.

use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use sqm_core::units::Instant;

use super::flows::Stamps;
use crate::daemon::monotonic;

/// `ETH_P_ALL` of `linux/if_ether.h`.
const ALL: u16 = 3;
/// So many packets a second of the direction that has fewer are enough, and so many of the other one are too many.
const ENOUGH: u64 = 60;
const TOO_MANY: u64 = 240;
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
    device: u32,
    leaving: Socket,
    arriving: Socket,
    /// Low bits of a stamp that must be zero.
    mask: u32,
    control: Vec<u8>,
}

/// One way or the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Leaving,
    Arriving,
}

impl Tap {
    /// Of the device of this number.
    pub(super) fn open(device: u32) -> io::Result<Self> {
        let open = || -> io::Result<Socket> {
            let protocol = Protocol::from(i32::from(ALL.to_be()));
            let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol))?;
            socket.set_nonblocking(true)?;
            socket.set_recv_buffer_size(BUFFER)?;
            setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
            Ok(socket)
        };
        let mut tap = Self {
            device,
            leaving: open()?,
            arriving: open()?,
            mask: 0,
            control: nix::cmsg_space!(TimeSpec),
        };
        tap.filter()?;
        // Until its filter stands such a socket hears everything.
        while !tap.read(Way::Leaving).is_empty() {}
        while !tap.read(Way::Arriving).is_empty() {}
        Ok(tap)
    }

    pub(super) fn is_of(&self, device: u32) -> bool {
        self.device == device
    }

    /// Picks fewer or more, where so many packets a second pass in either direction.
    pub(super) fn expect(&mut self, packets_per_sec: [u64; 2]) -> io::Result<()> {
        let [one, other] = packets_per_sec;
        let share = (one.min(other) / ENOUGH).max(one.max(other) / TOO_MANY);
        let mask = share.clamp(1, 1 << 12).next_power_of_two() - 1;
        let mask = u32::try_from(mask).unwrap_or(u32::MAX);
        // Not to and fro: another filter only for twice or half as many.
        let is_near = mask == self.mask || mask == self.mask >> 1;
        if is_near {
            return Ok(());
        }
        self.mask = mask;
        self.filter()
    }

    fn filter(&self) -> io::Result<()> {
        self.leaving
            .attach_filter(&program(self.device, Way::Leaving, self.mask))?;
        self.arriving
            .attach_filter(&program(self.device, Way::Arriving, self.mask))
    }

    /// What has passed since, and when.
    pub(super) fn read(&mut self, way: Way) -> Vec<(Instant, Stamps)> {
        let socket = match way {
            Way::Leaving => &self.leaving,
            Way::Arriving => &self.arriving,
        };
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
                    waited = SystemTime::now().duration_since(stamp).unwrap_or_default();
                }
            }
            if waited > LONGEST_WAIT {
                waited = Duration::ZERO;
            }
            let at = Instant(monotonic().0.saturating_sub(waited.as_nanos() as u64));
            seen.extend(Stamps::of(&mut buffer[..length], way).map(|stamps| (at, stamps)));
        }
        seen
    }
}

/// Socket filter (classic BPF): TCP over IPv4 or IPv6 that passes this device this way, with nothing but the usual time
/// stamps at the start of its options, and with zeros where the mask has ones.
fn program(device: u32, way: Way, mask: u32) -> [SockFilter; 23] {
    // Of linux/bpf_common.h: class, size, mode.
    const LOAD_WORD: u16 = 0x20;
    const LOAD_HALF: u16 = 0x28;
    const LOAD_BYTE: u16 = 0x30;
    const LOAD_WORD_AT_X: u16 = 0x40;
    const X_IS: u16 = 0x01;
    const X_IS_IPV4_HEADER: u16 = 0xb1;
    const AND: u16 = 0x54;
    const IF_EQUAL: u16 = 0x15;
    const IF_ANY_BIT: u16 = 0x45;
    const SKIP: u16 = 0x05;
    const RETURN: u16 = 0x06;
    // Of linux/filter.h: what is known besides the bytes.
    const BESIDES: u32 = 0u32.wrapping_sub(0x1000);
    const PACKET_TYPE: u32 = BESIDES + 4;
    const DEVICE: u32 = BESIDES + 8;
    // Of linux/if_packet.h.
    const OUTGOING: u32 = 4;
    const TCP: u32 = 6;
    /// Its own time stamp in TCP's header, and the echoed one.
    const VALUE: u32 = 24;
    const ECHO: u32 = 28;
    const LAST: u8 = 22;
    let no = |code, value, at: u8| SockFilter::new(code, 0, LAST - at - 1, value);
    let (way, stamp) = match way {
        Way::Leaving => (SockFilter::new(IF_EQUAL, 0, LAST - 4, OUTGOING), VALUE),
        Way::Arriving => (SockFilter::new(IF_EQUAL, LAST - 4, 0, OUTGOING), ECHO),
    };
    let then = |code, value| SockFilter::new(code, 0, 0, value);
    [
        then(LOAD_WORD, DEVICE),
        no(IF_EQUAL, device, 1),
        then(LOAD_WORD, PACKET_TYPE),
        way,
        then(LOAD_BYTE, 0),
        then(AND, 0xf0),
        SockFilter::new(IF_EQUAL, 0, 6, 0x40),
        // IPv4: no later fragment.
        then(LOAD_BYTE, 9),
        no(IF_EQUAL, TCP, 8),
        then(LOAD_HALF, 6),
        SockFilter::new(IF_ANY_BIT, LAST - 11, 0, 0x1fff),
        then(X_IS_IPV4_HEADER, 0),
        then(SKIP, 4),
        // IPv6 without extension headers.
        no(IF_EQUAL, 0x60, 13),
        then(LOAD_BYTE, 6),
        no(IF_EQUAL, TCP, 15),
        then(X_IS, 40),
        then(LOAD_WORD_AT_X, 20),
        no(IF_EQUAL, super::flows::USUAL_OPTIONS, 18),
        then(LOAD_WORD_AT_X, stamp),
        SockFilter::new(IF_ANY_BIT, LAST - 21, 0, mask),
        then(RETURN, SNAP),
        then(RETURN, 0),
    ]
}

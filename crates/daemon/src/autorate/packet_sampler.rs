//! Captures a sample of the TCP packets that pass the device (`AF_PACKET`). The kernel hands them over behind the egress shaper
//! and before the ingress shaper, so the delays that [`tcp_timestamps`](super::tcp_timestamps) finds do not include the shapers'
//! own queues.
//!
//! A BPF filter samples segments by a bit mask over the value that identifies them on the return path (the end of the data or a
//! timestamp). So both halves of a round trip are captured or neither, and the cost does not grow with the rate of the line.
//! Forwarded connections and the router's own look alike here. `TCP_INFO` of the router's own connections would not do: its round
//! trips include the wait in the shapers' queues.

use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{ControlMessageOwned, LinkAddr, MsgFlags, bind, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::{Instant, Rate};

use super::tcp_timestamps::{Segment, USUAL_OPTIONS};
use crate::clock::monotonic;

/// `ETH_P_ALL` of `linux/if_ether.h`.
const ALL: u16 = 3;
/// `PACKET_OUTGOING` of `linux/if_packet.h`: a packet that leaves the device.
const OUTGOING: u32 = 4;
/// Values that identify round trips in one direction, sampled per second: five for each connection that is followed. Several
/// segments may carry one value. A choice.
const SAMPLES_PER_SECOND: u64 = 40;
/// Samples that only check what reflectors say are this many times fewer. A choice: two connections still yield several a second.
const FEWER: u64 = 4;
/// Bytes of a download for each acknowledgement, which carries a timestamp: two segments (RFC 1122 section 4.2.3.2).
const BYTES_PER_TIMESTAMP: u64 = 3000;
/// Bytes of an upload between two segment ends that the mask can tell apart.
const BYTES_PER_END: u64 = 1 << SEGMENT_BITS;
/// The mask for segment ends begins at this bit. Segments of one connection are nearly 2^11 bytes long, so lower bits differ little
/// between their ends.
const SEGMENT_BITS: u32 = 11;
/// At least one in this many timestamp values is sampled. A choice: a host that counts milliseconds then yields a sample every
/// 64 ms, about as often as a connection yields samples at all.
const MAX_TIMESTAMP_DIVISOR: u64 = 64;
/// Packets that one call reads; a choice.
const MAX_READS: usize = 128;
/// The socket's receive buffer, bytes; a choice. Packets that do not fit are lost.
const BUFFER: usize = 128 * 1024;
/// Bytes captured of each packet: an IPv4 header with all options, and a TCP header with timestamps.
const SNAP: u32 = 60 + 32;
/// If a packet's capture time is older than this, the system clock was set in between, and the present time is used. A choice.
const MAX_AGE: Duration = Duration::from_secs(2);

/// An open capture.
pub(super) struct PacketSampler {
    /// The device's index.
    device: u32,
    socket: Socket,
    mask: SamplingMask,
    control: Vec<u8>,
}

impl PacketSampler {
    /// Opens a capture on the device with this name and index. It must face the internet, so that packets that leave it are
    /// upload.
    pub(super) fn open(name: &str, device: u32) -> io::Result<Self> {
        // One socket for both directions: two would run the filter twice for each packet, which is most of the cost.
        let protocol = Protocol::from(i32::from(ALL.to_be()));
        let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol))?;
        socket.set_nonblocking(true)?;
        socket.set_recv_buffer_size(BUFFER)?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        let sampler = Self {
            device,
            socket,
            mask: SamplingMask::default(),
            control: nix::cmsg_space!(TimeSpec),
        };
        sampler.attach_filter()?;
        // A PPP device has no link address. Then the socket hears all devices, and the filter drops foreign packets.
        if let Some(address) = address(name)? {
            bind(sampler.socket.as_raw_fd(), &address)?;
        }
        // Discard packets that arrived before the filter was attached.
        while sampler.socket.recv(&mut []).is_ok() {}
        Ok(sampler)
    }

    /// `true` if the capture is on the device with this index.
    pub(super) fn is_on_device(&self, device: u32) -> bool {
        self.device == device
    }

    /// Adapts the share of packets that are sampled to the throughput, and to how many samples are needed.
    pub(super) fn adapt(&mut self, loads: PerDirection<Rate>, need: Need) -> io::Result<()> {
        let mask = SamplingMask::new(loads, need);
        // Hysteresis: replace the filter only if a share changes by a factor of four.
        let is_near = |mask: u32, old: u32| mask / 2 <= old && old / 2 <= mask;
        if is_near(mask.timestamps, self.mask.timestamps) && is_near(mask.ends, self.mask.ends) {
            return Ok(());
        }
        self.mask = mask;
        self.attach_filter()
    }

    fn attach_filter(&self) -> io::Result<()> {
        let filter = on_device(self.device).into_iter().chain(program(self.mask));
        self.socket.attach_filter(&filter.collect::<Vec<_>>())
    }

    /// The sampled segments since the last call, each with its time and direction.
    pub(super) fn read(&mut self) -> Vec<(Instant, Direction, Segment)> {
        let (now, clock) = (monotonic(), SystemTime::now());
        let mut segments = Vec::new();
        let mut buffer = [0; SNAP as usize];
        for _ in 0..MAX_READS {
            let mut slices = [IoSliceMut::new(&mut buffer)];
            let control = Some(&mut self.control[..]);
            let (socket, flags) = (self.socket.as_raw_fd(), MsgFlags::empty());
            let Ok(message) = recvmsg::<LinkAddr>(socket, &mut slices, control, flags) else {
                break;
            };
            let is_leaving = message
                .address
                .is_some_and(|of| u32::from(of.pkttype()) == OUTGOING);
            let direction = match is_leaving {
                true => Direction::Upload,
                false => Direction::Download,
            };
            let (length, mut age) = (message.bytes, Duration::ZERO);
            for control in message.cmsgs().into_iter().flatten() {
                if let ControlMessageOwned::ScmTimestampns(stamp) = control {
                    let stamp = UNIX_EPOCH + Duration::from(stamp);
                    age = clock.duration_since(stamp).unwrap_or_default();
                }
            }
            if age > MAX_AGE {
                age = Duration::ZERO;
            }
            let at = Instant(now.0.saturating_sub(age.as_nanos() as u64));
            let segment = Segment::parse(&mut buffer[..length], direction);
            segments.extend(segment.map(|segment| (at, direction, segment)));
        }
        segments
    }
}

/// The purpose of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// To check reflectors, which show the delay of each direction themselves.
    Check,
    /// To know the delay of each direction.
    Measure,
}

/// Bits that must be zero in the value that identifies a segment. The more bits, the fewer segments are sampled.
#[derive(Clone, Copy, Default)]
struct SamplingMask {
    /// For timestamps.
    timestamps: u32,
    /// For segment ends, from bit [`SEGMENT_BITS`] on.
    ends: u32,
}

impl SamplingMask {
    fn new(loads: PerDirection<Rate>, need: Need) -> Self {
        let fewer = match need {
            Need::Check => FEWER,
            Need::Measure => 1,
        };
        let mask = |load: Rate, bytes_per_value: u64, max_divisor: u64| {
            let values_per_second = load.bits_per_sec() / 8 / bytes_per_value;
            let divisor = (values_per_second * fewer / SAMPLES_PER_SECOND)
                .clamp(1, max_divisor * fewer)
                .next_power_of_two();
            u32::try_from(divisor - 1).unwrap_or(u32::MAX)
        };
        Self {
            timestamps: mask(loads.download, BYTES_PER_TIMESTAMP, MAX_TIMESTAMP_DIVISOR),
            ends: mask(loads.upload, BYTES_PER_END, 1 << 16),
        }
    }
}

/// The link address to which a socket is bound to hear this device alone; `None` if the device has none.
fn address(device: &str) -> io::Result<Option<LinkAddr>> {
    let of_device = getifaddrs()?.filter(|one| one.interface_name == device);
    let mut addresses = of_device.filter_map(|one| one.address?.as_link_addr().copied());
    Ok(addresses.next())
}

// Opcodes of linux/bpf_common.h: class, size, mode.
const LOAD_WORD: u16 = 0x20;
const IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
/// `SKF_AD_OFF` of linux/filter.h: loads from here on read metadata instead of the packet.
const METADATA: u32 = 0u32.wrapping_sub(0x1000);

/// The first part of the filter: drops packets of other devices.
fn on_device(device: u32) -> [SockFilter; 3] {
    /// `SKF_AD_IFINDEX`.
    const DEVICE: u32 = METADATA + 8;
    [
        SockFilter::new(LOAD_WORD, 0, 0, DEVICE),
        SockFilter::new(IF_EQUAL, 1, 0, device),
        SockFilter::new(RETURN, 0, 0, 0),
    ]
}

/// The second part of the filter (classic BPF): accepts TCP over IPv4 or IPv6 whose options begin with timestamps, if the mask
/// samples it.
fn program(mask: SamplingMask) -> [SockFilter; 45] {
    const LOAD_HALF: u16 = 0x28;
    const LOAD_BYTE: u16 = 0x30;
    const LOAD_WORD_AT_X: u16 = 0x40;
    const LOAD_BYTE_AT_X: u16 = 0x50;
    const LOAD_STORED: u16 = 0x60;
    const STORE: u16 = 0x02;
    const STORE_X: u16 = 0x03;
    const X_IS: u16 = 0x01;
    const X_IS_A: u16 = 0x07;
    const X_IS_STORED: u16 = 0x61;
    const X_IS_IPV4_HEADER: u16 = 0xb1;
    const AND: u16 = 0x54;
    const SHIFT_RIGHT: u16 = 0x74;
    const ADD_X: u16 = 0x0c;
    const SUBTRACT_X: u16 = 0x1c;
    const IF_ANY_BIT: u16 = 0x45;
    const SKIP: u16 = 0x05;
    /// `SKF_AD_PKTTYPE`.
    const PACKET_TYPE: u32 = METADATA + 4;
    /// The protocol number of TCP.
    const TCP: u32 = 6;
    // Offsets in the TCP header; the timestamps follow 4 bytes into the options.
    const SEQUENCE: u32 = 4;
    const ACKNOWLEDGED: u32 = 8;
    const TSVAL: u32 = 24;
    const TSECR: u32 = 28;
    // Slots of the filter's memory.
    const LENGTH: u32 = 0;
    const BEGIN: u32 = 1;
    const PAYLOAD: u32 = 2;
    // The positions of the two last instructions.
    const ACCEPT: u8 = 43;
    const DROP: u8 = 44;
    // Compares at position `at`, and drops the packet if the test fails.
    let require = |code, value, at: u8| SockFilter::new(code, 0, DROP - at - 1, value);
    let then = |code, value| SockFilter::new(code, 0, 0, value);
    // At position `at`: accepts the packet if no bit of the mask is set, otherwise drops it.
    let sample = |mask, at: u8| SockFilter::new(IF_ANY_BIT, DROP - at - 1, ACCEPT - at - 1, mask);
    let ends = mask.ends << SEGMENT_BITS;
    [
        // The version of IP.
        then(LOAD_BYTE, 0),
        then(AND, 0xf0),
        SockFilter::new(IF_EQUAL, 0, 8, 0x40),
        // IPv4: TCP, and not a later fragment. X: the length of the IP header. A: the length of the TCP segment.
        then(LOAD_BYTE, 9),
        require(IF_EQUAL, TCP, 4),
        then(LOAD_HALF, 6),
        SockFilter::new(IF_ANY_BIT, DROP - 7, 0, 0x1fff),
        then(X_IS_IPV4_HEADER, 0),
        then(LOAD_HALF, 2),
        then(SUBTRACT_X, 0),
        then(SKIP, 5),
        // IPv6: TCP without extension headers. X: the length of the IP header. A: the length of the TCP segment.
        require(IF_EQUAL, 0x60, 11),
        then(LOAD_BYTE, 6),
        require(IF_EQUAL, TCP, 13),
        then(X_IS, 40),
        then(LOAD_HALF, 4),
        // Both versions: the TCP options must begin with timestamps. Then compute the length of the payload.
        then(STORE, LENGTH),
        then(LOAD_WORD_AT_X, 20),
        require(IF_EQUAL, USUAL_OPTIONS, 18),
        then(LOAD_BYTE_AT_X, 12),
        then(SHIFT_RIGHT, 2),
        then(AND, 0x3c),
        then(STORE_X, BEGIN),
        then(X_IS_A, 0),
        then(LOAD_STORED, LENGTH),
        then(SUBTRACT_X, 0),
        then(STORE, PAYLOAD),
        then(X_IS_STORED, BEGIN),
        SockFilter::new(IF_EQUAL, 8, 0, 0),
        // A segment with data: sample by its end if it leaves, by its echoed timestamp if it arrives.
        then(LOAD_WORD, PACKET_TYPE),
        SockFilter::new(IF_EQUAL, 0, 4, OUTGOING),
        then(LOAD_WORD_AT_X, SEQUENCE),
        then(X_IS_STORED, PAYLOAD),
        then(ADD_X, 0),
        sample(ends, 34),
        then(LOAD_WORD_AT_X, TSECR),
        sample(mask.timestamps, 36),
        // A segment without data: sample by its timestamp if it leaves, by its acknowledgement number if it arrives.
        then(LOAD_WORD, PACKET_TYPE),
        SockFilter::new(IF_EQUAL, 0, 2, OUTGOING),
        then(LOAD_WORD_AT_X, TSVAL),
        sample(mask.timestamps, 40),
        then(LOAD_WORD_AT_X, ACKNOWLEDGED),
        sample(ends, 42),
        then(RETURN, SNAP),
        then(RETURN, 0),
    ]
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::super::tcp_timestamps::tests::{over_ipv6, packet};
    use super::*;

    /// Runs the filter in the kernel; `true` if it accepts the packet as one that arrives.
    fn accepts(mask: SamplingMask, packet: &[u8]) -> bool {
        let (far, near) = UnixDatagram::pair().expect("a pair of sockets");
        let near = Socket::from(std::os::fd::OwnedFd::from(near));
        near.set_nonblocking(true).expect("a socket");
        near.attach_filter(&program(mask)).expect("a filter");
        // On a socket pair, sending fails if the receiver's filter drops the packet.
        far.send(packet).is_ok()
            && near
                .recv(&mut [const { std::mem::MaybeUninit::uninit() }; 99])
                .is_ok()
    }

    /// The segment with four bytes of IP options.
    fn with_options(packet: &[u8]) -> Vec<u8> {
        let length = u16::from_be_bytes([packet[2], packet[3]]) + 4;
        let mut bytes = packet.to_vec();
        bytes[0] = 0x46;
        bytes[2..4].copy_from_slice(&length.to_be_bytes());
        bytes.splice(20..20, [0; 4]);
        bytes
    }

    #[test]
    fn both_halves_of_a_round_trip_are_sampled_or_neither() {
        let mask = SamplingMask {
            timestamps: 3,
            ends: 3,
        };
        for n in 0..16 {
            let data = packet(true, [1, 1, 9, n], 1448);
            let ack = packet(true, [1, n << SEGMENT_BITS, 9, 1], 0);
            for segment in [data, ack] {
                for segment in [over_ipv6(&segment), with_options(&segment), segment] {
                    assert_eq!(accepts(mask, &segment), n % 4 == 0, "{n}: {segment:?}");
                    assert!(accepts(SamplingMask::default(), &segment));
                }
            }
        }
    }

    #[test]
    fn a_check_takes_a_quarter_of_the_samples() {
        for mbits in [10, 100, 1000] {
            let load = Rate::from_kbits_per_sec(mbits * 1000);
            let loads = PerDirection {
                download: load,
                upload: load,
            };
            let [check, measure] = [Need::Check, Need::Measure].map(|need| SamplingMask::new(loads, need));
            assert_eq!(
                check.timestamps + 1,
                (measure.timestamps + 1) * 4,
                "{mbits} Mbit/s"
            );
            assert_eq!(check.ends + 1, (measure.ends + 1) * 4, "{mbits} Mbit/s");
        }
    }

    #[test]
    fn other_packets_are_dropped() {
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
            assert!(!accepts(SamplingMask::default(), &wrong), "{wrong:?}");
        }
    }
}

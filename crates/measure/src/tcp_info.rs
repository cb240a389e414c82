//! The kernel's data about a TCP connection: `TCP_INFO`, and the saved SYN.
//!
//! The structure only grows at its end, so that its fields are read by offset from the bytes that the kernel returns. The offsets
//! are those of `struct tcp_info` in Linux's `include/uapi/linux/tcp.h`. A field that this kernel lacks reads as zero.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::sync::LazyLock;

use crate::result::{TcpSample, TcpTotals};
use crate::socket;
use nix::sys::socket::sockopt::{GetOsString, GetStruct, SetUsize};
use nix::sys::socket::{getsockopt, setsockopt};

/// Bytes to read: up to `tcpi_snd_wnd`, the last field of Linux 5.4. Later kernels return as many bytes as are asked for.
const INFO: usize = 232;
/// The first Linux release with all of these bytes.
const SINCE: (u32, u32) = (5, 4);
/// Room for the headers of a SYN, bytes: IPv6 and TCP with all its options take 100.
const SYN: usize = 128;

nix::getsockopt_impl!(
    TcpInfoBytes,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    [u8; INFO],
    GetStruct<[u8; INFO]>
);

#[derive(Clone, Copy, Debug)]
struct TcpInfoBytes;

nix::getsockopt_impl!(
    SavedSyn,
    libc::IPPROTO_TCP,
    libc::TCP_SAVED_SYN,
    OsString,
    GetOsString<[u8; SYN]>
);

#[derive(Clone, Copy, Debug)]
struct SavedSyn;

nix::setsockopt_impl!(SaveSyn, libc::IPPROTO_TCP, libc::TCP_SAVE_SYN, usize, SetUsize);

#[derive(Clone, Copy, Debug)]
struct SaveSyn;

/// The state of one end of a connection. Fields marked "Sender" are meaningful at a sender only, those marked "Receiver" at a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TcpInfo {
    /// Smoothed round trip (RFC 6298) of data and its acknowledgement, microseconds. Sender.
    pub rtt_us: u32,
    /// Mean deviation of the round trip, microseconds. Sender.
    pub rtt_var_us: u32,
    /// Smallest round trip in the kernel's window (`net.ipv4.tcp_min_rtt_wlen`), microseconds. Sender.
    pub min_rtt_us: u32,
    /// Congestion window in segments. Sender.
    pub cwnd: u32,
    /// Segments retransmitted since the beginning. Sender.
    pub retransmits: u32,
    /// The most recent delivery rate, bytes per second. Sender.
    pub delivery_bytes_per_s: u64,
    /// Pacing rate, bytes per second. All ones without pacing. Sender.
    pub pacing_bytes_per_s: u64,
    /// Segments that have arrived behind a gap, as selective acknowledgements say (RFC 2018). Sender.
    pub sacked: u32,
    /// Segments that have arrived, those behind a gap included. Sender.
    pub delivered: u32,
    /// Segments that arrived with an ECN congestion mark (CE), as the other end reported. Sender.
    pub delivered_ce: u32,
    /// Payload that the other end has acknowledged so far, bytes. Sender.
    pub bytes_acked: u64,
    /// Payload that has arrived before the first gap, bytes. Receiver.
    pub bytes_received: u64,
    /// Payload sent so far, retransmissions included, bytes. Sender.
    pub bytes_sent: u64,
    /// Payload retransmitted so far, bytes. Sender.
    pub bytes_retransmitted: u64,
    /// Time during which data was in flight, microseconds. Sender.
    pub busy_us: u64,
    /// The part of `busy_us` during which the receive window held the sender back, microseconds. Sender.
    pub receive_window_limited_us: u64,
    /// The part of `busy_us` during which the send buffer held the sender back, microseconds. Sender.
    pub send_buffer_limited_us: u64,
    /// Largest segment that this end sends, bytes of payload.
    pub mss: u32,
    /// The receiver's estimate of the round trip, microseconds. Zero if it has none. Receiver.
    pub receiver_rtt_us: u32,
    /// True if both ends agreed on ECN when they connected.
    pub ecn: bool,
}

impl TcpInfo {
    /// Reads the state of a socket.
    pub(crate) fn of(socket: impl AsFd) -> io::Result<Self> {
        // nix requires exactly the number of bytes that it asks for.
        if !kernel_is_since(SINCE) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Self::decode(&getsockopt(&socket, TcpInfoBytes)?))
    }

    /// Decodes the kernel's structure. Missing fields are zero. Never panics.
    pub fn decode(bytes: &[u8]) -> Self {
        const ECN: u8 = 8;
        Self {
            rtt_us: u32_at(bytes, 68),
            rtt_var_us: u32_at(bytes, 72),
            min_rtt_us: u32_at(bytes, 148),
            cwnd: u32_at(bytes, 80),
            retransmits: u32_at(bytes, 100),
            delivery_bytes_per_s: u64_at(bytes, 160),
            pacing_bytes_per_s: u64_at(bytes, 104),
            sacked: u32_at(bytes, 28),
            delivered: u32_at(bytes, 192),
            delivered_ce: u32_at(bytes, 196),
            bytes_acked: u64_at(bytes, 120),
            bytes_received: u64_at(bytes, 128),
            bytes_sent: u64_at(bytes, 200),
            bytes_retransmitted: u64_at(bytes, 208),
            busy_us: u64_at(bytes, 168),
            receive_window_limited_us: u64_at(bytes, 176),
            send_buffer_limited_us: u64_at(bytes, 184),
            mss: u32_at(bytes, 16),
            receiver_rtt_us: u32_at(bytes, 92),
            ecn: bytes.get(5).is_some_and(|options| options & ECN != 0),
        }
    }

    /// Payload that has arrived: what is acknowledged, and what is behind a gap as if its segments were full. Sender.
    #[cfg(feature = "full")]
    pub(crate) fn arrived_bytes(&self) -> u64 {
        self.bytes_acked + u64::from(self.sacked) * u64::from(self.mss)
    }

    /// Payload that has arrived, that behind a gap included, as if all segments were full. Sender.
    pub(crate) fn delivered_bytes(&self) -> u64 {
        u64::from(self.delivered) * u64::from(self.mss)
    }

    /// The sample of a sender for the result.
    pub(crate) fn sender_sample(&self, t_ms: f64) -> TcpSample {
        // Without a limit the kernel returns all ones, in 32 or in 64 bits.
        let is_paced = self.pacing_bytes_per_s < u64::from(u32::MAX);
        TcpSample {
            t_ms,
            rtt_ms: Some(milliseconds(self.rtt_us)),
            rttvar_ms: Some(milliseconds(self.rtt_var_us)),
            // Before the first measurement the kernel returns all ones.
            min_rtt_ms: (self.min_rtt_us != u32::MAX).then(|| milliseconds(self.min_rtt_us)),
            cwnd: Some(f64::from(self.cwnd)),
            retransmits: Some(u64::from(self.retransmits)),
            delivery_mbit: Some(megabits(self.delivery_bytes_per_s)),
            pacing_mbit: is_paced.then(|| megabits(self.pacing_bytes_per_s)),
            delivered_ce: Some(u64::from(self.delivered_ce)),
            delivered: Some(u64::from(self.delivered)),
        }
    }

    /// The sample of a receiver for the result.
    pub(crate) fn receiver_sample(&self, t_ms: f64) -> TcpSample {
        TcpSample {
            t_ms,
            rtt_ms: (self.receiver_rtt_us > 0).then(|| milliseconds(self.receiver_rtt_us)),
            ..TcpSample::default()
        }
    }

    /// The counters of a sender since the beginning.
    pub(crate) fn totals(&self) -> TcpTotals {
        TcpTotals {
            bytes_sent: self.bytes_sent,
            bytes_retransmitted: self.bytes_retransmitted,
            retransmits: u64::from(self.retransmits),
            delivered_ce: u64::from(self.delivered_ce),
            busy_ms: self.busy_us as f64 / 1000.0,
            rwnd_limited_ms: self.receive_window_limited_us as f64 / 1000.0,
            sndbuf_limited_ms: self.send_buffer_limited_us as f64 / 1000.0,
        }
    }
}

fn milliseconds(us: u32) -> f64 {
    f64::from(us) / 1000.0
}

/// Bytes per second in Mbit/s, rounded to a kbit/s.
fn megabits(bytes_per_s: u64) -> f64 {
    (bytes_per_s as f64 * 8.0 / 1000.0).round() / 1000.0
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk());
    field.map_or(0, |field| u32::from_ne_bytes(*field))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk());
    field.map_or(0, |field| u64::from_ne_bytes(*field))
}

fn kernel_is_since(wanted: (u32, u32)) -> bool {
    static RELEASE: LazyLock<(u32, u32)> = LazyLock::new(|| release(&socket::kernel_release()));
    *RELEASE >= wanted
}

/// Major and minor number of a kernel release such as "6.1.0-37-amd64".
fn release(text: &str) -> (u32, u32) {
    let mut numbers = text
        .split(|c: char| !c.is_ascii_digit())
        .map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Has a listener save the SYN of each connection for [`arrived_dscp`].
pub(crate) fn keep_syn(listener: impl AsFd) -> io::Result<()> {
    Ok(setsockopt(&listener, SaveSyn, &1)?)
}

/// The DSCP of the SYN of an accepted connection. `None` unless the listener saves SYNs.
pub(crate) fn arrived_dscp(socket: impl AsFd) -> Option<u8> {
    let syn = getsockopt(&socket, SavedSyn).ok()?.into_vec();
    dscp_of_packet(&syn)
}

/// The DSCP of an IP packet. The bytes from the first zero on may be missing, because nix reads the option as a string. Never panics.
fn dscp_of_packet(packet: &[u8]) -> Option<u8> {
    let first = *packet.first()?;
    let second = packet.get(1).copied().unwrap_or(0);
    match first >> 4 {
        4 => Some(second >> 2),
        // The traffic class spans two bytes (RFC 8200, section 3).
        6 => Some((first << 4 | second >> 4) >> 2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_that_an_old_kernel_lacks_read_as_zero() {
        let mut bytes = [0; 104];
        bytes[68..72].copy_from_slice(&20_000u32.to_ne_bytes());
        bytes[100..104].copy_from_slice(&7u32.to_ne_bytes());
        bytes[5] = 8 | 1;
        let info = TcpInfo::decode(&bytes);
        assert_eq!(
            (info.rtt_us, info.retransmits, info.bytes_sent, info.ecn),
            (20_000, 7, 0, true)
        );
    }

    #[test]
    fn the_dscp_of_ipv4_and_ipv6_packets_is_found() {
        assert_eq!(dscp_of_packet(&[0x45, 0xb8]), Some(46));
        assert_eq!(dscp_of_packet(&[0x6b, 0x80]), Some(46));
        assert_eq!(dscp_of_packet(&[0x45]), Some(0));
        assert_eq!(dscp_of_packet(&[]), None);
        assert_eq!(dscp_of_packet(&[0x15, 0xb8]), None);
    }

    #[test]
    fn a_real_connection_has_a_round_trip() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let info = TcpInfo::of(&stream).unwrap();
        assert!(info.rtt_us > 0 && info.cwnd > 0 && info.mss > 0, "{info:?}");
    }

    #[test]
    fn releases_compare_by_number() {
        assert_eq!(release("6.18.5-amd64"), (6, 18));
        assert!(release("5.15.0") > (5, 4) && release("5.3.9") < (5, 4) && release("4.19") < (5, 4));
    }

    #[test]
    fn an_accepted_socket_has_the_dscp_of_its_syn() {
        for (host, dscp) in [("127.0.0.1", 46), ("127.0.0.1", 0), ("::1", 40)] {
            let listener = std::net::TcpListener::bind((host, 0)).unwrap();
            keep_syn(&listener).unwrap();
            let address = listener.local_addr().unwrap();
            let client =
                socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None);
            let client = client.unwrap();
            socket::set_dscp(&client, address, dscp).unwrap();
            client.connect(&address.into()).unwrap();
            assert_eq!(arrived_dscp(listener.accept().unwrap().0), Some(dscp), "{host}");
        }
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = TcpInfo::decode(&bytes);
            let _ = dscp_of_packet(&bytes);
        }
    }
}

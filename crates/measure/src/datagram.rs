//! UDP with the kernel's data about each packet: traffic class, time of arrival, and local address.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;

/// An older kernel timestamp is ignored: the wall clock was set meanwhile. A choice.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Two readings of the monotonic clock that are no further apart date the reading of the wall clock between them well enough. A choice.
const AT_ONCE: Duration = Duration::from_micros(20);

/// How often the clocks are read if the thread is interrupted between the readings. A choice.
const READINGS: usize = 5;

/// A UDP socket, and a buffer for control messages.
pub(crate) struct Datagrams {
    socket: UdpSocket,
    control: Vec<u8>,
}

/// A packet that arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Bytes of payload.
    pub(crate) length: usize,
    pub(crate) from: SocketAddr,
    /// The local address to which it was sent.
    pub(crate) to: Option<IpAddr>,
    /// When the kernel received it.
    pub(crate) at: Instant,
    /// The traffic class byte: DSCP and ECN.
    pub(crate) tos: Option<u8>,
}

impl Datagrams {
    /// Enables the control messages.
    pub(crate) fn new(socket: UdpSocket) -> io::Result<Self> {
        let v6 = socket.local_addr()?.is_ipv6();
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        // A dual-stack socket receives both kinds of packets.
        setsockopt(&socket, sockopt::IpRecvTos, &true)?;
        if v6 {
            setsockopt(&socket, sockopt::Ipv6RecvTClass, &true)?;
            setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
        } else {
            setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
        }
        let control = nix::cmsg_space!(TimeSpec, u8, i32, libc::in_pktinfo, libc::in6_pktinfo);
        Ok(Self { socket, control })
    }

    /// Waits for a packet.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Arrival> {
        let mut slices = [IoSliceMut::new(buffer)];
        let message = recvmsg::<SockaddrStorage>(
            self.socket.as_raw_fd(),
            &mut slices,
            Some(&mut self.control),
            MsgFlags::empty(),
        )?;
        let (now, wall) = on_both_clocks(|| (Instant::now(), SystemTime::now(), Instant::now()));
        let from = message
            .address
            .as_ref()
            .and_then(socket_address)
            .ok_or(io::ErrorKind::InvalidData)?;
        let mut arrival = Arrival {
            length: message.bytes,
            from,
            to: None,
            at: now,
            tos: None,
        };
        for control in message.cmsgs()? {
            match control {
                ControlMessageOwned::ScmTimestampns(stamp) => arrival.at = now - waited(stamp, wall),
                ControlMessageOwned::Ipv4Tos(byte) => arrival.tos = Some(byte),
                ControlMessageOwned::Ipv6TClass(word) => arrival.tos = Some(word as u8),
                ControlMessageOwned::Ipv4PacketInfo(info) => {
                    arrival.to = Some(IpAddr::from(info.ipi_spec_dst.s_addr.to_ne_bytes()));
                }
                ControlMessageOwned::Ipv6PacketInfo(info) => {
                    arrival.to = Some(IpAddr::from(info.ipi6_addr.s6_addr));
                }
                _ => {}
            }
        }
        Ok(arrival)
    }

    /// Sends an answer from the address to which `arrival` was sent, with this traffic class byte.
    pub(crate) fn reply(&self, payload: &[u8], arrival: &Arrival, tos: u8) -> io::Result<()> {
        let word = i32::from(tos);
        let control_tos = match arrival.from.ip().to_canonical() {
            IpAddr::V4(_) => ControlMessage::Ipv4Tos(&tos),
            IpAddr::V6(_) => ControlMessage::Ipv6TClass(&word),
        };
        let to = SockaddrStorage::from(arrival.from);
        let slices = [IoSlice::new(payload)];
        let send = |control: &[ControlMessage<'_>]| {
            sendmsg(
                self.socket.as_raw_fd(),
                &slices,
                control,
                MsgFlags::empty(),
                Some(&to),
            )
            .map(drop)
            .map_err(io::Error::from)
        };
        match arrival.to {
            Some(IpAddr::V4(ours)) => {
                let info = libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: libc::in_addr {
                        s_addr: u32::from_ne_bytes(ours.octets()),
                    },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                send(&[ControlMessage::Ipv4PacketInfo(&info), control_tos])
            }
            Some(IpAddr::V6(ours)) => {
                let scope = match arrival.from {
                    SocketAddr::V6(from) => from.scope_id(),
                    SocketAddr::V4(_) => 0,
                };
                let info = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr {
                        s6_addr: ours.octets(),
                    },
                    ipi6_ifindex: scope,
                };
                send(&[ControlMessage::Ipv6PacketInfo(&info), control_tos])
            }
            None => send(&[control_tos]),
        }
    }

    /// Sends on a connected socket, with the traffic class of the socket.
    pub(crate) fn send(&self, payload: &[u8]) -> io::Result<()> {
        self.socket.send(payload).map(drop)
    }
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A moment by both clocks. `read` reads the monotonic clock, the wall clock, and the monotonic clock again.
///
/// If the thread loses its processor between two readings, the pause would count as time of the packet in the socket, and the round trip
/// would be too short by that. The readings that are closest together count.
fn on_both_clocks(mut read: impl FnMut() -> (Instant, SystemTime, Instant)) -> (Instant, SystemTime) {
    let apart = |(before, _, after): (Instant, SystemTime, Instant)| after - before;
    let mut closest = read();
    for _ in 1..READINGS {
        if apart(closest) <= AT_ONCE {
            break;
        }
        let next = read();
        if apart(next) < apart(closest) {
            closest = next;
        }
    }
    let (before, wall, _) = closest;
    (before + apart(closest) / 2, wall)
}

/// How long a packet waited in the socket. The timestamp is by the wall clock, which may have been set since.
fn waited(stamp: TimeSpec, now: SystemTime) -> Duration {
    let stamp = UNIX_EPOCH + Duration::from(stamp);
    let waited = now.duration_since(stamp).unwrap_or_default();
    if waited > LONGEST_WAIT {
        Duration::ZERO
    } else {
        waited
    }
}

fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address
        .as_sockaddr_in()
        .map(|a| SocketAddr::V4(SocketAddrV4::from(*a)));
    v4.or_else(|| {
        address
            .as_sockaddr_in6()
            .map(|a| SocketAddr::V6(SocketAddrV6::from(*a)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Traffic class and addresses arrive and return, over IPv4 and IPv6 and on a dual-stack socket.
    #[test]
    fn traffic_class_and_addresses_arrive_and_return() {
        for (listen, ask, from) in [
            ("127.0.0.1:0", "127.0.0.1", "127.0.0.1:0"),
            ("[::]:0", "127.0.0.7", "127.0.0.1:0"),
            ("[::]:0", "::1", "[::1]:0"),
        ] {
            let mut server = Datagrams::new(UdpSocket::bind(listen).unwrap()).unwrap();
            let port = server.socket.local_addr().unwrap().port();
            let asked: IpAddr = ask.parse().unwrap();
            let client = UdpSocket::bind(from).unwrap();
            // Connected: a reply from any other address would not arrive.
            client.connect((asked, port)).unwrap();
            crate::socket::set_dscp(&client, client.local_addr().unwrap(), 46).unwrap();
            let mut client = Datagrams::new(client).unwrap();
            client.send(b"ping").unwrap();
            let mut buffer = [0; 16];
            let arrival = server.receive(&mut buffer).unwrap();
            assert_eq!(arrival.tos, Some(0xb8), "{listen} {ask}");
            assert_eq!(arrival.to.unwrap().to_canonical(), asked);
            server.reply(b"pong", &arrival, 0x21).unwrap();
            let arrival = client.receive(&mut buffer).unwrap();
            assert_eq!(
                (&buffer[..arrival.length], arrival.tos),
                (&b"pong"[..], Some(0x21))
            );
        }
    }

    #[test]
    fn a_pause_between_two_readings_does_not_count_as_time_in_the_socket() {
        let (start, epoch) = (Instant::now(), UNIX_EPOCH + Duration::from_secs(100));
        let micros = Duration::from_micros;
        // Times of the readings in microseconds: monotonic clock, wall clock, monotonic clock.
        let read = |at: &[[u64; 3]]| {
            let mut readings = at.iter();
            let (now, wall) = on_both_clocks(|| {
                let [before, wall, after] = *readings.next().expect("no more are asked for");
                (
                    start + micros(before),
                    epoch + micros(wall),
                    start + micros(after),
                )
            });
            (
                (now - start).as_micros(),
                wall.duration_since(epoch).unwrap().as_micros(),
            )
        };
        assert_eq!(read(&[[0, 1, 2]]), (1, 1));
        assert_eq!(read(&[[0, 4000, 4002], [4004, 4005, 4006]]), (4005, 4005));
        let slow = [
            [0, 90, 100],
            [200, 240, 280],
            [300, 320, 330],
            [400, 490, 500],
            [600, 700, 800],
        ];
        assert_eq!(read(&slow), (315, 320));
    }

    #[test]
    fn a_wall_clock_that_was_set_does_not_count_as_time_in_the_socket() {
        let now = UNIX_EPOCH + Duration::from_secs(100);
        assert_eq!(
            waited(TimeSpec::new(99, 999_000_000), now),
            Duration::from_millis(1)
        );
        assert_eq!(waited(TimeSpec::new(50, 0), now), Duration::ZERO);
        assert_eq!(waited(TimeSpec::new(101, 0), now), Duration::ZERO);
    }
}

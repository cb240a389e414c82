//! UDP with what the kernel knows of each packet: its mark, when it arrived, and to which of our addresses.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;

/// A kernel's time stamp further back than this is not believed: a clock was set meanwhile.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Two readings of one clock this far apart leave no doubt about a third reading between them.
const AT_ONCE: Duration = Duration::from_micros(20);

/// How often clocks are read again when something came between.
const READINGS: usize = 5;

/// A UDP socket, and room for what comes with a packet.
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
    /// Which of our addresses it was sent to.
    pub(crate) to: Option<IpAddr>,
    /// When the kernel had it, whenever we came round to reading it.
    pub(crate) at: Instant,
    /// The byte with DSCP and ECN.
    pub(crate) mark: Option<u8>,
}

impl Datagrams {
    /// Asks the kernel to tell all it knows.
    pub(crate) fn new(socket: UdpSocket) -> io::Result<Self> {
        let v6 = socket.local_addr()?.is_ipv6();
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        // A socket of IPv6 that also serves IPv4 has both kinds of packets.
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
            mark: None,
        };
        for control in message.cmsgs()? {
            match control {
                ControlMessageOwned::ScmTimestampns(stamp) => arrival.at = now - waited(stamp, wall),
                ControlMessageOwned::Ipv4Tos(byte) => arrival.mark = Some(byte),
                ControlMessageOwned::Ipv6TClass(word) => arrival.mark = Some(word as u8),
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

    /// Sends from the address that the other side knows, with the mark that it should see.
    pub(crate) fn reply(&self, payload: &[u8], arrival: &Arrival, mark: u8) -> io::Result<()> {
        let word = i32::from(mark);
        let tos = match arrival.from.ip().to_canonical() {
            IpAddr::V4(_) => ControlMessage::Ipv4Tos(&mark),
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
                send(&[ControlMessage::Ipv4PacketInfo(&info), tos])
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
                send(&[ControlMessage::Ipv6PacketInfo(&info), tos])
            }
            None => send(&[tos]),
        }
    }

    /// Sends on a connected socket, whose own mark the packet takes.
    pub(crate) fn send(&self, payload: &[u8]) -> io::Result<()> {
        self.socket.send(payload).map(drop)
    }
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// One moment on both clocks, from readings of this one, the wall's and this one again.
///
/// A thread that loses its processor between two readings would take the pause for a wait of the packet, and tell a round
/// trip that much too short: the closest readings count.
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

/// How long a packet lay in the socket. The stamp is of the wall clock, which may have been set since.
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

    /// The mark travels there and back, from and to the address that was asked, on both protocols and on a socket of both.
    #[test]
    fn marks_and_addresses_are_told_and_kept() {
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
            assert_eq!(arrival.mark, Some(0xb8), "{listen} {ask}");
            assert_eq!(arrival.to.unwrap().to_canonical(), asked);
            server.reply(b"pong", &arrival, 0x21).unwrap();
            let arrival = client.receive(&mut buffer).unwrap();
            assert_eq!(
                (&buffer[..arrival.length], arrival.mark),
                (&b"pong"[..], Some(0x21))
            );
        }
    }

    #[test]
    fn a_pause_between_two_readings_is_not_a_wait() {
        let (start, epoch) = (Instant::now(), UNIX_EPOCH + Duration::from_secs(100));
        let micros = Duration::from_micros;
        // Readings at these microseconds: of this clock, of the wall's, of this one.
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
    fn a_clock_that_was_set_does_not_make_a_wait() {
        let now = UNIX_EPOCH + Duration::from_secs(100);
        assert_eq!(
            waited(TimeSpec::new(99, 999_000_000), now),
            Duration::from_millis(1)
        );
        assert_eq!(waited(TimeSpec::new(50, 0), now), Duration::ZERO);
        assert_eq!(waited(TimeSpec::new(101, 0), now), Duration::ZERO);
    }
}

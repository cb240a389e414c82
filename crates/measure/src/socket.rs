//! Socket options and waits, for client and server.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::sys::socket::sockopt::{SetStruct, SetUsize};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::sockopt;

/// Sleeps until the socket is readable or at its end (true), or until `deadline` (false).
pub(crate) fn wait_readable(socket: impl AsFd, deadline: Instant) -> io::Result<bool> {
    wait(&mut [PollFd::new(&socket, PollFlags::IN)], deadline)
}

/// Sleeps until one of the sockets is ready (true), or until `deadline` (false).
pub(crate) fn wait(sockets: &mut [PollFd<'_>], deadline: Instant) -> io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // Nanoseconds and not milliseconds: a wait that is rounded down to zero would spin until the deadline.
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        match rustix::event::poll(sockets, Some(&timeout)) {
            Ok(0) if left.is_zero() => return Ok(false),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(e) => return Err(e.into()),
        }
    }
}

/// Sleeps until `deadline`.
pub(crate) fn sleep_until(deadline: Instant) {
    let left = deadline.saturating_duration_since(Instant::now());
    if left > Duration::ZERO {
        std::thread::sleep(left);
    }
}

/// Sets the DSCP (0 to 63) of all packets of a socket.
///
/// A dual-stack socket with an IPv4 peer uses `IP_TOS` and ignores `IPV6_TCLASS`, so that it gets both.
pub(crate) fn set_dscp(socket: impl AsFd, local: SocketAddr, dscp: u8) -> io::Result<()> {
    let byte = dscp << 2;
    let v4 = matches!(local.ip().to_canonical(), IpAddr::V4(_));
    if local.is_ipv6() {
        sockopt::set_ipv6_tclass(&socket, u32::from(byte))?;
    }
    if v4 {
        sockopt::set_ip_tos(&socket, byte)?;
    }
    Ok(())
}

/// Has the socket send a reset when it is closed. Otherwise its buffer could take seconds to drain through the line.
pub(crate) fn reset_on_close(socket: impl AsFd) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(socket, Some(Duration::ZERO))?)
}

nix::setsockopt_impl!(
    ReceiveLowWater,
    libc::SOL_SOCKET,
    libc::SO_RCVLOWAT,
    usize,
    SetUsize
);

/// `SO_RCVLOWAT`: the number of bytes that wakes a reader.
#[derive(Clone, Copy, Debug)]
struct ReceiveLowWater;

/// Lets a reader sleep until `bytes` bytes have arrived. The kernel acknowledges every second packet meanwhile.
pub(crate) fn wake_reader_at(socket: impl AsFd, bytes: usize) -> io::Result<()> {
    Ok(nix::sys::socket::setsockopt(&socket, ReceiveLowWater, &bytes)?)
}

nix::setsockopt_impl!(
    MaxPacingRate,
    libc::SOL_SOCKET,
    libc::SO_MAX_PACING_RATE,
    u64,
    SetStruct<u64>
);

/// `SO_MAX_PACING_RATE`: the largest rate of a sender.
#[derive(Clone, Copy, Debug)]
struct MaxPacingRate;

/// Limits the rate of a sender, bytes per second.
pub(crate) fn pace(socket: impl AsFd, bytes_per_s: u64) -> io::Result<()> {
    Ok(nix::sys::socket::setsockopt(
        &socket,
        MaxPacingRate,
        &bytes_per_s,
    )?)
}

/// Sets a congestion control by name.
pub(crate) fn set_congestion(socket: impl AsFd, name: &str) -> io::Result<()> {
    Ok(sockopt::set_tcp_congestion(socket, name)?)
}

/// The congestion control in use.
pub(crate) fn congestion(socket: impl AsFd) -> io::Result<String> {
    Ok(sockopt::tcp_congestion(socket)?)
}

/// The congestion controls that an unprivileged process may use on this machine, separated by spaces.
pub(crate) fn available_congestion() -> String {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
        .map_or_else(|_| "(unknown)".to_owned(), |list| list.trim().to_owned())
}

/// Release of the running kernel.
pub(crate) fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Name of this machine.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

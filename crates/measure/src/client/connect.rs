//! Resolves names and connects sockets.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc;

use rustix::event::PollFlags;
use socket2::{Domain, Socket, Type};

use super::types::Target;
use crate::deadline::{Deadline, WaitError};
use crate::host::refuse_odd_host;
use crate::result::Settings;
use crate::scenario::Family;
use crate::{Error, foreign, socket};

/// Tries the addresses of a name in turn.
pub(super) fn any(target: &Target, deadline: &Deadline<'_>) -> Result<TcpStream, Error> {
    let addresses = resolve(target, deadline)?;
    let mut failure = WaitError::Failed(io::ErrorKind::TimedOut.into());
    for (index, address) in addresses.iter().enumerate() {
        let share = deadline.left() / (addresses.len() - index) as u32;
        match connect(*address, &deadline.at_most(share)) {
            Err(WaitError::Stopped) => return Err(Error::Interrupted { at_s: 0.0 }),
            Err(other) => failure = other,
            Ok(stream) => return Ok(stream),
        }
    }
    Err(failure.or(|reason| failed(target, reason)))
}

fn connect(address: SocketAddr, deadline: &Deadline<'_>) -> Result<TcpStream, WaitError> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    begin(&socket, address)?;
    finish(socket, deadline)
}

/// Sends the first packet of the handshake.
fn begin(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    match socket.connect(&address.into()) {
        Err(e) if e.raw_os_error() != Some(libc::EINPROGRESS) => Err(e),
        _ => Ok(()),
    }
}

/// Waits for the end of the handshake.
pub(super) fn finish(socket: Socket, deadline: &Deadline<'_>) -> Result<TcpStream, WaitError> {
    deadline.wait(&socket, PollFlags::OUT)?;
    if let Some(reason) = socket.take_error()? {
        return Err(reason.into());
    }
    socket.set_nonblocking(false)?;
    Ok(socket.into())
}

/// Begins to connect a flow. Its options are set before that, so that the handshake has the DSCP, counts for the
/// congestion control, and carries the segment size.
pub(super) fn flow(
    target: &Target,
    server: SocketAddr,
    settings: &Settings,
    dscp: u8,
) -> Result<Socket, Error> {
    let open = || -> io::Result<Socket> { Socket::new(Domain::for_address(server), Type::STREAM, None) };
    let socket = open().map_err(|e| Error::system("open a socket", e))?;
    if let Some(name) = &settings.congestion {
        socket::set_congestion(&socket, name).map_err(|_| Error::Congestion {
            name: name.clone(),
            available: socket::available_congestion(),
        })?;
    }
    if let Some(mss) = settings.mss {
        socket
            .set_tcp_mss(mss)
            .map_err(|e| Error::system(format!("set a segment size of {mss} bytes"), e))?;
    }
    socket::set_dscp(&socket, server, dscp)
        .map_err(|e| Error::system(format!("mark packets with DSCP {dscp}"), e))?;
    begin(&socket, server).map_err(|e| failed(target, e))?;
    Ok(socket)
}

/// Refuses a congestion control that is not available, before any packet is sent.
pub(super) fn check_congestion(name: &str) -> Result<(), Error> {
    let scratch =
        Socket::new(Domain::IPV4, Type::STREAM, None).map_err(|e| Error::system("open a socket", e))?;
    socket::set_congestion(&scratch, name).map_err(|_| Error::Congestion {
        name: name.to_owned(),
        available: socket::available_congestion(),
    })
}

pub(super) fn failed(target: &Target, reason: io::Error) -> Error {
    Error::Connect {
        host: target.host.clone(),
        port: target.port,
        reason,
    }
}

fn resolve(target: &Target, deadline: &Deadline<'_>) -> Result<Vec<SocketAddr>, Error> {
    let wanted = match target.family {
        Some(Family::V4) => " of IPv4",
        Some(Family::V6) => " of IPv6",
        None => "",
    };
    let error = |reason: String| Error::Resolve {
        host: target.host.clone(),
        wanted,
        reason,
    };
    let host = target.host.trim_start_matches('[').trim_end_matches(']');
    let all = look_up(host, target.port, deadline)
        .map_err(|wait| wait.or(|reason| error(foreign::brief(&reason.to_string(), 200))))?;
    let addresses: Vec<_> = all
        .into_iter()
        .filter(|address| match target.family {
            Some(Family::V4) => address.is_ipv4(),
            Some(Family::V6) => address.is_ipv6(),
            None => true,
        })
        .collect();
    if addresses.is_empty() {
        Err(error("it has none".to_owned()))
    } else {
        Ok(addresses)
    }
}

/// Calls the system's resolver in its own thread, because the call cannot be interrupted. After the deadline the thread is
/// left to itself.
fn look_up(host: &str, port: u16, deadline: &Deadline<'_>) -> Result<Vec<SocketAddr>, WaitError> {
    refuse_odd_host(host)?;
    let (sender, receiver) = mpsc::channel();
    let host = host.to_owned();
    std::thread::Builder::new()
        .name("resolver".to_owned())
        .spawn(move || {
            let found = (host.as_str(), port).to_socket_addrs();
            // Fails if the receiver has given up waiting.
            let _ = sender.send(found.map(Vec::from_iter));
        })?;
    Ok(deadline.receive(&receiver)??)
}

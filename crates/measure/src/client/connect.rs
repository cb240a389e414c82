//! From a name to connected sockets.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::{Family, Target};
use crate::result::Settings;
use crate::{Error, socket};

/// Until a connection stands, all addresses of a name together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);

/// Tries the addresses of a name in turn, all within [`CONNECT_TIMEOUT`].
pub(super) fn any(target: &Target) -> Result<TcpStream, Error> {
    let addresses = resolve(target)?;
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    let mut failure = io::Error::from(io::ErrorKind::TimedOut);
    for (index, address) in addresses.iter().enumerate() {
        let share = deadline.saturating_duration_since(Instant::now()) / (addresses.len() - index) as u32;
        let share = share.max(Duration::from_millis(1));
        match TcpStream::connect_timeout(address, share) {
            Ok(stream) => return Ok(stream),
            Err(e) => failure = e,
        }
    }
    Err(failed(target, failure))
}

/// One flow. Its options are set before it connects, so that the handshake bears the mark, counts towards the congestion
/// control's state, and tells the other end how large a segment may be.
pub(super) fn flow(
    target: &Target,
    server: SocketAddr,
    settings: &Settings,
    dscp: u8,
) -> Result<TcpStream, Error> {
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
    socket
        .connect_timeout(&server.into(), CONNECT_TIMEOUT)
        .map_err(|e| failed(target, e))?;
    Ok(socket.into())
}

/// Whether this congestion control can be chosen, before anything is sent.
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

fn resolve(target: &Target) -> Result<Vec<SocketAddr>, Error> {
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
    let all = (host, target.port)
        .to_socket_addrs()
        .map_err(|e| error(e.to_string()))?;
    let addresses: Vec<_> = all
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

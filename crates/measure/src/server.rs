//! The server of a test: it receives, sends and echoes for its clients.
//!
//! Each connection has a thread, and one thread answers the probes. The server does not trust its clients: messages are small and must
//! arrive within seconds, the numbers of tests and connections are limited, each test has a deadline, and all that belongs to a test
//! is released when its control connection ends.

mod config;
mod echo;
mod guess_limiter;
mod log;
mod pending_connections;
mod probe_history;
mod rate_limiter;
mod reflect;
mod session;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};

use crate::connection::Connection;
use crate::datagram::Datagrams;
use crate::protocol::{DEFAULT_PORT, Hello, Reply, Request, Token};
#[cfg(feature = "full")]
use crate::rpm::server::Https;
use crate::{Error, secret, socket, tcp_info};
use config::Asked;
pub use config::Config;
use guess_limiter::GuessLimiter;
use log::Log;
use pending_connections::{PendingConnections, PendingGuard};
use session::{Admission, Session, Sessions, refuse};

/// A new connection is closed if its first message is not here after this long.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Receive buffer of the probe socket, bytes: room for probes while this process waits for a processor.
const ECHO_BUFFER: usize = 1 << 20;
/// The pause after the system could not accept a connection, for example because no file descriptor was left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A server with open sockets.
pub struct Server {
    listener: TcpListener,
    echo: UdpSocket,
    shared: Arc<Shared>,
}

/// State that all threads share.
struct Shared {
    config: Config,
    sessions: Sessions,
    pending: PendingConnections,
    #[cfg(feature = "full")]
    https: Option<Https>,
    /// Wakes the thread that accepts connections, to end it.
    wake: OwnedFd,
    is_over: AtomicBool,
    guess_limiter: GuessLimiter,
    log: Log,
}

impl Server {
    /// Opens the sockets. The server calls `log` with a line for each event that an operator may want to know.
    pub fn bind(config: Config, log: impl Fn(&str) + Send + Sync + 'static) -> Result<Self, Error> {
        let everywhere = |ip: IpAddr| SocketAddr::new(ip, DEFAULT_PORT);
        let log = Log::new(log);
        let (listener, echo) = match config.listen {
            Some(address) => open(address)?,
            // A machine without IPv6 serves IPv4 only.
            None => open(everywhere(Ipv6Addr::UNSPECIFIED.into()))
                .or_else(|_| open(everywhere(Ipv4Addr::UNSPECIFIED.into())))?,
        };
        #[cfg(feature = "full")]
        let https = Self::https(&config, &log);
        let wake = eventfd(0, EventfdFlags::CLOEXEC).map_err(|e| Error::system("make an event", e))?;
        let shared = Arc::new(Shared {
            config,
            sessions: Sessions::default(),
            pending: PendingConnections::default(),
            #[cfg(feature = "full")]
            https,
            wake,
            is_over: AtomicBool::new(false),
            guess_limiter: GuessLimiter::new(Instant::now()),
            log,
        });
        Ok(Self {
            listener,
            echo,
            shared,
        })
    }

    /// The HTTPS part, if the configuration has one.
    ///
    /// Only tests of responsiveness need it, so the server goes on without it. It fails under Debian's User Mode Linux on a host with
    /// AMX: that kernel does not preserve the AVX registers, and the cryptography gives wrong results.
    #[cfg(feature = "full")]
    fn https(config: &Config, log: &Log) -> Option<Https> {
        if !config.https {
            return None;
        }
        Https::new(config.max_load + HELLO_TIMEOUT, config.max_rate)
            .inspect_err(|error| {
                log.write(&format!("warning: {error}; no HTTPS, and so no tests with --rpm"))
            })
            .ok()
    }

    /// The address in use, with the port that the system chose if asked for port 0.
    pub fn local_addr(&self) -> Result<SocketAddr, Error> {
        self.listener
            .local_addr()
            .map_err(|e| Error::system("read the server's address", e))
    }

    /// Serves until the process ends, or until the first test is over if the configuration says so.
    pub fn run(self) -> Result<(), Error> {
        let Self {
            listener,
            echo,
            shared,
        } = self;
        let datagrams =
            Datagrams::new(echo).map_err(|e| Error::system("read the traffic class of packets", e))?;
        let key = secret::random().map_err(|e| Error::system("get random bytes", e))?;
        let theirs = shared.clone();
        // Set before the thread starts, so that no probe arrives earlier than the origin of its times.
        let origin = Instant::now();
        thread::Builder::new()
            .name("echo".to_owned())
            .spawn(move || echo::answer(datagrams, key, origin, &theirs.config, &theirs.sessions))
            .map_err(|e| Error::system("start a thread", e))?;
        while !shared.is_over.load(Ordering::Acquire) {
            let mut events = [
                PollFd::new(&listener, PollFlags::IN),
                PollFd::new(&shared.wake, PollFlags::IN),
            ];
            let far = Instant::now() + Duration::from_secs(3600);
            let is_connection = socket::wait(&mut events, far).is_ok() && !events[0].revents().is_empty();
            if is_connection
                && listener
                    .accept()
                    .and_then(|(s, peer)| welcome(s, peer, &shared))
                    .is_err()
            {
                thread::sleep(ACCEPT_PAUSE);
            }
        }
        Ok(())
    }
}

impl Shared {
    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        // Adding 1 can fail only if the counter of the event is at its maximum, 2^64 - 2.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

/// A TCP listener and a UDP socket on one address and port.
fn open(address: SocketAddr) -> Result<(TcpListener, UdpSocket), Error> {
    use socket2::{Domain, Socket, Type};
    let fail = |e| Error::system(format!("listen on {address}"), e);
    let bound = |kind, address: SocketAddr| -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(address), kind, None)?;
        if address.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        if kind == Type::STREAM {
            socket.set_reuse_address(true)?;
        }
        socket.bind(&address.into())?;
        Ok(socket)
    };
    let (listener, echo) = loop {
        let listener = bound(Type::STREAM, address).map_err(fail)?;
        // An old kernel cannot save the SYN. The result then has no DSCP on arrival.
        let _ = tcp_info::keep_syn(&listener);
        listener.listen(128).map_err(fail)?;
        let listener = TcpListener::from(listener);
        match bound(Type::DGRAM, listener.local_addr().map_err(fail)?) {
            Ok(echo) => break (listener, echo),
            // The system has chosen a TCP port whose UDP port belongs to another program: let it choose again.
            Err(error) if address.port() == 0 && error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(fail(error)),
        }
    };
    // The kernel limits the size (`net.core.rmem_max`).
    let _ = echo.set_recv_buffer_size(ECHO_BUFFER);
    Ok((listener, echo.into()))
}

/// Starts a thread for a new connection.
fn welcome(stream: TcpStream, peer: SocketAddr, shared: &Arc<Shared>) -> io::Result<()> {
    let client = peer.ip().to_canonical();
    let pending = PendingGuard::admit(&shared.pending, client, &stream)?;
    let shared = shared.clone();
    thread::Builder::new()
        .name("client".to_owned())
        // An error on a connection shows at the client; the server goes on.
        .spawn(move || drop(greet(stream, client, pending, &shared)))
        .map(drop)
}

/// Serves a new connection according to its first message.
fn greet(stream: TcpStream, client: IpAddr, pending: PendingGuard, shared: &Arc<Shared>) -> io::Result<()> {
    #[cfg(feature = "full")]
    if let Some(https) = &shared.https
        && begins_with_tls(&stream)?
    {
        return https.serve(stream, client);
    }
    let mut connection = Connection::new(stream)?;
    let hello = match connection.expect(HELLO_TIMEOUT) {
        Ok(hello) => hello,
        Err(e) => return refuse(connection, e.to_string()),
    };
    match hello {
        Hello::Control {
            version,
            down,
            up,
            load_ms,
        } => {
            let asked = Asked { down, up, load_ms };
            if let Err(reason) = shared.config.allows(version, &asked) {
                return refuse(connection, reason);
            }
            if let Some(secret) = &shared.config.secret
                && let Err(reason) = challenge(&mut connection, secret, &shared.guess_limiter, client)?
            {
                shared.log.write(&format!("{client}: refused, wrong secret"));
                return refuse(connection, reason);
            }
            let session = Session::new(client, connection.stream(), down, up)?;
            let admission = match Admission::new(session, &shared.sessions, &shared.config)? {
                Ok(admission) => admission,
                Err(full) => return refuse(connection, full.to_string()),
            };
            drop(pending);
            shared.log.write(&format!(
                "{client}: test with {down} downloads and {up} uploads, {} s",
                load_ms as f64 / 1000.0
            ));
            let outcome = session::conduct(connection, &admission, Duration::from_millis(load_ms));
            let words = outcome
                .as_ref()
                .map_or_else(ToString::to_string, |()| "done".to_owned());
            shared.log.write(&format!("{client}: {words}"));
            if shared.config.once && outcome.is_ok() {
                shared.end();
            }
            outcome
        }
        Hello::Data {
            token,
            direction,
            flow,
            dscp,
            congestion,
            window,
        } => match shared.sessions.find(token, client) {
            None => refuse(connection, "it has no such test".to_owned()),
            Some(session) => {
                let attached =
                    session.attach(&connection, direction, flow, dscp, congestion.as_deref(), window)?;
                match attached {
                    Ok(reply) => connection.send(&reply),
                    Err(reason) => refuse(connection, reason),
                }
            }
        },
    }
}

/// True if the first byte is that of a TLS handshake (RFC 8446, section 5.1: record type 22). No frame of ours begins with it: as the
/// highest byte of a length it would be far too large.
#[cfg(feature = "full")]
fn begins_with_tls(stream: &TcpStream) -> io::Result<bool> {
    const HANDSHAKE: u8 = 22;
    let mut first = [0];
    let came = socket::wait_readable(stream, Instant::now() + HELLO_TIMEOUT)?;
    Ok(came && stream.peek(&mut first)? == 1 && first[0] == HANDSHAKE)
}

/// Has the client prove that it knows the secret. The inner error is the reason for the client.
fn challenge(
    connection: &mut Connection,
    secret: &str,
    guess_limiter: &GuessLimiter,
    client: IpAddr,
) -> io::Result<Result<(), String>> {
    let nonce = Token(secret::random()?);
    connection.send(&Reply::Challenge { nonce })?;
    let Request::Proof { mac } = connection.expect(HELLO_TIMEOUT)? else {
        return Ok(Err("it expects the proof of its secret first".to_owned()));
    };
    if !guess_limiter.try_take(client, Instant::now()) {
        return Ok(Err(
            "too many wrong secrets came from your address; try again in a minute".to_owned(),
        ));
    }
    if secret::is_proven(secret, nonce, &mac) {
        guess_limiter.give_back(client);
        Ok(Ok(()))
    } else {
        Ok(Err(
            "wrong secret; give the secret of this server with --secret".to_owned()
        ))
    }
}

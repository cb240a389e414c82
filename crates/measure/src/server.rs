//! The far end of a test: sink, source and echo for clients that come and go.
//!
//! One thread per connection and one for the probes. A client is trusted with nothing: messages are small and due within
//! seconds, tests and connections are counted, each test has a last moment, and whatever a client leaves behind goes when
//! its control connection does.

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
use crate::rpm::server::Https;
use crate::{Error, secret, socket, tcp_info};
use config::Asked;
pub use config::Config;
use guess_limiter::GuessLimiter;
use log::Log;
use pending_connections::{PendingConnections, PendingGuard};
use session::{Admission, Session, Sessions, refuse};

/// A connection that has not said what it is after this long is closed.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of probes that may wait for an answer.
const ECHO_BUFFER: usize = 1 << 20;
/// The pause after the system had no room for one more connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A server with its sockets open.
pub struct Server {
    listener: TcpListener,
    echo: UdpSocket,
    shared: Arc<Shared>,
}

/// What all threads know.
struct Shared {
    config: Config,
    sessions: Sessions,
    pending: PendingConnections,
    https: Option<Https>,
    /// Wakes the thread that accepts, to end.
    wake: OwnedFd,
    is_over: AtomicBool,
    guess_limiter: GuessLimiter,
    log: Log,
}

impl Server {
    /// Opens the sockets. `log` is told in a line whatever the operator may want to know.
    pub fn bind(config: Config, log: impl Fn(&str) + Send + Sync + 'static) -> Result<Self, Error> {
        let everywhere = |ip: IpAddr| SocketAddr::new(ip, DEFAULT_PORT);
        let log = Log::new(log);
        let (listener, echo) = match config.listen {
            Some(address) => open(address)?,
            // A machine without IPv6 still serves IPv4.
            None => open(everywhere(Ipv6Addr::UNSPECIFIED.into()))
                .or_else(|_| open(everywhere(Ipv4Addr::UNSPECIFIED.into())))?,
        };
        let https = || Https::new(config.max_load + HELLO_TIMEOUT, config.max_rate);
        // Only tests of responsiveness need it. Cryptography is at the mercy of the processor: Debian's User Mode Linux does not
        // keep the AVX registers where the host has AMX, and then no certificate is right.
        let https = match config.https.then(https).transpose() {
            Ok(https) => https,
            Err(error) => {
                log.say(&format!("warning: {error}; no HTTPS, and so no tests with --rpm"));
                None
            }
        };
        let wake = eventfd(0, EventfdFlags::CLOEXEC).map_err(|e| Error::system("make an event", e))?;
        let shared = Arc::new(Shared {
            config,
            sessions: Sessions::default(),
            pending: PendingConnections::default(),
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
        let datagrams = Datagrams::new(echo).map_err(|e| Error::system("read marks of packets", e))?;
        let key = secret::random().map_err(|e| Error::system("draw random bytes", e))?;
        let theirs = shared.clone();
        // Before anybody is let in: what arrives before the thread runs has its time, too.
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
        // The counter of an event cannot overflow by ones.
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
        // An old kernel then cannot tell which mark a flow's first packet bore, and the result says so.
        let _ = tcp_info::keep_syn(&listener);
        listener.listen(128).map_err(fail)?;
        let listener = TcpListener::from(listener);
        match bound(Type::DGRAM, listener.local_addr().map_err(fail)?) {
            Ok(echo) => break (listener, echo),
            // A TCP port that the system has chosen may be another program's UDP port: the system chooses again.
            Err(error) if address.port() == 0 && error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(fail(error)),
        }
    };
    // Room for probes while this process waits for a processor; the kernel gives as much of it as it allows.
    let _ = echo.set_recv_buffer_size(ECHO_BUFFER);
    Ok((listener, echo.into()))
}

fn welcome(stream: TcpStream, peer: SocketAddr, shared: &Arc<Shared>) -> io::Result<()> {
    let client = peer.ip().to_canonical();
    let pending = PendingGuard::enter(&shared.pending, client, &stream)?;
    let shared = shared.clone();
    thread::Builder::new()
        .name("client".to_owned())
        // A connection that fails is the client's to explain; the server goes on.
        .spawn(move || drop(greet(stream, client, pending, &shared)))
        .map(drop)
}

/// Finds out what a new connection is for.
fn greet(stream: TcpStream, client: IpAddr, pending: PendingGuard, shared: &Arc<Shared>) -> io::Result<()> {
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
                shared.log.say(&format!("{client}: refused, wrong secret"));
                return refuse(connection, reason);
            }
            let session = Session::new(client, connection.stream(), down, up)?;
            let admission = match Admission::new(session, &shared.sessions, &shared.config)? {
                Ok(admission) => admission,
                Err(refusal) => return refuse(connection, refusal.to_string()),
            };
            drop(pending);
            shared.log.say(&format!(
                "{client}: test with {down} downloads and {up} uploads, {} s",
                load_ms as f64 / 1000.0
            ));
            let outcome = session::conduct(connection, &admission, Duration::from_millis(load_ms));
            let words = outcome
                .as_ref()
                .map_or_else(ToString::to_string, |()| "done".to_owned());
            shared.log.say(&format!("{client}: {words}"));
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
        } => match shared.sessions.find(token, client) {
            None => refuse(connection, "it knows no such test".to_owned()),
            Some(session) => {
                let attached = session.attach(&connection, direction, flow, dscp, congestion.as_deref())?;
                match attached {
                    Ok(reply) => connection.send(&reply),
                    Err(reason) => refuse(connection, reason),
                }
            }
        },
    }
}

/// Whether the first byte is that of a TLS handshake (RFC 8446, section 5.1: record type 22). As the length of one of our
/// frames it would be far too large.
fn begins_with_tls(stream: &TcpStream) -> io::Result<bool> {
    const HANDSHAKE: u8 = 22;
    let mut first = [0];
    let came = socket::wait_readable(stream, Instant::now() + HELLO_TIMEOUT)?;
    Ok(came && stream.peek(&mut first)? == 1 && first[0] == HANDSHAKE)
}

/// Has the client prove that it knows the secret; the inner error is for the client.
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
            "it has another secret; give the right one with --secret".to_owned()
        ))
    }
}

//! The far end of a test: sink, source and echo for clients that come and go.
//!
//! One thread per connection and one for the probes. A client is trusted with nothing: messages are small and due within
//! seconds, tests and connections are counted, each test has a last moment, and whatever a client leaves behind goes when
//! its control connection does.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::rand::{GetRandomFlags, getrandom};

use crate::Error;
use crate::connection::Connection;
use crate::load::Load;
use crate::protocol::{
    self, DEFAULT_PORT, Hello, MAX_FLOWS, MAX_LOAD_MS, MAX_REQUEST, Reply, Request, Token,
};
use crate::result::Direction;
use crate::socket;

/// A connection that has not said what it is after this long is closed.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// From the welcome to the start of the load: the longest idle phase, and time to connect.
const SETUP_TIMEOUT: Duration = Duration::from_millis(protocol::MAX_IDLE_MS + 30_000);
/// From the end of the load to the end of the test: results travel through a full buffer, and probes are still answered.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(60);
/// The time between two progress messages.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Unacknowledged data on the control connection means that the client is gone after this long.
const USER_TIMEOUT_MS: u32 = 60_000;
/// Connections that have not yet named a test, all together.
const MAX_STRANGERS: usize = 64;
/// The pause after the system had no room for one more connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a server allows.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address and port, TCP and UDP; none is all of the machine's addresses and the usual port.
    pub listen: Option<SocketAddr>,
    /// The longest load.
    pub max_load: Duration,
    /// Tests at the same time.
    pub max_clients: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: None,
            max_load: Duration::from_secs(300),
            max_clients: 8,
        }
    }
}

/// A server with its sockets open.
pub struct Server {
    listener: TcpListener,
    echo: UdpSocket,
    shared: Arc<Shared>,
}

struct Shared {
    config: Config,
    sessions: Mutex<BTreeMap<Token, Arc<Session>>>,
    strangers: AtomicUsize,
}

/// One test.
struct Session {
    /// Where the control connection comes from; data and probes must come from there too.
    client: IpAddr,
    congestion: Option<String>,
    flows: Mutex<Flows>,
}

/// The data connections of a test, parked until the load starts.
struct Flows {
    down: Vec<Option<TcpStream>>,
    up: Vec<Option<TcpStream>>,
}

impl Server {
    /// Opens the sockets.
    pub fn bind(config: Config) -> Result<Self, Error> {
        let everywhere = |ip: IpAddr| SocketAddr::new(ip, DEFAULT_PORT);
        let (listener, echo) = match config.listen {
            Some(address) => open(address)?,
            // A machine without IPv6 still serves IPv4.
            None => open(everywhere(Ipv6Addr::UNSPECIFIED.into()))
                .or_else(|_| open(everywhere(Ipv4Addr::UNSPECIFIED.into())))?,
        };
        let sessions = Mutex::new(BTreeMap::new());
        let shared = Arc::new(Shared {
            config,
            sessions,
            strangers: AtomicUsize::new(0),
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

    /// Serves until the process ends.
    pub fn run(self) -> Result<Infallible, Error> {
        let Self {
            listener,
            echo,
            shared,
        } = self;
        let sessions = shared.clone();
        thread::Builder::new()
            .name("echo".to_owned())
            .spawn(move || answer_probes(&echo, &sessions))
            .map_err(|e| Error::system("start a thread", e))?;
        loop {
            let accepted = listener.accept().and_then(|(stream, peer)| {
                let Some(stranger) = Stranger::admit(&shared) else {
                    return Ok(());
                };
                let shared = shared.clone();
                thread::Builder::new()
                    .name("client".to_owned())
                    // A connection that fails is the client's to explain; the server goes on.
                    .spawn(move || drop(greet(stream, peer.ip().to_canonical(), stranger, &shared)))
                    .map(drop)
            });
            if accepted.is_err() {
                thread::sleep(ACCEPT_PAUSE);
            }
        }
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
    let listener = bound(Type::STREAM, address).map_err(fail)?;
    listener.listen(128).map_err(fail)?;
    let listener = TcpListener::from(listener);
    let echo = bound(Type::DGRAM, listener.local_addr().map_err(fail)?).map_err(fail)?;
    Ok((listener, echo.into()))
}

/// A place among the connections that have not yet named a test; gone when dropped.
struct Stranger(Arc<Shared>);

impl Stranger {
    fn admit(shared: &Arc<Shared>) -> Option<Self> {
        let place = Self(shared.clone());
        (shared.strangers.fetch_add(1, Ordering::AcqRel) < MAX_STRANGERS).then_some(place)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.0.strangers.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Shared {
    fn sessions(&self) -> MutexGuard<'_, BTreeMap<Token, Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn session(&self, token: Token, client: IpAddr) -> Option<Arc<Session>> {
        self.sessions()
            .get(&token)
            .filter(|session| session.client == client)
            .cloned()
    }
}

impl Session {
    fn flows(&self) -> MutexGuard<'_, Flows> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn answer_probes(echo: &UdpSocket, shared: &Shared) {
    let origin = Instant::now();
    let mut buffer = [0; protocol::Probe::LENGTH + 1];
    loop {
        let Ok((length, from)) = echo.recv_from(&mut buffer) else {
            // An ICMP message about an earlier reply, or a system out of memory: neither is worth spinning for.
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        let Some(mut probe) = protocol::Probe::decode(&buffer[..length]) else {
            continue;
        };
        if shared.session(probe.token, from.ip().to_canonical()).is_some() {
            probe.server_ns = origin.elapsed().as_nanos() as u64;
            // A reply that cannot be sent is a lost probe, which the client counts.
            let _ = echo.send_to(&probe.encode(), from);
        }
    }
}

/// Finds out what a new connection is for.
fn greet(stream: TcpStream, client: IpAddr, stranger: Stranger, shared: &Arc<Shared>) -> io::Result<()> {
    let mut connection = Connection::new(stream, MAX_REQUEST)?;
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
            congestion,
        } => {
            if version != protocol::VERSION {
                let ours = protocol::VERSION;
                return refuse(
                    connection,
                    format!(
                        "it speaks protocol version {ours}, this program {version}; use the same sqm on both"
                    ),
                );
            }
            let limit_ms = MAX_LOAD_MS.min(shared.config.max_load.as_millis() as u64);
            if load_ms > limit_ms {
                return refuse(
                    connection,
                    format!("it allows at most {} s of load", limit_ms / 1000),
                );
            }
            if down > MAX_FLOWS || up > MAX_FLOWS {
                return refuse(
                    connection,
                    format!("it allows at most {MAX_FLOWS} flows in each direction"),
                );
            }
            if let Some(name) = &congestion
                && socket::set_congestion(connection.stream(), name).is_err()
            {
                let available = socket::available_congestion();
                return refuse(
                    connection,
                    format!("congestion control '{name}' cannot be chosen there; there is: {available}"),
                );
            }
            let flows = Mutex::new(Flows {
                down: none(down),
                up: none(up),
            });
            let Some(admission) = Admission::new(
                Session {
                    client,
                    congestion,
                    flows,
                },
                shared,
            )?
            else {
                return refuse(
                    connection,
                    "it is busy with other tests; try again later".to_owned(),
                );
            };
            drop(stranger);
            conduct(connection, &admission, Duration::from_millis(load_ms))
        }
        Hello::Data {
            token,
            direction,
            flow,
            dscp,
        } => {
            let Some(session) = shared.session(token, client) else {
                return refuse(connection, "it knows no such test".to_owned());
            };
            attach(connection, &session, direction, flow as usize, dscp)
        }
    }
}

fn none(count: u32) -> Vec<Option<TcpStream>> {
    std::iter::repeat_with(|| None).take(count as usize).collect()
}

fn refuse(mut connection: Connection, reason: String) -> io::Result<()> {
    connection.send(&Reply::Error { reason })
}

/// A test's place in the table; dropping it forgets the test.
struct Admission<'a> {
    token: Token,
    session: Arc<Session>,
    shared: &'a Shared,
}

impl<'a> Admission<'a> {
    /// None when the server is full.
    fn new(session: Session, shared: &'a Shared) -> io::Result<Option<Self>> {
        let mut token = Token([0; 16]);
        getrandom(&mut token.0, GetRandomFlags::empty())?;
        let session = Arc::new(session);
        let mut sessions = shared.sessions();
        if sessions.len() >= shared.config.max_clients {
            return Ok(None);
        }
        sessions.insert(token, session.clone());
        Ok(Some(Self {
            token,
            session,
            shared,
        }))
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        self.shared.sessions().remove(&self.token);
    }
}

/// Parks a data connection with its test.
fn attach(
    mut connection: Connection,
    session: &Session,
    direction: Direction,
    flow: usize,
    dscp: u8,
) -> io::Result<()> {
    let stream = connection.stream();
    socket::set_dscp(stream, stream.local_addr()?, dscp & 0x3f)?;
    if let Some(name) = &session.congestion {
        socket::set_congestion(stream, name)?;
    }
    let congestion = socket::congestion(stream)?;
    {
        let mut flows = session.flows();
        let list = match direction {
            Direction::Down => &mut flows.down,
            Direction::Up => &mut flows.up,
        };
        match list.get_mut(flow) {
            Some(place @ None) => *place = Some(stream.try_clone()?),
            _ => {
                drop(flows);
                return refuse(
                    connection,
                    format!("flow {flow} is taken or not part of the test"),
                );
            }
        }
    }
    connection.send(&Reply::Attached { congestion })
}

/// A test from the welcome to the client's leave.
fn conduct(mut control: Connection, admission: &Admission<'_>, length: Duration) -> io::Result<()> {
    rustix::net::sockopt::set_tcp_user_timeout(control.stream(), USER_TIMEOUT_MS)?;
    control.send(&Reply::Welcome {
        version: protocol::VERSION,
        token: admission.token,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: socket::kernel_release(),
    })?;
    let Request::Start = control.expect(SETUP_TIMEOUT)?;
    let start = Instant::now();
    let (down, up) = {
        let mut flows = admission.session.flows();
        (std::mem::take(&mut flows.down), std::mem::take(&mut flows.up))
    };
    let all = |flows: Vec<Option<TcpStream>>| flows.into_iter().collect::<Option<Vec<_>>>();
    let (Some(senders), Some(receivers)) = (all(down), all(up)) else {
        return refuse(control, "not all flows are connected".to_owned());
    };
    let load = Load::start(senders, receivers, start, length)?;
    let end = start + length;
    let mut next = start + PROGRESS_INTERVAL;
    while next < end {
        // The client has nothing to say here; if it leaves, this is where it shows.
        if control.receive::<Request>(next)?.is_none() {
            let elapsed_ms = start.elapsed().as_millis() as u64;
            control.send(&Reply::Progress {
                elapsed_ms,
                received: load.received(),
            })?;
            next += PROGRESS_INTERVAL;
        }
    }
    control.send(&Reply::Results {
        uploads: load.finish(),
    })?;
    // Probes are answered until the client closes.
    let goodbye = Instant::now() + GOODBYE_TIMEOUT;
    while control.receive::<Request>(goodbye)?.is_some() {}
    Ok(())
}

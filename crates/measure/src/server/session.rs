//! One test at the server.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::echo::Memory;
use super::{Shared, random, refuse};
use crate::connection::Connection;
use crate::cpu::{self, CpuTimes};
use crate::load::{Load, Role};
use crate::protocol::{self, Reply, Request, Token};
use crate::result::Direction;
use crate::{socket, tcp_info};

/// From the welcome to the start of the load: the longest idle phase, and time to connect.
const SETUP_TIMEOUT: Duration = Duration::from_millis(protocol::MAX_IDLE_MS + 30_000);
/// From the end of the load to the end of the test: the idle phase after it, and results that travel through a full buffer.
const GOODBYE_TIMEOUT: Duration = Duration::from_millis(protocol::MAX_IDLE_MS + 30_000);
/// Requests that a client may make after the load.
const LATE_REQUESTS: usize = 4;
/// The time between two progress messages.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Unacknowledged data on the control connection means that the client is gone after this long.
const USER_TIMEOUT_MS: u32 = 60_000;

/// The tests that run.
#[derive(Default)]
pub(super) struct Sessions(Mutex<BTreeMap<Token, Arc<Session>>>);

impl Sessions {
    /// The test with this token, if it was asked for from this address.
    pub(super) fn find(&self, token: Token, client: IpAddr) -> Option<Arc<Session>> {
        let sessions = self.lock();
        sessions
            .get(&token)
            .filter(|session| session.client == client)
            .cloned()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Token, Arc<Session>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A test.
pub(super) struct Session {
    client: IpAddr,
    flows: Mutex<Flows>,
    echo: Mutex<Memory>,
}

/// The data connections that stand, by direction and number.
struct Flows {
    down: Vec<Option<TcpStream>>,
    up: Vec<Option<TcpStream>>,
}

impl Session {
    pub(super) fn new(client: IpAddr, down: u32, up: u32) -> Self {
        let none = |count: u32| std::iter::repeat_with(|| None).take(count as usize).collect();
        Self {
            client,
            flows: Mutex::new(Flows {
                down: none(down),
                up: none(up),
            }),
            echo: Memory::new(),
        }
    }

    pub(super) fn echo(&self) -> MutexGuard<'_, Memory> {
        self.echo.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Parks a data connection with its test; the inner error is for the client.
    pub(super) fn attach(
        &self,
        connection: &Connection,
        direction: Direction,
        flow: u32,
        dscp: u8,
        congestion: Option<&str>,
    ) -> io::Result<Result<Reply, String>> {
        let stream = connection.stream();
        socket::set_dscp(stream, stream.local_addr()?, dscp & 0x3f)?;
        if let Some(name) = congestion
            && socket::set_congestion(stream, name).is_err()
        {
            let available = socket::available_congestion();
            return Ok(Err(format!(
                "congestion control '{name}' cannot be chosen there; there is: {available}"
            )));
        }
        let reply = Reply::Attached {
            congestion: socket::congestion(stream)?,
            dscp_arrived: tcp_info::arrived_dscp(stream),
        };
        let parked = stream.try_clone()?;
        let mut flows = self.flows();
        let list = match direction {
            Direction::Down => &mut flows.down,
            Direction::Up => &mut flows.up,
        };
        match list.get_mut(flow as usize) {
            Some(place @ None) => {
                *place = Some(parked);
                Ok(Ok(reply))
            }
            _ => Ok(Err(format!("flow {flow} is taken or not part of the test"))),
        }
    }

    /// All flows, downloads first; none while one is missing.
    fn take_flows(&self) -> Option<Vec<(TcpStream, Role)>> {
        let mut flows = self.flows();
        let (down, up) = (std::mem::take(&mut flows.down), std::mem::take(&mut flows.up));
        let down = down.into_iter().map(|stream| Some((stream?, Role::Send)));
        let up = up.into_iter().map(|stream| Some((stream?, Role::Receive)));
        down.chain(up).collect()
    }

    fn flows(&self) -> MutexGuard<'_, Flows> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a test has to wait.
pub(super) enum Refusal {
    Full,
    FullForAddress,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "it is busy with other tests; try again later",
            Self::FullForAddress => "it is busy with other tests from your address; try again later",
        })
    }
}

/// A test's place in the table; dropping it forgets the test.
pub(super) struct Admission<'a> {
    token: Token,
    session: Arc<Session>,
    shared: &'a Shared,
}

impl<'a> Admission<'a> {
    pub(super) fn new(session: Session, shared: &'a Shared) -> io::Result<Result<Self, Refusal>> {
        let token = Token(random()?);
        let session = Arc::new(session);
        let mut sessions = shared.sessions.lock();
        if sessions.len() >= shared.config.max_clients {
            return Ok(Err(Refusal::Full));
        }
        let same = sessions.values().filter(|other| other.client == session.client);
        if same.count() >= shared.config.max_per_address {
            return Ok(Err(Refusal::FullForAddress));
        }
        sessions.insert(token, session.clone());
        Ok(Ok(Self {
            token,
            session,
            shared,
        }))
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        self.shared.sessions.lock().remove(&self.token);
    }
}

/// A test from the welcome to the client's leave.
pub(super) fn conduct(
    mut control: Connection,
    admission: &Admission<'_>,
    length: Duration,
) -> io::Result<()> {
    rustix::net::sockopt::set_tcp_user_timeout(control.stream(), USER_TIMEOUT_MS)?;
    control.send(&Reply::Welcome {
        version: protocol::VERSION,
        token: admission.token,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: socket::kernel_release(),
        max_probes_per_s: admission.shared.config.max_probes_per_s,
    })?;
    let Request::Start = control.expect(SETUP_TIMEOUT)? else {
        return refuse(control, "it expects the start of the load".to_owned());
    };
    let start = Instant::now();
    let Some(flows) = admission.session.take_flows() else {
        return refuse(control, "not all flows are connected".to_owned());
    };
    let roles: Vec<_> = flows.iter().map(|(_, role)| *role).collect();
    let before = CpuTimes::read();
    let load = Load::start(flows, start, length, admission.shared.config.max_rate)?;
    watch(&mut control, &load, start, length)?;
    let busiest_cpu = before
        .zip(CpuTimes::read())
        .and_then(|(before, after)| cpu::busiest(&before, &after));
    tell(&mut control, load, &roles)?;
    control.send(&Reply::Done { busiest_cpu })?;
    // Probes are answered until the client closes. It has nothing more to say, but its wish to stop may have crossed the results.
    let goodbye = Instant::now() + GOODBYE_TIMEOUT;
    for _ in 0..LATE_REQUESTS {
        match control.receive::<Request>(goodbye) {
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return Ok(()),
        }
    }
    Err(io::Error::other("it goes on asking after the end of the test"))
}

/// Tells the client once a second how far it is, until the load is over.
fn watch(control: &mut Connection, load: &Load, start: Instant, length: Duration) -> io::Result<()> {
    let end = start + length;
    let mut next = start + PROGRESS_INTERVAL;
    while next < end {
        // If the client leaves, this is where it shows.
        match control.receive::<Request>(next)? {
            Some(_) => {
                load.stop();
                return Ok(());
            }
            None => {
                control.send(&Reply::Progress {
                    elapsed_ms: start.elapsed().as_millis() as u64,
                    received: load.received(),
                })?;
                next += PROGRESS_INTERVAL;
            }
        }
    }
    if control.receive::<Request>(end)?.is_some() {
        load.stop();
    }
    Ok(())
}

fn tell(control: &mut Connection, load: Load, roles: &[Role]) -> io::Result<()> {
    let mut numbers = BTreeMap::from([(Direction::Down, 0), (Direction::Up, 0)]);
    for (seen, role) in load.finish().into_iter().zip(roles) {
        let direction = match role {
            Role::Send => Direction::Down,
            Role::Receive => Direction::Up,
        };
        let number = numbers.entry(direction).or_insert(0);
        control.send(&Reply::Flow {
            direction,
            flow: *number,
            seen,
        })?;
        *number += 1;
    }
    Ok(())
}

//! A test at the server.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sqm_core::direction::Direction;

use super::config::Config;
use super::probe_history::ProbeHistory;
use crate::connection::Connection;
use crate::cpu::{self, CpuTimes};
use crate::load::{Load, LoadFlow, Role};
use crate::protocol::{self, Reply, Request, Token, Window};
use crate::{secret, socket, tcp_info};

/// Longest time from the welcome to the start of the load: the longest idle phase, and 30 s to connect.
const SETUP_TIMEOUT: Duration = Duration::from_millis(protocol::MAX_IDLE_MS + 30_000);
/// Longest time from the end of the load to the end of the test: the idle phase after it, and 30 s for results behind a full buffer.
const GOODBYE_TIMEOUT: Duration = Duration::from_millis(protocol::MAX_IDLE_MS + 30_000);
/// Largest number of requests from a client after the load. A choice.
const LATE_REQUESTS: usize = 4;
/// A test whose load has not begun is idle after this long without a new flow or a probe. It is ended when another client
/// needs its place. Clients probe the idle line many times a second.
const IDLE_AFTER: Duration = Duration::from_secs(5);
/// The time between two progress messages.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// The client is gone if data on the control connection stays unacknowledged for this long, milliseconds.
const USER_TIMEOUT_MS: u32 = 60_000;

/// The running tests.
#[derive(Default)]
pub(super) struct Sessions(Mutex<BTreeMap<Token, Arc<Session>>>);

impl Sessions {
    /// The test with this token, if its control connection comes from this address.
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

/// The idle test that another one may replace: the longest idle test of the address with the most tests. `among` limits the choice
/// to one address, when that address has reached its own limit.
fn longest_idle(
    sessions: &BTreeMap<Token, Arc<Session>>,
    among: Option<IpAddr>,
    now: Instant,
) -> Option<Token> {
    let mut places: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for session in sessions.values() {
        *places.entry(session.client).or_default() += 1;
    }
    let idle = sessions.iter().filter_map(|(token, session)| {
        let since = session.silent_since()?;
        let is_asked = among.is_none_or(|client| client == session.client);
        (is_asked && now.saturating_duration_since(since) >= IDLE_AFTER).then_some((
            places[&session.client],
            Reverse(since),
            *token,
        ))
    });
    idle.max_by_key(|(places, since, _)| (*places, *since))
        .map(|(_, _, token)| token)
}

/// A test with its flows.
pub(super) struct Session {
    client: IpAddr,
    /// The control connection. The server shuts it down to end an idle test.
    control: TcpStream,
    /// Time of the client's last flow or probe; `None` once the load has begun.
    silent_since: Mutex<Option<Instant>>,
    flows: Mutex<Flows>,
    probe_history: Mutex<ProbeHistory>,
}

/// The established data connections, by direction and number.
struct Flows {
    down: Vec<Option<Flow>>,
    up: Vec<Option<Flow>>,
}

/// A data connection, and the part of the load in which it carries data.
type Flow = (TcpStream, Option<Window>);

impl Session {
    pub(super) fn new(client: IpAddr, control: &TcpStream, down: u32, up: u32) -> io::Result<Self> {
        let none = |count: u32| std::iter::repeat_with(|| None).take(count as usize).collect();
        Ok(Self {
            client,
            control: control.try_clone()?,
            silent_since: Mutex::new(Some(Instant::now())),
            flows: Mutex::new(Flows {
                down: none(down),
                up: none(up),
            }),
            probe_history: ProbeHistory::new(),
        })
    }

    /// Records that the client has attached a flow or sent a probe.
    pub(super) fn note_activity(&self) {
        if let Some(since) = &mut *self.silence() {
            *since = Instant::now();
        }
    }

    fn begin_load(&self) {
        *self.silence() = None;
    }

    fn silent_since(&self) -> Option<Instant> {
        *self.silence()
    }

    fn silence(&self) -> MutexGuard<'_, Option<Instant>> {
        self.silent_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn probe_history(&self) -> MutexGuard<'_, ProbeHistory> {
        self.probe_history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a data connection to the test. The inner error is the reason for the client.
    pub(super) fn attach(
        &self,
        connection: &Connection,
        direction: Direction,
        flow: u32,
        dscp: u8,
        congestion: Option<&str>,
        window: Option<Window>,
    ) -> io::Result<Result<Reply, String>> {
        let stream = connection.stream();
        socket::set_dscp(stream, stream.local_addr()?, dscp & 0x3f)?;
        if let Some(name) = congestion
            && socket::set_congestion(stream, name).is_err()
        {
            let available = socket::available_congestion();
            return Ok(Err(format!(
                "congestion control '{name}' is not available there; available: {available}"
            )));
        }
        let reply = Reply::Attached {
            congestion: socket::congestion(stream)?,
            dscp_arrived: tcp_info::arrived_dscp(stream),
        };
        let parked = stream.try_clone()?;
        let mut flows = self.flows();
        let list = match direction {
            Direction::Download => &mut flows.down,
            Direction::Upload => &mut flows.up,
        };
        match list.get_mut(flow as usize) {
            Some(place @ None) => {
                *place = Some((parked, window));
                self.note_activity();
                Ok(Ok(reply))
            }
            _ => Ok(Err(format!("flow {flow} is taken or not part of the test"))),
        }
    }

    /// All flows, downloads first. `None` if a flow is missing.
    fn take_flows(&self) -> Option<Vec<LoadFlow>> {
        let mut flows = self.flows();
        let (down, up) = (std::mem::take(&mut flows.down), std::mem::take(&mut flows.up));
        let of = |role| {
            move |flow: Option<Flow>| {
                let (stream, window) = flow?;
                Some(LoadFlow { stream, role, window })
            }
        };
        let down = down.into_iter().map(of(Role::Send));
        down.chain(up.into_iter().map(of(Role::Receive))).collect()
    }

    fn flows(&self) -> MutexGuard<'_, Flows> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why the server does not accept another test.
pub(super) enum AtCapacity {
    Full,
    FullForAddress,
}

impl fmt::Display for AtCapacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "it is busy with other tests; try again later",
            Self::FullForAddress => "it is busy with other tests from your address; try again later",
        })
    }
}

/// A test's entry in the table of running tests. Dropping it removes the entry.
pub(super) struct Admission<'a> {
    token: Token,
    session: Arc<Session>,
    sessions: &'a Sessions,
    config: &'a Config,
}

impl<'a> Admission<'a> {
    pub(super) fn new(
        session: Session,
        sessions: &'a Sessions,
        config: &'a Config,
    ) -> io::Result<Result<Self, AtCapacity>> {
        let token = Token(secret::random()?);
        let session = Arc::new(session);
        let mut table = sessions.lock();
        let client = session.client;
        let theirs = |sessions: &BTreeMap<Token, Arc<Session>>| {
            sessions.values().filter(|other| other.client == client).count()
        };
        if theirs(&table) >= config.max_per_address && !evict_idle(&mut table, Some(client)) {
            return Ok(Err(AtCapacity::FullForAddress));
        }
        if table.len() >= config.max_clients && !evict_idle(&mut table, None) {
            return Ok(Err(AtCapacity::Full));
        }
        table.insert(token, session.clone());
        drop(table);
        Ok(Ok(Self {
            token,
            session,
            sessions,
            config,
        }))
    }
}

/// Ends the longest idle test to make room for another. False if no test is idle.
fn evict_idle(sessions: &mut BTreeMap<Token, Arc<Session>>, among: Option<IpAddr>) -> bool {
    let idle = longest_idle(sessions, among, Instant::now());
    let Some(session) = idle.and_then(|token| sessions.remove(&token)) else {
        return false;
    };
    // Its thread sees the end of the stream. An error means that the connection is gone already.
    let _ = session.control.shutdown(Shutdown::Both);
    true
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        self.sessions.lock().remove(&self.token);
    }
}

/// Conducts a test, from the welcome until the client closes the control connection.
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
        max_probes_per_s: admission.config.max_probes_per_s,
        windows: true,
    })?;
    let Request::Start = control.expect(SETUP_TIMEOUT)? else {
        return refuse(control, "it expects the start of the load".to_owned());
    };
    admission.session.begin_load();
    let start = Instant::now();
    let Some(flows) = admission.session.take_flows() else {
        return refuse(control, "not all flows are connected".to_owned());
    };
    let roles: Vec<_> = flows.iter().map(|flow| flow.role).collect();
    let before = CpuTimes::read();
    let load = Load::start(flows, start, length, admission.config.max_rate)?;
    watch(&mut control, &load, start, length)?;
    let busiest_cpu = before
        .zip(CpuTimes::read())
        .and_then(|(before, after)| cpu::busiest(&before, &after));
    send_results(&mut control, load, &roles)?;
    control.send(&Reply::Done { busiest_cpu })?;
    // Probes are answered until the client closes the connection. It may still send a request to stop that crossed the results.
    let goodbye = Instant::now() + GOODBYE_TIMEOUT;
    for _ in 0..LATE_REQUESTS {
        match control.receive::<Request>(goodbye) {
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return Ok(()),
        }
    }
    Err(io::Error::other(
        "it keeps sending requests after the end of the test",
    ))
}

/// Sends a progress message once a second until the load is over, or until the client asks to stop.
fn watch(control: &mut Connection, load: &Load, start: Instant, length: Duration) -> io::Result<()> {
    let end = start + length;
    let mut next = start + PROGRESS_INTERVAL;
    while next < end {
        // A client that has gone away shows here as an error.
        match control.receive::<Request>(next)? {
            Some(_) => {
                load.stop();
                return Ok(());
            }
            None => {
                // The bytes are read before the time, so that all of them have arrived by that time even if this thread pauses in between.
                let received = load.received();
                control.send(&Reply::Progress {
                    elapsed_ms: start.elapsed().as_millis() as u64,
                    received,
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

/// Sends the results of each flow.
fn send_results(control: &mut Connection, load: Load, roles: &[Role]) -> io::Result<()> {
    let mut numbers = BTreeMap::from([(Direction::Download, 0), (Direction::Upload, 0)]);
    for (seen, role) in load.finish().into_iter().zip(roles) {
        let direction = match role {
            Role::Send => Direction::Download,
            Role::Receive => Direction::Upload,
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

/// Tells the client why the server refuses.
pub(super) fn refuse(mut connection: Connection, reason: String) -> io::Result<()> {
    connection.send(&Reply::Error { reason })
}

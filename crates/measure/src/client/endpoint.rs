//! One server of a test: its control connection, and the messages that it has sent.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use sqm_core::direction::Direction;

use super::bounds::Bounds;
use super::connect;
use super::types::Target;
use crate::connection::Connection;
use crate::deadline::Deadline;
use crate::foreign::MAX_REASON;
use crate::protocol::{self, Hello, Reply, Request, Seen, Token, Window};
use crate::result::{Sample, Settings};
use crate::scenario::FlowPlan;
use crate::{Error, foreign, secret, socket};

/// Progress messages that are closer together than this are not kept. A server sends one a second.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(900);
/// A name from the server (its version, its kernel, a congestion control) keeps at most this many characters.
const MAX_NAME: usize = 64;

/// A server that takes part in the test.
pub(super) struct Endpoint {
    target: Target,
    control: Connection,
    local: SocketAddr,
    remote: SocketAddr,
    token: Token,
    pub(super) program: String,
    pub(super) kernel: String,
    /// Probes per second that it answers in one test.
    pub(super) max_probes_per_s: u32,
    /// True if the server can load one direction after the other.
    pub(super) has_windows: bool,
    /// The numbers of downloads and uploads of the test.
    asked: (u32, u32),
    bounds: Bounds,
    /// The number of flows attached so far.
    attached: BTreeMap<Direction, u32>,
    received: Received,
    /// Results that arrive before this moment are refused. `None` if they may arrive at any time.
    earliest: Option<Instant>,
}

/// The messages of a server since the load began.
#[derive(Default)]
struct Received {
    messages: u64,
    /// Bytes of each upload that had arrived, at times of the server's clock.
    progress: Vec<(Duration, Vec<u64>)>,
    /// The last progress message, also if it came too soon to be kept.
    newest: Option<(Duration, Vec<u64>)>,
    flows: BTreeMap<(Direction, u32), Seen>,
    is_done: bool,
    busiest_cpu: Option<f64>,
}

/// A data connection that is being attached to the test.
pub(super) struct Attaching<S> {
    socket: S,
    hello: Hello,
    dscp: u8,
    direction: Direction,
    number: u32,
    endpoint: usize,
    window: Option<Window>,
}

/// A data connection that is attached to the test.
pub(super) struct Attached {
    pub(super) direction: Direction,
    /// The sender's congestion control.
    pub(super) congestion: String,
    pub(super) dscp_arrived: Option<u8>,
    pub(super) endpoint: usize,
    /// The number of the flow among those of the endpoint in this direction.
    pub(super) number: u32,
    pub(super) window: Option<Window>,
    /// Index of its plan in the scenario.
    pub(super) plan: usize,
    pub(super) stream: Option<TcpStream>,
}

impl Endpoint {
    /// Opens a control connection and asks for a test with `asked` downloads and uploads.
    pub(super) fn open(
        target: Target,
        asked: (u32, u32),
        settings: &Settings,
        deadline: &Deadline<'_>,
    ) -> Result<Self, Error> {
        if let Some(name) = &settings.congestion {
            connect::check_congestion(name)?;
        }
        let stream = connect::any(&target, deadline)?;
        let connect_error = |reason| connect::failed(&target, reason);
        let remote = stream.peer_addr().map_err(connect_error)?;
        let local = stream.local_addr().map_err(connect_error)?;
        let mut control = Connection::new(stream).map_err(connect_error)?;
        let hello = Hello::Control {
            version: protocol::VERSION,
            down: asked.0,
            up: asked.1,
            load_ms: settings.load_ms,
        };
        send(&mut control, &hello, &target)?;
        let mut reply = receive(&mut control, &target, deadline)?;
        if let Reply::Challenge { nonce } = reply {
            let Some(secret) = &target.secret else {
                return Err(Error::Secret { host: target.host });
            };
            let proof = Request::Proof {
                mac: secret::proof(secret, nonce),
            };
            send(&mut control, &proof, &target)?;
            reply = receive(&mut control, &target, deadline)?;
        }
        let Reply::Welcome {
            version,
            token,
            program,
            kernel,
            max_probes_per_s,
            windows,
        } = reply
        else {
            return Err(unexpected(&target, reply));
        };
        if version != protocol::VERSION {
            let ours = protocol::VERSION;
            let reason = format!(
                "it speaks protocol version {version}, this program {ours}; use the same sqm on both"
            );
            return Err(Error::Refused {
                host: target.host,
                reason,
            });
        }
        Ok(Self {
            target,
            control,
            local,
            remote,
            token,
            program: foreign::brief(&program, MAX_NAME),
            kernel: foreign::brief(&kernel, MAX_NAME),
            max_probes_per_s,
            has_windows: windows,
            asked,
            bounds: Bounds::new(settings, asked.0 + asked.1),
            attached: BTreeMap::new(),
            received: Received::default(),
            earliest: None,
        })
    }

    /// Begins to connect a flow.
    pub(super) fn attach(
        &mut self,
        plan: &FlowPlan,
        window: Option<Window>,
        settings: &Settings,
    ) -> Result<Attaching<socket2::Socket>, Error> {
        let socket = connect::flow(&self.target, self.remote, settings, plan.dscp)?;
        let next = self.attached.entry(plan.direction).or_insert(0);
        let number = *next;
        *next += 1;
        let hello = Hello::Data {
            token: self.token,
            direction: plan.direction,
            flow: number,
            dscp: plan.dscp,
            congestion: settings.congestion.clone(),
            window,
        };
        Ok(Attaching {
            socket,
            hello,
            dscp: plan.dscp,
            direction: plan.direction,
            number,
            endpoint: plan.endpoint,
            window,
        })
    }

    /// Waits for the end of the TCP handshake, and sends the first message of the flow.
    pub(super) fn greet(
        &self,
        flow: Attaching<socket2::Socket>,
        deadline: &Deadline<'_>,
    ) -> Result<Attaching<Connection>, Error> {
        let Attaching {
            socket,
            hello,
            dscp,
            direction,
            number,
            endpoint,
            window,
        } = flow;
        let failed = |reason| connect::failed(&self.target, reason);
        let stream = connect::finish(socket, deadline).map_err(|error| error.or(failed))?;
        let mut socket = Connection::new(stream).map_err(failed)?;
        send(&mut socket, &hello, &self.target)?;
        Ok(Attaching {
            socket,
            hello,
            dscp,
            direction,
            number,
            endpoint,
            window,
        })
    }

    /// Waits until the server has attached the flow. `plan` is the index of the flow in the scenario.
    pub(super) fn attached(
        &self,
        plan: usize,
        mut flow: Attaching<Connection>,
        deadline: &Deadline<'_>,
    ) -> Result<Attached, Error> {
        let ours = socket::congestion(flow.socket.stream())
            .map_err(|e| Error::system("read the congestion control", e))?;
        let reply = receive(&mut flow.socket, &self.target, deadline)?;
        let Reply::Attached {
            congestion: theirs,
            dscp_arrived,
        } = reply
        else {
            return Err(unexpected(&self.target, reply));
        };
        if let Some(dscp) = dscp_arrived.filter(|dscp| *dscp > 63) {
            let sent = flow.dscp;
            return Err(self.implausible(&format!(
                "it received DSCP {dscp}, and {sent} was sent; 63 is the largest"
            )));
        }
        Ok(Attached {
            direction: flow.direction,
            congestion: match flow.direction {
                Direction::Download => foreign::brief(&theirs, MAX_NAME),
                Direction::Upload => ours,
            },
            dscp_arrived,
            endpoint: flow.endpoint,
            number: flow.number,
            window: flow.window,
            plan,
            stream: Some(flow.socket.into_stream()),
        })
    }

    /// Tells the server that the load begins.
    pub(super) fn start(&mut self) -> Result<(), Error> {
        self.control.set_limit(self.bounds.frames());
        self.earliest = Some(Instant::now() + self.bounds.least_load());
        let sent = self.control.send(&Request::Start);
        sent.map_err(|e| self.vanished("starting the load", e.to_string()))
    }

    /// Tells the server that the load ends early. If the message does not arrive, the server sees the connections end.
    pub(super) fn stop(&mut self) {
        self.earliest = None;
        let _ = self.control.send(&Request::Stop);
    }

    /// Receives messages until `deadline`, or until the server has sent all its results.
    pub(super) fn listen(&mut self, during: &'static str, deadline: Instant) -> Result<(), Error> {
        while !self.received.is_done {
            let received = self.control.receive(deadline);
            let Some(reply) = received.map_err(|e| self.vanished(during, e.to_string()))? else {
                return Ok(());
            };
            self.received.messages += 1;
            if self.received.messages > self.bounds.messages {
                return Err(self.implausible("it sent more messages than the test allows"));
            }
            self.note(reply)?;
        }
        Ok(())
    }

    fn note(&mut self, reply: Reply) -> Result<(), Error> {
        let (down, up) = self.asked;
        match reply {
            Reply::Progress { elapsed_ms, received } if received.len() == up as usize => {
                let at = Duration::from_millis(elapsed_ms);
                self.bounds
                    .check_time(at)
                    .map_err(|what| self.implausible(what))?;
                let shrinks = self.received.newest.as_ref().is_some_and(|(last, before)| {
                    at < *last || before.iter().zip(&received).any(|(before, now)| now < before)
                });
                if shrinks {
                    return Err(self.implausible("its count of received bytes has decreased"));
                }
                let kept = self.received.progress.last();
                if kept.is_none_or(|(last, _)| at - *last >= PROGRESS_INTERVAL) {
                    self.received.progress.push((at, received.clone()));
                }
                self.received.newest = Some((at, received));
                Ok(())
            }
            Reply::Flow {
                direction,
                flow,
                seen,
            } if flow
                < if direction == Direction::Download {
                    down
                } else {
                    up
                } =>
            {
                self.check_moment()?;
                self.bounds
                    .check(direction, &seen)
                    .map_err(|what| self.implausible(what))?;
                match self.received.flows.insert((direction, flow), seen) {
                    None => Ok(()),
                    Some(_) => Err(self.implausible("it reports one flow twice")),
                }
            }
            Reply::Done { busiest_cpu } => {
                self.check_moment()?;
                if busiest_cpu.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
                    return Err(self.implausible("a processor was busy for more than the whole time"));
                }
                self.received.is_done = true;
                self.received.busiest_cpu = busiest_cpu;
                let (have, all) = (self.received.flows.len(), (down + up) as usize);
                match have == all {
                    true => Ok(()),
                    false => Err(self.incomplete(format!("{} of {all} flows are missing", all - have))),
                }
            }
            other => Err(unexpected(&self.target, other)),
        }
    }

    /// Refuses results that arrive before the load is over, unless the client has ended the load.
    fn check_moment(&self) -> Result<(), Error> {
        match self.earliest.is_some_and(|earliest| Instant::now() < earliest) {
            true => Err(self.implausible("it sent results before the load ended")),
            false => Ok(()),
        }
    }

    /// The results of a flow. `None` if the server did not send them.
    pub(super) fn seen(&mut self, direction: Direction, number: u32) -> Option<Seen> {
        self.received.flows.remove(&(direction, number))
    }

    /// Samples of an upload from the progress messages alone, one second each.
    pub(super) fn coarse_samples(&self, number: u32) -> Vec<Sample> {
        let mut counted = 0;
        let progress = self.received.progress.iter();
        progress
            .map(|(at, received)| {
                let total = received.get(number as usize).copied().unwrap_or(counted);
                let bytes = total - counted;
                counted = total;
                Sample {
                    t_ms: crate::load::millis(*at),
                    bytes,
                }
            })
            .collect()
    }

    /// The progress messages for an upload: milliseconds by the server's clock, and bytes received since the load began.
    pub(super) fn reported(&self, number: u32) -> Vec<(f64, u64)> {
        let reports = self.received.progress.iter().chain(&self.received.newest);
        let of_flow = |(at, received): &(Duration, Vec<u64>)| {
            Some((crate::load::millis(*at), *received.get(number as usize)?))
        };
        reports.filter_map(of_flow).collect()
    }

    pub(super) fn is_done(&self) -> bool {
        self.received.is_done
    }

    /// Number of messages so far.
    pub(super) fn messages(&self) -> u64 {
        self.received.messages
    }

    pub(super) fn busiest_cpu(&self) -> Option<f64> {
        self.received.busiest_cpu
    }

    pub(super) fn host(&self) -> &str {
        &self.target.host
    }

    pub(super) fn local(&self) -> SocketAddr {
        self.local
    }

    pub(super) fn remote(&self) -> SocketAddr {
        self.remote
    }

    pub(super) fn token(&self) -> Token {
        self.token
    }

    pub(super) fn vanished(&self, during: &'static str, reason: String) -> Error {
        Error::Vanished {
            host: self.target.host.clone(),
            during,
            reason,
        }
    }

    pub(super) fn incomplete(&self, missing: String) -> Error {
        Error::Incomplete {
            host: self.target.host.clone(),
            missing,
        }
    }

    pub(super) fn implausible(&self, what: &str) -> Error {
        Error::Implausible {
            host: self.target.host.clone(),
            what: what.to_owned(),
        }
    }
}

fn send(connection: &mut Connection, message: &impl serde::Serialize, target: &Target) -> Result<(), Error> {
    connection
        .send(message)
        .map_err(|reason| no_answer(target, &reason))
}

fn receive(connection: &mut Connection, target: &Target, deadline: &Deadline<'_>) -> Result<Reply, Error> {
    let received = deadline.until(|moment| connection.receive(moment));
    received.map_err(|error| error.or(|reason| no_answer(target, &reason)))
}

fn no_answer(target: &Target, reason: &std::io::Error) -> Error {
    Error::Vanished {
        host: target.host.clone(),
        during: "asking for a test",
        reason: reason.to_string(),
    }
}

fn unexpected(target: &Target, reply: Reply) -> Error {
    let reason = match reply {
        Reply::Error { reason } => foreign::brief(&reason, MAX_REASON),
        _ => "its answer is out of order".to_owned(),
    };
    Error::Refused {
        host: target.host.clone(),
        reason,
    }
}

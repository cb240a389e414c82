//! One server of a test: its control connection, and what it has told.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::bounds::Bounds;
use super::connect;
use super::types::Target;
use crate::connection::Connection;
use crate::deadline::Deadline;
use crate::foreign::MAX_REASON;
use crate::protocol::{self, Hello, Reply, Request, Seen, Token};
use crate::result::{Direction, Sample, Settings};
use crate::scenario::FlowPlan;
use crate::{Error, foreign, secret, socket};

/// Reports of progress are kept this far apart at least; a server sends one a second.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(900);
/// Characters of a name that the server tells: of its version, its kernel, a congestion control.
const MAX_NAME: usize = 64;

/// A server with which a test stands.
pub(super) struct Endpoint {
    target: Target,
    control: Connection,
    local: SocketAddr,
    remote: SocketAddr,
    token: Token,
    pub(super) program: String,
    pub(super) kernel: String,
    /// Probes that it answers in one test.
    pub(super) max_probes_per_s: u32,
    /// Flows asked for: downloads and uploads.
    asked: (u32, u32),
    bounds: Bounds,
    /// Flows attached so far.
    attached: BTreeMap<Direction, u32>,
    told: Told,
    /// Results cannot come sooner than this; none while any moment will do.
    earliest: Option<Instant>,
}

/// What a server has said since the load began.
#[derive(Default)]
struct Told {
    words: u64,
    /// Bytes that arrived there of each upload, at moments of its clock.
    progress: Vec<(Duration, Vec<u64>)>,
    /// The last report, also if it came too soon to be kept.
    newest: Option<(Duration, Vec<u64>)>,
    flows: BTreeMap<(Direction, u32), Seen>,
    is_done: bool,
    busiest_cpu: Option<f64>,
}

/// A data connection whose handshake is under way, or done.
pub(super) struct Attaching<S> {
    socket: S,
    hello: Hello,
    dscp: u8,
    direction: Direction,
    number: u32,
    endpoint: usize,
}

/// A data connection in place.
pub(super) struct Attached {
    pub(super) direction: Direction,
    /// The sender's congestion control.
    pub(super) congestion: String,
    pub(super) dscp_arrived: Option<u8>,
    pub(super) endpoint: usize,
    /// Which of the endpoint's flows of this direction.
    pub(super) number: u32,
    pub(super) stream: Option<TcpStream>,
}

impl Endpoint {
    /// Asks for a test with so many downloads and uploads.
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
        say(&mut control, &hello, &target)?;
        let mut reply = hear(&mut control, &target, deadline)?;
        if let Reply::Challenge { nonce } = reply {
            let Some(secret) = &target.secret else {
                return Err(Error::Secret { host: target.host });
            };
            let proof = Request::Proof {
                mac: secret::proof(secret, nonce),
            };
            say(&mut control, &proof, &target)?;
            reply = hear(&mut control, &target, deadline)?;
        }
        let Reply::Welcome {
            version,
            token,
            program,
            kernel,
            max_probes_per_s,
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
            asked,
            bounds: Bounds::new(settings, asked.0 + asked.1),
            attached: BTreeMap::new(),
            told: Told::default(),
            earliest: None,
        })
    }

    /// Begins to connect one flow.
    pub(super) fn attach(
        &mut self,
        plan: &FlowPlan,
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
        };
        Ok(Attaching {
            socket,
            hello,
            dscp: plan.dscp,
            direction: plan.direction,
            number,
            endpoint: plan.endpoint,
        })
    }

    /// Waits for the end of the handshake, and says what the connection is for.
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
        } = flow;
        let failed = |reason| connect::failed(&self.target, reason);
        let stream = connect::finish(socket, deadline).map_err(|unheard| unheard.or(failed))?;
        let mut socket = Connection::new(stream).map_err(failed)?;
        say(&mut socket, &hello, &self.target)?;
        Ok(Attaching {
            socket,
            hello,
            dscp,
            direction,
            number,
            endpoint,
        })
    }

    /// Waits until the flow is in place.
    pub(super) fn attached(
        &self,
        mut flow: Attaching<Connection>,
        deadline: &Deadline<'_>,
    ) -> Result<Attached, Error> {
        let ours = socket::congestion(flow.socket.stream())
            .map_err(|e| Error::system("read the congestion control", e))?;
        let reply = hear(&mut flow.socket, &self.target, deadline)?;
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
                "DSCP {dscp} arrived there, and {sent} was sent; 63 is the largest"
            )));
        }
        Ok(Attached {
            direction: flow.direction,
            congestion: match flow.direction {
                Direction::Down => foreign::brief(&theirs, MAX_NAME),
                Direction::Up => ours,
            },
            dscp_arrived,
            endpoint: flow.endpoint,
            number: flow.number,
            stream: Some(flow.socket.into_stream()),
        })
    }

    pub(super) fn start(&mut self) -> Result<(), Error> {
        self.control.set_limit(self.bounds.frames());
        self.earliest = Some(Instant::now() + self.bounds.least_load());
        let sent = self.control.send(&Request::Start);
        sent.map_err(|e| self.vanished("starting the load", e.to_string()))
    }

    /// Ends the load before its time. A server that does not take the message finds out by itself.
    pub(super) fn stop(&mut self) {
        self.earliest = None;
        let _ = self.control.send(&Request::Stop);
    }

    /// Takes in what the server says until `deadline`, or until it is done.
    pub(super) fn listen(&mut self, during: &'static str, deadline: Instant) -> Result<(), Error> {
        while !self.told.is_done {
            let received = self.control.receive(deadline);
            let Some(reply) = received.map_err(|e| self.vanished(during, e.to_string()))? else {
                return Ok(());
            };
            self.told.words += 1;
            if self.told.words > self.bounds.words {
                return Err(self.implausible("it has more to tell than there was time for"));
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
                let shrinks = self.told.newest.as_ref().is_some_and(|(last, before)| {
                    at < *last || before.iter().zip(&received).any(|(before, now)| now < before)
                });
                if shrinks {
                    return Err(self.implausible("what had arrived there has become less"));
                }
                let kept = self.told.progress.last();
                if kept.is_none_or(|(last, _)| at - *last >= PROGRESS_INTERVAL) {
                    self.told.progress.push((at, received.clone()));
                }
                self.told.newest = Some((at, received));
                Ok(())
            }
            Reply::Flow {
                direction,
                flow,
                seen,
            } if flow < if direction == Direction::Down { down } else { up } => {
                self.check_moment()?;
                self.bounds
                    .check(direction, &seen)
                    .map_err(|what| self.implausible(what))?;
                match self.told.flows.insert((direction, flow), seen) {
                    None => Ok(()),
                    Some(_) => Err(self.implausible("it tells of one flow twice")),
                }
            }
            Reply::Done { busiest_cpu } => {
                self.check_moment()?;
                if busiest_cpu.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
                    return Err(self.implausible("a processor cannot be busy for more than all of the time"));
                }
                self.told.is_done = true;
                self.told.busiest_cpu = busiest_cpu;
                let (told, all) = (self.told.flows.len(), (down + up) as usize);
                match told == all {
                    true => Ok(()),
                    false => Err(self.incomplete(format!("{} of {all} flows are missing", all - told))),
                }
            }
            other => Err(unexpected(&self.target, other)),
        }
    }

    /// Results are of the whole load: nobody has them before it is over, unless it was told to end it.
    fn check_moment(&self) -> Result<(), Error> {
        match self.earliest.is_some_and(|earliest| Instant::now() < earliest) {
            true => Err(self.implausible("it has results of the load before the load is over")),
            false => Ok(()),
        }
    }

    /// What the server saw of a flow; none if it did not say.
    pub(super) fn seen(&mut self, direction: Direction, number: u32) -> Option<Seen> {
        self.told.flows.remove(&(direction, number))
    }

    /// What is known of an upload from reports of progress alone, a second each.
    pub(super) fn coarse_samples(&self, number: u32) -> Vec<Sample> {
        let mut counted = 0;
        let progress = self.told.progress.iter();
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

    /// The server's progress reports of an upload: milliseconds on the server's clock, and bytes received since the load began.
    pub(super) fn reported(&self, number: u32) -> Vec<(f64, u64)> {
        let reports = self.told.progress.iter().chain(&self.told.newest);
        let of_flow = |(at, received): &(Duration, Vec<u64>)| {
            Some((crate::load::millis(*at), *received.get(number as usize)?))
        };
        reports.filter_map(of_flow).collect()
    }

    pub(super) fn is_done(&self) -> bool {
        self.told.is_done
    }

    pub(super) fn words(&self) -> u64 {
        self.told.words
    }

    pub(super) fn busiest_cpu(&self) -> Option<f64> {
        self.told.busiest_cpu
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

fn say(connection: &mut Connection, message: &impl serde::Serialize, target: &Target) -> Result<(), Error> {
    connection
        .send(message)
        .map_err(|reason| unheard(target, &reason))
}

fn hear(connection: &mut Connection, target: &Target, deadline: &Deadline<'_>) -> Result<Reply, Error> {
    let heard = deadline.until(|moment| connection.receive(moment));
    heard.map_err(|why| why.or(|reason| unheard(target, &reason)))
}

fn unheard(target: &Target, reason: &std::io::Error) -> Error {
    Error::Vanished {
        host: target.host.clone(),
        during: "asking for a test",
        reason: reason.to_string(),
    }
}

fn unexpected(target: &Target, reply: Reply) -> Error {
    let reason = match reply {
        Reply::Error { reason } => foreign::brief(&reason, MAX_REASON),
        _ => "it answers out of turn".to_owned(),
    };
    Error::Refused {
        host: target.host.clone(),
        reason,
    }
}

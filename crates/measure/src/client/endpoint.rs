//! One server of a test: its control connection, and what it has told.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::{Target, connect};
use crate::Error;
use crate::connection::Connection;
use crate::protocol::{self, Hello, MAX_REPLY, Reply, Request, Seen, Token};
use crate::result::{Direction, Sample, Settings};
use crate::scenario::FlowPlan;
use crate::{secret, socket};

/// Until the server answers on an idle line.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);

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
    /// Flows attached so far.
    attached: BTreeMap<Direction, u32>,
    told: Told,
}

/// What a server has said since the load began.
#[derive(Default)]
struct Told {
    words: u64,
    last: Option<Instant>,
    /// Bytes that arrived there of each upload, at moments of its clock.
    progress: Vec<(Duration, Vec<u64>)>,
    flows: BTreeMap<(Direction, u32), Seen>,
    is_done: bool,
    busiest_cpu: Option<f64>,
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
    pub(super) fn open(target: Target, asked: (u32, u32), settings: &Settings) -> Result<Self, Error> {
        if let Some(name) = &settings.congestion {
            connect::check_congestion(name)?;
        }
        let stream = connect::any(&target)?;
        let connect_error = |reason| connect::failed(&target, reason);
        let remote = stream.peer_addr().map_err(connect_error)?;
        let local = stream.local_addr().map_err(connect_error)?;
        let mut control = Connection::new(stream, MAX_REPLY).map_err(connect_error)?;
        let hello = Hello::Control {
            version: protocol::VERSION,
            down: asked.0,
            up: asked.1,
            load_ms: settings.load_ms,
        };
        let mut reply = ask(&mut control, &hello, &target)?;
        if let Reply::Challenge { nonce } = reply {
            let Some(secret) = &target.secret else {
                return Err(Error::Secret { host: target.host });
            };
            let proof = Request::Proof {
                mac: secret::proof(secret, nonce),
            };
            reply = ask(&mut control, &proof, &target)?;
        }
        let Reply::Welcome {
            token,
            program,
            kernel,
            max_probes_per_s,
            ..
        } = reply
        else {
            return Err(unexpected(&target, reply));
        };
        Ok(Self {
            target,
            control,
            local,
            remote,
            token,
            program,
            kernel,
            max_probes_per_s,
            asked,
            attached: BTreeMap::new(),
            told: Told::default(),
        })
    }

    /// Connects one flow.
    pub(super) fn attach(&mut self, plan: &FlowPlan, settings: &Settings) -> Result<Attached, Error> {
        let stream = connect::flow(&self.target, self.remote, settings, plan.dscp)?;
        let ours =
            socket::congestion(&stream).map_err(|e| Error::system("read the congestion control", e))?;
        let mut connection =
            Connection::new(stream, MAX_REPLY).map_err(|e| connect::failed(&self.target, e))?;
        let number = self.attached.entry(plan.direction).or_insert(0);
        let hello = Hello::Data {
            token: self.token,
            direction: plan.direction,
            flow: *number,
            dscp: plan.dscp,
            congestion: settings.congestion.clone(),
        };
        let reply = ask(&mut connection, &hello, &self.target)?;
        let Reply::Attached {
            congestion: theirs,
            dscp_arrived,
        } = reply
        else {
            return Err(unexpected(&self.target, reply));
        };
        let attached = Attached {
            direction: plan.direction,
            congestion: match plan.direction {
                Direction::Down => theirs,
                Direction::Up => ours,
            },
            dscp_arrived,
            endpoint: plan.endpoint,
            number: *number,
            stream: Some(connection.into_stream()),
        };
        *number += 1;
        Ok(attached)
    }

    pub(super) fn start(&mut self) -> Result<(), Error> {
        let sent = self.control.send(&Request::Start);
        sent.map_err(|e| self.vanished("starting the load", e.to_string()))
    }

    /// Ends the load before its time. A server that does not take the message finds out by itself.
    pub(super) fn stop(&mut self) {
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
            self.told.last = Some(Instant::now());
            self.note(reply)?;
        }
        Ok(())
    }

    fn note(&mut self, reply: Reply) -> Result<(), Error> {
        let (down, up) = self.asked;
        match reply {
            Reply::Progress { elapsed_ms, received } if received.len() == up as usize => {
                let at = Duration::from_millis(elapsed_ms);
                let (last, before) = self.told.progress.last().cloned().unwrap_or_default();
                let shrinks = before.iter().zip(&received).any(|(before, now)| now < before);
                if shrinks || at < last {
                    return Err(self.lied("what had arrived there has become less"));
                }
                self.told.progress.push((at, received));
                Ok(())
            }
            Reply::Flow {
                direction,
                flow,
                seen,
            } if flow < if direction == Direction::Down { down } else { up } => {
                if !seen.samples.is_sorted_by(|a, b| a.t_ms <= b.t_ms) {
                    return Err(self.lied("its samples go back in time"));
                }
                self.told.flows.insert((direction, flow), seen);
                Ok(())
            }
            Reply::Done { busiest_cpu } => {
                self.told.is_done = true;
                self.told.busiest_cpu = busiest_cpu;
                Ok(())
            }
            other => Err(unexpected(&self.target, other)),
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

    pub(super) fn is_done(&self) -> bool {
        self.told.is_done
    }

    pub(super) fn words(&self) -> u64 {
        self.told.words
    }

    /// When the server last said something; long ago if it did not.
    pub(super) fn last_word(&self) -> Instant {
        self.told
            .last
            .unwrap_or_else(|| Instant::now() - Duration::from_secs(1))
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

    pub(super) fn lied(&self, what: &str) -> Error {
        Error::Lied {
            host: self.target.host.clone(),
            what: what.to_owned(),
        }
    }
}

fn ask(
    connection: &mut Connection,
    question: &impl serde::Serialize,
    target: &Target,
) -> Result<Reply, Error> {
    let answer: io::Result<Reply> = connection
        .send(question)
        .and_then(|()| connection.expect(ANSWER_TIMEOUT));
    answer.map_err(|e| Error::Vanished {
        host: target.host.clone(),
        during: "asking for a test",
        reason: e.to_string(),
    })
}

fn unexpected(target: &Target, reply: Reply) -> Error {
    let reason = match reply {
        Reply::Error { reason } => reason,
        _ => "it answers out of turn".to_owned(),
    };
    Error::Refused {
        host: target.host.clone(),
        reason,
    }
}

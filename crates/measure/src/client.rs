//! The near end of a test.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use socket2::{Domain, Socket, Type};

use crate::Error;
use crate::connection::Connection;
use crate::load::Load;
use crate::probe::Prober;
use crate::protocol::{self, Hello, MAX_FLOWS, MAX_IDLE_MS, MAX_LOAD_MS, MAX_REPLY, Reply, Request, Token};
use crate::result::{Direction, Flow, Meta, ProbeSeries, Sample, Settings, TAIL_MS, TestResult, rfc3339};
use crate::{names, socket};

/// Until a connection stands.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Until the server answers on an idle line.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Until the results are here after the load: they queue behind everything that a bloated buffer holds.
const RESULTS_TIMEOUT: Duration = Duration::from_secs(60);
/// The load waits this much longer for the first probe if none has come back in the idle phase.
const FIRST_PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// The time between two reports of progress.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Which server to test against.
#[derive(Clone, Debug)]
pub struct Target {
    /// Name or address.
    pub host: String,
    /// TCP and UDP port.
    pub port: u16,
    /// IPv4 only or IPv6 only; none takes what the name gives.
    pub family: Option<Family>,
}

/// A version of the Internet Protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Where a running test is; reported about once a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress {
    /// Before the load.
    Idle {
        /// Since the beginning of the idle phase.
        elapsed: Duration,
        /// The newest round trip.
        rtt: Option<Duration>,
    },
    /// Under load.
    Load {
        /// Since the beginning of the load.
        elapsed: Duration,
        /// Download since the last report, in Mbit/s.
        download_mbit: f64,
        /// Upload since the last report, in Mbit/s; the server's figure arrives as late as the line is slow.
        upload_mbit: f64,
        /// The newest round trip.
        rtt: Option<Duration>,
    },
    /// After the load: waiting for results and late probes.
    Collect,
}

/// Runs a test and waits for its result.
pub fn run(
    target: &Target,
    settings: &Settings,
    title: Option<&str>,
    progress: &mut dyn FnMut(Progress),
) -> Result<TestResult, Error> {
    check(settings)?;
    let mut test = Test::open(target, settings)?;
    test.idle(progress)?;
    let (load, start) = test.start()?;
    let now = SystemTime::now();
    let time = rfc3339(now);
    let start_unix = now.duration_since(UNIX_EPOCH).ok().map(|t| t.as_secs_f64());
    let early = test.load(&load, start, progress)?;
    let downloads = load.finish();
    progress(Progress::Collect);
    let uploads = early.map_or_else(|| test.results(), Ok)?;
    let probes = test.prober.finish(start);
    let samples = downloads.into_iter().chain(uploads);
    let flows = test
        .flows
        .into_iter()
        .zip(samples)
        .enumerate()
        .map(|(index, (flow, samples))| Flow {
            congestion: flow.congestion,
            dscp: flow.dscp,
            samples,
            ..Flow::new(&names::flow(settings, index as u32), flow.direction)
        })
        .collect();
    let probes = ProbeSeries {
        name: names::probes(settings).to_owned(),
        interval_ms: settings.probe_interval_ms as f64,
        bytes: Some(protocol::Probe::LENGTH as u32),
        samples: probes,
        ..ProbeSeries::default()
    };
    let meta = Meta {
        test: names::test(settings).to_owned(),
        title: title.map(str::to_owned),
        time,
        host: target.host.clone(),
        local: test.local.to_string(),
        remote: test.remote.to_string(),
        program: env!("CARGO_PKG_VERSION").to_owned(),
        server_program: test.server_program,
        kernel: socket::kernel_release(),
        server_kernel: test.server_kernel,
        settings: settings.clone(),
        start_unix,
        ..Meta::default()
    };
    Ok(TestResult::new(meta, Vec::new(), flows, vec![probes]))
}

/// Refuses settings that cannot give a result.
fn check(settings: &Settings) -> Result<(), Error> {
    let wrong = |text: String| Err(Error::Settings(text));
    let Settings {
        down,
        up,
        idle_ms,
        load_ms,
        settle_ms,
        probe_interval_ms,
        ..
    } = *settings;
    if down > MAX_FLOWS || up > MAX_FLOWS {
        return wrong(format!("at most {MAX_FLOWS} flows in each direction"));
    }
    if idle_ms > MAX_IDLE_MS {
        return wrong(format!("at most {} s of idle phase", MAX_IDLE_MS / 1000));
    }
    if load_ms > MAX_LOAD_MS {
        return wrong(format!("at most {} s of load", MAX_LOAD_MS / 1000));
    }
    if load_ms <= settle_ms + TAIL_MS {
        return wrong(format!(
            "the load must last more than the settling time of {} s and 1 s, which the figures leave out",
            settle_ms as f64 / 1000.0
        ));
    }
    if !(1..=10_000).contains(&probe_interval_ms) {
        return wrong("the probe interval must be from 1 ms to 10 s".to_owned());
    }
    if let Some(dscp) = settings.dscp.iter().find(|&&dscp| dscp > 63) {
        return wrong(format!("a DSCP is from 0 to 63, not {dscp}"));
    }
    Ok(())
}

/// A test with everything connected.
struct Test<'a> {
    target: &'a Target,
    settings: &'a Settings,
    control: Connection,
    local: SocketAddr,
    remote: SocketAddr,
    server_program: String,
    server_kernel: String,
    prober: Prober,
    /// Downloads first.
    flows: Vec<Attached>,
}

/// A data connection in place.
struct Attached {
    direction: Direction,
    congestion: String,
    dscp: u8,
    stream: Option<TcpStream>,
}

impl<'a> Test<'a> {
    /// Connects all there is to connect while the line is idle, and starts the probes.
    fn open(target: &'a Target, settings: &'a Settings) -> Result<Self, Error> {
        let stream = connect_any(target, settings.congestion.as_deref())?;
        let connect_error = |reason| Error::Connect {
            host: target.host.clone(),
            port: target.port,
            reason,
        };
        let remote = stream.peer_addr().map_err(connect_error)?;
        let local = stream.local_addr().map_err(connect_error)?;
        let mut control = Connection::new(stream, MAX_REPLY).map_err(connect_error)?;
        let hello = Hello::Control {
            version: protocol::VERSION,
            down: settings.down,
            up: settings.up,
            load_ms: settings.load_ms,
            congestion: settings.congestion.clone(),
        };
        let reply = ask(&mut control, &hello, target)?;
        let Reply::Welcome {
            token,
            program,
            kernel,
            ..
        } = reply
        else {
            return Err(unexpected(target, reply));
        };
        let directions = [(Direction::Down, settings.down), (Direction::Up, settings.up)];
        let flows = directions
            .into_iter()
            .flat_map(|(direction, count)| (0..count).map(move |flow| (direction, flow)))
            .map(|(direction, flow)| attach(target, settings, remote, token, direction, flow))
            .collect::<Result<_, _>>()?;
        let prober = probe(settings, remote, token).map_err(|e| Error::system("send probes", e))?;
        Ok(Self {
            target,
            settings,
            control,
            local,
            remote,
            server_program: program,
            server_kernel: kernel,
            prober,
            flows,
        })
    }

    fn idle(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<(), Error> {
        let begin = Instant::now();
        let end = begin + Duration::from_millis(self.settings.idle_ms);
        let mut next = begin;
        while next < end {
            progress(Progress::Idle {
                elapsed: begin.elapsed(),
                rtt: self.prober.newest(),
            });
            next = (next + REPORT_INTERVAL).min(end);
            socket::sleep_until(next);
        }
        let patience = end + FIRST_PROBE_TIMEOUT;
        while self.prober.newest().is_none() {
            if Instant::now() >= patience {
                return Err(Error::NoProbes {
                    host: self.target.host.clone(),
                    port: self.remote.port(),
                });
            }
            std::thread::sleep(Duration::from_millis(self.settings.probe_interval_ms));
        }
        Ok(())
    }

    /// Starts both ends: the server's by a message, ours at the same moment.
    fn start(&mut self) -> Result<(Load, Instant), Error> {
        self.control
            .send(&Request::Start)
            .map_err(|e| self.vanished("starting the load", &e))?;
        let start = Instant::now();
        let length = Duration::from_millis(self.settings.load_ms);
        self.prober.set_until(start + length);
        let mut take = |direction| -> Vec<TcpStream> {
            self.flows
                .iter_mut()
                .filter(|flow| flow.direction == direction)
                .filter_map(|f| f.stream.take())
                .collect()
        };
        let (receivers, senders) = (take(Direction::Down), take(Direction::Up));
        let load =
            Load::start(senders, receivers, start, length).map_err(|e| Error::system("start the load", e))?;
        Ok((load, start))
    }

    /// Listens to the server until the load is over. A server whose clock runs ahead, or a client that was kept
    /// waiting, has the results by then: they are the answer.
    fn load(
        &mut self,
        load: &Load,
        start: Instant,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Option<Vec<Vec<Sample>>>, Error> {
        let end = start + Duration::from_millis(self.settings.load_ms);
        let (mut down, mut up) = (Meter::default(), Meter::default());
        let mut uploaded = (Duration::ZERO, 0);
        let mut next = start;
        while next < end {
            next = (next + REPORT_INTERVAL).min(end);
            while let Some(reply) = self
                .control
                .receive(next)
                .map_err(|e| self.vanished("loading the line", &e))?
            {
                match reply {
                    Reply::Progress { elapsed_ms, received } => {
                        uploaded = (Duration::from_millis(elapsed_ms), received);
                    }
                    Reply::Results { uploads } if uploads.len() == self.settings.up as usize => {
                        socket::sleep_until(end);
                        return Ok(Some(uploads));
                    }
                    other => return Err(unexpected(self.target, other)),
                }
            }
            let elapsed = start.elapsed();
            progress(Progress::Load {
                elapsed,
                download_mbit: down.mbit(elapsed, load.received()),
                upload_mbit: up.mbit(uploaded.0, uploaded.1),
                rtt: self.prober.newest(),
            });
        }
        Ok(None)
    }

    fn results(&mut self) -> Result<Vec<Vec<Sample>>, Error> {
        loop {
            let reply = self.control.expect(RESULTS_TIMEOUT);
            match reply.map_err(|e| self.vanished("waiting for its results", &e))? {
                Reply::Results { uploads } if uploads.len() == self.settings.up as usize => {
                    return Ok(uploads);
                }
                Reply::Progress { .. } => {}
                other => return Err(unexpected(self.target, other)),
            }
        }
    }

    fn vanished(&self, during: &'static str, reason: &io::Error) -> Error {
        Error::Vanished {
            host: self.target.host.clone(),
            during,
            reason: reason.to_string(),
        }
    }
}

/// The rate since the last look.
#[derive(Default)]
struct Meter {
    at: Duration,
    bytes: u64,
    mbit: f64,
}

impl Meter {
    fn mbit(&mut self, at: Duration, bytes: u64) -> f64 {
        if at > self.at {
            let seconds = (at - self.at).as_secs_f64();
            self.mbit = bytes.saturating_sub(self.bytes) as f64 * 8.0 / 1e6 / seconds;
            (self.at, self.bytes) = (at, bytes);
        }
        self.mbit
    }
}

fn ask(connection: &mut Connection, hello: &Hello, target: &Target) -> Result<Reply, Error> {
    let answer = connection
        .send(hello)
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

/// Connects one flow.
fn attach(
    target: &Target,
    settings: &Settings,
    remote: SocketAddr,
    token: Token,
    direction: Direction,
    flow: u32,
) -> Result<Attached, Error> {
    let connect_error = |reason| Error::Connect {
        host: target.host.clone(),
        port: target.port,
        reason,
    };
    let dscp = settings
        .dscp
        .iter()
        .cycle()
        .nth(flow as usize)
        .copied()
        .unwrap_or(0);
    let stream = connect(remote, settings.congestion.as_deref(), CONNECT_TIMEOUT).map_err(connect_error)?;
    stream
        .local_addr()
        .and_then(|local| socket::set_dscp(&stream, local, dscp))
        .map_err(|e| Error::system(format!("mark packets with DSCP {dscp}"), e))?;
    let ours = socket::congestion(&stream).map_err(|e| Error::system("read the congestion control", e))?;
    let mut connection = Connection::new(stream, MAX_REPLY).map_err(connect_error)?;
    let reply = ask(
        &mut connection,
        &Hello::Data {
            token,
            direction,
            flow,
            dscp,
        },
        target,
    )?;
    let Reply::Attached { congestion: theirs } = reply else {
        return Err(unexpected(target, reply));
    };
    let congestion = match direction {
        Direction::Down => theirs,
        Direction::Up => ours,
    };
    Ok(Attached {
        direction,
        congestion,
        dscp,
        stream: Some(connection.into_stream()),
    })
}

fn probe(settings: &Settings, remote: SocketAddr, token: Token) -> io::Result<Prober> {
    let any: IpAddr = match remote {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let udp = UdpSocket::bind((any, 0))?;
    udp.connect(remote)?;
    // Long enough for any test; the start of the load sets the true end.
    let until = Instant::now() + Duration::from_millis(settings.idle_ms + settings.load_ms) + CONNECT_TIMEOUT;
    Prober::start(
        udp,
        token,
        Duration::from_millis(settings.probe_interval_ms),
        until,
    )
}

/// Tries the addresses of a name in turn, all within [`CONNECT_TIMEOUT`].
fn connect_any(target: &Target, congestion: Option<&str>) -> Result<TcpStream, Error> {
    if let Some(name) = congestion {
        let scratch =
            Socket::new(Domain::IPV4, Type::STREAM, None).map_err(|e| Error::system("open a socket", e))?;
        socket::set_congestion(&scratch, name).map_err(|_| Error::Congestion {
            name: name.to_owned(),
            available: socket::available_congestion(),
        })?;
    }
    let addresses = resolve(target)?;
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    let mut failure = io::Error::from(io::ErrorKind::TimedOut);
    for (index, address) in addresses.iter().enumerate() {
        let share = deadline.saturating_duration_since(Instant::now()) / (addresses.len() - index) as u32;
        match connect(*address, congestion, share.max(Duration::from_millis(1))) {
            Ok(stream) => return Ok(stream),
            Err(e) => failure = e,
        }
    }
    Err(Error::Connect {
        host: target.host.clone(),
        port: target.port,
        reason: failure,
    })
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

/// The congestion control is set before connecting, so that the handshake counts towards its state too.
fn connect(address: SocketAddr, congestion: Option<&str>, timeout: Duration) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if let Some(name) = congestion {
        socket::set_congestion(&socket, name)?;
    }
    socket.connect_timeout(&address.into(), timeout)?;
    Ok(socket.into())
}

//! The client: it fills the line with HTTP transfers, and meanwhile sends small requests as probes.

use std::convert::Infallible;
use std::io;
use std::net::TcpStream;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::Method;
use hyper::body::{Body, Frame, SizeHint};
use portable_atomic::AtomicU64;
use serde::{Deserialize, Serialize};
use sqm_core::direction::Direction;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::configuration::{LARGE, MAX_CONFIGURATION, SETUP, SMALL, SMALL_WINDOW, UPLOAD, find, slow};
pub use super::configuration::{site, site_at};
use super::connection::{Connected, Sender, connect, fetch, tls};
use super::{
    ADDED_CONNECTIONS, Confidence, ForeignProbe, INITIAL_CONNECTIONS, INTERVAL, MAX_CONNECTIONS,
    MOVING_AVERAGE_DISTANCE, Responsiveness, foreign_rpm, grade, is_stable, probes_per_s, self_rpm, unloaded,
};
use crate::Error;
use crate::foreign::{self, MAX_REASON};
use crate::grade::LoadGrade;
use crate::http::{Place, Tasks, request};
use crate::load;
use crate::result::{AddedLatency, Finding, Severity};
use crate::stats;
use crate::tcp_info::TcpInfo;

/// Largest number of probe connections at the same time. A choice: servers limit the connections of one client.
const MAX_PENDING: usize = 32;
/// Number of probes on the idle line.
const IDLE_PROBES: usize = 10;
/// HTTP/2 receive window of a connection that loads the line, bytes. Times the number of connections, it limits the memory that a
/// server can make this program use.
const WINDOW: u32 = 2 << 20;
/// The initial HTTP/2 flow-control window, bytes (RFC 9113, section 6.9.2): a client may send this much before the server grants any.
const INITIAL_WINDOW: u64 = 65_535;
/// Size of a piece of an upload, bytes: the largest frame that every server accepts (RFC 9113, section 6.5.2). hyper takes two pieces
/// ahead of the window.
const UPLOAD_PIECE: usize = 16 << 10;

/// A server of the protocol.
#[derive(Clone, Debug)]
pub struct Server {
    /// Name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// True to verify its certificate. `sqm serve` has a self-signed one, which does not pass.
    pub verify: bool,
    /// Longest duration of one direction.
    pub limit: Duration,
}

/// Version of the report. It changes when a field gets another meaning.
pub const VERSION: u32 = 1;

/// The measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`VERSION`].
    #[serde(default)]
    pub version: u32,
    /// [`DRAFT`](super::DRAFT).
    pub draft: String,
    /// The server as the user named it.
    pub host: String,
    /// Round trips per minute of new connections on the idle line.
    pub idle_rpm: Option<f64>,
    /// The TCP handshake on the idle line, median, milliseconds.
    #[serde(default)]
    pub idle_ms: Option<f64>,
    /// Responsiveness while downloads filled the line. `None` if they did not fill it.
    pub download: Option<Responsiveness>,
    /// Responsiveness while uploads filled the line.
    pub upload: Option<Responsiveness>,
    /// The grade of the loads. `None` with a finding that names the reason.
    #[serde(default)]
    pub grade: Option<LoadGrade>,
    /// Why a direction has no figures, and why there is no grade.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
}

/// Measures downloads, then uploads. Calls `progress` once a second with the direction, Mbit/s, the number of connections, and the RPM
/// so far.
pub fn run(
    server: &Server,
    progress: &mut dyn FnMut(Direction, f64, usize, Option<f64>),
) -> Result<Report, Error> {
    Tasks::new()?.runtime().block_on(async {
        let prepared = tokio::time::timeout(SETUP, prepare(server)).await;
        let (session, idle) = prepared.map_err(|_| slow(&server.host, server.port))??;
        let mut report = Report {
            version: VERSION,
            draft: super::DRAFT.to_owned(),
            host: server.host.clone(),
            idle_rpm: foreign_rpm(&idle),
            idle_ms: stats::median(&handshakes_ms(&idle)),
            download: None,
            upload: None,
            grade: None,
            findings: Vec::new(),
        };
        for direction in Direction::BOTH {
            let place = match direction {
                Direction::Download => &mut report.download,
                Direction::Upload => &mut report.upload,
            };
            match session.direction(direction, server.limit, progress).await? {
                Loaded::Measured(mut figures, handshakes_ms) => {
                    let idle_ms = report.idle_ms.unwrap_or_default();
                    let added: Vec<f64> = handshakes_ms.iter().map(|ms| ms - idle_ms).collect();
                    // Probes that found no answer are not counted: a failed request is not a lost packet.
                    figures.added = Some(AddedLatency::of(vec![direction], &added, 0));
                    *place = Some(figures);
                }
                Loaded::NotReached(finding) => report.findings.push(finding),
            }
        }
        match grade(report.idle_ms, report.download.as_ref(), report.upload.as_ref()) {
            Ok(grade) => report.grade = Some(grade),
            Err(reason) => report.findings.push(Finding {
                severity: Severity::Note,
                code: "no_grade".to_owned(),
                text: format!("no grade: {reason}"),
            }),
        }
        Ok(report)
    })
}

/// Reads the configuration of the server, and probes the idle line.
async fn prepare(server: &Server) -> Result<(Session, Vec<ForeignProbe>), Error> {
    let session = Session::open(server).await?;
    let mut idle = Vec::new();
    for _ in 0..IDLE_PROBES {
        idle.push(
            session
                .foreign()
                .await
                .map_err(|e| session.failed("probing the idle line", &e))?,
        );
    }
    Ok((session, idle))
}

/// A server whose configuration is known.
#[derive(Clone)]
struct Session {
    host: String,
    tls: TlsConnector,
    small: Place,
    large: Place,
    upload: Place,
    /// Permits for probes with their own connection.
    pending: Arc<Semaphore>,
}

/// The outcome of the load in one direction.
enum Loaded {
    /// The figures, and the TCP handshakes that they are of, milliseconds.
    Measured(Responsiveness, Vec<f64>),
    /// The load did not fill the line.
    NotReached(Finding),
}

/// The measurements of the transfers and probes of one direction so far.
#[derive(Default)]
struct Seen {
    /// Bytes of downloads that arrived, and of uploads that left.
    bytes: AtomicU64,
    /// The bytes of uploads that left after the server had granted a window.
    taken: AtomicU64,
    foreign: Mutex<Vec<(Instant, ForeignProbe)>>,
    /// Requests within load connections, milliseconds.
    own: Mutex<Vec<(Instant, f64)>>,
}

impl Session {
    async fn open(server: &Server) -> Result<Self, Error> {
        let tls = tls(server.verify)?;
        let configuration = find(&server.host, server.port, &tls).await?;
        let refused = |reason| Error::Refused {
            host: server.host.clone(),
            reason,
        };
        let mut places = Vec::new();
        for [name, older] in [SMALL, LARGE, UPLOAD] {
            let url = configuration.url([name, older]).map_err(refused)?;
            let place = Place::of(url, configuration.test_endpoint.as_deref(), None).await;
            let why = |e| refused(foreign::brief(&format!("its {name}: {e}: '{url}'"), MAX_REASON));
            places.push(place.map_err(why)?);
        }
        let [small, large, upload] = <[Place; 3]>::try_from(places).expect("three were looked up");
        Ok(Self {
            host: server.host.clone(),
            tls,
            small,
            large,
            upload,
            pending: Arc::new(Semaphore::new(MAX_PENDING)),
        })
    }

    fn failed(&self, during: &'static str, reason: &io::Error) -> Error {
        Error::Vanished {
            host: self.host.clone(),
            during,
            reason: foreign::brief(&reason.to_string(), MAX_REASON),
        }
    }

    /// Probes with a new connection and a request for one byte.
    async fn foreign(&self) -> io::Result<ForeignProbe> {
        let mut connected = connect(&self.tls, &self.small, SMALL_WINDOW).await?;
        let began = Instant::now();
        fetch(&mut connected.sender, &self.small, MAX_CONFIGURATION).await?;
        Ok(ForeignProbe {
            tcp_ms: ms(connected.tcp),
            tls_ms: ms(connected.tls),
            http_ms: ms(began.elapsed()),
        })
    }

    /// Fills one direction until goodput and responsiveness are stable, or until the time is over.
    async fn direction(
        &self,
        direction: Direction,
        limit: Duration,
        progress: &mut dyn FnMut(Direction, f64, usize, Option<f64>),
    ) -> Result<Loaded, Error> {
        let failed = |e: io::Error| self.failed("loading the line", &e);
        let seen = Arc::new(Seen::default());
        let (mut senders, mut sockets) = (Vec::new(), Vec::new());
        // All transfers end when this set is dropped.
        let mut transfers = JoinSet::new();
        let end = Instant::now() + limit;
        for _ in 0..INITIAL_CONNECTIONS {
            let first = self.load(direction, &seen, &mut transfers);
            let connected = tokio::time::timeout_at(end.into(), first).await;
            let (sender, socket) = connected
                .unwrap_or_else(|late| Err(late.into()))
                .map_err(failed)?;
            senders.push(sender);
            sockets.push(socket);
        }
        let (mut goodputs, mut rpms) = (Vec::new(), Vec::new());
        let (mut counted, mut at) = (0, Instant::now());
        let (mut is_full, mut is_done) = (false, false);
        while at < end && !is_done {
            let rate = probes_per_s(goodputs.last().copied().unwrap_or(0.0));
            self.probe_for(INTERVAL, rate, &senders, &seen).await;
            let now = Instant::now();
            let total = match direction {
                Direction::Download => seen.bytes.load(Ordering::Relaxed),
                Direction::Upload => arrived(&sockets, &seen).max(counted),
            };
            let seconds = (now - at).as_secs_f64();
            goodputs.push((total - counted) as f64 * 8.0 / 1e6 / seconds);
            (counted, at) = (total, now);
            let figures = seen.figures(now);
            if let Some(rpm) = figures.as_ref().map(|f| f64::midpoint(f.foreign_rpm, f.self_rpm)) {
                rpms.push(rpm);
            }
            progress(
                direction,
                goodputs[goodputs.len() - 1],
                senders.len(),
                rpms.last().copied(),
            );
            if is_full {
                is_done = is_stable(&rpms);
            } else {
                is_full = is_stable(&goodputs);
                for _ in 0..ADDED_CONNECTIONS {
                    if !is_full && senders.len() < MAX_CONNECTIONS {
                        // The server may refuse more connections; the established ones go on.
                        let more =
                            tokio::time::timeout_at(end.into(), self.load(direction, &seen, &mut transfers));
                        if let Ok(Ok((sender, socket))) = more.await {
                            senders.push(sender);
                            sockets.push(socket);
                        }
                    }
                }
            }
        }
        let handshakes_ms = handshakes_ms(&seen.recent(Instant::now()));
        let figures = seen.figures(Instant::now());
        let mut figures = figures
            .ok_or_else(|| self.failed("loading the line", &io::Error::other("no probe came back")))?;
        let newest = &goodputs[goodputs.len().saturating_sub(MOVING_AVERAGE_DISTANCE)..];
        figures.mbit = newest.iter().sum::<f64>() / newest.len().max(1) as f64;
        figures.connections = senders.len();
        figures.confidence = match () {
            () if is_done => Confidence::High,
            () if goodputs.len() < MOVING_AVERAGE_DISTANCE => Confidence::Low,
            () => Confidence::Medium,
        };
        let is_under_way = match direction {
            Direction::Download => {
                while transfers.try_join_next().is_some() {}
                !transfers.is_empty()
            }
            Direction::Upload => seen.taken.load(Ordering::Relaxed) > 0,
        };
        Ok(match unloaded(direction, figures.mbit, is_under_way) {
            None => Loaded::Measured(figures, handshakes_ms),
            Some(finding) => Loaded::NotReached(finding),
        })
    }

    /// Sends probes of both kinds at this rate for this long. Does not wait for answers that are still missing then.
    async fn probe_for(&self, length: Duration, per_s: f64, senders: &[Sender], seen: &Arc<Seen>) {
        let end = tokio::time::Instant::now() + length;
        let mut timer = tokio::time::interval(Duration::from_secs_f64(1.0 / per_s));
        for turn in 0.. {
            if tokio::time::timeout_at(end, timer.tick()).await.is_err() {
                return;
            }
            let (session, theirs) = (self.clone(), seen.clone());
            if let Ok(place) = self.pending.clone().try_acquire_owned() {
                tokio::spawn(async move {
                    if let Ok(probe) = session.foreign().await {
                        lock(&theirs.foreign).push((Instant::now(), probe));
                    }
                    drop(place);
                });
            }
            let (mut sender, place) = (senders[turn % senders.len()].clone(), self.small.clone());
            let theirs = seen.clone();
            tokio::spawn(async move {
                let began = Instant::now();
                if fetch(&mut sender, &place, MAX_CONFIGURATION).await.is_ok() {
                    lock(&theirs.own).push((Instant::now(), ms(began.elapsed())));
                }
            });
        }
    }

    /// Opens a connection that loads the line until `transfers` is dropped.
    async fn load(
        &self,
        direction: Direction,
        seen: &Arc<Seen>,
        transfers: &mut JoinSet<()>,
    ) -> io::Result<(Sender, TcpStream)> {
        let (place, method) = match direction {
            Direction::Download => (&self.large, Method::GET),
            Direction::Upload => (&self.upload, Method::POST),
        };
        let Connected {
            mut sender, socket, ..
        } = connect(&self.tls, place, WINDOW).await?;
        let body = match direction {
            Direction::Download => Empty::new().boxed(),
            Direction::Upload => CountedUpload {
                before_grant: INITIAL_WINDOW + 2 * UPLOAD_PIECE as u64,
                seen: seen.clone(),
            }
            .boxed(),
        };
        let request = request(method, place, body)?;
        let response = sender.send_request(request);
        let seen = seen.clone();
        transfers.spawn(async move {
            let Ok(response) = response.await else {
                return;
            };
            let mut body = response.into_body();
            while let Some(Ok(frame)) = body.frame().await {
                if direction == Direction::Download
                    && let Some(data) = frame.data_ref()
                {
                    seen.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
                }
            }
        });
        Ok((sender, socket))
    }
}

/// Bytes of uploads that have arrived at the other end. Bytes that have left wait in buffers, so that they say nothing about the line. A
/// kernel before 5.4 counts only those.
fn arrived(sockets: &[TcpStream], seen: &Seen) -> u64 {
    let infos: Option<Vec<TcpInfo>> = sockets.iter().map(|socket| TcpInfo::of(socket).ok()).collect();
    match infos {
        Some(infos) => infos.iter().map(TcpInfo::arrived_bytes).sum(),
        None => seen.bytes.load(Ordering::Relaxed),
    }
}

impl Seen {
    /// The figures of the probes in the last intervals. `None` while one kind of probe has no answer.
    fn figures(&self, now: Instant) -> Option<Responsiveness> {
        let foreign = self.recent(now);
        let own: Vec<_> = lock(&self.own)
            .iter()
            .filter(|(at, _)| is_recent(*at, now))
            .map(|(_, ms)| *ms)
            .collect();
        let (foreign_rpm, self_rpm) = (foreign_rpm(&foreign)?, self_rpm(&own)?);
        Some(Responsiveness {
            rpm: f64::midpoint(foreign_rpm, self_rpm),
            foreign_rpm,
            self_rpm,
            mbit: 0.0,
            connections: 0,
            foreign_probes: foreign.len(),
            self_probes: own.len(),
            confidence: Confidence::Low,
            added: None,
        })
    }

    /// The probes of new connections in the last intervals.
    fn recent(&self, now: Instant) -> Vec<ForeignProbe> {
        let probes = lock(&self.foreign);
        let recent = probes.iter().filter(|(at, _)| is_recent(*at, now));
        recent.map(|(_, probe)| *probe).collect()
    }
}

/// True in the intervals that a moving average is of.
fn is_recent(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) <= INTERVAL * MOVING_AVERAGE_DISTANCE as u32
}

fn handshakes_ms(probes: &[ForeignProbe]) -> Vec<f64> {
    probes.iter().map(|probe| probe.tcp_ms).collect()
}

/// An endless upload body that counts the bytes that leave.
struct CountedUpload {
    /// Bytes that the connection still takes before the server grants a window.
    before_grant: u64,
    seen: Arc<Seen>,
}

impl Body for CountedUpload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let noise = Bytes::from_static(load::payload()).slice(..UPLOAD_PIECE);
        let length = noise.len() as u64;
        self.seen.bytes.fetch_add(length, Ordering::Relaxed);
        let ungranted = length.min(self.before_grant);
        self.before_grant -= ungranted;
        self.seen.taken.fetch_add(length - ungranted, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(noise))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

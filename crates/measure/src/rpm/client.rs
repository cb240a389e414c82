//! The client: it fills the line with HTTP transfers, and meanwhile sends small requests as probes.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Frame, SizeHint};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{Method, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ProtocolVersion;

use super::{
    ADDED_CONNECTIONS, Confidence, ForeignProbe, INITIAL_CONNECTIONS, INTERVAL, MAX_CONNECTIONS,
    MOVING_AVERAGE_DISTANCE, Responsiveness, foreign_rpm, is_stable, probes_per_s, self_rpm, unloaded,
};
use crate::Error;
use crate::client::web::Site;
use crate::foreign;
use crate::foreign::MAX_REASON;
use crate::http::{Place, Tasks, Upload, bracketed, request, shown, tls_config};
use crate::load;
use crate::result::{Direction, Finding};

/// Longest time to connect, with the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);
/// Longest time to read the configuration of the server and to probe the idle line, together.
const SETUP: Duration = Duration::from_secs(8);
/// Longest time for the answer to a small request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);
/// Largest number of probe connections at the same time. A choice: servers limit the connections of one client.
const MAX_PENDING: usize = 32;
/// Number of probes on the idle line.
const IDLE_PROBES: usize = 10;
/// HTTP/2 receive window of a connection that loads the line, bytes. Times the number of connections, it limits the memory that a
/// server can make this program use.
const WINDOW: u32 = 2 << 20;
/// HTTP/2 receive window of a connection that expects a small answer, bytes.
const SMALL_WINDOW: u32 = 128 << 10;
/// The initial HTTP/2 flow-control window, bytes (RFC 9113, section 6.9.2): a client may send this much before the server grants any.
const INITIAL_WINDOW: u64 = 65_535;
/// Size of a piece of an upload, bytes: the largest frame that every server accepts (RFC 9113, section 6.5.2). hyper takes two pieces
/// ahead of the window.
const UPLOAD_PIECE: usize = 16 << 10;
/// The largest configuration that is read, in bytes.
const MAX_CONFIGURATION: usize = 64 << 10;
/// Paths of the configuration: that of the draft, then that of older servers.
const CONFIGURATION: [&str; 2] = ["/.well-known/nq", "/config"];

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

/// The measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`DRAFT`](super::DRAFT).
    pub draft: String,
    /// The server as the user named it.
    pub host: String,
    /// Round trips per minute of new connections on the idle line.
    pub idle_rpm: Option<f64>,
    /// Responsiveness while downloads filled the line. `None` if they did not fill it.
    pub download: Option<Responsiveness>,
    /// Responsiveness while uploads filled the line.
    pub upload: Option<Responsiveness>,
    /// Why a direction has no figures.
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
            draft: super::DRAFT.to_owned(),
            host: server.host.clone(),
            idle_rpm: foreign_rpm(&idle),
            download: None,
            upload: None,
            findings: Vec::new(),
        };
        for direction in [Direction::Down, Direction::Up] {
            let place = match direction {
                Direction::Down => &mut report.download,
                Direction::Up => &mut report.upload,
            };
            match session.direction(direction, server.limit, progress).await? {
                Loaded::Measured(figures) => *place = Some(figures),
                Loaded::NotReached(finding) => report.findings.push(finding),
            }
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

/// The error for a server that is not ready in time.
fn slow(host: &str, port: u16) -> Error {
    let text = format!("it is not ready within {} s", SETUP.as_secs());
    Error::Rpm {
        host: host.to_owned(),
        port,
        reason: io::Error::new(io::ErrorKind::TimedOut, text),
    }
}

/// The URLs of the transfers of a server, for a test that loads the line in another way.
pub fn site(host: &str, port: u16, verify: bool) -> Result<Site, Error> {
    let tls = tls(verify)?;
    let asked = async { tokio::time::timeout(SETUP, find(host, port, &tls)).await };
    let configuration = Tasks::new()?.runtime().block_on(asked);
    let configuration = configuration.map_err(|_| slow(host, port))??;
    configuration.site(verify).map_err(|reason| Error::Refused {
        host: host.to_owned(),
        reason,
    })
}

/// The URLs of the transfers in the configuration at this URL. `None` if there is no configuration at this URL.
pub fn site_at(url: &str, verify: bool) -> Result<Option<Site>, Error> {
    let tls = tls(verify)?;
    let asked = async {
        let place = Place::of(url, None, None).await?;
        body(&tls, &place).await
    };
    let tasks = Tasks::new()?;
    let asked = tasks
        .runtime()
        .block_on(async { tokio::time::timeout(SETUP, asked).await });
    let text = asked.unwrap_or_else(|late| Err(late.into())).unwrap_or_default();
    let Ok(configuration) = serde_json::from_slice::<Configuration>(&text) else {
        return Ok(None);
    };
    configuration
        .site(verify)
        .map(Some)
        .map_err(|reason| Error::Refused {
            host: url.to_owned(),
            reason,
        })
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

/// The configuration file.
#[derive(Debug, Deserialize)]
struct Configuration {
    /// URLs by the names of the draft, the older names, or both.
    urls: BTreeMap<String, String>,
    test_endpoint: Option<String>,
}

/// Names of the URLs in the configuration: that of the draft, and that of older servers.
const SMALL: [&str; 2] = ["small_download_url", "small_https_download_url"];
const LARGE: [&str; 2] = ["large_download_url", "large_https_download_url"];
const UPLOAD: [&str; 2] = ["upload_url", "https_upload_url"];

impl Configuration {
    fn url(&self, [name, older]: [&str; 2]) -> Result<&str, String> {
        let url = self.urls.get(name).or_else(|| self.urls.get(older));
        let url = url.ok_or_else(|| format!("its configuration has no {name}"))?;
        Ok(url)
    }

    /// The URLs of the transfers, for a test against plain URLs.
    fn site(&self, verify: bool) -> Result<Site, String> {
        Ok(Site {
            download: Some(self.url(LARGE)?.to_owned()),
            upload: Some(self.url(UPLOAD)?.to_owned()),
            instead: self.test_endpoint.clone(),
            verify,
            ..Site::default()
        })
    }
}

/// The outcome of the load in one direction.
enum Loaded {
    Measured(Responsiveness),
    /// The load did not fill the line.
    NotReached(Finding),
}

type Sender = SendRequest<Upload>;

/// A connection, with the time that it took to establish.
struct Connected {
    sender: Sender,
    tcp: Duration,
    tls: Duration,
}

/// The measurements of the transfers and probes of one direction so far.
#[derive(Default)]
struct Seen {
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
        let mut senders = Vec::new();
        // All transfers end when this set is dropped.
        let mut transfers = JoinSet::new();
        let end = Instant::now() + limit;
        for _ in 0..INITIAL_CONNECTIONS {
            let first = self.load(direction, &seen, &mut transfers);
            let connected = tokio::time::timeout_at(end.into(), first).await;
            senders.push(
                connected
                    .unwrap_or_else(|late| Err(late.into()))
                    .map_err(failed)?,
            );
        }
        let (mut goodputs, mut rpms) = (Vec::new(), Vec::new());
        let (mut counted, mut at) = (0, Instant::now());
        let (mut is_full, mut is_done) = (false, false);
        while at < end && !is_done {
            let rate = probes_per_s(goodputs.last().copied().unwrap_or(0.0));
            self.probe_for(INTERVAL, rate, &senders, &seen).await;
            let (now, total) = (Instant::now(), seen.bytes.load(Ordering::Relaxed));
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
                        senders.extend(more.await.ok().and_then(Result::ok));
                    }
                }
            }
        }
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
            Direction::Down => {
                while transfers.try_join_next().is_some() {}
                !transfers.is_empty()
            }
            Direction::Up => seen.taken.load(Ordering::Relaxed) > 0,
        };
        Ok(match unloaded(direction, figures.mbit, is_under_way) {
            None => Loaded::Measured(figures),
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
    ) -> io::Result<Sender> {
        let (place, method) = match direction {
            Direction::Down => (&self.large, Method::GET),
            Direction::Up => (&self.upload, Method::POST),
        };
        let mut sender = connect(&self.tls, place, WINDOW).await?.sender;
        let body = match direction {
            Direction::Down => Empty::new().boxed(),
            Direction::Up => CountedUpload {
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
                if direction == Direction::Down
                    && let Some(data) = frame.data_ref()
                {
                    seen.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
                }
            }
        });
        Ok(sender)
    }
}

impl Seen {
    /// The figures of the probes in the last intervals. `None` while one kind of probe has no answer.
    fn figures(&self, now: Instant) -> Option<Responsiveness> {
        let since = INTERVAL * MOVING_AVERAGE_DISTANCE as u32;
        let is_recent = |at: Instant| now.saturating_duration_since(at) <= since;
        let foreign: Vec<_> = lock(&self.foreign)
            .iter()
            .filter(|(at, _)| is_recent(*at))
            .map(|(_, probe)| *probe)
            .collect();
        let own: Vec<_> = lock(&self.own)
            .iter()
            .filter(|(at, _)| is_recent(*at))
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
        })
    }
}

fn tls(verify: bool) -> Result<TlsConnector, Error> {
    Ok(TlsConnector::from(Arc::new(tls_config(verify, b"h2")?)))
}

/// Reads the configuration of a server from the first path that has one.
async fn find(host: &str, port: u16, tls: &TlsConnector) -> Result<Configuration, Error> {
    let failed = |reason| Error::Rpm {
        host: host.to_owned(),
        port,
        reason: shown(&reason),
    };
    let mut reason = io::Error::from(io::ErrorKind::NotFound);
    for path in CONFIGURATION {
        let url = format!("https://{}:{port}{path}", bracketed(host));
        let place = Place::of(&url, None, None).await.map_err(failed)?;
        match body(tls, &place).await {
            Ok(text) => {
                return serde_json::from_slice(&text).map_err(|e| Error::Refused {
                    host: host.to_owned(),
                    reason: foreign::brief(&format!("its configuration cannot be read: {e}"), MAX_REASON),
                });
            }
            Err(e) => reason = e,
        }
    }
    Err(failed(reason))
}

/// Gets the body at a URL.
async fn body(tls: &TlsConnector, place: &Place) -> io::Result<Vec<u8>> {
    let mut connected = connect(tls, place, SMALL_WINDOW).await?;
    fetch(&mut connected.sender, place, MAX_CONFIGURATION).await
}

/// Connects. Measures the time of the TCP handshake, and that of a round trip of the TLS handshake.
async fn connect(tls: &TlsConnector, place: &Place, window: u32) -> io::Result<Connected> {
    tokio::time::timeout(CONNECT_TIMEOUT, async {
        let began = Instant::now();
        let stream = TcpStream::connect(place.address).await?;
        let tcp = began.elapsed();
        stream.set_nodelay(true)?;
        let began = Instant::now();
        let name = place
            .name
            .clone()
            .ok_or_else(|| io::Error::other("it is not https"))?;
        let stream = tls.connect(name, stream).await?;
        // TLS 1.3 takes one round trip (RFC 8446, section 2), earlier versions two.
        let round_trips = match stream.get_ref().1.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => 1,
            _ => 2,
        };
        let tls = began.elapsed() / round_trips;
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(io::Error::other("it does not speak HTTP/2"));
        }
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(window)
            .initial_connection_window_size(window)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        tokio::spawn(connection);
        Ok(Connected { sender, tcp, tls })
    })
    .await?
}

/// Gets a small body, at most `limit` bytes.
async fn fetch(sender: &mut Sender, place: &Place, limit: usize) -> io::Result<Vec<u8>> {
    let request = request(Method::GET, place, Empty::new().boxed())?;
    tokio::time::timeout(ANSWER_TIMEOUT, async {
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        if response.status() != StatusCode::OK {
            let status = response.status();
            return Err(io::Error::other(format!("{} answers {status}", place.uri)));
        }
        let mut body = response.into_body();
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            if let Some(data) = frame.map_err(io::Error::other)?.data_ref() {
                bytes.extend_from_slice(data);
            }
            if bytes.len() > limit {
                return Err(io::Error::other("its answer is too long"));
            }
        }
        Ok(bytes)
    })
    .await?
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

#[cfg(test)]
mod tests {
    use super::*;

    fn site(text: &str) -> Result<Site, String> {
        let configuration: Configuration = serde_json::from_str(text).expect("a configuration");
        configuration.site(true)
    }

    #[test]
    fn a_configuration_may_use_the_names_of_the_draft_or_older_ones() {
        let new = site(
            r#"{"version": 1, "urls": {"small_download_url": "https://a/s", "large_download_url": "https://a/l",
                "upload_url": "https://a/u"}, "test_endpoint": "edge.example"}"#,
        );
        let new = new.expect("a site");
        assert_eq!(new.download.as_deref(), Some("https://a/l"));
        assert_eq!(new.upload.as_deref(), Some("https://a/u"));
        assert_eq!(new.instead.as_deref(), Some("edge.example"));
        let old = site(
            r#"{"urls": {"large_https_download_url": "https://b/l", "https_upload_url": "https://b/u"}}"#,
        );
        assert_eq!(old.expect("a site").upload.as_deref(), Some("https://b/u"));
        let without = site(r#"{"urls": {"large_download_url": "https://a/l"}}"#);
        assert_eq!(without.unwrap_err(), "its configuration has no upload_url");
    }
}

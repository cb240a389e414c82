//! One flow by HTTP: it transfers a file again and again, over one connection as long as the server keeps it open.

use std::io;
use std::net::TcpStream as Blocking;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, StatusCode, header};
use hyper_util::rt::TokioIo;
use sqm_core::direction::Direction;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::foreign;
use crate::http::{EndlessBody, Place, Upload, in_origin_form, shown};
use crate::scenario::Family;
use crate::socket;
use crate::tcp_info::TcpInfo;

/// Longest time to connect, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);
/// The pause between two connections.
const PAUSE: Duration = Duration::from_millis(100);
/// After this many connections in a row that bring an error and no data, the server counts as refusing. A choice.
const MAX_FAILURES: u32 = 3;
/// Length of one upload, bytes. Servers refuse uploads that are too large; those of known speed tests accept this length.
const UPLOAD_BYTES: u64 = 25_000_000;
/// Largest number of redirects that are followed.
const MAX_REDIRECTS: usize = 5;

/// A flow of HTTP requests in one direction.
pub(super) struct Transfer {
    pub(super) direction: Direction,
    place: Place,
    tls: TlsConnector,
    /// `None` keeps the default of the system.
    congestion: Option<String>,
    current: Mutex<Current>,
    requests: AtomicU32,
    failures: AtomicU32,
    is_refused: AtomicBool,
}

/// The present connection.
#[derive(Default)]
struct Current {
    /// A second handle, for `TCP_INFO`.
    socket: Option<Blocking>,
    /// The bytes of this connection at the last reading.
    now: Arrived,
    /// The bytes of the connections before it.
    earlier: Arrived,
    congestion: String,
    failure: Option<String>,
}

/// Bytes that have arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrived {
    /// The bytes before the first gap.
    pub(super) whole: u64,
    /// All bytes, those behind a gap included as far as this end knows of them.
    pub(super) all: u64,
}

impl Transfer {
    pub(super) fn new(
        direction: Direction,
        place: Place,
        tls: TlsConnector,
        congestion: Option<String>,
    ) -> Self {
        Self {
            direction,
            place,
            tls,
            congestion,
            current: Mutex::default(),
            requests: AtomicU32::new(0),
            failures: AtomicU32::new(0),
            is_refused: AtomicBool::new(false),
        }
    }

    /// Transfers the file in each of these windows of time.
    pub(super) async fn run_within(self: Arc<Self>, windows: Vec<Range<Instant>>) {
        for window in windows {
            tokio::time::sleep_until(window.start.into()).await;
            // The transfer has no end of its own.
            let _ = tokio::time::timeout_at(window.end.into(), self.run()).await;
            self.disconnect();
        }
    }

    /// Transfers the file until it is dropped.
    async fn run(&self) {
        loop {
            let before = self.look().0.whole;
            let ended = self.connection().await;
            if let Err(reason) = ended {
                self.current().failure = Some(shown(&reason).to_string());
                let is_refused = reason.kind() == io::ErrorKind::InvalidData;
                let moved = self.look().0.whole > before && !is_refused;
                let failures = if moved {
                    0
                } else {
                    self.failures.load(Ordering::Relaxed) + 1
                };
                self.failures.store(failures, Ordering::Relaxed);
                self.is_refused.store(failures >= MAX_FAILURES, Ordering::Release);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The bytes that have arrived so far, and `TCP_INFO` of the present connection.
    pub(super) fn look(&self) -> (Arrived, Option<TcpInfo>) {
        let mut current = self.current();
        let info = current
            .socket
            .as_ref()
            .and_then(|socket| TcpInfo::of(socket).ok());
        if let Some(info) = &info {
            let (whole, all) = match self.direction {
                Direction::Download => (info.bytes_received, info.bytes_received),
                Direction::Upload => (info.bytes_acked, info.delivered_bytes()),
            };
            current.now = Arrived { whole, all };
        }
        (current.earlier.with(current.now), info)
    }

    /// The congestion control of the sender, if that is this machine. Else empty.
    pub(super) fn congestion(&self) -> String {
        match self.direction {
            Direction::Download => String::new(),
            Direction::Upload => self.current().congestion.clone(),
        }
    }

    /// Number of requests so far.
    pub(super) fn requests(&self) -> u32 {
        self.requests.load(Ordering::Relaxed)
    }

    /// The last failure.
    pub(super) fn failure(&self) -> Option<String> {
        self.current().failure.clone()
    }

    /// True if the server refuses the requests.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Acquire)
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a connection, and sends requests on it until it ends.
    async fn connection(&self) -> io::Result<()> {
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(self.place.address)).await??;
        let stream = stream.into_std()?;
        if let Some(name) = &self.congestion {
            socket::set_congestion(&stream, name)?;
        }
        socket::reset_on_close(&stream)?;
        self.set_current(&stream)?;
        let mut driver = JoinSet::new();
        let mut sender = open(TcpStream::from_std(stream)?, &self.place, &self.tls, &mut driver).await?;
        loop {
            sender.ready().await.map_err(io::Error::other)?;
            self.exchange(&mut sender).await?;
        }
    }

    /// Ends the present connection, whose other handle is gone. What is still in its buffer is discarded.
    fn disconnect(&self) {
        let (_, _) = self.look();
        let mut current = self.current();
        current.earlier = current.earlier.with(std::mem::take(&mut current.now));
        current.socket = None;
    }

    /// Makes this the present connection.
    fn set_current(&self, stream: &Blocking) -> io::Result<()> {
        self.disconnect();
        let mut current = self.current();
        current.congestion = socket::congestion(stream)?;
        current.socket = Some(stream.try_clone()?);
        Ok(())
    }

    async fn exchange(&self, sender: &mut SendRequest<Upload>) -> io::Result<()> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let (method, body) = match self.direction {
            Direction::Download => (Method::GET, Empty::new().boxed()),
            Direction::Upload => (Method::POST, EndlessBody { left: UPLOAD_BYTES }.boxed()),
        };
        let request = in_origin_form(method, &self.place, body)?;
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        if !response.status().is_success() {
            return Err(answer(response.status()));
        }
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            frame.map_err(io::Error::other)?;
        }
        Ok(())
    }
}

impl Arrived {
    fn with(self, more: Self) -> Self {
        Self {
            whole: self.whole + more.whole,
            all: self.all + more.all,
        }
    }
}

fn answer(status: StatusCode) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("it answers {status}"))
}

/// Begins HTTP/1.1 on a connected socket. The connection lives in `driver` and ends when that is dropped.
async fn open(
    stream: TcpStream,
    place: &Place,
    tls: &TlsConnector,
    driver: &mut JoinSet<()>,
) -> io::Result<SendRequest<Upload>> {
    match &place.name {
        None => handshake(stream, driver).await,
        Some(name) => {
            let stream = tokio::time::timeout(CONNECT_TIMEOUT, tls.connect(name.clone(), stream)).await??;
            handshake(stream, driver).await
        }
    }
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    driver: &mut JoinSet<()>,
) -> io::Result<SendRequest<Upload>> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    driver.spawn(async move {
        // An error shows in the requests.
        let _ = connection.await;
    });
    Ok(sender)
}

/// Requests the file once, follows redirects, and returns where the file is.
pub(super) async fn final_place(
    place: &Place,
    tls: &TlsConnector,
    family: Option<Family>,
) -> io::Result<Place> {
    let mut place = place.clone();
    for _ in 0..=MAX_REDIRECTS {
        let (status, location) = ask(&place, tls).await?;
        let Some(location) = location.filter(|_| status.is_redirection()) else {
            return if status.is_success() {
                Ok(place)
            } else {
                Err(answer(status))
            };
        };
        let url = match (location.strip_prefix('/'), place.uri.authority()) {
            (Some(path), Some(authority)) => {
                format!(
                    "{}://{authority}/{path}",
                    place.uri.scheme_str().unwrap_or("https")
                )
            }
            _ => location,
        };
        let referred = |e: io::Error| io::Error::new(e.kind(), format!("it redirects to {url}: {e}"));
        place = Place::of(&url, None, family).await.map_err(referred)?;
    }
    Err(io::Error::other("too many redirects"))
}

async fn ask(place: &Place, tls: &TlsConnector) -> io::Result<(StatusCode, Option<String>)> {
    let stream = TcpStream::connect(place.address).await?;
    let mut driver = JoinSet::new();
    let mut sender = open(stream, place, tls, &mut driver).await?;
    let request = in_origin_form(Method::GET, place, Empty::new().boxed())?;
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    let location = response.headers().get(header::LOCATION);
    let location = location.and_then(|value| value.to_str().ok());
    let location = location.map(|text| foreign::printable(text).into_owned());
    Ok((response.status(), location))
}

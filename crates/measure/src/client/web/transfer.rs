//! One flow by HTTP: the same file again and again, over one connection as long as the server lets it stand.

use std::io;
use std::net::TcpStream as Blocking;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::foreign;
use crate::http::{Place, Upload, in_origin_form, shown};
use crate::result::Direction;
use crate::rpm::server::Endless;
use crate::scenario::Family;
use crate::socket;
use crate::tcp_info::TcpInfo;

/// Until a connection stands, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);
/// Between a connection that ended and the next.
const PAUSE: Duration = Duration::from_millis(100);
/// Connections in a row that bring an error and nothing else, before the server is taken at its word.
const PATIENCE: u32 = 3;
/// Bytes of one upload. Servers refuse what is too large; those of known speed tests take this much.
const UPLOAD_BYTES: u64 = 25_000_000;
/// Addresses that may refer to one another.
const MAX_REDIRECTS: usize = 5;

/// A flow of HTTP requests in one direction.
pub(super) struct Transfer {
    pub(super) direction: Direction,
    place: Place,
    tls: TlsConnector,
    /// None keeps the system's own.
    congestion: Option<String>,
    line: Mutex<Line>,
    requests: AtomicU32,
    failures: AtomicU32,
    is_refused: AtomicBool,
}

/// The connection of the moment.
#[derive(Default)]
struct Line {
    /// A second handle, to ask the kernel about it.
    socket: Option<Blocking>,
    /// Of it when last looked at.
    now: Arrived,
    /// Of the connections before it.
    earlier: Arrived,
    congestion: String,
    failure: Option<String>,
}

/// Bytes at their end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrived {
    /// Without a gap.
    pub(super) whole: u64,
    /// Also what waits behind a gap, as far as this end knows of it.
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
            line: Mutex::default(),
            requests: AtomicU32::new(0),
            failures: AtomicU32::new(0),
            is_refused: AtomicBool::new(false),
        }
    }

    /// Never ends by itself.
    pub(super) async fn run(self: std::sync::Arc<Self>) {
        loop {
            let before = self.look().0.whole;
            let ended = self.connection().await;
            if let Err(reason) = ended {
                self.line().failure = Some(shown(&reason).to_string());
                let is_refused = reason.kind() == io::ErrorKind::InvalidData;
                let moved = self.look().0.whole > before && !is_refused;
                let failures = if moved {
                    0
                } else {
                    self.failures.load(Ordering::Relaxed) + 1
                };
                self.failures.store(failures, Ordering::Relaxed);
                self.is_refused.store(failures >= PATIENCE, Ordering::Release);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// What has arrived so far, and what the kernel knows of the connection of the moment.
    pub(super) fn look(&self) -> (Arrived, Option<TcpInfo>) {
        let mut line = self.line();
        let info = line.socket.as_ref().and_then(|socket| TcpInfo::of(socket).ok());
        if let Some(info) = &info {
            let (whole, all) = match self.direction {
                Direction::Down => (info.bytes_received, info.bytes_received),
                Direction::Up => (info.bytes_acked, info.delivered_bytes()),
            };
            line.now = Arrived { whole, all };
        }
        (line.earlier.with(line.now), info)
    }

    /// Of the sender, if that is this machine.
    pub(super) fn congestion(&self) -> String {
        match self.direction {
            Direction::Down => String::new(),
            Direction::Up => self.line().congestion.clone(),
        }
    }

    /// Requests so far.
    pub(super) fn requests(&self) -> u32 {
        self.requests.load(Ordering::Relaxed)
    }

    /// What went wrong last.
    pub(super) fn failure(&self) -> Option<String> {
        self.line().failure.clone()
    }

    /// Whether it is no use to go on.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Acquire)
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One connection, with as many requests as it bears.
    async fn connection(&self) -> io::Result<()> {
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(self.place.address)).await??;
        let stream = stream.into_std()?;
        if let Some(name) = &self.congestion {
            socket::set_congestion(&stream, name)?;
        }
        socket::reset_on_close(&stream)?;
        self.take_up(&stream)?;
        let mut driver = JoinSet::new();
        let mut sender = open(TcpStream::from_std(stream)?, &self.place, &self.tls, &mut driver).await?;
        loop {
            sender.ready().await.map_err(io::Error::other)?;
            self.exchange(&mut sender).await?;
        }
    }

    fn take_up(&self, stream: &Blocking) -> io::Result<()> {
        let (_, _) = self.look();
        let mut line = self.line();
        line.earlier = line.earlier.with(std::mem::take(&mut line.now));
        line.congestion = socket::congestion(stream)?;
        line.socket = Some(stream.try_clone()?);
        Ok(())
    }

    async fn exchange(&self, sender: &mut SendRequest<Upload>) -> io::Result<()> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let (method, body) = match self.direction {
            Direction::Down => (Method::GET, Empty::new().boxed()),
            Direction::Up => (Method::POST, Endless { left: UPLOAD_BYTES }.boxed()),
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

/// HTTP/1.1 over a connected socket. `driver` keeps it going, and ends it when it is dropped.
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
        // Its end shows in the requests.
        let _ = connection.await;
    });
    Ok(sender)
}

/// Asks for the file once, follows where the server sends us, and answers where it really is.
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
        let referred = |e: io::Error| io::Error::new(e.kind(), format!("it refers to {url}: {e}"));
        place = Place::of(&url, None, family).await.map_err(referred)?;
    }
    Err(io::Error::other("it only refers to other places"))
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

//! The HTTPS server: a small and a large download, an upload, and the configuration that names their URLs.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, TcpStream};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use super::connection_limit::{ConnectionGuard, ConnectionTable, RequestGuard};
use crate::http::EndlessBody;
use crate::tls::Certificate;
use crate::{Error, socket};

/// Length of the large download, in bytes: long enough that no client reaches its end.
const LARGE: u64 = 8_000_000_000;
/// Longest time for the TLS handshake, and for the head of a request.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest number of simultaneous HTTP/2 streams in a connection.
const MAX_STREAMS: u32 = 32;
/// HTTP/2 receive window, bytes. A choice: 1 Gbit/s over a round trip of 67 ms.
const WINDOW: u32 = 8 << 20;
/// Largest amount of unsent data in the socket, bytes. More would delay the responses behind it.
const UNSENT: u32 = 128 << 10;
/// Paths of the configuration: that of the draft, and those of older clients.
const CONFIGURATION: [&str; 3] = ["/.well-known/nq", "/config", "/api/v1/gm/config"];

/// The HTTPS server. It serves connections that [`crate::server`] has accepted.
pub(crate) struct Https {
    runtime: Runtime,
    acceptor: TlsAcceptor,
    /// Longest duration of a connection.
    lifetime: Duration,
    /// Rate limit of one connection, bytes per second.
    max_rate: Option<u64>,
    connections: ConnectionTable,
}

impl Https {
    /// A server with a self-signed certificate. `lifetime` is the longest duration of a connection, `max_rate` its rate limit in bytes
    /// per second.
    pub(crate) fn new(lifetime: Duration, max_rate: Option<u64>) -> Result<Self, Error> {
        let config = Certificate::self_signed()?.server(&[b"h2", b"http/1.1"])?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("https")
            .enable_all()
            .build()
            .map_err(|e| Error::system("start threads", e))?;
        Ok(Self {
            runtime,
            acceptor: TlsAcceptor::from(Arc::new(config)),
            lifetime,
            max_rate,
            connections: ConnectionTable::default(),
        })
    }

    /// Serves a connection that began with a TLS handshake.
    pub(crate) fn serve(&self, stream: TcpStream, client: IpAddr) -> io::Result<()> {
        let Some(entry) = self.connections.admit(client) else {
            return Ok(());
        };
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        socket2::SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT)?;
        if let Some(rate) = self.max_rate {
            socket::pace(&stream, rate)?;
        }
        let (acceptor, lifetime) = (self.acceptor.clone(), self.lifetime);
        self.runtime.spawn(async move {
            // An error on a connection shows at the client.
            let _ = tokio::time::timeout(lifetime, serve_connection(stream, &acceptor, &entry)).await;
        });
        Ok(())
    }
}

/// Serves a connection until the client closes it or the table evicts it.
async fn serve_connection(
    stream: TcpStream,
    acceptor: &TlsAcceptor,
    entry: &ConnectionGuard,
) -> io::Result<()> {
    let stream = tokio::net::TcpStream::from_std(stream)?;
    let tls = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await??;
    entry.handshake_done();
    let mut server = auto::Builder::new(TokioExecutor::new());
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HANDSHAKE_TIMEOUT)
        .max_buf_size(64 << 10);
    server
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(16 << 10);
    let service = service_fn(|request| answer(request, entry.request()));
    let mut connection = pin!(server.serve_connection(TokioIo::new(tls), service));
    let mut end = pin!(entry.evicted());
    let mut is_ending = false;
    poll_fn(|context| {
        if !is_ending && end.as_mut().poll(context).is_ready() {
            is_ending = true;
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(context)
    })
    .await
    .map_err(io::Error::other)
}

type Reply = Response<BoxBody<Bytes, Infallible>>;

async fn answer(
    request: Request<Incoming>,
    guard: RequestGuard,
) -> Result<Response<GuardedBody>, Infallible> {
    let reply = respond(request).await;
    Ok(reply.map(|body| GuardedBody {
        body,
        _under_way: guard,
    }))
}

async fn respond(request: Request<Incoming>) -> Reply {
    let path = request.uri().path();
    match (request.method(), path) {
        (&Method::GET, path) if CONFIGURATION.contains(&path) => match authority(&request) {
            Some(host) => text(configuration(&host), "application/json"),
            None => status(StatusCode::BAD_REQUEST),
        },
        (&Method::GET, "/small") => text("x".to_owned(), "application/octet-stream"),
        (&Method::GET, "/large") => reply(EndlessBody { left: LARGE }.boxed(), "application/octet-stream"),
        (&Method::POST | &Method::PUT, "/upload") => {
            swallow(request.into_body()).await;
            text(String::new(), "text/plain")
        }
        _ => status(StatusCode::NOT_FOUND),
    }
}

/// The host name and port with which the client reached us, for the URLs in the configuration.
fn authority(request: &Request<Incoming>) -> Option<String> {
    let by_header = || {
        request
            .headers()
            .get(header::HOST)?
            .to_str()
            .ok()
            .map(str::to_owned)
    };
    let host = request
        .uri()
        .authority()
        .map(ToString::to_string)
        .or_else(by_header)?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-:[]_".contains(c);
    (host.len() < 256 && host.chars().all(is_plain)).then_some(host)
}

/// The configuration in JSON, with the names of the draft and those of older clients.
fn configuration(host: &str) -> String {
    let url = |path: &str| format!("https://{host}/{path}");
    serde_json::json!({
        "version": 1,
        "urls": {
            "small_download_url": url("small"),
            "large_download_url": url("large"),
            "upload_url": url("upload"),
            "small_https_download_url": url("small"),
            "large_https_download_url": url("large"),
            "https_upload_url": url("upload"),
        },
    })
    .to_string()
}

fn text(body: String, kind: &'static str) -> Reply {
    reply(Full::new(Bytes::from(body)).boxed(), kind)
}

fn status(code: StatusCode) -> Reply {
    let mut reply = text(String::new(), "text/plain");
    *reply.status_mut() = code;
    reply
}

fn reply(body: BoxBody<Bytes, Infallible>, kind: &'static str) -> Reply {
    let mut reply = Response::new(body);
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    headers.insert(
        header::CACHE_CONTROL,
        header::HeaderValue::from_static("no-store, no-transform"),
    );
    reply
}

/// Reads a body to its end and drops it.
async fn swallow(mut body: Incoming) {
    while let Some(Ok(frame)) = body.frame().await {
        drop(frame);
    }
}

/// A response body that keeps its request in progress until it is dropped.
struct GuardedBody {
    body: BoxBody<Bytes, Infallible>,
    _under_way: RequestGuard,
}

impl Body for GuardedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

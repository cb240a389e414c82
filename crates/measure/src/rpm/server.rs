//! The server's half: one small and one endless download, an endless upload, and a file that says where they are.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, TcpStream};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
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
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::{Error, load, socket};

/// What the large download says it has; nobody waits for its end.
const LARGE: u64 = 8_000_000_000;
/// The handshake must be done after this long.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections at the same time, all together and from one address. A client makes 16 for load and many short ones.
const MAX_CONNECTIONS: usize = 256;
const MAX_PER_ADDRESS: usize = 128;
/// Transfers at once within a connection.
const MAX_STREAMS: u32 = 32;
/// What may be under way towards us unread, in bytes: the delay of a long line at a high rate.
const WINDOW: u32 = 8 << 20;
/// What waits in the socket unsent, in bytes; more would delay the answers that come after it.
const UNSENT: u32 = 128 << 10;
/// Where clients look for the configuration: the draft's place, and those of older clients.
const CONFIGURATION: [&str; 3] = ["/.well-known/nq", "/config", "/api/v1/gm/config"];

/// Serves HTTPS on connections that others accept.
pub(crate) struct Https {
    runtime: Runtime,
    acceptor: TlsAcceptor,
    /// A connection ends after this long, whatever it does.
    lifetime: Duration,
    /// Bytes per second of one connection.
    max_rate: Option<u64>,
    guests: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
}

/// A connection's place among those that are counted.
struct Guest {
    client: IpAddr,
    guests: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
}

impl Https {
    /// With a certificate of its own making: who measures does not mind, who minds tells the client to check.
    pub(crate) fn new(lifetime: Duration, max_rate: Option<u64>) -> Result<Self, Error> {
        let names = vec![socket::host_name(), "localhost".to_owned()];
        let made = rcgen::generate_simple_self_signed(names)
            .map_err(|e| Error::system("make a certificate", io::Error::other(e)))?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|config| {
                config
                    .with_no_client_auth()
                    .with_single_cert(vec![made.cert.der().clone()], key)
            })
            .map_err(|e| Error::system("set up TLS", io::Error::other(e)))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
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
            guests: Arc::default(),
        })
    }

    /// Serves a connection that began with a TLS handshake.
    pub(crate) fn serve(&self, stream: TcpStream, client: IpAddr) -> io::Result<()> {
        let Some(guest) = Guest::enter(&self.guests, client) else {
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
            let connection = async {
                let stream = tokio::net::TcpStream::from_std(stream)?;
                let tls = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await??;
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
                server
                    .serve_connection(TokioIo::new(tls), service_fn(answer))
                    .await
                    .map_err(io::Error::other)
            };
            // What goes wrong on a connection is the client's to see.
            let _ = tokio::time::timeout(lifetime, connection).await;
            drop(guest);
        });
        Ok(())
    }
}

impl Guest {
    fn enter(guests: &Arc<Mutex<BTreeMap<IpAddr, usize>>>, client: IpAddr) -> Option<Self> {
        let mut counts = guests.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = counts.values().sum();
        let count = counts.get(&client).copied().unwrap_or(0);
        if all >= MAX_CONNECTIONS || count >= MAX_PER_ADDRESS {
            return None;
        }
        counts.insert(client, count + 1);
        drop(counts);
        Some(Self {
            client,
            guests: guests.clone(),
        })
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut counts = self.guests.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.client);
            }
        }
    }
}

type Reply = Response<BoxBody<Bytes, Infallible>>;

async fn answer(request: Request<Incoming>) -> Result<Reply, Infallible> {
    let path = request.uri().path();
    Ok(match (request.method(), path) {
        (&Method::GET, path) if CONFIGURATION.contains(&path) => match authority(&request) {
            Some(host) => text(configuration(&host), "application/json"),
            None => status(StatusCode::BAD_REQUEST),
        },
        (&Method::GET, "/small") => text("x".to_owned(), "application/octet-stream"),
        (&Method::GET, "/large") => reply(Endless { left: LARGE }.boxed(), "application/octet-stream"),
        (&Method::POST | &Method::PUT, "/upload") => {
            swallow(request.into_body()).await;
            text(String::new(), "text/plain")
        }
        _ => status(StatusCode::NOT_FOUND),
    })
}

/// The name by which the client reached us, which its next requests must bear as well.
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

/// Both the draft's names and those of older clients.
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

async fn swallow(mut body: Incoming) {
    while let Some(Ok(frame)) = body.frame().await {
        drop(frame);
    }
}

/// Noise of a known length.
pub(crate) struct Endless {
    pub(crate) left: u64,
}

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let noise = Bytes::from_static(load::payload());
        let length = (noise.len() as u64).min(self.left);
        self.left -= length;
        Poll::Ready(Some(Ok(Frame::data(noise.slice(..length as usize)))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
